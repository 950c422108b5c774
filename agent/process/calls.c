/* agent/process/calls.c: writes, checks and looks up what frames of a runtime's code execute. */
#include "agent/process/calls.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "schema/calls_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a process's table holds at most: a source that adds more without CALLS_FORGET is cut. */
#define FRAMES_MAX (256u << 10)
#define TEXTS_MAX  (32u << 20)

/* ---- writing -------------------------------------------------------------------------------- */

void calls_writer_fini(struct calls_writer *w)
{
	free(w->frames);
	free(w->calls);
	free(w->texts);
	free(w->bytes);
	*w = (struct calls_writer){ .n_frames = 0 };
}

size_t calls_writer_memory(const struct calls_writer *w)
{
	return w->room_frames * sizeof(*w->frames) + w->room_calls * sizeof(*w->calls) +
	       w->room_texts + w->room_bytes;
}

void calls_begin(struct calls_writer *w)
{
	w->n_frames = w->n_calls = w->n_texts = 0;
}

/* Return how many bytes the blob will have. */
static size_t size_of(const struct calls_writer *w)
{
	return sizeof(struct calls_header) + w->n_frames * sizeof(*w->frames) +
	       w->n_calls * sizeof(*w->calls) + w->n_texts + 1;
}

int calls_frame(struct calls_writer *w, uint64_t key0, uint64_t key1)
{
	if (size_of(w) > CALLS_SIZE_MAX - sizeof(*w->frames))
		return -E2BIG;
	if (array_grow(w->frames, w->n_frames, w->room_frames))
		return -ENOMEM;
	w->frames[w->n_frames++] =
		(struct calls_frame){ .key = { key0, key1 }, .first = (uint32_t)w->n_calls };
	return 0;
}

int calls_saved(struct calls_writer *w, uint64_t pc, uint32_t saved)
{
	int err = calls_frame(w, pc, 0);

	if (!err)
		w->frames[w->n_frames - 1].first = saved;
	return err;
}

/* Append a text, unless it is that of the call before; *at becomes its offset among the texts plus 1. */
static int add_text(struct calls_writer *w, const char *text, uint32_t before, uint32_t *at)
{
	size_t n = strlen(text) + 1;

	if (before && !strcmp(w->texts + before - 1, text)) {
		*at = before;
		return 0;
	}
	if (array_reserve(w->texts, w->n_texts + n, w->room_texts))
		return -ENOMEM;
	memcpy(w->texts + w->n_texts, text, n);
	*at = (uint32_t)w->n_texts + 1;
	w->n_texts += n;
	return 0;
}

void calls_drop(struct calls_writer *w)
{
	w->n_calls = w->frames[--w->n_frames].first;
}

static int drop(struct calls_writer *w, int err)
{
	calls_drop(w);
	return err;
}

int calls_add(struct calls_writer *w, const struct call *call)
{
	const struct calls_call *before = w->n_calls ? &w->calls[w->n_calls - 1] : NULL;
	struct calls_call new = { .line = call->line, .start_line = call->start_line };
	size_t more = sizeof(new) + strlen(call->function) + 1;
	int err;

	if (call->file)
		more += strlen(call->file) + 1;
	if (more > CALLS_SIZE_MAX || size_of(w) > CALLS_SIZE_MAX - more)
		return drop(w, -E2BIG);
	err = add_text(w, call->function, before ? before->function : 0, &new.function);
	if (!err && call->file)
		err = add_text(w, call->file, before ? before->file : 0, &new.file);
	if (!err && array_grow(w->calls, w->n_calls, w->room_calls))
		err = -ENOMEM;
	if (err)
		return drop(w, err);
	w->calls[w->n_calls++] = new;
	w->frames[w->n_frames - 1].n++;
	return 0;
}

const void *calls_finish(struct calls_writer *w, const struct calls_interpreter *interpreter,
			 bool forget, size_t *size)
{
	struct calls_header header = { .magic = CALLS_MAGIC,
				       .version = CALLS_VERSION,
				       .runtime = interpreter->runtime,
				       .size = size_of(w),
				       .n_frames = (uint32_t)w->n_frames,
				       .n_calls = (uint32_t)w->n_calls,
				       .flags = forget ? CALLS_FORGET : 0,
				       .slots = { interpreter->slots[0], interpreter->slots[1] },
				       .reg = interpreter->reg,
				       .start = interpreter->start,
				       .end = interpreter->end };
	uint32_t texts = (uint32_t)(header.size - 1 - w->n_texts);
	uint8_t *to;

	if ((!w->n_frames && !forget) || array_reserve(w->bytes, header.size, w->room_bytes))
		return NULL;
	for (size_t i = 0; i < w->n_calls; i++) {
		w->calls[i].function += texts - 1;
		if (w->calls[i].file)
			w->calls[i].file += texts - 1;
	}
	to = w->bytes;
	memcpy(to, &header, sizeof(header));
	to += sizeof(header);
	if (w->n_frames)
		memcpy(to, w->frames, w->n_frames * sizeof(*w->frames));
	to += w->n_frames * sizeof(*w->frames);
	if (w->n_calls)
		memcpy(to, w->calls, w->n_calls * sizeof(*w->calls));
	to += w->n_calls * sizeof(*w->calls);
	if (w->n_texts)
		memcpy(to, w->texts, w->n_texts);
	to[w->n_texts] = 0;
	*size = header.size;
	calls_begin(w);
	return w->bytes;
}

/* ---- reading -------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint64_t key[2])
{
	return hash_u64(hash_u64(0, key[0]), key[1]);
}

void calls_seen_fini(struct calls_seen *seen)
{
	free(seen->all);
	uw_hash_fini(&seen->by_key);
	*seen = (struct calls_seen){ .n = 0 };
}

size_t calls_seen_memory(const struct calls_seen *seen)
{
	return seen->room * sizeof(*seen->all) + uw_hash_memory(&seen->by_key);
}

void calls_seen_bound(struct calls_seen *seen, size_t max)
{
	if (seen->n < max)
		return;
	uw_hash_clear(&seen->by_key);
	seen->n = 0;
	seen->forgot = true;
}

struct calls_seen_frame *calls_seen_find(struct calls_seen *seen, const uint64_t key[2])
{
	uint32_t i = UW_HASH_FIND(k, &seen->by_key, hash_of(key),
				  seen->all[k].key[0] == key[0] && seen->all[k].key[1] == key[1]);

	return i == UW_HASH_NONE ? NULL : &seen->all[i];
}

struct calls_seen_frame *calls_seen_of(struct calls_seen *seen, const uint64_t key[2])
{
	struct calls_seen_frame *f = calls_seen_find(seen, key);

	if (f)
		return f;
	if (array_grow(seen->all, seen->n, seen->room) ||
	    uw_hash_add(&seen->by_key, hash_of(key), (uint32_t)seen->n))
		return NULL;
	f = &seen->all[seen->n++];
	*f = (struct calls_seen_frame){ .key = { key[0], key[1] } };
	return f;
}

/* ---- a process's table ---------------------------------------------------------------------- */

struct place { /* a frame of the table */
	uint64_t key[2];
	uint32_t first, n; /* of its calls; n 0: as in schema/calls_blob.h */
};

struct calls {
	struct calls_interpreter interpreter;
	struct place *frames;
	size_t n_frames, room_frames;
	struct uw_hash_index by_key;
	struct call *calls;
	size_t n_calls, room_calls;
	struct strings texts;
	size_t n_texts; /* bytes of them */
};

bool calls_are(const void *bytes, size_t size)
{
	uint32_t magic;

	if (size < sizeof(magic))
		return false;
	memcpy(&magic, bytes, sizeof(magic));
	return magic == CALLS_MAGIC;
}

size_t calls_memory(const struct calls *c)
{
	return c ? c->room_frames * sizeof(*c->frames) + c->room_calls * sizeof(*c->calls) +
			       uw_hash_memory(&c->by_key) + c->n_texts
		 : 0;
}

void calls_free(struct calls *c)
{
	if (!c)
		return;
	free(c->frames);
	uw_hash_fini(&c->by_key);
	free(c->calls);
	strings_fini(&c->texts);
	free(c);
}

static void forget(struct calls *c)
{
	uw_hash_clear(&c->by_key);
	strings_fini(&c->texts);
	c->n_frames = c->n_calls = c->n_texts = 0;
}

static uint32_t find(const struct calls *c, const uint64_t key[2])
{
	return UW_HASH_FIND(i, &c->by_key, hash_of(key),
			    c->frames[i].key[0] == key[0] && c->frames[i].key[1] == key[1]);
}

/* Check the header and the ranges of all that it counts. */
static int check(const uint8_t *bytes, size_t size, struct calls_header *header)
{
	uint64_t need;

	if (size < sizeof(*header))
		return -EBADMSG;
	memcpy(header, bytes, sizeof(*header));
	if (header->version != CALLS_VERSION)
		return -ENOTSUP;
	need = sizeof(*header) + header->n_frames * (uint64_t)sizeof(struct calls_frame) +
	       header->n_calls * (uint64_t)sizeof(struct calls_call) + 1;
	if (header->size != size || size > CALLS_SIZE_MAX || need > size || bytes[size - 1] ||
	    header->start > header->end || header->reg >= UW_REGS_MAX)
		return -EBADMSG;
	return 0;
}

/* Return the table's copy of a text of the blob. NULL: no memory, or the table is full. */
static const char *take_text(struct calls *c, const uint8_t *bytes, uint32_t at)
{
	const char *text = (const char *)bytes + at;
	size_t n = strlen(text), before = c->texts.n;
	const char *stored;

	if (c->n_texts > TEXTS_MAX - CALLS_SIZE_MAX)
		return NULL;
	stored = strings_keep(&c->texts, text, n);
	if (c->texts.n != before)
		c->n_texts += n + 1;
	return stored;
}

/* Add one call of the blob. */
static int take_call(struct calls *c, const uint8_t *bytes, const struct calls_call *from)
{
	struct call call = { .line = from->line, .start_line = from->start_line };

	call.function = take_text(c, bytes, from->function);
	call.file = from->file ? take_text(c, bytes, from->file) : NULL;
	if (!call.function || (from->file && !call.file) ||
	    array_grow(c->calls, c->n_calls, c->room_calls))
		return -ENOMEM;
	c->calls[c->n_calls++] = call;
	return 0;
}

/* Enter a frame whose calls were added from first on. */
static int enter(struct calls *c, const struct calls_frame *from, size_t first)
{
	struct place place = { .key = { from->key[0], from->key[1] },
			       .first = from->n ? (uint32_t)first : from->first,
			       .n = from->n };
	uint32_t i = find(c, place.key);

	if (i == UW_HASH_NONE) {
		if (array_grow(c->frames, c->n_frames, c->room_frames) ||
		    uw_hash_add(&c->by_key, hash_of(place.key), (uint32_t)c->n_frames))
			return -ENOMEM;
		i = (uint32_t)c->n_frames++;
	}
	c->frames[i] = place;
	return 0;
}

int calls_take(struct calls **out, const void *data, size_t size)
{
	const uint8_t *bytes = data, *frames = bytes + sizeof(struct calls_header), *calls;
	struct calls_header header;
	struct calls *c;
	size_t texts;
	int err = check(bytes, size, &header);

	if (err)
		return err;
	calls = frames + header.n_frames * sizeof(struct calls_frame);
	texts = (size_t)(calls - bytes) + header.n_calls * sizeof(struct calls_call);
	c = *out ? *out : calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*out = c;
	if (header.flags & CALLS_FORGET)
		forget(c);
	c->interpreter = (struct calls_interpreter){ .runtime = header.runtime,
						     .slots = { header.slots[0], header.slots[1] },
						     .reg = header.reg,
						     .start = header.start,
						     .end = header.end };
	for (uint32_t i = 0; i < header.n_frames; i++) {
		struct calls_frame frame;
		size_t first = c->n_calls;

		memcpy(&frame, frames + i * sizeof(frame), sizeof(frame));
		if (frame.n ? frame.first > header.n_calls || frame.n > header.n_calls - frame.first
			    : frame.first > CALLS_SAVED_MAX)
			return -EBADMSG;
		if (c->n_frames >= FRAMES_MAX || c->n_calls > 8 * FRAMES_MAX)
			return 0;
		for (uint32_t k = 0; k < frame.n; k++) {
			struct calls_call call;

			memcpy(&call, calls + (frame.first + k) * sizeof(call), sizeof(call));
			if (call.function < texts || call.function >= size ||
			    (call.file && (call.file < texts || call.file >= size)))
				return -EBADMSG;
			err = take_call(c, bytes, &call);
			if (err)
				return err;
		}
		err = enter(c, &frame, first);
		if (err)
			return err;
	}
	return 0;
}

const struct calls_interpreter *calls_interpreter_of(const struct calls *c)
{
	return &c->interpreter;
}

/* Put the first calls of a place into out, and return how many it has. */
static size_t put_calls(const struct calls *c, const struct place *p, struct call *out, size_t max)
{
	for (size_t k = 0; k < p->n && k < max; k++)
		out[k] = c->calls[p->first + k];
	return p->n;
}

size_t calls_find(const struct calls *c, uint64_t key0, uint64_t key1, struct call *out, size_t max)
{
	const uint64_t key[2] = { key0, key1 };
	uint32_t i = find(c, key);

	return i == UW_HASH_NONE ? 0 : put_calls(c, &c->frames[i], out, max);
}

/* Return the calls of a frame of compiled code, also of one whose return address was replaced. */
static size_t of_compiled(const struct calls *c, const struct uw_frame *frame,
			  const struct uw_thread *thread, struct call *out, size_t max)
{
	const uint64_t key[2] = { frame->pc, frame->exact };
	uint32_t i = find(c, key);
	uint8_t bytes[8];
	uint64_t pc;

	if (i == UW_HASH_NONE)
		return 0;
	if (c->frames[i].n)
		return put_calls(c, &c->frames[i], out, max);
	if (thread->read(thread->ctx, frame->sp + c->frames[i].first, bytes, sizeof(bytes)))
		return 0;
	memcpy(&pc, bytes, sizeof(pc));
	return calls_find(c, pc, 0, out, max);
}

/* Return whether the frame has this slot already: while it is made, the stack ends above. */
static bool has_slot(const struct uw_frame *frame, uint64_t fp, int16_t slot)
{
	return frame->sp <= fp + (uint64_t)(8 * (int64_t)slot);
}

/* Read a slot of an interpreted frame. */
static bool read_slot(const struct uw_thread *thread, uint64_t fp, int16_t slot, uint64_t *out)
{
	uint8_t bytes[8];

	if (thread->read(thread->ctx, fp + (uint64_t)(8 * (int64_t)slot), bytes, sizeof(bytes)))
		return false;
	memcpy(out, bytes, sizeof(bytes));
	return true;
}

size_t calls_of_frame(const struct calls *c, const struct uw_frame *frame,
		      const struct uw_thread *thread, bool innermost, struct call *out, size_t max)
{
	const struct calls_interpreter *in = &c->interpreter;
	uint64_t fp = frame->cfa - 16, key[2];
	size_t n = 0;

	if (frame->pc < in->start || frame->pc >= in->end)
		return of_compiled(c, frame, thread, out, max);
	if (!frame->cfa || !has_slot(frame, fp, in->slots[0]) ||
	    !read_slot(thread, fp, in->slots[0], &key[0]))
		return 0;
	if (innermost && in->reg >= 0 && thread->regs.known >> in->reg & 1)
		n = calls_find(c, key[0], thread->regs.value[in->reg], out, max);
	if (!n && has_slot(frame, fp, in->slots[1]) && read_slot(thread, fp, in->slots[1], &key[1]))
		n = calls_find(c, key[0], key[1], out, max);
	if (!n && innermost)
		n = calls_find(c, key[0], 0, out, max);
	return n;
}

/* agent/runtime/frames.c: the table of frames of interpreted code, by the hash of their names. */
#include "agent/runtime/frames.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/limits.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_MASK (UINT64_MAX >> 2)

struct frame {
	uint64_t address;
	char *text;	  /* the function and, behind its NUL, the file; owned */
	const char *file; /* in text; NULL: not known */
	uint32_t line, start_line;
	uint32_t newer, older; /* in the order of use; UW_HASH_NONE: none */
};

struct runtime_frames {
	pthread_mutex_t lock;
	struct frame *all;
	size_t n, room;
	uint32_t newest, oldest; /* UW_HASH_NONE: none */
	struct uw_hash_index by_address;
};

int runtime_frames_new(struct runtime_frames **out)
{
	struct runtime_frames *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->newest = f->oldest = UW_HASH_NONE;
	(void)pthread_mutex_init(&f->lock, NULL);
	*out = f;
	return 0;
}

void runtime_frames_free(struct runtime_frames *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->all[i].text);
	free(f->all);
	uw_hash_fini(&f->by_address);
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

/*
 * Hash what names a frame. The hash is the same everywhere and for ever, and nobody can choose names with
 * the hash of another frame, so it is a cryptographic one.
 */
static uint64_t address_of(const char *module, const char *function, const char *file,
			   const struct runtime_name *name)
{
	const uint32_t lines[2] = { name->line, name->start_line };
	struct sha256_ctx ctx;
	uint64_t address;

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(module) + 1, (const uint8_t *)module);
	sha256_update(&ctx, strlen(function) + 1, (const uint8_t *)function);
	sha256_update(&ctx, strlen(file) + 1, (const uint8_t *)file);
	sha256_update(&ctx, sizeof(lines), (const uint8_t *)lines);
	sha256_digest(&ctx, sizeof(address), (uint8_t *)&address);
	address &= ADDRESS_MASK;
	return address ? address : 1;
}

static uint32_t find(const struct runtime_frames *f, uint64_t address)
{
	return UW_HASH_FIND(i, &f->by_address, hash_u64(0, address), f->all[i].address == address);
}

/* Take a frame out of the list, or put it in front. */
static void unlink_frame(struct runtime_frames *f, uint32_t id)
{
	struct frame *frame = &f->all[id];

	*(frame->newer == UW_HASH_NONE ? &f->newest : &f->all[frame->newer].older) = frame->older;
	*(frame->older == UW_HASH_NONE ? &f->oldest : &f->all[frame->older].newer) = frame->newer;
}

static void link_newest(struct runtime_frames *f, uint32_t id)
{
	f->all[id].newer = UW_HASH_NONE;
	f->all[id].older = f->newest;
	*(f->newest == UW_HASH_NONE ? &f->oldest : &f->all[f->newest].newer) = id;
	f->newest = id;
}

static void use(struct runtime_frames *f, uint32_t id)
{
	if (f->newest == id)
		return;
	unlink_frame(f, id);
	link_newest(f, id);
}

/*
 * Find a place for one more frame: a new one, or that of the longest unused frame, and add it to the index.
 * UW_HASH_NONE: no memory.
 */
static uint32_t take_place(struct runtime_frames *f, uint64_t address)
{
	bool full = f->n >= limits.interpreted_frames;
	uint32_t id = full ? f->oldest : (uint32_t)f->n;

	if ((!full && array_grow(f->all, f->n, f->room)) ||
	    uw_hash_add(&f->by_address, hash_u64(0, address), id))
		return UW_HASH_NONE;
	if (full) {
		uw_hash_remove(&f->by_address, hash_u64(0, f->all[id].address), id);
		unlink_frame(f, id);
		free(f->all[id].text);
		limits_reach(interpreted_frames, 1);
	} else {
		f->n++;
	}
	return id;
}

/* Put both texts into one, sanitised. *file is in it; it is "" if the file is not known. */
static char *make_text(const struct runtime_name *name, const char **file)
{
	const char *function = name->function ? name->function : "";
	const char *path = name->file ? name->file : "";
	char *a = sym_sanitize(function, strnlen(function, RUNTIME_TEXT_MAX), RUNTIME_TEXT_MAX);
	char *b = sym_sanitize(path, strnlen(path, RUNTIME_TEXT_MAX), RUNTIME_TEXT_MAX);
	size_t n = a ? strlen(a) + 1 : 0;
	char *text = a && b ? malloc(n + strlen(b) + 1) : NULL;

	if (text) {
		memcpy(text, a, n);
		memcpy(text + n, b, strlen(b) + 1);
		*file = text + n;
	}
	free(a);
	free(b);
	return text;
}

uint64_t runtime_frames_add(struct runtime_frames *f, const char *module,
			    const struct runtime_name *name)
{
	const char *file;
	char *text = make_text(name, &file);
	uint64_t address;
	uint32_t id;

	if (!text)
		return 0;
	address = address_of(module, text, file, name);
	(void)pthread_mutex_lock(&f->lock);
	id = find(f, address);
	if (id != UW_HASH_NONE) {
		use(f, id);
	} else {
		id = take_place(f, address);
		if (id != UW_HASH_NONE) {
			f->all[id] = (struct frame){ .address = address,
						     .text = text,
						     .file = *file ? file : NULL,
						     .line = name->line,
						     .start_line = name->start_line };
			link_newest(f, id);
			text = NULL;
		} else {
			address = 0;
		}
	}
	(void)pthread_mutex_unlock(&f->lock);
	free(text);
	return address;
}

bool runtime_frames_use(struct runtime_frames *f, uint64_t address)
{
	uint32_t id;

	(void)pthread_mutex_lock(&f->lock);
	id = find(f, address);
	if (id != UW_HASH_NONE)
		use(f, id);
	(void)pthread_mutex_unlock(&f->lock);
	return id != UW_HASH_NONE;
}

char *runtime_frames_find(struct runtime_frames *f, uint64_t address, struct runtime_name *out)
{
	char *text = NULL;
	uint32_t id;

	(void)pthread_mutex_lock(&f->lock);
	id = find(f, address);
	if (id != UW_HASH_NONE) {
		const struct frame *frame = &f->all[id];
		size_t n = strlen(frame->text) + 1, m = frame->file ? strlen(frame->file) + 1 : 0;

		text = malloc(n + m);
		if (text) {
			memcpy(text, frame->text, n);
			if (m)
				memcpy(text + n, frame->file, m);
			*out = (struct runtime_name){ .function = text,
						      .file = m ? text + n : NULL,
						      .line = frame->line,
						      .start_line = frame->start_line };
		}
	}
	(void)pthread_mutex_unlock(&f->lock);
	return text;
}

size_t runtime_frames_count(struct runtime_frames *f)
{
	size_t n;

	(void)pthread_mutex_lock(&f->lock);
	n = f->n;
	(void)pthread_mutex_unlock(&f->lock);
	return n;
}

/* agent/runtime/interpreter.c: an interpreter in a process: puts raw frames into stacks, and stores their names. */
#include "agent/runtime/interpreter.h"

#include "agent/array.h"
#include "agent/hash.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 1024	 /* of a sample */
#define KNOWN_MAX  65536 /* frames with names; beyond it all names are found again */

struct known {
	uint64_t code, at, owner;
	uint64_t address; /* runtime_frames_add */
};

struct interpreter {
	const struct interpreter_kind *kind;
	struct uw_object *object; /* a reference */
	uint64_t bias;
	uint64_t start, end; /* run-time addresses of the function at kind.loop */
	struct known *known;
	size_t n_known, room_known;
	struct uw_hash_index by_frame;
	struct raw_frame frames[FRAMES_MAX];
	struct raw_reader reader;
	struct raw_name name; /* the one that is found now */
	max_align_t own[];
};

void *interpreter_own(struct interpreter *in)
{
	return in->own;
}

int interpreter_attach(const struct interpreter_kind *kind, const struct runtime_file *file,
		       void **state, struct plan *plan)
{
	uint64_t loop = kind->loop(file), start, end;
	struct interpreter *in;
	int err;

	if (!loop || uw_object_function(file->object, loop - file->bias, &start, &end))
		return -ENOTSUP;
	in = malloc(sizeof(*in) + kind->own_size);
	if (!in)
		return -ENOMEM;
	memset(in, 0, offsetof(struct interpreter, frames));
	memset(in->own, 0, kind->own_size);
	in->kind = kind;
	in->object = uw_object_get(file->object);
	in->bias = file->bias;
	in->start = start + file->bias;
	in->end = end + file->bias;
	err = kind->attach(in, file, plan);
	if (err)
		interpreter_detach(in);
	else
		*state = in;
	return err;
}

void interpreter_detach(void *state)
{
	struct interpreter *in = state;

	if (!in)
		return;
	uw_object_put(in->object);
	uw_hash_fini(&in->by_frame);
	free(in->known);
	free(in);
}

/* ---- names ------------------------------------------------------------------------------------- */

static uint64_t hash_frame(const struct raw_frame *f)
{
	return hash_u64(hash_u64(hash_u64(0, f->code), f->at), f->owner);
}

static struct known *find_known(const struct interpreter *in, const struct raw_frame *f)
{
	uint32_t id = UW_HASH_FIND(i, &in->by_frame, hash_frame(f),
				   in->known[i].code == f->code && in->known[i].at == f->at &&
					   in->known[i].owner == f->owner);

	return id == UW_HASH_NONE ? NULL : &in->known[id];
}

static void store(struct interpreter *in, const struct raw_frame *f, uint64_t address)
{
	if (in->n_known == KNOWN_MAX) {
		uw_hash_clear(&in->by_frame);
		in->n_known = 0;
	}
	/* Without memory the name is found again next time. */
	if (array_grow(in->known, in->n_known, in->room_known) ||
	    uw_hash_add(&in->by_frame, hash_frame(f), (uint32_t)in->n_known))
		return;
	in->known[in->n_known++] = (struct known){
		.code = f->code, .at = f->at, .owner = f->owner, .address = address
	};
}

/* Find a frame's name. If not all of it could be read now, it is none. */
static bool find_name(struct interpreter *in, const struct raw_frame *f,
		      struct runtime_stack *stack)
{
	bool failed = in->kind->name(in, &in->reader, f, &in->name);

	if (runtime_is_late(stack->memory) || in->reader.is_full)
		stack->missing = "names of frames are read later";
	else if (failed)
		stack->missing = "names of frames cannot be read";
	else
		return true;
	return false;
}

/* Return the address of a frame. One without a name is a frame, too. 0: no memory. */
static uint64_t address_of(struct interpreter *in, const struct raw_frame *f,
			   struct runtime_stack *stack)
{
	static const struct runtime_name unknown = { .function = "[unknown]" };
	struct known *known = find_known(in, f);
	struct runtime_name name;
	uint64_t address;

	if (known && !f->short_lived && runtime_frames_use(stack->frames, known->address))
		return known->address;
	if (!find_name(in, f, stack))
		return runtime_frames_add(stack->frames, in->kind->module, &unknown);
	name = (struct runtime_name){
		.function = in->name.function.bytes,
		.file = in->name.file.n ? in->name.file.bytes : NULL,
		.line = in->name.line,
		.start_line = in->name.start_line,
	};
	address = runtime_frames_add(stack->frames, in->kind->module, &name);
	if (address && !known && !f->short_lived)
		store(in, f, address);
	return address;
}

/* ---- stacks ------------------------------------------------------------------------------------ */

bool interpreter_is_in_loop(const struct interpreter *in, uint64_t pc)
{
	return pc >= in->start && pc < in->end;
}

/* Return whether a native frame is of a function of the interpreter's file that has at least so many bytes. */
static bool is_large(const struct interpreter *in, const struct uw_frame *frame)
{
	uint64_t start, end;

	return frame->mapping && frame->mapping->object == in->object &&
	       !uw_object_function(in->object, frame->lookup - in->bias, &start, &end) &&
	       end - start >= in->kind->callee_size;
}

/*
 * Return the number of the native frame that runs code for the frame number i, which is of the function at
 * kind.loop.
 */
static size_t runs_at(const struct interpreter *in, const struct runtime_stack *stack, size_t i)
{
	return in->kind->callee_size && i && is_large(in, stack->native[i - 1]) ? i - 1 : i;
}

/* Return the number of the next native frame of the loop from number i on; n_native: there is none. */
static size_t next_loop(const struct interpreter *in, const struct runtime_stack *stack, size_t i)
{
	while (i < stack->n_native && !interpreter_is_in_loop(in, stack->native[i]->lookup))
		i++;
	return i;
}

/*
 * Put the interpreted frames from number next on, up to the one that a loop was entered for, where the native
 * frame number at is. above: the CFA of the next loop outside of it. Return the number of the frame after them.
 */
static size_t put_entered(struct interpreter *in, const struct raw_stack *raw, size_t next,
			  size_t at, uint64_t above, struct runtime_stack *stack)
{
	bool entry = false, first = true;

	for (; next < raw->n && !entry; next++) {
		const struct raw_frame *f = &raw->frames[next];

		entry = f->entry || (f->within && f->within < above);
		if (f->nameless)
			continue;
		if (!runtime_put(stack, at, address_of(in, f, stack),
				 first && at < stack->n_native)) {
			stack->missing = "there are more frames than a stack has room for";
			return raw->n;
		}
		first = false;
	}
	return next;
}

/* Put the frames into a sample's stack. */
static void put_frames(struct interpreter *in, const struct raw_stack *raw,
		       struct runtime_stack *stack)
{
	size_t next = 0;

	raw_reader_begin(&in->reader, stack->memory);
	if (!stack->n_native) { /* only what leads to the names is wanted */
		for (size_t i = 0; i < raw->n; i++)
			if (!raw->frames[i].nameless)
				(void)address_of(in, &raw->frames[i], stack);
		return;
	}
	for (size_t i = next_loop(in, stack, 0); i < stack->n_native && next < raw->n;) {
		size_t outer = next_loop(in, stack, i + 1);
		uint64_t above = outer < stack->n_native ? stack->native[outer]->cfa : 0;

		next = put_entered(in, raw, next, runs_at(in, stack, i), above, stack);
		i = outer;
	}
	/* The native stack may be cut. */
	while (next < raw->n)
		next = put_entered(in, raw, next, stack->n_native, 0, stack);
}

/* Return why frames are missing, by what kind.stack returned. NULL: all are there. */
static const char *missing_by(int err)
{
	switch (err) {
	case 0:
		return NULL;
	case -EFAULT:
		return "memory of frames was not captured";
	case -ELOOP:
		return "the frames are a cycle";
	case -E2BIG:
		return "there are more frames than are read";
	default:
		return "memory of frames is damaged";
	}
}

int interpreter_first_slice(const struct runtime_stack *stack, uint64_t *out)
{
	const struct event_sample *sample = &stack->event->sample;

	if (!sample->n_slices)
		return -EFAULT;
	*out = sample->slices[0].addr;
	return 0;
}

void interpreter_decode(void *state, struct runtime_stack *stack)
{
	struct interpreter *in = state;
	struct raw_stack raw = { .frames = in->frames, .max = FRAMES_MAX };

	stack->missing = missing_by(in->kind->stack(in, stack, &raw));
	put_frames(in, &raw, stack);
}

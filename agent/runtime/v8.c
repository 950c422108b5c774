/*
 * agent/runtime/v8.c: frames of JavaScript functions. Their names are read before a sample is walked
 * (agent/process/v8.h); here, the frames that the walk found get them.
 */
#include "agent/runtime/v8.h"

#include "agent/opener/opener.h"
#include "agent/process/v8.h"

#include <errno.h>

#define CALLS_MAX 64 /* of one frame */

enum { EXPORT_ANY, EXPORT_NEEDED };

/*
 * The program can be in the library, so one of both has it. Nothing is needed beside the stack. From V8 12 on (node 22), where
 * a function's code is found is not exported.
 */
static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	(void)plan;
	*state = NULL;
	return file->exports[EXPORT_NEEDED] ? 0 : -ENOTSUP;
}

static void detach(void *state)
{
	(void)state;
}

/* Read a slot of a frame. */
static uint64_t slot_of(struct runtime_stack *s, const struct uw_frame *frame, int16_t slot)
{
	uint64_t word = 0;

	if (!frame->cfa ||
	    !runtime_read_u64(s->memory, frame->cfa - 16 + (uint64_t)(8 * (int64_t)slot), &word))
		return 0;
	return word;
}

/* Return whether two calls are of the same function; their texts are those of one table. */
static bool is_same(const struct call *a, const struct call *b)
{
	return a->function == b->function && a->file == b->file && a->start_line == b->start_line;
}

/*
 * Find where interpreted code is that called no other function of JavaScript: V8's code for an operation is the frame
 * itself, or the one that it called. Interrupted there, the place is in the registers; else it is in the frame's slot.
 */
static size_t find_here(struct runtime_stack *s, size_t i, uint64_t bytecode, uint64_t place,
			struct call *out)
{
	size_t n = 0;

	for (size_t k = i + 1; !n && k-- > 0 && k + 1 >= i;) {
		uint64_t word = k ? place : v8_place_now(&s->event->sample.regs, bytecode);
		uint64_t key = v8_key_here(word, s->native[k]->pc);

		n = key ? calls_find(s->calls, bytecode, key, out, 1) : 0;
	}
	return n;
}

/*
 * Find what a frame with bytecode runs. Where in it interpreted code is, is stored before each call of a function of JavaScript.
 * Before other calls and while an operation runs, the slot can have an older place, and the registers can have something else: so
 * there it was compared with the code that runs. The pc of the baseline compiler's code tells always. What is known of the
 * place must be of the same function: it may be of one that was at the same address before.
 */
static size_t find_bytecode(struct runtime_stack *s, size_t i, const struct calls_interpreter *how,
			    bool called, struct call *out)
{
	const struct uw_frame *frame = s->native[i];
	uint64_t bytecode = slot_of(s, frame, how->slots[1]);
	uint64_t place = slot_of(s, frame, (int16_t)(how->slots[1] - 1));
	uint64_t key = v8_key_at(place);
	struct call at;
	size_t n;

	if (!calls_find(s->calls, bytecode, V8_KEY_BYTECODE, out, 1))
		return 0;
	n = !key     ? calls_find(s->calls, frame->pc, V8_KEY_BASELINE, &at, 1)
	    : called ? calls_find(s->calls, bytecode, key, &at, 1)
		     : find_here(s, i, bytecode, place, &at);
	if (n && is_same(&at, out))
		out->line = at.line;
	return 1;
}

static void decode(void *state, struct runtime_stack *s)
{
	const struct calls_interpreter *how = s->calls ? calls_interpreter_of(s->calls) : NULL;
	bool called = false; /* another frame of JavaScript */

	(void)state;
	for (size_t i = 0; how && i < s->n_native; i++) {
		const struct uw_frame *frame = s->native[i];
		struct call calls[CALLS_MAX], own;
		size_t n;

		/* A tagged pointer, which is no address of code or of the stack. */
		if ((slot_of(s, frame, how->slots[0]) & 3) != 1)
			continue;
		n = i ? 0 : calls_find(s->calls, frame->pc, V8_KEY_INTERRUPTED, calls, CALLS_MAX);
		/* Captures of older versions have no other key. */
		if (!n)
			n = calls_find(s->calls, frame->pc, V8_KEY_PC, calls, CALLS_MAX);
		/* Optimized code may have the bytecode in its frame, too: its outermost call is the same function. */
		if (find_bytecode(s, i, how, called, &own) &&
		    !(n && n <= CALLS_MAX && is_same(&calls[n - 1], &own))) {
			calls[0] = own;
			n = 1;
		}
		if (!runtime_put_calls(s, i, runtime_v8.module, calls,
				       n < CALLS_MAX ? n : CALLS_MAX))
			return;
		called |= n != 0;
	}
}

const struct runtime_ops runtime_v8 = {
	.module = "[v8]",
	.exports = { [EXPORT_ANY] = "v8dbg_TaggedSize",
		     [EXPORT_NEEDED] = "v8dbg_class_SharedFunctionInfo__function_data__Object" },
	.once = true,
	.is_named = opener_is_v8,
	.attach = attach,
	.detach = detach,
	.decode = decode,
};

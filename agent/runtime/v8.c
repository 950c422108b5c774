/*
 * agent/runtime/v8.c: frames of JavaScript functions. Their names are read before a sample is walked
 * (agent/process/v8.h); here, the frames that the walk found get them.
 */
#include "agent/runtime/v8.h"

#include "agent/process/v8.h"

#include <errno.h>
#include <string.h>

static bool is_named(const char *base)
{
	return !strcmp(base, "node") || !strcmp(base, "nodejs") || !strncmp(base, "libnode.so", 10);
}

/* The program can be in the library, so one of both has it. Nothing is needed beside the stack. */
static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	(void)plan;
	*state = NULL;
	return file->exports[0] ? 0 : -ENOTSUP;
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

static void decode(void *state, struct runtime_stack *s)
{
	const struct calls_interpreter *how = s->calls ? calls_interpreter_of(s->calls) : NULL;

	(void)state;
	for (size_t i = 0; how && i < s->n_native; i++) {
		const struct uw_frame *frame = s->native[i];
		struct call call;

		/* A tagged pointer, which is no address of code or of the stack. */
		if ((slot_of(s, frame, how->slots[0]) & 3) != 1)
			continue;
		if (calls_find(s->calls, slot_of(s, frame, how->slots[1]), V8_KEY_BYTECODE, &call,
			       1) ||
		    calls_find(s->calls, frame->pc, V8_KEY_PC, &call, 1)) {
			const struct runtime_name name = { .function = call.function,
							   .file = call.file,
							   .line = call.line,
							   .start_line = call.start_line };

			if (!runtime_put(s, i,
					 runtime_frames_add(s->frames, runtime_v8.module, &name),
					 true))
				return;
		}
	}
}

const struct runtime_ops runtime_v8 = {
	.module = "[v8]",
	.exports = { "v8dbg_TaggedSize" },
	.once = true,
	.is_named = is_named,
	.attach = attach,
	.detach = detach,
	.decode = decode,
};

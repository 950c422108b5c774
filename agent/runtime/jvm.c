/*
 * agent/runtime/jvm.c: frames of Java methods. What they execute is read before a sample is walked
 * (agent/process/hotspot.h); here, the frames that the walk found get their names by it.
 */
#include "agent/runtime/jvm.h"

#include "agent/process/calls.h"

#include <errno.h>
#include <string.h>

#define CALLS_MAX 64 /* of one frame */

static bool is_named(const char *base)
{
	return !strcmp(base, "libjvm.so");
}

/* Nothing is needed of the file, nor beside the stack. */
static int attach(const struct runtime_file *file, void **state, struct plan *plan)
{
	(void)file;
	(void)plan;
	*state = NULL;
	return 0;
}

static void detach(void *state)
{
	(void)state;
}

/* A uw_read_fn. */
static int read_captured(void *ctx, uint64_t addr, void *out, size_t size)
{
	return runtime_read(ctx, addr, out, size) ? 0 : -EFAULT;
}

static void decode(void *state, struct runtime_stack *stack)
{
	const struct uw_thread captured = { .regs = stack->event->sample.regs,
					    .read = read_captured,
					    .ctx = stack->memory };
	struct call calls[CALLS_MAX];

	(void)state;
	for (size_t i = 0; stack->calls && i < stack->n_native; i++) {
		size_t n = calls_of_frame(stack->calls, stack->native[i], &captured, i == 0, calls,
					  CALLS_MAX);

		if (!runtime_put_calls(stack, i, runtime_jvm.module, calls,
				       n < CALLS_MAX ? n : CALLS_MAX))
			return;
	}
}

const struct runtime_ops runtime_jvm = {
	.module = "[jvm]",
	.is_named = is_named,
	.attach = attach,
	.detach = detach,
	.decode = decode,
};

/*
 * agent/runtime/interpreter.h: an interpreter in a process, whose raw frames it puts into stacks and whose names
 * it stores. PHP, Ruby and Perl share it.
 *
 * An interpreter runs code in a native function, its evaluation loop. Code that C code calls runs in a further
 * call of this function. So each native frame of the loop stands for the interpreted frames up to the one that
 * it was entered for:
 *
 *     native                    interpreted              result
 *     strcmp                                             strcmp
 *     execute_ex                compare (entry)          compare
 *     zend_sort                                          zend_sort
 *     execute_ex                usort, sorted,           usort, sorted, main
 *                               main (entry)
 *     main                                               main
 */
#ifndef AGENT_RUNTIME_INTERPRETER_H
#define AGENT_RUNTIME_INTERPRETER_H

#include "agent/runtime/raw.h"
#include "agent/runtime/runtime.h"

/* An interpreter in a process. */
struct interpreter;

/*
 * What a runtime gives. Its own state of a process (interpreter_own) has own_size bytes, which are zero before
 * attach.
 */
struct interpreter_kind {
	const char *module; /* of its frames: "[php]" */
	size_t own_size;
	/* Return the run-time address of the evaluation loop, 0 if it is not known. */
	uint64_t (*loop)(const struct runtime_file *file);
	/* Not 0: the loop is the function of at least so many bytes that the one of this address calls. */
	uint64_t callee_size;
	/* Fill the own state, and make the plan. -ENOTSUP: there is no layout for this file. */
	int (*attach)(struct interpreter *in, const struct runtime_file *file, struct plan *plan);
	/*
	 * Find the raw frames of a sample. Frames that were found are in raw, whatever is returned: 0; -EFAULT:
	 * memory was not captured; -ELOOP: the frames are a cycle; -E2BIG: there are more than there is room;
	 * -EBADMSG: a number is impossible.
	 */
	int (*stack)(struct interpreter *in, const struct runtime_stack *stack,
		     struct raw_stack *raw);
	/* Find a frame's name. -EFAULT: memory cannot be read; -EBADMSG: what is there is no function. */
	int (*name)(struct interpreter *in, struct raw_reader *reader,
		    const struct raw_frame *frame, struct raw_name *out);
};

/* attach of struct runtime_ops for this kind; the other two are interpreter_detach and interpreter_decode. */
int interpreter_attach(const struct interpreter_kind *kind, const struct runtime_file *file,
		       void **state, struct plan *plan);
void interpreter_detach(void *state); /* NULL is fine */
void interpreter_decode(void *state, struct runtime_stack *stack);

/* Return the runtime's own state. */
void *interpreter_own(struct interpreter *in);

/* Return whether a pc is in the function of kind.loop. */
bool interpreter_is_in_loop(const struct interpreter *in, uint64_t pc);

/* Find the address of the first slice that the plan copied. -EFAULT: it copied none. */
int interpreter_first_slice(const struct runtime_stack *stack, uint64_t *out);

#endif

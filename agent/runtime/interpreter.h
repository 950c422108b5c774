/*
 * agent/runtime/interpreter.h: puts raw frames into stacks, and stores their names. PHP, Ruby and Perl share it.
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

/* The state of an interpreter in a process. */
struct interpreter;

struct interpreter_options {
	const char *module; /* of its frames: "[php]" */
	/* An address in the evaluation loop, and the file that has it. */
	uint64_t loop;
	struct uw_object *object; /* a reference is taken */
	uint64_t bias;
	/*
	 * Not 0: the loop is the function of at least so many bytes that the one at loop calls; it is not
	 * exported itself.
	 */
	uint64_t callee_size;
	/* Find a frame's name; as php_name and the others. */
	int (*name)(void *ctx, struct raw_reader *reader, const struct raw_frame *frame,
		    struct raw_name *out);
	void *ctx;
};

/* -ENOTSUP: there is no function at loop; -ENOMEM. */
int interpreter_new(const struct interpreter_options *options, struct interpreter **out);
void interpreter_free(struct interpreter *interpreter); /* NULL is fine */

/* Return the lent array for the raw frames of a sample; it is filled before interpreter_put. */
struct raw_stack interpreter_stack(struct interpreter *interpreter);

/* Return whether a pc is in the function at options.loop. */
bool interpreter_is_in_loop(const struct interpreter *interpreter, uint64_t pc);

/* Return why frames are missing, by what a reader of stacks returned. NULL: all are there. */
const char *interpreter_missing(int err);

/* Put the frames into a sample's stack. */
void interpreter_put(struct interpreter *interpreter, const struct raw_stack *raw,
		     struct runtime_stack *stack);

#endif

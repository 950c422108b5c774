/*
 * agent/runtime/php.h: reads the stack of a PHP interpreter, and the names of its frames.
 *
 * executor_globals.current_execute_data leads to a chain of zend_execute_data, one for each call
 * (Zend/zend_globals.h, Zend/zend_compile.h). Each has its function and the zend_op that it runs, which
 * knows its line.
 */
#ifndef AGENT_RUNTIME_PHP_H
#define AGENT_RUNTIME_PHP_H

#include "agent/runtime/raw.h"

/* Where things are in the structures of a version: bytes from their start. */
struct php_layout {
	unsigned int major, minor; /* of the Zend engine: 4.2 is in PHP 8.2 */
	uint16_t current;	   /* executor_globals: current_execute_data */
	/* zend_execute_data */
	uint16_t opline, func, info, prev, head; /* head: bytes that have the others */
	uint32_t info_top;			 /* the bit of info for an entry of execute_ex */
	/* zend_function, zend_op_array */
	uint16_t type, name, scope, opcodes, n_opcodes, filename, line_start;
	uint16_t class_name;				   /* zend_class_entry */
	uint16_t string_hash, string_length, string_value; /* zend_string */
	uint16_t op_size, op_line;			   /* zend_op */
};

/* Return the layout of an engine's version. NULL: it is not known. */
const struct php_layout *php_layout_of(unsigned int major, unsigned int minor);

/*
 * Find the frames of the interpreter with these executor_globals. Frames that were found are in the stack,
 * whatever is returned: 0; -EFAULT: memory was not captured; -ELOOP: the chain is a cycle; -E2BIG: it is
 * longer than there is room.
 */
int php_stack(struct runtime_memory *m, const struct php_layout *layout, uint64_t globals,
	      struct raw_stack *stack);

/*
 * Make the plan that copies what php_stack reads. base: where the file that has the globals is.
 */
void php_plan(const struct php_layout *layout, uint64_t globals, uint64_t base, struct plan *out);

/*
 * Find a frame's name: "Class::method", "{closure}"; "{main}" for code of a file that is in no function. The
 * interpreter's own functions have no file.
 * Return 0; -EFAULT: memory cannot be read; -EBADMSG: what is there is no function.
 */
int php_name(struct raw_reader *reader, const struct php_layout *layout,
	     const struct raw_frame *frame, struct raw_name *out);

struct runtime_ops;
extern const struct runtime_ops runtime_php;

#endif

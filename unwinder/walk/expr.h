/*
 * unwinder/walk/expr.h: evaluates the DWARF expressions that call-frame information may use (DWARF
 * 5 §2.5 and §6.4.2, which excludes operators that need a compilation unit).
 */
#ifndef UNWINDER_WALK_EXPR_H
#define UNWINDER_WALK_EXPR_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/walk/step.h"

#define UW_EXPR_STACK_MAX 64

/*
 * Evaluate expr and return the value on top of the stack in *out. If cfa is not NULL, it is
 * pushed first. -EBADMSG: the expression is malformed, or its stack is full. -E2BIG: it takes
 * more operations than the limit: no expression on a Debian disk has a branch, but six bytes of a
 * hostile one can loop for ever. -ENOTSUP: it has an operator that is not allowed here. -ENODATA: a register is not known. -EFAULT: memory was not
 * captured (machine->missing has the address).
 */
int uw_expr_run(struct uw_machine *machine, const uint8_t *expr, size_t size, const uint64_t *cfa,
		uint64_t *out);

#endif

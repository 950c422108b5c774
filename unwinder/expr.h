/*
 * unwinder/expr.h: DWARF expressions as call-frame information may use them
 * (DWARF 5 §2.5 and §6.4.2, which excludes those that need a compilation unit).
 */
#ifndef UNWINDER_EXPR_H
#define UNWINDER_EXPR_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/step.h"

#define UW_EXPR_OPS_MAX	  256 /* none on a Debian disk branches; a six-byte loop hangs others */
#define UW_EXPR_STACK_MAX 64

/*
 * Evaluates expr; cfa, if not NULL, is pushed first.  -EBADMSG malformed or over
 * a limit, -ENOTSUP an operator that has no meaning here, -ENODATA a register
 * that is not known, -EFAULT memory not captured (machine->missing says where).
 */
int uw_expr_run(struct uw_machine *machine, const uint8_t *expr, size_t size, const uint64_t *cfa,
		uint64_t *out);

#endif

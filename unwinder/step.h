/* unwinder/step.h: rule + registers + memory → the caller's registers. */
#ifndef UNWINDER_STEP_H
#define UNWINDER_STEP_H

#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* A thread in one of its frames. */
struct uw_machine {
	const struct uw_arch *arch;
	struct uw_regs regs;
	uw_read_fn read;
	void *ctx;
	uint64_t bias;	  /* of the object whose rule is applied, for DW_OP_addr */
	uint64_t missing; /* the address of the last read that failed */
};

/* A little-endian word of 1, 2, 4 or 8 bytes; -EFAULT sets missing. */
int uw_machine_read(struct uw_machine *machine, uint64_t addr, unsigned int size, uint64_t *out);

/* -ENODATA where it is not known. */
int uw_machine_reg(const struct uw_machine *machine, unsigned int reg, uint64_t *out);

/*
 * 1: machine->regs are the caller's.  0: this is the outermost frame.  Or why
 * not, with the registers untouched: -EFAULT, -ENODATA, -EBADMSG, -ENOTSUP.
 * *cfa is set as soon as it is known.  A caller's register whose slot was not
 * captured is unknown there, which matters only to those that need it.
 */
int uw_step(struct uw_machine *machine, const struct uw_rule *rule, uint64_t *cfa);

#endif

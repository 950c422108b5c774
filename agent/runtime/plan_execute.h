/*
 * agent/runtime/plan_execute.h: runs plans (schema/plan.h) over a function that reads memory, as the BPF programs do over
 * a process: for core files, whose samples have no slices.
 */
#ifndef AGENT_RUNTIME_PLAN_EXECUTE_H
#define AGENT_RUNTIME_PLAN_EXECUTE_H

#include "schema/plan.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan_execution {
	uint64_t r[PLAN_REGS]; /* set PLAN_BASE and PLAN_THREAD, and all others to 0 */
	struct uw_region slices[PLAN_STEPS_MAX];
	uint32_t n; /* slices; their bytes are valid as long as this struct is */
	uint8_t bytes[PLAN_BYTES_MAX];
	size_t used; /* with the heads of slices */
	uint64_t seen[PLAN_STEPS_MAX];
	size_t n_seen;
	uw_read_fn read;
	void *ctx;
};

/* Run a plan, whose registers are below PLAN_REGS. e is zero but for the registers that it begins with. */
enum plan_end plan_execute(struct plan_execution *e, const struct plan *plan, uw_read_fn read,
			   void *ctx);

#endif

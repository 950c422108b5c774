/*
 * agent/cli/cpu_budget.h: chooses the rate at which a recording stays within its budget of CPU time.
 * It measures nothing, and changes only its own struct.
 */
#ifndef AGENT_CLI_CPU_BUDGET_H
#define AGENT_CLI_CPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_budget {
	uint32_t share;	      /* of one CPU, in millionths; 0: there is no budget */
	uint32_t most_hz, hz; /* the rate that is configured, and the rate now */
	/* When the current minute began, and the CPU time then; 0: at the next look. */
	uint64_t began_ns, began_cpu_ns;
	bool spent; /* the last minute's budget was used up at the lowest rate */
};

/* Begin with the configured rate. */
void cpu_budget_init(struct cpu_budget *b, uint32_t share, uint32_t hz);

/*
 * Look, about once a second, at the CPU time that was used since recording began. The budget is for a
 * minute. As soon as it is used up, the rate is halved, down to 1 Hz; if a whole minute would have room
 * for twice the rate, it is doubled again, up to the configured one. A new minute begins then. Return
 * whether b->hz changed.
 */
bool cpu_budget_look(struct cpu_budget *b, uint64_t now_ns, uint64_t cpu_ns);

/* The rate could not be changed: it is this one still. */
void cpu_budget_keep(struct cpu_budget *b, uint32_t hz);

#endif

/* agent/cli/cpu_budget.c: halves and doubles a rate, by the CPU time of a minute. */
#include "agent/cli/cpu_budget.h"

#define MINUTE_NS UINT64_C(60000000000)

void cpu_budget_init(struct cpu_budget *b, uint32_t share, uint32_t hz)
{
	*b = (struct cpu_budget){ .share = share, .most_hz = hz, .hz = hz };
}

void cpu_budget_keep(struct cpu_budget *b, uint32_t hz)
{
	b->hz = hz;
}

bool cpu_budget_look(struct cpu_budget *b, uint64_t now_ns, uint64_t cpu_ns)
{
	const uint64_t budget_ns = MINUTE_NS / 1000000 * b->share;
	const uint32_t before = b->hz;
	uint64_t elapsed_ns = now_ns - b->began_ns, used_ns = cpu_ns - b->began_cpu_ns;
	uint32_t next;

	if (!b->share)
		return false;
	if (!b->began_ns || cpu_ns < b->began_cpu_ns) {
		b->began_ns = now_ns;
		b->began_cpu_ns = cpu_ns;
		return false;
	}
	/* Who looks may have been stopped. */
	if (elapsed_ns > MINUTE_NS)
		used_ns = (uint64_t)((double)used_ns * (double)MINUTE_NS / (double)elapsed_ns);
	if (elapsed_ns < MINUTE_NS && used_ns <= budget_ns)
		return false;
	b->spent = used_ns > budget_ns && b->hz == 1;
	if (used_ns > budget_ns) {
		b->hz = b->hz > 1 ? b->hz / 2 : 1;
	} else {
		next = b->hz > b->most_hz / 2 ? b->most_hz : b->hz * 2;
		/* As if all of the time were due to samples; a tenth stays free. */
		if ((double)used_ns * next <= 0.9 * (double)budget_ns * b->hz)
			b->hz = next;
	}
	b->began_ns = now_ns;
	b->began_cpu_ns = cpu_ns;
	return b->hz != before;
}

/* agent/role/cost.c: measures the CPU time and the memory of processes. */
#include "agent/role/cost.h"

#include "agent/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int cost_new(struct cost **out)
{
	*out = io_shared(sizeof(**out));
	return *out ? 0 : -errno;
}

void cost_free(struct cost *cost)
{
	if (cost)
		(void)munmap(cost, sizeof(*cost));
}

const char *cost_name(enum cost_role role)
{
	static const char *const names[COST_ROLES] = { [COST_SUPERVISOR] = "supervisor",
						       [COST_CAPTURE] = "capture",
						       [COST_OPENER] = "opener",
						       [COST_WORKER] = "worker",
						       [COST_STORE] = "store",
						       [COST_HISTORY] = "history",
						       [COST_SERVER] = "server",
						       [COST_SENDER] = "sender",
						       [COST_BPF] = "bpf",
						       [COST_RECORDINGS] = "recordings" };

	return names[role];
}

/* Return the CPU time of all threads of a process, also of those that ended; 0: it is not known. */
static uint64_t cpu_of(pid_t pid)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t resident_of(pid_t pid)
{
	uint64_t pages = 0;
	char path[32];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%*u %" SCNu64, &pages) != 1)
		pages = 0;
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

void cost_measure(struct cost *cost, enum cost_role role, pid_t pid, struct cost_seen *seen)
{
	uint64_t cpu_ns = pid ? cpu_of(pid) : 0;

	if (pid != seen->pid)
		*seen = (struct cost_seen){ .pid = pid };
	if (cpu_ns > seen->cpu_ns) {
		atomic_fetch_add(&cost->cpu_ns[role], cpu_ns - seen->cpu_ns);
		seen->cpu_ns = cpu_ns;
	}
	atomic_store(&cost->resident[role], pid ? resident_of(pid) : 0);
}

uint64_t cost_cpu_ns(struct cost *cost)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < COST_RECORDINGS; i++)
		sum += atomic_load(&cost->cpu_ns[i]);
	return sum;
}

/* agent/cli/rights.c: the effective capabilities of this process. */
#include "agent/cli/rights.h"

#include "agent/log.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>

bool rights_missing(const char *command)
{
	const uint64_t needed = UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON;
	/*
	 * If they cannot be read, assume that all are there: the attempt to record then shows what
	 * is missing.
	 */
	uint64_t held = UINT64_MAX;
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		(void)sscanf(line, "CapEff: %" SCNx64, &held);
	if (file)
		(void)fclose(file);
	/* CAP_SYS_ADMIN includes both: they were split from it in Linux 5.8 (capabilities(7)). */
	if ((held & needed) == needed || held >> CAP_SYS_ADMIN & 1)
		return false;
	log_error("%s needs root: sudo offwind %s …, or once: sudo setcap " RIGHTS_SETCAP
		  "+ep FILE of offwind; without either: perf record --call-graph dwarf …, then "
		  "offwind report perf.data",
		  command, command);
	return true;
}

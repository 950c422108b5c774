/* agent/live/system/cpus.h: lists of CPUs: as text, and which are online or present. */
#ifndef AGENT_LIVE_SYSTEM_CPUS_H
#define AGENT_LIVE_SYSTEM_CPUS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Parse a list of CPUs such as "0-3,8". *cpus is allocated with malloc; the caller frees it.
 * -EBADMSG, -ENOMEM.
 */
int live_cpus_parse(const char *list, int **cpus, size_t *n_cpus);
/* Read which CPUs are online. The caller frees *cpus. */
int live_cpus_online(int **cpus, size_t *n_cpus);
/*
 * As live_cpus_online, for repeated use. *fd is -1 at first, then stays open; the caller closes it.
 */
int live_cpus_online_now(int *fd, int **cpus, size_t *n_cpus);
int live_cpus_present(int **cpus, size_t *n_cpus); /* online or not */

/* Return whether a CPU is among the n cpus. */
bool live_cpus_have(const int *cpus, size_t n, int cpu);

#endif

/*
 * agent/source/live_perf.h: CPUs, perf events on them, and the side-band that
 * tells of mappings and processes.
 */
#ifndef AGENT_SOURCE_LIVE_PERF_H
#define AGENT_SOURCE_LIVE_PERF_H

#include "agent/source/source.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CPUs of a list such as "0-3,8"; n_cpus and *cpus (malloc'd) are set.  -EBADMSG, -ENOMEM. */
int live_cpus_parse(const char *list, int **cpus, size_t *n_cpus);
int live_cpus_online(int **cpus, size_t *n_cpus);
/* The same again and again: *fd, -1 at first, stays open, and is the caller's to close. */
int live_cpus_online_now(int *fd, int **cpus, size_t *n_cpus);
int live_cpus_present(int **cpus, size_t *n_cpus); /* online or not */

/* A perf event on one CPU, of all threads: a descriptor, or why not. */
int live_perf_open(const struct perf_event_attr *attr, int cpu);

struct live_sideband;

/*
 * From here on the kernel tells of every mapping, exec, fork, exit and name.  prompt: the
 * descriptors are readable at each, not when a ring is half full.
 */
int live_sideband_open(bool prompt, struct live_sideband **out, char *error);
void live_sideband_free(struct live_sideband *sideband); /* NULL is fine */
/*
 * From here on these CPUs tell; drain before, because what others told is given
 * up.  On failure some may not tell.
 */
int live_sideband_set_cpus(struct live_sideband *sideband, const int *cpus, size_t n);
/* Return whether the records have build-ids: since 5.12, where asking for them harms nobody else. */
bool live_sideband_build_ids(const struct live_sideband *sideband);

size_t live_sideband_n_fds(const struct live_sideband *sideband);
int live_sideband_fd(const struct live_sideband *sideband, size_t i); /* readable when half full */

struct live_file { /* behind a mapping: what its record has no room for beside the build-id */
	uint32_t pid;
	uint32_t major, minor;
	uint64_t start, size;
	uint64_t inode, generation;
};

/*
 * record is a copy, may be changed, and lasts until the function returns.  file:
 * of the mapping it tells of; NULL where that is not known.
 */
typedef int (*live_record_fn)(void *ctx, struct perf_event_header *record,
			      const struct live_file *file);

/* A process was born. */
typedef void (*live_fork_fn)(void *ctx, uint32_t pid, uint32_t parent);

/*
 * Hands over all records waiting, CPU by CPU, each CPU's in the order of their
 * times.  Stops at the function's first non-zero answer and returns it.  A child may
 * run on another CPU than it was born on: of births forks, if not NULL, is told before
 * anything is handed over that a child did; some of them are handed over the next time.
 */
int live_sideband_drain(struct live_sideband *sideband, live_fork_fn forks, live_record_fn fn,
			void *ctx);

/* Of a mapping or a name: whose; false of all else. */
bool live_sideband_pid(const struct perf_event_header *record, uint32_t *pid);

/*
 * What a record tells: up to two events, whose strings lie in the record, which
 * is changed.  Returns how many; 0: nothing of interest, or not sound.
 */
#define LIVE_DECODE_MAX 2
size_t live_sideband_decode(struct perf_event_header *record, const struct live_file *file,
			    struct event events[LIVE_DECODE_MAX]);

#endif

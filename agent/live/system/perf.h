/*
 * agent/live/system/perf.h: perf events, and the side-band: the records by which the kernel reports
 * mappings and processes.
 */
#ifndef AGENT_LIVE_SYSTEM_PERF_H
#define AGENT_LIVE_SYSTEM_PERF_H

#include "agent/live/system/cpus.h"
#include "agent/live/system/sideband_record.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open a perf event for all threads on one CPU. Return its descriptor or a negative errno value. */
int live_perf_open(const struct perf_event_attr *attr, int cpu);

struct live_sideband;

/*
 * Open the side-band on all online CPUs. From then on the kernel reports each mapping, exec, fork,
 * exit and thread name. prompt: a descriptor becomes readable at each record, not when its ring is
 * half full. On failure error, of LIVE_ERROR_SIZE bytes, says why.
 */
int live_sideband_open(bool prompt, struct live_sideband **out, char *error);
void live_sideband_free(struct live_sideband *sideband); /* NULL is fine */
/*
 * Report what happens on these CPUs from now on, and on no others. Drain before: unread records of
 * CPUs that are left out are lost. On failure some of the CPUs may not report. -ENODEV: none of
 * them is online.
 */
int live_sideband_set_cpus(struct live_sideband *sideband, const int *cpus, size_t n);
/*
 * Return whether mapping records have build-ids. They do since 5.12, if asking for them does not
 * harm other programs; see mark.h.
 */
bool live_sideband_build_ids(const struct live_sideband *sideband);

size_t live_sideband_n_fds(const struct live_sideband *sideband);
/* Readable when its ring is half full. */
int live_sideband_fd(const struct live_sideband *sideband, size_t i);
/* Readable when a program is begun on this CPU (execve) from now on. -1: the kernel has none to give. */
int live_sideband_exec_fd(const struct live_sideband *sideband, size_t i);

/*
 * Receives a record. The record is a copy that the function may change; it is valid until the
 * function returns. file is the file of the mapping in the record, or NULL if it is not known.
 */
typedef int (*live_record_fn)(void *ctx, struct perf_event_header *record,
			      const struct live_file *file);

/* Receives the birth of a process. */
typedef void (*live_fork_fn)(void *ctx, uint32_t pid, uint32_t parent);

/*
 * Pass all waiting records to fn, one CPU after the other, and in the order of times for each CPU.
 * Stop at fn's first non-zero result and return it. A child may run on another CPU than the one on
 * which it was born. So forks, if not NULL, is called for all births before any record of a child
 * is passed to fn; the records of some of these births are passed to fn only by the next call.
 */
int live_sideband_drain(struct live_sideband *sideband, live_fork_fn forks, live_record_fn fn,
			void *ctx);
/*
 * Pass mappings and forks to fn, without their files, and let all records wait: those that have come since the last call of
 * this function or of live_sideband_drain. Stop at fn's first non-zero result and return it.
 */
int live_sideband_look(struct live_sideband *sideband, live_record_fn fn, void *ctx);

#endif

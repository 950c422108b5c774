/*
 * agent/live/selected.h: which processes and threads are recorded: what the options name, and the
 * descendants of the processes.
 */
#ifndef AGENT_LIVE_SELECTED_H
#define AGENT_LIVE_SELECTED_H

#include "agent/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_bpf;

struct live_selected { /* all zero: every process */
	struct live_bpf *bpf;
	uint8_t *wanted; /* selected processes, one bit per pid; NULL: all */
	/*
	 * Processes that are certainly not selected, one bit per pid. Their events are dropped
	 * before they are queued. NULL: none is known.
	 */
	uint8_t *others;
	int32_t *tids; /* the selected single threads */
	size_t n_tids;
};

/*
 * Pass the filters of the options to the BPF programs: names, users, processes and threads. From
 * then on the kernel follows new children of the processes. bpf is borrowed. With options->changes,
 * live_selected_change does that. On failure error, of LIVE_ERROR_SIZE bytes, says what is wrong, and
 * live_selected_fini releases what there is.
 */
int live_selected_open(struct live_selected *s, struct live_bpf *bpf,
		       const struct source_live_options *options, char *error);
void live_selected_fini(struct live_selected *s);

/*
 * Select what these options name instead, and let these filters be on (enum capture_filter). Only for a
 * selection that was opened with source_live_options.changes. Then the kernel alone filters: all
 * events of processes are taken. On failure, as above, more may be selected than before.
 */
int live_selected_change(struct live_selected *s, const struct source_live_options *options,
			 uint32_t filters, char *error);

/* Return whether a process is selected. ctx is a struct live_selected. */
bool live_selected_has(const void *ctx, uint32_t pid);
/* Return whether a process is certainly not selected. */
bool live_selected_other(const struct live_selected *s, uint32_t pid);

/*
 * Process pid was born. Call this before any event of the child, and only if s->others is not NULL.
 * An earlier process with the same pid does not matter.
 */
void live_selected_fork(struct live_selected *s, uint32_t pid, uint32_t parent);

/*
 * Return whether an event certainly belongs to a process that is not selected: it ran when
 * recording began, or descends from such a process. If this is not known, return false. Also
 * updates s->others.
 */
bool live_selected_drops(struct live_selected *s, const struct event *event);

/*
 * Return whether an event belongs to a selected process. Also updates the set of selected
 * processes, so this must be called in the order of the events' times.
 */
bool live_selected_takes(struct live_selected *s, const struct event *event);

/* A fork may have been lost: forget which processes are certainly not selected. */
void live_selected_unsure(struct live_selected *s);

/* Return whether any of the selected processes and threads still exists. */
bool live_selected_any_alive(const struct live_selected *s);

#endif

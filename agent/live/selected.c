/* agent/live/selected.c: keeps the set of the processes and threads that are recorded. */
#include "agent/live/selected.h"

#include "agent/live/bpf/bpf.h"
#include "agent/live/system/inventory.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_BITS      (4u << 20) /* PID_MAX_LIMIT of the kernel */
#define ANCESTORS_MAX 64	 /* of a process that are looked at */

static bool has_pid(const uint8_t *bits, uint32_t pid)
{
	return pid < PID_BITS && bits[pid / 8] & 1u << pid % 8;
}

static void set_pid(uint8_t *bits, uint32_t pid, bool on)
{
	uint8_t bit = (uint8_t)(1u << pid % 8);

	if (pid >= PID_BITS)
		return;
	if (on)
		bits[pid / 8] |= bit;
	else
		bits[pid / 8] &= (uint8_t)~bit;
}

bool live_selected_has(const void *ctx, uint32_t pid)
{
	const struct live_selected *s = ctx;

	return !s->wanted || has_pid(s->wanted, pid);
}

bool live_selected_other(const struct live_selected *s, uint32_t pid)
{
	return s->others && has_pid(s->others, pid);
}

void live_selected_fork(struct live_selected *s, uint32_t pid, uint32_t parent)
{
	set_pid(s->others, pid, live_selected_other(s, parent));
}

bool live_selected_drops(struct live_selected *s, const struct event *event)
{
	bool other = live_selected_other(s, event->pid);

	if (!s->others || event->type == EVENT_LOST)
		return false;
	/* An earlier process with the same pid may have been selected. */
	if (event->type == EVENT_FORK && event->pid != event->fork.parent_pid)
		return live_selected_other(s, event->fork.parent_pid) &&
		       !live_selected_has(s, event->pid);
	if (event->type == EVENT_EXIT && event->pid == event->tid)
		set_pid(s->others, event->pid, false);
	return other;
}

bool live_selected_takes(struct live_selected *s, const struct event *event)
{
	if (!s->wanted || event->type == EVENT_LOST || event->type == EVENT_CGROUP)
		return true;
	if (event->type == EVENT_FORK && event->pid != event->fork.parent_pid &&
	    event->fork.parent_pid) /* 0: from the inventory */
		set_pid(s->wanted, event->pid, live_selected_has(s, event->fork.parent_pid));
	return live_selected_has(s, event->pid);
}

/* Processes and their descendants while they are looked for. */
struct family {
	struct live_bpf *bpf;
	uint8_t *pids; /* those that are found; one bit per pid */
	bool grown;
};

/* Callback of live_processes: select pid if its parent is selected. */
static int adopt(void *ctx, uint32_t pid)
{
	struct family *family = ctx;
	uint32_t parent;
	int err;

	if (has_pid(family->pids, pid) || procfs_parent(pid, &parent) || !parent ||
	    !has_pid(family->pids, parent))
		return 0;
	err = live_bpf_want(family->bpf, pid);
	if (err)
		return err;
	set_pid(family->pids, pid, true);
	family->grown = true;
	return 0;
}

/*
 * Callback of live_processes: mark pid as not selected. The kernel follows the children of selected
 * processes from their birth, so a process that exists and is not followed is not selected.
 */
static int note_other(void *ctx, uint32_t pid)
{
	struct live_selected *s = ctx;

	if (!live_selected_has(s, pid) && !live_bpf_wants(s->bpf, pid))
		set_pid(s->others, pid, true);
	return 0;
}

/*
 * Select a process, or a single thread (thread), and add its process to pids. Write the reason of a
 * failure to error, which has LIVE_ERROR_SIZE bytes.
 */
static int want_one(const struct family *family, const char *what, int32_t number, bool thread,
		    char *error)
{
	uint32_t pid;
	int err = number > 0 ? procfs_group((uint32_t)number, &pid) : -ENOENT;

	if (!err)
		err = thread ? live_bpf_want_thread(family->bpf, (uint32_t)number)
			     : live_bpf_want(family->bpf, pid);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s %" PRId32 ": %s", what, number,
			       err == -ENOENT ? "does not exist" : strerror(-err));
		return err == -ENOENT ? -ESRCH : err;
	}
	set_pid(family->pids, pid, true);
	return 0;
}

/* Select the processes that the options name, and their descendants, and add them to pids. */
static int want_processes(struct live_bpf *bpf, uint8_t *pids,
			  const struct source_live_options *options, char *error)
{
	struct family family = { .bpf = bpf, .pids = pids };
	int err = live_bpf_follow(bpf, error);

	if (err)
		return err;
	for (size_t i = 0; !err && i < options->n_pids; i++)
		err = want_one(&family, "process", options->pids[i], false, error);
	if (err)
		return err;
	/*
	 * Children that are born from now on are followed in the kernel. For children that exist
	 * already, go through all processes until no new one is found.
	 */
	do {
		family.grown = false;
		err = options->n_pids ? live_processes(adopt, &family) : 0;
	} while (!err && family.grown);
	if (err)
		(void)snprintf(error, LIVE_ERROR_SIZE, "children of the processes asked for: %s",
			       strerror(-err));
	return err;
}

/*
 * Select the processes with their descendants, and the threads, that the options name. From then on
 * the kernel follows new children.
 */
static int want_tasks(struct live_selected *s, const struct source_live_options *options,
		      char *error)
{
	int err;

	s->wanted = calloc(PID_BITS / 8, 1);
	s->tids = calloc(options->n_tids + 1, sizeof(*s->tids));
	if (!s->wanted || !s->tids) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	err = want_processes(s->bpf, s->wanted, options, error);
	/* Of the processes of single threads, only the mappings are needed. */
	for (size_t i = 0; !err && i < options->n_tids; i++) {
		const struct family family = { .bpf = s->bpf, .pids = s->wanted };

		err = want_one(&family, "thread", options->tids[i], true, error);
		s->tids[s->n_tids++] = options->tids[i];
	}
	if (!err && !options->n_tids)
		s->others = calloc(PID_BITS / 8, 1);
	if (s->others)
		(void)live_processes(note_other, s);
	return err;
}

/* Select the names and the users of the options. */
static int want_names(struct live_bpf *bpf, const struct source_live_options *options, char *error)
{
	int err = 0;

	for (size_t i = 0; !err && i < options->n_comms; i++) {
		err = live_bpf_want_comm(bpf, options->comms[i]);
		if (err)
			(void)snprintf(error, LIVE_ERROR_SIZE, "name %s: %s", options->comms[i],
				       err == -ENAMETOOLONG ? "threads' names have at most 15 bytes"
							    : strerror(-err));
	}
	for (size_t i = 0; !err && i < options->n_uids; i++) {
		err = live_bpf_want_uid(bpf, options->uids[i]);
		if (err)
			(void)snprintf(error, LIVE_ERROR_SIZE, "user %" PRIu32 ": %s",
				       options->uids[i], strerror(-err));
	}
	return err;
}

int live_selected_open(struct live_selected *s, struct live_bpf *bpf,
		       const struct source_live_options *options, char *error)
{
	int err;

	s->bpf = bpf;
	if (options->changes)
		return 0;
	err = want_names(bpf, options, error);
	if (!err && (options->n_pids || options->n_tids))
		err = want_tasks(s, options, error);
	return err;
}

/* ---- changes ----------------------------------------------------------------------------- */

/* What is selected from now on; the context of the functions below. */
struct chosen {
	const struct source_live_options *options;
	uint8_t *pids;
};

static bool is_comm(const void *ctx, const void *key)
{
	const struct chosen *chosen = ctx;

	for (size_t i = 0; i < chosen->options->n_comms; i++)
		if (!strncmp(chosen->options->comms[i], key, CAPTURE_COMM))
			return true;
	return false;
}

static bool is_uid(const void *ctx, const void *key)
{
	const struct chosen *chosen = ctx;

	for (size_t i = 0; i < chosen->options->n_uids; i++)
		if (!memcmp(&chosen->options->uids[i], key, sizeof(uint32_t)))
			return true;
	return false;
}

/* A process may have been born since the others were looked for: then an ancestor is selected. */
static bool is_process(const void *ctx, const void *key)
{
	const struct chosen *chosen = ctx;
	uint32_t pid;

	memcpy(&pid, key, sizeof(pid));
	for (int i = 0; chosen->pids && pid && i < ANCESTORS_MAX; i++)
		if (has_pid(chosen->pids, pid))
			return true;
		else if (procfs_parent(pid, &pid))
			return false;
	return false;
}

/*
 * What is selected before and after passes all the time: first add what is new, then turn filters on
 * and off, then remove what is not selected any more.
 */
int live_selected_change(struct live_selected *s, const struct source_live_options *options,
			 uint32_t filters, char *error)
{
	struct chosen chosen = { .options = options };
	int err = want_names(s->bpf, options, error);

	if (!err && options->n_pids) {
		chosen.pids = calloc(PID_BITS / 8, 1);
		if (chosen.pids)
			err = want_processes(s->bpf, chosen.pids, options, error);
		else
			err = -ENOMEM;
		if (err == -ENOMEM)
			(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
	}
	if (!err) {
		live_bpf_filter(s->bpf, filters);
		if (!options->n_pids)
			live_bpf_unfollow(s->bpf);
		live_bpf_only_comms(s->bpf, is_comm, &chosen);
		live_bpf_only_uids(s->bpf, is_uid, &chosen);
		live_bpf_only_processes(s->bpf, is_process, &chosen);
	}
	free(chosen.pids);
	return err;
}

/* Return whether any of the selected single threads still exists. */
static bool any_thread_alive(const struct live_selected *s)
{
	char path[32];

	for (size_t i = 0; i < s->n_tids; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%" PRId32, s->tids[i]);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

void live_selected_unsure(struct live_selected *s)
{
	free(s->others);
	s->others = NULL;
}

bool live_selected_any_alive(const struct live_selected *s)
{
	return live_bpf_any_alive(s->bpf) || any_thread_alive(s);
}

void live_selected_fini(struct live_selected *s)
{
	free(s->wanted);
	free(s->others);
	free(s->tids);
}

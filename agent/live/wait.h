/* agent/live/wait.h: stores the records of threads that wait, until their waits end. */
#ifndef AGENT_LIVE_WAIT_H
#define AGENT_LIVE_WAIT_H

#include "agent/hash.h"
#include "schema/capture.h"

#include <stddef.h>
#include <stdint.h>

struct live_waited {
	struct capture_wake wake; /* how the wait ended */
	/* The record of the thread that ended it, owned; its own wake and waker are empty. NULL: none. */
	struct live_waited *waker;
	/* Not 0: the wait has a waker, or this is the waker's record of the wait with this number. */
	uint64_t id;
	struct capture_head head; /* the bytes after the head follow */
};

struct live_wait {
	uint32_t tid;
	uint32_t size;		    /* of the records: the heads and the bytes after them */
	struct live_waited *waited; /* owned */
};

struct live_off_cpu { /* all zero: empty */
	struct live_wait *threads;
	size_t n, room;
	struct uw_hash_index by_tid;
	size_t bytes;
};

/*
 * Store a copy of the record of a thread that begins to wait. If an earlier wait of the same thread
 * is stored, its end was never reported: that record is dropped, and *unended is the CPU in it;
 * otherwise *unended is -1. -ENOSPC: the stored records are too large already; -ENOMEM.
 */
int live_off_cpu_begin(struct live_off_cpu *off_cpu, const struct capture_head *record,
		       uint32_t size, int *unended);
/*
 * Store a copy of the record of a thread that ended a wait, with that wait. -ENOENT: the wait is not
 * stored, or has such a record already. -ENOSPC: the stored records are too large already; -ENOMEM.
 */
int live_off_cpu_woken(struct live_off_cpu *off_cpu, const struct capture_woken *woken,
		       const struct capture_head *record, uint32_t size);
/*
 * Remove and return the record of the wait that began at since_ns. The caller frees it
 * (live_waited_free). NULL: it is not stored.
 */
struct live_waited *live_off_cpu_end(struct live_off_cpu *off_cpu, uint32_t tid, uint64_t since_ns);
/* Remove and return any record. The caller frees it. NULL: none is left. */
struct live_waited *live_off_cpu_any(struct live_off_cpu *off_cpu);
void live_waited_free(struct live_waited *waited); /* NULL is fine */
void live_off_cpu_fini(struct live_off_cpu *off_cpu);

#endif

/*
 * agent/source/live_wait.h: captured threads that wait: kept until it is told for how long.
 */
#ifndef AGENT_SOURCE_LIVE_WAIT_H
#define AGENT_SOURCE_LIVE_WAIT_H

#include "agent/hash.h"
#include "schema/capture.h"

#include <stddef.h>
#include <stdint.h>

struct live_wait {
	uint32_t tid;
	uint32_t size;
	struct capture_head *record; /* with its bytes; owned */
};

struct live_waits { /* all zero: none */
	struct live_wait *waits;
	size_t n, room;
	struct hash_index by_tid;
	size_t bytes;
};

/*
 * Copy a record of a thread that begins to wait.  *unended: the CPU of the same thread's
 * earlier wait, whose end was never told and whose record is dropped; else -1.
 * -ENOSPC: too much waits already; -ENOMEM.
 */
int live_waits_begin(struct live_waits *waits, const struct capture_head *record, uint32_t size,
		     int *unended);
/* Return the record of the wait since then, which becomes the caller's to free; NULL: there is none. */
struct capture_head *live_waits_end(struct live_waits *waits, uint32_t tid, uint64_t since_ns);
/* Any of those that still wait, in the same way; NULL: none is left. */
struct capture_head *live_waits_any(struct live_waits *waits);
void live_waits_fini(struct live_waits *waits);

#endif

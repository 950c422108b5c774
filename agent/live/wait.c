/* agent/live/wait.c: a table of the records of waiting threads, by tid. */
#include "agent/live/wait.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (64u << 20) /* enough for ten thousand threads with 6 KiB each */

/* Return the index of a thread's record, or HASH_NONE. */
static uint32_t find(const struct live_waits *waits, uint32_t tid)
{
	return HASH_FIND(i, &waits->by_tid, hash_u64(0, tid), waits->waits[i].tid == tid);
}

/* Remove record i and return it. The last record moves to its place. */
static struct capture_head *take(struct live_waits *waits, uint32_t i)
{
	struct live_wait wait = waits->waits[i];
	uint32_t last = (uint32_t)--waits->n;

	hash_remove(&waits->by_tid, hash_u64(0, wait.tid), i);
	waits->bytes -= wait.size;
	if (i != last) {
		waits->waits[i] = waits->waits[last];
		hash_renumber(&waits->by_tid, hash_u64(0, waits->waits[i].tid), last, i);
	}
	return wait.record;
}

int live_waits_begin(struct live_waits *waits, const struct capture_head *record, uint32_t size,
		     int *unended)
{
	uint32_t i = find(waits, record->tid);
	void *copy;

	*unended = -1;
	if (i != HASH_NONE) {
		struct capture_head *old = take(waits, i);

		*unended = (int)old->cpu;
		free(old);
	}
	if (size > BYTES_MAX - waits->bytes)
		return -ENOSPC;
	if (array_grow(waits->waits, waits->n, waits->room))
		return -ENOMEM;
	copy = malloc(size);
	if (!copy || hash_add(&waits->by_tid, hash_u64(0, record->tid), (uint32_t)waits->n)) {
		free(copy);
		return -ENOMEM;
	}
	memcpy(copy, record, size);
	waits->waits[waits->n++] = (struct live_wait){ record->tid, size, copy };
	waits->bytes += size;
	return 0;
}

struct capture_head *live_waits_end(struct live_waits *waits, uint32_t tid, uint64_t since_ns)
{
	uint32_t i = find(waits, tid);

	if (i == HASH_NONE || waits->waits[i].record->time_ns != since_ns)
		return NULL;
	return take(waits, i);
}

struct capture_head *live_waits_any(struct live_waits *waits)
{
	return waits->n ? take(waits, (uint32_t)waits->n - 1) : NULL;
}

void live_waits_fini(struct live_waits *waits)
{
	while (waits->n)
		free(waits->waits[--waits->n].record);
	free(waits->waits);
	hash_fini(&waits->by_tid);
	*waits = (struct live_waits){ 0 };
}

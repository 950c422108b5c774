/* agent/live/wait.c: a table of the records of waiting threads, by tid. */
#include "agent/live/wait.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (64u << 20) /* enough for ten thousand threads with 6 KiB each */

/* Return the index of a thread's record, or UW_HASH_NONE. */
static uint32_t find(const struct live_off_cpu *off_cpu, uint32_t tid)
{
	return UW_HASH_FIND(i, &off_cpu->by_tid, hash_u64(0, tid), off_cpu->threads[i].tid == tid);
}

/* Remove record i and return it. The last record moves to its place. */
static struct live_waited *take(struct live_off_cpu *off_cpu, uint32_t i)
{
	struct live_wait wait = off_cpu->threads[i];
	uint32_t last = (uint32_t)--off_cpu->n;

	uw_hash_remove(&off_cpu->by_tid, hash_u64(0, wait.tid), i);
	off_cpu->bytes -= wait.size;
	if (i != last) {
		off_cpu->threads[i] = off_cpu->threads[last];
		uw_hash_renumber(&off_cpu->by_tid, hash_u64(0, off_cpu->threads[i].tid), last, i);
	}
	return wait.waited;
}

void live_waited_free(struct live_waited *waited)
{
	if (waited)
		free(waited->waker);
	free(waited);
}

/* Return a copy of a record, with nothing in front of it; NULL: no memory. */
static struct live_waited *copy_record(const struct capture_head *record, uint32_t size)
{
	struct live_waited *copy = malloc(offsetof(struct live_waited, head) + size);

	if (!copy)
		return NULL;
	memset(copy, 0, offsetof(struct live_waited, head));
	memcpy((uint8_t *)copy + offsetof(struct live_waited, head), record, size);
	return copy;
}

int live_off_cpu_begin(struct live_off_cpu *off_cpu, const struct capture_head *record,
		       uint32_t size, int *unended)
{
	uint32_t i = find(off_cpu, record->tid);
	struct live_waited *copy;

	*unended = -1;
	if (i != UW_HASH_NONE) {
		struct live_waited *old = take(off_cpu, i);

		*unended = (int)old->head.cpu;
		live_waited_free(old);
	}
	if (size > BYTES_MAX - off_cpu->bytes)
		return -ENOSPC;
	if (array_grow(off_cpu->threads, off_cpu->n, off_cpu->room))
		return -ENOMEM;
	copy = copy_record(record, size);
	if (!copy ||
	    uw_hash_add(&off_cpu->by_tid, hash_u64(0, record->tid), (uint32_t)off_cpu->n)) {
		free(copy);
		return -ENOMEM;
	}
	off_cpu->threads[off_cpu->n++] = (struct live_wait){ record->tid, size, copy };
	off_cpu->bytes += size;
	return 0;
}

int live_off_cpu_woken(struct live_off_cpu *off_cpu, const struct capture_woken *woken,
		       const struct capture_head *record, uint32_t size)
{
	uint32_t i = find(off_cpu, woken->tid);
	struct live_wait *wait = i == UW_HASH_NONE ? NULL : &off_cpu->threads[i];

	if (!wait || wait->waited->head.time_ns != woken->since_ns || wait->waited->waker)
		return -ENOENT;
	if (size > BYTES_MAX - off_cpu->bytes)
		return -ENOSPC;
	wait->waited->waker = copy_record(record, size);
	if (!wait->waited->waker)
		return -ENOMEM;
	wait->size += size;
	off_cpu->bytes += size;
	return 0;
}

struct live_waited *live_off_cpu_end(struct live_off_cpu *off_cpu, uint32_t tid, uint64_t since_ns)
{
	uint32_t i = find(off_cpu, tid);

	if (i == UW_HASH_NONE || off_cpu->threads[i].waited->head.time_ns != since_ns)
		return NULL;
	return take(off_cpu, i);
}

struct live_waited *live_off_cpu_any(struct live_off_cpu *off_cpu)
{
	return off_cpu->n ? take(off_cpu, (uint32_t)off_cpu->n - 1) : NULL;
}

void live_off_cpu_fini(struct live_off_cpu *off_cpu)
{
	while (off_cpu->n)
		live_waited_free(off_cpu->threads[--off_cpu->n].waited);
	free(off_cpu->threads);
	uw_hash_fini(&off_cpu->by_tid);
	*off_cpu = (struct live_off_cpu){ 0 };
}

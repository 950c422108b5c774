/* agent/live/ring.c: reads a BPF ring buffer in place. */
#include "agent/live/ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Map the pages as kernel/bpf/ringbuf.c lays them out: the consumer's position, writable; the
 * producer's position and the data, read-only. The data are mapped once and not twice in a row, as
 * libbpf does: `split` holds a record that wraps around.
 */
int live_ring_init(struct live_ring *ring, int fd, size_t size)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	void *consumer, *producer, *split;

	consumer = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page_size + size, PROT_READ, MAP_SHARED, fd, (off_t)page_size);
	if (producer == MAP_FAILED) {
		int err = -errno;

		(void)munmap(consumer, page_size);
		return err;
	}
	split = mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (split == MAP_FAILED) {
		int err = -errno;

		(void)munmap(consumer, page_size);
		(void)munmap(producer, page_size + size);
		return err;
	}
	*ring = (struct live_ring){
		.consumer = consumer,
		.producer = producer,
		.data = (const uint8_t *)producer + page_size,
		.split = split,
		.size = size,
		.page_size = page_size,
	};
	return 0;
}

void live_ring_fini(struct live_ring *ring)
{
	if (!ring->consumer)
		return;
	(void)munmap(ring->consumer, ring->page_size);
	(void)munmap((void *)(uintptr_t)ring->producer, ring->page_size + ring->size);
	(void)munmap(ring->split, ring->size);
	*ring = (struct live_ring){ 0 };
}

/* In front of the data are the two pages of the positions. */
int live_ring_map_data(int fd, size_t size, const uint8_t **data)
{
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, (off_t)2 * sysconf(_SC_PAGESIZE));

	if (map == MAP_FAILED)
		return -errno;
	*data = map;
	return 0;
}

void live_ring_unmap_data(const uint8_t *data, size_t size)
{
	if (data)
		(void)munmap((void *)(uintptr_t)data, size);
}

/*
 * Return a record's bytes as one piece. A record that is split at the end of the data is copied to
 * ring->split.
 */
static const uint8_t *whole(const struct live_ring *ring, size_t at, uint32_t size)
{
	size_t before = ring->size - at;

	if (size <= before)
		return ring->data + at;
	memcpy(ring->split, ring->data + at, before);
	memcpy(ring->split + before, ring->data, size - before);
	return ring->split;
}

/*
 * Read the producer's position and each header with acquire order, as libbpf does: only then are
 * the bytes of the record visible.
 */
uint32_t live_ring_scan(struct live_ring *ring, const uint8_t **bytes, unsigned long *end)
{
	while (ring->scanned < __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE)) {
		const uint8_t *record = ring->data + (ring->scanned & (ring->size - 1));
		uint32_t head =
			__atomic_load_n((const uint32_t *)(const void *)record, __ATOMIC_ACQUIRE);
		uint32_t size = head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		size_t at = (ring->scanned + BPF_RINGBUF_HDR_SZ) & (ring->size - 1);

		if (head & BPF_RINGBUF_BUSY_BIT) /* still being written by another CPU */
			return 0;
		ring->scanned += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ul;
		/* The ring is larger than the caches. */
		__builtin_prefetch(ring->data + (ring->scanned & (ring->size - 1)));
		if (head & BPF_RINGBUF_DISCARD_BIT)
			continue;
		*bytes = whole(ring, at, size);
		*end = ring->scanned;
		return size;
	}
	return 0;
}

uint64_t live_ring_written(const struct live_ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
}

size_t live_ring_used(const struct live_ring *ring)
{
	return live_ring_written(ring) - *ring->consumer;
}

void live_ring_release(struct live_ring *ring, unsigned long end)
{
	__atomic_store_n(ring->consumer, end, __ATOMIC_RELEASE);
}

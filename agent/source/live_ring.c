#include "agent/source/live_ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

int live_ring_init(struct live_ring *ring, int fd, size_t size)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	void *consumer, *producer;

	consumer = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page_size + 2 * size, PROT_READ, MAP_SHARED, fd, (off_t)page_size);
	if (producer == MAP_FAILED) {
		int err = -errno;

		(void)munmap(consumer, page_size);
		return err;
	}
	*ring = (struct live_ring){
		.consumer = consumer,
		.producer = producer,
		.data = (const uint8_t *)producer + page_size,
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
	(void)munmap((void *)(uintptr_t)ring->producer, ring->page_size + 2 * ring->size);
	*ring = (struct live_ring){ 0 };
}

uint32_t live_ring_scan(struct live_ring *ring, const uint8_t **bytes, unsigned long *end)
{
	while (ring->scanned < __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE)) {
		const uint8_t *record = ring->data + (ring->scanned & (ring->size - 1));
		uint32_t head =
			__atomic_load_n((const uint32_t *)(const void *)record, __ATOMIC_ACQUIRE);
		uint32_t size = head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (head & BPF_RINGBUF_BUSY_BIT) /* still being written on another CPU */
			return 0;
		ring->scanned += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7ul;
		if (head & BPF_RINGBUF_DISCARD_BIT)
			continue;
		*bytes = record + BPF_RINGBUF_HDR_SZ;
		*end = ring->scanned;
		return size;
	}
	return 0;
}

void live_ring_release(struct live_ring *ring, unsigned long end)
{
	__atomic_store_n(ring->consumer, end, __ATOMIC_RELEASE);
}

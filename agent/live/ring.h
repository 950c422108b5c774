/*
 * agent/live/ring.h: reads a BPF ring buffer in place.
 *
 * Reading a record (scan) and giving its bytes back to the kernel (release) are separate steps. So
 * a sample can stay in the ring, without a copy, until the side-band has caught up.
 *
 * Layout: Documentation/bpf/ringbuf.rst. A record is a u32 length with two flag bits, a u32, then
 * the bytes, padded to a multiple of 8. The kernel offers the data mapped twice, so that no record
 * is split; but then each page would count twice as memory of this process. So the data is mapped
 * once. At most one record between what is released and what is written is split at the end of the
 * data; it is copied to a separate buffer.
 */
#ifndef AGENT_LIVE_RING_H
#define AGENT_LIVE_RING_H

#include <stddef.h>
#include <stdint.h>

struct live_ring {
	unsigned long *consumer;       /* one page, which this process writes */
	const unsigned long *producer; /* one page, followed by the data */
	const uint8_t *data;
	/*
	 * Buffer for the split record. It is as large as data, but only the used pages take memory.
	 */
	uint8_t *split;
	size_t size, page_size;
	unsigned long scanned; /* position after the last record that was scanned */
};

/*
 * Map the ring. fd is the BPF map's descriptor and stays the caller's; size is the map's
 * max_entries.
 */
int live_ring_init(struct live_ring *ring, int fd, size_t size);
void live_ring_fini(struct live_ring *ring);

/*
 * Map the data alone, in a process that is told where the records are. It can change nothing: the kernel
 * does not let a mapping that was made for reading become writable, and neither the consumer's position nor,
 * after this call, the descriptor is needed. *data is unmapped by live_ring_unmap_data.
 */
int live_ring_map_data(int fd, size_t size, const uint8_t **data);
void live_ring_unmap_data(const uint8_t *data, size_t size); /* data NULL is fine */

/*
 * Return the length of the next record, or 0 if there is none yet. *bytes is valid until *end, the
 * position after the record, is released.
 */
uint32_t live_ring_scan(struct live_ring *ring, const uint8_t **bytes, unsigned long *end);
/* Return the producer's position: how many bytes were ever written. */
uint64_t live_ring_written(const struct live_ring *ring);
/* Return how many bytes of the ring are in use: written, and not given back. */
size_t live_ring_used(const struct live_ring *ring);
/* Give all bytes before position end back to the kernel. */
void live_ring_release(struct live_ring *ring, unsigned long end);

#endif

/*
 * agent/source/live_ring.h: reads a BPF ring buffer in place.
 *
 * Records are looked at (scan) before they are given back (release), so that a
 * sample can wait in the ring, uncopied, for the side-band to catch up.
 * Layout: Documentation/bpf/ringbuf.rst; a record is a u32 length with two flag
 * bits, a u32, then the bytes, rounded up to 8.  The kernel would map the data
 * twice, so that no record is split; each page would count twice as this process's
 * memory, too.  It is mapped once, and the record that is split, of which there is
 * but one between what is released and what is written, is put together elsewhere.
 */
#ifndef AGENT_SOURCE_LIVE_RING_H
#define AGENT_SOURCE_LIVE_RING_H

#include <stddef.h>
#include <stdint.h>

struct live_ring {
	unsigned long *consumer;       /* one page, ours to write */
	const unsigned long *producer; /* one page, then the data */
	const uint8_t *data;
	uint8_t *
		split; /* room for the record that is; as large as data, of which little is touched */
	size_t size, page_size;
	unsigned long scanned; /* position behind the last record looked at */
};

/* fd: of the BPF map, stays the caller's; size: its max_entries. */
int live_ring_init(struct live_ring *ring, int fd, size_t size);
void live_ring_fini(struct live_ring *ring);

/*
 * The next record's length, 0 where there is none yet; *bytes is good until *end,
 * the position behind it, is released.
 */
uint32_t live_ring_scan(struct live_ring *ring, const uint8_t **bytes, unsigned long *end);
void live_ring_release(struct live_ring *ring, unsigned long end);

#endif

/*
 * tests/unit/test_live_ring.c: tests how ring records are read, with the layout that the kernel
 * documents (Documentation/bpf/ringbuf.rst), but without the kernel.
 */
#include "agent/live/ring.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <string.h>

#include "tests/check.h"

enum { SIZE = 4096, LAPS = 50 };

static _Alignas(8) uint8_t data[SIZE], split[SIZE];
static unsigned long consumer, producer;

static void put(unsigned long at, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		data[(at + i) % SIZE] = ((const uint8_t *)bytes)[i];
}

/* Do what the kernel does with a record whose bytes all are `fill`. */
static void produce(uint32_t size, uint32_t flags, uint8_t fill)
{
	uint32_t head[2] = { size | flags, 0 };
	uint8_t bytes[SIZE];

	memset(bytes, fill, sizeof(bytes));
	put(producer, head, sizeof(head));
	put(producer + sizeof(head), bytes, size);
	producer += (size + sizeof(head) + 7) & ~7ul;
}

static bool is_all(const uint8_t *bytes, uint32_t size, uint8_t fill)
{
	for (uint32_t i = 0; i < size; i++)
		if (bytes[i] != fill)
			return false;
	return true;
}

/* Every length meets the end of the data at some point; two records wait at a time. */
static void test_records_come_whole_wherever_they_lie(void)
{
	struct live_ring ring = { .consumer = &consumer,
				  .producer = &producer,
				  .data = data,
				  .split = split,
				  .size = SIZE };
	size_t n_split = 0;

	for (uint32_t i = 0; i < LAPS * 8; i++) {
		uint32_t sizes[2] = { 100 + 7 * (i % 200), 300 + 13 * (i % 100) };
		const uint8_t *bytes[2];
		unsigned long end[2];

		produce(sizes[0], 0, (uint8_t)i);
		produce(40, BPF_RINGBUF_DISCARD_BIT, 0xee);
		produce(sizes[1], 0, (uint8_t)~i);
		for (unsigned int k = 0; k < 2; k++)
			CHECK(live_ring_scan(&ring, &bytes[k], &end[k]) == sizes[k], "its length");
		CHECK(is_all(bytes[0], sizes[0], (uint8_t)i), "the first, while the second waits");
		CHECK(is_all(bytes[1], sizes[1], (uint8_t)~i), "the second");
		n_split += bytes[0] == split || bytes[1] == split;
		CHECK(live_ring_scan(&ring, &bytes[0], &end[0]) == 0, "no more");
		live_ring_release(&ring, end[1]);
		CHECK(consumer == producer, "released");
	}
	CHECK(n_split > 20, "some were split");
}

static void test_a_record_being_written_ends_the_scan(void)
{
	struct live_ring ring = { .consumer = &consumer,
				  .producer = &producer,
				  .data = data,
				  .split = split,
				  .size = SIZE };
	const uint8_t *bytes;
	unsigned long end;

	consumer = producer = 0;
	produce(16, BPF_RINGBUF_BUSY_BIT, 1);
	CHECK(live_ring_scan(&ring, &bytes, &end) == 0, "not yet");
	((uint32_t *)(void *)data)[0] = 16;
	CHECK(live_ring_scan(&ring, &bytes, &end) == 16 && end == 24, "now");
}

int main(void)
{
	test_records_come_whole_wherever_they_lie();
	test_a_record_being_written_ends_the_scan();
	return check_done();
}

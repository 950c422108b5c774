/*
 * tests/fuzz/fuzz_live_record.c: fuzzes the records of a recording. Byte 0 chooses what the rest is:
 * a sample of the BPF program, or a record of the kernel's side-band. What is taken for sound makes
 * events whose every byte is readable.
 */
#include "agent/live/captured.h"
#include "agent/live/system/sideband_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVENTS 3

static volatile uint64_t sink;

static void touch(const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sink += ((const uint8_t *)bytes)[i];
}

static size_t padded(size_t size)
{
	return (size + 7) & ~(size_t)7;
}

/* Make the magic number and the sum of the sizes right: they are hard to guess. */
static void mend(struct capture_head *head, size_t size)
{
	size_t others;

	head->magic = CAPTURE_MAGIC;
	head->event %= EVENTS;
	head->interrupted_len %= 64;
	head->kernel_len = head->kernel_len % 16 * 8;
	head->slices_len = head->slices_len % 32 * 8;
	head->slices_end %= PLAN_LOST;
	head->slices_refer %= 2;
	others = sizeof(*head) + head->kernel_len +
		 (head->interrupted_len ? 8 + padded(head->interrupted_len) : 0) +
		 (head->flags & CAPTURE_HOLES ? sizeof(struct capture_holes) : 0) +
		 (head->flags & CAPTURE_ALLOC ? sizeof(struct capture_alloc) : 0) +
		 (head->flags & CAPTURE_WAKER ? sizeof(struct capture_woken) : 0) +
		 head->slices_len;
	if (others <= size)
		head->stack_len = (uint32_t)(size - others);
	if (head->stack_len > 7)
		head->stack_len -= head->pid % 8;
}

/* Make an event of a record, and touch what it has. */
static void decode(const struct capture_head *head, size_t size, struct live_bases *bases)
{
	struct uw_region regions[LIVE_REGIONS_MAX];
	struct event event;

	live_captured_sample(head, 1 + size, bases, regions, &event);
	if (event.type != EVENT_SAMPLE || event.sample.event >= EVENTS || !event.sample.period ||
	    event.sample.n_regions > LIVE_STACKS_MAX ||
	    event.sample.n_slices > LIVE_REGIONS_MAX - LIVE_STACKS_MAX)
		abort();
	for (uint32_t i = 0; i < event.sample.n_regions; i++)
		touch(event.sample.regions[i].bytes, event.sample.regions[i].size);
	for (uint32_t i = 0; i < event.sample.n_slices; i++)
		touch(event.sample.slices[i].bytes, event.sample.slices[i].size);
	for (uint32_t i = 0; i < event.sample.n_kernel_ips; i++)
		touch((const uint8_t *)event.sample.kernel_ips + (size_t)8 * i, 8);
}

/* Let the record be the base to which it refers, and then refer to that. */
static void decode_reference(struct capture_head *head, size_t size)
{
	uint8_t *end = (uint8_t *)head + size;
	struct plan_reference reference, base;
	struct live_bases *bases = calloc(1, sizeof(*bases));

	if (!bases)
		return;
	memcpy(&reference, end - sizeof(reference), sizeof(reference));
	base = (struct plan_reference){ .base = reference.base };
	decode(head, size, bases);
	memcpy(end - sizeof(base), &base, sizeof(base));
	decode(head, size, bases);
	reference.size %= 2048;
	memcpy(end - sizeof(reference), &reference, sizeof(reference));
	decode(head, size, bases);
	live_bases_fini(bases);
	free(bases);
}

static void sample(uint8_t *record, size_t size, bool mended)
{
	struct capture_head *head = (void *)record;

	if (mended)
		mend(head, size);
	if (!live_captured_sound(head, (uint32_t)size, EVENTS))
		return;
	if (live_captured_size(head) != size)
		abort();
	if (head->flags & CAPTURE_WAKER) {
		const struct capture_woken woken = live_captured_woken(head);

		touch((const uint8_t *)&woken, sizeof(woken));
	}
	decode(head, size, NULL);
	if (head->slices_refer)
		decode_reference(head, size);
}

static void sideband(uint8_t *bytes, size_t size, bool with_file)
{
	static const struct live_file file = { .pid = 1, .major = 2, .inode = 3 };
	struct perf_event_header *record = (void *)bytes;
	struct event events[LIVE_DECODE_MAX];
	uint32_t pid;
	size_t n;

	if (size < sizeof(*record) || size > UINT16_MAX)
		return;
	record->size = (uint16_t)size;
	(void)live_sideband_pid(record, &pid);
	n = live_sideband_decode(record, with_file ? &file : NULL, events);
	if (n > LIVE_DECODE_MAX)
		abort();
	for (size_t i = 0; i < n; i++) {
		const struct event_mapping *m = &events[i].mapping;

		if (events[i].type == EVENT_COMM)
			touch(events[i].comm.comm, strlen(events[i].comm.comm));
		if (events[i].type != EVENT_MAPPING)
			continue;
		if (m->start >= m->end || m->build_id.size > UW_BUILD_ID_MAX)
			abort();
		touch(m->path, strlen(m->path));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *record;

	if (size < 2)
		return 0;
	/* Records are aligned, and their end is where the memory ends. */
	record = malloc(size - 1);
	if (!record)
		return 0;
	memcpy(record, data + 1, size - 1);
	if (data[0] & 1)
		sideband(record, size - 1, data[0] & 2);
	else if (size - 1 >= sizeof(struct capture_head))
		sample(record, (size - 1) & ~(size_t)7, data[0] & 2);
	free(record);
	return 0;
}

/* agent/live/captured.c: reads the parts of a captured sample. */
#include "agent/live/captured.h"

#include <math.h>
#include <string.h>

#define COMPAT_REGS 0x100ffu /* the registers of 32-bit code: up to edi, and the pc */

static uint32_t padded(uint32_t size)
{
	return (size + 7) & ~7u;
}

/*
 * Return the offset of the second stack in a record. The next functions return the offsets of the
 * other parts; see schema/capture.h.
 */
static uint32_t interrupted_at(const struct capture_head *head)
{
	return CAPTURE_HEAD_SIZE + padded(head->stack_len);
}

static uint32_t kernel_at(const struct capture_head *head)
{
	return interrupted_at(head) +
	       (head->interrupted_len ? 8 + padded(head->interrupted_len) : 0);
}

static uint32_t holes_at(const struct capture_head *head)
{
	return kernel_at(head) + head->kernel_len;
}

static uint32_t alloc_at(const struct capture_head *head)
{
	return holes_at(head) +
	       (head->flags & CAPTURE_HOLES ? (uint32_t)sizeof(struct capture_holes) : 0);
}

static uint32_t woken_at(const struct capture_head *head)
{
	return alloc_at(head) +
	       (head->flags & CAPTURE_ALLOC ? (uint32_t)sizeof(struct capture_alloc) : 0);
}

static uint32_t slices_at(const struct capture_head *head)
{
	return woken_at(head) +
	       (head->flags & CAPTURE_WAKER ? (uint32_t)sizeof(struct capture_woken) : 0);
}

/* Return how many of slices_len are no slices. */
static uint32_t reference_size(const struct capture_head *head)
{
	return head->slices_refer ? (uint32_t)sizeof(struct plan_reference) : 0;
}

bool live_captured_sound(const struct capture_head *head, uint32_t size, size_t n_events)
{
	if (size < sizeof(*head) || head->magic != CAPTURE_MAGIC || head->event >= n_events)
		return false;
	if (head->stack_len > CAPTURE_STACK_LIMIT ||
	    head->interrupted_len > CAPTURE_INTERRUPTED_MAX)
		return false;
	if (head->kernel_len > CAPTURE_KERNEL_MAX || head->kernel_len % 8)
		return false;
	if (head->slices_refer > 1 || head->slices_len % 8 || head->slices_end >= PLAN_LOST)
		return false;
	if (head->slices_len < reference_size(head) ||
	    head->slices_len - reference_size(head) > PLAN_BYTES_MAX)
		return false;
	return size == live_captured_size(head);
}

size_t live_captured_size(const struct capture_head *head)
{
	return slices_at(head) + head->slices_len;
}

struct capture_woken live_captured_woken(const struct capture_head *head)
{
	struct capture_woken woken;

	memcpy(&woken, (const uint8_t *)head + woken_at(head), sizeof(woken));
	return woken;
}

/* Return the address of the first stack byte. */
static uint64_t stack_addr(const struct capture_head *head)
{
	return head->regs[7] - CAPTURE_RED_ZONE;
}

/*
 * Describe the copied stack as regions, one for each run of readable pages. Return their number.
 * Bytes are counted from the stack's first one: sp may be any number, and addresses may wrap.
 */
static uint32_t make_regions(const struct capture_head *head, struct uw_region *regions)
{
	const uint8_t *bytes = (const uint8_t *)head + sizeof(*head);
	const uint64_t from = stack_addr(head);
	struct capture_holes holes;
	uint32_t n = 0, at = 0;
	bool in_run = false;

	if (!(head->flags & CAPTURE_HOLES)) {
		regions[0] = (struct uw_region){ from, head->stack_len, bytes };
		return head->stack_len != 0;
	}
	memcpy(&holes, (const uint8_t *)head + holes_at(head), sizeof(holes));
	for (size_t i = 0; i < CAPTURE_PAGES_MAX && at < head->stack_len; i++) {
		uint32_t left = head->stack_len - at;
		uint32_t size = CAPTURE_PAGE - (uint32_t)((from + at) % CAPTURE_PAGE);

		size = size < left ? size : left;
		if (holes.pages[i / 64] >> i % 64 & 1) {
			in_run = false;
		} else {
			if (!in_run)
				regions[n++] = (struct uw_region){ from + at, 0, bytes + at };
			in_run = true;
			regions[n - 1].size += size;
		}
		at += size;
	}
	return n;
}

/*
 * Add the second stack to the n regions. Return the new number. The alternate signal stack may lie
 * inside the stack that it interrupted; then the second region covers the first one, and replaces
 * it.
 */
static uint32_t add_interrupted(const struct capture_head *head, struct uw_region *regions,
				uint32_t n)
{
	const uint8_t *bytes = (const uint8_t *)head + interrupted_at(head);
	uint64_t stack = stack_addr(head), from, end;

	memcpy(&from, bytes, sizeof(from));
	end = from + head->interrupted_len;
	if (from < stack + head->stack_len && stack < end) {
		if (from > stack || end < stack + head->stack_len)
			return n;
		n = 0;
	}
	regions[n] = (struct uw_region){ from, head->interrupted_len, bytes + sizeof(from) };
	return n + 1;
}

/*
 * Compute how many allocations and bytes a captured allocation stands for. One byte is drawn every
 * interval bytes on average. An allocation contains a drawn byte with the probability
 * 1 - exp(-size / interval), so the capture stands for 1 / probability allocations. With an
 * interval of 1 every allocation is captured.
 */
static void make_alloc(uint64_t interval, const struct capture_alloc *alloc, struct event_sample *s)
{
	double size = alloc->size ? (double)alloc->size : 1;
	double chance = interval > 1 ? -expm1(-size / (double)interval) : 1;

	s->alloc = (struct event_alloc){ .id = alloc->id,
					 .size = alloc->size,
					 .objects = (uint64_t)(EVENT_OBJECT / chance + 0.5),
					 .tracked = alloc->addr != 0 };
	s->period = event_alloc_bytes(&s->alloc, alloc->size);
	s->period += !s->period;
}

/* Describe slices as regions; return their number. */
static uint32_t make_slices(const uint8_t *bytes, uint32_t left, struct uw_region *regions)
{
	uint32_t n = 0;

	while (left >= 16) {
		uint64_t word, size;

		memcpy(&word, bytes, sizeof(word));
		size = (word >> PLAN_ADDR_BITS) * 8;
		bytes += sizeof(word);
		left -= (uint32_t)sizeof(word);
		if (!size || size > left)
			break;
		regions[n++] = (struct uw_region){ word & (((uint64_t)1 << PLAN_ADDR_BITS) - 1),
						   size, bytes };
		bytes += size;
		left -= (uint32_t)size;
	}
	return n;
}

/* Add the slices of a record, with those that it refers to. */
static void add_slices(const struct capture_head *head, struct live_bases *bases,
		       struct uw_region *regions, struct event_sample *s)
{
	const uint8_t *bytes = (const uint8_t *)head + slices_at(head);
	uint32_t size = head->slices_len - reference_size(head);
	struct plan_reference reference;
	bool lost = false;

	if (head->slices_refer) {
		memcpy(&reference, bytes + size, sizeof(reference));
		lost = !live_bases_follow(bases, head->cpu, &reference, &bytes, &size);
	}
	s->slices = regions;
	s->n_slices = make_slices(bytes, size, regions);
	s->slices_end = lost ? PLAN_LOST : head->slices_end;
}

void live_captured_sample(const struct capture_head *head, uint64_t interval,
			  struct live_bases *bases, struct uw_region regions[LIVE_REGIONS_MAX],
			  struct event *event)
{
	const uint8_t *bytes = (const uint8_t *)head;
	struct event_sample *s = &event->sample;

	*event = (struct event){
		.type = EVENT_SAMPLE, .pid = head->pid, .tid = head->tid, .time_ns = head->time_ns
	};
	s->event = head->event;
	s->cpu = head->cpu;
	s->ns_pid = head->ns_pid;
	s->process_start_ns = head->process_start_ns;
	s->period = head->period ? head->period : 1;
	s->has_user_regs = head->flags & CAPTURE_HAS_USER;
	s->compat = head->flags & CAPTURE_COMPAT;
	s->stack_cut = head->flags & CAPTURE_CUT;
	s->cgroup_id = head->cgroup_id;
	s->has_uid = true;
	s->uid = head->uid;
	s->regions = regions;
	if (s->has_user_regs) {
		memcpy(s->regs.value, head->regs, sizeof(head->regs));
		s->regs.known = s->compat ? COMPAT_REGS : (1ull << CAPTURE_REGS) - 1;
		s->n_regions = make_regions(head, regions);
		if (head->interrupted_len)
			s->n_regions = add_interrupted(head, regions, s->n_regions);
	}
	add_slices(head, bases, regions + LIVE_STACKS_MAX, s);
	s->n_kernel_ips = head->kernel_len / 8;
	s->kernel_ips = (const void *)(bytes + kernel_at(head));
	if (head->flags & CAPTURE_ALLOC) {
		struct capture_alloc alloc;

		/* it need not be aligned in the record */
		memcpy(&alloc, bytes + alloc_at(head), sizeof(alloc));
		make_alloc(interval, &alloc, s);
	}
}

/* Multiply, up to the largest number. */
static uint64_t times(uint64_t value, uint64_t n)
{
	unsigned __int128 product = (unsigned __int128)value * n;

	return product > INT64_MAX ? INT64_MAX : (uint64_t)product;
}

/* Return what is said of a waker's stack. lost: the record that was sent is not there. */
static enum event_waker_stack waker_stack(uint32_t stack, bool lost)
{
	switch (stack) {
	case CAPTURE_WAKER_SENT:
		return lost ? EVENT_WAKER_LOST : EVENT_WAKER_SENT;
	case CAPTURE_WAKER_NONE:
		return EVENT_WAKER_INTERRUPT;
	case CAPTURE_WAKER_OTHER:
		return EVENT_WAKER_NOT_SELECTED;
	case CAPTURE_WAKER_SHORT:
		return EVENT_WAKER_TOO_SHORT;
	case CAPTURE_WAKER_FULL:
		return EVENT_WAKER_LOST;
	case CAPTURE_WAKER_UNREADABLE:
		return EVENT_WAKER_UNREADABLE;
	default:
		return EVENT_WAKER_UNSEEN;
	}
}

/*
 * The wait's end becomes the sample's time. The length of the wait, times the waits that the sample
 * stands for, and the length of the others that it is to be counted with become its period.
 */
void live_captured_wait(const struct live_waited *wait, bool wakers, struct event *event)
{
	const struct capture_wake *wake = &wait->wake;
	const uint64_t began_ns = wake->began_ns, n = wake->n ? wake->n : 1;
	struct event_sample *s = &event->sample;
	const bool woken = wake->woken_ns >= began_ns && wake->woken_ns <= wake->time_ns;

	if (wait->head.flags & CAPTURE_WAKER) {
		event->type = EVENT_WAKER;
		s->wait.id = wait->id;
		return;
	}
	event->time_ns = wake->time_ns;
	s->period = times(wake->time_ns - began_ns, n) + wake->others_blocked_ns +
		    wake->others_runnable_ns;
	s->wait =
		(struct event_wait){ .n = n + wake->others, .runnable = wake->others_runnable_ns };
	if (wakers)
		s->wait.waker_stack = (uint8_t)waker_stack(wake->waker_stack, !wait->id);
	s->wait.id = wait->id;
	if (!wake->woken_ns)
		return;
	s->wait.runnable += woken ? times(wake->time_ns - wake->woken_ns, n) : 0;
	s->wait.waker_pid = wake->waker_pid;
	s->wait.waker_tid = wake->waker_tid;
	s->wait.waker = wake->waker_tid ? wake->waker : EVENT_INTERRUPT;
}

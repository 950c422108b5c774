/*
 * agent/live/captured.h: makes events of the sample records that the capture programs write; see
 * schema/capture.h.
 */
#ifndef AGENT_LIVE_CAPTURED_H
#define AGENT_LIVE_CAPTURED_H

#include "agent/event.h"
#include "agent/live/bases.h"
#include "agent/live/wait.h"
#include "schema/capture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs of readable pages with holes between them, the second stack, and then the slices. */
#define LIVE_STACKS_MAX	 (CAPTURE_PAGES_MAX / 2 + 2)
#define LIVE_REGIONS_MAX (LIVE_STACKS_MAX + PLAN_BYTES_MAX / 16)

/*
 * Return whether a sample record is consistent: its magic number, its event, the limits of its
 * parts and the sum of their sizes.
 */
bool live_captured_sound(const struct capture_head *head, uint32_t size, size_t n_events);
/* Return the bytes of a sound record. */
size_t live_captured_size(const struct capture_head *head);

/* Return which wait the thread of a sound record with CAPTURE_WAKER ended. */
struct capture_woken live_captured_woken(const struct capture_head *head);

/*
 * Convert a record, which must be sound, into an event. The event borrows the record, regions and, until the next call,
 * bases. interval: the mean number of bytes between two captured allocations. bases: what the records before had that this one
 * may refer to (schema/plan.h); NULL: nothing. Without its base a record has its first slices only, and PLAN_LOST.
 */
void live_captured_sample(const struct capture_head *head, uint64_t interval,
			  struct live_bases *bases, struct uw_region regions[LIVE_REGIONS_MAX],
			  struct event *event);
/*
 * Complete the event of live_captured_sample for a wait that has ended, after it began, or for the thread
 * that ended a wait. wakers: the stacks of such threads are captured. The event borrows the record.
 */
void live_captured_wait(const struct live_waited *wait, bool wakers, struct event *event);

#endif

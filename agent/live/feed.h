/*
 * agent/live/feed.h: passes events from one process to another, through memory that both share.
 *
 * The giver copies each event, with all that it points to, into a ring. The taker's events point into
 * that ring. The ring's memory is made before the fork, so it has the same address in both processes. While the
 * taker keeps up, only the start of the ring is used.
 * Stacks that lie in memory which the giver lends (feed_lend) are not copied: the taker's events point to
 * where the taker has that memory.
 *
 * The giver does not trust the taker: whatever the taker writes into the shared memory, the giver reads
 * nothing there but the taker's position and whether it sleeps, and writes only inside the ring.
 *
 * One thread gives and one takes.
 */
#ifndef AGENT_LIVE_FEED_H
#define AGENT_LIVE_FEED_H

#include "agent/event.h"

#include <stddef.h>

struct feed;

/* Make a feed of at least this many bytes, before the fork. -ENOMEM, -EMFILE, … */
int feed_new(size_t size, struct feed **out);
void feed_free(struct feed *feed);  /* what this process has of it; NULL is fine */
void feed_giver(struct feed *feed); /* after the fork: this process gives */
void feed_taker(struct feed *feed); /* … or takes, from the first event on */

/*
 * In the giver: do not copy records, regions and slices of samples that lie in this memory from now on. What an event
 * has of it must stay as it is until the taker does not need the event any more (feed_taken). NULL: copy all.
 */
void feed_lend(struct feed *feed, const void *memory, size_t size);
/* In the taker: the memory that the giver has at there is at here in this process. NULL: there is none. */
void feed_borrow(struct feed *feed, const void *there, const void *here, size_t size);

/*
 * A descriptor that becomes readable when there may be news after a function returned -EAGAIN, and that
 * hangs up when the other process is gone. Call feed_heard before trying again.
 */
int feed_bell(const struct feed *feed);
void feed_heard(const struct feed *feed);

/*
 * Give a copy of an event. event_mapping.image is not copied: it must be memory that both processes
 * have. Samples with a function that reads further memory cannot be given.
 * -EAGAIN: there is no room now; -E2BIG: it is larger than the whole feed; -EPIPE: the taker broke the
 * feed.
 */
int feed_put(struct feed *feed, const struct event *event);
/*
 * In the giver: return how many bytes of records were given since the feed was empty, and how many of them
 * the taker says that it does not need any more. It may say anything, but the number is never more than given.
 */
uint64_t feed_given(const struct feed *feed);
uint64_t feed_taken(const struct feed *feed);
/*
 * Wake the taker if it waits and there is something to take. feed_put does so only now and then, because
 * waking costs more than an event: call this before waiting.
 */
void feed_flush(struct feed *feed);
/* Begin again with an empty feed, for another taker, when the one before is gone. */
void feed_empty(struct feed *feed);
/* Say that no event follows, and why: err is negative and error a text, or 0 and "". */
void feed_end(struct feed *feed, int err, const char *error);

/*
 * Take the next event; what it points to is valid until the next call. Return 1 with an event, 0 at
 * the end, -EAGAIN if there is none now, or the negative code of feed_end, with its text in error
 * (512 bytes).
 */
int feed_take(struct feed *feed, struct event *event, char *error);

#endif

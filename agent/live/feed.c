/* agent/live/feed.c: a ring of events in shared memory, and a socket pair that wakes the other side. */
#include "agent/live/feed.h"

#include "agent/io.h"
#include "agent/live/captured.h"

#include <errno.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALIGN(size) (((size) + 7) & ~(size_t)7)
/* A taker that waits is woken after so many bytes. */
#define WAKE_BYTES ((size_t)64 << 10)
/* If all was taken, and the giver is so far in the ring, it goes on at the start. */
#define AGAIN_BYTES ((size_t)64 << 10)

/* In front of each record. */
struct record {
	uint64_t size;	    /* of this head, the event and what it points to */
	bool skip;	    /* nothing follows: the next record is at the start of the ring */
	struct event event; /* as much as its type uses; its pointers point behind that */
};

/* What a side writes for each event has a cache line to itself: one that both write goes from CPU to CPU each time. */
#define LINE 64

struct shared {
	/* How many bytes were ever given and taken. Each side keeps its own number to itself, too. */
	alignas(LINE) _Atomic uint64_t given;
	alignas(LINE) _Atomic uint64_t taken;
	alignas(LINE) _Atomic uint32_t giver_sleeps, taker_sleeps, ended; /* 0: no */
	int err; /* of feed_end, with its text; written before ended */
	char error[512];
};

struct feed {
	struct shared *shared;
	uint8_t *ring;
	size_t size;   /* of the ring */
	uint64_t at;   /* this side's position */
	uint64_t seen; /* the other side's, when it was looked at last: it may have gone on since */
	bool asleep;   /* this side may have said that it sleeps */
	uint64_t held; /* bytes of the record that the last feed_take returned */
	uint64_t rung; /* the giver's position when it woke the taker last */
	/* The memory that is lent, where the giver and where the taker has it. */
	const uint8_t *lent, *borrowed;
	size_t lent_size; /* 0: there is none */
	int bell[2];	  /* the giver's and the taker's end; -1: closed */
	int own;	  /* this side's end */
};

#define HEAD ALIGN(sizeof(struct shared))

int feed_new(size_t size, struct feed **out)
{
	struct feed *feed = calloc(1, sizeof(*feed));
	int err = -ENOMEM;

	if (!feed)
		return err;
	feed->bell[0] = feed->bell[1] = feed->own = -1;
	feed->size = ALIGN(size);
	feed->shared = io_shared(HEAD + feed->size);
	if (!feed->shared) {
		err = -errno;
	} else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, feed->bell)) {
		err = -errno;
	} else {
		feed->ring = (uint8_t *)feed->shared + HEAD;
		*out = feed;
		return 0;
	}
	feed_free(feed);
	return err;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void feed_free(struct feed *feed)
{
	if (!feed)
		return;
	close_end(&feed->bell[0]);
	close_end(&feed->bell[1]);
	if (feed->shared)
		(void)munmap(feed->shared, HEAD + feed->size);
	free(feed);
}

void feed_giver(struct feed *feed)
{
	close_end(&feed->bell[1]);
	feed->own = feed->bell[0];
}

void feed_taker(struct feed *feed)
{
	close_end(&feed->bell[0]);
	feed->own = feed->bell[1];
	feed->at = feed->seen = feed->held = 0;
	feed->asleep = false;
}

/* ---- waking the other side --------------------------------------------------------------- */

int feed_bell(const struct feed *feed)
{
	return feed->own;
}

void feed_heard(const struct feed *feed)
{
	char byte;
	struct iovec bytes = { &byte, 1 };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };

	/* Nearly always there is one; if there are more, this end stays readable. */
	(void)recvmsg(feed->own, &message, MSG_DONTWAIT);
}

/*
 * Let the other side see this side's position. What this side did before comes before it for the other side; what this
 * side reads afterwards may have been read earlier: see settle().
 */
static void show(_Atomic uint64_t *position, uint64_t at)
{
	atomic_store_explicit(position, at, memory_order_release);
}

/*
 * After this, either this side sees that the other one sleeps, or the other one, which calls this too, sees what was
 * shown here, and does not sleep.
 */
static void settle(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

/* Wake the other side if it waits. A full socket means that it has been rung already. */
static void ring(const struct feed *feed, _Atomic uint32_t *sleeps)
{
	char byte = 0;
	struct iovec bytes = { &byte, 1 };
	const struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };

	settle();
	if (atomic_exchange(sleeps, 0))
		(void)sendmsg(feed->own, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Say that this side is going to sleep. It must look once more before it does. */
static void say_sleeps(struct feed *feed, _Atomic uint32_t *sleeps)
{
	atomic_store(sleeps, 1);
	settle();
	feed->asleep = true;
}

/* This side goes on. */
static void say_awake(struct feed *feed, _Atomic uint32_t *sleeps)
{
	if (feed->asleep)
		atomic_store(sleeps, 0);
	feed->asleep = false;
}

/* ---- giving ------------------------------------------------------------------------------ */

void feed_lend(struct feed *feed, const void *memory, size_t size)
{
	feed->lent = memory;
	feed->lent_size = memory ? size : 0;
}

/* Where the next bytes of a record go. With to = NULL only their size is counted. */
struct packing {
	const struct feed *feed;
	uint8_t *to;
	size_t at;
};

/* Append bytes. Return their place in the ring. */
static void *pack(struct packing *p, const void *bytes, size_t size)
{
	uint8_t *place = p->to ? p->to + p->at : NULL;

	if (place && size)
		memcpy(place, bytes, size);
	p->at += ALIGN(size);
	return place;
}

/* Return whether bytes are in lent memory. */
static bool is_lent(const struct feed *feed, const void *bytes, size_t size)
{
	/* Numbers: pointers into different memory cannot be compared. */
	uintptr_t at = (uintptr_t)bytes - (uintptr_t)feed->lent;

	return at < feed->lent_size && size <= feed->lent_size - at;
}

/* Append bytes, or leave them in lent memory. Return their place. */
static const void *pack_or_lend(struct packing *p, const void *bytes, size_t size)
{
	return is_lent(p->feed, bytes, size) ? bytes : pack(p, bytes, size);
}

static const char *pack_text(struct packing *p, const char *text)
{
	return text ? pack(p, text, strlen(text) + 1) : NULL;
}

static const struct uw_region *pack_regions(struct packing *p, const struct uw_region *from,
					    uint32_t n)
{
	struct uw_region *regions = pack(p, from, n * sizeof(*from));

	for (uint32_t i = 0; i < n; i++) {
		const void *bytes = pack_or_lend(p, from[i].bytes, from[i].size);

		if (regions)
			regions[i].bytes = bytes;
	}
	return regions;
}

static void pack_sample(struct packing *p, struct event_sample *s)
{
	if (s->record) {
		/* One that is lent is not in this process's caches. */
		if (!is_lent(p->feed, s->record, 1))
			s->record = pack(p, s->record, live_captured_size(s->record));
		return;
	}
	s->regions = pack_regions(p, s->regions, s->n_regions);
	s->slices = pack_regions(p, s->slices, s->n_slices);
	s->kernel_ips = pack(p, s->kernel_ips, s->n_kernel_ips * sizeof(*s->kernel_ips));
	s->user_ips = pack(p, s->user_ips, s->n_user_ips * sizeof(*s->user_ips));
	s->name = pack_text(p, s->name);
	s->wait.waker = pack_text(p, s->wait.waker);
	s->read = NULL;
	s->read_ctx = NULL;
}

/* Append what the event points to, and let it point there. */
static void pack_event(struct packing *p, struct event *event)
{
	switch (event->type) {
	case EVENT_MAPPING:
		event->mapping.path = pack_text(p, event->mapping.path);
		break;
	case EVENT_COMM:
		event->comm.comm = pack_text(p, event->comm.comm);
		break;
	case EVENT_CGROUP:
		event->cgroup.path = pack_text(p, event->cgroup.path);
		break;
	case EVENT_GENERATED:
		event->generated.bytes = pack(p, event->generated.bytes, event->generated.size);
		break;
	case EVENT_MEMORY:
		event->memory.bytes = pack(p, event->memory.bytes, event->memory.size);
		break;
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		pack_sample(p, &event->sample);
		break;
	case EVENT_EXEC:
	case EVENT_FORK:
	case EVENT_EXIT:
	case EVENT_FREED:
	case EVENT_LOST:
	case EVENT_CHANGED:
		break;
	}
}

/* Return the bytes of a record before what its event points to. */
static size_t head_size(const struct event *event)
{
	return ALIGN(offsetof(struct record, event) + event_size(event));
}

static size_t size_of(const struct feed *feed, const struct event *event)
{
	struct packing counting = { .feed = feed, .at = head_size(event) };
	struct event copy;

	memcpy(&copy, event, event_size(event));
	pack_event(&counting, &copy);
	return counting.at;
}

/*
 * Find room for size bytes in one piece: *skipped bytes from the giver's position on. If there is
 * none, the taker is to ring when it has taken something.
 */
static int find_room(struct feed *feed, size_t size, size_t *skipped)
{
	size_t at = (size_t)(feed->at % feed->size), left = feed->size - at;
	uint64_t used, taken;

	*skipped = left < size ? left : 0;
	if (size > feed->size / 2)
		return -E2BIG;
	/*
	 * Room that was there when the taker was looked at last is still there. Further on in the ring, it must be known
	 * whether all was taken.
	 */
	if (at < AGAIN_BYTES && feed->size - (feed->at - feed->seen) >= *skipped + size)
		return 0;
	for (int again = 0; again < 2; again++) {
		taken = atomic_load(&feed->shared->taken);
		used = feed->at - taken;
		if (used > feed->size)
			return -EPIPE;
		feed->seen = taken;
		/* There both processes have memory, and it is in the caches. */
		if (!used && at >= AGAIN_BYTES && at >= size)
			*skipped = left;
		if (feed->size - used >= *skipped + size)
			return 0;
		/* The taker may have taken something before it saw that somebody waits. */
		say_sleeps(feed, &feed->shared->giver_sleeps);
	}
	return -EAGAIN;
}

int feed_put(struct feed *feed, const struct event *event)
{
	size_t size = size_of(feed, event), skipped;
	int err = find_room(feed, size, &skipped);
	struct record *record = (void *)(feed->ring + feed->at % feed->size);
	struct packing packing;
	struct event copy;

	if (err)
		return err;
	say_awake(feed, &feed->shared->giver_sleeps);
	/* The rest of the ring may be smaller than a record's head. */
	if (skipped) {
		if (skipped >= offsetof(struct record, event)) {
			record->size = skipped;
			record->skip = true;
		}
		feed->at += skipped;
		feed->rung += skipped; /* these bytes are nothing to take */
		record = (void *)feed->ring;
	}
	packing = (struct packing){ feed, (uint8_t *)record, head_size(event) };
	memcpy(&copy, event, event_size(event));
	record->size = size;
	record->skip = false;
	/* The taker can change what is in the ring at any time: nothing is read back from there. */
	pack_event(&packing, &copy);
	memcpy(&record->event, &copy, event_size(&copy));
	feed->at += size;
	show(&feed->shared->given, feed->at);
	if (feed->at - feed->rung >= WAKE_BYTES)
		feed_flush(feed);
	return 0;
}

void feed_flush(struct feed *feed)
{
	if (feed->at == feed->rung)
		return;
	feed->rung = feed->at;
	ring(feed, &feed->shared->taker_sleeps);
}

uint64_t feed_given(const struct feed *feed)
{
	return feed->at;
}

uint64_t feed_taken(const struct feed *feed)
{
	uint64_t taken = atomic_load(&feed->shared->taken);

	return taken < feed->at ? taken : feed->at;
}

void feed_empty(struct feed *feed)
{
	feed->at = feed->seen = feed->rung = 0;
	atomic_store(&feed->shared->given, 0);
	atomic_store(&feed->shared->taken, 0);
	atomic_store(&feed->shared->ended, 0);
}

void feed_end(struct feed *feed, int err, const char *error)
{
	feed->shared->err = err;
	(void)snprintf(feed->shared->error, sizeof(feed->shared->error), "%s", error);
	atomic_store(&feed->shared->ended, 1);
	ring(feed, &feed->shared->taker_sleeps);
}

/* ---- taking ------------------------------------------------------------------------------ */

void feed_borrow(struct feed *feed, const void *there, const void *here, size_t size)
{
	feed->lent = there;
	feed->borrowed = here;
	feed->lent_size = here ? size : 0;
}

/* Return where this process has the bytes that the giver has at there. */
static const uint8_t *find(const struct feed *feed, const void *there)
{
	uintptr_t at = (uintptr_t)there - (uintptr_t)feed->lent;

	return at < feed->lent_size ? feed->borrowed + at : there;
}

/* Let what points to lent memory point to where this process has it. The regions are in the ring. */
static void find_lent(const struct feed *feed, struct event_sample *s)
{
	struct uw_region *regions = (struct uw_region *)(uintptr_t)s->regions,
			 *slices = (struct uw_region *)(uintptr_t)s->slices;

	if (s->record) {
		s->record = find(feed, s->record);
		return;
	}
	for (uint32_t i = 0; i < s->n_regions; i++)
		regions[i].bytes = find(feed, regions[i].bytes);
	for (uint32_t i = 0; i < s->n_slices; i++)
		slices[i].bytes = find(feed, slices[i].bytes);
}

/* Return the next record; NULL: there is none. */
static const struct record *next_record(struct feed *feed)
{
	size_t at = (size_t)(feed->at % feed->size), left = feed->size - at;
	const struct record *record = (void *)(feed->ring + at);

	if (feed->seen == feed->at)
		feed->seen = atomic_load(&feed->shared->given);
	if (feed->seen == feed->at)
		return NULL;
	if (left < offsetof(struct record, event) || record->skip) {
		feed->at += left;
		record = (void *)feed->ring;
	}
	return record;
}

/* Give the ring back the record that was taken last. */
static void let_go(struct feed *feed)
{
	struct shared *shared = feed->shared;

	if (!feed->held)
		return;
	feed->at += feed->held;
	feed->held = 0;
	show(&shared->taken, feed->at);
	/*
	 * One that waits for room is woken when there is some, not for each record. Without settle() it may not be seen
	 * yet that the giver sleeps: the next call sees it, or feed_take when all was taken.
	 */
	if (atomic_load_explicit(&shared->giver_sleeps, memory_order_relaxed) &&
	    atomic_load(&shared->given) - feed->at <= feed->size / 4 * 3)
		ring(feed, &shared->giver_sleeps);
}

int feed_take(struct feed *feed, struct event *event, char *error)
{
	struct shared *shared = feed->shared;
	const struct record *record;
	bool ended;

	let_go(feed);
	for (int again = 0; again < 2; again++) {
		/* What was given before the end comes before it. */
		ended = feed->seen == feed->at && atomic_load(&shared->ended) != 0;
		record = next_record(feed);
		if (record) {
			say_awake(feed, &shared->taker_sleeps);
			feed->held = record->size;
			memcpy(event, &record->event, event_size(&record->event));
			if (event->type == EVENT_SAMPLE || event->type == EVENT_WAKER)
				find_lent(feed, &event->sample);
			return 1;
		}
		if (ended) {
			(void)snprintf(error, sizeof(shared->error), "%s", shared->error);
			return shared->err;
		}
		/* An event may have come before the giver saw that somebody waits. */
		say_sleeps(feed, &shared->taker_sleeps);
		ring(feed, &shared->giver_sleeps); /* all was taken: there is room */
	}
	return -EAGAIN;
}

/*
 * tests/unit/test_live_feed.c: tests the ring of events between two processes: every event arrives as
 * it was given, whatever the sizes, and a taker that writes into the ring harms nobody.
 */
#include "agent/live/feed.h"

#include "schema/capture.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

#define FEED_SIZE 65536
#define N_EVENTS  20000

static uint64_t state = 1;

static uint64_t number(void) /* xorshift64 */
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Make event number i, always the same. Strings and bytes are in memory. */
static struct event event_of(uint64_t i, uint8_t memory[FEED_SIZE / 4], struct uw_region regions[2],
			     uint64_t ips[4])
{
	struct event event = { .type = (enum event_type)(i % EVENT_LOST), .pid = (uint32_t)i };
	size_t size;

	state = i + 1;
	size = number() % (FEED_SIZE / 4 - 1);
	if (i % 3)
		size %= 64;
	for (size_t k = 0; k < size; k++)
		memory[k] = (uint8_t)('a' + (i + k) % 26);
	memory[size] = '\0';
	switch (event.type) {
	case EVENT_MAPPING:
		event.mapping.path = (const char *)memory;
		event.mapping.start = number();
		break;
	case EVENT_COMM:
		event.comm.comm = (const char *)memory;
		break;
	case EVENT_CGROUP:
		event.cgroup.path = i % 2 ? (const char *)memory : NULL;
		break;
	case EVENT_GENERATED:
		event.generated.bytes = memory;
		event.generated.size = size;
		break;
	case EVENT_MEMORY:
		event.memory = (struct event_memory){ memory, size };
		break;
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		regions[0] = (struct uw_region){ number(), size / 2, memory };
		regions[1] = (struct uw_region){ number(), size - size / 2, memory + size / 2 };
		event.sample.regions = regions;
		event.sample.n_regions = (uint32_t)(i % 3);
		event.sample.slices = regions;
		event.sample.n_slices = (uint32_t)(i / 2 % 3);
		event.sample.kernel_ips = ips;
		event.sample.n_kernel_ips = (uint32_t)(i % 5);
		for (size_t k = 0; k < 4; k++)
			ips[k] = number();
		break;
	case EVENT_FORK:
		event.fork.parent_pid = (uint32_t)number();
		break;
	case EVENT_FREED:
		event.freed.id = number();
		break;
	default: /* nothing more */
		break;
	}
	return event;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_regions(const struct uw_region *a, uint32_t n, const struct uw_region *b,
			 uint32_t m)
{
	for (uint32_t i = 0; n == m && i < n; i++)
		if (a[i].addr != b[i].addr || a[i].size != b[i].size ||
		    memcmp(a[i].bytes, b[i].bytes, a[i].size) != 0)
			return false;
	return n == m;
}

static bool same(const struct event *a, const struct event *b)
{
	const struct event_sample *s = &a->sample, *t = &b->sample;

	if (a->type != b->type || a->pid != b->pid)
		return false;
	switch (a->type) {
	case EVENT_MAPPING:
		return same_text(a->mapping.path, b->mapping.path) &&
		       a->mapping.start == b->mapping.start;
	case EVENT_COMM:
		return same_text(a->comm.comm, b->comm.comm);
	case EVENT_CGROUP:
		return same_text(a->cgroup.path, b->cgroup.path);
	case EVENT_GENERATED:
		return a->generated.size == b->generated.size &&
		       !memcmp(a->generated.bytes, b->generated.bytes, a->generated.size);
	case EVENT_MEMORY:
		return a->memory.size == b->memory.size &&
		       !memcmp(a->memory.bytes, b->memory.bytes, a->memory.size);
	case EVENT_SAMPLE:
	case EVENT_WAKER:
		if (s->n_regions != t->n_regions || s->n_kernel_ips != t->n_kernel_ips ||
		    memcmp(s->kernel_ips, t->kernel_ips, s->n_kernel_ips * sizeof(*s->kernel_ips)))
			return false;
		return same_regions(s->regions, s->n_regions, t->regions, t->n_regions) &&
		       same_regions(s->slices, s->n_slices, t->slices, t->n_slices);
	case EVENT_FORK:
		return a->fork.parent_pid == b->fork.parent_pid;
	case EVENT_FREED:
		return a->freed.id == b->freed.id;
	default:
		return true;
	}
}

static uint8_t memory[FEED_SIZE / 4];
static struct uw_region regions[2];
static uint64_t ips[4];
static char error[512];

/* Wait until the other side rings: nothing else ends this wait. Return false if it is gone. */
static bool wait_for(const struct feed *feed)
{
	struct pollfd bell = { .fd = feed_bell(feed), .events = POLLIN };

	(void)poll(&bell, 1, -1);
	feed_heard(feed);
	return !(bell.revents & POLLHUP);
}

static void give_all(struct feed *feed)
{
	feed_giver(feed);
	for (uint64_t i = 0; i < N_EVENTS; i++) {
		struct event event = event_of(i, memory, regions, ips);
		int err;

		while ((err = feed_put(feed, &event)) == -EAGAIN) {
			feed_flush(feed);
			if (!wait_for(feed))
				break;
		}
		if (err)
			break;
		/* Now and then let the taker have all, and wait. */
		if (i % 1000 == 0)
			feed_flush(feed);
	}
	feed_end(feed, -EIO, "the end");
}

static void test_every_event_arrives(size_t size)
{
	struct feed *feed;
	uint64_t n = 0, wrong = 0;
	struct event event;
	int rc, gone = 0;
	pid_t pid;

	CHECK(!feed_new(size, &feed), "made");
	pid = fork();
	if (!pid) {
		give_all(feed);
		_exit(0);
	}
	feed_taker(feed);
	for (;;) {
		rc = feed_take(feed, &event, error);
		if (rc == 1) {
			struct event expected = event_of(n++, memory, regions, ips);

			wrong += !same(&event, &expected);
		} else if (rc != -EAGAIN || (!wait_for(feed) && gone++)) {
			break; /* what was given before the giver ended still comes */
		}
	}
	CHECK(rc == -EIO && !strcmp(error, "the end"), "the end comes last");
	CHECK(n == N_EVENTS && !wrong, "all events, each as it was given");
	CHECK(feed_take(feed, &event, error) == -EIO, "and stays");
	CHECK(waitpid(pid, NULL, 0) == pid, "the giver ends");
	feed_free(feed);
}

/* Give an event as soon as the one before was taken. */
static void give_one_by_one(struct feed *feed)
{
	const struct event event = { .type = EVENT_COMM, .comm.comm = "name" };

	feed_giver(feed);
	for (int i = 0; i < 2000 && !feed_put(feed, &event); i++) {
		feed_flush(feed);
		while (feed_taken(feed) != feed_given(feed))
			(void)sched_yield();
	}
	feed_end(feed, 0, "");
}

/* A taker that keeps up needs a small part of a large ring. */
static void test_the_start_is_used_again(void)
{
	const size_t size = 4 << 20;
	struct feed *feed;
	struct event event;
	const char *ring;
	size_t n = 0, furthest = 0;
	int rc, gone = 0;
	pid_t pid;

	CHECK(!feed_new(size, &feed), "made");
	/* It stands in struct feed behind a pointer to the shared memory. */
	memcpy(&ring, (const char *)feed + sizeof(ring), sizeof(ring));
	pid = fork();
	if (!pid) {
		give_one_by_one(feed);
		_exit(0);
	}
	feed_taker(feed);
	while ((rc = feed_take(feed, &event, error)) == 1 ||
	       (rc == -EAGAIN && (wait_for(feed) || !gone++))) {
		if (rc == 1) {
			size_t at = (size_t)(event.comm.comm - ring);

			n += !strcmp(event.comm.comm, "name");
			furthest = at > furthest ? at : furthest;
		}
	}
	CHECK(!rc && n == 2000, "all events");
	CHECK(furthest > 65536 && furthest < 68 << 10, "in the first 64 KiB, and one behind them");
	CHECK(waitpid(pid, NULL, 0) == pid, "the giver ends");
	feed_free(feed);
}

/*
 * What lies in lent memory is not copied: the taker sees it where it has that memory. This process is both, so that
 * there are two copies that differ.
 */
static void test_lent_memory_is_not_copied(void)
{
	static uint8_t there[FEED_SIZE], here[FEED_SIZE];
	const struct uw_region three[] = { { 1, sizeof(there), there },
					   { 2, 8, there + sizeof(there) - 8 },
					   { 3, 8, memory } };
	const struct event lent = { .type = EVENT_SAMPLE,
				    .sample = { .regions = three,
						.n_regions = 3,
						.slices = three + 1,
						.n_slices = 2,
						.kernel_ips = ips,
						.n_kernel_ips = 2 } };
	const struct uw_region beyond = { 1, 16, there + sizeof(there) - 16 };
	struct feed *feed;
	struct event event;
	uint64_t given;

	memset(there, 't', sizeof(there));
	memset(here, 'h', sizeof(here));
	memset(memory, 'm', 8);
	CHECK(!feed_new(FEED_SIZE, &feed), "made");
	CHECK(feed_put(feed, &lent) == -E2BIG, "a copy has no room");
	feed_lend(feed, there, sizeof(there));
	CHECK(feed_put(feed, &lent) == 0, "but a loan has");
	given = feed_given(feed);
	CHECK(given > 0 && given < 4096 && feed_taken(feed) == 0, "its size");
	CHECK(feed_put(feed, &(struct event){ .type = EVENT_EXIT }) == 0, "another");
	/* Both sides use one position in this process: the giver has no more to do. */
	feed_taker(feed);
	feed_borrow(feed, there, here, sizeof(here));
	CHECK(feed_take(feed, &event, error) == 1 && event.type == EVENT_SAMPLE, "taken");
	CHECK(event.sample.regions[0].bytes == here && event.sample.regions[0].size == FEED_SIZE,
	      "all of it");
	CHECK(event.sample.regions[1].bytes == here + sizeof(here) - 8, "its end");
	CHECK(event.sample.regions[2].bytes != memory &&
		      !memcmp(event.sample.regions[2].bytes, memory, 8),
	      "what is not lent is copied");
	CHECK(event.sample.slices[0].bytes == here + sizeof(here) - 8 &&
		      !memcmp(event.sample.slices[1].bytes, memory, 8),
	      "slices, too");
	CHECK(!memcmp(event.sample.kernel_ips, ips, 2 * sizeof(ips[0])), "addresses are copied");
	CHECK(feed_take(feed, &event, error) == 1 && event.type == EVENT_EXIT, "the next");
	CHECK(feed_taken(feed) == given, "the first is not needed any more");
	feed_free(feed);

	CHECK(!feed_new(FEED_SIZE, &feed), "made");
	feed_lend(feed, there, sizeof(there) - 8);
	event = (struct event){ .type = EVENT_SAMPLE,
				.sample = { .regions = &beyond, .n_regions = 1 } };
	CHECK(feed_put(feed, &event) == 0, "partly lent");
	feed_taker(feed);
	feed_borrow(feed, there, here, sizeof(here) - 8);
	CHECK(feed_take(feed, &event, error) == 1, "taken");
	CHECK(event.sample.regions[0].bytes[0] == 't', "it is copied whole");
	feed_free(feed);
}

/* A sample that is left as a record takes little of the ring: only where the record is, and when it was. */
static void test_a_record_is_left(void)
{
	static uint8_t there[64], here[64];
	/* It was split at the end of the kernel's ring, so it is in other memory. */
	static struct {
		struct capture_head head;
		uint8_t stack[5];
	} split = { .head.stack_len = 5, .stack = "1234" };
	const struct event other = { .type = EVENT_SAMPLE, .sample = { .record = &split } };
	const struct event left = { .type = EVENT_SAMPLE,
				    .time_ns = 7,
				    .sample = { .record = there + 8 } };
	struct feed *feed;
	struct event event;

	CHECK(!feed_new(FEED_SIZE, &feed), "made");
	feed_lend(feed, there, sizeof(there));
	for (int i = 0; i < 3; i++)
		CHECK(feed_put(feed, &left) == 0, "left");
	CHECK(feed_given(feed) == 3 * 48, "its size");
	CHECK(feed_put(feed, &other) == 0 && feed_given(feed) == 4 * 48 + CAPTURE_HEAD_SIZE + 8,
	      "one that is not lent is copied");
	CHECK(feed_put(feed, &(struct event){ .type = EVENT_SAMPLE, .pid = 5 }) == 0, "another");
	feed_taker(feed);
	feed_borrow(feed, there, here, sizeof(here));
	for (int i = 0; i < 3; i++)
		CHECK(feed_take(feed, &event, error) == 1 && event.type == EVENT_SAMPLE &&
			      event.time_ns == 7 && event.sample.record == here + 8,
		      "found");
	CHECK(feed_take(feed, &event, error) == 1 && event.sample.record != &split &&
		      !memcmp(event.sample.record, &split, CAPTURE_HEAD_SIZE + 5),
	      "the copy");
	CHECK(feed_take(feed, &event, error) == 1 && !event.sample.record && event.pid == 5,
	      "a whole sample");
	feed_free(feed);
}

static void test_room(void)
{
	struct feed *feed;
	struct event event = { .type = EVENT_COMM, .comm.comm = (const char *)memory };
	int n = 0, err;

	memset(memory, 'x', 1000);
	memory[1000] = '\0';
	CHECK(!feed_new(FEED_SIZE, &feed), "made");
	while (!(err = feed_put(feed, &event)))
		n++;
	CHECK(err == -EAGAIN && n > 30, "until it is full");
	event.type = EVENT_GENERATED;
	event.generated.size = FEED_SIZE / 2;
	{
		uint8_t *large = calloc(1, FEED_SIZE / 2);

		event.generated.bytes = large;
		CHECK(feed_put(feed, &event) == -E2BIG, "larger than the feed can take");
		free(large);
	}
	feed_empty(feed);
	CHECK(feed_put(feed, &(struct event){ .type = EVENT_EXIT, .pid = 7 }) == 0, "empty again");
	feed_free(feed);
}

/* Whatever stands in the memory that the taker can write, the giver stays within the ring. */
static void test_a_hostile_taker(void)
{
	uint64_t refused = 0;

	for (uint64_t i = 0; i < 3000; i++) {
		struct feed *feed;
		struct event event = event_of(i, memory, regions, ips);
		uint64_t *shared;

		CHECK(!feed_new(4 * FEED_SIZE, &feed), "made");
		/* The taker's view of the ring is in the first bytes that struct feed points to. */
		memcpy(&shared, feed, sizeof(shared));
		state = i + 7;
		for (size_t k = 0; k < 24; k++)
			shared[k] = number();
		/* From here on the giver looks at the taker's position, which is in the second cache line. */
		shared[8] = 0;
		while (feed_given(feed) < FEED_SIZE && !feed_put(feed, &event))
			;
		for (int k = 0; k < 50; k++) {
			shared[8] = i % 2 ? number() : feed_given(feed) + number() % 128 - 64;
			refused += feed_put(feed, &event) == -EPIPE;
		}
		feed_free(feed);
	}
	CHECK(refused > 0, "an impossible position is noticed");
}

static atomic_bool harmed_enough;

/* Overwrite the first record of the ring again and again. */
static void *harm_ring(void *ring)
{
	volatile uint64_t *words = ring;

	while (!harmed_enough)
		for (size_t k = 0; k < 64; k++)
			words[k] = UINT64_MAX;
	return NULL;
}

/* A taker that changes records while they are written does not change what the giver reads. */
static void test_a_taker_that_writes_meanwhile(void)
{
	struct event event = { .type = EVENT_SAMPLE };
	pthread_t thread;
	struct feed *feed;
	void *parts[2]; /* the beginning of struct feed: the shared memory, and the ring in it */
	bool wrong = false;

	CHECK(!feed_new(FEED_SIZE, &feed), "made");
	memcpy(parts, feed, sizeof(parts));
	CHECK(!pthread_create(&thread, NULL, harm_ring, parts[1]), "a second thread");
	regions[0] = regions[1] = (struct uw_region){ 1, 8, memory };
	event.sample.regions = regions;
	event.sample.n_regions = 2;
	event.sample.kernel_ips = ips;
	event.sample.n_kernel_ips = 4;
	for (unsigned int i = 0; i < 200000 && !wrong; i++) {
		feed_empty(feed);
		wrong = feed_put(feed, &event) != 0;
	}
	CHECK(!wrong, "every event has room");
	harmed_enough = true;
	CHECK(!pthread_join(thread, NULL), "its end");
	feed_free(feed);
}

int main(void)
{
	test_every_event_arrives(FEED_SIZE);
	test_every_event_arrives(16 * FEED_SIZE);
	test_the_start_is_used_again();
	test_lent_memory_is_not_copied();
	test_a_record_is_left();
	test_room();
	test_a_hostile_taker();
	test_a_taker_that_writes_meanwhile();
	return check_done();
}

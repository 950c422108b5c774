/* tests/unit/test_live_queue.c: tests the queue that sorts events by time. */
#include "agent/live/event_queue.h"

#include "tests/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int put_sample(struct live_queue *queue, uint64_t time_ns, uint32_t pid, uint64_t slot)
{
	const struct capture_head record = { .pid = pid, .time_ns = time_ns };

	return live_queue_sample(queue, &record, slot);
}

static void test_items_leave_in_the_order_of_time(void)
{
	struct live_queue queue = { 0 };
	struct live_item item;
	uint64_t last = 0, seed = 1;
	bool ordered = true;

	for (int i = 0; i < 5000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
		CHECK(!put_sample(&queue, seed >> 40, 1, (uint64_t)i), "push");
		if (i % 3)
			continue;
		/*
		 * Events that leave early set no bound for later events: only the full drain is
		 * ordered.
		 */
		live_queue_take(&queue, &item);
	}
	while (live_queue_first(&queue)) {
		live_queue_take(&queue, &item);
		ordered &= item.time_ns >= last;
		last = item.time_ns;
	}
	CHECK(ordered, "no earlier item comes after a later one");
	live_queue_fini(&queue);
}

static void test_equal_times_keep_their_order_events_first(void)
{
	const struct event exec = { .type = EVENT_EXEC, .pid = 1, .time_ns = 7 };
	const struct event fork = { .type = EVENT_FORK, .pid = 1, .time_ns = 7 };
	struct live_queue queue = { 0 };
	struct live_item item[4];

	CHECK(!put_sample(&queue, 7, 1, 10), "push");
	CHECK(!live_queue_event(&queue, &exec), "push");
	CHECK(!put_sample(&queue, 7, 1, 11), "push");
	CHECK(!live_queue_event(&queue, &fork), "push");
	for (int i = 0; i < 4; i++)
		live_queue_take(&queue, &item[i]);
	CHECK(item[0].event && item[0].event->type == EVENT_EXEC, "the first event");
	CHECK(item[1].event && item[1].event->type == EVENT_FORK, "the second");
	CHECK(!item[2].event && item[2].slot == 10, "the first sample");
	CHECK(!item[3].event && item[3].slot == 11, "the second");
	live_queue_release(&queue, item[0].event);
	live_queue_release(&queue, item[1].event);
	live_queue_fini(&queue);
}

static void test_an_event_is_a_copy_with_its_strings(void)
{
	char path[] = "/bin/true", comm[] = "true";
	const struct event mapping = { .type = EVENT_MAPPING,
				       .time_ns = 1,
				       .mapping = { .start = 1, .end = 2, .path = path } };
	const struct event name = { .type = EVENT_COMM, .time_ns = 2, .comm = { .comm = comm } };
	struct live_queue queue = { 0 };
	struct live_item a, b;
	struct event copy;

	CHECK(!live_queue_event(&queue, &mapping) && !live_queue_event(&queue, &name), "push");
	CHECK(queue.bytes > 2 * sizeof(struct live_item) + sizeof(path) + sizeof(comm) &&
		      queue.bytes < 2 * sizeof(struct event),
	      "counted, without what only samples have");
	memset(path, 'x', sizeof(path) - 1);
	memset(comm, 'x', sizeof(comm) - 1);
	live_queue_take(&queue, &a);
	live_queue_take(&queue, &b);
	live_queue_read(a.event, &copy);
	CHECK(copy.type == EVENT_MAPPING && copy.time_ns == 1 && copy.mapping.end == 2 &&
		      !strcmp(copy.mapping.path, "/bin/true"),
	      "path");
	live_queue_read(b.event, &copy);
	CHECK(copy.type == EVENT_COMM && !strcmp(copy.comm.comm, "true"), "name");
	CHECK(!queue.bytes && !live_queue_first(&queue), "empty");
	live_queue_release(&queue, a.event);
	live_queue_release(&queue, b.event);
	/* Items that are still in the queue are freed with it: the sanitizer checks this. */
	CHECK(!live_queue_event(&queue, &mapping), "push");
	live_queue_fini(&queue);
}

static void put(struct live_queue *queue, enum event_type type, uint64_t time_ns, uint32_t pid,
		uint32_t parent)
{
	const struct event event = { .type = type,
				     .time_ns = time_ns,
				     .pid = pid,
				     .tid = pid,
				     .fork = { .parent_pid = parent, .parent_tid = parent } };

	CHECK(!live_queue_event(queue, &event), "push");
}

/* Events have room in one block of memory; those that do not fit, and long ones, are in use like the others. */
static void test_bursts_of_events(void)
{
	enum { BURST = 10000 };
	char path[1024];
	const struct event mapping = { .type = EVENT_MAPPING, .pid = 1, .mapping.path = path };
	struct live_queue queue = { 0 };
	struct live_item item;
	const void *block = NULL;

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < BURST; i++)
			if (i % 8)
				put(&queue, EVENT_FORK, i, 2, 1);
			else
				CHECK(!live_queue_event(&queue, &mapping), "push");
		CHECK(!block || block == queue.block, "the same block again");
		block = queue.block;
		for (int i = 0; i < BURST; i++) {
			live_queue_take(&queue, &item);
			CHECK(item.event->type != EVENT_MAPPING ||
				      !strcmp(item.event->mapping.path, path),
			      "path");
			CHECK(item.event->type != EVENT_FORK || item.event->fork.parent_pid == 1,
			      "parent");
			live_queue_release(&queue, item.event);
		}
	}
	live_queue_fini(&queue);
}

/* Take all items. Return how many of a process are events that somebody needs, or samples. */
static unsigned int needed_of(struct live_queue *queue, uint32_t pid)
{
	struct live_item item;
	unsigned int n = 0;

	while (live_queue_first(queue)) {
		live_queue_take(queue, &item);
		n += item.pid == pid && !item.unneeded;
		live_queue_release(queue, item.event);
	}
	return n;
}

/* A shell (10) that runs two programs, one after the other. The end of the second comes from another CPU's ring. */
static void put_shell(struct live_queue *queue)
{
	put(queue, EVENT_EXIT, 9, 12, 0);
	put(queue, EVENT_EXIT, 10, 10, 0);
	put(queue, EVENT_FORK, 1, 10, 2);
	put(queue, EVENT_FORK, 3, 11, 10);
	put(queue, EVENT_EXEC, 4, 11, 0);
	put(queue, EVENT_EXIT, 5, 11, 0);
	put(queue, EVENT_FORK, 6, 12, 10);
}

static void test_who_came_and_went_without_a_sample_is_not_needed(void)
{
	for (uint32_t pid = 10; pid <= 12; pid++) {
		struct live_queue queue = { 0 };

		put_shell(&queue);
		live_queue_settle(&queue, 20);
		CHECK(!needed_of(&queue, pid), "none of its events");
		CHECK(!queue.short_lived.n, "nothing is remembered");
		live_queue_fini(&queue);
	}
}

static void test_who_has_a_sample_is_needed_and_those_whom_it_comes_from(void)
{
	static const struct {
		uint32_t sampled, pid;
		unsigned int n;
	} cases[] = {
		{ 12, 12, 3 }, { 12, 10, 2 }, { 12, 11, 0 },
		{ 10, 10, 3 }, { 10, 11, 0 }, { 10, 12, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct live_queue queue = { 0 };

		put_shell(&queue);
		CHECK(!put_sample(&queue, 8, cases[i].sampled, 1), "push");
		live_queue_settle(&queue, 20);
		CHECK(needed_of(&queue, cases[i].pid) == cases[i].n, "its events and samples");
		live_queue_fini(&queue);
	}
}

static void test_who_was_reported_or_goes_on_is_needed(void)
{
	struct live_queue queue = { 0 };
	struct live_item item;

	/* Not all events until its end are there. */
	put_shell(&queue);
	live_queue_settle(&queue, 8);
	CHECK(needed_of(&queue, 12) == 2, "it may have a sample yet");
	/* Its beginning was given out before it ended. */
	put(&queue, EVENT_FORK, 1, 10, 2);
	live_queue_settle(&queue, 2);
	live_queue_take(&queue, &item);
	CHECK(item.event && !item.unneeded, "it may go on");
	live_queue_release(&queue, item.event);
	put(&queue, EVENT_EXIT, 3, 10, 0);
	live_queue_settle(&queue, 20);
	CHECK(needed_of(&queue, 10) == 1, "its end is given out, too");
	/* Another process got the number of one that has ended. */
	put(&queue, EVENT_EXIT, 1, 10, 0);
	put(&queue, EVENT_FORK, 2, 10, 2);
	live_queue_settle(&queue, 20);
	CHECK(needed_of(&queue, 10) == 2, "the second one goes on");
	/* A thread of it may go on. */
	put(&queue, EVENT_FORK, 1, 10, 2);
	put(&queue, EVENT_FORK, 2, 10, 10);
	put(&queue, EVENT_EXIT, 3, 10, 0);
	live_queue_settle(&queue, 20);
	CHECK(needed_of(&queue, 10) == 3, "it has two threads");
	CHECK(!queue.short_lived.n, "nothing is remembered");
	live_queue_fini(&queue);
}

static void test_what_is_looked_up_later(void)
{
	struct live_queue queue = { 0 };
	struct live_short_lived *s = &queue.short_lived;
	struct live_item item;

	put_shell(&queue);
	CHECK(queue.newest->type == EVENT_FORK && queue.newest->pid == 12, "the newest event");
	CHECK(!live_short_lived_deferred(s, 12), "nothing was deferred");
	live_short_lived_defer(s, 12);
	live_short_lived_defer(s, 13);
	CHECK(live_short_lived_deferred(s, 12), "deferred");
	CHECK(!live_short_lived_deferred(s, 12), "and asked for once");
	CHECK(!live_short_lived_deferred(s, 13), "it is not in the queue");
	CHECK(!live_short_lived_leaves_out(s, 12, 6), "nothing is decided yet");
	live_queue_settle(&queue, 20);
	CHECK(live_short_lived_leaves_out(s, 12, 6), "it came and went");
	CHECK(!live_short_lived_leaves_out(s, 12, 10), "but not who has its number then");
	while (live_queue_first(&queue)) {
		live_queue_take(&queue, &item);
		live_queue_release(&queue, item.event);
	}
	CHECK(!live_short_lived_leaves_out(s, 12, 6), "nothing is left");
	live_queue_fini(&queue);
}

/* An item that has no room must not change what is known of its process. */
static void test_what_has_no_room_is_not_counted(void)
{
	const struct event fork = {
		.type = EVENT_FORK, .pid = 2, .tid = 2, .fork.parent_pid = 1, .time_ns = 5
	};
	const struct event exec = { .type = EVENT_EXEC, .pid = 2, .tid = 2, .time_ns = 6 };
	const struct event exit = { .type = EVENT_EXIT, .pid = 2, .tid = 2, .time_ns = 7 };
	struct live_queue queue = { 0 };
	struct live_short_lived *s = &queue.short_lived;
	struct live_item item;
	size_t n, room;

	queue.heap.n = queue.heap.room = SIZE_MAX / 2;
	CHECK(live_queue_event(&queue, &exec) == -ENOMEM, "the queue has no room");
	CHECK(!s->n, "its process is not counted");
	queue.heap.n = queue.heap.room = 0;
	CHECK(!live_queue_event(&queue, &exec), "push");
	n = s->n;
	room = s->room;
	s->n = s->room = SIZE_MAX / 2;
	CHECK(live_queue_event(&queue, &fork) == -ENOMEM, "the parent has no room");
	s->n = n;
	s->room = room;
	CHECK(!live_queue_event(&queue, &exit), "push");
	live_queue_settle(&queue, 8);
	for (int i = 0; i < 2; i++) {
		live_queue_take(&queue, &item);
		CHECK(!item.unneeded, "its beginning is not known");
		live_queue_release(&queue, item.event);
	}
	CHECK(!s->n, "nothing is remembered");
	live_queue_fini(&queue);
}

int main(void)
{
	test_items_leave_in_the_order_of_time();
	test_bursts_of_events();
	test_equal_times_keep_their_order_events_first();
	test_an_event_is_a_copy_with_its_strings();
	test_who_came_and_went_without_a_sample_is_not_needed();
	test_who_has_a_sample_is_needed_and_those_whom_it_comes_from();
	test_who_was_reported_or_goes_on_is_needed();
	test_what_is_looked_up_later();
	test_what_has_no_room_is_not_counted();
	return check_done();
}

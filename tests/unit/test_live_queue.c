/* tests/unit/test_live_queue.c: tests the queue that sorts events by time. */
#include "agent/live/event_queue.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

static void test_items_leave_in_the_order_of_time(void)
{
	struct live_queue queue = { 0 };
	struct live_item item;
	uint64_t last = 0, seed = 1;
	bool ordered = true;

	for (int i = 0; i < 5000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
		CHECK(!live_queue_sample(&queue, seed >> 40, NULL, (uint64_t)i), "push");
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

	CHECK(!live_queue_sample(&queue, 7, NULL, 10), "push");
	CHECK(!live_queue_event(&queue, &exec), "push");
	CHECK(!live_queue_sample(&queue, 7, NULL, 11), "push");
	CHECK(!live_queue_event(&queue, &fork), "push");
	for (int i = 0; i < 4; i++)
		live_queue_take(&queue, &item[i]);
	CHECK(item[0].event && item[0].event->type == EVENT_EXEC, "the first event");
	CHECK(item[1].event && item[1].event->type == EVENT_FORK, "the second");
	CHECK(!item[2].event && item[2].slot == 10, "the first sample");
	CHECK(!item[3].event && item[3].slot == 11, "the second");
	free(item[0].event);
	free(item[1].event);
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
	free(a.event);
	free(b.event);
	/* Items that are still in the queue are freed with it: the sanitizer checks this. */
	CHECK(!live_queue_event(&queue, &mapping), "push");
	live_queue_fini(&queue);
}

int main(void)
{
	test_items_leave_in_the_order_of_time();
	test_equal_times_keep_their_order_events_first();
	test_an_event_is_a_copy_with_its_strings();
	return check_done();
}

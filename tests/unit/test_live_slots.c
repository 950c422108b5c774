#include "agent/live/slots.h"

#include "tests/check.h"

/* Records are given back in the order of the ring, whatever the order in which they are done. */
static void test_the_ring_is_released_in_order(void)
{
	unsigned long consumer = 0;
	struct live_ring ring = { .consumer = &consumer };
	struct live_slots slots = { .ring = &ring };

	for (unsigned long i = 1; i <= 3; i++)
		CHECK(!live_slots_add(&slots, i * 100) && slots.next == i, "added");
	live_slots_done(&slots, 1);
	CHECK(consumer == 0, "the first is in use");
	live_slots_done(&slots, 0);
	CHECK(consumer == 200, "both are given back");
	live_slots_done(&slots, 2);
	CHECK(consumer == 300 && slots.first == slots.next, "all");
	live_slots_fini(&slots);
}

/* The table grows while it is in use and its oldest slot is not its first. */
static void test_growing_keeps_the_slots(void)
{
	enum { DONE = 1000, N = 5000 };
	unsigned long consumer = 0;
	struct live_ring ring = { .consumer = &consumer };
	struct live_slots slots = { .ring = &ring };

	for (unsigned long i = 0; i < DONE; i++) {
		CHECK(!live_slots_add(&slots, i + 1), "added");
		live_slots_done(&slots, i);
	}
	for (unsigned long i = DONE; i < N; i++)
		CHECK(!live_slots_add(&slots, i + 1), "added");
	for (unsigned long i = N; i-- > DONE + 1;)
		live_slots_done(&slots, i);
	CHECK(consumer == DONE, "one is in use");
	live_slots_done(&slots, DONE);
	CHECK(consumer == N, "all are given back");
	live_slots_fini(&slots);
}

int main(void)
{
	test_the_ring_is_released_in_order();
	test_growing_keeps_the_slots();
	return check_done();
}

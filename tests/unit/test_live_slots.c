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

/* A record that is lent is given back when its reader has read so much, and not before. */
static void test_lent_records_stay_until_they_are_read(void)
{
	unsigned long consumer = 0;
	struct live_ring ring = { .consumer = &consumer };
	struct live_slots slots = { .ring = &ring };

	for (unsigned long i = 1; i <= 4; i++)
		CHECK(!live_slots_add(&slots, i * 100), "added");
	CHECK(live_slots_taken(&slots, 0) == UINT64_MAX, "none is lent");
	/* The reader gets them in another order. */
	live_slots_lend(&slots, 1, 10, 1001);
	live_slots_lend(&slots, 0, 20, 1000);
	live_slots_done(&slots, 2);
	CHECK(consumer == 0 && live_slots_taken(&slots, 9) == 1000, "nothing was read");
	CHECK(live_slots_taken(&slots, 19) == 1000 && consumer == 0, "the first was not");
	CHECK(live_slots_taken(&slots, 5) == 1000 && consumer == 0, "whatever the reader says");
	CHECK(live_slots_taken(&slots, 20) == UINT64_MAX && consumer == 300, "all that was lent");
	live_slots_lend(&slots, 3, 21, 1002);
	live_slots_done(&slots, 3);
	CHECK(consumer == 400, "one that is not needed after all");
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
	test_lent_records_stay_until_they_are_read();
	test_growing_keeps_the_slots();
	return check_done();
}

/*
 * tests/unit/test_live_wait.c: tests how waits of threads begin and end, and that their memory is
 * bounded.
 */
#include "agent/live/wait.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct capture_head *head_of(uint32_t tid, uint64_t time_ns, uint32_t cpu)
{
	static struct capture_head head;

	head = (struct capture_head){ .tid = tid, .time_ns = time_ns, .cpu = (uint16_t)cpu };
	return &head;
}

static void test_a_wait_ends_once_and_by_its_beginning(void)
{
	struct live_off_cpu waits = { 0 };
	struct live_waited *got;
	int shorter;

	CHECK(!live_off_cpu_begin(&waits, head_of(5, 100, 1), sizeof(struct capture_head),
				  &shorter) &&
		      shorter == -1,
	      "begins");
	CHECK(!live_off_cpu_end(&waits, 6, 100), "another thread's");
	CHECK(!live_off_cpu_end(&waits, 5, 99), "another wait of it");
	got = live_off_cpu_end(&waits, 5, 100);
	CHECK(got && got->head.tid == 5 && got->head.cpu == 1, "ends");
	live_waited_free(got);
	CHECK(!live_off_cpu_end(&waits, 5, 100) && !waits.n && !waits.bytes, "once");
	live_off_cpu_fini(&waits);
}

static void test_a_wait_nobody_ended_gives_way(void)
{
	struct live_off_cpu waits = { 0 };
	struct live_waited *got;
	int shorter;

	CHECK(!live_off_cpu_begin(&waits, head_of(5, 100, 3), sizeof(struct capture_head),
				  &shorter),
	      "begins");
	CHECK(!live_off_cpu_begin(&waits, head_of(5, 200, 1), sizeof(struct capture_head),
				  &shorter),
	      "and again");
	CHECK(shorter == 3, "the CPU of the first is told");
	CHECK(!live_off_cpu_end(&waits, 5, 100), "the first is gone");
	got = live_off_cpu_end(&waits, 5, 200);
	CHECK(got != NULL, "the second is there");
	live_waited_free(got);
	live_off_cpu_fini(&waits);
}

static void test_a_waker_belongs_to_one_wait(void)
{
	const uint32_t size = sizeof(struct capture_head);
	struct live_off_cpu waits = { 0 };
	struct live_waited *got;
	int shorter;

	CHECK(live_off_cpu_woken(&waits, &(struct capture_woken){ .tid = 5, .since_ns = 100 },
				 head_of(6, 150, 2), size) == -ENOENT,
	      "nobody waits");
	CHECK(!live_off_cpu_begin(&waits, head_of(5, 100, 1), size, &shorter), "begins");
	CHECK(live_off_cpu_woken(&waits, &(struct capture_woken){ .tid = 5, .since_ns = 99 },
				 head_of(6, 150, 2), size) == -ENOENT,
	      "of another wait");
	CHECK(!live_off_cpu_woken(&waits, &(struct capture_woken){ .tid = 5, .since_ns = 100 },
				  head_of(6, 150, 2), size),
	      "woken");
	CHECK(live_off_cpu_woken(&waits, &(struct capture_woken){ .tid = 5, .since_ns = 100 },
				 head_of(7, 160, 2), size) == -ENOENT,
	      "only once");
	CHECK(waits.bytes == 2 * size, "both are counted");
	got = live_off_cpu_end(&waits, 5, 100);
	CHECK(got && got->waker && got->waker->head.tid == 6 && !got->waker->waker && !got->id,
	      "together");
	live_waited_free(got);
	CHECK(!waits.bytes, "none is left");
	CHECK(!live_off_cpu_begin(&waits, head_of(5, 200, 1), size, &shorter) &&
		      !live_off_cpu_woken(&waits,
					  &(struct capture_woken){ .tid = 5, .since_ns = 200 },
					  head_of(6, 250, 2), size),
	      "one that does not end");
	live_off_cpu_fini(&waits);
}

static void test_many_threads_wait_and_memory_is_bounded(void)
{
	struct live_off_cpu waits = { 0 };
	struct live_waited *got;
	uint32_t n = 0, size = 1u << 20;
	void *large = calloc(1, size);
	int shorter, err = 0;

	CHECK(large != NULL, "memory");
	for (uint32_t tid = 1; !err && tid < 1000; tid++) {
		memcpy(large, head_of(tid, tid, 0), sizeof(struct capture_head));
		err = live_off_cpu_begin(&waits, large, size, &shorter);
		n += !err;
	}
	CHECK(err == -ENOSPC && n == 64, "64 MiB at most");
	for (uint32_t tid = 1; tid <= n; tid += 2) {
		got = live_off_cpu_end(&waits, tid, tid);
		CHECK(got && got->head.tid == tid, "each is found");
		live_waited_free(got);
	}
	for (n = 0; (got = live_off_cpu_any(&waits)); n++) {
		CHECK(!(got->head.tid & 1), "the others are left");
		live_waited_free(got);
	}
	CHECK(n == 32, "all of them");
	free(large);
	live_off_cpu_fini(&waits);
}

int main(void)
{
	test_a_wait_ends_once_and_by_its_beginning();
	test_a_waker_belongs_to_one_wait();
	test_a_wait_nobody_ended_gives_way();
	test_many_threads_wait_and_memory_is_bounded();
	return check_done();
}

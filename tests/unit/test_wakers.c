/* tests/unit/test_wakers.c: tests that stacks of wakers are found once, and that their number is bounded. */
#include "agent/pipeline/wakers.h"

#include "tests/check.h"

#include <stdlib.h>

static struct walked_frame frames[9];

static struct walked walked_of(size_t n)
{
	for (size_t i = 0; i < n; i++)
		frames[i] = (struct walked_frame){ .pc = i + 1,
						   .user = (const struct uw_frame *)&frames[i] };
	return (struct walked){
		.frames = frames, .n_frames = n, .stop = UW_STOP_TRUNCATED, .has_user = true
	};
}

static void test_a_stack_is_taken_once(void)
{
	const struct walked first = walked_of(3), second = walked_of(5), none = walked_of(0);
	struct wakers wakers = { .n = 0 };
	struct wakers_stack got;

	CHECK(!wakers_take(&wakers, 7).id, "none is there");
	CHECK(!wakers_put(&wakers, 7, &first) && !wakers_put(&wakers, 8, &none), "two");
	CHECK(!wakers_put(&wakers, 7, &second) && wakers.n == 2 && wakers.n_frames == 5,
	      "it replaces one with its id");
	got = wakers_take(&wakers, 7);
	CHECK(got.id == 7 && got.n == 5 && got.frames[4].pc == 5 && !got.frames[4].user &&
		      got.stop == UW_STOP_TRUNCATED && got.has_user,
	      "as it was walked");
	free(got.frames);
	CHECK(!wakers_take(&wakers, 7).id, "once");
	got = wakers_take(&wakers, 8);
	CHECK(got.id == 8 && !got.n, "one without frames");
	free(got.frames);
	wakers_fini(&wakers);
}

static void test_old_ones_give_way(void)
{
	const struct walked walked = walked_of(9);
	struct wakers wakers = { .n = 0 };
	struct wakers_stack got;
	size_t n = 0;

	for (uint64_t id = 1; id <= WAKERS_STACKS_MAX + 100; id++)
		if (wakers_put(&wakers, id, &walked))
			CHECK(false, "is stored");
	CHECK(wakers.n == WAKERS_STACKS_MAX && wakers.n_frames == 9 * wakers.n, "a bounded number");
	got = wakers_take(&wakers, WAKERS_STACKS_MAX + 100);
	CHECK(got.id, "the newest is there");
	free(got.frames);
	for (uint64_t id = 1; id <= WAKERS_STACKS_MAX + 100; id++) {
		got = wakers_take(&wakers, id);
		n += got.id != 0;
		free(got.frames);
	}
	CHECK(n == WAKERS_STACKS_MAX - 1 && !wakers.n_frames, "the others as well");
	wakers_fini(&wakers);
}

int main(void)
{
	test_a_stack_is_taken_once();
	test_old_ones_give_way();
	return check_done();
}

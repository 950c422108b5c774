/* agent/pipeline/wakers.c: a bounded table of the stacks of threads that ended waits. */
#include "agent/pipeline/wakers.h"

#include "agent/array.h"
#include "agent/process/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t find(const struct wakers *wakers, uint64_t id)
{
	return UW_HASH_FIND(i, &wakers->by_id, hash_u64(0, id), wakers->stacks[i].id == id);
}

/* Remove stack i and return it. The last one moves to its place. */
static struct wakers_stack take(struct wakers *wakers, uint32_t i)
{
	struct wakers_stack stack = wakers->stacks[i];
	uint32_t last = (uint32_t)--wakers->n;

	uw_hash_remove(&wakers->by_id, hash_u64(0, stack.id), i);
	wakers->n_frames -= stack.n;
	if (i != last) {
		wakers->stacks[i] = wakers->stacks[last];
		uw_hash_renumber(&wakers->by_id, hash_u64(0, wakers->stacks[i].id), last, i);
	}
	return stack;
}

struct wakers_stack wakers_take(struct wakers *wakers, uint64_t id)
{
	uint32_t i = find(wakers, id);

	return i == UW_HASH_NONE ? (struct wakers_stack){ .id = 0 } : take(wakers, i);
}

/* Make room for one more stack with n frames. */
static void make_room(struct wakers *wakers, size_t n)
{
	while (wakers->n &&
	       (wakers->n >= WAKERS_STACKS_MAX || wakers->n_frames > WAKERS_FRAMES_MAX - n)) {
		wakers->next_dropped %= wakers->n;
		free(take(wakers, (uint32_t)wakers->next_dropped++).frames);
	}
}

int wakers_put(struct wakers *wakers, uint64_t id, const struct walked *walked)
{
	const size_t n =
		walked->n_frames < WAKERS_FRAMES_MAX ? walked->n_frames : WAKERS_FRAMES_MAX;
	struct wakers_stack stack = {
		.id = id, .stop = walked->stop, .has_user = walked->has_user, .n = n
	};

	free(wakers_take(wakers, id).frames);
	make_room(wakers, n);
	if (array_grow(wakers->stacks, wakers->n, wakers->room))
		return -ENOMEM;
	stack.frames = calloc(n + 1, sizeof(*stack.frames));
	if (!stack.frames)
		return -ENOMEM;
	memcpy(stack.frames, walked->frames, n * sizeof(*stack.frames));
	for (size_t i = 0; i < n; i++)
		stack.frames[i].user = NULL;
	if (uw_hash_add(&wakers->by_id, hash_u64(0, id), (uint32_t)wakers->n)) {
		free(stack.frames);
		return -ENOMEM;
	}
	wakers->stacks[wakers->n++] = stack;
	wakers->n_frames += n;
	return 0;
}

void wakers_note_modules(const struct wakers *wakers)
{
	for (size_t i = 0; i < wakers->n; i++)
		for (size_t j = 0; j < wakers->stacks[i].n; j++)
			modules_note_counted(wakers->stacks[i].frames[j].location.module);
}

void wakers_fini(struct wakers *wakers)
{
	while (wakers->n)
		free(wakers->stacks[--wakers->n].frames);
	free(wakers->stacks);
	uw_hash_fini(&wakers->by_id);
	*wakers = (struct wakers){ .n = 0 };
}

/*
 * agent/pipeline/wakers.h: stores the walked stacks of threads that ended waits, until the samples of these
 * waits come.
 */
#ifndef AGENT_PIPELINE_WAKERS_H
#define AGENT_PIPELINE_WAKERS_H

#include "agent/hash.h"
#include "agent/pipeline/pipeline.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Each stack waits as long as its thread is ready to run. A recording may hold any number without samples: then
 * others go.
 */
#define WAKERS_STACKS_MAX 4096u
#define WAKERS_FRAMES_MAX (1u << 20) /* of all stacks */

struct wakers_stack {
	uint64_t id; /* event_wait.id */
	enum uw_stop stop;
	bool has_user;
	struct walked_frame *frames; /* owned; they have no user frame */
	size_t n;
};

struct wakers { /* all zero: empty */
	struct wakers_stack *stacks;
	size_t n, room, n_frames;
	size_t next_dropped; /* the next one that makes room */
	struct uw_hash_index by_id;
};

/* Store the walked stack of a waker, as a copy. It replaces one with the same id. -ENOMEM. */
int wakers_put(struct wakers *wakers, uint64_t id, const struct walked *walked);
/* Remove a stack and return it; the caller frees its frames. id 0: it is not there. */
struct wakers_stack wakers_take(struct wakers *wakers, uint64_t id);
/* Mark the modules of the stored frames (modules_note_counted). */
void wakers_note_modules(const struct wakers *wakers);
void wakers_fini(struct wakers *wakers);

#endif

/*
 * tests/peers/ours.c: walks captured stacks with the library under test, in the way that the agent
 * uses it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/peers/peer.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/walk.h"

/* Not a power of two: frames of different samples should be in different cache sets. */
#define STRIDE (PEER_FRAMES + 5)

struct ours {
	struct recording *recording;
	struct uw_worker *worker;
	struct uw_history *pasts; /* of `again` alone */
	struct uw_frame frames[PEER_MANY * STRIDE];
	/* Of several at once: */
	struct uw_memory memory[PEER_MANY];
	struct uw_thread thread[PEER_MANY];
	struct uw_stack stack[PEER_MANY];
	struct uw_job jobs[PEER_MANY];
};

static void ours_free(void *self)
{
	struct ours *ours = self;

	if (ours)
		uw_worker_free(ours->worker);
	if (ours)
		uw_history_free(ours->pasts);
	free(ours);
}

static int opened_new(struct recording *recording, size_t life, void **self)
{
	struct ours *ours = calloc(1, sizeof(*ours));
	int err;

	(void)life; /* files are opened once, whichever process has them mapped */
	if (!ours)
		return -ENOMEM;
	ours->recording = recording;
	recording_resolve(recording);
	err = uw_worker_new(&ours->worker);
	if (err) {
		ours_free(ours);
		return err;
	}
	*self = ours;
	return 0;
}

typedef int (*object_fn)(struct uw_object *object);

/*
 * Prepare everything that was opened; if that is not possible, the file's own information serves,
 * or none.
 */
static int for_objects(const struct recording *recording, object_fn fn)
{
	int err = 0;

	for (size_t i = 0; i < recording->n_spaces; i++) {
		const struct uw_space *space = recording->spaces[i];

		for (const struct uw_mapping *m = uw_space_above(space, 0); m && err != -ENOMEM;
		     m = uw_space_above(space, m->end))
			if (m->object)
				err = fn(m->object);
	}
	return err == -ENOMEM ? err : 0;
}

static int read_frames(struct uw_object *object)
{
	for (unsigned int i = 0; uw_object_frames(object, i); i++)
		;
	return 0;
}

static int file_new(struct recording *recording, size_t life, void **self)
{
	int err = opened_new(recording, life, self);

	return err ? err : for_objects(recording, read_frames);
}

static int table_new(struct recording *recording, size_t life, void **self)
{
	int err = opened_new(recording, life, self);

	return err ? err : for_objects(recording, uw_object_compile);
}

static int again_new(struct recording *recording, size_t life, void **self)
{
	void *made = NULL;
	int err = table_new(recording, life, &made);

	if (!err)
		err = uw_history_new(PEER_FRAMES, (size_t)8 << 20, &((struct ours *)made)->pasts);
	if (err)
		ours_free(made);
	else
		*self = made;
	return err;
}

static size_t ours_again(void *self, const struct sample *sample, uint64_t *pcs)
{
	struct ours *ours = self;
	struct uw_memory memory = { .regions = &sample->stack, .n_regions = 1 };
	struct uw_thread thread = { .regs = sample->regs, .read = uw_memory_read, .ctx = &memory };
	struct uw_stack stack = { .frames = ours->frames, .max_frames = PEER_FRAMES };
	struct uw_job job = { ours->recording->spaces[sample->space], &thread, &stack };
	struct uw_incremental again;
	size_t n;

	uw_walk_incremental(ours->pasts, sample->tid, ours->worker, &job, &again);
	n = stack.n_frames + again.n_taken;
	for (size_t i = 0; pcs && i < n; i++)
		pcs[i] = again.n ? again.frames[again.n - 1 - i].pc : stack.frames[i].pc;
	return n;
}

static size_t ours_walk(void *self, const struct sample *sample, uint64_t *pcs)
{
	struct ours *ours = self;
	struct uw_memory memory = { .regions = &sample->stack, .n_regions = 1 };
	struct uw_thread thread = { .regs = sample->regs, .read = uw_memory_read, .ctx = &memory };
	struct uw_stack stack = { .frames = ours->frames, .max_frames = PEER_FRAMES };

	uw_walk(ours->recording->spaces[sample->space], ours->worker, &thread, &stack);
	for (size_t i = 0; pcs && i < stack.n_frames; i++)
		pcs[i] = stack.frames[i].pc;
	return stack.n_frames;
}

static void ours_many(void *self, const struct sample *samples, size_t n, uint64_t *pcs[],
		      size_t n_pcs[])
{
	struct ours *o = self;

	for (size_t i = 0; i < n; i++) {
		o->memory[i] = (struct uw_memory){ .regions = &samples[i].stack, .n_regions = 1 };
		o->thread[i] = (struct uw_thread){ .regs = samples[i].regs,
						   .read = uw_memory_read,
						   .ctx = &o->memory[i] };
		o->stack[i] = (struct uw_stack){ .frames = o->frames + i * STRIDE,
						 .max_frames = PEER_FRAMES };
		o->jobs[i] = (struct uw_job){ .space = o->recording->spaces[samples[i].space],
					      .thread = &o->thread[i],
					      .stack = &o->stack[i] };
	}
	uw_walk_many(o->worker, o->jobs, n);
	for (size_t i = 0; i < n; i++) {
		n_pcs[i] = o->stack[i].n_frames;
		for (size_t k = 0; pcs && k < o->stack[i].n_frames; k++)
			pcs[i][k] = o->stack[i].frames[k].pc;
	}
}

/* For callers with a single sample. */
static size_t ours_one_of_many(void *self, const struct sample *sample, uint64_t *pcs)
{
	size_t n;

	ours_many(self, sample, 1, pcs ? &pcs : NULL, &n);
	return n;
}

static void ours_clear(void *self)
{
	struct ours *ours = self;

	memset(ours->worker, 0, sizeof(*ours->worker)); /* as uw_worker_new leaves it */
	if (ours->pasts)
		uw_history_forget(ours->pasts);
}

const struct peer peer_table = {
	.name = "table", .new = table_new, .free = ours_free, .clear = ours_clear, .walk = ours_walk
};
const struct peer peer_many = { .name = "many",
				.new = table_new,
				.free = ours_free,
				.clear = ours_clear,
				.walk = ours_one_of_many,
				.many = ours_many };
const struct peer peer_again = { .name = "again",
				 .new = again_new,
				 .free = ours_free,
				 .clear = ours_clear,
				 .walk = ours_again };
const struct peer peer_file = {
	.name = "file", .new = file_new, .free = ours_free, .clear = ours_clear, .walk = ours_walk
};
const struct peer peer_opened = { .name = "opened",
				  .new = opened_new,
				  .free = ours_free,
				  .clear = ours_clear,
				  .walk = ours_walk };
const struct peer peer_bare = { .name = "bare",
				.new = table_new,
				.free = ours_free,
				.prepare = ours_clear,
				.clear = ours_clear,
				.walk = ours_walk };

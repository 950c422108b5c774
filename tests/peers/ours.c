/* tests/peers/ours.c: the library under test, as the agent drives it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/peers/peer.h"
#include "unwinder/object.h"
#include "unwinder/walk.h"

struct ours {
	struct recording *recording;
	struct uw_worker *worker;
	struct uw_frame frames[PEER_FRAMES];
};

static void ours_free(void *self)
{
	struct ours *ours = self;

	if (ours)
		uw_worker_free(ours->worker);
	free(ours);
}

static int opened_new(struct recording *recording, size_t life, void **self)
{
	struct ours *ours = calloc(1, sizeof(*ours));
	int err;

	(void)life; /* files are opened once, whoever has them mapped */
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

/* For all that was opened; where there is nothing of the kind, the file or nothing serves. */
static int for_objects(const struct recording *recording, object_fn fn)
{
	int err = 0;

	for (size_t i = 0; i < recording->n_spaces; i++) {
		size_t n;
		const struct uw_mapping *maps = uw_space_mappings(recording->spaces[i], &n);

		for (size_t k = 0; k < n && err != -ENOMEM; k++)
			if (maps[k].object)
				err = fn(maps[k].object);
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

static void ours_clear(void *self)
{
	struct ours *ours = self;

	memset(ours->worker, 0, sizeof(*ours->worker)); /* as uw_worker_new leaves it */
}

const struct peer peer_table = {
	.name = "table", .new = table_new, .free = ours_free, .clear = ours_clear, .walk = ours_walk
};
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

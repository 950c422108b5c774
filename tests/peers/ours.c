/* tests/peers/ours.c: the library under test, as the agent drives it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/peers/peer.h"
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

static int file_new(struct recording *recording, size_t life, void **self)
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

static int table_new(struct recording *recording, size_t life, void **self)
{
	int err = file_new(recording, life, self);

	for (size_t i = 0; i < recording->n_spaces && !err; i++) {
		size_t n;
		const struct uw_mapping *maps = uw_space_mappings(recording->spaces[i], &n);

		/* Where there is nothing to compile, the file serves. */
		for (size_t k = 0; k < n && err != -ENOMEM; k++)
			if (maps[k].object)
				err = uw_object_compile(maps[k].object);
		err = err == -ENOMEM ? err : 0;
	}
	return err;
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

static void bare_prepare(void *self)
{
	struct ours *ours = self;

	memset(ours->worker, 0, sizeof(*ours->worker)); /* as uw_worker_new leaves it */
}

const struct peer peer_table = {
	.name = "table", .new = table_new, .free = ours_free, .walk = ours_walk
};
const struct peer peer_file = {
	.name = "file", .new = file_new, .free = ours_free, .walk = ours_walk
};
const struct peer peer_bare = { .name = "bare",
				.new = table_new,
				.free = ours_free,
				.prepare = bare_prepare,
				.walk = ours_walk };

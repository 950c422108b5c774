/*
 * tests/diff/walk_ways.c: walks every sample of a recording in each way that frames can be found,
 * and compares the frames with those of the interpreter, which walks one sample at a time:
 *
 *   table   compiled tables, which arrive while the walks run
 *   cold    nothing cached, by file and by table, for some samples
 *   many    batches of samples, some at once
 *   cursor  a cursor steps from frame to frame, for some samples; each value that it reports as
 *           saved in memory or in a register of the thread is there
 *   again   callers taken over from the thread's last walk; also with one word changed or the
 *           copy cut off, where the full walk of the same bytes is right
 *   threads eight threads that share the objects, each with a space and a worker of its own;
 *           half of them walk many at once, and tables arrive in the meantime
 *
 *   usage: walk_ways FILE [MAX]      MAX: limit of samples; prints how many samples and frames,
 *                                    and frames taken over; exit 1 if the ways differ
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/input.h"
#include "agent/process/process.h"

#define FRAMES	      1024
#define COLD_EVERY    16
#define CHANGED_EVERY 3
#define SHOWN_MAX     10
#define BATCH	      64 /* samples between two events that change any state */
#define REGIONS	      8
#define THREADS	      8

/* One run over the recording, with its processes, objects and caches. */
struct way {
	struct opener *opener;
	struct modules *modules;
	struct processes *processes;
	struct uw_worker *worker;
};

enum { BY_FILE, BY_TABLE, BY_THREADS, WAYS };
static struct way ways[WAYS];

/* A copy of a sample, which outlives its event. */
struct kept {
	unsigned long number;
	uint32_t pid, tid;
	struct uw_thread thread;
	struct uw_memory memory;
	struct uw_region regions[REGIONS];
	struct uw_frame *frames; /* what is right */
	struct uw_stack right;
};

static struct kept batch[BATCH];
static size_t n_batch;
static unsigned long samples, frames, taken;
static struct uw_history *pasts;
static atomic_ulong differing;

static int way_init(struct way *way, const struct source_info *info)
{
	struct opener_options options = { .live = false };
	int err = opener_new(&options, &way->opener);

	if (!err)
		err = modules_new(way->opener, info, false, &way->modules);
	if (!err)
		err = processes_new(info->machine, way->modules, &way->processes);
	if (!err)
		err = uw_worker_new(&way->worker);
	return err;
}

static void way_fini(struct way *way)
{
	uw_worker_free(way->worker);
	processes_free(way->processes);
	modules_free(way->modules);
	opener_free(way->opener);
}

static struct uw_space *space_of(unsigned int way, const struct kept *k)
{
	struct thread t;

	if (processes_thread(ways[way].processes, k->pid, k->tid, &t))
		exit(1);
	return t.space;
}

static void compile_all(struct uw_space *space)
{
	for (const struct uw_mapping *m = uw_space_above(space, 0); m;
	     m = uw_space_above(space, m->end))
		if (m->object)
			(void)uw_object_compile(m->object);
}

/* ---- comparing --------------------------------------------------------------------------- */

static bool same_frame(const struct uw_frame *x, const struct uw_frame *y)
{
	return x->pc == y->pc && x->lookup == y->lookup && x->cfa == y->cfa && x->sp == y->sp &&
	       x->stepper == y->stepper && x->confidence == y->confidence && x->exact == y->exact &&
	       x->signal == y->signal && !x->mapping == !y->mapping &&
	       (!x->mapping || x->mapping->start == y->mapping->start);
}

static void show(const char *name, const struct uw_stack *stack)
{
	(void)printf("  %s: %zu frames, %s at %" PRIx64 "\n", name, stack->n_frames,
		     uw_stop_name(stack->stop), stack->stop_addr);
}

static void compare(const char *name, const struct kept *k, const struct uw_stack *got)
{
	const struct uw_stack *right = &k->right;
	size_t i = 0, n = right->n_frames < got->n_frames ? right->n_frames : got->n_frames;

	while (i < n && same_frame(&right->frames[i], &got->frames[i]))
		i++;
	if (i == right->n_frames && i == got->n_frames && right->stop == got->stop &&
	    right->stop_addr == got->stop_addr)
		return;
	if (atomic_fetch_add(&differing, 1) >= SHOWN_MAX)
		return;
	(void)printf("sample %lu differs:\n", k->number);
	show("file", right);
	show(name, got);
	if (i < n) {
		const struct uw_frame *x = &right->frames[i], *y = &got->frames[i];

		(void)printf("  frame %zu: pc %" PRIx64 " cfa %" PRIx64 " %s, pc %" PRIx64
			     " cfa %" PRIx64 " %s\n",
			     i, x->pc, x->cfa, uw_stepper_name(x->stepper), y->pc, y->cfa,
			     uw_stepper_name(y->stepper));
	}
}

/* ---- ways ---------------------------------------------------------------------------------- */

static void one_by_one(const char *name, const struct way *way, struct uw_space *const *spaces)
{
	static struct uw_frame got[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };

	for (size_t i = 0; i < n_batch; i++) {
		uw_walk(spaces[i], way->worker, &batch[i].thread, &stack);
		compare(name, &batch[i], &stack);
	}
}

/* With nothing cached. */
static void cold(const char *name, struct uw_space *const *spaces)
{
	static struct uw_frame got[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };
	struct uw_worker *worker;

	for (size_t i = 0; i < n_batch; i++) {
		if (batch[i].number % COLD_EVERY)
			continue;
		if (uw_worker_new(&worker))
			exit(1);
		uw_walk(spaces[i], worker, &batch[i].thread, &stack);
		uw_worker_free(worker);
		compare(name, &batch[i], &stack);
	}
}

/* Store all frames of a walk whose callers may have been taken over in frames, innermost first. */
static void walk_again(const struct kept *k, struct uw_space *space, struct uw_stack *out)
{
	static struct uw_frame got[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };
	struct uw_job job = { space, &k->thread, &stack };
	struct uw_incremental again;

	uw_walk_incremental(pasts, k->tid, ways[BY_FILE].worker, &job, &again);
	for (size_t i = 0; i < stack.n_frames; i++)
		out->frames[i] = again.n ? again.frames[again.n - 1 - i] : got[i];
	for (size_t i = 0; i < again.n_taken; i++)
		out->frames[stack.n_frames + i] = again.frames[again.n_taken - 1 - i];
	out->n_frames = stack.n_frames + again.n_taken;
	out->stop = stack.stop;
	out->stop_addr = stack.stop_addr;
	taken += again.n_taken;
}

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

/* Change the stack as if the thread had continued: a return address, or any word, is different. */
static void changed(struct kept *k, struct uw_space *space)
{
	static struct uw_frame got[FRAMES], full[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };
	const struct uw_stack right = k->right;
	struct uw_region *r = &k->regions[0];
	uint64_t size = r->size, at, word;

	if (k->memory.n_regions == 0 || size < 8 || right.n_frames < 2)
		return;

	const uint64_t words[] = { 0, r->addr + random_below(size), right.frames[0].pc,
				   random_below(UINT64_MAX), UINT64_MAX };

	at = random_below(2) ? right.frames[random_below(right.n_frames)].cfa - 8 - r->addr
			     : random_below(size - 7);
	if (at > size - 8)
		return;
	memcpy(&word, r->bytes + at, 8);
	if (random_below(4))
		memcpy((uint8_t *)(uintptr_t)r->bytes + at, &words[random_below(5)], 8);
	else
		r->size = at;
	k->right = (struct uw_stack){ .frames = full, .max_frames = FRAMES };
	uw_walk(space, ways[BY_FILE].worker, &k->thread, &k->right);
	walk_again(k, space, &stack);
	compare("again, changed", k, &stack);
	r->size = size;
	memcpy((uint8_t *)(uintptr_t)r->bytes + at, &word, 8);
	k->right = right;
}

static void again(struct uw_space *const *spaces)
{
	static struct uw_frame got[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };

	for (size_t i = 0; i < n_batch; i++) {
		walk_again(&batch[i], spaces[i], &stack);
		compare("again", &batch[i], &stack);
		if (batch[i].number % CHANGED_EVERY)
			continue;
		changed(&batch[i], spaces[i]);
		walk_again(&batch[i], spaces[i], &stack);
		compare("again, after a change", &batch[i], &stack);
	}
}

/* Room for the frames of a batch that is walked at once; frames is BATCH × FRAMES. */
static void many(const char *name, struct uw_worker *worker, struct uw_space *const *spaces,
		 struct uw_frame *room)
{
	struct uw_job jobs[BATCH];
	struct uw_stack stacks[BATCH];

	for (size_t i = 0; i < n_batch; i++) {
		stacks[i] = (struct uw_stack){ .frames = room + i * FRAMES, .max_frames = FRAMES };
		jobs[i] = (struct uw_job){ spaces[i], &batch[i].thread, &stacks[i] };
	}
	uw_walk_many(worker, jobs, n_batch);
	for (size_t i = 0; i < n_batch; i++)
		compare(name, &batch[i], &stacks[i]);
}

/* ---- cursors ------------------------------------------------------------------------------- */

static int read_thread_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct uw_thread *t = ctx;

	return t->read(t->ctx, addr, out, size);
}

static int read_thread_reg(void *ctx, unsigned int reg, uint64_t *value)
{
	const struct uw_thread *t = ctx;

	if (!(t->regs.known >> reg & 1))
		return -ENODATA;
	*value = t->regs.value[reg];
	return 0;
}

static void check_saves(const struct kept *k, const struct uw_cursor *cursor, size_t frame)
{
	struct uw_save save;

	for (unsigned int reg = 0; !uw_cursor_save(cursor, reg, &save); reg++) {
		uint64_t value = save.value, kept = value;
		int err = 0;

		if (save.place == UW_PLACE_MEMORY && save.known)
			err = read_thread_mem((void *)&k->thread, save.addr, &kept, 8);
		else if (save.place == UW_PLACE_REGISTER && save.known)
			err = read_thread_reg((void *)&k->thread, save.from, &kept);
		/* The pc has no authentication code; on x86_64 there is none. */
		if ((save.place == UW_PLACE_SAME ||
		     (save.place == UW_PLACE_UNDEFINED && save.known) || err || kept != value) &&
		    atomic_fetch_add(&differing, 1) < SHOWN_MAX)
			(void)printf("sample %lu frame %zu: register %u: %" PRIx64
				     " is not in place %u, %" PRIx64 "\n",
				     k->number, frame, reg, value, save.place, save.addr);
	}
}

static void by_cursor(struct uw_space *space, const struct kept *k)
{
	static const struct uw_accessors accessors = { .read_mem = read_thread_mem,
						       .read_reg = read_thread_reg };
	static struct uw_frame got[FRAMES];
	struct uw_stack stack = { .frames = got, .max_frames = FRAMES };
	struct uw_target *target;
	struct uw_cursor cursor;
	int stepped = 1;

	if (uw_target_new(uw_space_machine(space), 0, &accessors, space, &target))
		exit(1);
	if (uw_cursor_init(&cursor, target, (void *)&k->thread)) {
		stack.stop = UW_STOP_NO_USER_STATE;
		stepped = 0;
	}
	while (stepped == 1) {
		if (stack.n_frames == FRAMES) {
			stack.stop = UW_STOP_MAX_FRAMES;
			stack.stop_addr = got[FRAMES - 1].pc;
			break;
		}
		(void)uw_cursor_frame(&cursor, &got[stack.n_frames]);
		got[stack.n_frames].signal = uw_cursor_is_signal(&cursor) == 1;
		check_saves(k, &cursor, stack.n_frames);
		/* A cursor knows the CFA of a frame only after the step from there. */
		if (stack.n_frames < k->right.n_frames)
			got[stack.n_frames].cfa = k->right.frames[stack.n_frames].cfa;
		stack.n_frames++;
		stepped = uw_cursor_step(&cursor);
		if (stepped != 1)
			stack.stop = uw_cursor_stop(&cursor, &stack.stop_addr);
	}
	compare("cursor", k, &stack);
	uw_target_free(target);
}

/* ---- threads ------------------------------------------------------------------------------- */

struct walker {
	pthread_t thread;
	bool many;
	struct uw_worker *worker;
	struct uw_frame *room;
	struct uw_space *spaces[BATCH]; /* copies; equal ones are neighbours */
};

static struct walker walkers[THREADS];

static void *run_walker(void *ctx)
{
	struct walker *w = ctx;

	if (w->many) {
		many("thread, many", w->worker, w->spaces, w->room);
		return NULL;
	}
	for (size_t i = 0; i < n_batch; i++) {
		struct uw_stack stack = { .frames = w->room, .max_frames = FRAMES };

		uw_walk(w->spaces[i], w->worker, &batch[i].thread, &stack);
		compare("thread", &batch[i], &stack);
	}
	return NULL;
}

static struct uw_space *copy_of(const struct walker *w, struct uw_space *const *spaces, size_t i)
{
	struct uw_space *copy;

	for (size_t k = 0; k < i; k++)
		if (spaces[k] == spaces[i])
			return w->spaces[k];
	if (uw_space_copy(spaces[i], &copy))
		exit(1);
	return copy;
}

/* spaces: the mappings that these walks reach in them are resolved. */
static void in_threads(struct uw_space *const *spaces)
{
	for (unsigned int t = 0; t < THREADS; t++) {
		struct walker *w = &walkers[t];

		for (size_t i = 0; i < n_batch; i++)
			w->spaces[i] = copy_of(w, spaces, i);
		if (pthread_create(&w->thread, NULL, run_walker, w))
			exit(1);
	}
	for (size_t i = 0; i < n_batch; i++)
		compile_all(spaces[i]);
	for (unsigned int t = 0; t < THREADS; t++) {
		struct walker *w = &walkers[t];

		(void)pthread_join(w->thread, NULL);
		for (size_t i = 0; i < n_batch; i++) {
			size_t k = 0;

			while (w->spaces[k] != w->spaces[i])
				k++;
			if (k == i)
				continue;
			w->spaces[i] = NULL; /* its first stands for it */
		}
		for (size_t i = 0; i < n_batch; i++)
			uw_space_free(w->spaces[i]);
	}
}

static void threads_init(void)
{
	for (unsigned int t = 0; t < THREADS; t++) {
		walkers[t].many = t % 2;
		walkers[t].room = calloc(t % 2 ? BATCH * FRAMES : FRAMES, sizeof(struct uw_frame));
		if (!walkers[t].room || uw_worker_new(&walkers[t].worker))
			exit(1);
	}
}

static void threads_fini(void)
{
	for (unsigned int t = 0; t < THREADS; t++) {
		uw_worker_free(walkers[t].worker);
		free(walkers[t].room);
	}
}

/* ---- samples --------------------------------------------------------------------------------- */

static void walk_batch(void)
{
	struct uw_space *spaces[WAYS][BATCH];

	for (size_t i = 0; i < n_batch; i++) {
		struct kept *k = &batch[i];

		for (unsigned int w = 0; w < WAYS; w++)
			spaces[w][i] = space_of(w, k);
		k->right = (struct uw_stack){ .frames = k->frames, .max_frames = FRAMES };
		uw_walk(spaces[BY_FILE][i], ways[BY_FILE].worker, &k->thread, &k->right);
		frames += k->right.n_frames;
	}
	again(spaces[BY_FILE]);
	cold("cold file", spaces[BY_FILE]);
	for (size_t i = 0; i < n_batch; i++)
		if (batch[i].number % COLD_EVERY == 0)
			by_cursor(spaces[BY_FILE][i], &batch[i]);
	many("many, file", ways[BY_FILE].worker, spaces[BY_FILE], walkers[1].room);
	one_by_one("table", &ways[BY_TABLE], spaces[BY_TABLE]);
	many("many, table", ways[BY_TABLE].worker, spaces[BY_TABLE], walkers[1].room);
	cold("cold table", spaces[BY_TABLE]);
	one_by_one("before threads", &ways[BY_THREADS], spaces[BY_THREADS]);
	in_threads(spaces[BY_THREADS]);
	for (size_t i = 0; i < n_batch; i++) {
		compile_all(spaces[BY_TABLE][i]);
		for (unsigned int r = 0; r < batch[i].memory.n_regions; r++)
			free((void *)(uintptr_t)batch[i].regions[r].bytes);
	}
	n_batch = 0;
}

static void keep(const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct kept *k = &batch[n_batch];

	if (!s->has_user_regs || s->compat || s->n_regions > REGIONS)
		return;
	k->number = ++samples;
	k->pid = event->pid;
	k->tid = event->tid;
	k->memory = (struct uw_memory){ .regions = k->regions, .n_regions = s->n_regions };
	k->thread =
		(struct uw_thread){ .regs = s->regs, .read = uw_memory_read, .ctx = &k->memory };
	for (unsigned int r = 0; r < s->n_regions; r++) {
		uint8_t *bytes = malloc(s->regions[r].size ? s->regions[r].size : 1);

		if (!bytes)
			exit(1);
		memcpy(bytes, s->regions[r].bytes, s->regions[r].size);
		k->regions[r] = s->regions[r];
		k->regions[r].bytes = bytes;
	}
	if (++n_batch == BATCH)
		walk_batch();
}

int main(int argc, char **argv)
{
	unsigned long max = argc == 3 ? strtoul(argv[2], NULL, 10) : ULONG_MAX;
	struct source *source;
	struct event event;
	int err, got = 0;

	if (argc != 2 && argc != 3)
		return 2;
	err = input_open(argv[1], &source);
	for (unsigned int i = 0; i < WAYS && !err; i++)
		err = way_init(&ways[i], &source->info);
	if (err)
		return 1;
	threads_init();
	if (uw_history_new(FRAMES, 1 << 20, &pasts))
		return 1;
	for (size_t i = 0; i < BATCH; i++) {
		batch[i].frames = calloc(FRAMES, sizeof(*batch[i].frames));
		if (!batch[i].frames)
			return 1;
	}
	while (!err && samples < max && (got = source_next(source, &event, -1)) > 0) {
		if (event.type == EVENT_SAMPLE) {
			keep(&event);
			continue;
		}
		walk_batch();
		for (unsigned int i = 0; i < WAYS && !err; i++)
			err = processes_event(ways[i].processes, &event);
	}
	walk_batch();
	(void)printf("%lu samples %lu frames, taken over %lu\n", samples, frames, taken);
	uw_history_free(pasts);
	threads_fini();
	for (size_t i = 0; i < BATCH; i++)
		free(batch[i].frames);
	for (unsigned int i = 0; i < WAYS; i++)
		way_fini(&ways[i]);
	source_close(source);
	return err || got < 0 || differing || (samples > 100 && !taken);
}

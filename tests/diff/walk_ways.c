/*
 * Walks every sample of a recording whichever way rules may come, and compares
 * the frames: from the files, with caches warm and cold, and from compiled
 * tables, which arrive while the walks go on, warm and cold.
 *   usage: walk_ways FILE            prints "samples frames", exit 1 where ways differ
 *          walk_ways -t WAY FILE     walks one way only (file, table) and prints the time
 * Times are of each sample walked once, its stack bytes in cache; the second half counts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/cmd/input.h"
#include "agent/process/process.h"

#define FRAMES	   1024
#define COLD_EVERY 16
#define SHOWN_MAX  10

/* One life of the recording: its processes, objects and caches. */
struct way {
	const char *name;
	bool compile; /* what a walk has resolved, behind it */
	struct opener *opener;
	struct modules *modules;
	struct processes *processes;
	struct uw_worker *worker;
	struct uw_frame frames[FRAMES];
	struct uw_stack stack;
};

static struct way ways[2] = { { .name = "file" }, { .name = "table", .compile = true } };
static unsigned long samples, frames, differing;

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
	way->stack = (struct uw_stack){ .frames = way->frames, .max_frames = FRAMES };
	return err;
}

static void way_fini(struct way *way)
{
	uw_worker_free(way->worker);
	processes_free(way->processes);
	modules_free(way->modules);
	opener_free(way->opener);
}

static void compile_all(struct uw_space *space)
{
	size_t n;
	const struct uw_mapping *maps = uw_space_mappings(space, &n);

	for (size_t i = 0; i < n; i++)
		if (maps[i].object)
			(void)uw_object_compile(maps[i].object);
}

static bool same(const struct uw_stack *a, const struct uw_stack *b)
{
	if (a->n_frames != b->n_frames || a->stop != b->stop || a->stop_addr != b->stop_addr)
		return false;
	for (size_t i = 0; i < a->n_frames; i++) {
		const struct uw_frame *x = &a->frames[i], *y = &b->frames[i];

		if (x->pc != y->pc || x->lookup != y->lookup || x->cfa != y->cfa ||
		    x->sp != y->sp || x->stepper != y->stepper || x->exact != y->exact ||
		    x->signal != y->signal || !x->mapping != !y->mapping ||
		    (x->mapping && x->mapping->start != y->mapping->start))
			return false;
	}
	return true;
}

static void show(const char *name, const struct uw_stack *stack)
{
	(void)printf("  %s: %zu frames, %s at %" PRIx64 "\n", name, stack->n_frames,
		     uw_stop_name(stack->stop), stack->stop_addr);
}

static void compare(const char *name, const struct uw_stack *a, const struct uw_stack *b)
{
	if (same(a, b) || differing++ >= SHOWN_MAX)
		return;
	(void)printf("sample %lu differs:\n", samples);
	show("file", a);
	show(name, b);
	for (size_t i = 0; i < a->n_frames && i < b->n_frames; i++) {
		const struct uw_frame *x = &a->frames[i], *y = &b->frames[i];

		if (x->pc == y->pc && x->cfa == y->cfa && x->stepper == y->stepper)
			continue;
		(void)printf("  frame %zu: pc %" PRIx64 " cfa %" PRIx64 " %s, pc %" PRIx64
			     " cfa %" PRIx64 " %s\n",
			     i, x->pc, x->cfa, uw_stepper_name(x->stepper), y->pc, y->cfa,
			     uw_stepper_name(y->stepper));
		break;
	}
}

/* Once more with nothing cached. */
static int walk_cold(struct uw_space *space, const struct uw_thread *thread, const char *name)
{
	static struct uw_frame cold[FRAMES];
	struct uw_stack stack = { .frames = cold, .max_frames = FRAMES };
	struct uw_worker *worker;
	int err = uw_worker_new(&worker);

	if (err)
		return err;
	uw_walk(space, worker, thread, &stack);
	uw_worker_free(worker);
	compare(name, &ways[0].stack, &stack);
	return 0;
}

static int on_sample(const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct uw_memory memory = { .regions = s->regions, .n_regions = s->n_regions };
	struct uw_thread thread = { .regs = s->regs, .read = uw_memory_read, .ctx = &memory };

	if (!s->has_user_regs || s->compat)
		return 0;
	samples++;
	for (unsigned int i = 0; i < 2; i++) {
		struct thread t;
		int err = processes_thread(ways[i].processes, event->pid, event->tid, &t);

		if (err)
			return err;
		uw_walk(t.space, ways[i].worker, &thread, &ways[i].stack);
		if (samples % COLD_EVERY == 0) {
			err = walk_cold(t.space, &thread, i ? "cold table" : "cold file");
			if (err)
				return err;
		}
		if (ways[i].compile)
			compile_all(t.space);
	}
	frames += ways[0].stack.n_frames;
	compare("table", &ways[0].stack, &ways[1].stack);
	return 0;
}

/* ---- times ------------------------------------------------------------------------------ */

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct {
	double ns;
	uint32_t frames;
} * timed;
static size_t n_timed, room_timed;
static volatile uint8_t sink;

static int time_sample(struct way *way, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct uw_memory memory = { .regions = s->regions, .n_regions = s->n_regions };
	struct uw_thread thread = { .regs = s->regs, .read = uw_memory_read, .ctx = &memory };
	struct thread t;
	uint64_t start;
	uint8_t touched = 0;
	int err;

	if (!s->has_user_regs || s->compat)
		return 0;
	err = processes_thread(way->processes, event->pid, event->tid, &t);
	if (err)
		return err;
	for (size_t i = 0; i < s->n_regions; i++)
		for (uint64_t at = 0; at < s->regions[i].size; at += 64)
			touched ^= s->regions[i].bytes[at];
	sink = touched;
	if (n_timed == room_timed) {
		void *more;

		room_timed = room_timed ? room_timed * 2 : 4096;
		more = realloc(timed, room_timed * sizeof(*timed));
		if (!more)
			return -1;
		timed = more;
	}
	start = now_ns();
	uw_walk(t.space, way->worker, &thread, &way->stack);
	timed[n_timed].ns = (double)(now_ns() - start);
	timed[n_timed++].frames = (uint32_t)way->stack.n_frames;
	frames += way->stack.n_frames;
	samples++;
	if (way->compile)
		compile_all(t.space);
	return 0;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* As of a ring that was just read: so many samples at once make one time. */
#define BLOCK 16

static void print_times(const char *file, const char *name)
{
	size_t n = 0;
	double *each = calloc(n_timed / BLOCK + 1, sizeof(*each)), clock_ns = 1e9, all = 0,
	       all_frames = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t start = now_ns(), ns = now_ns() - start;

		clock_ns = (double)ns < clock_ns ? (double)ns : clock_ns;
	}
	for (size_t i = n_timed / 2; each && i + BLOCK <= n_timed; i += BLOCK) {
		double ns = 0, in_block = 0;

		for (size_t k = i; k < i + BLOCK; k++) {
			ns += timed[k].ns - clock_ns;
			in_block += timed[k].frames;
		}
		each[n++] = ns / in_block;
		all += ns;
		all_frames += in_block;
	}
	if (n) {
		qsort(each, n, sizeof(*each), by_time);
		(void)printf(
			"%s\t%s\t%lu samples\t%.1f frames each\tmedian %.1f\tmean %.1f ns/frame\n",
			file, name, samples, (double)frames / (double)samples, each[n / 2],
			all / all_frames);
	}
	free(each);
	free(timed);
}

int main(int argc, char **argv)
{
	const char *file = argv[argc - 1],
		   *only = argc == 4 && !strcmp(argv[1], "-t") ? argv[2] : NULL;
	struct source *source;
	struct event event;
	int err, got;

	if (argc != 2 && !only)
		return 2;
	err = input_open(file, &source);
	for (unsigned int i = 0; i < 2 && !err; i++)
		err = way_init(&ways[i], &source->info);
	if (err)
		return 1;
	while ((got = source_next(source, &event, -1)) > 0 && !err) {
		for (unsigned int i = 0; i < 2 && !err && event.type != EVENT_SAMPLE; i++)
			err = processes_event(ways[i].processes, &event);
		if (event.type != EVENT_SAMPLE)
			continue;
		err = only ? time_sample(&ways[!strcmp(only, "table")], &event) : on_sample(&event);
	}
	if (only)
		print_times(file, only);
	else
		(void)printf("%lu samples %lu frames\n", samples, frames);
	for (unsigned int i = 0; i < 2; i++)
		way_fini(&ways[i]);
	source_close(source);
	return err || got < 0 || differing;
}

/* tests/peers/recording.c: reads a recording into memory and gives its samples to a walker. */
#include "tests/peers/recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/array.h"
#include "agent/cli/input.h"
#include "unwinder/walk/space.h"

/* ---- reading ------------------------------------------------------------------------------ */

/* Generated code comes and goes; files stay mapped at their place as long as the process lives. */
static bool is_file(const struct uw_mapping *m)
{
	return m->kind == UW_MAPPING_FILE || m->kind == UW_MAPPING_VDSO;
}

/* Return whether the newer space has all files of the older one at the same places. */
static bool goes_on(const struct uw_space *older, const struct uw_space *newer)
{
	for (const struct uw_mapping *m = uw_space_above(older, 0); m;
	     m = uw_space_above(older, m->end)) {
		const struct uw_mapping *now = uw_space_find(newer, m->start);

		if (is_file(m) && (m->prot & PROT_EXEC) &&
		    (!now || now->user != m->user || now->start != m->start || now->end != m->end ||
		     now->off != m->off))
			return false;
	}
	return true;
}

/*
 * Return the life of this space, the latest of its process, and give it the mappings that exist by
 * now.
 */
static int life_of(struct recording *r, uint32_t pid, const struct uw_space *space, size_t *out)
{
	size_t i = r->n_lives;
	int err;

	while (i > 0 && r->lives[i - 1].pid != pid)
		i--;
	if (i > 0 && goes_on(r->lives[i - 1].space, space)) {
		r->lives[--i].space = space;
		*out = i;
		return 0;
	}
	err = array_grow(r->lives, r->n_lives, r->room_lives);
	if (err)
		return err;
	*out = r->n_lives;
	r->lives[r->n_lives++] = (struct life){ .pid = pid, .space = space };
	return 0;
}

/* Store a copy of a space as it is now. */
static int space_of(struct recording *r, const struct uw_space *space, size_t *out)
{
	int err = array_grow(r->spaces, r->n_spaces, r->room_spaces);

	if (!err)
		err = uw_space_copy(space, &r->spaces[r->n_spaces]);
	if (!err)
		*out = r->n_spaces++;
	return err;
}

struct reading {
	struct recording *recording;
	uint32_t pid;
	uint64_t id;	    /* of the last space, which belongs to pid; 0: none yet */
	size_t space, life; /* which that is */
};

static int keep(struct reading *reading, const struct event *event)
{
	struct recording *r = reading->recording;
	const struct event_sample *s = &event->sample;
	const struct uw_region *from = s->regions;
	struct thread thread;
	uint8_t *bytes = NULL;
	int err = processes_thread(r->processes, event->pid, event->tid, &thread);

	if (err || !s->has_user_regs || s->compat || s->n_regions != 1)
		return err;
	if (reading->pid != event->pid || reading->id != uw_space_id(thread.space)) {
		err = space_of(r, thread.space, &reading->space);
		if (!err)
			err = life_of(r, event->pid, r->spaces[reading->space], &reading->life);
		reading->pid = event->pid;
		reading->id = uw_space_id(thread.space);
	}
	if (!err)
		err = array_grow(r->samples, r->n_samples, r->room_samples);
	if (!err && from->size) {
		bytes = aligned_alloc(64, (from->size + 63) / 64 * 64);
		err = bytes ? 0 : -ENOMEM;
	}
	if (err)
		return err;
	if (from->size)
		memcpy(bytes, from->bytes, from->size);
	r->samples[r->n_samples++] = (struct sample){
		.regs = s->regs,
		.stack = { .addr = from->addr, .size = from->size, .bytes = bytes },
		.space = reading->space,
		.life = reading->life,
		.tid = event->tid,
	};
	return 0;
}

/* Keep max samples, evenly spread. */
static void thin(struct recording *r, size_t max)
{
	size_t kept = 0, n = r->n_samples;

	if (!max || n <= max)
		return;
	for (size_t i = 0; i < n; i++) {
		if (i * max / n < kept) {
			free((void *)(uintptr_t)r->samples[i].stack.bytes);
			continue;
		}
		r->samples[kept++] = r->samples[i];
	}
	r->n_samples = kept;
}

int recording_read(const char *file, size_t max, struct recording *out)
{
	struct opener_options options = { .live = false };
	struct reading reading = { .recording = out };
	struct event event;
	int err, got = 0;

	*out = (struct recording){ 0 };
	err = input_open(file, &out->source);
	if (!err)
		err = opener_new(&options, &out->opener);
	if (!err)
		err = modules_new(out->opener, &out->source->info, false, &out->modules);
	if (!err)
		err = processes_new(out->source->info.machine, out->modules, &out->processes);
	while (!err && (got = source_next(out->source, &event, -1)) > 0)
		err = event.type == EVENT_SAMPLE ? keep(&reading, &event)
						 : processes_event(out->processes, &event);
	if (!err && got < 0)
		err = got;
	if (err) {
		recording_free(out);
		return err;
	}
	thin(out, max);
	return 0;
}

void recording_free(struct recording *r)
{
	for (size_t i = 0; i < r->n_samples; i++)
		free((void *)(uintptr_t)r->samples[i].stack.bytes);
	for (size_t i = 0; i < r->n_spaces; i++)
		uw_space_free(r->spaces[i]);
	for (size_t i = 0; i < r->n_lives; i++) {
		free(r->lives[i].codes);
		free(r->lives[i].loaded);
	}
	free(r->samples);
	free(r->spaces);
	free(r->lives);
	images_free(&r->images);
	processes_free(r->processes);
	modules_free(r->modules);
	opener_free(r->opener);
	source_close(r->source);
	*r = (struct recording){ 0 };
}

/* ---- opening -------------------------------------------------------------------------------- */

void recording_resolve(struct recording *r)
{
	for (size_t i = 0; i < r->n_spaces; i++) {
		for (const struct uw_mapping *m = uw_space_above(r->spaces[i], 0); m;
		     m = uw_space_above(r->spaces[i], m->end))
			if (m->prot & PROT_EXEC)
				(void)uw_space_resolved(r->spaces[i], m->start);
	}
}

static int by_start(const void *a, const void *b)
{
	const struct loaded *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int load(struct recording *r, struct life *life)
{
	size_t n = uw_space_n_mappings(life->space);

	life->codes = calloc(n + 1, sizeof(*life->codes));
	life->loaded = calloc(n + 1, sizeof(*life->loaded));
	if (!life->codes || !life->loaded)
		return -ENOMEM;
	for (const struct uw_mapping *m = uw_space_above(life->space, 0); m;
	     m = uw_space_above(life->space, m->end)) {
		const struct image *image = NULL;
		bool known = false;

		if (!(m->prot & PROT_EXEC))
			continue;
		if (m->object && m->user)
			image = image_of(&r->images, m->user);
		life->codes[life->n_codes++] = (struct code){
			.start = m->start, .end = m->end, .bias = m->bias, .image = image
		};
		for (size_t k = 0; k < life->n_loaded; k++)
			known |= life->loaded[k].image == image && life->loaded[k].bias == m->bias;
		if (image && !known)
			life->loaded[life->n_loaded++] =
				(struct loaded){ .start = m->bias + image->low,
						 .end = m->bias + image->high,
						 .bias = m->bias,
						 .image = image };
	}
	qsort(life->loaded, life->n_loaded, sizeof(*life->loaded), by_start);
	return 0;
}

int recording_load(struct recording *r, size_t life)
{
	int err = 0;

	recording_resolve(r);
	for (size_t i = 0; i < r->n_lives && !err; i++)
		if (!r->lives[i].codes && (life == SIZE_MAX || life == i))
			err = load(r, &r->lives[i]);
	return err;
}

/* ---- looking -------------------------------------------------------------------------------- */

const struct code *life_code(const struct life *life, uint64_t pc)
{
	size_t low = 0, high = life->n_codes;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (life->codes[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < life->n_codes && pc >= life->codes[low].start ? &life->codes[low] : NULL;
}

const struct loaded *life_loaded(const struct life *life, uint64_t addr)
{
	size_t low = 0, high = life->n_loaded;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (life->loaded[middle].end <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < life->n_loaded && addr >= life->loaded[low].start ? &life->loaded[low] : NULL;
}

/* How far after a program's entry point the return address of its first call may be. */
#define ENTRY_MAX 64
/* How far after the system call the call of the new thread's function may be. */
#define CLONE_MAX 64

/*
 * Return whether a system call that creates threads is just before vaddr: libc.so.6 has no symbol
 * for clone3.
 */
static bool follows_clone(const struct image *image, uint64_t vaddr)
{
	/* mov $56 or $435, %eax; syscall: clone and clone3 (asm/unistd_64.h). */
	static const uint8_t clone[2][7] = { { 0xb8, 0x38, 0, 0, 0, 0x0f, 0x05 },
					     { 0xb8, 0xb3, 0x01, 0, 0, 0x0f, 0x05 } };
	const uint8_t *code = image_at(image, vaddr - CLONE_MAX, CLONE_MAX);

	for (size_t i = 0; code && i + sizeof(clone[0]) <= CLONE_MAX; i++)
		if (!memcmp(code + i, clone[0], sizeof(clone[0])) ||
		    !memcmp(code + i, clone[1], sizeof(clone[1])))
			return true;
	return false;
}

bool life_is_root(const struct life *life, uint64_t lookup)
{
	static const char *const roots[] = { "_start",	"_dl_start_user", "clone",
					     "__clone", "clone3",	  "__clone3" };
	const struct code *code = life_code(life, lookup);
	const char *name;

	if (!code || !code->image)
		return false;
	if (lookup - code->bias - code->image->entry < ENTRY_MAX ||
	    follows_clone(code->image, lookup - code->bias))
		return true;
	name = image_symbol(code->image, lookup - code->bias);
	for (size_t i = 0; name && i < sizeof(roots) / sizeof(roots[0]); i++)
		if (!strcmp(name, roots[i]))
			return true;
	return false;
}

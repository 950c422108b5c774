/* unwinder/remote/walker.c: walks whole stacks of a process that callbacks read, with cursors. */
#include "unwinder/walker.h"

#include <errno.h>
#include <stdlib.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cursor.h"
#include "unwinder/walk/space.h"

struct uw_walker {
	const struct uw_arch *arch;
	struct uw_process process;
	struct uw_lookup lookup;
	struct uw_space *own; /* the space, if the caller gave none */
	struct uw_target *target;
};

/* The ctx of the cursor's accessors. */
struct on_thread {
	const struct uw_walker *walker;
	uint64_t thread;
};

/* The cursor's accessors pass requests on to the process's callbacks. */
static int read_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct uw_process *p = &((const struct on_thread *)ctx)->walker->process;

	return p->read(p->ctx, addr, out, size);
}

static int read_reg(void *ctx, unsigned int reg, uint64_t *value)
{
	const struct on_thread *on = ctx;
	const struct uw_process *p = &on->walker->process;

	return p->reg(p->ctx, on->thread, reg, value);
}

int uw_walker_new(const struct uw_process *process, struct uw_space *space,
		  const struct uw_steppers *steppers, const struct uw_lookup *lookup,
		  struct uw_walker **out)
{
	const struct uw_accessors accessors = { .read_mem = read_mem, .read_reg = read_reg };
	struct uw_walker *w;
	int err = 0;

	if (!process->reg || !process->read)
		return -EINVAL;
	if (!uw_arch_of(process->machine))
		return -ENOTSUP;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->arch = uw_arch_of(process->machine);
	w->process = *process;
	if (lookup)
		w->lookup = *lookup;
	if (!space) {
		err = uw_space_new(process->machine, NULL, NULL, &w->own);
		space = w->own;
	}
	if (!err)
		err = uw_target_new(process->machine, 0, &accessors, space, &w->target);
	if (err) {
		uw_walker_free(w);
		return err;
	}
	uw_space_use(space, steppers);
	*out = w;
	return 0;
}

void uw_walker_free(struct uw_walker *w)
{
	if (!w)
		return;
	uw_target_free(w->target);
	uw_space_free(w->own);
	free(w);
}

const struct uw_process *uw_walker_process(const struct uw_walker *w)
{
	return &w->process;
}

const struct uw_steppers *uw_walker_steppers(const struct uw_walker *w)
{
	return uw_space_steppers(uw_target_space(w->target));
}

const struct uw_lookup *uw_walker_lookup(const struct uw_walker *w)
{
	return &w->lookup;
}

/* Copy the cursor's frame: the registers that are known, and where pc, sp and fp were found. */
static void take_frame(const struct uw_walker *w, const struct uw_cursor *cursor,
		       struct uw_stack_frame *out)
{
	const struct uw_arch *arch = w->arch;

	*out = (struct uw_stack_frame){ .by = w };
	for (unsigned int i = 0; i < arch->n_regs; i++)
		if (!uw_cursor_reg(cursor, i, &out->regs.value[i]))
			out->regs.known |= (uint64_t)1 << i;
	out->ra = out->regs.value[arch->pc];
	out->sp = out->regs.value[arch->sp];
	out->fp = out->regs.value[arch->fp];
	(void)uw_cursor_save(cursor, arch->pc, &out->ra_at);
	(void)uw_cursor_save(cursor, arch->sp, &out->sp_at);
	(void)uw_cursor_save(cursor, arch->fp, &out->fp_at);
	uw_cursor_found(cursor, &out->stepper, &out->confidence, &out->exact);
}

/* Replace UW_THREAD_DEFAULT by the first thread that the process lists. -ENOENT: it lists none. */
static int first_thread(struct uw_walker *w, uint64_t *thread)
{
	size_t n = 0;
	int err;

	if (*thread != UW_THREAD_DEFAULT || !w->process.threads)
		return 0;
	err = w->process.threads(w->process.ctx, thread, 1, &n);
	return err || n ? err : -ENOENT;
}

/* Walk from the cursor's frame on, and fill in out. */
static void walk(const struct uw_walker *w, struct uw_cursor *cursor, struct uw_stack_walk *out)
{
	for (;;) {
		if (out->n_frames == out->max_frames) {
			out->stop = UW_STOP_MAX_FRAMES;
			out->stop_addr = out->frames[out->n_frames - 1].ra;
			return;
		}
		take_frame(w, cursor, &out->frames[out->n_frames++]);
		if (uw_cursor_step(cursor) != 1)
			break;
	}
	out->stop = uw_cursor_stop(cursor, &out->stop_addr);
}

int uw_walker_walk(struct uw_walker *w, uint64_t thread, struct uw_stack_walk *out)
{
	struct on_thread on = { .walker = w };
	struct uw_cursor cursor;
	int err = first_thread(w, &thread);

	out->n_frames = 0;
	out->stop = UW_STOP_NO_USER_STATE;
	out->stop_addr = 0;
	if (!out->max_frames)
		return -EINVAL;
	on.thread = thread;
	if (!err)
		err = uw_cursor_init(&cursor, w->target, &on);
	if (!err)
		walk(w, &cursor, out);
	return err;
}

int uw_walker_walk_from(struct uw_walker *w, const struct uw_stack_frame *from,
			struct uw_stack_walk *out)
{
	const struct uw_stack_frame first = *from; /* it may be one of out's frames */
	struct on_thread on = { .walker = w, .thread = UW_THREAD_DEFAULT };
	struct uw_regs regs = first.regs;
	struct uw_cursor cursor;
	int err;

	out->n_frames = 0;
	out->stop = UW_STOP_NO_USER_STATE;
	out->stop_addr = 0;
	if (!out->max_frames)
		return -EINVAL;
	/*
	 * ra, sp and fp of the frame take precedence over its registers: the caller may have set
	 * them.
	 */
	regs.value[w->arch->pc] = first.ra;
	regs.value[w->arch->sp] = first.sp;
	regs.value[w->arch->fp] = first.fp;
	regs.known |= (uint64_t)1 << w->arch->pc | (uint64_t)1 << w->arch->sp;
	if (first.fp)
		regs.known |= (uint64_t)1 << w->arch->fp;
	err = uw_cursor_init_at(&cursor, w->target, &on, &regs, first.exact);
	if (err)
		return err;
	walk(w, &cursor, out);
	out->frames[0] = first;
	return 0;
}

int uw_walker_initial(struct uw_walker *w, uint64_t thread, struct uw_stack_frame *out)
{
	struct on_thread on = { .walker = w };
	struct uw_cursor cursor;
	int err = first_thread(w, &thread);

	on.thread = thread;
	if (!err)
		err = uw_cursor_init(&cursor, w->target, &on);
	if (!err)
		take_frame(w, &cursor, out);
	return err;
}

int uw_walker_threads(struct uw_walker *w, uint64_t *ids, size_t max, size_t *n)
{
	return w->process.threads ? w->process.threads(w->process.ctx, ids, max, n) : -ENOENT;
}

int uw_walker_frame(const struct uw_walker *w, const uint64_t ra_sp_fp[3], bool exact,
		    struct uw_stack_frame *out)
{
	const struct uw_arch *arch = w->arch;

	*out = (struct uw_stack_frame){
		.ra = ra_sp_fp[0], .sp = ra_sp_fp[1], .fp = ra_sp_fp[2], .by = w, .exact = exact
	};
	out->regs.known =
		(uint64_t)1 << arch->pc | (uint64_t)1 << arch->sp | (uint64_t)1 << arch->fp;
	out->regs.value[arch->pc] = out->ra;
	out->regs.value[arch->sp] = out->sp;
	out->regs.value[arch->fp] = out->fp;
	return 0;
}

int uw_walker_name(const struct uw_stack_frame *frame, char *name, size_t size, void **object)
{
	const struct uw_lookup *l = &frame->by->lookup;

	return l->name ? l->name(l->ctx, frame->ra - !frame->exact, name, size, object) : -ENOENT;
}

int uw_walker_library(const struct uw_stack_frame *frame, char *path, size_t size)
{
	const struct uw_lookup *l = &frame->by->lookup;

	return l->library ? l->library(l->ctx, frame->ra - !frame->exact, path, size) : -ENOENT;
}

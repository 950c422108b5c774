/*
 * agent/pipeline/sample_walk.c: walks one sample, or takes the frames that its recorder found.
 */
#include "agent/pipeline/pipeline_internal.h"

#include "agent/source/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fill p->frames with the sample's kernel frames and return how many. */
static size_t kernel_frames(struct pipeline *p, const struct event_sample *s)
{
	size_t n = s->n_kernel_ips < MAX_KERNEL_FRAMES ? s->n_kernel_ips : MAX_KERNEL_FRAMES;

	for (size_t i = 0; i < n; i++) {
		uint64_t ip = s->kernel_ips[i];
		bool exact = i == 0;

		p->frames[i] = (struct walked_frame){
			.location = { .module = modules_kernel(p->modules),
				      .vaddr = exact ? ip : ip - 1,
				      .ra_bytes = !exact },
			.pc = ip,
			.stepper = UW_STEPPER_CONTEXT,
			.exact = exact,
		};
	}
	return n;
}

/* Return the location of a walked frame: module and address for symbol lookup. */
static struct location locate(struct pipeline *p, const struct uw_frame *frame)
{
	const struct uw_mapping *m = frame->mapping;
	const struct module *module = m ? m->user : NULL;
	/*
	 * A signal trampoline was not called. The handler returns to its start, so look up pc
	 * itself.
	 */
	uint64_t lookup = frame->signal ? frame->pc : frame->lookup;
	struct location location = { .vaddr = lookup, .ra_bytes = lookup != frame->pc };

	if (!module) {
		location.module = modules_unknown(p->modules);
		return location;
	}
	location.module = module_canonical(module);
	if (m->object)
		location.vaddr = lookup - m->bias;
	else if (module->kind == MODULE_FILE || module->kind == MODULE_VDSO)
		location.vaddr = lookup - m->start + m->off;
	return location;
}

/* A sample's memory: first what the sample contains, then what its source stored. */
struct sample_memory {
	struct uw_memory regions;
	const struct event_sample *sample;
};

static int read_sample(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct sample_memory *memory = ctx;
	const struct event_sample *s = memory->sample;
	int err = uw_memory_read(&memory->regions, addr, out, size);

	return err ? s->read(s->read_ctx, addr, out, size) : 0;
}

struct recorded_steps {
	struct uw_step *steps;
	size_t n;
};

static void record_step(void *ctx, const struct uw_step *step)
{
	struct recorded_steps *recorded = ctx;

	recorded->steps[recorded->n++] = *step; /* at most one for each frame */
}

/* Record the steps of this walk, if options.explain asks for this sample. */
static void explain(struct pipeline *p, struct uw_space *space, const struct uw_thread *thread,
		    const struct uw_stack *stack, struct walked *walked)
{
	struct recorded_steps recorded = { .steps = p->steps };

	if (!p->options.explain || !walked->number ||
	    !p->options.explain(p->options.ctx, walked->number, walked->event))
		return;
	uw_explain(space, thread, stack, record_step, &recorded);
	walked->user = stack->frames;
	walked->steps = p->steps;
	walked->n_steps = recorded.n;
}

static bool same_frame(const struct uw_frame *a, const struct uw_frame *b)
{
	return a->pc == b->pc && a->lookup == b->lookup && a->cfa == b->cfa && a->sp == b->sp &&
	       a->mapping == b->mapping && a->stepper == b->stepper &&
	       a->confidence == b->confidence && a->exact == b->exact && a->signal == b->signal;
}

/*
 * Compare an incremental walk (stack and incremental) with the full walk of the same sample, and
 * count.
 */
static void verify(struct pipeline *p, const struct uw_stack *full, const struct uw_stack *stack,
		   const struct uw_incremental *incremental)
{
	bool same = full->stop == stack->stop && full->stop_addr == stack->stop_addr &&
		    full->n_frames == stack->n_frames + incremental->n_taken;

	for (size_t i = 0; same && i < full->n_frames; i++) {
		const struct uw_frame *frame =
			incremental->n ? &incremental->frames[incremental->n - 1 - i]
				       : &stack->frames[i];

		same = same_frame(&full->frames[i], frame);
	}
	p->reuse.n_verified++;
	p->reuse.n_differing += !same;
}

/* Walk incrementally: copy the callers that have not changed since the thread's last sample. */
static void walk_incremental(struct pipeline *p, const struct event *event,
			     const struct uw_job *job, struct uw_incremental *incremental)
{
	uw_walk_incremental(p->history, (uint64_t)event->pid << 32 | event->tid, p->worker, job,
			    incremental);
	p->reuse.n_samples++;
	p->reuse.n_walked += job->stack->n_frames;
	p->reuse.n_taken += incremental->n_taken;
}

/* The state of walking a sample's user part. */
struct walk {
	struct sample_memory memory;
	struct uw_thread thread;
	struct uw_stack stack;
};

/* Set up the thread's state and the output stack for walking a sample's user part. */
static void begin_walk(struct pipeline *p, const struct event_sample *s, struct walk *walk)
{
	walk->memory = (struct sample_memory){
		.regions = { .regions = s->regions, .n_regions = s->n_regions }, .sample = s
	};
	walk->thread = (struct uw_thread){ .regs = s->regs,
					   .read = s->read ? read_sample : uw_memory_read,
					   .ctx = &walk->memory, /* regions is its first member */
					   .code_mask = s->code_mask };
	walk->stack = (struct uw_stack){ .frames = p->user, .max_frames = p->options.max_frames };
	/* The unwinder cannot step through 32-bit code yet; only the first frame is known. */
	if (s->compat)
		walk->stack.max_frames = 1;
}

/* ---- frames of interpreted code ---------------------------------------------------------- */

/*
 * Ask the runtimes of the sample's process for their frames; the n native ones are in p->native. Return
 * how many there are in *put.
 */
static size_t interpreted(struct pipeline *p, struct walked *walked, size_t n,
			  const struct runtime_put **put)
{
	size_t n_put;

	if (!n || !runtimes_concern(p->runtimes, walked->event))
		return 0;
	walked->interpreted = true;
	n_put = runtimes_decode(p->runtimes, walked->event, p->native, n, put, &walked->missing);
	p->reuse.n_interpreted += n_put || walked->missing;
	p->reuse.n_incomplete += walked->missing != NULL;
	return n_put;
}

/* Return the location of a frame of interpreted code. */
static struct location locate_put(struct pipeline *p, const struct runtime_put *put)
{
	const struct module *module = runtimes_module(p->runtimes, put);

	return (struct location){ .vaddr = put->address,
				  .module = module ? module : modules_unknown(p->modules) };
}

/*
 * Merge n_put frames into n native ones. For each frame of the result call add, innermost first, with the
 * number of the native frame, or with the other frame. Return how many there are, or a negative code.
 */
static int merge(const struct runtime_put *put, size_t n_put, size_t n,
		 int (*add)(void *ctx, size_t native, const struct runtime_put *put), void *ctx)
{
	size_t next = 0, n_all = 0;
	int err = 0;

	for (size_t i = 0; i <= n && !err; i++) {
		bool instead = false;

		for (; next < n_put && (put[next].at <= i || i == n) && !err; next++, n_all++) {
			instead |= put[next].instead && put[next].at == i;
			err = add(ctx, i, &put[next]);
		}
		if (i < n && !instead && !err) {
			err = add(ctx, i, NULL);
			n_all++;
		}
	}
	return err ? err : (int)n_all;
}

struct merging {
	struct pipeline *p;
	const struct uw_frame *frames; /* for frames */
	const uint32_t *ids;	       /* for locations: of the native frames */
	size_t to;
};

static int merge_frame(void *ctx, size_t native, const struct runtime_put *put)
{
	struct merging *m = ctx;
	const struct uw_frame *frame = put ? NULL : &m->frames[native];

	m->p->frames[m->to++] = put ? (struct walked_frame){ .location = locate_put(m->p, put),
							     .pc = put->address,
							     .stepper = UW_STEPPER_CONTEXT,
							     .exact = true }
				    : (struct walked_frame){ .location = locate(m->p, frame),
							     .pc = frame->pc,
							     .user = frame,
							     .stepper = frame->stepper,
							     .confidence = frame->confidence,
							     .exact = frame->exact };
	return 0;
}

static int merge_id(void *ctx, size_t native, const struct runtime_put *put)
{
	struct merging *m = ctx;
	struct location location;

	if (!put) {
		m->p->locations[m->to++] = m->ids[native];
		return 0;
	}
	location = locate_put(m->p, put);
	return fold_location(m->p->fold, &location, &m->p->locations[m->to++]);
}

/* ---- the user part ----------------------------------------------------------------------- */

/* Walk a sample's user part into p->frames[first] and after. Return the number of frames. */
static size_t user_frames(struct pipeline *p, const struct event *event, struct uw_space *space,
			  size_t first, struct walked *walked)
{
	const struct event_sample *s = &event->sample;
	const struct runtime_put *put = NULL;
	struct merging merging;
	struct walk walk;
	size_t n_put;
	int n;

	begin_walk(p, s, &walk);
	uw_walk(space, p->worker, &walk.thread, &walk.stack);
	if (p->options.verify_reuse && !s->compat) {
		struct uw_stack other = { .frames = p->other, .max_frames = p->options.max_frames };
		struct uw_job job = { .space = space, .thread = &walk.thread, .stack = &other };
		struct uw_incremental incremental;

		walk_incremental(p, event, &job, &incremental);
		verify(p, &walk.stack, &other, &incremental);
	}
	if (s->compat)
		walk.stack.stop = UW_STOP_COMPAT;
	for (size_t i = 0; i < walk.stack.n_frames; i++)
		p->native[i] = &walk.stack.frames[i];
	n_put = interpreted(p, walked, walk.stack.n_frames, &put);
	merging = (struct merging){ .p = p, .frames = walk.stack.frames, .to = first };
	n = merge(put, n_put, walk.stack.n_frames, merge_frame, &merging); /* cannot fail */
	explain(p, space, &walk.thread, &walk.stack, walked);
	walked->stop = walk.stack.stop;
	walked->stop_addr = walk.stack.stop_addr;
	return (size_t)n;
}

/* Return the fold's location id for a frame. */
static int number_frame(struct pipeline *p, const struct uw_frame *frame, uint32_t *out)
{
	struct location location = locate(p, frame);

	location.confidence = frame->confidence;
	return fold_location(p->fold, &location, out);
}

/*
 * Add frames of interpreted code to the n location ids in p->locations[first] and after; the frames are in
 * p->native. Return the new number of ids, or a negative code.
 */
static int merge_locations(struct pipeline *p, struct walked *walked, size_t first, size_t n)
{
	const struct runtime_put *put;
	size_t n_put = interpreted(p, walked, n, &put);
	uint32_t *ids = p->locations + first;
	struct merging merging = { .p = p, .to = first };

	if (!n_put)
		return (int)n;
	/* There is room for the native ones behind the place of the merged ones. */
	memmove(ids + n_put, ids, n * sizeof(*ids));
	merging.ids = ids + n_put;
	return merge(put, n_put, n, merge_id, &merging);
}

/*
 * Walk a sample's user part for the fold alone, into p->locations[first] and after. Frames copied
 * from the last sample have location ids already. The exception is the innermost copied frame: now
 * it was found from another frame, so its confidence can differ.
 */
static int user_locations(struct pipeline *p, const struct event *event, struct uw_space *space,
			  size_t first, struct walked *walked)
{
	const struct event_sample *s = &event->sample;
	struct uw_incremental incremental = { .n_taken = 0 };
	uint32_t *ids = p->locations + first;
	struct uw_job job;
	struct walk walk;
	size_t n, at;
	int err = 0, n_all;

	begin_walk(p, s, &walk);
	job = (struct uw_job){ .space = space, .thread = &walk.thread, .stack = &walk.stack };
	if (s->compat) {
		uw_walk(space, p->worker, &walk.thread, &walk.stack);
		walk.stack.stop = UW_STOP_COMPAT;
	} else {
		walk_incremental(p, event, &job, &incremental);
		if (p->options.verify_reuse) {
			struct uw_stack full = { .frames = p->other,
						 .max_frames = p->options.max_frames };

			uw_walk(space, p->worker, &walk.thread, &full);
			verify(p, &full, &walk.stack, &incremental);
		}
	}
	n = walk.stack.n_frames;
	if (incremental.n_taken)
		err = number_frame(p, &incremental.frames[incremental.n_taken - 1],
				   &incremental.users[incremental.n_taken - 1]);
	for (size_t i = 0; !err && i < n; i++) {
		const struct uw_frame *frame = &walk.stack.frames[i];

		err = number_frame(p, frame, &ids[i]);
		if (incremental.n)
			incremental.users[incremental.n - 1 - i] = ids[i];
		if (frame->confidence > walked->confidence)
			walked->confidence = frame->confidence;
	}
	if (err) {
		uw_history_forget(p->history); /* the history has frames without ids */
		return err;
	}
	for (size_t i = 0; i < n; i++)
		p->native[i] = &walk.stack.frames[i];
	for (at = incremental.n_taken; at-- > 0; n++) {
		ids[n] = incremental.users[at];
		p->native[n] = &incremental.frames[at];
		if (incremental.frames[at].confidence > walked->confidence)
			walked->confidence = incremental.frames[at].confidence;
	}
	n_all = merge_locations(p, walked, first, n);
	if (n_all < 0)
		return n_all;
	walked->n_frames += (size_t)n_all;
	walked->stop = walk.stack.stop;
	walked->stop_addr = walk.stack.stop_addr;
	return 0;
}

/*
 * Use the call chain that the recorder made itself, for samples without a stack copy (perf record
 * -g). Each address is looked up in its mapping by a walk that has only this pc. Such a chain lacks
 * code without frame pointers, and it cannot be checked.
 */
static size_t chain_frames(struct pipeline *p, const struct event_sample *s, struct uw_space *space,
			   size_t first, struct walked *walked)
{
	struct uw_memory nothing = { .n_regions = 0 };
	const struct machine *machine = machine_of(uw_space_machine(space));
	size_t n = s->n_user_ips < p->options.max_frames ? s->n_user_ips : p->options.max_frames;

	for (size_t i = 0; i < n; i++) {
		bool exact = i == 0;
		struct uw_thread thread = { .read = uw_memory_read, .ctx = &nothing };
		struct uw_stack stack = { .frames = p->user, .max_frames = 1 };
		struct uw_frame *frame = stack.frames;

		thread.regs.value[machine->pc] = exact ? s->user_ips[i] : s->user_ips[i] - 1;
		thread.regs.known =
			(uint64_t)1 << machine->pc | (uint64_t)1 << machine->sp; /* sp is 0 */
		uw_walk(space, p->worker, &thread, &stack);
		if (!stack.n_frames)
			*frame = (struct uw_frame){ .lookup = thread.regs.value[machine->pc] };
		frame->pc = s->user_ips[i];
		frame->signal = false;
		p->frames[first + i] = (struct walked_frame){
			.location = locate(p, frame),
			.pc = frame->pc,
			.stepper = exact ? UW_STEPPER_CONTEXT : UW_STEPPER_FP,
			.confidence = exact ? UW_CONFIDENCE_RULE : UW_CONFIDENCE_GUESS,
			.exact = exact,
		};
	}
	walked->stop = n < s->n_user_ips ? UW_STOP_MAX_FRAMES : UW_STOP_REG_UNKNOWN;
	walked->stop_addr = n ? p->frames[first + n - 1].pc : 0;
	return n;
}

/* Find the location ids of the sample's frames from number first on. */
static int fold_frames(struct pipeline *p, struct walked *w, size_t first)
{
	for (size_t i = first; i < w->n_frames; i++) {
		struct location location = w->frames[i].location;
		int err;

		location.confidence = w->frames[i].confidence;
		err = fold_location(p->fold, &location, &p->locations[i]);
		if (err)
			return err;
		if (w->frames[i].confidence > w->confidence)
			w->confidence = w->frames[i].confidence;
	}
	return 0;
}

/* How the user part of a sample is found. */
enum user_part {
	USER_NONE,   /* it has none: a kernel thread, or a task without memory */
	USER_CHAIN,  /* from the recorder's own call chain, because there is no memory to walk in */
	USER_FRAMES, /* by a walk that finds each frame */
	USER_LOCATIONS, /* by a walk that takes over callers, and finds only ids for the fold */
};

static enum user_part user_part_of(const struct pipeline *p, const struct event_sample *s)
{
	if (s->n_user_ips && !s->n_regions && !s->read)
		return USER_CHAIN;
	if (!s->has_user_regs)
		return USER_NONE;
	return pipeline_only_folds(&p->options) ? USER_LOCATIONS : USER_FRAMES;
}

int pipeline_walk(struct pipeline *p, struct uw_space *space, struct walked *walked)
{
	const struct event *event = walked->event;
	const struct event_sample *s = &event->sample;
	enum user_part part = user_part_of(p, s);
	size_t n = kernel_frames(p, s);
	int err;

	walked->has_user = part != USER_NONE;
	walked->n_kernel = walked->n_frames = n;
	if (part == USER_CHAIN)
		walked->n_frames += chain_frames(p, s, space, n, walked);
	else if (part == USER_FRAMES)
		walked->n_frames += user_frames(p, event, space, n, walked);
	err = p->fold ? fold_frames(p, walked, 0) : 0;
	if (!err && part == USER_LOCATIONS)
		err = user_locations(p, event, space, n, walked);
	return err;
}

void pipeline_walk_waker(struct pipeline *p, struct uw_space *space, struct walked *walked)
{
	const struct event *event = walked->event;
	size_t n = kernel_frames(p, &event->sample);

	walked->has_user = event->sample.has_user_regs;
	walked->n_kernel = walked->n_frames = n;
	if (walked->has_user)
		walked->n_frames += user_frames(p, event, space, n, walked);
}

#define WOKEN_BY "[woken by]"

/* Append the frame that divides a waiting thread's stack from that of the thread that woke it. */
static int append_divider(struct pipeline *p, struct walked *w)
{
	char name[128];
	const struct module *module;
	uint64_t address;

	(void)snprintf(name, sizeof(name), WOKEN_BY " %.100s", w->event->sample.wait.waker);
	module = runtimes_text(p->runtimes, WOKEN_BY, name, &address);
	if (!module)
		return -ENOMEM;
	p->frames[w->n_frames++] =
		(struct walked_frame){ .location = { .vaddr = address, .module = module },
				       .pc = address,
				       .stepper = UW_STEPPER_CONTEXT,
				       .exact = true };
	w->n_waker++;
	return 0;
}

int pipeline_join_waker(struct pipeline *p, struct walked *w)
{
	const struct event_wait *wait = &w->event->sample.wait;
	const size_t first = w->n_frames;
	struct wakers_stack stack = { .id = 0 };
	int err = 0;

	if (wait->waker_stack == EVENT_WAKER_SENT)
		stack = wakers_take(&p->wakers, wait->id);
	else if (wait->waker_stack != EVENT_WAKER_INTERRUPT)
		w->waker_lacks = event_waker_name((enum event_waker_stack)wait->waker_stack);
	if (wait->waker)
		err = append_divider(p, w);
	if (!err && stack.id) {
		memcpy(p->frames + w->n_frames, stack.frames, stack.n * sizeof(*p->frames));
		w->n_frames += stack.n;
		w->n_waker += stack.n;
		if (stack.has_user && stack.stop != UW_STOP_ROOT)
			w->waker_lacks = uw_stop_name(stack.stop);
	} else if (wait->waker_stack == EVENT_WAKER_SENT) {
		w->waker_lacks = event_waker_name(EVENT_WAKER_LOST);
	}
	free(stack.frames);
	return err || !p->fold ? err : fold_frames(p, w, first);
}

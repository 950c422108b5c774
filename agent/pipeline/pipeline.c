#include "agent/pipeline/pipeline.h"

#include "agent/pipeline/fold.h"
#include "agent/process/cgroups.h"
#include "agent/process/process.h"
#include "agent/store/keeper.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KERNEL_FRAMES 127

struct pipeline {
	struct pipeline_options options;
	const struct source_info *info;
	struct opener *opener;
	struct keeper *keeper; /* of a live recording */
	struct modules *modules;
	struct uw_steppers *steppers; /* NULL: the built-in ones will do */
	struct processes *processes;
	struct cgroups cgroups;
	struct uw_worker *worker;
	struct fold *fold;
	struct uw_frame *user;	      /* max_frames */
	struct walked_frame *frames;  /* of one sample: MAX_KERNEL_FRAMES + max_frames */
	struct location *locations;   /* the same again, as the fold wants them */
	struct accounting now, total; /* since the last take; before it */
	uint64_t number;
	struct uw_step *steps; /* max_frames, where somebody may ask */
};

int pipeline_new(const struct pipeline_options *options, const struct source_info *info,
		 struct pipeline **out)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	struct opener_options opening = { .live = options->live,
					  .symfs = options->symfs,
					  .exe = options->exe,
					  .beside = options->beside,
					  .until_ns = options->until_ns };
	size_t max;
	int err;

	if (!p)
		return -ENOMEM;
	p->options = *options;
	if (!p->options.max_frames)
		p->options.max_frames = 1024;
	p->info = info;
	max = MAX_KERNEL_FRAMES + p->options.max_frames;
	p->user = calloc(p->options.max_frames, sizeof(*p->user));
	p->frames = calloc(max, sizeof(*p->frames));
	p->locations = calloc(max, sizeof(*p->locations));
	if (options->explain)
		p->steps = calloc(p->options.max_frames, sizeof(*p->steps));
	err = p->user && p->frames && p->locations && (p->steps || !options->explain) ? 0 : -ENOMEM;
	if (!err)
		err = opener_new(&opening, &p->opener);
	if (!err)
		err = modules_new(p->opener, info, options->live, &p->modules);
	/*
	 * Compiling pays over the samples of a long recording, not over those of one
	 * that is read once: clang's 2,400 took 310 ms with it and 155 without.  What
	 * the store has costs nobody anything.  Without the keeper's thread there is
	 * less speed and nothing else is missing.
	 */
	if (!err && options->live && keeper_new(options->store, &p->keeper))
		p->keeper = NULL;
	if (!err)
		modules_tables(p->modules, options->store, p->keeper);
	if (!err)
		err = processes_new(info->machine, p->modules, &p->processes);
	if (!err && options->scan)
		err = uw_steppers_new(&p->steppers);
	if (!err && options->scan) {
		(void)uw_steppers_enable(p->steppers, "scan", true);
		processes_use(p->processes, p->steppers);
	}
	if (!err)
		err = uw_worker_new(&p->worker);
	if (!err && options->fold)
		err = fold_new(&p->fold);
	if (err) {
		pipeline_free(p);
		return err;
	}
	*out = p;
	return 0;
}

void pipeline_free(struct pipeline *p)
{
	if (!p)
		return;
	fold_free(p->fold);
	uw_worker_free(p->worker);
	processes_free(p->processes);
	cgroups_fini(&p->cgroups);
	uw_steppers_free(p->steppers);
	keeper_free(p->keeper);
	if (p->modules)
		modules_want(p->modules);
	modules_free(p->modules);
	opener_free(p->opener);
	free(p->user);
	free(p->frames);
	free(p->locations);
	free(p->steps);
	free(p);
}

struct opener *pipeline_opener(struct pipeline *p)
{
	return p->opener;
}

struct modules *pipeline_modules(struct pipeline *p)
{
	return p->modules;
}

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

static struct location locate(struct pipeline *p, const struct uw_frame *frame)
{
	const struct uw_mapping *m = frame->mapping;
	const struct module *module = m ? m->user : NULL;
	/* A signal trampoline was not called: it is returned to at its start, which names it. */
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

/* What the sample carries, then what its source kept. */
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

struct kept_steps {
	struct uw_step *steps;
	size_t n;
};

static void keep_step(void *ctx, const struct uw_step *step)
{
	struct kept_steps *kept = ctx;

	kept->steps[kept->n++] = *step; /* one a frame at most */
}

static void explain(struct pipeline *p, struct uw_space *space, const struct uw_thread *thread,
		    const struct uw_stack *stack, struct walked *walked)
{
	struct kept_steps kept = { .steps = p->steps };

	if (!p->options.explain ||
	    !p->options.explain(p->options.ctx, walked->number, walked->event))
		return;
	uw_explain(space, thread, stack, keep_step, &kept);
	walked->user = stack->frames;
	walked->steps = p->steps;
	walked->n_steps = kept.n;
}

/* Walks into p->frames from place first; gives how many. */
static size_t user_frames(struct pipeline *p, const struct event_sample *s, struct uw_space *space,
			  size_t first, struct walked *walked)
{
	struct sample_memory memory = {
		.regions = { .regions = s->regions, .n_regions = s->n_regions }, .sample = s
	};
	struct uw_thread thread = { .regs = s->regs,
				    .read = s->read ? read_sample : uw_memory_read,
				    .ctx = &memory, /* regions come first in it */
				    .code_mask = s->code_mask };
	struct uw_stack stack = { .frames = p->user, .max_frames = p->options.max_frames };

	/* Of a 32-bit thread it is known where it stands, and not yet how to go on. */
	if (s->compat)
		stack.max_frames = 1;
	uw_walk(space, p->worker, &thread, &stack);
	if (s->compat)
		stack.stop = UW_STOP_NO_USER_STATE;
	for (size_t i = 0; i < stack.n_frames; i++)
		p->frames[first + i] = (struct walked_frame){
			.location = locate(p, &stack.frames[i]),
			.pc = stack.frames[i].pc,
			.stepper = stack.frames[i].stepper,
			.confidence = stack.frames[i].confidence,
			.exact = stack.frames[i].exact,
		};
	explain(p, space, &thread, &stack, walked);
	walked->stop = stack.stop;
	walked->stop_addr = stack.stop_addr;
	return stack.n_frames;
}

/*
 * The recorder's own chain, where it copied no stack (perf record -g): each address is found in its
 * mapping by a walk that has nothing but it.  Code without frame pointers is missing from such a
 * chain, and nothing can be checked.
 */
static size_t chain_frames(struct pipeline *p, const struct event_sample *s, struct uw_space *space,
			   size_t first, struct walked *walked)
{
	struct uw_memory nothing = { .n_regions = 0 };
	bool arm = uw_space_machine(space) == EM_AARCH64;
	unsigned int pc = arm ? UW_AARCH64_PC : UW_X86_64_RIP;
	unsigned int sp = arm ? UW_AARCH64_SP : UW_X86_64_RSP;
	size_t n = s->n_user_ips < p->options.max_frames ? s->n_user_ips : p->options.max_frames;

	for (size_t i = 0; i < n; i++) {
		bool exact = i == 0;
		struct uw_thread thread = { .read = uw_memory_read, .ctx = &nothing };
		struct uw_stack stack = { .frames = p->user, .max_frames = 1 };
		struct uw_frame *frame = stack.frames;

		thread.regs.value[pc] = exact ? s->user_ips[i] : s->user_ips[i] - 1;
		thread.regs.known = (uint64_t)1 << pc | (uint64_t)1 << sp; /* at 0 */
		uw_walk(space, p->worker, &thread, &stack);
		if (!stack.n_frames)
			*frame = (struct uw_frame){ .lookup = thread.regs.value[pc] };
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

static int fold_walked(struct pipeline *p, const struct walked *w, const struct thread *thread)
{
	const struct event_sample *s = &w->event->sample;
	struct fold_sample sample = {
		.event = s->event,
		.stop = (uint8_t)w->stop,
		.has_user = w->has_user,
		.stack_cut = s->stack_cut,
		.pid = w->event->pid,
		.tid = w->event->tid,
		.comm = thread->comm,
		.process_comm = thread->process_comm,
		.cgroup_id = s->cgroup_id,
		.cgroup = s->cgroup_id ? cgroups_path(&p->cgroups, s->cgroup_id) : NULL,
		.time_ns = w->event->time_ns,
		.value = s->period,
		.alloc = s->alloc,
		.locations = p->locations,
		.n_locations = (uint32_t)w->n_frames,
		.n_kernel = (uint32_t)w->n_kernel,
	};

	for (size_t i = 0; i < w->n_frames; i++) {
		p->locations[i] = w->frames[i].location;
		p->locations[i].confidence = w->frames[i].confidence;
		if (w->frames[i].confidence > sample.confidence)
			sample.confidence = w->frames[i].confidence;
	}
	return fold_add(p->fold, &sample);
}

static int on_sample(struct pipeline *p, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct walked walked = { .number = ++p->number,
				 .event = event,
				 .frames = p->frames,
				 .stop = UW_STOP_NO_USER_STATE };
	struct thread thread;
	int err;

	err = processes_thread(p->processes, event->pid, event->tid, &thread);
	if (err)
		return err;
	walked.comm = thread.comm;
	walked.process_comm = thread.process_comm;
	walked.event_name =
		s->event < p->info->n_events ? p->info->events[s->event].name : "unknown";
	walked.n_kernel = walked.n_frames = kernel_frames(p, s);
	if (s->n_user_ips && !s->n_regions && !s->read) {
		walked.has_user = true;
		walked.n_frames += chain_frames(p, s, thread.space, walked.n_kernel, &walked);
	} else if (s->has_user_regs) {
		walked.has_user = true;
		walked.n_frames += user_frames(p, s, thread.space, walked.n_kernel, &walked);
	}
	if (p->fold)
		err = fold_walked(p, &walked, &thread);
	if (!err && p->options.on_walked)
		err = p->options.on_walked(p->options.ctx, &walked);
	if (err)
		return err;
	p->now.captured++;
	p->now.unwound++;
	p->now.stop[walked.stop]++;
	p->now.cut += s->stack_cut;
	return 0;
}

int pipeline_event(struct pipeline *p, const struct event *event)
{
	const struct event_lost *lost = &event->lost;

	switch (event->type) {
	case EVENT_SAMPLE:
		return on_sample(p, event);
	case EVENT_LOST:
		p->now.captured += lost->n_samples;
		p->now.lost[lost->reason] += lost->n_samples;
		p->now.sideband_lost += lost->n_sideband;
		return 0;
	case EVENT_CGROUP:
		return cgroups_event(&p->cgroups, &event->cgroup);
	case EVENT_FREED:
	case EVENT_EXEC:
	case EVENT_FORK:
	case EVENT_EXIT:
		if (p->fold)
			fold_event(p->fold, event);
		break;
	case EVENT_MAPPING:
	case EVENT_COMM:
		break;
	}
	return processes_event(p->processes, event);
}

int pipeline_take(struct pipeline *p, struct profile **out)
{
	struct profile *profile;
	int err = fold_take(p->fold, &profile);

	if (err)
		return err;
	/* Known by now, if ever: a pipe tells it after its first samples. */
	if (!modules_kernel(p->modules)->build_id.size && p->info->kernel_build_id.size)
		modules_kernel(p->modules)->build_id = p->info->kernel_build_id;
	profile->accounting = p->now;
	accounting_add(&p->total, &p->now);
	p->now = (struct accounting){ 0 };
	*out = profile;
	return 0;
}

void pipeline_total(const struct pipeline *p, struct accounting *out)
{
	*out = p->total;
	accounting_add(out, &p->now);
}

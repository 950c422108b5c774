/*
 * agent/pipeline/pipeline.c: routes events to the process state, samples to the walk and the fold.
 */
#include "agent/pipeline/pipeline.h"

#include "agent/clock.h"
#include "agent/ending.h"
#include "agent/limits.h"
#include "agent/pipeline/pipeline_internal.h"
#include "agent/process/generated.h"
#include "agent/process/otel_context.h"
#include "agent/role/reading.h"
#include "agent/store/tables/keeper.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * If the events of mappings come so late, samples wait behind them: files are not opened then until a
 * sample needs them. A program can map tens of thousands of files a second.
 */
#define LATE_NS	      UINT64_C(500000000)
#define WAKERS_MAX    8192 /* labels of who woke threads, before those without samples go */
#define SET_MAX	      8192 /* the same of labels that threads have set */
#define COMM_MAX      64   /* bytes of a thread's name */
#define COMPILE_EVERY 256  /* samples between two checks for objects that are worth a table */

int pipeline_new(const struct pipeline_options *options, const struct source_info *info,
		 struct pipeline **out)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	struct opener_options opening = { .live = options->live,
					  .symfs = options->symfs,
					  .exe = options->exe,
					  .beside = options->beside,
					  .debug_dir = options->debug_dir,
					  .until_ns = options->until_ns,
					  .other_host = info->other_host };
	size_t max;
	int err;

	if (!p)
		return -ENOMEM;
	p->options = *options;
	if (!p->options.max_frames)
		p->options.max_frames = (size_t)limits.frames;
	p->info = info;
	p->cgroups.rules = options->rules;
	p->users.rules = options->rules;
	p->keeps.pid = label_rules_name(options->rules, "pid");
	p->keeps.tid = label_rules_name(options->rules, "tid");
	p->keeps.thread = label_rules_name(options->rules, "thread");
	p->keeps.comm = label_rules_name(options->rules, "comm");
	p->keeps.user = label_rules_name(options->rules, "user");
	p->keeps.waker = label_rules_name(options->rules, "waker") ||
			 label_rules_name(options->rules, "waker_stack");
	p->keeps.cgroup = label_rules_name(options->rules, "cgroup");
	max = 2 * (MAX_KERNEL_FRAMES + p->options.max_frames + RUNTIME_PUT_MAX) + 1;
	/*
	 * These arrays are written before they are read, and most of them is never used: do not
	 * clear them.
	 */
	p->user = reallocarray(NULL, p->options.max_frames, sizeof(*p->user));
	p->native = reallocarray(NULL, p->options.max_frames, sizeof(*p->native));
	p->frames = reallocarray(NULL, max, sizeof(*p->frames));
	p->locations = reallocarray(NULL, max, sizeof(*p->locations));
	if (options->verify_reuse)
		p->other = calloc(p->options.max_frames, sizeof(*p->other));
	if (options->explain)
		p->steps = calloc(p->options.max_frames, sizeof(*p->steps));
	err = p->user && p->native && p->frames && p->locations &&
			      (p->steps || !options->explain) &&
			      (p->other || !options->verify_reuse)
		      ? 0
		      : -ENOMEM;
	if (!err)
		err = opener_new(&opening, &p->opener);
	if (!err)
		opener_fetch(p->opener, options->store);
	if (!err)
		err = modules_new(p->opener, info, options->live, &p->modules);
	/*
	 * Compile tables only while recording. Compiling pays over the samples of a long recording
	 * and, if there is a store, over later recordings. It does not pay when a recording is read
	 * once: the 2,400 samples of clang took 310 ms with it and 155 ms without. Tables from the
	 * store cost nothing. Without the keeper's thread, walks are only slower.
	 */
	if (!err && options->live && keeper_new(options->store, &p->keeper))
		p->keeper = NULL;
	if (!err)
		modules_tables(p->modules, options->store, p->keeper);
	if (!err)
		err = processes_new(info->machine, p->modules, &p->processes);
	if (!err)
		processes_label(p->processes, options->rules);
	p->contexts.processes = p->processes;
	p->contexts.opener = p->opener;
	/*
	 * Numbers of users in a recording may be those of another machine. A capture file has them
	 * without names, and its profile is the same whenever it is made.
	 */
	if (options->live && !options->keep_files)
		p->users.opener = p->opener;
	if (!err)
		err = generated_new(p->processes, p->opener, options->live, &p->generated);
	if (!err && options->once)
		generated_wait(p->generated);
	if (!err)
		err = runtimes_new(&(struct runtimes_options){ .processes = p->processes,
							       .modules = p->modules,
							       .opener = p->opener,
							       .info = info,
							       .live = options->live },
				   &p->runtimes);
	if (!err && options->scan)
		err = uw_steppers_new(&p->steppers);
	if (!err && options->scan) {
		(void)uw_steppers_enable(p->steppers, "scan", true);
		processes_use(p->processes, p->steppers);
	}
	if (!err)
		err = uw_worker_new(&p->worker);
	if (!err && options->fold)
		err = fold_new(options->separate, &p->fold);
	if (!err && (pipeline_only_folds(options) || options->verify_reuse))
		err = uw_history_new(p->options.max_frames, (size_t)limits.history_bytes,
				     &p->history);
	if (err) {
		pipeline_free(p);
		return err;
	}
	*out = p;
	return 0;
}

bool pipeline_free(struct pipeline *p)
{
	if (!p)
		return true;
	/* The objects that the keeper compiles belong to the modules: free the keeper first. */
	if (!keeper_free(p->keeper))
		return false;
	fold_free(p->fold);
	uw_history_free(p->history);
	uw_worker_free(p->worker);
	generated_free(p->generated);
	runtimes_free(p->runtimes);
	processes_free(p->processes);
	cgroups_fini(&p->cgroups);
	users_fini(&p->users);
	strings_fini(&p->woken_by);
	wakers_fini(&p->wakers);
	strings_fini(&p->set);
	uw_steppers_free(p->steppers);
	if (p->modules)
		modules_want(p->modules);
	modules_free(p->modules);
	opener_free(p->opener);
	free(p->user);
	free(p->other);
	free(p->frames);
	free(p->native);
	free(p->locations);
	free(p->steps);
	free(p);
	return true;
}

void pipeline_end(struct pipeline *p)
{
	keeper_stop(p->keeper);
}

int pipeline_names(struct pipeline *p, const struct event *event, const char **comm,
		   const char **process_comm)
{
	struct thread thread;
	int err = processes_thread(p->processes, event->pid, event->tid, &thread);

	if (err)
		return err;
	*comm = thread.comm;
	*process_comm = thread.process_comm;
	return 0;
}

struct opener *pipeline_opener(struct pipeline *p)
{
	return p->opener;
}

struct modules *pipeline_modules(struct pipeline *p)
{
	return p->modules;
}

struct processes *pipeline_processes(struct pipeline *p)
{
	return p->processes;
}

/*
 * Return the labels of who woke a thread, and of what its stack lacks. Its name is any program's choice. NULL:
 * there are none.
 */
static const char *waker_labels(struct pipeline *p, const struct walked *w)
{
	const char *name = w->event->sample.wait.waker;
	char *sanitized = name ? sym_sanitize(name, strlen(name), COMM_MAX) : NULL;
	struct labels labels = { .n = 0 };

	if (sanitized)
		(void)labels_add(&labels, p->options.rules, "waker", sanitized);
	free(sanitized);
	if (w->waker_lacks)
		(void)labels_add(&labels, p->options.rules, "waker_stack", w->waker_lacks);
	if (!labels.n)
		return NULL;
	return strings_keep(&p->woken_by, labels.text, labels.n);
}

/*
 * Forget labels that threads have set and no sample has any more. Traces are many, so this cannot wait for events of
 * other kinds. Not while another thread reads a profile, which borrows them.
 */
static void forget_set(struct pipeline *p)
{
	size_t max = p->set_left > SET_MAX / 2 ? 2 * p->set_left : SET_MAX;

	if (!p->options.live || p->set.n <= max || atomic_load(&p->n_profiles))
		return;
	if (p->fold)
		fold_note_names(p->fold);
	strings_sweep(&p->set);
	p->set_left = p->set.n;
}

/* Find the labels that a thread has set itself. */
static void find_labels(struct pipeline *p, const struct thread *thread, struct walked *w)
{
	enum context_state state;
	struct labels labels;

	if (!w->event->sample.n_slices)
		return;
	labels.n = 0;
	labels.text[0] = '\0';
	state = runtimes_labels(p->runtimes, w->event, p->options.rules, thread->labels, &labels);
	w->unlabelled = context_says(state);
	p->reuse.n_labelled += state == CONTEXT_LABELS;
	p->reuse.n_changing += state == CONTEXT_CHANGING;
	p->reuse.n_unreadable += state == CONTEXT_MISSING;
	if (!labels.n)
		return;
	forget_set(p);
	w->labels = strings_keep(&p->set, labels.text, labels.n);
}

/* Add a walked sample to the fold. */
static int fold_walked(struct pipeline *p, const struct walked *w, const struct thread *thread)
{
	const struct event_sample *s = &w->event->sample;
	const struct cgroup *cgroup = s->cgroup_id ? cgroups_find(&p->cgroups, s->cgroup_id) : NULL;
	struct fold_sample sample = {
		.event = s->event,
		.stop = (uint8_t)w->stop,
		.confidence = w->confidence,
		.has_user = w->has_user,
		.stack_cut = s->stack_cut,
		.owner = w->event->pid,
		.pid = p->keeps.pid ? w->event->pid : 0,
		.tid = p->keeps.tid ? w->event->tid : 0,
		.comm = p->keeps.thread ? thread->comm : NULL,
		.process_comm = p->keeps.comm ? thread->process_comm : NULL,
		.cgroup_id = p->keeps.cgroup && !cgroup ? s->cgroup_id : 0,
		.labels = { [PROFILE_CGROUP] = cgroup ? cgroup->labels : NULL,
			    [PROFILE_PROCESS] = thread->labels,
			    [PROFILE_USER] =
				    s->has_uid && p->keeps.user
					    ? users_label(&p->users, s->uid, w->event->time_ns)
					    : NULL,
			    [PROFILE_WAKER] = p->keeps.waker ? waker_labels(p, w) : NULL,
			    [PROFILE_THREAD] = w->labels },
		.time_ns = w->event->time_ns,
		.value = s->period,
		.alloc = s->alloc,
		.n_off_cpu = s->wait.n ? s->wait.n : 1,
		.runnable = s->wait.runnable,
		.locations = p->locations,
		.n_locations = (uint32_t)w->n_frames,
		.n_kernel = (uint32_t)w->n_kernel,
	};

	return fold_add(p->fold, &sample);
}

/* Apply an event that the pipeline found out itself, and pass it to on_found. */
static int take_found(struct pipeline *p, const struct event *found)
{
	int err = found->type == EVENT_MEMORY ? 0 : processes_event(p->processes, found);

	return !err && p->options.on_found ? p->options.on_found(p->options.ctx, found) : err;
}

/* Take what a capture file has of what a process says of itself. Return whether there was anything new. */
static bool take_published(struct pipeline *p, uint32_t pid)
{
	struct labels labels = { .n = 0 };
	size_t size;
	const void *bytes = runtimes_published(p->runtimes, pid, &size);

	return bytes && otel_context_decode(bytes, size, p->options.rules, &labels) >= 0 &&
	       !processes_set_context(p->processes, pid, &labels);
}

/* Look for code that the event's process has generated, and find its thread. */
static int find_thread(struct pipeline *p, const struct event *event, struct thread *out)
{
	struct event found;
	int err = 0;

	for (int i = 0;
	     !err && i < GENERATED_LOOKS && generated_look(p->generated, event, &found) == 1; i++)
		err = take_found(p, &found);
	return err ? err : processes_thread(p->processes, event->pid, event->tid, out);
}

/* Pass on the memory that was read to name the interpreted code of a stack. */
static int take_memory(struct pipeline *p, const struct walked *walked)
{
	struct event found;

	if ((!walked->interpreted && !p->options.live) || runtimes_found(p->runtimes, &found) != 1)
		return 0;
	found.time_ns = walked->event->time_ns;
	return take_found(p, &found);
}

/*
 * Walk the stack of a thread that ended a wait, and store it for the wait's sample. The stack is not counted: if
 * a worker died over it, the wait only lacks it.
 */
static int on_waker(struct pipeline *p, const struct event *event)
{
	struct walked walked = { .event = event,
				 .frames = p->frames,
				 .stop = UW_STOP_NO_USER_STATE };
	struct thread thread;
	int err;

	/* It has no number of its own; the number of its wait's sample is as good. */
	if (!reading_sample(p->options.live ? event->pid : p->number + 1))
		return 0;
	err = find_thread(p, event, &thread);
	if (!err) {
		pipeline_walk_waker(p, thread.space, &walked);
		err = take_memory(p, &walked);
	}
	if (!err)
		err = wakers_put(&p->wakers, event->sample.wait.id, &walked);
	(void)reading_sample(0);
	return err;
}

/* Process a sample: look for newly generated code, walk, fold and count. */
static int on_sample(struct pipeline *p, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct walked walked = { .number = ++p->number,
				 .event = event,
				 .frames = p->frames,
				 .stop = UW_STOP_NO_USER_STATE };
	struct thread thread;
	int err;

	/* Numbers of samples say nothing to a worker that follows this one in a recording. */
	if (!reading_sample(p->options.live ? event->pid : p->number)) {
		p->now.captured++;
		p->now.lost[EVENT_LOST_CRASHED]++;
		return 0;
	}
	if (p->options.live && p->fold && contexts_look(&p->contexts, event))
		(void)runtimes_publish(p->runtimes, event->pid, p->contexts.read.bytes,
				       p->contexts.read.n);
	err = find_thread(p, event, &thread);
	if (!err && !p->options.live && take_published(p, event->pid))
		err = processes_thread(p->processes, event->pid, event->tid, &thread);
	if (err)
		return err;
	walked.comm = thread.comm;
	walked.process_comm = thread.process_comm;
	walked.event_name =
		s->event < p->info->n_events ? p->info->events[s->event].name : "unknown";
	err = pipeline_walk(p, thread.space, &walked);
	if (!err)
		find_labels(p, &thread, &walked);
	if (!err)
		err = take_memory(p, &walked);
	if (!err && s->wait.waker_stack != EVENT_WAKER_NOT_ASKED)
		err = pipeline_join_waker(p, &walked);
	if (!err && p->fold)
		err = fold_walked(p, &walked, &thread);
	if (!err && p->options.on_walked)
		err = p->options.on_walked(p->options.ctx, &walked);
	(void)reading_sample(0);
	if (err)
		return err;
	if (p->options.on_stop)
		p->options.on_stop(p->options.ctx, event, walked.stop);
	p->now.captured++;
	p->now.unwound++;
	p->now.stop[walked.stop]++;
	if (walked.stop == UW_STOP_MAX_FRAMES)
		limits_reach(frames, 1);
	p->now.cut += s->stack_cut;
	if (p->number % COMPILE_EVERY == 0)
		modules_compile(p->modules);
	return 0;
}

/*
 * While recording, forget what ended processes left, when it is much: close files that no process has
 * mapped any more, and forget modules and names that nothing refers to. Not while another thread reads
 * a profile. Profiles borrow both, so those of the profile that is being made are marked first.
 */
static void forget_ended(struct pipeline *p)
{
	if (atomic_load(&p->n_profiles))
		return;
	if (p->options.live && processes_names_are_many(p->processes)) {
		if (p->fold)
			fold_note_names(p->fold);
		processes_forget_names(p->processes);
	}
	if (p->options.live && cgroups_are_many(&p->cgroups)) {
		if (p->fold)
			fold_note_names(p->fold);
		cgroups_forget(&p->cgroups);
	}
	if (p->options.live && users_are_many(&p->users)) {
		if (p->fold)
			fold_note_names(p->fold);
		users_forget(&p->users);
	}
	if (p->options.live && p->woken_by.n > WAKERS_MAX) {
		if (p->fold)
			fold_note_names(p->fold);
		strings_sweep(&p->woken_by);
	}
	if (!p->options.keep_files && modules_are_many(p->modules, now_ns())) {
		if (p->fold)
			fold_note_modules(p->fold);
		processes_note_modules(p->processes);
		wakers_note_modules(&p->wakers);
		modules_park(p->modules, now_ns());
	}
}

int pipeline_event(struct pipeline *p, const struct event *event)
{
	const struct event_lost *lost = &event->lost;
	struct event found;
	int err = 0;

	switch (event->type) {
	case EVENT_SAMPLE:
		return on_sample(p, event);
	case EVENT_WAKER:
		return on_waker(p, event);
	case EVENT_LOST:
		p->now.captured += lost->n_samples;
		p->now.lost[lost->reason] += lost->n_samples;
		p->now.sideband_lost += lost->n_sideband;
		return 0;
	case EVENT_CGROUP:
		forget_ended(p);
		return cgroups_event(&p->cgroups, &event->cgroup);
	case EVENT_FREED:
	case EVENT_EXEC:
	case EVENT_FORK:
	case EVENT_EXIT:
		if (p->fold)
			fold_event(p->fold, event);
		if (event->type != EVENT_EXIT || event->pid != event->tid)
			break;
		if (generated_names(p->generated, event->pid, &found) == 1)
			err = take_found(p, &found);
		generated_ended(p->generated, event->pid);
		break;
	case EVENT_MAPPING:
		modules_hurry(p->modules, p->options.live && now_ns() > event->time_ns + LATE_NS);
		forget_ended(p);
		break;
	case EVENT_COMM:
		forget_ended(p);
		break;
	case EVENT_MEMORY:
		return runtimes_event(p->runtimes, event);
	case EVENT_GENERATED:
	case EVENT_CHANGED:
		break;
	}
	if (!err)
		err = processes_event(p->processes, event);
	return err ? err : runtimes_event(p->runtimes, event);
}

/* Open the files of the profile again that were closed meanwhile, for names; not without end. */
static void unpark(struct pipeline *p, const struct profile *profile)
{
	for (size_t i = 0; i < profile->n_locations && !ending_over(); i++)
		if (profile->locations[i].module)
			modules_unpark(p->modules, profile->locations[i].module);
}

int pipeline_take(struct pipeline *p, struct profile **out)
{
	struct profile *profile;
	struct event found;
	size_t at = 0;
	int err = 0;

	while (!err && generated_all_names(p->generated, &at, &found) == 1)
		err = take_found(p, &found);
	if (!err)
		err = fold_take(p->fold, &profile);
	if (err)
		return err;
	/* The next profile numbers its locations again, so the histories' ids become invalid. */
	if (p->history)
		uw_history_forget(p->history);
	/*
	 * The kernel's build-id is known by now, if at all: in a pipe it comes after the first
	 * samples.
	 */
	if (!modules_kernel(p->modules)->build_id.size && p->info->kernel_build_id.size)
		modules_kernel(p->modules)->build_id = p->info->kernel_build_id;
	unpark(p, profile);
	profile->users = &p->n_profiles;
	profile->rules = p->options.rules;
	(void)atomic_fetch_add(&p->n_profiles, 1);
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

void pipeline_reuse(const struct pipeline *p, struct pipeline_reuse *out)
{
	*out = p->reuse;
}

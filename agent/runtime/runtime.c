/* agent/runtime/runtime.c: which processes have runtimes, and when their memory is read. */
#include "agent/runtime/runtime.h"

#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/process/calls.h"
#include "agent/process/modules.h"
#include "agent/runtime/plan_execute.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WATCHES	     1024 /* a power of two; slots for processes, by the low bits of the pid */
#define RUNTIMES_MAX 4	  /* of one process */
#define EXPORTED     64 /* a power of two; files whose exports are known, by the module's serial */
#define LOOK_NS	     UINT64_C(100000000) /* between two attempts to open the memory of a process */
/* A process that could not have a plan asks for it again: those that had all plans may have ended. */
#define PLAN_NS UINT64_C(2000000000)
/*
 * Reading the memory of a user's processes takes a tenth of the time at most, of which BURST_NS can be used
 * ahead: a program that has just begun has many names. A read counts READ_NS, and PART_NS for each piece, about the CPU
 * time that it takes, as on a busy machine the opener's process waits for a CPU; but one that is waited for SLOW_NS
 * counts whole.
 * If a process did not answer, no process of that user is read while it does not.
 */
#define USERS	 16 /* a power of two; by the low bits of the user's number */
#define BURST_NS UINT64_C(2000000000)
#define READ_NS	 50000
#define PART_NS	 1000
#define SLOW_NS	 10000000
#define REST	 10

struct attached {
	const struct runtime_ops *ops;
	uint64_t serial, bias; /* of the module, and where it is */
	void *state;
};

struct exported { /* what a file exports for a runtime: its symbols are read once, not for each process */
	uint64_t serial;		/* of the module; 0: none */
	const struct uw_object *object; /* that was looked into; only compared */
	size_t number;			/* of the runtime */
	uint64_t vaddrs[RUNTIME_EXPORTS_MAX];
};

struct watch { /* a process that has had samples */
	uint32_t pid;
	uint64_t start_ns;
	uint64_t files;	  /* thread.files when its mappings were looked through; 0: never */
	uint64_t rest_ns; /* CLOCK_MONOTONIC: while recording, they are not looked through before */
	struct attached attached[RUNTIMES_MAX];
	size_t n;
	bool unknown;		       /* it has a file that no runtime could attach to */
	struct runtime_memory *memory; /* NULL: it has no runtime */
	struct opener_user user;
	/* What its samples have beside the stack: what their threads work for, and what leads to frames. */
	struct plan *part, *plan; /* NULL: nothing */
	uint64_t base;		  /* of the plan */
	bool planned;		  /* they have it */
	uint64_t plan_ns;	  /* CLOCK_MONOTONIC: when to ask for it again; 0: no need */
	uint8_t *published;	  /* its process context; NULL: not known */
	size_t n_published;
	bool is_new;		       /* runtimes_published has not returned it */
	struct otel_context_keys keys; /* in it */
	int fd;			       /* its memory; -1: not open */
	uint64_t open_ns;	       /* CLOCK_MONOTONIC: do not try to open it before */
};

struct user {
	uint64_t spent_ns; /* reading time that is not worked off yet */
	uint64_t at_ns;	   /* CLOCK_MONOTONIC: when that was so */
	bool unanswered;
	size_t late;
};

struct runtimes {
	struct runtimes_options is;
	struct runtime_frames *frames;
	struct watch *watches[WATCHES];
	struct user users[USERS];
	struct exported exported[EXPORTED];
	struct watch *reading;		  /* of the decoding that goes on */
	struct plan_execution *execution; /* of the last sample of a core; NULL: none yet */
	struct runtime_put put[RUNTIME_PUT_MAX];
	const struct runtime_ops *put_by[RUNTIME_PUT_MAX];
};

const struct runtime_ops *runtime_of_module(const char *module)
{
	for (size_t i = 0; *module == '[' && runtimes_all[i]; i++)
		if (!strcmp(runtimes_all[i]->module, module))
			return runtimes_all[i];
	return NULL;
}

size_t runtime_number(const struct runtime_ops *runtime)
{
	size_t n = 0;

	while (runtimes_all[n] && runtimes_all[n] != runtime)
		n++;
	return n;
}

int runtimes_new(const struct runtimes_options *options, struct runtimes **out)
{
	struct runtimes *r = calloc(1, sizeof(*r));
	int err = r ? runtime_frames_new(&r->frames) : -ENOMEM;

	if (err) {
		free(r);
		return err;
	}
	r->is = *options;
	modules_set_frames(options->modules, r->frames);
	*out = r;
	return 0;
}

static void detach(struct watch *w)
{
	for (size_t i = 0; i < w->n; i++)
		w->attached[i].ops->detach(w->attached[i].state);
	w->n = 0;
	w->unknown = false;
	runtime_memory_free(w->memory);
	w->memory = NULL;
	w->plan_ns = 0;
	free(w->part);
	free(w->plan);
	free(w->published);
	w->part = w->plan = NULL;
	w->published = NULL;
	w->n_published = 0;
	w->keys = (struct otel_context_keys){ .n = 0 };
	if (w->fd >= 0)
		(void)close(w->fd);
	w->fd = -1;
}

void runtimes_free(struct runtimes *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < WATCHES; i++) {
		if (r->watches[i])
			detach(r->watches[i]);
		free(r->watches[i]);
	}
	modules_set_frames(r->is.modules, NULL);
	runtime_frames_free(r->frames);
	free(r->execution);
	free(r);
}

/* ---- which processes have runtimes --------------------------------------------------------- */

static void drop_plan(struct runtimes *r, struct watch *w)
{
	const struct plan_task task = { .start_ns = 0 };
	const struct source_info *info = r->is.info;

	if (w->planned)
		(void)info->plan(info->plan_ctx, w->pid, &task, NULL);
	w->planned = false;
}

/* Return the watch of a process; it replaces the one that had the slot. NULL: no memory. */
static struct watch *watch_of(struct runtimes *r, uint32_t pid, uint64_t start_ns)
{
	struct watch **slot = &r->watches[pid & (WATCHES - 1)], *w = *slot;
	struct process_context *context;

	if (w && w->pid == pid && (w->start_ns == start_ns || !start_ns))
		return w;
	if (w && w->pid == pid && !w->start_ns) {
		w->start_ns = start_ns; /* its memory came before its first sample */
		return w;
	}
	if (w) {
		drop_plan(r, w);
		detach(w);
	} else {
		w = *slot = malloc(sizeof(*w));
	}
	if (!w)
		return NULL;
	*w = (struct watch){ .pid = pid, .start_ns = start_ns, .fd = -1 };
	/* If its context was read for a watch that is gone, it is read again. */
	context = processes_context(r->is.processes, pid);
	if (context && context->published_ns)
		context->published_ns = context->look_ns = 0;
	return w;
}

static int need_memory(struct watch *w)
{
	return w->memory ? 0 : runtime_memory_new(&w->memory);
}

static bool has(const struct watch *w, const struct runtime_ops *ops, const struct module *module,
		uint64_t bias)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->attached[i].ops == ops &&
		    (ops->once ||
		     (w->attached[i].serial == module->serial && w->attached[i].bias == bias)))
			return true;
	return false;
}

static int read_live(void *ctx, struct opener_part *parts, size_t n);

/* Let the samples of a process have slices. Without them, there are neither frames nor labels. */
static void set_plan(struct runtimes *r, struct watch *w)
{
	const struct plan_task task = { .start_ns = w->start_ns, .base = w->base };
	const struct source_info *info = r->is.info;
	struct plan whole;
	int err;

	if (!r->is.live || !info->plan || (!w->part && !w->plan))
		return;
	err = context_join(w->part, w->plan, &whole);
	if (!err)
		err = info->plan(info->plan_ctx, w->pid, &task, &whole);
	w->planned |= !err;
	if (err == -ENOSPC && !w->plan_ns)
		log_warning("process %" PRIu32 ": its runtime's frames and its threads' labels are "
			    "left out: running processes need too many different memory plans",
			    w->pid);
	else if (err && err != -ENOSPC)
		log_debug("process %" PRIu32 ": no plan for its runtime: %s", w->pid,
			  strerror(-err));
	w->plan_ns = err == -ENOSPC ? now_ns() + PLAN_NS : 0;
}

/* Return a copy of a plan that has operations; NULL: it has none, or there is no memory. */
static struct plan *keep_plan(const struct plan *plan)
{
	struct plan *copy = plan->n ? malloc(sizeof(*copy)) : NULL;

	if (copy)
		*copy = *plan;
	return copy;
}

/*
 * What the file of a runtime says, as a capture file has it: there the file itself may be absent, or have
 * nothing but what unwinding needs. Under the address 16 * (the runtime's number in runtimes_all + 1); NOTE_OWN
 * bytes behind it is the runtime's own note.
 */
#define NOTE_OWN 8
struct file_note {
	uint64_t bias, exports[RUNTIME_EXPORTS_MAX];
};

/* Look up what a file exports for runtime number i, as vaddrs; 0 is what is not there. */
static void look_up_exports(struct runtimes *r, size_t number, const struct module *module,
			    const struct uw_object *object, size_t n, uint64_t *vaddrs)
{
	struct exported *e = &r->exported[module->serial & (EXPORTED - 1)];

	if (e->serial != module->serial || e->object != object || e->number != number) {
		*e = (struct exported){ module->serial, object, number, { 0 } };
		uw_object_exports(object, runtimes_all[number]->exports, n, e->vaddrs);
	}
	memcpy(vaddrs, e->vaddrs, n * sizeof(*vaddrs));
}

/*
 * Find the addresses that the file exports: in the file, or in the capture file. Return false if it exports
 * nothing.
 */
static bool find_exports(struct runtimes *r, struct watch *w, size_t number,
			 const struct uw_mapping *m, struct runtime_file *file)
{
	const struct runtime_ops *ops = runtimes_all[number];
	const uint64_t addr = 16 * (number + 1);
	struct file_note note = { .bias = m->bias };
	const uint8_t *noted;
	bool any = false;
	size_t n = 0;

	while (n < RUNTIME_EXPORTS_MAX && ops->exports[n])
		n++;
	look_up_exports(r, number, m->user, m->object, n, note.exports);
	for (size_t i = 0; i < n; i++) {
		any |= note.exports[i] != 0;
		note.exports[i] += note.exports[i] ? m->bias : 0;
	}
	noted = any ? NULL : runtime_piece(w->memory, addr, sizeof(note));
	if (noted)
		memcpy(&note, noted, sizeof(note));
	else if (any)
		runtime_note(w->memory, addr, &note, sizeof(note));
	memcpy(file->exports, note.exports, sizeof(note.exports));
	return !n || ((any || noted) && note.bias == m->bias);
}

bool runtime_constant(const struct runtime_file *file, uint64_t addr, void *out, size_t size)
{
	bool noted = runtime_noted(file->memory, addr) >= size;
	const uint8_t *piece;

	/* A capture file's image of the file has zeros where it has nothing, so what was noted counts. */
	if (!noted && !uw_object_read(file->object, addr - file->bias, out, size)) {
		runtime_note(file->memory, addr, out, size);
		return true;
	}
	piece = runtime_piece(file->memory, addr, size);
	if (piece)
		memcpy(out, piece, size);
	return piece != NULL;
}

/*
 * Attach runtime number i to a process whose mapping m may show its file. Return whether to try it again. The
 * sample may be NULL.
 */
static bool try_attach(struct runtimes *r, struct watch *w, size_t number, struct uw_space *space,
		       const struct uw_mapping *m, const struct event_sample *sample)
{
	static const struct event_sample nothing = { .n_regions = 0 };
	const struct runtime_ops *ops = runtimes_all[number];
	const struct uw_mapping *found = uw_space_resolved(space, m->start);
	struct runtime_file file = { .module = m->user };
	struct plan plan = { .n = 0 };
	void *state;
	int err;

	m = found ? found : m;
	if (!m->object || w->n == RUNTIMES_MAX || has(w, ops, file.module, m->bias) ||
	    need_memory(w))
		return false;
	r->reading = w;
	runtime_memory_begin(w->memory, sample ? sample : &nothing, r->is.live ? read_live : NULL,
			     r);
	if (!find_exports(r, w, number, m, &file))
		return false;
	file.object = m->object;
	file.bias = m->bias;
	file.memory = w->memory;
	file.note = 16 * (number + 1) + NOTE_OWN;
	err = ops->attach(&file, &state, &plan);
	if (err) {
		w->unknown |= err == -ENOTSUP;
		return err == -EAGAIN;
	}
	w->attached[w->n++] = (struct attached){
		.ops = ops,
		.serial = file.module->serial,
		.bias = m->bias,
		.state = state,
	};
	if (!w->plan && plan.n) {
		w->plan = keep_plan(&plan);
		w->base = m->bias;
		set_plan(r, w);
	}
	return false;
}

static bool may_be_runtime(const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; runtimes_all[i]; i++)
		if (runtimes_all[i]->is_named(slash ? slash + 1 : path))
			return true;
	return false;
}

/*
 * Look in a mapped file for the variable by which threads say what they work for. Return whether to look again.
 */
static bool try_context(struct runtimes *r, struct watch *w, struct uw_space *space,
			const struct uw_mapping *m, bool glibc)
{
	const struct uw_mapping *found = uw_space_resolved(space, m->start);
	struct context_place place;
	struct plan part;
	int err;

	m = found ? found : m;
	if (!m->object)
		return false;
	r->reading = w;
	err = context_otel_place(m->object, m->bias, glibc, read_live, r, &place);
	if (err) {
		if (err != -ENOENT)
			log_debug("process %" PRIu32 ": no labels of its threads: %s", w->pid,
				  strerror(-err));
		return err == -EAGAIN || err == -ETIME || err == -EFAULT;
	}
	context_otel_part(&place, &part);
	w->part = keep_plan(&part);
	set_plan(r, w);
	return false;
}

/* Look whether a process runs a Go program: its goroutines may have labels. */
static void try_go(struct runtimes *r, struct watch *w, struct uw_space *space,
		   const struct uw_mapping *m)
{
	const struct uw_mapping *found = uw_space_resolved(space, m->start);
	unsigned int major, minor;
	struct plan part;
	uint64_t g;
	int err;

	m = found ? found : m;
	err = m->object ? uw_object_go(m->object, &major, &minor, &g) : -ENOENT;
	if (!err)
		err = context_go_part(major, minor, g, &part);
	if (!err) {
		w->part = keep_plan(&part);
		set_plan(r, w);
	} else if (err != -ENOENT) {
		log_debug("process %" PRIu32 ": no labels of its goroutines: %s", w->pid,
			  strerror(-err));
	}
}

/* Return whether a process has mapped glibc's dynamic linker. */
static bool has_glibc(struct uw_space *space)
{
	for (const struct uw_mapping *m = uw_space_above(space, 0); m;
	     m = uw_space_above(space, m->end)) {
		const struct module *module = m->user;
		const char *slash =
			module && module->kind == MODULE_FILE ? strrchr(module->path, '/') : NULL;

		if (slash && !strncmp(slash, "/ld-linux-", 10))
			return true;
	}
	return false;
}

/* Look for runtimes among the mappings of a process. Return whether to look again. */
static bool seek(struct runtimes *r, struct watch *w, struct uw_space *space,
		 const struct event_sample *sample)
{
	bool again = false, seeks = r->is.live && w->keys.published && !w->part,
	     glibc = seeks && has_glibc(space);
	bool is_first = r->is.live && !w->part;
	uint64_t end;

	for (const struct uw_mapping *m = uw_space_above(space, 0); m;
	     m = uw_space_above(space, end)) {
		const struct module *module = m->user;
		const char *slash, *base;

		end = m->end;
		if (!module || module->kind != MODULE_FILE || !(m->prot & PROT_EXEC))
			continue;
		/* The program's own mappings are below those of its libraries. */
		if (is_first)
			try_go(r, w, space, m);
		is_first = false;
		slash = strrchr(module->path, '/');
		base = slash ? slash + 1 : module->path;
		for (size_t i = 0; runtimes_all[i]; i++)
			if (runtimes_all[i]->is_named(base))
				again |= try_attach(r, w, i, space, m, sample);
		if (seeks && !w->part)
			again |= try_context(r, w, space, m, glibc);
	}
	return again;
}

/*
 * Look for runtimes in a process if its mappings are others now. A process can have thousands of files mapped,
 * and map one more before each sample: while recording, that takes a part of the time only. NULL: no memory.
 */
static struct watch *look(struct runtimes *r, uint32_t pid, uint32_t tid,
			  const struct event_sample *sample)
{
	struct thread thread;
	struct watch *w;
	uint64_t began;

	if (processes_thread(r->is.processes, pid, tid, &thread))
		return NULL;
	w = watch_of(r, pid, sample ? sample->process_start_ns : 0);
	if (!w || (w->files == thread.files && !w->plan_ns))
		return w;
	began = now_ns();
	if (w->plan_ns && began >= w->plan_ns)
		set_plan(r, w);
	if (w->files == thread.files)
		return w;
	if (!r->is.live || began >= w->rest_ns) {
		w->files = seek(r, w, thread.space, sample) ? 0 : thread.files;
		w->rest_ns = now_ns() + REST * (now_ns() - began);
	}
	return w;
}

bool runtimes_concern(struct runtimes *r, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	const struct watch *w;

	if (!runtimes_all[0] || !s->has_user_regs || s->compat)
		return false;
	w = look(r, event->pid, event->tid, s);
	return w && (w->n || w->unknown);
}

/* ---- what processes say of themselves ------------------------------------------------------ */

/* Where a capture file has a process context, among the notes of runtimes. */
#define NOTE_PUBLISHED 2048

/* Keep a copy of what a process says of itself. */
static int keep_published(struct watch *w, const void *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, size);
	free(w->published);
	w->published = copy;
	w->n_published = size;
	w->is_new = true;
	otel_context_threads(copy, size, &w->keys);
	return 0;
}

int runtimes_publish(struct runtimes *r, uint32_t pid, const void *bytes, size_t size)
{
	struct watch *w = watch_of(r, pid, 0);
	int err = w ? need_memory(w) : -ENOMEM;

	if (!err)
		err = keep_published(w, bytes, size);
	if (err || !size || size > RUNTIME_PIECE_MAX)
		return err;
	runtime_note(w->memory, NOTE_PUBLISHED, bytes, size);
	r->reading = w;
	if (w->keys.published && !w->part)
		w->files = 0;
	return 0;
}

const void *runtimes_published(struct runtimes *r, uint32_t pid, size_t *size)
{
	struct watch *w = r->watches[pid & (WATCHES - 1)];

	if (!w || w->pid != pid || !w->is_new)
		return NULL;
	w->is_new = false;
	*size = w->n_published;
	return w->published;
}

/* Take it from a capture file. */
static int take_published(struct watch *w)
{
	size_t size = runtime_noted(w->memory, NOTE_PUBLISHED);

	return size ? keep_published(w, runtime_piece(w->memory, NOTE_PUBLISHED, size), size) : 0;
}

enum context_state runtimes_labels(struct runtimes *r, const struct event *event,
				   const struct label_rules *rules, const char *others,
				   struct labels *to)
{
	const struct watch *w = r->watches[event->pid & (WATCHES - 1)];
	bool knows = w && w->pid == event->pid && w->published;
	const struct context_input in = { .sample = &event->sample,
					  .payload = knows ? w->published : NULL,
					  .keys = knows ? &w->keys : NULL,
					  .others = others,
					  .rules = rules };

	return event->sample.n_slices ? context_decode(&in, to) : CONTEXT_NONE;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* What is known of a process is of another program now, or of none. */
static void end_program(struct runtimes *r, uint32_t pid)
{
	struct watch *w = r->watches[pid & (WATCHES - 1)];

	if (!w || w->pid != pid)
		return;
	drop_plan(r, w);
	detach(w);
	w->files = 0;
	w->open_ns = 0;
}

int runtimes_event(struct runtimes *r, const struct event *event)
{
	const struct watch *parent;
	struct watch *w;
	int err;

	switch (event->type) {
	case EVENT_MEMORY:
		w = watch_of(r, event->pid, 0);
		err = w ? need_memory(w) : -ENOMEM;
		if (err)
			return err;
		if (!w->n)
			w->files = 0; /* it may have what was missing before */
		err = runtime_memory_store(w->memory, &event->memory);
		return err ? err : take_published(w);
	case EVENT_EXEC:
		end_program(r, event->pid);
		break;
	case EVENT_EXIT:
		if (event->pid == event->tid)
			end_program(r, event->pid);
		break;
	case EVENT_MAPPING:
		if (r->is.live && event->mapping.prot & PROT_EXEC &&
		    event->pid != EVENT_PID_KERNEL && may_be_runtime(event->mapping.path))
			(void)look(r, event->pid, event->pid, NULL);
		break;
	case EVENT_FORK:
		parent = r->watches[event->fork.parent_pid & (WATCHES - 1)];
		if (r->is.live && event->pid != event->fork.parent_pid && parent &&
		    parent->pid == event->fork.parent_pid && parent->n)
			(void)look(r, event->pid, event->pid, NULL);
		break;
	default:
		break;
	}
	return 0;
}

/* ---- memory of living processes -------------------------------------------------------------- */

/* Return whether memory of this user's processes may be read now. */
static bool may_read(struct user *u, uint64_t now)
{
	uint64_t worked = u->at_ns ? (now - u->at_ns) / REST : 0;

	u->spent_ns = u->spent_ns > worked ? u->spent_ns - worked : 0;
	u->at_ns = now;
	if (u->unanswered)
		u->unanswered = opener_is_late(u->late);
	return !u->unanswered && u->spent_ns < BURST_NS;
}

/* A runtime_live_fn. */
static int read_live(void *ctx, struct opener_part *parts, size_t n)
{
	struct runtimes *r = ctx;
	struct watch *w = r->reading;
	struct user *u = &r->users[w->user.uid & (USERS - 1)];
	struct opener_wait wait = { .ns = 0 };
	uint64_t began = now_ns();
	int err;

	if (!may_read(u, began))
		return -ETIME;
	if (w->fd < 0) {
		if (began < w->open_ns)
			return -EFAULT;
		opener_user_of(r->is.opener, w->pid, &w->user);
		u = &r->users[w->user.uid & (USERS - 1)];
		if (opener_memory(r->is.opener, w->pid, &w->fd)) {
			w->fd = -1;
			w->open_ns = began + LOOK_NS;
			return -EFAULT;
		}
	}
	err = opener_read_parts(r->is.opener, w->fd, parts, n, &wait);
	began = now_ns() - began;
	u->spent_ns += began < SLOW_NS ? READ_NS + n * PART_NS : began;
	if (err == -ETIMEDOUT) {
		u->unanswered = true;
		u->late = wait.late;
		log_warning("process %" PRIu32 ": its memory does not answer: names of interpreted "
			    "code of user %" PRIu32 " are not read for some time",
			    w->pid, w->user.uid);
		return -ETIME;
	}
	return err;
}

/* ---- decoding -------------------------------------------------------------------------------- */

bool runtime_put(struct runtime_stack *s, size_t at, uint64_t address, bool instead)
{
	if (!address || s->n_put == s->max_put)
		return false;
	s->put[s->n_put++] =
		(struct runtime_put){ .at = (uint32_t)at, .instead = instead, .address = address };
	return true;
}

bool runtime_put_calls(struct runtime_stack *s, size_t at, const char *module,
		       const struct call *calls, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct runtime_name name = { .function = calls[i].function,
						   .file = calls[i].file,
						   .line = calls[i].line,
						   .start_line = calls[i].start_line };

		if (!runtime_put(s, at, runtime_frames_add(s->frames, module, &name), true))
			return false;
	}
	return true;
}

/* Sort by at; frames with the same at stay in their order. Nearly always they are sorted already. */
static void sort(struct runtimes *r, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct runtime_put put = r->put[i];
		const struct runtime_ops *by = r->put_by[i];
		size_t j = i;

		for (; j && r->put[j - 1].at > put.at; j--) {
			r->put[j] = r->put[j - 1];
			r->put_by[j] = r->put_by[j - 1];
		}
		r->put[j] = put;
		r->put_by[j] = by;
	}
}

/* The memory of a core's process. */
struct core {
	const struct event_sample *sample;
	struct uw_space *space;
};

/* A uw_read_fn. A core lacks what is in the files that were mapped. */
static int read_core(void *ctx, uint64_t addr, void *out, size_t size)
{
	const struct core *c = ctx;

	return c->sample->read(c->sample->read_ctx, addr, out, size)
		       ? module_read(c->space, addr, out, size)
		       : 0;
}

/* A core has all memory: what a plan copies of it are the sample's slices. */
static void copy_slices(struct runtimes *r, const struct watch *w, struct event_sample *s)
{
	if (!r->execution)
		r->execution = malloc(sizeof(*r->execution));
	if (!r->execution)
		return;
	memset(r->execution, 0, sizeof(*r->execution));
	r->execution->r[PLAN_BASE] = w->base;
	r->execution->r[PLAN_THREAD] = s->thread_pointer;
	s->slices_end = (uint8_t)plan_execute(r->execution, w->plan, s->read, s->read_ctx);
	s->slices = r->execution->slices;
	s->n_slices = r->execution->n;
}

size_t runtimes_decode(struct runtimes *r, const struct event *sample,
		       const struct uw_frame *const *native, size_t n,
		       const struct runtime_put **put, const char **missing)
{
	struct watch *w = r->watches[sample->pid & (WATCHES - 1)];
	uint32_t labels = context_slices(&sample->sample);
	struct event own = *sample; /* without the slices that labels are made of */
	struct runtime_stack stack = { .event = &own,
				       .frames = r->frames,
				       .native = native,
				       .n_native = n,
				       .put = r->put,
				       .max_put = RUNTIME_PUT_MAX };
	struct core core = { .sample = &sample->sample };
	struct thread thread;

	*put = r->put;
	*missing = NULL;
	if (!w || w->pid != sample->pid ||
	    processes_thread(r->is.processes, sample->pid, sample->tid, &thread))
		return 0;
	if (labels) {
		own.sample.slices += labels;
		own.sample.n_slices -= labels;
	}
	if (own.sample.read) {
		core.space = thread.space;
		own.sample.read = read_core;
		own.sample.read_ctx = &core;
	}
	if (!own.sample.n_slices && own.sample.read && own.sample.thread_pointer && w->plan)
		copy_slices(r, w, &own.sample);
	stack.space = thread.space;
	stack.calls = thread.calls;
	stack.memory = w->memory;
	r->reading = w;
	runtime_memory_begin(w->memory, &own.sample, r->is.live ? read_live : NULL, r);
	for (size_t i = 0; i < w->n; i++) {
		size_t before = stack.n_put;

		w->attached[i].ops->decode(w->attached[i].state, &stack);
		for (size_t j = before; j < stack.n_put; j++)
			r->put_by[j] = w->attached[i].ops;
	}
	sort(r, stack.n_put);
	if (!w->n)
		stack.missing = "the interpreter is of a version or a build that is not known";
	*missing = stack.missing;
	return stack.n_put;
}

const struct module *runtimes_module(struct runtimes *r, const struct runtime_put *put)
{
	return modules_runtime(r->is.modules, r->put_by[put - r->put]->module);
}

const struct module *runtimes_text(struct runtimes *r, const char *module, const char *name,
				   uint64_t *address)
{
	const struct runtime_name label = { .function = name };

	*address = runtime_frames_add(r->frames, module, &label);
	return *address ? modules_runtime(r->is.modules, module) : NULL;
}

int runtimes_found(struct runtimes *r, struct event *out)
{
	struct watch *w = r->reading;
	const void *bytes;
	size_t n = w && w->memory ? runtime_memory_news(w->memory, &bytes) : 0;

	if (!n)
		return 0;
	*out = (struct event){ .type = EVENT_MEMORY, .pid = w->pid, .tid = w->pid };
	out->memory = (struct event_memory){ bytes, n };
	return 1;
}

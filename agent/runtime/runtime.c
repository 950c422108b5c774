/* agent/runtime/runtime.c: which processes have runtimes, and when their memory is read. */
#include "agent/runtime/runtime.h"

#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/process/modules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WATCHES	     1024 /* a power of two; slots for processes, by the low bits of the pid */
#define RUNTIMES_MAX 4	  /* of one process */
#define LOOK_NS	     UINT64_C(100000000) /* between two attempts to open the memory of a process */
/*
 * Reading the memory of a user's processes takes a tenth of the time at most, but for BURST_NS that a program
 * takes that has just begun. If one did not answer, no process of that user is read while it does not.
 */
#define USERS	 16 /* a power of two; by the low bits of the user's number */
#define BURST_NS UINT64_C(200000000)
#define REST	 10

struct attached {
	const struct runtime_ops *ops;
	uint64_t serial, bias; /* of the module, and where it is */
	void *state;
};

struct watch { /* a process that has had samples */
	uint32_t pid;
	uint64_t start_ns;
	uint64_t files; /* thread.files when its mappings were looked through; 0: never */
	struct attached attached[RUNTIMES_MAX];
	size_t n;
	struct runtime_memory *memory; /* NULL: it has no runtime */
	struct opener_user user;
	int fd;		  /* its memory; -1: not open */
	uint64_t open_ns; /* CLOCK_MONOTONIC: do not try to open it before */
};

struct user {
	uint64_t spent_ns; /* reading time that is not worked off yet */
	uint64_t at_ns;	   /* CLOCK_MONOTONIC: when that was so */
	bool unanswered;
	size_t late;
};

struct runtimes {
	struct processes *processes;
	struct modules *modules;
	struct opener *opener;
	bool live;
	struct runtime_frames *frames;
	struct watch *watches[WATCHES];
	struct user users[USERS];
	struct watch *reading; /* of the decoding that goes on */
	struct runtime_put put[RUNTIME_PUT_MAX];
	const struct runtime_ops *put_by[RUNTIME_PUT_MAX];
};

int runtimes_new(struct processes *processes, struct modules *modules, struct opener *opener,
		 bool live, struct runtimes **out)
{
	struct runtimes *r = calloc(1, sizeof(*r));
	int err = r ? runtime_frames_new(&r->frames) : -ENOMEM;

	if (err) {
		free(r);
		return err;
	}
	r->processes = processes;
	r->modules = modules;
	r->opener = opener;
	r->live = live;
	modules_set_frames(modules, r->frames);
	*out = r;
	return 0;
}

static void detach(struct watch *w)
{
	for (size_t i = 0; i < w->n; i++)
		w->attached[i].ops->detach(w->attached[i].state);
	w->n = 0;
	runtime_memory_free(w->memory);
	w->memory = NULL;
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
	modules_set_frames(r->modules, NULL);
	runtime_frames_free(r->frames);
	free(r);
}

/* ---- which processes have runtimes --------------------------------------------------------- */

/* Return the watch of a process; it replaces the one that had the slot. NULL: no memory. */
static struct watch *watch_of(struct runtimes *r, uint32_t pid, uint64_t start_ns)
{
	struct watch **slot = &r->watches[pid & (WATCHES - 1)], *w = *slot;

	if (w && w->pid == pid && (w->start_ns == start_ns || !start_ns))
		return w;
	if (w && w->pid == pid && !w->start_ns) {
		w->start_ns = start_ns; /* its memory came before its first sample */
		return w;
	}
	if (w)
		detach(w);
	else
		w = *slot = malloc(sizeof(*w));
	if (!w)
		return NULL;
	*w = (struct watch){ .pid = pid, .start_ns = start_ns, .fd = -1 };
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
		if (w->attached[i].ops == ops && w->attached[i].serial == module->serial &&
		    w->attached[i].bias == bias)
			return true;
	return false;
}

/* Attach a runtime to a process whose mapping m may show its file. */
static void try_attach(struct watch *w, const struct runtime_ops *ops, struct uw_space *space,
		       const struct uw_mapping *m)
{
	struct runtime_file file = { .module = m->user };
	const struct uw_mapping *found = uw_space_resolved(space, m->start);
	size_t n = 0;
	void *state;

	m = found ? found : m;
	if (!m->object || w->n == RUNTIMES_MAX || has(w, ops, file.module, m->bias))
		return;
	while (ops->exports[n])
		n++;
	uw_object_exports(m->object, ops->exports, n, file.exports);
	for (size_t i = 0; i < n; i++)
		file.exports[i] += file.exports[i] ? m->bias : 0;
	file.object = m->object;
	file.bias = m->bias;
	if (!need_memory(w) && !ops->attach(&file, &state))
		w->attached[w->n++] = (struct attached){
			.ops = ops,
			.serial = file.module->serial,
			.bias = m->bias,
			.state = state,
		};
}

/* Look for runtimes among the mappings of a process. */
static void seek(struct watch *w, struct uw_space *space)
{
	uint64_t end;

	for (const struct uw_mapping *m = uw_space_above(space, 0); m;
	     m = uw_space_above(space, end)) {
		const struct module *module = m->user;
		const char *slash, *base;

		end = m->end;
		if (!module || module->kind != MODULE_FILE || !(m->prot & PROT_EXEC))
			continue;
		slash = strrchr(module->path, '/');
		base = slash ? slash + 1 : module->path;
		for (size_t i = 0; runtimes_all[i]; i++)
			if (runtimes_all[i]->is_named(base))
				try_attach(w, runtimes_all[i], space, m);
	}
}

bool runtimes_concern(struct runtimes *r, const struct event *event)
{
	const struct event_sample *s = &event->sample;
	struct thread thread;
	struct watch *w;

	if (!runtimes_all[0] || !s->has_user_regs || s->compat ||
	    processes_thread(r->processes, event->pid, event->tid, &thread))
		return false;
	w = watch_of(r, event->pid, s->process_start_ns);
	if (!w)
		return false;
	if (w->files != thread.files) {
		if (w->files && !w->n && w->fd >= 0) { /* of another program, maybe */
			(void)close(w->fd);
			w->fd = -1;
		}
		w->files = thread.files;
		seek(w, thread.space);
	}
	return w->n != 0;
}

int runtimes_event(struct runtimes *r, const struct event *event)
{
	struct watch *w = r->watches[event->pid & (WATCHES - 1)];
	int err;

	if (event->type == EVENT_MEMORY) {
		w = watch_of(r, event->pid, 0);
		err = w ? need_memory(w) : -ENOMEM;
		return err ? err : runtime_memory_store(w->memory, &event->memory);
	}
	if (w && w->pid == event->pid &&
	    (event->type == EVENT_EXEC ||
	     (event->type == EVENT_EXIT && event->pid == event->tid))) {
		detach(w);
		w->files = 0;
		w->open_ns = 0;
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
static int read_live(void *ctx, uint64_t addr, void *out, size_t size)
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
		opener_user_of(r->opener, w->pid, &w->user);
		u = &r->users[w->user.uid & (USERS - 1)];
		if (opener_memory(r->opener, w->pid, &w->fd)) {
			w->fd = -1;
			w->open_ns = began + LOOK_NS;
			return -EFAULT;
		}
	}
	err = opener_read_memory(r->opener, w->fd, addr, out, size, &wait);
	u->spent_ns += now_ns() - began;
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

size_t runtimes_decode(struct runtimes *r, const struct event *sample,
		       const struct uw_frame *const *native, size_t n,
		       const struct runtime_put **put, const char **missing)
{
	struct watch *w = r->watches[sample->pid & (WATCHES - 1)];
	struct runtime_stack stack = { .event = sample,
				       .frames = r->frames,
				       .native = native,
				       .n_native = n,
				       .put = r->put,
				       .max_put = RUNTIME_PUT_MAX };
	struct thread thread;

	*put = r->put;
	*missing = NULL;
	if (!w || w->pid != sample->pid ||
	    processes_thread(r->processes, sample->pid, sample->tid, &thread))
		return 0;
	stack.space = thread.space;
	stack.memory = w->memory;
	r->reading = w;
	runtime_memory_begin(w->memory, &sample->sample, r->live ? read_live : NULL, r);
	for (size_t i = 0; i < w->n; i++) {
		size_t before = stack.n_put;

		w->attached[i].ops->decode(w->attached[i].state, &stack);
		for (size_t j = before; j < stack.n_put; j++)
			r->put_by[j] = w->attached[i].ops;
	}
	sort(r, stack.n_put);
	*missing = stack.missing;
	return stack.n_put;
}

const struct module *runtimes_module(struct runtimes *r, const struct runtime_put *put)
{
	return modules_runtime(r->modules, r->put_by[put - r->put]->module);
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

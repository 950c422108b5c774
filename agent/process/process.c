/*
 * agent/process/process.c: applies mapping, fork, exec, exit and name events to the state of
 * processes.
 */
#include "agent/process/process.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * How long a task is remembered after its end, because samples from its last moments may arrive
 * later.
 */
#define LINGER_NS UINT64_C(2000000000)
/* Mappings that bound_mappings looks at. A library has data beside its code, so a few suffice. */
#define NEAR 8

/* Bytes of what frames of generated code execute: of all processes, and of one that always gets more. */
#define CALLS_ALL_MAX ((size_t)64 << 20)
#define CALLS_SMALL   ((size_t)1 << 20)

struct process {
	uint32_t pid;
	uint32_t n_tasks; /* tasks in by_tid */
	const char *comm;
	const char *exe;    /* a text with the label of its program; NULL: not known */
	const char *labels; /* with those of its context, too; NULL: it has none */
	struct process_context context;
	struct uw_space *space;
	struct calls *calls; /* as in struct thread; owned */
	bool generates;	     /* likewise, like files */
	uint64_t files;
	uint64_t next_forgotten; /* address of a mapping, see bound_mappings */
};

struct task {
	uint32_t tid, pid;
	const char *comm;
	uint64_t born; /* number of the event that created the task; 0: before the recording */
};

struct end { /* the end of a task that will be forgotten */
	uint64_t time_ns;
	uint64_t event; /* number of the exit event; a task born after it has reused the tid */
	uint32_t tid, pid;
};

struct processes {
	uint16_t machine;
	struct modules *modules;
	const struct uw_steppers *steppers;
	const struct label_rules *rules;
	struct strings comms;	   /* and labels */
	size_t forget_names_from;  /* when there are so many, names are many */
	struct process *processes; /* dense: on removal the last one fills the gap */
	uint32_t n_processes;
	size_t room_processes;
	struct uw_hash_index by_pid;
	struct task *tasks; /* dense, too */
	uint32_t n_tasks;
	size_t room_tasks;
	struct uw_hash_index by_tid;
	struct end *ends; /* ring buffer, in the order of the events */
	size_t first_end, n_ends, room_ends;
	uint64_t n_events;
	size_t n_mappings;	 /* in all spaces together */
	size_t calls_bytes;	 /* of all tables of calls together */
	uint32_t next_forgotten; /* index of a process, see bound_processes */
};

void processes_use(struct processes *p, const struct uw_steppers *steppers)
{
	p->steppers = steppers;
}

void processes_label(struct processes *p, const struct label_rules *rules)
{
	p->rules = rules;
}

int processes_new(uint16_t machine, struct modules *modules, struct processes **out)
{
	struct processes *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->machine = machine;
	p->modules = modules;
	p->forget_names_from = limits.thread_names;
	*out = p;
	return 0;
}

void processes_free(struct processes *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n_processes; i++) {
		uw_space_free(p->processes[i].space);
		calls_free(p->processes[i].calls);
	}
	free(p->processes);
	free(p->tasks);
	free(p->ends);
	uw_hash_fini(&p->by_pid);
	uw_hash_fini(&p->by_tid);
	strings_fini(&p->comms);
	free(p);
}

const struct label_rules *processes_rules(const struct processes *p)
{
	return p->rules;
}

uint16_t processes_machine(const struct processes *p)
{
	return p->machine;
}

size_t processes_count(const struct processes *p)
{
	return p->n_processes;
}

void processes_note_modules(const struct processes *p)
{
	for (uint32_t i = 0; i < p->n_processes; i++) {
		const struct uw_space *space = p->processes[i].space;

		for (const struct uw_mapping *m = uw_space_above(space, 0); m;
		     m = uw_space_above(space, m->end))
			if (m->user)
				modules_note(m->user);
	}
}

bool processes_names_are_many(const struct processes *p)
{
	return p->comms.n >= p->forget_names_from;
}

void processes_forget_names(struct processes *p)
{
	size_t before;

	for (uint32_t i = 0; i < p->n_processes; i++) {
		strings_mark(p->processes[i].comm);
		strings_mark(p->processes[i].exe);
		strings_mark(p->processes[i].labels);
	}
	for (uint32_t i = 0; i < p->n_tasks; i++)
		strings_mark(p->tasks[i].comm);
	before = p->comms.n;
	strings_sweep(&p->comms);
	limits_reach(thread_names, before - p->comms.n);
	/* Not at every name if many are in use. */
	p->forget_names_from = 2 * p->comms.n + limits.thread_names;
}

/* ---- the two arrays ---------------------------------------------------------- */

static struct process *find_process(const struct processes *p, uint32_t pid)
{
	uint32_t id = UW_HASH_FIND(i, &p->by_pid, hash_u64(0, pid), p->processes[i].pid == pid);

	return id == UW_HASH_NONE ? NULL : &p->processes[id];
}

static struct task *find_task(const struct processes *p, uint32_t tid)
{
	uint32_t id = UW_HASH_FIND(i, &p->by_tid, hash_u64(0, tid), p->tasks[i].tid == tid);

	return id == UW_HASH_NONE ? NULL : &p->tasks[id];
}

/*
 * Return whether n more mappings of all processes together would exceed the limit, and count them then.
 * The default, some 300 MB, is fifty times the mappings of a busy machine. Only a forged recording
 * exceeds it: there, a fork event costs 56 bytes and copies all mappings of the parent.
 */
static bool too_many(const struct processes *p, size_t n)
{
	if (p->n_mappings <= limits.all_mappings && n <= limits.all_mappings - p->n_mappings)
		return false;
	limits_reach(all_mappings, n);
	return true;
}

/*
 * Make room in a process that has as many mappings as it may: forget an older mapping of generated code
 * or of data. No event says that memory was unmapped, so a process that generates code here and there
 * seems to have more and more of it. Files with code stay, unless nothing else is found near. The next
 * one to forget is the one after the last, so that each has its turn. -ENOMEM.
 */
static int bound_mappings(struct process *process)
{
	int err = 0;

	/* The new one may split an older one in two. */
	while (!err && uw_space_n_mappings(process->space) + 2 > limits.mappings) {
		uint64_t addr = process->next_forgotten;
		const struct uw_mapping *m = NULL;

		limits_reach(mappings, 1);
		for (size_t i = 0; i < NEAR; i++) {
			m = uw_space_above(process->space, addr);
			if (!m)
				m = uw_space_above(process->space, 0);
			addr = m->end;
			if (m->kind != UW_MAPPING_FILE || !(m->prot & PROT_EXEC))
				break;
		}
		process->next_forgotten = m->end;
		err = uw_space_unmap(process->space, m->start, m->end);
	}
	return err;
}

static void remove_all(struct processes *p, uint32_t pid);

/*
 * Make room for one more process. Ended processes are forgotten after a while, unless the notices of
 * their ends were lost. The next one to forget is the one after the last, so that each has its turn.
 */
static void bound_processes(struct processes *p)
{
	if (p->n_processes < limits.processes)
		return;
	limits_reach(processes, 1);
	p->next_forgotten %= p->n_processes;
	remove_all(p, p->processes[p->next_forgotten++].pid);
}

/* Add a process. Takes ownership of space, also on failure. */
static int add_process(struct processes *p, uint32_t pid, const char *comm, struct uw_space *space)
{
	bound_processes(p);
	if (array_grow(p->processes, p->n_processes, p->room_processes) ||
	    uw_hash_add(&p->by_pid, hash_u64(0, pid), p->n_processes)) {
		uw_space_free(space);
		return -ENOMEM;
	}
	p->n_mappings += uw_space_n_mappings(space);
	p->processes[p->n_processes++] =
		(struct process){ .pid = pid, .comm = comm, .space = space };
	return 0;
}

static void forget_calls(struct processes *p, struct process *process)
{
	p->calls_bytes -= calls_memory(process->calls);
	calls_free(process->calls);
	process->calls = NULL;
}

/* Remove a process and its address space. The last process in the array fills the gap. */
static void remove_process(struct processes *p, struct process *process)
{
	uint32_t id = (uint32_t)(process - p->processes), last = --p->n_processes;

	p->n_mappings -= uw_space_n_mappings(process->space);
	uw_space_free(process->space);
	forget_calls(p, process);
	uw_hash_remove(&p->by_pid, hash_u64(0, process->pid), id);
	if (id == last)
		return;
	p->processes[id] = p->processes[last];
	uw_hash_renumber(&p->by_pid, hash_u64(0, p->processes[id].pid), last, id);
}

static int add_task(struct processes *p, uint32_t tid, uint32_t pid, const char *comm)
{
	if (array_grow(p->tasks, p->n_tasks, p->room_tasks) ||
	    uw_hash_add(&p->by_tid, hash_u64(0, tid), p->n_tasks))
		return -ENOMEM;
	p->tasks[p->n_tasks++] = (struct task){ .tid = tid, .pid = pid, .comm = comm };
	return 0;
}

/* Forget a task, and with its last task also its process. */
static void remove_task(struct processes *p, struct task *task)
{
	struct process *process = find_process(p, task->pid);
	uint32_t id = (uint32_t)(task - p->tasks), last = --p->n_tasks;

	if (process && !--process->n_tasks)
		remove_process(p, process);
	uw_hash_remove(&p->by_tid, hash_u64(0, task->tid), id);
	if (id == last)
		return;
	p->tasks[id] = p->tasks[last];
	uw_hash_renumber(&p->by_tid, hash_u64(0, p->tasks[id].tid), last, id);
}

/* Forget a process and all its tasks, because the pid now belongs to another process. */
static void remove_all(struct processes *p, uint32_t pid)
{
	struct task *leader = find_task(p, pid);
	struct process *process;

	/*
	 * Most processes have one task, and most pids are unknown: remove the leader first, so that
	 * all tasks are searched only if the process has more.
	 */
	if (leader && leader->pid == pid)
		remove_task(p, leader);
	process = find_process(p, pid);
	for (uint32_t i = p->n_tasks; process && process->n_tasks && i-- > 0;) {
		if (p->tasks[i].pid == pid) {
			remove_task(p, &p->tasks[i]);
			process = find_process(p, pid);
		}
	}
	if (process) /* it never had a task */
		remove_process(p, process);
}

/* ---- events -------------------------------------------------------------------- */

/* Return the sanitised name from the string pool. NULL when out of memory. */
static const char *keep_comm(struct processes *p, const char *comm)
{
	char *sanitized = sym_sanitize(comm, strnlen(comm, 64), 64);
	const char *stored =
		sanitized ? strings_keep(&p->comms, sanitized, strlen(sanitized)) : NULL;

	free(sanitized);
	return stored;
}

static int new_space(struct processes *p, struct uw_space **out)
{
	int err = uw_space_new(p->machine, modules_resolve, p->modules, out);

	if (!err && p->steppers)
		uw_space_use(*out, p->steppers);
	return err;
}

/* Add a process unless it is known, with an empty name and no mappings. -ENOMEM. */
static int need_process(struct processes *p, uint32_t pid)
{
	struct uw_space *space;
	const char *comm;
	int err;

	if (find_process(p, pid))
		return 0;
	comm = keep_comm(p, "");
	err = comm ? new_space(p, &space) : -ENOMEM;
	return err ? err : add_process(p, pid, comm, space);
}

/*
 * Find a task, or add it. An event or a sample can mention a task whose creation was not recorded.
 */
static int need_task(struct processes *p, uint32_t pid, uint32_t tid, struct task **out)
{
	struct task *task = find_task(p, tid);
	struct process *process;
	int err;

	if (task && task->pid == pid) {
		*out = task;
		return 0;
	}
	if (task)
		remove_task(p, task); /* the tid belonged to another process before */
	err = need_process(p, pid);
	if (err)
		return err;
	process = find_process(p, pid);
	err = add_task(p, tid, pid, process->comm);
	if (err)
		return err;
	process->n_tasks++;
	*out = &p->tasks[p->n_tasks - 1];
	return 0;
}

/* Add a task. If it is a new process, it shares the parent's mappings until one of them changes. */
static int on_fork(struct processes *p, const struct event *event)
{
	const struct event_fork *fork = &event->fork;
	const struct task *maker = find_task(p, fork->parent_tid);
	const char *comm = maker && maker->pid == fork->parent_pid ? maker->comm : NULL;
	struct process *parent, *process;
	struct uw_space *space;
	struct task *task;
	const char *exe;
	bool generates;
	int err;

	if (event->pid != fork->parent_pid) {
		remove_all(p, event->pid);
		parent = find_process(p, fork->parent_pid);
		if (parent) {
			if (too_many(p, uw_space_n_mappings(parent->space)))
				err = new_space(p, &space);
			else
				err = uw_space_share(parent->space, &space);
			if (err)
				return err;
			generates = parent->generates;
			exe = parent->exe;
			err = add_process(p, event->pid, comm ? comm : parent->comm, space);
			if (err)
				return err;
			process = find_process(p, event->pid);
			process->generates = generates;
			process->exe = exe;
			process->context.born_ns = event->time_ns;
			process->files = p->n_events;
		}
	}
	err = need_task(p, event->pid, event->tid, &task);
	if (!err)
		task->born = p->n_events;
	if (!err && comm)
		task->comm = comm;
	return err;
}

/* Remember when the task ended; it is forgotten LINGER_NS later. */
static int on_exit_event(struct processes *p, const struct event *event)
{
	size_t at;

	if (p->n_ends == p->room_ends) {
		size_t room = p->room_ends ? p->room_ends * 2 : 64;
		struct end *bigger = reallocarray(NULL, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		for (size_t i = 0; i < p->n_ends; i++)
			bigger[i] = p->ends[(p->first_end + i) % p->room_ends];
		free(p->ends);
		p->ends = bigger;
		p->room_ends = room;
		p->first_end = 0;
	}
	at = (p->first_end + p->n_ends++) % p->room_ends;
	p->ends[at] = (struct end){ .time_ns = event->time_ns,
				    .event = p->n_events,
				    .tid = event->tid,
				    .pid = event->pid };
	return 0;
}

/* Forget the tasks that ended at least LINGER_NS before now_ns, unless the tid was reused. */
static void forget(struct processes *p, uint64_t now_ns)
{
	while (p->n_ends) {
		struct end end = p->ends[p->first_end];
		struct task *task;

		if (now_ns < end.time_ns + LINGER_NS)
			return;
		p->first_end = (p->first_end + 1) % p->room_ends;
		p->n_ends--;
		task = find_task(p, end.tid);
		if (task && task->pid == end.pid && task->born < end.event)
			remove_task(p, task);
	}
}

/* Set a thread's name; a main thread's name is also the process's name. */
static int on_comm(struct processes *p, const struct event *event)
{
	const char *comm = keep_comm(p, event->comm.comm);
	struct task *task;
	int err;

	if (!comm)
		return -ENOMEM;
	err = need_task(p, event->pid, event->tid, &task);
	if (err)
		return err;
	task->comm = comm;
	if (event->pid == event->tid)
		find_process(p, event->pid)->comm = comm;
	return 0;
}

static enum uw_mapping_kind mapping_kind(enum module_kind kind)
{
	switch (kind) {
	case MODULE_FILE:
		return UW_MAPPING_FILE;
	case MODULE_VDSO:
		return UW_MAPPING_VDSO;
	case MODULE_JIT:
		return UW_MAPPING_ANON;
	case MODULE_KERNEL:
	case MODULE_RUNTIME:
	case MODULE_OTHER:
		break;
	}
	return UW_MAPPING_OTHER;
}

/*
 * Note which program a process runs: the first file whose code is mapped, as the kernel maps the program
 * before its dynamic linker, and the inventory reports a process's mappings in the order of addresses.
 */
static int note_exe(struct processes *p, struct process *process, const char *path)
{
	struct labels labels = { .n = 0 };

	(void)labels_add(&labels, p->rules, "exe", path);
	process->exe = strings_keep(&p->comms, labels.text, labels.n);
	return process->exe ? 0 : -ENOMEM;
}

/* Apply a mapping to a process. Mappings that walks cannot use only unmap what was there. */
static int map(struct processes *p, struct process *process, const struct event *event)
{
	struct uw_space *space = process->space;
	const struct event_mapping *m = &event->mapping;
	struct uw_mapping mapping = { .start = m->start, .end = m->end, .prot = m->prot };
	struct module *module;
	int err;

	/*
	 * Read-only file data can be read from the file later. Writable data is only known as
	 * captured.
	 */
	if (!(m->prot & PROT_EXEC) && ((m->prot & PROT_WRITE) || !(m->prot & PROT_READ)))
		return uw_space_unmap(space, m->start, m->end);
	if (too_many(p, 2)) /* it may split an existing mapping in two */
		return 0;
	module = modules_get(p->modules, event->pid, m);
	if (!module)
		return -ENOMEM;
	if (!(m->prot & PROT_EXEC) && module->kind != MODULE_FILE)
		return uw_space_unmap(space, m->start, m->end);
	if (module->kind == MODULE_FILE && m->prot & PROT_EXEC &&
	    (!process->exe || m->main_program)) {
		err = note_exe(p, process, module->path);
		if (err)
			return err;
	}
	if (module->kind == MODULE_JIT || (m->prot & PROT_EXEC && opener_is_v8(module->path)))
		process->generates = true;
	if (module->kind != MODULE_JIT)
		process->files = p->n_events;
	mapping.kind = (uint8_t)mapping_kind(module->kind);
	mapping.user = module;
	/* Kernels report an address as the offset of mappings without a file; do not use it. */
	mapping.off = module->kind == MODULE_FILE ? m->off : 0;
	err = bound_mappings(process);
	return err ? err : uw_space_map(space, &mapping);
}

/* Apply a mapping event and keep count of all mappings. The kernel's own mappings are ignored. */
static int on_mapping(struct processes *p, const struct event *event)
{
	struct process *process;
	size_t before;
	int err;

	if (event->pid == EVENT_PID_KERNEL || event->mapping.start >= event->mapping.end)
		return 0;
	err = need_process(p, event->pid);
	if (err)
		return err;
	process = find_process(p, event->pid);
	before = uw_space_n_mappings(process->space);
	err = map(p, process, event);
	p->n_mappings += uw_space_n_mappings(process->space) - before;
	return err;
}

/*
 * Take what frames of generated code execute. When the tables of all processes take too much memory, those that
 * are not small get no more.
 */
static int take_calls(struct processes *p, struct process *process, const struct event *event)
{
	size_t before = calls_memory(process->calls);
	int err;

	if (p->calls_bytes > CALLS_ALL_MAX && before > CALLS_SMALL)
		return 0;
	err = calls_take(&process->calls, event->generated.bytes, event->generated.size);
	p->calls_bytes += calls_memory(process->calls) - before;
	return err;
}

/*
 * Apply generated code that a process registered: its unwind rules to the address space, its names
 * to the JIT modules.
 */
static int on_generated(struct processes *p, const struct event *event)
{
	bool calls = calls_are(event->generated.bytes, event->generated.size);
	struct uw_dynamic *dynamic = NULL;
	struct process *process;
	int err = need_process(p, event->pid);

	if (err)
		return err;
	process = find_process(p, event->pid);
	if (calls)
		err = take_calls(p, process, event);
	else
		err = uw_dynamic_open(event->generated.bytes, event->generated.size, &dynamic);
	if (err == -EBADMSG || err == -ENOTSUP) {
		log_warning("process %" PRIu32 ": what it registered of generated code is of no "
			    "use: %s",
			    event->pid, err == -ENOTSUP ? "of another version" : "damaged");
		return 0;
	}
	if (err || calls)
		return err;
	if (!uw_dynamic_is_names(dynamic))
		uw_space_set_dynamic(process->space, dynamic);
	for (const struct uw_mapping *m = uw_space_above(process->space, 0); m;
	     m = uw_space_above(process->space, m->end)) {
		struct module *module = m->user;

		if (module && module->kind == MODULE_JIT)
			module_add_generated(module, dynamic);
	}
	uw_dynamic_put(dynamic);
	return 0;
}

int processes_event(struct processes *p, const struct event *event)
{
	struct process *process;

	p->n_events++;
	forget(p, event->time_ns);
	switch (event->type) {
	case EVENT_MAPPING:
		return on_mapping(p, event);
	case EVENT_EXEC:
		modules_process_changed(p->modules, event->pid);
		process = find_process(p, event->pid);
		if (process) {
			p->n_mappings -= uw_space_n_mappings(process->space);
			uw_space_clear(process->space);
			forget_calls(p, process);
			process->generates = false;
			process->exe = process->labels = NULL;
			process->context = (struct process_context){ .born_ns = event->time_ns };
			process->files = p->n_events;
		}
		return 0;
	case EVENT_FORK:
		if (event->pid != event->fork.parent_pid)
			modules_process_changed(p->modules, event->pid);
		return on_fork(p, event);
	case EVENT_EXIT:
		if (event->pid == event->tid)
			modules_process_changed(p->modules, event->pid);
		return on_exit_event(p, event);
	case EVENT_COMM:
		return on_comm(p, event);
	case EVENT_GENERATED:
		return on_generated(p, event);
	case EVENT_SAMPLE:
	case EVENT_WAKER:
	case EVENT_MEMORY:
	case EVENT_CGROUP:
	case EVENT_FREED:
	case EVENT_LOST:
	case EVENT_CHANGED:
		break;
	}
	return 0;
}

/* Unshare the mappings now: a walk stores the objects that it resolved in them. */
int processes_thread(struct processes *p, uint32_t pid, uint32_t tid, struct thread *out)
{
	const struct process *process;
	struct task *task;
	int err = need_task(p, pid, tid, &task);

	if (err)
		return err;
	process = find_process(p, pid);
	err = uw_space_own(process->space);
	if (err)
		return err;
	*out = (struct thread){ .tid = tid,
				.pid = pid,
				.comm = task->comm,
				.process_comm = process->comm,
				.space = process->space,
				.labels = process->labels ? process->labels : process->exe,
				.calls = process->calls,
				.generates = process->generates,
				.files = process->files };
	return 0;
}

struct process_context *processes_context(struct processes *p, uint32_t pid)
{
	struct process *process = find_process(p, pid);

	return process ? &process->context : NULL;
}

int processes_set_context(struct processes *p, uint32_t pid, const struct labels *labels)
{
	struct process *process = find_process(p, pid);
	const char *stored;
	char *whole;

	if (!process)
		return -ENOENT;
	if (asprintf(&whole, "%s%s", process->exe ? process->exe : "", labels->text) < 0)
		return -ENOMEM;
	stored = strings_keep(&p->comms, whole, strlen(whole));
	free(whole);
	if (!stored)
		return -ENOMEM;
	process->labels = stored;
	return 0;
}

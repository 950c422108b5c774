/*
 * agent/source/attach.c: captures a running process once, as a source.
 *
 * All threads are stopped (PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent and none is lost),
 * their registers and used stacks are copied, and the process continues before anything is
 * unwound. The pause is bounded for any number of threads.
 */
#include "agent/array.h"
#include "agent/clock.h"
#include "agent/log.h"
#include "agent/source/frozen.h"
#include "agent/source/machine.h"
#include "agent/source/procfs.h"
#include "agent/thread.h"
#include "base/search.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PASSES_MAX  16 /* readings of the list of threads, at most */
#define STOP_MAX_NS 1000000000u
#define COPY_MAX_NS 2000000000u
#define STACK_MAX   ((uint64_t)1 << 20)	  /* bytes of one stack */
#define MEMORY_MAX  ((uint64_t)512 << 20) /* bytes of all copies */
#define RED_ZONE    128u
#define VDSO_MAX    65536u
#define REGSET_MAX  512

struct tracee {
	uint32_t tid;
	bool stopped, gone;
	int signal; /* signal that was about to be delivered; 0: none */
};

struct attached {
	struct frozen frozen;
	struct tracee *tracees;
	size_t n_tracees, room;
	uint64_t started_ns, left; /* left: bytes that may still be copied */
	uint8_t **copies;	   /* owned */
	size_t n_copies, room_copies;
	struct event_mapping *stacks; /* mappings that may hold a stack: readable and writable */
	size_t n_stacks, room_stacks;
	/* the live thread through which memory is read: a main thread that ended has none */
	uint32_t via;
	char *error; /* for messages while opening; borrowed */
};

/* ---- stopping and resuming ----------------------------------------------------- */

static bool is_known(const struct attached *a, uint32_t tid)
{
	for (size_t i = 0; i < a->n_tracees; i++)
		if (a->tracees[i].tid == tid)
			return true;
	return false;
}

/*
 * Return whether a thread has ended. A main thread that called pthread_exit() stays a zombie until
 * the other threads end. Also true if the thread is gone.
 */
static bool is_zombie(const struct attached *a, uint32_t tid)
{
	const char state = thread_state((pid_t)a->frozen.pid, (pid_t)tid);

	return state == 'Z' || state == 'X';
}

/* Seize a thread and request its stop. Return 0 too if the thread has ended. */
static int seize(struct attached *a, uint32_t tid)
{
	int err = array_grow(a->tracees, a->n_tracees, a->room);

	if (err)
		return err;
	if (ptrace(PTRACE_SEIZE, (pid_t)tid, NULL, NULL)) {
		err = -errno;
		return err == -ESRCH || (err == -EPERM && is_zombie(a, tid)) ? 0 : err;
	}
	a->tracees[a->n_tracees++] = (struct tracee){ .tid = tid };
	(void)ptrace(PTRACE_INTERRUPT, (pid_t)tid, NULL, NULL);
	return 0;
}

/*
 * Seize all threads. Read the list of threads again until it has no new one, because threads that
 * are not stopped yet can create more.
 */
static int seize_all(struct attached *a)
{
	char path[40];
	size_t before;
	int err = 0;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/task", a->frozen.pid);
	for (int pass = 0; !err && pass < PASSES_MAX; pass++) {
		DIR *dir = opendir(path);
		struct dirent *entry;

		if (!dir)
			return a->n_tracees ? 0 : -errno;
		before = a->n_tracees;
		while (!err && (entry = readdir(dir))) {
			uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);

			if (tid && !is_known(a, tid))
				err = seize(a, tid);
		}
		(void)closedir(dir);
		if (a->n_tracees == before)
			break;
	}
	return err;
}

/* Check a thread without waiting. Return 1 if it has stopped or ended, else 0. */
static int look(struct tracee *t)
{
	int status;
	pid_t got = waitpid((pid_t)t->tid, &status, __WALL | WNOHANG);

	if (got == 0)
		return 0;
	if (got < 0 || !WIFSTOPPED(status)) {
		t->gone = true;
		return 1;
	}
	t->stopped = true;
	/*
	 * The thread stopped for a signal that was being delivered, not for PTRACE_INTERRUPT.
	 * let_go() delivers the signal.
	 */
	t->signal = status >> 16 ? 0 : WSTOPSIG(status);
	return 1;
}

/* Wait until all threads have stopped or ended, for STOP_MAX_NS at most in total. */
static void wait_all(struct attached *a)
{
	uint64_t end = now_ns() + STOP_MAX_NS;

	for (size_t i = 0; i < a->n_tracees; i++) {
		struct timespec pause = { .tv_nsec = 20000 };

		while (!look(&a->tracees[i]) && now_ns() < end) {
			(void)nanosleep(&pause, NULL);
			if (pause.tv_nsec < 1000000)
				pause.tv_nsec *= 2;
		}
	}
}

/* Detach from all threads, with the signals that were being delivered to them. */
static void let_go(struct attached *a)
{
	for (size_t i = 0; i < a->n_tracees; i++) {
		struct tracee *t = &a->tracees[i];

		if (t->gone)
			continue;
		/*
		 * A thread that sleeps in the kernel has not stopped yet, and PTRACE_DETACH
		 * requires a stopped thread. The kernel detaches it when this process ends.
		 */
		if (!t->stopped && !look(t))
			continue;
		if (t->stopped)
			(void)ptrace(PTRACE_DETACH, (pid_t)t->tid, NULL,
				     (void *)(uintptr_t)t->signal);
	}
}

/* ---- memory ---------------------------------------------------------------------- */

/* Read the process's mappings. Store the readable and writable ones for stack_at(), too. */
static int read_maps(struct attached *a)
{
	char path[40], *line = NULL;
	size_t room = 0;
	FILE *file;
	int err = 0;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/maps", a->via);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (!err && getline(&line, &room, file) > 0) {
		struct event_mapping m;

		if (procfs_maps_line(line, &m))
			continue;
		err = frozen_add_mapping(&a->frozen, &m);
		if (err || (m.prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE))
			continue;
		err = array_grow(a->stacks, a->n_stacks, a->room_stacks);
		if (!err)
			a->stacks[a->n_stacks++] = m; /* its path is not used and not valid later */
	}
	free(line);
	(void)fclose(file);
	return err;
}

/*
 * Copy as much of [addr, addr + size) as is readable from addr on. The copy lives as long as the
 * source. Return -ENOENT if nothing is readable, or if the limit for bytes or time is reached.
 */
static int copy(struct attached *a, uint64_t addr, uint64_t size, struct uw_region *out)
{
	struct iovec local, remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = size };
	uint8_t *bytes;
	ssize_t n;
	int err = array_grow(a->copies, a->n_copies, a->room_copies);

	if (err)
		return err;
	if (size > a->left || now_ns() - a->started_ns > COPY_MAX_NS)
		return -ENOENT;
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	local = (struct iovec){ .iov_base = bytes, .iov_len = size };
	n = process_vm_readv((pid_t)a->via, &local, 1, &remote, 1, 0);
	if (n <= 0) {
		free(bytes);
		return -ENOENT;
	}
	a->copies[a->n_copies++] = bytes;
	a->left -= (uint64_t)n;
	*out = (struct uw_region){ .addr = addr, .size = (uint64_t)n, .bytes = bytes };
	return 0;
}

/* Return the readable and writable mapping that contains addr, or NULL. */
static const struct event_mapping *stack_at(const struct attached *a, uint64_t addr)
{
	/* /proc lists mappings in order of address. */
	size_t low = UW_COUNT_WHILE(i, a->n_stacks, a->stacks[i].end <= addr);

	return low < a->n_stacks && a->stacks[low].start <= addr ? &a->stacks[low] : NULL;
}

/*
 * Copy [from, end of its mapping), at most STACK_MAX bytes from its beginning, as another region
 * of the thread. If it cannot be copied, the thread has one region less; only -ENOMEM is an error.
 */
static int copy_stack(struct attached *a, struct frozen_thread *thread, uint64_t from)
{
	const struct event_mapping *m = stack_at(a, from);
	uint64_t size = m ? m->end - from : 0;
	struct uw_region *regions;
	int err;

	if (!size)
		return 0;
	regions = reallocarray((void *)(uintptr_t)thread->regions, thread->n_regions + 1,
			       sizeof(*regions));
	if (!regions)
		return -ENOMEM;
	thread->regions = regions;
	err = copy(a, from, size < STACK_MAX ? size : STACK_MAX, &regions[thread->n_regions]);
	thread->n_regions += !err;
	return err == -ENOMEM ? err : 0;
}

/* Return whether a region of the thread contains addr. */
static bool is_copied(const struct frozen_thread *thread, uint64_t addr)
{
	for (size_t i = 0; i < thread->n_regions; i++)
		if (addr >= thread->regions[i].addr &&
		    addr - thread->regions[i].addr < thread->regions[i].size)
			return true;
	return false;
}

/* Copy the stack from below sp on: the red zone below it belongs to it. */
static int copy_stack_around(struct attached *a, struct frozen_thread *thread, uint64_t sp)
{
	const struct event_mapping *m = stack_at(a, sp);
	uint64_t from = sp >= RED_ZONE ? sp - RED_ZONE : 0;

	return m ? copy_stack(a, thread, from < m->start ? m->start : from) : 0;
}

/* The number of nested signal handlers on stacks of their own that are looked for. */
#define INTERRUPTED_MAX 4

/*
 * Copy the stacks of code that signal handlers interrupted.
 *
 * A handler may run on a stack of its own (sigaltstack), and the interrupted code may run on a
 * stack that cannot be found otherwise (coroutines, Go). The kernel's ucontext on the handler's
 * stack has what is needed: its uc_stack repeats the bounds of the stack on which the ucontext
 * lies, and its uc_mcontext has the interrupted sp (asm/ucontext.h). So the copied regions are
 * searched for words that look like a ucontext.
 */
static int copy_interrupted(struct attached *a, struct frozen_thread *thread,
			    const struct machine *machine)
{
	const size_t sp_off = machine->ucontext_sp, size = sp_off + 8;
	const size_t n = thread->n_regions;
	unsigned int found = 0;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		const struct uw_region region = thread->regions[i];

		for (size_t off = (0 - region.addr) % 8;
		     off <= region.size && size <= region.size - off && found < INTERRUPTED_MAX &&
		     !err;
		     off += 8) {
			/* uc_flags, uc_link, ss_sp, ss_flags, ss_size */
			uint64_t words[5], at = region.addr + off, sp;

			memcpy(words, region.bytes + off, sizeof(words));
			if (words[0] >> 16 || words[1] || words[2] > at ||
			    at - words[2] >= words[4] || words[4] > STACK_MAX)
				continue;
			memcpy(&sp, region.bytes + off + sp_off, sizeof(sp));
			if (sp - words[2] < words[4] || is_copied(thread, sp))
				continue;
			err = copy_stack_around(a, thread, sp);
			found++;
		}
	}
	return err;
}

/*
 * Copy the stacks of a thread, from below sp to the end of sp's mapping.
 *
 * If the thread runs a signal handler on another stack, copy the end of its own stack, too. That
 * stack ends at the thread pointer, where glibc and musl put the thread's control block. The main
 * thread's stack is the mapping [stack].
 */
static int copy_stacks(struct attached *a, struct frozen_thread *thread,
		       const struct machine *machine, uint64_t sp, uint64_t thread_pointer)
{
	const struct event_mapping *running = stack_at(a, sp), *home = NULL;
	uint64_t from;
	int err;

	if (!running)
		return 0;
	err = copy_stack_around(a, thread, sp);
	if (!err)
		err = copy_interrupted(a, thread, machine);
	if (err)
		return err;
	if (thread->tid == a->frozen.pid) {
		for (size_t i = 0; i < a->frozen.n_mappings; i++)
			if (!strcmp(a->frozen.mappings[i].path, "[stack]"))
				home = &a->frozen.mappings[i];
	} else if (thread_pointer) {
		home = stack_at(a, thread_pointer);
	}
	if (!home || (home->start <= sp && sp < home->end))
		return 0;
	if (is_copied(thread, home->end - 1))
		return 0;
	from = home->end;
	if (thread->tid != a->frozen.pid && thread_pointer < from)
		from = thread_pointer;
	from = from - home->start > STACK_MAX / 2 ? from - STACK_MAX / 2 : home->start;
	return copy_stack(a, thread, from);
}

/* ---- threads --------------------------------------------------------------------- */

/* Return a thread's name, "" if it cannot be read; the caller frees it. NULL: out of memory. */
static char *read_comm(uint32_t pid, uint32_t tid)
{
	char path[64], comm[64] = "";
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/task/%" PRIu32 "/comm", pid, tid);
	file = fopen(path, "re");
	if (file) {
		if (!fgets(comm, sizeof(comm), file))
			comm[0] = '\0';
		(void)fclose(file);
	}
	comm[strcspn(comm, "\n")] = '\0';
	return strdup(comm);
}

/*
 * Return the mask of the pointer authentication bits in code addresses, or 0 if the machine has
 * none.
 */
static uint64_t read_code_mask(uint32_t tid)
{
	uint64_t masks[2] = { 0 }; /* struct user_pac_mask: data, code */
	struct iovec io = { .iov_base = masks, .iov_len = sizeof(masks) };

	if (ptrace(PTRACE_GETREGSET, (pid_t)tid, (void *)NT_ARM_PAC_MASK, &io) ||
	    io.iov_len != sizeof(masks))
		return 0;
	return masks[1];
}

/*
 * Read the registers and stacks of a stopped thread and add it. A thread that could not be stopped
 * counts as lost.
 */
static int add_thread(struct attached *a, const struct tracee *t)
{
	struct frozen_thread thread = { .tid = t->tid };
	uint8_t bytes[REGSET_MAX];
	struct iovec regs = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	const struct machine *machine;
	int err;

	if (!t->stopped || ptrace(PTRACE_GETREGSET, (pid_t)t->tid, (void *)NT_PRSTATUS, &regs)) {
		a->frozen.n_lost += !t->gone;
		return 0;
	}
	machine = machine_with_regset(regs.iov_len);
	if (!machine) {
		(void)snprintf(a->error, 512,
			       "process %" PRIu32
			       ": not a 64-bit process, or for an unsupported machine",
			       a->frozen.pid);
		return -ENOTSUP;
	}
	a->frozen.source.info.machine = machine->elf;
	machine_read_regset(machine, bytes, &thread.regs);
	if (machine->signs_code)
		thread.code_mask = read_code_mask(t->tid);
	thread.comm = read_comm(a->frozen.pid, t->tid);
	if (!thread.comm ||
	    asprintf(&thread.name, "%" PRIu32 ":%" PRIu32, a->frozen.pid, t->tid) < 0) {
		free(thread.comm);
		return -ENOMEM;
	}
	err = copy_stacks(a, &thread, machine, thread.regs.value[machine->sp],
			  machine_thread_pointer(machine, bytes));
	if (err) {
		free((void *)(uintptr_t)thread.regions);
		free(thread.comm);
		free(thread.name);
		return err;
	}
	return frozen_add_thread(&a->frozen, &thread);
}

/* Copy the vDSO, which is in no file. */
static int add_vdso(struct attached *a)
{
	for (size_t i = 0; i < a->frozen.n_mappings; i++) {
		struct event_mapping *m = &a->frozen.mappings[i];
		struct uw_region image;
		int err;

		if (strcmp(m->path, "[vdso]") != 0 || m->end - m->start > VDSO_MAX)
			continue;
		err = copy(a, m->start, m->end - m->start, &image);
		if (err)
			return err == -ENOMEM ? err : 0;
		m->image = image.bytes;
		m->image_size = image.size;
	}
	return 0;
}

/* ---- the source ------------------------------------------------------------------- */

static void attached_close(struct source *source)
{
	struct attached *a = (struct attached *)source;

	for (size_t i = 0; i < a->n_copies; i++)
		free(a->copies[i]);
	free(a->copies);
	free(a->stacks);
	free(a->tracees);
	frozen_fini(&a->frozen);
	free(a);
}

static const struct source_ops ops = { .next = frozen_next, .close = attached_close };

/*
 * Capture mappings, threads and the vDSO while the threads are stopped. Return -ESRCH if no thread
 * could be stopped.
 */
static int take_all(struct attached *a)
{
	int err;

	for (size_t i = 0; i < a->n_tracees && !a->via; i++)
		if (a->tracees[i].stopped)
			a->via = a->tracees[i].tid;
	if (!a->via)
		return -ESRCH;
	err = read_maps(a);
	for (size_t i = 0; !err && i < a->n_tracees; i++)
		err = add_thread(a, &a->tracees[i]);
	return err ? err : add_vdso(a);
}

/*
 * Ask all threads to stop before waiting for the first, so that they stop at nearly the same time.
 */
int source_process_open(uint32_t pid, struct source **out, char *error)
{
	struct attached *a = calloc(1, sizeof(*a));
	char *comm;
	int err;

	if (!a) {
		(void)snprintf(error, 512, "process %" PRIu32 ": %s", pid, strerror(ENOMEM));
		return -ENOMEM;
	}
	frozen_init(&a->frozen, &ops, "process", 0);
	a->error = error;
	a->left = MEMORY_MAX;
	a->frozen.source.info.same_boot = true;
	err = procfs_group(pid, &a->frozen.pid);
	if (err)
		goto fail;
	a->started_ns = a->frozen.time_ns = now_ns();
	err = seize_all(a);
	if (!err) {
		wait_all(a);
		/* The limit of time for copying begins now, however long stopping took. */
		a->started_ns = now_ns();
		err = take_all(a);
	}
	let_go(a);
	if (err)
		goto fail;
	log_debug("process %" PRIu32 ": %zu threads, stopped for %.1f ms", a->frozen.pid,
		  a->frozen.n_threads, (double)(now_ns() - a->frozen.time_ns) / 1e6);
	if (!a->frozen.n_threads) {
		err = -ESRCH;
		goto fail;
	}
	comm = read_comm(a->frozen.pid, a->frozen.pid);
	(void)snprintf(a->frozen.comm, sizeof(a->frozen.comm), "%s", comm ? comm : "");
	free(comm);
	*out = &a->frozen.source;
	return 0;
fail:
	if (!error[0])
		(void)snprintf(error, 512, "process %" PRIu32 ": %s%s", pid,
			       err == -ENOENT ? "no such process" : strerror(-err),
			       err == -EPERM
				       ? " (needs root, or the same user where ptrace is allowed)"
				       : "");
	attached_close(&a->frozen.source);
	return err;
}

/* agent/live/bpf/bpf_attach.c: attaches the loaded BPF programs to events and probes, and detaches them. */
#include "agent/array.h"
#include "agent/live/bpf/bpf_internal.h"
#include "agent/live/bpf/multi.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DETACH_THREADS 31

/*
 * Attach a program to a perf event. The link owns fd; on failure fd is closed and errno says why.
 */
static struct bpf_link *attach_perf(struct bpf_program *program, size_t i, int fd)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options, .bpf_cookie = i);
	struct bpf_link *link = bpf_program__attach_perf_event_opts(program, fd, &options);
	int err = errno;

	if (!link)
		(void)close(fd);
	errno = err;
	return link;
}

/* Attach a program to a function or an offset of a file, in all processes. */
static struct bpf_link *attach_probe(struct bpf_program *program, size_t i,
				     const struct live_event *e)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = i, .func_name = e->symbol);

	return bpf_program__attach_uprobe_opts(program, -1, e->file, e->off, &options);
}

/* Return the program that sees who wakes threads. */
static struct bpf_program *waking_program(const struct live_bpf *bpf)
{
	const struct capture *s = bpf->skeleton;

	if (bpf->wakers)
		return bpf->fallback ? s->progs.fallback_wakers : s->progs.capture_wakers;
	return bpf->fallback ? s->progs.fallback_waking : s->progs.capture_waking;
}

/* Attach the program that sees who wakes threads. The caller attaches the one that sees them wait. */
static int attach_waking(struct live_bpf *bpf)
{
	struct bpf_link *link = bpf_program__attach(waking_program(bpf));
	int err = -errno;

	if (!link)
		return err;
	bpf->attached[bpf->n_attached++] =
		(struct live_attached){ .link = link, .multi = -1, .cpu = -1, .clock = -1 };
	if (!array_grow(bpf->attached, bpf->n_attached, bpf->room))
		return 0;
	errno = ENOMEM;
	return -ENOMEM;
}

/*
 * Old kernels do not tell a program for which event it runs. So with the fallback programs, a
 * further event has a skeleton of its own in others[i].
 */
int live_bpf_attach(struct live_bpf *bpf, size_t i, int cpu, int fd, char *error)
{
	const struct live_event *e = &bpf->events->events[i];
	struct bpf_program *program = live_bpf_program_of(
		bpf->others[i] ? bpf->others[i] : bpf->skeleton, e->kind, bpf->fallback);
	/* Old kernels accept no cookie but 0. */
	const size_t cookie = bpf->fallback ? 0 : i;
	struct bpf_link *link = NULL;
	char step[192];

	live_bpf_begin();
	if (array_grow(bpf->attached, bpf->n_attached, bpf->room)) {
		if (fd >= 0)
			(void)close(fd);
		return live_bpf_fail(error, -ENOMEM, "attaching the capture program");
	}
	switch (e->kind) {
	case LIVE_EVENT_SAMPLED:
	case LIVE_EVENT_TRACEPOINT:
		link = attach_perf(program, cookie, fd);
		break;
	case LIVE_EVENT_PROBE:
		link = attach_probe(program, cookie, e);
		break;
	case LIVE_EVENT_OFF_CPU:
		link = attach_waking(bpf) ? NULL : bpf_program__attach(program);
		break;
	case LIVE_EVENT_ALLOC:
		return 0; /* attached for each file: live_bpf_attach_allocator */
	}
	if (!link) {
		int err = -errno;

		if (e->kind == LIVE_EVENT_PROBE)
			(void)snprintf(step, sizeof(step), "probe %.80s:%.80s", e->file,
				       e->symbol ? e->symbol : e->info.name);
		else
			(void)snprintf(step, sizeof(step),
				       "attaching the capture program to event %s", e->info.name);
		return live_bpf_fail(error, err, step);
	}
	bpf->attached[bpf->n_attached++] =
		(struct live_attached){ .link = link,
					.multi = -1,
					.cpu = cpu,
					.clock = e->kind == LIVE_EVENT_SAMPLED ? fd : -1 };
	return 0;
}

/* Attach a program to one function of an allocator, at its beginning or its return. */
static int attach_function(struct live_bpf *bpf, struct bpf_program *program, uint32_t pid,
			   const char *path, uint64_t off, bool returns)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = returns);
	struct bpf_link *link;

	if (array_grow(bpf->attached, bpf->n_attached, bpf->room))
		return -ENOMEM;
	link = bpf_program__attach_uprobe_opts(program, pid ? (pid_t)pid : -1, path, off, &options);
	if (!link)
		return -errno;
	bpf->attached[bpf->n_attached++] = (struct live_attached){ link, -1, -1, -1, true, pid };
	return 0;
}

/* Return the program for the returns of an allocator's functions. */
static struct bpf_program *returns_of(const struct live_bpf *bpf)
{
	return bpf->fallback ? bpf->skeleton->progs.fallback_returns
			     : bpf->skeleton->progs.alloc_returns;
}

/* Attach a program to several functions as one link. Without cookies: to their returns. */
static int attach_multi(struct live_bpf *bpf, struct bpf_program *program, uint32_t pid,
			const char *path, const uint64_t *offs, const uint64_t *cookies, size_t n)
{
	int fd;

	if (array_grow(bpf->attached, bpf->n_attached, bpf->room))
		return -ENOMEM;
	fd = live_multi_attach(bpf_program__fd(program), pid, path, offs, cookies, n, !cookies);
	if (fd < 0)
		return fd;
	bpf->attached[bpf->n_attached++] = (struct live_attached){ NULL, fd, -1, -1, true, pid };
	return 0;
}

/*
 * Attach the probes of one file as two links: first the returns, then the beginnings, of which the
 * functions that free are first. See live_bpf_attach_allocator.
 */
static int attach_file(struct live_bpf *bpf, const char *path, uint32_t pid,
		       const struct live_alloc_place *places, size_t n)
{
	uint64_t offs[LIVE_PLACES_MAX], cookies[LIVE_PLACES_MAX], returns[LIVE_PLACES_MAX];
	size_t n_offs = 0, n_returns = 0;
	int err;

	for (size_t i = n; i-- > 0;) {
		if (places[i].function < CAPTURE_ALLOC_FREE)
			continue;
		offs[n_offs] = places[i].off;
		cookies[n_offs++] = places[i].function;
	}
	for (size_t i = 0; i < n; i++) {
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			continue;
		offs[n_offs] = places[i].off;
		cookies[n_offs++] = places[i].function;
		returns[n_returns++] = places[i].off;
	}
	err = attach_multi(bpf, returns_of(bpf), pid, path, returns, NULL, n_returns);
	if (err)
		return err;
	return attach_multi(bpf, bpf->skeleton->progs.alloc_any, pid, path, offs, cookies, n_offs);
}

int live_bpf_attach_allocator(struct live_bpf *bpf, const char *path, uint32_t pid,
			      const struct live_alloc_place *places, size_t n, char *error)
{
	const struct capture *s = bpf->skeleton;
	struct bpf_program *const programs[] = {
		[CAPTURE_ALLOC_MALLOC] = s->progs.alloc_malloc,
		[CAPTURE_ALLOC_CALLOC] = s->progs.alloc_calloc,
		[CAPTURE_ALLOC_REALLOC] = s->progs.alloc_realloc,
		[CAPTURE_ALLOC_MEMALIGN] = s->progs.alloc_memalign,
		[CAPTURE_ALLOC_POSIX_MEMALIGN] = s->progs.alloc_posix_memalign,
		[CAPTURE_ALLOC_MMAP] = s->progs.alloc_mmap,
		[CAPTURE_ALLOC_MREMAP] = s->progs.alloc_mremap,
		[CAPTURE_ALLOC_FREE] = s->progs.alloc_free,
		[CAPTURE_ALLOC_MUNMAP] = s->progs.alloc_munmap,
	};
	struct bpf_program *returns = returns_of(bpf);
	int err = 0;

	live_bpf_begin();
	if (n > LIVE_PLACES_MAX)
		return live_bpf_fail(error, -E2BIG, "watching an allocator");
	if (bpf->multi) {
		err = attach_file(bpf, path, pid, places, n);
		return err ? live_bpf_fail(error, err, "watching an allocator") : 0;
	}
	/*
	 * Attach functions that free first. Otherwise an allocation could be taken for live because
	 * its free was not seen.
	 */
	for (size_t i = n; !err && i-- > 0;)
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			err = attach_function(bpf, programs[places[i].function], pid, path,
					      places[i].off, false);
	for (size_t i = 0; !err && i < n; i++) {
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			continue;
		err = attach_function(bpf, returns, pid, path, places[i].off, true);
		if (!err)
			err = attach_function(bpf, programs[places[i].function], pid, path,
					      places[i].off, false);
	}
	return err ? live_bpf_fail(error, err, "watching an allocator") : 0;
}

int live_bpf_follow(struct live_bpf *bpf, char *error)
{
	struct bpf_program *programs[LIVE_FOLLOW_PROGRAMS] = { bpf->skeleton->progs.follow_fork,
							       bpf->skeleton->progs.follow_exit,
							       bpf->skeleton->progs.follow_free };

	live_bpf_begin();
	for (size_t i = 0; i < LIVE_FOLLOW_PROGRAMS; i++) {
		if (bpf->follow[i])
			continue;
		bpf->follow[i] = bpf_program__attach(programs[i]);
		if (!bpf->follow[i])
			return live_bpf_fail(error, -errno,
					     "following forks of the processes asked for");
	}
	return 0;
}

void live_bpf_unfollow(struct live_bpf *bpf)
{
	for (size_t i = 0; i < LIVE_FOLLOW_PROGRAMS; i++) {
		(void)bpf_link__destroy(bpf->follow[i]);
		bpf->follow[i] = NULL;
	}
}

/* Without these programs, a new cgroup is found with its first event. */
void live_bpf_watch_cgroups(struct live_bpf *bpf)
{
	struct bpf_program *programs[LIVE_CGROUP_PROGRAMS] = { bpf->skeleton->progs.cgroup_begins,
							       bpf->skeleton->progs.cgroup_ends };

	live_bpf_begin();
	for (size_t i = 0; i < LIVE_CGROUP_PROGRAMS; i++)
		if (!bpf->cgroups[i])
			bpf->cgroups[i] = bpf_program__attach(programs[i]);
}

/* ---- detaching ------------------------------------------------------------------------ */

/* Detach a program. Also frees the link or closes the descriptor. */
static void detach(struct live_attached *a)
{
	(void)bpf_link__destroy(a->link);
	a->link = NULL;
	if (a->multi >= 0)
		(void)close(a->multi);
	a->multi = -1;
}

struct detaching {
	struct live_bpf *bpf;
	bool clocks; /* detach the clocks, too */
	atomic_size_t next;
};

/* Thread function: detach programs until none is left. */
static void *detach_some(void *arg)
{
	struct detaching *d = arg;
	size_t i;

	while ((i = atomic_fetch_add(&d->next, 1)) < d->bpf->n_attached) {
		struct live_attached *a = &d->bpf->attached[i];

		if (d->clocks || a->clock < 0)
			detach(a);
	}
	return NULL;
}

/*
 * Detach all programs, with the clocks or without them. For each probe the kernel waits for every
 * CPU, which takes a tenth of a second; several threads share that time.
 */
static void detach_all(struct live_bpf *bpf, bool clocks)
{
	struct detaching d = { .bpf = bpf, .clocks = clocks };
	pthread_t threads[DETACH_THREADS];
	size_t n_slow = 0, n = 0;

	for (size_t i = 0; i < bpf->n_attached; i++)
		n_slow += bpf->attached[i].clock < 0 &&
			  (bpf->attached[i].link || bpf->attached[i].multi >= 0);
	while (n < DETACH_THREADS && n + 1 < n_slow &&
	       !pthread_create(&threads[n], NULL, detach_some, &d))
		n++;
	(void)detach_some(&d);
	for (size_t i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
}

/* Thread function: remove the probes in bpf->going until there are none. */
static void *take_away(void *arg)
{
	struct live_bpf *bpf = arg;
	struct live_attached a;
	bool any = true;

	while (any) {
		(void)pthread_mutex_lock(&bpf->going_lock);
		any = bpf->n_going != 0;
		if (any)
			a = bpf->going[--bpf->n_going];
		bpf->goer_runs = any;
		(void)pthread_mutex_unlock(&bpf->going_lock);
		if (any)
			detach(&a);
	}
	return NULL;
}

/*
 * Pass probes on to the thread that removes them. Without memory or threads they are removed here.
 */
static void let_go(struct live_bpf *bpf, struct live_attached *a)
{
	int err;

	(void)pthread_mutex_lock(&bpf->going_lock);
	err = array_grow(bpf->going, bpf->n_going, bpf->going_room);
	if (!err)
		bpf->going[bpf->n_going++] = *a;
	if (!err && !bpf->goer_runs) {
		if (bpf->goer_started)
			(void)pthread_join(bpf->goer, NULL);
		bpf->goer_started = !pthread_create(&bpf->goer, NULL, take_away, bpf);
		bpf->goer_runs = bpf->goer_started;
		if (!bpf->goer_started) {
			bpf->n_going--;
			err = -EAGAIN;
		}
	}
	(void)pthread_mutex_unlock(&bpf->going_lock);
	if (err)
		detach(a);
}

void live_bpf_detach_allocators(struct live_bpf *bpf, uint32_t pid)
{
	size_t left = 0;

	for (size_t i = 0; i < bpf->n_attached; i++) {
		struct live_attached *a = &bpf->attached[i];

		if (a->allocator && (!pid || a->pid == pid))
			let_go(bpf, a);
		else
			bpf->attached[left++] = *a;
	}
	bpf->n_attached = left;
}

size_t live_bpf_n_attached(const struct live_bpf *bpf)
{
	return bpf->n_attached;
}

void live_bpf_detach_cpu(struct live_bpf *bpf, int cpu, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < bpf->n_attached; i++) {
		if (i < n && bpf->attached[i].cpu == cpu)
			(void)bpf_link__destroy(bpf->attached[i].link);
		else
			bpf->attached[left++] = bpf->attached[i];
	}
	bpf->n_attached = left;
}

/* Disable the clocks by ioctl, which is enough for them, and detach all other programs. */
void live_bpf_stop(struct live_bpf *bpf)
{
	size_t n_detached = 0;

	/*
	 * Stop the probes at once. Otherwise memory that is allocated while the probes are removed
	 * one by one would seem to be never freed.
	 */
	__atomic_store_n(&bpf->skeleton->bss->alloc_stopped, 1, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < bpf->n_attached; i++) {
		if (bpf->attached[i].clock >= 0)
			(void)ioctl(bpf->attached[i].clock, PERF_EVENT_IOC_DISABLE, 0);
		else
			n_detached++;
	}
	if (!n_detached)
		return;
	detach_all(bpf, false);
	/* Wait for every CPU that may still run a program that is detached now. */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

/* Move the probes that the thread has not removed yet back to the attached programs. */
static void take_back_going(struct live_bpf *bpf)
{
	struct live_attached *going;
	size_t n;

	(void)pthread_mutex_lock(&bpf->going_lock);
	going = bpf->going;
	n = bpf->n_going;
	bpf->going = NULL;
	bpf->n_going = bpf->going_room = 0;
	(void)pthread_mutex_unlock(&bpf->going_lock);
	if (bpf->goer_started)
		(void)pthread_join(bpf->goer, NULL);
	bpf->goer_started = false;
	for (size_t i = 0; i < n; i++) {
		if (array_grow(bpf->attached, bpf->n_attached, bpf->room)) {
			detach(&going[i]);
			continue;
		}
		bpf->attached[bpf->n_attached++] = going[i];
	}
	free(going);
}

void live_bpf_detach_all(struct live_bpf *bpf)
{
	take_back_going(bpf);
	detach_all(bpf, true);
}

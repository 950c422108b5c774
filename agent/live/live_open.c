/* agent/live/live_open.c: opens the live source: programs, rings, inventory, events. */
#include "agent/live/live_internal.h"

#include "agent/clock.h"
#include "agent/io.h"
#include "agent/live/alloc/alloc.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/bpf/symbol.h"
#include "agent/live/host.h"
#include "agent/live/remote.h"
#include "agent/live/system/cgroup.h"
#include "agent/live/system/file_id.h"
#include "agent/live/system/inventory.h"
#include "agent/live/system/mount.h"
#include "agent/live/system/perf.h"
#include "agent/live/system/pin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define FREQUENCY_MAX 50000u
/* The filters that can be turned on while recording goes on. */
#define CHANGEABLE \
	(CAPTURE_FILTER_TASK | CAPTURE_FILTER_COMM | CAPTURE_FILTER_UID | CAPTURE_FILTER_CGROUP)
#define PID_NS_INIT_INO 0xeffffffcu /* PROC_PID_INIT_INO of the kernel */

/* source_info.plan */
static int set_plan(void *ctx, uint32_t pid, const struct plan_task *task, const struct plan *plan)
{
	struct live *live = ctx;

	/* The names of interpreted code are read soon after its samples, before its process ends. */
	if (plan && !plan->is_whole) {
		live->newest_ns = now_ns();
		if (live->tick_ns > LIVE_TICK_SOON_NS)
			live->tick_ns = LIVE_TICK_SOON_NS;
	}
	return live_bpf_plan(live->bpf, pid, task, plan);
}

/*
 * Open a mapped file that may have been deleted (source_info.file): first among the files held
 * open, then by path in a process that sees its file system. *fd is the caller's to close.
 */
static int held_file(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		     int *fd)
{
	const struct live *live = ctx;
	int err = live->pins ? live_pins_open(live->pins, major, minor, inode, fd) : -ENOENT;

	if (err && live->file_ids)
		err = live_file_ids_open(live->file_ids, major, minor, inode, fd);
	return err ? live_mounts_open(live->mounts, major, minor, inode, path, fd) : 0;
}

/*
 * Look up a kernel symbol (source_info.kernel_symbol). The symbol program is loaded at the first
 * call.
 */
static int kernel_symbol(void *ctx, uint64_t addr, struct source_kernel_symbol *out)
{
	struct live *live = ctx;

	if (!live->symbols_tried)
		(void)live_symbols_new(&live->symbols);
	live->symbols_tried = true;
	return live->symbols ? live_symbols_find(live->symbols, addr, out) : -ENOTSUP;
}

/* Describe this machine and this source in the source's info. */
static void fill_info(struct live *live)
{
	struct source_info *info = &live->base.info;

	live_host_fill(info);
	(void)snprintf(info->kind, sizeof(info->kind), "live");
	info->file = held_file;
	info->file_ctx = live;
	info->plan = set_plan;
	info->plan_ctx = live;
	info->kernel_symbol = kernel_symbol;
	info->kernel_symbol_ctx = live;
	info->red_zone = true;
}

int live_watch_sideband(struct live *live)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	for (size_t i = 0; i < live_sideband_n_fds(live->sideband); i++)
		if (epoll_ctl(live->epoll, EPOLL_CTL_ADD, live_sideband_fd(live->sideband, i),
			      &event) &&
		    errno != EEXIST)
			return -errno;
	return live_listen_for_exec(live);
}

int live_listen_for_exec(struct live *live)
{
	live->exec_due_ns = UINT64_MAX;
	if (live->allocators)
		return 0; /* then all is noticed soon */
	for (size_t i = 0; i < live_sideband_n_fds(live->sideband); i++) {
		/* Once: many programs may begin before the rings are looked at. */
		struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT,
					     .data.u64 = LIVE_EXEC };
		int fd = live_sideband_exec_fd(live->sideband, i);

		if (fd >= 0 && epoll_ctl(live->epoll, EPOLL_CTL_MOD, fd, &event) &&
		    (errno != ENOENT || epoll_ctl(live->epoll, EPOLL_CTL_ADD, fd, &event)))
			return -errno;
	}
	return 0;
}

/* Create the epoll set with the ring of samples and the side-band. */
static int watch_fds(struct live *live)
{
	/* Edge-triggered: samples may stay in the ring until their time without being new. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	live->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (live->epoll < 0 ||
	    epoll_ctl(live->epoll, EPOLL_CTL_ADD, live_bpf_ring_fd(live->bpf), &event))
		return -errno;
	return live_watch_sideband(live);
}

/* Copy the descriptions of the events into the source's info. */
static int fill_events(struct live *live)
{
	struct source_info *info = &live->base.info;

	info->events = calloc(live->events.n, sizeof(*info->events));
	if (!info->events)
		return -ENOMEM;
	for (size_t i = 0; i < live->events.n; i++)
		info->events[i] = live->events.events[i].info;
	info->n_events = live->events.n;
	return 0;
}

/* Check what can be checked before anything is opened. -EINVAL, or -ENOTSUP in a container. */
static int check_options(const struct source_live_options *options, char *error)
{
	struct stat ns;

	if (!options->count && (!options->frequency_hz || options->frequency_hz > FREQUENCY_MAX)) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "frequency must be 1 to %u Hz",
			       FREQUENCY_MAX);
		return -EINVAL;
	}
	if (options->alloc_interval > CAPTURE_INTERVAL_MAX) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "--alloc takes at most %llu bytes",
			       CAPTURE_INTERVAL_MAX);
		return -EINVAL;
	}
	/* The BPF programs see the pids of the initial pid namespace only. */
	if (!stat("/proc/self/ns/pid", &ns) && ns.st_ino != PID_NS_INIT_INO) {
		(void)snprintf(error, LIVE_ERROR_SIZE,
			       "not in the host's pid namespace; run the container with it "
			       "(docker --pid=host, Kubernetes hostPID)");
		return -ENOTSUP;
	}
	return 0;
}

/* Load the BPF programs for these options. */
static int open_bpf(struct live *live, const struct source_live_options *options, char *error)
{
	struct live_bpf_options bpf_options = { .stack_max = options->stack_max,
						.ring_bytes = options->ring_bytes,
						.events = &live->events,
						.alloc_interval = options->alloc_interval,
						.wait_rate = options->wait_rate ? options->wait_rate
										: LIVE_WAIT_RATE,
						.wakers = options->wakers,
						.waker_min_ns = options->off_cpu_min_ns,
						.filters = live_filters_of(options),
						.possible = options->changes ? CHANGEABLE : 0,
						.threads = options->n_tids != 0,
						.cpus = options->cpus,
						.n_cpus = options->n_cpus };

	return live_bpf_open(&bpf_options, &live->bpf, error);
}

/*
 * Open everything in the necessary order: programs, ring, side-band, filters, allocators, then the
 * inventory of running processes, and last the events. On failure the caller closes what was
 * opened.
 */
static int open_all(struct live *live, const struct source_live_options *options, char *error)
{
	int err = live_events_of(options, &live->events, error);

	if (!err)
		err = live_choice_copy(options, &live->choice);
	if (err) {
		if (err == -ENOMEM)
			(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(-err));
		return err;
	}
	err = open_bpf(live, options, error);
	if (err)
		return err;
	err = live_tally_init(&live->tally, live_bpf_n_cpus(live->bpf));
	if (!err)
		err = live_online_init(&live->online, live->bpf, &live->events, options->cpus,
				       options->n_cpus);
	if (!err)
		err = fill_events(live);
	if (!err)
		err = live_ring_init(&live->ring, live_bpf_ring_fd(live->bpf),
				     live_bpf_ring_size(live->bpf));
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "mapping the ring of samples: %s%s",
			       strerror(-err), live_hint(err));
		return err;
	}
	/* Without cgroup paths, samples have only the ids of their cgroups. */
	(void)live_cgroup_paths_new(&live->cgroup_paths);
	/*
	 * Without held files, programs that were deleted before they could be opened have no
	 * symbols.
	 */
	(void)live_pins_new(&live->pins);
	err = live_mounts_new(&live->mounts);
	if (!err)
		err = opener_new(&(struct opener_options){ .live = true, .irreplaceable = true },
				 &live->opener);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(-err));
		return err;
	}
	err = live_sideband_open(options->alloc_interval && (options->n_pids || options->n_tids),
				 &live->sideband, error);
	/* If there is no memory for them, build-ids are read later, together with the symbols. */
	if (!err && !live_sideband_build_ids(live->sideband))
		(void)live_file_ids_new(&live->file_ids);
	if (!err)
		err = live_selected_open(&live->selected, live->bpf, options, error);
	if (!err)
		err = live_choose(live, &live->choice.options, error);
	if (err)
		return err;
	err = watch_fds(live);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "waiting for samples: %s", strerror(-err));
		return err;
	}
	if (options->alloc_interval) {
		live_cost_time(&live->baseline);
		err = live_allocators_new(live->bpf, !live->selected.wanted, &live->allocators);
		if (!err && options->program)
			err = live_allocators_file(live->allocators, (uint32_t)options->pids[0],
						   options->program);
		if (err) {
			(void)snprintf(error, LIVE_ERROR_SIZE, "allocators: %s", strerror(-err));
			return err;
		}
	}
	/*
	 * The side-band is already on, so no event between the inventory and the side-band is
	 * missed.
	 */
	err = live_inventory(live_selected_has, &live->selected, live_enqueue, live);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "/proc: %s", strerror(-err));
		return err;
	}
	if (live->allocators) {
		err = live_allocators_failed(live->allocators, error);
		if (err)
			return err;
	}
	return live_online_start(&live->online, error);
}

/*
 * Mark descriptors and slots as absent first: if open_all fails, close releases what it did before.
 */
int source_live_open(const struct source_live_options *options, struct source **out, char *error)
{
	struct live *live;
	int err;

	if (live_remote_is_used())
		return live_remote_open(out, error);
	err = check_options(options, error);
	if (err)
		return err;
	live = calloc(1, sizeof(*live));
	if (!live) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	io_allow_many_files();
	live->base.ops = &live_ops;
	live->epoll = live->online.fd = -1;
	live->slots.ring = &live->ring;
	live->held_slot = UINT64_MAX;
	live->urgent_ns = live->exec_due_ns = UINT64_MAX;
	live->off_cpu_min_ns = options->off_cpu_min_ns;
	live->wakers = options->wakers;
	live->alloc_interval = options->alloc_interval;
	live->changes = options->changes;
	live->cpu_filter = options->n_cpus ? CAPTURE_FILTER_CPU : 0;
	live->tick_ns = options->alloc_interval ? LIVE_TICK_SOON_NS : LIVE_TICK_NS;
	live_host_vdso(&live->vdso, &live->vdso_size);
	fill_info(live);
	if (options->command)
		(void)snprintf(live->base.info.command, sizeof(live->base.info.command), "%s",
			       options->command);
	err = open_all(live, options, error);
	if (err) {
		live_ops.close(&live->base);
		return err;
	}
	*out = &live->base;
	return 0;
}

/* agent/live/live.c: delivers the events of the running system, in the order of their times. */
#include "agent/live/live_internal.h"

#include "agent/clock.h"
#include "agent/live/alloc/alloc.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/bpf/symbol.h"
#include "agent/live/remote.h"
#include "agent/live/system/cgroup.h"
#include "agent/live/system/file_id.h"
#include "agent/live/system/inventory.h"
#include "agent/live/system/mount.h"
#include "agent/live/system/perf.h"
#include "agent/live/system/pin.h"
#include "agent/log.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define MS	 ((uint64_t)1000000)
#define SWEEP_NS (10000 * MS)
#define WATCH_NS (20 * MS) /* between two checks whether a selected process is alive */

/* While the queue holds so many bytes of side-band events, the rest stays in the kernel's rings. */
#define QUEUE_BYTES_MAX (32u << 20)

/* While a long backlog is delivered, drain the rings so often that none of them overflows. */
#define DRAIN_EVERY_NS (20 * MS)
#define DRAIN_LEAST_NS (2 * MS) /* shortest time between two drains */
/* After a loss, all processes are reported again so often, for so long at once. */
#define REPORT_AGAIN_NS (2000 * MS)
#define REPORT_NS	(200 * MS)

/* Release what the last call of live_next returned. */
static void let_go(struct live *live)
{
	live_queue_release(&live->queue, live->held);
	live->held = NULL;
	live_waited_free(live->held_wait);
	live->held_wait = NULL;
	if (live->held_slot != UINT64_MAX)
		live_slots_done(&live->slots, live->held_slot);
	live->held_slot = UINT64_MAX;
}

/* Take a sample: write its event, or leave that to another process. */
static void take_sample(struct live *live, const struct live_item *sample, uint64_t now,
			struct event *event)
{
	if (live->leaves_records && !sample->is_alloc) {
		event->type = EVENT_SAMPLE;
		event->time_ns = sample->time_ns;
		event->sample.record = sample->record;
	} else {
		live_captured_sample((const void *)sample->record, live->alloc_interval, NULL,
				     live->regions, event);
	}
	live->held_slot = sample->slot;
	if (now > sample->time_ns + live->in_ring_ns)
		live->in_ring_ns = now - sample->time_ns;
}

/*
 * Take the first item of the queue. Return whether it is an event to deliver; if so, it is written
 * to *event, which is valid until let_go.
 */
static bool take(struct live *live, uint64_t now, struct event *event)
{
	struct live_item item;

	live_queue_take(&live->queue, &item);
	if (item.event) {
		if (!live_selected_takes(&live->selected, item.event) || item.unneeded) {
			live_queue_release(&live->queue, item.event);
			return false;
		}
		live->held = item.event;
		live_queue_read(item.event, event);
	} else if (item.wait) {
		live_captured_sample(&item.wait->head, live->alloc_interval, NULL, live->regions,
				     event);
		live_captured_wait(item.wait, live->wakers, event);
		live->held_wait = item.wait;
	} else {
		take_sample(live, &item, now, event);
	}
	if (event->type == EVENT_SAMPLE) {
		struct live_tally_cpu *tally = live_tally_of(&live->tally, item.cpu);

		tally->delivered++;
		tally->stack_bytes += item.stack_bytes;
	}
	/* A late item gets the time of the item before it, so that times never decrease. */
	if (event->time_ns < live->last_ns) {
		event->time_ns = live->last_ns;
		live->late++;
	}
	live->last_ns = event->time_ns;
	return true;
}

/* Stop recording (source_ops.stop). What was captured until now is still delivered. */
static void live_stop(struct source *source)
{
	struct live *live = (struct live *)source;

	if (live->stopped)
		return;
	/*
	 * Waits that are still going on are counted until now, not until the programs are detached.
	 */
	live->stopped_ns = now_ns();
	live_bpf_stop(live->bpf);
	live->stopped = true;
}

/*
 * If processes or threads are selected: stop recording when all of them have ended, and their last
 * samples had time to arrive.
 */
static void watch_wanted(struct live *live, uint64_t now)
{
	if (!live->selected.wanted || live->stopped || now < live->watched_ns + WATCH_NS)
		return;
	live->watched_ns = now;
	if (live_selected_any_alive(&live->selected))
		live->all_gone_ns = 0;
	else if (!live->all_gone_ns)
		live->all_gone_ns = now;
	else if (now - live->all_gone_ns > LIVE_TICK_NS / 2)
		live_stop(&live->base);
}

/*
 * Return how long to wait at most. While the process that samples are lent to has most of the ring, there may be no room
 * for a record that would cause a wakeup, and its progress causes none: so look often.
 */
static uint64_t tick_of(const struct live *live)
{
	bool crowded = live->taken && live_ring_used(&live->ring) > live->ring.size / 2;
	uint64_t tick_ns = live->tick_ns;

	if (live_begins(live))
		tick_ns = LIVE_TICK_SOON_NS;
	else if (tick_ns < LIVE_LOOK_NS && !live->allocators &&
		 live_names_wait_ns(live, live->looked_ns) >= LIVE_LOOK_NS)
		tick_ns = LIVE_LOOK_NS;
	return crowded && tick_ns > DRAIN_LEAST_NS ? DRAIN_LEAST_NS : tick_ns;
}

/* Return when to look at the rings, or when the caller wants to be back. */
static uint64_t wait_until(const struct live *live, uint64_t deadline)
{
	/* Looks for interpreters do not put off what is done every LIVE_TICK_NS. */
	uint64_t since_ns = live->tick_ns == LIVE_TICK_NS ? live->drained_ns : live->looked_ns,
		 until_ns = since_ns + tick_of(live);

	/* What is urgent can be given out then. */
	if (live->last_urgent_ns > live->horizon_ns &&
	    live->last_urgent_ns + LIVE_SLACK_NS < until_ns)
		until_ns = live->last_urgent_ns + LIVE_SLACK_NS;
	if (live->exec_due_ns < until_ns)
		until_ns = live->exec_due_ns;
	return deadline < until_ns ? deadline : until_ns;
}

/* A program was begun. */
static void note_exec(struct live *live, uint64_t now)
{
	uint64_t due_ns = now + LIVE_EXEC_NS, least_ns = live->looked_ns + LIVE_LOOK_NS;

	if (live->exec_due_ns == UINT64_MAX)
		live->exec_due_ns = due_ns > least_ns ? due_ns : least_ns;
}

/*
 * Sleep until a ring has enough data, until the next tick, or until the deadline. Return 0, 1 if the
 * watched descriptor is readable, 2 if a ring has enough data, or a negative code.
 */
static int wait_for_more(struct live *live, uint64_t now, uint64_t deadline)
{
	struct epoll_event events[16];
	bool asked = false, rang = false;
	int n;

	if (live->rang) {
		live->rang = false;
		return 2;
	}
	do {
		uint64_t until = wait_until(live, deadline);

		if (until <= now)
			return 0;
		n = epoll_wait(live->epoll, events, 16, (int)((until - now + MS - 1) / MS));
		if (n < 0)
			return errno == EINTR ? 0 : -errno;
		now = now_ns();
		for (int i = 0; i < n; i++) {
			asked |= events[i].data.u64 == LIVE_WATCHED;
			rang |= !events[i].data.u64;
			if (events[i].data.u64 == LIVE_EXEC)
				note_exec(live, now);
		}
	} while (n && !asked && !rang);
	/* A ring says so once: it does not ring again before it was read. */
	if (asked) {
		live->rang = rang;
		return 1;
	}
	/*
	 * A ring that stays full causes a wakeup at every sample, so sleep for the rest of
	 * DRAIN_LEAST_NS.
	 */
	now = now_ns();
	if (n && now < live->drained_ns + DRAIN_LEAST_NS) {
		struct timespec rest = { .tv_nsec =
						 (long)(live->drained_ns + DRAIN_LEAST_NS - now) };

		(void)nanosleep(&rest, NULL);
	}
	return rang ? 2 : 0;
}

/*
 * Follow changes of the online CPUs. CPUs come and go when a machine sleeps or a virtual machine is
 * resized.
 */
static int watch_cpus(struct live *live, uint64_t now)
{
	int *cpus, err = 0;
	bool slept;
	size_t n;

	if (live->stopped || !live_online_changed(&live->online, now, &cpus, &n, &slept))
		return 0;
	/* As if the others had been seen offline: then their events are opened again. */
	if (slept) {
		log_debug("the machine has slept: recording begins again on all CPUs but one");
		err = source_live_set_cpus(&live->base, cpus, 1);
	}
	if (!err)
		err = source_live_set_cpus(&live->base, cpus, n);
	free(cpus);
	if (err && !live->base.error[0])
		(void)snprintf(live->base.error, sizeof(live->base.error),
			       "CPUs that went online or offline: %s", strerror(-err));
	return err;
}

/* Remove ended processes from the kernel's table of live memory before they fill it. */
static void sweep(struct live *live, uint64_t now)
{
	if (live->n_allocs - live->n_frees < CAPTURE_LIVE_MAX / 2 ||
	    now < live->swept_ns + SWEEP_NS)
		return;
	live->swept_ns = now;
	live_bpf_sweep(live->bpf);
}

/* Return whether report_again goes on with this process. */
static bool is_reported(const void *ctx, uint32_t pid)
{
	struct live *live = (struct live *)(uintptr_t)ctx;

	if (pid < live->report_from || !live_selected_has(&live->selected, pid))
		return false;
	if (now_ns() <= live->report_until_ns)
		return true;
	if (!live->report_next || pid < live->report_next)
		live->report_next = pid;
	return false;
}

/* A fork would end what is known of the process; a running one only gets what it lacks. */
static int report_one(void *ctx, const struct event *event)
{
	return event->type == EVENT_FORK ? 0 : live_enqueue(ctx, event);
}

/*
 * After side-band records were lost, report again which processes run what. Without that, a process
 * whose mappings were among them would have no frames for the rest of its life.
 */
static int report_again(struct live *live)
{
	uint64_t now = now_ns();
	int err;

	if ((live->sideband_lost == live->reported_lost && !live->report_from) ||
	    now < live->report_again_ns || live->stopped)
		return 0;
	/* What is lost while a round goes on may be of a process that it has passed: another one follows. */
	if (!live->report_from)
		live->reported_lost = live->sideband_lost;
	live->report_again_ns = now + REPORT_AGAIN_NS;
	live->report_until_ns = now + REPORT_NS;
	live->report_next = 0;
	err = live_inventory(is_reported, live, report_one, live);
	live->report_from = live->report_next;
	return err;
}

static int drain(struct live *live)
{
	int err = live_drain(live);

	return err ? err : report_again(live);
}

/*
 * Return the next event in the order of times (source_ops.next): 1 with an event, 0 at the end,
 * -EAGAIN after timeout_ms without one (negative: wait forever) or when the watched descriptor is
 * readable, or another negative error.
 */
static int live_next(struct source *source, struct event *event, int timeout_ms)
{
	struct live *live = (struct live *)source;
	uint64_t now = now_ns();
	uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * MS;
	bool rang = false;
	int err;

	let_go(live);
	if (!live->began_ns)
		live->began_ns = now;
	for (;;) {
		const struct live_item *first = live_queue_first(&live->queue);

		if (first && first->time_ns <= live->horizon_ns) {
			if (now > live->drained_ns + DRAIN_EVERY_NS && !live->flushed &&
			    live->queue.bytes < QUEUE_BYTES_MAX) {
				err = drain(live);
				if (err)
					return err;
			}
			if (take(live, now, event))
				return 1;
			continue;
		}
		if (live->flushed)
			return 0;
		if (!live->stopped && now >= deadline && now < live->looked_ns + live->tick_ns)
			return -EAGAIN;
		if (!live->stopped) {
			err = wait_for_more(live, now, deadline);
			if (err == 1)
				return -EAGAIN;
			rang = err == 2;
			if (err < 0) {
				(void)snprintf(source->error, sizeof(source->error),
					       "waiting for samples: %s", strerror(-err));
				return err;
			}
		}
		now = now_ns();
		watch_wanted(live, now);
		sweep(live, now);
		err = watch_cpus(live, now);
		if (!err && (rang || !live_leave(live, now)))
			err = drain(live);
		if (!err && now >= live->exec_due_ns)
			err = live_listen_for_exec(live);
		if (err)
			return err;
	}
}

/* Release everything (source_ops.close). Also serves a source that was opened only in part. */
static void live_close(struct source *source)
{
	struct live *live = (struct live *)source;

	let_go(live);
	live_off_cpu_fini(&live->off_cpu);
	live_selected_fini(&live->selected);
	live_cgroups_fini(&live->cgroups);
	live_choice_fini(&live->choice);
	live_slots_fini(&live->slots);
	live_ring_fini(&live->ring);
	live_allocators_free(live->allocators);
	live_bpf_free(live->bpf);
	live_sideband_free(live->sideband);
	live_pins_free(live->pins);
	live_mounts_free(live->mounts);
	opener_free(live->opener);
	live_file_ids_free(live->file_ids);
	live_queue_fini(&live->queue);
	free(live->later);
	if (live->epoll >= 0)
		(void)close(live->epoll);
	live_events_fini(&live->events);
	live_symbols_free(live->symbols);
	live_cgroup_paths_free(live->cgroup_paths);
	live_tally_fini(&live->tally);
	live_online_fini(&live->online);
	free(live->base.info.events);
	free(live);
}

const struct source_ops live_ops = { .next = live_next, .stop = live_stop, .close = live_close };

int source_live_set_cpus(struct source *source, const int *cpus, size_t n)
{
	struct live *live = (struct live *)source;
	bool any_new = false;
	int *copy, err;
	size_t n_new;

	if (!n)
		return -EINVAL;
	copy = calloc(n, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, cpus, n * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		any_new |= !live_online_has(&live->online, cpus[i]);
	/*
	 * New CPUs first report mappings, then an inventory covers what was missed, then they are
	 * sampled.
	 */
	err = live_drain(live);
	if (!err)
		err = live_sideband_set_cpus(live->sideband, cpus, n);
	if (!err)
		err = live_watch_sideband(live);
	if (!err && any_new)
		err = live_inventory(live_selected_has, &live->selected, live_enqueue, live);
	if (err) {
		free(copy);
		return err;
	}
	return live_online_change(&live->online, copy, n, &n_new, source->error);
}

int source_live_watch(struct source *source, int fd)
{
	struct live *live = (struct live *)source;
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = LIVE_WATCHED };

	return epoll_ctl(live->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int source_live_keep_up(struct source *source)
{
	struct live *live = (struct live *)source;

	if (live->flushed || live->queue.bytes >= QUEUE_BYTES_MAX ||
	    now_ns() < live->drained_ns + DRAIN_EVERY_NS)
		return 0;
	return drain(live);
}

struct live_memory source_live_memory(struct source *source)
{
	const struct live *live = (struct live *)source;

	return (struct live_memory){ .fd = live_bpf_ring_fd(live->bpf),
				     .data = live->ring.data,
				     .size = live->ring.size };
}

void source_live_lend_to(struct source *source, uint64_t (*taken)(void *ctx), void *ctx)
{
	struct live *live = (struct live *)source;

	live->taken = taken;
	live->taken_ctx = ctx;
}

void source_live_lend(struct source *source, uint64_t until)
{
	struct live *live = (struct live *)source;

	if (!live->taken || live->held_slot == UINT64_MAX)
		return;
	live_slots_lend(&live->slots, live->held_slot, until, live->last_ns);
	live->held_slot = UINT64_MAX;
}

void source_live_leave_records(struct source *source, bool leave)
{
	struct live *live = (struct live *)source;

	live->leaves_records = leave;
	live_bpf_refer(live->bpf, leave);
}

void source_live_own(struct source *source, const pid_t *pids, size_t n)
{
	live_bpf_own(((struct live *)source)->bpf, pids, n);
}

/* Callback of live_inventory: the reader gets the event before what waits in the queue. */
static int enqueue_first(void *ctx, const struct event *event)
{
	struct live *live = ctx;
	struct event first = *event;

	first.time_ns = live->last_ns;
	return live_enqueue(live, &first);
}

int source_live_again(struct source *source)
{
	struct live *live = (struct live *)source;

	live_cgroup_paths_free(live->cgroup_paths);
	live->cgroup_paths = NULL;
	(void)live_cgroup_paths_new(&live->cgroup_paths);
	return live->flushed
		       ? 0
		       : live_inventory(live_selected_has, &live->selected, enqueue_first, live);
}

/* Compare with live->plain, which was measured before any probe was attached. */
int source_live_alloc_cost(struct source *source, struct live_alloc_cost *cost)
{
	struct live *live = (struct live *)source;
	struct live_cost more;
	int err;

	if (live_is_remote(source))
		return live_remote_alloc_cost(source, cost);
	if (!live->allocators || !live_allocators_n(live->allocators))
		return -ENOENT;
	err = live_cost_measure(live->allocators, &live->baseline, &more);
	if (err)
		return err;
	*cost = (struct live_alloc_cost){ .malloc_ns = more.malloc_ns,
					  .free_ns = more.free_ns,
					  .everywhere =
						  live_allocators_everywhere(live->allocators) };
	return 0;
}

int source_live_counters(struct source *source, int cpu, struct live_counters *counters)
{
	struct live *live = (struct live *)source;

	if (live_is_remote(source))
		return live_remote_counters(source, cpu, counters);
	return live_tally_read(&live->tally, live->bpf, cpu, counters);
}

int source_live_n_cpus(struct source *source)
{
	if (live_is_remote(source))
		return live_remote_n_cpus(source);
	return ((struct live *)source)->tally.n_cpus;
}

int source_live_counted(struct source *source, size_t event, uint64_t *counted)
{
	if (live_is_remote(source))
		return live_remote_counted(source, event, counted);
	return live_bpf_counted(((struct live *)source)->bpf, event, counted);
}

int source_live_totals(struct source *source, struct live_totals *totals)
{
	struct live *live = (struct live *)source;
	struct bpf_prog_info info = { 0 };
	uint32_t info_size = sizeof(info);
	int err;

	if (live_is_remote(source))
		return live_remote_totals(source, totals);
	err = bpf_obj_get_info_by_fd(live_bpf_program_fd(live->bpf), &info, &info_size);
	if (err)
		return err;
	*totals = (struct live_totals){ .sideband = live->n_sideband,
					.sideband_lost = live->sideband_lost,
					.late = live->late,
					.in_ring_ns = live->in_ring_ns,
					.allocators = live->allocators
							      ? live_allocators_n(live->allocators)
							      : 0,
					.runs = info.run_cnt,
					.run_ns = info.run_time_ns };
	return 0;
}

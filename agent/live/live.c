/* agent/live/live.c: the source of events that records the running system. */
#include "agent/live/live.h"

#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/io.h"
#include "agent/live/alloc.h"
#include "agent/live/bpf.h"
#include "agent/live/captured.h"
#include "agent/live/cgroup.h"
#include "agent/live/cost.h"
#include "agent/live/decode.h"
#include "agent/live/file_id.h"
#include "agent/live/host.h"
#include "agent/live/inventory.h"
#include "agent/live/mount.h"
#include "agent/live/online.h"
#include "agent/live/perf.h"
#include "agent/live/pin.h"
#include "agent/live/queue.h"
#include "agent/live/ring.h"
#include "agent/live/selected.h"
#include "agent/live/slots.h"
#include "agent/live/symbol.h"
#include "agent/live/tally.h"
#include "agent/live/wait.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FREQUENCY_MAX 50000u
#define TICK_NS	      (200 * MS)
#define ALLOC_TICK_NS (20 * MS) /* with allocations: a new allocator must be noticed soon */
#define SWEEP_NS      (10000 * MS)
#define WATCH_NS      (20 * MS) /* between two checks whether a selected process is alive */
#define MS	      ((uint64_t)1000000)

/*
 * A record gets its time before the record becomes visible, and its CPU may be delayed in between.
 * So only records older than this are delivered.
 */
#define SLACK_NS (10 * MS)

/* While the queue holds so many bytes of side-band events, the rest stays in the kernel's rings. */
#define QUEUE_BYTES_MAX (64u << 20)

/* While a long backlog is delivered, drain the rings so often that none of them overflows. */
#define DRAIN_EVERY_NS (20 * MS)
#define DRAIN_LEAST_NS (2 * MS) /* shortest time between two drains */

/* The paths of further cgroups are not reported. */
#define CGROUPS_MAX 65536u

#define PID_NS_INIT_INO 0xeffffffcu /* PROC_PID_INIT_INO of the kernel */

struct live {
	struct source base;
	struct live_events events;
	struct live_bpf *bpf;
	struct live_sideband *sideband;
	struct live_pins *pins; /* NULL: files are not held open */
	struct live_mounts *mounts;
	struct live_file_ids *file_ids; /* NULL: the kernel reports the build-ids of mappings */
	struct live_ring ring;
	struct live_queue queue;
	struct live_waits waits;
	uint64_t off_cpu_min_ns;
	uint64_t tick_ns;
	struct live_allocators *allocators; /* NULL: allocations are not recorded */
	uint64_t alloc_interval, n_allocs, n_frees, swept_ns;
	int epoll;

	struct live_slots slots; /* of the records in the ring */
	/* What the last call of live_next returned; released by the next call: */
	uint64_t held_slot;		/* the sample's slot; UINT64_MAX: none */
	struct event *held;		/* the event */
	struct capture_head *held_wait; /* the sample of a thread that waited */

	uint64_t drained_ns, horizon_ns, last_ns;
	uint64_t told_ring_full, told_unreadable, damaged, told_damaged, no_room, told_no_room;
	uint64_t unended, told_unended;
	uint64_t n_sideband, sideband_lost, late;
	struct live_tally tally;
	bool stopped, flushed;
	uint64_t stopped_ns;

	struct live_online online;
	struct live_selected selected;
	uint64_t watched_ns, all_gone_ns;

	struct live_symbols *symbols; /* NULL: not opened yet, or the kernel does not support it */
	bool symbols_tried;

	struct live_cgroup_paths *cgroup_paths; /* NULL: paths of cgroups cannot be read */
	uint64_t *cgroups;			/* the ids of those whose path was reported */
	size_t n_cgroups;
	struct hash_index by_cgroup;

	const uint8_t *vdso;
	size_t vdso_size;
	struct uw_region regions[LIVE_REGIONS_MAX];
};

/* ---- in: from the rings into the queue -------------------------------------------- */

/*
 * Return whether the allocators of a process are watched. If single threads are selected, the
 * probes are in their processes.
 */
static bool has_allocators_watched(const struct live *live, uint32_t pid)
{
	return live->selected.n_tids ? live_selected_has(&live->selected, pid)
				     : live_bpf_wants(live->bpf, pid);
}

/*
 * Attach or detach the probes on allocators after an event. This happens when the event is read,
 * not when it is delivered, because the process is not watched until then.
 */
static int watch_allocators(struct live *live, const struct event *event)
{
	switch (event->type) {
	case EVENT_MAPPING:
		return has_allocators_watched(live, event->pid)
			       ? live_allocators_mapping(live->allocators, event->pid,
							 &event->mapping)
			       : 0;
	case EVENT_FORK:
		return event->pid != event->fork.parent_pid && event->fork.parent_pid &&
				       has_allocators_watched(live, event->pid)
			       ? live_allocators_fork(live->allocators, event->fork.parent_pid,
						      event->pid)
			       : 0;
	case EVENT_EXIT:
		live_allocators_exit(live->allocators, event->pid);
		return 0;
	default:
		return 0;
	}
}

/*
 * Put an event into the queue, and first do what must happen at once: look up its file, hold the
 * file open, watch its allocator. The queue copies the event.
 */
static int enqueue(void *ctx, const struct event *event)
{
	struct live *live = ctx;
	struct event copy = *event;
	struct event_mapping *m = &copy.mapping;

	/*
	 * The vDSO is the same in every 64-bit process, so this process's own copy serves all of
	 * them.
	 */
	if (copy.type == EVENT_MAPPING && m->path && !strcmp(m->path, "[vdso]") &&
	    m->end - m->start == live->vdso_size && m->start > UINT32_MAX) {
		m->image = live->vdso;
		m->image_size = live->vdso_size;
	}
	if (copy.type == EVENT_MAPPING && m->inode && m->path && m->path[0] == '/')
		live_mounts_see(live->mounts, live->pins, m->major, m->minor, now_ns());
	if (live->file_ids && copy.type == EVENT_MAPPING)
		live_file_ids_fill(live->file_ids, live->pins, copy.pid, m, now_ns());
	/* A memfd that has a build-id is a program. */
	if (live->pins && copy.type == EVENT_MAPPING && m->path &&
	    !strncmp(m->path, "/memfd:", 7) && m->build_id.size)
		live_pins_hold(live->pins, copy.pid, m->start, m->end, now_ns());
	if (live->allocators) {
		int err = watch_allocators(live, &copy);

		if (err)
			return err;
	}
	return live_queue_event(&live->queue, &copy);
}

/*
 * Callback of live_sideband_drain: decode a record and put its events into the queue. Records of
 * processes that are not selected are only counted.
 */
static int on_record(void *ctx, struct perf_event_header *record, const struct live_file *file)
{
	struct live *live = ctx;
	struct event events[LIVE_DECODE_MAX];
	uint32_t pid;
	size_t n;

	if (live_sideband_pid(record, &pid) && live_selected_other(&live->selected, pid)) {
		live->n_sideband++;
		return 0;
	}
	n = live_sideband_decode(record, file, events);
	for (size_t i = 0; i < n; i++) {
		int err = live_selected_drops(&live->selected, &events[i])
				  ? 0
				  : enqueue(live, &events[i]);

		if (err)
			return err;
		if (events[i].type != EVENT_LOST) {
			live->n_sideband++;
			continue;
		}
		live->sideband_lost += events[i].lost.n_sideband;
		live_selected_unsure(&live->selected);
	}
	return 0;
}

/* Callback of live_sideband_drain: process pid was born. */
static void note_fork(void *ctx, uint32_t pid, uint32_t parent)
{
	struct live *live = ctx;

	live_selected_fork(&live->selected, pid, parent);
}

struct which_cgroup {
	const struct live *live;
	uint64_t id;
};

static bool same_cgroup(const void *ctx, uint32_t i)
{
	const struct which_cgroup *want = ctx;

	return want->live->cgroups[i] == want->id;
}

/* Report the path of a cgroup before its first sample. */
static int name_cgroup(struct live *live, uint64_t id, uint64_t time_ns)
{
	struct event event = { .type = EVENT_CGROUP, .time_ns = time_ns, .cgroup = { .id = id } };
	char path[PATH_MAX];
	uint64_t *bigger;

	if (!live->cgroup_paths || !id || live->n_cgroups == CGROUPS_MAX ||
	    hash_find(&live->by_cgroup, hash_u64(0, id), same_cgroup,
		      &(struct which_cgroup){ live, id }) != HASH_NONE)
		return 0;
	bigger = reallocarray(live->cgroups, live->n_cgroups + 1, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	live->cgroups = bigger;
	if (hash_add(&live->by_cgroup, hash_u64(0, id), (uint32_t)live->n_cgroups))
		return -ENOMEM;
	bigger[live->n_cgroups++] = id;
	if (live_cgroup_path(live->cgroup_paths, id, path, sizeof(path)))
		return 0; /* the cgroup no longer exists; its samples have its id only */
	event.cgroup.path = path;
	return live_queue_event(&live->queue, &event);
}

/* Count a captured wait on this CPU whose length is unknown. */
static void lose_wait(struct live *live, uint32_t cpu)
{
	live_tally_of(&live->tally, cpu)->unended++;
	live->unended++;
}

/*
 * Store the record of a thread that begins to wait until the wait ends. It is copied, because long
 * waits would otherwise fill the ring.
 */
static int begin_wait(struct live *live, const struct capture_head *head, uint32_t size)
{
	int unended, err = live_waits_begin(&live->waits, head, size, &unended);

	live_tally_of(&live->tally, head->cpu)->waits++;
	if (unended >= 0)
		lose_wait(live, (uint32_t)unended);
	if (err != -ENOSPC)
		return err;
	live_tally_of(&live->tally, head->cpu)->no_room++;
	live->no_room++;
	return 0;
}

/*
 * Queue the sample of a wait that ended at time_ns, or only count the wait if it was shorter than
 * off_cpu_min_ns. The length of the wait becomes the sample's period, and its end the sample's
 * time. Takes ownership of head, also on failure.
 */
static int end_wait(struct live *live, struct capture_head *head, uint64_t time_ns,
		    uint64_t *counter)
{
	int err;

	if (time_ns <= head->time_ns || time_ns - head->time_ns < live->off_cpu_min_ns) {
		live_tally_of(&live->tally, head->cpu)->short_waits++;
		free(head);
		return 0;
	}
	++*counter;
	head->period = time_ns - head->time_ns;
	head->time_ns = time_ns;
	err = live_queue_wait(&live->queue, time_ns, head);
	if (err)
		free(head);
	return err;
}

/*
 * Complete the record of a thread that waited. An end without a stored beginning is ignored. If the
 * time of the end is 0, the length is unknown, and the wait is counted as lost.
 */
static int take_wake(struct live *live, const struct capture_wake *wake)
{
	struct capture_head *head = live_waits_end(&live->waits, wake->tid, wake->since_ns);

	if (!head)
		return 0;
	if (wake->time_ns)
		return end_wait(live, head, wake->time_ns,
				&live_tally_of(&live->tally, head->cpu)->ended);
	lose_wait(live, head->cpu);
	free(head);
	return 0;
}

/* Queue the event that a captured allocation was freed. */
static int take_freed(struct live *live, const struct capture_free *freed)
{
	const struct event event = { .type = EVENT_FREED,
				     .pid = freed->pid,
				     .time_ns = freed->time_ns,
				     .freed = { freed->id, freed->bytes } };

	live->n_frees++;
	return live_queue_event(&live->queue, &event);
}

/*
 * Handle the newest record of the ring, which has the last slot. A sample stays in the ring until
 * it is delivered; records of other kinds are released here. Damaged records are counted.
 */
static int take_record(struct live *live, const uint8_t *bytes, uint32_t size)
{
	const struct capture_head *head = (const void *)bytes;
	struct capture_wake wake = { 0 };
	struct capture_free freed = { 0 };
	int err;

	if (size == sizeof(freed))
		memcpy(&freed, bytes, sizeof(freed));
	if (freed.magic == CAPTURE_FREE_MAGIC) {
		live_slots_done(&live->slots, live->slots.next - 1);
		return take_freed(live, &freed);
	}
	if (size == sizeof(wake))
		memcpy(&wake, bytes, sizeof(wake));
	if (wake.magic == CAPTURE_WAKE_MAGIC) {
		live_slots_done(&live->slots, live->slots.next - 1);
		return take_wake(live, &wake);
	}
	if (!live_captured_sound(head, size, live->events.n)) {
		live->damaged++;
		live_tally_of(&live->tally, size < sizeof(*head) ? 0 : head->cpu)->damaged++;
		live_slots_done(&live->slots, live->slots.next - 1);
		return 0;
	}
	err = name_cgroup(live, head->cgroup_id, head->time_ns);
	if (err)
		return err;
	live->n_allocs += (head->flags & CAPTURE_ALLOC) != 0;
	if (!(head->flags & CAPTURE_WAITS))
		return live_queue_sample(&live->queue, head->time_ns, bytes, live->slots.next - 1);
	err = begin_wait(live, head, size);
	live_slots_done(&live->slots, live->slots.next - 1);
	return err;
}

/* Handle all records that are new in the ring. */
static int scan_ring(struct live *live)
{
	const uint8_t *bytes;
	unsigned long end;
	uint32_t size;
	int err = 0;

	while (!err && (size = live_ring_scan(&live->ring, &bytes, &end))) {
		err = live_slots_add(&live->slots, end);
		if (!err)
			err = take_record(live, bytes, size);
	}
	return err;
}

/*
 * When recording stops, end the waits that are still going on: they are in the kernel's table. A
 * thread that is not in that table woke up while the ring had no room for the record of its end.
 */
static int end_all_waits(struct live *live)
{
	struct capture_head *head;
	int err = 0;

	while (!err && (head = live_waits_any(&live->waits))) {
		if (live_bpf_waits(live->bpf, head->tid, head->time_ns)) {
			err = end_wait(live, head, live->stopped_ns,
				       &live_tally_of(&live->tally, head->cpu)->still_waiting);
			continue;
		}
		lose_wait(live, head->cpu);
		free(head);
	}
	return err;
}

/*
 * Queue an EVENT_LOST for the losses that were not reported yet. total is the number of losses so
 * far, *told the number already reported.
 */
static int tell_lost(struct live *live, uint64_t time_ns, enum event_lost_reason reason,
		     uint64_t total, uint64_t *told)
{
	struct event event = { .type = EVENT_LOST,
			       .time_ns = time_ns,
			       .lost = { .reason = reason, .n_samples = total - *told } };
	int err;

	if (total == *told)
		return 0;
	err = live_queue_event(&live->queue, &event);
	if (!err)
		*told = total;
	return err;
}

/*
 * Read all rings, queue what they hold and report losses. The queue is then complete up to
 * horizon_ns.
 */
static int drain(struct live *live)
{
	uint64_t now = now_ns();
	struct capture_counters count;
	int err;

	if (live->pins)
		live_pins_drain(live->pins, now);
	if (live->file_ids)
		live_file_ids_sweep(live->file_ids, now);
	err = live_sideband_drain(live->sideband, live->selected.others ? note_fork : NULL,
				  on_record, live);
	live_bpf_reading(live->bpf);
	if (!err)
		err = scan_ring(live);
	if (!err && live->stopped)
		err = end_all_waits(live);
	if (!err)
		err = live_bpf_counters(live->bpf, NULL, &count);
	if (!err)
		err = tell_lost(live, now, EVENT_LOST_RING_FULL, count.ring_full,
				&live->told_ring_full);
	if (!err)
		err = tell_lost(live, now, EVENT_LOST_UNREADABLE, count.unreadable,
				&live->told_unreadable);
	if (!err)
		err = tell_lost(live, now, EVENT_LOST_RING_FULL, live->no_room,
				&live->told_no_room);
	if (!err)
		err = tell_lost(live, now, EVENT_LOST_DAMAGED, live->damaged, &live->told_damaged);
	if (!err)
		err = tell_lost(live, now, EVENT_LOST_WAIT_END, live->unended, &live->told_unended);
	if (err) {
		(void)snprintf(live->base.error, sizeof(live->base.error), "live system: %s",
			       strerror(-err));
		return err;
	}
	live->drained_ns = now;
	live->horizon_ns = now - SLACK_NS;
	if (live->stopped) { /* no more events can come */
		live->horizon_ns = UINT64_MAX;
		live->flushed = true;
	}
	return 0;
}

/* ---- out: from the queue to the caller ------------------------------------------------ */

/* Release what the last call of live_next returned. */
static void let_go(struct live *live)
{
	free(live->held);
	live->held = NULL;
	free(live->held_wait);
	live->held_wait = NULL;
	if (live->held_slot != UINT64_MAX)
		live_slots_done(&live->slots, live->held_slot);
	live->held_slot = UINT64_MAX;
}

/*
 * Take the first item of the queue. Return whether it is an event to deliver; if so, it is written
 * to *event, which is valid until let_go.
 */
static bool take(struct live *live, struct event *event)
{
	struct live_item item;

	live_queue_take(&live->queue, &item);
	if (item.event) {
		if (!live_selected_takes(&live->selected, item.event)) {
			free(item.event);
			return false;
		}
		live->held = item.event;
		*event = *item.event;
	} else {
		const struct capture_head *head = item.wait ? item.wait : (const void *)item.record;

		live_captured_sample(head, live->alloc_interval, live->regions, event);
		live->held_wait = item.wait;
		if (!item.wait)
			live->held_slot = item.slot;
		live_tally_of(&live->tally, head->cpu)->delivered++;
		live_tally_of(&live->tally, head->cpu)->stack_bytes +=
			head->stack_len + head->interrupted_len;
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
	else if (now - live->all_gone_ns > TICK_NS / 2)
		live_stop(&live->base);
}

/* Sleep until a ring has enough data, until the next tick, or until the deadline. */
static int wait_for_more(struct live *live, uint64_t now, uint64_t deadline)
{
	uint64_t until = live->drained_ns + live->tick_ns;
	struct epoll_event events[16];
	int n;

	if (deadline < until)
		until = deadline;
	if (until <= now)
		return 0;
	n = epoll_wait(live->epoll, events, 16, (int)((until - now + MS - 1) / MS));
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
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
	return 0;
}

/*
 * Follow changes of the online CPUs. CPUs come and go when a machine sleeps or a virtual machine is
 * resized.
 */
static int watch_cpus(struct live *live, uint64_t now)
{
	int *cpus, err;
	size_t n;

	if (live->stopped || !live_online_changed(&live->online, now, &cpus, &n))
		return 0;
	err = source_live_set_cpus(&live->base, cpus, n);
	free(cpus);
	if (err && !live->base.error[0])
		(void)snprintf(live->base.error, sizeof(live->base.error),
			       "CPUs that came or went: %s", strerror(-err));
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

/*
 * Return the next event in the order of times (source_ops.next): 1 with an event, 0 at the end,
 * -EAGAIN after timeout_ms without one (negative: wait forever), or another negative error.
 */
static int live_next(struct source *source, struct event *event, int timeout_ms)
{
	struct live *live = (struct live *)source;
	uint64_t now = now_ns();
	uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * MS;
	int err;

	let_go(live);
	for (;;) {
		const struct live_item *first = live_queue_first(&live->queue);

		if (first && first->time_ns <= live->horizon_ns) {
			if (now > live->drained_ns + DRAIN_EVERY_NS && !live->flushed &&
			    live->queue.bytes < QUEUE_BYTES_MAX) {
				err = drain(live);
				if (err)
					return err;
			}
			if (take(live, event))
				return 1;
			continue;
		}
		if (live->flushed)
			return 0;
		if (!live->stopped && now >= deadline && now < live->drained_ns + live->tick_ns)
			return -EAGAIN;
		if (!live->stopped) {
			err = wait_for_more(live, now, deadline);
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
		if (!err)
			err = drain(live);
		if (err)
			return err;
	}
}

/* Release everything (source_ops.close). Also serves a source that was opened only in part. */
static void live_close(struct source *source)
{
	struct live *live = (struct live *)source;

	let_go(live);
	live_waits_fini(&live->waits);
	live_selected_fini(&live->selected);
	live_slots_fini(&live->slots);
	live_ring_fini(&live->ring);
	live_allocators_free(live->allocators);
	live_bpf_free(live->bpf);
	live_sideband_free(live->sideband);
	live_pins_free(live->pins);
	live_mounts_free(live->mounts);
	live_file_ids_free(live->file_ids);
	live_queue_fini(&live->queue);
	if (live->epoll >= 0)
		(void)close(live->epoll);
	live_events_fini(&live->events);
	live_symbols_free(live->symbols);
	live_cgroup_paths_free(live->cgroup_paths);
	hash_fini(&live->by_cgroup);
	free(live->cgroups);
	live_tally_fini(&live->tally);
	live_online_fini(&live->online);
	free(live->base.info.events);
	free(live);
}

/* ---- opening --------------------------------------------------------------------------- */

/*
 * Open a mapped file that may have been deleted (source_info.file): first among the files held
 * open, then by path in a process that sees its file system. *fd is the caller's to close.
 */
static int held_file(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		     int *fd)
{
	const struct live *live = ctx;
	int err = live->pins ? live_pins_open(live->pins, major, minor, inode, fd) : -ENOENT;

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
	info->kernel_symbol = kernel_symbol;
	info->kernel_symbol_ctx = live;
	info->red_zone = true;
}

/*
 * Add the side-band's descriptors to the epoll set. Descriptors that are already in it stay there.
 */
static int watch_sideband(struct live *live)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	for (size_t i = 0; i < live_sideband_n_fds(live->sideband); i++)
		if (epoll_ctl(live->epoll, EPOLL_CTL_ADD, live_sideband_fd(live->sideband, i),
			      &event) &&
		    errno != EEXIST)
			return -errno;
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
	return watch_sideband(live);
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

/* Return the filters (enum capture_filter) that the options need. */
static uint32_t filters_of(const struct source_live_options *options)
{
	return (options->n_pids || options->n_tids ? CAPTURE_FILTER_TASK : 0u) |
	       (options->n_comms ? CAPTURE_FILTER_COMM : 0u) |
	       (options->n_uids ? CAPTURE_FILTER_UID : 0u) |
	       (options->n_cgroups || options->n_containers ? CAPTURE_FILTER_CGROUP : 0u) |
	       (options->n_cpus ? CAPTURE_FILTER_CPU : 0u);
}

/* Look up the selected cgroups and containers. On failure error names the one that is wrong. */
static int find_cgroups(const struct source_live_options *options, struct capture_cgroup *out,
			size_t *n, char *error)
{
	const char *what = "", *which = "";
	int err = 0;

	*n = 0;
	for (size_t i = 0; !err && i < options->n_cgroups; i++) {
		what = "cgroup";
		which = options->cgroups[i];
		err = *n < CAPTURE_CGROUPS_MAX ? live_cgroup_find(which, &out[*n]) : -E2BIG;
		*n += !err;
	}
	for (size_t i = 0; !err && i < options->n_containers; i++) {
		what = "container";
		which = options->containers[i];
		err = live_cgroup_containers(which, out, CAPTURE_CGROUPS_MAX, n);
	}
	if (err)
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s %.200s: %s", what, which,
			       err == -ENOENT  ? "is not in the cgroup2 hierarchy"
			       : err == -E2BIG ? "too many at once"
					       : strerror(-err));
	return err == -ENOENT || err == -E2BIG ? -EINVAL : err;
}

/* Load the BPF programs for these options. */
static int open_bpf(struct live *live, const struct source_live_options *options, char *error)
{
	struct capture_cgroup cgroups[CAPTURE_CGROUPS_MAX];
	struct live_bpf_options bpf_options = { .stack_max = options->stack_max,
						.ring_bytes = options->ring_bytes,
						.events = &live->events,
						.alloc_interval = options->alloc_interval,
						.filters = filters_of(options),
						.threads = options->n_tids != 0,
						.cgroups = cgroups,
						.cpus = options->cpus,
						.n_cpus = options->n_cpus };
	int err = find_cgroups(options, cgroups, &bpf_options.n_cgroups, error);

	return err ? err : live_bpf_open(&bpf_options, &live->bpf, error);
}

/*
 * Open everything in the necessary order: programs, ring, side-band, filters, allocators, then the
 * inventory of running processes, and last the events. On failure the caller closes what was
 * opened.
 */
static int open_all(struct live *live, const struct source_live_options *options, char *error)
{
	int err = live_events_of(options, &live->events, error);

	if (err)
		return err;
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
	if (err)
		return err;
	err = watch_fds(live);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "waiting for samples: %s", strerror(-err));
		return err;
	}
	if (options->alloc_interval) {
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
	err = live_inventory(live_selected_has, &live->selected, enqueue, live);
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
	err = drain(live);
	if (!err)
		err = live_sideband_set_cpus(live->sideband, cpus, n);
	if (!err)
		err = watch_sideband(live);
	if (!err && any_new)
		err = live_inventory(live_selected_has, &live->selected, enqueue, live);
	if (err) {
		free(copy);
		return err;
	}
	return live_online_change(&live->online, copy, n, &n_new, source->error);
}

int source_live_open(const struct source_live_options *options, struct source **out, char *error)
{
	static const struct source_ops ops = { .next = live_next,
					       .stop = live_stop,
					       .close = live_close };
	struct live *live;
	int err = check_options(options, error);

	if (err)
		return err;
	live = calloc(1, sizeof(*live));
	if (!live) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	io_allow_many_files();
	live->base.ops = &ops;
	live->epoll = live->online.fd = -1;
	live->slots.ring = &live->ring;
	live->held_slot = UINT64_MAX;
	live->off_cpu_min_ns = options->off_cpu_min_ns;
	live->alloc_interval = options->alloc_interval;
	live->tick_ns = options->alloc_interval ? ALLOC_TICK_NS : TICK_NS;
	live_host_vdso(&live->vdso, &live->vdso_size);
	fill_info(live);
	if (options->command)
		(void)snprintf(live->base.info.command, sizeof(live->base.info.command), "%s",
			       options->command);
	err = open_all(live, options, error);
	if (err) {
		live_close(&live->base);
		return err;
	}
	*out = &live->base;
	return 0;
}

int source_live_alloc_cost(struct source *source, struct live_alloc_cost *cost)
{
	struct live *live = (struct live *)source;

	if (!live->allocators || !live_allocators_n(live->allocators))
		return -ENOENT;
	cost->everywhere = live_allocators_everywhere(live->allocators);
	return live_cost_measure(live->allocators, &cost->malloc_ns, &cost->free_ns);
}

int source_live_counters(struct source *source, int cpu, struct live_counters *counters)
{
	struct live *live = (struct live *)source;

	return live_tally_read(&live->tally, live->bpf, cpu, counters);
}

int source_live_n_cpus(struct source *source)
{
	return ((struct live *)source)->tally.n_cpus;
}

int source_live_counted(struct source *source, size_t event, uint64_t *counted)
{
	return live_bpf_counted(((struct live *)source)->bpf, event, counted);
}

int source_live_totals(struct source *source, struct live_totals *totals)
{
	struct live *live = (struct live *)source;
	struct bpf_prog_info info = { 0 };
	uint32_t info_size = sizeof(info);
	int err = bpf_obj_get_info_by_fd(live_bpf_program_fd(live->bpf), &info, &info_size);

	if (err)
		return err;
	*totals = (struct live_totals){ .sideband = live->n_sideband,
					.sideband_lost = live->sideband_lost,
					.late = live->late,
					.allocators = live->allocators
							      ? live_allocators_n(live->allocators)
							      : 0,
					.runs = info.run_cnt,
					.run_ns = info.run_time_ns };
	return 0;
}

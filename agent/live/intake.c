/* agent/live/intake.c: reads the rings and the side-band, and puts events into the queue. */
#include "agent/live/live_internal.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/live/alloc/alloc.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/system/cgroup.h"
#include "agent/live/system/file_id.h"
#include "agent/live/system/inventory.h"
#include "agent/live/system/mount.h"
#include "agent/live/system/perf.h"
#include "agent/live/system/pin.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While events wait to be given out: so many bytes of them are not left waiting, nor samples in this part of the ring. */
#define WAITING_BYTES (4u << 20)
#define WAITING_PART  8
/* Nor are so many new samples left in the ring: the kernel says when it is that part. */
#define NEW_PART 4

/* Note that what happened at a time must be given out as soon as can be: the process gets its plan then. */
static void note_urgent(struct live *live, uint64_t time_ns)
{
	if (time_ns < live->urgent_ns)
		live->urgent_ns = time_ns;
	if (time_ns > live->last_urgent_ns)
		live->last_urgent_ns = time_ns;
	if (time_ns > live->newest_ns)
		live->newest_ns = time_ns;
}

/* Note a sample that has memory for names. */
static void note_names(struct live *live, uint64_t time_ns)
{
	uint64_t due_ns = time_ns + live_names_wait_ns(live, time_ns);

	if (due_ns < live->urgent_ns)
		live->urgent_ns = due_ns;
	if (time_ns > live->last_names_ns)
		live->last_names_ns = time_ns;
}

static bool is_memfd(const struct event_mapping *m)
{
	return m->inode && m->path && !strncmp(m->path, "/memfd:", 7);
}

/* Files in memory are on a file system that the kernel has for itself: nobody has mounted it. */
static bool is_mounted(const struct event_mapping *m)
{
	return m->inode && m->path && m->path[0] == '/' && !is_memfd(m);
}

/*
 * Return whether an event brings about a process whose samples need a plan, or a file on a file system that is new: nothing
 * holds that yet, and if only the process itself sees it, it is gone with the process.
 */
static bool is_urgent(const struct live *live, const struct event *event)
{
	const struct event_mapping *m = &event->mapping;

	switch (event->type) {
	case EVENT_MAPPING:
		return opener_is_interpreter(m) ||
		       (is_mounted(m) && !live_mounts_know(live->mounts, m->major, m->minor));
	case EVENT_FORK:
		return event->pid != event->fork.parent_pid &&
		       live_bpf_has_plan(live->bpf, event->fork.parent_pid);
	default:
		return false;
	}
}

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

/* Return the hash of a mapped file and its path. */
static uint64_t file_hash(const struct event_mapping *m)
{
	return hash_bytes(hash_u64((uint64_t)m->major << 32 | m->minor, m->inode), m->path,
			  strlen(m->path));
}

/*
 * Look up the file tree that the process of a mapping sees, and the file's build-id if the kernel did not report it. That
 * is a few system calls here; a worker in the sandbox would have to ask the opener, and wait for it.
 */
static void look_up(struct live *live, struct event *event, uint64_t now)
{
	struct event_mapping *m = &event->mapping;

	m->view = opener_views_get(&live->views, live->opener, event->pid);
	if (m->path && opener_views_own(&live->views, event->pid)) {
		uint64_t hash = file_hash(m);

		live->own_files[hash & (LIVE_OWN_FILES - 1)] = hash;
	}
	if (live->file_ids)
		live_file_ids_fill(live->file_ids, live->pins, event->pid, m, now);
}

/*
 * Return whether look_up may wait, as it will find the same when the process has ended: its file is held open, and was
 * mapped by a process with this program's own view. (That is what is found of a process that has ended.)
 */
static bool can_wait(struct live *live, const struct event *event)
{
	const struct event_mapping *m = &event->mapping;
	uint64_t hash;

	if (!m->path || live->allocators || event->time_ns <= live->horizon_ns)
		return false;
	hash = file_hash(m);
	return live->own_files[hash & (LIVE_OWN_FILES - 1)] == hash &&
	       (!live->file_ids || m->build_id.size ||
		live_file_ids_hold(live->file_ids, m, now_ns()));
}

/*
 * Look up what was left for later. Most processes of a build or a shell script have ended by then and were never sampled:
 * of these nothing is looked up. The events of a process are looked up when its first sample has come (pid is that
 * process), as it may end soon; all others that will be given out when this is known (pid is 0).
 */
static void look_up_later(struct live *live, uint32_t pid)
{
	uint64_t now = now_ns();
	size_t n = 0;

	for (size_t i = 0; i < live->n_later; i++) {
		struct event *event = live->later[i];

		if (pid ? event->pid != pid : event->time_ns > live->horizon_ns)
			live->later[n++] = event;
		else if (!live_short_lived_leaves_out(&live->queue.short_lived, event->pid,
						      event->time_ns))
			look_up(live, event, now);
	}
	live->n_later = n;
}

/* Forget which file tree a process sees if an event says that this may change. */
static void forget_view(struct live *live, const struct event *event)
{
	bool is_process = event->pid == event->tid;

	if (event->type == EVENT_EXEC ||
	    (is_process && (event->type == EVENT_FORK || event->type == EVENT_EXIT)))
		opener_views_forget(&live->views, event->pid);
}

/* Put an event into the queue. later: what is to be looked up of a mapping may wait until look_up_later. */
static int enqueue(struct live *live, const struct event *event, bool later)
{
	struct event copy = *event;
	struct event_mapping *m = &copy.mapping;
	bool needs = event->type == EVENT_MAPPING && m->inode;
	int err;

	/*
	 * The vDSO is the same in every 64-bit process, so this process's own copy serves all of
	 * them.
	 */
	if (copy.type == EVENT_MAPPING && m->path && !strcmp(m->path, "[vdso]") &&
	    m->end - m->start == live->vdso_size && m->start > UINT32_MAX) {
		m->image = live->vdso;
		m->image_size = live->vdso_size;
	}
	if (needs && is_mounted(m))
		live_mounts_see(live->mounts, live->pins, m->major, m->minor, now_ns());
	forget_view(live, &copy);
	if (needs)
		m->has_view = true;
	later = later && needs && can_wait(live, &copy);
	if (needs && !later)
		look_up(live, &copy, now_ns());
	/* A memfd that has a build-id is a program. Without file_ids, nothing holds it yet. */
	if (live->pins && !live->file_ids && needs && is_memfd(m) && m->build_id.size)
		live_pins_hold(live->pins, copy.pid, m->start, m->end, now_ns());
	if (is_urgent(live, &copy))
		note_urgent(live, copy.time_ns);
	err = live->allocators ? watch_allocators(live, &copy) : 0;
	if (!err && later)
		err = array_grow(live->later, live->n_later, live->room_later);
	if (!err)
		err = live_queue_event(&live->queue, &copy);
	if (!err && later) {
		live->later[live->n_later++] = live->queue.newest;
		live_short_lived_defer(&live->queue.short_lived, copy.pid);
	}
	return err;
}

int live_enqueue(void *ctx, const struct event *event)
{
	return enqueue(ctx, event, false);
}

/* Queue the name that is held. */
static int queue_name(struct live *live)
{
	const struct event *name = live_rename_take(&live->rename);

	return name ? enqueue(live, name, true) : 0;
}

/* Queue an event, but hold a name until it is known that no other one follows at once. */
static int add_event(struct live *live, const struct event *event)
{
	int err;

	if (live_rename_replace(&live->rename, event))
		return 0;
	err = queue_name(live);
	if (err || event->type != EVENT_COMM)
		return err ? err : enqueue(live, event, true);
	live_rename_hold(&live->rename, event);
	return 0;
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
				  : add_event(live, &events[i]);

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

/* Callback of live_sideband_look: return 1 if a record cannot wait. */
static int look_at_record(void *ctx, struct perf_event_header *record, const struct live_file *file)
{
	struct event events[LIVE_DECODE_MAX];
	size_t n = live_sideband_decode(record, file, events);

	for (size_t i = 0; i < n; i++)
		if (is_urgent(ctx, &events[i]))
			return 1;
	return 0;
}

/* Callback of live_sideband_drain: process pid was born. */
static void note_fork(void *ctx, uint32_t pid, uint32_t parent)
{
	struct live *live = ctx;

	live_selected_fork(&live->selected, pid, parent);
}

/*
 * Report the path of a cgroup before its first sample. That may be one of another CPU's ring, which is read later: so the
 * event has the time of what was delivered last, not that of the sample at hand.
 */
static int name_cgroup(struct live *live, uint64_t id, uint64_t time_ns)
{
	struct event event = { .type = EVENT_CGROUP, .time_ns = time_ns, .cgroup = { .id = id } };
	char path[PATH_MAX];
	int err;

	if (!live->cgroup_paths || !id)
		return 0;
	if (live->last_ns && live->last_ns < time_ns)
		event.time_ns = live->last_ns;
	err = live_cgroup_path_once(live->cgroup_paths, id, path, sizeof(path));
	if (err) /* without a path, samples have the cgroup's id only */
		return err == -ENOMEM ? err : 0;
	event.cgroup.path = path;
	return live_queue_event(&live->queue, &event);
}

/*
 * Store the record of a thread that begins to wait until the wait ends. It is copied, because long
 * waits would otherwise fill the ring.
 */
static int begin_wait(struct live *live, const struct capture_head *head, uint32_t size)
{
	int unended, err = live_off_cpu_begin(&live->off_cpu, head, size, &unended);

	live_tally_of(&live->tally, head->cpu)->off_cpu++;
	if (unended >= 0)
		live_tally_of(&live->tally, (uint32_t)unended)->unended++;
	if (err != -ENOSPC)
		return err;
	live_tally_of(&live->tally, head->cpu)->no_room++;
	return 0;
}

/*
 * Queue the stack of the thread that ended a wait, with the time at which it did: its process may be gone when
 * the wait's sample comes.
 */
static int queue_waker(struct live *live, struct live_waited *wait)
{
	struct live_waited *waker = wait->waker;
	int err;

	if (!waker)
		return 0;
	waker->id = wait->id = ++live->n_wakers;
	err = live_queue_wait(&live->queue, waker->head.time_ns, waker);
	if (!err)
		wait->waker = NULL;
	return err;
}

/*
 * Queue the sample of a wait whose end is in wait->wake, or only count the wait if it was shorter
 * than off_cpu_min_ns. Takes ownership of wait, also on failure.
 */
static int end_wait(struct live *live, struct live_waited *wait, uint64_t *counter)
{
	const uint64_t began_ns = wait->wake.began_ns, time_ns = wait->wake.time_ns;
	struct live_tally_cpu *tally = live_tally_of(&live->tally, wait->head.cpu);
	int err;

	if (time_ns <= began_ns || time_ns - began_ns < live->off_cpu_min_ns) {
		tally->off_cpu_short++;
		live_waited_free(wait);
		return 0;
	}
	if (wait->head.slices_len || (wait->waker && wait->waker->head.slices_len))
		note_names(live, time_ns);
	++*counter;
	tally->unwoken += !wait->wake.woken_ns;
	err = queue_waker(live, wait);
	if (!err)
		err = live_queue_wait(&live->queue, time_ns, wait);
	if (err)
		live_waited_free(wait);
	return err;
}

/*
 * Complete the record of a thread that waited. An end without a stored beginning is ignored. If the
 * time of the end is 0, the length is unknown, and the wait is counted as lost.
 */
static int take_wake(struct live *live, const struct capture_wake *wake)
{
	struct live_waited *wait = live_off_cpu_end(&live->off_cpu, wake->tid, wake->since_ns);
	struct live_tally_cpu *tally;

	if (!wait)
		return 0;
	tally = live_tally_of(&live->tally, wait->head.cpu);
	wait->wake = *wake;
	wait->wake.waker[CAPTURE_COMM - 1] = '\0';
	if (wake->time_ns)
		return end_wait(live, wait, &tally->ended);
	tally->unended++;
	live_waited_free(wait);
	return 0;
}

/*
 * Store the record of a thread that ended a wait with that wait, whose end comes later. If there is no room,
 * the wait only has no such stack.
 */
static int take_waker(struct live *live, const struct capture_head *head, uint32_t size)
{
	const struct capture_woken woken = live_captured_woken(head);
	int err = live_off_cpu_woken(&live->off_cpu, &woken, head, size);

	return err == -ENOMEM ? err : 0;
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
	struct capture_question question = { 0 };
	int err;

	if (size == sizeof(question))
		memcpy(&question, bytes, sizeof(question));
	if (question.magic == CAPTURE_QUESTION_MAGIC) {
		live_slots_done(&live->slots, live->slots.next - 1);
		return live_cgroups_tell(&live->cgroups, live->bpf, live->cgroup_paths,
					 question.cgroup_id);
	}
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
		/* Of a waker's only its wait says that it is lost: it was no event that fired. */
		if (size < sizeof(*head) || !(head->flags & CAPTURE_WAKER))
			live_tally_of(&live->tally, size < sizeof(*head) ? 0 : head->cpu)
				->damaged++;
		live_slots_done(&live->slots, live->slots.next - 1);
		return 0;
	}
	if (head->flags & CAPTURE_WAKER) {
		err = take_waker(live, head, size);
		live_slots_done(&live->slots, live->slots.next - 1);
		return err;
	}
	err = name_cgroup(live, head->cgroup_id, head->time_ns);
	if (err)
		return err;
	live->n_allocs += (head->flags & CAPTURE_ALLOC) != 0;
	if (!(head->flags & CAPTURE_OFF_CPU)) {
		if (head->slices_len)
			note_names(live, head->time_ns);
		if (live_short_lived_deferred(&live->queue.short_lived, head->pid))
			look_up_later(live, head->pid);
		return live_queue_sample(&live->queue, head, live->slots.next - 1);
	}
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

/* Return whether the ring has a new record that cannot wait: any other than a sample. Its records stay new. */
static bool has_urgent_record(struct live *live)
{
	struct live_ring ring = live->ring;
	const uint8_t *bytes;
	unsigned long end;
	uint32_t size;
	bool urgent = false;

	if (live_bpf_all_alike(live->bpf))
		return false;
	if (live->looked > ring.scanned)
		ring.scanned = live->looked;
	while (!urgent && (size = live_ring_scan(&ring, &bytes, &end))) {
		const struct capture_head *head = (const void *)bytes;

		urgent = !live_captured_sound(head, size, live->events.n) ||
			 head->flags & (CAPTURE_OFF_CPU | CAPTURE_WAKER);
		if (!urgent && head->slices_len)
			note_names(live, head->time_ns);
	}
	live->looked = ring.scanned;
	return urgent;
}

/*
 * When recording stops, end the waits that are still going on: they are in the kernel's table. A
 * thread that is not in that table woke up while the ring had no room for the record of its end.
 */
static int end_all_off_cpu(struct live *live)
{
	struct live_waited *wait;
	int err = 0;

	while (!err && (wait = live_off_cpu_any(&live->off_cpu))) {
		struct live_tally_cpu *tally = live_tally_of(&live->tally, wait->head.cpu);

		if (live_bpf_is_off_cpu(live->bpf, wait->head.tid, wait->head.time_ns,
					live->stopped_ns, &wait->wake)) {
			err = end_wait(live, wait, &tally->still_waiting);
			continue;
		}
		tally->unended++;
		live_waited_free(wait);
	}
	return err;
}

/* Queue an EVENT_LOST for each kind of loss of which more happened than was reported. */
static int report_losses(struct live *live, uint64_t time_ns)
{
	const struct live_tally_cpu seen = live_tally_sum(&live->tally, -1);
	struct capture_counters count = { 0 };
	int err = live_bpf_counters(live->bpf, CAPTURE_COUNTS_EVENTS, NULL, &count);
	const struct {
		enum event_lost_reason reason;
		uint64_t total;
	} losses[LIVE_LOSSES] = { { EVENT_LOST_RING_FULL, count.ring_full },
				  { EVENT_LOST_UNREADABLE, count.unreadable },
				  { EVENT_LOST_RING_FULL, seen.no_room },
				  { EVENT_LOST_DAMAGED, seen.damaged },
				  { EVENT_LOST_WAIT_END, seen.unended } };

	for (size_t i = 0; !err && i < LIVE_LOSSES; i++) {
		const struct event event = { .type = EVENT_LOST,
					     .time_ns = time_ns,
					     .lost = { .reason = losses[i].reason,
						       .n_samples = losses[i].total -
								    live->reported[i] } };

		if (losses[i].total == live->reported[i])
			continue;
		err = live_queue_event(&live->queue, &event);
		if (!err)
			live->reported[i] = losses[i].total;
	}
	return err;
}

/* Give the ring back the samples that the process that they are lent to has read. */
static void take_back(struct live *live, uint64_t now)
{
	uint64_t oldest_ns;

	if (!live->taken)
		return;
	oldest_ns = live_slots_taken(&live->slots, live->taken(live->taken_ctx));
	if (oldest_ns < now && now - oldest_ns > live->in_ring_ns)
		live->in_ring_ns = now - oldest_ns;
}

/*
 * Let what is older than the slack be given out, unless that can wait: each time that wakes the process which takes it,
 * and the longer events wait, the more processes have ended meanwhile that are left out (short_lived.h).
 */
static void move_horizon(struct live *live, uint64_t now)
{
	const uint64_t horizon_ns = now - LIVE_SLACK_NS;

	if (live->tick_ns < LIVE_TICK_NS && !live_begins(live) &&
	    now < live->moved_ns + LIVE_TICK_NS && horizon_ns < live->urgent_ns &&
	    live->queue.bytes < WAITING_BYTES &&
	    live->ring.scanned - live->moved_at < live->ring.size / WAITING_PART)
		return;
	live->moved_ns = now;
	live->moved_at = live->ring.scanned;
	live->horizon_ns = horizon_ns;
	if (live->last_urgent_ns > horizon_ns)
		live->urgent_ns = horizon_ns;
	else if (live->last_names_ns > horizon_ns)
		live->urgent_ns = horizon_ns + live_names_wait_ns(live, now);
	else
		live->urgent_ns = UINT64_MAX;
}

bool live_leave(struct live *live, uint64_t now)
{
	if (live->allocators || live->stopped || live_begins(live) ||
	    now >= live->moved_ns + LIVE_TICK_NS ||
	    live_ring_written(&live->ring) - live->ring.scanned >= live->ring.size / NEW_PART ||
	    live_ring_used(&live->ring) > live->ring.size / 2 || has_urgent_record(live) ||
	    now - LIVE_SLACK_NS >= live->urgent_ns ||
	    live_sideband_look(live->sideband, look_at_record, live))
		return false;
	live->looked_ns = now;
	return true;
}

/*
 * Take the time before reading: a record that is older by LIVE_SLACK_NS was in its ring by then, so all
 * events before the horizon are in the queue. The rest may come later.
 */
int live_drain(struct live *live)
{
	const uint64_t before = live->horizon_ns;
	uint64_t now = now_ns();
	int err;

	if (live->pins)
		live_pins_drain(live->pins, now);
	if (live->file_ids)
		live_file_ids_sweep(live->file_ids, now);
	err = live_sideband_drain(live->sideband, live->selected.others ? note_fork : NULL,
				  on_record, live);
	if (!err)
		err = queue_name(live);
	take_back(live, now);
	live_bpf_reading(live->bpf, live_ring_written(&live->ring));
	if (!err)
		err = scan_ring(live);
	if (!err && live->stopped)
		err = end_all_off_cpu(live);
	live->drained_ns = live->looked_ns = now;
	if (!err)
		move_horizon(live, now);
	if (!err && (live->horizon_ns != before || live->stopped))
		err = report_losses(live, now);
	if (err) {
		(void)snprintf(live->base.error, sizeof(live->base.error), "live system: %s",
			       strerror(-err));
		return err;
	}
	if (live->stopped) { /* no more events can come */
		live->horizon_ns = UINT64_MAX;
		live->flushed = true;
	}
	live_queue_settle(&live->queue, live->horizon_ns);
	if (live->horizon_ns != before)
		look_up_later(live, 0);
	return 0;
}

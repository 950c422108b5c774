/*
 * agent/live/live_internal.h: the state of the live source. For its four parts alone: live_open.c
 * opens it, intake.c fills its queue from the rings, live.c delivers from the queue, change.c changes
 * what is recorded.
 */
#ifndef AGENT_LIVE_LIVE_INTERNAL_H
#define AGENT_LIVE_LIVE_INTERNAL_H

#include "agent/live/alloc/cost.h"
#include "agent/live/captured.h"
#include "agent/live/cgroups.h"
#include "agent/live/choice.h"
#include "agent/live/event_queue.h"
#include "agent/live/live.h"
#include "agent/live/online.h"
#include "agent/live/rename.h"
#include "agent/live/ring.h"
#include "agent/live/selected.h"
#include "agent/live/slots.h"
#include "agent/live/system/decode.h"
#include "agent/live/tally.h"
#include "agent/live/wait.h"
#include "agent/opener/opener.h"

#define LIVE_TICK_NS UINT64_C(200000000) /* between two readings of the rings, at most */
/*
 * The same in the first second, as a recorded command may take no longer, and its runtime must be known before its samples
 * have names; and with allocations, as a new allocator must be noticed soon. With plans (set_plan), between two looks whether
 * there is something that cannot wait (live_leave).
 */
#define LIVE_TICK_SOON_NS UINT64_C(20000000)
#define LIVE_BEGINNING_NS UINT64_C(1000000000)
/* Between two such looks while no process has come for a while that needs a plan. */
#define LIVE_LOOK_NS UINT64_C(50000000)
/* Samples with memory for names wait for at most this part of the time for which their process has run. */
#define LIVE_NAMES_PART 20

/*
 * After a program was begun, look for an interpreter's mapping so much later, when the program has its mappings, but not
 * within LIVE_LOOK_NS of the last look.
 */
#define LIVE_EXEC_NS UINT64_C(5000000)

/*
 * A record gets its time before the record becomes visible, and its CPU may be delayed in between.
 * So only records older than this are delivered.
 */
#define LIVE_SLACK_NS UINT64_C(10000000)

/* Marks in the epoll set: of source_live_watch, and of programs that begin. Others have 0. */
#define LIVE_WATCHED UINT64_MAX
#define LIVE_EXEC    (UINT64_MAX - 1)

#define LIVE_OWN_FILES 1024 /* a power of two */

#define LIVE_LOSSES 5 /* kinds of losses; see report_losses */

struct live {
	struct source base;
	struct live_events events;
	struct live_bpf *bpf;
	struct live_sideband *sideband;
	struct live_pins *pins; /* NULL: files are not held open */
	struct live_mounts *mounts;
	struct opener *opener;		/* looks up views, in this process */
	struct opener_views views;	/* of the processes whose mappings were reported */
	struct live_file_ids *file_ids; /* NULL: the kernel reports the build-ids of mappings */
	struct live_ring ring;
	struct live_queue queue;
	struct event **later; /* in the queue; see look_up_later */
	size_t n_later, room_later;
	/*
	 * Files that processes with this program's own view have mapped, by the low bits of a hash of device, inode and path:
	 * what else maps such a file most probably has that view, too.
	 */
	uint64_t own_files[LIVE_OWN_FILES];
	struct live_rename rename; /* of the record before, while the side-band is read */
	struct live_off_cpu off_cpu;
	uint64_t off_cpu_min_ns;
	bool wakers;	   /* stacks of those who end waits are captured, too */
	uint64_t n_wakers; /* numbers of the waits that have such stacks */
	uint64_t tick_ns;
	struct live_allocators *allocators; /* NULL: allocations are not recorded */
	struct live_cost baseline;	    /* of this process, before it had any probes */
	uint64_t alloc_interval, n_allocs, n_frees, swept_ns;
	int epoll;
	bool rang; /* a ring has enough data, and was not read yet */

	struct live_slots slots;      /* of the records in the ring */
	uint64_t (*taken)(void *ctx); /* see source_live_lend_to; NULL: nothing is lent */
	void *taken_ctx;
	/* What the last call of live_next returned; released by the next call: */
	uint64_t held_slot;	       /* the sample's slot; UINT64_MAX: none */
	struct event *held;	       /* the event */
	struct live_waited *held_wait; /* the sample of a thread that waited */

	uint64_t began_ns; /* when the first event was asked for; 0: none was */
	uint64_t drained_ns, horizon_ns, last_ns;
	/* When the rings were drained or looked at, and the position in the ring of samples up to which that was done. */
	uint64_t looked_ns;
	unsigned long looked;
	/*
	 * Events are given out until horizon_ns. While the rings are read more often than every LIVE_TICK_NS, that is
	 * moved on only so often, but for the first second, or when the first event or sample after it that cannot wait
	 * for so long is due (UINT64_MAX: there is none).
	 */
	uint64_t moved_ns, urgent_ns;
	unsigned long moved_at; /* the position in the ring of samples then */
	uint64_t exec_due_ns;	/* when to look because a program was begun */
	/*
	 * Times of the last event that cannot wait, of the last sample with memory for names, and when a process was last
	 * known to need a plan.
	 */
	uint64_t last_urgent_ns, last_names_ns, newest_ns;
	/*
	 * See report_again: how many records were lost when it began, when it may next, until when it goes
	 * on, and the process where it stopped (0: it went through all).
	 */
	uint64_t reported_lost, report_again_ns, report_until_ns;
	uint32_t report_from, report_next;
	uint64_t in_ring_ns;		/* the longest time that a sample was in the ring */
	uint64_t reported[LIVE_LOSSES]; /* of each kind of loss, how many were reported */
	uint64_t n_sideband, sideband_lost, late;
	struct live_tally tally;
	bool stopped, flushed;
	uint64_t stopped_ns;

	struct live_online online;
	struct live_selected selected;
	struct live_choice choice;   /* the rate and the filters */
	struct live_cgroups cgroups; /* of the choice */
	bool changes;		     /* the choice may change */
	uint32_t cpu_filter;	     /* CAPTURE_FILTER_CPU, or 0 */
	uint64_t watched_ns, all_gone_ns;

	struct live_symbols *symbols; /* NULL: not opened yet, or the kernel does not support it */
	bool symbols_tried;

	struct live_cgroup_paths *cgroup_paths; /* NULL: paths of cgroups cannot be read */

	bool leaves_records; /* see source_live_leave_records */

	const uint8_t *vdso;
	size_t vdso_size;
	struct uw_region regions[LIVE_REGIONS_MAX];
};

extern const struct source_ops live_ops; /* live.c */

/* Return whether the recording is in its first second. */
static inline bool live_begins(const struct live *live)
{
	return live->drained_ns < live->began_ns + LIVE_BEGINNING_NS;
}

/*
 * Return how long samples with memory for names may wait. The names are read from the memory of a process, which is there
 * until it ends. A process that has run for long will probably not end at once: so what is lost at its end is at most a
 * small part of what it ran.
 */
static inline uint64_t live_names_wait_ns(const struct live *live, uint64_t now)
{
	uint64_t wait_ns = now > live->newest_ns ? (now - live->newest_ns) / LIVE_NAMES_PART : 0;

	if (wait_ns < LIVE_TICK_SOON_NS)
		return 0;
	return wait_ns < LIVE_TICK_NS ? wait_ns : LIVE_TICK_NS;
}

/*
 * Put an event into the queue, and first do what must happen at once: look up its file, hold the
 * file open, watch its allocator. The queue copies the event. ctx is the struct live.
 */
int live_enqueue(void *ctx, const struct event *event);

/*
 * Read all rings, queue what they hold and report losses. The queue is then complete up to
 * horizon_ns. On failure the source's error says why.
 */
int live_drain(struct live *live);
/*
 * With plans, look at the rings and return whether they can be left as they are: nothing is new that cannot wait until
 * LIVE_TICK_NS have passed. That costs a fraction of what to drain them costs, and by then many processes have ended
 * without a sample.
 */
bool live_leave(struct live *live, uint64_t now);

/* Return the filters (enum capture_filter) that the options need. */
uint32_t live_filters_of(const struct source_live_options *options);
/*
 * Let these options say which cgroups are recorded and, if the choice may change, which processes,
 * names and users. They are borrowed until the next call. On failure error, of LIVE_ERROR_SIZE bytes,
 * says what is wrong.
 */
int live_choose(struct live *live, const struct source_live_options *options, char *error);

/*
 * Add the side-band's descriptors to the epoll set. Descriptors that are already in it stay there.
 */
int live_watch_sideband(struct live *live);
/* Be told once that a program begins, on each CPU; before, by live_watch_sideband. */
int live_listen_for_exec(struct live *live);

#endif

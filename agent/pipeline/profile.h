/*
 * agent/pipeline/profile.h: the profile that exporters read: walked samples, where equal stacks of
 * one thread are counted once.
 *
 * Modules are stored in a catalogue that outlives the profiles, so that a rotating recording names
 * each of them once.
 */
#ifndef AGENT_PIPELINE_PROFILE_H
#define AGENT_PIPELINE_PROFILE_H

#include "agent/event.h"
#include "agent/labels.h"
#include "agent/process/module.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * An address in a module. vaddr is the ELF vaddr for MODULE_FILE and MODULE_VDSO with an object,
 * the file offset for a file without an object, and the run-time address otherwise. It is the
 * address for symbol lookup: ra - 1 for callers.
 */
struct location {
	uint64_t vaddr;
	const struct module *module;
	uint8_t ra_bytes;   /* 1: the return address was vaddr + 1; 0: vaddr is exact */
	uint8_t confidence; /* enum uw_confidence: whether this frame really is the caller */
};

/* What labels an entry has beside those that are numbers or names of threads: texts of agent/labels.h. */
enum profile_labels {
	PROFILE_CGROUP,	 /* of its cgroup */
	PROFILE_PROCESS, /* of its process */
	PROFILE_USER,	 /* of its user */
	PROFILE_WAKER,	 /* of who woke it, if it waited */
	PROFILE_THREAD,	 /* that its thread has set itself */
	PROFILE_LABELS
};

/*
 * One folded line: a stack of one thread, of one event. What the rules drop (profile.rules) is 0 or NULL
 * here, so that stacks that differ in nothing else are one entry.
 */
struct profile_entry {
	uint16_t event;	    /* index in source_info.events */
	uint8_t stop;	    /* enum uw_stop: how the user part ended */
	bool has_user;	    /* false: only a kernel stack */
	bool stack_cut;	    /* the live stack was longer than the copied part */
	uint8_t confidence; /* enum uw_confidence: of the least certain frame */
	uint32_t pid, tid;
	const char *comm;	  /* the thread's name; sanitised */
	const char *process_comm; /* the process's name; sanitised */
	uint64_t cgroup_id;	  /* 0: unknown, or its path is known */
	const char *labels[PROFILE_LABELS];
	uint32_t first_location; /* in profile.location_ids; innermost first, kernel before user */
	uint32_t n_locations, n_kernel;
	uint64_t n_samples;
	uint64_t value; /* sum of periods */
	/* Of samples of waits: how many waits, and the part of value after they were woken. */
	uint64_t n_off_cpu, runnable;
	/* Allocations, in units of 1 / EVENT_OBJECT: all, and those not freed yet. */
	uint64_t objects, live_objects;
	uint64_t live;	  /* bytes not freed yet; value has the bytes of all allocations */
	uint64_t time_ns; /* on the source's clock; only if profile.separate */
};

struct accounting { /* captured = unwound + sum of lost; unwound = sum of stop */
	uint64_t captured;
	uint64_t unwound;
	uint64_t stop[UW_STOP_N]; /* how the user part of the unwound samples ended */
	uint64_t cut; /* unwound samples whose live stack was longer than the copied part */
	uint64_t lost[EVENT_LOST_N];
	uint64_t sideband_lost;
};

void accounting_add(struct accounting *to, const struct accounting *from);
/*
 * Write "captured 100 = unwound 98 (root 95, truncated 3) + lost 2 (ring_full 2)". The text is cut
 * to size, with NUL.
 */
void accounting_text(const struct accounting *a, char *out, size_t size);
/* The same for samples that were not walked: "captured 9 = written 8 + lost 1 (not_written 1)". */
void accounting_written_text(const struct accounting *a, char *out, size_t size);

/* What became of events that were not captured. */
enum profile_filtered {
	PROFILE_FILTERED_IDLE,
	PROFILE_FILTERED_SELF,
	PROFILE_FILTERED_PROCESS,
	PROFILE_FILTERED_OTHER,
	PROFILE_FILTERED_CGROUP,
	PROFILE_FILTERED_PERIOD,
	PROFILE_FILTERED_FAILED,
	PROFILE_FILTERED_SHORT_WAIT,
	PROFILE_FILTERED_N
};

struct profile_fired { /* during the window of a recording; see live_counters */
	uint64_t fired;
	uint64_t filtered[PROFILE_FILTERED_N];
};

struct profile {
	struct profile_entry *entries; /* in the order in which the stacks first appeared */
	size_t n_entries;
	uint32_t *location_ids; /* into locations */
	size_t n_location_ids;
	const struct location *locations; /* owned by the profile */
	size_t n_locations;
	uint64_t start_ns, end_ns; /* clock of the source: the window, or first and last sample */
	uint64_t wall_offset_ns;   /* + a time = ns since 1970; 0: as source_info says */
	struct accounting accounting;
	struct profile_fired fired; /* all 0: not known */
	_Atomic size_t *users;	    /* counts the profiles that there are; NULL: nobody counts */
	const struct label_rules *rules; /* borrowed; NULL: there are none */
	bool separate; /* equal stacks are not counted together: each entry is one sample */
};

#endif

/*
 * agent/source/frozen.h: a source for one process at one moment, shared by core files, snapshots
 * and stopped processes.
 *
 * The code that reads one of these inputs adds mappings and threads. frozen_next() then returns
 * them as events: names, mappings, and one sample for each thread.
 */
#ifndef AGENT_SOURCE_FROZEN_H
#define AGENT_SOURCE_FROZEN_H

#include "agent/source/source.h"

struct frozen_thread {
	uint32_t tid;
	struct uw_regs regs;
	uint64_t code_mask;		 /* see struct uw_thread */
	uint64_t thread_pointer;	 /* 0: not known */
	char *name;			 /* name of the sample; owned, like the pointers below */
	char *comm;			 /* NULL: the name of the process */
	const struct uw_region *regions; /* the array is owned, the bytes are not */
	uint32_t n_regions;
};

struct frozen {
	struct source source; /* the first member */
	uint32_t pid;
	uint64_t time_ns;
	char comm[64];
	struct event_mapping *mappings; /* the paths are owned, the images are not */
	size_t n_mappings, room_mappings;
	struct frozen_thread *threads;
	size_t n_threads, room_threads;
	uint64_t n_lost; /* threads that could not be read */
	uw_read_fn read; /* memory of all threads; NULL: only their regions */
	void *read_ctx;
	int err; /* damage, returned at the end with source.error; 0: none */
	struct source_event event;
	size_t at; /* index of the next event */
};

/*
 * Initialize *frozen. kind is stored in source_info. The source has one event, "threads"; each
 * thread counts 1.
 */
void frozen_init(struct frozen *frozen, const struct source_ops *ops, const char *kind,
		 uint16_t machine);
void frozen_fini(struct frozen *frozen);

/* Add a mapping; its path is copied. Return 0 or -ENOMEM. */
int frozen_add_mapping(struct frozen *frozen, const struct event_mapping *mapping);
/* Add a thread and take over the memory that it owns, even on failure. Return 0 or -ENOMEM. */
int frozen_add_thread(struct frozen *frozen, const struct frozen_thread *thread);

/* Sort the mappings by address. Of overlapping mappings only the one that starts first is kept. */
void frozen_sort(struct frozen *frozen);
/* Return the mapping that contains addr, or NULL. The mappings must be sorted (frozen_sort()). */
struct event_mapping *frozen_mapping_at(const struct frozen *frozen, uint64_t addr);

/*
 * source_ops.next: return the process's name, its mappings, the names of the threads, the threads
 * as samples, the number of lost threads, and at last the damage as an error.
 */
int frozen_next(struct source *source, struct event *event, int timeout_ms);

/* Record damage of the input. Only the first call counts. */
void frozen_damage(struct frozen *frozen, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif

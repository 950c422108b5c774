/*
 * agent/source/frozen.h: one process at one moment, which core files, snapshots
 * and a stopped process all are.  Its maker adds what it knows; then it is a
 * source like others: names, mappings, and each thread as a sample.
 */
#ifndef AGENT_SOURCE_FROZEN_H
#define AGENT_SOURCE_FROZEN_H

#include "agent/source/source.h"

struct frozen_thread {
	uint32_t tid;
	struct uw_regs regs;
	uint64_t code_mask;		 /* see struct uw_thread */
	char *name;			 /* of the sample; owned, as are those below */
	char *comm;			 /* NULL: as the process */
	const struct uw_region *regions; /* array owned, its bytes are not */
	uint32_t n_regions;
};

struct frozen {
	struct source source; /* first: what users of the source see */
	uint32_t pid;
	uint64_t time_ns;
	char comm[64];
	struct event_mapping *mappings; /* paths owned, images not */
	size_t n_mappings, room_mappings;
	struct frozen_thread *threads;
	size_t n_threads, room_threads;
	uint64_t n_lost; /* threads that could not be read */
	uw_read_fn read; /* all threads' memory; NULL: their regions alone */
	void *read_ctx;
	int err; /* told at the end, with source.error: the input was damaged there */
	struct source_event event;
	size_t at; /* of the events to give */
};

/* kind as in source_info; one event, "threads", each of which counts one. */
void frozen_init(struct frozen *frozen, const struct source_ops *ops, const char *kind,
		 uint16_t machine);
void frozen_fini(struct frozen *frozen);

/* path is copied. */
int frozen_add_mapping(struct frozen *frozen, const struct event_mapping *mapping);
/* Takes over what thread owns, also on failure. */
int frozen_add_thread(struct frozen *frozen, const struct frozen_thread *thread);

/* By address; of those that overlap, the one that starts first stays. */
void frozen_sort(struct frozen *frozen);
/* After frozen_sort: the mapping at addr, NULL: none. */
struct event_mapping *frozen_mapping_at(const struct frozen *frozen, uint64_t addr);

int frozen_next(struct source *source, struct event *event, int timeout_ms);

/* The first failure alone is told. */
void frozen_damage(struct frozen *frozen, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif

/*
 * agent/process/cgroups.h: the paths of cgroups by their ids.
 */
#ifndef AGENT_PROCESS_CGROUPS_H
#define AGENT_PROCESS_CGROUPS_H

#include "agent/event.h"
#include "agent/hash.h"

struct cgroups { /* all zero: none is known */
	struct cgroup {
		uint64_t id;
		const char *path;
	} * cgroups;
	size_t n, room;
	struct hash_index by_id;
	struct strings paths;
};

int cgroups_event(struct cgroups *cgroups, const struct event_cgroup *event);
/* Sanitised; equal paths are equal pointers, for the table's life.  NULL: not known. */
const char *cgroups_path(const struct cgroups *cgroups, uint64_t id);
void cgroups_fini(struct cgroups *cgroups);

#endif

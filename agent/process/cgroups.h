/* agent/process/cgroups.h: maps cgroup ids to paths. */
#ifndef AGENT_PROCESS_CGROUPS_H
#define AGENT_PROCESS_CGROUPS_H

#include "agent/event.h"
#include "agent/hash.h"

struct cgroups { /* all zero: empty */
	struct cgroup {
		uint64_t id;
		const char *path;
	} * cgroups;
	size_t n, room;
	struct uw_hash_index by_id;
	struct strings paths;
};

/* Add or update the path of a cgroup. -ENOMEM. */
int cgroups_event(struct cgroups *cgroups, const struct event_cgroup *event);
/*
 * Return the sanitised path of a cgroup; NULL: unknown. Equal paths are equal pointers. Valid until
 * cgroups_fini.
 */
const char *cgroups_path(const struct cgroups *cgroups, uint64_t id);
void cgroups_fini(struct cgroups *cgroups);

#endif

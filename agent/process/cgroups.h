/*
 * agent/process/cgroups.h: maps cgroup ids to paths, and to the labels that follow from these. Of many
 * cgroups, those that no sample had for the longest time are forgotten.
 */
#ifndef AGENT_PROCESS_CGROUPS_H
#define AGENT_PROCESS_CGROUPS_H

#include "agent/event.h"
#include "agent/hash.h"
#include "agent/labels.h"

struct cgroup {
	uint64_t id;
	const char *path; /* sanitised; equal paths are equal pointers */
	const char *
		labels; /* a text of agent/labels.h, with the path if the rules keep it; likewise */
	uint64_t used;	/* when it was looked up last, counted in look-ups */
};

struct cgroups { /* all zero: empty */
	struct cgroup *cgroups;
	size_t n, room;
	uint64_t n_used;
	struct uw_hash_index by_id;
	struct strings texts;
	const struct label_rules *rules; /* borrowed; NULL: none */
};

/*
 * Add or update the path of a cgroup. A path beyond the limit cgroup-path-bytes is refused: its samples
 * have the cgroup's id only. -ENOMEM.
 */
int cgroups_event(struct cgroups *cgroups, const struct event_cgroup *event);
/* Return what is known of a cgroup; NULL: nothing. Its texts are valid until cgroups_forget. */
const struct cgroup *cgroups_find(struct cgroups *cgroups, uint64_t id);
/*
 * Return whether there are more than the limit; then mark the texts that are still used (strings_mark),
 * and call cgroups_forget, which leaves the half that was used last, and the marked texts.
 */
bool cgroups_are_many(const struct cgroups *cgroups);
void cgroups_forget(struct cgroups *cgroups);
void cgroups_fini(struct cgroups *cgroups);

#endif

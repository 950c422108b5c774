/*
 * agent/live/cgroups.h: which cgroups are recorded: those that the options name by path, unit,
 * container or pod, and all below them.
 *
 * Only the path of a cgroup decides. The BPF programs have the answers in a table; for a new cgroup
 * they ask (struct capture_question).
 */
#ifndef AGENT_LIVE_CGROUPS_H
#define AGENT_LIVE_CGROUPS_H

#include "agent/source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_bpf;
struct live_cgroup_paths;

enum live_cgroup_kind {
	LIVE_CGROUP_PATH,      /* a path from the hierarchy's root on */
	LIVE_CGROUP_CONTAINER, /* the beginning of an id */
	LIVE_CGROUP_POD,       /* the beginning of a pod's uid */
	LIVE_CGROUP_UNIT,      /* of systemd, or a slice; wildcards as in fnmatch(3) */
};

struct live_cgroup_choice {
	enum live_cgroup_kind kind;
	const char *asked; /* as the options have it; borrowed */
	char *text;	   /* owned */
	bool found;	   /* a cgroup matched */
};

struct live_cgroups { /* all zero: none is named, so every cgroup is recorded */
	struct live_cgroup_choice *choices;
	size_t n;
};

/*
 * Take what the options name; they are borrowed for the life of *out. On failure error, of
 * LIVE_ERROR_SIZE bytes, names what is wrong. live_cgroups_fini releases *out in each case.
 */
int live_cgroups_init(struct live_cgroups *out, const struct source_live_options *options,
		      char *error);
void live_cgroups_fini(struct live_cgroups *c);

/* Return whether the cgroup of this path is recorded, and note what it was found by. */
bool live_cgroups_match(const struct live_cgroups *c, const char *path);

/*
 * Answer for all cgroups that there are. must_exist: it is an error (-EINVAL) if a choice matches none
 * of them. On failure error says why, as above.
 */
int live_cgroups_tell_all(const struct live_cgroups *c, struct live_bpf *bpf, bool must_exist,
			  char *error);
/* Answer the question for one cgroup. Return 0 or a negative code. */
int live_cgroups_tell(const struct live_cgroups *c, struct live_bpf *bpf,
		      const struct live_cgroup_paths *paths, uint64_t id);

#endif

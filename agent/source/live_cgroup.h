/*
 * agent/source/live_cgroup.h: the cgroups of the cgroup2 hierarchy, wherever it is mounted.
 *
 * A cgroup's id, as BPF programs and perf tell it, is the inode number of its folder.
 */
#ifndef AGENT_SOURCE_LIVE_CGROUP_H
#define AGENT_SOURCE_LIVE_CGROUP_H

#include "schema/capture.h"

#include <stddef.h>
#include <stdint.h>

/* path: from the hierarchy's root, which is "/". */
typedef int (*live_cgroup_fn)(void *ctx, const struct capture_cgroup *cgroup, const char *path);

/*
 * Tells of every cgroup there is, parents first.  Returns fn's first non-zero
 * answer; -ENOENT: there is no cgroup2 hierarchy here.
 */
int live_cgroups(live_cgroup_fn fn, void *ctx);

/*
 * The cgroup that path names, from the hierarchy's root or with its mount point
 * in front.  -ENOENT: there is none.
 */
int live_cgroup_find(const char *path, struct capture_cgroup *out);

/* The containers whose ids begin with text: as many as fit; *n grows.  -ENOENT: none. */
int live_cgroup_containers(const char *text, struct capture_cgroup *out, size_t room, size_t *n);

struct live_cgroup_paths;

int live_cgroup_paths_new(struct live_cgroup_paths **out); /* -ENOENT: no cgroup2 hierarchy here */
void live_cgroup_paths_free(struct live_cgroup_paths *paths); /* NULL is fine */
/* The path of a cgroup that is still there, from the hierarchy's root, which is "/". */
int live_cgroup_path(const struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size);

#endif

/*
 * agent/live/system/cgroup.h: finds cgroups of the cgroup2 hierarchy, wherever it is mounted.
 *
 * The id of a cgroup in BPF programs and perf is the inode number of its directory.
 */
#ifndef AGENT_LIVE_SYSTEM_CGROUP_H
#define AGENT_LIVE_SYSTEM_CGROUP_H

#include "schema/capture.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Look up the cgroup of a path, which begins at the hierarchy's root or at its mount point.
 * -ENOENT: there is no such cgroup.
 */
int live_cgroup_find(const char *path, struct capture_cgroup *out);

/*
 * Find the containers whose ids begin with text, and append their cgroups to out, which has room
 * entries of which *n are used. -ENOENT: there is none; -E2BIG: out is full.
 */
int live_cgroup_containers(const char *text, struct capture_cgroup *out, size_t room, size_t *n);

struct live_cgroup_paths;

int live_cgroup_paths_new(struct live_cgroup_paths **out);    /* -ENOENT: cgroup2 is not mounted */
void live_cgroup_paths_free(struct live_cgroup_paths *paths); /* NULL is fine */
/*
 * Get the path of a cgroup, relative to the hierarchy's root, which is "/". -EEXIST: an earlier call
 * was asked for the same cgroup, and not for many others since; -ENOENT: the cgroup no longer exists;
 * -ENOMEM.
 */
int live_cgroup_path_once(struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size);

#endif

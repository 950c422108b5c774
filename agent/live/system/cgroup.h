/*
 * agent/live/system/cgroup.h: finds cgroups of the cgroup2 hierarchy, wherever it is mounted.
 *
 * The id of a cgroup in BPF programs and perf is the inode number of its directory.
 */
#ifndef AGENT_LIVE_SYSTEM_CGROUP_H
#define AGENT_LIVE_SYSTEM_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/*
 * Write the path of a cgroup from the hierarchy's root on into name. path begins there or at the mount
 * point; the cgroup need not exist. -ENOENT: cgroup2 is not mounted; -EINVAL: the path goes up (..);
 * -ENAMETOOLONG.
 */
int live_cgroup_name(const char *path, char *name, size_t size);

/* Take a cgroup. path is borrowed until the call ends. A result other than 0 ends the walk with it. */
typedef int (*live_cgroup_fn)(void *ctx, uint64_t id, const char *path);

/*
 * Report all cgroups, each before those below it. -ENOENT: cgroup2 is not mounted. Cgroups that come
 * or go meanwhile may be left out.
 */
int live_cgroup_each(live_cgroup_fn fn, void *ctx);

struct live_cgroup_paths;

int live_cgroup_paths_new(struct live_cgroup_paths **out);    /* -ENOENT: cgroup2 is not mounted */
void live_cgroup_paths_free(struct live_cgroup_paths *paths); /* NULL is fine */
/*
 * Get the path of a cgroup from the hierarchy's root on. -ESTALE: it does not exist any more, or is
 * only being made; or another negative code.
 */
int live_cgroup_path(const struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size);
/*
 * Get the path of a cgroup, relative to the hierarchy's root, which is "/". -EEXIST: an earlier call
 * was asked for the same cgroup, and not for many others since; -ENOENT: the cgroup no longer exists;
 * -ENOMEM.
 */
int live_cgroup_path_once(struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size);

#endif

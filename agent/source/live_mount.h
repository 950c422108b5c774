/*
 * agent/source/live_mount.h: file systems that are mounted in other mount namespaces
 * alone, as containers' are: through whom they can be reached when the process that
 * ran a file of theirs has ended.
 */
#ifndef AGENT_SOURCE_LIVE_MOUNT_H
#define AGENT_SOURCE_LIVE_MOUNT_H

#include <stddef.h>
#include <stdint.h>

struct live_mounts;
struct live_pins;

int live_mounts_new(struct live_mounts **out);	   /* -ENOMEM */
void live_mounts_free(struct live_mounts *mounts); /* NULL is fine */

/*
 * A file of this device was mapped.  If it is the first, a process is sought that sees
 * the file system, and pins (NULL: none) hold what is executed there from now on.
 */
void live_mounts_see(struct live_mounts *mounts, struct live_pins *pins, uint32_t major,
		     uint32_t minor, uint64_t now_ns);

/*
 * A descriptor of that file, the caller's, if it is still there by that path in the
 * root of the process that was found; -ENOENT, or what opening said.
 */
int live_mounts_open(const struct live_mounts *mounts, uint32_t major, uint32_t minor,
		     uint64_t inode, const char *path, int *fd);

/*
 * Device and inode by which the kernel would tell of a mapping of the file.  stat tells
 * others where an overlay's layers are on several file systems.  Negative: why not.
 */
int live_file_identity(int fd, uint32_t *major, uint32_t *minor, uint64_t *inode);

#endif

/*
 * agent/live/system/mount.h: file systems that are mounted only in other mount namespaces, such as
 * those of containers. Finds a process through whose root directory they can be reached, even after
 * the process that ran a file of theirs has ended.
 */
#ifndef AGENT_LIVE_SYSTEM_MOUNT_H
#define AGENT_LIVE_SYSTEM_MOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_mounts;
struct live_pins;

int live_mounts_new(struct live_mounts **out);	   /* -ENOMEM */
void live_mounts_free(struct live_mounts *mounts); /* NULL is fine */

/*
 * Note that a file of this device was mapped. When the device is new, look for a process that sees
 * the file system, and let pins (NULL: none) hold the files that are executed on it from now on.
 * now_ns: CLOCK_MONOTONIC.
 */
void live_mounts_see(struct live_mounts *mounts, struct live_pins *pins, uint32_t major,
		     uint32_t minor, uint64_t now_ns);

/* Return whether a file of this device was mapped before. */
bool live_mounts_know(const struct live_mounts *mounts, uint32_t major, uint32_t minor);

/*
 * Open a file by its path in the root directory of the process that was found. *fd is the caller's
 * to close. -ENOENT: no such process is known, or the path is another file by now; or the error of
 * opening.
 */
int live_mounts_open(const struct live_mounts *mounts, uint32_t major, uint32_t minor,
		     uint64_t inode, const char *path, int *fd);

/*
 * Get the device and the inode by which the kernel reports a mapping of the file. stat gives others
 * if the layers of an overlay are on several file systems. Return 0 or a negative errno value.
 */
int live_file_identity(int fd, uint32_t *major, uint32_t *minor, uint64_t *inode);

#endif

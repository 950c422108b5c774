/* agent/container.h: finds out to which container a cgroup belongs. */
#ifndef AGENT_CONTAINER_H
#define AGENT_CONTAINER_H

#include <stdbool.h>

#define CONTAINER_ID \
	64 /* hexadecimal digits in the ids that Docker, containerd, CRI-O, Podman use */

/*
 * Copy the container id out of a cgroup's path, such as "/docker/0123…" or
 * "/kubepods.slice/…/cri-containerd-0123….scope", into id and return true. If the path has several
 * ids, take the innermost. Return false, with id unchanged, if the path has none.
 */
bool container_of(const char *path, char id[CONTAINER_ID + 1]);

#endif

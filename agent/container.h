/*
 * agent/container.h: which container a cgroup is.
 */
#ifndef AGENT_CONTAINER_H
#define AGENT_CONTAINER_H

#include <stdbool.h>

#define CONTAINER_ID \
	64 /* hexadecimal digits of the ids that Docker, containerd, CRI-O, Podman give */

/*
 * The id in a cgroup's path, its innermost one, as in "/docker/0123…",
 * "/kubepods.slice/…/cri-containerd-0123….scope"; false: there is none.
 */
bool container_of(const char *path, char id[CONTAINER_ID + 1]);

#endif

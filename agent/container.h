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

enum { CONTAINER_TEXT = 256 };

/* What the path of a cgroup says about who runs there. "": nothing. */
struct container_labels {
	/* As journald's _SYSTEMD_UNIT, _SYSTEMD_USER_UNIT and _SYSTEMD_SLICE. */
	char unit[CONTAINER_TEXT], user_unit[CONTAINER_TEXT], slice[CONTAINER_TEXT];
	char id[CONTAINER_TEXT];  /* as container_of; of systemd-nspawn the machine's name */
	const char *runtime;	  /* "docker", "containerd", "cri-o", "podman", "systemd-nspawn" */
	char pod[CONTAINER_TEXT]; /* Kubernetes: the pod's uid, with dashes */
	const char *qos;	  /* and its class: "guaranteed", "burstable" or "besteffort" */
};
void container_labels(const char *path, struct container_labels *out);

#endif

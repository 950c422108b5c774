/* agent/send/programs.h: files of this host that modules were read from, for senders. */
#ifndef AGENT_SEND_PROGRAMS_H
#define AGENT_SEND_PROGRAMS_H

#include "agent/export/profile/stacks.h"

#include <stdbool.h>
#include <stddef.h>

enum { PROGRAMS_BUILD_ID = 64 }; /* bytes of a build-id, at most */

/* Return whether a module is an ELF file with a path and a build-id that programs_open can look for. */
bool programs_have(const struct stacks_module *module);

/*
 * Open a file if everybody may read it, it has this build-id, and at most 1 GiB. Return its descriptor, or -1. The build-id is
 * searched for in the first MiB; the file is not read in any other way.
 */
int programs_open(const char *path, const char *build_id, size_t *size);

#endif

/* agent/live/host.h: facts about the machine that is recorded, which is this one. */
#ifndef AGENT_LIVE_HOST_H
#define AGENT_LIVE_HOST_H

#include "agent/source/source.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Describe this machine, its kernel and the time in info. Values that cannot be read stay empty.
 */
void live_host_fill(struct source_info *info);

/* Find the vDSO of this process and its size. *out and *out_size stay unchanged if there is none. */
void live_host_vdso(const uint8_t **out, size_t *out_size);

#endif

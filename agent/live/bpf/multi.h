/*
 * agent/live/bpf/multi.h: attaches many probes in one file as one link (Linux 6.6 and newer).
 * The kernel takes a tenth of a second to remove each probe that is attached alone.
 *
 * libbpf older than 1.3 does not support such links, so this file calls bpf(2).
 */
#ifndef AGENT_LIVE_BPF_MULTI_H
#define AGENT_LIVE_BPF_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BPF_TRACE_UPROBE_MULTI: the expected attach type of its programs */
#define LIVE_MULTI_ATTACH_TYPE 48

/*
 * Return whether the kernel has such links, and a link to one process covers all threads of the
 * process.
 */
bool live_multi_supported(void);

/*
 * Attach a uprobe program to n offsets of a file. Return the link's descriptor, or a negative errno
 * value. The probes are removed when the last descriptor of the link is closed. pid: only in this
 * process; 0: in all processes that map the file. cookies may be NULL. returns: at the functions'
 * returns.
 */
int live_multi_attach(int program, uint32_t pid, const char *path, const uint64_t *offs,
		      const uint64_t *cookies, size_t n, bool returns);

#endif

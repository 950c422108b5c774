/*
 * agent/source/live_multi.h: many probes in one file as one link (Linux 6.6 and
 * newer).  One by one each costs a tenth of a second to take away.
 *
 * For libbpf older than 1.3, which knows nothing of it.
 */
#ifndef AGENT_SOURCE_LIVE_MULTI_H
#define AGENT_SOURCE_LIVE_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_MULTI_ATTACH_TYPE 48 /* BPF_TRACE_UPROBE_MULTI: what its programs expect */

/* Return whether the kernel has such links, and those of a process see all of its threads. */
bool live_multi_supported(void);

/*
 * Return a descriptor of the link, which its last one takes away; or an error.  program: a
 * uprobe's.  pid: the breakpoints are in this process alone; 0: in all that map the file.
 * cookies: NULL: none.
 */
int live_multi_attach(int program, uint32_t pid, const char *path, const uint64_t *offs,
		      const uint64_t *cookies, size_t n, bool returns);

#endif

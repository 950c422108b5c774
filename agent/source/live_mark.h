/*
 * agent/source/live_mark.h: whether asking the kernel for build-ids harms other programs.
 *
 * A perf event may ask for the build-id of each mapping instead of its device and inode
 * (perf_event_attr.build_id).  Some kernels then mark the records of every other listener
 * as bearing a build-id, too, although they bear none (Linux 6.1 and 6.18: the mark is not taken
 * back between two listeners).  perf 6.1 writes past a buffer on such a record and aborts.
 */
#ifndef AGENT_SOURCE_LIVE_MARK_H
#define AGENT_SOURCE_LIVE_MARK_H

#include <stdbool.h>

/*
 * Return true if an event of this process gets build-ids and leaves the records of two
 * other events of this process as they are.  The events watch the calling thread alone, so
 * no other program's records change while this is found out.  False also where the kernel
 * has no build-ids, and where it cannot be found out.
 */
bool live_mark_build_ids_are_safe(void);

#endif

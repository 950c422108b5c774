/*
 * agent/live/system/mark.h: checks whether asking the kernel for build-ids harms other programs.
 *
 * A perf event may ask for the build-id of each mapping instead of its device and inode
 * (perf_event_attr.build_id). Some kernels then set the build-id flag in the records of every other
 * listener, too, although these records have no build-id (Linux 6.1 and 6.18 do not clear the flag
 * between two listeners). perf 6.1 writes past a buffer on such a record and aborts.
 */
#ifndef AGENT_LIVE_SYSTEM_MARK_H
#define AGENT_LIVE_SYSTEM_MARK_H

#include <stdbool.h>

/*
 * Return true if an event of this process gets build-ids and does not change the records of two
 * other events of this process. The events watch the calling thread alone, so the only records of
 * other programs that may change are those of one test mapping. Return false also if the kernel has
 * no build-ids, or the test fails.
 */
bool live_mark_build_ids_are_safe(void);

#endif

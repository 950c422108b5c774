/*
 * agent/process/hotspot.h: the compiled code of a Java virtual machine, read out of its
 * memory while it is there.
 *
 * HotSpot's code keeps no frame pointer and registers nowhere; how large its frames are stands in
 * the code cache, and where that is in tables that libjvm.so exports for debuggers
 * (gHotSpotVMStructs and gHotSpotVMTypes, src/hotspot/share/runtime/vmStructs.hpp).  x86_64 alone.
 */
#ifndef AGENT_PROCESS_HOTSPOT_H
#define AGENT_PROCESS_HOTSPOT_H

#include "unwinder/unwinder.h"

struct hotspot;

/* The names whose vaddrs uw_object_exports is to be asked for in libjvm.so. */
enum { HOTSPOT_EXPORTS = 2 };
extern const char *const hotspot_exports[HOTSPOT_EXPORTS];

/* exports: their addresses in the process. */
int hotspot_new(const uint64_t exports[HOTSPOT_EXPORTS], struct hotspot **out);
void hotspot_free(struct hotspot *hotspot); /* NULL is fine */
bool hotspot_is_of(const struct hotspot *hotspot, const uint64_t exports[HOTSPOT_EXPORTS]);

/*
 * All compiled code that is there now, to walk by, or for its names alone.  What was read before is
 * not read again, and where read fails (its time is over) the rest comes with the next call.  news: code was seen to run that
 * was not there before.
 * -EAGAIN: nothing is new; -ENOENT: there is no code yet, or it is of a machine that is not
 * understood; -EFAULT, -ENOMEM.
 */
int hotspot_read(struct hotspot *hotspot, uw_read_fn read, void *ctx, bool news, bool names,
		 struct uw_dynamic **out);

#endif

/*
 * agent/process/hotspot.h: reads the compiled code of a Java virtual machine from its memory, while
 * it exists. Only for x86_64.
 *
 * HotSpot's code has no frame pointers and is registered nowhere. The size of each frame is stored
 * in the code cache. The layout of the code cache is described by tables that libjvm.so exports for
 * debuggers (gHotSpotVMStructs and gHotSpotVMTypes, src/hotspot/share/runtime/vmStructs.hpp).
 */
#ifndef AGENT_PROCESS_HOTSPOT_H
#define AGENT_PROCESS_HOTSPOT_H

#include "unwinder/unwinder.h"

struct hotspot;

/* The names to look up in libjvm.so with uw_object_exports. */
enum { HOTSPOT_EXPORTS = 2 };
extern const char *const hotspot_exports[HOTSPOT_EXPORTS];

/* Create a reader. exports: run-time addresses of the exported tables in the process. -ENOMEM. */
int hotspot_new(const uint64_t exports[HOTSPOT_EXPORTS], struct hotspot **out);
void hotspot_free(struct hotspot *hotspot); /* NULL is fine */
/* Return whether the reader was created with these exports. */
bool hotspot_is_of(const struct hotspot *hotspot, const uint64_t exports[HOTSPOT_EXPORTS]);

/*
 * Return all compiled code that exists now, with unwind information or, if names is set, with names
 * only. Code that was read before is not read again. If read fails because its time is over
 * (-ETIME), the rest is read in the next call. news: a sample ran code that was unknown before.
 *
 * Return 0, -EAGAIN if nothing is new, -ENOENT if there is no code yet or the virtual machine's
 * tables are not understood, -EFAULT or -ENOMEM.
 */
int hotspot_read(struct hotspot *hotspot, uw_read_fn read, void *ctx, bool news, bool names,
		 struct uw_dynamic **out);

#endif

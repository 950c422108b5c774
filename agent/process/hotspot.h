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

#include "agent/process/calls.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hotspot;

/* The names to look up in libjvm.so with uw_object_exports. */
enum { HOTSPOT_EXPORTS = 2 };
extern const char *const hotspot_exports[HOTSPOT_EXPORTS];

/* Create a reader. exports: run-time addresses of the exported tables in the process. -ENOMEM. */
int hotspot_new(const uint64_t exports[HOTSPOT_EXPORTS], struct hotspot **out);
void hotspot_free(struct hotspot *hotspot);		 /* NULL is fine */
size_t hotspot_memory_of(const struct hotspot *hotspot); /* what it takes, in bytes */
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

/*
 * Find the frames of Java methods on a sample's stack, and read what those execute that were not seen before:
 * the method and its line; of compiled code also the calls that were inlined. What may be a frame is taken for
 * one: a walk decides later. Call hotspot_read before, so that new code is known.
 *
 * Return 0 and bytes as of schema/calls_blob.h, borrowed until the next call; -EAGAIN if nothing is new;
 * -ENOENT if there is no code yet; -ENOMEM.
 */
int hotspot_calls(struct hotspot *hotspot, uw_read_fn read, void *ctx,
		  const struct calls_sample *sample, const void **bytes, size_t *size);

/*
 * Return whether, since the last hotspot_read, hotspot_calls has found an address on a stack that is in the code cache but
 * in no code that is known: a caller may run new code.
 */
bool hotspot_misses(const struct hotspot *hotspot);

#endif

/*
 * agent/process/hotspot_internal.h: the state of a Java virtual machine's reader, as hotspot.c (the code) and
 * hotspot_calls.c (what its frames execute) see it.
 */
#ifndef AGENT_PROCESS_HOTSPOT_INTERNAL_H
#define AGENT_PROCESS_HOTSPOT_INTERNAL_H

#include "agent/hash.h"
#include "agent/process/calls.h"
#include "agent/process/hotspot_frames.h"
#include "agent/process/hotspot_methods.h"

#define HOTSPOT_HEAPS_MAX 8
#define HOTSPOT_MISSED	  256 /* addresses without code that are remembered */

struct hotspot_blob {
	uint64_t block; /* address of the block */
	uint64_t method;
	uint32_t size, id;
	uint64_t start, end;   /* of its code; equal: unusable */
	bool compiled, native; /* it is a method's code; it is the wrapper of a native method */
	uint32_t name, frames, frames_size; /* name and frames: offsets in cached; bytes */
	uint32_t turn;			    /* the reading in which the blob was last seen */
};

struct hotspot_heap {
	uint64_t low, high;	      /* the committed memory */
	uint64_t low_edge, high_edge; /* the reserved memory around it */
	uint64_t map; /* address of a map with one byte for each segment; 0 where a block begins */
	unsigned int log2;
	size_t first, n; /* segments, in the array for all heaps */
};

struct hotspot {
	uint64_t exports[HOTSPOT_EXPORTS];
	struct hotspot_layout layout;
	bool has_layout;
	struct hotspot_cache cache;
	struct hotspot_blob *blobs;
	size_t n_blobs, room_blobs;
	struct uw_hash_index by_block;
	uint8_t *cached; /* names and frames; offset 0 is not used */
	size_t n_cached, cached_room;
	uint8_t *segments; /* segment maps of all heaps, as read last */
	size_t segments_room;
	struct hotspot_heap heaps[HOTSPOT_HEAPS_MAX]; /* likewise */
	size_t n_heaps;
	uint64_t mark; /* checksum of the segment maps that were last read completely */
	uint32_t turn;
	unsigned int looks;		       /* readings since something was new */
	uint64_t missed[HOTSPOT_MISSED];       /* addresses without known code, by their hashes */
	bool misses;			       /* there was another one since the last reading */
	uint64_t interpreter, interpreter_end; /* its code; equal: not known */
	uint64_t call_return; /* where methods return to native code; 0: not known */
	uint32_t call_frames, call_frames_size; /* in cached; 0: not made */
	struct hotspot_methods methods;
	struct calls_seen seen;
	struct calls_writer writer;
	/* State of the current call: */
	struct hotspot_memory memory;
	bool changed;
};

/* Return whether an address is in the code cache, or close behind it. */
static inline bool hotspot_in_cache(const struct hotspot_cache *cache, uint64_t addr)
{
	return !((addr - cache->low) >> cache->log2);
}

/*
 * Return the usable code around an address, of the last reading; borrowed until the next. NULL: none, or the time is
 * over.
 */
const struct hotspot_blob *hotspot_blob_at(struct hotspot *hotspot, uint64_t addr);

#endif

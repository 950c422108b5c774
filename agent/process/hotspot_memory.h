/*
 * agent/process/hotspot_memory.h: reads a Java virtual machine's memory, small pieces through a cache
 * of pages: a read of a living process costs 10 µs, because another process does it (opener_read_memory).
 */
#ifndef AGENT_PROCESS_HOTSPOT_MEMORY_H
#define AGENT_PROCESS_HOTSPOT_MEMORY_H

#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stdint.h>

#define HOTSPOT_PAGE  8192u
#define HOTSPOT_PAGES 128

struct hotspot_memory { /* all zero: empty */
	uw_read_fn read;
	void *ctx;
	uint64_t starts[HOTSPOT_PAGES]; /* what the slot caches; 0: nothing */
	uint8_t *pages[HOTSPOT_PAGES];	/* HOTSPOT_PAGE bytes each; NULL: not needed yet; owned */
	unsigned int work; /* that was done since it was last asked whether there is time */
	bool over;	   /* the time for reading is over */
};

/*
 * Begin to read by another function: nothing is cached, and there is time again. A read of no bytes asks that
 * function only whether there is: -ETIME if not.
 */
void hotspot_memory_begin(struct hotspot_memory *m, uw_read_fn read, void *ctx);
void hotspot_memory_fini(struct hotspot_memory *m);
size_t hotspot_memory_size(const struct hotspot_memory *m); /* of the cache, in bytes */

/*
 * Count n steps of work, of some nanoseconds each, that needs no other read, and ask from time to time whether
 * there is time for more. What the process says could let it go on for minutes. Each hotspot_get counts by itself.
 */
bool hotspot_has_time(struct hotspot_memory *m, unsigned int n);

/*
 * Read memory; of at most a page, through the cached pages. A failure at one address does not affect
 * later reads; after -ETIME all later reads fail.
 */
bool hotspot_get(struct hotspot_memory *m, uint64_t addr, void *out, size_t size);

/* Read a little-endian number of size bytes, at most 8. */
bool hotspot_get_number(struct hotspot_memory *m, uint64_t addr, unsigned int size, uint64_t *out);

/*
 * Read a number in HotSpot's format UNSIGNED5 (src/hotspot/share/utilities/unsigned5.hpp), and move *addr
 * behind it: one to five digits, the lowest first. Each is a byte minus least, the least byte that a digit
 * can be; 0 in versions before 20, else 1. One below 192 - least is the last.
 */
bool hotspot_get_packed(struct hotspot_memory *m, uint64_t *addr, uint8_t least, uint32_t *out);

/* Read a string; at most size - 1 bytes of it are stored, with a terminating 0. */
bool hotspot_get_text(struct hotspot_memory *m, uint64_t addr, char *out, size_t size);

#endif

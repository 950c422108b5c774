/*
 * agent/source/mapped.h: maps a file for reading, and survives the file being truncated.
 *
 * Access to a page behind the end of a mapped file raises SIGBUS, which would end this program.
 * Here a truncated part reads as zeros instead, and cut is set. The contents can also change while
 * they are read, as with any file, so copy data before checking them.
 */
#ifndef AGENT_SOURCE_MAPPED_H
#define AGENT_SOURCE_MAPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapped {		      /* must not move while open: the signal handler uses its address */
	const uint8_t *bytes; /* NULL: not mapped */
	size_t size;
	atomic_bool cut; /* bytes were read that are no longer in the file */
};

/*
 * Map the first size bytes of fd, which may be closed afterwards. If they cannot be mapped, *out
 * stays empty.
 */
void mapped_open(struct mapped *out, int fd, uint64_t size);
/*
 * Release the memory of the whole pages inside [off, off + size). They are read from the file
 * again when they are accessed.
 */
void mapped_let_go(struct mapped *mapped, uint64_t off, uint64_t size);
void mapped_close(struct mapped *mapped); /* an empty one is fine */

#endif

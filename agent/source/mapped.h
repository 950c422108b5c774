/*
 * agent/source/mapped.h: a file's bytes without copying them.
 *
 * A mapped file that somebody shortens would end its reader by SIGBUS.  Here what is
 * cut off reads as zeros, and it is told; like any file that changes while it is read,
 * its bytes may be others at the second look, so what is checked must be copied first.
 */
#ifndef AGENT_SOURCE_MAPPED_H
#define AGENT_SOURCE_MAPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapped {		      /* must not move while it is open */
	const uint8_t *bytes; /* NULL: not mapped */
	size_t size;
	atomic_bool cut; /* a byte was asked for that is not in the file any more */
};

/* The first size bytes of fd, which may be closed; *out stays empty where that cannot be. */
void mapped_open(struct mapped *out, int fd, uint64_t size);
/* Pages of [off, off + size), as far as they are whole, are read from the file again when asked for. */
void mapped_let_go(struct mapped *mapped, uint64_t off, uint64_t size);
void mapped_close(struct mapped *mapped); /* an empty one is fine */

#endif

/*
 * agent/source/perfdata_input.h: where the bytes of a recording come from.
 *
 * A file is mapped, or read through a window where it cannot be, and a record can
 * be had again later by its offset.  What is looked at is a copy, but for stacks, in
 * which nothing is to be believed anyway.  What cannot be had again (a pipe, the output of the decompressor)
 * lies in blocks, and stays as long as somebody holds them.
 */
#ifndef AGENT_SOURCE_PERFDATA_INPUT_H
#define AGENT_SOURCE_PERFDATA_INPUT_H

#include "agent/source/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- files ------------------------------------------------------------------ */

/*
 * The last stretches that were read: a record's turn mostly comes while they
 * still hold it.  Large ones where records follow closely, a page where they
 * are so large that their ends are not worth reading before it is known what
 * of them is in use.
 */
#define PERFDATA_STRETCH   (256u << 10)
#define PERFDATA_STRETCHES 32u

struct perfdata_window {
	int fd; /* borrowed */
	struct mapped mapped;
	uint8_t *copy; /* of what was last asked for in mapped */
	struct perfdata_stretch {
		uint64_t off; /* of bytes[0] in the file */
		uint8_t *bytes;
		size_t size;
	} stretches[PERFDATA_STRETCHES];
	unsigned int last;  /* the one read last */
	unsigned int found; /* the one where something was found last */
	size_t ahead;	    /* how much to read next */
	uint64_t advised;   /* the kernel was asked to fetch up to here */
	uint64_t dropped;   /* pages of the mapping up to here were let go */
};

/* size: of the file, to map it; 0: it is not to be mapped.  The window must not move. */
void perfdata_window_init(struct perfdata_window *window, int fd, uint64_t size);
void perfdata_window_fini(struct perfdata_window *window);

/*
 * The size bytes at off, of a file that ends at end; size at most
 * PERFDATA_STRETCH.  *out holds until the next call.  *got is less than size
 * only where the file ends.  0 or a negative code.
 */
int perfdata_window_get(struct perfdata_window *window, uint64_t off, size_t size, uint64_t end,
			const uint8_t **out, size_t *got);

/* Bytes that were read lately, until the next perfdata_window_get; or NULL. */
const uint8_t *perfdata_window_has(struct perfdata_window *window, uint64_t off, size_t size);

/* A gap up to here is read along; a record beyond it, in parts. */
#define PERFDATA_GAP (24u << 10)

/* Reads all of [off, off + size) or fails; -EBADMSG: the file ends before. */
int perfdata_window_read(struct perfdata_window *window, void *out, size_t size, uint64_t off);

/* The bytes themselves where the file is mapped and has them, until the window ends; or NULL. */
const uint8_t *perfdata_window_view(const struct perfdata_window *window, uint64_t off,
				    size_t size);

/* ---- what comes once ----------------------------------------------------------- */

#define PERFDATA_BLOCK (1u << 20) /* size and alignment of a block */

struct perfdata_block;

struct perfdata_pool { /* blocks in use and free ones */
	struct perfdata_block *free;
	size_t n_used, n_free;
};

void perfdata_pool_fini(struct perfdata_pool *pool); /* every block is back */

struct perfdata_stream {
	struct perfdata_pool *pool; /* borrowed */
	struct perfdata_block *block;
	uint8_t *begin, *end; /* the unread bytes in block */
};

void perfdata_stream_fini(struct perfdata_stream *stream);

/* Where the next bytes go, *room of them at least 1; unread ones may move. */
int perfdata_stream_room(struct perfdata_stream *stream, uint8_t **out, size_t *room);
void perfdata_stream_filled(struct perfdata_stream *stream, size_t size);

static inline size_t perfdata_stream_size(const struct perfdata_stream *stream)
{
	return (size_t)(stream->end - stream->begin);
}

/* Keeps the block that bytes, from a stream, lies in; and lets it go. */
void perfdata_hold(const uint8_t *bytes);
void perfdata_release(struct perfdata_pool *pool, const uint8_t *bytes);

#endif

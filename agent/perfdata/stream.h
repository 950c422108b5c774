/*
 * agent/perfdata/stream.h: reads the bytes of a recording.
 *
 * A file is mapped if possible, otherwise it is read through a window; a record can be read again
 * later by its offset. Records are copied before they are decoded, because a mapped file can
 * change. Stacks are not copied: nothing in them is trusted anyway.
 *
 * Data that cannot be read again (from a pipe or the decompressor) are in blocks, which live as
 * long as they are held.
 */
#ifndef AGENT_PERFDATA_STREAM_H
#define AGENT_PERFDATA_STREAM_H

#include "agent/source/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- files ------------------------------------------------------------------ */

/*
 * The parts of the file that were read recently are cached as stretches, which often still hold a
 * record when it is delivered. A stretch is large where records are close together. It is one page
 * where records are so large that their ends should not be read before it is known which parts are
 * used.
 */
#define PERFDATA_STRETCH   (256u << 10)
#define PERFDATA_STRETCHES 32u

struct perfdata_window {
	int fd; /* borrowed */
	struct mapped mapped;
	uint8_t *copy; /* copy of the bytes that perfdata_window_get() last returned from mapped */
	struct perfdata_stretch {
		uint64_t off; /* file offset of bytes[0] */
		uint8_t *bytes;
		size_t size;
	} stretches[PERFDATA_STRETCHES];
	unsigned int last;  /* index of the stretch read last */
	unsigned int found; /* index of the stretch last found by perfdata_window_has() */
	size_t ahead;	    /* bytes to read next */
	uint64_t advised;   /* read-ahead was requested up to this offset */
	uint64_t dropped;   /* the mapping's pages up to this offset were released */
};

/*
 * Initialize the window. size is the size of the file if it is to be mapped, or 0. The window must
 * not move while it is in use.
 */
void perfdata_window_init(struct perfdata_window *window, int fd, uint64_t size);
void perfdata_window_fini(struct perfdata_window *window);

/*
 * Return the size bytes at off of a file that ends at end; size is at most PERFDATA_STRETCH. *out
 * is valid until the next call. *got is less than size only at the end of the file. Return 0 or a
 * negative code.
 */
int perfdata_window_get(struct perfdata_window *window, uint64_t off, size_t size, uint64_t end,
			const uint8_t **out, size_t *got);

/*
 * Return cached bytes, which are valid until the next perfdata_window_get(), or NULL if no stretch
 * holds all of them.
 */
const uint8_t *perfdata_window_has(struct perfdata_window *window, uint64_t off, size_t size);

/*
 * A gap between records of at most this size is read along with them. Records larger than this are
 * read in parts.
 */
#define PERFDATA_GAP (24u << 10)

/* Read all of [off, off + size). -EBADMSG if the file ends before. */
int perfdata_window_read(struct perfdata_window *window, void *out, size_t size, uint64_t off);

/*
 * Return the bytes in the mapped file, valid until perfdata_window_fini(); NULL if the file is not
 * mapped or does not have them.
 */
const uint8_t *perfdata_window_view(const struct perfdata_window *window, uint64_t off,
				    size_t size);

/* ---- data that can be read only once ------------------------------------------- */

#define PERFDATA_BLOCK (1u << 20) /* size and alignment of a block, bytes */

struct perfdata_block;

struct perfdata_pool { /* counts the blocks in use and stores free ones */
	struct perfdata_block *free;
	size_t n_used, n_free;
};

void perfdata_pool_fini(struct perfdata_pool *pool); /* all blocks must have been released */

struct perfdata_stream {
	struct perfdata_pool *pool; /* borrowed */
	struct perfdata_block *block;
	uint8_t *begin, *end; /* the unread bytes in block */
};

void perfdata_stream_fini(struct perfdata_stream *stream);

/*
 * Return where to put the next bytes, with *room, which is at least 1. Unread bytes may move to
 * another block.
 */
int perfdata_stream_room(struct perfdata_stream *stream, uint8_t **out, size_t *room);
void perfdata_stream_filled(struct perfdata_stream *stream, size_t size);

static inline size_t perfdata_stream_size(const struct perfdata_stream *stream)
{
	return (size_t)(stream->end - stream->begin);
}

/* Hold or release the block that contains bytes, which are from a stream. */
void perfdata_hold(const uint8_t *bytes);
void perfdata_release(struct perfdata_pool *pool, const uint8_t *bytes);

#endif

/*
 * agent/source/perfdata_input.h: where the bytes of a recording come from.
 *
 * A file is read through a window, and a record can be had again later by its
 * offset.  What cannot be had again (a pipe, the output of the decompressor)
 * lies in blocks, and stays as long as somebody holds them.
 */
#ifndef AGENT_SOURCE_PERFDATA_INPUT_H
#define AGENT_SOURCE_PERFDATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- files ------------------------------------------------------------------ */

struct perfdata_window {
	int fd; /* borrowed */
	uint8_t *bytes;
	uint64_t off; /* of bytes[0] in the file */
	size_t size;
	size_t ahead;	  /* how much to read next; small where records are jumped over */
	uint64_t advised; /* the kernel was asked to fetch up to here */
};

int perfdata_window_init(struct perfdata_window *window, int fd);
void perfdata_window_fini(struct perfdata_window *window);

/*
 * The size bytes at off, of a file that ends at end; size at most
 * PERFDATA_WINDOW_MAX.  *out holds until the next call.  *got is less than size
 * only where the file ends.  0 or a negative code.
 */
#define PERFDATA_WINDOW_MAX (256u << 10)
int perfdata_window_get(struct perfdata_window *window, uint64_t off, size_t size, uint64_t end,
			const uint8_t **out, size_t *got);

/* Bytes already in the window, or NULL. */
const uint8_t *perfdata_window_has(const struct perfdata_window *window, uint64_t off, size_t size);

/* Reads all of [off, off + size) or fails; -EBADMSG: the file ends before. */
int perfdata_pread(int fd, void *out, size_t size, uint64_t off);

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

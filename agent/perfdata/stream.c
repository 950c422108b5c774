/*
 * agent/perfdata/stream.c: the file window, and reference-counted blocks for data that can
 * be read only once.
 */
#include "agent/perfdata/stream.h"

#include "agent/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------ */

#define STRETCH_MIN 4096u
/*
 * Bytes: read-ahead requested from the kernel; what stays mapped behind the reader; how much is
 * released at a time.
 */
#define FETCH_AHEAD (8u << 20)
#define BEHIND	    (32u << 20)
#define LET_GO	    (32u << 20)

void perfdata_window_init(struct perfdata_window *window, int fd, uint64_t size)
{
	*window = (struct perfdata_window){ .fd = fd, .ahead = STRETCH_MIN };
	if (size)
		window->copy = malloc(size < PERFDATA_STRETCH ? (size_t)size : PERFDATA_STRETCH);
	if (window->copy)
		mapped_open(&window->mapped, fd, size);
}

void perfdata_window_fini(struct perfdata_window *window)
{
	for (unsigned int i = 0; i < PERFDATA_STRETCHES; i++) {
		free(window->stretches[i].bytes);
		window->stretches[i].bytes = NULL;
	}
	mapped_close(&window->mapped);
	free(window->copy);
	window->copy = NULL;
}

/* Return [off, off + size) inside the stretch, or NULL. */
static const uint8_t *find(const struct perfdata_stretch *stretch, uint64_t off, size_t size)
{
	if (!stretch->bytes || off < stretch->off || off - stretch->off > stretch->size ||
	    size > stretch->size - (size_t)(off - stretch->off))
		return NULL;
	return stretch->bytes + (off - stretch->off);
}

const uint8_t *perfdata_window_has(struct perfdata_window *window, uint64_t off, size_t size)
{
	for (unsigned int i = 0; i < PERFDATA_STRETCHES; i++) {
		unsigned int at = (window->found + i) % PERFDATA_STRETCHES;
		const uint8_t *there = find(&window->stretches[at], off, size);

		if (there) {
			window->found = at;
			return there;
		}
	}
	return NULL;
}

/*
 * Return how much to read at off: twice as much as last time if the reader continues near the end
 * of the last stretch, little after a jump.
 */
static size_t choose_size(struct perfdata_window *window, const struct perfdata_stretch *last,
			  uint64_t off)
{
	if (off < last->off || off - last->off > last->size + PERFDATA_GAP)
		window->ahead = STRETCH_MIN;
	else if (window->ahead < PERFDATA_STRETCH)
		window->ahead *= 2;
	return window->ahead;
}

/*
 * Release mapped pages far behind off, so that a recording of gigabytes does not count as memory
 * of this process. They are rarely read again, and then come from the file.
 */
static void let_go(struct perfdata_window *window, uint64_t off)
{
	if (off < window->dropped)
		window->dropped = off;
	if (off - window->dropped < BEHIND + LET_GO)
		return;
	mapped_let_go(&window->mapped, window->dropped, off - BEHIND - window->dropped);
	window->dropped = off - BEHIND;
}

/*
 * Return whether [from, past) seems to be in the page cache. Sample bytes at intervals are
 * checked; the end of the file counts as cached.
 */
static bool is_cached(int fd, uint64_t from, uint64_t past)
{
	uint8_t byte;
	struct iovec one = { .iov_base = &byte, .iov_len = 1 };

	for (; from < past; from += FETCH_AHEAD / 8) {
		ssize_t n = preadv2(fd, &one, 1, (off_t)from, RWF_NOWAIT);

		if (n != 1)
			return !n; /* the file ends here */
	}
	return true;
}

/*
 * Request read-ahead behind off. The kernel's own read-ahead does not recognize the access
 * pattern, because parts of records are skipped.
 */
static void fetch_ahead(struct perfdata_window *window, uint64_t off)
{
	uint64_t from = off > window->advised ? off : window->advised, past = off + FETCH_AHEAD;

	if (off + FETCH_AHEAD / 2 <= window->advised)
		return;
	/*
	 * The request makes the kernel look at each page, so skip it for ranges that were
	 * requested before or are cached.
	 */
	if (!is_cached(window->fd, from, past))
		(void)posix_fadvise(window->fd, (off_t)from, (off_t)(past - from),
				    POSIX_FADV_WILLNEED);
	window->advised = off + FETCH_AHEAD;
	let_go(window, off);
}

const uint8_t *perfdata_window_view(const struct perfdata_window *window, uint64_t off, size_t size)
{
	const struct mapped *m = &window->mapped;

	return m->bytes && off <= m->size && size <= m->size - off ? m->bytes + off : NULL;
}

int perfdata_window_read(struct perfdata_window *window, void *out, size_t size, uint64_t off)
{
	const uint8_t *bytes = perfdata_window_view(window, off, size);

	if (!bytes)
		return io_read_at(window->fd, off, out, size);
	memcpy(out, bytes, size);
	return 0;
}

/*
 * Return a copy of mapped bytes, or bytes of the last stretch, or read a new stretch into the
 * oldest slot.
 */
int perfdata_window_get(struct perfdata_window *window, uint64_t off, size_t size, uint64_t end,
			const uint8_t **out, size_t *got)
{
	const uint8_t *view;
	struct perfdata_stretch *stretch = &window->stretches[window->last];
	size_t wanted;

	/* A cached stretch may reach beyond end, if it was read before end was known. */
	if (off >= end)
		size = 0;
	else if (size > end - off)
		size = (size_t)(end - off);
	*got = size;
	view = perfdata_window_view(window, off, size);
	if (view) {
		fetch_ahead(window, off);
		memcpy(window->copy, view, size);
		*out = window->copy;
		return 0;
	}
	*out = size ? find(stretch, off, size) : NULL;
	if (*out || !size)
		return 0;

	wanted = choose_size(window, stretch, off);
	if (wanted < size)
		wanted = size;
	if (wanted > end - off)
		wanted = (size_t)(end - off);
	fetch_ahead(window, off);

	window->last = (window->last + 1) % PERFDATA_STRETCHES;
	stretch = &window->stretches[window->last];
	stretch->off = off;
	stretch->size = 0;
	if (!stretch->bytes && !(stretch->bytes = malloc(PERFDATA_STRETCH)))
		return -ENOMEM;
	while (stretch->size < wanted) {
		ssize_t n = pread(window->fd, stretch->bytes + stretch->size,
				  wanted - stretch->size, (off_t)(off + stretch->size));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		stretch->size += (size_t)n;
	}
	*out = stretch->bytes;
	*got = stretch->size < size ? stretch->size : size;
	return 0;
}

/* ---- data that can be read only once ------------------------------------------- */

struct perfdata_block {
	struct perfdata_block *next; /* used while the block is free */
	uint32_t holders;
	uint8_t bytes[];
};

#define BLOCK_ROOM (PERFDATA_BLOCK - offsetof(struct perfdata_block, bytes))
#define KEEP_FREE  4 /* blocks cached for reuse */

/* Return the block that contains bytes, by its alignment. */
static struct perfdata_block *block_of(const uint8_t *bytes)
{
	return (struct perfdata_block *)((uintptr_t)bytes & ~(uintptr_t)(PERFDATA_BLOCK - 1));
}

/* Drop one reference. The last one returns the block to the pool. */
static void block_put(struct perfdata_pool *pool, struct perfdata_block *block)
{
	if (--block->holders)
		return;
	pool->n_used--;
	if (pool->n_free >= KEEP_FREE) {
		free(block);
		return;
	}
	block->next = pool->free;
	pool->free = block;
	pool->n_free++;
}

/* Return a block with one reference, or NULL: out of memory. */
static struct perfdata_block *block_new(struct perfdata_pool *pool)
{
	struct perfdata_block *block = pool->free;

	if (block) {
		pool->free = block->next;
		pool->n_free--;
	} else {
		block = aligned_alloc(PERFDATA_BLOCK, PERFDATA_BLOCK);
		if (!block)
			return NULL;
	}
	pool->n_used++;
	block->next = NULL;
	block->holders = 1;
	return block;
}

void perfdata_pool_fini(struct perfdata_pool *pool)
{
	while (pool->free) {
		struct perfdata_block *next = pool->free->next;

		free(pool->free);
		pool->free = next;
	}
	pool->n_free = 0;
}

void perfdata_stream_fini(struct perfdata_stream *stream)
{
	if (stream->block)
		block_put(stream->pool, stream->block);
	stream->block = NULL;
	stream->begin = stream->end = NULL;
}

/*
 * Make room behind the unread bytes. When the block is full, they move to the start of a new
 * block. The full block stays allocated as long as records in it are held.
 */
int perfdata_stream_room(struct perfdata_stream *stream, uint8_t **out, size_t *room)
{
	size_t rest = perfdata_stream_size(stream);

	if (!stream->block || stream->end == stream->block->bytes + BLOCK_ROOM) {
		struct perfdata_block *block = block_new(stream->pool);

		if (!block)
			return -ENOMEM;
		if (rest)
			memcpy(block->bytes, stream->begin, rest);
		perfdata_stream_fini(stream);
		stream->block = block;
		stream->begin = block->bytes;
		stream->end = block->bytes + rest;
	}
	*out = stream->end;
	*room = (size_t)(stream->block->bytes + BLOCK_ROOM - stream->end);
	return 0;
}

void perfdata_stream_filled(struct perfdata_stream *stream, size_t size)
{
	stream->end += size;
}

void perfdata_hold(const uint8_t *bytes)
{
	block_of(bytes)->holders++;
}

void perfdata_release(struct perfdata_pool *pool, const uint8_t *bytes)
{
	block_put(pool, block_of(bytes));
}

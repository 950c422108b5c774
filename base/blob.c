/*
 * base/blob.c: stored bytes (schema/blob.h) in memory, read completely or in the parts that
 * are needed.
 *
 * The address range for the whole blob is reserved when it is opened. Physical pages are
 * allocated only as blocks are read.
 */
#include "schema/blob.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/unwinder.h"

#define SIZE_LIMIT ((uint64_t)1 << 31)
/*
 * After three quarters of the blocks have been read one by one, the rest is read at once, which
 * is cheaper. A lower limit costs more: the first write to a page takes as long as finding and
 * copying a block.
 */
#define MOST(n) ((n) / 4 * 3)

enum state { ABSENT, THERE, BAD };

struct uw_blob {
	struct uw_blob_source source;
	uint8_t *room;	/* the mapping */
	uint8_t *bytes; /* in room; the front ends at a page boundary: a block is a page */
	uint64_t size, front;
	size_t n_blocks, n_there;
	uint64_t n_read;
	bool reported;	     /* the damage has been reported */
	atomic_uchar *there; /* enum state of each block; THERE is set after its bytes are valid */
	pthread_mutex_t lock;
};

/* Return how many blocks so many bytes have, including a last one that is shorter. */
static size_t blocks_of(uint64_t size)
{
	return (size_t)(size / BLOB_BLOCK + (size % BLOB_BLOCK != 0));
}

size_t uw_blob_sums(uint64_t rest)
{
	return blocks_of(rest) * sizeof(uint64_t);
}

/* Compute the checksum of the front. The header must have passed is_possible. */
static uint64_t sum_of_front(const void *bytes)
{
	struct blob_header h;

	memcpy(&h, bytes, sizeof(h));
	h.checksum = 0;
	return uw_checksum((const uint8_t *)bytes + sizeof(h), h.front - sizeof(h),
			   uw_checksum(&h, sizeof(h), 0));
}

/*
 * Return whether the sizes in a header are consistent with each other and with the size of the
 * blob.
 */
static bool is_possible(const struct blob_header *h, uint64_t size)
{
	return h->size == size && size <= SIZE_LIMIT && h->front <= size && h->front % 8 == 0 &&
	       h->header_size >= sizeof(*h) && h->header_size % 8 == 0 &&
	       h->header_size <= h->front &&
	       uw_blob_sums(size - h->front) <= h->front - h->header_size;
}

/* Return the checksums of the blocks, which follow the header. */
static const uint64_t *sums_of(const void *bytes)
{
	const struct blob_header *h = bytes;

	return (const uint64_t *)(const void *)((const uint8_t *)bytes + h->header_size);
}

/* Compute the checksum of a block, seeded with its number. */
static uint64_t sum_of_block(const uint8_t *bytes, uint64_t size, uint64_t front, size_t block)
{
	uint64_t off = front + (uint64_t)block * BLOB_BLOCK;

	return uw_checksum(bytes + off, size - off < BLOB_BLOCK ? size - off : BLOB_BLOCK, block);
}

int uw_blob_check(const void *bytes, size_t size)
{
	const struct blob_header *h = bytes;

	if (size < sizeof(*h))
		return -EBADMSG;
	if ((uintptr_t)bytes % 8)
		return -EINVAL;
	if (!is_possible(h, size) || h->checksum != sum_of_front(bytes))
		return -EBADMSG;
	for (size_t i = 0; i < blocks_of(size - h->front); i++)
		if (sum_of_block(bytes, size, h->front, i) != sums_of(bytes)[i])
			return -EBADMSG;
	return 0;
}

void uw_blob_seal(void *bytes)
{
	struct blob_header *h = bytes;
	uint64_t *sums = (uint64_t *)(void *)((uint8_t *)bytes + h->header_size);

	for (size_t i = 0; i < blocks_of(h->size - h->front); i++)
		sums[i] = sum_of_block(bytes, h->size, h->front, i);
	h->checksum = sum_of_front(bytes);
}

/* ---- reading in parts ------------------------------------------------------------------ */

/* Return how many bytes precede the front in the mapping. */
static uint64_t before_bytes(const struct uw_blob *blob)
{
	return -blob->front % BLOB_BLOCK;
}

/*
 * Reserve addresses for the whole blob and populate the pages of the front at once. Kernels
 * without MADV_POPULATE_WRITE (before 5.14) populate them one by one.
 */
static int make_room(struct uw_blob *blob)
{
	uint64_t before = before_bytes(blob);
	void *room = mmap(NULL, before + blob->size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		return -ENOMEM;
	blob->room = room;
	blob->bytes = blob->room + before;
	if (blob->front > BLOB_BLOCK)
		(void)madvise(room, before + blob->front, MADV_POPULATE_WRITE);
	return 0;
}

/* Read and check the front, and set up the mapping and the states of the blocks. */
static int read_front(struct uw_blob *blob, uint32_t magic)
{
	struct blob_header h;
	int err = blob->size < sizeof(h) ? -EBADMSG
					 : blob->source.read(blob->source.ctx, 0, &h, sizeof(h));

	if (err)
		return err;
	if (h.magic != magic || !is_possible(&h, blob->size))
		return -EBADMSG;
	blob->front = h.front;
	blob->n_blocks = blocks_of(blob->size - h.front);
	blob->there = calloc(blob->n_blocks + 1, sizeof(*blob->there));
	err = blob->there ? make_room(blob) : -ENOMEM;
	if (err)
		return err;
	err = blob->source.read(blob->source.ctx, 0, blob->bytes, h.front);
	if (err)
		return err;
	blob->n_read = sizeof(h) + h.front;
	/* The header was read twice; both must be equal. */
	return memcmp(blob->bytes, &h, sizeof(h)) || h.checksum != sum_of_front(blob->bytes)
		       ? -EBADMSG
		       : 0;
}

int uw_blob_open(const struct uw_blob_source *source, uint32_t magic, struct uw_blob **out)
{
	struct uw_blob *blob = calloc(1, sizeof(*blob));
	int err;

	if (!blob) {
		if (source->release)
			source->release(source->ctx);
		return -ENOMEM;
	}
	pthread_mutex_init(&blob->lock, NULL);
	blob->source = *source;
	blob->size = source->size;
	err = read_front(blob, magic);
	if (err) {
		uw_blob_free(blob);
		return err;
	}
	*out = blob;
	return 0;
}

void uw_blob_free(struct uw_blob *blob)
{
	if (!blob)
		return;
	if (blob->source.release)
		blob->source.release(blob->source.ctx);
	if (blob->room)
		(void)munmap(blob->room, before_bytes(blob) + blob->size);
	free(blob->there);
	pthread_mutex_destroy(&blob->lock);
	free(blob);
}

const void *uw_blob_bytes(const struct uw_blob *blob)
{
	return blob->bytes;
}

uint64_t uw_blob_size(const struct uw_blob *blob)
{
	return blob->size;
}

/* Return the state of a block. If it is THERE, the block's bytes are visible to this thread. */
static enum state state_of(const struct uw_blob *blob, size_t block)
{
	return (enum state)atomic_load_explicit(&blob->there[block], memory_order_acquire);
}

/*
 * Read the blocks [first, past), none of which has been read, with one call. Check each block
 * separately.
 */
static int read_run(struct uw_blob *blob, size_t first, size_t past)
{
	uint64_t off = blob->front + (uint64_t)first * BLOB_BLOCK;
	uint64_t end = blob->front + (uint64_t)past * BLOB_BLOCK;
	int err;

	if (end > blob->size)
		end = blob->size;
	err = blob->source.read(blob->source.ctx, off, blob->bytes + off, end - off);
	if (err)
		return err;
	blob->n_read += end - off;
	for (size_t i = first; i < past; i++) {
		bool good = sum_of_block(blob->bytes, blob->size, blob->front, i) ==
			    sums_of(blob->bytes)[i];

		atomic_store_explicit(&blob->there[i], good ? THERE : BAD, memory_order_release);
		blob->n_there += good;
		if (!good)
			err = -EBADMSG;
	}
	return err;
}

/*
 * Read those of the blocks [first, past) that have not been read. Go on after a failure, and
 * return the first one. The caller holds the lock.
 */
static int read_missing(struct uw_blob *blob, size_t first, size_t past)
{
	int err = 0;

	while (first < past) {
		size_t end = first;
		int one = 0;

		while (end < past && state_of(blob, end) == ABSENT)
			end++;
		if (end > first)
			one = read_run(blob, first, end);
		else
			one = state_of(blob, end++) == BAD ? -EBADMSG : 0;
		err = err ? err : one;
		first = end;
	}
	return err;
}

/*
 * Read the missing blocks of [first, past), and all others once most blocks have been read.
 * Report damage to the owner once, without the lock.
 */
static int fetch(struct uw_blob *blob, size_t first, size_t past)
{
	bool tell;
	int err;

	pthread_mutex_lock(&blob->lock);
	err = read_missing(blob, first, past);
	if (!err && blob->n_there < blob->n_blocks && blob->n_there > MOST(blob->n_blocks))
		(void)read_missing(blob, 0, blob->n_blocks);
	tell = err == -EBADMSG && !blob->reported;
	blob->reported = blob->reported || tell;
	pthread_mutex_unlock(&blob->lock);
	if (tell && blob->source.damaged)
		blob->source.damaged(blob->source.ctx);
	return err;
}

int uw_blob_need(struct uw_blob *blob, uint64_t off, uint64_t size)
{
	size_t first, past;

	if (off > blob->size || size > blob->size - off)
		return -EBADMSG;
	if (!size || off + size <= blob->front)
		return 0;
	first = off <= blob->front ? 0 : (size_t)((off - blob->front) / BLOB_BLOCK);
	past = (size_t)((off + size - 1 - blob->front) / BLOB_BLOCK) + 1;
	for (size_t i = first; i < past; i++)
		if (state_of(blob, i) != THERE)
			return fetch(blob, first, past);
	return 0;
}

int uw_blob_whole(struct uw_blob *blob)
{
	return uw_blob_need(blob, 0, blob->size);
}

uint64_t uw_blob_read(struct uw_blob *blob)
{
	uint64_t n;

	pthread_mutex_lock(&blob->lock);
	n = blob->n_read;
	pthread_mutex_unlock(&blob->lock);
	return n;
}

/*
 * agent/process/hotspot.c: reads HotSpot's code heaps and blobs, and caches what it read.
 */
#include "agent/process/hotspot.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/process/hotspot_internal.h"
#include "agent/source/machine.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limits on what a virtual machine can claim about itself. */
#define SEGMENTS_MAX (4u << 20)
#define BLOBS_MAX    16384u
#define CACHED_MAX   (4u << 20) /* bytes of cached names and frames */
#define CACHED_SPARE 65536u
#define CODE_MAX     (128u << 10) /* bytes of a method searched for the ends of its frame */
#define FRAME_MAX    (1 << 16)	  /* words */
#define VERIFY	     8	/* one of this many known blobs is checked again in each reading */
#define LOOKS	     16 /* after this many readings without anything new, all blobs are checked */

int hotspot_new(const uint64_t exports[HOTSPOT_EXPORTS], struct hotspot **out)
{
	struct hotspot *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	memcpy(h->exports, exports, sizeof(h->exports));
	h->n_cached = 1;
	*out = h;
	return 0;
}

void hotspot_free(struct hotspot *h)
{
	if (!h)
		return;
	free(h->blobs);
	uw_hash_fini(&h->by_block);
	hotspot_memory_fini(&h->memory);
	free(h->cached);
	free(h->segments);
	hotspot_methods_fini(&h->methods);
	calls_seen_fini(&h->seen);
	calls_writer_fini(&h->writer);
	free(h);
}

size_t hotspot_memory_of(const struct hotspot *h)
{
	return sizeof(*h) + h->room_blobs * sizeof(*h->blobs) + uw_hash_memory(&h->by_block) +
	       h->cached_room + h->segments_room + hotspot_methods_memory(&h->methods) +
	       calls_seen_memory(&h->seen) + calls_writer_memory(&h->writer) +
	       hotspot_memory_size(&h->memory);
}

bool hotspot_is_of(const struct hotspot *h, const uint64_t exports[HOTSPOT_EXPORTS])
{
	return !memcmp(h->exports, exports, sizeof(h->exports));
}

/* ---- the cache of names and frames ---------------------------------------------------------- */

/*
 * Append bytes to the cache and set *at to their offset. False if there is no room; *at is 0 then.
 */
static bool keep(struct hotspot *h, const void *bytes, size_t size, uint32_t *at)
{
	*at = 0;
	if (UW_ARRAY_RESERVE(h->cached, h->n_cached + size, h->cached_room, CACHED_MAX))
		return false;
	memcpy(h->cached + h->n_cached, bytes, size);
	*at = (uint32_t)h->n_cached;
	h->n_cached += size;
	return true;
}

/*
 * Empty the cache when it has no room for more, so that everything is read again. Until then, data
 * of blobs that are gone stays. If most of the data is of live blobs, emptying would not help:
 * there is more code than can be cached.
 */
static void forget_gone(struct hotspot *h)
{
	size_t live = 0, bytes = 0;

	if (h->n_cached < CACHED_MAX - CACHED_SPARE && h->n_blobs < BLOBS_MAX)
		return;
	for (size_t i = 0; i < h->n_blobs; i++) {
		const struct hotspot_blob *b = &h->blobs[i];

		if (b->turn != h->turn)
			continue;
		live++;
		bytes += b->frames_size;
		if (b->name)
			bytes += strlen((const char *)h->cached + b->name) + 1;
	}
	if (live > BLOBS_MAX / 4 * 3 || bytes > CACHED_MAX / 4 * 3)
		return;
	uw_hash_clear(&h->by_block);
	h->n_blobs = 0;
	h->n_cached = 1;
	h->call_frames = 0;
}

/* Return the index of the blob in a block, or UW_HASH_NONE. */
static uint32_t find_blob(const struct hotspot *h, uint64_t block)
{
	return UW_HASH_FIND(k, &h->by_block, hash_u64(0, block), h->blobs[k].block == block);
}

/* Make room for a new blob, and return its index. UW_HASH_NONE: no memory. */
static uint32_t add_blob(struct hotspot *h, uint64_t block)
{
	if (array_grow(h->blobs, h->n_blobs, h->room_blobs) ||
	    uw_hash_add(&h->by_block, hash_u64(0, block), (uint32_t)h->n_blobs))
		return UW_HASH_NONE;
	return (uint32_t)h->n_blobs++;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Store the name of the blob's method, "package.Class.method". On failure the name stays empty. */
static void keep_method_name(struct hotspot *h, struct hotspot_blob *b)
{
	char name[HOTSPOT_NAME_MAX];

	if (hotspot_method_name(&h->memory, &h->layout, b->method, name))
		(void)keep(h, name, strlen(name) + 1, &b->name);
}

/* ---- unwind information --------------------------------------------------------------------- */

static void keep_frames(struct hotspot *h, struct hotspot_blob *b, const struct hotspot_frames *f)
{
	if (keep(h, f->bytes, f->n, &b->frames))
		b->frames_size = (uint32_t)f->n;
}

/*
 * Store the frames of compiled code. complete: offset at which the frame is complete; negative for
 * a method: it never has a frame, the code is only a jump.
 */
static void keep_compiled(struct hotspot *h, struct hotspot_blob *b, int64_t complete,
			  uint32_t words, bool method)
{
	struct hotspot_code code = { .size = b->end - b->start, .words = words };
	struct hotspot_frames f;
	uint8_t *bytes;

	code.n_bytes = code.size > CODE_MAX ? CODE_MAX : (size_t)code.size;
	if (complete < 0 && method)
		code.words = 1;
	code.complete = complete < 0 ? 0 : (size_t)complete;
	bytes = code.complete <= code.n_bytes ? malloc(code.n_bytes) : NULL;
	if (bytes && hotspot_get(&h->memory, b->start, bytes, code.n_bytes)) {
		code.bytes = bytes;
		hotspot_frames_compiled(&f, &code, &h->cache);
		keep_frames(h, b, &f);
	}
	free(bytes);
}

static void keep_interpreter(struct hotspot *h, struct hotspot_blob *b)
{
	struct hotspot_frames f;

	hotspot_frames_interpreted(&f, b->end - b->start);
	keep_frames(h, b, &f);
}

/* ---- blobs ---------------------------------------------------------------------------------- */

/*
 * Read name and frames of a new blob whose block was read into head. Return false if the time is
 * over: the blob must be read again.
 */
static bool learn(struct hotspot *h, const uint8_t *head, struct hotspot_blob *b)
{
	const struct hotspot_layout *l = &h->layout;
	const uint8_t *p = head + l->block_size;
	uint64_t at = b->block + l->block_size, off, end;
	uint32_t words = (uint32_t)uw_bytes_little_n(p + l->at[HOTSPOT_FRAME_SIZE], 4);
	int64_t complete =
		l->short_complete
			? (int16_t)uw_bytes_little_n(p + l->at[HOTSPOT_FRAME_COMPLETE], 2)
			: (int32_t)uw_bytes_little_n(p + l->at[HOTSPOT_FRAME_COMPLETE], 4);
	char name[64];
	bool method;

	off = l->has[HOTSPOT_CODE_OFFSET]
		      ? uw_bytes_little_n(p + l->at[HOTSPOT_CODE_OFFSET], 4)
		      : uw_bytes_little_n(p + l->at[HOTSPOT_CODE_BEGIN], 8) - at;
	end = uw_bytes_little_n(p + l->at[HOTSPOT_DATA_OFFSET], 4);
	b->start = b->end = at;
	if (off >= end || end > b->size ||
	    !hotspot_get_text(&h->memory, uw_bytes_little_n(p + l->at[HOTSPOT_NAME], 8), name,
			      sizeof(name)))
		return !h->memory.over;
	b->start = at + off;
	b->end = at + end;
	method = !strcmp(name, "nmethod") || !strcmp(name, "native nmethod");
	b->compiled = method;
	b->native = method && strcmp(name, "nmethod") != 0;
	if (method)
		keep_method_name(h, b);
	if (!b->name)
		(void)keep(h, name, strlen(name) + 1, &b->name);
	if (!strcmp(name, "Interpreter")) {
		keep_interpreter(h, b);
		h->interpreter = b->start;
		h->interpreter_end = b->end;
	} else if (words && words <= FRAME_MAX)
		keep_compiled(h, b, complete, words, method);
	return !h->memory.over;
}

/*
 * Read the block that, according to the heap, begins at address block, with room bytes up to the
 * heap's end. known: the index of its blob, or UW_HASH_NONE. Update the blob if the block has changed.
 */
static void look_at(struct hotspot *h, uint64_t block, uint64_t room, uint32_t known)
{
	const struct hotspot_layout *l = &h->layout;
	uint8_t head[HOTSPOT_HEAD_SIZE] = { 0 };
	const uint8_t *p = head + l->block_size;
	struct hotspot_blob now = { .block = block, .turn = h->turn };
	const struct hotspot_blob *b = known == UW_HASH_NONE ? NULL : &h->blobs[known];

	if (!hotspot_get(&h->memory, block, head,
			 room < sizeof(head) ? (size_t)room : sizeof(head)))
		return;
	if (head[l->at[HOTSPOT_BLOCK_USED]]) {
		now.method = uw_bytes_little_n(p + l->at[HOTSPOT_METHOD], 8);
		now.size = (uint32_t)uw_bytes_little_n(p + l->at[HOTSPOT_SIZE], 4);
		now.id = (uint32_t)uw_bytes_little_n(p + l->at[HOTSPOT_COMPILE_ID], 4);
	}
	if (b && b->method == now.method && b->size == now.size && b->id == now.id)
		return;
	if (now.size && !learn(h, head, &now))
		return;
	if (known == UW_HASH_NONE)
		known = add_blob(h, block);
	if (known == UW_HASH_NONE)
		return;
	h->changed = true;
	h->blobs[known] = now;
}

/* ---- the heaps ------------------------------------------------------------------------------ */

/* Read and check one CodeHeap. */
static bool read_heap(struct hotspot *h, uint64_t at, struct hotspot_heap *heap)
{
	const struct hotspot_layout *l = &h->layout;
	uint64_t log2;

	if (!hotspot_get_number(&h->memory, at + l->at[HOTSPOT_MEMORY] + l->at[HOTSPOT_LOW], 8,
				&heap->low) ||
	    !hotspot_get_number(&h->memory, at + l->at[HOTSPOT_MEMORY] + l->at[HOTSPOT_HIGH], 8,
				&heap->high) ||
	    !hotspot_get_number(&h->memory, at + l->at[HOTSPOT_MEMORY] + l->at[HOTSPOT_LOW_EDGE], 8,
				&heap->low_edge) ||
	    !hotspot_get_number(&h->memory, at + l->at[HOTSPOT_MEMORY] + l->at[HOTSPOT_HIGH_EDGE],
				8, &heap->high_edge) ||
	    !hotspot_get_number(&h->memory, at + l->at[HOTSPOT_SEGMAP] + l->at[HOTSPOT_LOW], 8,
				&heap->map) ||
	    !hotspot_get_number(&h->memory, at + l->at[HOTSPOT_LOG2], 4, &log2))
		return false;
	if (log2 < 4 || log2 > 16 || heap->low_edge > heap->low || heap->low >= heap->high ||
	    heap->high > heap->high_edge)
		return false;
	heap->log2 = (unsigned int)log2;
	return true;
}

/* Read the code heaps and their segment maps. */
static int read_heaps(struct hotspot *h)
{
	struct hotspot_heap *heaps = h->heaps;
	size_t *n = &h->n_heaps;
	const struct hotspot_layout *l = &h->layout;
	uint64_t array, data, count, at;
	size_t total = 0;

	*n = 0;
	if (!hotspot_get_number(&h->memory, l->at[HOTSPOT_HEAPS], 8, &array) ||
	    !hotspot_get_number(&h->memory, array + l->at[HOTSPOT_LEN], 4, &count) ||
	    !hotspot_get_number(&h->memory, array + l->at[HOTSPOT_DATA], 8, &data))
		return -ENOENT;
	for (uint64_t i = 0; i < count && i < HOTSPOT_HEAPS_MAX; i++) {
		struct hotspot_heap *heap = &heaps[*n];

		if (!hotspot_get_number(&h->memory, data + 8 * i, 8, &at) ||
		    !read_heap(h, at, heap))
			continue;
		heap->first = total;
		heap->n = (size_t)((heap->high - heap->low) >> heap->log2);
		if (heap->n > SEGMENTS_MAX - total)
			heap->n = SEGMENTS_MAX - total;
		/* A heap of less than a segment has no code. */
		if (!heap->n)
			continue;
		total += heap->n;
		++*n;
	}
	if (array_reserve(h->segments, total, h->segments_room)) {
		*n = 0;
		return -ENOMEM;
	}
	for (size_t i = 0; i < *n; i++)
		if (!hotspot_get(&h->memory, heaps[i].map, h->segments + heaps[i].first,
				 heaps[i].n)) {
			*n = 0;
			return -EFAULT;
		}
	return *n ? 0 : -ENOENT;
}

/*
 * Find the smallest range of a power of two bytes, from the lowest heap on, that contains all
 * heaps.
 */
static void span(const struct hotspot_heap *heaps, size_t n, struct hotspot_cache *cache)
{
	uint64_t high = 0;

	cache->low = UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		if (heaps[i].low_edge < cache->low)
			cache->low = heaps[i].low_edge;
		if (heaps[i].high_edge > high)
			high = heaps[i].high_edge;
	}
	for (cache->log2 = 12; cache->log2 < 63 && (high - cache->low) >> cache->log2;)
		cache->log2++;
}

/* Read every unknown block, and check some of the known ones, or all. */
static void read_blobs(struct hotspot *h, const struct hotspot_heap *heap, bool all)
{
	const uint8_t *map = h->segments + heap->first, *end = map + heap->n;

	for (const uint8_t *s = map; (s = memchr(s, 0, (size_t)(end - s))); s++) {
		uint64_t block = heap->low + ((uint64_t)(s - map) << heap->log2);
		uint32_t known = find_blob(h, block);

		if (!hotspot_has_time(&h->memory, 4))
			return;
		if (known != UW_HASH_NONE)
			h->blobs[known].turn = h->turn;
		else if (h->n_blobs >= BLOBS_MAX)
			continue;
		/* A free block is soon used for something else, so always read it. */
		if (known == UW_HASH_NONE || !h->blobs[known].size || all ||
		    (block >> heap->log2) % VERIFY == h->turn % VERIFY)
			look_at(h, block, heap->high - block, known);
	}
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Find out where methods return to the stub that native code calls them by, and make its frames. */
static void read_call_stub(struct hotspot *h)
{
	const struct hotspot_layout *l = &h->layout;
	struct hotspot_frames f;

	if (h->call_frames || !l->has[HOTSPOT_CALL_RETURN] ||
	    !hotspot_get_number(&h->memory, l->at[HOTSPOT_CALL_RETURN], 8, &h->call_return) ||
	    !h->call_return)
		return;
	hotspot_frames_call_stub(&f);
	if (!keep(h, f.bytes, f.n, &h->call_frames))
		return;
	h->call_frames_size = (uint32_t)f.n;
	h->changed = true;
}

/*
 * The stub for calls is among others in one blob, which has no frames. Divide the last code, which is that
 * blob, so that the place where methods return has some. Return the new number of codes.
 */
static size_t divide(const struct hotspot *h, struct uw_dynamic_code *codes, size_t n)
{
	struct uw_dynamic_code *all = &codes[n - 1];
	const uint64_t start = h->call_return - 1, end = start + HOTSPOT_CALL_SIZE;

	if (!h->call_frames || all->frames || start <= all->start || end >= all->end)
		return n;
	codes[n] = codes[n + 1] = *all;
	codes[n].start = all->end = start;
	codes[n].end = codes[n + 1].start = end;
	codes[n].frames = h->cached + h->call_frames;
	codes[n].frames_size = h->call_frames_size;
	return n + 2;
}

/* Build the result from all usable blobs that were seen in this reading. */
static int make(struct hotspot *h, bool names, struct uw_dynamic **out)
{
	struct uw_dynamic_code *codes = calloc(h->n_blobs + 2, sizeof(*codes));
	bool divided = false;
	size_t n = 0, before;
	int err;

	if (!codes)
		return -ENOMEM;
	for (size_t i = 0; i < h->n_blobs; i++) {
		const struct hotspot_blob *b = &h->blobs[i];

		if (b->turn != h->turn || b->start == b->end)
			continue;
		codes[n++] = (struct uw_dynamic_code){
			.start = b->start,
			.end = b->end,
			.name = b->name ? (const char *)h->cached + b->name : "",
			.frames = b->frames ? h->cached + b->frames : NULL,
			.frames_size = b->frames_size,
		};
		/* Once: what a process says is code can overlap. */
		if (divided || h->call_return < b->start || h->call_return >= b->end)
			continue;
		before = n;
		n = divide(h, codes, n);
		divided = n != before;
	}
	err = n ? uw_dynamic_make(machine_named(HOTSPOT_MACHINE)->elf, codes, n, names, out)
		: -ENOENT;
	free(codes);
	return err;
}

/*
 * The checksum of the heaps' segment maps shows in nearly all cases whether code came or went. Code
 * of the same size may replace other code unseen, so after LOOKS readings everything is checked.
 */
int hotspot_read(struct hotspot *h, uw_read_fn read, void *ctx, bool news, bool names,
		 struct uw_dynamic **out)
{
	const struct hotspot_heap *heaps = h->heaps;
	size_t n, total;
	uint64_t mark;
	int err = 0;

	hotspot_memory_begin(&h->memory, read, ctx);
	h->changed = h->misses = false;
	if (!h->has_layout)
		err = hotspot_layout_read(&h->memory, h->exports, &h->layout);
	h->has_layout |= !err;
	if (!err)
		err = read_heaps(h);
	if (err)
		return err;
	n = h->n_heaps;
	total = heaps[n - 1].first + heaps[n - 1].n;
	mark = uw_checksum(h->segments, total, n);
	if (mark == h->mark && !news && ++h->looks < LOOKS)
		return -EAGAIN;
	forget_gone(h);
	span(heaps, n, &h->cache);
	h->turn++;
	read_call_stub(h);
	for (size_t i = 0; i < n; i++)
		read_blobs(h, &heaps[i], mark == h->mark && !news);
	h->looks = 0;
	/* If the time was over, the next reading must not assume that this one was complete. */
	h->mark = h->memory.over ? 0 : mark;
	return h->changed ? make(h, names, out) : -EAGAIN;
}

/*
 * Find the block around an address: what was read of it last. In a heap's map, a byte says how many segments back its
 * block, or a piece of it, begins; 0xff: unused. Return false if the address is in no heap, or the time is over.
 */
static bool find_block(struct hotspot *h, uint64_t addr, const struct hotspot_blob **blob)
{
	*blob = NULL;
	for (size_t i = 0; i < h->n_heaps; i++) {
		const struct hotspot_heap *heap = &h->heaps[i];
		const uint8_t *map = h->segments + heap->first;
		size_t at = (size_t)((addr - heap->low) >> heap->log2);
		uint32_t known;

		if (addr < heap->low || addr >= heap->high_edge)
			continue;
		while (at < heap->n && map[at]) {
			if (map[at] == 0xff)
				return true;
			if (map[at] > at || !hotspot_has_time(&h->memory, 1))
				return false;
			at -= map[at];
		}
		known = find_blob(h, heap->low + ((uint64_t)at << heap->log2));
		if (at < heap->n && known != UW_HASH_NONE && h->blobs[known].turn == h->turn)
			*blob = &h->blobs[known];
		return true;
	}
	return false;
}

const struct hotspot_blob *hotspot_blob_at(struct hotspot *h, uint64_t addr)
{
	const struct hotspot_blob *b;
	uint64_t *missed;

	if (!find_block(h, addr, &b))
		return NULL;
	if (b && b->size)
		return addr >= b->start && addr < b->end ? b : NULL;
	/* A call that has returned may have left an address of code that is gone: that is looked for once. */
	missed = &h->missed[hash_u64(0, addr) % HOTSPOT_MISSED];
	h->misses |= *missed != addr;
	*missed = addr;
	return NULL;
}

bool hotspot_misses(const struct hotspot *h)
{
	return h->misses;
}

/*
 * agent/process/hotspot.c: reads HotSpot's tables, code heaps and blobs, and caches what it read.
 */
#include "agent/process/hotspot.h"

#include "agent/process/hotspot_frames.h"
#include "agent/source/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Limits on what a virtual machine can claim about itself. */
#define STRUCTS_MAX  8192
#define HEAPS_MAX    8
#define SEGMENTS_MAX (4u << 20)
#define BLOBS_MAX    32768u	/* a power of two; at most half of them are used */
#define KEPT_MAX     (4u << 20) /* bytes of cached names and frames */
#define KEPT_SPARE   65536u
#define SYMBOL_MAX   200
#define CODE_MAX     (128u << 10) /* bytes of a method searched for the ends of its frame */
#define FRAME_MAX    (1 << 16)	  /* words */
#define HEAD_SIZE    384	  /* bytes of a block that contain all fields wanted of its blob */
#define PAGE	     4096u
#define PAGES	     16
#define VERIFY	     8	/* one of this many known blobs is checked again in each reading */
#define LOOKS	     16 /* after this many readings without anything new, all blobs are checked */

const char *const hotspot_exports[HOTSPOT_EXPORTS] = { "gHotSpotVMStructs", "gHotSpotVMTypes" };

/* ---- where its structures have their fields ------------------------------------------------ */

enum field {
	HEAPS, /* static: its address */
	LEN,
	DATA,
	MEMORY,
	SEGMAP,
	LOG2,
	LOW,
	HIGH,
	LOW_EDGE, /* lower end of the reserved memory */
	HIGH_EDGE,
	BLOCK_USED,
	NAME,
	SIZE,
	FRAME_COMPLETE,
	FRAME_SIZE,
	DATA_OFFSET,
	CODE_BEGIN,  /* in older versions */
	CODE_OFFSET, /* in newer versions */
	METHOD,
	COMPILE_ID,
	CONST_METHOD,
	CONSTANTS,
	NAME_INDEX,
	HOLDER,
	KLASS_NAME,
	SYMBOL_LENGTH,
	SYMBOL_BODY,
	N_FIELDS
};

static const struct wanted {
	const char *type, *name;
	enum field field;
} wanted[] = {
	{ "CodeCache", "_heaps", HEAPS },
	{ "GrowableArrayBase", "_len", LEN },
	{ "GenericGrowableArray", "_len", LEN }, /* up to JDK 15 */
	{ "GrowableArray<int>", "_data", DATA },
	{ "CodeHeap", "_memory", MEMORY },
	{ "CodeHeap", "_segmap", SEGMAP },
	{ "CodeHeap", "_log2_segment_size", LOG2 },
	{ "VirtualSpace", "_low", LOW },
	{ "VirtualSpace", "_high", HIGH },
	{ "VirtualSpace", "_low_boundary", LOW_EDGE },
	{ "VirtualSpace", "_high_boundary", HIGH_EDGE },
	{ "HeapBlock::Header", "_used", BLOCK_USED },
	{ "CodeBlob", "_name", NAME },
	{ "CodeBlob", "_size", SIZE },
	{ "CodeBlob", "_frame_complete_offset", FRAME_COMPLETE },
	{ "CodeBlob", "_frame_size", FRAME_SIZE },
	{ "CodeBlob", "_data_offset", DATA_OFFSET },
	{ "CodeBlob", "_code_begin", CODE_BEGIN },
	{ "CodeBlob", "_code_offset", CODE_OFFSET },
	{ "CompiledMethod", "_method", METHOD },
	{ "nmethod", "_method", METHOD }, /* before JDK 9, and from 23 on */
	{ "nmethod", "_compile_id", COMPILE_ID },
	{ "Method", "_constMethod", CONST_METHOD },
	{ "ConstMethod", "_constants", CONSTANTS },
	{ "ConstMethod", "_name_index", NAME_INDEX },
	{ "ConstantPool", "_pool_holder", HOLDER },
	{ "Klass", "_name", KLASS_NAME },
	{ "Symbol", "_length", SYMBOL_LENGTH },
	{ "Symbol", "_body", SYMBOL_BODY },
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))

struct layout {
	uint64_t at[N_FIELDS];
	bool has[N_FIELDS];
	bool short_complete; /* FRAME_COMPLETE has 16 bits */
	uint64_t pool_size;  /* bytes of a ConstantPool without its entries */
	uint64_t block_size; /* bytes of a block's header */
};

/* ---- the cached state of the code ----------------------------------------------------------- */

struct blob {
	uint64_t block; /* address of the block; 0: the slot is free */
	uint64_t method;
	uint32_t size, id;
	uint64_t start, end;		    /* of its code; equal: unusable */
	uint32_t name, frames, frames_size; /* name and frames: offsets in kept; bytes */
	uint32_t turn;			    /* the reading in which the blob was last seen */
};

struct page {
	uint64_t start; /* 0: none */
	uint8_t bytes[PAGE];
};

struct hotspot {
	uint64_t exports[HOTSPOT_EXPORTS];
	struct layout layout;
	bool has_layout;
	struct hotspot_cache cache;
	struct blob *blobs; /* BLOBS_MAX slots, by a hash of the block */
	size_t n_blobs;
	uint8_t *kept; /* names and frames; offset 0 is not used */
	size_t n_kept, kept_room;
	uint8_t *segments; /* segment maps of all heaps, as read last */
	size_t segments_room;
	uint64_t mark; /* checksum of the segment maps that were last read completely */
	uint32_t turn;
	unsigned int looks; /* readings since something was new */
	/* State of the current call: */
	uw_read_fn read;
	void *ctx;
	struct page *pages; /* PAGES slots, a cache */
	bool changed;
	bool over; /* the time for reading is over */
};

int hotspot_new(const uint64_t exports[HOTSPOT_EXPORTS], struct hotspot **out)
{
	struct hotspot *h = calloc(1, sizeof(*h));

	if (h) {
		h->blobs = calloc(BLOBS_MAX, sizeof(*h->blobs));
		h->pages = calloc(PAGES, sizeof(*h->pages));
	}
	if (!h || !h->blobs || !h->pages) {
		hotspot_free(h);
		return -ENOMEM;
	}
	memcpy(h->exports, exports, sizeof(h->exports));
	h->n_kept = 1;
	*out = h;
	return 0;
}

void hotspot_free(struct hotspot *h)
{
	if (!h)
		return;
	free(h->blobs);
	free(h->pages);
	free(h->kept);
	free(h->segments);
	free(h);
}

bool hotspot_is_of(const struct hotspot *h, const uint64_t exports[HOTSPOT_EXPORTS])
{
	return !memcmp(h->exports, exports, sizeof(h->exports));
}

/* ---- reading the process's memory ------------------------------------------------------------ */

/*
 * Read memory. A failure at one address does not affect later reads; after -ETIME all later reads
 * fail.
 */
static bool get(struct hotspot *h, uint64_t addr, void *out, size_t size)
{
	int err = h->over || !addr || addr > UINT64_MAX - size ? -EFAULT
							       : h->read(h->ctx, addr, out, size);

	h->over |= err == -ETIME;
	return !err;
}

/* Return a little-endian number of size bytes. */
static uint64_t number(const uint8_t *p, unsigned int size)
{
	uint64_t value = 0;

	for (unsigned int i = size; i-- > 0;)
		value = value << 8 | p[i];
	return value;
}

static bool get_number(struct hotspot *h, uint64_t addr, unsigned int size, uint64_t *out)
{
	uint8_t bytes[8];

	if (!get(h, addr, bytes, size))
		return false;
	*out = number(bytes, size);
	return true;
}

/*
 * Return the byte at addr in a page that is cached for this call, so that many small reads of a
 * page cost one. NULL if the page cannot be read to its end.
 */
static const uint8_t *page_of(struct hotspot *h, uint64_t addr)
{
	uint64_t start = addr & ~(uint64_t)(PAGE - 1);
	struct page *p = &h->pages[start / PAGE % PAGES];

	if (p->start != start || !start) {
		p->start = 0;
		if (!get(h, start, p->bytes, PAGE))
			return NULL;
		p->start = start;
	}
	return p->bytes + (addr - start);
}

/* Read size bytes through the cached pages. */
static bool get_small(struct hotspot *h, uint64_t addr, uint8_t *out, size_t size)
{
	while (size) {
		size_t piece = PAGE - addr % PAGE;
		const uint8_t *p = page_of(h, addr);

		if (!p)
			return false;
		if (piece > size)
			piece = size;
		memcpy(out, p, piece);
		out += piece;
		addr += piece;
		size -= piece;
	}
	return true;
}

/* Read a string; at most size - 1 bytes of it are stored, with a terminating 0. */
static bool get_text(struct hotspot *h, uint64_t addr, char *out, size_t size)
{
	size_t n = 0;

	while (n < size - 1) { /* the memory after its end need not be readable */
		size_t piece = PAGE - (addr + n) % PAGE;
		const uint8_t *p = page_of(h, addr + n);

		if (!p)
			return false;
		if (piece > size - 1 - n)
			piece = size - 1 - n;
		memcpy(out + n, p, piece);
		if (memchr(out + n, 0, piece))
			return true;
		n += piece;
	}
	out[n] = 0;
	return true;
}

/* ---- the layout ------------------------------------------------------------------------------ */

/* Offsets of the members of struct VMStructEntry and struct VMTypeEntry. */
enum {
	STRUCT_TYPE = 0,
	STRUCT_FIELD = 8,
	STRUCT_OF = 16, /* the type of the field */
	STRUCT_OFFSET = 32,
	STRUCT_ADDRESS = 40,
	STRUCT_ENTRY = 48,
	TYPE_NAME = 0,
	TYPE_SIZE = 32,
	TYPE_ENTRY = 40,
};

/* Store the offset of a field, if the field is wanted. */
static void take_field(struct hotspot *h, const char *type, const uint8_t *entry)
{
	struct layout *l = &h->layout;
	char name[32], of[16];

	if (!get_text(h, number(entry + STRUCT_FIELD, 8), name, sizeof(name)))
		return;
	for (size_t i = 0; i < N_WANTED; i++) {
		enum field field = wanted[i].field;

		if (strcmp(wanted[i].type, type) != 0 || strcmp(wanted[i].name, name) != 0)
			continue;
		l->at[field] = number(entry + (field == HEAPS ? STRUCT_ADDRESS : STRUCT_OFFSET), 8);
		l->has[field] = true;
		if (field == FRAME_COMPLETE)
			l->short_complete =
				get_text(h, number(entry + STRUCT_OF, 8), of, sizeof(of)) &&
				!strcmp(of, "int16_t");
	}
}

static bool is_wanted(const char *type)
{
	for (size_t i = 0; i < N_WANTED; i++)
		if (!strcmp(wanted[i].type, type))
			return true;
	return false;
}

/* Read the offsets of all wanted fields from gHotSpotVMStructs. */
static void read_structs(struct hotspot *h)
{
	uint8_t entry[STRUCT_ENTRY];
	uint64_t at, type, last = 0;
	bool is = false;
	char name[32];

	if (!get_number(h, h->exports[0], 8, &at))
		return;
	for (unsigned int i = 0; i < STRUCTS_MAX && get_small(h, at, entry, sizeof(entry));
	     i++, at += sizeof(entry)) {
		type = number(entry + STRUCT_TYPE, 8);
		if (!type)
			return;
		if (type != last)
			is = get_text(h, type, name, sizeof(name)) && is_wanted(name);
		last = type;
		if (is)
			take_field(h, name, entry);
	}
}

/* Read the sizes of two types from gHotSpotVMTypes. */
static void read_types(struct hotspot *h)
{
	uint8_t entry[TYPE_ENTRY];
	uint64_t at, type;
	char name[32];

	if (!get_number(h, h->exports[1], 8, &at))
		return;
	for (unsigned int i = 0; i < STRUCTS_MAX && get_small(h, at, entry, sizeof(entry));
	     i++, at += sizeof(entry)) {
		type = number(entry + TYPE_NAME, 8);
		if (!type)
			return;
		if (!get_text(h, type, name, sizeof(name)))
			continue;
		if (!strcmp(name, "ConstantPool"))
			h->layout.pool_size = number(entry + TYPE_SIZE, 8);
		else if (!strcmp(name, "HeapBlock"))
			h->layout.block_size = number(entry + TYPE_SIZE, 8);
		if (h->layout.pool_size && h->layout.block_size)
			return;
	}
}

/* Read and check the layout. -ENOENT: not a virtual machine that this code understands; -EFAULT. */
static int read_layout(struct hotspot *h)
{
	struct layout *l = &h->layout;

	memset(l, 0, sizeof(*l));
	read_structs(h);
	read_types(h);
	if (h->over)
		return -EFAULT;
	for (unsigned int i = 0; i < N_FIELDS; i++) {
		bool spare = i == CODE_BEGIN || i == CODE_OFFSET;

		/* The structures are small, so a larger number is not an offset. */
		if ((!l->has[i] && !spare) || (l->has[i] && i != HEAPS && l->at[i] > 4096))
			return -ENOENT;
	}
	/* All wanted fields of a block are read at once. */
	for (unsigned int i = NAME; i <= COMPILE_ID; i++)
		if (l->block_size > 64 || l->at[i] > HEAD_SIZE - 64 - 8)
			return -ENOENT;
	if ((!l->has[CODE_BEGIN] && !l->has[CODE_OFFSET]) || !l->pool_size || l->pool_size > 4096 ||
	    !l->block_size || l->at[BLOCK_USED] >= l->block_size)
		return -ENOENT;
	h->has_layout = true;
	return 0;
}

/* ---- the cache of names and frames ---------------------------------------------------------- */

/*
 * Append bytes to the cache and set *at to their offset. False if there is no room; *at is 0 then.
 */
static bool keep(struct hotspot *h, const void *bytes, size_t size, uint32_t *at)
{
	*at = 0;
	if (h->n_kept + size > h->kept_room) {
		size_t room = h->kept_room ? 2 * h->kept_room : KEPT_SPARE;
		uint8_t *more = room > KEPT_MAX ? NULL : realloc(h->kept, room);

		if (!more)
			return false;
		h->kept = more;
		h->kept_room = room;
	}
	memcpy(h->kept + h->n_kept, bytes, size);
	*at = (uint32_t)h->n_kept;
	h->n_kept += size;
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

	if (h->n_kept < KEPT_MAX - KEPT_SPARE && h->n_blobs < BLOBS_MAX / 2)
		return;
	for (size_t i = 0; i < BLOBS_MAX; i++) {
		const struct blob *b = &h->blobs[i];

		if (!b->block || b->turn != h->turn)
			continue;
		live++;
		bytes += b->frames_size;
		if (b->name)
			bytes += strlen((const char *)h->kept + b->name) + 1;
	}
	if (live > BLOBS_MAX / 2 / 4 * 3 || bytes > KEPT_MAX / 4 * 3)
		return;
	memset(h->blobs, 0, BLOBS_MAX * sizeof(*h->blobs));
	h->n_blobs = 0;
	h->n_kept = 1;
}

/* Return the slot of a block, which may be free. */
static struct blob *place_of(const struct hotspot *h, uint64_t block)
{
	uint64_t hash = block * 0x9e3779b97f4a7c15u >> 32;

	while (h->blobs[hash & (BLOBS_MAX - 1)].block &&
	       h->blobs[hash & (BLOBS_MAX - 1)].block != block)
		hash++;
	return &h->blobs[hash & (BLOBS_MAX - 1)];
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Read a Symbol's text. Return its length without terminator; 0 on failure. */
static size_t read_symbol(struct hotspot *h, uint64_t at, char out[SYMBOL_MAX])
{
	const struct layout *l = &h->layout;
	uint64_t size;

	if (!get_number(h, at + l->at[SYMBOL_LENGTH], 2, &size))
		return 0;
	if (size > SYMBOL_MAX)
		size = SYMBOL_MAX;
	return get(h, at + l->at[SYMBOL_BODY], out, size) ? size : 0;
}

/* Store the name of the blob's method, "package.Class.method". On failure the name stays empty. */
static void keep_method_name(struct hotspot *h, struct blob *b)
{
	const struct layout *l = &h->layout;
	char name[2 * SYMBOL_MAX + 2];
	uint64_t method, pool, index, symbol, holder, klass;
	size_t size, more;

	if (!get_number(h, b->method + l->at[CONST_METHOD], 8, &method) ||
	    !get_number(h, method + l->at[CONSTANTS], 8, &pool) ||
	    !get_number(h, method + l->at[NAME_INDEX], 2, &index) ||
	    !get_number(h, pool + l->pool_size + 8 * index, 8, &symbol) ||
	    !get_number(h, pool + l->at[HOLDER], 8, &holder) ||
	    !get_number(h, holder + l->at[KLASS_NAME], 8, &klass))
		return;
	size = read_symbol(h, klass, name);
	for (size_t i = 0; i < size; i++)
		if (name[i] == '/')
			name[i] = '.';
	name[size++] = '.';
	more = read_symbol(h, symbol, name + size);
	if (!more || size == 1)
		return;
	size += more;
	name[size++] = 0;
	(void)keep(h, name, size, &b->name);
}

/* ---- unwind information --------------------------------------------------------------------- */

static void keep_frames(struct hotspot *h, struct blob *b, const struct hotspot_frames *f)
{
	if (keep(h, f->bytes, f->n, &b->frames))
		b->frames_size = (uint32_t)f->n;
}

/*
 * Store the frames of compiled code. complete: offset at which the frame is complete; negative for
 * a method: it never has a frame, the code is only a jump.
 */
static void keep_compiled(struct hotspot *h, struct blob *b, int64_t complete, uint32_t words,
			  bool method)
{
	struct hotspot_code code = { .size = b->end - b->start, .words = words };
	struct hotspot_frames f;
	uint8_t *bytes;

	code.n_bytes = code.size > CODE_MAX ? CODE_MAX : (size_t)code.size;
	if (complete < 0 && method)
		code.words = 1;
	code.complete = complete < 0 ? 0 : (size_t)complete;
	bytes = code.complete <= code.n_bytes ? malloc(code.n_bytes) : NULL;
	if (bytes && get(h, b->start, bytes, code.n_bytes)) {
		code.bytes = bytes;
		hotspot_frames_compiled(&f, &code, &h->cache);
		keep_frames(h, b, &f);
	}
	free(bytes);
}

static void keep_interpreter(struct hotspot *h, struct blob *b)
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
static bool learn(struct hotspot *h, const uint8_t *head, struct blob *b)
{
	const struct layout *l = &h->layout;
	const uint8_t *p = head + l->block_size;
	uint64_t at = b->block + l->block_size, off, end;
	uint32_t words = (uint32_t)number(p + l->at[FRAME_SIZE], 4);
	int64_t complete = l->short_complete ? (int16_t)number(p + l->at[FRAME_COMPLETE], 2)
					     : (int32_t)number(p + l->at[FRAME_COMPLETE], 4);
	char name[64];
	bool method;

	off = l->has[CODE_OFFSET] ? number(p + l->at[CODE_OFFSET], 4)
				  : number(p + l->at[CODE_BEGIN], 8) - at;
	end = number(p + l->at[DATA_OFFSET], 4);
	b->start = b->end = at;
	if (off >= end || end > b->size ||
	    !get_text(h, number(p + l->at[NAME], 8), name, sizeof(name)))
		return !h->over;
	b->start = at + off;
	b->end = at + end;
	method = !strcmp(name, "nmethod") || !strcmp(name, "native nmethod");
	if (method)
		keep_method_name(h, b);
	if (!b->name)
		(void)keep(h, name, strlen(name) + 1, &b->name);
	if (!strcmp(name, "Interpreter"))
		keep_interpreter(h, b);
	else if (words && words <= FRAME_MAX)
		keep_compiled(h, b, complete, words, method);
	return !h->over;
}

/*
 * Read the block that, according to the heap, begins at address block, with room bytes up to the
 * heap's end. Update the slot b if the block has changed.
 */
static void look_at(struct hotspot *h, uint64_t block, uint64_t room, struct blob *b)
{
	const struct layout *l = &h->layout;
	uint8_t head[HEAD_SIZE] = { 0 };
	const uint8_t *p = head + l->block_size;
	struct blob now = { .block = block, .turn = h->turn };

	if (!get(h, block, head, room < sizeof(head) ? (size_t)room : sizeof(head)))
		return;
	if (head[l->at[BLOCK_USED]]) {
		now.method = number(p + l->at[METHOD], 8);
		now.size = (uint32_t)number(p + l->at[SIZE], 4);
		now.id = (uint32_t)number(p + l->at[COMPILE_ID], 4);
	}
	if (b->block && b->method == now.method && b->size == now.size && b->id == now.id)
		return;
	if (now.size && !learn(h, head, &now))
		return;
	h->n_blobs += !b->block;
	h->changed = true;
	*b = now;
}

/* ---- the heaps ------------------------------------------------------------------------------ */

struct heap {
	uint64_t low, high;	      /* the committed memory */
	uint64_t low_edge, high_edge; /* the reserved memory around it */
	uint64_t map; /* address of a map with one byte for each segment; 0 where a block begins */
	unsigned int log2;
	size_t first, n; /* segments, in the array for all heaps */
};

/* Read and check one CodeHeap. */
static bool read_heap(struct hotspot *h, uint64_t at, struct heap *heap)
{
	const struct layout *l = &h->layout;
	uint64_t log2;

	if (!get_number(h, at + l->at[MEMORY] + l->at[LOW], 8, &heap->low) ||
	    !get_number(h, at + l->at[MEMORY] + l->at[HIGH], 8, &heap->high) ||
	    !get_number(h, at + l->at[MEMORY] + l->at[LOW_EDGE], 8, &heap->low_edge) ||
	    !get_number(h, at + l->at[MEMORY] + l->at[HIGH_EDGE], 8, &heap->high_edge) ||
	    !get_number(h, at + l->at[SEGMAP] + l->at[LOW], 8, &heap->map) ||
	    !get_number(h, at + l->at[LOG2], 4, &log2))
		return false;
	if (log2 < 4 || log2 > 16 || heap->low_edge > heap->low || heap->low >= heap->high ||
	    heap->high > heap->high_edge)
		return false;
	heap->log2 = (unsigned int)log2;
	return true;
}

/* Read the code heaps and their segment maps. */
static int read_heaps(struct hotspot *h, struct heap heaps[HEAPS_MAX], size_t *n)
{
	const struct layout *l = &h->layout;
	uint64_t array, data, count, at;
	size_t total = 0;

	*n = 0;
	if (!get_number(h, l->at[HEAPS], 8, &array) ||
	    !get_number(h, array + l->at[LEN], 4, &count) ||
	    !get_number(h, array + l->at[DATA], 8, &data))
		return -ENOENT;
	for (uint64_t i = 0; i < count && i < HEAPS_MAX; i++) {
		struct heap *heap = &heaps[*n];

		if (!get_number(h, data + 8 * i, 8, &at) || !read_heap(h, at, heap))
			continue;
		heap->first = total;
		heap->n = (size_t)((heap->high - heap->low) >> heap->log2);
		if (heap->n > SEGMENTS_MAX - total)
			heap->n = SEGMENTS_MAX - total;
		total += heap->n;
		++*n;
	}
	if (total > h->segments_room) {
		uint8_t *more = realloc(h->segments, total);

		if (!more)
			return -ENOMEM;
		h->segments = more;
		h->segments_room = total;
	}
	for (size_t i = 0; i < *n; i++)
		if (!get(h, heaps[i].map, h->segments + heaps[i].first, heaps[i].n))
			return -EFAULT;
	return *n ? 0 : -ENOENT;
}

/*
 * Find the smallest range of a power of two bytes, from the lowest heap on, that contains all
 * heaps.
 */
static void span(const struct heap *heaps, size_t n, struct hotspot_cache *cache)
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
static void read_blobs(struct hotspot *h, const struct heap *heap, bool all)
{
	const uint8_t *map = h->segments + heap->first, *end = map + heap->n;

	for (const uint8_t *s = map; (s = memchr(s, 0, (size_t)(end - s))); s++) {
		uint64_t block = heap->low + ((uint64_t)(s - map) << heap->log2);
		struct blob *b = place_of(h, block);

		if (b->block)
			b->turn = h->turn;
		else if (h->n_blobs >= BLOBS_MAX / 2)
			continue;
		/* A free block is soon used for something else, so always read it. */
		if (!b->size || all || (block >> heap->log2) % VERIFY == h->turn % VERIFY)
			look_at(h, block, heap->high - block, b);
	}
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Build the result from all usable blobs that were seen in this reading. */
static int make(struct hotspot *h, bool names, struct uw_dynamic **out)
{
	struct uw_dynamic_code *codes = calloc(h->n_blobs + 1, sizeof(*codes));
	size_t n = 0;
	int err;

	if (!codes)
		return -ENOMEM;
	for (size_t i = 0; i < BLOBS_MAX && n < h->n_blobs; i++) {
		const struct blob *b = &h->blobs[i];

		if (!b->block || b->turn != h->turn || b->start == b->end)
			continue;
		codes[n++] = (struct uw_dynamic_code){
			.start = b->start,
			.end = b->end,
			.name = b->name ? (const char *)h->kept + b->name : "",
			.frames = b->frames ? h->kept + b->frames : NULL,
			.frames_size = b->frames_size,
		};
	}
	err = n ? uw_dynamic_make(machine_named(HOTSPOT_MACHINE)->elf, codes, n, names, out)
		: -ENOENT;
	free(codes);
	return err;
}

int hotspot_read(struct hotspot *h, uw_read_fn read, void *ctx, bool news, bool names,
		 struct uw_dynamic **out)
{
	struct heap heaps[HEAPS_MAX];
	size_t n, total;
	uint64_t mark;
	int err = 0;

	h->read = read;
	h->ctx = ctx;
	h->over = h->changed = false;
	for (unsigned int i = 0; i < PAGES; i++)
		h->pages[i].start = 0;
	if (!h->has_layout)
		err = read_layout(h);
	if (!err)
		err = read_heaps(h, heaps, &n);
	if (err)
		return err;
	total = heaps[n - 1].first + heaps[n - 1].n;
	mark = uw_checksum(h->segments, total, n);
	if (mark == h->mark && !news && ++h->looks < LOOKS)
		return -EAGAIN;
	forget_gone(h);
	span(heaps, n, &h->cache);
	h->turn++;
	for (size_t i = 0; i < n; i++)
		read_blobs(h, &heaps[i], mark == h->mark && !news);
	h->looks = 0;
	/* If the time was over, the next reading must not assume that this one was complete. */
	h->mark = h->over ? 0 : mark;
	return h->changed ? make(h, names, out) : -EAGAIN;
}

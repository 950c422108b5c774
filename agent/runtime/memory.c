/* agent/runtime/memory.c: captured bytes of a sample, and stored pieces of its process's memory. */
#include "agent/runtime/memory.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/limits.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND 4 /* slices before the last one that are looked at first */

struct piece {
	uint64_t addr;
	size_t size;
	uint8_t *bytes; /* owned */
};

struct runtime_memory {
	const struct event_sample *sample;
	runtime_live_fn live;
	void *ctx;
	bool late;
	size_t last; /* slice in which something was found last */
	struct piece *pieces;
	size_t n, room;
	uint64_t bytes; /* of all pieces */
	struct uw_hash_index by_addr;
	uint8_t *news; /* pieces as EVENT_MEMORY has them */
	size_t n_news, room_news;
	bool news_taken; /* runtime_memory_news has returned them */
};

int runtime_memory_new(struct runtime_memory **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : -ENOMEM;
}

static void clear(struct runtime_memory *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->pieces[i].bytes);
	m->n = 0;
	m->bytes = 0;
	uw_hash_clear(&m->by_addr);
}

void runtime_memory_free(struct runtime_memory *m)
{
	if (!m)
		return;
	clear(m);
	uw_hash_fini(&m->by_addr);
	free(m->pieces);
	free(m->news);
	free(m);
}

void runtime_memory_begin(struct runtime_memory *m, const struct event_sample *sample,
			  runtime_live_fn live, void *ctx)
{
	m->sample = sample;
	m->live = live;
	m->ctx = ctx;
	m->late = false;
	m->last = 0;
}

/* ---- captured bytes ---------------------------------------------------------------------- */

static bool copy_from(const struct uw_region *r, uint64_t addr, void *out, size_t size)
{
	if (addr < r->addr || size > r->size || addr - r->addr > r->size - size)
		return false;
	memcpy(out, r->bytes + (addr - r->addr), size);
	return true;
}

/*
 * Slices are in the order in which a plan copied them, and read in about that order. What is far before the last one
 * is what several frames have in common, and was copied for the first of them.
 */
bool runtime_read(struct runtime_memory *m, uint64_t addr, void *out, size_t size)
{
	const struct event_sample *s = m->sample;
	size_t start = m->last > BEHIND ? m->last - BEHIND : 0;

	for (size_t i = 0; i < s->n_slices; i++) {
		size_t at = (start + i) % s->n_slices;

		if (copy_from(&s->slices[at], addr, out, size)) {
			m->last = at > m->last ? at : m->last;
			return true;
		}
	}
	for (size_t i = 0; i < s->n_regions; i++)
		if (copy_from(&s->regions[i], addr, out, size))
			return true;
	return s->read && !s->read(s->read_ctx, addr, out, size);
}

bool runtime_read_u64(struct runtime_memory *m, uint64_t addr, uint64_t *out)
{
	return runtime_read(m, addr, out, sizeof(*out));
}

/* ---- pieces ------------------------------------------------------------------------------ */

static uint32_t find(const struct runtime_memory *m, uint64_t addr)
{
	return UW_HASH_FIND(i, &m->by_addr, hash_u64(0, addr), m->pieces[i].addr == addr);
}

/* Store a piece, and take its bytes, in any case. It replaces the one of that address. -ENOMEM. */
static int store(struct runtime_memory *m, uint64_t addr, uint8_t *bytes, size_t size)
{
	uint32_t id = find(m, addr);
	size_t had = id != UW_HASH_NONE ? m->pieces[id].size : 0;

	if (m->bytes - had + size > limits.runtime_bytes) {
		limits_reach(runtime_bytes, 1);
		clear(m);
		id = UW_HASH_NONE;
	}
	if (id != UW_HASH_NONE) {
		m->bytes += size - had;
		free(m->pieces[id].bytes);
		m->pieces[id] = (struct piece){ addr, size, bytes };
		return 0;
	}
	if (array_grow(m->pieces, m->n, m->room) ||
	    uw_hash_add(&m->by_addr, hash_u64(0, addr), (uint32_t)m->n)) {
		free(bytes);
		return -ENOMEM;
	}
	m->pieces[m->n++] = (struct piece){ addr, size, bytes };
	m->bytes += size;
	return 0;
}

/* Add a piece to the news. Without memory it is missing in the capture file. */
static void note(struct runtime_memory *m, uint64_t addr, const uint8_t *bytes, size_t size)
{
	const uint64_t head[2] = { addr, size };

	if (m->news_taken)
		m->n_news = 0;
	m->news_taken = false;
	if (array_reserve(m->news, m->n_news + sizeof(head) + size, m->room_news))
		return;
	memcpy(m->news + m->n_news, head, sizeof(head));
	memcpy(m->news + m->n_news + sizeof(head), bytes, size);
	m->n_news += sizeof(head) + size;
}

int runtime_read_live(runtime_live_fn live, void *ctx, uint64_t addr, void *out, size_t size)
{
	struct opener_part part = { .addr = addr, .out = out, .size = size };
	int err = live(ctx, &part, 1);

	return err ? err : part.err;
}

/* Read a piece from the recording or from the living process. */
static int read_piece(struct runtime_memory *m, uint64_t addr, uint8_t *out, size_t size)
{
	const struct event_sample *s = m->sample;

	if (s->read)
		return s->read(s->read_ctx, addr, out, size);
	return m->live ? runtime_read_live(m->live, m->ctx, addr, out, size) : -EFAULT;
}

/* Return whether this can be a piece. */
static bool can_be(uint64_t addr, size_t size)
{
	return addr >= RUNTIME_NOTES_END && size && size <= RUNTIME_PIECE_MAX &&
	       addr <= UINT64_MAX - size;
}

const uint8_t *runtime_piece(struct runtime_memory *m, uint64_t addr, size_t size)
{
	uint32_t id = find(m, addr);
	uint8_t *bytes;
	int err;

	if (id != UW_HASH_NONE && m->pieces[id].size >= size)
		return m->pieces[id].bytes;
	if (!can_be(addr, size) || (!m->live && !m->sample->read))
		return NULL;
	bytes = malloc(size);
	if (!bytes)
		return NULL;
	err = read_piece(m, addr, bytes, size);
	m->late |= err == -ETIME;
	if (err) {
		free(bytes);
		return NULL;
	}
	note(m, addr, bytes, size);
	return store(m, addr, bytes, size) ? NULL : bytes;
}

void runtime_renew(struct runtime_memory *m, struct runtime_want *wants, size_t n)
{
	struct opener_part parts[RUNTIME_WANTS_MAX];
	size_t of[RUNTIME_WANTS_MAX], used = 0;
	int err;

	if (!m->live || m->sample->read)
		return;
	for (size_t i = 0; i < n; i++) {
		runtime_forget(m, wants[i].addr);
		wants[i].failed = true;
		if (!can_be(wants[i].addr, wants[i].size) || used == RUNTIME_WANTS_MAX)
			continue;
		parts[used] = (struct opener_part){ .addr = wants[i].addr,
						    .out = malloc(wants[i].size),
						    .size = wants[i].size };
		of[used] = i;
		used += parts[used].out != NULL;
	}
	err = used ? m->live(m->ctx, parts, used) : 0;
	m->late |= err == -ETIME;
	for (size_t i = 0; i < used; i++) {
		if (err || parts[i].err) {
			free(parts[i].out);
			continue;
		}
		note(m, parts[i].addr, parts[i].out, parts[i].size);
		wants[of[i]].failed = store(m, parts[i].addr, parts[i].out, parts[i].size) != 0;
	}
}

void runtime_note(struct runtime_memory *m, uint64_t addr, const void *bytes, size_t size)
{
	uint8_t *copy = malloc(size);

	if (!copy)
		return;
	memcpy(copy, bytes, size);
	note(m, addr, copy, size);
	(void)store(m, addr, copy, size);
}

size_t runtime_noted(const struct runtime_memory *m, uint64_t addr)
{
	uint32_t id = find(m, addr);

	return id != UW_HASH_NONE ? m->pieces[id].size : 0;
}

bool runtime_is_late(const struct runtime_memory *m)
{
	return m->late;
}

/* Without a process to read it from again, the piece that the capture file has is the best there is. */
void runtime_forget(struct runtime_memory *m, uint64_t addr)
{
	uint32_t id = find(m, addr), last = (uint32_t)m->n - 1;

	if (id == UW_HASH_NONE || !m->live)
		return;
	uw_hash_remove(&m->by_addr, hash_u64(0, addr), id);
	m->bytes -= m->pieces[id].size;
	free(m->pieces[id].bytes);
	if (id != last) {
		uw_hash_renumber(&m->by_addr, hash_u64(0, m->pieces[last].addr), last, id);
		m->pieces[id] = m->pieces[last];
	}
	m->n--;
}

int runtime_memory_store(struct runtime_memory *m, const struct event_memory *event)
{
	struct uw_bytes b = uw_bytes_of(event->bytes, event->size);

	while (!uw_bytes_done(&b)) {
		uint64_t addr = uw_bytes_u64(&b), size = uw_bytes_u64(&b);
		const uint8_t *from = uw_bytes_advance(&b, size);
		uint8_t *bytes;
		int err;

		if (b.err || !size || size > RUNTIME_PIECE_MAX)
			return 0;
		bytes = malloc(size);
		if (!bytes)
			return -ENOMEM;
		memcpy(bytes, from, size);
		err = store(m, addr, bytes, size);
		if (err)
			return err;
	}
	return 0;
}

size_t runtime_memory_news(struct runtime_memory *m, const void **bytes)
{
	size_t n = m->news_taken ? 0 : m->n_news;

	*bytes = m->news;
	m->news_taken = true;
	return n;
}

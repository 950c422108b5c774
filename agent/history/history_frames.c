/* agent/history/history_frames.c: packs frames, finds them by their addresses, adds and renames them. */
#include "agent/history/history_frames.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

/* Frames with one hash that are looked at: somebody may choose addresses so that many have it. Others are stored again. */
enum { FOUND_MAX = 64 };

enum { HASH_SHIFT = 8 }; /* of 31 bits, 23 are left */

#define LINES_MAX ((size_t)256 << 20) /* bytes of all lines that a transaction adds */

/* ---- pages ----------------------------------------------------------------------------------- */

/* Return the address of the last of n frames that has a module; 0: none has. */
static uint64_t last_address(const struct history_page_frame *frames, size_t n, int64_t module)
{
	while (n--)
		if (frames[n].there && frames[n].key.module == module)
			return frames[n].key.address;
	return 0;
}

/* Unpack the frame at position n. */
static void unpack(struct uw_bytes *b, uint64_t head, int64_t *module,
		   struct history_page_frame *frames, size_t n)
{
	struct history_page_frame *f = &frames[n];

	f->key.module = *module = (int64_t)((uint64_t)*module + (uint64_t)uw_bytes_sleb(b));
	f->key.address = last_address(frames, n, f->key.module) + (uint64_t)uw_bytes_sleb(b);
	f->key.variant = head & 1 ? 0 : (int64_t)uw_bytes_uleb(b);
	f->lines = uw_bytes_take(b, (head - 1) / 2);
	f->there = !b->err;
}

int history_unpack_frames(const void *blob, size_t size,
			  struct history_page_frame frames[FRAMES_IN_PAGE], size_t *n)
{
	struct uw_bytes b = uw_bytes_of(blob, size);
	int64_t module = 0;

	memset(frames, 0, FRAMES_IN_PAGE * sizeof(*frames));
	for (*n = 0; !uw_bytes_done(&b);) {
		uint64_t head = uw_bytes_uleb(&b), deleted = head ? 0 : uw_bytes_uleb(&b);

		if (b.err || *n == FRAMES_IN_PAGE || deleted > FRAMES_IN_PAGE - *n)
			return -EBADMSG;
		if (head)
			unpack(&b, head, &module, frames, *n);
		*n += head ? frames[*n].there : (size_t)deleted;
	}
	return b.err;
}

static void pack(const struct history_page_frame *frames, size_t n, int64_t *module,
		 struct history_bytes *out, int *err)
{
	const struct history_page_frame *f = &frames[n];
	const size_t size = (size_t)uw_bytes_left(&f->lines);
	const uint64_t last = last_address(frames, n, f->key.module);

	history_put_uleb(out, 2 * (uint64_t)size + (f->key.variant ? 2 : 1), err);
	history_put_sleb(out, (int64_t)((uint64_t)f->key.module - (uint64_t)*module), err);
	history_put_sleb(out, (int64_t)(f->key.address - last), err);
	if (f->key.variant)
		history_put_uleb(out, (uint64_t)f->key.variant, err);
	*module = f->key.module;
	if (!*err)
		*err = array_reserve(out->bytes, out->size + size, out->room);
	if (!*err && size)
		memcpy(out->bytes + out->size, f->lines.pos, size);
	out->size += *err ? 0 : size;
}

int history_pack_frames(const struct history_page_frame *frames, size_t n,
			struct history_bytes *out)
{
	int64_t module = 0;
	int err = 0;

	for (size_t i = 0, end; i < n && !err; i = end) {
		for (end = i; end < n && !frames[end].there; end++)
			;
		if (end > i) {
			history_put_uleb(out, 0, &err);
			history_put_uleb(out, end - i, &err);
		} else {
			pack(frames, i, &module, out, &err);
			end++;
		}
	}
	return err;
}

int history_write_frames(struct history *h, int64_t page, const struct history_page_frame *frames,
			 size_t n)
{
	struct history_bytes bytes = { .bytes = NULL };
	bool any = false;
	sqlite3_stmt *stmt;
	int err;

	for (size_t i = 0; i < n; i++)
		any = any || frames[i].there;
	err = any ? history_pack_frames(frames, n, &bytes) : 0;
	stmt = err ? NULL : history_statement(h, any ? WRITE_FRAMES : DELETE_FRAMES, &err);
	if (stmt) {
		(void)sqlite3_bind_int64(stmt, 1, page);
		if (any)
			db_bind_bytes(stmt, 2, bytes.bytes, bytes.size);
		err = db_step(stmt);
		db_release(stmt);
	}
	free(bytes.bytes);
	return err < 0 ? err : 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

int64_t history_frame_hash(const struct history_frame_key *key)
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, sizeof(key->module), (const uint8_t *)&key->module);
	sha256_update(&ctx, sizeof(key->variant), (const uint8_t *)&key->variant);
	sha256_update(&ctx, sizeof(key->address), (const uint8_t *)&key->address);
	return history_hash_end(&ctx) >> HASH_SHIFT;
}

/* Run a statement about an entry of the index. */
static int change_index(struct history *h, enum history_statement which, int64_t id,
			const struct history_frame_key *key)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ history_frame_hash(key), id }, 2);
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

int history_frames_unindex(struct history *h, int64_t id, const struct history_frame_key *key)
{
	return change_index(h, UNINDEX_FRAME, id, key);
}

/* Give the ids of frames with a hash. */
static int candidates(struct history *h, int64_t hash, int64_t ids[FOUND_MAX], size_t *n)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, FIND_FRAMES, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ hash, FOUND_MAX }, 2);
	for (*n = 0; *n < FOUND_MAX && (err = db_step(stmt)) == 1;)
		ids[(*n)++] = sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	return err < 0 ? err : 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Read a page into frames. blob: what their lines are borrowed from. What is damaged is not there. */
static int read_page(struct history *h, int64_t page, struct history_bytes *blob,
		     struct history_page_frame frames[FRAMES_IN_PAGE], size_t *n)
{
	int err, size;
	sqlite3_stmt *stmt = history_statement(h, READ_FRAMES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, page);
	err = db_step(stmt);
	blob->size = 0;
	if (err == 1) {
		size = sqlite3_column_bytes(stmt, 0);
		err = array_reserve(blob->bytes, (size_t)size + 1, blob->room);
		if (!err && size)
			memcpy(blob->bytes, sqlite3_column_blob(stmt, 0), (size_t)size);
		blob->size = err ? 0 : (size_t)size;
	}
	db_release(stmt);
	if (!err)
		(void)history_unpack_frames(blob->bytes, blob->size, frames, n);
	return err;
}

/* Let the other page be the one with a frame. */
static int turn_to(struct history *h, struct history_new_frames *n, int64_t page)
{
	int err;

	if (n->page == page)
		return 0;
	n->page = -1;
	err = read_page(h, page, n->blob, n->others, &n->n_others);
	if (!err)
		n->page = page;
	return err;
}

static bool is_last_page(const struct history_new_frames *n, int64_t page)
{
	return n->n && page == history_frame_page(n->last);
}

/* Find where a frame is in memory. */
static int at(struct history *h, struct history_new_frames *n, int64_t id,
	      struct history_page_frame **out)
{
	const int64_t page = history_frame_page(id);
	int err = 0;

	if (is_last_page(n, page)) {
		*out = &n->frames[(id - 1) % FRAMES_IN_PAGE];
		return 0;
	}
	err = turn_to(h, n, page);
	if (!err)
		*out = &n->others[(id - 1) % FRAMES_IN_PAGE];
	return err;
}

static bool is_frame(const struct history_page_frame *f, const struct history_frame_key *key)
{
	return f->there && f->key.module == key->module && f->key.address == key->address &&
	       f->key.variant == key->variant;
}

int history_frames_find(struct history *h, struct history_new_frames *n,
			const struct history_frame_key *key, int64_t *id, struct uw_bytes *lines)
{
	int64_t ids[FOUND_MAX];
	size_t n_ids = 0;
	int err = candidates(h, history_frame_hash(key), ids, &n_ids);

	for (size_t i = 0; i < n_ids && !err; i++) {
		struct history_page_frame *f;

		/* An entry may be damaged. */
		if (ids[i] <= 0 || ids[i] > n->last)
			continue;
		err = at(h, n, ids[i], &f);
		if (err || !is_frame(f, key))
			continue;
		*id = ids[i];
		*lines = f->lines;
		return 1;
	}
	return err;
}

/* ---- adding ---------------------------------------------------------------------------------- */

static int copy_lines(struct history_new_frames *n, struct uw_bytes *lines)
{
	const size_t size = (size_t)uw_bytes_left(lines);
	uint8_t *copy = arena_alloc(&n->lines, size + 1);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, lines->pos, size);
	*lines = uw_bytes_of(copy, size);
	return 0;
}

/* Read the page of the last frame, which is not full yet. */
static int take_last_page(struct history *h, struct history_new_frames *n)
{
	const size_t wanted = (size_t)(n->last % FRAMES_IN_PAGE);
	int err = wanted ? read_page(h, history_frame_page(n->last), n->blob, n->frames, &n->n) : 0;

	for (size_t i = 0; i < n->n && !err; i++)
		err = copy_lines(n, &n->frames[i].lines);
	/* Should it be damaged, new frames begin with a page behind it. */
	if (!err && n->n != wanted) {
		n->last += FRAMES_IN_PAGE - n->last % FRAMES_IN_PAGE;
		n->n = 0;
	}
	return err;
}

int history_frames_begin(struct history *h, struct history_new_frames *n)
{
	int64_t last_page = -1;
	int err;

	arena_init(&n->lines, LINES_MAX);
	n->page = -1;
	n->blob = calloc(1, sizeof(*n->blob));
	if (!n->blob)
		return -ENOMEM;
	err = history_value(h, LAST_FRAME_PAGE, &last_page);
	if (!err)
		err = history_number(h, HISTORY_LAST_FRAME, &n->last);
	if (!err && (n->last < 0 || n->last > UINT32_MAX))
		err = -EBADMSG;
	if (err)
		return err;
	/* Should the setting be lost, new frames begin behind all that there are. */
	if (last_page >= 0 && n->last <= last_page * FRAMES_IN_PAGE)
		n->last = (last_page + 1) * FRAMES_IN_PAGE;
	return take_last_page(h, n);
}

/* Write the page of the last frame. */
static int flush(struct history *h, struct history_new_frames *n)
{
	int err = n->changed ? history_write_frames(h, history_frame_page(n->last), n->frames, n->n)
			     : 0;

	n->changed = false;
	return err;
}

int history_frames_add(struct history *h, struct history_new_frames *n,
		       const struct history_frame_key *key, struct uw_bytes lines, int64_t *id)
{
	int err = n->last < UINT32_MAX ? 0 : -E2BIG;

	if (!err && n->last % FRAMES_IN_PAGE == 0) {
		err = flush(h, n);
		n->n = 0;
	}
	if (!err)
		err = copy_lines(n, &lines);
	if (!err)
		err = change_index(h, INDEX_FRAME, n->last + 1, key);
	if (err)
		return err;
	n->frames[n->n++] =
		(struct history_page_frame){ .there = true, .key = *key, .lines = lines };
	n->changed = true;
	*id = ++n->last;
	return 0;
}

int history_frames_rename(struct history *h, struct history_new_frames *n, int64_t id,
			  struct uw_bytes lines)
{
	const int64_t page = history_frame_page(id);
	struct history_page_frame *f;
	int err = at(h, n, id, &f);

	if (err)
		return err;
	if (is_last_page(n, page)) {
		err = copy_lines(n, &lines);
		if (!err)
			f->lines = lines;
		n->changed = true;
		return err;
	}
	f->lines = lines;
	err = history_write_frames(h, page, n->others, n->n_others);
	n->page = -1; /* it borrows lines of others now */
	return err;
}

int history_frames_end(struct history *h, struct history_new_frames *n)
{
	int err = flush(h, n);

	return err ? err : history_set_number(h, HISTORY_LAST_FRAME, n->last);
}

void history_frames_fini(struct history_new_frames *n)
{
	if (n->blob) {
		arena_fini(&n->lines);
		free(n->blob->bytes);
	}
	free(n->blob);
	n->blob = NULL;
}

/* symbolizer/debug/lines.c: stores lines and inlined calls in flat arrays (schema/lines_blob.h). */
#include "symbolizer/debug/lines.h"

#include "base/growth.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/text.h"
#include "symbolizer/debug/lines_pack.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_N ((size_t)4096) /* longer names are cut */
#define NESTED_MAX 256

enum state { UNSEEN, SOUND, UNSOUND };

struct sym_lines {
	struct sym_flat stored; /* from the store, in blob */
	void *blob;		/* owned; NULL: none */
	uint8_t *state;		/* enum state of each stored piece; owned */
	/* What was read since then (fresh); owned. */
	struct lines_piece *pieces;
	struct lines_row *rows;
	struct lines_scope *scopes;
	char *names;
	size_t n_pieces, room_pieces, n_rows, room_rows, n_scopes, room_scopes;
	size_t n_loose; /* pieces after n_pieces that sym_lines_settle has not sorted in yet */
	size_t names_size, room_names;
	struct uw_hash_index by_name; /* the offsets of fresh names */
	bool grown;
};

int sym_lines_new(struct sym_lines **out)
{
	struct sym_lines *lines = calloc(1, sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	*out = lines;
	return 0;
}

void sym_lines_free(struct sym_lines *lines)
{
	if (!lines)
		return;
	free(lines->blob);
	free(lines->state);
	free(lines->pieces);
	free(lines->rows);
	free(lines->scopes);
	free(lines->names);
	uw_hash_fini(&lines->by_name);
	free(lines);
}

size_t sym_lines_size(const struct sym_lines *lines)
{
	return lines->stored.n_pieces + lines->n_pieces;
}

size_t sym_lines_memory(const struct sym_lines *l)
{
	return (l->stored.n_pieces + l->room_pieces) * sizeof(*l->pieces) +
	       (l->stored.n_rows + l->room_rows) * sizeof(*l->rows) +
	       (l->stored.n_scopes + l->room_scopes) * sizeof(*l->scopes) + l->stored.names_size +
	       l->room_names;
}

bool sym_lines_grown(const struct sym_lines *lines)
{
	return lines->grown;
}

/* ---- adding ------------------------------------------------------------------------------ */

/* Return the fresh arrays. */
static struct sym_flat fresh_of(const struct sym_lines *l)
{
	return (struct sym_flat){ .pieces = l->pieces,
				  .rows = l->rows,
				  .scopes = l->scopes,
				  .names = l->names,
				  .n_pieces = l->n_pieces,
				  .n_rows = l->n_rows,
				  .n_scopes = l->n_scopes,
				  .names_size = l->names_size };
}

/* Return the offset of a name among the fresh names; add it if needed. */
static int intern(struct sym_lines *l, const char *text, size_t n, uint32_t *out)
{
	uint64_t hash = uw_checksum(text, n, 1);
	uint32_t off = UW_HASH_FIND(i, &l->by_name, hash,
				    !strncmp(l->names + i, text, n) && !l->names[i + n]);
	int err;

	if (off == UW_HASH_NONE) {
		err = UW_ARRAY_RESERVE(l->names, l->names_size + n + 1, l->room_names,
				       SYM_LINES_NAMES_MAX);
		off = (uint32_t)l->names_size;
		if (!err)
			err = uw_hash_add(&l->by_name, hash, off);
		if (err)
			return err;
		memcpy(l->names + off, text, n);
		l->names[off + n] = '\0';
		l->names_size += n + 1;
	}
	*out = off;
	return 0;
}

int sym_lines_intern(struct sym_lines *l, const char *text, size_t n, uint32_t *out)
{
	char *sanitized;
	int err;

	n = strnlen(text, n);
	if (n <= NAME_MAX_N && uw_text_is_plain(text, n))
		return intern(l, text, n, out);
	sanitized = sym_sanitize(text, n, NAME_MAX_N);
	if (!sanitized)
		return -ENOMEM;
	err = intern(l, sanitized, strlen(sanitized), out);
	free(sanitized);
	return err;
}

/* Return how many pieces begin at or before vaddr. */
static size_t count_until(const struct lines_piece *pieces, size_t n, uint64_t vaddr)
{
	return UW_COUNT_WHILE(i, n, pieces[i].start <= vaddr);
}

/* Narrow [*low, *high) to the gap around vaddr. -EEXIST: a piece contains vaddr. */
static int narrow(const struct lines_piece *pieces, size_t n, uint64_t vaddr, uint64_t *low,
		  uint64_t *high)
{
	size_t at = count_until(pieces, n, vaddr);

	if (at) {
		const struct lines_piece *p = &pieces[at - 1];

		if (vaddr - p->start < p->size)
			return -EEXIST;
		*low = p->start + p->size > *low ? p->start + p->size : *low;
	}
	if (at < n && pieces[at].start < *high)
		*high = pieces[at].start;
	return 0;
}

int sym_lines_gap(const struct sym_lines *l, uint64_t vaddr, uint64_t *low, uint64_t *high)
{
	int err;

	*low = 0;
	*high = UINT64_MAX;
	err = narrow(l->stored.pieces, l->stored.n_pieces, vaddr, low, high);
	return err ? err : narrow(l->pieces, l->n_pieces, vaddr, low, high);
}

int sym_lines_put(struct sym_lines *l, uint64_t low, uint64_t high, const struct lines_row *row,
		  const struct lines_scope *scopes, size_t n_scopes, bool lasting)
{
	int err = UW_ARRAY_GROW(l->pieces, l->n_pieces + l->n_loose, l->room_pieces,
				SYM_LINES_PIECES_MAX);

	if (!err)
		err = UW_ARRAY_GROW(l->rows, l->n_rows, l->room_rows, SYM_LINES_ROWS_MAX);
	if (!err)
		err = UW_ARRAY_RESERVE(l->scopes, l->n_scopes + n_scopes, l->room_scopes,
				       SYM_LINES_SCOPES_MAX);
	if (err)
		return err;
	l->pieces[l->n_pieces + l->n_loose++] =
		(struct lines_piece){ .start = low,
				      .size = high - low < UINT32_MAX ? (uint32_t)(high - low)
								      : UINT32_MAX,
				      .row = (uint32_t)l->n_rows,
				      .n_rows = row != NULL,
				      .scope = (uint32_t)l->n_scopes,
				      .n_scopes = (uint32_t)n_scopes,
				      .spare = !lasting };
	if (row)
		l->rows[l->n_rows++] = *row;
	if (n_scopes)
		memcpy(l->scopes + l->n_scopes, scopes, n_scopes * sizeof(*scopes));
	l->n_scopes += n_scopes;
	l->grown = l->grown || lasting;
	return 0;
}

UW_ORDER(by_start, struct lines_piece, start)

/*
 * Drop pieces that overlap an earlier one. Damaged units can claim the same code from different
 * addresses.
 */
static size_t drop_overlaps(struct lines_piece *pieces, size_t n)
{
	uint64_t reach = 0;
	size_t left = 0;

	for (size_t i = 0; i < n; i++) {
		if (pieces[i].start < reach)
			continue;
		reach = pieces[i].start + pieces[i].size;
		pieces[left++] = pieces[i];
	}
	return left;
}

/* Move a single piece to its place; sort several with all others. */
void sym_lines_settle(struct sym_lines *l)
{
	struct lines_piece one;
	size_t at;

	if (l->n_loose == 1) {
		one = l->pieces[l->n_pieces];
		at = count_until(l->pieces, l->n_pieces, one.start);
		memmove(l->pieces + at + 1, l->pieces + at,
			(l->n_pieces - at) * sizeof(*l->pieces));
		l->pieces[at] = one;
		l->n_pieces++;
	} else if (l->n_loose) {
		size_t n = l->n_pieces + l->n_loose;

		qsort(l->pieces, n, sizeof(*l->pieces), by_start);
		l->n_pieces = drop_overlaps(l->pieces, n);
	}
	l->n_loose = 0;
}

/* Return the end of the piece that contains addr; addr itself if there is none. */
static uint64_t end_of(const struct lines_piece *pieces, size_t n, uint64_t addr)
{
	size_t at = count_until(pieces, n, addr);
	const struct lines_piece *p = at ? &pieces[at - 1] : NULL;

	return p && addr - p->start < p->size ? p->start + p->size : addr;
}

struct joining {
	struct sym_lines *to;
	const struct sym_lines *from;
	uint32_t *names; /* by offset in from: offset in to, plus 1; 0: not copied yet */
};

/* Translate the offset of a name; copy the name if needed. */
static int join_name(struct joining *j, uint32_t *name)
{
	uint32_t *known;
	int err = 0;

	if (*name == LINES_NONE)
		return 0;
	known = &j->names[*name];
	if (!*known) {
		const char *text = j->from->names + *name;

		err = intern(j->to, text, strlen(text), known);
		*known += !err;
	}
	if (!err)
		*name = *known - 1;
	return err;
}

/*
 * Add the part of a fresh piece that to does not know. Its scopes are as long as the piece, and it
 * has at most one row, at its start.
 */
static int join_piece(struct joining *j, const struct lines_piece *p)
{
	struct sym_lines *to = j->to;
	uint64_t low = p->start, end = p->start + p->size, from, gap, high;
	struct lines_scope scopes[NESTED_MAX];
	struct lines_row row = { .at = 0 };
	size_t n = p->n_scopes < NESTED_MAX ? p->n_scopes : NESTED_MAX;
	int err = 0;

	do {
		from = low;
		low = end_of(to->stored.pieces, to->stored.n_pieces, low);
		low = end_of(to->pieces, to->n_pieces, low);
	} while (low != from && low < end);
	if (low >= end || sym_lines_gap(to, low, &gap, &high))
		return 0;
	high = high < end ? high : end;
	if (p->n_rows) {
		row = j->from->rows[p->row];
		err = join_name(j, &row.file);
	}
	for (size_t i = 0; !err && i < n; i++) {
		scopes[i] = j->from->scopes[p->scope + i];
		scopes[i].end = (uint32_t)(high - low);
		err = join_name(j, &scopes[i].name);
		if (!err)
			err = join_name(j, &scopes[i].call_file);
	}
	return err ? err
		   : sym_lines_put(to, low, high, p->n_rows ? &row : NULL, scopes, n, !p->spare);
}

int sym_lines_join(struct sym_lines *l, const struct sym_lines *from)
{
	struct joining j = { .to = l, .from = from };
	int err;

	if (!from->n_pieces)
		return 0;
	j.names = calloc(from->names_size + 1, sizeof(*j.names));
	err = j.names ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < from->n_pieces; i++)
		err = join_piece(&j, &from->pieces[i]);
	sym_lines_settle(l);
	free(j.names);
	return err;
}

/* ---- finding ----------------------------------------------------------------------------- */

static const char *name_at(const struct sym_flat *f, uint32_t off)
{
	return off == LINES_NONE ? NULL : f->names + off;
}

/* Return the row that covers at: the last that begins at or before it; n: none. */
static size_t row_at(const struct lines_row *rows, size_t n, uint32_t at)
{
	size_t low = UW_COUNT_WHILE(i, n, rows[i].at <= at);

	return low ? low - 1 : n;
}

/* Return the innermost scope that covers at; LINES_NONE: none. */
static uint32_t scope_at(const struct lines_scope *scopes, size_t n, uint32_t at)
{
	size_t low = UW_COUNT_WHILE(k, n, scopes[k].start <= at);
	uint32_t i = low ? (uint32_t)(low - 1) : LINES_NONE;

	while (i != LINES_NONE && scopes[i].end <= at)
		i = scopes[i].up; /* up is an earlier scope, so the loop ends */
	return i;
}

static bool name_fits(uint32_t name, const struct sym_flat *f)
{
	return name == LINES_NONE || name < f->names_size;
}

/*
 * Check everything that a lookup in a stored piece reads, so that a lookup cannot loop or read
 * outside.
 */
static bool is_sound(const struct lines_piece *p, const struct sym_flat *f)
{
	for (uint32_t i = 0; i < p->n_rows; i++) {
		const struct lines_row *r = &f->rows[p->row + i];

		if (!name_fits(r->file, f) || (i && r->at < r[-1].at))
			return false;
	}
	for (uint32_t i = 0; i < p->n_scopes; i++) {
		const struct lines_scope *s = &f->scopes[p->scope + i];

		if (!name_fits(s->name, f) || !name_fits(s->call_file, f) || s->end <= s->start ||
		    (i && s->start < s[-1].start) || (s->up != LINES_NONE && s->up >= i))
			return false;
	}
	return true;
}

/* Write the places at offset at of a piece, innermost first. */
static void fill(const struct sym_flat *f, const struct lines_piece *p, uint32_t at,
		 struct sym_place *out, size_t max, size_t *n)
{
	/* If there are none at all, the arrays may be NULL. */
	const struct lines_scope *scopes = p->n_scopes ? f->scopes + p->scope : NULL;
	const struct lines_row *rows = p->n_rows ? f->rows + p->row : NULL;
	size_t row = row_at(rows, p->n_rows, at);
	uint32_t scope = scope_at(scopes, p->n_scopes, at);
	struct sym_place place = { 0 };

	*n = 0;
	if (row < p->n_rows) {
		place.file = name_at(f, rows[row].file);
		place.line = rows[row].line;
	}
	for (size_t depth = 0; depth < NESTED_MAX && *n < max; depth++) {
		const struct lines_scope *s = scope == LINES_NONE ? NULL : &scopes[scope];

		if (s) {
			place.function = name_at(f, s->name);
			place.start_line = s->line;
		}
		if (place.function || place.file)
			out[(*n)++] = place;
		if (!s || s->up == LINES_NONE)
			break;
		place = (struct sym_place){ .file = name_at(f, s->call_file),
					    .line = s->call_line };
		scope = s->up;
	}
}

/* Look up vaddr in one of the two sets. state: of each piece; NULL: all pieces are sound. */
static bool find_in(const struct sym_flat *f, uint8_t *state, uint64_t vaddr, struct sym_place *out,
		    size_t max, size_t *n)
{
	size_t at = count_until(f->pieces, f->n_pieces, vaddr);
	const struct lines_piece *p = at ? &f->pieces[at - 1] : NULL;

	if (!p || vaddr - p->start >= p->size)
		return false;
	if (state && state[at - 1] == UNSEEN)
		state[at - 1] = is_sound(p, f) ? SOUND : UNSOUND;
	if (state && state[at - 1] == UNSOUND)
		return false;
	fill(f, p, (uint32_t)(vaddr - p->start), out, max, n);
	return true;
}

int sym_lines_find(const struct sym_lines *l, uint64_t vaddr, struct sym_place *out, size_t max,
		   size_t *n)
{
	struct sym_flat fresh = fresh_of(l);

	return find_in(&l->stored, l->state, vaddr, out, max, n) ||
			       find_in(&fresh, NULL, vaddr, out, max, n)
		       ? 0
		       : -ENOENT;
}

/* ---- storing ------------------------------------------------------------------------------ */

int sym_lines_pack(const struct sym_lines *l, uint64_t key, void **blob, size_t *size)
{
	struct sym_flat fresh = fresh_of(l);

	return sym_flat_pack(&l->stored, &fresh, key, blob, size);
}

/* The pieces are checked when they are first needed; state says which of them were. */
int sym_lines_unpack(void *blob, size_t size, uint64_t key, struct sym_lines **out)
{
	struct sym_flat stored;
	int err = sym_flat_check(blob, size, key, &stored);
	struct sym_lines *l = err ? NULL : calloc(1, sizeof(*l));
	uint8_t *state = l ? calloc(stored.n_pieces + 1, 1) : NULL;

	if (!state) {
		free(l);
		free(blob);
		return err ? err : -ENOMEM;
	}
	l->blob = blob;
	l->state = state;
	l->stored = stored;
	*out = l;
	return 0;
}

/* agent/store/query/vtab.c: the virtual tables unwind_rows, unwind_fdes and unwind_gaps. */
#include "agent/store/query/vtab.h"

#include "agent/array.h"
#include "agent/store/tables/stored.h"
#include "base/search.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <sqlite3ext.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

/* Gaps of fewer bytes are padding between functions. */
#define GAP_MIN 16

enum kind { ROWS, FDES, GAPS };

static const char *const declarations[] = {
	[ROWS] = ("CREATE TABLE unwind_rows (start INTEGER, \"end\" INTEGER, function TEXT,"
		  " cfa_kind TEXT, cfa_reg TEXT, cfa_offset INTEGER, fp TEXT, ra TEXT,"
		  " registers TEXT, signal INTEGER, slow INTEGER, expression TEXT,"
		  " object HIDDEN, pc INTEGER HIDDEN, words TEXT HIDDEN,"
		  " bytes_read INTEGER HIDDEN)"),
	[FDES] = ("CREATE TABLE unwind_fdes (start INTEGER, \"end\" INTEGER, size INTEGER,"
		  " function TEXT, n_rows INTEGER, n_slow INTEGER, object HIDDEN,"
		  " pc INTEGER HIDDEN)"),
	[GAPS] = ("CREATE TABLE unwind_gaps (start INTEGER, \"end\" INTEGER, size INTEGER,"
		  " after TEXT, object HIDDEN, pc INTEGER HIDDEN)"),
};

/* start and end are columns 0 and 1. The first hidden column is object, the next one is pc. */
static const int object_column[] = { [ROWS] = 12, [FDES] = 6, [GAPS] = 4 };

enum { START, END };
enum {
	ROW_FUNCTION = 2,
	ROW_CFA_KIND,
	ROW_CFA_REG,
	ROW_CFA_OFFSET,
	ROW_FP,
	ROW_RA,
	ROW_REGISTERS,
	ROW_SIGNAL,
	ROW_SLOW,
	ROW_EXPRESSION,
	ROW_OBJECT,
	ROW_WORDS = 14,
	ROW_BYTES_READ
};
enum { FDE_SIZE = 2, FDE_FUNCTION, FDE_ROWS, FDE_SLOW };
enum { GAP_SIZE = 2, GAP_AFTER };

struct vtab {
	sqlite3_vtab base;
	sqlite3 *db;
	enum kind kind;
	struct stored *last; /* of the last query: consecutive queries reopen nothing */
};

/* An address range: end is exclusive. */
struct range {
	uint64_t start, end;
};

/* A query that is running. */
struct cursor {
	sqlite3_vtab_cursor base;
	struct stored *stored;
	size_t at, n;
	uint64_t low, high; /* the range that the query asks for, both ends included */
	struct uw_row_info row;
	struct range range;    /* of the row, FDE or gap */
	struct range function; /* the function named last: rows of one function follow each other */
	char number[20];       /* buffer for its address as text */
	const char *name;      /* its address or readable; see name_function() */
	char *readable;	       /* owned */
	struct range *gaps;    /* owned */
	size_t n_gaps;
	bool empty;
};

/* ---- the module --------------------------------------------------------------------- */

/* Create a virtual table object for a connection (xConnect). */
static int connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out,
		   char **error)
{
	const enum kind *kind = aux;
	struct vtab *v = sqlite3_malloc(sizeof(*v));
	int rc = sqlite3_declare_vtab(db, declarations[*kind]);

	(void)argc;
	(void)argv;
	(void)error;
	if (!v || rc != SQLITE_OK) {
		sqlite3_free(v);
		return v ? rc : SQLITE_NOMEM;
	}
	*v = (struct vtab){ .db = db, .kind = *kind };
	*out = &v->base;
	return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *base)
{
	struct vtab *v = (struct vtab *)base;

	stored_put(v->last);
	sqlite3_free(v);
	return SQLITE_OK;
}

/*
 * Return the letter that stands for a constraint in filter()'s argument: o object, p pc, s start =,
 * g start ≥ or >, l start ≤ or <, e end ≥ or >. 0: SQLite alone checks the constraint.
 */
static char letter_of(const struct vtab *v, const struct sqlite3_index_constraint *c)
{
	int object = object_column[v->kind];

	if (c->iColumn == object)
		return c->op == SQLITE_INDEX_CONSTRAINT_EQ ? 'o' : 0;
	if (c->iColumn == object + 1)
		return c->op == SQLITE_INDEX_CONSTRAINT_EQ ? 'p' : 0;
	if (c->iColumn == START) {
		switch (c->op) {
		case SQLITE_INDEX_CONSTRAINT_EQ:
			return 's';
		case SQLITE_INDEX_CONSTRAINT_GE:
		case SQLITE_INDEX_CONSTRAINT_GT:
			return 'g';
		case SQLITE_INDEX_CONSTRAINT_LE:
		case SQLITE_INDEX_CONSTRAINT_LT:
			return 'l';
		}
	}
	if (c->iColumn == END &&
	    (c->op == SQLITE_INDEX_CONSTRAINT_GE || c->op == SQLITE_INDEX_CONSTRAINT_GT))
		return 'e';
	return 0;
}

/* Choose the constraints that filter() uses, and estimate the cost (xBestIndex). */
static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	struct vtab *v = (struct vtab *)base;
	char *letters = sqlite3_malloc(info->nConstraint + 1);
	bool object = false, unusable = false, pc = false;
	int n = 0, bounds = 0;

	if (!letters)
		return SQLITE_NOMEM;
	for (int i = 0; i < info->nConstraint; i++) {
		char letter = letter_of(v, &info->aConstraint[i]);

		if (!letter)
			continue;
		if (!info->aConstraint[i].usable) {
			unusable = unusable || letter == 'o';
			continue;
		}
		letters[n++] = letter;
		info->aConstraintUsage[i].argvIndex = n;
		/*
		 * SQLite checks all constraints again, except on object and pc, whose columns have
		 * no such values.
		 */
		info->aConstraintUsage[i].omit = letter == 'o' || letter == 'p';
		object = object || letter == 'o';
		pc = pc || letter == 'p' || letter == 's';
		bounds += letter == 'g' || letter == 'l' || letter == 'e';
	}
	letters[n] = '\0';
	info->idxStr = letters;
	info->needToFreeIdxStr = 1;
	if (!object && unusable)
		return SQLITE_CONSTRAINT;
	info->estimatedRows = pc ? 1 : bounds > 1 ? 100 : bounds ? 100000 : 1000000;
	info->estimatedCost = (double)info->estimatedRows + 50;
	if (pc && v->kind == ROWS)
		info->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
	info->orderByConsumed = info->nOrderBy == 1 && !info->aOrderBy[0].desc &&
				info->aOrderBy[0].iColumn == START;
	return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
	struct cursor *c = sqlite3_malloc(sizeof(*c));

	(void)base;
	if (!c)
		return SQLITE_NOMEM;
	*c = (struct cursor){ .empty = true };
	*out = &c->base;
	return SQLITE_OK;
}

/* Free a cursor and close its blob handles (xClose). */
static int close_cursor(sqlite3_vtab_cursor *base)
{
	struct cursor *c = (struct cursor *)base;

	if (c->stored)
		stored_rest(c->stored);
	stored_put(c->stored);
	free(c->readable);
	free(c->gaps);
	sqlite3_free(c);
	return SQLITE_OK;
}

/* Set the virtual table's error message and return code. */
static int fail(struct cursor *c, int code, const char *format, const char *what)
{
	sqlite3_free(c->base.pVtab->zErrMsg);
	c->base.pVtab->zErrMsg = sqlite3_mprintf(format, what);
	return code;
}

/* Return the SQLite code for a table that cannot be read, and set the message. */
static int unreadable(struct cursor *c, int err)
{
	return err == -ENOMEM ? SQLITE_NOMEM
			      : fail(c, SQLITE_CORRUPT, "%s",
				     "the object's table is damaged; see offwind cache verify");
}

/* ---- gaps --------------------------------------------------------------------------- */

/* Append a gap, unless it is empty or mere padding. False: out of memory. */
static bool add_gap(struct cursor *c, size_t *room, uint64_t start, uint64_t end)
{
	if (start >= end || end - start < GAP_MIN)
		return true;
	if (array_grow(c->gaps, c->n_gaps, *room))
		return false;
	c->gaps[c->n_gaps++] = (struct range){ start, end };
	return true;
}

/* Find the ranges within one segment that no procedure covers. */
static int gaps_within(struct cursor *c, size_t *room, uint64_t start, uint64_t end)
{
	uint64_t at = start;

	while (at < end) {
		uint64_t from, to;
		int err = uw_rows_function(c->stored->rows, at, &from, &to);

		if (err == -ENOENT && !add_gap(c, room, at, to < end ? to : end))
			return SQLITE_NOMEM;
		if ((err && err != -ENOENT) || to <= at)
			return unreadable(c, err);
		at = to;
	}
	return SQLITE_OK;
}

UW_ORDER(compare_ranges, struct range, start)

/* Find the gaps of all the table's segments, sorted by address. */
static int find_gaps(struct cursor *c)
{
	const struct table_header *h = c->stored->rules;
	const struct table_seg *seg;
	size_t room = 0;

	free(c->gaps);
	c->gaps = NULL;
	c->n_gaps = 0;
	if (!h)
		return SQLITE_OK;
	seg = (const struct table_seg *)(const void *)((const char *)h + h->seg);
	for (uint32_t i = 0; i < h->n_segs; i++) {
		uint64_t size = seg[i].size < UINT64_MAX - seg[i].vaddr ? seg[i].size
									: UINT64_MAX - seg[i].vaddr;

		int rc = gaps_within(c, &room, seg[i].vaddr, seg[i].vaddr + size);

		if (rc != SQLITE_OK)
			return rc;
	}
	if (c->n_gaps)
		qsort(c->gaps, c->n_gaps, sizeof(*c->gaps), compare_ranges);
	return SQLITE_OK;
}

/* ---- iteration ---------------------------------------------------------------------- */

/*
 * Load the item at c->at into the cursor; skip rows that have no rule. Set empty at the end of the
 * range.
 */
static int settle(struct cursor *c, enum kind kind)
{
	int err;

	for (; c->at < c->n; c->at++) {
		if (kind == ROWS) {
			err = uw_rows_at(c->stored->rows, c->at, &c->row);
			if (err)
				return unreadable(c, err);
			c->range = (struct range){ c->row.start, c->row.end };
			if (c->row.none && c->range.start <= c->high)
				continue;
		} else if (kind == FDES) {
			err = uw_rows_proc(c->stored->rows, c->at, &c->range.start, &c->range.end);
			if (err)
				return unreadable(c, err);
		} else {
			c->range = c->gaps[c->at];
		}
		c->empty = c->range.start > c->high;
		return SQLITE_OK;
	}
	c->empty = true;
	return SQLITE_OK;
}

/* Find the first item that ends behind addr. Return 0 or a negative code. */
static int first_behind(const struct cursor *c, enum kind kind, uint64_t addr, size_t *first)
{
	int err;

	if (kind == FDES)
		return uw_rows_procs_before(c->stored->rows, addr, first);
	if (kind == ROWS) {
		err = uw_rows_find(c->stored->rows, addr, first);
		if (err != -ENOENT)
			return err;
		/* addr lies before the first row or behind the last one. */
		*first = !c->n || addr < ((const struct table_header *)c->stored->rules)->base
				 ? 0
				 : c->n;
		return 0;
	}
	*first = UW_COUNT_WHILE(i, c->n, c->gaps[i].end <= addr);
	return 0;
}

/* Narrow the range [low, high] by a constraint's value. */
static void bound(struct cursor *c, char letter, sqlite3_value *value)
{
	sqlite3_int64 v = sqlite3_value_int64(value);
	uint64_t addr = v < 0 ? 0 : (uint64_t)v;
	bool low = letter != 'l', high = letter == 'l' || letter == 's' || letter == 'p';

	/* SQLite alone compares text and fractions. */
	if (sqlite3_value_numeric_type(value) != SQLITE_INTEGER)
		return;
	if (letter == 'e' && addr)
		addr--; /* include a row that ends at this address */
	if (low && addr > c->low)
		c->low = addr;
	if (high && addr < c->high)
		c->high = addr;
	if (v < 0 && high)
		c->n = 0;
}

/* Begin a query: find and open the object, and go to the first row in the range (xFilter). */
static int filter(sqlite3_vtab_cursor *base, int number, const char *letters, int argc,
		  sqlite3_value **argv)
{
	struct cursor *c = (struct cursor *)base;
	struct vtab *v = (struct vtab *)base->pVtab;
	sqlite3_value *pc = NULL;
	bool named = false;
	int64_t object;
	int err, rc;

	(void)number;
	c->empty = true;
	c->low = 0;
	c->high = INT64_MAX;
	for (int i = 0; i < argc; i++) {
		if (letters[i] != 'o')
			continue;
		named = true;
		if (sqlite3_value_type(argv[i]) == SQLITE_NULL)
			return SQLITE_OK;
		err = stored_find(v->db, argv[i], &object);
		if (err == -ENOENT)
			return fail(c, SQLITE_ERROR, "the store has no object '%s'",
				    (const char *)sqlite3_value_text(argv[i]));
		if (err)
			return fail(c, SQLITE_ERROR, "%s", "no store of offwind is open");
	}
	if (!named)
		return fail(c, SQLITE_ERROR, "%s",
			    "an object is missing: its build-id or path is the first argument");
	err = stored_load(v->db, object, &v->last);
	if (err == -ENOENT || err == -ENOTSUP)
		return SQLITE_OK;
	if (err)
		return unreadable(c, err);
	v->last->refs++;
	stored_put(c->stored);
	c->stored = v->last;
	c->function = (struct range){ 0, 0 };
	rc = v->kind == GAPS ? find_gaps(c) : SQLITE_OK;
	if (rc != SQLITE_OK)
		return rc;
	c->n = v->kind == ROWS	 ? uw_rows_count(c->stored->rows)
	       : v->kind == FDES ? uw_rows_procs(c->stored->rows)
				 : c->n_gaps;
	for (int i = 0; i < argc; i++) {
		if (letters[i] != 'o')
			bound(c, letters[i], argv[i]);
		if (letters[i] == 'p')
			pc = argv[i];
	}
	c->at = 0;
	err = c->low && c->n ? first_behind(c, v->kind, c->low, &c->at) : 0;
	if (err)
		return unreadable(c, err);
	if (pc && sqlite3_value_numeric_type(pc) != SQLITE_INTEGER)
		c->at = c->n; /* no row has a pc that is not a number */
	if (pc)		      /* only the item that contains pc */
		c->n = c->at < c->n ? c->at + 1 : c->n;
	return settle(c, v->kind);
}

static int next(sqlite3_vtab_cursor *base)
{
	struct cursor *c = (struct cursor *)base;

	c->at++;
	return settle(c, ((struct vtab *)base->pVtab)->kind);
}

static int at_end(sqlite3_vtab_cursor *base)
{
	return ((struct cursor *)base)->empty;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
	*out = (sqlite3_int64)((struct cursor *)base)->at;
	return SQLITE_OK;
}

/* ---- columns ------------------------------------------------------------------------ */

/* Return text as a column's value; NULL and "" give SQL's NULL. */
static void result_text(sqlite3_context *ctx, const char *text)
{
	if (text && *text)
		sqlite3_result_text(ctx, text, -1, SQLITE_TRANSIENT);
}

/* Set c->name to the name of the symbol that begins at start, or else to the address as text. */
static void name_function(struct cursor *c, uint64_t start)
{
	static const char digits[] = "0123456789abcdef";
	const struct sym_table *symbols = stored_symbols(c->stored);
	char *p = c->number + sizeof(c->number);
	struct sym_symbol symbol;

	free(c->readable);
	c->readable = NULL;
	if (symbols && !sym_table_find(symbols, start, &symbol) && symbol.addr == start)
		c->readable = sym_demangle(symbol.name);
	c->name = c->readable;
	if (c->readable)
		return;
	*--p = '\0';
	do
		*--p = digits[start & 15];
	while (start >>= 4);
	*--p = 'x';
	*--p = '0';
	c->name = p;
}

/* Return the name of the function around addr as a column's value. The FDE gives its bounds. */
static void result_function(sqlite3_context *ctx, struct cursor *c, uint64_t addr)
{
	uint64_t start, end;

	if (addr < c->function.start || addr >= c->function.end) {
		if (uw_rows_function(c->stored->rows, addr, &start, &end))
			return;
		c->function = (struct range){ start, end };
		name_function(c, start);
	}
	/*
	 * SQLite copies the text with its NUL; with an explicit length it would copy it again to
	 * add one.
	 */
	result_text(ctx, c->name);
}

/* Return a column of unwind_rows. */
static void row_column(struct cursor *c, sqlite3_context *ctx, int column)
{
	const struct uw_row_info *row = &c->row;

	switch (column) {
	case ROW_FUNCTION:
		/* A row may cover several functions; then name the one at the address asked for. */
		return result_function(ctx, c, row->start < c->low ? c->low : row->start);
	case ROW_CFA_KIND:
		return sqlite3_result_text(ctx, row->cfa_kind, -1, SQLITE_STATIC);
	case ROW_CFA_REG: /* static text of the library; NULL: none */
		return sqlite3_result_text(ctx, row->cfa_reg, -1, SQLITE_STATIC);
	case ROW_CFA_OFFSET:
		if (row->cfa_reg)
			sqlite3_result_int64(ctx, row->cfa_off);
		return;
	case ROW_FP:
		return result_text(ctx, row->fp);
	case ROW_RA:
		return result_text(ctx, row->ra);
	case ROW_REGISTERS:
		return result_text(ctx, row->others);
	case ROW_SIGNAL:
		return sqlite3_result_int(ctx, row->signal);
	case ROW_SLOW:
		return sqlite3_result_int(ctx, row->slow);
	case ROW_EXPRESSION:
		return result_text(ctx, row->expressions);
	case ROW_OBJECT:
		return sqlite3_result_int64(ctx, c->stored->object);
	case ROW_WORDS:
		return result_text(ctx, row->text);
	case ROW_BYTES_READ:
		return sqlite3_result_int64(ctx, (sqlite3_int64)uw_rows_read(c->stored->rows));
	}
}

/*
 * Find the rows of an FDE, from the one at its start to the one at its end. False: there are none.
 */
static bool fde_rows(struct cursor *c, size_t *first, size_t *last)
{
	struct uw_rows *rows = c->stored->rows;

	if (uw_rows_find(rows, c->range.start, first))
		return false;
	if (uw_rows_find(rows, c->range.end - 1, last))
		*last = uw_rows_count(rows) - 1;
	return true;
}

/* Return a column of unwind_fdes. */
static void fde_column(struct cursor *c, sqlite3_context *ctx, int column)
{
	struct uw_row_info row;
	size_t first, last, slow = 0;

	switch (column) {
	case FDE_SIZE:
		return sqlite3_result_int64(ctx, (sqlite3_int64)(c->range.end - c->range.start));
	case FDE_FUNCTION:
		return result_function(ctx, c, c->range.start);
	case FDE_ROWS:
		return sqlite3_result_int64(
			ctx, fde_rows(c, &first, &last) ? (sqlite3_int64)(last - first + 1) : 0);
	case FDE_SLOW:
		if (fde_rows(c, &first, &last))
			for (size_t i = first; i <= last; i++)
				slow += !uw_rows_at(c->stored->rows, i, &row) && row.slow;
		return sqlite3_result_int64(ctx, (sqlite3_int64)slow);
	}
}

/* Return a column of unwind_gaps. */
static void gap_column(struct cursor *c, sqlite3_context *ctx, int column)
{
	switch (column) {
	case GAP_SIZE:
		return sqlite3_result_int64(ctx, (sqlite3_int64)(c->range.end - c->range.start));
	case GAP_AFTER:
		if (c->range.start)
			result_function(ctx, c, c->range.start - 1);
		return;
	}
}

/* Return a column of the current row (xColumn). */
static int column_of(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
	struct cursor *c = (struct cursor *)base;
	enum kind kind = ((struct vtab *)base->pVtab)->kind;

	if (column <= END)
		sqlite3_result_int64(
			ctx, (sqlite3_int64)(column == START ? c->range.start : c->range.end));
	else if (kind == ROWS)
		row_column(c, ctx, column);
	else if (column == object_column[kind])
		sqlite3_result_int64(ctx, c->stored->object);
	else if (kind == FDES)
		fde_column(c, ctx, column);
	else
		gap_column(c, ctx, column);
	return SQLITE_OK;
}

/*
 * No xCreate: the tables exist in every database without CREATE VIRTUAL TABLE, and cannot be
 * created.
 */
static const sqlite3_module module = {
	.xConnect = connect,
	.xBestIndex = best_index,
	.xDisconnect = disconnect,
	.xOpen = open_cursor,
	.xClose = close_cursor,
	.xFilter = filter,
	.xNext = next,
	.xEof = at_end,
	.xColumn = column_of,
	.xRowid = row_id,
};

int vtab_register(sqlite3 *db)
{
	static const enum kind kinds[] = { ROWS, FDES, GAPS };
	static const char *const names[] = { "unwind_rows", "unwind_fdes", "unwind_gaps" };
	int rc = SQLITE_OK;

	for (size_t i = 0; i < 3 && rc == SQLITE_OK; i++)
		rc = sqlite3_create_module(db, names[i], &module, (void *)(uintptr_t)&kinds[i]);
	return rc;
}

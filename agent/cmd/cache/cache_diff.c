/*
 * agent/cmd/cache/cache_diff.c: compares the unwind information of two builds of a file, function by
 * function.
 */
#include "agent/cmd/cache/cache.h"
#include "agent/cmd/cmd.h"
#include "agent/log.h"
#include "agent/store/tables/stored.h"
#include "schema/table_blob.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_MAX 200 /* functions printed; the rest is counted */

struct function {
	const char *name; /* borrowed from the symbols */
	uint64_t start, end;
	bool covered; /* it has unwind information, and end is the end of its FDE */
};

/* one of the two builds: a file, which is compiled here, or an object of the store */
struct side {
	const char *name;
	struct uw_object *object;
	void *procs; /* of object; owned */
	struct stored *stored;
	struct uw_rows *rows; /* of object, if own_rows; else of stored */
	bool own_rows;
	struct sym_table *symbols;
	struct function *functions; /* sorted by name; owned */
	size_t n;
	/* bytes of executable code with unwind information, and in all */
	uint64_t covered, code;
};

/* ---- one side ----------------------------------------------------------------------- */

/*
 * Open and compile the ELF file that is named. Return 0 or a negative code; close_side releases
 * what was made.
 */
static int open_file(struct side *side)
{
	size_t size, procs_size = 0;
	const void *table;
	int fd, err = cache_open_file(side->name, &fd, &side->object);

	if (err)
		return err;
	err = uw_object_compile(side->object);
	if (!err)
		err = uw_object_procs(side->object, &side->procs, &procs_size);
	if (!err) {
		table = uw_object_compiled(side->object, &size);
		err = uw_rows_open(table, size, side->procs, procs_size, &side->rows);
		side->own_rows = !err;
	}
	if (!err)
		err = sym_table_open(fd, 0, &side->symbols);
	(void)close(fd);
	return err;
}

/*
 * Load the side from the store. The functions' names are read from the object's file, if that
 * still has the same build-id. Return 0, or a negative code after reporting it.
 */
static int open_stored(struct side *side, const struct cache_options *o)
{
	sqlite3_stmt *s = NULL;
	struct uw_object *file = NULL;
	sqlite3 *db;
	int64_t id;
	int fd, err = cache_open(o, &db);

	if (err)
		return err;
	err = cache_object(db, side->name, &id);
	if (!err) {
		err = stored_load(db, id, &side->stored);
		if (!err && (!side->stored->rules || !side->stored->procs))
			err = -ENOENT;
		if (!err)
			err = stored_whole(side->stored);
		if (!err)
			stored_rest(side->stored);
		if (err)
			log_error("%s: has no table that can be compared", side->name);
	}
	if (!err) {
		side->rows = side->stored->rows;
		err = -ENOENT;
		if (sqlite3_prepare_v2(db, "SELECT path, build_id FROM objects WHERE id = ?1", -1,
				       &s, NULL) == SQLITE_OK &&
		    !sqlite3_bind_int64(s, 1, id) && sqlite3_step(s) == SQLITE_ROW &&
		    !cache_open_file((const char *)sqlite3_column_text(s, 0), &fd, &file)) {
			const struct uw_build_id *b = uw_object_build_id(file);

			if (b->size && b->size == sqlite3_column_bytes(s, 1) &&
			    !memcmp(b->bytes, sqlite3_column_blob(s, 1), b->size))
				err = sym_table_open(fd, 0, &side->symbols);
			(void)close(fd);
		}
		if (err)
			log_error(
				"%s: its file is gone, so the names of its functions are not known",
				side->name);
	}
	uw_object_put(file);
	(void)sqlite3_finalize(s);
	(void)sqlite3_close(db);
	return err;
}

/* Functions of the same name are ordered by their addresses. */
static int by_name(const void *a, const void *b)
{
	const struct function *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (order)
		return order;
	return x->start < y->start ? -1 : x->start > y->start;
}

/*
 * Make the list of functions, sorted by name, and sum up the covered code. A covered function ends
 * where its unwind information ends. Return 0 or -ENOMEM.
 */
static int list_functions(struct side *side)
{
	size_t n = sym_table_size(side->symbols);
	struct sym_symbol symbol;
	uint64_t start, end;

	side->functions = calloc(n ? n : 1, sizeof(*side->functions));
	if (!side->functions)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct function *f = &side->functions[side->n];
		size_t length;

		if (sym_table_at(side->symbols, i, &symbol))
			continue;
		length = strlen(symbol.name);
		/* Leave out PLT stubs: they depend only on which functions are called. */
		if (length > 4 && !strcmp(symbol.name + length - 4, "@plt"))
			continue;
		*f = (struct function){ .name = symbol.name,
					.start = symbol.addr,
					.end = symbol.addr + symbol.size };
		f->covered = !uw_rows_function(side->rows, symbol.addr, &start, &end);
		if (f->covered)
			f->end = end;
		side->n++;
	}
	qsort(side->functions, side->n, sizeof(*side->functions), by_name);
	for (size_t i = 0; i < uw_rows_procs(side->rows); i++)
		if (!uw_rows_proc(side->rows, i, &start, &end))
			side->covered += end - start;
	return 0;
}

/* Add up the executable segments. */
static void sum_code(struct side *side)
{
	size_t size;
	const struct table_header *h =
		side->stored ? side->stored->rules : uw_object_compiled(side->object, &size);
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const char *)h + h->seg);

	for (uint32_t i = 0; i < h->n_segs; i++)
		side->code += seg[i].size;
}

/*
 * Open a side: a file if its name is a readable path, else an object of the store. Return 0, or a
 * negative code after reporting it.
 */
static int open_side(struct side *side, const struct cache_options *o)
{
	int err;

	if (!access(side->name, R_OK)) {
		err = open_file(side);
		if (err)
			log_error("%s: %s", side->name,
				  err == -ENOTSUP  ? "is not a supported ELF file"
				  : err == -ENOENT ? "has no unwind information"
						   : strerror(-err));
	} else {
		err = open_stored(side, o);
	}
	if (!err)
		err = list_functions(side);
	if (!err)
		sum_code(side);
	return err;
}

static void close_side(struct side *side)
{
	if (side->own_rows)
		uw_rows_free(side->rows);
	stored_put(side->stored);
	free(side->procs);
	sym_table_free(side->symbols);
	uw_object_put(side->object);
	free(side->functions);
}

/* ---- both ----------------------------------------------------------------------------- */

struct difference {
	bool changed, expressions; /* rows differ; the second build has more expressions */
	uint64_t off;		   /* offset in the function of the first difference */
	char before[160], after[160];
};

/* Format a row in words, or say that there is no row. */
static void row_text(const struct uw_row_info *row, bool there, char *out, size_t size)
{
	(void)snprintf(out, size, "%s", !there ? "no row" : row->none ? "no rule" : row->text);
}

/*
 * Compare two functions row by row, by offsets from their starts. Describe the first difference in
 * *d, and whether the second function needs more DWARF expressions.
 */
static void compare(struct side *a, const struct function *f, struct side *b,
		    const struct function *g, struct difference *d)
{
	size_t before = 0, after = 0, i, j;
	bool more_a, more_b;

	if (uw_rows_find(a->rows, f->start, &i))
		i = SIZE_MAX;
	if (uw_rows_find(b->rows, g->start, &j))
		j = SIZE_MAX;

	*d = (struct difference){ .changed = false };
	do {
		struct uw_row_info x = { .none = true }, y = { .none = true };
		uint64_t from_a, from_b;

		more_a = i != SIZE_MAX && !uw_rows_at(a->rows, i, &x) && x.start < f->end;
		more_b = j != SIZE_MAX && !uw_rows_at(b->rows, j, &y) && y.start < g->end;
		/* A function's first row may begin before the function. */
		from_a = more_a && x.start > f->start ? x.start - f->start : 0;
		from_b = more_b && y.start > g->start ? y.start - g->start : 0;
		if (more_a && !x.none)
			before += *x.expressions != '\0';
		if (more_b && !y.none)
			after += *y.expressions != '\0';
		if (!d->changed &&
		    (more_a != more_b || (more_a && (from_a != from_b || x.none != y.none ||
						     (!x.none && strcmp(x.text, y.text) != 0))))) {
			d->changed = true;
			d->off = more_a && (!more_b || from_a < from_b) ? from_a : from_b;
			row_text(&x, more_a, d->before, sizeof(d->before));
			row_text(&y, more_b, d->after, sizeof(d->after));
		}
		i += more_a;
		j += more_b;
	} while (more_a || more_b);
	d->expressions = after > before;
}

struct counts {
	size_t same, changed, lost, expressions, gone, new, shown;
};

/* Return true if another function may still be printed. Count it in any case. */
static bool may_show(struct counts *n)
{
	return n->shown++ < SHOWN_MAX;
}

/* Compare a function with its counterpart in the other build, and print a loss or a difference. */
static void one(struct side *a, const struct function *f, struct side *b, const struct function *g,
		struct counts *n)
{
	struct difference d;

	if (f->covered && !g->covered) {
		n->lost++;
		if (may_show(n))
			(void)printf("lost        %s: no unwind information at %#" PRIx64 "\n",
				     g->name, g->start);
	}
	if (!f->covered || !g->covered)
		return;
	compare(a, f, b, g, &d);
	n->same += !d.changed;
	n->changed += d.changed;
	n->expressions += d.expressions;
	if (d.changed && may_show(n))
		(void)printf("%s  %s+%#" PRIx64 ": %s → %s\n",
			     d.expressions ? "expression" : "changed   ", g->name, d.off, d.before,
			     d.after);
}

/*
 * Merge the two sorted lists. If a name occurs several times, functions are paired in order of
 * their addresses.
 */
static void compare_all(struct side *a, struct side *b, struct counts *n)
{
	size_t i = 0, j = 0;

	while (i < a->n || j < b->n) {
		int order = i == a->n	? 1
			    : j == b->n ? -1
					: strcmp(a->functions[i].name, b->functions[j].name);

		if (order < 0) {
			n->gone++;
			i++;
		} else if (order > 0) {
			const struct function *g = &b->functions[j++];

			n->new ++;
			if (g->covered)
				continue;
			n->lost++;
			if (may_show(n))
				(void)printf("new         %s: no unwind information at %#" PRIx64
					     "\n",
					     g->name, g->start);
		} else {
			one(a, &a->functions[i++], b, &b->functions[j++], n);
		}
	}
}

/*
 * Return CMD_PARTLY if a function of the new build has no unwind information although the old
 * build had it or the function is new, or if one needs more expressions; with --strict also if any
 * row changed.
 */
int cache_diff(const struct cache_options *o, const char *before, const char *after)
{
	struct side a = { .name = before }, b = { .name = after };
	struct counts n = { 0 };
	int rc = CMD_FAILED;

	if (!open_side(&a, o) && !open_side(&b, o)) {
		compare_all(&a, &b, &n);
		if (n.shown > SHOWN_MAX)
			(void)printf("… and %zu more\n", n.shown - SHOWN_MAX);
		(void)printf(
			"functions: %zu the same, %zu changed, %zu without unwind information now,"
			" %zu with more expressions, %zu gone, %zu new\n",
			n.same, n.changed, n.lost, n.expressions, n.gone, n.new);
		(void)printf("coverage: %.2f %% → %.2f %% of executable bytes\n",
			     a.code ? 100.0 * (double)a.covered / (double)a.code : 0.0,
			     b.code ? 100.0 * (double)b.covered / (double)b.code : 0.0);
		rc = n.lost || n.expressions || (o->strict && n.changed) ? CMD_PARTLY : CMD_DONE;
	}
	close_side(&a);
	close_side(&b);
	return rc;
}

/*
 * agent/history/vtab.c: the virtual table samples(time_ns, window, pid, tid, labels, node, type, value),
 * and the functions stack(node) and function(node).
 *
 * A row is a value of one type of one sample; in windows that were merged, of all samples with one
 * identity, at the window's start.
 */
#include "agent/history/vtab.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"
#include "agent/history/samples.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char declaration[] =
	"CREATE TABLE samples (time_ns INTEGER, window INTEGER, pid INTEGER, tid INTEGER,"
	" labels TEXT, node INTEGER, type TEXT, value INTEGER)";

enum { TIME_NS, WINDOW, PID, TID, LABELS, NODE, TYPE, VALUE };

/* What the number that best_index gives to filter consists of. Arguments are in this order. */
enum { BY_WINDOW = 1, FROM = 2, TO = 4 };

struct vtab {
	sqlite3_vtab base;
	sqlite3 *db;
	const char *schema; /* the name that the history has in it */
};

struct cursor {
	sqlite3_vtab_cursor base;
	sqlite3_stmt *windows, *labels, *type; /* owned */
	struct samples_reader reader;
	struct history_group group;
	uint64_t start_ns, end_ns; /* of the window */
	int64_t window, n_rows;
	uint64_t time_ns, rank; /* of the sample, in its group */
	uint32_t value;		/* index in the group's values */
	bool ended;
};

/* ---- the module ------------------------------------------------------------------------------ */

static int connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out,
		   char **error)
{
	struct vtab *v = sqlite3_malloc(sizeof(*v));
	int rc = sqlite3_declare_vtab(db, declaration);

	(void)argc;
	(void)argv;
	(void)error;
	if (!v || rc != SQLITE_OK) {
		sqlite3_free(v);
		return v ? rc : SQLITE_NOMEM;
	}
	(void)sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS);
	*v = (struct vtab){ .db = db, .schema = aux };
	*out = &v->base;
	return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *base)
{
	sqlite3_free(base);
	return SQLITE_OK;
}

/* Return how filter uses a constraint; 0: it does not. */
static int use_of(const struct sqlite3_index_constraint *c)
{
	bool equal = c->op == SQLITE_INDEX_CONSTRAINT_EQ;

	if (!c->usable)
		return 0;
	if (c->iColumn == WINDOW)
		return equal ? BY_WINDOW : 0;
	if (c->iColumn != TIME_NS)
		return 0;
	if (c->op == SQLITE_INDEX_CONSTRAINT_GE || c->op == SQLITE_INDEX_CONSTRAINT_GT)
		return FROM;
	return c->op == SQLITE_INDEX_CONSTRAINT_LE || c->op == SQLITE_INDEX_CONSTRAINT_LT ? TO : 0;
}

/* Choose the constraints that filter uses, one of each kind; SQLite checks all of them again. */
static int best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
	int at[TO + 1] = { 0 }, n = 0; /* of each use: index of the constraint + 1 */

	(void)base;
	for (int i = 0; i < info->nConstraint; i++)
		at[use_of(&info->aConstraint[i])] = i + 1;
	info->idxNum = 0;
	info->estimatedCost = 1e8;
	for (int use = BY_WINDOW; use <= TO; use *= 2) {
		if (!at[use])
			continue;
		info->idxNum |= use;
		info->aConstraintUsage[at[use] - 1].argvIndex = ++n;
		info->estimatedCost /= use == BY_WINDOW ? 1e4 : 30;
	}
	info->estimatedRows = (sqlite3_int64)info->estimatedCost;
	return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
	struct cursor *c = sqlite3_malloc(sizeof(*c));

	(void)base;
	if (!c)
		return SQLITE_NOMEM;
	memset(c, 0, sizeof(*c));
	*out = &c->base;
	return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
	struct cursor *c = (struct cursor *)base;

	(void)sqlite3_finalize(c->windows);
	(void)sqlite3_finalize(c->labels);
	(void)sqlite3_finalize(c->type);
	sqlite3_free(c);
	return SQLITE_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Prepare a statement on the history; %w stands for its name. */
static int prepare(const struct cursor *c, const char *format, sqlite3_stmt **out)
{
	const struct vtab *v = (const struct vtab *)c->base.pVtab;
	char *sql = sqlite3_mprintf(format, v->schema);
	int rc = sql ? sqlite3_prepare_v2(v->db, sql, -1, out, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	return rc;
}

static int damaged(struct cursor *c)
{
	sqlite3_free(c->base.pVtab->zErrMsg);
	c->base.pVtab->zErrMsg = sqlite3_mprintf("window %lld is damaged", c->window);
	return SQLITE_CORRUPT_VTAB;
}

/* Go to the next sample of the group. Return whether there is one. */
static bool next_time(struct cursor *c)
{
	uint64_t time_ns;

	if (!c->group.n_times || !samples_time(&c->group, &time_ns))
		return false;
	c->time_ns = history_sample_time(c->start_ns, c->end_ns, time_ns);
	c->rank++;
	return true;
}

/* Go to the next window. */
static int next_window(struct cursor *c)
{
	int rc = sqlite3_step(c->windows);

	c->ended = rc != SQLITE_ROW;
	if (c->ended)
		return rc == SQLITE_DONE ? SQLITE_OK : rc;
	c->window = sqlite3_column_int64(c->windows, 0);
	c->start_ns = (uint64_t)sqlite3_column_int64(c->windows, 1);
	c->end_ns = (uint64_t)sqlite3_column_int64(c->windows, 2);
	return samples_open(sqlite3_column_blob(c->windows, 3),
			    (size_t)sqlite3_column_bytes(c->windows, 3), &c->reader)
		       ? damaged(c)
		       : SQLITE_OK;
}

/* Go to the first value of the next group that has one, in this window or one behind it. */
static int next_group(struct cursor *c)
{
	int rc = SQLITE_OK;

	while (rc == SQLITE_OK && !c->ended) {
		int err = samples_next(&c->reader, &c->group);

		if (err < 0)
			return damaged(c);
		if (!err) {
			rc = next_window(c);
		} else if (c->group.sample->n_values) {
			c->rank = 0;
			c->time_ns = c->start_ns;
			(void)next_time(c);
			break;
		}
	}
	return rc;
}

static int next(sqlite3_vtab_cursor *base)
{
	struct cursor *c = (struct cursor *)base;

	c->n_rows++;
	if (++c->value < c->group.sample->n_values)
		return SQLITE_OK;
	c->value = 0;
	return next_time(c) ? SQLITE_OK : next_group(c);
}

/* Return the limit that an argument sets; SQLite compares again, so it may be a wider one. */
static int64_t limit_of(sqlite3_value *value, int64_t none)
{
	int type = sqlite3_value_numeric_type(value);

	return type == SQLITE_INTEGER || type == SQLITE_FLOAT ? sqlite3_value_int64(value) : none;
}

static int filter(sqlite3_vtab_cursor *base, int uses, const char *text, int argc,
		  sqlite3_value **argv)
{
	static const char by_time[] =
		"SELECT id, start_ns, end_ns, samples FROM \"%w\".windows WHERE end_ns >= ?1 AND"
		" start_ns <= ?2 ORDER BY end_ns";
	static const char by_window[] =
		"SELECT id, start_ns, end_ns, samples FROM \"%w\".windows WHERE end_ns >= ?1 AND"
		" start_ns <= ?2 AND id = ?3";
	struct cursor *c = (struct cursor *)base;
	int64_t from = INT64_MIN, to = INT64_MAX;
	int at = uses & BY_WINDOW ? 1 : 0, rc;

	(void)text;
	(void)argc;
	if (uses & FROM)
		from = limit_of(argv[at++], from);
	if (uses & TO)
		to = limit_of(argv[at], to);
	(void)sqlite3_finalize(c->windows);
	c->windows = NULL;
	rc = prepare(c, uses & BY_WINDOW ? by_window : by_time, &c->windows);
	if (rc != SQLITE_OK)
		return rc;
	db_bind_numbers(c->windows, (const int64_t[]){ from, to }, 2);
	if (uses & BY_WINDOW)
		(void)sqlite3_bind_value(c->windows, 3, argv[0]);
	c->value = 0;
	rc = next_window(c);
	return rc == SQLITE_OK && !c->ended ? next_group(c) : rc;
}

static int at_end(sqlite3_vtab_cursor *base)
{
	return ((struct cursor *)base)->ended;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
	*out = ((struct cursor *)base)->n_rows;
	return SQLITE_OK;
}

/* ---- columns --------------------------------------------------------------------------------- */

/*
 * Give the text of a row that sql reads by its id. The statement is prepared once for a cursor; it stays
 * at that row, and is asked again for another id only.
 */
static int give_text(struct cursor *c, sqlite3_context *ctx, sqlite3_stmt **stmt, const char *sql,
		     uint64_t id)
{
	int rc = *stmt ? SQLITE_OK : prepare(c, sql, stmt);

	if (rc != SQLITE_OK)
		return rc;
	if (!sqlite3_stmt_busy(*stmt) || sqlite3_column_int64(*stmt, 1) != (int64_t)id) {
		(void)sqlite3_reset(*stmt);
		(void)sqlite3_bind_int64(*stmt, 1, (int64_t)id);
		rc = sqlite3_step(*stmt);
		if (rc != SQLITE_ROW) /* there is no such row: NULL */
			return rc == SQLITE_DONE ? SQLITE_OK : rc;
	}
	sqlite3_result_value(ctx, sqlite3_column_value(*stmt, 0));
	return SQLITE_OK;
}

/* Threads are not told apart in all windows: then they are NULL. */
static void give_number(sqlite3_context *ctx, uint32_t number)
{
	if (number)
		sqlite3_result_int64(ctx, number);
}

static int column_of(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
	struct cursor *c = (struct cursor *)base;
	const struct history_sample *s = c->group.sample;
	const struct history_value *v = &s->values[c->value];

	switch (column) {
	case TIME_NS:
		sqlite3_result_int64(ctx, (int64_t)c->time_ns);
		break;
	case WINDOW:
		sqlite3_result_int64(ctx, c->window);
		break;
	case PID:
		give_number(ctx, s->pid);
		break;
	case TID:
		give_number(ctx, s->tid);
		break;
	case LABELS:
		return give_text(c, ctx, &c->labels,
				 "SELECT labels, id FROM \"%w\".labels WHERE id = ?1", s->labels);
	case NODE:
		sqlite3_result_int64(ctx, (int64_t)s->node);
		break;
	case TYPE:
		return give_text(c, ctx, &c->type,
				 "SELECT type, id FROM \"%w\".types WHERE id = ?1", v->type);
	case VALUE:
		sqlite3_result_int64(ctx, c->rank ? history_share(v->value, c->rank - 1, c->rank,
								  c->group.n_times)
						  : v->value);
		break;
	}
	return SQLITE_OK;
}

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

/* ---- functions ------------------------------------------------------------------------------- */

/* The names of a stack, innermost first, while it is followed to its end. */
struct names {
	const char **names; /* the array is owned, the names are borrowed */
	size_t n, room;
};

static int add_name(struct history *h, struct names *names, int64_t function)
{
	size_t index;
	int err = history_function(h, function, &index);

	if (!err)
		err = array_grow(names->names, names->n, names->room);
	if (!err)
		names->names[names->n++] = history_functions(h)[index].name;
	return err;
}

/* Add the functions of a frame, inlined calls too. */
static int add_names(struct history *h, struct names *names, int64_t frame)
{
	struct uw_bytes b;
	size_t index;
	int err = history_frame(h, frame, &index);

	if (err)
		return err;
	b = history_frame_lines(&history_frames(h)[index]);
	while (!err && !uw_bytes_done(&b)) {
		int64_t function = (int64_t)uw_bytes_uleb(&b);

		(void)uw_bytes_uleb(&b);
		err = b.err ? b.err : add_name(h, names, function);
	}
	return err;
}

static void give_names(sqlite3_context *ctx, const struct names *names)
{
	sqlite3_str *text = sqlite3_str_new(sqlite3_context_db_handle(ctx));

	for (size_t i = names->n; i--;) {
		sqlite3_str_appendall(text, names->names[i]);
		if (i)
			sqlite3_str_appendchar(text, 1, ';');
	}
	if (sqlite3_str_errcode(text) != SQLITE_OK) {
		sqlite3_result_error_code(ctx, sqlite3_str_errcode(text));
		sqlite3_free(sqlite3_str_finish(text));
	} else {
		int n = sqlite3_str_length(text);

		sqlite3_result_text(ctx, n ? sqlite3_str_finish(text) : "", n,
				    n ? sqlite3_free : SQLITE_STATIC);
		if (!n)
			sqlite3_free(sqlite3_str_finish(text));
	}
}

/* Give the names of a stack, or only of its innermost frame. */
static void name_node(sqlite3_context *ctx, int64_t node, bool whole)
{
	struct history *h = sqlite3_user_data(ctx);
	struct names names = { .n = 0 };
	size_t index;
	int err = history_check_names(h);

	while (node && !err) {
		err = history_node(h, node, &index);
		if (!err)
			err = add_names(h, &names, history_nodes(h)[index].frame);
		node = err || !whole || !history_nodes(h)[index].up
			       ? 0
			       : node - history_nodes(h)[index].up;
	}
	if (!whole && names.n)
		names.n = 1; /* the innermost one alone */
	if (err == -ENOMEM)
		sqlite3_result_error_nomem(ctx);
	else if (err)
		sqlite3_result_error(ctx, "there is no such node, or it is damaged", -1);
	else
		give_names(ctx, &names);
	free(names.names);
	history_limit_rows(h);
}

static void stack(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
	(void)argc;
	if (sqlite3_value_type(argv[0]) != SQLITE_NULL)
		name_node(ctx, sqlite3_value_int64(argv[0]), true);
}

static void function(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
	(void)argc;
	if (sqlite3_value_type(argv[0]) != SQLITE_NULL)
		name_node(ctx, sqlite3_value_int64(argv[0]), false);
}

int history_register(struct history *h, sqlite3 *db, const char *schema)
{
	const int flags = SQLITE_UTF8 | SQLITE_INNOCUOUS;
	int rc = sqlite3_create_module(db, "samples", &module, (void *)(uintptr_t)schema);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "stack", 1, flags, h, stack, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "function", 1, flags, h, function, NULL, NULL);
	return db_errno(rc);
}

/* agent/cmd/cache/cache.c: the cache command: its options, and the queries of the unwind table store. */
#include "agent/cmd/cache/cache.h"

#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cmd/cmd.h"
#include "agent/log.h"
#include "agent/sanitize.h"
#include "agent/store/identity.h"
#include "agent/store/store.h"
#include "agent/store/tables/stored.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void cache_say(const char *format, ...)
{
	char line[4096], sanitized[3 * sizeof(line)];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	(void)sanitize_text(line, "", '?', sanitized, sizeof(sanitized));
	(void)puts(sanitized);
}

/* ---- the store, its objects ------------------------------------------------------- */

int cache_open(const struct cache_options *o, sqlite3 **out)
{
	char error[DB_ERROR_SIZE] = "", *path;
	int err = db_path(o->db, &path);

	if (err) {
		log_error("no store: give one with --db");
		return err;
	}
	err = sql_open(path, out, error);
	if (err)
		log_error("%s", error[0] ? error : strerror(-err));
	free(path);
	return err;
}

int cache_open_file(const char *path, int *fd, struct uw_object **object)
{
	int err;

	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (*fd < 0)
		return -errno;
	err = uw_object_open(*fd, 0, object);
	if (err)
		(void)close(*fd);
	return err;
}

/*
 * Look up the object with the contents of the file at path: its build-id and the identity of its
 * unwind sections must be equal. Return 0, -ENOENT if the store has none, or another negative
 * code.
 */
static int object_of_file(sqlite3 *db, const char *path, int64_t *out)
{
	const struct uw_build_id *id;
	struct identity identity;
	struct uw_object *object;
	sqlite3_stmt *stmt = NULL;
	int fd, err = cache_open_file(path, &fd, &object);

	if (err)
		return err;
	id = uw_object_build_id(object);
	err = identity_of_object(object, &identity);
	if (!err)
		err = db_errno(sqlite3_prepare_v2(
			db,
			"SELECT id FROM objects WHERE hex(build_id) = hex(?1) AND identity = ?2",
			-1, &stmt, NULL));
	if (!err) {
		(void)sqlite3_bind_blob(stmt, 1, id->bytes, id->size, SQLITE_STATIC);
		(void)sqlite3_bind_blob(stmt, 2, identity.bytes, IDENTITY_SIZE, SQLITE_STATIC);
		err = sqlite3_step(stmt) == SQLITE_ROW ? 0 : -ENOENT;
		*out = sqlite3_column_int64(stmt, 0);
	}
	(void)sqlite3_finalize(stmt);
	uw_object_put(object);
	(void)close(fd);
	return err;
}

int cache_object(sqlite3 *db, const char *key, int64_t *object)
{
	int err = access(key, R_OK) ? -ENOENT : object_of_file(db, key, object);

	if (err)
		err = stored_find_text(db, key, object);
	if (err == -ENOENT)
		log_error("%s: the store has no such object; offwind cache prefetch adds it", key);
	else if (err == -EBADMSG)
		log_error("%s: the store is damaged; offwind cache verify looks for what is", key);
	else if (err)
		log_error("%s: %s", key, strerror(-err));
	return err;
}

/*
 * Run a query and print its rows in the format of --format. Return the exit code, after reporting
 * errors.
 */
static int print(sqlite3 *db, const char *sql, const struct cache_options *o)
{
	char error[DB_ERROR_SIZE];
	int err = sql_print(db, sql, o->format, stdout, error);

	if (err && error[0])
		log_error("%s", error);
	else if (err && err != -EIO) /* main reports that standard output cannot be written */
		log_error("%s", strerror(-err));
	return err ? CMD_FAILED : CMD_DONE;
}

/* ---- ls, query, rows --------------------------------------------------------------- */

/* The ls subcommand: print the stored objects, and how many are in quarantine. */
static int list(const struct cache_options *o)
{
	static const struct {
		const char *name, *by;
	} sorts[] = { { "used", "o.last_used DESC" },
		      { "uses", "o.uses DESC" },
		      { "path", "o.path" },
		      { "size", "bytes DESC" },
		      { "rows", "rows DESC" } };
	const char *by = o->sort ? NULL : sorts[0].by;
	char *sql, count[80];
	sqlite3 *db;
	int64_t held;
	int rc;

	for (size_t i = 0; o->sort && i < sizeof(sorts) / sizeof(sorts[0]); i++)
		if (!strcmp(o->sort, sorts[i].name))
			by = sorts[i].by;
	if (!by) {
		log_error("--sort is used, uses, path, size or rows, not '%s'", o->sort);
		return CMD_USAGE;
	}
	if (cache_open(o, &db))
		return CMD_FAILED;
	sql = sqlite3_mprintf(
		"SELECT lower(hex(o.build_id)) AS build_id, CASE o.machine WHEN 62 THEN 'x86_64'"
		" WHEN 183 THEN 'aarch64' ELSE o.machine END AS machine, t.size AS bytes,"
		" t.n_rows AS rows, t.n_procs AS functions, o.uses,"
		" datetime(o.last_used, 'unixepoch') AS last_used, o.path"
		" FROM objects AS o LEFT JOIN tables AS t ON t.object = o.id"
		" WHERE (%Q IS NULL OR instr(o.path, %Q) OR instr(lower(hex(o.build_id)), "
		"lower(%Q)))"
		" AND (%lld < 0 OR o.last_used < unixepoch() - 86400 * %lld) ORDER BY %s",
		o->match, o->match, o->match, o->unused_days, o->unused_days, by);
	rc = sql ? print(db, sql, o) : CMD_FAILED;
	sqlite3_free(sql);
	(void)snprintf(count, sizeof(count), "SELECT count(*) FROM quarantine WHERE builder = %u",
		       TABLE_BUILDER);
	held = db_number(db, count);
	if (held)
		log_info("%" PRId64
			 " objects are in quarantine; offwind cache verify lists the reasons",
			 held);
	(void)sqlite3_close(db);
	return rc;
}

/* The query subcommand: run the user's SQL. The store is open for reading only. */
static int query(const struct cache_options *o, const char *sql)
{
	sqlite3 *db;
	int rc;

	if (cache_open(o, &db))
		return CMD_FAILED;
	rc = print(db, sql, o);
	(void)sqlite3_close(db);
	return rc;
}

/* The rows subcommand: print all rows of an object's table. */
static int rows(const struct cache_options *o, const char *key)
{
	int64_t object;
	int rc = CMD_FAILED;
	sqlite3 *db;
	char *sql;

	if (cache_open(o, &db))
		return CMD_FAILED;
	if (!cache_object(db, key, &object)) {
		sql = sqlite3_mprintf("SELECT printf('%%x', start) AS start,"
				      " printf('%%x', \"end\") AS \"end\", function, words AS rule"
				      " FROM unwind_rows(%lld)",
				      object);
		rc = sql ? print(db, sql, o) : CMD_FAILED;
		sqlite3_free(sql);
	}
	(void)sqlite3_close(db);
	return rc;
}

/* ---- show -------------------------------------------------------------------------- */

/*
 * Load the table of the object that key names; the caller releases it with stored_put. Return 0, or
 * a negative code after reporting it.
 */
static int load(sqlite3 *db, const char *key, struct stored **out)
{
	int64_t object;
	int err = cache_object(db, key, &object);

	if (err)
		return err;
	err = stored_load(db, object, out);
	if (!err && !(*out)->rules)
		err = -ENODATA;
	if (err == -ENODATA)
		log_error("%s: has no unwind information to compile", key);
	else if (err == -ENOENT)
		log_error("%s: its table is of another version of offwind", key);
	else if (err)
		log_error("%s: its table is damaged; offwind cache verify --repair deletes it",
			  key);
	return err;
}

/*
 * Read and check the whole table, which counts need. Return 0, or a negative code after reporting
 * it.
 */
static int whole(struct stored *stored, const char *key)
{
	int err = stored_whole(stored);

	if (err)
		log_error("%s: its table is damaged; offwind cache verify --repair deletes it",
			  key);
	return err;
}

/*
 * Print what the store knows about the object's file and its use. ELF e_machine 62 is x86-64, 183
 * is aarch64.
 */
static void show_object(sqlite3 *db, const struct stored *stored)
{
	sqlite3_stmt *s = NULL;

	if (sqlite3_prepare_v2(db,
			       "SELECT path, lower(hex(build_id)), machine, file_size, src_size,"
			       " lower(hex(identity)), datetime(first_used, 'unixepoch'),"
			       " datetime(last_used, 'unixepoch'), uses,"
			       " iif(owner < 0, 'an unknown user', 'user ' || owner)"
			       " FROM objects WHERE id = ?1",
			       -1, &s, NULL) == SQLITE_OK &&
	    !sqlite3_bind_int64(s, 1, stored->object) && sqlite3_step(s) == SQLITE_ROW) {
		cache_say("path          %s", (const char *)sqlite3_column_text(s, 0));
		cache_say("build-id      %s", (const char *)sqlite3_column_text(s, 1));
		(void)printf("machine       %s\n", sqlite3_column_int(s, 2) == 62    ? "x86_64"
						   : sqlite3_column_int(s, 2) == 183 ? "aarch64"
										     : "unknown");
		(void)printf("file          %lld bytes\n", sqlite3_column_int64(s, 3));
		cache_say("unwind info   %lld bytes, SHA-256 %s", sqlite3_column_int64(s, 4),
			  (const char *)sqlite3_column_text(s, 5));
		cache_say("vouched by    %s", (const char *)sqlite3_column_text(s, 9));
		cache_say("used          %lld times, first %s, last %s", sqlite3_column_int64(s, 8),
			  (const char *)sqlite3_column_text(s, 6),
			  (const char *)sqlite3_column_text(s, 7));
	}
	(void)sqlite3_finalize(s);
}

/* numbers of rows, by kind */
struct tally {
	uint64_t none, sp, fp, other, expression, slow, signal;
	uint64_t n_expressions;
};

/*
 * Count the rows by where the CFA comes from, and those that need an expression or a separate
 * record. Rows that cannot be read are not counted.
 */
static void count_rows(struct stored *stored, struct tally *t)
{
	struct uw_row_info row;

	for (size_t i = 0; i < uw_rows_count(stored->rows); i++) {
		if (uw_rows_at(stored->rows, i, &row))
			continue;
		t->none += row.none;
		if (row.none)
			continue;
		t->slow += row.slow;
		t->signal += row.signal;
		t->n_expressions += *row.expressions != '\0';
		if (!row.cfa_reg)
			t->expression++;
		else if (!strcmp(row.cfa_kind, "sp"))
			t->sp++;
		else if (!strcmp(row.cfa_kind, "fp"))
			t->fp++;
		else
			t->other++;
	}
}

/* Return how many bytes of code belong to functions with unwind information. */
static uint64_t covered(const struct stored *stored)
{
	uint64_t start, end, sum = 0;

	for (size_t i = 0; i < uw_rows_procs(stored->rows); i++)
		if (!uw_rows_proc(stored->rows, i, &start, &end))
			sum += end - start;
	return sum;
}

/* Print the sizes, segments, numbers of rows and the coverage of the table. */
static void show_table(struct stored *stored)
{
	const struct table_header *h = stored->rules;
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const char *)h + h->seg);
	struct tally t = { 0 };
	uint64_t code = 0, with = covered(stored);

	count_rows(stored, &t);
	(void)printf("table         %zu bytes, layout %u, builder %u; functions %zu bytes\n",
		     stored->rules_size, h->blob.version, h->builder, stored->procs_size);
	for (uint32_t i = 0; i < h->n_segs; i++) {
		(void)printf(
			"segment       file %#" PRIx64 ", vaddr %#" PRIx64 ", size %#" PRIx64 "\n",
			(uint64_t)seg[i].file_off, (uint64_t)seg[i].vaddr, (uint64_t)seg[i].size);
		code += seg[i].size;
	}
	if (stored->procs)
		(void)printf("functions     %zu\n", uw_rows_procs(stored->rows));
	else
		(void)printf("functions     not stored: some overlap\n");
	(void)printf("rows          %u (%.2f bytes each), %u different rules\n", h->n_rows,
		     h->n_rows ? (double)stored->rules_size / h->n_rows : 0.0, h->n_rules);
	(void)printf("CFA from      sp %" PRIu64 ", fp %" PRIu64 ", another register %" PRIu64
		     ", an expression %" PRIu64 "\n",
		     t.sp, t.fp, t.other, t.expression);
	(void)printf("rows that     need an expression %" PRIu64 ", a record of their own %" PRIu64
		     ", are signal frames %" PRIu64 ", have no rule %" PRIu64 "\n",
		     t.n_expressions, t.slow, t.signal, t.none);
	if (stored->procs && code)
		(void)printf("coverage      %.2f %% of %" PRIu64 " executable bytes\n",
			     100.0 * (double)with / (double)code, code);
}

/*
 * The show subcommand: print an object, its table, the 20 largest gaps, and the functions that
 * need expressions.
 */
static int show(const struct cache_options *o, const char *key)
{
	struct stored *stored = NULL;
	int rc = CMD_FAILED;
	sqlite3 *db;
	char *sql;

	if (cache_open(o, &db))
		return CMD_FAILED;
	if (!load(db, key, &stored) && !whole(stored, key)) {
		show_object(db, stored);
		show_table(stored);
		sql = sqlite3_mprintf(
			"SELECT printf('%%x', start) AS \"gap from\", printf('%%x', \"end\") AS "
			"\"to\","
			" size AS bytes, after AS \"after function\" FROM unwind_gaps(%lld)"
			" ORDER BY size DESC LIMIT 20;"
			"SELECT function AS \"needs an expression\", count(*) AS rows,"
			" min(expression) AS \"the first\" FROM unwind_rows(%lld)"
			" WHERE expression IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20",
			stored->object, stored->object);
		(void)printf("\nexecutable code without unwind information (16 bytes and more; the"
			     " 20 largest)\n");
		rc = sql ? print(db, sql, o) : CMD_FAILED;
		sqlite3_free(sql);
	}
	stored_put(stored);
	(void)sqlite3_close(db);
	return rc;
}

/* ---- lookup ------------------------------------------------------------------------- */

/* Print a row in the form of `readelf --debug-dump=frames-interp`. */
static void as_readelf(const struct uw_row_info *row)
{
	char cfa[32] = "exp";

	if (row->cfa_reg)
		(void)snprintf(cfa, sizeof(cfa), "%s%+" PRId64, row->cfa_reg, row->cfa_off);
	(void)printf("  %-16s %-10s", "LOC", "CFA");
	if (*row->fp)
		(void)printf(" %-8s", "fp");
	(void)printf(" %-8s others\n", "ra");
	(void)printf("  %016" PRIx64 " %-10s", row->start, cfa);
	if (*row->fp)
		(void)printf(" %-8s", row->fp);
	(void)printf(" %-8s %s\n", *row->ra ? row->ra : "s", row->others);
}

/* Print the range and, if it is stored, the name of a function. */
static void show_function(struct stored *stored, uint64_t start, uint64_t end)
{
	const struct sym_table *symbols = stored_symbols(stored);
	struct sym_symbol symbol;
	char *name = NULL;

	if (symbols && !sym_table_find(symbols, start, &symbol) && symbol.addr == start)
		name = sym_demangle(symbol.name);
	(void)printf("function %s%s%#" PRIx64 "…%#" PRIx64 ", ", name ? name : "", name ? " " : "",
		     start, end);
	free(name);
}

/*
 * Print the row at an ELF address given in hexadecimal. Return CMD_DONE, CMD_PARTLY if there is no
 * sound row, or CMD_USAGE after reporting that text is no address.
 */
static int look_up(struct stored *stored, const char *text)
{
	struct uw_row_info row;
	uint64_t pc, start, end;
	char *rest;
	size_t i;
	int err;

	errno = 0;
	pc = strtoull(text, &rest, 16);
	if (errno || *rest || rest == text) {
		log_error("'%s' is not an address in hexadecimal", text);
		return CMD_USAGE;
	}
	(void)printf("%#" PRIx64 ": ", pc);
	err = uw_rows_find(stored->rows, pc, &i);
	if (!uw_rows_function(stored->rows, pc, &start, &end))
		show_function(stored, start, end);
	else if (stored->procs)
		(void)printf("no function, ");
	if (!err)
		err = uw_rows_at(stored->rows, i, &row);
	if (err || row.none) {
		(void)printf(!err || err == -ENOENT ? "no row\n" : "its row is damaged\n");
		return CMD_PARTLY;
	}
	(void)printf("row %#" PRIx64 "…%#" PRIx64 "\n  %s\n", row.start, row.end, row.text);
	as_readelf(&row);
	return CMD_DONE;
}

/* The lookup subcommand: print the rows at the addresses in pcs. */
static int lookup(const struct cache_options *o, const char *key, char **pcs, int n)
{
	struct stored *stored = NULL;
	int rc = CMD_FAILED;
	sqlite3 *db;

	if (cache_open(o, &db))
		return CMD_FAILED;
	if (!load(db, key, &stored)) {
		rc = CMD_DONE;
		for (int i = 0; i < n && rc != CMD_USAGE; i++) {
			int one = look_up(stored, pcs[i]);

			rc = one ? one : rc;
		}
	}
	stored_put(stored);
	(void)sqlite3_close(db);
	return rc;
}

/* ---- the command line --------------------------------------------------------------- */

static const char help_before[] =
	"usage: offwind cache ls [--match TEXT] [--sort COLUMN] [--unused DAYS]\n"
	"       offwind cache show OBJECT          print header, segments, rules, coverage, gaps\n"
	"       offwind cache lookup OBJECT PC…    print the row at an ELF address, in words\n"
	"       offwind cache rows OBJECT          print all rows\n"
	"       offwind cache query SQL            run an SQL query, for example on unwind_rows\n"
	"       offwind cache prefetch [--running] [PATH|DIR]…\n"
	"       offwind cache verify [--repair]    check all tables and list the quarantine\n"
	"       offwind cache diff [--strict] BEFORE AFTER\n"
	"       offwind cache gc [--budget BYTES] [--unused DAYS]\n"
	"       offwind cache export OBJECT -o FILE\n"
	"       offwind cache import FILE…\n"
	"Inspects and maintains the store of compiled unwind tables.  OBJECT is the first digits\n"
	"of a build-id, a path, or the base name of a file.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: 0 success (diff: nothing was lost), 1 failure, 2 wrong command line,\n"
	"3 partial success (verify: damage was found; diff: unwind information was lost or more\n"
	"expressions are needed; lookup: there is no row).\n";

#define AT(field) .at = offsetof(struct cache_options, field)

static int take_format(void *to, const char *option, char *text)
{
	static const char *const formats[] = { "table", "csv", "json" };
	int i = option_word(option, text, formats, 3);

	if (i < 0)
		return i;
	*(enum sql_format *)to = (enum sql_format)i;
	return 0;
}

static int take_unused(void *to, const char *option, char *text)
{
	uint64_t days;

	if (input_number(option, text, 0, 100000, &days))
		return -EINVAL;
	*(int64_t *)to = (int64_t)days;
	return 0;
}

/* Take the limit of the store, 0 for the default. */
static int take_budget(void *to, const char *option, char *text)
{
	uint64_t *budget = to;

	if (input_size(option, text, 0, INT64_MAX, budget))
		return -EINVAL;
	if (!*budget)
		*budget = STORE_BUDGET_DEFAULT;
	return 0;
}

static int take_jobs(void *to, const char *option, char *text)
{
	uint64_t jobs;

	if (input_number(option, text, 1, 256, &jobs))
		return -EINVAL;
	*(unsigned int *)to = (unsigned int)jobs;
	return 0;
}

static const struct option_row option_rows[] = {
	{ "--db", 0, "FILE", "use FILE as the store (default: $OFFWIND_DB, or this user's store)",
	  .set = option_text, AT(db) },
	{ "--format", 0, "FORMAT", "with ls, rows and query: print table (default), csv or json",
	  .set = take_format, AT(format) },
	{ "--match", 0, "TEXT", "with ls: list only objects whose path or build-id contains TEXT",
	  .set = option_text, AT(match) },
	{ "--sort", 0, "COLUMN", "with ls: sort by path, used (default), uses, size or rows",
	  .set = option_text, AT(sort) },
	{ "--unused", 0, "DAYS", "with ls and gc: choose objects that were not used for DAYS days",
	  .set = take_unused, AT(unused_days) },
	{ "--budget", 0, "BYTES",
	  "with gc: set the store's limit from now on (suffixes K, M, G; 0: 1G)",
	  .set = take_budget, AT(budget) },
	{ "--running", 0, NULL, "with prefetch: compile the files that running processes execute",
	  .set = option_true, AT(running) },
	{ "--jobs", 'j', "N", "with prefetch: compile N files at once (default: one for each CPU)",
	  .set = take_jobs, AT(jobs) },
	{ "--repair", 0, NULL, "with verify: delete what is damaged and empty the quarantine",
	  .set = option_true, AT(repair) },
	{ "--strict", 0, NULL, "with diff: count any changed row", .set = option_true, AT(strict) },
	{ "--output", 'o', "FILE", "with export: write to FILE", .set = option_text, AT(output) },
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

int cmd_cache(int argc, char **argv)
{
	struct cache_options o = { .unused_days = -1 };
	int n, rc = option_read(&option_table, argc, argv, &o);
	const char *what;
	char **words;

	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	what = optind < argc ? argv[optind] : "";
	words = argv + optind + 1;
	n = argc - optind - 1;
	if (!strcmp(what, "ls") && n == 0)
		return list(&o);
	if (!strcmp(what, "show") && n == 1)
		return show(&o, words[0]);
	if (!strcmp(what, "lookup") && n >= 2)
		return lookup(&o, words[0], words + 1, n - 1);
	if (!strcmp(what, "rows") && n == 1)
		return rows(&o, words[0]);
	if (!strcmp(what, "query") && n == 1)
		return query(&o, words[0]);
	if (!strcmp(what, "prefetch") && (n || o.running))
		return cache_prefetch(&o, words, n);
	if (!strcmp(what, "verify") && n == 0)
		return cache_verify(&o);
	if (!strcmp(what, "diff") && n == 2)
		return cache_diff(&o, words[0], words[1]);
	if (!strcmp(what, "gc") && n == 0)
		return cache_gc(&o);
	if (!strcmp(what, "export") && n == 1 && o.output)
		return cache_export(&o, words[0]);
	if (!strcmp(what, "import") && n)
		return cache_import(&o, words, n);
	log_error("cache: no such command, or wrong arguments; see offwind cache --help");
	return CMD_USAGE;
}

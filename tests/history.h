/* tests/history.h: profiles to put into a history, and the text of what it gives back. */
#ifndef TESTS_HISTORY_H
#define TESTS_HISTORY_H

#include "agent/history/history.h"
#include "agent/history/history_internal.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/store/db.h"

#define SECOND ((uint64_t)1000000000)

/* A sample to be. Its frames are numbers, innermost first, each a function of its own. */
struct made_sample {
	uint64_t time_ns; /* since 1970; 0: no label with the time */
	uint32_t pid, tid;
	const char *comm; /* NULL: none */
	int64_t cpu_ns;
	uint32_t frames[8], n_frames;
};

static inline struct stacks *made_profile(void)
{
	struct stacks *s;

	if (stacks_new(&s) || stacks_add_type(s, "samples", "count") ||
	    stacks_add_type(s, "cpu", "nanoseconds"))
		abort();
	return s;
}

static inline uint32_t made_module(struct stacks *s, const char *path, const char *build_id)
{
	struct stacks_module m = { .path = stacks_text(s, path),
				   .build_id = stacks_text(s, build_id),
				   .start = 0x1000,
				   .limit = 0x100000 };

	return stacks_module(s, &m);
}

/* Add the location of an address, with a function of that name. */
static inline uint32_t made_location(struct stacks *s, uint32_t module, uint64_t address,
				     const char *name, const char *system_name)
{
	struct stacks_function f = { .name = stacks_text(s, name),
				     .system_name = stacks_text(s, system_name),
				     .file = stacks_text(s, "a \"file\".c"),
				     .start_line = 7 };
	struct stacks_line line = { .function = stacks_function(s, &f), .line = 9 };

	return stacks_location(
		s, &(struct stacks_location){ .module = module, .address = address, .n_lines = 1 },
		&line);
}

static inline uint32_t made_label(struct stacks *s, const char *key, const char *text,
				  uint64_t number)
{
	return stacks_keep_label(s,
				 &(struct stacks_label){ .key = stacks_text(s, key),
							 .text = text ? stacks_text(s, text) : NULL,
							 .number = (int64_t)number });
}

/* The labels of a trace; NULL: none. */
struct made_trace {
	const char *trace_id, *span_id;
};

/* Add a sample with these locations. */
static inline void made_add_traced_at(struct stacks *s, const struct made_sample *m,
				      const struct made_trace *trace, const uint32_t *locations,
				      uint32_t n)
{
	uint32_t labels[6], n_labels = 0;
	int64_t values[2] = { 1, m->cpu_ns };

	if (m->time_ns)
		labels[n_labels++] = made_label(s, HISTORY_TIME_LABEL, NULL, m->time_ns);
	if (m->pid)
		labels[n_labels++] = made_label(s, "pid", NULL, m->pid);
	if (m->tid)
		labels[n_labels++] = made_label(s, "tid", NULL, m->tid);
	if (m->comm)
		labels[n_labels++] = made_label(s, "comm", m->comm, 0);
	if (trace->trace_id)
		labels[n_labels++] = made_label(s, "trace_id", trace->trace_id, 0);
	if (trace->span_id)
		labels[n_labels++] = made_label(s, "span_id", trace->span_id, 0);
	if (stacks_add(s, &(struct stacks_sample){ .n_locations = n, .n_labels = n_labels },
		       locations, labels, values))
		abort();
}

static inline void made_add_at(struct stacks *s, const struct made_sample *m,
			       const uint32_t *locations, uint32_t n)
{
	made_add_traced_at(s, m, &(struct made_trace){ NULL, NULL }, locations, n);
}

static inline void made_add_traced(struct stacks *s, const struct made_sample *m,
				   const struct made_trace *trace)
{
	uint32_t ids[8], module = made_module(s, "/bin/made", "abcd");

	for (uint32_t i = 0; i < m->n_frames; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "f%u", m->frames[i]);
		ids[i] = made_location(s, module, 0x1000 + 16 * m->frames[i], name, name);
	}
	made_add_traced_at(s, m, trace, ids, m->n_frames);
}

static inline void made_add(struct stacks *s, const struct made_sample *m)
{
	made_add_traced(s, m, &(struct made_trace){ NULL, NULL });
}

/* ---- the text of a profile ------------------------------------------------------------------ */

static inline int made_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void made_labels(FILE *out, const struct stacks *s,
			       const struct stacks_sample *sample)
{
	static const char *const keys[] = { HISTORY_TIME_LABEL, "pid", "tid", "comm" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const struct stacks_label *l = stacks_label(s, sample, keys[i]);
		char number[STACKS_NUMBER];

		if (l)
			(void)fprintf(out, "%s=%s ", i ? keys[i] : "time",
				      stacks_label_text(l, number));
	}
}

/* Return a line for each sample, sorted: labels, functions outermost first, values. The caller frees it. */
static inline char *made_text(const struct stacks *s)
{
	char **lines = calloc(s->n_samples + 1, sizeof(*lines)), *text = NULL;
	size_t size;
	FILE *out;

	for (size_t i = 0; i < s->n_samples; i++) {
		const struct stacks_sample *sample = &s->samples[i];

		out = open_memstream(&lines[i], &size);
		made_labels(out, s, sample);
		for (uint32_t k = sample->n_locations; k--;) {
			const struct stacks_location *l =
				&s->locations[s->location_ids[sample->first_location + k]];

			for (uint32_t j = l->n_lines; j--;)
				(void)fprintf(
					out, "%s;",
					s->functions[s->lines[l->first_line + j].function].name);
		}
		for (size_t k = 0; k < s->n_types; k++)
			(void)fprintf(out, " %" PRId64, stacks_value(s, i, k));
		(void)fclose(out);
	}
	qsort(lines, s->n_samples, sizeof(*lines), made_compare);
	out = open_memstream(&text, &size);
	for (size_t i = 0; i < s->n_samples; i++) {
		(void)fprintf(out, "%s\n", lines[i]);
		free(lines[i]);
	}
	(void)fclose(out);
	free(lines);
	return text;
}

/* Read a range and return its text, which the caller frees; NULL: that fails, and *err says why. */
static inline char *made_read(struct history *h, const struct history_query *q,
			      struct history_found *found, int *err)
{
	struct stacks *s;
	char *text = NULL;

	if (stacks_new(&s))
		abort();
	*err = history_read(h, q, s, found);
	if (!*err)
		text = made_text(s);
	stacks_free(s);
	return text;
}

/* ---- the database --------------------------------------------------------------------------- */

static char db_folder[] = "/tmp/offwind-history-XXXXXX";
static char db_name[64];

static inline void db_make_name(void)
{
	if (!mkdtemp(db_folder))
		abort();
	(void)snprintf(db_name, sizeof(db_name), "%s/h.db", db_folder);
}

static inline void db_remove(void)
{
	static const char *const ends[] = { "", "-wal", "-shm" };
	char name[80];

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", db_name, ends[i]);
		(void)unlink(name);
	}
}

/*
 * Give a connection a temporary table nodes (id, parent, frame) with the nodes of all pages, or write what
 * such a table has into pages again. Nodes that are not sound are packed as they are.
 */
static inline void db_unpack_nodes(sqlite3 *db)
{
	struct history_node nodes[NODES_IN_PAGE];
	sqlite3_stmt *pages, *insert;

	if (sqlite3_exec(db,
			 "CREATE TEMP TABLE nodes (id INTEGER PRIMARY KEY, parent INTEGER, frame "
			 "INTEGER)",
			 NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "INSERT INTO temp.nodes VALUES (?1, ?2, ?3)", -1, &insert,
			       NULL) != SQLITE_OK)
		abort();
	if (sqlite3_prepare_v2(db, "SELECT id, nodes FROM main.node_pages", -1, &pages, NULL) ==
	    SQLITE_OK) {
		while (sqlite3_step(pages) == SQLITE_ROW) {
			int64_t page = sqlite3_column_int64(pages, 0);
			size_t n;

			(void)history_unpack_nodes(page, sqlite3_column_blob(pages, 1),
						   (size_t)sqlite3_column_bytes(pages, 1), nodes,
						   &n);
			for (size_t i = 0; i < n; i++) {
				int64_t id = page * NODES_IN_PAGE + (int64_t)i + 1;

				if (!nodes[i].frame)
					continue;
				db_bind_numbers(
					insert,
					(const int64_t[]){ id, nodes[i].up ? id - nodes[i].up : 0,
							   nodes[i].frame },
					3);
				(void)sqlite3_step(insert);
				(void)sqlite3_reset(insert);
			}
		}
	}
	(void)sqlite3_finalize(pages);
	(void)sqlite3_finalize(insert);
}

static inline void db_write_page(sqlite3 *db, int64_t page, struct history_bytes *bytes)
{
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(db, "INSERT INTO main.node_pages VALUES (?1, ?2)", -1, &stmt,
			       NULL) != SQLITE_OK)
		abort();
	(void)sqlite3_bind_int64(stmt, 1, page);
	db_bind_bytes(stmt, 2, bytes->bytes, bytes->size);
	if (bytes->size && sqlite3_step(stmt) != SQLITE_DONE)
		abort();
	(void)sqlite3_finalize(stmt);
	bytes->size = 0;
}

static inline void db_pack_nodes(sqlite3 *db)
{
	struct history_bytes bytes = { .bytes = NULL };
	int64_t page = -1, last = 0;
	sqlite3_stmt *stmt;
	int err = 0;

	if (sqlite3_exec(db, "DELETE FROM main.node_pages", NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "SELECT id, parent, frame FROM temp.nodes ORDER BY id", -1,
			       &stmt, NULL) != SQLITE_OK)
		abort();
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(stmt, 0), parent = sqlite3_column_int64(stmt, 1);

		if (page != history_node_page(id)) {
			db_write_page(db, page, &bytes);
			page = history_node_page(id);
			last = page * NODES_IN_PAGE;
		}
		if (id > last + 1) { /* deleted ones */
			history_put_uleb(&bytes, 0, &err);
			history_put_uleb(&bytes, (uint64_t)(id - last - 1), &err);
		}
		history_put_uleb(&bytes, (uint64_t)sqlite3_column_int64(stmt, 2), &err);
		history_put_uleb(&bytes, parent ? (uint64_t)id - (uint64_t)parent : 0, &err);
		last = id;
	}
	db_write_page(db, page, &bytes);
	(void)sqlite3_finalize(stmt);
	free(bytes.bytes);
	if (err)
		abort();
}

/* Give a connection a temporary table frames with the frames of all pages. */
static inline void db_unpack_frames(sqlite3 *db)
{
	struct history_page_frame frames[FRAMES_IN_PAGE];
	sqlite3_stmt *pages, *insert;

	if (sqlite3_exec(db,
			 "CREATE TEMP TABLE frames (id INTEGER PRIMARY KEY, module INTEGER, address"
			 " INTEGER, variant INTEGER, lines BLOB)",
			 NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "INSERT INTO temp.frames VALUES (?1, ?2, ?3, ?4, ?5)", -1,
			       &insert, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "SELECT id, frames FROM main.frame_pages", -1, &pages, NULL) !=
		    SQLITE_OK)
		abort();
	while (sqlite3_step(pages) == SQLITE_ROW) {
		size_t n;

		(void)history_unpack_frames(sqlite3_column_blob(pages, 1),
					    (size_t)sqlite3_column_bytes(pages, 1), frames, &n);
		for (size_t i = 0; i < n; i++) {
			const struct history_page_frame *f = &frames[i];

			if (!f->there)
				continue;
			db_bind_numbers(
				insert,
				(const int64_t[]){ sqlite3_column_int64(pages, 0) * FRAMES_IN_PAGE +
							   (int64_t)i + 1,
						   f->key.module, (int64_t)f->key.address,
						   f->key.variant },
				4);
			db_bind_bytes(insert, 5, f->lines.pos, (size_t)uw_bytes_left(&f->lines));
			(void)sqlite3_step(insert);
			(void)sqlite3_reset(insert);
		}
	}
	(void)sqlite3_finalize(pages);
	(void)sqlite3_finalize(insert);
}

/* Write what that table has into pages again. */
static inline void db_pack_frames(sqlite3 *db)
{
	if (history_prepare_upgrade(db) != SQLITE_OK ||
	    sqlite3_exec(db,
			 "DELETE FROM main.frame_pages; INSERT INTO main.frame_pages SELECT (id -"
			 " 1) / 64, frame_page(id, module, address, variant, lines) FROM"
			 " temp.frames GROUP BY 1",
			 NULL, NULL, NULL) != SQLITE_OK)
		abort();
}

/* Return whether SQL is about frames, and not about their pages. */
static inline bool db_has_frames(const char *text)
{
	return strstr(text, "frames") && !strstr(text, "frame_pages");
}

/* Run statements on a connection of their own, which has tables nodes and frames that can be changed, too. */
static inline int db_sql(const char *text)
{
	const bool nodes = strstr(text, "nodes"), frames = db_has_frames(text);
	sqlite3 *db;
	int rc = sqlite3_open(db_name, &db);

	if (rc == SQLITE_OK && nodes)
		db_unpack_nodes(db);
	if (rc == SQLITE_OK && frames)
		db_unpack_frames(db);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, text, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		(void)printf("%s: %s\n", text, sqlite3_errmsg(db));
	if (rc == SQLITE_OK && nodes)
		db_pack_nodes(db);
	if (rc == SQLITE_OK && frames)
		db_pack_frames(db);
	sqlite3_close(db);
	return rc;
}

/* Return the number that a query gives, which may be about nodes and frames. */
static inline int64_t db_count(const char *text)
{
	sqlite3 *db;
	int64_t n = -1;

	if (sqlite3_open(db_name, &db) == SQLITE_OK) {
		if (strstr(text, "nodes"))
			db_unpack_nodes(db);
		if (db_has_frames(text))
			db_unpack_frames(db);
		n = db_number(db, text);
	}
	sqlite3_close(db);
	return n;
}

#endif

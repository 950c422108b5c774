/*
 * agent/store/tables/wanted.c: the queue of tables, symbols and lines that are inserted when there is
 * time.
 */
#include "agent/store/parts.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>

/*
 * Each wanted object holds a descriptor and memory. Of a thousand objects, later runs store the
 * rest.
 */
#define WANTED_MAX 128

struct wanted_table {
	struct uw_object *object;
	struct store_file file;
	char *path; /* owned; same as file.path */
};

static bool same_file(const struct store_file *a, const struct store_file *b)
{
	return a->known && b->known && a->dev == b->dev && a->ino == b->ino &&
	       a->elf_off == b->elf_off;
}

/* Return whether the file is wanted already, or the list is full. */
static bool is_wanted(const struct wanted_queue *q, const struct store_file *file)
{
	for (size_t i = 0; i < q->n_tables; i++)
		if (same_file(&q->tables[i].file, file))
			return true;
	return q->n_tables >= WANTED_MAX;
}

/* Return whether the file's symbols (or lines) are wanted already, or the list is full. */
static bool symbols_are_wanted(const struct wanted_queue *q, const struct store_file *file,
			       bool lines)
{
	for (size_t i = 0; i < q->n_symbols; i++)
		if (same_file(&q->symbols[i].file, file) && !q->symbols[i].table == lines)
			return true;
	return q->n_symbols >= WANTED_MAX;
}

/*
 * Return who vouches for symbols made from two files: if one file is root's, the other file's
 * owner; if both are one user's, that user; else STORE_NOBODY.
 */
static int64_t common_owner(int64_t a, int64_t b)
{
	if (a == 0 || a == b)
		return b;
	return b == 0 ? a : STORE_NOBODY;
}

/* Take ownership of a symbol table or of lines: remember it for store_work(), or free it. */
static void want_either(struct store *s, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table, struct sym_lines *lines)
{
	struct wanted_queue *q;
	struct wanted_symbols *w;
	char *path;

	if (!s || !file->vouched || (beside && !beside->vouched)) {
		sym_table_free(table);
		sym_lines_free(lines);
		return;
	}
	path = strdup(file->path ? file->path : "");
	q = &s->queue;
	pthread_mutex_lock(&s->lock);
	if (path && !s->read_only && !session_gave_up(s) && !symbols_are_wanted(q, file, !table) &&
	    !array_grow(q->symbols, q->n_symbols, q->room_symbols)) {
		w = &q->symbols[q->n_symbols++];
		*w = (struct wanted_symbols){ .table = table,
					      .lines = lines,
					      .file = *file,
					      .path = path,
					      .build_id = *build_id };
		w->file.path = path;
		if (beside) {
			w->has_beside = true;
			identity_of_file(beside, NULL, &w->beside);
			w->file.owner = common_owner(file->owner, beside->owner);
		}
		table = NULL;
		lines = NULL;
		path = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	sym_table_free(table);
	sym_lines_free(lines);
	free(path);
}

void store_want_symbols(struct store *s, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table)
{
	want_either(s, file, beside, build_id, table, NULL);
}

void store_want_lines(struct store *s, const struct store_file *file,
		      const struct uw_build_id *build_id, struct sym_lines *lines)
{
	want_either(s, file, NULL, build_id, NULL, lines);
}

void store_parsed(struct store *s, const struct uw_object *object)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->counters.parsed += uw_object_parsed(object);
	pthread_mutex_unlock(&s->lock);
}

void store_want(struct store *s, struct uw_object *object, const struct store_file *file)
{
	struct wanted_queue *q;
	struct wanted_table *w;

	if (!s)
		return;
	q = &s->queue;
	pthread_mutex_lock(&s->lock);
	if (!s->read_only && !session_gave_up(s) && uw_object_parsed(object) &&
	    !is_wanted(q, file) && !array_grow(q->tables, q->n_tables, q->room_tables)) {
		w = &q->tables[q->n_tables];
		w->file = *file;
		w->file.path = w->path = strdup(file->path ? file->path : "");
		if (w->path) {
			w->object = uw_object_get(object);
			q->n_tables++;
		}
	}
	pthread_mutex_unlock(&s->lock);
}

/* Compare for qsort(3): objects whose call-frame information was read most often come first. */
static int by_parsed(const void *a, const void *b)
{
	const struct wanted_table *x = a, *y = b;
	uint64_t m = uw_object_parsed(x->object), n = uw_object_parsed(y->object);

	return m < n ? 1 : m > n ? -1 : 0;
}

/* Return whether the store still works, and the time last (in ns) has not come. */
static bool may_go_on(struct store *s, uint64_t last)
{
	bool works;

	pthread_mutex_lock(&s->lock);
	works = !session_gave_up(s);
	pthread_mutex_unlock(&s->lock);
	return works && now_ns() < last;
}

bool store_has_work(struct store *s)
{
	bool any;

	if (!s)
		return false;
	pthread_mutex_lock(&s->lock);
	any = s->queue.n_tables || s->queue.n_symbols;
	pthread_mutex_unlock(&s->lock);
	return any;
}

void store_work(struct store *s, uint64_t limit_ns)
{
	uint64_t last = now_ns() + limit_ns;
	struct wanted_queue q;

	if (!s)
		return;
	/* Take the queue over: compiling takes long, and other threads may add to the queue. */
	pthread_mutex_lock(&s->lock);
	s->hurried = true; /* a user may be waiting for this process to end */
	q = s->queue;
	s->queue = (struct wanted_queue){ .tables = NULL };
	pthread_mutex_unlock(&s->lock);
	if (q.n_tables)
		qsort(q.tables, q.n_tables, sizeof(*q.tables), by_parsed);
	for (size_t i = 0; i < q.n_tables && may_go_on(s, last); i++)
		if (!table_is_stored(s, q.tables[i].object, &q.tables[i].file))
			(void)store_keep(s, q.tables[i].object, &q.tables[i].file);
	for (size_t i = 0; i < q.n_symbols && may_go_on(s, last); i++)
		symbols_keep(s, &q.symbols[i]);
	wanted_fini(&q);
}

void wanted_fini(struct wanted_queue *q)
{
	for (size_t i = 0; i < q->n_tables; i++) {
		uw_object_put(q->tables[i].object);
		free(q->tables[i].path);
	}
	free(q->tables);
	for (size_t i = 0; i < q->n_symbols; i++) {
		sym_table_free(q->symbols[i].table);
		sym_lines_free(q->symbols[i].lines);
		free(q->symbols[i].path);
	}
	free(q->symbols);
}

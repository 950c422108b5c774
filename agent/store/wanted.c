/*
 * agent/store/wanted.c: the queue of tables, symbols and lines that are inserted when there is
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

struct wanted {
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
static bool is_wanted(const struct store *s, const struct store_file *file)
{
	for (size_t i = 0; i < s->n_wanted; i++)
		if (same_file(&s->wanted[i].file, file))
			return true;
	return s->n_wanted >= WANTED_MAX;
}

/* Return whether the file's symbols (or lines) are wanted already, or the list is full. */
static bool symbols_are_wanted(const struct store *s, const struct store_file *file, bool lines)
{
	for (size_t i = 0; i < s->n_symbols; i++)
		if (same_file(&s->symbols[i].file, file) && !s->symbols[i].table == lines)
			return true;
	return s->n_symbols >= WANTED_MAX;
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
	struct wanted_symbols *w;
	char *path;

	if (!s || !file->vouched || (beside && !beside->vouched)) {
		sym_table_free(table);
		sym_lines_free(lines);
		return;
	}
	path = strdup(file->path ? file->path : "");
	pthread_mutex_lock(&s->lock);
	if (path && !s->read_only && !session_gave_up(s) && !symbols_are_wanted(s, file, !table) &&
	    !array_make_room((void **)&s->symbols, s->n_symbols, &s->room_symbols,
			     sizeof(*s->symbols))) {
		w = &s->symbols[s->n_symbols++];
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
	struct wanted *w;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->read_only && !session_gave_up(s) && uw_object_parsed(object) &&
	    !is_wanted(s, file) &&
	    !array_make_room((void **)&s->wanted, s->n_wanted, &s->room_wanted,
			     sizeof(*s->wanted))) {
		w = &s->wanted[s->n_wanted];
		w->file = *file;
		w->file.path = w->path = strdup(file->path ? file->path : "");
		if (w->path) {
			w->object = uw_object_get(object);
			s->n_wanted++;
		}
	}
	pthread_mutex_unlock(&s->lock);
}

/* Compare for qsort(3): objects whose call-frame information was read most often come first. */
static int by_parsed(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;
	uint64_t m = uw_object_parsed(x->object), n = uw_object_parsed(y->object);

	return m < n ? 1 : m > n ? -1 : 0;
}

void store_work(struct store *s, uint64_t limit_ns)
{
	uint64_t last = now_ns() + limit_ns;

	if (!s)
		return;
	/* A user may be waiting for this process to end. */
	s->hurried = true;
	if (s->n_wanted)
		qsort(s->wanted, s->n_wanted, sizeof(*s->wanted), by_parsed);
	for (size_t i = 0; i < s->n_wanted && !session_gave_up(s) && now_ns() < last; i++)
		if (!table_is_stored(s, s->wanted[i].object, &s->wanted[i].file))
			(void)store_keep(s, s->wanted[i].object, &s->wanted[i].file);
	for (size_t i = 0; i < s->n_symbols && !session_gave_up(s) && now_ns() < last; i++)
		symbols_keep(s, &s->symbols[i]);
	wanted_forget(s);
}

void wanted_forget(struct store *s)
{
	for (size_t i = 0; i < s->n_wanted; i++) {
		uw_object_put(s->wanted[i].object);
		free(s->wanted[i].path);
	}
	s->n_wanted = 0;
	for (size_t i = 0; i < s->n_symbols; i++) {
		sym_table_free(s->symbols[i].table);
		sym_lines_free(s->symbols[i].lines);
		free(s->symbols[i].path);
	}
	s->n_symbols = 0;
}

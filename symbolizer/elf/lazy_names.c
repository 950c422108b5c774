/* symbolizer/elf/lazy_names.c: reads lazy names from their file, chooses the best alias, and caches it. */
#include "symbolizer/elf/lazy_names.h"

#include "base/elf.h"
#include "base/growth.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/text.h"
#include "symbolizer/elf/prefer.h"
#include "symbolizer/elf/symbol_table.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes read first of a name, which is nearly always the whole name. */
#define PIECE 256
#define CHUNK ((size_t)16 << 10)
/* Limit on names read while a table is made. If more are needed, all names are read instead. */
#define SOME 4096

#define ROOM (SYM_NAME_BYTES_MAX + 1 + sizeof(SYM_STUB_SUFFIX))

struct chunk {
	struct chunk *next;
	size_t n, room;
	char bytes[];
};

struct cached {
	const char *name; /* in a chunk */
	uint32_t entry;
};

struct sym_lazy_names {
	struct uw_source source; /* the file; the descriptor is owned */
	struct {
		uint64_t off, size;
	} strings[SYM_LAZY_N];
	unsigned int n_strings, n_some;
	pthread_mutex_t lock; /* protects all fields below */
	struct chunk *chunks; /* the first one has room */
	struct cached *cached;
	size_t n_cached, room_cached;
	struct uw_hash_index by_entry; /* the cached names */
	char *best, *other;	       /* buffers, ROOM bytes each */
};

int sym_lazy_names_new(const struct uw_source *source, struct sym_lazy_names **out)
{
	struct sym_lazy_names *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	pthread_mutex_init(&u->lock, NULL);
	u->source = *source;
	u->source.fd = fcntl(source->fd, F_DUPFD_CLOEXEC, 3);
	u->best = malloc(ROOM);
	u->other = malloc(ROOM);
	if (u->source.fd < 0 || !u->best || !u->other) {
		int err = u->source.fd < 0 ? -errno : -ENOMEM;

		sym_lazy_names_free(u);
		return err;
	}
	*out = u;
	return 0;
}

void sym_lazy_names_free(struct sym_lazy_names *u)
{
	if (!u)
		return;
	if (u->source.fd >= 0)
		(void)close(u->source.fd);
	while (u->chunks) {
		struct chunk *next = u->chunks->next;

		free(u->chunks);
		u->chunks = next;
	}
	free(u->cached);
	uw_hash_fini(&u->by_entry);
	free(u->best);
	free(u->other);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

size_t sym_lazy_names_memory(struct sym_lazy_names *u)
{
	size_t n = 2 * (size_t)ROOM;

	pthread_mutex_lock(&u->lock);
	for (const struct chunk *c = u->chunks; c; c = c->next)
		n += c->room;
	n += u->room_cached * sizeof(*u->cached);
	pthread_mutex_unlock(&u->lock);
	return n;
}

int sym_lazy_names_add(struct sym_lazy_names *u, uint64_t off, uint64_t size, uint32_t *flag)
{
	char first;
	int err;

	for (unsigned int i = 0; i < u->n_strings; i++) {
		if (u->strings[i].off == off && u->strings[i].size == size) {
			*flag = i ? SYM_NAME_SECOND : 0;
			return 0;
		}
	}
	if (u->n_strings == SYM_LAZY_N || size > SYM_LAZY_MAX)
		return -E2BIG;
	err = size ? uw_source_read(&u->source, off, &first, 1) : -EBADMSG;
	if (err || first)
		return err ? err : -EBADMSG;
	*flag = u->n_strings ? SYM_NAME_SECOND : 0;
	u->strings[u->n_strings].off = off;
	u->strings[u->n_strings++].size = size;
	return 0;
}

/* Return the cached name of an entry, or NULL. */
static const char *find(const struct sym_lazy_names *u, uint32_t entry)
{
	uint32_t i = UW_HASH_FIND(k, &u->by_entry, uw_hash_u64(entry), u->cached[k].entry == entry);

	return i == UW_HASH_NONE ? NULL : u->cached[i].name;
}

/* Cache a copy of a name, n bytes with its NUL, for an entry. */
static int keep(struct sym_lazy_names *u, uint32_t entry, const char *name, size_t n,
		const char **out)
{
	struct chunk *chunk = u->chunks;
	char *copy;

	if (UW_ARRAY_GROW(u->cached, u->n_cached, u->room_cached, UINT32_MAX))
		return -ENOMEM;
	if (!chunk || n > chunk->room - chunk->n) {
		size_t room = n > CHUNK ? n : CHUNK;

		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk)
			return -ENOMEM;
		*chunk = (struct chunk){ .next = u->chunks, .room = room };
		u->chunks = chunk;
	}
	if (uw_hash_add(&u->by_entry, uw_hash_u64(entry), (uint32_t)u->n_cached))
		return -ENOMEM;
	copy = chunk->bytes + chunk->n;
	memcpy(copy, name, n);
	chunk->n += n;
	u->cached[u->n_cached++] = (struct cached){ .name = copy, .entry = entry };
	*out = copy;
	return 0;
}

/* Read a name up to its NUL, at most SYM_NAME_BYTES_MAX + 1 bytes, and add a NUL. */
static int read_name(const struct sym_lazy_names *u, uint32_t name, char *out, size_t *n)
{
	unsigned int which = (name & SYM_NAME_SECOND) != 0;
	uint64_t at = name & (SYM_NAME_SECOND - 1), size = u->strings[which].size;
	uint64_t left = at < size ? size - at : 0;
	size_t limit = left < SYM_NAME_BYTES_MAX + 1 ? (size_t)left : SYM_NAME_BYTES_MAX + 1;
	size_t done = 0;

	while (done < limit) {
		size_t piece = done ? limit - done : limit < PIECE ? limit : PIECE;
		const char *end;
		int err = uw_source_read(&u->source, u->strings[which].off + at + done, out + done,
					 piece);

		if (err)
			return err;
		end = memchr(out + done, '\0', piece);
		if (end) {
			*n = (size_t)(end - out);
			return 0;
		}
		done += piece;
	}
	out[done] = '\0';
	*n = done;
	return 0;
}

/* Read a name in the form in which it is compared with other names of the address. */
static int read_candidate(const struct sym_lazy_names *u, uint32_t name, char *out, size_t *n)
{
	int err = read_name(u, name, out, n);

	if (err)
		return err;
	if (!*n) /* such a symbol is never put in a table: the file was changed */
		return -EBADMSG;
	if (name & SYM_NAME_STUB) {
		memcpy(out + *n, SYM_STUB_SUFFIX, sizeof(SYM_STUB_SUFFIX));
		*n += sizeof(SYM_STUB_SUFFIX) - 1;
	} else if (*n <= SYM_NAME_BYTES_MAX) {
		*n = sym_version_at(out, *n);
		out[*n] = '\0';
	}
	return 0;
}

int sym_lazy_names_prefer(struct sym_lazy_names *u, uint32_t a, uint32_t b, int *order)
{
	size_t n_a, n_b;
	int err = u->n_some++ < SOME ? read_candidate(u, a, u->best, &n_a) : -E2BIG;

	if (!err)
		err = read_candidate(u, b, u->other, &n_b);
	if (!err)
		*order = sym_prefer(u->best, n_a, u->other, n_b);
	return err;
}

int sym_lazy_names_is_marker(struct sym_lazy_names *u, uint32_t name, bool *is)
{
	size_t n;
	int err = u->n_some++ < SOME ? read_name(u, name, u->best, &n) : -E2BIG;

	if (!err)
		*is = sym_is_marker(u->best);
	return err;
}

/* Return the first alias of entry i, or of the next entry that has one. */
static size_t first_alias(const struct sym_table *t, size_t i)
{
	return UW_COUNT_WHILE(k, t->n_aliases, t->aliases[k].entry < i);
}

/* Read the names of entry i and leave the best one, not sanitised, in u->best. */
static int choose(struct sym_lazy_names *u, const struct sym_table *t, size_t i, size_t *n)
{
	size_t alias = first_alias(t, i), n_other;
	int err = read_candidate(u, t->entries[i].name & ~SYM_ENTRY_OPEN, u->best, n);

	for (; !err && alias < t->n_aliases && t->aliases[alias].entry == i; alias++) {
		err = read_candidate(u, t->aliases[alias].name, u->other, &n_other);
		if (!err && sym_prefer(u->other, n_other, u->best, *n) < 0) {
			char *swap = u->best;

			u->best = u->other;
			u->other = swap;
			*n = n_other;
		}
	}
	return err;
}

/* Choose, sanitise and cache the name of entry i. */
static int make(struct sym_lazy_names *u, const struct sym_table *t, size_t i, const char **out)
{
	size_t n;
	char *sanitized;
	int err = choose(u, t, i, &n);

	if (err)
		return err;
	if (n <= SYM_NAME_BYTES_MAX && uw_text_is_plain(u->best, n))
		return keep(u, (uint32_t)i, u->best, n + 1, out);
	sanitized = sym_sanitize(u->best, n, SYM_NAME_BYTES_MAX);
	if (!sanitized)
		return -ENOMEM;
	err = keep(u, (uint32_t)i, sanitized, strlen(sanitized) + 1, out);
	free(sanitized);
	return err;
}

int sym_lazy_names_get(const struct sym_table *table, size_t i, const char **out)
{
	struct sym_lazy_names *u = table->lazy_names;
	uint32_t name = table->entries[i].name & ~SYM_ENTRY_OPEN;
	int err = 0;

	if (name & SYM_NAME_ARENA) {
		*out = table->names + (name & (SYM_NAME_ARENA - 1));
		return 0;
	}
	pthread_mutex_lock(&u->lock);
	*out = find(u, (uint32_t)i);
	if (!*out)
		err = make(u, table, i, out);
	pthread_mutex_unlock(&u->lock);
	return err;
}

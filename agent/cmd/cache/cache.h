/* agent/cmd/cache/cache.h: options and functions that the subcommands of `offwind cache` share. */
#ifndef AGENT_CMD_CACHE_CACHE_H
#define AGENT_CMD_CACHE_CACHE_H

#include "agent/store/query/sql.h"

#include <stdbool.h>
#include <stddef.h>

struct uw_object;

struct cache_options {
	const char *db; /* --db; NULL: the default path */
	enum sql_format format;
	const char *output, *sort, *match;
	bool running, repair, strict;
	int64_t unused_days; /* < 0: not given */
	uint64_t budget;     /* 0: not given */
	unsigned int jobs;
};

/*
 * The subcommands. Each gets the arguments after the subcommand's name and returns the exit code;
 * errors are already reported.
 */
int cache_prefetch(const struct cache_options *options, char **paths, int n);
int cache_verify(const struct cache_options *options);
int cache_diff(const struct cache_options *options, const char *before, const char *after);
int cache_gc(const struct cache_options *options);
int cache_export(const struct cache_options *options, const char *key);
int cache_import(const struct cache_options *options, char **paths, int n);

/*
 * Print a formatted line on standard output. The line is sanitized, because parts of it may come
 * from a store that another user wrote.
 */
void cache_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * Open the store for reading, with the virtual tables of store/sql.h. Return 0, or a negative code
 * after reporting it. The caller closes *out.
 */
int cache_open(const struct cache_options *options, sqlite3 **out);
/*
 * Look up the object that key names. If key is the path of a readable file, look it up by the
 * file's contents first; then as stored_find_text does. Return 0, or a negative code after
 * reporting it: -ENOENT if the store has no such object.
 */
int cache_object(sqlite3 *db, const char *key, int64_t *object);
/*
 * Open the ELF file at path. Return 0, with a descriptor and an object that the caller closes and
 * puts, or a negative code: -ENOTSUP if the file is no ELF file or of a kind that is not
 * supported.
 */
int cache_open_file(const char *path, int *fd, struct uw_object **object);

#endif

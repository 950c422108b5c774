/*
 * agent/cmd/cache.h: what the subcommands of `offwind cache` share.
 */
#ifndef AGENT_CMD_CACHE_H
#define AGENT_CMD_CACHE_H

#include "agent/store/sql.h"

#include <stdbool.h>
#include <stddef.h>

struct uw_object;

struct cache_options {
	const char *db; /* --db */
	enum sql_format format;
	const char *output, *sort, *match;
	bool running, repair, strict;
	int64_t unused_days; /* < 0: not given */
	uint64_t budget;     /* 0: not given */
	unsigned int jobs;
};

/* Each gets what stands behind the subcommand and gives the exit code. */
int cache_prefetch(const struct cache_options *options, char **paths, int n);
int cache_verify(const struct cache_options *options);
int cache_diff(const struct cache_options *options, const char *before, const char *after);
int cache_gc(const struct cache_options *options);
int cache_export(const struct cache_options *options, const char *key);
int cache_import(const struct cache_options *options, char **paths, int n);

/* A line of standard output, of which a foreign store may have written a part: cleaned. */
void cache_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The store for reading, with the virtual tables; reports why not. */
int cache_open(const struct cache_options *options, sqlite3 **out);
/*
 * The object that key names (kept_find_text); of a file that is there the one it has.  -ENOENT
 * after saying so.
 */
int cache_object(sqlite3 *db, const char *key, int64_t *object);
/* A regular file for reading that is an ELF file known here: 0 and its object; *fd is the caller's. */
int cache_open_file(const char *path, int *fd, struct uw_object **object);

#endif

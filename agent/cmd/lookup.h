/*
 * agent/cmd/lookup.h: looks up names of addresses that were recorded elsewhere or earlier: in the files of this host
 * with their build-ids, in the store, in debug files and from debuginfod servers.
 */
#ifndef AGENT_CMD_LOOKUP_H
#define AGENT_CMD_LOOKUP_H

#include "agent/cli/walking.h"
#include "agent/pipeline/names.h"

struct lookup; /* used by one thread */

struct lookup_file {		     /* all borrowed */
	const char *path, *build_id; /* in hexadecimal */
	uint64_t off, start, limit;  /* of a mapping of the file that has its addresses */
};

/* Begin; walking, with its store, is borrowed. -ENOMEM, or the opener's error; call lookup_free in each case. */
int lookup_new(const struct walking *walking, struct lookup **out);
void lookup_free(struct lookup *lookup); /* NULL is fine */

/*
 * Open a file that has that build-id, or its debug file. *why: NULL, or a sentence why there is none, to be borrowed
 * until lookup_free. -ENOMEM.
 */
int lookup_open(struct lookup *lookup, const struct lookup_file *file, const char **why);
/* Called for an address that has a name, with its number; -EINTR and the like end the look-up. */
typedef int (*lookup_fn)(void *ctx, size_t i, const struct name *name);
/*
 * Look up addresses of the file that was opened last. Those without a name are left out, and counted in *unnamed.
 * -ENOMEM, or what fn returned.
 */
int lookup_names(struct lookup *lookup, const uint64_t *addresses, size_t n, lookup_fn fn,
		 void *ctx, uint64_t *unnamed);
/* No name is used any more: forget them if these are many, and close all files if these are. -ENOMEM. */
int lookup_bound(struct lookup *lookup);

#endif

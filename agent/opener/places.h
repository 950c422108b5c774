/* agent/opener/places.h: where files are looked for; shared by the sources of this folder. */
#ifndef AGENT_OPENER_PLACES_H
#define AGENT_OPENER_PLACES_H

#include "agent/opener/opener.h"

struct opener {
	bool live;
	char *symfs, *exe, *beside, *debug_dir;
	uint64_t until_ns;
	char *cache;		 /* perf's build-id cache: $HOME/.debug/.build-id, or NULL */
	char *own;		 /* our cache of this user's, or NULL */
	struct fetcher *fetcher; /* owned; NULL: nobody is asked */
};

/* Regular files only, which neither block nor do anything when they are opened. */
int places_open(const char *path, int *fd);
/* Links inside path are resolved as if root were "/", so they cannot lead out of it. */
int places_open_below(const char *root, const char *path, int *fd);
/* From perf's cache. */
int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       int *fd);

#endif

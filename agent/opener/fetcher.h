/*
 * agent/opener/fetcher.h: debug files from debuginfod servers, on a thread of its own, where the
 * user has set DEBUGINFOD_URLS and libdebuginfod is installed.
 */
#ifndef AGENT_OPENER_FETCHER_H
#define AGENT_OPENER_FETCHER_H

#include "unwinder/unwinder.h"

struct fetcher;
struct store;

/* store: remembers what servers do not have; borrowed, NULL: none.  -ENOENT: nobody is to be asked. */
int fetcher_new(struct store *store, struct fetcher **out);
void fetcher_free(struct fetcher *fetcher); /* gives up what waits; NULL is fine */

/* Asks for the debug file of that build-id, once.  Never waits. */
void fetcher_want(struct fetcher *fetcher, const struct uw_build_id *id);
/*
 * Waits for the answer to that, for some seconds at most, and opens it; whether it is what was asked
 * for, its reader decides.  -ENOENT: there is none; -ETIMEDOUT: not in time.
 */
int fetcher_take(struct fetcher *fetcher, const struct uw_build_id *id, int *fd);

#endif

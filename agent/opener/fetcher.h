/*
 * agent/opener/fetcher.h: fetches debug files from debuginfod servers, on its own thread, if the
 * user has set DEBUGINFOD_URLS and libdebuginfod is installed.
 */
#ifndef AGENT_OPENER_FETCHER_H
#define AGENT_OPENER_FETCHER_H

#include "unwinder/unwinder.h"

#include <stdbool.h>

struct fetcher;

/* Return whether the user has set DEBUGINFOD_URLS. */
bool fetcher_is_configured(void);

/* Start a fetcher. -ENOENT: no server is configured, or libdebuginfod is missing. */
int fetcher_new(struct fetcher **out);
void fetcher_free(struct fetcher *fetcher); /* gives up waiting requests; NULL is fine */

/* Request the debug file of this build-id, once. Never blocks. */
void fetcher_want(struct fetcher *fetcher, const struct uw_build_id *id);
/*
 * Wait for the answer to that request, for some seconds at most, and open the file. The reader of
 * the file checks that it is the right one. -ENODATA: the servers say that they do not have it;
 * -ENOENT: they could not be asked; -ETIMEDOUT: no answer in time.
 */
int fetcher_take(struct fetcher *fetcher, const struct uw_build_id *id, int *fd);

#endif

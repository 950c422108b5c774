/*
 * agent/cmd/given.h: profiles as people give them: pprof files, or recordings, which are unwound.
 */
#ifndef AGENT_CMD_GIVEN_H
#define AGENT_CMD_GIVEN_H

#include "agent/cmd/pick.h"
#include "agent/export/stacks.h"

/*
 * Add the profile at path, "-" for standard input, as stacks_load does; a perf.data file, a capture
 * file, a core or a snapshot's folder is unwound first.  pick: which of its samples, for
 * recordings only.  Return 0, or a negative code after reporting what is wrong.
 */
int given_load(struct stacks *stacks, const char *path, bool base, struct pick *pick);

/*
 * Return the name of the last recording in this folder: offwind.pb.gz, else offwind.owc, else
 * perf.data; NULL after reporting, in the name of command, that there is none.
 */
char *given_default(const char *command);

#endif

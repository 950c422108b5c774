/* agent/cmd/unwind.h: turns a recording into a profile, for commands that show profiles. */
#ifndef AGENT_CMD_UNWIND_H
#define AGENT_CMD_UNWIND_H

#include "agent/cli/pick.h"
#include "agent/export/profile/stacks.h"

struct store;

/*
 * Unwind the samples of the recording at path ("-" for standard input) that pick selects, and add
 * them to stacks; base: as the base to compare with. If the recording is damaged, add what comes
 * before the damage. store has the unwind tables; NULL: none. Return 0, 1 after reporting that it is damaged, or a
 * negative code after reporting what is wrong.
 */
int unwind_into(const char *path, struct pick *pick, struct stacks *stacks, bool base,
		struct store *store);

#endif

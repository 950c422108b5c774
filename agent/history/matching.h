/*
 * agent/history/matching.h: finds the stacks of a history that have a function whose name matches a
 * regular expression. Each node, frame and function is looked up once.
 */
#ifndef AGENT_HISTORY_MATCHING_H
#define AGENT_HISTORY_MATCHING_H

#include "agent/history/history.h"

#include <regex.h>

/* What is known about cached rows (agent/history/history_rows.h), by index: 0: nothing yet, else MATCHING_NO or MATCHING_YES. */
struct matching_rows {
	uint8_t *known;
	size_t room;
};

struct matching {		 /* all but history and regex zero: nothing is known yet */
	struct history *history; /* borrowed, as regex */
	const regex_t *regex;
	struct matching_rows nodes, frames, functions;
	size_t *path; /* indices of nodes, from a stack's innermost frame outwards */
	size_t room_path;
	bool checked; /* cached names are those of the transaction */
};

/*
 * Give whether the stack of a node, or one of its callers, matches. Node 0 has no frames. All calls with one
 * struct matching belong to one transaction, such as that of history_scan.
 */
int matching_node(struct matching *m, uint64_t node, bool *out);
void matching_fini(struct matching *m);

#endif

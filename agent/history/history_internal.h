/* agent/history/history_internal.h: the connection that the files of this folder share, and its statements. */
#ifndef AGENT_HISTORY_HISTORY_INTERNAL_H
#define AGENT_HISTORY_HISTORY_INTERNAL_H

#include "agent/history/history.h"
#include "agent/store/db.h"

extern const struct db_kind history_kind;

enum history_statement {
	FIND_MODULE,
	ADD_MODULE,
	WIDEN_MODULE,
	FIND_FUNCTION,
	ADD_FUNCTION,
	FIND_FRAME,
	ADD_FRAME,
	NAME_FRAME,
	FIND_NODE,
	ADD_NODE,
	FIND_LABELS,
	ADD_LABELS,
	FIND_TYPE,
	ADD_TYPE,
	ADD_WINDOW,
	ADD_COUNTER,
	READ_WINDOWS,
	READ_NODE,
	READ_FRAME,
	READ_MODULE,
	READ_FUNCTION,
	READ_LABELS,
	READ_TYPES,
	READ_TYPE,
	READ_LABEL,
	READ_COUNTERS,
	READ_NEWEST,
	HISTORY_STATEMENTS
};

struct history {
	sqlite3 *db;
	char *path;
	sqlite3_stmt *statements[HISTORY_STATEMENTS];
	char type[64], unit[64]; /* of the last scan */
};

/* Return the prepared statement, ready for binding. On failure return NULL and set *err. */
sqlite3_stmt *history_statement(struct history *h, enum history_statement which, int *err);
/* Report what a step could not do, unless it is 0. Return err. */
int history_failed(const struct history *h, const char *doing, int err);

#endif

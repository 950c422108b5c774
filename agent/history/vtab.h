/* agent/history/vtab.h: the virtual table samples, and functions, for SQL (docs/history.md). */
#ifndef AGENT_HISTORY_VTAB_H
#define AGENT_HISTORY_VTAB_H

struct history;
struct sqlite3;

/*
 * Let queries on a connection that has the history as schema use samples, stack(node) and function(node). They borrow schema,
 * and h, by which the functions read names. -ENOMEM, or another negative code.
 */
int history_register(struct history *h, struct sqlite3 *db, const char *schema);

#endif

/* agent/history/vtab.h: the virtual table samples, and functions, for SQL (docs/history.md). */
#ifndef AGENT_HISTORY_VTAB_H
#define AGENT_HISTORY_VTAB_H

struct history;

/*
 * Let queries on the history's connection use samples, stack(node) and function(node). They borrow h.
 * -ENOMEM, or another negative code.
 */
int history_register(struct history *h);

#endif

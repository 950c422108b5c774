/*
 * agent/store/vtab.h: a store's tables as rows of SQL.
 *
 *   unwind_rows(OBJECT[, PC])  start, "end", function, cfa_kind, cfa_reg, cfa_offset, fp, ra,
 *                              registers, signal, slow, expression; hidden: words,
 *                              bytes_read: of the table and ranges, since it was opened
 *   unwind_fdes(OBJECT[, PC])  start, "end", size, function, n_rows, n_slow
 *   unwind_gaps(OBJECT[, PC])  start, "end", size, after: code without unwind information
 *
 * Functions are called by their names where the object's symbols can be had (kept_symbols), else
 * by their addresses.  OBJECT as for kept_find.  Comparisons of start, "end" and PC with numbers find
 * their rows through the table's own index.
 */
#ifndef AGENT_STORE_VTAB_H
#define AGENT_STORE_VTAB_H

struct sqlite3;

int vtab_register(struct sqlite3 *db); /* an SQLite code */

#endif

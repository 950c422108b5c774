/*
 * agent/store/query/vtab.h: the store's unwind tables as virtual tables of SQL.
 *
 *   unwind_rows(OBJECT[, PC])  start, "end", function, cfa_kind, cfa_reg, cfa_offset, fp, ra,
 *                              registers, signal, slow, expression; hidden: words, and
 *                              bytes_read, of the table and ranges since they were opened
 *   unwind_fdes(OBJECT[, PC])  start, "end", size, function, n_rows, n_slow
 *   unwind_gaps(OBJECT[, PC])  start, "end", size, after: code without unwind information
 *
 * A function has its name if the object's symbols are available (stored_symbols), else its address.
 * OBJECT is a key of stored_find(). Comparisons of start, "end" and PC with numbers find their rows
 * through the table's own index.
 */
#ifndef AGENT_STORE_QUERY_VTAB_H
#define AGENT_STORE_QUERY_VTAB_H

struct sqlite3;

/* Register the virtual tables with a connection. Return an SQLite result code. */
int vtab_register(struct sqlite3 *db);

#endif

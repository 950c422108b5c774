/*
 * symbolizer/unread.h: names that stay in their file until they are asked for.
 *
 * The string table of a large library has megabytes, and reading it takes longer
 * than all names of a recording of seconds one by one.
 */
#ifndef SYMBOLIZER_UNREAD_H
#define SYMBOLIZER_UNREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sym_table;
struct sym_unread;
struct uw_view;

/* What else an entry's name says, beside SYM_ENTRY_OPEN; offsets stay below these bits. */
#define SYM_NAME_STUB	((uint32_t)1 << 30) /* SYM_STUB_SUFFIX belongs behind it */
#define SYM_NAME_ARENA	((uint32_t)1 << 29) /* not in the file: in the table's own names */
#define SYM_NAME_SECOND ((uint32_t)1 << 28) /* of the second string table */
#define SYM_UNREAD_MAX	((uint64_t)SYM_NAME_SECOND)
#define SYM_UNREAD_N	2

struct sym_alias {
	uint32_t entry; /* its place in the table */
	uint32_t name;	/* that may be the better one for it; as an entry's */
};

/* fd is copied; the view of it must stay. */
int sym_unread_new(int fd, const struct uw_view *view, struct sym_unread **out);
void sym_unread_free(struct sym_unread *unread); /* NULL is fine */

/*
 * One of SYM_UNREAD_N string tables, which begins with an empty name: size bytes from off on; the
 * same one again is the same.
 * *flag is for names of it.  -E2BIG: too large, or one too many; -EBADMSG: not as it should be.
 */
int sym_unread_add(struct sym_unread *unread, uint64_t off, uint64_t size, uint32_t *flag);

/* While a table is made: what sym_prefer says of two names; whether one marks no function. */
int sym_unread_prefer(struct sym_unread *unread, uint32_t a, uint32_t b, int *order);
int sym_unread_is_marker(struct sym_unread *unread, uint32_t name, bool *is);

/* The i-th entry's name, the best of its aliases', for the table's life.  Any thread may ask. */
int sym_unread_name(const struct sym_table *table, size_t i, const char **out);

#endif

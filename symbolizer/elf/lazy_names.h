/*
 * symbolizer/elf/lazy_names.h: lazy names, which stay in their file until they are looked up.
 *
 * The string table of a large library has megabytes. Reading all of it takes longer than reading
 * one by one all names that a recording of some seconds needs.
 */
#ifndef SYMBOLIZER_ELF_LAZY_NAMES_H
#define SYMBOLIZER_ELF_LAZY_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sym_table;
struct sym_lazy_names;
struct uw_source;

/* Flags in an entry's name, in addition to SYM_ENTRY_OPEN. Offsets are below these bits. */
#define SYM_NAME_STUB	((uint32_t)1 << 30) /* SYM_STUB_SUFFIX must be appended */
#define SYM_NAME_ARENA	((uint32_t)1 << 29) /* not in the file, but in the table's own names */
#define SYM_NAME_SECOND ((uint32_t)1 << 28) /* in the second string table */
#define SYM_LAZY_MAX	((uint64_t)SYM_NAME_SECOND)
#define SYM_LAZY_N	2

struct sym_alias {
	uint32_t entry; /* index in the table */
	uint32_t name;	/* a name that may be better than the entry's; same format */
};

/*
 * Create a reader of lazy names. source is a file, whose descriptor is duplicated; its view must
 * stay as long as the reader.
 */
int sym_lazy_names_new(const struct uw_source *source, struct sym_lazy_names **out);
void sym_lazy_names_free(struct sym_lazy_names *lazy_names); /* NULL is fine */

/*
 * Add a string table of the source, at most SYM_LAZY_N: size bytes at off, beginning with an
 * empty name. Adding the same table again returns the same flag. *flag marks names of this table. -E2BIG:
 * too large, or too many tables; -EBADMSG: damaged.
 */
int sym_lazy_names_add(struct sym_lazy_names *lazy_names, uint64_t off, uint64_t size,
		       uint32_t *flag);

/* Return about how many bytes of memory the names take that were read. Thread-safe. */
size_t sym_lazy_names_memory(struct sym_lazy_names *lazy_names);

/*
 * For use while a table is made: compare two names as sym_prefer does; return whether a name marks
 * no function. -E2BIG: too many names were read already.
 */
int sym_lazy_names_prefer(struct sym_lazy_names *lazy_names, uint32_t a, uint32_t b, int *order);
int sym_lazy_names_is_marker(struct sym_lazy_names *lazy_names, uint32_t name, bool *is);

/*
 * Return the name of entry i, the best one among its aliases. Valid for the table's life.
 * Thread-safe.
 */
int sym_lazy_names_get(const struct sym_table *table, size_t i, const char **out);

#endif

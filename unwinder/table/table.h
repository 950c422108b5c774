/*
 * unwinder/table/table.h: lookups in a compiled table (schema/table_blob.h), which is used in place.
 *
 * Untrusted tables are checked completely before use, or part by part while they are read, so that
 * no lookup can read outside them. Whether their rules are right cannot be checked.
 */
#ifndef UNWINDER_TABLE_TABLE_H
#define UNWINDER_TABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/table_blob.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

struct uw_table {
	const struct table_header *header; /* the blob; borrowed, as are the following */
	const struct uw_arch *arch;
	const struct table_superblock *superblock;
	const uint16_t *block;
	const uint8_t *key;
	const uint16_t *rule_index;	 /* NULL with TABLE_WIDE_INDEX */
	const uint32_t *wide_rule_index; /* NULL without TABLE_WIDE_INDEX */
	const uint64_t *rule;
	const int16_t *ext;
	const uint8_t *slow, *expr;
	uint64_t base, size; /* base is a vaddr, size the bytes of code that the table covers */
	/*
	 * bytes of code for the short way: size, or 0 if unit_shift is not 0 or rule indexes are
	 * wide
	 */
	uint64_t quick;
	uint8_t unit_shift;
	/* For a table that is read while it is needed: */
	struct uw_blob *blob;		       /* borrowed; NULL: all is in memory */
	const struct table_superblock *stored; /* superblock as it is stored */
	/* the same; block is UW_TABLE_ABSENT until the rows are read; owned */
	struct table_superblock *own;
};

/*
 * A value of a superblock's block that cannot be the index of a block: the rows are not read yet.
 */
#define UW_TABLE_ABSENT (TABLE_NO_BLOCK - 2)
/* the rows are damaged and count as outside the table */
#define UW_TABLE_BAD (TABLE_NO_BLOCK - 1)

/*
 * Open and check a whole blob, which must be aligned to 8 and outlive the table. -EBADMSG: it is
 * not a table, is damaged, or has an offset that points outside. -ENOTSUP: it has another version
 * or machine.
 */
int uw_table_open(struct uw_table *table, const void *blob, size_t size);

/*
 * Do the same without checks, for a blob that this process made or has checked, and that has not
 * changed since.
 */
void uw_table_trust(struct uw_table *table, const void *blob);

/*
 * Do the same with a blob that is read while it is needed, and that outlives the table. Errors are
 * those of uw_table_open, and -ENOMEM.
 */
int uw_table_open_stored(struct uw_table *table, struct uw_blob *blob);
/* Free what the table owns; for any of the three. */
void uw_table_fini(struct uw_table *table);
/* Make sure that lookups in this superblock are possible. Return its block, or UW_TABLE_BAD. */
uint32_t uw_table_bring(const struct uw_table *table, uint32_t superblock);

#define UW_TABLE_NO_ROW UINT32_MAX

/*
 * Return the row that covers vaddr; UW_TABLE_NO_ROW: none does. The portable variant uses no
 * vectors and gives the same rows.
 */
uint32_t uw_table_row(const struct uw_table *table, uint64_t vaddr);
uint32_t uw_table_row_portable(const struct uw_table *table, uint64_t vaddr);

/*
 * Return the packed rule at vaddr, and its number in *rule. If the table has no rule, the
 * rule's kind is TABLE_NONE, and *rule may be unset.
 */
uint64_t uw_table_packed(const struct uw_table *table, uint64_t vaddr, uint32_t *rule);

/* Return where a rule saves the other registers. */
static inline const int16_t *uw_table_ext(const struct uw_table *table, uint32_t rule)
{
	return table->ext + (size_t)rule * table->arch->ext_slots;
}

/*
 * Return whether the rows around vaddr rule out a signal trampoline: vaddr does not lie in padding
 * that a trampoline fits in. Unless exact, it also does not lie in any padding or where a procedure
 * ends. The rule must not be a signal frame's. False means that one of these may be the case.
 */
bool uw_table_inside(const struct uw_table *table, uint64_t vaddr, bool exact);

/* Return the packed rule at vaddr, and the result of uw_table_inside in *inside. */
uint64_t uw_table_look(const struct uw_table *table, uint64_t vaddr, bool exact, bool *inside);

/*
 * Look up the rule at vaddr. Expressions are borrowed from the blob. -ENOENT: the file must be
 * read.
 */
int uw_table_rule(const struct uw_table *table, uint64_t vaddr, struct uw_rule *out);

#endif

/*
 * unwinder/table.h: look-ups in a compiled table (schema/table.h), in place.
 *
 * Foreign tables are checked whole before use, so that no look-up in one can
 * read outside it; that its rules are true nobody can know.
 */
#ifndef UNWINDER_TABLE_H
#define UNWINDER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/table.h"
#include "unwinder/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

struct uw_table {
	const struct table_header *header; /* the blob; borrowed, as are the next */
	const struct uw_arch *arch;
	const struct table_sup *sup;
	const uint16_t *blk;
	const uint8_t *key;
	const uint16_t *rid;  /* or NULL … */
	const uint32_t *rid4; /* … with TABLE_WIDE_RID */
	const uint64_t *rule;
	const int16_t *ext;
	const uint8_t *slow, *expr;
	uint64_t base, size; /* of the code it speaks of */
	uint64_t quick;	     /* of the code that is looked up the short way: size, or 0 where */
	uint8_t unit_shift;  /* … this is not 0, or rids are wide */
	/* Of one that is read as it is needed: */
	struct uw_blob *blob;	      /* borrowed; NULL: all of it is there */
	const struct table_sup *kept; /* sup as it was kept */
	struct table_sup *own;	      /* sup, blk UW_TABLE_ABSENT until its rows are there; owned */
};

/* In blk of a sup, where no index of a block can be. */
#define UW_TABLE_ABSENT (TABLE_NO_BLOCK - 2)
#define UW_TABLE_BAD	(TABLE_NO_BLOCK - 1) /* its rows are damaged: as if they were outside */

/*
 * The blob begins at a multiple of 8 and outlives the table.  -EBADMSG not a
 * table, damaged, or something in it points outside it; -ENOTSUP of another
 * version or machine.
 */
int uw_table_open(struct uw_table *table, const void *blob, size_t size);

/* The same for a blob that was made or opened in this process, which nobody has touched since. */
void uw_table_trust(struct uw_table *table, const void *blob);

/* Of a blob that is read as it is needed, which outlives the table; fails as uw_table_open does. */
int uw_table_open_kept(struct uw_table *table, struct uw_blob *blob);
void uw_table_fini(struct uw_table *table); /* of any; frees what it owns */
/* Sees to it that look-ups in a sup can be made; its blk, or UW_TABLE_BAD. */
uint32_t uw_table_bring(const struct uw_table *table, uint32_t sup);

#define UW_TABLE_NO_ROW UINT32_MAX

/* The row that holds at vaddr, UW_TABLE_NO_ROW outside all; the same with vectors and without. */
uint32_t uw_table_row(const struct uw_table *table, uint64_t vaddr);
uint32_t uw_table_row_portable(const struct uw_table *table, uint64_t vaddr);

/* Its rule word, kind TABLE_NONE where the table has no answer; else *rule: its number. */
uint64_t uw_table_word(const struct uw_table *table, uint64_t vaddr, uint32_t *rule);

/* Of a rule: where the other registers are saved. */
static inline const int16_t *uw_table_ext(const struct uw_table *table, uint32_t rule)
{
	return table->ext + (size_t)rule * table->arch->ext_slots;
}

/*
 * By the rows around vaddr: it lies neither in padding that a signal trampoline fits in nor,
 * unless exact, in any or where a procedure ends, and its rule is no signal frame's.
 * False: perhaps it does, or is.
 */
bool uw_table_inside(const struct uw_table *table, uint64_t vaddr, bool exact);

/* The rule word at vaddr, and that. */
uint64_t uw_table_look(const struct uw_table *table, uint64_t vaddr, bool exact, bool *inside);

/* The rule at vaddr; -ENOENT: ask the file.  Expressions are borrowed from the blob. */
int uw_table_rule(const struct uw_table *table, uint64_t vaddr, struct uw_rule *out);

#endif

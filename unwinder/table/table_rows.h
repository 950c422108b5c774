/*
 * unwinder/table/table_rows.h: the rows and rules of a table that is being made.
 *
 * Rules are packed, with their ext (schema/table_blob.h), each stored once. A rule that no packed
 * rule can express becomes a record. Rows refer to rules by number.
 */
#ifndef UNWINDER_TABLE_TABLE_ROWS_H
#define UNWINDER_TABLE_TABLE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule.h"
#include "unwinder/table/row.h"

#define UW_RULE_NONE 0u /* the number of the rule TABLE_NONE */

struct uw_table_row {
	uint32_t unit, rule;
};

/* Byte strings in one buffer, each stored once. */
struct uw_pool {
	uint8_t *data;
	size_t size, room;
	struct uw_span {
		uint32_t off, size;
	} * spans;
	size_t n_spans, room_spans;
	struct uw_hash_index index; /* of spans */
};

struct uw_table_rows {
	const struct uw_arch *arch;
	struct uw_table_row *rows; /* owned, as are the other arrays; sorted by unit */
	size_t n_rows, room_rows;
	struct uw_row *rules;
	size_t n_rules, room_rules;
	struct uw_hash_index index; /* of rules */
	uint32_t begun[2];	    /* a rule, and the same rule with TABLE_RULE_BEGINS */
	struct uw_pool slow, expr;
	int err; /* the first error, such as -ENOMEM; then there will be no table */
};

void uw_table_rows_init(struct uw_table_rows *rows, const struct uw_arch *arch);
void uw_table_rows_fini(struct uw_table_rows *rows);

/* Record an error, unless there was one before. */
void uw_table_rows_fail(struct uw_table_rows *rows, int err);

/* Make room for `more` elements in an array of n. False: no memory, and rows has failed. */
bool uw_table_rows_grow(struct uw_table_rows *rows, void *array, size_t n, size_t more,
			size_t *room, size_t width);

/* Return a rule's number; a new rule gets the next one. UW_RULE_NONE after a failure. */
uint32_t uw_table_rows_intern(struct uw_table_rows *rows, const struct uw_row *rule);

/* Do the same for any rule: as a packed rule, or as a record if no packed rule can express it. */
uint32_t uw_table_rows_rule(struct uw_table_rows *rows, const struct uw_rule *rule);

/*
 * Mark that a procedure begins at unit. Its rows have been put; the first of them is at index
 * `from` or after. reported: the procedure gets a row of its own, even if its rule is the same as
 * before.
 */
void uw_table_rows_begin(struct uw_table_rows *rows, uint32_t unit, size_t from, bool reported);

/* Make room for so many calls of uw_table_rows_put. */
static inline bool uw_table_rows_reserve(struct uw_table_rows *rows, size_t more)
{
	return more <= rows->room_rows - rows->n_rows ||
	       uw_table_rows_grow(rows, &rows->rows, rows->n_rows, more, &rows->room_rows,
				  sizeof(*rows->rows));
}

/*
 * Let this rule hold from unit on. Calls must come in the order of units; a second row for the same
 * unit replaces the first. The caller has made room.
 */
static inline void uw_table_rows_put(struct uw_table_rows *rows, uint32_t unit, uint32_t rule)
{
	struct uw_table_row *at = rows->rows + rows->n_rows;

	if (rows->n_rows && at[-1].unit == unit) {
		at--;
		rows->n_rows--;
	}
	if (rows->n_rows && at[-1].rule == rule)
		return;
	*at = (struct uw_table_row){ .unit = unit, .rule = rule };
	rows->n_rows++;
}

#endif

/*
 * unwinder/table_rows.h: the rows and rules of a table in the making.
 *
 * Rules are words with their ext (schema/table.h), each kept once; what no word
 * can say is a record, and rows name rules by number.
 */
#ifndef UNWINDER_TABLE_ROWS_H
#define UNWINDER_TABLE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/row.h"
#include "unwinder/rule.h"

#define UW_RULE_NONE 0u /* the number of the rule that is no answer */

struct uw_table_row {
	uint32_t unit, rule;
};

/* Byte strings one after the other, each there once. */
struct uw_pool {
	uint8_t *data;
	size_t size, room;
	struct uw_span {
		uint32_t off, size;
	} * spans;
	size_t n_spans, room_spans;
	uint32_t *hash; /* index in spans + 1 */
	size_t n_hash;
};

struct uw_rows {
	const struct uw_arch *arch;
	struct uw_table_row *rows; /* owned, as are the next; by unit */
	size_t n_rows, room_rows;
	struct uw_row *rules;
	size_t n_rules, room_rules;
	uint32_t *hash; /* of rules: index + 1 */
	size_t n_hash;
	uint32_t begun[2]; /* a rule, and that with TABLE_WORD_BEGINS */
	struct uw_pool slow, expr;
	int err; /* the first -ENOMEM or -ENOTSUP: there will be no table */
};

void uw_rows_init(struct uw_rows *rows, const struct uw_arch *arch);
void uw_rows_fini(struct uw_rows *rows);

void uw_rows_fail(struct uw_rows *rows, int err);

/* Room for more elements of an array; false: no memory, and rows has failed. */
bool uw_rows_grow(struct uw_rows *rows, void *array, size_t n, size_t more, size_t *room,
		  size_t width);

/* A rule's number; UW_RULE_NONE after a failure. */
uint32_t uw_rows_intern(struct uw_rows *rows, const struct uw_row *rule);

/* … of any rule: as a word, or as a record where no word can say it. */
uint32_t uw_rows_rule(struct uw_rows *rows, const struct uw_rule *rule);

/*
 * A procedure begins at unit; its rows have been put, the first of them is from or behind
 * it.  told: by a row of its own, whatever it says.
 */
void uw_rows_begin(struct uw_rows *rows, uint32_t unit, size_t from, bool told);

/* Room for so many uw_rows_put. */
static inline bool uw_rows_reserve(struct uw_rows *rows, size_t more)
{
	return more <= rows->room_rows - rows->n_rows ||
	       uw_rows_grow(rows, &rows->rows, rows->n_rows, more, &rows->room_rows,
			    sizeof(*rows->rows));
}

/*
 * From unit on this rule holds.  Units come in order, and a second row of the
 * same replaces the first.  There is room.
 */
static inline void uw_rows_put(struct uw_rows *rows, uint32_t unit, uint32_t rule)
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

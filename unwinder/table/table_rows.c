/*
 * unwinder/table/table_rows.c: collects the rows and rules of a table that is being made, each rule once.
 */
#include "unwinder/table/table_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/growth.h"
#include "schema/table_blob.h"

#define SLOW_MAX  (16u << 20) /* bytes of records; real files have kilobytes */
#define RULES_MAX (1u << 20)  /* real files have thousands */

void uw_table_rows_fail(struct uw_table_rows *rows, int err)
{
	if (!rows->err)
		rows->err = err;
}

bool uw_table_rows_grow(struct uw_table_rows *rows, void *array, size_t n, size_t more,
			size_t *room, size_t width)
{
	int err = uw_array_reserve(array, n + more, room, width, SIZE_MAX);

	if (err)
		uw_table_rows_fail(rows, err);
	return !err;
}

/* ---- rules, each stored once ----------------------------------------------------------- */

/* Hash the parts of a rule that equal() compares. */
static uint32_t hash_of(const struct uw_table_rows *rows, const struct uw_row *rule)
{
	uint64_t hash = rule->packed * 0x9e3779b97f4a7c15u, part;

	for (unsigned int i = 0; i < rows->arch->ext_slots; i += 4) {
		memcpy(&part, rule->ext + i, 8);
		hash = (hash ^ hash >> 31 ^ part) * 0xff51afd7ed558ccdu;
	}
	return (uint32_t)(hash >> 32);
}

static bool equal(const struct uw_table_rows *rows, const struct uw_row *a, const struct uw_row *b)
{
	return a->packed == b->packed &&
	       !memcmp(a->ext, b->ext, rows->arch->ext_slots * sizeof(*a->ext));
}

/* Add an element to an index. False: no memory, and rows has failed. */
static bool add_to(struct uw_table_rows *rows, struct uw_hash_index *index, uint64_t hash, size_t n)
{
	int err = uw_hash_add(index, hash, (uint32_t)n);

	if (err)
		uw_table_rows_fail(rows, err);
	return !err;
}

uint32_t uw_table_rows_intern(struct uw_table_rows *rows, const struct uw_row *rule)
{
	uint32_t hash = hash_of(rows, rule);
	uint32_t found = UW_HASH_FIND(i, &rows->index, hash, equal(rows, &rows->rules[i], rule));

	if (found != UW_HASH_NONE)
		return found;
	if (rows->n_rules == RULES_MAX) {
		uw_table_rows_fail(rows, -ENOTSUP);
		return UW_RULE_NONE;
	}
	if (!uw_table_rows_grow(rows, &rows->rules, rows->n_rules, 1, &rows->room_rules,
				sizeof(*rows->rules)) ||
	    !add_to(rows, &rows->index, hash, rows->n_rules))
		return UW_RULE_NONE;
	rows->rules[rows->n_rules] = *rule;
	return (uint32_t)rows->n_rules++;
}

/* Make the rule with TABLE_RULE_BEGINS, and store the pair in begun. */
static __attribute__((noinline)) void begin_rule(struct uw_table_rows *rows, uint32_t rule)
{
	struct uw_row row = rows->rules[rule];

	row.packed |= TABLE_RULE_BEGINS;
	rows->begun[0] = rule;
	rows->begun[1] = uw_table_rows_intern(rows, &row);
}

/* Return the same rule with TABLE_RULE_BEGINS set. */
static inline uint32_t rule_begun(struct uw_table_rows *rows, uint32_t rule)
{
	if (rule == UW_RULE_NONE)
		return rule;
	if (rows->begun[0] != rule) /* most procedures begin with the same rule */
		begin_rule(rows, rule);
	return rows->begun[1];
}

void uw_table_rows_begin(struct uw_table_rows *rows, uint32_t unit, size_t from, bool reported)
{
	uint32_t before, first;
	size_t i = from;
	bool own;

	while (i < rows->n_rows && rows->rows[i].unit < unit)
		i++;
	own = i < rows->n_rows && rows->rows[i].unit == unit;
	before = i ? rows->rows[i - 1].rule : UW_RULE_NONE;
	first = rule_begun(rows, own ? rows->rows[i].rule : before);
	/*
	 * A row at unit differs from the one before it; with TABLE_RULE_BEGINS set, the two may be
	 * equal.
	 */
	if (!reported && (!own || first == before) &&
	    uw_packed_is_entry(rows->arch, rows->rules[first].packed)) {
		if (own)
			memmove(rows->rows + i, rows->rows + i + 1,
				(--rows->n_rows - i) * sizeof(*rows->rows));
		return;
	}
	if (first == UW_RULE_NONE || (!own && !uw_table_rows_reserve(rows, 1)))
		return;
	if (!own)
		memmove(rows->rows + i + 1, rows->rows + i,
			(rows->n_rows++ - i) * sizeof(*rows->rows));
	rows->rows[i] = (struct uw_table_row){ .unit = unit, .rule = first };
}

static void clear_ext(struct uw_row *rule)
{
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		rule->ext[i] = TABLE_SAME;
}

/* ---- records ------------------------------------------------------------------------------- */

/*
 * Return the offset of the bytes in the pool, where they are added if they are new. 0: failure, or
 * size is 0.
 */
static uint32_t pool_intern(struct uw_table_rows *rows, struct uw_pool *pool, const void *data,
			    size_t size)
{
	uint64_t hash = uw_checksum(data, size, 0);
	uint32_t found = UW_HASH_FIND(i, &pool->index, hash,
				      pool->spans[i].size == size &&
					      !memcmp(pool->data + pool->spans[i].off, data, size));
	struct uw_span *e;

	if (!size)
		return 0;
	if (found != UW_HASH_NONE)
		return pool->spans[found].off;
	if (!uw_table_rows_grow(rows, &pool->spans, pool->n_spans, 1, &pool->room_spans,
				sizeof(*pool->spans)) ||
	    !uw_table_rows_grow(rows, &pool->data, pool->size, size, &pool->room, 1) ||
	    !add_to(rows, &pool->index, hash, pool->n_spans))
		return 0;
	e = &pool->spans[pool->n_spans++];
	*e = (struct uw_span){ .off = (uint32_t)pool->size, .size = (uint32_t)size };
	memcpy(pool->data + pool->size, data, size);
	pool->size += size;
	return e->off;
}

static void pool_fini(struct uw_pool *pool)
{
	free(pool->data);
	free(pool->spans);
	uw_hash_fini(&pool->index);
}

static const uint8_t reg_kinds[] = {
	[UW_RULE_SAME] = TABLE_REG_SAME,	 [UW_RULE_UNDEFINED] = TABLE_REG_UNDEFINED,
	[UW_RULE_AT_CFA] = TABLE_REG_AT_CFA,	 [UW_RULE_CFA_PLUS] = TABLE_REG_CFA_PLUS,
	[UW_RULE_REGISTER] = TABLE_REG_REGISTER, [UW_RULE_AT_EXPR] = TABLE_REG_AT_EXPR,
	[UW_RULE_EXPR] = TABLE_REG_EXPR,
};

/*
 * Store a rule as a record and return its packed rule. TABLE_NONE: there are too many bytes of
 * records.
 */
static uint64_t pack_slow(struct uw_table_rows *rows, const struct uw_rule *rule)
{
	struct table_slow slow = { .cfa_size = rule->cfa_size,
				   .cfa_reg = rule->cfa_reg,
				   .ra = rule->ra,
				   .n_regs = rule->n_regs };
	uint8_t record[sizeof(slow) + UW_REGS_MAX * sizeof(struct table_reg)];
	size_t size = sizeof(slow) + rule->n_regs * sizeof(struct table_reg);

	if (rows->slow.size + size > SLOW_MAX || rows->expr.size > SLOW_MAX)
		return TABLE_NONE;
	slow.cfa_off = rule->cfa_size
			       ? pool_intern(rows, &rows->expr, rule->cfa_expr, rule->cfa_size)
			       : rule->cfa_off;
	slow.flags = (uint8_t)((rule->signal ? TABLE_RULE_SIGNAL : 0) |
			       (rule->ra_signed ? TABLE_RULE_SIGNED : 0));
	memcpy(record, &slow, sizeof(slow));
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];
		bool expr = r->kind == UW_RULE_AT_EXPR || r->kind == UW_RULE_EXPR;
		struct table_reg reg = {
			.off = expr ? pool_intern(rows, &rows->expr, r->expr, r->size) : r->off,
			.size = expr ? r->size : 0,
			.reg = r->reg,
			.kind = reg_kinds[r->kind],
			.from = r->from
		};

		memcpy(record + sizeof(slow) + i * sizeof(reg), &reg, sizeof(reg));
	}
	return TABLE_SLOW | (uint64_t)pool_intern(rows, &rows->slow, record, size) << 32;
}

uint32_t uw_table_rows_rule(struct uw_table_rows *rows, const struct uw_rule *rule)
{
	struct uw_row row;

	/* These rules come from the code, not from tables. */
	if (rule->signal && rows->arch->sigcontext_first)
		return UW_RULE_NONE;
	if (uw_row_of(rows->arch, rule, &row)) {
		clear_ext(&row);
		row.packed = pack_slow(rows, rule);
	}
	return uw_table_rows_intern(rows, &row);
}

/* ---- the whole ----------------------------------------------------------------------------- */

void uw_table_rows_init(struct uw_table_rows *rows, const struct uw_arch *arch)
{
	struct uw_row none = { .packed = TABLE_NONE };

	*rows = (struct uw_table_rows){ .arch = arch };
	clear_ext(&none);
	(void)uw_table_rows_intern(rows, &none); /* it gets the number UW_RULE_NONE */
}

void uw_table_rows_fini(struct uw_table_rows *rows)
{
	free(rows->rows);
	free(rows->rules);
	uw_hash_fini(&rows->index);
	pool_fini(&rows->slow);
	pool_fini(&rows->expr);
}

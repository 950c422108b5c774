/* unwinder/table/rows.c: inspects a compiled table and its procedures, with rules as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growth.h"
#include "unwinder/cfi/expr_text.h"
#include "unwinder/table/procs.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table.h"

#define TEXT_MAX 4096 /* of one expression */

/* One rule as text, once it was needed. */
struct described {
	bool done;
	struct uw_row_info info; /* without start and end */
	char *texts;		 /* owned; the strings of info, one after the other */
};

struct uw_rows {
	bool has_table, has_procs;
	struct uw_table table;
	struct uw_procs procs;
	struct uw_blob *stored[2];   /* of table and procs; owned; NULL: the caller's whole blobs */
	struct described *described; /* one for each rule */
	/* The block that was used last: rows [first, past) begin in it. */
	size_t first, past;
	uint64_t block_unit;
	size_t next;	     /* index after the row that was described last; 0: none was */
	uint64_t next_start; /* where that row ended, which is where row `next` begins */
};

/* Finish opening rows, after which err is the result so far. Takes over rows; NULL is allowed. */
static int finish_open(struct uw_rows *rows, int err, struct uw_rows **out)
{
	if (!err) {
		size_t n = rows->has_table ? rows->table.header->n_rules : 0;

		rows->described = calloc(n ? n : 1, sizeof(*rows->described));
		err = rows->described ? 0 : -ENOMEM;
	}
	if (err) {
		uw_rows_free(rows);
		return err;
	}
	*out = rows;
	return 0;
}

int uw_rows_open(const void *table, size_t size, const void *procs, size_t procs_size,
		 struct uw_rows **out)
{
	struct uw_rows *rows = calloc(1, sizeof(*rows));
	int err = 0;

	if (!rows)
		return -ENOMEM;
	if (table) {
		err = uw_table_open(&rows->table, table, size);
		rows->has_table = !err;
	}
	if (!err && procs) {
		err = uw_procs_open(&rows->procs, procs, procs_size);
		rows->has_procs = !err;
	}
	return finish_open(rows, err, out);
}

static void release(const struct uw_blob_source *stored)
{
	if (stored && stored->release)
		stored->release(stored->ctx);
}

/* Each of the two is taken over or released exactly once, also after the other has failed. */
int uw_rows_open_stored(const struct uw_blob_source *table, const struct uw_blob_source *procs,
			struct uw_rows **out)
{
	struct uw_rows *rows = calloc(1, sizeof(*rows));
	int err = rows ? 0 : -ENOMEM;

	if (!err && table)
		err = uw_blob_open(table, TABLE_MAGIC, &rows->stored[0]);
	else
		release(table);
	if (!err && procs)
		err = uw_blob_open(procs, PROCS_MAGIC, &rows->stored[1]);
	else
		release(procs);
	if (!err && table) {
		err = uw_table_open_stored(&rows->table, rows->stored[0]);
		rows->has_table = !err;
	}
	if (!err && procs) {
		err = uw_procs_open_stored(&rows->procs, rows->stored[1]);
		rows->has_procs = !err;
	}
	return finish_open(rows, err, out);
}

void uw_rows_free(struct uw_rows *rows)
{
	if (!rows)
		return;
	for (size_t i = 0; rows->described && rows->has_table && i < rows->table.header->n_rules;
	     i++)
		free(rows->described[i].texts);
	free(rows->described);
	uw_table_fini(&rows->table);
	uw_blob_free(rows->stored[0]);
	uw_blob_free(rows->stored[1]);
	free(rows);
}

const void *uw_rows_table(const struct uw_rows *rows, size_t *size)
{
	*size = rows->has_table ? rows->table.header->blob.size : 0;
	return rows->has_table ? rows->table.header : NULL;
}

const void *uw_rows_ranges(const struct uw_rows *rows, size_t *size)
{
	*size = rows->has_procs ? rows->procs.header->blob.size : 0;
	return rows->has_procs ? rows->procs.header : NULL;
}

/* Check everything, as uw_rows_open does for blobs that are given whole. */
int uw_rows_whole(struct uw_rows *rows)
{
	struct uw_table table;
	struct uw_procs procs;
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		if (rows->stored[i])
			err = uw_blob_whole(rows->stored[i]);
	if (!err && rows->stored[0])
		err = uw_table_open(&table, uw_blob_bytes(rows->stored[0]),
				    uw_blob_size(rows->stored[0]));
	if (!err && rows->stored[1])
		err = uw_procs_open(&procs, uw_blob_bytes(rows->stored[1]),
				    uw_blob_size(rows->stored[1]));
	return err;
}

uint64_t uw_rows_read(struct uw_rows *rows)
{
	return (rows->stored[0] ? uw_blob_read(rows->stored[0]) : 0) +
	       (rows->stored[1] ? uw_blob_read(rows->stored[1]) : 0);
}

/* ---- rules as text ------------------------------------------------------------------ */

/* A string that grows; NUL-terminated. */
struct text {
	char *bytes;
	size_t size, room;
	bool failed;
};

static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Append formatted text. If memory is short, failed is set and the text stays as it is. */
static void say(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	if (UW_ARRAY_RESERVE(t->bytes, t->size + TEXT_MAX + 256, t->room, SIZE_MAX)) {
		t->failed = true;
		return;
	}
	va_start(args, format);
	n = vsnprintf(t->bytes + t->size, t->room - t->size, format, args);
	va_end(args);
	if (n > 0)
		t->size += (size_t)n;
}

/* End one of several strings in t, and return where it begins; the next begins after it. */
static size_t next_text(struct text *t, size_t *from)
{
	size_t began = *from;

	say(t, "%s", "");
	if (!t->failed)
		t->bytes[t->size++] = '\0';
	*from = t->size;
	return began;
}

/* Append where a register is saved, in readelf's notation. */
static void say_place(struct text *t, uint16_t machine, const struct uw_reg_rule *r)
{
	switch (r->kind) {
	case UW_RULE_UNDEFINED:
		say(t, "u");
		return;
	case UW_RULE_AT_CFA:
		say(t, "c%+" PRId64, r->off);
		return;
	case UW_RULE_CFA_PLUS:
		say(t, "v%+" PRId64, r->off);
		return;
	case UW_RULE_REGISTER:
		say(t, "%s", uw_reg_name(machine, r->from));
		return;
	case UW_RULE_AT_EXPR:
	case UW_RULE_AT_REG:
		say(t, "exp");
		return;
	case UW_RULE_EXPR:
		say(t, "vexp");
		return;
	default:
		say(t, "s");
	}
}

/* Append base + off. */
static void say_offset(struct text *t, const char *base, int64_t off)
{
	say(t, off ? "%s %c %" PRIu64 : "%s", base, off < 0 ? '-' : '+',
	    off < 0 ? -(uint64_t)off : (uint64_t)off);
}

static void say_expression(struct text *t, uint16_t machine, const uint8_t *expr, size_t size)
{
	char text[TEXT_MAX];

	uw_expr_text(machine, expr, size, text, sizeof(text));
	say(t, "%s", text);
}

/* Return whether the CFA was an expression in the file, also one that tables have a word for. */
static bool is_cfa_expression(const struct uw_rule *rule)
{
	return rule->cfa_size || rule->cfa_kind != UW_CFA_PLAIN;
}

static void say_breg(struct text *t, uint16_t machine, unsigned int reg, int64_t off)
{
	say(t, "DW_OP_breg%u (%s): %" PRId64, reg, uw_reg_name(machine, reg), off);
}

/*
 * Append the CFA's expression. Those that tables have words for are shown as compilers and linkers
 * write them.
 */
static void say_cfa_expression(struct text *t, const struct uw_arch *arch,
			       const struct uw_rule *rule)
{
	if (rule->cfa_size) {
		say_expression(t, arch->machine, rule->cfa_expr, rule->cfa_size);
		return;
	}
	say_breg(t, arch->machine, rule->cfa_reg, rule->cfa_off);
	if (rule->cfa_kind == UW_CFA_DEREF) {
		say(t, "; DW_OP_deref");
		if (rule->cfa_add)
			say(t, "; DW_OP_plus_uconst: %" PRId32, rule->cfa_add);
		return;
	}
	say(t, "; ");
	say_breg(t, arch->machine, arch->pc, 0);
	say(t,
	    "; DW_OP_lit%u; DW_OP_and; DW_OP_lit%u; DW_OP_ge; DW_OP_lit%u; DW_OP_shl; DW_OP_plus",
	    rule->plt.mask, rule->plt.least, rule->plt.shift);
}

static void say_reg_expression(struct text *t, uint16_t machine, const struct uw_reg_rule *r)
{
	if (r->kind == UW_RULE_AT_REG)
		say_breg(t, machine, r->from, r->off);
	else
		say_expression(t, machine, r->expr, r->size);
}

/* Append where a register is saved, in words. */
static void say_text_of(struct text *t, uint16_t machine, const char *name,
			const struct uw_reg_rule *r)
{
	say(t, ", %s ", name);
	switch (r->kind) {
	case UW_RULE_UNDEFINED:
		say(t, "undefined");
		return;
	case UW_RULE_AT_CFA:
		say_offset(t, "at CFA", r->off);
		return;
	case UW_RULE_CFA_PLUS:
		say_offset(t, "is CFA", r->off);
		return;
	case UW_RULE_REGISTER:
		say(t, "in %s", uw_reg_name(machine, r->from));
		return;
	case UW_RULE_AT_REG:
		say(t, "at ");
		say_offset(t, uw_reg_name(machine, r->from), r->off);
		return;
	case UW_RULE_AT_EXPR:
	case UW_RULE_EXPR:
		say(t, r->kind == UW_RULE_EXPR ? "is (" : "at (");
		say_expression(t, machine, r->expr, r->size);
		say(t, ")");
		return;
	default:
		say(t, "the same");
	}
}

/* Append the whole rule in words. */
static void say_text(struct text *t, const struct uw_arch *arch, const struct uw_rule *rule)
{
	const struct uw_reg_rule *ra = uw_rule_reg(rule, rule->ra);
	uint16_t machine = arch->machine;

	say(t, rule->cfa_kind == UW_CFA_DEREF ? "CFA = *(" : "CFA = ");
	if (rule->cfa_size)
		say_expression(t, machine, rule->cfa_expr, rule->cfa_size);
	else
		say_offset(t, uw_reg_name(machine, rule->cfa_reg), rule->cfa_off);
	if (rule->cfa_kind == UW_CFA_DEREF)
		say_offset(t, ")", rule->cfa_add);
	else if (rule->cfa_kind == UW_CFA_PLT)
		say(t, " (%u more where %s & %u >= %u)", 1u << rule->plt.shift,
		    uw_reg_name(machine, arch->pc), rule->plt.mask, rule->plt.least);
	if (ra)
		say_text_of(t, machine, "return address", ra);
	else
		say(t, ", return address in %s", uw_reg_name(machine, rule->ra));
	for (unsigned int i = 0; i < rule->n_regs; i++)
		if (&rule->regs[i] != ra)
			say_text_of(t, machine, uw_reg_name(machine, rule->regs[i].reg),
				    &rule->regs[i]);
	if (rule->ra_signed)
		say(t, ", return address signed");
	if (rule->signal)
		say(t, ", signal frame");
}

/* Append all expressions of the rule. */
static void say_expressions(struct text *t, const struct uw_arch *arch, const struct uw_rule *rule)
{
	const char *between = "";

	if (is_cfa_expression(rule)) {
		say(t, "cfa: ");
		say_cfa_expression(t, arch, rule);
		between = "; ";
	}
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];

		if (r->kind != UW_RULE_AT_EXPR && r->kind != UW_RULE_EXPR &&
		    r->kind != UW_RULE_AT_REG)
			continue;
		say(t, "%s%s: ", between, uw_reg_name(arch->machine, r->reg));
		say_reg_expression(t, arch->machine, r);
		between = "; ";
	}
}

/* Make all strings of a rule. -ENOMEM. */
static int describe(const struct uw_arch *arch, const struct uw_rule *rule, struct described *out)
{
	struct uw_row_info *info = &out->info;
	const struct uw_reg_rule *fp = uw_rule_reg(rule, arch->fp), *ra;
	struct text t = { .size = 0 };
	size_t from = 0, at_fp, at_ra, at_others, at_expressions, at_text;
	const char *between = "";

	ra = uw_rule_reg(rule, rule->ra);
	if (fp)
		say_place(&t, arch->machine, fp);
	at_fp = next_text(&t, &from);
	if (ra)
		say_place(&t, arch->machine, ra);
	at_ra = next_text(&t, &from);
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];

		if (r == fp || r == ra)
			continue;
		say(&t, "%s%s=", between, uw_reg_name(arch->machine, r->reg));
		say_place(&t, arch->machine, r);
		between = " ";
	}
	at_others = next_text(&t, &from);
	say_expressions(&t, arch, rule);
	at_expressions = next_text(&t, &from);
	say_text(&t, arch, rule);
	at_text = next_text(&t, &from);
	if (t.failed) {
		free(t.bytes);
		return -ENOMEM;
	}
	info->fp = t.bytes + at_fp;
	info->ra = t.bytes + at_ra;
	info->others = t.bytes + at_others;
	info->expressions = t.bytes + at_expressions;
	info->text = t.bytes + at_text;
	info->cfa_kind = is_cfa_expression(rule)     ? "expression"
			 : rule->cfa_reg == arch->sp ? "sp"
			 : rule->cfa_reg == arch->fp ? "fp"
						     : "register";
	info->cfa_reg = is_cfa_expression(rule) ? NULL : uw_reg_name(arch->machine, rule->cfa_reg);
	info->cfa_off = is_cfa_expression(rule) ? 0 : rule->cfa_off;
	info->signal = rule->signal;
	info->ra_signed = rule->ra_signed;
	out->texts = t.bytes;
	out->done = true;
	return 0;
}

/* ---- rows ----------------------------------------------------------------------------- */

size_t uw_rows_count(const struct uw_rows *rows)
{
	return rows->has_table ? rows->table.header->n_rows : 0;
}

int uw_rows_find(struct uw_rows *rows, uint64_t vaddr, size_t *i)
{
	const struct table_header *h = rows->table.header;
	uint64_t unit;
	uint32_t row;

	if (!rows->has_table || vaddr < h->base)
		return -ENOENT;
	unit = (vaddr - h->base) >> h->unit_shift;
	if (unit >= h->span)
		return -ENOENT;
	if (uw_table_bring(&rows->table, (uint32_t)(unit / TABLE_SUPERBLOCK_UNITS)) == UW_TABLE_BAD)
		return -EBADMSG;
	row = uw_table_row(&rows->table, vaddr);
	if (row == UW_TABLE_NO_ROW)
		return -ENOENT;
	*i = row;
	return 0;
}

/*
 * Make the block that row i begins in the current one. -EBADMSG: that part of the table is damaged.
 */
static int seek(struct uw_rows *rows, size_t i)
{
	const struct uw_table *t = &rows->table;
	const struct table_superblock *superblocks = t->stored ? t->stored : t->superblock;
	uint32_t low = 0, high = t->header->n_superblocks, within, at;
	const uint16_t *block;

	/*
	 * Find the last superblock whose first row is not after i. Superblocks without rows come
	 * before it.
	 */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (superblocks[middle].row <= i)
			low = middle;
		else
			high = middle;
	}
	while (low && superblocks[low].block == TABLE_NO_BLOCK)
		low--;
	at = uw_table_bring(t, low);
	if (at >= UW_TABLE_ABSENT)
		return -EBADMSG;
	block = &t->block[at];
	within = (uint32_t)i - superblocks[low].row;
	rows->block_unit = (uint64_t)low * TABLE_SUPERBLOCK_UNITS;
	low = 0;
	high = TABLE_SUPERBLOCK_BLOCKS - 1;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (block[middle] <= within)
			low = middle;
		else
			high = middle;
	}
	rows->first = i - within + block[low];
	rows->past = i - within + block[low + 1];
	rows->block_unit += (uint64_t)low * TABLE_BLOCK_UNITS;
	return 0;
}

/* Return where row i begins; for the index after the last row, where the table ends. */
static int start_of(struct uw_rows *rows, size_t i, uint64_t *start)
{
	const struct table_header *h = rows->table.header;
	int err;

	if (i >= h->n_rows) {
		*start = h->base + ((uint64_t)h->span << h->unit_shift);
		return 0;
	}
	if (i < rows->first || i >= rows->past) {
		err = seek(rows, i);
		if (err)
			return err;
	}
	*start = h->base + ((rows->block_unit + rows->table.key[i]) << h->unit_shift);
	return 0;
}

int uw_rows_at(struct uw_rows *rows, size_t i, struct uw_row_info *out)
{
	const struct uw_table *t = &rows->table;
	struct described *d;
	struct uw_rule rule;
	uint64_t start, end;
	uint32_t id;
	int err = 0;

	if (i >= uw_rows_count(rows))
		return -ENOENT;
	/* Rows are mostly read in order, and each begins where the one before it ended. */
	start = rows->next_start;
	if (i != rows->next || !i)
		err = start_of(rows, i, &start);
	if (!err)
		err = start_of(rows, i + 1, &end);
	if (err)
		return err;
	rows->next = i + 1;
	rows->next_start = end;
	id = t->rule_index ? t->rule_index[i] : t->wide_rule_index[i];
	d = &rows->described[id];
	if (!d->done) {
		*d = (struct described){ .info = { .rule = id } };
		d->info.slow = uw_packed_kind(t->rule[id]) == TABLE_SLOW;
		if (uw_table_rule(t, start, &rule))
			d->info.none = d->done = true;
		else
			err = describe(t->arch, &rule, d);
	}
	if (err)
		return err;
	*out = d->info;
	out->start = start;
	out->end = end;
	return 0;
}

/* ---- procedures -------------------------------------------------------------------------- */

size_t uw_rows_procs(const struct uw_rows *rows)
{
	return rows->has_procs ? rows->procs.header->n : 0;
}

int uw_rows_proc(struct uw_rows *rows, size_t i, uint64_t *start, uint64_t *end)
{
	return uw_procs_at(&rows->procs, i, start, end);
}

int uw_rows_procs_before(struct uw_rows *rows, uint64_t vaddr, size_t *n)
{
	*n = 0;
	return rows->has_procs ? uw_procs_before(&rows->procs, vaddr, n) : 0;
}

int uw_rows_function(struct uw_rows *rows, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	if (rows->has_procs)
		return uw_procs_find(&rows->procs, vaddr, start, end);
	*start = 0;
	*end = UINT64_MAX;
	return -ENOENT;
}

#include "unwinder/table_build.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "schema/table.h"
#include "unwinder/checksum.h"
#include "unwinder/pointer.h"
#include "unwinder/row.h"
#include "unwinder/table.h"

#define UNITS_MAX    0xffff0000u /* spans end below this */
#define SLOW_MAX     (16u << 20) /* bytes of records: real files have kilobytes */
#define CIE_SLOTS    64
#define MEMO	     1024
#define DEPTH_MAX    8 /* remembered states in the fast path */
#define FAST_OPS_MAX (1u << 16)
#define CODE_WINDOW  (256u << 10)

/* ---- what is built ------------------------------------------------------------------ */

struct rule { /* a word and its ext, the key they are interned by */
	uint64_t word;
	int16_t ext[TABLE_EXT_AARCH64];
};

struct row {
	uint32_t unit, rule;
};

/* An FDE's range in units. */
struct ref {
	uint32_t start, end;
	uint32_t off;	 /* in its section */
	uint8_t section; /* index of the source's cfi */
	bool odd;	 /* does not begin or end on a unit, or was clipped: no rows */
};

/* A CIE ready for the fast path; slow: it is not. */
struct cie {
	const struct uw_cfi *cfi;
	uint64_t off; /* of the CIE + 1; 0: empty */
	bool slow, sized, signal;
	uint8_t encoding;
	uint32_t units;	     /* an advance of 1 is so many */
	int32_t places;	     /* a factored offset of 1 is so many × 8 bytes */
	struct state *start; /* in the build's storage */
};

/* A row while a program runs; off has the places of ext and those of fp and ra. */
struct state {
	uint32_t cfa;
	uint8_t kind, reg; /* enum table_kind; TABLE_NONE: no CFA yet */
	bool ra_signed;
	int16_t off[TABLE_EXT_AARCH64];
};

/* Byte strings one after the other, each there once. */
struct pool {
	uint8_t *data;
	size_t size, room;
	struct span {
		uint32_t off, size;
	} * spans;
	size_t n_spans, room_spans;
	uint32_t *hash; /* index in spans + 1 */
	size_t n_hash;
};

struct build {
	const struct uw_table_source *source;
	const struct uw_arch *arch;
	uint64_t base;
	int8_t slot[256]; /* of each register in off; or one of the next */

	struct ref *refs;
	size_t n_refs, room_refs;
	struct row *rows;
	size_t n_rows, room_rows;
	struct rule *rules;
	size_t n_rules, room_rules;
	uint32_t *hash; /* of rules: index + 1 */
	size_t n_hash;
	uint32_t memo[MEMO]; /* index + 1 */
	struct pool slow, expr;

	struct cie cies[CIE_SLOTS];
	struct state starts[CIE_SLOTS];

	uint8_t *window; /* code around the last place looked at */
	uint64_t window_start;
	size_t window_size;
	int err; /* the first -ENOMEM or -ENOTSUP: there will be no table */
};

#define SLOT_ODD    (-1) /* no word can say where it is saved */
#define SLOT_IGNORE (-2) /* a vector, or not a register we keep */

static void fail(struct build *b, int err)
{
	if (!b->err)
		b->err = err;
}

/* Room for one more of an array. */
static bool grow(struct build *b, void *array, size_t n, size_t *room, size_t width)
{
	void **at = array, *more;
	size_t want = *room ? *room * 2 : 256;

	if (n < *room)
		return true;
	more = realloc(*at, want * width);
	if (!more) {
		fail(b, -ENOMEM);
		return false;
	}
	*at = more;
	*room = want;
	return true;
}

/* ---- rules, each once ------------------------------------------------------------------ */

static inline __attribute__((always_inline)) uint32_t hash_of(const struct rule *rule,
							      unsigned int slots)
{
	uint64_t hash = rule->word * 0x9e3779b97f4a7c15u, part;

	for (unsigned int i = 0; i < slots; i += 4) {
		memcpy(&part, rule->ext + i, 8);
		hash = (hash ^ hash >> 31 ^ part) * 0xff51afd7ed558ccdu;
	}
	return (uint32_t)(hash >> 32);
}

static inline __attribute__((always_inline)) bool equal(const struct rule *a, const struct rule *b,
							unsigned int slots)
{
	return a->word == b->word && !memcmp(a->ext, b->ext, slots * sizeof(*a->ext));
}

static bool rehash(struct build *b, unsigned int slots)
{
	size_t want = b->n_hash ? b->n_hash * 2 : 4096;
	uint32_t *hash = calloc(want, sizeof(*hash));

	if (!hash) {
		fail(b, -ENOMEM);
		return false;
	}
	for (size_t i = 0; i < b->n_rules; i++) {
		size_t at = hash_of(&b->rules[i], slots) & (want - 1);

		while (hash[at])
			at = (at + 1) & (want - 1);
		hash[at] = (uint32_t)i + 1;
	}
	free(b->hash);
	b->hash = hash;
	b->n_hash = want;
	return true;
}

/* Finds the rule by its hash or adds it. */
static __attribute__((noinline)) uint32_t intern_new(struct build *b, const struct rule *rule,
						     uint32_t hash, unsigned int slots)
{
	size_t at;

	if (2 * b->n_rules >= b->n_hash && !rehash(b, slots))
		return 0;
	for (at = hash & (b->n_hash - 1); b->hash[at]; at = (at + 1) & (b->n_hash - 1))
		if (equal(&b->rules[b->hash[at] - 1], rule, slots))
			return b->hash[at] - 1;
	if (!grow(b, &b->rules, b->n_rules, &b->room_rules, sizeof(*b->rules)))
		return 0;
	b->rules[b->n_rules] = *rule;
	b->hash[at] = (uint32_t)++b->n_rules;
	return (uint32_t)b->n_rules - 1;
}

/* The rule's index; 0, which is TABLE_NONE, after a failure. */
static inline __attribute__((always_inline)) uint32_t
intern(struct build *b, const struct rule *rule, unsigned int slots)
{
	uint32_t hash = hash_of(rule, slots), *memo = &b->memo[hash >> 22];

	if (!*memo || !equal(&b->rules[*memo - 1], rule, slots))
		*memo = intern_new(b, rule, hash, slots) + 1;
	return *memo - 1;
}

/* ---- rows -------------------------------------------------------------------------------- */

/* From unit on this rule holds; units come in order, and a second one of the same replaces it. */
static inline __attribute__((always_inline)) void put(struct build *b, uint32_t unit,
						      const struct rule *rule, unsigned int slots)
{
	if (b->n_rows && b->rows[b->n_rows - 1].unit == unit)
		b->n_rows--;
	if (b->n_rows && equal(&b->rules[b->rows[b->n_rows - 1].rule], rule, slots))
		return;
	if (!grow(b, &b->rows, b->n_rows, &b->room_rows, sizeof(*b->rows)))
		return;
	b->rows[b->n_rows].unit = unit;
	b->rows[b->n_rows++].rule = intern(b, rule, slots);
}

static void clear_ext(struct rule *rule)
{
	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		rule->ext[i] = TABLE_SAME;
}

static void put_none(struct build *b, uint32_t unit)
{
	struct rule none = { .word = TABLE_NONE };

	clear_ext(&none);
	put(b, unit, &none, b->arch->ext_slots);
}

/* ---- records ------------------------------------------------------------------------------- */

static bool append(struct build *b, struct pool *pool, const void *data, size_t size)
{
	if (size > pool->room - pool->size) {
		size_t want = (pool->room + size) * 2;
		uint8_t *more = realloc(pool->data, want);

		if (!more) {
			fail(b, -ENOMEM);
			return false;
		}
		pool->data = more;
		pool->room = want;
	}
	if (size)
		memcpy(pool->data + pool->size, data, size);
	pool->size += size;
	return true;
}

static bool rehash_pool(struct build *b, struct pool *pool)
{
	size_t want = pool->n_hash ? pool->n_hash * 2 : 64;
	uint32_t *hash = calloc(want, sizeof(*hash));

	if (!hash) {
		fail(b, -ENOMEM);
		return false;
	}
	for (size_t i = 0; i < pool->n_spans; i++) {
		const struct span *e = &pool->spans[i];
		size_t at = uw_checksum(pool->data + e->off, e->size, 0) & (want - 1);

		while (hash[at])
			at = (at + 1) & (want - 1);
		hash[at] = (uint32_t)i + 1;
	}
	free(pool->hash);
	pool->hash = hash;
	pool->n_hash = want;
	return true;
}

/* Where the bytes lie in the pool; 0 after a failure, and for no bytes. */
static uint32_t pool_intern(struct build *b, struct pool *pool, const void *data, size_t size)
{
	struct span *e;
	size_t at;

	if (!size)
		return 0;
	if (2 * pool->n_spans >= pool->n_hash && !rehash_pool(b, pool))
		return 0;
	at = uw_checksum(data, size, 0) & (pool->n_hash - 1);
	for (; pool->hash[at]; at = (at + 1) & (pool->n_hash - 1)) {
		e = &pool->spans[pool->hash[at] - 1];
		if (e->size == size && !memcmp(pool->data + e->off, data, size))
			return e->off;
	}
	if (!grow(b, &pool->spans, pool->n_spans, &pool->room_spans, sizeof(*pool->spans)))
		return 0;
	e = &pool->spans[pool->n_spans];
	*e = (struct span){ .off = (uint32_t)pool->size, .size = (uint32_t)size };
	if (!append(b, pool, data, size))
		return 0;
	pool->hash[at] = (uint32_t)++pool->n_spans;
	return e->off;
}

static void pool_free(struct pool *pool)
{
	free(pool->data);
	free(pool->spans);
	free(pool->hash);
}

static const uint8_t reg_kinds[] = {
	[UW_RULE_SAME] = TABLE_REG_SAME,	 [UW_RULE_UNDEFINED] = TABLE_REG_UNDEFINED,
	[UW_RULE_AT_CFA] = TABLE_REG_AT_CFA,	 [UW_RULE_CFA_PLUS] = TABLE_REG_CFA_PLUS,
	[UW_RULE_REGISTER] = TABLE_REG_REGISTER, [UW_RULE_AT_EXPR] = TABLE_REG_AT_EXPR,
	[UW_RULE_EXPR] = TABLE_REG_EXPR,
};

/* A rule that no word can say: one that points to a record of it. */
static void slow_rule(struct build *b, const struct uw_rule *rule, struct rule *out)
{
	struct table_slow slow = { .cfa_size = rule->cfa_size,
				   .cfa_reg = rule->cfa_reg,
				   .ra = rule->ra,
				   .n_regs = rule->n_regs };
	uint8_t record[sizeof(slow) + UW_REGS_MAX * sizeof(struct table_reg)];
	size_t size = sizeof(slow) + rule->n_regs * sizeof(struct table_reg);

	clear_ext(out);
	out->word = TABLE_NONE;
	if (b->slow.size + size > SLOW_MAX || b->expr.size > SLOW_MAX)
		return;
	slow.cfa_off = rule->cfa_size ? pool_intern(b, &b->expr, rule->cfa_expr, rule->cfa_size)
				      : rule->cfa_off;
	slow.flags = (uint8_t)((rule->signal ? TABLE_WORD_SIGNAL : 0) |
			       (rule->ra_signed ? TABLE_WORD_SIGNED : 0));
	memcpy(record, &slow, sizeof(slow));
	for (unsigned int i = 0; i < rule->n_regs; i++) {
		const struct uw_reg_rule *r = &rule->regs[i];
		bool expr = r->kind == UW_RULE_AT_EXPR || r->kind == UW_RULE_EXPR;
		struct table_reg reg = { .off = expr ? pool_intern(b, &b->expr, r->expr, r->size)
						     : r->off,
					 .size = expr ? r->size : 0,
					 .reg = r->reg,
					 .kind = reg_kinds[r->kind],
					 .from = r->from };

		memcpy(record + sizeof(slow) + i * sizeof(reg), &reg, sizeof(reg));
	}
	out->word = TABLE_SLOW | (uint64_t)pool_intern(b, &b->slow, record, size) << 32;
}

/* ---- any FDE, by the general decoder -------------------------------------------------------- */

struct general {
	struct build *b;
	uint64_t next; /* where the rows so far end */
	uint32_t limit;
};

static uint32_t unit_of(const struct build *b, uint64_t vaddr)
{
	return (uint32_t)((vaddr - b->base) >> b->arch->unit_shift);
}

static int general_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	struct general *g = ctx;
	struct build *b = g->b;
	struct uw_row row;
	struct rule out = { .word = TABLE_NONE };

	if (unit_of(b, start) >= g->limit)
		return 1;
	/* Not on a unit: what a pc between them would get is not ours to say. */
	if ((start | end) & (b->arch->code_align - 1u))
		return -ENOTSUP;
	if (rule->signal && b->arch->sigcontext_first)
		clear_ext(&out);
	else if (uw_row_of(b->arch, rule, &row))
		slow_rule(b, rule, &out);
	else {
		out.word = row.word;
		memcpy(out.ext, row.ext, sizeof(out.ext));
	}
	put(b, unit_of(b, start), &out, b->arch->ext_slots);
	g->next = end;
	return b->err;
}

static void general_fde(struct build *b, const struct ref *ref, uint32_t limit)
{
	const struct uw_cfi *cfi = b->source->cfi[ref->section];
	struct general g = { .b = b, .limit = limit };
	struct uw_fde fde;
	int err = uw_cfi_entry(cfi, ref->off, &fde, NULL);

	g.next = b->base + ((uint64_t)ref->start << b->arch->unit_shift);
	if (!err && !ref->odd)
		err = uw_cfi_rows(cfi, &fde, general_row, &g);
	if ((err < 0 || ref->odd) && unit_of(b, g.next) < limit)
		put_none(b, unit_of(b, g.next));
}

/* ---- the common ones --------------------------------------------------------------------------- */

enum { /* DWARF 5 §7.24, those of the fast path */
       CFA_ADVANCE_LOC = 0x40,
       CFA_OFFSET = 0x80,
       CFA_RESTORE = 0xc0,
       CFA_NOP = 0x00,
       CFA_ADVANCE_LOC1 = 0x02,
       CFA_ADVANCE_LOC2 = 0x03,
       CFA_ADVANCE_LOC4 = 0x04,
       CFA_UNDEFINED = 0x07,
       CFA_REMEMBER_STATE = 0x0a,
       CFA_RESTORE_STATE = 0x0b,
       CFA_DEF_CFA = 0x0c,
       CFA_DEF_CFA_REGISTER = 0x0d,
       CFA_DEF_CFA_OFFSET = 0x0e,
       CFA_AARCH64_NEGATE_RA_STATE = 0x2d,
       CFA_GNU_ARGS_SIZE = 0x2e,
};

/* One or two bytes; longer ones are for the general decoder. */
static inline bool small_uleb(const uint8_t **p, const uint8_t *end, uint32_t *out)
{
	const uint8_t *at = *p;

	if (at < end && at[0] < 0x80) {
		*out = at[0];
		*p = at + 1;
		return true;
	}
	if (end - at >= 3 && at[1] < 0x80) {
		*out = (at[0] & 0x7fu) | (uint32_t)at[1] << 7;
		*p = at + 2;
		return true;
	}
	if (end - at >= 3 && at[2] < 0x80) {
		*out = (at[0] & 0x7fu) | (at[1] & 0x7fu) << 7 | (uint32_t)at[2] << 14;
		*p = at + 3;
		return true;
	}
	return false;
}

#define SAME_8                                                                              \
	TABLE_SAME, TABLE_SAME, TABLE_SAME, TABLE_SAME, TABLE_SAME, TABLE_SAME, TABLE_SAME, \
		TABLE_SAME

/* The row of a state, as uw_row_of would have it; false: not for the fast path. */
static inline __attribute__((always_inline)) bool rule_of(const struct build *b,
							  const struct state *s, bool signal,
							  unsigned int slots, struct rule *out)
{
	static const int16_t same[TABLE_EXT_AARCH64] = { SAME_8, SAME_8 };
	uint32_t cfa = s->cfa / 8; /* less than 2^18, see small_uleb */
	int16_t fp = s->off[slots - 3], ra = s->off[slots - 2];
	uint32_t word = s->kind | cfa << 8;

	if (s->kind == TABLE_NONE || s->cfa % 8)
		return false;
	if (ra == TABLE_SAME && b->arch->lr == b->arch->pc)
		return false;
	if (s->kind == TABLE_SP) {
		int16_t lowest = cfa > 32767 ? INT16_MIN : (int16_t) - (int32_t)cfa;

		for (unsigned int i = 0; i < slots; i++)
			out->ext[i] = s->off[i] < lowest ? TABLE_SAME : s->off[i];
		if (fp < lowest)
			fp = TABLE_SAME;
	} else {
		memcpy(out->ext, s->off, slots * sizeof(*out->ext));
	}
	out->ext[slots - 3] = out->ext[slots - 2] = out->ext[slots - 1] = TABLE_SAME;
	word |= memcmp(out->ext, same, slots * sizeof(*same)) ? TABLE_WORD_SAVED : 0;
	word |= signal ? TABLE_WORD_SIGNAL : 0;
	word |= s->ra_signed ? TABLE_WORD_SIGNED : 0;
	if (s->kind == TABLE_REG)
		out->ext[slots - 1] = s->reg;
	out->word = word | (uint64_t)(uint16_t)fp << 32 | (uint64_t)(uint16_t)ra << 48;
	return true;
}

static inline void set_cfa_reg(const struct uw_arch *arch, struct state *s, uint32_t reg)
{
	s->reg = (uint8_t)reg;
	s->kind = reg == arch->sp ? TABLE_SP : reg == arch->fp ? TABLE_FP : TABLE_REG;
}

/*
 * Runs a program and puts its rows up to limit; rows == false: the initial
 * instructions of a CIE, into *s.  False: the general decoder must do it all.
 */
static inline __attribute__((always_inline)) bool run(struct build *b, const struct cie *cie,
						      const uint8_t *p, const uint8_t *end,
						      struct state *s, uint64_t unit,
						      uint64_t limit, bool rows, unsigned int slots)
{
	const struct uw_arch *arch = b->arch;
	struct state saved[DEPTH_MAX];
	unsigned int depth = 0;
	bool changed = true;
	struct rule rule;

	if (end - p > (ptrdiff_t)FAST_OPS_MAX)
		return false;
	while (p < end) {
		uint8_t op = *p++;
		uint32_t delta, reg, value;
		int slot;

		switch (op & 0xc0) {
		case CFA_ADVANCE_LOC:
			delta = op & 0x3f;
			goto advance;
		case CFA_OFFSET:
			if (!small_uleb(&p, end, &value))
				return false;
			slot = b->slot[op & 0x3f];
			if (slot >= 0) {
				int64_t place = (int64_t)value * cie->places;

				if (place >= TABLE_UNDEFINED || place < INT16_MIN)
					return false;
				s->off[slot] = (int16_t)place;
				changed = true;
			} else if (slot == SLOT_ODD) {
				return false;
			}
			continue;
		case CFA_RESTORE:
			slot = b->slot[op & 0x3f];
			if (slot >= 0) {
				s->off[slot] = cie->start->off[slot];
				changed = true;
			}
			continue;
		}
		switch (op) {
		case CFA_NOP:
			continue;
		case CFA_ADVANCE_LOC1:
			if (end - p < 1)
				return false;
			delta = *p++;
			goto advance;
		case CFA_ADVANCE_LOC2:
			if (end - p < 2)
				return false;
			delta = p[0] | (uint32_t)p[1] << 8;
			p += 2;
			goto advance;
		case CFA_ADVANCE_LOC4:
			if (end - p < 4)
				return false;
			memcpy(&delta, p, 4);
			p += 4;
			goto advance;
		case CFA_REMEMBER_STATE:
			if (depth == DEPTH_MAX)
				return false;
			saved[depth++] = *s;
			continue;
		case CFA_RESTORE_STATE:
			if (!depth)
				return false;
			*s = saved[--depth];
			changed = true;
			continue;
		case CFA_DEF_CFA:
			if (!small_uleb(&p, end, &reg) || !small_uleb(&p, end, &value) ||
			    reg >= arch->n_regs)
				return false;
			set_cfa_reg(arch, s, reg);
			s->cfa = value;
			changed = true;
			continue;
		case CFA_DEF_CFA_REGISTER:
			if (!small_uleb(&p, end, &reg) || reg >= arch->n_regs ||
			    s->kind == TABLE_NONE)
				return false;
			set_cfa_reg(arch, s, reg);
			changed = true;
			continue;
		case CFA_DEF_CFA_OFFSET:
			if (!small_uleb(&p, end, &value) || s->kind == TABLE_NONE)
				return false;
			s->cfa = value;
			changed = true;
			continue;
		case CFA_UNDEFINED:
			if (!small_uleb(&p, end, &reg) || reg != arch->lr)
				return false;
			s->off[slots - 2] = TABLE_UNDEFINED;
			changed = true;
			continue;
		case CFA_GNU_ARGS_SIZE:
			if (!small_uleb(&p, end, &value))
				return false;
			continue;
		case CFA_AARCH64_NEGATE_RA_STATE:
			s->ra_signed = !s->ra_signed;
			changed = true;
			continue;
		default:
			return false;
		}
	advance:
		if (!delta)
			continue;
		if (!rows)
			return false;
		if (changed) {
			if (!rule_of(b, s, cie->signal, slots, &rule))
				return false;
			put(b, (uint32_t)unit, &rule, slots);
			changed = false;
		}
		unit += (uint64_t)delta * cie->units;
		if (unit >= limit)
			return true;
	}
	if (rows && changed) {
		if (!rule_of(b, s, cie->signal, slots, &rule))
			return false;
		put(b, (uint32_t)unit, &rule, slots);
	}
	return true;
}

static bool run_8(struct build *b, const struct cie *cie, const uint8_t *p, const uint8_t *end,
		  struct state *s, uint32_t unit, uint32_t limit, bool rows)
{
	return run(b, cie, p, end, s, unit, limit, rows, TABLE_EXT_X86_64);
}

static bool run_16(struct build *b, const struct cie *cie, const uint8_t *p, const uint8_t *end,
		   struct state *s, uint32_t unit, uint32_t limit, bool rows)
{
	return run(b, cie, p, end, s, unit, limit, rows, TABLE_EXT_AARCH64);
}

static void prepare_cie(struct build *b, const struct uw_cie *from, struct cie *cie)
{
	const struct uw_arch *arch = b->arch;
	struct state start = { .kind = TABLE_NONE };
	uint64_t align = from->code_align;

	for (unsigned int i = 0; i < TABLE_EXT_AARCH64; i++)
		start.off[i] = TABLE_SAME;
	cie->sized = from->sized;
	cie->signal = from->signal;
	cie->encoding = from->fde_encoding;
	cie->slow = from->ra != arch->lr || from->segment_size || from->address_size != 8 ||
		    align % arch->code_align || align >> arch->unit_shift > 255 ||
		    from->data_align % 8 || from->data_align / 8 < -8 || from->data_align / 8 > 8 ||
		    (from->signal && arch->sigcontext_first);
	if (cie->slow)
		return;
	cie->units = (uint32_t)(align >> arch->unit_shift);
	cie->places = (int32_t)(from->data_align / 8);
	*cie->start = start;
	if (!(arch->ext_slots == TABLE_EXT_X86_64 ? run_8 : run_16)(
		    b, cie, from->program.pos, from->program.end, &start, 0, 0, false))
		cie->slow = true;
	*cie->start = start;
}

/* The FDE at off in a section, as far as the fast path needs it. */
struct entry {
	const struct cie *cie; /* NULL: only the general decoder knows it */
	const uint8_t *program, *end;
	uint64_t start, size;
};

/* The CIE of an FDE, from the cache; NULL: the FDE is damaged or its CIE is. */
static const struct cie *cie_of(struct build *b, const struct uw_cfi *cfi, uint64_t cie_off,
				uint64_t fde_off)
{
	uint64_t hash = (cie_off ^ (cfi->eh ? 0 : 3)) * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)(hash >> 58) % CIE_SLOTS;
	struct cie *cie = &b->cies[at];
	struct uw_fde fde;

	if (cie->cfi == cfi && cie->off == cie_off + 1)
		return cie;
	if (uw_cfi_entry(cfi, fde_off, &fde, NULL))
		return NULL;
	*cie = (struct cie){ .cfi = cfi, .off = cie_off + 1, .start = &b->starts[at] };
	prepare_cie(b, &fde.cie, cie);
	return cie;
}

static uint32_t little4(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t little8(const uint8_t *p)
{
	return little4(p) | (uint64_t)little4(p + 4) << 32;
}

/* False: not an FDE of the common form. */
static bool read_entry(struct build *b, const struct uw_cfi *cfi, uint64_t off, struct entry *out)
{
	const uint8_t *p = cfi->data + off;
	uint32_t length, id;
	const struct cie *cie;

	if (cfi->size - off < 16)
		return false;
	length = little4(p);
	if (length < 12 || length >= 0xfffffff0 || length > cfi->size - off - 4)
		return false;
	id = little4(p + 4);
	if (id == (cfi->eh ? 0 : UINT32_MAX) || (cfi->eh && id > off + 4))
		return false;
	cie = cie_of(b, cfi, cfi->eh ? off + 4 - id : id, off);
	if (!cie || cie->slow)
		return false;
	out->end = p + 4 + length;
	if (cie->encoding == (UW_PE_PCREL | UW_PE_SDATA4)) {
		int32_t start = (int32_t)little4(p + 8), size = (int32_t)little4(p + 12);

		if (size < 0)
			return false;
		out->start = cfi->vaddr + off + 8 + (uint64_t)(int64_t)start;
		out->size = (uint64_t)size;
		p += 16;
	} else if (cie->encoding == UW_PE_ABSPTR && length >= 20) {
		out->start = little8(p + 8);
		out->size = little8(p + 16);
		p += 24;
	} else {
		return false;
	}
	if (cie->sized) {
		if (p >= out->end || *p >= 0x80 || *p > out->end - p - 1)
			return false;
		p += 1 + *p;
	}
	if (p > out->end)
		return false;
	out->program = p;
	out->cie = cie;
	return true;
}

/* ---- every FDE, sorted ----------------------------------------------------------------------------- */

static void add_ref(struct build *b, unsigned int section, uint64_t off, uint64_t start,
		    uint64_t end)
{
	const uint64_t last = (uint64_t)UNITS_MAX << b->arch->unit_shift,
		       mask = b->arch->code_align - 1u;
	struct ref ref = { .off = (uint32_t)off, .section = (uint8_t)section };

	if (end <= b->base || start >= end || (start > b->base && start - b->base >= last))
		return;
	/* ehframe.c clips what is longer than 4 GiB. */
	ref.odd = end - start > UINT32_MAX || start < b->base || end - b->base > last ||
		  (start | end) & mask;
	if (start < b->base)
		start = b->base;
	if (end - b->base > last)
		end = b->base + last;
	ref.start = unit_of(b, start);
	ref.end = (uint32_t)((end - b->base + mask) >> b->arch->unit_shift);
	if (!grow(b, &b->refs, b->n_refs, &b->room_refs, sizeof(*b->refs)))
		return;
	b->refs[b->n_refs++] = ref;
}

/* As collect() in ehframe.c: damaged entries are passed over. */
static void collect(struct build *b, unsigned int section)
{
	const struct uw_cfi *cfi = b->source->cfi[section];
	uint64_t off = 0, next;

	for (; off < cfi->size && !b->err; off = next) {
		struct entry entry;
		struct uw_fde fde;
		int err;

		if (read_entry(b, cfi, off, &entry)) {
			next = (uint64_t)(entry.end - cfi->data);
			add_ref(b, section, off, entry.start,
				entry.size <= UINT64_MAX - entry.start ? entry.start + entry.size
								       : UINT64_MAX);
			continue;
		}
		next = off;
		err = uw_cfi_entry(cfi, off, &fde, &next);
		if (next <= off || (err == -ENOENT && next == off + 4 && cfi->to_terminator))
			break;
		if (!err)
			add_ref(b, section, off, fde.start, fde.end);
	}
}

/* By start; those that share one stay in the order of their sections and offsets. */
static void sort_refs(struct build *b)
{
	struct ref *from = b->refs, *to;
	bool sorted = true;

	for (size_t i = 1; i < b->n_refs && sorted; i++)
		sorted = from[i - 1].start <= from[i].start;
	if (sorted)
		return;
	to = malloc(b->n_refs * sizeof(*to));
	if (!to) {
		fail(b, -ENOMEM);
		return;
	}
	for (unsigned int shift = 0; shift < 32; shift += 11) {
		uint32_t at[2049] = { 0 };
		struct ref *swap = from;

		for (size_t i = 0; i < b->n_refs; i++)
			at[(from[i].start >> shift & 2047) + 1]++;
		for (unsigned int i = 0; i < 2048; i++)
			at[i + 1] += at[i];
		for (size_t i = 0; i < b->n_refs; i++)
			to[at[from[i].start >> shift & 2047]++] = from[i];
		from = to;
		to = swap;
	}
	b->refs = from;
	free(to);
}

/* ---- trampolines -------------------------------------------------------------------------------------- */

/* Code bytes of [vaddr, vaddr + size); fewer where the segment ends. */
static size_t code_at(struct build *b, uint64_t vaddr, size_t size, const uint8_t **out)
{
	size_t skip;

	if (!b->source->code)
		return 0;
	if (vaddr < b->window_start || vaddr - b->window_start > b->window_size ||
	    size > b->window_size - (vaddr - b->window_start)) {
		if (!b->window)
			b->window = malloc(CODE_WINDOW);
		if (!b->window) {
			fail(b, -ENOMEM);
			return 0;
		}
		b->window_start = vaddr;
		b->window_size = b->source->code(b->source->ctx, vaddr, b->window, CODE_WINDOW);
	}
	skip = (size_t)(vaddr - b->window_start);
	*out = b->window + skip;
	return size < b->window_size - skip ? size : b->window_size - skip;
}

/*
 * Whether a signal trampoline, which the file is asked about by its code, lies
 * at the end of an FDE or in the padding up to next.
 */
static bool trampoline_between(struct build *b, uint64_t end, uint64_t next)
{
	uint64_t from = end < UW_CODE_BEFORE ? 0 : end - UW_CODE_BEFORE;
	size_t want = (size_t)(next - from) + UW_CODE_AFTER, size;
	const struct uw_arch *arch = b->arch;
	const uint8_t *bytes = NULL;
	struct uw_rule rule;

	size = code_at(b, from, want, &bytes);
	if (size < (size_t)(end - from)) { /* the segment begins here */
		from = end;
		size = code_at(b, from, (size_t)(next - from) + UW_CODE_AFTER, &bytes);
	}
	/* A single byte is sought faster. */
	if (!size || !memchr(bytes, arch->syscall[arch->syscall_size - 1], size) ||
	    !memmem(bytes, size, arch->syscall, arch->syscall_size))
		return false;
	for (uint64_t at = end; at <= next && at - from <= size; at++) {
		size_t before = (size_t)(at - from), after = size - before;
		struct uw_code code = { .at = bytes + before,
					.before = before < UW_CODE_BEFORE ? before : UW_CODE_BEFORE,
					.after = after < UW_CODE_AFTER ? after : UW_CODE_AFTER };

		if (arch->signal(&code, true, &rule))
			return true;
	}
	return false;
}

/* ---- the sweep -------------------------------------------------------------------------------------------- */

static void put_fde(struct build *b, const struct ref *ref, uint32_t limit)
{
	const struct uw_cfi *cfi = b->source->cfi[ref->section];
	size_t n_rows = b->n_rows;
	struct row before = n_rows ? b->rows[n_rows - 1] : (struct row){ .unit = 0 };
	struct entry e;
	struct state s;

	if (!ref->odd && read_entry(b, cfi, ref->off, &e)) {
		s = *e.cie->start;
		if ((b->arch->ext_slots == TABLE_EXT_X86_64 ? run_8 : run_16)(
			    b, e.cie, e.program, e.end, &s, ref->start, limit, true))
			return;
		/* As if it had not begun. */
		b->n_rows = n_rows;
		if (n_rows)
			b->rows[n_rows - 1] = before;
	}
	general_fde(b, ref, limit);
}

static uint64_t vaddr_of(const struct build *b, uint32_t unit)
{
	return b->base + ((uint64_t)unit << b->arch->unit_shift);
}

/* No answer from the last unit before end on: what is there is asked by its code. */
static void put_hole(struct build *b, uint32_t end, uint32_t from)
{
	while (b->n_rows && b->rows[b->n_rows - 1].unit >= end && end > from)
		b->n_rows--;
	put_none(b, end > from ? end - 1 : end);
}

static void sweep(struct build *b)
{
	const uint32_t padding = UW_PADDING_MAX >> b->arch->unit_shift;
	const struct ref *refs = b->refs;
	size_t i = 0, n = b->n_refs;

	put_none(b, 0);
	while (i < n && !b->err) {
		const struct ref *ref = &refs[i++];
		uint32_t end = ref->end, next;
		bool clash;

		/* An earlier section has the last word. */
		while (i < n && refs[i].end <= end && refs[i].start < end &&
		       refs[i].section > ref->section)
			i++;
		clash = i < n && refs[i].start < end;
		if (!clash) {
			put_fde(b, ref, end);
		} else {
			uint32_t from = refs[i].start;

			if (from > ref->start)
				put_fde(b, ref, from);
			put_none(b, from);
			for (; i < n && refs[i].start < end; i++)
				end = refs[i].end > end ? refs[i].end : end;
		}
		next = i < n ? refs[i].start : UINT32_MAX;
		if (next - end >= padding) {
			if (!clash && trampoline_between(b, vaddr_of(b, end), vaddr_of(b, end)))
				put_hole(b, end, ref->start);
			put_none(b, end);
		} else if (clash) {
			put_none(b, end);
		} else if (trampoline_between(b, vaddr_of(b, end), vaddr_of(b, next))) {
			put_hole(b, end, ref->start);
		}
	}
}

/* ---- packing -------------------------------------------------------------------------------------------------- */

static uint32_t place(uint64_t *at, uint64_t size)
{
	uint64_t off = (*at + TABLE_ALIGN - 1) & ~(uint64_t)(TABLE_ALIGN - 1);

	*at = off + size;
	return (uint32_t)off;
}

static bool is_code(const struct uw_segment *s)
{
	return s->flags & PF_X && s->mem_size;
}

static void fill_header(const struct build *b, struct table_header *h)
{
	const struct uw_table_source *source = b->source;

	*h = (struct table_header){ .magic = TABLE_MAGIC,
				    .version = TABLE_VERSION,
				    .machine = b->arch->machine,
				    .header_size = TABLE_HEADER_SIZE,
				    .base = b->base,
				    .unit_shift = b->arch->unit_shift,
				    .ext_slots = b->arch->ext_slots,
				    .build_id_size = source->build_id->size,
				    .n_rows = (uint32_t)b->n_rows,
				    .n_rules = (uint32_t)b->n_rules,
				    .slow_size = (uint32_t)b->slow.size,
				    .expr_size = (uint32_t)b->expr.size,
				    .builder = TABLE_BUILDER };
	memcpy(h->build_id, source->build_id->bytes, source->build_id->size);
	uw_table_identify(source, &h->src_size, &h->src_hash);
	/* The last row has no answer: the table speaks of nothing behind it. */
	h->span = b->rows[b->n_rows - 1].unit;
	h->n_sups = h->span / TABLE_SUP_UNITS + (h->span % TABLE_SUP_UNITS != 0);
	if (b->n_rules > 0x10000)
		h->flags |= TABLE_WIDE_RID;
	for (size_t i = 0; i < source->n_segments; i++)
		h->n_segs += is_code(&source->segments[i]);
}

/* One past the rows that begin in this sup. */
static size_t sup_end(const struct build *b, size_t row, uint32_t sup)
{
	while (row < b->n_rows && b->rows[row].unit / TABLE_SUP_UNITS == sup)
		row++;
	return row;
}

static void pack_blocks(const struct build *b, const struct table_header *h, uint8_t *blob)
{
	struct table_sup *sup = (struct table_sup *)(blob + h->sup);
	uint16_t *blk = (uint16_t *)(blob + h->blk);
	size_t row = 0;
	uint32_t used = 0;

	for (uint32_t s = 0; s < h->n_sups; s++) {
		size_t first = row, end = sup_end(b, row, s);

		sup[s] = (struct table_sup){ .row = (uint32_t)row, .blk = TABLE_NO_BLOCK };
		if (end == first)
			continue;
		sup[s].blk = used;
		for (uint32_t i = 0; i < TABLE_SUP_BLOCKS; i++) {
			while (row < end &&
			       b->rows[row].unit % TABLE_SUP_UNITS / TABLE_BLOCK_UNITS < i)
				row++;
			blk[used++] = (uint16_t)(row - first);
		}
		row = end;
	}
	/* A last row at the very span begins in no sup. */
	sup[h->n_sups] = (struct table_sup){ .row = (uint32_t)row, .blk = TABLE_NO_BLOCK };
}

static void pack_rows(const struct build *b, const struct table_header *h, uint8_t *blob)
{
	uint16_t *rid = (uint16_t *)(blob + h->rid);
	uint32_t *rid4 = (uint32_t *)(blob + h->rid);
	uint64_t *word = (uint64_t *)(blob + h->rule);
	int16_t *ext = (int16_t *)(blob + h->ext);

	for (size_t i = 0; i < h->n_rows; i++) {
		blob[h->key + i] = (uint8_t)b->rows[i].unit;
		if (h->flags & TABLE_WIDE_RID)
			rid4[i] = b->rows[i].rule;
		else
			rid[i] = (uint16_t)b->rows[i].rule;
	}
	memset(blob + h->key + h->n_rows, 0xff, TABLE_KEY_PAD);
	for (size_t i = 0; i < h->n_rules; i++) {
		word[i] = b->rules[i].word;
		memcpy(ext + i * h->ext_slots, b->rules[i].ext, h->ext_slots * sizeof(*ext));
	}
}

static void pack_segments(const struct build *b, const struct table_header *h, uint8_t *blob)
{
	struct table_seg *seg = (struct table_seg *)(blob + h->seg);

	for (size_t i = 0; i < b->source->n_segments; i++) {
		const struct uw_segment *s = &b->source->segments[i];

		if (is_code(s))
			*seg++ = (struct table_seg){ .file_off = s->off,
						     .vaddr = s->vaddr,
						     .size = s->mem_size };
	}
}

static int pack(struct build *b, uint8_t **out, size_t *size)
{
	struct table_header h;
	uint64_t at = TABLE_HEADER_SIZE;
	uint64_t n_blks = 0;
	uint8_t *blob;

	fill_header(b, &h);
	/* The row at the span is what being outside means. */
	h.n_rows--;
	b->n_rows--;
	for (size_t row = 0, end; row < b->n_rows; row = end) {
		end = sup_end(b, row, b->rows[row].unit / TABLE_SUP_UNITS);
		if (end - row > UINT16_MAX)
			return -ENOTSUP;
		n_blks += TABLE_SUP_BLOCKS;
	}
	h.n_blks = (uint32_t)n_blks;
	h.seg = place(&at, h.n_segs * sizeof(struct table_seg));
	h.sup = place(&at, (h.n_sups + (uint64_t)1) * sizeof(struct table_sup));
	h.blk = place(&at, n_blks * 2);
	h.key = place(&at, (uint64_t)h.n_rows + TABLE_KEY_PAD);
	h.rid = place(&at, (uint64_t)h.n_rows * (h.flags & TABLE_WIDE_RID ? 4 : 2));
	h.rule = place(&at, (uint64_t)h.n_rules * 8);
	h.ext = place(&at, (uint64_t)h.n_rules * h.ext_slots * 2);
	h.slow = place(&at, h.slow_size);
	h.expr = place(&at, h.expr_size);
	h.fde = place(&at, 0);
	if (at > UINT32_MAX)
		return -ENOTSUP;
	h.size = at;
	blob = calloc(1, (size_t)at);
	if (!blob)
		return -ENOMEM;
	pack_segments(b, &h, blob);
	pack_blocks(b, &h, blob);
	pack_rows(b, &h, blob);
	if (h.slow_size)
		memcpy(blob + h.slow, b->slow.data, h.slow_size);
	if (h.expr_size)
		memcpy(blob + h.expr, b->expr.data, h.expr_size);
	memcpy(blob, &h, sizeof(h));
	h.checksum = uw_table_checksum(blob, (size_t)at);
	memcpy(blob, &h, sizeof(h));
	*out = blob;
	*size = (size_t)at;
	return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

static void set_slots(struct build *b)
{
	const struct uw_arch *arch = b->arch;

	for (unsigned int i = 0; i < sizeof(b->slot); i++)
		b->slot[i] = i < arch->n_regs ? SLOT_ODD : SLOT_IGNORE;
	for (unsigned int i = 0; i < arch->n_saved; i++)
		b->slot[arch->saved[i]] = (int8_t)i;
	b->slot[arch->fp] = (int8_t)(arch->ext_slots - 3);
	b->slot[arch->lr] = (int8_t)(arch->ext_slots - 2);
}

static uint64_t lowest_code(const struct uw_table_source *source)
{
	uint64_t lowest = UINT64_MAX;

	for (size_t i = 0; i < source->n_segments; i++)
		if (is_code(&source->segments[i]) && source->segments[i].vaddr < lowest)
			lowest = source->segments[i].vaddr;
	return lowest;
}

void uw_table_identify(const struct uw_table_source *source, __u64 *size, __u64 *hash)
{
	*size = *hash = 0;
	for (unsigned int i = 0; i < UW_TABLE_SECTIONS; i++) {
		const struct uw_cfi *cfi = source->cfi[i];

		if (!cfi || !cfi->size)
			continue;
		*size += cfi->size;
		*hash = uw_checksum(cfi->data, cfi->size, *hash);
	}
}

int uw_table_build(const struct uw_table_source *source, uint8_t **blob, size_t *size)
{
	struct build *b;
	uint64_t base = lowest_code(source);
	int err;

	if (base == UINT64_MAX)
		return -ENOENT;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->source = source;
	b->arch = source->arch;
	b->base = base & ~(uint64_t)(TABLE_BLOCK_UNITS * b->arch->code_align - 1);
	set_slots(b);
	for (unsigned int i = 0; i < UW_TABLE_SECTIONS; i++)
		if (source->cfi[i] && source->cfi[i]->size)
			collect(b, i);
	if (!b->err && !b->n_refs)
		fail(b, -ENOENT);
	if (!b->err)
		sort_refs(b);
	if (!b->err)
		sweep(b);
	err = b->err ? b->err : pack(b, blob, size);
	free(b->refs);
	free(b->rows);
	free(b->rules);
	free(b->hash);
	pool_free(&b->slow);
	pool_free(&b->expr);
	free(b->window);
	free(b);
	return err;
}

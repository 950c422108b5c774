/*
 * tests/unit/test_table.c: tests compiled tables: rows, packed rules for expressions, procedures,
 * limits.
 */
#include "unwinder/table/table.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"
#include "unwinder/rule/object.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table_build.h"

/*
 * A section that is written by hand (LSB 5.0 §10.6.1, DWARF 5 §6.4): a CIE as gcc writes it, and
 * FDEs that follow. data_align -8, ra 16, CFA = rsp + 8, ra at CFA - 8.
 */
#define VADDR ((uint64_t)0x10000) /* of the section */
#define CODE  ((uint64_t)0x1000)

struct section {
	uint8_t bytes[4096];
	size_t size;
};

static void add(struct section *s, const void *bytes, size_t size)
{
	memcpy(s->bytes + s->size, bytes, size);
	s->size += size;
}

static void add_u32(struct section *s, uint32_t value)
{
	add(s, &value, 4);
}

static void add_cie(struct section *s)
{
	static const uint8_t body[] = { 1,    'z',  'R',  0, 1,	   0x78, 16,   1,
					0x1b, 0x0c, 0x07, 8, 0x90, 1,	 0x00, 0x00 };

	add_u32(s, sizeof(body) + 4);
	add_u32(s, 0);
	add(s, body, sizeof(body));
}

static void add_fde(struct section *s, uint64_t start, uint32_t size, const void *program,
		    uint8_t length)
{
	uint8_t zero = 0;

	add_u32(s, 13u + length);
	add_u32(s, (uint32_t)s->size); /* back to the CIE, which is first */
	add_u32(s, (uint32_t)(start - (VADDR + s->size)));
	add_u32(s, size);
	add(s, &zero, 1);
	add(s, program, length);
}

static int build(const struct section *s, uint8_t **blob, size_t *size)
{
	struct uw_cfi cfi = { .data = s->bytes, .size = s->size, .vaddr = VADDR, .eh = true };
	struct uw_segment code = {
		.vaddr = CODE, .file_size = 0x8000, .mem_size = 0x8000, .flags = PF_X
	};
	struct uw_build_id id = { .size = 2, .bytes = { 0xab, 0xcd } };
	struct uw_table_source source = { .arch = &uw_arch_x86_64,
					  .cfi = { &cfi },
					  .build_id = &id,
					  .segments = &code,
					  .n_segments = 1 };

	return uw_table_build(&source, blob, size);
}

/* push rbp; mov rsp,rbp; push rbx; … with gcc's CFI. */
static const uint8_t pushes[] = { 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x44, 0x83, 3 };
/* pop at the end: the CFI still names the slot, although it is below rsp now. */
static const uint8_t popped[] = { 0x41, 0x0e, 16, 0x83, 2, 0x4a, 0x0e, 8 };
/* CFA = rbp - 8 by an expression, for which there is no packed rule. */
static const uint8_t expression[] = { 0x44, 0x0f, 3, 0x76, 0x78, 0x96 };
static const uint8_t outermost[] = { 0x07, 16 };

static void add_all(struct section *s)
{
	add_cie(s);
	add_fde(s, CODE + 0x100, 0x20, pushes, sizeof(pushes));
	add_fde(s, CODE + 0x12f, 0x11, popped, sizeof(popped)); /* 15 bytes of padding before */
	add_fde(s, CODE + 0x150, 0x10, expression, sizeof(expression)); /* 16 */
	add_fde(s, CODE + 0x5000, 0x10, outermost, sizeof(outermost));
}

static uint64_t word_at(const struct uw_table *t, uint64_t off, const int16_t **ext)
{
	uint32_t rule = 0;
	uint64_t word = uw_table_packed(t, CODE + off, &rule);

	*ext = uw_table_ext(t, rule);
	return word;
}

static void test_rows_are_what_the_program_says(void)
{
	struct section s = { .size = 0 };
	struct uw_table t;
	struct uw_rule rule;
	const int16_t *ext;
	uint8_t *blob;
	size_t size;
	uint64_t word;

	add_all(&s);
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	CHECK(uw_packed_kind(word_at(&t, 0xff, &ext)) == TABLE_NONE, "nothing before");
	word = word_at(&t, 0x100, &ext);
	CHECK(uw_packed_kind(word) == TABLE_SP && uw_packed_cfa(word) == 8 &&
		      uw_packed_ra(word) == -1 && uw_packed_fp(word) == TABLE_SAME &&
		      !(word & TABLE_RULE_SAVED),
	      "entry");
	word = word_at(&t, 0x103, &ext);
	CHECK(uw_packed_kind(word) == TABLE_SP && uw_packed_cfa(word) == 16 &&
		      uw_packed_fp(word) == -2,
	      "rbp pushed");
	word = word_at(&t, 0x104, &ext);
	CHECK(uw_packed_kind(word) == TABLE_FP && uw_packed_cfa(word) == 16, "frame pointer set");
	word = word_at(&t, 0x108, &ext);
	CHECK(word & TABLE_RULE_SAVED && ext[0] == -3 && ext[1] == TABLE_SAME, "rbx pushed");
	CHECK(word_at(&t, 0x12e, &ext) == word, "15 bytes without FDE are padding");
	CHECK(uw_packed_kind(word_at(&t, 0x140, &ext)) == TABLE_NONE, "16 bytes are not");
	(void)word_at(&t, 0x130, &ext);
	CHECK(ext[0] == -2, "rbx saved");
	word = word_at(&t, 0x13a, &ext);
	CHECK(uw_packed_cfa(word) == 8 && !(word & TABLE_RULE_SAVED) && ext[0] == TABLE_SAME,
	      "below rsp: popped");
	CHECK(uw_table_rule(&t, CODE + 0x154, &rule) == 0 && rule.cfa_size == 3 &&
		      !memcmp(rule.cfa_expr, expression + 3, 3) && rule.n_regs == 1 &&
		      rule.regs[0].reg == 16 && rule.regs[0].off == -8,
	      "an expression is in a record");
	CHECK(uw_packed_kind(word_at(&t, 0x160, &ext)) == TABLE_NONE, "nothing far behind it");
	CHECK(uw_packed_ra(word_at(&t, 0x500f, &ext)) == TABLE_UNDEFINED ||
		      uw_packed_ra(word_at(&t, 0x5000, &ext)) == TABLE_UNDEFINED,
	      "outermost");
	CHECK(uw_packed_kind(word_at(&t, 0x5010, &ext)) == TABLE_NONE, "nothing behind all");
	CHECK(uw_table_rule(&t, 0, &rule) == -ENOENT &&
		      uw_table_rule(&t, UINT64_MAX, &rule) == -ENOENT,
	      "nor at the ends of the world");
	CHECK(t.header->build_id[1] == 0xcd && t.header->src_size == s.size &&
		      t.header->n_segs == 1,
	      "and it says of what");
	free(blob);
}

/* gcc's prologue of a function that realigns its stack (-mstackrealign), as readelf shows it. */
static const uint8_t realigned[] = {
	0x45, 0x0c, 10, 0,		  /* lea 8(%rsp),%r10: CFA = r10 */
	0x44, 0x10, 6,	2,    0x76, 0x00, /* push %rbp; mov %rsp,%rbp: at breg6 0 */
	0x44, 0x0f, 3,	0x76, 0x78, 0x06, /* push %r10: CFA = *(rbp - 8) */
	0x10, 12,   2,	0x76, 0x70,	  /* push %r12: at breg6 -16 */
	0x44, 0x83, 9,	0x0f, 5,    0x77, 0x28, 0x06, 0x23, 0x08 /* *(rsp + 40) + 8, as ld.so */
};
/* .plt, as bfd describes it (elf_x86_64_eh_frame_lazy_plt in binutils' elf64-x86-64.c). */
static const uint8_t plt[] = { 0x0e, 16,   0x46, 0x0e, 24,   0x4a, 0x0f, 11,   0x77, 0x08,
			       0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22 };

static void test_common_expressions_have_words(void)
{
	struct section s = { .size = 0 };
	struct uw_table t;
	struct uw_rule rule;
	const int16_t *ext;
	uint8_t *blob;
	size_t size;
	uint64_t word;

	add_cie(&s);
	add_fde(&s, CODE + 0x100, 0x40, realigned, sizeof(realigned));
	add_fde(&s, CODE + 0x200, 0x40, plt, sizeof(plt));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	CHECK(t.header->slow_size == 0 && t.header->expr_size == 0, "none is left to a record");
	word = word_at(&t, 0x105, &ext);
	CHECK(uw_packed_kind(word) == TABLE_REG && ext[7] == 10 && !(word & TABLE_RULE_BASED),
	      "r10");
	word = word_at(&t, 0x109, &ext);
	CHECK(uw_packed_kind(word) == TABLE_REG && word & TABLE_RULE_BASED &&
		      uw_packed_fp(word) == 0 && ext[6] == TABLE_BASED_FP,
	      "rbp where rbp points to");
	word = word_at(&t, 0x10d, &ext);
	CHECK(uw_packed_kind(word) == TABLE_DEREF && uw_packed_cfa(word) == -8 && ext[7] == 6 &&
		      ext[5] == 0 && uw_packed_ra(word) == -1,
	      "*(rbp - 8)");
	CHECK(ext[1] == -2 && ext[0] == TABLE_SAME && ext[6] == (TABLE_BASED_FP | 1 << 1),
	      "r12 from rbp");
	word = word_at(&t, 0x111, &ext);
	CHECK(uw_packed_kind(word) == TABLE_DEREF && uw_packed_cfa(word) == 40 && ext[7] == 7 &&
		      ext[5] == 1 && ext[0] == -9 && ext[6] == (TABLE_BASED_FP | 1 << 1),
	      "rbx from the CFA still");
	CHECK(uw_table_rule(&t, CODE + 0x111, &rule) == 0 && rule.cfa_kind == UW_CFA_DEREF &&
		      rule.cfa_reg == 7 && rule.cfa_off == 40 && rule.cfa_add == 8 &&
		      rule.n_regs == 4 && rule.regs[0].kind == UW_RULE_AT_CFA &&
		      rule.regs[1].kind == UW_RULE_AT_REG && rule.regs[1].from == 6,
	      "and back");
	word = word_at(&t, 0x207, &ext);
	CHECK(uw_packed_kind(word) == TABLE_SP && uw_packed_cfa(word) == 24, "the first entry");
	word = word_at(&t, 0x210, &ext);
	CHECK(uw_packed_kind(word) == TABLE_PLT && uw_packed_cfa(word) == 8 &&
		      uw_packed_ra(word) == -1 && uw_packed_plt_mask(word) == 15 &&
		      uw_packed_plt_least(word) == 11 && uw_packed_plt_shift(word) == 3,
	      "the others");
	/* A rule that was made from a row is the same row again. */
	for (uint64_t at = 0x100; at < 0x240; at++) {
		struct uw_row row;

		word = word_at(&t, at, &ext);
		if (at >= 0x140 && at < 0x200)
			continue;
		CHECK(uw_table_rule(&t, CODE + at, &rule) == 0 &&
			      uw_row_of(t.arch, &rule, &row) == 0 &&
			      row.packed == (word & ~(uint64_t)TABLE_RULE_BEGINS) &&
			      !memcmp(row.ext, ext, t.arch->ext_slots * sizeof(*ext)),
		      "there and back");
	}
	free(blob);
}

/*
 * If FDEs touch or have padding between them, rows tell where procedures begin, except rows with
 * the state after a call instruction.
 */
static void test_rows_tell_where_procedures_begin(void)
{
	static const uint8_t as_called[] = { 0 }, deep[] = { 0x0e, 32 };
	static const uint8_t leaves[] = { 0x44, 0x0e, 32, 0x54, 0x0e, 8 };
	static const struct {
		uint64_t at;
		bool begins, inside;
	} cases[] = {
		{ 0x108, false, true },	 /* in a frame; another row follows */
		{ 0x118, false, false }, /* the entry state: may end here */
		{ 0x120, false, false }, /* with the same row */
		{ 0x130, true, true },	 /* deep from its start on */
		{ 0x14f, true, true },	 /* the next one is too far away … */
		{ 0x150, true, false },	 /* … and begins 16 bytes later */
		{ 0x15f, true, false },	 /* padding */
		{ 0x160, true, true },	 /* the same rule in a row of its own */
		{ 0x180, true, false },	 /* ends with the last row */
	};
	struct section s = { .size = 0 };
	const int16_t *ext;
	struct uw_table t;
	uint8_t *blob;
	size_t size;

	add_cie(&s);
	add_fde(&s, CODE + 0x100, 0x20, leaves, sizeof(leaves));
	add_fde(&s, CODE + 0x120, 0x10, as_called, sizeof(as_called));
	add_fde(&s, CODE + 0x130, 0x28, deep, sizeof(deep));
	add_fde(&s, CODE + 0x160, 0x20, deep, sizeof(deep));
	add_fde(&s, CODE + 0x180, 0x20, deep, sizeof(deep));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t word = word_at(&t, cases[i].at, &ext);

		CHECK(!!(word & TABLE_RULE_BEGINS) == cases[i].begins, "begins");
		CHECK(uw_table_inside(&t, CODE + cases[i].at, false) == cases[i].inside, "inside");
	}
	CHECK(uw_table_row(&t, CODE + 0x12f) == uw_table_row(&t, CODE + 0x118) &&
		      uw_table_row(&t, CODE + 0x160) == uw_table_row(&t, CODE + 0x15f) + 1,
	      "equal rows");
	CHECK(!uw_table_inside(&t, 0, true) && !uw_table_inside(&t, UINT64_MAX, true) &&
		      !uw_table_inside(&t, CODE + 0x1a0, true),
	      "no row");
	free(blob);
}

/*
 * More instructions between two advances than are looked up at once; the second FDE finds them
 * cached.
 */
static void test_long_runs_of_instructions(void)
{
	static const uint8_t many[] = { 0x41, 0x0e, 64,	  0x86, 2,    0x83, 3,	  0x8c,
					4,    0x8d, 5,	  0x8e, 6,    0x8f, 7,	  0x44,
					0x0a, 0x0e, 0x80, 0x10, 0xc3, 0xcc, 0x44, 0x0b };
	struct section s = { .size = 0 };
	struct uw_table t;
	const int16_t *ext;
	uint8_t *blob;
	size_t size;

	add_cie(&s);
	for (unsigned int i = 0; i < 2; i++)
		add_fde(&s, CODE + 0x100 + i * 0x100, 0x40, many, sizeof(many));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	for (uint64_t at = 0x100; at < 0x300; at += 0x100) {
		uint64_t word = word_at(&t, at + 1, &ext);

		CHECK(uw_packed_cfa(word) == 64 && uw_packed_fp(word) == -2 && ext[0] == -3 &&
			      ext[1] == -4 && ext[2] == -5 && ext[3] == -6 && ext[4] == -7,
		      "all are pushed");
		word = word_at(&t, at + 5, &ext);
		CHECK(uw_packed_cfa(word) == 2048 && ext[0] == TABLE_SAME && ext[1] == TABLE_SAME &&
			      ext[2] == -5,
		      "two are restored");
		CHECK(uw_packed_cfa(word_at(&t, at + 9, &ext)) == 64 && ext[0] == -3,
		      "and the state before");
	}
	free(blob);
}

/* DW_CFA_expression without bytes, in two rows: there is nothing to store, and no place for it. */
static void test_an_expression_without_bytes_takes_no_room(void)
{
	static const uint8_t empty[] = { 0x44, 0x10, 3, 0, 0x44, 0x0e, 16, 0x44, 0x10, 12, 0 };
	struct section s = { .size = 0 };
	struct uw_table t;
	struct uw_rule rule;
	uint8_t *blob;
	size_t size;

	add_cie(&s);
	add_fde(&s, CODE + 0x100, 0x40, empty, sizeof(empty));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	CHECK(t.header->expr_size == 0, "no expressions");
	CHECK(uw_table_rule(&t, CODE + 0x104, &rule) == 0 && rule.n_regs == 2 &&
		      rule.regs[0].kind == UW_RULE_AT_EXPR && rule.regs[0].size == 0,
	      "rbx by an empty one");
	CHECK(uw_table_rule(&t, CODE + 0x108, &rule) == 0 && rule.cfa_off == 16, "the second row");
	CHECK(uw_table_rule(&t, CODE + 0x10c, &rule) == 0 && rule.n_regs == 3 &&
		      rule.regs[1].reg == 12 && rule.regs[1].size == 0,
	      "r12 by another");
	free(blob);
}

static void test_overlaps_and_damage_have_no_answer(void)
{
	static const uint8_t bad[] = { 0x44, 0x0e, 16, 0x44, 0x3f };
	struct section s = { .size = 0 };
	struct uw_table t;
	const int16_t *ext;
	uint8_t *blob;
	size_t size;

	add_cie(&s);
	add_fde(&s, CODE + 0x100, 0x40, pushes, sizeof(pushes));
	add_fde(&s, CODE + 0x120, 0x10, popped, sizeof(popped));
	add_fde(&s, CODE + 0x200, 0x20, bad, sizeof(bad));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	CHECK(uw_packed_kind(word_at(&t, 0x11f, &ext)) == TABLE_FP, "before the overlap");
	CHECK(uw_packed_kind(word_at(&t, 0x120, &ext)) == TABLE_NONE &&
		      uw_packed_kind(word_at(&t, 0x135, &ext)) == TABLE_NONE,
	      "in it and behind it");
	CHECK(uw_packed_cfa(word_at(&t, 0x204, &ext)) == 16, "a row before the damage");
	CHECK(uw_packed_kind(word_at(&t, 0x208, &ext)) == TABLE_NONE, "and behind it");
	free(blob);
}

static volatile uint64_t sink;

static void use(const struct uw_table *t)
{
	struct uw_rule rule;

	for (uint64_t at = 0; at < 0x7000; at += 13)
		if (!uw_table_rule(t, CODE + at, &rule))
			sink ^= rule.cfa_size ? rule.cfa_expr[rule.cfa_size - 1] : rule.n_regs;
}

/* Damage with a matching checksum is refused or harmless: ASan checks this. */
static void test_damaged_blobs_are_refused_or_harmless(void)
{
	struct section s = { .size = 0 };
	struct uw_table t;
	uint8_t *blob, *copy;
	size_t size, refused = 0, taken = 0;

	add_all(&s);
	CHECK(build(&s, &blob, &size) == 0, "builds");
	for (size_t i = 0; i < size; i++) {
		static const uint8_t flips[] = { 0x01, 0x80, 0xff };

		for (size_t f = 0; f < sizeof(flips); f++) {
			struct table_header *h;

			copy = malloc(size);
			if (!copy)
				return;
			memcpy(copy, blob, size);
			copy[i] ^= flips[f];
			if (uw_table_open(&t, copy, size) == 0)
				CHECK(0, "the checksum tells");
			/*
			 * The field with the size of the front must be right: sealing depends on
			 * it.
			 */
			h = (struct table_header *)copy;
			if (h->blob.header_size != TABLE_HEADER_SIZE ||
			    h->blob.front != ((struct table_header *)blob)->blob.front ||
			    h->blob.size != size) {
				refused++;
				free(copy);
				continue;
			}
			uw_blob_seal(copy);
			if (uw_table_open(&t, copy, size)) {
				refused++;
			} else {
				taken++;
				use(&t);
			}
			free(copy);
		}
	}
	CHECK(refused > 200 && taken > 200, "both happen");
	for (size_t cut = 0; cut < size; cut++) {
		copy = malloc(cut ? cut : 1);
		if (!copy)
			return;
		memcpy(copy, blob, cut);
		CHECK(uw_table_open(&t, copy, cut) != 0, "cut short");
		free(copy);
	}
	free(blob);
}

/* Many rows in one block, so that every count of keys occurs; vectors and loop agree. */
static void test_all_lookups_agree(void)
{
	struct section s = { .size = 0 };
	uint8_t program[250];
	struct uw_table t;
	uint8_t *blob;
	size_t size;

	for (size_t i = 0; i + 3 <= sizeof(program) - 1; i += 3)
		memcpy(program + i,
		       (uint8_t[]){ (uint8_t)(0x41 + i % 5), 0x0e, (uint8_t)(8 + i / 3 % 15 * 8) },
		       3);
	program[249] = 0;
	add_cie(&s);
	for (unsigned int i = 0; i < 12; i++)
		add_fde(&s, CODE + 7 + i * 300, 300 - i, program, sizeof(program));
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	for (uint64_t at = 0; at < 4096; at++)
		CHECK(uw_table_row(&t, CODE + at) == uw_table_row_portable(&t, CODE + at), "row");
	free(blob);
}

/* Row k of n in a block: one every 3 units, the last one at the block's end. */
static uint32_t unit_of(uint32_t k, uint32_t n)
{
	return k && k == n - 1 ? 255 : k * 3;
}

/*
 * Blocks of as many rows as are compared at once, of one less, of one more and of twice as many;
 * and empty blocks.
 */
static void test_blocks_of_all_sizes(void)
{
	static const uint8_t sizes[] = { 1,  2,	 15, 16, 17, 31, 32, 33, 34,
					 47, 48, 49, 63, 64, 65, 66, 80 };
	struct section s = { .size = 0 };
	uint32_t row = 0;
	struct uw_table t;
	uint8_t *blob;
	size_t size;

	add_cie(&s);
	for (uint32_t i = 0; i < sizeof(sizes); i++) {
		uint8_t program[250], *p = program;

		for (uint32_t k = 0; k < sizes[i]; k++) {
			if (k && k == sizes[i] - 1u) {
				*p++ = 0x02; /* DW_CFA_advance_loc1 */
				*p++ = (uint8_t)(255 - unit_of(k - 1, sizes[i]));
			} else if (k) {
				*p++ = 0x40 | 3; /* DW_CFA_advance_loc */
			}
			*p++ = 0x0e; /* DW_CFA_def_cfa_offset */
			*p++ = (uint8_t)(16 + k % 13 * 8);
		}
		add_fde(&s, CODE + i * 0x200, 0x200, program, (uint8_t)(p - program));
	}
	CHECK(build(&s, &blob, &size) == 0 && uw_table_open(&t, blob, size) == 0, "builds");
	for (uint32_t i = 0; i < sizeof(sizes); i++, row++) {
		for (uint32_t at = 0, k = 0; at < 0x200; at++) {
			uint64_t vaddr = CODE + i * 0x200 + at;

			if (k + 1 < sizes[i] && at == unit_of(k + 1, sizes[i])) {
				k++;
				row++;
			}
			CHECK(uw_table_row(&t, vaddr) == row, "with vectors");
			CHECK(uw_table_row_portable(&t, vaddr) == row, "without");
		}
	}
	free(blob);
}

static int open_self(struct uw_object **object)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : uw_object_open(fd, 0, object);

	if (fd >= 0)
		close(fd);
	return err;
}

static void test_objects_compile_and_adopt(void)
{
	struct uw_object *one = NULL, *two = NULL;
	const void *blob;
	uint8_t *copy;
	size_t size, again;

	CHECK(!open_self(&one) && !open_self(&two), "open");
	CHECK(!uw_object_compiled(one, &size) && size == 0, "not compiled yet");
	CHECK(uw_object_compile(one) == 0 && uw_object_compile(one) == 0, "compile, twice");
	blob = uw_object_compiled(one, &size);
	CHECK(blob && size > 192, "compiled");
	copy = malloc(size);
	if (!blob || !copy)
		return;
	memcpy(copy, blob, size);
	copy[size / 2] ^= 1;
	CHECK(uw_object_adopt(two, copy, size) == -EBADMSG, "a damaged one is not taken");
	((struct table_header *)copy)->src_hash ^= 1;
	copy[size / 2] ^= 1;
	uw_blob_seal(copy);
	CHECK(uw_object_adopt(two, copy, size) == -ENOENT, "nor one of another file");
	CHECK(uw_object_adopt(two, blob, size) == 0, "its own is");
	CHECK(uw_object_compiled(two, &again) && again == size &&
		      !memcmp(uw_object_compiled(two, &again), blob, size),
	      "and is the same");
	free(copy);
	uw_object_put(one);
	uw_object_put(two);
}

static bool always(void *ctx)
{
	++*(unsigned int *)ctx;
	return true;
}

/* How many of the 64 bytes of each function have a rule. */
static uint64_t costly_span = 64;

/*
 * FDEs with an instruction that no fast path knows; all have one CIE, which takes long to execute.
 */
static int build_costly(size_t n_fdes, size_t n_initial, bool (*stop)(void *ctx), void *ctx)
{
	static const uint8_t head[] = { 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1 };
	size_t cie_size = 8 + sizeof(head) + n_initial, fde_size = 28;
	uint8_t *bytes = calloc(1, cie_size + n_fdes * fde_size), *blob = NULL;
	struct uw_cfi cfi = { .data = bytes, .size = cie_size + n_fdes * fde_size, .eh = true };
	struct uw_segment code = {
		.vaddr = CODE, .file_size = n_fdes * 64, .mem_size = n_fdes * 64, .flags = PF_X
	};
	struct uw_build_id id = { .size = 1 };
	struct uw_table_source source = { .arch = &uw_arch_x86_64,
					  .cfi = { &cfi },
					  .build_id = &id,
					  .segments = &code,
					  .n_segments = 1,
					  .stop = stop,
					  .stop_ctx = ctx };
	uint32_t length = (uint32_t)cie_size - 4;
	size_t size;
	int err;

	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, &length, 4);
	memcpy(bytes + 8, head, sizeof(head));
	for (size_t i = 0; i < n_initial; i++)
		bytes[8 + sizeof(head) + i] = i % 2 ? 0x0b : 0x0a;
	for (size_t i = 0; i < n_fdes; i++) {
		uint8_t *fde = bytes + cie_size + i * fde_size;
		uint32_t back = (uint32_t)(fde - bytes) + 4;
		uint64_t start = CODE + i * 64, span = costly_span;

		length = (uint32_t)fde_size - 4;
		memcpy(fde, &length, 4);
		memcpy(fde + 4, &back, 4);
		memcpy(fde + 8, &start, 8);
		memcpy(fde + 16, &span, 8);
	}
	err = uw_table_build(&source, &blob, &size);
	free(blob);
	free(bytes);
	return err;
}

static void test_a_table_has_bounds(void)
{
	unsigned int asked = 0;

	CHECK(build_costly(1000, 100, NULL, NULL) == 0, "what a file may ask for");
	CHECK(build_costly(20000, 998000, NULL, NULL) == -EFBIG, "a CIE that all FDEs pay for");
	CHECK(build_costly(1000, 0, always, &asked) == -ECANCELED && asked >= 1, "given up");
}

static void test_limits_of_a_table_can_be_set(void)
{
	struct uw_limits defaults, fewer, reached;

	uw_limits_get(&defaults);
	fewer = defaults;
	fewer.functions = 999;
	CHECK(!uw_limits_set(&fewer) && build_costly(1000, 0, NULL, NULL) == -EFBIG, "functions");
	fewer.functions = 1000;
	CHECK(!uw_limits_set(&fewer) && build_costly(1000, 0, NULL, NULL) == 0, "as many");
	fewer.rows = 1000;
	costly_span = 32;
	CHECK(!uw_limits_set(&fewer) && build_costly(1000, 0, NULL, NULL) == -EFBIG, "rows");
	costly_span = 64;
	uw_limits_reached(&reached);
	CHECK(reached.functions == 1 && reached.rows == 1 && !reached.rules,
	      "each is counted once");
	CHECK(!uw_limits_set(&defaults), "set again");
}

int main(void)
{
	test_a_table_has_bounds();
	test_limits_of_a_table_can_be_set();
	test_rows_are_what_the_program_says();
	test_common_expressions_have_words();
	test_rows_tell_where_procedures_begin();
	test_long_runs_of_instructions();
	test_an_expression_without_bytes_takes_no_room();
	test_overlaps_and_damage_have_no_answer();
	test_damaged_blobs_are_refused_or_harmless();
	test_all_lookups_agree();
	test_blocks_of_all_sizes();
	test_objects_compile_and_adopt();
	return check_done();
}

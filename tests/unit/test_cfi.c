/*
 * tests/unit/test_cfi.c: tests the decoder of call frame information: instructions, augmentations,
 * encodings, forms, damage.
 */
#include "unwinder/cfi/cfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "unwinder/cfi/pointer.h"

#define VADDR 0x10000 /* of the section */
#define START 0x2000  /* of the function */
#define SIZE  0x100

/* A section that is written by hand. */
struct section {
	uint8_t data[1024];
	size_t size;
};

static void put(struct section *s, const void *bytes, size_t size)
{
	if (size)
		memcpy(s->data + s->size, bytes, size);
	s->size += size;
}

static void put_number(struct section *s, uint64_t value, unsigned int size)
{
	for (unsigned int i = 0; i < size; i++)
		s->data[s->size++] = (uint8_t)(value >> (8 * i));
}

static void patch(struct section *s, size_t at, uint64_t value, unsigned int size)
{
	size_t end = s->size;

	s->size = at;
	put_number(s, value, size);
	s->size = end;
}

/* psABI table 3.37's CIE: code 1, data -8, ra 16; CFA rsp + 8, ra at CFA - 8. */
static size_t put_cie(struct section *s, const char *letters, const void *data, size_t data_size,
		      const void *extra, size_t extra_size)
{
	size_t at = s->size;

	put_number(s, 0, 4);
	put_number(s, 0, 4);
	put_number(s, 1, 1);
	put(s, letters, strlen(letters) + 1);
	put(s, "\x01\x78\x10", 3);
	if (letters[0] == 'z')
		put_number(s, data_size, 1);
	put(s, data, data_size);
	put(s, "\x0c\x07\x08\x90\x01", 5);
	put(s, extra, extra_size);
	patch(s, at, s->size - at - 4, 4);
	return at;
}

/* With absolute addresses, or encoded as the CIE's pointers if encoded is set. */
static size_t put_fde(struct section *s, size_t cie, uint64_t start, uint64_t size, bool sized,
		      const void *program, size_t program_size)
{
	size_t at = s->size;

	put_number(s, 0, 4);
	put_number(s, s->size - cie, 4);
	put_number(s, start, 8);
	put_number(s, size, 8);
	if (sized)
		put_number(s, 0, 1);
	put(s, program, program_size);
	patch(s, at, s->size - at - 4, 4);
	return at;
}

static struct uw_cfi cfi_of(const struct section *s)
{
	return (struct uw_cfi){ .data = s->data, .size = s->size, .vaddr = VADDR, .eh = true };
}

/* Return the rule at START + at after program; -EBADMSG and so on, as the parts return them. */
static int rule_at(const void *program, size_t size, uint64_t at, struct uw_rule *rule)
{
	static struct section s; /* rules point into it */
	struct uw_cfi cfi;
	struct uw_fde fde;
	size_t off;
	int err;

	s.size = 0;
	off = put_fde(&s, put_cie(&s, "", NULL, 0, NULL, 0), START, SIZE, false, program, size);
	cfi = cfi_of(&s);
	err = uw_cfi_entry(&cfi, off, &fde, NULL);
	CHECK(err == 0 && fde.start == START && fde.end == START + SIZE, "the FDE");
	return err ? err : uw_cfi_rule(&cfi, &fde, START + at, rule);
}
#define RULE(bytes, at) rule_at(bytes, sizeof(bytes) - 1, at, &rule)

static bool is(const struct uw_rule *rule, unsigned int reg, int kind, int64_t off)
{
	const struct uw_reg_rule *r = uw_rule_reg(rule, reg);

	return kind < 0 ? !r : r && r->kind == kind && r->off == off;
}

static bool cfa_is(const struct uw_rule *rule, unsigned int reg, int64_t off)
{
	return !rule->cfa_size && rule->cfa_reg == reg && rule->cfa_off == off;
}

/* Encodings: DWARF 5 table 7.29; meanings: §6.4.2. */
static void test_every_instruction(void)
{
	struct uw_rule rule;

	CHECK(RULE("", 0) == 0 && cfa_is(&rule, 7, 8) && is(&rule, 16, UW_RULE_AT_CFA, -8) &&
		      rule.n_regs == 1 && rule.ra == 16 && !rule.signal,
	      "the CIE's row");
	CHECK(RULE("\x0e\x10\x86\x02", 0) == 0 && cfa_is(&rule, 7, 16) &&
		      is(&rule, 6, UW_RULE_AT_CFA, -16),
	      "def_cfa_offset, offset");
	CHECK(RULE("\x41\x0e\x10", 0) == 0 && cfa_is(&rule, 7, 8), "before advance_loc");
	CHECK(RULE("\x41\x0e\x10", 1) == 0 && cfa_is(&rule, 7, 16), "behind it");
	CHECK(RULE("\x02\x40\x0e\x10", 0x3f) == 0 && cfa_is(&rule, 7, 8), "advance_loc1, before");
	CHECK(RULE("\x02\x40\x0e\x10", 0x40) == 0 && cfa_is(&rule, 7, 16), "advance_loc1");
	CHECK(RULE("\x03\x80\x00\x0e\x10", 0x80) == 0 && cfa_is(&rule, 7, 16), "advance_loc2");
	CHECK(RULE("\x04\x80\x00\x00\x00\x0e\x10", 0x80) == 0 && cfa_is(&rule, 7, 16),
	      "advance_loc4");
	CHECK(RULE("\x1d\x80\0\0\0\0\0\0\0\x0e\x10", 0x80) == 0 && cfa_is(&rule, 7, 16),
	      "MIPS_advance_loc8");
	CHECK(RULE("\x01\x10\x20\0\0\0\0\0\0\x0e\x10", 0xf) == 0 && cfa_is(&rule, 7, 8),
	      "set_loc, before");
	CHECK(RULE("\x01\x10\x20\0\0\0\0\0\0\x0e\x10", 0x10) == 0 && cfa_is(&rule, 7, 16),
	      "set_loc");
	CHECK(RULE("\x01\xff\x1f\0\0\0\0\0\0\x0e\x10", 0x10) == -EBADMSG, "set_loc back");
	CHECK(RULE("\x05\x06\x03", 0) == 0 && is(&rule, 6, UW_RULE_AT_CFA, -24), "offset_extended");
	CHECK(RULE("\x11\x06\x7d", 0) == 0 && is(&rule, 6, UW_RULE_AT_CFA, 24),
	      "offset_extended_sf");
	CHECK(RULE("\x2f\x06\x03", 0) == 0 && is(&rule, 6, UW_RULE_AT_CFA, 24),
	      "GNU_negative_offset_extended");
	CHECK(RULE("\x14\x06\x03", 0) == 0 && is(&rule, 6, UW_RULE_CFA_PLUS, -24), "val_offset");
	CHECK(RULE("\x15\x06\x7d", 0) == 0 && is(&rule, 6, UW_RULE_CFA_PLUS, 24), "val_offset_sf");
	CHECK(RULE("\x86\x02\xc6", 0) == 0 && is(&rule, 6, -1, 0),
	      "restore to what the CIE left out");
	CHECK(RULE("\x90\x05\x06\x10", 0) == 0 && is(&rule, 16, UW_RULE_AT_CFA, -8),
	      "restore_extended to what the CIE said");
	CHECK(RULE("\x07\x10", 0) == 0 && is(&rule, 16, UW_RULE_UNDEFINED, 0), "undefined");
	CHECK(RULE("\x86\x02\x08\x06", 0) == 0 && is(&rule, 6, UW_RULE_SAME, 0), "same_value");
	CHECK(RULE("\x09\x10\x01", 0) == 0 && uw_rule_reg(&rule, 16)->kind == UW_RULE_REGISTER &&
		      uw_rule_reg(&rule, 16)->from == 1,
	      "register");
	CHECK(RULE("\x0a\x0e\x20\x83\x04\x41\x0b", 0) == 0 && cfa_is(&rule, 7, 32) &&
		      is(&rule, 3, UW_RULE_AT_CFA, -32),
	      "remember_state");
	CHECK(RULE("\x0a\x0e\x20\x83\x04\x41\x0b", 1) == 0 && cfa_is(&rule, 7, 8) &&
		      is(&rule, 3, -1, 0),
	      "restore_state takes the CFA back too");
	CHECK(RULE("\x0c\x06\x10", 0) == 0 && cfa_is(&rule, 6, 16), "def_cfa");
	CHECK(RULE("\x0d\x06", 0) == 0 && cfa_is(&rule, 6, 8), "def_cfa_register");
	/* readelf shows FDE ec10 of libgcrypt.so.20.4.1 as: …, exp, then rsp+8. */
	CHECK(RULE("\x0f\x03\x77\x98\x01\x41\x0d\x07", 1) == 0 && cfa_is(&rule, 7, 8),
	      "def_cfa_register behind an expression");
	CHECK(RULE("\x12\x06\x7e", 0) == 0 && cfa_is(&rule, 6, 16), "def_cfa_sf");
	CHECK(RULE("\x13\x7e", 0) == 0 && cfa_is(&rule, 7, 16), "def_cfa_offset_sf");
	CHECK(RULE("\x0f\x02\x77\x08", 0) == 0 && rule.cfa_size == 2 && rule.cfa_expr[0] == 0x77,
	      "def_cfa_expression");
	CHECK(RULE("\x10\x06\x02\x77\x08", 0) == 0 &&
		      uw_rule_reg(&rule, 6)->kind == UW_RULE_AT_EXPR &&
		      uw_rule_reg(&rule, 6)->size == 2,
	      "expression");
	CHECK(RULE("\x16\x06\x02\x77\x08", 0) == 0 && uw_rule_reg(&rule, 6)->kind == UW_RULE_EXPR,
	      "val_expression");
	CHECK(RULE("\x2e\x10\x0e\x10", 0) == 0 && cfa_is(&rule, 7, 16),
	      "GNU_args_size is passed over");
	CHECK(RULE("\x2d", 0) == 0 && rule.ra_signed, "AARCH64_negate_ra_state");
	CHECK(RULE("\x2d\x2d", 0) == 0 && !rule.ra_signed, "and back");
	CHECK(RULE("\x05\x43\x03\x10\x43\x01\x30\x0e\x10", 0) == 0 && rule.n_regs == 1 &&
		      cfa_is(&rule, 7, 16),
	      "a vector register's rules are passed over");
	CHECK(RULE("\x41\x0e\x10\x42\x0e\x18", SIZE + 12) == 0 && cfa_is(&rule, 7, 24),
	      "padding has the last row");
}

static void test_damage_is_told(void)
{
	struct uw_rule rule;
	uint8_t deep[64];

	CHECK(RULE("\x3f", 0) == -ENOTSUP, "an unknown instruction");
	CHECK(RULE("\x41\x3f", 0) == 0, "beyond the row it does no harm");
	CHECK(RULE("\x0b", 0) == -EBADMSG, "nothing was remembered");
	CHECK(RULE("\x0e\x80", 0) == -EBADMSG, "an operand cut off");
	CHECK(RULE("\x0f\x09\x77", 0) == -EBADMSG, "an expression cut off");
	CHECK(RULE("\x0f\x00", 0) == -EBADMSG, "an empty expression");
	CHECK(RULE("\x0f\x01\x30\x0e\x10", 0) == -EBADMSG, "an offset to an expression");
	CHECK(RULE("\x0c\x43\x10", 0) == -ENOTSUP, "a CFA from a vector register");
	CHECK(RULE("\x09\x10\x43", 0) == -ENOTSUP, "a return address in a vector register");
	memset(deep, 0x0a, sizeof(deep));
	CHECK(rule_at(deep, 32, 0, &rule) == 0, "32 states deep");
	CHECK(rule_at(deep, 33, 0, &rule) == -ENOTSUP, "33");
}

static int entry(const struct section *s, size_t off, struct uw_fde *fde)
{
	struct uw_cfi cfi = cfi_of(s);

	return uw_cfi_entry(&cfi, off, fde, NULL);
}

static void test_augmentations(void)
{
	struct section s = { .size = 0 };
	struct uw_cfi cfi;
	struct uw_fde fde;
	struct uw_rule rule;
	size_t cie, off, at;

	/* P: an indirect personality (0x9b: pcrel sdata4), L, R pcrel sdata4, S: "zPLRS". */
	cie = put_cie(&s, "zPLRS", "\x9b\1\2\3\4\x1b\x1b", 7, NULL, 0);
	off = s.size;
	put_number(&s, 4 + 4 + 4 + 1 + 4, 4);
	put_number(&s, s.size - cie, 4);
	at = s.size;
	put_number(&s, (uint64_t)START - (VADDR + at), 4);
	put_number(&s, SIZE, 4);
	put(&s, "\x04zzzz", 5); /* LSDA, 4 bytes */
	CHECK(entry(&s, off, &fde) == 0 && fde.start == START && fde.end == START + SIZE, "zPLRS");
	CHECK(fde.cie.signal && fde.cie.sized && fde.cie.fde_encoding == 0x1b, "zPLRS");
	cfi = cfi_of(&s);
	CHECK(uw_cfi_rule(&cfi, &fde, START, &rule) == 0 && rule.signal, "a signal frame");

	s.size = 0;
	off = put_fde(&s, put_cie(&s, "zRB", "\0", 1, NULL, 0), START, SIZE, true, "", 0);
	CHECK(entry(&s, off, &fde) == 0 && fde.cie.b_key, "B");
	s.size = 0;
	off = put_fde(&s, put_cie(&s, "zX", "\0", 1, NULL, 0), START, SIZE, true, "", 0);
	CHECK(entry(&s, off, &fde) == -ENOTSUP, "an unknown letter");
	s.size = 0;
	off = put_fde(&s, put_cie(&s, "zR", "\x9b", 1, NULL, 0), START, SIZE, true, "", 0);
	CHECK(entry(&s, off, &fde) == -ENOTSUP, "an indirect start is refused");
	s.size = 0;
	off = put_fde(&s, put_cie(&s, "zR", "\xff", 1, NULL, 0), START, SIZE, true, "", 0);
	CHECK(entry(&s, off, &fde) == -ENOTSUP, "an omitted one too");
	s.size = 0;
	off = put_fde(&s, put_cie(&s, "zR", "\x50", 1, NULL, 0), 0, 0, true, "\0\0\0\0\0\0\0", 8);
	at = off + 8 + (-(VADDR + off + 8) & 7);
	patch(&s, at, START, 8);
	CHECK(entry(&s, off, &fde) == 0 && fde.start == START, "aligned");

	/* GCC 2's "eh" has an address before the alignment factors. */
	s.size = 0;
	put_number(&s, 4 + 1 + 3 + 8 + 3 + 5, 4);
	put_number(&s, 0, 4);
	put(&s,
	    "\x01"
	    "eh\0"
	    "pointer!"
	    "\x01\x78\x10"
	    "\x0c\x07\x08\x90\x01",
	    1 + 3 + 8 + 3 + 5);
	off = put_fde(&s, 0, START, SIZE, false, "", 0);
	CHECK(entry(&s, off, &fde) == 0 && fde.cie.data_align == -8 && fde.cie.ra == 16, "eh");
}

static void test_pointer_encodings(void)
{
	static const uint8_t in[16] = { 0xf0, 0xff, 0xff, 0xff, 0x01, 0, 0, 0x80 };
	static const struct {
		uint8_t encoding, size;
		int err;
		uint64_t value;
	} encodings[] = {
		/* LSB 5.0 tables 10.1 and 10.2; the section is at 0x1000, text 0x2000, data 0x3000. */
		{ 0x00, 8, 0, 0x80000001fffffff0 },
		{ 0x02, 2, 0, 0xfff0 },
		{ 0x03, 4, 0, 0xfffffff0 },
		{ 0x04, 8, 0, 0x80000001fffffff0 },
		{ 0x0a, 2, 0, (uint64_t)-16 },
		{ 0x0b, 4, 0, (uint64_t)-16 },
		{ 0x0c, 8, 0, 0x80000001fffffff0 },
		{ 0x1b, 4, 0, 0xff0 },
		{ 0x2b, 4, 0, 0x1ff0 },
		{ 0x3b, 4, 0, 0x2ff0 },
		{ 0x4b, 4, -ENOTSUP, 0 },
		{ 0x50, 8, 0, 0x80000001fffffff0 },
		{ 0x9b, 4, -ENOTSUP, 0 },
		{ 0xff, 0, -ENOTSUP, 0 },
		{ 0x05, 0, -ENOTSUP, 0 },
		{ 0x6b, 0, -ENOTSUP, 0 },
	};
	struct uw_bases bases = { .start = in,
				  .vaddr = 0x1000,
				  .text = 0x2000,
				  .has_text = true,
				  .data = 0x3000,
				  .has_data = true,
				  .address_size = 8 };

	for (size_t i = 0; i < sizeof(encodings) / sizeof(encodings[0]); i++) {
		struct uw_bytes b = uw_bytes_of(in, sizeof(in));
		uint64_t value = 0;
		char name[8];

		(void)snprintf(name, sizeof(name), "%02x", encodings[i].encoding);
		CHECK(uw_pointer_read(&b, &bases, encodings[i].encoding, &value) ==
			      encodings[i].err,
		      name);
		CHECK(value == encodings[i].value, name);
		if (!encodings[i].err)
			CHECK(b.pos == in + encodings[i].size, name);
	}
}

/* The forms differ only in the heads of CIEs and FDEs; DWARF 5 §6.4.1, §7.4. */
static void test_debug_frame_forms(void)
{
	static const uint8_t v4_64bit[] = {
		/* CIE: 64-bit length, id, version 4, "", address 8, segment 0, factors, rules */
		0xff, 0xff, 0xff, 0xff, 21, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0,
		/* FDE at 33: CIE at 0 */
		0xff, 0xff, 0xff, 0xff, 26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		/* start, size, def_cfa_offset 16 */
		0, 0x20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x0e, 16
	};
	static const uint8_t v3_32bit[] = { 13, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78,
					    0x90, 0, 0x0c, 7, 8,
					    /* FDE at 17, with 8-byte addresses */
					    20, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0,
					    1, 0, 0, 0, 0, 0, 0 };
	static const uint8_t v4_narrow[] = { 15, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 4, 2, 1,
					     0x78, 16, 0x0c, 7, 8, 0,
					     /* FDE at 19: segment 2, address 4, size 4 */
					     14, 0, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0x20, 0, 0, 0, 1, 0,
					     0 };
	struct uw_cfi cfi = { .data = v4_64bit, .size = sizeof(v4_64bit) };
	struct uw_fde fde;
	struct uw_rule rule;
	uint64_t next = 0;

	CHECK(uw_cfi_entry(&cfi, 0, &fde, &next) == -ENOENT && next == 33, "a CIE is passed over");
	CHECK(uw_cfi_entry(&cfi, 33, &fde, &next) == 0 && fde.start == START &&
		      fde.end == START + SIZE && next == sizeof(v4_64bit),
	      "version 4, 64-bit DWARF");
	CHECK(uw_cfi_rule(&cfi, &fde, START, &rule) == 0 && cfa_is(&rule, 7, 16), "its rule");
	cfi = (struct uw_cfi){ .data = v3_32bit, .size = sizeof(v3_32bit) };
	CHECK(uw_cfi_entry(&cfi, 17, &fde, &next) == 0 && fde.start == START && fde.cie.ra == 16,
	      "version 3 has a LEB return address column");
	cfi = (struct uw_cfi){ .data = v4_narrow, .size = sizeof(v4_narrow) };
	CHECK(uw_cfi_entry(&cfi, 19, &fde, &next) == 0 && fde.start == START &&
		      fde.end == START + SIZE,
	      "segments and addresses of 4 bytes");
	/* Cut it short at each byte. */
	for (size_t size = 0; size < sizeof(v4_64bit); size++) {
		cfi = (struct uw_cfi){ .data = v4_64bit, .size = size };
		CHECK(uw_cfi_entry(&cfi, 33, &fde, &next) < 0, "cut short");
	}
}

static int count_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	uint64_t *last = ctx;

	CHECK(start == last[0] && end > start, "rows meet");
	CHECK(rule->start == START, "and know their FDE");
	last[0] = end;
	last[1]++;
	return 0;
}

static void test_rows_cover_the_function(void)
{
	struct section s = { .size = 0 };
	uint64_t last[2] = { START, 0 };
	size_t off = put_fde(&s, put_cie(&s, "", NULL, 0, NULL, 0), START, SIZE, false,
			     "\x41\x0e\x10\x40\x0e\x18\x02\xff\x0e\x08\x02\xff\x0e\x08", 14);
	struct uw_cfi cfi = cfi_of(&s);
	struct uw_fde fde;

	CHECK(uw_cfi_entry(&cfi, off, &fde, NULL) == 0, "the FDE");
	CHECK(uw_cfi_rows(&cfi, &fde, count_row, last) == 0, "rows");
	/* [0,1) [1,0x100): an advance by 0 makes no row; neither does an advance beyond the end. */
	CHECK(last[0] == START + SIZE && last[1] == 2, "rows cover the function");
}

/* Make a section of one CIE and one FDE as compilers write them. Return the FDE's offset. */
static size_t put_usual(struct section *s, bool personal)
{
	static const char plain[] = "\x1b", all[] = "\x9b\x10\x20\x00\x00\x1b\x1b";
	static const char program[] = "\x41\x0e\x10\x86\x02\x43\x0d\x06\x00\x00";
	size_t cie, at;

	s->size = 0;
	cie = personal ? put_cie(s, "zPLR", all, sizeof(all) - 1, "\0\0", 2)
		       : put_cie(s, "zR", plain, sizeof(plain) - 1, "\0\0", 2);
	at = s->size;
	put_number(s, 0, 4);
	put_number(s, s->size - cie, 4);
	put_number(s, (uint64_t)START - (VADDR + s->size), 4);
	put_number(s, SIZE, 4);
	put_number(s, personal ? 4 : 0, 1);
	put_number(s, 0x1234, personal ? 4 : 0);
	put(s, program, sizeof(program) - 1);
	patch(s, at, s->size - at - 4, 4);
	return at;
}

static bool same_bytes(const struct uw_bytes *a, const struct uw_bytes *b)
{
	return a->pos == b->pos && a->end == b->end && a->err == b->err;
}

static bool same_entry(const struct uw_cfi *cfi, uint64_t off)
{
	uint64_t next[2] = { 1234, 1234 };
	struct uw_fde a = { .start = 1 }, b = { .start = 1 };
	int err = uw_cfi_entry(cfi, off, &a, &next[0]);

	return err == uw_cfi_entry_general(cfi, off, &b, &next[1]) && next[0] == next[1] &&
	       a.start == b.start && a.end == b.end && same_bytes(&a.program, &b.program) &&
	       same_bytes(&a.augmentation, &b.augmentation) &&
	       same_bytes(&a.cie.program, &b.cie.program) && a.cie.code_align == b.cie.code_align &&
	       a.cie.data_align == b.cie.data_align && a.cie.ra == b.cie.ra &&
	       a.cie.version == b.cie.version && a.cie.address_size == b.cie.address_size &&
	       a.cie.segment_size == b.cie.segment_size &&
	       a.cie.fde_encoding == b.cie.fde_encoding &&
	       a.cie.lsda_encoding == b.cie.lsda_encoding && a.cie.sized == b.cie.sized &&
	       a.cie.signal == b.cie.signal && a.cie.b_key == b.cie.b_key &&
	       a.cie.personality_encoding == b.cie.personality_encoding &&
	       a.cie.personality == b.cie.personality;
}

/*
 * The short way for entries as compilers write them gives the same as the general one, whatever is
 * changed.
 */
static void test_usual_entries(void)
{
	static struct section s;

	for (unsigned int personal = 0; personal < 2; personal++) {
		size_t off = put_usual(&s, personal), size = s.size;
		struct uw_cfi cfi = cfi_of(&s);
		struct uw_fde fde;

		CHECK(uw_cfi_entry(&cfi, off, &fde, NULL) == 0 && fde.start == START &&
			      fde.end == START + SIZE && fde.cie.data_align == -8 &&
			      fde.cie.ra == 16,
		      "an FDE");
		for (size_t at = 0; at < size; at++) {
			uint8_t was = s.data[at];

			for (unsigned int value = 0; value < 256; value++) {
				s.data[at] = (uint8_t)value;
				CHECK(same_entry(&cfi, off) && same_entry(&cfi, 0), "changed");
			}
			s.data[at] = was;
		}
		for (cfi.size = 0; cfi.size < size; cfi.size++) {
			uint8_t *cut = malloc(cfi.size ? cfi.size : 1); /* whose end ASan guards */

			if (!cut)
				return;
			memcpy(cut, s.data, cfi.size);
			cfi.data = cut;
			CHECK(same_entry(&cfi, off) && same_entry(&cfi, 0), "cut short");
			free(cut);
		}
		cfi.data = s.data;
		cfi.eh = false;
		CHECK(same_entry(&cfi, off), "another section's");
	}
}

/*
 * Return the first row of an FDE whose CIE has these instructions. What follows a nop is unusual.
 */
static int first_row(const uint8_t *program, size_t size, bool nop, struct uw_rule *rule)
{
	static struct section s[2];
	struct uw_cfi cfi;
	struct uw_fde fde;
	size_t cie, off;
	int err;

	s[nop].size = 0;
	cie = put_cie(&s[nop], "", "\0", nop, NULL, 0);
	s[nop].size -= 5;
	put(&s[nop], program, size);
	patch(&s[nop], cie, s[nop].size - cie - 4, 4);
	off = put_fde(&s[nop], cie, START, SIZE, false, "\xd0\x42", 2);
	cfi = cfi_of(&s[nop]);
	err = uw_cfi_entry(&cfi, off, &fde, NULL);
	CHECK(err == 0, "the FDE");
	return err ? err : uw_cfi_rule(&cfi, &fde, START + 1, rule);
}

/* Change each byte of the beginning of a CIE to every other value. */
static void test_usual_beginnings(void)
{
	const uint8_t program[] = { 0x0c, 7, 8, 0x90, 1, 0, 0 };

	for (size_t i = 0; i < sizeof(program) * 256; i++) {
		for (size_t size = 0; size <= sizeof(program); size++) {
			struct uw_rule a = { .n_regs = 0 }, b = { .n_regs = 0 };
			uint8_t changed[sizeof(program)];
			bool same;

			memcpy(changed, program, sizeof(program));
			changed[i / 256] = (uint8_t)i;
			same = first_row(changed, size, false, &a) ==
				       first_row(changed, size, true, &b) &&
			       a.cfa_size == b.cfa_size && a.cfa_reg == b.cfa_reg &&
			       (a.cfa_size || a.cfa_off == b.cfa_off) && a.n_regs == b.n_regs &&
			       a.ra_signed == b.ra_signed;
			for (unsigned int k = 0; same && k < a.n_regs; k++)
				same = a.regs[k].reg == b.regs[k].reg &&
				       a.regs[k].kind == b.regs[k].kind &&
				       (a.regs[k].kind >= UW_RULE_AT_EXPR ||
					a.regs[k].off == b.regs[k].off) &&
				       a.regs[k].size == b.regs[k].size;
			CHECK(same, "the same row");
		}
	}
}

/* Look up one row in an FDE; the CIE and the FDE have this many more instructions. */
static int long_rule(size_t n_initial, size_t n, bool registers)
{
	size_t room = n_initial + n + 512, at = 0, fde_at;
	uint8_t *bytes = calloc(1, room);
	struct uw_cfi cfi = { .data = bytes, .vaddr = VADDR, .eh = true };
	static const uint8_t head[] = { 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1 };
	struct uw_fde fde;
	struct uw_rule rule;
	uint32_t length;
	uint64_t number;
	int err;

	if (!bytes)
		return -ENOMEM;
	memcpy(bytes + 8, head, sizeof(head));
	at = 8 + sizeof(head);
	for (size_t i = 0; i < n_initial; i++)
		bytes[at++] = i % 2 ? 0x0b : 0x0a;
	length = (uint32_t)at - 4;
	memcpy(bytes, &length, 4);
	fde_at = at;
	length = (uint32_t)at + 4;
	memcpy(bytes + at + 4, &length, 4);
	number = START;
	memcpy(bytes + at + 8, &number, 8);
	number = SIZE;
	memcpy(bytes + at + 16, &number, 8);
	at += 24;
	for (unsigned int i = 0; registers && i < 32; i++) {
		bytes[at++] = 0x05;
		bytes[at++] = (uint8_t)i;
		bytes[at++] = 1;
	}
	for (size_t i = 0; i < n; i++)
		bytes[at++] = i % 2 ? 0x0b : 0x0a;
	length = (uint32_t)(at - fde_at) - 4;
	memcpy(bytes + fde_at, &length, 4);
	cfi.size = at;
	err = uw_cfi_entry(&cfi, fde_at, &fde, NULL);
	if (!err)
		err = uw_cfi_rule(&cfi, &fde, START, &rule);
	free(bytes);
	return err;
}

/* The longest programs of real files have 20 instructions in a CIE and 31,438 in an FDE. */
static void test_long_programs_are_refused(void)
{
	CHECK(long_rule(0, 0, false) == 0, "short");
	CHECK(long_rule(200, 0, false) == 0, "a CIE ten times as long as any real one");
	CHECK(long_rule(1000, 0, false) == -ENOTSUP, "and one that has every FDE pay for it");
	CHECK(long_rule(998000, 0, false) == -ENOTSUP, "and a bomb");
	CHECK(long_rule(0, 64000, false) == 0, "an FDE twice as long as any real one");
	CHECK(long_rule(0, 70000, false) == -E2BIG, "and one that is longer");
	CHECK(long_rule(0, 2000, true) == 0, "rows of many registers");
	CHECK(long_rule(0, 8000, true) == -E2BIG, "which cost more to remember");
}

static void test_runs_of_terminators(void)
{
	static struct section s;
	struct uw_cfi cfi;
	struct uw_fde fde;
	uint64_t next = 0;
	size_t off, cie;

	s.size = 0;
	for (unsigned int i = 0; i < 50; i++)
		put_number(&s, 0, 4);
	cie = put_cie(&s, "", NULL, 0, NULL, 0);
	off = put_fde(&s, cie, START, SIZE, false, "", 0);
	cfi = cfi_of(&s);
	CHECK(uw_cfi_entry(&cfi, 0, &fde, &next) == -ENOENT && next == 200, "passed over at once");
	CHECK(uw_cfi_entry(&cfi, off, &fde, NULL) == 0 && uw_cfi_count(&cfi) == 1, "and not more");
	CHECK(!uw_cfi_ends(&cfi, 0), "of a known size");
	cfi.to_terminator = true;
	CHECK(uw_cfi_ends(&cfi, 0) && !uw_cfi_ends(&cfi, cie) && uw_cfi_count(&cfi) == 0,
	      "of none");
}

int main(void)
{
	test_long_programs_are_refused();
	test_runs_of_terminators();
	test_every_instruction();
	test_damage_is_told();
	test_augmentations();
	test_pointer_encodings();
	test_debug_frame_forms();
	test_rows_cover_the_function();
	test_usual_entries();
	test_usual_beginnings();
	return check_done();
}

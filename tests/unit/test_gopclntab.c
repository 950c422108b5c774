/*
 * tests/unit/test_gopclntab.c: tests the rules made from .gopclntab, Go's table of functions:
 * layouts, damage, limits.
 */
#include "unwinder/rule/go_rules.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "tests/image.h"
#include "unwinder/arch/arch.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/step.h"

#define LEAF   0x1000 /* no frame */
#define WORK   0x1040 /* 32 bytes from its fifth to its last */
#define GOEXIT 0x1080 /* nobody called it */
#define MCALL  0x10c0 /* calls on another stack, up to MCALL + 0x13 */
#define NOW    0x1100 /* the same; has a frame pointer from NOW + 0xe to NOW + 0x20 */
#define ODD    0x1140 /* there is no information about its stack */
#define END    0x1180
#define TABLE  0x2000 /* vaddr of the section */
#define RELOCS 0x4000

static const uint64_t starts[] = { LEAF, WORK, GOEXIT, MCALL, NOW, ODD, END };
#define N 6

static const uint8_t flat[] = { 2, 0x40, 0 },		 /* 0 */
	framed[] = { 2, 4, 0x40, 0x3b, 0x3f, 1, 0 },	 /* 0, 32, 0 */
	sixteen[] = { 2, 4, 0x20, 0x20, 0x1f, 0x1c, 0 }; /* 0, 16, 0 */
static const char *const names[] = { "main.leaf",     "main.work",	   "runtime.goexit",
				     "runtime.mcall", "runtime.nanotime1", "main.odd" };

struct out {
	uint8_t data[4096];
	size_t size;
};

static void put(struct out *o, uint64_t value, unsigned int size)
{
	for (unsigned int i = 0; i < size; i++)
		o->data[o->size++] = (uint8_t)(value >> 8 * i);
}

static void patch(struct out *o, size_t off, uint64_t value, unsigned int size)
{
	size_t end = o->size;

	o->size = off;
	put(o, value, size);
	o->size = end;
}

struct layout {
	uint32_t magic;
	unsigned int words, text; /* in the header; index of the text's start, 0: none */
	bool parts; /* names, values and records have separate places, each with its own offsets */
	unsigned int rest; /* of a record after the table for sp: bytes before the flags */
	bool flags;
};

static const struct layout layouts[] = {
	{ .magic = 0xfffffffb, .words = 1, .rest = 16 },
	{ .magic = 0xfffffffa, .words = 7, .parts = true, .rest = 17 },
	{ .magic = 0xfffffffa, .words = 7, .parts = true, .rest = 17, .flags = true },
	{ .magic = 0xfffffff0, .words = 8, .text = 2, .parts = true, .rest = 17, .flags = true },
	{ .magic = 0xfffffff1, .words = 8, .text = 2, .parts = true, .rest = 21, .flags = true },
};
#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* Write the table as Go's linker does, for the functions above. */
static void make(struct out *o, const struct layout *l, uint64_t text)
{
	const unsigned int width = l->text ? 4 : 8;
	const uint8_t *const tables[N] = { flat, framed, flat, flat, sixteen, NULL };
	const size_t sizes[N] = { sizeof(flat), sizeof(framed),	 sizeof(flat),
				  sizeof(flat), sizeof(sixteen), 0 };
	const uint8_t flags[N] = { 0, 0, 1, 2, 2, 0 };
	size_t name_at[N], value_at[N], parts, search;

	o->size = 0;
	put(o, l->magic, 4);
	put(o, 0, 2);
	put(o, 1, 1); /* an instruction is a byte */
	put(o, 8, 1); /* a pointer */
	put(o, N, 8);
	for (unsigned int i = 1; i < l->words; i++)
		put(o, i == l->text ? text : 0, 8);
	parts = o->size;
	/*
	 * In the old layout all offsets count from the beginning, and the search table comes first.
	 */
	search = parts;
	if (!l->parts)
		o->size += (size_t)2 * width * N + width;
	for (unsigned int i = 0; i < N; i++) {
		name_at[i] = o->size - (l->parts ? parts : 0);
		memcpy(o->data + o->size, names[i], strlen(names[i]) + 1);
		o->size += strlen(names[i]) + 1;
	}
	if (l->parts) {
		patch(o, 8 + 8u * (l->text ? 3 : 2), parts, 8);
		parts = o->size;
		patch(o, 8 + 8u * (l->text ? 6 : 5), parts, 8);
	}
	put(o, 0, 1); /* a table is not at 0 */
	for (unsigned int i = 0; i < N; i++) {
		value_at[i] = tables[i] ? o->size - (l->parts ? parts : 0) : 0;
		if (tables[i])
			memcpy(o->data + o->size, tables[i], sizes[i]);
		o->size += sizes[i];
	}
	if (l->parts) {
		parts = search = o->size;
		patch(o, 8 + 8u * (l->text ? 7 : 6), parts, 8);
		o->size += (size_t)2 * width * N + width;
	}
	for (unsigned int i = 0; i <= N; i++) {
		uint64_t entry = starts[i] - (l->text ? LEAF : 0);

		patch(o, search + (size_t)2 * width * i, entry, width);
		if (i == N)
			break;
		patch(o, search + (size_t)2 * width * i + width, o->size - (l->parts ? parts : 0),
		      width);
		put(o, entry, width);
		put(o, name_at[i], 4);
		put(o, 0, 8);
		put(o, value_at[i], 4);
		for (unsigned int k = 0; k < l->rest; k++)
			put(o, 0, 1);
		put(o, l->flags ? flags[i] : 0, 1);
		put(o, 0, 2);
	}
}

static const uint8_t *code(void)
{
	static uint8_t bytes[END - LEAF];
	static const uint8_t call_r12[] = { 0x41, 0xff, 0xd4 },
			     add[] = { 0x48, 0x83, 0xc4, 16 }, /* add $16, %rsp */
		prologue[] = { 0x48, 0x89, 0x6c, 0x24, 8,      /* mov %rbp, 8(%rsp) */
			       0x48, 0x8d, 0x6c, 0x24, 8 };    /* lea 8(%rsp), %rbp */

	memset(bytes, 0x90, sizeof(bytes));
	memcpy(bytes + (MCALL - LEAF) + 0x10, call_r12, sizeof(call_r12));
	memcpy(bytes + (NOW - LEAF) + 4, prologue, sizeof(prologue));
	memcpy(bytes + (NOW - LEAF) + 0x20, add, sizeof(add));
	return bytes;
}

static struct uw_object *object_of(const struct out *table, const char *section)
{
	struct image image = { .machine = EM_X86_64,
			       .entry = WORK,
			       .code = code(),
			       .code_size = END - LEAF,
			       .sections = { { .name = section,
					       .bytes = table->data,
					       .vaddr = TABLE,
					       .size = table->size } },
			       .n_sections = 1 };

	return image_object(&image);
}

static bool is(struct uw_object *o, uint64_t at, uint8_t reg, int64_t cfa, enum uw_rule_kind ra)
{
	struct uw_rule rule;
	const struct uw_reg_rule *r;

	if (uw_object_rule(o, at, false, &rule))
		return false;
	r = uw_rule_reg(&rule, rule.ra);
	return rule.cfa_reg == reg && rule.cfa_off == cfa && r && r->kind == ra &&
	       (ra != UW_RULE_AT_CFA || r->off == -8);
}

static bool has_fp(struct uw_object *o, uint64_t at)
{
	struct uw_rule rule;
	const struct uw_reg_rule *fp =
		uw_object_rule(o, at, false, &rule) ? NULL : uw_rule_reg(&rule, UW_X86_64_RBP);

	return fp && fp->kind == UW_RULE_AT_CFA && fp->off == -16;
}

/* The stack that the frame pointer leads to may lie anywhere, here below sp. */
static int read_stack(void *ctx, uint64_t addr, void *out, size_t size)
{
	static const uint64_t words[] = { 0x700, WORK + 8 }; /* at 0x500: the caller's frame */

	(void)ctx;
	if (size != 8 || addr < 0x500 || addr > 0x508)
		return -EFAULT;
	memcpy(out, &words[(addr - 0x500) / 8], 8);
	return 0;
}

static void check_frame_pointer(struct uw_object *o)
{
	struct uw_machine m = { .arch = &uw_arch_x86_64, .read = read_stack };
	struct uw_rule rule;
	uint64_t cfa = 0;

	m.regs.value[UW_X86_64_RSP] = 0x9000;
	m.regs.value[UW_X86_64_RBP] = 0x500;
	m.regs.known = 1 << UW_X86_64_RSP | 1 << UW_X86_64_RBP;
	CHECK(uw_object_rule(o, NOW + 0x12, true, &rule) == 0, "a rule");
	CHECK(uw_step(&m, &rule, &cfa) == 1 && cfa == 0x510 &&
		      m.regs.value[UW_X86_64_RIP] == WORK + 8 &&
		      m.regs.value[UW_X86_64_RSP] == 0x510 && m.regs.value[UW_X86_64_RBP] == 0x700,
	      "the frame pointer leads back");
}

static void check_rules(struct uw_object *o)
{
	struct uw_rule rule;

	CHECK(is(o, LEAF, UW_X86_64_RSP, 8, UW_RULE_AT_CFA) &&
		      is(o, WORK - 1, UW_X86_64_RSP, 8, UW_RULE_AT_CFA),
	      "no frame");
	CHECK(is(o, WORK + 3, UW_X86_64_RSP, 8, UW_RULE_AT_CFA) &&
		      is(o, WORK + 4, UW_X86_64_RSP, 40, UW_RULE_AT_CFA) &&
		      is(o, WORK + 0x3e, UW_X86_64_RSP, 40, UW_RULE_AT_CFA) &&
		      is(o, WORK + 0x3f, UW_X86_64_RSP, 8, UW_RULE_AT_CFA),
	      "a frame from its fifth byte to its last");
	CHECK(is(o, GOEXIT + 1, UW_X86_64_RSP, 8, UW_RULE_UNDEFINED), "nobody called");
	CHECK(is(o, MCALL + 0x12, UW_X86_64_RSP, 8, UW_RULE_UNDEFINED), "on another stack");
	CHECK(is(o, MCALL + 0x11, UW_X86_64_RSP, 8, UW_RULE_AT_CFA) &&
		      is(o, MCALL + 0x13, UW_X86_64_RSP, 8, UW_RULE_AT_CFA),
	      "before, and behind");
	CHECK(uw_object_rule(o, ODD, true, &rule) == -ENOENT, "nothing is said, nothing known");
	CHECK(uw_object_rule(o, END + 64, true, &rule) == -ENOENT, "nor of what is no function");
	check_frame_pointer(o);
	CHECK(is(o, NOW + 0xd, UW_X86_64_RSP, 24, UW_RULE_AT_CFA) &&
		      is(o, NOW + 0x20, UW_X86_64_RSP, 24, UW_RULE_AT_CFA),
	      "and sp before, and once it has been given back");
	CHECK(!has_fp(o, NOW + 8) && has_fp(o, NOW + 9) && has_fp(o, NOW + 0xd) &&
		      has_fp(o, NOW + 0x20),
	      "saved from where it has been, while there is a frame");
	CHECK(!has_fp(o, NOW + 0x24), "not behind");
	CHECK(!has_fp(o, WORK + 8), "and nowhere else");
}

static void test_layouts(void)
{
	for (size_t i = 0; i < N_LAYOUTS; i++) {
		const struct layout *l = &layouts[i];
		struct out table;
		struct uw_object *o;

		make(&table, l, LEAF);
		o = object_of(&table, ".gopclntab");
		CHECK(o && uw_object_is_go(o), "an object");
		if (!o)
			continue;
		if (i == 0 || i == 1) { /* nanotime1 is not among those known by name */
			CHECK(is(o, NOW + 0x12, UW_X86_64_RSP, 24, UW_RULE_AT_CFA), "not told");
			CHECK(is(o, GOEXIT + 1, UW_X86_64_RSP, 8, UW_RULE_UNDEFINED) &&
				      is(o, MCALL + 0x12, UW_X86_64_RSP, 8, UW_RULE_UNDEFINED),
			      "known by name");
			CHECK(is(o, WORK + 4, UW_X86_64_RSP, 40, UW_RULE_AT_CFA), "a frame");
		} else {
			check_rules(o);
		}
		CHECK(uw_object_compile(o) == 0, "a table is made of it");
		if (i > 1)
			check_rules(o);
		uw_object_put(o);
	}
}

static void test_places(void)
{
	struct image image = { .machine = EM_X86_64,
			       .entry = WORK,
			       .code = code(),
			       .code_size = END - LEAF,
			       .sections = { { .name = ".text", .vaddr = LEAF, .size = END - LEAF },
					     { .name = ".data.rel.ro.gopclntab", .vaddr = TABLE },
					     { .name = ".go.buildinfo", .vaddr = END, .size = 16 },
					     { .name = ".rela.dyn", .vaddr = RELOCS } },
			       .n_sections = 3 };
	const Elf64_Rela relocs[] = {
		{ .r_offset = TABLE, .r_info = R_X86_64_RELATIVE, .r_addend = 7 },
		{ .r_offset = TABLE + 24, .r_info = R_X86_64_64, .r_addend = 8 },
		{ .r_offset = TABLE + 24, .r_info = R_X86_64_RELATIVE, .r_addend = LEAF },
	};
	struct out table, part = { .size = 96 };
	struct uw_object *o;
	struct uw_rule rule;

	make(&table, &layouts[4], 0);
	image.sections[1].bytes = table.data;
	image.sections[1].size = table.size;
	o = image_object(&image);
	check_rules(o); /* the entry point belongs to a function */
	uw_object_put(o);
	image.entry = WORK + 1;
	o = image_object(&image);
	CHECK(uw_object_rule(o, WORK, true, &rule) == -ENOENT, "a text that may lie elsewhere");
	uw_object_put(o);

	image.sections[3].bytes = relocs;
	image.sections[3].size = sizeof(relocs);
	image.n_sections = 4;
	o = image_object(&image);
	check_rules(o);
	uw_object_put(o);

	/* In the middle of code that the C linker made one section. */
	make(&table, &layouts[3], LEAF);
	memcpy(part.data + part.size, table.data, table.size);
	part.size += table.size;
	image.sections[1].name = ".data.rel.ro";
	image.sections[1].bytes = part.data;
	image.sections[1].size = part.size;
	o = image_object(&image);
	check_rules(o);
	uw_object_put(o);
}

/* Damage each byte in some ways: there is no harm, and there is an answer. */
static void test_damage(void)
{
	for (size_t i = 0; i < N_LAYOUTS; i++) {
		struct out table;

		make(&table, &layouts[i], LEAF);
		for (size_t at = 0; at < 2 * table.size; at++) {
			struct out bad = table;
			struct uw_object *o;
			struct uw_rule rule;

			if (at < table.size)
				bad.data[at] ^= (uint8_t)(1u << at % 8 | 0x80);
			else
				bad.size = at - table.size;
			o = object_of(&bad, ".gopclntab");
			CHECK(o != NULL, "an object");
			for (uint64_t pc = LEAF; o && pc < END; pc += 13) {
				int err = uw_object_rule(o, pc, true, &rule);

				CHECK(err == 0 || err == -ENOENT, "a rule or none");
			}
			uw_object_put(o);
		}
	}
}

/* A thousand functions that share one table of a thousand runs would have a million rows. */
static void test_blow_up(void)
{
	enum { FUNCTIONS = 1000, RUNS = 1000, SIZE = 32768 };
	uint8_t *bytes = calloc(1, SIZE);
	struct out head = { .data = { 0 } };
	struct image image = { .machine = EM_X86_64,
			       .code = code(),
			       .code_size = END - LEAF,
			       .sections = { { .name = ".gopclntab",
					       .bytes = bytes,
					       .vaddr = TABLE,
					       .size = SIZE } },
			       .n_sections = 1 };
	struct uw_object *o;
	uint8_t *frames = NULL;
	size_t size = 0, values = 72, search = values + 2 * RUNS + 64;

	put(&head, 0xfffffff1, 4);
	put(&head, 0x08010000, 4);
	put(&head, FUNCTIONS, 8);
	put(&head, 0, 8);
	put(&head, LEAF, 8);
	head.size += 24; /* there are no names and files */
	put(&head, values, 8);
	put(&head, search, 8);
	CHECK(head.size == values && bytes, "a header");
	if (!bytes)
		return;
	memcpy(bytes, head.data, head.size);
	for (unsigned int i = 0; i < RUNS; i++) {
		bytes[values + 1 + 2 * i] = i % 2 ? 0x0f : i ? 0x10 : 0x12; /* 8, 0, 8, … */
		bytes[values + 2 + 2 * i] = 1;
	}
	for (unsigned int i = 0; i <= FUNCTIONS; i++) {
		struct out entry = { .size = 0 };

		put(&entry, i * 2000, 4);
		put(&entry, (FUNCTIONS + 1) * 8, 4);
		memcpy(bytes + search + 8u * i, entry.data, 8);
	}
	bytes[search + (FUNCTIONS + 1) * 8 + 16] = 1; /* the table for sp */
	o = image_object(&image);
	free(bytes);
	CHECK(o != NULL, "an object");
	if (!o)
		return;
	CHECK(uw_gopclntab_frames(o, &frames, &size) == -EBADMSG, "is refused");
	free(frames);
	uw_object_put(o);
}

int main(void)
{
	test_layouts();
	test_places();
	test_damage();
	test_blow_up();
	return check_done();
}

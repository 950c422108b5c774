/* tests/unit/test_dw_line.c: tests which rows of line programs are found. */
#include "symbolizer/dwarf/dwarf.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t program[512];
static size_t size;

static void put(const void *bytes, size_t n)
{
	memcpy(program + size, bytes, n);
	size += n;
}

/* A sequence that begins with a line, which is below 64 (DWARF 5 §6.2.5); rest: from its first row on. */
static void put_sequence(uint64_t addr, uint8_t line, const uint8_t *rest, size_t n)
{
	static const uint8_t set_address[] = { 0, 9, 2 };

	put(set_address, sizeof(set_address));
	put(&addr, sizeof(addr));
	put((const uint8_t[]){ 3, (uint8_t)(line - 1) }, 2);
	put(rest, n);
}

/* One row: 16 bytes of code of a line. */
static void put_function(uint64_t addr, uint8_t line)
{
	/* copy, advance_pc 16, end_sequence */
	static const uint8_t rest[] = { 1, 2, 16, 0, 1, 1 };

	put_sequence(addr, line, rest, sizeof(rest));
}

/* Two rows, of eight bytes and of two lines. */
static void put_function_of_two_lines(uint64_t addr, uint8_t line)
{
	/* copy, advance_pc 8, advance_line 1, copy, advance_pc 8, end_sequence */
	static const uint8_t rest[] = { 1, 2, 8, 3, 1, 1, 2, 8, 0, 1, 1 };

	put_sequence(addr, line, rest, sizeof(rest));
}

/* Write the header of version 4 for one file. */
static void begin_program(void)
{
	static const uint8_t head[] = {
		0,   0,	  0,   0,	    4,	0,  0, 0, 0, 0, /* sizes come later */
		1,   1,	  1,   (uint8_t)-5, 14, 13, 0, 1, 1, 1,
		1,   0,	  0,   0,	    1,	0,  0, 1, 0, /* directories */
		'a', '.', 'c', 0,	    0,	0,  0, 0
	};

	size = 0;
	put(head, sizeof(head));
	program[6] = sizeof(head) - 10;
}

/* Return the line of an address, of a table that was read for the wanted ones; 0: none. */
static uint32_t line_of(const uint64_t *wanted, size_t n, uint64_t addr)
{
	struct dw_budget budget = { .limit = UINT64_MAX };
	struct dw_file file = { .budget = &budget,
				.line = { .source = { .fd = -1, .image = program, .size = size },
					  .own_fd = -1 } };
	uint32_t length = (uint32_t)size - 4, line = 0;
	const struct dw_row *row;
	struct dw_table *table;
	uint64_t end;

	memcpy(program, &length, sizeof(length));
	if (dw_table_read(&file, 0, 8, wanted, n, &table))
		return 0;
	if (!dw_table_find(table, addr, &row, &end))
		line = row->line;
	dw_table_free(table);
	return line;
}

/* Linkers fold functions with the same code into one (--icf): then it has the lines of both. */
static void test_code_of_two_functions_hides_no_third(void)
{
	static const uint64_t wanted[] = { 0x1004, 0x2004 };

	begin_program();
	put_function(0x1000, 10);
	put_function(0x1000, 20);
	put_function(0x2000, 30);
	CHECK(line_of(wanted, 2, 0x2004) == 30, "the third");
	CHECK(line_of(wanted, 2, 0x1004) == 10 && line_of(NULL, 0, 0x1004) == 10,
	      "the first of both, also in the whole table");
	CHECK(line_of(NULL, 0, 0x2004) == 30, "in the whole table, too");
	CHECK(!line_of(wanted, 2, 0x3000), "none");
}

/* Of folded functions all lines are of one, although the rows of the other begin at other addresses. */
static void test_lines_of_folded_functions_are_not_mixed(void)
{
	static const uint64_t wanted[] = { 0x1004, 0x100c };

	begin_program();
	put_function(0x1000, 10);
	put_function_of_two_lines(0x1000, 20);
	put_function(0x2000, 30);
	for (size_t i = 0; i < 2; i++)
		CHECK(line_of(NULL, 0, wanted[i]) == 10 &&
			      line_of(&wanted[i], 1, wanted[i]) == 10 &&
			      line_of(wanted, 2, wanted[i]) == 10,
		      "the first one's line");
	CHECK(line_of(NULL, 0, 0x2004) == 30, "another one");
}

/* A file may take one byte in a header of version 5, or none, and 24 in memory. */
static void test_files_are_bounded(void)
{
	static const uint8_t head[] = {
		0, 0,	0, 0,		5,  0,	 8, 0, 0, 0, 0, 0, /* sizes come later */
		1, 1,	1, (uint8_t)-5, 14, 1,	 1, 1, 8, /* directories: a path, which is a string */
		1, 'd', 0, 1,		2,  0xb, /* files: the number of a directory, in a byte */
	};
	static const struct {
		uint32_t n;
		int err;
	} cases[] = { { 1000, 0 }, { (1 << 20) + 1, -E2BIG } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dw_budget budget = { .limit = UINT64_MAX };
		size_t room = sizeof(head) + 4 + cases[i].n;
		uint8_t *bytes = calloc(1, room);
		struct dw_file file = {
			.budget = &budget,
			.line = { .source = { .fd = -1, .image = bytes, .size = room },
				  .own_fd = -1 }
		};
		uint32_t length = (uint32_t)room - 4, rest = (uint32_t)room - 12;
		struct dw_table *table = NULL;

		CHECK(bytes, "memory");
		memcpy(bytes, head, sizeof(head));
		memcpy(bytes, &length, sizeof(length));
		memcpy(bytes + 8, &rest, sizeof(rest));
		for (size_t k = 0; k < 4; k++) /* the number of files, a ULEB128 */
			bytes[sizeof(head) + k] =
				(uint8_t)((cases[i].n >> 7 * k & 0x7f) | (k < 3 ? 0x80 : 0));
		CHECK(dw_table_read(&file, 0, 8, NULL, 0, &table) == cases[i].err, "files");
		CHECK(cases[i].err || table->n_files == cases[i].n, "all are there");
		dw_table_free(table);
		free(bytes);
	}
}

int main(void)
{
	test_lines_of_folded_functions_are_not_mixed();
	test_files_are_bounded();
	test_code_of_two_functions_hides_no_third();
	return check_done();
}

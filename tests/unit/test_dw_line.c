/* tests/unit/test_dw_line.c: tests which rows of line programs are found. */
#include "symbolizer/dwarf/dwarf.h"

#include "tests/check.h"

#include <string.h>

static uint8_t program[512];
static size_t size;

static void put(const void *bytes, size_t n)
{
	memcpy(program + size, bytes, n);
	size += n;
}

/* A sequence of one row: 16 bytes of code of a line, which is below 64 (DWARF 5 §6.2.5). */
static void put_function(uint64_t addr, uint8_t line)
{
	static const uint8_t set_address[] = { 0, 9, 2 }, rest[] = { 1, 2, 16, 0, 1, 1 };

	put(set_address, sizeof(set_address));
	put(&addr, sizeof(addr));
	put((const uint8_t[]){ 3, (uint8_t)(line - 1) }, 2);
	put(rest, sizeof(rest)); /* copy, advance_pc 16, end_sequence */
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
	CHECK(line_of(wanted, 2, 0x1004), "one of both");
	CHECK(line_of(NULL, 0, 0x2004) == 30, "in the whole table, too");
	CHECK(!line_of(wanted, 2, 0x3000), "none");
}

int main(void)
{
	test_code_of_two_functions_hides_no_third();
	return check_done();
}

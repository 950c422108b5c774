/* agent/cli/columns.h: prints values, bars and tables of a profile, for files and terminals. */
#ifndef AGENT_CLI_COLUMNS_H
#define AGENT_CLI_COLUMNS_H

#include "agent/export/profile/ranking.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_VALUE = 64 };

/* Format a value by its unit: "1.20 s", "3.00 KiB", "17". */
void table_value(int64_t value, const char *unit, char out[TABLE_VALUE]);

/*
 * Print text, sanitized, in at most width columns (0: no limit). Text that is cut ends in an
 * ellipsis. pad: fill up with spaces to width.
 */
void table_text(const char *text, size_t width, bool pad, FILE *out);

/*
 * Print a bar of width columns, of which percent is filled, in eighths of a column, and pad it
 * with spaces.
 */
void table_bar(double percent, size_t width, FILE *out);

/* Return the number of columns of the terminal that out writes to; 0: it is no terminal. */
size_t table_width(FILE *out);

struct table_options {
	enum ranking_order order;
	const char *unit;
	size_t n;     /* most rows; 0: all */
	size_t width; /* most columns; 0: no limit */
	bool bars;
	bool whole_names; /* show parameter lists on terminals, too */
	bool compared;	  /* the ranking is compared with a base */
};

/* Print a heading and the first n rows of a sorted ranking, then how many rows are left out. */
void table_print(const struct ranking *ranking, const struct table_options *options, FILE *out);

#endif

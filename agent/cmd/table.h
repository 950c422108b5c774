/*
 * agent/cmd/table.h: what tables of a profile's values have in common, on paper and on a screen.
 */
#ifndef AGENT_CMD_TABLE_H
#define AGENT_CMD_TABLE_H

#include "agent/export/ranking.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_VALUE = 64 };

/* "1.20 s", "3.00 KiB", "17", by the value's unit. */
void table_value(int64_t value, const char *unit, char out[TABLE_VALUE]);

/* text in at most width columns (0: any), a cut one with an ellipsis; padded if asked to. */
void table_text(const char *text, size_t width, bool pad, FILE *out);
size_t table_columns(const char *text);

/* A bar of percent's part of width columns, in eighths of one, and padded. */
void table_bar(double percent, size_t width, FILE *out);

/* Columns of the terminal that out is; 0: it is none. */
size_t table_width(FILE *out);

struct table_options {
	enum ranking_order order;
	const char *unit;
	size_t n;     /* rows at most; 0: all */
	size_t width; /* columns at most; 0: any */
	bool bars;
	bool whole_names; /* with parameter lists, on a terminal too */
	bool compared; /* with a base */
};

/* The heading and the first n rows of a sorted ranking, then how many there are more. */
void table_print(const struct ranking *ranking, const struct table_options *options, FILE *out);

#endif

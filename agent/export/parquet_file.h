/*
 * agent/export/parquet_file.h: writes a table with nested columns as an Apache Parquet file
 * (https://github.com/apache/parquet-format): text columns with dictionaries, pages compressed by Zstandard.
 *
 *   "PAR1"  row groups: of each column a page with its texts, if it has any, and one with its values   footer  size  "PAR1"
 *
 * Columns are the leaves of a schema. A value has a repetition level, the depth of the list that it continues, 0 in a new
 * row; and a definition level, which says how much of its path is there.
 */
#ifndef AGENT_EXPORT_PARQUET_FILE_H
#define AGENT_EXPORT_PARQUET_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct parquet;

enum parquet_repetition { PARQUET_REQUIRED, PARQUET_OPTIONAL, PARQUET_REPEATED };
enum parquet_group { PARQUET_PLAIN, PARQUET_LIST, PARQUET_MAP }; /* what a group stands for */
enum parquet_type {
	PARQUET_BOOLEAN,
	PARQUET_INT32,
	PARQUET_INT64,
	PARQUET_UINT64,
	PARQUET_TIME_NS,
	PARQUET_TEXT
};

/* Begin a file. Errors of out are for its owner to find. -ENOMEM. */
int parquet_new(FILE *out, struct parquet **p);
void parquet_free(struct parquet *p); /* NULL is fine */

/* Add a group of n columns and groups, which follow, to the schema; names are copied. */
void parquet_group(struct parquet *p, const char *name, enum parquet_repetition repetition,
		   enum parquet_group group, unsigned int n);
/* Add a column. Return its number. */
size_t parquet_column(struct parquet *p, const char *name, enum parquet_repetition repetition,
		      enum parquet_type type);
/* All columns are there. */
void parquet_begin(struct parquet *p);

struct parquet_level {
	unsigned int repetition, definition;
};

/* Append a value to a column. */
void parquet_number(struct parquet *p, size_t column, struct parquet_level level, int64_t value);
void parquet_text(struct parquet *p, size_t column, struct parquet_level level, const char *text);
/* Append that there is no value below this level. */
void parquet_none(struct parquet *p, size_t column, struct parquet_level level);
/* End a row. */
void parquet_row(struct parquet *p);

/* Write the rest, and what is known of the file: pairs of key and value, NULL. The first error of all calls: -ENOMEM. */
int parquet_end(struct parquet *p, const char *created_by, const char *const *pairs);

#endif

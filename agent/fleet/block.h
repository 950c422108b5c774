/*
 * agent/fleet/block.h: rows of one table as ClickHouse's format Native: a block of columns
 * (https://clickhouse.com/docs/interfaces/formats#native). Such a block says how many rows it has, so that one that
 * was cut off on its way is refused as a whole.
 *
 *   block    number of columns, number of rows (LEB128)
 *   column   name, type (texts), the values one behind the other
 *   text     number of bytes (LEB128), bytes
 *   array    of all rows, where each ends (64 bits), then the elements of all rows
 *
 * Numbers have the size of their type, the lowest byte first.
 */
#ifndef AGENT_FLEET_BLOCK_H
#define AGENT_FLEET_BLOCK_H

#include <stddef.h>
#include <stdint.h>

struct block_bytes { /* all zero: empty */
	uint8_t *bytes;
	size_t size, room;
};

struct block_column {
	const char *name, *type; /* as the table has them */
	struct block_bytes values, ends;
	uint64_t n_elements; /* of an array, in all rows */
};

enum { BLOCK_COLUMNS = 8 };

/* Rows of one table that are collected, column by column. */
struct block {
	const char *table;
	struct block_column columns[BLOCK_COLUMNS];
	size_t n_columns, n_rows;
	int err; /* 0 or -ENOMEM: the first error holds */
};

/* Begin a block; names and types are borrowed: "stack", "UInt64", …, NULL. */
void block_init(struct block *block, const char *table, const char *const *columns);
/* Take all rows away. */
void block_clear(struct block *block);
void block_fini(struct block *block);

/* Append a value, or an element of an array, to a column. */
void block_u32(struct block *block, size_t column, uint32_t value);
void block_u64(struct block *block, size_t column, uint64_t value);
void block_text(struct block *block, size_t column, const char *text);
/* End an array in this row, of n elements that were appended. */
void block_array(struct block *block, size_t column, uint64_t n);
/* End a row. */
void block_row(struct block *block);

/*
 * Return the argument of a URL that inserts the block: "&query=INSERT%20INTO%20…". It names the columns, so that others of
 * the table get their defaults. The caller frees it. NULL: no memory.
 */
char *block_insert(const struct block *block);
/* Return how many bytes the block has, about. */
size_t block_size(const struct block *block);
/* Make the block's bytes, which the caller frees. -ENOMEM. */
int block_pack(const struct block *block, uint8_t **bytes, size_t *size);

#endif

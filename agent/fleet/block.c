/* agent/fleet/block.c: rows of one table as ClickHouse's format Native. */
#include "agent/fleet/block.h"

#include "agent/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LEB128_MAX = 10 };
#define INSERT_END ")%20FORMAT%20Native"

static void put(struct block_bytes *b, const void *bytes, size_t size, int *err)
{
	if (!*err)
		*err = array_reserve(b->bytes, b->size + size, b->room);
	if (*err)
		return;
	if (size)
		memcpy(b->bytes + b->size, bytes, size);
	b->size += size;
}

static void put_number(struct block_bytes *b, uint64_t value, size_t size, int *err)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	put(b, bytes, size, err);
}

static void put_leb128(struct block_bytes *b, uint64_t value, int *err)
{
	uint8_t bytes[LEB128_MAX];
	size_t n = 0;

	do {
		bytes[n++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	put(b, bytes, n, err);
}

/* Put a text without its length, as a part of another. */
static void put_part(struct block_bytes *b, const char *text, int *err)
{
	put(b, text, strlen(text), err);
}

static void put_text(struct block_bytes *b, const char *text, int *err)
{
	put_leb128(b, strlen(text), err);
	put_part(b, text, err);
}

void block_init(struct block *block, const char *table, const char *const *columns)
{
	*block = (struct block){ .table = table };
	for (; columns[0] && block->n_columns < BLOCK_COLUMNS; columns += 2)
		block->columns[block->n_columns++] =
			(struct block_column){ .name = columns[0], .type = columns[1] };
}

void block_clear(struct block *block)
{
	for (size_t i = 0; i < block->n_columns; i++) {
		block->columns[i].values.size = 0;
		block->columns[i].ends.size = 0;
		block->columns[i].n_elements = 0;
	}
	block->n_rows = 0;
	block->err = 0;
}

void block_fini(struct block *block)
{
	for (size_t i = 0; i < block->n_columns; i++) {
		free(block->columns[i].values.bytes);
		free(block->columns[i].ends.bytes);
	}
	*block = (struct block){ .n_rows = 0 };
}

void block_u32(struct block *block, size_t column, uint32_t value)
{
	put_number(&block->columns[column].values, value, sizeof(value), &block->err);
}

void block_u64(struct block *block, size_t column, uint64_t value)
{
	put_number(&block->columns[column].values, value, sizeof(value), &block->err);
}

void block_text(struct block *block, size_t column, const char *text)
{
	put_text(&block->columns[column].values, text, &block->err);
}

void block_array(struct block *block, size_t column, uint64_t n)
{
	struct block_column *c = &block->columns[column];

	c->n_elements += n;
	put_number(&c->ends, c->n_elements, sizeof(c->n_elements), &block->err);
}

void block_row(struct block *block)
{
	block->n_rows++;
}

size_t block_size(const struct block *block)
{
	size_t size = 0;

	for (size_t i = 0; i < block->n_columns; i++)
		size += block->columns[i].values.size + block->columns[i].ends.size;
	return size;
}

char *block_insert(const struct block *block)
{
	struct block_bytes out = { .size = 0 };
	int err = 0;

	put_part(&out, "&query=INSERT%20INTO%20", &err);
	put_part(&out, block->table, &err);
	for (size_t i = 0; i < block->n_columns; i++) {
		put_part(&out, i ? "," : "%20(", &err);
		put_part(&out, block->columns[i].name, &err);
	}
	put(&out, INSERT_END, sizeof(INSERT_END), &err);
	if (!err)
		return (char *)out.bytes;
	free(out.bytes);
	return NULL;
}

int block_pack(const struct block *block, uint8_t **bytes, size_t *size)
{
	struct block_bytes out = { .size = 0 };
	int err = block->err;

	put_leb128(&out, block->n_columns, &err);
	put_leb128(&out, block->n_rows, &err);
	for (size_t i = 0; i < block->n_columns; i++) {
		const struct block_column *c = &block->columns[i];

		put_text(&out, c->name, &err);
		put_text(&out, c->type, &err);
		put(&out, c->ends.bytes, c->ends.size, &err);
		put(&out, c->values.bytes, c->values.size, &err);
	}
	if (err) {
		free(out.bytes);
		return err;
	}
	*bytes = out.bytes;
	*size = out.size;
	return 0;
}

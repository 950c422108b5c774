/* unwinder/table/table_pack.c: writes a table's blob (schema/table_blob.h) from finished rows and rules. */
#include "unwinder/table/table_pack.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/large.h"
#include "base/search.h"
#include "schema/table_blob.h"
#include "unwinder/table/table.h"

static bool is_code(const struct uw_segment *s)
{
	return s->flags & PF_X && s->mem_size;
}

int uw_table_base(const struct uw_table_source *source, uint64_t *base)
{
	uint64_t lowest = UINT64_MAX;

	for (size_t i = 0; i < source->n_segments; i++)
		if (is_code(&source->segments[i]) && source->segments[i].vaddr < lowest)
			lowest = source->segments[i].vaddr;
	if (lowest == UINT64_MAX)
		return -ENOENT;
	*base = lowest & ~(uint64_t)(TABLE_BLOCK_UNITS * source->arch->code_align - 1);
	return 0;
}

void uw_table_identify(const struct uw_table_source *source, __u64 *size, __u64 *hash)
{
	*size = *hash = 0;
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		const struct uw_cfi *cfi = source->cfi[i];

		if (!cfi || !cfi->size)
			continue;
		*size += cfi->size;
		*hash = uw_checksum(cfi->data, cfi->size, *hash);
	}
}

/* ---- the parts ---------------------------------------------------------------------- */

/* Set the header's fields, except the offsets of the parts. */
static void fill_header(const struct uw_table_source *source, const struct uw_table_rows *rows,
			uint64_t base, struct table_header *h)
{
	*h = (struct table_header){ .blob = { .magic = TABLE_MAGIC,
					      .version = TABLE_VERSION,
					      .machine = source->arch->machine,
					      .header_size = TABLE_HEADER_SIZE },
				    .base = base,
				    .unit_shift = source->arch->unit_shift,
				    .ext_slots = source->arch->ext_slots,
				    .build_id_size = source->build_id->size,
				    /*
				     * The last row is at the span; it stands for everything
				     * outside.
				     */
				    .span = rows->rows[rows->n_rows - 1].unit,
				    .n_rows = (uint32_t)rows->n_rows - 1,
				    .n_rules = (uint32_t)rows->n_rules,
				    .slow_size = (uint32_t)rows->slow.size,
				    .expr_size = (uint32_t)rows->expr.size,
				    .builder = TABLE_BUILDER };
	memcpy(h->build_id, source->build_id->bytes, source->build_id->size);
	uw_table_identify(source, &h->src_size, &h->src_hash);
	h->n_superblocks =
		h->span / TABLE_SUPERBLOCK_UNITS + (h->span % TABLE_SUPERBLOCK_UNITS != 0);
	if (h->n_rules > 0x10000)
		h->flags |= TABLE_WIDE_INDEX;
	for (size_t i = 0; i < source->n_segments; i++)
		h->n_segs += is_code(&source->segments[i]);
}

/* Return the end of the rows of a superblock that begin at row. */
static size_t superblock_end(const struct uw_table_rows *rows, size_t n_rows, size_t row,
			     uint32_t superblock)
{
	uint64_t end = ((uint64_t)superblock + 1) * TABLE_SUPERBLOCK_UNITS;

	return row + UW_COUNT_WHILE(i, n_rows - row, rows->rows[row + i].unit < end);
}

/*
 * Count the entries of block. -ENOTSUP: a superblock has more rows than a 16-bit number can count.
 */
static int count_blocks(const struct uw_table_rows *rows, size_t n_rows, uint32_t *out)
{
	uint64_t n = 0;

	for (size_t row = 0, end; row < n_rows; row = end) {
		end = superblock_end(rows, n_rows, row,
				     rows->rows[row].unit / TABLE_SUPERBLOCK_UNITS);
		if (end - row > UINT16_MAX)
			return -ENOTSUP;
		n += TABLE_SUPERBLOCK_BLOCKS;
	}
	*out = (uint32_t)n; /* 257 for each 65,536 units */
	return 0;
}

/* Write superblock and block. */
static void pack_blocks(const struct uw_table_rows *rows, const struct table_header *h,
			uint8_t *blob)
{
	struct table_superblock *superblock = (struct table_superblock *)(blob + h->superblock);
	uint16_t *block = (uint16_t *)(blob + h->block);
	const struct uw_table_row *all = rows->rows;
	size_t row = 0;
	uint32_t used = 0;

	for (uint32_t s = 0; s < h->n_superblocks; s++) {
		size_t first = row, end = superblock_end(rows, h->n_rows, row, s);

		superblock[s] =
			(struct table_superblock){ .row = (uint32_t)row, .block = TABLE_NO_BLOCK };
		if (end == first)
			continue;
		superblock[s].block = used;
		for (uint32_t i = 0; i < TABLE_SUPERBLOCK_BLOCKS; used++, i++) {
			uint64_t start = ((uint64_t)s * 256 + i) * TABLE_BLOCK_UNITS;

			while (row < end && all[row].unit < start)
				row++;
			block[used] = (uint16_t)(row - first);
		}
	}
	superblock[h->n_superblocks] =
		(struct table_superblock){ .row = (uint32_t)row, .block = TABLE_NO_BLOCK };
}

/* Write key, rule_index, rule and ext. */
static void pack_rows(const struct uw_table_rows *rows, const struct table_header *h, uint8_t *blob)
{
	uint64_t *packed = (uint64_t *)(blob + h->rule);
	int16_t *ext = (int16_t *)(blob + h->ext);
	uint8_t *key = blob + h->key;

	if (h->flags & TABLE_WIDE_INDEX) {
		uint32_t *wide_rule_index = (uint32_t *)(blob + h->rule_index);

		for (size_t i = 0; i < h->n_rows; i++)
			wide_rule_index[i] = rows->rows[i].rule;
	} else {
		uint16_t *rule_index = (uint16_t *)(blob + h->rule_index);

		for (size_t i = 0; i < h->n_rows; i++)
			rule_index[i] = (uint16_t)rows->rows[i].rule;
	}
	for (size_t i = 0; i < h->n_rows; i++)
		key[i] = (uint8_t)rows->rows[i].unit;
	memset(key + h->n_rows, 0xff, TABLE_KEY_PAD);
	for (size_t i = 0; i < h->n_rules; i++) {
		packed[i] = rows->rules[i].packed;
		memcpy(ext + i * h->ext_slots, rows->rules[i].ext, h->ext_slots * sizeof(*ext));
	}
}

static void pack_segments(const struct uw_table_source *source, const struct table_header *h,
			  uint8_t *blob)
{
	struct table_seg *seg = (struct table_seg *)(blob + h->seg);

	for (size_t i = 0; i < source->n_segments; i++) {
		const struct uw_segment *s = &source->segments[i];

		if (is_code(s))
			*seg++ = (struct table_seg){ .file_off = s->off,
						     .vaddr = s->vaddr,
						     .size = s->mem_size };
	}
}

/* ---- the whole ---------------------------------------------------------------------- */

/* Reserve size bytes at the next aligned offset, and return the offset. */
static uint32_t place(uint64_t *at, uint64_t size)
{
	uint64_t off = (*at + TABLE_ALIGN - 1) & ~(uint64_t)(TABLE_ALIGN - 1);

	*at = off + size;
	return (uint32_t)off;
}

static uint64_t rule_index_size(const struct table_header *h)
{
	return h->flags & TABLE_WIDE_INDEX ? 4 : 2;
}

/* Return an upper bound of the bytes after the front part. */
static uint64_t rest_of(const struct table_header *h)
{
	return (uint64_t)h->n_blocks * 2 + h->n_rows * (1 + rule_index_size(h)) + TABLE_KEY_PAD +
	       (uint64_t)3 * TABLE_ALIGN;
}

/*
 * Place the parts in the order of struct table_header. The front, which is read when a stored table
 * is opened, ends where the blocks begin.
 */
int uw_table_pack(const struct uw_table_source *source, const struct uw_table_rows *rows,
		  uint64_t base, uint8_t **out, size_t *size)
{
	struct table_header h;
	uint64_t at = TABLE_HEADER_SIZE;
	uint8_t *blob;
	int err;

	fill_header(source, rows, base, &h);
	err = count_blocks(rows, h.n_rows, &h.n_blocks);
	if (err)
		return err;
	at += uw_blob_sums(rest_of(&h));
	h.seg = place(&at, h.n_segs * sizeof(struct table_seg));
	h.superblock =
		place(&at, (h.n_superblocks + (uint64_t)1) * sizeof(struct table_superblock));
	h.rule = place(&at, (uint64_t)h.n_rules * 8);
	h.ext = place(&at, (uint64_t)h.n_rules * h.ext_slots * 2);
	h.slow = place(&at, h.slow_size);
	h.expr = place(&at, h.expr_size);
	h.block = place(&at, (uint64_t)h.n_blocks * 2);
	h.key = place(&at, (uint64_t)h.n_rows + TABLE_KEY_PAD);
	h.rule_index = place(&at, (uint64_t)h.n_rows * rule_index_size(&h));
	if (at > UINT32_MAX)
		return -ENOTSUP;
	h.blob.front = h.block;
	h.blob.size = at;
	blob = uw_large_alloc((size_t)at);
	if (!blob)
		return -ENOMEM;
	memset(blob, 0, (size_t)at);
	pack_segments(source, &h, blob);
	pack_blocks(rows, &h, blob);
	pack_rows(rows, &h, blob);
	if (h.slow_size)
		memcpy(blob + h.slow, rows->slow.data, h.slow_size);
	if (h.expr_size)
		memcpy(blob + h.expr, rows->expr.data, h.expr_size);
	memcpy(blob, &h, sizeof(h));
	uw_blob_seal(blob);
	*out = blob;
	*size = (size_t)at;
	return 0;
}

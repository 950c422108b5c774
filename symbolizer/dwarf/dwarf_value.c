/*
 * symbolizer/dwarf/dwarf_value.c: tells what the value of an attribute means: an address, a number,
 * a text, or ranges of code.
 */
#include "symbolizer/dwarf/dwarf.h"

#include "base/growth.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* No function has code in more pieces. In a hostile file all entries could share one long list. */
#define RANGES_MAX ((size_t)1 << 16)

/* Read one address of .debug_addr, which is in the main file, also for a split unit. */
static int indexed_addr(const struct dw_unit *u, uint64_t index, uint64_t *out)
{
	const struct dw_unit *base = u->skeleton ? u->skeleton : u;
	uint64_t off = u->root.addr_base, value = 0;
	int err;

	if (index > (uint64_t)1 << 32 || off > base->file->addr.source.size)
		return -EBADMSG;
	err = sym_section_read(&base->file->addr, off + index * u->addr_size, &value, u->addr_size);
	if (!err)
		*out = value;
	return err;
}

int dw_value_addr(const struct dw_unit *u, const struct dw_value *value, uint64_t *out)
{
	switch (value->form) {
	case DW_FORM_addr:
		*out = value->u;
		return 0;
	case DW_FORM_addrx:
	case DW_FORM_addrx1:
	case DW_FORM_addrx2:
	case DW_FORM_addrx3:
	case DW_FORM_addrx4:
	case DW_FORM_GNU_addr_index:
		return indexed_addr(u, value->u, out);
	default:
		return -EBADMSG;
	}
}

int64_t dw_value_number(const struct dw_value *value)
{
	switch (value->form) {
	case DW_FORM_data1:
	case DW_FORM_data2:
	case DW_FORM_data4:
	case DW_FORM_data8:
	case DW_FORM_udata:
	case DW_FORM_sdata:
	case DW_FORM_implicit_const:
		return (int64_t)value->u;
	default:
		return 0;
	}
}

/* The strx forms are indexes into .debug_str_offsets, from the unit's base on (DWARF 5 §7.26). */
int dw_value_text(const struct dw_unit *u, const struct dw_value *value, char *out, size_t room)
{
	const struct dw_file *f = u->file;
	uint64_t off = 0;
	size_t n;
	int err;

	switch (value->form) {
	case DW_FORM_string:
		if (!value->data)
			return -ENOENT;
		n = strnlen((const char *)value->data, room - 1);
		memcpy(out, value->data, n);
		out[n] = '\0';
		return (int)n;
	case DW_FORM_strp:
		return sym_section_text(&f->str, value->u, out, room);
	case DW_FORM_line_strp:
		return sym_section_text(&f->line_str, value->u, out, room);
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		return f->alt ? sym_section_text(&f->alt->str, value->u, out, room) : -ENOENT;
	case DW_FORM_strx:
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
	case DW_FORM_GNU_str_index:
		if (value->u > (uint64_t)1 << 32 || u->root.str_base > f->str_offsets.source.size)
			return -EBADMSG;
		err = sym_section_read(&f->str_offsets, u->root.str_base + value->u * u->off_size,
				       &off, u->off_size);
		return err ? err : sym_section_text(&f->str, off, out, room);
	default:
		return -ENOENT;
	}
}

/* ---- ranges ------------------------------------------------------------------------------ */

/* Append a range, unless it is empty or was dropped by the linker. */
static int add_range(struct dw_ranges *out, uint64_t low, uint64_t high)
{
	int err;

	/* The linker sets the start of dropped code to 0, or to -1 or -2 (lld). */
	if (low >= high || !low || low >= UINT64_MAX - 1)
		return 0;
	err = UW_ARRAY_GROW(out->list, out->n, out->room, out->most ? out->most : RANGES_MAX);
	if (err)
		return err;
	out->list[out->n++] = (struct dw_range){ .low = low, .high = high };
	return 0;
}

static uint64_t highest(const struct dw_unit *u)
{
	return u->addr_size == 8 ? UINT64_MAX : UINT32_MAX;
}

enum { PIECE = 1024 };

/*
 * Read an entry of a list, and append its range or set the base address *from. Return 1 if it ends
 * the list. If c has an error afterwards, the entry is not complete, and nothing was done.
 */
typedef int (*entry_fn)(const struct dw_unit *u, struct uw_bytes *c, uint64_t *from,
			struct dw_ranges *out);

/* entry_fn of .debug_ranges (DWARF 4 §2.17.3). */
static int add_older(const struct dw_unit *u, struct uw_bytes *c, uint64_t *from,
		     struct dw_ranges *out)
{
	uint64_t low = uw_bytes_uint(c, u->addr_size);
	uint64_t high = uw_bytes_uint(c, u->addr_size);

	if (c->err)
		return 0;
	if (!low && !high)
		return 1;
	if (low != highest(u))
		return add_range(out, low + *from, high + *from);
	*from = high;
	return 0;
}

/* Read an address, through .debug_addr if it is an index. */
static int entry_addr(const struct dw_unit *u, struct uw_bytes *c, bool is_index, uint64_t *out)
{
	if (!is_index) {
		*out = uw_bytes_uint(c, u->addr_size);
		return 0;
	}
	*out = uw_bytes_uleb(c);
	return c->err ? 0 : indexed_addr(u, *out, out);
}

/* entry_fn of .debug_rnglists (DWARF 5 §7.25). */
static int add_entry(const struct dw_unit *u, struct uw_bytes *c, uint64_t *from,
		     struct dw_ranges *out)
{
	uint8_t kind = uw_bytes_u8(c);
	uint64_t low = 0, high = 0;
	int err = 0;

	if (c->err)
		return 0;
	switch (kind) {
	case DW_RLE_end_of_list:
		return 1;
	case DW_RLE_base_addressx:
	case DW_RLE_base_address:
		err = entry_addr(u, c, kind == DW_RLE_base_addressx, &low);
		if (!err && !c->err)
			*from = low;
		return err;
	case DW_RLE_startx_endx:
	case DW_RLE_start_end:
		err = entry_addr(u, c, kind == DW_RLE_startx_endx, &low);
		if (!err)
			err = entry_addr(u, c, kind == DW_RLE_startx_endx, &high);
		break;
	case DW_RLE_startx_length:
	case DW_RLE_start_length:
		err = entry_addr(u, c, kind == DW_RLE_startx_length, &low);
		high = low + uw_bytes_uleb(c);
		break;
	case DW_RLE_offset_pair:
		low = *from + uw_bytes_uleb(c);
		high = *from + uw_bytes_uleb(c);
		break;
	default:
		return -ENOTSUP;
	}
	return err || c->err ? err : add_range(out, low, high);
}

/*
 * Read the list at an offset of a section, in pieces because its end is only known by its last entry.
 */
static int add_list(const struct dw_unit *u, const struct sym_section *s, uint64_t off,
		    entry_fn add, struct dw_ranges *out)
{
	uint64_t from = u->root.low_pc;
	uint8_t piece[PIECE];

	for (;;) {
		uint64_t left = off < s->source.size ? s->source.size - off : 0;
		uint64_t n = left < PIECE ? left : PIECE;
		struct uw_bytes c = uw_bytes_of(piece, n);
		const uint8_t *last = piece; /* entries before it were read completely */
		int err = sym_section_read(s, off, piece, n);

		if (err || !n)
			return err ? err : -EBADMSG;
		while (!err) {
			err = add(u, &c, &from, out);
			if (c.err)
				break;
			last = c.pos;
		}
		if (err)
			return err < 0 ? err : 0;
		u->file->budget->spent += PIECE;
		if (last == piece)
			return -EBADMSG;
		off += (uint64_t)(last - piece);
	}
}

/*
 * Versions up to 4 refer to .debug_ranges; version 5 to .debug_rnglists, by an offset or by an
 * index into the table of offsets (DWARF 5 §7.28).
 */
int dw_ranges_add(const struct dw_unit *u, const struct dw_value *low, const struct dw_value *high,
		  const struct dw_value *ranges, struct dw_ranges *out)
{
	const struct dw_unit *base = u->skeleton ? u->skeleton : u;
	const struct sym_section *lists = &u->file->rnglists;
	uint64_t start, end, off = 0;
	int err;

	if (ranges->form && u->version < 5) {
		off = ranges->u + (u->file->split ? u->root.ranges_base : 0);
		return add_list(u, &base->file->ranges, off, add_older, out);
	}
	if (ranges->form && ranges->form != DW_FORM_rnglistx)
		return add_list(u, lists, ranges->u, add_entry, out);
	if (ranges->form) {
		start = u->root.rnglists_base;
		if (ranges->u > (uint64_t)1 << 32 || start > lists->source.size)
			return -EBADMSG;
		err = sym_section_read(lists, start + ranges->u * u->off_size, &off, u->off_size);
		return err ? err : add_list(u, lists, start + off, add_entry, out);
	}
	if (!low->form || !high->form)
		return 0;
	err = dw_value_addr(u, low, &start);
	if (err)
		return err;
	/* A constant is the size of the code (since version 4). */
	if (dw_value_addr(u, high, &end))
		end = start + high->u;
	return add_range(out, start, end);
}

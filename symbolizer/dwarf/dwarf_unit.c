/* symbolizer/dwarf/dwarf_unit.c: finds the units of a file, and reads them and their own entries. */
#include "symbolizer/dwarf/dwarf.h"

#include "base/growth.h"
#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* Limits on what a file may contain, and sizes of reads; in bytes unless a count. */
#define UNITS_MAX   ((size_t)4 << 20)
#define UNIT_MAX    ((uint64_t)256 << 20)
#define HEADER_READ ((uint64_t)4096)
#define ROOT_READ   ((uint64_t)1024)
#define HEADER_MAX  64
#define SPARE_MAX   ((uint64_t)8 << 20)

/*
 * Parse a unit's header (DWARF 5 §7.5.1, and the format of versions 2 to 4). c is at the unit's
 * start.
 */
static int parse_header(struct dw_file *file, struct uw_bytes *c, uint64_t off, struct dw_unit *u)
{
	const uint8_t *start = c->pos;
	uint64_t size = uw_bytes_u32(c);

	*u = (struct dw_unit){ .file = file, .off = off, .off_size = 4 };
	if (size == 0xffffffff) {
		u->off_size = 8;
		size = uw_bytes_u64(c);
	} else if (size >= 0xfffffff0) {
		return -EBADMSG;
	}
	u->size = size + (u->off_size == 8 ? 12 : 4);
	if (c->err || size > file->info.source.size - off || u->size > file->info.source.size - off)
		return -EBADMSG;
	u->version = uw_bytes_u16(c);
	if (u->version >= 5) {
		u->type = uw_bytes_u8(c);
		u->addr_size = uw_bytes_u8(c);
		u->abbrev_off = uw_bytes_uint(c, u->off_size);
		if (u->type == DW_UT_skeleton || u->type == DW_UT_split_compile)
			u->id = uw_bytes_u64(c);
		else if (u->type == DW_UT_type || u->type == DW_UT_split_type)
			uw_bytes_skip(c, 8 + (uint64_t)u->off_size);
	} else {
		u->type = DW_UT_compile;
		u->abbrev_off = uw_bytes_uint(c, u->off_size);
		u->addr_size = uw_bytes_u8(c);
	}
	u->header = (uint8_t)(c->pos - start);
	if (u->version < 2 || u->version > 5 || u->header > u->size)
		u->type = 0; /* unknown, but its size is stated: skip it */
	if (u->addr_size != 4 && u->addr_size != 8)
		u->type = 0;
	return 0;
}

int dw_unit_header(struct dw_file *file, uint64_t off, struct dw_unit *out)
{
	uint8_t bytes[HEADER_MAX] = { 0 };
	uint64_t left = off <= file->info.source.size ? file->info.source.size - off : 0;
	uint64_t n = left < sizeof(bytes) ? left : sizeof(bytes);
	struct uw_bytes c = uw_bytes_of(bytes, sizeof(bytes));
	int err = n < 8 ? -EBADMSG : sym_section_read(&file->info, off, bytes, n);

	return err ? err : parse_header(file, &c, off, out);
}

int dw_file_units(struct dw_file *file)
{
	uint8_t chunk[HEADER_READ + HEADER_MAX];
	uint64_t from = 0, have = 0, off = 0;
	size_t room = 0;
	int err = 0;

	if (file->units || !file->info.source.size)
		return 0;
	while (!err && off < file->info.source.size && file->info.source.size - off > 8) {
		struct uw_bytes c;

		/* Small units follow each other: one read has many headers. Behind a large one, it has one. */
		if (off < from || off - from >= have || have - (off - from) < HEADER_MAX) {
			uint64_t left = file->info.source.size - off;
			uint64_t want = off - from < HEADER_READ ? HEADER_READ : HEADER_MAX;

			from = off;
			have = left < want ? left : want;
			memset(chunk + have, 0, HEADER_MAX);
			err = sym_section_read(&file->info, from, chunk, have);
			if (err)
				break;
		}
		err = UW_ARRAY_GROW(file->units, file->n_units, room, UNITS_MAX);
		if (err)
			break;
		c = uw_bytes_of(chunk + (off - from), have - (off - from) + HEADER_MAX);
		err = parse_header(file, &c, off, &file->units[file->n_units]);
		if (!err) {
			uint64_t size = file->units[file->n_units++].size;

			off += size;
			if (size > file->unit_spare.most && size <= SPARE_MAX)
				file->unit_spare.most = size;
		}
	}
	/* Units before the damage are usable. */
	return err == -EBADMSG && file->n_units ? 0 : err;
}

int dw_file_unit(struct dw_file *file, uint64_t off, struct dw_unit **out)
{
	size_t low;
	int err = dw_file_units(file);

	if (err)
		return err;
	low = UW_COUNT_WHILE(i, file->n_units, file->units[i].off <= off);
	if (!low || off - file->units[low - 1].off >= file->units[low - 1].size)
		return -EBADMSG;
	*out = &file->units[low - 1];
	return (*out)->type ? 0 : -ENOTSUP;
}

/* Reuse the buffer that was given back last: units are mostly read one after the other. */
uint8_t *dw_spare_take(struct dw_spare *spare, uint64_t size, uint64_t *room)
{
	uint8_t *bytes = spare->bytes;

	if (bytes && spare->room >= size) {
		*room = spare->room;
		spare->bytes = NULL;
		return bytes;
	}
	free(bytes);
	spare->bytes = NULL;
	*room = size + size / 4 + 1;
	/* This size will do for all that follow; the unused part costs nothing. */
	if (*room < spare->most)
		*room = spare->most;
	spare->most = 0;
	return malloc(*room);
}

void dw_spare_give(struct dw_spare *spare, uint8_t *bytes, uint64_t room)
{
	/* Do not hold unusually large memory for the next use. */
	if (room > SPARE_MAX || (spare->bytes && spare->room >= room)) {
		free(bytes);
		return;
	}
	free(spare->bytes);
	spare->bytes = bytes;
	spare->room = room;
}

/* Read or map the bytes of a unit. */
static int read_bytes(struct dw_unit *u)
{
	struct dw_file *f = u->file;
	uint64_t room;
	uint8_t *bytes;
	int err;

	if (f->info.source.image)
		return sym_section_map(&f->info, u->off, u->size, &u->bytes, &u->owned);
	bytes = dw_spare_take(&f->unit_spare, u->size, &room);
	if (!bytes)
		return -ENOMEM;
	err = sym_section_read(&f->info, u->off, bytes, u->size);
	if (err) {
		dw_spare_give(&f->unit_spare, bytes, room);
		return err;
	}
	u->room = room;
	u->bytes = u->owned = bytes;
	return 0;
}

int dw_unit_load(struct dw_unit *u)
{
	int err;

	if (u->bytes)
		return 0;
	if (!u->type)
		return -ENOTSUP;
	if (u->size > UNIT_MAX)
		return -E2BIG;
	if (!u->abbrevs) {
		err = dw_abbrevs_get(u);
		if (err)
			return err;
	}
	err = read_bytes(u);
	if (err)
		return err;
	u->file->budget->held += u->owned ? u->size : 0;
	u->file->budget->spent += u->size;
	return 0;
}

void dw_unit_unload(struct dw_unit *u)
{
	struct dw_file *f = u->file;

	if (u->owned) {
		f->budget->held -= u->size;
		dw_spare_give(&f->unit_spare, u->owned, u->room);
	}
	u->owned = NULL;
	u->bytes = NULL;
	u->room = 0;
	dw_abbrevs_put(u->abbrevs);
	u->abbrevs = NULL;
	dw_unit_forget_table(u);
	dw_unit_forget_funcs(u);
}

void dw_unit_forget_table(struct dw_unit *u)
{
	if (u->table)
		u->file->budget->held -= dw_table_memory(u->table);
	dw_table_free(u->table);
	u->table = NULL;
	u->lines_tried = false;
}

void dw_unit_forget_funcs(struct dw_unit *u)
{
	u->file->budget->held -= u->n_funcs * sizeof(*u->funcs);
	free(u->funcs);
	free(u->reach);
	u->funcs = NULL;
	u->reach = NULL;
	u->n_funcs = 0;
	u->funcs_tried = u->skipped = false;
	u->skipping = DW_SKIP_NONE;
}

enum {
	NAME,
	DIR,
	LOW,
	HIGH,
	RANGES,
	STMT,
	DWO_NAME,
	GNU_DWO_NAME,
	STR_BASE,
	ADDR_BASE,
	GNU_ADDR_BASE,
	RNGLISTS_BASE,
	GNU_RANGES_BASE,
	GNU_DWO_ID,
	N_ROOT
};

static const uint16_t root_names[N_ROOT] = {
	[NAME] = DW_AT_name,
	[DIR] = DW_AT_comp_dir,
	[LOW] = DW_AT_low_pc,
	[HIGH] = DW_AT_high_pc,
	[RANGES] = DW_AT_ranges,
	[STMT] = DW_AT_stmt_list,
	[DWO_NAME] = DW_AT_dwo_name,
	[GNU_DWO_NAME] = DW_AT_GNU_dwo_name,
	[STR_BASE] = DW_AT_str_offsets_base,
	[ADDR_BASE] = DW_AT_addr_base,
	[GNU_ADDR_BASE] = DW_AT_GNU_addr_base,
	[RNGLISTS_BASE] = DW_AT_rnglists_base,
	[GNU_RANGES_BASE] = DW_AT_GNU_ranges_base,
	[GNU_DWO_ID] = DW_AT_GNU_dwo_id,
};

static uint64_t or_else(const struct dw_value *value, uint64_t none)
{
	return value->form ? value->u : none;
}

/* Return a copy of the value that does not point into the unit's bytes, which may be unloaded. */
static struct dw_value lasting(struct dw_value value)
{
	value.data = NULL;
	return value;
}

/* Read the attributes of the unit's own entry into u->root. The unit's bytes are in memory. */
static int take_root(struct dw_unit *u)
{
	struct dw_value v[N_ROOT];
	struct dw_root *r = &u->root;
	bool split = u->file->split;
	struct dw_die die;
	uint64_t next, end;
	int err = dw_die_at(u, u->header, &die, &next);

	if (err <= 0)
		return err ? err : -EBADMSG;
	err = dw_die_values(&die, root_names, N_ROOT, v, &end);
	if (err)
		return err;
	r->tag = die.abbrev->tag;
	r->children = die.abbrev->children;
	r->name = lasting(v[NAME]);
	r->dir = lasting(v[DIR]);
	r->low = lasting(v[LOW]);
	r->high = lasting(v[HIGH]);
	r->ranges = lasting(v[RANGES]);
	r->stmt = lasting(v[STMT]);
	r->dwo_name = lasting(v[DWO_NAME].form ? v[DWO_NAME] : v[GNU_DWO_NAME]);
	/*
	 * DWARF 5 §7.26 to §7.29: a split unit has one table in each section; it starts after its
	 * header.
	 */
	r->str_base =
		u->at.str_offsets +
		or_else(&v[STR_BASE], split && u->version >= 5 ? (u->off_size == 8 ? 16 : 8) : 0);
	r->rnglists_base = u->at.rnglists +
			   or_else(&v[RNGLISTS_BASE], split ? (u->off_size == 8 ? 20 : 12) : 0);
	r->addr_base = or_else(&v[ADDR_BASE], or_else(&v[GNU_ADDR_BASE], 0));
	r->ranges_base = or_else(&v[GNU_RANGES_BASE], 0);
	r->dwo_id = u->version >= 5 ? u->id : or_else(&v[GNU_DWO_ID], 0);
	if (u->skeleton) {
		r->addr_base = u->skeleton->root.addr_base;
		r->ranges_base = u->skeleton->root.ranges_base;
		r->low_pc = u->skeleton->root.low_pc;
	} else if (!r->low.form || dw_value_addr(u, &r->low, &r->low_pc)) {
		r->low_pc = 0;
	}
	r->read = true;
	return 0;
}

int dw_unit_root(struct dw_unit *u)
{
	uint8_t *owned = NULL;
	uint64_t size = u->size;
	int err;

	if (u->root.read)
		return 0;
	if (u->bytes)
		return take_root(u);
	if (!u->type)
		return -ENOTSUP;
	if (!u->abbrevs) {
		err = dw_abbrevs_get(u);
		if (err)
			return err;
	}
	/* Most units are never searched: read only the beginning. */
	u->file->budget->spent += ROOT_READ;
	if (size > ROOT_READ) {
		u->size = ROOT_READ;
		err = sym_section_map(&u->file->info, u->off, u->size, &u->bytes, &owned);
		if (!err)
			err = take_root(u);
		free(owned);
		u->bytes = NULL;
		u->size = size;
		if (!err)
			goto out;
		if (err != -EBADMSG)
			return err;
	}
	err = dw_unit_load(u);
	if (!err)
		err = take_root(u);
	if (err)
		return err;
out:
	/* There can be a hundred thousand units: do not hold a table of abbreviations for each. */
	if (!u->bytes) {
		dw_abbrevs_put(u->abbrevs);
		u->abbrevs = NULL;
	}
	return 0;
}

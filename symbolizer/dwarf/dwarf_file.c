/* symbolizer/dwarf/dwarf_file.c: files with debug information, their units and abbreviations. */
#include "symbolizer/dwarf/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Limits on what a file may contain, and sizes of reads; in bytes unless a count. */
#define UNITS_MAX      ((size_t)4 << 20)
#define UNIT_MAX       ((uint64_t)256 << 20)
#define ABBREV_MAX     ((uint64_t)16 << 20)
#define ABBREV_READ    ((uint64_t)8 << 10)
#define CODES_MAX      ((uint32_t)1 << 20)
#define ATTRIBUTES_MAX 512
#define HEADER_READ    ((uint64_t)4096)
#define ROOT_READ      ((uint64_t)1024)
#define HEADER_MAX     64
#define SPARE_MAX      ((uint64_t)8 << 20)

/* ---- abbreviations ------------------------------------------------------------------- */

/* Drop one reference to a table; the last one frees it. */
static void put_abbrevs(struct dw_abbrevs *a)
{
	if (!a || --a->refs)
		return;
	free(a->abbrevs);
	free(a->specs);
	free(a->steps);
	free(a->glances);
	free(a);
}

/* Make room for one more element. -E2BIG, -ENOMEM. */
static int make_room(void **array, uint32_t n, uint32_t *room, size_t each)
{
	uint32_t more = *room ? *room * 2 : 64;
	void *grown;

	if (n < *room)
		return 0;
	if (more > CODES_MAX * 16)
		return -E2BIG;
	grown = realloc(*array, more * each);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = more;
	return 0;
}

static int by_code(const void *a, const void *b)
{
	const struct dw_abbrev *x = a, *y = b;

	return (x->code > y->code) - (x->code < y->code);
}

/* Remember the position of an attribute of an inlined call. The attribute is the next one of a. */
static void note_call(struct dw_abbrev *a, uint64_t name)
{
	static const uint16_t names[DW_CALL_N] = { DW_CALL_NAMES };

	for (int i = 0; i < DW_CALL_N; i++)
		if (names[i] == name)
			a->call[i] = (uint16_t)(a->n + 1);
}

/*
 * Return who may skip the children of such entries. sibling: the last attribute is DW_AT_sibling in
 * four bytes.
 */
static enum dw_leap leap_of(const struct dw_abbrev *a, bool sibling)
{
	if (!sibling || !a->children)
		return DW_LEAP_N;
	switch (a->tag) {
	case DW_TAG_compile_unit:
	case DW_TAG_partial_unit:
		return DW_LEAP_N;
	case DW_TAG_namespace:
	case DW_TAG_module:
		return DW_LEAP_SPACES;
	default:
		return DW_LEAP_CLOSED;
	}
}

/* Parse a table of abbreviations. -EAGAIN: the table continues after these bytes. */
static int parse_abbrevs(struct sym_cursor *c, struct dw_abbrevs *t)
{
	uint32_t room = 0, room_specs = 0;
	bool sorted = true;
	int err;

	t->n = t->n_specs = 0;
	for (;;) {
		struct dw_abbrev a = { .code = sym_cursor_uleb(c), .first = t->n_specs };
		bool sibling = false;

		if (c->bad)
			return -EAGAIN;
		if (!a.code)
			break;
		a.tag = (uint16_t)sym_cursor_uleb(c);
		a.children = sym_cursor_u8(c);
		a.steps = DW_NO_STEPS;
		a.fixed = DW_NO_PLACE;
		for (;;) {
			uint64_t name = sym_cursor_uleb(c), form = sym_cursor_uleb(c);
			int64_t implicit = form == DW_FORM_implicit_const ? sym_cursor_sleb(c) : 0;

			if (c->bad)
				return -EAGAIN;
			if (!name && !form)
				break;
			if (form > UINT16_MAX || !form)
				return -EBADMSG;
			if (a.n == ATTRIBUTES_MAX)
				return -E2BIG;
			err = make_room((void **)&t->specs, t->n_specs, &room_specs,
					sizeof(*t->specs));
			if (err)
				return err;
			t->specs[t->n_specs++] =
				(struct dw_spec){ .name = name > UINT16_MAX ? 0 : (uint16_t)name,
						  .form = (uint16_t)form,
						  .at = DW_NO_PLACE,
						  .size = DW_NO_SIZE,
						  .implicit = implicit };
			if (name == DW_AT_low_pc || name == DW_AT_ranges)
				a.function = a.tag == DW_TAG_subprogram;
			if (a.tag == DW_TAG_inlined_subroutine)
				note_call(&a, name);
			sibling = name == DW_AT_sibling && form == DW_FORM_ref4;
			a.n++;
		}
		err = t->n >= CODES_MAX
			      ? -E2BIG
			      : make_room((void **)&t->abbrevs, t->n, &room, sizeof(*t->abbrevs));
		if (err)
			return err;
		a.leap = (uint8_t)leap_of(&a, sibling);
		sorted = sorted && (!t->n || t->abbrevs[t->n - 1].code < a.code);
		t->abbrevs[t->n++] = a;
	}
	if (!sorted)
		qsort(t->abbrevs, t->n, sizeof(*t->abbrevs), by_code);
	return 0;
}

/* ---- skipping entries ---- */

/* Return the size of an attribute of this form in bytes; -1: it varies. */
static int size_of(const struct dw_abbrevs *t, uint64_t form)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const:
		return 0;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
	case DW_FORM_ref_sup4:
		return 4;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		return 8;
	case DW_FORM_data16:
		return 16;
	case DW_FORM_addr:
		return t->addr_size;
	case DW_FORM_ref_addr:
		return t->ref_size;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
	case DW_FORM_GNU_ref_alt:
		return t->off_size;
	default:
		return -1;
	}
}

/* Return how to skip an attribute of variable size; DW_THEN_END: it cannot be skipped by a step. */
static enum dw_then step_over(uint64_t form)
{
	switch (form) {
	case DW_FORM_udata:
	case DW_FORM_sdata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
		return DW_THEN_LEB;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		return DW_THEN_BLOCK;
	case DW_FORM_block1:
		return DW_THEN_BLOCK1;
	case DW_FORM_string:
		return DW_THEN_TEXT;
	default:
		return DW_THEN_END;
	}
}

/*
 * Compute the steps over the attributes of every abbreviation, and the constant offsets and sizes.
 */
static int make_steps(struct dw_abbrevs *t)
{
	uint32_t room = 0;

	for (uint32_t i = 0; i < t->n; i++) {
		struct dw_abbrev *a = &t->abbrevs[i];
		uint32_t first = t->n_steps, bytes = 0;
		uint16_t at = 0;

		for (uint32_t j = 0; j <= a->n; j++) {
			struct dw_spec *spec = j < a->n ? &t->specs[a->first + j] : NULL;
			uint64_t form = spec ? spec->form : 0;
			int size = form ? size_of(t, form) : -1;
			enum dw_then then = size < 0 && form ? step_over(form) : DW_THEN_END;
			int err;

			if (spec) {
				spec->at = at;
				spec->size = size < 0 ? DW_NO_SIZE : (uint8_t)size;
				/* Cannot overflow: there are at most 512 attributes. */
				at = size < 0 || at == DW_NO_PLACE ? DW_NO_PLACE
								   : (uint16_t)(at + size);
			}
			if (size >= 0) {
				bytes += (uint32_t)size;
				continue;
			}
			if (form && then == DW_THEN_END) {
				first = DW_NO_STEPS;
				break;
			}
			err = make_room((void **)&t->steps, t->n_steps, &room, sizeof(*t->steps));
			if (err)
				return err;
			t->steps[t->n_steps++] =
				(struct dw_step){ .bytes = bytes, .then = (uint8_t)then };
			bytes = 0;
		}
		a->steps = first;
		a->fixed = at;
	}
	return 0;
}

/* Make the summaries, if the codes are 1, 2, 3, … */
static int make_glances(struct dw_abbrevs *t)
{
	if (!t->n || t->abbrevs[0].code != 1 || t->abbrevs[t->n - 1].code != t->n)
		return 0;
	t->glances = calloc(t->n + 1, sizeof(*t->glances));
	if (!t->glances)
		return -ENOMEM;
	t->glances[0].fixed = DW_NO_PLACE; /* code 0 ends a list */
	for (uint32_t i = 0; i < t->n; i++) {
		const struct dw_abbrev *a = &t->abbrevs[i];

		t->glances[i + 1] =
			(struct dw_glance){ .fixed = a->function ? DW_NO_PLACE : a->fixed,
					    .leap = a->leap,
					    .children = a->children };
	}
	return 0;
}

/* Read the table of abbreviations at off, in growing pieces because its size is stated nowhere. */
static int read_abbrevs(const struct dw_unit *u, uint64_t off, struct dw_abbrevs **out)
{
	const struct dw_file *file = u->file;
	uint64_t want = ABBREV_READ;
	struct dw_abbrevs *t;
	int err;

	if (off >= file->abbrev.size)
		return -EBADMSG;
	do {
		uint64_t left = file->abbrev.size - off, n = left < want ? left : want;
		struct sym_cursor c;
		const uint8_t *bytes;
		uint8_t *owned;

		t = calloc(1, sizeof(*t));
		if (!t)
			return -ENOMEM;
		t->refs = 1;
		t->off = off;
		t->addr_size = u->addr_size;
		t->off_size = u->off_size;
		t->ref_size = u->version == 2 ? u->addr_size : u->off_size;
		err = sym_section_map(&file->abbrev, off, n, &bytes, &owned);
		if (!err) {
			c = sym_cursor_of(bytes, n);
			err = parse_abbrevs(&c, t);
			free(owned);
			file->budget->spent += n;
		}
		if (err == -EAGAIN && n == left)
			err = -EBADMSG;
		if (!err)
			err = make_steps(t);
		if (!err)
			err = make_glances(t);
		if (err)
			put_abbrevs(t);
		want *= 4;
	} while (err == -EAGAIN && want <= ABBREV_MAX);
	if (err)
		return err == -EAGAIN ? -E2BIG : err;
	*out = t;
	return 0;
}

/* Take the unit's table of abbreviations from the cache of the file, or read it. */
static int get_abbrevs(struct dw_unit *u)
{
	struct dw_file *file = u->file;
	uint64_t off = u->at.abbrev + u->abbrev_off;
	struct dw_abbrevs **slot =
		&file->cached[(off * UINT64_C(0x9e3779b97f4a7c15)) >> 58 & (DW_ABBREVS_CACHED - 1)];
	int err;

	if (!*slot || (*slot)->off != off) {
		struct dw_abbrevs *fresh;

		err = read_abbrevs(u, off, &fresh);
		if (err)
			return err;
		put_abbrevs(*slot);
		*slot = fresh;
	}
	(*slot)->refs++;
	u->abbrevs = *slot;
	u->sized = u->abbrevs->addr_size == u->addr_size && u->abbrevs->off_size == u->off_size &&
		   u->abbrevs->ref_size == (u->version == 2 ? u->addr_size : u->off_size);
	return 0;
}

/* ---- units --------------------------------------------------------------------------- */

/*
 * Parse a unit's header (DWARF 5 §7.5.1, and the format of versions 2 to 4). c is at the unit's
 * start.
 */
static int parse_header(struct dw_file *file, struct sym_cursor *c, uint64_t off, struct dw_unit *u)
{
	const uint8_t *start = c->p;
	uint64_t size = sym_cursor_u32(c);

	*u = (struct dw_unit){ .file = file, .off = off, .off_size = 4 };
	if (size == 0xffffffff) {
		u->off_size = 8;
		size = sym_cursor_u64(c);
	} else if (size >= 0xfffffff0) {
		return -EBADMSG;
	}
	u->size = size + (u->off_size == 8 ? 12 : 4);
	if (c->bad || size > file->info.size - off || u->size > file->info.size - off)
		return -EBADMSG;
	u->version = sym_cursor_u16(c);
	if (u->version >= 5) {
		u->type = sym_cursor_u8(c);
		u->addr_size = sym_cursor_u8(c);
		u->abbrev_off = sym_cursor_uint(c, u->off_size);
		if (u->type == DW_UT_skeleton || u->type == DW_UT_split_compile)
			u->id = sym_cursor_u64(c);
		else if (u->type == DW_UT_type || u->type == DW_UT_split_type)
			(void)sym_cursor_take(c, 8 + (uint64_t)u->off_size);
	} else {
		u->type = DW_UT_compile;
		u->abbrev_off = sym_cursor_uint(c, u->off_size);
		u->addr_size = sym_cursor_u8(c);
	}
	u->header = (uint8_t)(c->p - start);
	if (u->version < 2 || u->version > 5 || u->header > u->size)
		u->type = 0; /* unknown, but its size is stated: skip it */
	if (u->addr_size != 4 && u->addr_size != 8)
		u->type = 0;
	return 0;
}

int dw_unit_header(struct dw_file *file, uint64_t off, struct dw_unit *out)
{
	uint8_t bytes[HEADER_MAX] = { 0 };
	uint64_t left = off <= file->info.size ? file->info.size - off : 0;
	uint64_t n = left < sizeof(bytes) ? left : sizeof(bytes);
	struct sym_cursor c = sym_cursor_of(bytes, sizeof(bytes));
	int err = n < 8 ? -EBADMSG : sym_section_read(&file->info, off, bytes, n);

	return err ? err : parse_header(file, &c, off, out);
}

int dw_file_units(struct dw_file *file)
{
	uint8_t chunk[HEADER_READ + HEADER_MAX];
	uint64_t from = 0, have = 0, off = 0;
	size_t room = 0;
	int err = 0;

	if (file->units || !file->info.size)
		return 0;
	while (!err && off < file->info.size && file->info.size - off > 8) {
		struct sym_cursor c;

		/* Small units follow each other: one read has many headers. */
		if (off < from || off - from >= have || have - (off - from) < HEADER_MAX) {
			uint64_t left = file->info.size - off;

			from = off;
			have = left < HEADER_READ ? left : HEADER_READ;
			memset(chunk + have, 0, HEADER_MAX);
			err = sym_section_read(&file->info, from, chunk, have);
			if (err)
				break;
		}
		if (file->n_units == room) {
			size_t more = room ? room * 2 : 64;
			struct dw_unit *grown =
				more > UNITS_MAX ? NULL
						 : reallocarray(file->units, more, sizeof(*grown));

			if (!grown) {
				err = more > UNITS_MAX ? -E2BIG : -ENOMEM;
				break;
			}
			file->units = grown;
			room = more;
		}
		c = sym_cursor_of(chunk + (off - from), have - (off - from) + HEADER_MAX);
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
	size_t low = 0, high;
	int err = dw_file_units(file);

	if (err)
		return err;
	high = file->n_units;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file->units[middle].off <= off)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || off - file->units[low - 1].off >= file->units[low - 1].size)
		return -EBADMSG;
	*out = &file->units[low - 1];
	return (*out)->type ? 0 : -ENOTSUP;
}

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

	if (f->info.bytes)
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
		err = get_abbrevs(u);
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
	put_abbrevs(u->abbrevs);
	u->abbrevs = NULL;
	dw_unit_forget_table(u);
	dw_unit_forget_funcs(u);
}

void dw_unit_forget_table(struct dw_unit *u)
{
	if (u->table)
		u->file->budget->held -= u->table->n_rows * sizeof(*u->table->rows);
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
	u->funcs_tried = u->leapt = false;
	u->leaping = DW_LEAP_NONE;
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
		err = get_abbrevs(u);
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
		put_abbrevs(u->abbrevs);
		u->abbrevs = NULL;
	}
	return 0;
}

/* ---- files --------------------------------------------------------------------------- */

/* Open a section, with the suffix .dwo in a split file. A missing section is empty. */
static int open_section(const struct sym_image *image, const char *name, bool split,
			struct sym_section *out)
{
	char dwo[64];
	int err;

	*out = (struct sym_section){ .fd = -1, .own_fd = -1 };
	if (split) {
		size_t n = strlen(name);

		memcpy(dwo, name, n);
		memcpy(dwo + n, ".dwo", 5);
		name = dwo;
	}
	err = sym_section_open(image, name, out);
	return err == -ENOENT ? 0 : err;
}

/* Cache pages of the sections that are read in small pieces. */
static void keep_pages(struct dw_file *f)
{
	sym_section_keep_pages(&f->str);
	sym_section_keep_pages(&f->line_str);
	sym_section_keep_pages(&f->str_offsets);
	sym_section_keep_pages(&f->addr);
	sym_section_keep_pages(&f->ranges);
	sym_section_keep_pages(&f->rnglists);
	sym_section_keep_pages(&f->cu_index);
}

int dw_file_open(const struct sym_image *image, bool split, struct dw_budget *budget,
		 struct dw_file *out)
{
	struct dw_file f = { .fd = -1, .split = split, .budget = budget };
	int err = open_section(image, ".debug_info", split, &f.info);

	if (!err && !f.info.size)
		err = -ENOENT;
	if (!err)
		err = open_section(image, ".debug_abbrev", split, &f.abbrev);
	if (!err)
		err = open_section(image, ".debug_str", split, &f.str);
	if (!err)
		err = open_section(image, ".debug_str_offsets", split, &f.str_offsets);
	if (!err)
		err = open_section(image, ".debug_rnglists", split, &f.rnglists);
	if (!err && split)
		err = open_section(image, ".debug_cu_index", false, &f.cu_index);
	/* The line table of a split file is only for its type units. */
	if (!err && !split)
		err = open_section(image, ".debug_line", split, &f.line);
	if (!err && !split)
		err = open_section(image, ".debug_line_str", split, &f.line_str);
	if (!err && !split)
		err = open_section(image, ".debug_addr", split, &f.addr);
	if (!err && !split)
		err = open_section(image, ".debug_ranges", split, &f.ranges);
	if (err) {
		dw_file_close(&f);
		return err;
	}
	keep_pages(&f);
	*out = f;
	return 0;
}

/* Return a section that uses the same descriptor or memory; of remains the owner. */
static struct sym_section borrowed(const struct sym_section *s)
{
	return (struct sym_section){
		.size = s->size, .bytes = s->bytes, .fd = s->fd, .off = s->off, .own_fd = -1
	};
}

/* Return a copy of a unit as it is before it is loaded. */
static struct dw_unit unloaded(const struct dw_unit *u, struct dw_file *file)
{
	return (struct dw_unit){ .file = file,
				 .off = u->off,
				 .size = u->size,
				 .abbrev_off = u->abbrev_off,
				 .id = u->id,
				 .version = u->version,
				 .type = u->type,
				 .addr_size = u->addr_size,
				 .off_size = u->off_size,
				 .header = u->header,
				 .at = u->at,
				 .root = u->root };
}

int dw_file_twin(const struct dw_file *of, struct dw_budget *budget, struct dw_file *out)
{
	struct dw_file f = { .fd = -1,
			     .split = of->split,
			     .budget = budget,
			     .unit_spare = { .most = of->unit_spare.most },
			     .info = borrowed(&of->info),
			     .abbrev = borrowed(&of->abbrev),
			     .line = borrowed(&of->line),
			     .str = borrowed(&of->str),
			     .line_str = borrowed(&of->line_str),
			     .str_offsets = borrowed(&of->str_offsets),
			     .addr = borrowed(&of->addr),
			     .ranges = borrowed(&of->ranges),
			     .rnglists = borrowed(&of->rnglists),
			     .cu_index = borrowed(&of->cu_index) };

	if (of->n_units) {
		f.units = calloc(of->n_units, sizeof(*f.units));
		if (!f.units)
			return -ENOMEM;
		f.n_units = of->n_units;
	}
	keep_pages(&f);
	*out = f;
	for (size_t i = 0; i < f.n_units; i++)
		out->units[i] = unloaded(&of->units[i], out);
	return 0;
}

void dw_file_close(struct dw_file *f)
{
	for (size_t i = 0; i < f->n_units; i++)
		dw_unit_unload(&f->units[i]);
	free(f->units);
	free(f->unit_spare.bytes);
	free(f->line_spare.bytes);
	for (size_t i = 0; i < DW_ABBREVS_CACHED; i++)
		put_abbrevs(f->cached[i]);
	sym_section_close(&f->info);
	sym_section_close(&f->abbrev);
	sym_section_close(&f->line);
	sym_section_close(&f->str);
	sym_section_close(&f->line_str);
	sym_section_close(&f->str_offsets);
	sym_section_close(&f->addr);
	sym_section_close(&f->ranges);
	sym_section_close(&f->rnglists);
	sym_section_close(&f->cu_index);
	if (f->fd >= 0)
		(void)close(f->fd);
	*f = (struct dw_file){ .fd = -1 };
}

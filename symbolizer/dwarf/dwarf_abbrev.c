/*
 * symbolizer/dwarf/dwarf_abbrev.c: reads tables of abbreviations (DWARF 5 §7.5.3), and prepares the
 * skipping of entries.
 */
#include "symbolizer/dwarf/dwarf.h"

#include "base/growth.h"
#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* Limits on what a file may contain, and the size of a read; in bytes unless a count. */
#define ABBREV_MAX     ((uint64_t)16 << 20)
#define ABBREV_READ    ((uint64_t)8 << 10)
#define CODES_MAX      ((uint32_t)1 << 20)
#define SPECS_MAX      (16 * CODES_MAX)
#define ATTRIBUTES_MAX 512

void dw_abbrevs_put(struct dw_abbrevs *a)
{
	if (!a || --a->refs)
		return;
	free(a->abbrevs);
	free(a->specs);
	free(a->steps);
	free(a->summaries);
	free(a);
}

UW_ORDER(by_code, struct dw_abbrev, code)

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
static enum dw_skip skip_of(const struct dw_abbrev *a, bool sibling)
{
	if (!sibling || !a->children)
		return DW_SKIP_N;
	switch (a->tag) {
	case DW_TAG_compile_unit:
	case DW_TAG_partial_unit:
		return DW_SKIP_N;
	case DW_TAG_namespace:
	case DW_TAG_module:
		return DW_SKIP_SPACES;
	default:
		return DW_SKIP_CLOSED;
	}
}

/* Parse a table of abbreviations. -EAGAIN: the table continues after these bytes. */
static int parse_abbrevs(struct uw_bytes *c, struct dw_abbrevs *t)
{
	size_t room = 0, room_specs = 0;
	bool sorted = true;
	int err;

	t->n = t->n_specs = 0;
	for (;;) {
		struct dw_abbrev a = { .code = uw_bytes_uleb(c), .first = t->n_specs };
		bool sibling = false;

		if (c->err)
			return -EAGAIN;
		if (!a.code)
			break;
		a.tag = (uint16_t)uw_bytes_uleb(c);
		a.children = uw_bytes_u8(c);
		a.steps = DW_NO_STEPS;
		a.fixed = DW_NO_PLACE;
		for (;;) {
			uint64_t name = uw_bytes_uleb(c), form = uw_bytes_uleb(c);
			int64_t implicit = form == DW_FORM_implicit_const ? uw_bytes_sleb(c) : 0;

			if (c->err)
				return -EAGAIN;
			if (!name && !form)
				break;
			if (form > UINT16_MAX || !form)
				return -EBADMSG;
			if (a.n == ATTRIBUTES_MAX)
				return -E2BIG;
			err = UW_ARRAY_GROW(t->specs, t->n_specs, room_specs, SPECS_MAX);
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
		err = UW_ARRAY_GROW(t->abbrevs, t->n, room, CODES_MAX);
		if (err)
			return err;
		a.skip = (uint8_t)skip_of(&a, sibling);
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
	size_t room = 0;

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
			err = UW_ARRAY_GROW(t->steps, t->n_steps, room, SPECS_MAX);
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
	t->summaries = calloc(t->n + 1, sizeof(*t->summaries));
	if (!t->summaries)
		return -ENOMEM;
	t->summaries[0].fixed = DW_NO_PLACE; /* code 0 ends a list */
	for (uint32_t i = 0; i < t->n; i++) {
		const struct dw_abbrev *a = &t->abbrevs[i];

		t->summaries[i + 1] =
			(struct dw_abbrev_summary){ .fixed = a->function ? DW_NO_PLACE : a->fixed,
						    .skip = a->skip,
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

	if (off >= file->abbrev.source.size)
		return -EBADMSG;
	do {
		uint64_t left = file->abbrev.source.size - off, n = left < want ? left : want;
		struct uw_bytes c;
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
			c = uw_bytes_of(bytes, n);
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
			dw_abbrevs_put(t);
		want *= 4;
	} while (err == -EAGAIN && want <= ABBREV_MAX);
	if (err)
		return err == -EAGAIN ? -E2BIG : err;
	*out = t;
	return 0;
}

/*
 * The offset selects one slot of the cache. A table that is replaced stays alive while units have
 * references to it.
 */
int dw_abbrevs_get(struct dw_unit *u)
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
		dw_abbrevs_put(*slot);
		*slot = fresh;
	}
	(*slot)->refs++;
	u->abbrevs = *slot;
	u->sized = u->abbrevs->addr_size == u->addr_size && u->abbrevs->off_size == u->off_size &&
		   u->abbrevs->ref_size == (u->version == 2 ? u->addr_size : u->off_size);
	return 0;
}

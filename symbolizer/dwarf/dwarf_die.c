/* symbolizer/dwarf/dwarf_die.c: reads entries and their attributes (DWARF 5 §7.5). */
#include "symbolizer/dwarf/dwarf.h"

#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* Find an abbreviation by binary search, for codes that are not 1, 2, 3, … */
static const struct dw_abbrev *search_abbrev(const struct dw_abbrevs *t, uint64_t code)
{
	size_t low = UW_COUNT_WHILE(i, t->n, t->abbrevs[i].code < code);

	return low < t->n && t->abbrevs[low].code == code ? &t->abbrevs[low] : NULL;
}

static inline const struct dw_abbrev *find_abbrev(const struct dw_abbrevs *t, uint64_t code)
{
	/* The codes are nearly always 1, 2, 3, … */
	if (code && code <= t->n && t->abbrevs[code - 1].code == code)
		return &t->abbrevs[code - 1];
	return search_abbrev(t, code);
}

int dw_die_at(struct dw_unit *u, uint64_t off, struct dw_die *out, uint64_t *next)
{
	struct uw_bytes c;
	uint64_t code;

	if (off < u->header || off >= u->size)
		return -EBADMSG;
	if (u->file->budget->spent > u->file->budget->limit)
		return -E2BIG;
	c = uw_bytes_of(u->bytes + off, u->size - off);
	code = uw_bytes_uleb(&c);
	if (c.err)
		return -EBADMSG;
	*next = (uint64_t)(c.pos - u->bytes);
	if (!code)
		return 0;
	*out = (struct dw_die){ .unit = u, .off = off, .attributes = c.pos };
	out->abbrev = find_abbrev(u->abbrevs, code);
	return out->abbrev ? 1 : -EBADMSG;
}

/* Take the bytes of a block and return its size. */
static uint64_t skip_block(struct uw_bytes *c, uint64_t size, struct dw_value *out)
{
	out->data = uw_bytes_advance(c, size);
	return size;
}

/*
 * The sizes of forms are in DWARF 5 §7.5.6; the forms with GNU in their names are those of split
 * and dwz files before version 5.
 */
int dw_value_read(const struct dw_unit *u, struct uw_bytes *c, const struct dw_spec *spec,
		  struct dw_value *out)
{
	uint64_t form = spec->form;
	struct dw_value v = { .form = spec->form };

	if (form == DW_FORM_indirect) {
		form = uw_bytes_uleb(c);
		/* DW_FORM_indirect cannot be nested. */
		if (!form || form > UINT16_MAX || form == DW_FORM_indirect ||
		    form == DW_FORM_implicit_const)
			return -EBADMSG;
		v.form = (uint16_t)form;
	}
	switch (form) {
	case DW_FORM_addr:
		v.u = uw_bytes_uint(c, u->addr_size);
		break;
	case DW_FORM_data1:
	case DW_FORM_ref1:
	case DW_FORM_flag:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		v.u = uw_bytes_u8(c);
		break;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		v.u = uw_bytes_u16(c);
		break;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		v.u = uw_bytes_uint(c, 3);
		break;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
	case DW_FORM_ref_sup4:
		v.u = uw_bytes_u32(c);
		break;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		v.u = uw_bytes_u64(c);
		break;
	case DW_FORM_data16:
		v.u = skip_block(c, 16, &v);
		break;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
	case DW_FORM_GNU_ref_alt:
		v.u = uw_bytes_uint(c, u->off_size);
		break;
	case DW_FORM_ref_addr: /* version 2 used an address's size */
		v.u = uw_bytes_uint(c, u->version == 2 ? u->addr_size : u->off_size);
		break;
	case DW_FORM_udata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
		v.u = uw_bytes_uleb(c);
		break;
	case DW_FORM_sdata:
		v.u = (uint64_t)uw_bytes_sleb(c);
		break;
	case DW_FORM_string:
		v.data = (const uint8_t *)uw_bytes_string(c);
		break;
	case DW_FORM_block1:
		v.u = skip_block(c, uw_bytes_u8(c), &v);
		break;
	case DW_FORM_block2:
		v.u = skip_block(c, uw_bytes_u16(c), &v);
		break;
	case DW_FORM_block4:
		v.u = skip_block(c, uw_bytes_u32(c), &v);
		break;
	case DW_FORM_block:
	case DW_FORM_exprloc:
		v.u = skip_block(c, uw_bytes_uleb(c), &v);
		break;
	case DW_FORM_flag_present:
		v.u = 1;
		break;
	case DW_FORM_implicit_const:
		v.u = (uint64_t)spec->implicit;
		break;
	default:
		return -ENOTSUP;
	}
	if (out)
		*out = v;
	return c->err ? -EBADMSG : 0;
}

/* Return the position after the attributes at p; NULL: they do not fit. */
static inline const uint8_t *step_over(const struct dw_step *s, const uint8_t *p,
				       const uint8_t *end)
{
	struct uw_bytes c = uw_bytes_of(p, (uint64_t)(end - p));

	for (;; s++) {
		if (s->bytes > (uint64_t)(c.end - c.pos))
			return NULL;
		c.pos += s->bytes;
		switch ((enum dw_then)s->then) {
		case DW_THEN_END:
			return c.pos;
		case DW_THEN_LEB:
			while (c.pos < c.end && *c.pos >= 0x80)
				c.pos++;
			if (c.pos++ == c.end)
				return NULL;
			break;
		case DW_THEN_BLOCK:
			uw_bytes_skip(&c, uw_bytes_uleb(&c));
			break;
		case DW_THEN_BLOCK1:
			uw_bytes_skip(&c, uw_bytes_u8(&c));
			break;
		case DW_THEN_TEXT:
			(void)uw_bytes_string(&c);
			break;
		}
		if (c.err)
			return NULL;
	}
}

/* Enter an entry's list of children, if it has any. False: the unit's entries end here. */
static inline bool descend(bool children, size_t *depth)
{
	*depth += children;
	return *depth != 0;
}

bool dw_die_skip_children(const struct dw_die *die, uint64_t *end)
{
	uint32_t to;

	if (die->abbrev->skip == DW_SKIP_N)
		return false;
	memcpy(&to, die->unit->bytes + *end - sizeof(to), sizeof(to));
	if (to <= *end || to > die->unit->size)
		return false;
	*end = to;
	return true;
}

/*
 * Skip entries of fixed size that are not functions, and ends of lists: most entries are like this.
 */
static const uint8_t *skip_plain(const struct dw_unit *u, const uint8_t *p, size_t *depth,
				 enum dw_skip skipping, bool *skipped)
{
	const struct dw_abbrevs *t = u->abbrevs;
	/* Before end, an entry of any fixed size fits, with a code of two bytes. */
	const uint8_t *end = u->size > DW_NO_PLACE + 2 ? u->bytes + u->size - DW_NO_PLACE - 2 : p;
	size_t open = *depth;

	while (p < end) {
		uint32_t code = p[0], n = 1, to;
		struct dw_abbrev_summary g;

		if (!code && open > 1) {
			open--;
			p++;
			continue;
		}
		if (code >= 0x80) {
			code = (code & 0x7f) | (uint32_t)p[1] << 7;
			n = 2;
			if (p[1] >= 0x80)
				break;
		}
		if (code > t->n)
			break;
		g = t->summaries[code];
		if (g.fixed == DW_NO_PLACE)
			break;
		if (g.skip <= skipping) {
			memcpy(&to, p + n + g.fixed - sizeof(to), sizeof(to));
			if (to > (uint64_t)(p - u->bytes) + n + g.fixed && to <= u->size) {
				*skipped = true;
				p = u->bytes + to;
				continue;
			}
		}
		open += g.children;
		p += n + g.fixed;
	}
	*depth = open;
	return p;
}

/*
 * Skip an entry by its fixed size or its prepared steps, if its abbreviation has them, and
 * otherwise value by value.
 */
int dw_die_next_function(struct dw_unit *u, uint64_t *off, size_t *depth, enum dw_skip skipping,
			 bool *skipped, struct dw_die *out)
{
	const struct dw_abbrevs *t = u->abbrevs;
	const uint8_t *p = u->bytes + *off, *end = u->bytes + u->size;
	bool quick = u->sized;

	while (p < end) {
		const uint8_t *start;
		uint64_t code;
		const struct dw_abbrev *a;
		struct dw_die die;

		if (quick && t->summaries && *depth)
			p = skip_plain(u, p, depth, skipping, skipped);
		if (p == end)
			return 0;
		start = p;
		code = *p++;
		if (code >= 0x80) {
			struct uw_bytes c = uw_bytes_of(start, (uint64_t)(end - start));

			code = uw_bytes_uleb(&c);
			if (c.err)
				return -EBADMSG;
			p = c.pos;
		}
		if (!code) {
			if (!*depth || !--*depth)
				return 0;
			continue;
		}
		a = find_abbrev(t, code);
		if (!a)
			return -EBADMSG;
		die = (struct dw_die){
			.unit = u, .off = (uint64_t)(start - u->bytes), .abbrev = a, .attributes = p
		};
		if (a->function) {
			*out = die;
			return 1;
		}
		if (quick && a->fixed <= (uint64_t)(end - p) && a->fixed != DW_NO_PLACE) {
			p += a->fixed;
		} else if (quick && a->steps != DW_NO_STEPS) {
			p = step_over(&t->steps[a->steps], p, end);
			if (!p)
				return -EBADMSG;
		} else {
			int err = dw_die_end(&die, off);

			if (err)
				return err;
			p = u->bytes + *off;
		}
		if (skipping >= a->skip) {
			*off = (uint64_t)(p - u->bytes);
			if (dw_die_skip_children(&die, off)) {
				p = u->bytes + *off;
				*skipped = true;
				continue;
			}
		}
		if (!descend(a->children, depth))
			return 0;
	}
	return 0;
}

int dw_die_end(const struct dw_die *die, uint64_t *end)
{
	const struct dw_unit *u = die->unit;
	const struct dw_abbrev *a = die->abbrev;
	const struct dw_spec *spec = a->n ? u->abbrevs->specs + a->first : NULL;
	uint64_t at = (uint64_t)(die->attributes - u->bytes);
	struct uw_bytes c = uw_bytes_of(die->attributes, u->size - at);

	if (a->steps != DW_NO_STEPS && u->sized) {
		const uint8_t *p;

		if (a->fixed != DW_NO_PLACE)
			p = a->fixed <= (uint64_t)(c.end - c.pos) ? c.pos + a->fixed : NULL;
		else
			p = step_over(&u->abbrevs->steps[a->steps], c.pos, c.end);
		if (!p)
			return -EBADMSG;
		*end = (uint64_t)(p - u->bytes);
		return 0;
	}
	for (uint32_t i = 0; i < a->n; i++) {
		int err = dw_value_read(u, &c, &spec[i], NULL);

		if (err)
			return err;
	}
	u->file->budget->spent += a->n;
	if (c.err)
		return -EBADMSG;
	*end = (uint64_t)(c.pos - u->bytes);
	return 0;
}

/* Read an attribute whose size is given by its form. */
static struct dw_value read_sized(const struct dw_spec *spec, const uint8_t *p)
{
	struct dw_value v = { .form = spec->form };

	switch (spec->size) {
	case 0: /* DW_FORM_flag_present, DW_FORM_implicit_const */
		v.u = spec->form == DW_FORM_flag_present ? 1 : (uint64_t)spec->implicit;
		break;
	case 1:
		v.u = *p;
		break;
	case 2:
	case 3:
	case 4:
	case 8:
		memcpy(&v.u, p, spec->size);
		break;
	default: /* DW_FORM_data16 */
		v.u = spec->size;
		v.data = p;
	}
	return v;
}

/* Return the place in out for an attribute; NULL: it is not wanted. */
static struct dw_value *place_of(const struct dw_spec *spec, const uint16_t *names, size_t n,
				 struct dw_value *out)
{
	for (size_t j = 0; j < n; j++)
		if (names[j] == spec->name)
			return &out[j];
	return NULL;
}

/* Look the name's last six bits up in a set first: most attributes of an entry are not wanted. */
int dw_die_values(const struct dw_die *die, const uint16_t *names, size_t n, struct dw_value *out,
		  uint64_t *end)
{
	const struct dw_unit *u = die->unit;
	const struct dw_abbrev *a = die->abbrev;
	const struct dw_spec *spec = a->n ? u->abbrevs->specs + a->first : NULL;
	uint64_t at = (uint64_t)(die->attributes - u->bytes);
	struct uw_bytes c = uw_bytes_of(die->attributes, u->size - at);
	bool fixed = a->fixed != DW_NO_PLACE && u->sized;
	uint64_t wanted = 0; /* set of the last six bits of the names */

	memset(out, 0, n * sizeof(*out));
	u->file->budget->spent += a->n;
	for (size_t j = 0; j < n; j++)
		wanted |= (uint64_t)1 << (names[j] & 63);
	if (fixed && a->fixed > uw_bytes_left(&c))
		return -EBADMSG;
	for (uint32_t i = 0; i < a->n; i++) {
		struct dw_value *to = wanted >> (spec[i].name & 63) & 1
					      ? place_of(&spec[i], names, n, out)
					      : NULL;
		int err = 0;

		if (!fixed)
			err = dw_value_read(u, &c, &spec[i], to);
		else if (to)
			*to = read_sized(&spec[i], die->attributes + spec[i].at);
		if (err)
			return err;
	}
	*end = fixed ? at + a->fixed : (uint64_t)(c.pos - u->bytes);
	return 0;
}

/*
 * Use the places of the attributes that were found when the abbreviation was read (a->call), which
 * saves comparing names.
 */
int dw_die_call(const struct dw_die *die, struct dw_value out[DW_CALL_N], uint64_t *end)
{
	static const uint16_t names[DW_CALL_N] = { DW_CALL_NAMES };
	const struct dw_unit *u = die->unit;
	const struct dw_abbrev *a = die->abbrev;
	uint64_t at = (uint64_t)(die->attributes - u->bytes);

	if (a->fixed == DW_NO_PLACE || !u->sized)
		return dw_die_values(die, names, DW_CALL_N, out, end);
	if (a->fixed > u->size - at)
		return -EBADMSG;
	u->file->budget->spent += a->n;
	for (int i = 0; i < DW_CALL_N; i++) {
		const struct dw_spec *spec;

		out[i] = (struct dw_value){ .form = 0 };
		if (!a->call[i])
			continue;
		spec = &u->abbrevs->specs[a->first + a->call[i] - 1];
		out[i] = read_sized(spec, die->attributes + spec->at);
	}
	*end = at + a->fixed;
	return 0;
}

/*
 * A reference is an offset in its unit (ref1 to ref_udata), in the section (ref_addr), or in the
 * section of the supplementary file (DWARF 5 §7.5.5).
 */
int dw_die_refers(const struct dw_unit *u, const struct dw_value *value, struct dw_die *out)
{
	struct dw_file *file = u->file;
	struct dw_unit *to = (struct dw_unit *)(uintptr_t)u;
	uint64_t off = value->u, next;
	int err;

	switch (value->form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
	case DW_FORM_ref_udata:
		break;
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
		file = file->alt;
		if (!file)
			return -ENOENT;
		err = dw_file_unit(file, off, &to);
		if (err)
			return err;
		off -= to->off;
		break;
	case DW_FORM_ref_addr:
		if (off >= u->off && off - u->off < u->size) {
			off -= u->off;
			break;
		}
		err = dw_file_unit(file, off, &to);
		if (err)
			return err;
		off -= to->off;
		break;
	default:
		return -ENOTSUP; /* DW_FORM_ref_sig8 refers to types, which name no code */
	}
	err = dw_unit_load(to);
	if (err)
		return err;
	err = dw_die_at(to, off, out, &next);
	return err < 0 ? err : err ? 0 : -EBADMSG;
}

/* symbolizer/debug/spans.c: finds where the code of a program's units is. */
#include "symbolizer/debug/debug.h"

#include "base/growth.h"
#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

#define SPANS_MAX ((size_t)2 << 20)
#define ENCLOSING 64
#define SETS_READ ((uint64_t)64 << 10) /* of .debug_aranges at once: a set has some dozen bytes */

/* Add a range of a unit's code. Empty ranges and those at 0 are ignored. -ENOMEM, -E2BIG. */
static int push_span(struct sym_debug *d, uint64_t low, uint64_t high, uint32_t unit)
{
	int err;

	if (!low || low >= high)
		return 0;
	err = UW_ARRAY_GROW(d->spans, d->n_spans, d->room_spans, SPANS_MAX);
	if (err)
		return err;
	d->spans[d->n_spans++] = (struct sym_span){ .low = low, .high = high, .unit = unit };
	return 0;
}

/* Read one set of .debug_aranges (DWARF 5 §6.1.2). c is positioned after the set's length. */
static int read_set(struct sym_debug *d, struct uw_bytes *c, unsigned int off_size, uint64_t header)
{
	uint16_t version = uw_bytes_u16(c);
	uint64_t off = uw_bytes_uint(c, off_size);
	uint8_t addr_size = uw_bytes_u8(c);
	uint8_t segment = uw_bytes_u8(c);
	struct dw_unit *u;
	uint64_t pad;
	int err;

	if (c->err || version != 2 || (addr_size != 4 && addr_size != 8) || segment)
		return 0; /* the unit itself is read instead */
	err = dw_file_unit(&d->main, off, &u);
	if (err || u->off != off)
		return err == -ENOMEM ? err : 0;
	header += 2 + off_size + 2;
	pad = header % (2 * (uint64_t)addr_size);
	if (pad)
		uw_bytes_skip(c, 2 * (uint64_t)addr_size - pad);
	while (!c->err && uw_bytes_left(c) >= 2 * (uint64_t)addr_size) {
		uint64_t low = uw_bytes_uint(c, addr_size);
		uint64_t size = uw_bytes_uint(c, addr_size);

		if (!low && !size)
			continue;
		if (size > UINT64_MAX - low)
			continue;
		err = push_span(d, low, low + size, (uint32_t)(u - d->main.units));
		if (err)
			return err;
		u->in_aranges = true;
	}
	return 0;
}

struct part { /* of a section that is read piece by piece */
	const uint8_t *bytes;
	uint8_t *owned;
	uint64_t off, size;
};

/* Let part have the n bytes at off, which are in the section, and what follows them. */
static int get_part(const struct sym_section *s, uint64_t off, uint64_t n, struct part *part,
		    const uint8_t **out)
{
	uint64_t left = s->source.size - off;
	int err = 0;

	if (off < part->off || off - part->off > part->size || n > part->size - (off - part->off)) {
		free(part->owned);
		*part = (struct part){ .off = off, .size = n < SETS_READ ? SETS_READ : n };
		if (part->size > left)
			part->size = left;
		err = sym_section_map(s, off, part->size, &part->bytes, &part->owned);
	}
	if (err)
		*part = (struct part){ .size = 0 };
	else
		*out = part->bytes + (off - part->off);
	return err;
}

/* Read all sets of .debug_aranges. Damage ends the reading without an error. */
static int read_aranges(struct sym_debug *d, const struct sym_section *s)
{
	struct part part = { .size = 0 };
	uint64_t off = 0;
	int err = 0;

	while (!err && off < s->source.size && s->source.size - off >= 12) {
		unsigned int off_size = 4;
		const uint8_t *bytes;
		struct uw_bytes c;
		uint64_t size;

		err = get_part(s, off, 12, &part, &bytes);
		if (err)
			break;
		c = uw_bytes_of(bytes, 12);
		size = uw_bytes_u32(&c);
		if (size == 0xffffffff) {
			off_size = 8;
			size = uw_bytes_u64(&c);
		}
		off += off_size == 8 ? 12 : 4;
		if (size > s->source.size - off)
			break;
		err = get_part(s, off, size, &part, &bytes);
		if (err)
			break;
		c = uw_bytes_of(bytes, size);
		err = read_set(d, &c, off_size, off_size == 8 ? 12 : 4);
		off += size;
	}
	free(part.owned);
	return err;
}

/* Read the code ranges of a unit that .debug_aranges lacks from the unit's own entry. */
static int ask_unit(struct sym_debug *d, struct dw_unit *u, struct dw_ranges *ranges)
{
	int err;

	if (!u->type || u->type == DW_UT_partial || u->type == DW_UT_type)
		return 0;
	err = dw_unit_root(u);
	if (err || (u->root.tag != DW_TAG_compile_unit && u->root.tag != DW_TAG_skeleton_unit))
		return err == -ENOMEM ? err : 0;
	ranges->n = 0;
	ranges->most = SPANS_MAX; /* a unit has one for each function, with -ffunction-sections */
	err = dw_ranges_add(u, &u->root.low, &u->root.high, &u->root.ranges, ranges);
	if (err == -ENOMEM)
		return err;
	/* Of ranges that are damaged, or too many, what was read until there. */
	err = 0;
	for (size_t i = 0; !err && i < ranges->n; i++)
		err = push_span(d, ranges->list[i].low, ranges->list[i].high,
				(uint32_t)(u - d->main.units));
	return err;
}

static int by_low(const void *a, const void *b)
{
	const struct sym_span *x = a, *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	if (x->high != y->high)
		return x->high > y->high ? -1 : 1;
	return (x->unit > y->unit) - (x->unit < y->unit);
}

/*
 * Use .debug_aranges for the units in it, and the units' own ranges for all others: clang makes no
 * .debug_aranges by default.
 */
int sym_spans_find(struct sym_debug *d, const struct uw_elf *image)
{
	struct sym_section aranges = { .source.fd = -1, .own_fd = -1 };
	struct dw_ranges ranges = { 0 };
	uint64_t reach = 0;
	int err = dw_file_units(&d->main);

	if (err)
		return err;
	if (!sym_section_open(image, ".debug_aranges", &aranges)) {
		err = read_aranges(d, &aranges);
		sym_section_close(&aranges);
	}
	for (size_t i = 0; err != -ENOMEM && err != -E2BIG && i < d->main.n_units; i++)
		if (!d->main.units[i].in_aranges)
			err = ask_unit(d, &d->main.units[i], &ranges);
	free(ranges.list);
	if (err == -ENOMEM)
		return err;
	if (d->n_spans)
		qsort(d->spans, d->n_spans, sizeof(*d->spans), by_low);
	for (size_t i = 0; i < d->n_spans; i++)
		d->spans[i].reach = reach = d->spans[i].high > reach ? d->spans[i].high : reach;
	return 0;
}

/*
 * Search downwards from the last span that begins at or before vaddr, because spans can be nested.
 * reach is the highest end so far, which shows that no earlier span contains vaddr.
 */
struct dw_unit *sym_spans_unit(const struct sym_debug *d, uint64_t vaddr, uint64_t *low,
			       uint64_t *high)
{
	struct dw_unit *found = NULL;
	size_t a = UW_COUNT_WHILE(i, d->n_spans, d->spans[i].low <= vaddr);

	if (a < d->n_spans && d->spans[a].low < *high)
		*high = d->spans[a].low;
	for (int i = 0; i < ENCLOSING && a; i++) {
		const struct sym_span *s = &d->spans[--a];

		if (s->high > vaddr) {
			found = &d->main.units[s->unit];
			*low = s->low > *low ? s->low : *low;
			*high = s->high < *high ? s->high : *high;
			break;
		}
		*low = s->high > *low ? s->high : *low;
		if (s->reach <= vaddr) /* nothing before it extends this far */
			break;
	}
	return found;
}

/*
 * symbolizer/debug/scopes.c: finds a unit's functions, and the calls that were inlined in one function.
 */
#include "symbolizer/debug/debug.h"

#include "base/growth.h"
#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

#define FUNCS_MAX   ((size_t)4 << 20)
#define CALLS_MAX   ((size_t)1 << 16)
#define DEPTH_MAX   1024
#define ORIGINS_MAX ((size_t)1 << 19)
#define CHAIN_MAX   16
#define TEXT_MAX    4096
#define OUTSIDE	    (LINES_NONE - 1)

/* ---- functions ----------------------------------------------------------------------------- */

static int by_low(const void *a, const void *b)
{
	const struct dw_func *x = a, *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	if (x->high != y->high)
		return x->high > y->high ? -1 : 1; /* inner functions after outer ones */
	return (x->die > y->die) - (x->die < y->die);
}

/* Append the code ranges of a function. -E2BIG, -ENOMEM. */
static int push_funcs(struct dw_unit *u, uint64_t die, const struct dw_ranges *ranges, size_t *room)
{
	for (size_t i = 0; i < ranges->n; i++) {
		int err = UW_ARRAY_GROW(u->funcs, u->n_funcs, *room, FUNCS_MAX);

		if (err)
			return err;
		u->funcs[u->n_funcs++] = (struct dw_func){ .low = ranges->list[i].low,
							   .high = ranges->list[i].high,
							   .die = die };
	}
	return 0;
}

/* Append a function's code, if it has any. *end is set to the end of the entry's attributes. */
static int add_func(struct dw_unit *u, const struct dw_die *die, struct dw_ranges *ranges,
		    size_t *room, uint64_t *end)
{
	static const uint16_t names[] = { DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges };
	struct dw_value v[3];
	int err = dw_die_values(die, names, 3, v, end);

	if (err || (!v[0].form && !v[2].form))
		return err;
	ranges->n = 0;
	err = dw_ranges_add(u, &v[0], &v[1], &v[2], ranges);
	if (err == -EBADMSG || err == -ENOTSUP) /* nothing is known about this function */
		return 0;
	return err ? err : push_funcs(u, die->off, ranges, room);
}

/* Find all functions of a unit, except for those in skipped children. */
static int walk_funcs(struct dw_unit *u, enum dw_skip skipping)
{
	struct dw_ranges ranges = { 0 };
	uint64_t off = u->header;
	size_t depth = 0, room = 0;
	int err = 0;

	while (off < u->size) {
		struct dw_die die;
		int got = dw_die_next_function(u, &off, &depth, skipping, &u->skipped, &die);

		err = got < 0 ? got : 0;
		if (got <= 0)
			break;
		err = add_func(u, &die, &ranges, &room, &off);
		if (err)
			break;
		if (skipping && dw_die_skip_children(&die, &off)) {
			u->skipped = true;
			continue;
		}
		depth += die.abbrev->children;
		if (!depth)
			break;
	}
	free(ranges.list);
	return err;
}

static bool in_order(const struct dw_unit *u)
{
	for (size_t i = 1; i < u->n_funcs; i++)
		if (by_low(&u->funcs[i - 1], &u->funcs[i]) > 0)
			return false;
	return true;
}

/*
 * reach[i] is the highest end of functions 0 to i: a search for enclosing functions stops where it
 * is not above the address.
 */
int sym_unit_funcs(struct dw_unit *u, enum dw_skip skipping)
{
	uint64_t reach = 0;
	int err;

	if (u->funcs_tried && (skipping >= u->skipping || !u->skipped))
		return 0;
	dw_unit_forget_funcs(u);
	u->funcs_tried = true;
	u->skipping = skipping;
	err = walk_funcs(u, skipping);
	if (err == -ENOMEM) {
		u->n_funcs = 0; /* none of it was counted as held */
		return err;
	}
	/* If the unit is damaged, use what came before the damage. */
	if (!in_order(u))
		qsort(u->funcs, u->n_funcs, sizeof(*u->funcs), by_low);
	u->reach = reallocarray(NULL, u->n_funcs + 1, sizeof(*u->reach));
	if (!u->reach) {
		u->n_funcs = 0;
		return -ENOMEM;
	}
	for (size_t i = 0; i < u->n_funcs; i++)
		u->reach[i] = reach = u->funcs[i].high > reach ? u->funcs[i].high : reach;
	u->file->budget->held += u->n_funcs * sizeof(*u->funcs);
	return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

enum { LINKAGE, MIPS_LINKAGE, NAME, DECL_LINE, ORIGIN, SPECIFICATION, N_NAMING };

static const uint16_t naming[N_NAMING] = {
	[LINKAGE] = DW_AT_linkage_name,
	[MIPS_LINKAGE] = DW_AT_MIPS_linkage_name,
	[NAME] = DW_AT_name,
	[DECL_LINE] = DW_AT_decl_line,
	[ORIGIN] = DW_AT_abstract_origin,
	[SPECIFICATION] = DW_AT_specification,
};

static uint32_t line_of(const struct dw_value *v)
{
	int64_t line = dw_value_number(v);

	return line > 0 && line < UINT32_MAX ? (uint32_t)line : 0;
}

/* Store an attribute's text. -ENOENT: it is not text. */
static int intern_value(struct sym_debug *d, const struct dw_unit *u, const struct dw_value *v,
			uint32_t *out)
{
	char text[TEXT_MAX];
	int n = dw_value_text(u, v, text, sizeof(text));

	return n <= 0 ? n : sym_lines_intern(d->lines, text, (size_t)n, out);
}

/*
 * Find name and line of a function. An entry states only what is its own. The rest is in its
 * declaration or its abstract instance, so follow these references.
 */
static int resolve(struct sym_debug *d, struct dw_die die, uint32_t *name, uint32_t *line)
{
	bool linkage = false;

	*name = LINES_NONE;
	*line = 0;
	for (int i = 0; i < CHAIN_MAX; i++) {
		struct dw_value v[N_NAMING];
		const struct dw_value *l, *on;
		struct dw_unit *u = die.unit;
		uint64_t end;
		int err = dw_die_values(&die, naming, N_NAMING, v, &end);

		if (!err)
			err = dw_unit_root(u); /* the root says where the unit's texts are */
		if (err)
			return err;
		l = v[LINKAGE].form ? &v[LINKAGE] : &v[MIPS_LINKAGE];
		if (l->form && !linkage) {
			err = intern_value(d, u, l, name);
			linkage = *name != LINES_NONE;
		} else if (v[NAME].form && *name == LINES_NONE) {
			err = intern_value(d, u, &v[NAME], name);
		}
		if (!*line)
			*line = line_of(&v[DECL_LINE]);
		on = v[ORIGIN].form ? &v[ORIGIN] : &v[SPECIFICATION];
		if (err == -ENOMEM || err == -E2BIG)
			return err;
		if (!on->form || (linkage && *line) || dw_die_refers(u, on, &die))
			break;
	}
	return 0;
}

static uint64_t hash_of(const struct dw_file *file, uint64_t off)
{
	return uw_hash_u64(off ^ uw_hash_u64((uintptr_t)file));
}

/* Cache an origin. If there are too many, forget all others first. */
static int add_origin(struct sym_debug *d, const struct sym_origin *origin)
{
	int err;

	if (d->n_origins == ORIGINS_MAX)
		sym_origins_forget(d);
	err = UW_ARRAY_GROW(d->origins, d->n_origins, d->room_origins, ORIGINS_MAX);
	if (!err)
		err = uw_hash_add(&d->by_origin, hash_of(origin->file, origin->off),
				  (uint32_t)d->n_origins);
	if (!err)
		d->origins[d->n_origins++] = *origin;
	return err;
}

void sym_origins_forget(struct sym_debug *d)
{
	uw_hash_clear(&d->by_origin);
	d->n_origins = 0;
}

/*
 * Find name and line of an inlined function. The result is cached because a function is inlined in
 * many places.
 */
static int resolve_origin(struct sym_debug *d, struct dw_unit *u, const struct dw_value *v,
			  uint32_t *name, uint32_t *line)
{
	const struct dw_file *file = u->file;
	uint64_t off = v->u;
	struct dw_die die;
	uint32_t i;
	int err;

	*name = LINES_NONE;
	*line = 0;
	switch (v->form) {
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
		file = file->alt;
		break;
	case DW_FORM_ref_addr:
		break;
	default:
		off += u->off;
	}
	if (!file || !v->form)
		return 0;
	i = UW_HASH_FIND(k, &d->by_origin, hash_of(file, off),
			 d->origins[k].file == file && d->origins[k].off == off);
	if (i != UW_HASH_NONE) {
		*name = d->origins[i].name;
		*line = d->origins[i].line;
		return 0;
	}
	err = dw_die_refers(u, v, &die);
	if (!err)
		err = resolve(d, die, name, line);
	if (err == -ENOMEM || err == -E2BIG)
		return err;
	return add_origin(
		d, &(struct sym_origin){ .file = file, .off = off, .name = *name, .line = *line });
}

/* ---- inlined calls ------------------------------------------------------------------------- */

/* The state of sym_calls_read. */
struct reading {
	struct sym_debug *debug;
	struct dw_unit *unit;
	struct dw_unit *skeleton;
	const char *dir;
	struct sym_cell *cells;
	size_t n_cells;
	struct sym_calls *calls;
	struct dw_ranges ranges;
};

/* Append a call. -EFBIG: more than CALLS_MAX. */
static int push_call(struct sym_calls *calls, const struct sym_call *call)
{
	if (calls->n == CALLS_MAX)
		return -EFBIG;
	if (UW_ARRAY_GROW(calls->list, calls->n, calls->room, CALLS_MAX))
		return -ENOMEM;
	calls->list[calls->n++] = *call;
	return 0;
}

/* Return the index of the first cell at or above addr. */
static size_t cell_from(const struct reading *r, uint64_t addr)
{
	return UW_COUNT_WHILE(i, r->n_cells, r->cells[i].vaddr < addr);
}

/*
 * End the neighbouring cells at addr, where an inlined call begins or ends. from is
 * cell_from(addr).
 */
static void note_border(struct reading *r, size_t from, uint64_t addr)
{
	if (from && r->cells[from - 1].high > addr)
		r->cells[from - 1].high = addr;
	if (from < r->n_cells && r->cells[from].low < addr)
		r->cells[from].low = addr;
}

/*
 * Set the call of all cells in a range. An address belongs to the innermost call that contains it:
 * the one that begins last or, if equal, ends first. A call's range is usually inside the range of
 * the call that it was inlined in. Return whether the range contains a cell.
 */
static bool note_range(struct reading *r, const struct dw_range *range, uint32_t call)
{
	size_t from = cell_from(r, range->low), past = cell_from(r, range->high);

	note_border(r, from, range->low);
	note_border(r, past, range->high);
	for (size_t i = from; i < past; i++) {
		struct sym_cell *c = &r->cells[i];

		if (c->call != LINES_NONE &&
		    (range->low < c->call_low ||
		     (range->low == c->call_low && range->high > c->call_high)))
			continue;
		c->call = call;
		c->call_low = range->low;
		c->call_high = range->high;
	}
	r->debug->budget.spent += past - from;
	return from < past;
}

/*
 * Add an inlined call. *call is the call that it is inlined in. It is set to the new call, or to
 * OUTSIDE if none of the addresses is in it.
 */
static int add_call(struct reading *r, const struct dw_die *die, uint32_t *call, uint64_t *end)
{
	struct dw_value v[DW_CALL_N];
	struct sym_call c = { .parent = *call, .call_file = LINES_NONE };
	bool inside = false;
	int64_t file;
	int err = dw_die_call(die, v, end);

	if (err)
		return err;
	r->ranges.n = 0;
	err = dw_ranges_add(r->unit, &v[DW_CALL_LOW], &v[DW_CALL_HIGH], &v[DW_CALL_RANGES],
			    &r->ranges);
	if (err == -EBADMSG || err == -ENOTSUP)
		return 0; /* nothing is known about this call */
	for (size_t i = 0; !err && i < r->ranges.n; i++)
		inside = note_range(r, &r->ranges.list[i], (uint32_t)r->calls->n) || inside;
	if (err)
		return err;
	if (!inside) {
		*call = OUTSIDE;
		return 0;
	}
	err = resolve_origin(r->debug, r->unit, &v[DW_CALL_ORIGIN], &c.name, &c.line);
	file = dw_value_number(&v[DW_CALL_FILE]);
	if (!err && r->skeleton->table && v[DW_CALL_FILE].form && file >= 0 && file < UINT32_MAX)
		err = sym_debug_path(r->debug, r->skeleton->file, r->skeleton->table,
				     (uint32_t)file, r->dir, &c.call_file);
	c.call_line = line_of(&v[DW_CALL_LINE]);
	if (err)
		return err;
	*call = (uint32_t)r->calls->n;
	return push_call(r->calls, &c);
}

/* Return whether an entry can contain inlined calls of the same function. */
static bool may_inline(uint16_t tag)
{
	return tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine ||
	       tag == DW_TAG_try_block || tag == DW_TAG_catch_block || tag == DW_TAG_with_stmt ||
	       tag == DW_TAG_common_block;
}

/* Add the function itself, from its own entry, as call 0. */
static int add_function(struct reading *r, const struct dw_die *die, uint64_t *end)
{
	struct sym_call c = { .parent = LINES_NONE, .call_file = LINES_NONE };
	int err = dw_die_end(die, end);

	if (!err)
		err = resolve(r->debug, *die, &c.name, &c.line);
	if (err)
		return err;
	for (size_t i = 0; i < r->n_cells; i++)
		r->cells[i].call = 0;
	return push_call(r->calls, &c);
}

/* Read the function's entry at off and all inlined calls in it. */
static int walk_calls(struct reading *r, uint64_t off)
{
	uint32_t at_depth[DEPTH_MAX]; /* the call that the children are in; OUTSIDE: not wanted */
	size_t depth = 0;
	bool first = true;

	while (off < r->unit->size) {
		struct dw_die die;
		uint64_t next;
		uint32_t call = depth ? at_depth[depth - 1] : OUTSIDE;
		int err, got = dw_die_at(r->unit, off, &die, &next);

		if (got < 0)
			return got;
		if (!got) {
			off = next;
			if (!depth || !--depth)
				return 0;
			continue;
		}
		if (first) {
			err = add_function(r, &die, &next);
			call = 0;
			first = false;
		} else if (die.abbrev->tag == DW_TAG_inlined_subroutine && call != OUTSIDE) {
			err = add_call(r, &die, &call, &next);
		} else {
			err = dw_die_end(&die, &next);
			if (!may_inline(die.abbrev->tag))
				call = OUTSIDE;
		}
		if (err)
			return err;
		if (call == OUTSIDE && dw_die_skip_children(&die, &next)) {
			off = next;
			continue;
		}
		off = next;
		if (die.abbrev->children) {
			if (depth == DEPTH_MAX)
				return -E2BIG;
			at_depth[depth++] = call;
		} else if (!depth) {
			return 0;
		}
	}
	return 0;
}

int sym_calls_read(struct sym_debug *d, struct dw_unit *u, uint64_t die, struct dw_unit *skeleton,
		   const char *dir, struct sym_cell *cells, size_t n, struct sym_calls *out)
{
	struct reading r = { .debug = d,
			     .unit = u,
			     .skeleton = skeleton,
			     .dir = dir,
			     .cells = cells,
			     .n_cells = n,
			     .calls = out };
	int err;

	out->n = 0;
	for (size_t i = 0; i < n; i++) {
		cells[i].call = LINES_NONE;
		cells[i].call_low = 0;
		cells[i].call_high = UINT64_MAX;
	}
	err = walk_calls(&r, die);
	/* note_border narrowed only the nearest cells: pass the borders on to the others. */
	for (size_t i = 1; i < n; i++)
		if (cells[i].low < cells[i - 1].low)
			cells[i].low = cells[i - 1].low;
	for (size_t i = n; i-- > 1;)
		if (cells[i - 1].high > cells[i].high)
			cells[i - 1].high = cells[i].high;
	free(r.ranges.list);
	/* If the function is damaged, drop calls that were not added before the damage. */
	for (size_t i = 0; i < n; i++)
		if (cells[i].call != LINES_NONE && cells[i].call >= out->n)
			cells[i].call = LINES_NONE;
	return err == -ENOMEM || err == -E2BIG ? err : 0;
}

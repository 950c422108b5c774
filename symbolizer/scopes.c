/* symbolizer/scopes.c: a unit's functions, and the calls that were inlined in one. */
#include "symbolizer/debug.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

#define FUNCS_MAX   ((size_t)4 << 20)
#define ENTRIES_MAX ((size_t)1 << 16)
#define DEPTH_MAX   1024
#define ORIGINS_MAX ((size_t)1 << 20)
#define CHAIN_MAX   16
#define TEXT_MAX    4096

/* ---- functions ----------------------------------------------------------------------------- */

static int by_low(const void *a, const void *b)
{
	const struct dw_func *x = a, *y = b;

	if (x->low != y->low)
		return x->low < y->low ? -1 : 1;
	if (x->high != y->high)
		return x->high > y->high ? -1 : 1; /* what is inside comes later */
	return (x->die > y->die) - (x->die < y->die);
}

static int push_funcs(struct dw_unit *u, uint64_t die, const struct dw_ranges *ranges, size_t *room)
{
	for (size_t i = 0; i < ranges->n; i++) {
		if (u->n_funcs == *room) {
			size_t more = *room ? *room * 2 : 64;
			struct dw_func *grown;

			if (more > FUNCS_MAX)
				return -E2BIG;
			grown = reallocarray(u->funcs, more, sizeof(*grown));
			if (!grown)
				return -ENOMEM;
			u->funcs = grown;
			*room = more;
		}
		u->funcs[u->n_funcs++] = (struct dw_func){ .low = ranges->list[i].low,
							   .high = ranges->list[i].high,
							   .die = die };
	}
	return 0;
}

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
	if (err == -EBADMSG || err == -ENOTSUP) /* of this one nothing is known */
		return 0;
	return err ? err : push_funcs(u, die->off, ranges, room);
}

static int walk_funcs(struct dw_unit *u, bool leaping)
{
	struct dw_ranges ranges = { 0 };
	uint64_t off = u->header;
	size_t depth = 0, room = 0;
	int err = 0;

	while (off < u->size) {
		struct dw_die die;
		int got = dw_die_next_function(u, &off, &depth, leaping, &u->leapt, &die);

		err = got < 0 ? got : 0;
		if (got <= 0)
			break;
		err = add_func(u, &die, &ranges, &room, &off);
		if (err)
			break;
		if (leaping && dw_die_leap(&die, &off)) {
			u->leapt = true;
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

int sym_unit_funcs(struct dw_unit *u, bool leaping)
{
	uint64_t reach = 0;
	int err;

	if (u->funcs_tried && (leaping || !u->leapt))
		return 0;
	dw_unit_forget_funcs(u);
	u->funcs_tried = true;
	err = walk_funcs(u, leaping);
	if (err == -ENOMEM) {
		u->n_funcs = 0; /* none of it was counted */
		return err;
	}
	/* Of a damaged one, what came before the damage. */
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

static int intern_value(struct sym_debug *d, const struct dw_unit *u, const struct dw_value *v,
			uint32_t *out)
{
	char text[TEXT_MAX];
	int n = dw_value_text(u, v, text, sizeof(text));

	return n <= 0 ? n : sym_lines_intern(d->lines, text, (size_t)n, out);
}

/* An entry states what is its own; the rest is its declaration's or its abstract instance's. */
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
			err = dw_unit_root(u); /* says where its texts are */
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

static size_t slot_of(const struct sym_debug *d, const struct dw_file *file, uint64_t off)
{
	uint64_t hash =
		(off + (file == &d->main ? 0 : (uintptr_t)file)) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(hash >> 20) & (d->room_origins - 1);
}

static int grow_origins(struct sym_debug *d)
{
	struct sym_origin *old = d->origins;
	size_t n = d->room_origins, room = n ? n * 2 : 1024;
	bool forget = room > ORIGINS_MAX;

	if (forget)
		room = n;
	d->origins = calloc(room, sizeof(*d->origins));
	if (!d->origins) {
		d->origins = old;
		return -ENOMEM;
	}
	d->room_origins = room;
	d->n_origins = 0;
	for (size_t i = 0; !forget && i < n; i++) {
		size_t at;

		if (!old[i].file)
			continue;
		for (at = slot_of(d, old[i].file, old[i].off); d->origins[at].file;
		     at = (at + 1) & (room - 1))
			;
		d->origins[at] = old[i];
		d->n_origins++;
	}
	free(old);
	return 0;
}

/* A function is inlined in many places; it is resolved once. */
static int resolve_origin(struct sym_debug *d, struct dw_unit *u, const struct dw_value *v,
			  uint32_t *name, uint32_t *line)
{
	const struct dw_file *file = u->file;
	uint64_t off = v->u;
	struct sym_origin *o;
	struct dw_die die;
	size_t at;
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
	if (d->n_origins * 2 >= d->room_origins) {
		err = grow_origins(d);
		if (err)
			return err;
	}
	for (at = slot_of(d, file, off); d->origins[at].file;
	     at = (at + 1) & (d->room_origins - 1)) {
		o = &d->origins[at];
		if (o->file == file && o->off == off) {
			*name = o->name;
			*line = o->line;
			return 0;
		}
	}
	err = dw_die_refers(u, v, &die);
	if (!err)
		err = resolve(d, die, name, line);
	if (err == -ENOMEM || err == -E2BIG)
		return err;
	d->origins[at] =
		(struct sym_origin){ .file = file, .off = off, .name = *name, .line = *line };
	d->n_origins++;
	return 0;
}

/* ---- inlined calls ------------------------------------------------------------------------- */

struct call {
	uint32_t parent; /* the call it was inlined in; LINES_NONE */
	struct lines_scope scope;
};

struct entry { /* one stretch of one call */
	uint32_t start, end;
	uint32_t call;
	uint32_t up; /* an earlier entry */
};

struct reading {
	struct sym_debug *debug;
	struct dw_unit *unit;
	struct dw_unit *skeleton;
	const char *dir;
	uint64_t low, high;
	struct dw_ranges ranges;
	struct call *calls;
	struct entry *entries;
	size_t n_calls, room_calls, n_entries, room_entries;
};

static int push_call(struct reading *r, const struct call *call)
{
	if (r->n_calls == r->room_calls) {
		size_t room = r->room_calls ? r->room_calls * 2 : 32;
		struct call *grown =
			room > ENTRIES_MAX ? NULL : reallocarray(r->calls, room, sizeof(*grown));

		if (!grown)
			return room > ENTRIES_MAX ? -EFBIG : -ENOMEM;
		r->calls = grown;
		r->room_calls = room;
	}
	r->calls[r->n_calls++] = *call;
	return 0;
}

/* What of the ranges is in the piece. */
static int push_entries(struct reading *r, uint32_t call)
{
	for (size_t i = 0; i < r->ranges.n; i++) {
		uint64_t low = r->ranges.list[i].low, high = r->ranges.list[i].high;

		low = low > r->low ? low : r->low;
		high = high < r->high ? high : r->high;
		if (low >= high)
			continue;
		if (r->n_entries == r->room_entries) {
			size_t room = r->room_entries ? r->room_entries * 2 : 32;
			struct entry *grown =
				room > ENTRIES_MAX ? NULL
						   : reallocarray(r->entries, room, sizeof(*grown));

			if (!grown)
				return room > ENTRIES_MAX ? -EFBIG : -ENOMEM;
			r->entries = grown;
			r->room_entries = room;
		}
		r->entries[r->n_entries++] = (struct entry){ .start = (uint32_t)(low - r->low),
							     .end = (uint32_t)(high - r->low),
							     .call = call };
	}
	return 0;
}

enum { CALL_ORIGIN, CALL_LOW, CALL_HIGH, CALL_RANGES, CALL_FILE, CALL_LINE, N_CALL };

static const uint16_t call_names[N_CALL] = {
	[CALL_ORIGIN] = DW_AT_abstract_origin, [CALL_LOW] = DW_AT_low_pc,
	[CALL_HIGH] = DW_AT_high_pc,	       [CALL_RANGES] = DW_AT_ranges,
	[CALL_FILE] = DW_AT_call_file,	       [CALL_LINE] = DW_AT_call_line,
};

/* *call: what it is inlined in; then itself, unless it has no code here. */
static int add_call(struct reading *r, const struct dw_die *die, uint32_t *call, uint64_t *end)
{
	struct dw_value v[N_CALL];
	struct call c = { .parent = *call, .scope = { .call_file = LINES_NONE } };
	size_t before = r->n_entries;
	int64_t file;
	int err = dw_die_values(die, call_names, N_CALL, v, end);

	if (err)
		return err;
	r->ranges.n = 0;
	err = dw_ranges_add(r->unit, &v[CALL_LOW], &v[CALL_HIGH], &v[CALL_RANGES], &r->ranges);
	if (err == -EBADMSG || err == -ENOTSUP)
		return 0;
	if (!err)
		err = push_entries(r, (uint32_t)r->n_calls);
	if (err || r->n_entries == before)
		return err;
	err = resolve_origin(r->debug, r->unit, &v[CALL_ORIGIN], &c.scope.name, &c.scope.line);
	file = dw_value_number(&v[CALL_FILE]);
	if (!err && r->skeleton->table && v[CALL_FILE].form && file >= 0 && file < UINT32_MAX)
		err = sym_debug_path(r->debug, r->skeleton->file, r->skeleton->table,
				     (uint32_t)file, r->dir, &c.scope.call_file);
	c.scope.call_line = line_of(&v[CALL_LINE]);
	if (err)
		return err;
	*call = (uint32_t)r->n_calls;
	return push_call(r, &c);
}

/* Whether inlined calls of the same function may be inside. */
static bool may_inline(uint16_t tag)
{
	return tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine ||
	       tag == DW_TAG_try_block || tag == DW_TAG_catch_block || tag == DW_TAG_with_stmt ||
	       tag == DW_TAG_common_block;
}

static int walk_calls(struct reading *r, uint64_t off)
{
	uint32_t at_depth[DEPTH_MAX] = { LINES_NONE }; /* which call the children are in */
	size_t depth = 0, hidden = 0;		       /* inside another function from there on */
	bool first = true;

	while (off < r->unit->size) {
		struct dw_die die;
		uint64_t next;
		uint32_t call = depth ? at_depth[depth - 1] : LINES_NONE;
		int err, got = dw_die_at(r->unit, off, &die, &next);

		if (got < 0)
			return got;
		if (!got) {
			off = next;
			if (!depth || !--depth)
				return 0;
			if (hidden > depth)
				hidden = 0;
			continue;
		}
		if (first) {
			struct call c = { .parent = LINES_NONE,
					  .scope = { .call_file = LINES_NONE } };

			err = dw_die_end(&die, &next);
			if (!err)
				err = resolve(r->debug, die, &c.scope.name, &c.scope.line);
			r->ranges.n = 0;
			if (!err && !r->ranges.list) {
				r->ranges.room = 16;
				r->ranges.list = calloc(16, sizeof(*r->ranges.list));
				err = r->ranges.list ? 0 : -ENOMEM;
			}
			if (err)
				return err;
			r->ranges.list[r->ranges.n++] =
				(struct dw_range){ .low = r->low, .high = r->high };
			err = push_entries(r, 0);
			if (!err)
				err = push_call(r, &c);
			call = 0;
			first = false;
		} else if (die.abbrev->tag == DW_TAG_inlined_subroutine && !hidden) {
			uint32_t up = call;

			err = add_call(r, &die, &call, &next);
			/* What is inlined in what has no code here has none either. */
			if (!err && call == up && dw_die_leap(&die, &next)) {
				off = next;
				continue;
			}
		} else {
			err = dw_die_end(&die, &next);
			if (!err && !may_inline(die.abbrev->tag) && dw_die_leap(&die, &next)) {
				off = next;
				continue;
			}
		}
		if (err)
			return err;
		off = next;
		if (die.abbrev->children) {
			if (depth == DEPTH_MAX)
				return -E2BIG;
			at_depth[depth++] = call;
			if (!hidden && depth > 1 && die.abbrev->tag == DW_TAG_subprogram)
				hidden = depth;
		} else if (!depth) {
			return 0;
		}
	}
	return 0;
}

/* Where one begins; of equal ones the outermost, which was found first. */
static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->end != y->end)
		return x->end > y->end ? -1 : 1;
	return (x->call > y->call) - (x->call < y->call);
}

static bool is_inside(const struct reading *r, uint32_t call, uint32_t of)
{
	while (call != LINES_NONE && call > of)
		call = r->calls[call].parent; /* an earlier one */
	return call == of;
}

static int link_entries(struct reading *r, struct sym_scopes *out)
{
	struct lines_scope *list = reallocarray(NULL, r->n_entries + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	if (r->n_entries)
		qsort(r->entries, r->n_entries, sizeof(*r->entries), by_place);
	for (size_t i = 0; i < r->n_entries; i++) {
		struct entry *e = &r->entries[i];
		uint32_t up = i ? (uint32_t)(i - 1) : LINES_NONE;

		/* What was inlined there and goes on here; not a neighbour that overlaps. */
		while (up != LINES_NONE && (r->entries[up].end <= e->start ||
					    !is_inside(r, e->call, r->entries[up].call)))
			up = r->entries[up].up;
		e->up = up;
		list[i] = r->calls[e->call].scope;
		list[i].start = e->start;
		list[i].end = e->end;
		list[i].up = up;
	}
	out->list = list;
	out->n = r->n_entries;
	return 0;
}

int sym_scopes_read(struct sym_debug *d, struct dw_unit *u, uint64_t die, struct dw_unit *skeleton,
		    const char *dir, uint64_t low, uint64_t high, struct sym_scopes *out)
{
	struct reading r = {
		.debug = d, .unit = u, .skeleton = skeleton, .dir = dir, .low = low, .high = high
	};
	int err = walk_calls(&r, die);

	/* Of a damaged function, what came before the damage. */
	if (err != -ENOMEM && err != -E2BIG)
		err = link_entries(&r, out);
	free(r.calls);
	free(r.entries);
	free(r.ranges.list);
	return err;
}

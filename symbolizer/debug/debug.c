/*
 * symbolizer/debug/debug.c: finds the unit and the function of an address, and stores its lines and
 * calls.
 */
#include "symbolizer/debug/debug.h"

#include "base/search.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

/* Limits: bytes of loaded units, and of units that are done with; .dwo files open at once. */
#define HELD_MAX    ((uint64_t)48 << 20)
#define HELD_SOON   ((uint64_t)8 << 20)
#define SPLITS_HELD 64
#define PATH_ROOM   4096
#define ENCLOSING   64
#define SCOPES_MAX  1024

/* ---- reading one unit --------------------------------------------------------------------- */

static void unload_all(struct sym_debug *d)
{
	sym_split_close(d);
	for (size_t i = 0; i < d->main.n_units; i++)
		dw_unit_unload(&d->main.units[i]);
	for (size_t i = 0; i < d->alt.n_units; i++)
		dw_unit_unload(&d->alt.units[i]);
}

int sym_unit_text(struct dw_unit *u, uint16_t attribute, char *out, size_t room)
{
	struct dw_value v;
	struct dw_die die;
	uint64_t next;
	int err = dw_unit_load(u);

	*out = '\0';
	if (!err)
		err = dw_unit_root(u);
	if (err)
		return err;
	err = dw_die_at(u, u->header, &die, &next);
	if (err <= 0)
		return err ? err : -EBADMSG;
	err = dw_die_values(&die, &attribute, 1, &v, &next);
	if (err)
		return err;
	err = dw_value_text(u, &v, out, room);
	if (err < 0)
		*out = '\0';
	return err < 0 && err != -ENOENT ? err : 0;
}

/*
 * Intern the path of a line table's file, and set *out to its number. Many rows have the same file, so
 * the table caches the number + 1; 0: not interned yet.
 */
int sym_debug_path(struct sym_debug *d, const struct dw_file *file, struct dw_table *table,
		   uint32_t index, const char *dir, uint32_t *out)
{
	char path[PATH_ROOM];
	int n, err;

	*out = LINES_NONE;
	if (index >= table->n_files)
		return 0;
	if (table->files[index].interned) {
		*out = table->files[index].interned - 1;
		return 0;
	}
	n = dw_table_path(file, table, index, dir, path, sizeof(path));
	if (n <= 0)
		return n == -ENOMEM ? n : 0;
	err = sym_lines_intern(d->lines, path, (size_t)n, out);
	if (!err)
		table->files[index].interned = *out + 1;
	return err;
}

struct wanted { /* an address to look up */
	struct dw_unit *unit;
	uint64_t vaddr;
};

struct piece { /* a function, or the code between two functions */
	uint64_t low, high;
	uint64_t die; /* offset of the function's entry in the unit; 0: none */
};

/* Narrow the piece to the function that contains vaddr, or to the gap between two. NULL: a gap. */
static const struct dw_func *narrow(const struct dw_unit *u, uint64_t vaddr, struct piece *p)
{
	size_t a = UW_COUNT_WHILE(i, u->n_funcs, u->funcs[i].low <= vaddr);

	if (a < u->n_funcs && u->funcs[a].low < p->high)
		p->high = u->funcs[a].low;
	for (int i = 0; i < ENCLOSING && a; i++) {
		const struct dw_func *f = &u->funcs[--a];

		if (f->high > vaddr) {
			p->low = f->low > p->low ? f->low : p->low;
			p->high = f->high < p->high ? f->high : p->high;
			return f;
		}
		p->low = f->high > p->low ? f->high : p->low;
		if (u->reach[a] <= vaddr)
			break;
	}
	return NULL;
}

/*
 * Load a unit and find its functions. *entries is the unit that has the functions: the unit itself,
 * or the split unit if this is a skeleton. *lasting is cleared if the split unit is missing.
 */
static int load_unit(struct sym_debug *d, struct dw_unit *u, struct dw_unit **entries,
		     bool *lasting)
{
	int err = dw_unit_load(u);

	if (!err)
		err = dw_unit_root(u);
	if (err)
		return err;
	*entries = u;
	if (u->root.dwo_id || u->root.dwo_name.form) {
		struct dw_unit *split;

		err = sym_split_unit(d, u, &split);
		if (!err)
			err = dw_unit_load(split);
		if (err == -ENOMEM)
			return err;
		if (err)
			*lasting = false; /* the split unit may appear later */
		else
			*entries = split;
	}
	return sym_unit_funcs(*entries, d->skipping);
}

/* Read the unit's line table once. wanted: see dw_table_read. */
static void load_table(struct sym_debug *d, struct dw_unit *u, const uint64_t *wanted, size_t n)
{
	if (u->lines_tried || !u->root.stmt.form)
		return;
	u->lines_tried = true;
	if (!dw_table_read(u->file, u->root.stmt.u, u->addr_size, wanted, n, &u->table))
		d->budget.held += dw_table_memory(u->table);
}

/*
 * Find the piece of the unit that contains vaddr. If no function does, search what was skipped so
 * far.
 */
static int find_piece(struct sym_debug *d, struct dw_unit *entries, uint64_t vaddr, struct piece *p)
{
	const struct piece whole = *p;
	const struct dw_func *f = narrow(entries, vaddr, p);

	/* vaddr is in no function, or in one that was skipped. */
	while (!f && entries->skipped && entries->skipping != DW_SKIP_NONE) {
		int err = sym_unit_funcs(entries, entries->skipping - 1);

		if (err)
			return err;
		*p = whole;
		f = narrow(entries, vaddr, p);
		if (f && d->skipping > entries->skipping)
			d->skipping = entries->skipping;
	}
	p->die = f ? f->die : 0;
	return 0;
}

/* Limit a piece to the size that can be stored, around the address. */
static void limit(struct sym_cell *c)
{
	if (c->high - c->low <= UINT32_MAX)
		return;
	c->low = c->vaddr - c->low > INT32_MAX ? c->vaddr - INT32_MAX : c->low;
	c->high = c->high - c->low > UINT32_MAX ? c->low + UINT32_MAX : c->high;
}

/* Store that nothing is known about vaddr and the range around it. */
static int put_nothing(struct sym_debug *d, uint64_t vaddr, uint64_t low, uint64_t high)
{
	struct sym_cell c = { .vaddr = vaddr, .low = low, .high = high };

	limit(&c);
	return sym_lines_put(d->lines, c.low, c.high, NULL, NULL, 0, true);
}

/* The state of reading one unit. */
struct job {
	struct dw_unit *unit, *entries;
	bool lasting;		/* results are final, not because of a missing file */
	struct sym_cell *cells; /* ascending; owned */
	uint64_t *vaddrs;	/* of the cells; owned */
	uint64_t *dies;		/* the functions they are in; owned */
	size_t n;
	struct sym_calls calls;
	char dir[PATH_ROOM];
};

static void free_job(struct job *j)
{
	free(j->cells);
	free(j->vaddrs);
	free(j->dies);
	free(j->calls.list);
}

/* Make a cell for each address that is not known yet. All wanted addresses are in the unit. */
static int find_cells(struct sym_debug *d, struct job *j, const struct wanted *wanted, size_t n)
{
	struct piece p = { .low = 0 };
	int err;

	j->cells = calloc(n, sizeof(*j->cells));
	j->vaddrs = calloc(n, sizeof(*j->vaddrs));
	j->dies = calloc(n, sizeof(*j->dies));
	if (!j->cells || !j->vaddrs || !j->dies)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct sym_cell *c = &j->cells[j->n];

		c->vaddr = wanted[i].vaddr;
		c->call = LINES_NONE;
		if (sym_lines_gap(d->lines, c->vaddr, &c->low, &c->high))
			continue;
		if (c->vaddr >= p.high) {
			p.low = 0;
			p.high = UINT64_MAX;
			(void)sym_spans_unit(d, c->vaddr, &p.low, &p.high);
			err = find_piece(d, j->entries, c->vaddr, &p);
			if (err)
				return err;
		}
		c->low = p.low > c->low ? p.low : c->low;
		c->high = p.high < c->high ? p.high : c->high;
		j->vaddrs[j->n] = c->vaddr;
		j->dies[j->n++] = p.die;
	}
	return 0;
}

/* Store the line and the inlined calls of one cell. */
static int put_cell(struct sym_debug *d, struct job *j, struct sym_cell *c)
{
	struct lines_row place = { .file = LINES_NONE };
	struct lines_scope scopes[SCOPES_MAX];
	struct dw_table *t = j->unit->table;
	const struct dw_row *row;
	uint64_t end;
	size_t n = 0;
	int err;

	if (t && !dw_table_find(t, c->vaddr, &row, &end)) {
		c->low = row->addr > c->low ? row->addr : c->low;
		c->high = end < c->high ? end : c->high;
		place.line = row->line;
		err = sym_debug_path(d, j->unit->file, t, row->file, j->dir, &place.file);
		if (err)
			return err;
	} else if (t) { /* nothing is known about the code around it */
		c->low = c->vaddr;
		c->high = c->vaddr + 1;
	}
	limit(c);
	for (uint32_t call = c->call; call != LINES_NONE; call = j->calls.list[call].parent)
		n++;
	n = n < SCOPES_MAX ? n : SCOPES_MAX;
	for (uint32_t i = (uint32_t)n, call = c->call; i--; call = j->calls.list[call].parent) {
		const struct sym_call *from = &j->calls.list[call];

		scopes[i] = (struct lines_scope){ .end = (uint32_t)(c->high - c->low),
						  .name = from->name,
						  .line = from->line,
						  .call_file = from->call_file,
						  .call_line = from->call_line,
						  .up = i ? i - 1 : LINES_NONE };
	}
	return sym_lines_put(d->lines, c->low, c->high,
			     place.file == LINES_NONE && !place.line ? NULL : &place, scopes, n,
			     j->lasting);
}

/* Read the calls of n cells in the same function, or in none, and store the cells. */
static int put_cells(struct sym_debug *d, struct job *j, size_t first, size_t n)
{
	struct sym_cell *cells = j->cells + first;
	uint64_t reach = 0;
	int err = 0;

	if (j->dies[first])
		err = sym_calls_read(d, j->entries, j->dies[first], j->unit, j->dir, cells, n,
				     &j->calls);
	/* Ignore damage: the address is stored without calls. */
	for (size_t i = 0; i < n && err != -ENOMEM; i++) {
		if (cells[i].vaddr < reach)
			continue;
		err = put_cell(d, j, &cells[i]);
		reach = cells[i].high;
	}
	return err;
}

/*
 * Read everything wanted of a unit. If it is read for the first time, and for several addresses,
 * read only the needed rows of its line table.
 */
static int read_unit(struct sym_debug *d, struct job *j, const struct wanted *wanted, size_t n)
{
	/* A unit that is used again is likely to be used often: then read its whole table. */
	bool once = n > 1 && !j->unit->asked;
	size_t past;
	int err = load_unit(d, j->unit, &j->entries, &j->lasting);

	if (!err)
		err = find_cells(d, j, wanted, n);
	if (!err)
		err = sym_unit_text(j->unit, DW_AT_comp_dir, j->dir, sizeof(j->dir));
	if (err)
		return err;
	load_table(d, j->unit, once ? j->vaddrs : NULL, once ? j->n : 0);
	for (size_t i = 0; !err && i < j->n; i = past) {
		for (past = i; past < j->n && j->dies[past] == j->dies[i]; past++)
			;
		err = put_cells(d, j, i, past - i);
	}
	if (once)
		dw_unit_forget_table(j->unit);
	j->unit->asked = true;
	return err;
}

/* Return whether no more may be read of this file now. What was not read for that is not known to have no lines. */
static bool is_spent(const struct sym_debug *d)
{
	return d->budget.spent > d->budget.limit;
}

/* Read everything wanted of a unit; free the memory of other units before if it is too much. */
static int add_unit(struct sym_debug *d, const struct wanted *wanted, size_t n)
{
	struct job j = { .unit = wanted->unit, .entries = wanted->unit, .lasting = true };
	int err;

	if (is_spent(d))
		return -E2BIG;
	if (d->budget.held > HELD_MAX || d->n_splits > SPLITS_HELD)
		unload_all(d);
	err = read_unit(d, &j, wanted, n);
	free_job(&j);
	if (err == -E2BIG && is_spent(d))
		return err;
	/* For a damaged unit, store that nothing is known about the addresses. */
	for (size_t i = 0; err && err != -ENOMEM && i < n; i++) {
		uint64_t low, high;

		sym_lines_settle(d->lines);
		if (sym_lines_gap(d->lines, wanted[i].vaddr, &low, &high))
			continue;
		(void)sym_spans_unit(d, wanted[i].vaddr, &low, &high);
		err = put_nothing(d, wanted[i].vaddr, low, high);
		err = err ? err : -EBADMSG;
	}
	return err == -ENOMEM || err == -E2BIG ? err : 0;
}

/*
 * Do the same, and unload the unit afterwards, because it is usually needed once. The next unit
 * reuses its memory.
 */
static int prepare_unit(struct sym_debug *d, const struct wanted *wanted, size_t n)
{
	struct dw_unit *u = wanted->unit, *entries;
	bool again = u->asked;
	int err = add_unit(d, wanted, n);

	entries = u->split;
	if (!again || d->budget.held > HELD_SOON) {
		dw_unit_unload(u);
		if (entries)
			dw_unit_unload(entries);
	}
	return err;
}

int sym_debug_add(struct sym_debug *d, uint64_t vaddr)
{
	struct wanted wanted = { .vaddr = vaddr };
	uint64_t low, high;
	int err = sym_lines_gap(d->lines, vaddr, &low, &high);

	if (err || vaddr == UINT64_MAX) /* no range can end after UINT64_MAX */
		return err == -EEXIST ? 0 : err;
	wanted.unit = sym_spans_unit(d, vaddr, &low, &high);
	/*
	 * If no unit has vaddr, store that for the whole gap between units, up to the size that a
	 * piece can have.
	 */
	err = wanted.unit ? add_unit(d, &wanted, 1) : put_nothing(d, vaddr, low, high);
	sym_lines_settle(d->lines);
	return err;
}

UW_ORDER_2(by_unit, struct wanted, unit, vaddr)

/*
 * Group the addresses by unit, so that a unit is loaded once. All threads sort the same addresses
 * in the same way, so a group has the same number in each, and a thread takes the next number from
 * turns.
 */
int sym_debug_prepare(struct sym_debug *d, const uint64_t *vaddrs, size_t n,
		      struct sym_turns *turns)
{
	struct wanted *wanted = calloc(n + 1, sizeof(*wanted));
	struct sym_turns alone = { 0 };
	size_t past, turn, next = 0;
	int err = wanted ? 0 : -ENOMEM;

	turns = turns ? turns : &alone;
	for (size_t i = 0; !err && i < n; i++) {
		uint64_t low = 0, high = UINT64_MAX;

		wanted[i] = (struct wanted){ .unit = sym_spans_unit(d, vaddrs[i], &low, &high),
					     .vaddr = vaddrs[i] };
	}
	if (!err && n)
		qsort(wanted, n, sizeof(*wanted), by_unit);
	turn = atomic_fetch_add(&turns->taken, 1);
	for (size_t i = 0; !err && i < n; i = past, next++) {
		for (past = i; past < n && wanted[past].unit == wanted[i].unit; past++)
			;
		if (next != turn)
			continue;
		turn = atomic_fetch_add(&turns->taken, 1);
		if (wanted[i].unit)
			err = prepare_unit(d, wanted + i, past - i);
		for (size_t j = i; !wanted[i].unit && !err && j < past; j++)
			err = sym_debug_add(d, wanted[j].vaddr);
	}
	sym_lines_settle(d->lines);
	free(wanted);
	return err;
}

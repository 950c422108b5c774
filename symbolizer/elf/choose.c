/*
 * symbolizer/elf/choose.c: sorts the symbols of a builder, chooses among those at one address, and
 * cleans their names.
 */
#include "symbolizer/elf/symbol_table.h"

#include "base/growth.h"
#include "base/search.h"
#include "base/text.h"
#include "schema/symbols_blob.h"
#include "symbolizer/elf/prefer.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CLEANED_MAX ((uint64_t)64 << 20)
/* Symbols at one address with different ends. The limit is beyond practical need. */
#define SAME_ADDR_MAX 4
/* If an address has more aliases than this, find the best name at once. */
#define ALIASES_MAX 16

/* ---- sorting and choosing -------------------------------------------------- */

static bool is_measured(const struct sym_entry *e)
{
	return (e->aux & SYM_UNMEASURED) != SYM_UNMEASURED;
}

/* Return the length of an entry's name in bytes; measure it if needed. */
static size_t length_of(const struct sym_builder *b, const struct sym_entry *e)
{
	return is_measured(e) ? e->aux & SYM_UNMEASURED : strlen(b->names + e->name);
}

/*
 * The data that is sorted: the address relative to the lowest one, and the entry. A key has a third
 * of the size of an entry. Moving and first writing memory is what sorting spends its time on.
 */
struct key {
	uint64_t addr : 40;
	uint64_t entry : 24;
};

_Static_assert(SYM_ENTRIES_MAX <= (size_t)1 << 24, "an entry's number fits");

/*
 * Radix sort: 11 bits in each pass, lowest bits first; stable. The result is in keys or in other.
 */
static struct key *sort_keys(struct key *keys, struct key *other, size_t n, uint64_t highest)
{
	enum { BITS = 11, BUCKETS = 1 << BITS };
	uint32_t count[BUCKETS];

	for (unsigned int shift = 0; shift < 40 && highest >> shift; shift += BITS) {
		struct key *swap = keys;
		uint32_t sum = 0;

		memset(count, 0, sizeof(count));
		for (size_t i = 0; i < n; i++)
			count[keys[i].addr >> shift & (BUCKETS - 1)]++;
		for (size_t i = 0; i < BUCKETS; i++) {
			uint32_t here = count[i];

			count[i] = sum;
			sum += here;
		}
		for (size_t i = 0; i < n; i++)
			other[count[keys[i].addr >> shift & (BUCKETS - 1)]++] = keys[i];
		keys = other;
		other = swap;
	}
	return keys;
}

/* Move entry keys[i] to place i, for each i. Destroys the keys. */
static void move_entries(struct sym_entry *entries, struct key *keys, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct sym_entry first = entries[i];
		size_t at = i;

		/* Follow the cycle that i is in. An entry in its place is a cycle of its own. */
		while (keys[at].entry != i) {
			size_t from = keys[at].entry;

			entries[at] = entries[from];
			keys[at].entry = at & (((uint32_t)1 << 24) - 1);
			at = from;
		}
		entries[at] = first;
		keys[at].entry = at & (((uint32_t)1 << 24) - 1);
	}
}

/* Order by address, for files whose addresses are terabytes apart. */
UW_ORDER(compare_addr, struct sym_entry, addr)

/* Sort the entries by address. -ENOMEM. */
static int sort_by_addr(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;
	uint64_t low = UINT64_MAX, high = 0;
	size_t n = b->n_entries;
	struct key *keys, *sorted;
	bool is_sorted = true;

	for (size_t i = 0; i < n; i++) {
		low = e[i].addr < low ? e[i].addr : low;
		high = e[i].addr > high ? e[i].addr : high;
		is_sorted = is_sorted && (i == 0 || e[i - 1].addr <= e[i].addr);
	}
	if (is_sorted)
		return 0;
	if ((high - low) >> 40) {
		qsort(e, n, sizeof(*e), compare_addr);
		return 0;
	}
	keys = malloc(2 * n * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		keys[i].addr = (e[i].addr - low) & (((uint64_t)1 << 40) - 1);
		keys[i].entry = i & (((uint32_t)1 << 24) - 1);
	}
	sorted = sort_keys(keys, keys + n, n, high - low);
	move_entries(e, sorted, n);
	free(keys);
	return 0;
}

/* Return whether a is the better of two symbols at one address, by the rule in symbolizer.h. */
static bool is_better(const struct sym_builder *b, const struct sym_entry *a,
		      const struct sym_entry *c)
{
	int order;

	if (sym_entry_rank(a) != sym_entry_rank(c))
		return sym_entry_rank(a) < sym_entry_rank(c);
	order = sym_prefer(b->names + a->name, length_of(b, a), b->names + c->name,
			   length_of(b, c));
	return order ? order < 0 : a->end > c->end;
}

/* Unread names that may be better than the names of chosen entries. */
struct others {
	size_t n;
	struct {
		size_t chosen;
		uint32_t name;
	} list[ALIASES_MAX];
};

/* Do the same as is_better for two entries that differ only in name and end, with lazy names. */
static bool is_better_lazy(struct sym_builder *b, const struct sym_entry *a,
			   const struct sym_entry *c)
{
	int order = 0;

	if (!b->odd && (a->name | c->name) & SYM_NAME_ARENA)
		b->odd = -ENOTSUP;
	if (!b->odd && a->name != c->name)
		b->odd = sym_lazy_names_prefer(b->lazy_names, a->name, c->name, &order);
	return order ? order < 0 : a->end > c->end;
}

/* Return whether e is among the entries between which names decide. */
static bool is_candidate(const struct sym_entry *e, const struct sym_entry *first, uint64_t reached)
{
	return e->end > reached && sym_entry_rank(e) == sym_entry_rank(first);
}

/*
 * Choose among symbols at one address with lazy names. If the best ones differ only in their names,
 * choose any of them and note the other names as aliases. If their ends differ, the names must be
 * compared now.
 */
static const struct sym_entry *choose_lazy(struct sym_builder *b, const struct sym_entry *group,
					   size_t n, uint64_t reached, size_t chosen,
					   struct others *others)
{
	const struct sym_entry *first = NULL, *best;
	size_t candidates = 0;
	bool alike = true;

	for (size_t i = 0; i < n; i++)
		if (group[i].end > reached &&
		    (!first || sym_entry_rank(&group[i]) < sym_entry_rank(first)))
			first = &group[i];
	for (size_t i = 0; first && i < n; i++) {
		if (is_candidate(&group[i], first, reached)) {
			candidates++;
			alike = alike && group[i].end == first->end;
		}
	}
	alike = alike && candidates <= ALIASES_MAX - others->n;
	best = first;
	for (size_t i = 0; first && i < n; i++) {
		const struct sym_entry *e = &group[i];

		if (e == first || !is_candidate(e, first, reached))
			continue;
		if (!alike) {
			best = is_better_lazy(b, e, best) ? e : best;
		} else if ((e->name | first->name) & SYM_NAME_ARENA) {
			b->odd = b->odd ? b->odd : -ENOTSUP;
		} else if (e->name != first->name) {
			others->list[others->n].chosen = chosen;
			others->list[others->n++].name = e->name;
		}
	}
	return best;
}

/* Do the same for names in the arena. */
static const struct sym_entry *
choose_read(const struct sym_builder *b, const struct sym_entry *group, size_t n, uint64_t reached)
{
	const struct sym_entry *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (group[i].end > reached && (!best || is_better(b, &group[i], best)))
			best = &group[i];
	}
	return best;
}

/*
 * Choose the best of n symbols at one address, and after it those that extend further, the best
 * first. Ends increase, so each chosen symbol is inside the next one. Return their number.
 */
static size_t choose(struct sym_builder *b, const struct sym_entry *group, size_t n,
		     struct sym_entry *chosen, struct others *others)
{
	uint64_t reached = 0;
	size_t found = 0;

	others->n = 0;
	while (found < SAME_ADDR_MAX) {
		const struct sym_entry *best;

		if (n == 1) /* most symbols are alone at their address */
			best = group;
		else if (b->lazy_names)
			best = choose_lazy(b, group, n, reached, found, others);
		else
			best = choose_read(b, group, n, reached);
		if (!best || (found && sym_entry_kind(best) != SYM_KIND_FUNC))
			break;
		chosen[found++] = *best;
		if (sym_entry_kind(best) != SYM_KIND_FUNC || n == 1)
			break;
		reached = best->end;
	}
	return found;
}

/* Add the aliases noted for one chosen entry. -ENOMEM. */
static int note_others(struct sym_builder *b, size_t entry, size_t chosen,
		       const struct others *others)
{
	int err;

	for (size_t i = 0; i < others->n; i++) {
		if (others->list[i].chosen != chosen)
			continue;
		err = UW_ARRAY_GROW(b->aliases, b->n_aliases, b->room_aliases, SYM_ENTRIES_MAX);
		if (err)
			return err;
		b->aliases[b->n_aliases++] = (struct sym_alias){ .entry = (uint32_t)entry,
								 .name = others->list[i].name };
	}
	return 0;
}

/* Reduce the entries: usually one for each address, and none that a more trusted one covers. */
static int choose_all(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;
	uint64_t func_end = 0, any_end = 0; /* ends of the sized entries so far */
	size_t n_chosen = 0, next;
	struct others others;

	for (size_t i = 0; i < b->n_entries; i = next) {
		struct sym_entry chosen[SAME_ADDR_MAX];
		enum sym_kind kind;
		uint64_t reached;
		size_t n;

		for (next = i + 1; next < b->n_entries && e[next].addr == e[i].addr; next++)
			;
		n = choose(b, e + i, next - i, chosen, &others);
		kind = sym_entry_kind(&chosen[0]);
		if (kind != SYM_KIND_FUNC && chosen[0].addr < func_end)
			continue;
		if ((kind == SYM_KIND_LABEL_OPEN || kind == SYM_KIND_STUB) &&
		    chosen[0].addr < any_end)
			continue;
		/* A symbol without a size ends where the next one begins. */
		if (n_chosen && sym_kind_is_open(sym_entry_kind(&e[n_chosen - 1])) &&
		    e[n_chosen - 1].end > chosen[0].addr)
			e[n_chosen - 1].end = chosen[0].addr;
		reached = sym_kind_is_open(kind) ? 0 : chosen[n - 1].end;
		any_end = reached > any_end ? reached : any_end;
		if (kind == SYM_KIND_FUNC)
			func_end = reached > func_end ? reached : func_end;
		while (n) { /* the widest first, because a lookup finds the last one first */
			e[n_chosen] = chosen[--n];
			if (others.n && note_others(b, n_chosen, n, &others))
				return -ENOMEM;
			n_chosen++;
		}
	}
	b->n_entries = n_chosen;
	return 0;
}

/* Link each entry to the nearest one before it that extends beyond the entry's start. */
static void link_enclosing(struct sym_builder *b)
{
	struct sym_entry *e = b->entries;

	for (size_t i = 0; i < b->n_entries; i++) {
		uint32_t up = i ? (uint32_t)(i - 1) : SYMBOLS_NONE;

		while (up != SYMBOLS_NONE && e[up].end <= e[i].addr)
			up = e[up].aux; /* it ends before i, so no later entry needs it either */
		e[i].name |= sym_kind_is_open(sym_entry_kind(&e[i])) ? SYM_ENTRY_OPEN : 0;
		e[i].aux = up;
	}
}

/* ---- names ------------------------------------------------------------------- */

/* Make every chosen name valid UTF-8 of limited length. Most names are already. */
static int sanitize_names(struct sym_builder *b)
{
	uint64_t cleaned = 0;
	size_t left = 0;

	for (size_t i = 0; i < b->n_entries; i++) {
		struct sym_entry e = b->entries[i];
		size_t n;
		uint64_t off;
		char *sanitized;
		int err;

		n = is_measured(&e) ? length_of(b, &e) : 0; /* names not measured are simple */
		if (!n || (n <= SYM_NAME_BYTES_MAX && uw_text_is_plain(b->names + e.name, n))) {
			b->entries[left++] = e;
			continue;
		}
		sanitized = sym_sanitize(b->names + e.name, n, SYM_NAME_BYTES_MAX);
		if (!sanitized)
			return -ENOMEM;
		n = strlen(sanitized);
		cleaned += n + 1;
		err = cleaned > CLEANED_MAX ? -E2BIG : sym_builder_names(b, n, &off);
		if (!err) {
			memcpy(b->names + off, sanitized, n);
			e.name = (uint32_t)off;
			e.aux = (e.aux & ~SYM_UNMEASURED) | (uint32_t)n;
			b->entries[left++] = e;
		}
		free(sanitized);
		err = sym_builder_left_out(b, err);
		if (err)
			return err;
	}
	b->n_entries = left;
	return 0;
}

/* Copy the names in use to a new arena, if that halves its size. String tables name data, too. */
static void pack_names(struct sym_builder *b)
{
	uint64_t need = 0, done = 0;
	char *packed;

	for (size_t i = 0; i < b->n_entries; i++) {
		if (!is_measured(&b->entries[i]))
			return; /* measuring all names would cost more than the memory is worth */
		need += length_of(b, &b->entries[i]) + 1;
	}
	if (need > b->names_size / 2)
		return;
	packed = malloc(need + 1);
	if (!packed)
		return; /* this only saves memory */
	for (size_t i = 0; i < b->n_entries; i++) {
		struct sym_entry *e = &b->entries[i];

		memcpy(packed + done, b->names + e->name, length_of(b, e) + 1);
		e->name = (uint32_t)done;
		done += length_of(b, e) + 1;
	}
	free(b->names);
	b->names = packed;
	b->names_size = done;
}

int sym_builder_choose(struct sym_builder *b)
{
	int err = sort_by_addr(b);

	if (!err)
		err = choose_all(b);
	if (!err && b->odd)
		err = -EAGAIN;
	if (!err && !b->lazy_names)
		err = sanitize_names(b);
	if (err)
		return err;
	if (!b->lazy_names)
		pack_names(b);
	link_enclosing(b);
	return 0;
}

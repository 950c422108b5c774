/*
 * agent/pipeline/names.c: names locations by symbols, lines and registrations, and caches the names.
 */
#include "agent/pipeline/names.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/hash.h"
#include "agent/limits.h"
#include "agent/pipeline/kernel_names.h"
#include "agent/pipeline/module_symbols.h"
#include "agent/process/modules.h"
#include "agent/runtime/frames.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At a low rate, names of programs that ended long ago would take hours to become many. */
#define RENEW_NS UINT64_C(900000000000)

struct cached { /* the cached result for one address, named or not */
	const struct module *module;
	uint64_t addr;
	const char *function, *system_name, *in;
	uint64_t start;
	bool bounded;
	const struct name_place *places;
	size_t n_places;
};

struct known {		    /* a symbol whose names are in the string pool */
	const char *symbol; /* borrowed from the symbol table, which lives as long */
	const char *function, *system_name;
};

struct places { /* a block of places; blocks never move */
	struct places *next;
	size_t n;
	struct name_place list[];
};

struct names {
	struct symbols symbols;
	struct kernel_names kernel;
	bool demangle, lines, inlined;
	uint64_t made_ns;      /* CLOCK_MONOTONIC */
	struct places *places; /* owned; the first block is being filled */
	struct strings strings;
	struct cached *cached;
	size_t n_cached, room_cached;
	struct uw_hash_index by_address;
	struct known *known;
	size_t n_known, room_known;
	struct uw_hash_index by_symbol;
};

int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out)
{
	struct names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	symbols_init(&names->symbols, opener, info);
	names->kernel.opener = opener;
	names->kernel.info = info;
	names->demangle = demangle;
	names->made_ns = now_ns();
	*out = names;
	return 0;
}

void names_lines(struct names *names, bool inlined)
{
	names->lines = true;
	names->inlined = inlined;
}

void names_bounded(struct names *names)
{
	names->symbols.bounded = true;
}

uint64_t names_left_out(const struct names *names)
{
	return names->symbols.n_left_out;
}

void names_store(struct names *names, struct store *store)
{
	names->symbols.store = store;
}

void names_free(struct names *names)
{
	if (!names)
		return;
	symbols_fini(&names->symbols);
	while (names->places) {
		struct places *next = names->places->next;

		free(names->places);
		names->places = next;
	}
	kernel_names_fini(&names->kernel);
	strings_fini(&names->strings);
	free(names->cached);
	uw_hash_fini(&names->by_address);
	free(names->known);
	uw_hash_fini(&names->by_symbol);
	free(names);
}

void names_bound(struct names **names, uint64_t now)
{
	const struct names *old = *names;
	uint64_t bytes = symbols_memory(&old->symbols);
	struct names *new;

	/*
	 * 131,072 addresses have about 20 MB of names; one minute of a compiler has 30,000. Each module
	 * has a symbol table; that of a program with a million functions has 50 MB. What was read goes
	 * into the store, of which the next look-ups read only the blocks that they need.
	 */
	if (now < old->made_ns + RENEW_NS && old->n_cached <= limits.addresses &&
	    old->symbols.n_made <= limits.symbol_tables && bytes <= limits.symbol_bytes)
		return;
	if (errands_left() || names_new(old->symbols.opener, old->kernel.info, old->demangle, &new))
		return;
	if (old->n_cached > limits.addresses)
		limits_reach(addresses, 1);
	if (old->symbols.n_made > limits.symbol_tables)
		limits_reach(symbol_tables, 1);
	if (bytes > limits.symbol_bytes)
		limits_reach(symbol_bytes, 1);
	new->lines = old->lines;
	new->inlined = old->inlined;
	new->symbols.store = old->symbols.store;
	new->symbols.bounded = old->symbols.bounded;
	new->symbols.n_left_out = old->symbols.n_left_out;
	names_free(*names);
	*names = new;
}

/*
 * Return a copy of the text in the string pool, cut to the limit. NULL when out of memory, and if it is empty: readers of
 * profiles take that for no name.
 */
static const char *keep(struct names *names, const char *text)
{
	size_t n = strlen(text);
	const char *stored;
	char *cut;

	if (!n)
		return NULL;
	if (n <= limits.name_bytes)
		return strings_keep(&names->strings, text, n);
	limits_reach(name_bytes, 1);
	cut = sym_sanitize(text, n, (size_t)limits.name_bytes);
	stored = cut ? strings_keep(&names->strings, cut, strlen(cut)) : NULL;
	free(cut);
	return stored;
}

/* Name a kernel address. c->in is "[kernel]" or the kernel module. */
static void name_kernel(struct names *names, struct cached *c)
{
	struct sym_symbol symbol;
	const char *module;

	c->in = "[kernel]";
	if (kernel_names_find(&names->kernel, c->addr, &symbol, &module))
		return;
	c->function = c->system_name = keep(names, symbol.name);
	c->start = symbol.addr;
	if (*module) {
		char text[80];

		/* kallsyms gives module names bare or in brackets; users know them in brackets. */
		(void)snprintf(text, sizeof(text), *module == '[' ? "%.70s" : "[%.70s]", module);
		c->in = keep(names, text);
	}
}

/*
 * Set the names for a symbol, demangled if that is wanted. Results are cached by symbol because a
 * function is found at many addresses and demangling is the slowest part.
 */
static void name_symbol(struct names *names, const char *symbol, struct cached *c)
{
	uint64_t hash = hash_u64(0, (uintptr_t)symbol);
	uint32_t id = UW_HASH_FIND(i, &names->by_symbol, hash, names->known[i].symbol == symbol);
	const char *stored;
	char *readable;

	if (id != UW_HASH_NONE) {
		c->function = names->known[id].function;
		c->system_name = names->known[id].system_name;
		return;
	}
	c->system_name = c->function = keep(names, symbol);
	readable = names->demangle ? sym_demangle(symbol) : NULL;
	stored = readable ? keep(names, readable) : NULL;
	if (stored)
		c->function = stored;
	free(readable);
	/* Without memory for the cache entry, the symbol is demangled again next time. */
	if (array_grow(names->known, names->n_known, names->room_known))
		return;
	names->known[names->n_known] = (struct known){ .symbol = symbol,
						       .function = c->function,
						       .system_name = c->system_name };
	if (!uw_hash_add(&names->by_symbol, hash, (uint32_t)names->n_known))
		names->n_known++;
}

/*
 * Name generated code by what its process registered. Return false if no registration names the
 * address.
 */
static bool name_generated(struct names *names, struct cached *c)
{
	const char *stored = NULL;
	char *name = NULL;

	if (c->module->kind == MODULE_JIT)
		name = module_generated_name(c->module, c->addr, &c->start);
	if (name)
		stored = keep(names, name);
	free(name);
	if (!stored)
		return false;
	c->in = c->module->path;
	name_symbol(names, stored, c);
	return true;
}

/*
 * Size in bytes of a place in generated code, for code without names and function bounds. V8 puts
 * several small functions into a page of 4 KiB. 1 KiB is small enough to separate two hot loops.
 */
#define GENERATED_PLACE 1024

/*
 * Give unnamed generated code a start address: the procedure that its process registered, or else
 * the block of GENERATED_PLACE bytes around the address.
 */
static void place_generated(struct cached *c)
{
	if (!c->start)
		c->start = c->addr & ~(uint64_t)(GENERATED_PLACE - 1);
	c->bounded = true;
}

/* Name generated code by the perf map or jitdump of its process. */
static void name_jit(struct names *names, struct module_symbols *s, struct cached *c)
{
	struct sym_symbol symbol;
	const char *stored;

	if (symbols_find_jit(&names->symbols, s, c->addr, &symbol))
		return;
	stored = keep(names, symbol.name);
	if (!stored)
		return;
	c->start = symbol.addr;
	name_symbol(names, stored, c);
}

/* Places in a block of struct places. */
#define PLACES_ROOM 4096

/*
 * Return room for n places that stay at their address. Freed with names. NULL when out of memory.
 */
static struct name_place *make_places(struct names *names, size_t n)
{
	struct places *block = names->places;

	if (!block || n > PLACES_ROOM - block->n) {
		block = malloc(sizeof(*block) + PLACES_ROOM * sizeof(*block->list));
		if (!block)
			return NULL;
		block->n = 0;
		block->next = names->places;
		names->places = block;
	}
	block->n += n;
	return block->list + block->n - n;
}

/* Name a frame of interpreted code, which has its line, whether or not lines are asked for. */
static void name_interpreted(struct names *names, struct cached *c)
{
	struct runtime_name name;
	struct name_place *place;
	char *text =
		c->module->frames ? runtime_frames_find(c->module->frames, c->addr, &name) : NULL;

	c->in = c->module->path;
	c->start = c->addr;
	if (!text)
		return;
	c->function = c->system_name = keep(names, name.function);
	place = c->function ? make_places(names, 1) : NULL;
	if (place) {
		*place = (struct name_place){ .function = c->function,
					      .system_name = c->function,
					      .file = name.file ? keep(names, name.file) : NULL,
					      .line = name.line,
					      .start_line = name.start_line };
		c->places = place;
		c->n_places = 1;
	}
	free(text);
}

/* Add lines and inlined calls to an address. c already has the names from the symbol table. */
static void name_places(struct names *names, struct module_symbols *s, struct cached *c)
{
	struct sym_place found[SYMBOLS_PLACES_MAX];
	struct name_place *places;
	size_t n = 0, first;

	if (!names->lines || !symbols_find_lines(&names->symbols, s, c->addr, found, &n))
		return;
	first = names->inlined ? 0 : n - 1;
	places = make_places(names, n - first);
	if (!places)
		return;
	for (size_t i = first; i < n; i++) {
		struct cached as = { .function = NULL };
		const char *text = found[i].function ? keep(names, found[i].function) : NULL;

		/* The symbol's name says more than the source's name: foo.cold, or an alias. */
		if (i + 1 == n && c->function) {
			as.function = c->function;
			as.system_name = c->system_name;
		} else if (text) {
			name_symbol(names, text, &as);
		}
		places[i - first] = (struct name_place){
			.function = as.function ? as.function : "[inlined]",
			.system_name = as.system_name ? as.system_name : "[inlined]",
			.file = found[i].file ? keep(names, found[i].file) : NULL,
			.line = found[i].line,
			.start_line = found[i].start_line
		};
		if (i + 1 == n && !c->function && as.function) {
			c->function = as.function;
			c->system_name = as.system_name;
		}
	}
	/* Exporters attach lines to a function, so an address without any name gets none. */
	if (c->function) {
		c->places = places;
		c->n_places = n - first;
	}
}

/*
 * Name a user-space address: by registration, perf map, symbol or unwind information, then lines.
 */
static void name_user(struct names *names, struct cached *c)
{
	struct module_symbols *symbols = symbols_of(&names->symbols, c->module);
	struct sym_symbol symbol;
	bool named;
	uint64_t end;

	if (name_generated(names, c))
		return;
	c->in = c->module->path;
	if (!symbols)
		return;
	if (c->module->kind == MODULE_JIT && c->module->pid) {
		name_jit(names, symbols, c);
		if (!c->function)
			place_generated(c);
		return;
	}
	symbols_open(&names->symbols, symbols);
	c->in = symbols->base;
	if (c->module->state != MODULE_USABLE)
		return;
	named = symbols->table && !symbols_find(&names->symbols, symbols, c->addr, &symbol);
	if (named) {
		c->start = symbol.addr;
		name_symbol(names, symbol.name, c);
	} else {
		c->bounded = c->module->object &&
			     !uw_object_function(c->module->object, c->addr, &c->start, &end);
	}
	name_places(names, symbols, c);
	c->bounded = c->bounded && !c->function;
}

static bool is_at(const struct cached *c, const struct location *location)
{
	return c->addr == location->vaddr && c->module == location->module;
}

/*
 * Return the cached name of a location, or look it up and cache it. On return without caching, the
 * result is in scratch.
 */
static uint32_t cached_id(const struct names *names, const struct location *location)
{
	uint64_t hash = hash_u64(location->module->id, location->vaddr);

	return UW_HASH_FIND(i, &names->by_address, hash, is_at(&names->cached[i], location));
}

static const struct cached *find_cached(struct names *names, const struct location *location,
					struct cached *scratch)
{
	uint64_t hash = hash_u64(location->module->id, location->vaddr);
	uint32_t id = cached_id(names, location);

	if (id != UW_HASH_NONE)
		return &names->cached[id];
	*scratch = (struct cached){ .module = location->module, .addr = location->vaddr };
	if (location->module->kind == MODULE_KERNEL)
		name_kernel(names, scratch);
	else if (location->module->kind == MODULE_RUNTIME)
		name_interpreted(names, scratch);
	else
		name_user(names, scratch);
	/* Do not cache the miss: the process may still report the name. */
	if ((location->module->kind == MODULE_JIT || location->module->kind == MODULE_RUNTIME) &&
	    !scratch->function)
		return scratch;
	/* Without an entry among the symbols (no memory), the module could be forgotten. */
	if (location->module->kind != MODULE_KERNEL && location->module->kind != MODULE_RUNTIME &&
	    !symbols_of(&names->symbols, location->module))
		return scratch;
	if (array_grow(names->cached, names->n_cached, names->room_cached))
		return scratch; /* looked up again next time */
	names->cached[names->n_cached] = *scratch;
	if (!uw_hash_add(&names->by_address, hash, (uint32_t)names->n_cached))
		names->n_cached++;
	return scratch;
}

void names_find(struct names *names, const struct location *location, struct name *out)
{
	struct cached scratch;
	const struct cached *c = find_cached(names, location, &scratch);

	*out = (struct name){ .function = c->function,
			      .system_name = c->system_name,
			      .module = c->in,
			      .start = c->start,
			      .bounded = c->bounded,
			      .places = c->places,
			      .n_places = c->n_places,
			      .offset = location->vaddr + location->ra_bytes - c->start };
}

/* Order locations by module, then by address. */
static int by_file(const void *a, const void *b)
{
	const struct location *x = *(const struct location *const *)a;
	const struct location *y = *(const struct location *const *)b;

	if (x->module != y->module)
		return x->module->id < y->module->id ? -1 : 1;
	return x->vaddr == y->vaddr ? 0 : x->vaddr < y->vaddr ? -1 : 1;
}

/* Tell the source which kernel addresses of the profile will be named. */
static void prepare_kernel(const struct names *names, const struct profile *profile)
{
	uint64_t *addrs;
	size_t n = 0;

	if (!names->kernel.info->kernel_symbols_ahead)
		return;
	addrs = calloc(profile->n_locations + 1, sizeof(*addrs));
	for (size_t i = 0; addrs && i < profile->n_locations; i++) {
		const struct location *l = &profile->locations[i];

		if (l->module->kind == MODULE_KERNEL && cached_id(names, l) == UW_HASH_NONE)
			addrs[n++] = l->vaddr;
	}
	kernel_names_ahead(&names->kernel, addrs, n);
	free(addrs);
}

void names_prepare(struct names *names, const struct profile *profile)
{
	const struct location **wanted;
	struct name name;
	size_t n = 0;
	bool *seen;

	prepare_kernel(names, profile);
	if (!names->symbols.store)
		symbols_want(&names->symbols, profile);
	if (!names->lines)
		return;
	wanted = calloc(profile->n_locations + 1, sizeof(*wanted));
	seen = calloc(profile->n_locations + 1, sizeof(*seen));
	for (size_t i = 0; wanted && seen && i < profile->n_location_ids; i++) {
		uint32_t id = profile->location_ids[i];

		if (seen[id] || profile->locations[id].module->kind != MODULE_FILE)
			continue;
		seen[id] = true;
		wanted[n++] = &profile->locations[id];
	}
	if (n)
		qsort(wanted, n, sizeof(*wanted), by_file);
	if (n)
		symbols_prepare_lines(&names->symbols, wanted, n);
	for (size_t i = 0; i < n; i++)
		names_find(names, wanted[i], &name);
	free(wanted);
	free(seen);
}

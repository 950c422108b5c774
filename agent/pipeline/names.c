#include "agent/pipeline/names.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/process/modules.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cached { /* one symbol, or one address that nothing names */
	const struct module *module;
	uint64_t addr;
	const char *function, *system_name, *in;
	uint64_t start;
	bool bounded;
};

struct known {		    /* a symbol whose names are in the pool already */
	const char *symbol; /* the table's, which lives as long */
	const char *function, *system_name;
};

struct module_symbols {
	bool tried;
	struct sym_table *table; /* NULL: none */
	const struct module *module;
	bool stored;	  /* it came out of the store */
	const char *base; /* name for people */
};

struct names {
	struct opener *opener;
	const struct source_info *info;
	struct store *store; /* borrowed; NULL: none */
	bool demangle;
	struct module_symbols *modules; /* by module id */
	size_t n_modules;
	bool kept_tried, kernel_tried;
	struct sym_kernel *kept; /* of the kernel proper, as perf kept them; NULL: none that fit */
	struct sym_kernel *kernel; /* the running kernel's, if those fit */
	struct strings strings;
	struct cached *cached;
	size_t n_cached, room_cached;
	struct hash_index by_address;
	struct known *known;
	size_t n_known, room_known;
	struct hash_index by_symbol;
};

int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out)
{
	struct names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	names->opener = opener;
	names->info = info;
	names->demangle = demangle;
	*out = names;
	return 0;
}

void names_store(struct names *names, struct store *store)
{
	names->store = store;
}

static void file_of(const struct module *module, struct store_file *out)
{
	size_t size;

	store_file_of(module_image(module, &size) ? -1 : module_fd(module), module_elf_off(module),
		      module->path, out);
}

static void free_symbols(struct names *names, struct module_symbols *symbols)
{
	struct store_file file;

	if (!symbols->table || symbols->stored || !names->store) {
		sym_table_free(symbols->table);
		return;
	}
	file_of(symbols->module, &file);
	store_want_symbols(names->store, &file, &symbols->module->build_id, symbols->table);
}

void names_free(struct names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->n_modules; i++)
		free_symbols(names, &names->modules[i]);
	free(names->modules);
	sym_kernel_free(names->kept);
	sym_kernel_free(names->kernel);
	strings_fini(&names->strings);
	free(names->cached);
	hash_fini(&names->by_address);
	free(names->known);
	hash_fini(&names->by_symbol);
	free(names);
}

static struct module_symbols *symbols_of(struct names *names, const struct module *module)
{
	if (module->id >= names->n_modules) {
		size_t n = (size_t)module->id + 64;
		struct module_symbols *bigger = reallocarray(names->modules, n, sizeof(*bigger));

		if (!bigger)
			return NULL;
		memset(bigger + names->n_modules, 0, (n - names->n_modules) * sizeof(*bigger));
		names->modules = bigger;
		names->n_modules = n;
	}
	return &names->modules[module->id];
}

static void open_symbols(struct names *names, const struct module *module,
			 struct module_symbols *symbols)
{
	struct store_file file;
	const char *slash = strrchr(module->path, '/');
	size_t image_size;
	const void *image = module_image(module, &image_size);
	int fd = module_fd(module), err = 0;

	symbols->tried = true;
	symbols->base = slash && slash[1] ? slash + 1 : module->path;
	if (module->state != MODULE_USABLE)
		return;
	symbols->module = module;
	if (names->store) {
		file_of(module, &file);
		symbols->stored = !store_find_symbols(names->store, &file, &module->build_id,
						      &symbols->table);
		if (symbols->stored)
			return;
	}
	if (image)
		err = sym_table_open_image(image, image_size, &symbols->table);
	else if (fd >= 0)
		err = sym_table_open(fd, module_elf_off(module), &symbols->table);
	if (err)
		log_warning("%s: symbols cannot be read: %s", module->path, strerror(-err));
}

static bool fits(const struct names *names, const struct sym_kernel *kernel)
{
	uint64_t text;

	return !sym_kernel_lookup(kernel, "_text", &text) && text == names->info->kernel_text;
}

/*
 * The same build at the same place has its own code at the same addresses, whichever boot the copy
 * is from; a file costs a tenth of what the kernel takes to write its list anew.
 */
static void open_kept(struct names *names)
{
	unsigned int next = 0;
	int fd;

	names->kept_tried = true;
	while (names->info->kernel_text && !names->kept &&
	       !opener_kept_kallsyms(names->opener, &names->info->kernel_build_id, &next, &fd)) {
		if (!sym_kernel_open(fd, &names->kept) && !fits(names, names->kept)) {
			sym_kernel_free(names->kept);
			names->kept = NULL;
		}
		(void)close(fd);
	}
}

/*
 * The running kernel's symbols fit a recording of the same boot; where the
 * source states where _text was, that must agree.
 */
static void open_kernel(struct names *names)
{
	const struct source_info *info = names->info;
	bool keep = info->kernel_text && info->kernel_build_id.size && !names->kept;
	int fd, err;

	names->kernel_tried = true;
	if (!info->same_boot)
		return;
	if (keep && opener_copy_kallsyms(names->opener, &fd))
		keep = false;
	err = keep ? 0 : opener_kallsyms(names->opener, &fd);
	if (!err) {
		err = sym_kernel_open(fd, &names->kernel);
		if (!err && keep && fits(names, names->kernel))
			opener_keep_kallsyms(names->opener, &info->kernel_build_id, fd);
		(void)close(fd);
	}
	if (err) {
		log_warning("/proc/kallsyms: %s; kernel frames have no names%s", strerror(-err),
			    err == -EPERM ? " (kernel.kptr_restrict hides them)" : "");
		return;
	}
	if (names->info->kernel_text && !fits(names, names->kernel)) {
		log_warning("kernel frames have no names: recorded with another kernel or boot");
		sym_kernel_free(names->kernel);
		names->kernel = NULL;
	}
}

static int find_in_kernel(struct names *names, uint64_t addr, struct sym_symbol *symbol,
			  const char **module)
{
	if (!names->kept_tried)
		open_kept(names);
	if (names->kept && !sym_kernel_find(names->kept, addr, symbol, module) && !**module)
		return 0;
	*module = "";
	if (!names->kernel_tried)
		open_kernel(names);
	return names->kernel ? sym_kernel_find(names->kernel, addr, symbol, module) : -ENOENT;
}

static int find_carried(const struct source_info *info, uint64_t addr, struct sym_symbol *symbol,
			const char **module)
{
	size_t low = 0, high = info->n_kernel_symbols;

	while (low < high) { /* the first symbol above addr */
		size_t middle = low + (high - low) / 2;

		if (info->kernel_symbols[middle].addr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return -ENOENT;
	const struct source_kernel_symbol *s = &info->kernel_symbols[low - 1];

	if (s->size && addr - s->addr >= s->size)
		return -ENOENT;
	*symbol = (struct sym_symbol){ .addr = s->addr, .size = s->size, .name = s->name };
	*module = s->module;
	return 0;
}

static const char *keep(struct names *names, const char *text)
{
	return strings_keep(&names->strings, text, strlen(text));
}

static void name_kernel(struct names *names, struct cached *c)
{
	struct sym_symbol symbol;
	const char *module = "";
	int err;

	c->in = "[kernel]";
	if (names->info->n_kernel_symbols)
		err = find_carried(names->info, c->addr, &symbol, &module);
	else
		err = find_in_kernel(names, c->addr, &symbol, &module);
	if (err)
		return;
	c->function = c->system_name = keep(names, symbol.name);
	c->start = symbol.addr;
	if (*module) {
		char text[80];

		/* kallsyms gives module names bare or in brackets; people know them in brackets. */
		(void)snprintf(text, sizeof(text), *module == '[' ? "%.70s" : "[%.70s]", module);
		c->in = keep(names, text);
	}
}

struct wanted {
	const struct names *names;
	const char *symbol;
};

static bool same_symbol(const void *ctx, uint32_t id)
{
	const struct wanted *want = ctx;

	return want->names->known[id].symbol == want->symbol;
}

/* A function is met at many addresses, and demangling takes longest. */
static void name_symbol(struct names *names, const char *symbol, struct cached *c)
{
	struct wanted want = { .names = names, .symbol = symbol };
	uint64_t hash = hash_u64(0, (uintptr_t)symbol);
	uint32_t id = hash_find(&names->by_symbol, hash, same_symbol, &want);
	void *known = names->known;
	char *readable;

	if (id != HASH_NONE) {
		c->function = names->known[id].function;
		c->system_name = names->known[id].system_name;
		return;
	}
	c->system_name = c->function = keep(names, symbol);
	readable = names->demangle ? sym_demangle(symbol) : NULL;
	if (readable)
		c->function = keep(names, readable);
	free(readable);
	/* Without memory it is done again next time. */
	if (array_make_room(&known, names->n_known, &names->room_known, sizeof(*names->known)))
		return;
	names->known = known;
	names->known[names->n_known] = (struct known){ .symbol = symbol,
						       .function = c->function,
						       .system_name = c->system_name };
	if (!hash_add(&names->by_symbol, hash, (uint32_t)names->n_known))
		names->n_known++;
}

/* False: nobody said what it is. */
static bool name_generated(struct names *names, struct cached *c)
{
	struct uw_dynamic_proc proc;
	const char *kept = NULL;
	char *clean;

	if (c->module->kind != MODULE_JIT || module_generated(c->module, c->addr, &proc) ||
	    !proc.name)
		return false;
	clean = sym_sanitize(proc.name, strlen(proc.name), 4096);
	c->in = c->module->path;
	c->start = proc.start;
	if (clean)
		kept = keep(names, clean);
	free(clean);
	if (kept)
		name_symbol(names, kept, c);
	return kept != NULL;
}

static void name_user(struct names *names, struct cached *c)
{
	struct module_symbols *symbols = symbols_of(names, c->module);
	struct sym_symbol symbol;

	if (name_generated(names, c))
		return;
	c->in = c->module->path;
	if (!symbols)
		return;
	if (!symbols->tried)
		open_symbols(names, c->module, symbols);
	c->in = symbols->base;
	if (!symbols->table || sym_table_find(symbols->table, c->addr, &symbol)) {
		uint64_t end;

		c->bounded = c->module->object &&
			     !uw_object_function(c->module->object, c->addr, &c->start, &end);
		return;
	}
	c->start = symbol.addr;
	name_symbol(names, symbol.name, c);
}

struct address {
	const struct names *names;
	const struct location *location;
};

static bool same_address(const void *ctx, uint32_t id)
{
	const struct address *want = ctx;
	const struct cached *c = &want->names->cached[id];

	return c->addr == want->location->vaddr && c->module == want->location->module;
}

static const struct cached *find_cached(struct names *names, const struct location *location,
					struct cached *scratch)
{
	struct address want = { .names = names, .location = location };
	uint64_t hash = hash_u64(location->module->id, location->vaddr);
	uint32_t id = hash_find(&names->by_address, hash, same_address, &want);
	void *cached = names->cached;

	if (id != HASH_NONE)
		return &names->cached[id];
	*scratch = (struct cached){ .module = location->module, .addr = location->vaddr };
	if (location->module->kind == MODULE_KERNEL)
		name_kernel(names, scratch);
	else
		name_user(names, scratch);
	if (array_make_room(&cached, names->n_cached, &names->room_cached, sizeof(*names->cached)))
		return scratch; /* sought again next time */
	names->cached = cached;
	names->cached[names->n_cached] = *scratch;
	if (!hash_add(&names->by_address, hash, (uint32_t)names->n_cached))
		names->n_cached++;
	return scratch;
}

size_t names_count(const struct names *names)
{
	return names->n_cached;
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
			      .offset = location->vaddr + location->ra_bytes - c->start };
}

/*
 * agent/pipeline/names.c: looks up function names, source lines and inlined calls, and caches them.
 */
#include "agent/pipeline/names.h"

#include "agent/array.h"
#include "agent/ending.h"
#include "agent/errand.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/pipeline/lines.h"
#include "agent/process/modules.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

struct module_symbols {
	bool tried;
	struct sym_table *table; /* NULL: none */
	struct sym_table *first; /* an earlier table for some addresses; its names are in use */
	const struct module *module;
	bool stored;	  /* the table came from the store */
	const char *base; /* base name of the module, for display */
	/* Lines. debug_fd and image refer to the file that has the DWARF. */
	bool lines_tried, debug_tried, has_debug; /* the module's own file has DWARF */
	struct sym_jit *jit; /* of generated code; NULL: no file describes it */
	int debug_fd;	     /* a separate debug file; -1: none */
	struct sym_lines *lines;
	struct sym_debug *debug; /* NULL: not open, or the module has none */
	uint64_t debug_used;
	struct names *names;
};

struct places { /* a block of places; blocks never move */
	struct places *next;
	size_t n;
	struct name_place list[];
};

struct wanted {
	const struct module *module;
	uint64_t vaddr;
};

struct names {
	struct opener *opener;
	const struct source_info *info;
	struct store *store; /* borrowed; NULL: none */
	bool demangle, lines, inlined;
	uint64_t tick;		 /* counts uses of debug information */
	size_t n_debugs;	 /* how many modules' debug information is open */
	pthread_mutex_t opening; /* serializes opening the files that debug information names */
	struct places *places;	 /* owned; the first block is being filled */
	struct module_symbols **modules; /* by module id; owned */
	size_t n_modules;
	bool kept_tried, kernel_tried;
	struct sym_kernel *kept;   /* from a stored copy of kallsyms; NULL: none fits */
	struct sym_kernel *kernel; /* the running kernel's; NULL: do not fit */
	struct strings strings;
	struct cached *cached;
	size_t n_cached, room_cached;
	struct hash_index by_address;
	struct known *known;
	size_t n_known, room_known;
	struct hash_index by_symbol;
	struct wanted *wanted; /* locations that were announced by names_prepare */
	size_t n_wanted;
	/* Read files in errands, which are left behind when they take too long. */
	bool bounded;
	uint64_t n_left_out; /* files without names or lines for that reason */
};

/* How long reading one file's symbols may take, and reading the lines of one or several files. */
#define SYMBOLS_NS UINT64_C(2000000000)
#define LINES_NS   UINT64_C(10000000000)
/*
 * After the end of the recording, a file may take one part in so many of the time that is left. A
 * file that a user other than the superuser may have written gets the smaller share.
 */
#define SYSTEM_SHARE   2
#define STRANGER_SHARE 4

int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out)
{
	struct names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	(void)pthread_mutex_init(&names->opening, NULL);
	names->opener = opener;
	names->info = info;
	names->demangle = demangle;
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
	names->bounded = true;
}

uint64_t names_left_out(const struct names *names)
{
	return names->n_left_out;
}

/* Return whether only the superuser can have written the module's file. */
static bool is_system(const struct module *module)
{
	struct stat st;

	return module_fd(module) >= 0 && !fstat(module_fd(module), &st) && !st.st_uid &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/*
 * Return how long an errand for a module's file may take, in ns, so that time is left for the next
 * file.
 */
static uint64_t limit_for(const struct module *module, uint64_t most_ns)
{
	uint64_t share = ending_left() / (is_system(module) ? SYSTEM_SHARE : STRANGER_SHARE);

	return share > most_ns ? most_ns : share;
}

/* Count a module whose names or lines are given up. */
static void leave_out(struct names *names, const struct module *module, const char *what)
{
	names->n_left_out++;
	log_debug("%s: %s are left out: reading them takes too long", module->path, what);
}

void names_store(struct names *names, struct store *store)
{
	names->store = store;
}

/* Fill in what identifies a module's file in the store. */
static void file_of(const struct module *module, struct store_file *out)
{
	size_t size;

	store_file_of(module_image(module, &size) ? -1 : module_fd(module), module_elf_off(module),
		      module->path, out);
}

/*
 * Fill in the file that the symbols belong to. Return the debug file that contributed to them, or
 * NULL.
 */
static const struct store_file *symbols_files_of(const struct module_symbols *symbols,
						 struct store_file *file, struct store_file *beside)
{
	file_of(symbols->module, file);
	if (symbols->debug_fd < 0)
		return NULL;
	store_file_of(symbols->debug_fd, 0, "", beside);
	return beside;
}

/* Fill in the file that the lines belong to: the one that has the DWARF. */
static void lines_file_of(const struct module_symbols *symbols, struct store_file *out)
{
	if (symbols->debug_fd >= 0)
		store_file_of(symbols->debug_fd, 0, symbols->module->path, out);
	else
		file_of(symbols->module, out);
}

/* Free a module's symbols and lines, or give to the store what it does not have yet. */
static void free_symbols(struct names *names, struct module_symbols *symbols)
{
	struct opener_file opening;
	struct store_file file, beside;
	const struct store_file *other;
	struct store *store;

	if (!symbols)
		return;
	module_file(symbols->module, &opening);
	/*
	 * Names from a container's own debug files are only valid in that container: do not store
	 * them.
	 */
	store = opening.view ? NULL : names->store;
	if (!symbols->table || symbols->stored || !store) {
		sym_table_free(symbols->table);
	} else {
		other = symbols_files_of(symbols, &file, &beside);
		store_want_symbols(store, &file, other, &symbols->module->build_id, symbols->table);
	}
	sym_table_free(symbols->first);
	sym_jit_free(symbols->jit);
	sym_debug_free(symbols->debug);
	if (!symbols->lines || !sym_lines_grown(symbols->lines) || !store) {
		sym_lines_free(symbols->lines);
	} else {
		lines_file_of(symbols, &file);
		store_want_lines(store, &file, &symbols->module->build_id, symbols->lines);
	}
	if (symbols->debug_fd >= 0)
		(void)close(symbols->debug_fd);
	free(symbols);
}

void names_free(struct names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->n_modules; i++)
		free_symbols(names, names->modules[i]);
	free(names->modules);
	(void)pthread_mutex_destroy(&names->opening);
	while (names->places) {
		struct places *next = names->places->next;

		free(names->places);
		names->places = next;
	}
	sym_kernel_free(names->kept);
	sym_kernel_free(names->kernel);
	strings_fini(&names->strings);
	free(names->cached);
	hash_fini(&names->by_address);
	free(names->known);
	hash_fini(&names->by_symbol);
	free(names->wanted);
	free(names);
}

/* Return the entry for a module; make one if needed. NULL when out of memory. */
static struct module_symbols *symbols_of(struct names *names, const struct module *module)
{
	struct module_symbols *symbols;

	if (module->id >= names->n_modules) {
		size_t n = (size_t)module->id + 64;
		struct module_symbols **bigger = reallocarray(names->modules, n, sizeof(*bigger));

		if (!bigger)
			return NULL;
		memset(bigger + names->n_modules, 0, (n - names->n_modules) * sizeof(*bigger));
		names->modules = bigger;
		names->n_modules = n;
	}
	symbols = names->modules[module->id];
	if (!symbols) {
		symbols = calloc(1, sizeof(*symbols));
		if (!symbols)
			return NULL;
		symbols->module = module;
		symbols->names = names;
		symbols->debug_fd = -1;
		names->modules[module->id] = symbols;
	}
	return symbols;
}

/*
 * Return whether fd is the debug file of the module. Its build-id must match. A file found by its
 * name alone (linked) must also have the CRC that .gnu_debuglink states.
 */
static bool is_debug_file(const struct module *module, int fd, bool linked, bool has_crc,
			  uint32_t crc)
{
	struct uw_build_id id;
	bool has_id = !sym_build_id(fd, 0, &id);
	uint32_t is;

	if (module->build_id.size && has_id && !uw_build_id_equal(&id, &module->build_id))
		return false;
	if (!linked)
		return has_id && module->build_id.size;
	return has_crc && !sym_crc32(fd, &is) && is == crc;
}

/*
 * Find out whether the module's file has DWARF. If not, open its separate debug file into debug_fd.
 */
static void find_debug_file(struct names *names, struct module_symbols *symbols)
{
	const struct module *module = symbols->module;
	struct sym_debug_where where;
	struct opener_file file;
	unsigned int next = 0;
	bool linked;
	int fd;

	if (sym_debug_where(module_fd(module), module_elf_off(module), &where))
		where = (struct sym_debug_where){ .inside = false };
	symbols->has_debug = where.inside;
	if (where.inside || module->kind != MODULE_FILE || !names->opener)
		return;
	module_file(module, &file);
	while (!opener_open_debug(names->opener, &file, where.linked ? where.link : NULL, &next,
				  &linked, &fd)) {
		if (is_debug_file(module, fd, linked, where.linked, where.crc)) {
			symbols->debug_fd = fd;
			return;
		}
		(void)close(fd);
	}
	if (opener_fetched_debug(names->opener, &module->build_id, &fd))
		return;
	if (is_debug_file(module, fd, false, false, 0))
		symbols->debug_fd = fd;
	else
		(void)close(fd);
}

/* Input and results of reading a module's symbols, on an errand's thread or on this one. */
struct reading {
	struct names *names;
	struct module_symbols got; /* a part of the module's own, as read */
	uint64_t *vaddrs;	   /* read the symbols for these addresses only; owned; NULL: all */
	size_t n_vaddrs;
	bool again; /* read the brief table again, for all addresses */
	int err;
};

static void free_reading(void *ctx)
{
	struct reading *r = ctx;

	free(r->vaddrs);
	sym_table_free(r->got.table);
	if (r->got.debug_fd >= 0)
		(void)close(r->got.debug_fd);
	free(r);
}

/* Open the table with lazy names (brief) for the wanted addresses, or for all. */
static int open_brief(struct reading *r)
{
	const struct module *module = r->got.module;

	return sym_table_open_brief(module_fd(module), module_view(module), module_elf_off(module),
				    r->got.debug_fd, r->vaddrs, r->n_vaddrs, &r->got.table);
}

/* Prepare a reading with its own descriptor and addresses. NULL when out of memory. */
static struct reading *begin_reading(struct names *names, const struct module_symbols *symbols,
				     bool again)
{
	struct reading *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->names = names;
	r->again = again;
	r->got.module = symbols->module;
	r->got.names = names;
	r->got.debug_fd = symbols->debug_fd >= 0 ? dup(symbols->debug_fd) : -1;
	r->vaddrs = again ? NULL : calloc(names->n_wanted + 1, sizeof(*r->vaddrs));
	for (size_t i = 0; r->vaddrs && i < names->n_wanted; i++)
		if (names->wanted[i].module == symbols->module)
			r->vaddrs[r->n_vaddrs++] = names->wanted[i].vaddr;
	return r;
}

static void read_symbols(void *ctx);

/*
 * Read symbols; if names is bounded, give up when reading takes too long. Return NULL if it was
 * given up or there is no memory. The caller frees the result with free_reading.
 */
static struct reading *read_bounded(struct names *names, const struct module_symbols *symbols,
				    bool again)
{
	struct reading *r = begin_reading(names, symbols, again);
	const struct errand errand = { .run = read_symbols, .drop = free_reading, .ctx = r };
	int err = 0;

	if (r && names->bounded)
		err = errand_run(&errand, limit_for(symbols->module, SYMBOLS_NS));
	else if (r)
		read_symbols(r);
	if (!err)
		return r;
	leave_out(names, symbols->module, "names");
	if (err != -ETIMEDOUT)
		free_reading(r);
	return NULL;
}

/*
 * Look up an address in the table. If the table was made for other addresses only (-EAGAIN), read
 * one for all addresses once. The first table stays allocated because its names are in use.
 */
static int find_symbol(struct names *names, struct module_symbols *symbols, uint64_t vaddr,
		       struct sym_symbol *out)
{
	int err = sym_table_find(symbols->table, vaddr, out);
	struct reading *r;

	if (err != -EAGAIN || symbols->first)
		return err;
	symbols->first = symbols->table;
	symbols->table = NULL;
	r = read_bounded(names, symbols, true);
	if (!r)
		return -ENOENT;
	symbols->table = r->got.table;
	r->got.table = NULL;
	err = r->err;
	free_reading(r);
	return err ? err : sym_table_find(symbols->table, vaddr, out);
}

/*
 * Open the symbol table of a module, and its debug file if there is one. Tried once for each
 * module.
 */
static void open_symbols(struct names *names, const struct module *module,
			 struct module_symbols *symbols)
{
	const char *slash = strrchr(module->path, '/');
	struct reading *r;

	symbols->tried = true;
	symbols->base = slash && slash[1] ? slash + 1 : module->path;
	if (module->state != MODULE_USABLE)
		return;
	r = read_bounded(names, symbols, false);
	if (!r)
		return;
	symbols->table = r->got.table;
	symbols->stored = r->got.stored;
	symbols->has_debug = r->got.has_debug;
	symbols->debug_fd = r->got.debug_fd;
	r->got.table = NULL;
	r->got.debug_fd = -1;
	free_reading(r);
}

/* Read a module's symbols: from the store if it has them, else from the file or image. */
static void read_symbols(void *ctx)
{
	struct reading *r = ctx;
	struct names *names = r->names;
	struct module_symbols *symbols = &r->got;
	const struct module *module = symbols->module;
	struct store_file file, beside;
	const struct store_file *other;
	size_t image_size;
	const void *image = module_image(module, &image_size);
	int fd = module_fd(module), err = 0;

	if (r->again) {
		r->err = open_brief(r);
		return;
	}
	if (!image && fd >= 0)
		find_debug_file(names, symbols);
	if (names->store) {
		other = symbols_files_of(symbols, &file, &beside);
		symbols->stored = !store_find_symbols(names->store, module->gone ? NULL : &file,
						      other, &module->build_id, &symbols->table);
		if (symbols->stored)
			return;
	}
	if (image)
		err = sym_table_open_image(image, image_size, &symbols->table);
	else if (fd >= 0 && names->store) /* the store will get the whole table */
		err = sym_table_open_with(fd, module_elf_off(module), symbols->debug_fd,
					  &symbols->table);
	else if (fd >= 0)
		err = open_brief(r);
	r->err = err;
	if (err)
		log_warning("%s: symbols cannot be read: %s", module->path, strerror(-err));
}

/* Return whether a kernel symbol list has _text at the address that the recording states. */
static bool fits(const struct names *names, const struct sym_kernel *kernel)
{
	uint64_t text;

	return !sym_kernel_lookup(kernel, "_text", &text) && text == names->info->kernel_text;
}

/*
 * Open a stored copy of kallsyms. The same kernel build at the same address has the same symbols,
 * whichever boot the copy is from. Reading a file takes a tenth of the time that the kernel needs
 * to write its list. (Addresses of kernel modules differ; find_in_kernel does not use them from the
 * copy.)
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
 * Open /proc/kallsyms, and store a copy for later runs. The running kernel's symbols fit a
 * recording of the same boot. If the source states the address of _text, the symbols must agree
 * with it.
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

/*
 * Look up a kernel address in the stored copy, except for kernel modules, then in /proc/kallsyms.
 */
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

/*
 * Look up a kernel address among the symbols that the recording itself contains, sorted by address.
 */
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

/* Return a copy of the text in the string pool. NULL when out of memory. */
static const char *keep(struct names *names, const char *text)
{
	return strings_keep(&names->strings, text, strlen(text));
}

/*
 * Ask the running kernel for the symbol at addr through the source. For some hundred addresses this
 * is faster than reading the kernel's whole list.
 */
static int ask_kernel(const struct source_info *info, uint64_t addr, struct sym_symbol *symbol,
		      const char **module)
{
	struct source_kernel_symbol s;
	int err = info->kernel_symbol ? info->kernel_symbol(info->kernel_symbol_ctx, addr, &s)
				      : -ENOTSUP;

	if (err)
		return err;
	*symbol = (struct sym_symbol){ .addr = s.addr, .size = s.size, .name = s.name };
	*module = s.module;
	return 0;
}

/* Name a kernel address. c->in is "[kernel]" or the kernel module. */
static void name_kernel(struct names *names, struct cached *c)
{
	struct sym_symbol symbol;
	const char *module = "";
	int err;

	c->in = "[kernel]";
	if (names->info->n_kernel_symbols) {
		err = find_carried(names->info, c->addr, &symbol, &module);
	} else {
		err = ask_kernel(names->info, c->addr, &symbol, &module);
		if (err && err != -ENOENT)
			err = find_in_kernel(names, c->addr, &symbol, &module);
	}
	if (err)
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

struct same_name {
	const struct names *names;
	const char *symbol;
};

static bool same_symbol(const void *ctx, uint32_t id)
{
	const struct same_name *want = ctx;

	return want->names->known[id].symbol == want->symbol;
}

/*
 * Set the names for a symbol, demangled if that is wanted. Results are cached by symbol because a
 * function is found at many addresses and demangling is the slowest part.
 */
static void name_symbol(struct names *names, const char *symbol, struct cached *c)
{
	struct same_name want = { .names = names, .symbol = symbol };
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
	/* Without memory for the cache entry, the symbol is demangled again next time. */
	if (array_make_room(&known, names->n_known, &names->room_known, sizeof(*names->known)))
		return;
	names->known = known;
	names->known[names->n_known] = (struct known){ .symbol = symbol,
						       .function = c->function,
						       .system_name = c->system_name };
	if (!hash_add(&names->by_symbol, hash, (uint32_t)names->n_known))
		names->n_known++;
}

/*
 * Name generated code by what its process registered. Return false if no registration names the
 * address.
 */
static bool name_generated(struct names *names, struct cached *c)
{
	const char *kept = NULL;
	char *name = NULL;

	if (c->module->kind == MODULE_JIT)
		name = module_generated_name(c->module, c->addr, &c->start);
	if (name)
		kept = keep(names, name);
	free(name);
	if (!kept)
		return false;
	c->in = c->module->path;
	name_symbol(names, kept, c);
	return true;
}

/* ---- lines -------------------------------------------------------------------- */

/* How many modules' debug information can be open at once. Each can hold some tens of megabytes. */
#define DEBUGS_MAX  3
#define PLACES_MAX  128
#define PLACES_ROOM 4096

/* Open the file that .gnu_debugaltlink names (dwz). May run on several threads. */
static int alt_of(void *ctx, const char *name, const struct uw_build_id *id, int *fd)
{
	const struct module_symbols *s = ctx;
	int from = s->debug_fd >= 0 ? s->debug_fd : module_fd(s->module), err;
	struct opener_file file;

	module_file(s->module, &file);
	(void)pthread_mutex_lock(&s->names->opening);
	err = opener_open_named(s->names->opener, &file, from, NULL, name, id, fd);
	if (err)
		err = opener_fetched_debug(s->names->opener, id, fd);
	(void)pthread_mutex_unlock(&s->names->opening);
	return err;
}

/* Open a .dwo file, whose path is relative to folder. May run on several threads. */
static int split_of(void *ctx, const char *folder, const char *name, int *fd)
{
	const struct module_symbols *s = ctx;
	struct opener_file file;
	int err;

	module_file(s->module, &file);
	(void)pthread_mutex_lock(&s->names->opening);
	err = opener_open_named(s->names->opener, &file, module_fd(s->module), folder, name, NULL,
				fd);
	(void)pthread_mutex_unlock(&s->names->opening);
	return err;
}

/*
 * Open the .dwp package of a module, beside its debug file or beside itself. May run on several
 * threads.
 */
static int package_of(void *ctx, int *fd)
{
	const struct module_symbols *s = ctx;
	struct opener_file file;
	int err = -ENOENT;

	module_file(s->module, &file);
	(void)pthread_mutex_lock(&s->names->opening);
	if (s->debug_fd >= 0)
		err = opener_open_suffixed(s->names->opener, &file, s->debug_fd, ".dwp", fd);
	if (err)
		err = opener_open_suffixed(s->names->opener, &file, module_fd(s->module), ".dwp",
					   fd);
	(void)pthread_mutex_unlock(&s->names->opening);
	return err;
}

/*
 * Open the debug information of a module; its lines are added to lines. May be called from any
 * thread: a thread that was left behind calls this after the module's own lines were given up.
 */
static int open_debug(void *ctx, struct sym_lines *lines, struct sym_debug **out)
{
	const struct module_symbols *s = ctx;
	const struct sym_debug_files files = {
		.alt = alt_of, .split = split_of, .package = package_of, .ctx = ctx
	};
	int fd = s->debug_fd >= 0 ? s->debug_fd : module_fd(s->module);
	size_t size;
	const void *image = module_image(s->module, &size);

	if (image)
		return sym_debug_open_image(image, size, NULL, lines, out);
	if (s->module->gone) /* only the lines that the store has can be used */
		return -ENOENT;
	return sym_debug_open(fd, s->debug_fd >= 0 ? 0 : module_elf_off(s->module), &files, lines,
			      out);
}

static void warn_of_debug(const struct module_symbols *s, int err)
{
	if (err && err != -ENOENT)
		log_warning("%s: lines cannot be read: %s", s->module->path, strerror(-err));
}

static void close_debug(struct names *names, struct module_symbols *s)
{
	sym_debug_free(s->debug);
	s->debug = NULL;
	s->debug_tried = false; /* a later lookup may open it again */
	names->n_debugs--;
}

/* Close the debug information that was not used for the longest time. */
static void close_oldest(struct names *names)
{
	struct module_symbols *oldest = NULL;

	for (size_t i = 0; i < names->n_modules; i++) {
		struct module_symbols *s = names->modules[i];

		if (s && s->debug && (!oldest || s->debug_used < oldest->debug_used))
			oldest = s;
	}
	if (oldest)
		close_debug(names, oldest);
}

/*
 * Return the open debug information of a module; open it if needed. NULL: none, or it cannot be
 * read.
 */
static struct sym_debug *debug_of(struct names *names, struct module_symbols *s)
{
	int err;

	s->debug_used = ++names->tick;
	if (s->debug || s->debug_tried)
		return s->debug;
	s->debug_tried = true;
	if (names->n_debugs >= DEBUGS_MAX)
		close_oldest(names);
	err = open_debug(s, s->lines, &s->debug);
	names->n_debugs += !err;
	warn_of_debug(s, err);
	return s->debug;
}

/*
 * Make sure that the module has an object for its lines, from the store or empty. Return whether it
 * has.
 */
static bool lines_of(struct names *names, struct module_symbols *s)
{
	struct store_file file;

	if (s->lines_tried)
		return s->lines;
	s->lines_tried = true;
	if (!s->module->gone && s->debug_fd < 0 && !s->has_debug &&
	    !module_image(s->module, &(size_t){ 0 }))
		return false;
	lines_file_of(s, &file);
	if (!names->store || store_find_lines(names->store, s->module->gone ? NULL : &file,
					      &s->module->build_id, &s->lines))
		(void)sym_lines_new(&s->lines);
	return s->lines;
}

/*
 * Look up an address's lines; read them from debug information if needed. Return false if nothing
 * is known.
 */
static bool see_to_lines(struct names *names, struct module_symbols *s, uint64_t vaddr,
			 struct sym_place *out, size_t *n)
{
	struct sym_debug *debug;

	if (!lines_of(names, s))
		return false;
	if (!sym_lines_find(s->lines, vaddr, out, PLACES_MAX, n))
		return *n > 0;
	/* The lines that names_prepare announced are read by now, or take too long to read. */
	if (names->bounded)
		return false;
	debug = debug_of(names, s);
	return debug && !sym_debug_add(debug, vaddr) &&
	       !sym_lines_find(s->lines, vaddr, out, PLACES_MAX, n) && *n > 0;
}

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

/* Add lines and inlined calls to an address. c already has the names from the symbol table. */
static void name_places(struct names *names, struct module_symbols *s, struct cached *c)
{
	struct sym_place found[PLACES_MAX];
	struct name_place *places;
	size_t n = 0, first;

	if (!names->lines || !see_to_lines(names, s, c->addr, found, &n))
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

/* Input and result of reading the perf map or jitdump of a process. */
struct jit_reading {
	struct opener *opener;
	const struct module *module;
	struct sym_jit *jit;
};

static void free_jit_reading(void *ctx)
{
	struct jit_reading *r = ctx;

	sym_jit_free(r->jit);
	free(r);
}

/* Read the perf map or jitdump of a process; run as an errand. No such file is not an error. */
static void read_jit(void *ctx)
{
	struct jit_reading *r = ctx;
	struct opener_file file;
	int fd, err;

	module_file(r->module, &file);
	if (opener_open_jit(r->opener, r->module->pid, file.user, module_jitdump(r->module), &fd))
		return;
	err = sym_jit_open(fd, &r->jit);
	(void)close(fd);
	if (err)
		log_warning("process %" PRIu32 ": names of generated code cannot be read: %s",
			    r->module->pid, strerror(-err));
}

/* Open the names of a process's generated code; with a time limit if names is bounded. */
static void open_jit(struct names *names, struct module_symbols *s, const struct module *module)
{
	struct jit_reading *r = calloc(1, sizeof(*r));
	const struct errand errand = { .run = read_jit, .drop = free_jit_reading, .ctx = r };
	int err = 0;

	if (!r)
		return;
	*r = (struct jit_reading){ .opener = names->opener, .module = module };
	if (names->bounded)
		err = errand_run(&errand, limit_for(module, SYMBOLS_NS));
	else
		read_jit(r);
	if (err)
		leave_out(names, module, "names");
	if (!err) {
		s->jit = r->jit;
		r->jit = NULL;
	}
	if (err != -ETIMEDOUT)
		free_jit_reading(r);
}

/* Name generated code by the perf map or jitdump of its process. */
static void name_jit(struct names *names, struct module_symbols *s, struct cached *c)
{
	struct sym_symbol symbol;
	const char *kept;

	if (!s->tried) {
		s->tried = true;
		if (names->opener)
			open_jit(names, s, c->module);
	}
	if (!s->jit || sym_jit_find(s->jit, c->addr, &symbol))
		return;
	kept = keep(names, symbol.name);
	if (!kept)
		return;
	c->start = symbol.addr;
	name_symbol(names, kept, c);
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

/*
 * Name a user-space address: by registration, perf map, symbol or unwind information, then lines.
 */
static void name_user(struct names *names, struct cached *c)
{
	struct module_symbols *symbols = symbols_of(names, c->module);
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
	if (!symbols->tried)
		open_symbols(names, c->module, symbols);
	c->in = symbols->base;
	if (c->module->state != MODULE_USABLE)
		return;
	named = symbols->table && !find_symbol(names, symbols, c->addr, &symbol);
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

/*
 * Return the cached name of a location, or look it up and cache it. On return without caching, the
 * result is in scratch.
 */
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
	/* Do not cache the miss: the process may still report the name. */
	if (location->module->kind == MODULE_JIT && !scratch->function)
		return scratch;
	if (array_make_room(&cached, names->n_cached, &names->room_cached, sizeof(*names->cached)))
		return scratch; /* looked up again next time */
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

/*
 * Prepare reading lines for n locations of one module. Return false if there is nothing to read.
 * vaddrs has room for n addresses.
 */
static bool make_task(struct names *names, const struct location *const *wanted, size_t n,
		      uint64_t *vaddrs, struct lines_task *out)
{
	const struct module *module = wanted[0]->module;
	struct module_symbols *s = symbols_of(names, module);
	struct sym_place none;
	size_t n_places;

	if (s && !s->tried)
		open_symbols(names, module, s);
	if (!s || module->state != MODULE_USABLE || !lines_of(names, s) ||
	    (s->debug_tried && !s->debug))
		return false;
	*out = (struct lines_task){
		.lines = s->lines, .vaddrs = vaddrs, .debug = s->debug, .open = open_debug, .ctx = s
	};
	for (size_t i = 0; i < n; i++)
		if (sym_lines_find(s->lines, wanted[i]->vaddr, &none, 0, &n_places))
			vaddrs[out->n++] = wanted[i]->vaddr;
	return out->n != 0;
}

/* Close the debug information of modules that no task needs. */
static void close_others(struct names *names, const struct lines_task *tasks, size_t n)
{
	for (size_t i = 0; i < names->n_modules; i++) {
		struct module_symbols *s = names->modules[i];
		bool used = !s || !s->debug;

		for (size_t j = 0; !used && j < n; j++)
			used = tasks[j].ctx == s;
		if (!used)
			close_debug(names, s);
	}
}

/* Lines to be read, on an errand's thread or on this one. */
struct lines_reading {
	struct lines_task *tasks;
	uint64_t *vaddrs; /* of all tasks */
	size_t n;
};

static void free_lines_reading(void *ctx)
{
	struct lines_reading *r = ctx;

	free(r->tasks);
	free(r->vaddrs);
	free(r);
}

static void read_lines(void *ctx)
{
	struct lines_reading *r = ctx;

	lines_read(r->tasks, r->n);
}

/* A module whose lines are being read. */
struct reading_of {
	struct module_symbols *symbols;
	bool keep; /* its debug information counts in n_debugs, now or when it has been read */
};

/* Give up a module's lines. If a thread was left behind, the thread owns the objects from now on. */
static void give_up_lines(struct names *names, const struct reading_of *of, bool left_behind)
{
	struct module_symbols *s = of->symbols;

	leave_out(names, s->module, "source lines");
	if (left_behind) {
		s->lines = NULL;
		s->debug = NULL;
	}
	if (of->keep && !s->debug)
		names->n_debugs--;
	s->debug_tried = true;
}

/* Move the results of the tasks into their modules. */
static void take_lines(struct names *names, const struct lines_task *tasks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct module_symbols *s = tasks[i].ctx;

		if (tasks[i].keep && !tasks[i].debug)
			names->n_debugs--;
		s->debug = tasks[i].debug;
		s->debug_used = ++names->tick;
		s->debug_tried = s->debug || tasks[i].err;
		warn_of_debug(s, tasks[i].err);
	}
}

/*
 * Read the lines of the tasks, with a time limit if names is bounded. Takes ownership of tasks and
 * vaddrs.
 */
static void read_tasks(struct names *names, struct lines_task *tasks, uint64_t *vaddrs, size_t n)
{
	struct lines_reading *r = calloc(1, sizeof(*r));
	const struct errand errand = { .run = read_lines, .drop = free_lines_reading, .ctx = r };
	struct reading_of *of = calloc(n + 1, sizeof(*of));
	int err = 0;

	if (!r || !of) {
		for (size_t i = 0; i < n; i++)
			names->n_debugs -= tasks[i].keep && !tasks[i].debug;
		free(tasks);
		free(vaddrs);
		free(of);
		free(r);
		return;
	}
	*r = (struct lines_reading){ .tasks = tasks, .vaddrs = vaddrs, .n = n };
	for (size_t i = 0; i < n; i++)
		of[i] = (struct reading_of){ .symbols = tasks[i].ctx, .keep = tasks[i].keep };
	if (n && names->bounded)
		err = errand_run(&errand, limit_for(of[0].symbols->module, LINES_NS));
	else if (n)
		read_lines(r);
	for (size_t i = 0; err && i < n; i++)
		give_up_lines(names, &of[i], err == -ETIMEDOUT);
	if (!err)
		take_lines(names, tasks, n);
	free(of);
	if (err != -ETIMEDOUT)
		free_lines_reading(r);
}

/* Copy n tasks and read their lines together. */
static void read_some(struct names *names, const struct lines_task *from, size_t n)
{
	struct lines_task *tasks = calloc(n, sizeof(*tasks));
	uint64_t *vaddrs;
	size_t n_vaddrs = 0, at = 0;

	for (size_t i = 0; i < n; i++)
		n_vaddrs += from[i].n;
	vaddrs = calloc(n_vaddrs + 1, sizeof(*vaddrs));
	for (size_t i = 0; tasks && vaddrs && i < n; i++) {
		struct module_symbols *s = from[i].ctx;

		tasks[i] = from[i];
		tasks[i].vaddrs = vaddrs + at;
		memcpy(vaddrs + at, from[i].vaddrs, from[i].n * sizeof(*vaddrs));
		at += from[i].n;
		/*
		 * At most DEBUGS_MAX modules' debug information stays open; the first tasks are
		 * preferred.
		 */
		tasks[i].keep = s->debug || names->n_debugs < DEBUGS_MAX;
		names->n_debugs += !s->debug && tasks[i].keep;
	}
	if (tasks && vaddrs) {
		read_tasks(names, tasks, vaddrs, n);
		return;
	}
	free(tasks);
	free(vaddrs);
}

/*
 * Read the lines for locations sorted by file. Lines that cannot be read now are looked up again
 * later. If names is bounded, read files that only the superuser can have written first, all
 * together. Then read each other file by itself, so that no user's file can use up all the time.
 */
static void prepare_lines(struct names *names, const struct location *const *wanted, size_t n)
{
	uint64_t *vaddrs = calloc(n, sizeof(*vaddrs));
	struct lines_task *tasks = calloc(n, sizeof(*tasks));
	size_t n_tasks = 0, n_first = 0;

	for (int others = 0; vaddrs && tasks && others < 2; others++) {
		for (size_t i = 0, past; i < n; i = past) {
			for (past = i; past < n && wanted[past]->module == wanted[i]->module;
			     past++)
				;
			if ((names->bounded && !is_system(wanted[i]->module)) == others)
				n_tasks += make_task(names, wanted + i, past - i, vaddrs + i,
						     &tasks[n_tasks]);
		}
		n_first = others ? n_first : n_tasks;
	}
	if (n_tasks)
		close_others(names, tasks, n_tasks);
	if (n_first)
		read_some(names, tasks, n_first);
	for (size_t i = n_first; i < n_tasks; i++)
		read_some(names, tasks + i, 1);
	free(tasks);
	free(vaddrs);
}

/*
 * Remember which locations are wanted. Without memory nothing is remembered, so whole tables are
 * read.
 */
static void note_wanted(struct names *names, const struct profile *profile)
{
	struct wanted *wanted =
		reallocarray(names->wanted, profile->n_locations + 1, sizeof(*wanted));

	names->n_wanted = 0;
	if (!wanted)
		return;
	names->wanted = wanted;
	for (size_t i = 0; i < profile->n_locations; i++)
		names->wanted[names->n_wanted++] =
			(struct wanted){ .module = profile->locations[i].module,
					 .vaddr = profile->locations[i].vaddr };
}

void names_prepare(struct names *names, const struct profile *profile)
{
	const struct location **wanted;
	struct name name;
	size_t n = 0;
	bool *seen;

	if (!names->store)
		note_wanted(names, profile);
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
		prepare_lines(names, wanted, n);
	for (size_t i = 0; i < n; i++)
		names_find(names, wanted[i], &name);
	free(wanted);
	free(seen);
}

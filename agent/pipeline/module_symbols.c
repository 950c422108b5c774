/*
 * agent/pipeline/module_symbols.c: opens the symbol tables and debug files of modules.
 */
#include "agent/pipeline/module_symbols.h"

#include "agent/ending.h"
#include "agent/errand.h"
#include "agent/log.h"
#include "agent/process/debug_file.h"
#include "agent/process/modules.h"
#include "agent/role/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long reading one file's symbols may take. */
#define SYMBOLS_NS UINT64_C(2000000000)
/*
 * After the end of the recording, a file may take one part in so many of the time that is left. A
 * file that a user other than the superuser may have written gets the smaller share.
 */
#define SYSTEM_SHARE   2
#define STRANGER_SHARE 4

void symbols_init(struct symbols *all, struct opener *opener, const struct source_info *info)
{
	*all = (struct symbols){ .opener = opener, .info = info };
	(void)pthread_mutex_init(&all->opening, NULL);
}

bool symbols_is_system(const struct module *module)
{
	struct stat st;

	return module_fd(module) >= 0 && !fstat(module_fd(module), &st) && !st.st_uid &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

uint64_t symbols_limit(const struct module *module, uint64_t most_ns)
{
	uint64_t share =
		ending_left() / (symbols_is_system(module) ? SYSTEM_SHARE : STRANGER_SHARE);

	return share > most_ns ? most_ns : share;
}

void symbols_leave_out(struct symbols *all, const struct module *module, const char *what)
{
	all->n_left_out++;
	log_debug("%s: %s are left out: reading them takes too long", module->path, what);
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

void symbols_lines_file(const struct module_symbols *symbols, struct store_file *out)
{
	if (symbols->debug_fd >= 0)
		store_file_of(symbols->debug_fd, 0, symbols->module->path, out);
	else
		file_of(symbols->module, out);
}

/* Free a module's symbols and lines, or give to the store what it does not have yet. */
static void free_symbols(struct symbols *all, struct module_symbols *symbols)
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
	store = opening.view ? NULL : all->store;
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
		symbols_lines_file(symbols, &file);
		store_want_lines(store, &file, &symbols->module->build_id, symbols->lines);
	}
	if (symbols->debug_fd >= 0)
		(void)close(symbols->debug_fd);
	module_unuse(symbols->module);
	free(symbols);
}

void symbols_fini(struct symbols *all)
{
	for (size_t i = 0; i < all->n_modules; i++)
		free_symbols(all, all->modules[i]);
	free(all->modules);
	free(all->wanted);
	(void)pthread_mutex_destroy(&all->opening);
}

struct module_symbols *symbols_of(struct symbols *all, const struct module *module)
{
	struct module_symbols *symbols;

	if (module->id >= all->n_modules) {
		size_t n = (size_t)module->id + 64;
		struct module_symbols **bigger = reallocarray(all->modules, n, sizeof(*bigger));

		if (!bigger)
			return NULL;
		memset(bigger + all->n_modules, 0, (n - all->n_modules) * sizeof(*bigger));
		all->modules = bigger;
		all->n_modules = n;
	}
	symbols = all->modules[module->id];
	if (!symbols) {
		symbols = calloc(1, sizeof(*symbols));
		if (!symbols)
			return NULL;
		symbols->module = module;
		module_use(module);
		all->n_made++;
		symbols->all = all;
		symbols->debug_fd = -1;
		all->modules[module->id] = symbols;
	}
	return symbols;
}

uint64_t symbols_memory(const struct symbols *all)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < all->n_modules; i++) {
		const struct module_symbols *s = all->modules[i];

		if (s && s->table)
			sum += sym_table_memory(s->table);
		if (s && s->first)
			sum += sym_table_memory(s->first);
		if (s && s->lines)
			sum += sym_lines_memory(s->lines);
	}
	return sum;
}

void symbols_want(struct symbols *all, const struct profile *profile)
{
	struct symbols_wanted *wanted =
		reallocarray(all->wanted, profile->n_locations + 1, sizeof(*wanted));

	all->n_wanted = 0;
	if (!wanted)
		return;
	all->wanted = wanted;
	for (size_t i = 0; i < profile->n_locations; i++)
		all->wanted[all->n_wanted++] =
			(struct symbols_wanted){ .module = profile->locations[i].module,
						 .vaddr = profile->locations[i].vaddr };
}

int symbols_note(const struct module_symbols *s)
{
	bool own = s->debug_fd < 0;

	return reading_note(own ? module_fd(s->module) : s->debug_fd,
			    own ? module_elf_off(s->module) : 0, s->module->path);
}

/*
 * Find out whether the module's file has DWARF. If not, open its separate debug file into debug_fd: this machine's,
 * since it is complete, else the parts of it that the capture has.
 */
static void find_debug_file(struct symbols *all, struct module_symbols *symbols)
{
	const struct debug_search search = { .opener = all->opener, .store = all->store };
	const struct module *module = symbols->module;
	int fd;

	if (debug_file_find(&search, module, &symbols->has_debug, &fd) &&
	    (symbols->has_debug || (debug_file_fetched(&search, module, &fd) &&
				    debug_file_embedded(&search, all->info, module, &fd))))
		return;
	symbols->debug_fd = fd;
}

/* Input and results of reading a module's symbols, on an errand's thread or on this one. */
struct reading {
	struct symbols *all;
	struct module_symbols got; /* a part of the module's own, as read */
	uint64_t *vaddrs;	   /* read the symbols for these addresses only; owned; NULL: all */
	size_t n_vaddrs;
	bool again; /* read all symbols from the file: see symbols_find */
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
static int open_partial(struct reading *r)
{
	const struct module *module = r->got.module;
	int number = symbols_note(&r->got);
	int err = sym_table_open_partial(module_fd(module), module_view(module),
					 module_elf_off(module), r->got.debug_fd, r->vaddrs,
					 r->n_vaddrs, &r->got.table);

	reading_noted(number);
	return err;
}

/* Prepare a reading with its own descriptor and addresses. NULL when out of memory. */
static struct reading *begin_reading(struct symbols *all, const struct module_symbols *symbols,
				     bool again)
{
	struct reading *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->all = all;
	r->again = again;
	r->got.module = symbols->module;
	r->got.all = all;
	r->got.debug_fd = symbols->debug_fd >= 0 ? dup(symbols->debug_fd) : -1;
	r->vaddrs = again ? NULL : calloc(all->n_wanted + 1, sizeof(*r->vaddrs));
	for (size_t i = 0; r->vaddrs && i < all->n_wanted; i++)
		if (all->wanted[i].module == symbols->module)
			r->vaddrs[r->n_vaddrs++] = all->wanted[i].vaddr;
	return r;
}

static void read_symbols(void *ctx);

/*
 * Read symbols; if names is bounded, give up when reading takes too long. Return NULL if it was
 * given up or there is no memory. The caller frees the result with free_reading.
 */
static struct reading *read_bounded(struct symbols *all, const struct module_symbols *symbols,
				    bool again)
{
	struct reading *r = begin_reading(all, symbols, again);
	const struct errand errand = { .run = read_symbols, .drop = free_reading, .ctx = r };
	int err = 0;

	if (r && all->bounded)
		err = errand_run(&errand, symbols_limit(symbols->module, SYMBOLS_NS));
	else if (r)
		read_symbols(r);
	if (!err)
		return r;
	symbols_leave_out(all, symbols->module, "names");
	if (err != -ETIMEDOUT)
		free_reading(r);
	return NULL;
}

/*
 * Return whether a table could not answer, but the file can: the table is for other addresses only, or it is in the store,
 * where another process deletes rows to stay within the budget, and replaces them.
 */
static bool is_unanswered(const struct module_symbols *symbols, int err)
{
	return err == -EAGAIN || (symbols->stored && err && err != -ENOENT);
}

/* Read the whole table from the file. Names of the table before are in use, so that one stays. */
static int read_again(struct symbols *all, struct module_symbols *symbols)
{
	struct reading *r = read_bounded(all, symbols, true);
	int err;

	if (!r)
		return -ENOENT;
	err = r->err;
	if (!err) {
		symbols->first = symbols->table;
		symbols->table = r->got.table;
		symbols->stored = false;
		r->got.table = NULL;
	}
	free_reading(r);
	return err;
}

int symbols_find(struct symbols *all, struct module_symbols *symbols, uint64_t vaddr,
		 struct sym_symbol *out)
{
	int err = sym_table_find(symbols->table, vaddr, out);

	if (!is_unanswered(symbols, err) || symbols->tried_again)
		return err;
	symbols->tried_again = true;
	err = read_again(all, symbols);
	return err ? err : sym_table_find(symbols->table, vaddr, out);
}

void symbols_open(struct symbols *all, struct module_symbols *symbols)
{
	const struct module *module = symbols->module;
	const char *slash = strrchr(module->path, '/');
	struct reading *r;

	if (symbols->tried)
		return;
	symbols->tried = true;
	symbols->base = slash && slash[1] ? slash + 1 : module->path;
	if (module->state != MODULE_USABLE)
		return;
	r = read_bounded(all, symbols, false);
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

/* Find the module's debug file, and its symbols in the store. Return whether the store has them. */
static bool find_stored(struct symbols *all, struct module_symbols *symbols)
{
	const struct module *module = symbols->module;
	struct store_file file, beside;
	const struct store_file *other;
	size_t size;

	if (!module_image(module, &size) && module_fd(module) >= 0)
		find_debug_file(all, symbols);
	if (!all->store)
		return false;
	other = symbols_files_of(symbols, &file, &beside);
	symbols->stored = !store_find_symbols(all->store, module->gone ? NULL : &file, other,
					      &module->build_id, &symbols->table);
	return symbols->stored;
}

/* Read a module's symbols: from the store if it has them, else from the file or image. */
static void read_symbols(void *ctx)
{
	struct reading *r = ctx;
	const struct symbols *all = r->all;
	struct module_symbols *symbols = &r->got;
	const struct module *module = symbols->module;
	size_t image_size;
	const void *image = module_image(module, &image_size);
	int fd = module_fd(module), err = 0, number;

	if (!r->again && find_stored(r->all, symbols))
		return;
	number = symbols_note(symbols);
	if (image)
		err = sym_table_open_image(image, image_size, &symbols->table);
	else if (fd >= 0 && all->store) /* the store will get the whole table */
		err = sym_table_open_with(fd, module_elf_off(module), symbols->debug_fd,
					  &symbols->table);
	else if (fd >= 0)
		err = open_partial(r);
	reading_noted(number);
	if (r->again && !err && !symbols->table)
		err = -ENOENT; /* it had its symbols from the store, and its file is gone */
	r->err = err;
	if (err)
		log_warning("%s: symbols cannot be read: %s", module->path, strerror(-err));
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
	int fd, number, err = 0;

	module_file(r->module, &file);
	if (opener_open_jit(r->opener, r->module->pid, file.user, module_jitdump(r->module), &fd))
		return;
	if (!reading_is_refused(fd)) {
		number = reading_note(fd, 0, r->module->path);
		err = sym_jit_open(fd, &r->jit);
		reading_noted(number);
	}
	(void)close(fd);
	if (err)
		log_warning("process %" PRIu32 ": names of generated code cannot be read: %s",
			    r->module->pid, strerror(-err));
}

/* Open the names of a process's generated code; with a time limit if names is bounded. */
static void open_jit(struct symbols *all, struct module_symbols *s, const struct module *module)
{
	struct jit_reading *r = calloc(1, sizeof(*r));
	const struct errand errand = { .run = read_jit, .drop = free_jit_reading, .ctx = r };
	int err = 0;

	if (!r)
		return;
	*r = (struct jit_reading){ .opener = all->opener, .module = module };
	if (all->bounded)
		err = errand_run(&errand, symbols_limit(module, SYMBOLS_NS));
	else
		read_jit(r);
	if (err)
		symbols_leave_out(all, module, "names");
	if (!err) {
		s->jit = r->jit;
		r->jit = NULL;
	}
	if (err != -ETIMEDOUT)
		free_jit_reading(r);
}

int symbols_find_jit(struct symbols *all, struct module_symbols *s, uint64_t addr,
		     struct sym_symbol *out)
{
	if (!s->tried) {
		s->tried = true;
		if (all->opener)
			open_jit(all, s, s->module);
	}
	return s->jit ? sym_jit_find(s->jit, addr, out) : -ENOENT;
}

/*
 * agent/pipeline/module_lines.c: opens the debug information of modules and reads their lines.
 */
#include "agent/pipeline/module_symbols.h"

#include "agent/errand.h"
#include "agent/log.h"
#include "agent/pipeline/line_threads.h"
#include "agent/process/modules.h"
#include "agent/role/reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How many modules' debug information can be open at once. Each can hold some tens of megabytes. */
#define DEBUGS_MAX 3
/* How long reading the lines of one or several files may take. */
#define LINES_NS UINT64_C(10000000000)

/* Open the file that .gnu_debugaltlink names (dwz). May run on several threads. */
static int alt_of(void *ctx, const char *name, const struct uw_build_id *id, int *fd)
{
	const struct module_symbols *s = ctx;
	int from = s->debug_fd >= 0 ? s->debug_fd : module_fd(s->module), err;
	struct opener_file file;

	module_file(s->module, &file);
	(void)pthread_mutex_lock(&s->all->opening);
	err = opener_open_named(s->all->opener, &file, from, NULL, name, id, fd);
	if (err)
		err = opener_fetched_debug(s->all->opener, id, fd);
	(void)pthread_mutex_unlock(&s->all->opening);
	return err;
}

/* Open a .dwo file, whose path is relative to directory. May run on several threads. */
static int split_of(void *ctx, const char *directory, const char *name, int *fd)
{
	const struct module_symbols *s = ctx;
	struct opener_file file;
	int err;

	module_file(s->module, &file);
	(void)pthread_mutex_lock(&s->all->opening);
	err = opener_open_named(s->all->opener, &file, module_fd(s->module), directory, name, NULL,
				fd);
	(void)pthread_mutex_unlock(&s->all->opening);
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
	(void)pthread_mutex_lock(&s->all->opening);
	if (s->debug_fd >= 0)
		err = opener_open_suffixed(s->all->opener, &file, s->debug_fd, ".dwp", fd);
	if (err)
		err = opener_open_suffixed(s->all->opener, &file, module_fd(s->module), ".dwp", fd);
	(void)pthread_mutex_unlock(&s->all->opening);
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
	int number, err;

	if (image)
		return sym_debug_open_image(image, size, NULL, lines, out);
	if (s->module->gone) /* only the lines that the store has can be used */
		return -ENOENT;
	number = symbols_note(s);
	err = sym_debug_open(fd, s->debug_fd >= 0 ? 0 : module_elf_off(s->module), &files, lines,
			     out);
	reading_noted(number);
	return err;
}

/* As symbols_note, for the threads that read lines. */
static int note_debug(void *ctx)
{
	return symbols_note(ctx);
}

static void warn_of_debug(const struct module_symbols *s, int err)
{
	if (err && err != -ENOENT)
		log_warning("%s: lines cannot be read: %s", s->module->path, strerror(-err));
}

static void close_debug(struct symbols *all, struct module_symbols *s)
{
	sym_debug_free(s->debug);
	s->debug = NULL;
	s->debug_tried = false; /* a later lookup may open it again */
	all->n_debugs--;
}

/* Close the debug information that was not used for the longest time. */
static void close_oldest(struct symbols *all)
{
	struct module_symbols *oldest = NULL;

	for (size_t i = 0; i < all->n_modules; i++) {
		struct module_symbols *s = all->modules[i];

		if (s && s->debug && (!oldest || s->debug_used < oldest->debug_used))
			oldest = s;
	}
	if (oldest)
		close_debug(all, oldest);
}

/*
 * Return the open debug information of a module; open it if needed. NULL: none, or it cannot be
 * read.
 */
static struct sym_debug *debug_of(struct symbols *all, struct module_symbols *s)
{
	int err;

	s->debug_used = ++all->tick;
	if (s->debug || s->debug_tried)
		return s->debug;
	s->debug_tried = true;
	if (all->n_debugs >= DEBUGS_MAX)
		close_oldest(all);
	err = open_debug(s, s->lines, &s->debug);
	all->n_debugs += !err;
	warn_of_debug(s, err);
	return s->debug;
}

/*
 * Make sure that the module has an object for its lines, from the store or empty. Return whether it
 * has.
 */
static bool lines_of(struct symbols *all, struct module_symbols *s)
{
	struct store_file file;

	if (s->lines_tried)
		return s->lines;
	s->lines_tried = true;
	if (!s->module->gone && s->debug_fd < 0 && !s->has_debug &&
	    !module_image(s->module, &(size_t){ 0 }))
		return false;
	symbols_lines_file(s, &file);
	if (!all->store || store_find_lines(all->store, s->module->gone ? NULL : &file,
					    &s->module->build_id, &s->lines))
		(void)sym_lines_new(&s->lines);
	return s->lines;
}

bool symbols_find_lines(struct symbols *all, struct module_symbols *s, uint64_t vaddr,
			struct sym_place *out, size_t *n)
{
	struct sym_debug *debug;
	int number, err;

	if (!lines_of(all, s))
		return false;
	if (!sym_lines_find(s->lines, vaddr, out, SYMBOLS_PLACES_MAX, n))
		return *n > 0;
	/* The lines that names_prepare announced are read by now, or take too long to read. */
	if (all->bounded)
		return false;
	debug = debug_of(all, s);
	if (!debug)
		return false;
	number = symbols_note(s);
	err = sym_debug_add(debug, vaddr);
	reading_noted(number);
	return !err && !sym_lines_find(s->lines, vaddr, out, SYMBOLS_PLACES_MAX, n) && *n > 0;
}

/*
 * Prepare reading lines for n locations of one module. Return false if there is nothing to read.
 * vaddrs has room for n addresses.
 */
static bool make_task(struct symbols *all, const struct location *const *wanted, size_t n,
		      uint64_t *vaddrs, struct lines_task *out)
{
	const struct module *module = wanted[0]->module;
	struct module_symbols *s = symbols_of(all, module);
	struct sym_place none;
	size_t n_places;

	if (s)
		symbols_open(all, s);
	if (!s || module->state != MODULE_USABLE || !lines_of(all, s) ||
	    (s->debug_tried && !s->debug))
		return false;
	*out = (struct lines_task){ .lines = s->lines,
				    .vaddrs = vaddrs,
				    .debug = s->debug,
				    .open = open_debug,
				    .note = note_debug,
				    .ctx = s };
	for (size_t i = 0; i < n; i++)
		if (sym_lines_find(s->lines, wanted[i]->vaddr, &none, 0, &n_places))
			vaddrs[out->n++] = wanted[i]->vaddr;
	return out->n != 0;
}

/* Close the debug information of modules that no task needs. */
static void close_others(struct symbols *all, const struct lines_task *tasks, size_t n)
{
	for (size_t i = 0; i < all->n_modules; i++) {
		struct module_symbols *s = all->modules[i];
		bool used = !s || !s->debug;

		for (size_t j = 0; !used && j < n; j++)
			used = tasks[j].ctx == s;
		if (!used)
			close_debug(all, s);
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
static void give_up_lines(struct symbols *all, const struct reading_of *of, bool left_behind)
{
	struct module_symbols *s = of->symbols;

	symbols_leave_out(all, s->module, "source lines");
	if (left_behind) {
		s->lines = NULL;
		s->debug = NULL;
	}
	if (of->keep && !s->debug)
		all->n_debugs--;
	s->debug_tried = true;
}

/* Move the results of the tasks into their modules. */
static void take_lines(struct symbols *all, const struct lines_task *tasks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct module_symbols *s = tasks[i].ctx;

		if (tasks[i].keep && !tasks[i].debug)
			all->n_debugs--;
		s->debug = tasks[i].debug;
		s->debug_used = ++all->tick;
		s->debug_tried = s->debug || tasks[i].err;
		warn_of_debug(s, tasks[i].err);
	}
}

/*
 * Read the lines of the tasks, with a time limit if names is bounded. Takes ownership of tasks and
 * vaddrs.
 */
static void read_tasks(struct symbols *all, struct lines_task *tasks, uint64_t *vaddrs, size_t n)
{
	struct lines_reading *r = calloc(1, sizeof(*r));
	const struct errand errand = { .run = read_lines, .drop = free_lines_reading, .ctx = r };
	struct reading_of *of = calloc(n + 1, sizeof(*of));
	int err = 0;

	if (!r || !of) {
		for (size_t i = 0; i < n; i++)
			all->n_debugs -= tasks[i].keep && !tasks[i].debug;
		free(tasks);
		free(vaddrs);
		free(of);
		free(r);
		return;
	}
	*r = (struct lines_reading){ .tasks = tasks, .vaddrs = vaddrs, .n = n };
	for (size_t i = 0; i < n; i++)
		of[i] = (struct reading_of){ .symbols = tasks[i].ctx, .keep = tasks[i].keep };
	if (n && all->bounded)
		err = errand_run(&errand, symbols_limit(of[0].symbols->module, LINES_NS));
	else if (n)
		read_lines(r);
	for (size_t i = 0; err && i < n; i++)
		give_up_lines(all, &of[i], err == -ETIMEDOUT);
	if (!err)
		take_lines(all, tasks, n);
	free(of);
	if (err != -ETIMEDOUT)
		free_lines_reading(r);
}

/* Copy n tasks and read their lines together. */
static void read_some(struct symbols *all, const struct lines_task *from, size_t n)
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
		tasks[i].keep = s->debug || all->n_debugs < DEBUGS_MAX;
		all->n_debugs += !s->debug && tasks[i].keep;
	}
	if (tasks && vaddrs) {
		read_tasks(all, tasks, vaddrs, n);
		return;
	}
	free(tasks);
	free(vaddrs);
}

void symbols_prepare_lines(struct symbols *all, const struct location *const *wanted, size_t n)
{
	uint64_t *vaddrs = calloc(n, sizeof(*vaddrs));
	struct lines_task *tasks = calloc(n, sizeof(*tasks));
	size_t n_tasks = 0, n_first = 0;

	for (int others = 0; vaddrs && tasks && others < 2; others++) {
		for (size_t i = 0, past; i < n; i = past) {
			for (past = i; past < n && wanted[past]->module == wanted[i]->module;
			     past++)
				;
			if ((all->bounded && !symbols_is_system(wanted[i]->module)) == others)
				n_tasks += make_task(all, wanted + i, past - i, vaddrs + i,
						     &tasks[n_tasks]);
		}
		n_first = others ? n_first : n_tasks;
	}
	if (n_tasks)
		close_others(all, tasks, n_tasks);
	if (n_first)
		read_some(all, tasks, n_first);
	for (size_t i = n_first; i < n_tasks; i++)
		read_some(all, tasks + i, 1);
	free(tasks);
	free(vaddrs);
}

/*
 * agent/pipeline/module_symbols.h: the symbol tables, debug files and lines of modules. Each is
 * opened when it is first needed, or read ahead for the addresses of a profile.
 *
 * Used by names.c; module_symbols.c has the symbols and module_lines.c the lines.
 */
#ifndef AGENT_PIPELINE_MODULE_SYMBOLS_H
#define AGENT_PIPELINE_MODULE_SYMBOLS_H

#include "agent/opener/opener.h"
#include "agent/pipeline/profile.h"
#include "agent/source/source.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <pthread.h>

struct symbols;

struct module_symbols { /* what one module's file and debug file say about its addresses */
	bool tried;
	struct sym_table *table; /* NULL: none */
	struct sym_table *first; /* an earlier table for some addresses; its names are in use */
	const struct module *module;
	bool stored;	  /* the table came from the store */
	bool tried_again; /* symbols_find has read the file's own, or tried to */
	const char *base; /* base name of the module, for display */
	/* Lines. debug_fd and image refer to the file that has the DWARF. */
	bool lines_tried, debug_tried, has_debug; /* the module's own file has DWARF */
	struct sym_jit *jit; /* of generated code; NULL: no file describes it */
	int debug_fd;	     /* a separate debug file; -1: none */
	struct sym_lines *lines;
	struct sym_debug *debug; /* NULL: not open, or the module has none */
	uint64_t debug_used;
	struct symbols *all;
};

struct symbols_wanted { /* an address that will be looked up */
	const struct module *module;
	uint64_t vaddr;
};

struct symbols { /* of all modules */
	struct opener *opener;
	const struct source_info *info; /* borrowed */
	struct store *store;		/* borrowed; NULL: none */
	/* Read files in errands, which are left behind when they take too long. */
	bool bounded;
	uint64_t n_left_out;	 /* files without names or lines for that reason */
	uint64_t tick;		 /* counts uses of debug information */
	size_t n_debugs;	 /* how many modules' debug information is open */
	pthread_mutex_t opening; /* serializes opening the files that debug information names */
	/*
	 * By module id; owned. Each keeps its module from being forgotten, so its id is not given to
	 * another.
	 */
	struct module_symbols **modules;
	size_t n_modules, n_made;      /* entries, and those that are not NULL */
	struct symbols_wanted *wanted; /* set by symbols_want */
	size_t n_wanted;
};

/* opener and info are borrowed; info is read again when the source has filled in more of it. */
void symbols_init(struct symbols *all, struct opener *opener, const struct source_info *info);
/* Free the symbols and lines, or give to the store what it does not have yet. */
void symbols_fini(struct symbols *all);

/* Return the entry for a module; make one if needed. NULL when out of memory. */
struct module_symbols *symbols_of(struct symbols *all, const struct module *module);
/* Return about how many bytes of memory the symbols and lines of all modules take. */
uint64_t symbols_memory(const struct symbols *all);
/*
 * Remember which locations will be looked up. Without memory nothing is remembered, so whole tables
 * are read.
 */
void symbols_want(struct symbols *all, const struct profile *profile);
/*
 * Open the symbol table of a module, and its debug file if there is one. Tried once for each
 * module.
 */
void symbols_open(struct symbols *all, struct module_symbols *symbols);
/*
 * Look up an address in the table. If that was made for other addresses only (-EAGAIN), or cannot be read from the store
 * any more, read the whole table from the file, once. The first table stays allocated because its names are in use.
 */
int symbols_find(struct symbols *all, struct module_symbols *symbols, uint64_t vaddr,
		 struct sym_symbol *out);
/* Look up generated code in the perf map or jitdump of its process. -ENOENT: nothing is known. */
int symbols_find_jit(struct symbols *all, struct module_symbols *s, uint64_t addr,
		     struct sym_symbol *out);

/* ---- lines (module_lines.c) --------------------------------------------------- */

#define SYMBOLS_PLACES_MAX 128

/*
 * Look up an address's lines; read them from debug information if needed. out has room for
 * SYMBOLS_PLACES_MAX places. Return false if nothing is known.
 */
bool symbols_find_lines(struct symbols *all, struct module_symbols *s, uint64_t vaddr,
			struct sym_place *out, size_t *n);
/*
 * Read the lines for locations sorted by file. Lines that cannot be read now are looked up again
 * later. If all is bounded, read files that only the superuser can have written first, all
 * together. Then read each other file by itself, so that no user's file can use up all the time.
 */
void symbols_prepare_lines(struct symbols *all, const struct location *const *wanted, size_t n);

/* ---- for these files ----------------------------------------------------------- */

/* Return whether only the superuser can have written the module's file. */
bool symbols_is_system(const struct module *module);
/*
 * Return how long an errand for a module's file may take, in ns, so that time is left for the next
 * file.
 */
uint64_t symbols_limit(const struct module *module, uint64_t most_ns);
/* Count a module whose names or lines are given up. */
void symbols_leave_out(struct symbols *all, const struct module *module, const char *what);
/*
 * Note that the file with the module's debug information is being read, for the supervisor: see
 * agent/role/reading.h. Return a number for reading_noted.
 */
int symbols_note(const struct module_symbols *symbols);
/* Fill in the file that the lines belong to: the one that has the DWARF. */
void symbols_lines_file(const struct module_symbols *symbols, struct store_file *out);

#endif

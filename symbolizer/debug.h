/*
 * symbolizer/debug.h: all files of one program's debug information, and what of
 * them is in memory.
 */
#ifndef SYMBOLIZER_DEBUG_H
#define SYMBOLIZER_DEBUG_H

#include "symbolizer/dwarf.h"
#include "symbolizer/lines.h"

struct sym_span { /* code that a unit has */
	uint64_t low, high;
	uint64_t reach; /* the highest end so far */
	uint32_t unit;	/* in main.units */
};

struct sym_origin {		    /* a function that was met as the origin of calls */
	const struct dw_file *file; /* NULL: free */
	uint64_t off;		    /* of its entry in .debug_info */
	uint32_t name, line;
};

struct sym_split { /* a .dwo file */
	struct dw_file file;
	struct sym_split *next;
};

struct sym_debug {
	struct sym_lines *lines;
	struct sym_debug_files files;
	struct dw_budget budget;
	struct dw_file main, alt, package;
	bool has_alt, package_tried, has_package;
	bool nested; /* a function was inside another: leaping over these does not pay */
	struct sym_split *splits; /* owned */
	size_t n_splits;
	struct dw_unit **packaged; /* units of the package; owned */
	size_t n_packaged, room_packaged;
	struct sym_span *spans; /* ascending by low */
	size_t n_spans, room_spans;
	struct sym_origin *origins; /* hashed */
	size_t n_origins, room_origins;
};

/* ---- symbolizer/split.c ---------------------------------------------------------------- */

/* The unit that has the skeleton's entries, its root read; -ENOENT: not to be had. */
int sym_split_unit(struct sym_debug *debug, struct dw_unit *skeleton, struct dw_unit **out);
void sym_split_close(struct sym_debug *debug); /* all of them */

/* ---- symbolizer/scopes.c --------------------------------------------------------------- */

/*
 * Where the unit's functions are; once while it is loaded.  Leaping: those inside others may be
 * missing, which unit->leapt says; asked again without, all are there.
 */
int sym_unit_funcs(struct dw_unit *unit, bool leaping);

struct sym_scopes {
	struct lines_scope *list; /* owned */
	size_t n;
};
/*
 * The function of that entry and what is inlined in it, of [low, high).  skeleton: the unit whose
 * line table numbers the files, which is unit itself where nothing is split (DWARF 5 §7.3.2).
 */
int sym_scopes_read(struct sym_debug *debug, struct dw_unit *unit, uint64_t die,
		    struct dw_unit *skeleton, const char *dir, uint64_t low, uint64_t high,
		    struct sym_scopes *out);

/* ---- symbolizer/debug.c ---------------------------------------------------------------- */

/* A source file's interned path, or LINES_NONE. */
int sym_debug_path(struct sym_debug *debug, const struct dw_file *file, struct dw_table *table,
		   uint32_t index, const char *dir, uint32_t *out);
/* The text of an attribute of the unit's own entry; "" where it has none. */
int sym_unit_text(struct dw_unit *unit, uint16_t attribute, char *out, size_t room);

#endif

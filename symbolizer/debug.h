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
	enum dw_leap leaping;	  /* less, where a function was found in what was leapt over */
	struct sym_split *splits; /* owned */
	size_t n_splits;
	struct dw_unit **packaged; /* units of the package; owned */
	size_t n_packaged, room_packaged;
	bool twin;		/* spans are another's */
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
 * Where the unit's functions are; once while it is loaded.  Leaping, some may be missing, which
 * unit->leapt says; asked again with less, these are there.
 */
int sym_unit_funcs(struct dw_unit *unit, enum dw_leap leaping);

struct sym_cell { /* an address that is asked for, and the code around it of which the same is true */
	uint64_t vaddr;
	uint64_t low, high;
	uint64_t call_low, call_high; /* the stretch of the call that vaddr is in */
	uint32_t call;		      /* which one; LINES_NONE */
};

struct sym_call {	     /* inlined, or the function itself */
	uint32_t parent;     /* what it was inlined in, an earlier one; LINES_NONE */
	uint32_t name, line; /* see schema/lines.h */
	uint32_t call_file, call_line;
};
struct sym_calls {
	struct sym_call *list; /* owned */
	size_t n, room;
};
/*
 * The calls inlined in the function of that entry, as far as the cells' addresses are in them, which
 * are ascending: tells each its call, and narrows it to where nothing else is inlined.  out may be used
 * again.  skeleton: the unit whose line table numbers the files, which is unit itself where nothing
 * is split (DWARF 5 §7.3.2).
 */
int sym_calls_read(struct sym_debug *debug, struct dw_unit *unit, uint64_t die,
		   struct dw_unit *skeleton, const char *dir, struct sym_cell *cells, size_t n,
		   struct sym_calls *out);

/* ---- symbolizer/debug.c ---------------------------------------------------------------- */

/* A source file's interned path, or LINES_NONE. */
int sym_debug_path(struct sym_debug *debug, const struct dw_file *file, struct dw_table *table,
		   uint32_t index, const char *dir, uint32_t *out);
/* The text of an attribute of the unit's own entry; "" where it has none. */
int sym_unit_text(struct dw_unit *unit, uint16_t attribute, char *out, size_t room);

#endif

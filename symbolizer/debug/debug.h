/*
 * symbolizer/debug/debug.h: the debug information of one program: all its files, and which parts of them
 * are in memory.
 */
#ifndef SYMBOLIZER_DEBUG_DEBUG_H
#define SYMBOLIZER_DEBUG_DEBUG_H

#include "base/hash.h"
#include "symbolizer/debug/lines.h"
#include "symbolizer/dwarf/dwarf.h"

/* The work done for one program is limited, to so many times the size of its debug information. */
#define SYM_WORK_TIMES 24

struct sym_span { /* code of a unit */
	uint64_t low, high;
	uint64_t reach; /* the highest end of this span and all before it */
	uint32_t unit;	/* index in main.units */
};

struct sym_origin { /* a cached function that is the origin of inlined calls */
	const struct dw_file *file;
	uint64_t off; /* offset of its entry in .debug_info */
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
	enum dw_skip skipping;	  /* lowered when a function was found in what was skipped */
	struct sym_split *splits; /* owned */
	size_t n_splits;
	struct dw_unit **packaged; /* units of the package (.dwp); owned */
	size_t n_packaged, room_packaged;
	bool shares_spans;	/* spans belong to another sym_debug */
	struct sym_span *spans; /* ascending by low */
	size_t n_spans, room_spans;
	struct sym_origin *origins; /* owned */
	size_t n_origins, room_origins;
	struct uw_hash_index by_origin; /* by file and off */
};

/* ---- symbolizer/debug/links.c ---------------------------------------------------------------- */

/* Find the build-id of an image. -ENOENT: it has none. */
int sym_elf_build_id(const struct uw_elf *image, struct uw_build_id *out);
/*
 * Read .gnu_debugaltlink: the path of a file that several debug files share, and its build-id. The
 * caller frees *path. -ENOENT, -EBADMSG.
 */
int sym_elf_alt_link(const struct uw_elf *image, char **path, struct uw_build_id *build_id);

/* ---- symbolizer/debug/spans.c ---------------------------------------------------------------- */

/* Find the code ranges of all units and sort them. */
int sym_spans_find(struct sym_debug *debug, const struct uw_elf *image);
/*
 * Return the unit whose code contains vaddr; NULL: none. Narrow [*low, *high) to the range around
 * vaddr in which no other unit begins or ends.
 */
struct dw_unit *sym_spans_unit(const struct sym_debug *debug, uint64_t vaddr, uint64_t *low,
			       uint64_t *high);

/* ---- symbolizer/debug/split.c ---------------------------------------------------------------- */

/*
 * Return the unit that has the entries of a skeleton unit, with its root read. -ENOENT: not
 * available.
 */
int sym_split_unit(struct sym_debug *debug, struct dw_unit *skeleton, struct dw_unit **out);
void sym_split_close(struct sym_debug *debug); /* closes all .dwo files */

/* ---- symbolizer/debug/scopes.c --------------------------------------------------------------- */

/* Forget all cached origins. A file that is closed may have some. */
void sym_origins_forget(struct sym_debug *debug);

/*
 * Find where the unit's functions are; once while it is loaded. With skipping, some may be missing,
 * and unit->skipped is set. A call with less skipping adds these.
 */
int sym_unit_funcs(struct dw_unit *unit, enum dw_skip skipping);

struct sym_cell { /* an address that is looked up, and the code around it with the same result */
	uint64_t vaddr;
	uint64_t low, high;
	uint64_t call_low, call_high; /* the range of the innermost call that contains vaddr */
	uint32_t call;		      /* index of that call; LINES_NONE */
};

struct sym_call {	     /* an inlined call, or the function itself */
	uint32_t parent;     /* what it was inlined in, an earlier entry; LINES_NONE */
	uint32_t name, line; /* see schema/lines_blob.h */
	uint32_t call_file, call_line;
};
struct sym_calls {
	struct sym_call *list; /* owned */
	size_t n, room;
};
/*
 * Read the calls inlined in the function at offset die, as far as they contain addresses of the
 * cells. The cells are ascending. Set each cell's call, and narrow the cell to the range where
 * nothing else is inlined. out may be reused. skeleton is the unit whose line table numbers the
 * files; it is unit itself unless the unit is split (DWARF 5 §7.3.2).
 */
int sym_calls_read(struct sym_debug *debug, struct dw_unit *unit, uint64_t die,
		   struct dw_unit *skeleton, const char *dir, struct sym_cell *cells, size_t n,
		   struct sym_calls *out);

/* ---- symbolizer/debug/debug.c ---------------------------------------------------------------- */

/* Set *out to the interned path of a source file, or LINES_NONE. -ENOMEM, … */
int sym_debug_path(struct sym_debug *debug, const struct dw_file *file, struct dw_table *table,
		   uint32_t index, const char *dir, uint32_t *out);
/* Read the text of an attribute of the unit's own entry; "" if it has none. */
int sym_unit_text(struct dw_unit *unit, uint16_t attribute, char *out, size_t room);

#endif

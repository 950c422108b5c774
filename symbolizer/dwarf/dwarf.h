/*
 * symbolizer/dwarf/dwarf.h: reads DWARF 2 to 5 as far as names and source lines need it: units, entries
 * (DIEs), their attributes, and line tables. Sections are read piece by piece.
 *
 * offwind has its own reader because the reader gets untrusted files and must stay small. It opens
 * nothing by itself, limits what it reads and how much work it does, and reads packages (.dwp),
 * which libdw of Debian 12 does not. The tests compare it with libdw, address by address.
 */
#ifndef SYMBOLIZER_DWARF_DWARF_H
#define SYMBOLIZER_DWARF_DWARF_H

#include "base/bytes.h"
#include "symbolizer/elf/section.h"

struct dw_spec {
	uint16_t name, form;
	/* In units with the table's sizes: */
	uint16_t at;	  /* constant offset in the entry's attributes, or DW_NO_PLACE */
	uint8_t size;	  /* its size in bytes; DW_NO_SIZE */
	int64_t implicit; /* value of DW_FORM_implicit_const */
};
#define DW_NO_PLACE UINT16_MAX
#define DW_NO_SIZE  UINT8_MAX

/* The attributes of an inlined call. */
enum dw_call {
	DW_CALL_ORIGIN,
	DW_CALL_LOW,
	DW_CALL_HIGH,
	DW_CALL_RANGES,
	DW_CALL_FILE,
	DW_CALL_LINE,
	DW_CALL_N
};
#define DW_CALL_NAMES                                                           \
	[DW_CALL_ORIGIN] = DW_AT_abstract_origin, [DW_CALL_LOW] = DW_AT_low_pc, \
	[DW_CALL_HIGH] = DW_AT_high_pc, [DW_CALL_RANGES] = DW_AT_ranges,        \
	[DW_CALL_FILE] = DW_AT_call_file, [DW_CALL_LINE] = DW_AT_call_line

struct dw_abbrev {
	uint64_t code;
	uint32_t first, n; /* range in specs */
	uint16_t tag;
	bool children;
	bool function;	/* a function with DW_AT_low_pc or DW_AT_ranges */
	uint8_t skip;	/* enum dw_skip: when its children are skipped; DW_SKIP_N: never */
	uint16_t fixed; /* size of all attributes in bytes, if constant; DW_NO_PLACE */
	uint32_t steps; /* index of its first step in the table; DW_NO_STEPS */
	uint16_t call[DW_CALL_N]; /* inlined call: index of each attribute, from 1; 0: none */
};
#define DW_NO_STEPS UINT32_MAX

/*
 * Which entries' children are skipped in the search for functions, if the compiler states where
 * they end (DW_AT_sibling).
 */
enum dw_skip {
	DW_SKIP_NONE,
	DW_SKIP_CLOSED, /* children of types and functions, which seldom have code of their own */
	DW_SKIP_SPACES, /* of namespaces, too: with siblings, functions are defined outside */
	DW_SKIP_N
};

/* The summary of an abbreviation that a scan needs to pass over an entry of no interest. */
struct dw_abbrev_summary {
	/* as in dw_abbrev; DW_NO_PLACE: the entry is of interest, or needs its full abbreviation */
	uint16_t fixed;
	uint8_t skip; /* as in dw_abbrev */
	uint8_t children;
};

/* A step over an entry's attributes: a number of bytes, then one attribute of variable size. */
struct dw_step {
	uint32_t bytes;
	uint8_t then; /* enum dw_then */
};
enum dw_then { DW_THEN_END, DW_THEN_LEB, DW_THEN_BLOCK, DW_THEN_BLOCK1, DW_THEN_TEXT };

struct dw_abbrevs { /* an abbreviation table; shared by the units that refer to it */
	uint64_t off;
	uint32_t refs;
	struct dw_abbrev *abbrevs; /* ascending by code */
	struct dw_spec *specs;
	/* For units with these sizes; for other units the attributes are read one by one. */
	struct dw_step *steps;
	/* Indexed by code; NULL: the codes are not 1, 2, 3, … */
	struct dw_abbrev_summary *summaries;
	uint8_t addr_size, off_size, ref_size;
	uint32_t n, n_specs, n_steps;
};

enum { DW_ABBREVS_CACHED = 64 };

struct dw_budget {	       /* shared by all files of one program */
	uint64_t spent, limit; /* work done, mostly bytes read; limits the cost of a hostile file */
	uint64_t held;	       /* bytes of units in memory */
};

struct dw_unit;

/* Memory reused for the next unit or line program: new pages cost more than the reading. */
struct dw_spare {
	uint8_t *bytes; /* owned; NULL: none */
	uint64_t room;
	uint64_t most; /* the largest size that will be requested; 0: unknown */
};

struct dw_file { /* one ELF file with debug information */
	struct sym_section info, abbrev, line, str, line_str, str_offsets, addr, ranges, rnglists;
	struct sym_section cu_index; /* of a package (.dwp) */
	struct dw_file *alt;	     /* .gnu_debugaltlink; borrowed; NULL: none */
	struct dw_abbrevs *cached[DW_ABBREVS_CACHED];
	struct dw_unit *units; /* owned; ascending by off */
	size_t n_units;
	struct dw_spare unit_spare, line_spare;
	int fd; /* closed with the file; -1: none */
	bool split;
	struct dw_budget *budget; /* borrowed */
};

struct dw_value {
	uint16_t form;	     /* 0: the attribute is missing */
	uint64_t u;	     /* number, offset or index */
	const uint8_t *data; /* inline text or block inside the unit; borrowed */
};

/* Where a unit's parts of a package's sections begin. */
struct dw_slices {
	uint64_t abbrev, str_offsets, rnglists;
};

struct dw_row { /* a row of a line table */
	uint64_t addr;
	uint32_t file; /* DW_ROW_END: the sequence ended before addr */
	uint32_t line;
};
#define DW_ROW_END UINT32_MAX

struct dw_name {	    /* name of a source file or directory */
	uint64_t off;	    /* offset in .debug_line, .debug_line_str or .debug_str */
	uint32_t directory; /* for files: index of the directory */
	uint8_t where;	    /* enum dw_where */
	uint32_t interned;  /* free for the user of the table; 0 at first */
};
enum dw_where { DW_IN_LINE, DW_IN_LINE_STR, DW_IN_STR, DW_IN_ALT, DW_NOWHERE };

struct dw_table {	     /* one unit's line table */
	struct dw_row *rows; /* ascending by address; owned, like the other arrays */
	size_t n_rows;
	struct dw_name *directories, *files;
	size_t n_directories, n_files;
	uint16_t version;
};

/* Return how much memory a table takes. */
static inline size_t dw_table_memory(const struct dw_table *t)
{
	return t->n_rows * sizeof(*t->rows) +
	       (t->n_directories + t->n_files) * sizeof(struct dw_name);
}

struct dw_func { /* code of one function */
	uint64_t low, high;
	uint64_t die; /* offset of its entry in the unit */
};

struct dw_root { /* the unit's own (root) entry */
	bool read;
	uint16_t tag;
	bool children;
	struct dw_value name, dir, low, high, ranges, stmt, dwo_name;
	uint64_t low_pc;
	uint64_t str_base, addr_base, rnglists_base, ranges_base;
	uint64_t dwo_id;
};

struct dw_unit {
	struct dw_file *file;
	uint64_t off, size; /* bytes in .debug_info, with the header */
	uint64_t abbrev_off, id;
	uint16_t version;
	uint8_t type, addr_size, off_size;
	uint8_t header; /* size of the header in bytes */
	struct dw_slices at;
	struct dw_root root;
	const struct dw_unit *skeleton; /* for a split unit: the unit that has its addresses */
	struct dw_unit *split;		/* for a skeleton: the split unit, after it was looked up */
	bool split_searched, split_missing, split_counted;
	bool lines_tried, funcs_tried;
	enum dw_skip skipping; /* how much was skipped in the search for funcs */
	bool skipped;	       /* children were skipped, so functions may be missing in funcs */
	bool in_aranges;
	bool asked; /* something of the unit was read before */
	/* Only while the unit is loaded: */
	const uint8_t *bytes; /* the whole unit; NULL: not loaded */
	uint8_t *owned;
	uint64_t room; /* size of owned */
	struct dw_abbrevs *abbrevs;
	bool sized;		/* abbrevs were prepared for this unit's sizes */
	struct dw_table *table; /* NULL: none, or not read */
	struct dw_func *funcs;	/* ascending by low */
	uint64_t *reach;	/* for each func: the highest end of it and all before it */
	size_t n_funcs;
};

struct dw_die {
	struct dw_unit *unit;
	uint64_t off; /* offset in the unit */
	const struct dw_abbrev *abbrev;
	const uint8_t *attributes; /* borrowed from the unit */
};

/* ---- symbolizer/dwarf/dwarf_file.c: files ------------------------------------------------- */

/*
 * Open the debug sections of an image. -ENOENT: it has no debug information. The image's descriptor
 * must stay open as long as the file.
 */
int dw_file_open(const struct uw_elf *image, bool split, struct dw_budget *budget,
		 struct dw_file *out);
/*
 * Open the same file again, sharing what of has unpacked. of must outlive the result. The units are
 * copied unloaded.
 */
int dw_file_new_reader(const struct dw_file *of, struct dw_budget *budget, struct dw_file *out);
/* Return how much memory the file's sections take that were unpacked. */
uint64_t dw_file_memory(struct dw_file *file);
void dw_file_close(struct dw_file *file);

/* ---- symbolizer/dwarf/dwarf_unit.c: units -------------------------------------------------- */

/* Find where the units are; once. */
int dw_file_units(struct dw_file *file);
/* Return the unit that contains off. -EBADMSG: none; -ENOTSUP: of an unknown version. */
int dw_file_unit(struct dw_file *file, uint64_t off, struct dw_unit **out);

int dw_unit_root(struct dw_unit *unit); /* read unit->root; once */
int dw_unit_load(struct dw_unit *unit); /* read the unit's bytes and abbreviations */
void dw_unit_unload(struct dw_unit *unit);
void dw_unit_forget_table(struct dw_unit *unit);
void dw_unit_forget_funcs(struct dw_unit *unit);
/* Return memory for size bytes; its real size is *room. NULL when out of memory. */
uint8_t *dw_spare_take(struct dw_spare *spare, uint64_t size, uint64_t *room);
/* Give back memory from dw_spare_take for reuse. */
void dw_spare_give(struct dw_spare *spare, uint8_t *bytes, uint64_t room);
/* Read a unit's header at off. Only dw_file_units and packages need this. */
int dw_unit_header(struct dw_file *file, uint64_t off, struct dw_unit *out);

/* ---- symbolizer/dwarf/dwarf_abbrev.c: abbreviations ---------------------------------------- */

/*
 * Take the unit's table of abbreviations from the cache of its file, or read it, and set
 * unit->abbrevs. The unit has a reference to it.
 */
int dw_abbrevs_get(struct dw_unit *unit);
/* Drop one reference to a table; the last one frees it. NULL is fine. */
void dw_abbrevs_put(struct dw_abbrevs *abbrevs);

/* ---- symbolizer/dwarf/dwarf_die.c: entries and attributes -------------------------------- */

/*
 * Read the entry that begins at off in a loaded unit. Return 1; 0 if it is the null entry that ends
 * a list of children, with *next after it; -EBADMSG; or -E2BIG if the budget is spent.
 */
int dw_die_at(struct dw_unit *unit, uint64_t off, struct dw_die *out, uint64_t *next);
/* Find the end of the entry's attributes, where the next entry begins. */
int dw_die_end(const struct dw_die *die, uint64_t *end);
/* Read the attributes of an inlined call's entry, as dw_die_values does. */
int dw_die_call(const struct dw_die *die, struct dw_value out[DW_CALL_N], uint64_t *end);
/*
 * Find the next entry at or after *off that is a function with code of its own. *depth is the
 * number of open lists of children. Return 1; 0: there is none; -EBADMSG, -ENOTSUP. *skipped is set
 * if children were skipped.
 */
int dw_die_next_function(struct dw_unit *unit, uint64_t *off, size_t *depth, enum dw_skip skipping,
			 bool *skipped, struct dw_die *out);
/*
 * Skip the entry's children, if the entry states where they end. On entry *end is the end of its
 * attributes. Return whether they were skipped.
 */
bool dw_die_skip_children(const struct dw_die *die, uint64_t *end);
/* Read the named attributes, in the order of names; form is 0 for an attribute that is missing. */
int dw_die_values(const struct dw_die *die, const uint16_t *names, size_t n, struct dw_value *out,
		  uint64_t *end);
/* Find the entry that an attribute refers to, in any unit or file. */
int dw_die_refers(const struct dw_unit *unit, const struct dw_value *value, struct dw_die *out);

/* Read one attribute. out may be NULL. */
int dw_value_read(const struct dw_unit *unit, struct uw_bytes *c, const struct dw_spec *spec,
		  struct dw_value *out);

/* ---- symbolizer/dwarf/dwarf_value.c: what values mean -------------------------------------- */

/* Read an address, directly or through .debug_addr. */
int dw_value_addr(const struct dw_unit *unit, const struct dw_value *value, uint64_t *out);
/* Copy the text of an attribute, as sym_section_text does. -ENOENT: it is not text. */
int dw_value_text(const struct dw_unit *unit, const struct dw_value *value, char *out, size_t room);
int64_t dw_value_number(const struct dw_value *value); /* value of constants; 0 for other forms */

struct dw_range {
	uint64_t low, high;
};
struct dw_ranges {
	struct dw_range *list; /* owned */
	size_t n, room;
	size_t most; /* ranges; 0: as many as a function may have */
};
/*
 * Append the code ranges that low and high or ranges state. Empty ranges and those at 0 are left
 * out.
 */
int dw_ranges_add(const struct dw_unit *unit, const struct dw_value *low,
		  const struct dw_value *high, const struct dw_value *ranges,
		  struct dw_ranges *out);

/* ---- symbolizer/dwarf/dwarf_line.c --------------------------------------------------------- */

/*
 * Read the line table at off in the file's .debug_line. addr_size is that of the units that refer
 * to it. wanted: read only the rows that cover these ascending addresses; NULL: read all rows.
 */
int dw_table_read(struct dw_file *file, uint64_t off, uint8_t addr_size, const uint64_t *wanted,
		  size_t n_wanted, struct dw_table **out);
void dw_table_free(struct dw_table *table); /* NULL is fine */
/* Find the row that covers addr, and the address of the next row. -ENOENT. */
int dw_table_find(const struct dw_table *table, uint64_t addr, const struct dw_row **out,
		  uint64_t *end);
/*
 * Write the file's full path, as far as the table and dir (the unit's directory) state it. Return
 * its length, or -ENOENT.
 */
int dw_table_path(const struct dw_file *file, const struct dw_table *table, uint32_t index,
		  const char *dir, char *out, size_t room);

#endif

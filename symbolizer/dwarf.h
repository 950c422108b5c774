/*
 * symbolizer/dwarf.h: DWARF 2 to 5 as far as names and lines of code need it: units,
 * entries (DIEs), their attributes, and line tables.  Sections are read piece by piece.
 *
 * A reader of its own, because this one has to be fed files from strangers and stay small: it opens
 * nothing by itself, bounds what it reads and what it spends, and reads packages (.dwp), which
 * Debian 12's libdw does not.  The tests compare it with libdw, address by address.
 */
#ifndef SYMBOLIZER_DWARF_H
#define SYMBOLIZER_DWARF_H

#include "symbolizer/cursor.h"
#include "symbolizer/section.h"

struct dw_spec {
	uint16_t name, form;
	/* In units with the table's sizes: */
	uint16_t at;	  /* bytes before it, where they do not depend on the entry; DW_NO_PLACE */
	uint8_t size;	  /* its own; DW_NO_SIZE */
	int64_t implicit; /* of DW_FORM_implicit_const */
};
#define DW_NO_PLACE UINT16_MAX
#define DW_NO_SIZE  UINT8_MAX

/* What an inlined call's entry says of it. */
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
	uint32_t first, n; /* in specs */
	uint16_t tag;
	bool children;
	bool function;	/* a function with DW_AT_low_pc or DW_AT_ranges */
	uint8_t leap;	/* enum dw_leap: who may leap over its children; DW_LEAP_N: they cannot */
	uint16_t fixed; /* bytes of all attributes, where no entry has others; DW_NO_PLACE */
	uint32_t steps; /* where its own begin in the table's; DW_NO_STEPS */
	uint16_t call[DW_CALL_N]; /* an inlined call's: which of its specs, from 1; 0: none */
};
#define DW_NO_STEPS UINT32_MAX

/* Whose children are not looked for functions, where the compiler says how far these reach. */
enum dw_leap {
	DW_LEAP_NONE,
	DW_LEAP_CLOSED, /* types' and other functions', which seldom have code of their own */
	DW_LEAP_SPACES, /* namespaces', too: compilers that leap define functions outside */
	DW_LEAP_N
};

/* Of an abbreviation what a walk over entries that are nothing to it needs. */
struct dw_glance {
	uint16_t fixed; /* as above; DW_NO_PLACE: it is something, or takes more than a glance */
	uint8_t leap;	/* as above */
	uint8_t children;
};

/* How to get over an entry's attributes: so many bytes, then one whose size stands in it. */
struct dw_step {
	uint32_t bytes;
	uint8_t then; /* enum dw_then */
};
enum dw_then { DW_THEN_END, DW_THEN_LEB, DW_THEN_BLOCK, DW_THEN_BLOCK1, DW_THEN_TEXT };

struct dw_abbrevs { /* one table; shared by the units that name it */
	uint64_t off;
	uint32_t refs;
	struct dw_abbrev *abbrevs; /* ascending by code */
	struct dw_spec *specs;
	/* For units with these sizes; for others the attributes are read one by one. */
	struct dw_step *steps;
	/* By code; NULL: codes are not 1, 2, 3, … */
	struct dw_glance *glances;
	uint8_t addr_size, off_size, ref_size;
	uint32_t n, n_specs, n_steps;
};

enum { DW_ABBREVS_CACHED = 64 };

struct dw_budget {	       /* of all files that belong together */
	uint64_t spent, limit; /* bytes looked at; a hostile file has no more to offer than time */
	uint64_t held;	       /* bytes of units in memory */
};

struct dw_unit;

/* Memory that the next unit or line program is read into: fresh pages cost more than reading. */
struct dw_spare {
	uint8_t *bytes; /* owned; NULL: none */
	uint64_t room;
	uint64_t most; /* what will be asked for, as far as is known; 0: nobody knows */
};

struct dw_file { /* one ELF file with debug information */
	struct sym_section info, abbrev, line, str, line_str, str_offsets, addr, ranges, rnglists;
	struct sym_section cu_index; /* of a package */
	struct dw_file *alt;	     /* .gnu_debugaltlink; borrowed; NULL: none */
	struct dw_abbrevs *cached[DW_ABBREVS_CACHED];
	struct dw_unit *units; /* owned; ascending by off */
	size_t n_units;
	struct dw_spare unit_spare, line_spare;
	int fd; /* to be closed with it; -1 */
	bool split;
	struct dw_budget *budget; /* borrowed */
};

struct dw_value {
	uint16_t form;	     /* 0: the attribute is not there */
	uint64_t u;	     /* the number, offset or index */
	const uint8_t *data; /* inline text or block, inside the unit; borrowed */
};

/* A unit's own place in a package's sections. */
struct dw_slices {
	uint64_t abbrev, str_offsets, rnglists;
};

struct dw_row { /* of a line table */
	uint64_t addr;
	uint32_t file; /* DW_ROW_END: the sequence ended before addr */
	uint32_t line;
};
#define DW_ROW_END UINT32_MAX

struct dw_name {	   /* of a source file, or of a folder */
	uint64_t off;	   /* in .debug_line, .debug_line_str or .debug_str */
	uint32_t folder;   /* files: their folder */
	uint8_t where;	   /* enum dw_where */
	uint32_t interned; /* for the user: 0 at first */
};
enum dw_where { DW_IN_LINE, DW_IN_LINE_STR, DW_IN_STR, DW_IN_ALT, DW_NOWHERE };

struct dw_table {	     /* one unit's line table */
	struct dw_row *rows; /* ascending by address; owned, as the others */
	size_t n_rows;
	struct dw_name *folders, *files;
	size_t n_folders, n_files;
	uint16_t version;
};

struct dw_func { /* code of one function */
	uint64_t low, high;
	uint64_t die; /* offset in the unit */
};

struct dw_root { /* the unit's own entry */
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
	uint64_t off, size; /* with its header, in .debug_info */
	uint64_t abbrev_off, id;
	uint16_t version;
	uint8_t type, addr_size, off_size;
	uint8_t header; /* bytes before the first entry */
	struct dw_slices at;
	struct dw_root root;
	const struct dw_unit *skeleton; /* of a split unit: where its addresses are */
	struct dw_unit *split;		/* of a skeleton, once it was sought */
	bool split_sought, split_missing;
	bool lines_tried, funcs_tried;
	enum dw_leap leaping; /* how funcs were looked for */
	bool leapt;	      /* something was leapt over: functions may be missing in funcs */
	bool in_aranges;
	bool asked; /* something of it was read already */
	/* While it is loaded. */
	const uint8_t *bytes; /* all of it; NULL: not loaded */
	uint8_t *owned;
	uint64_t room; /* in owned */
	struct dw_abbrevs *abbrevs;
	bool sized;		/* these know its sizes */
	struct dw_table *table; /* NULL: none or not read */
	struct dw_func *funcs;	/* ascending by low */
	uint64_t *reach;	/* by func: the highest end so far */
	size_t n_funcs;
};

struct dw_die {
	struct dw_unit *unit;
	uint64_t off; /* in the unit */
	const struct dw_abbrev *abbrev;
	const uint8_t *attributes; /* borrowed from the unit */
};

/* ---- symbolizer/dwarf_file.c: files, units, abbreviations ------------------------ */

/* -ENOENT: no debug information in it.  image's fd is borrowed for the file's life. */
int dw_file_open(const struct sym_image *image, bool split, struct dw_budget *budget,
		 struct dw_file *out);
/* With what of has unpacked, which outlives it; into its units nobody has looked. */
int dw_file_twin(const struct dw_file *of, struct dw_budget *budget, struct dw_file *out);
void dw_file_close(struct dw_file *file);
/* Finds where the units are; once. */
int dw_file_units(struct dw_file *file);
/* The unit that off lies in; -EBADMSG. */
int dw_file_unit(struct dw_file *file, uint64_t off, struct dw_unit **out);

int dw_unit_root(struct dw_unit *unit); /* reads unit->root; once */
int dw_unit_load(struct dw_unit *unit); /* the bytes and the abbreviations */
void dw_unit_unload(struct dw_unit *unit);
void dw_unit_forget_table(struct dw_unit *unit);
void dw_unit_forget_funcs(struct dw_unit *unit);
/* Memory for size bytes, of what there is room bytes; NULL. */
uint8_t *dw_spare_take(struct dw_spare *spare, uint64_t size, uint64_t *room);
void dw_spare_give(struct dw_spare *spare, uint8_t *bytes, uint64_t room);
/* Reads a unit's header at off; only dw_file_units and packages need it. */
int dw_unit_header(struct dw_file *file, uint64_t off, struct dw_unit *out);

/* ---- symbolizer/dwarf_die.c: entries and attributes -------------------------------- */

/*
 * The entry that begins at off: 1; 0: it is the null that ends a list of children, *next behind it;
 * -EBADMSG; -E2BIG: the budget is spent.  The unit is loaded.
 */
int dw_die_at(struct dw_unit *unit, uint64_t off, struct dw_die *out, uint64_t *next);
/* Where the entry's attributes end: the next entry. */
int dw_die_end(const struct dw_die *die, uint64_t *end);
/* What an inlined call's entry says, as dw_die_values. */
int dw_die_call(const struct dw_die *die, struct dw_value out[DW_CALL_N], uint64_t *end);
/*
 * The next entry at or behind *off that is a function with code of its own, in lists of children of
 * which *depth are open: 1; 0: there is none; -EBADMSG, -ENOTSUP.  *leapt is set where something was
 * leapt over.
 */
int dw_die_next_function(struct dw_unit *unit, uint64_t *off, size_t *depth, enum dw_leap leaping,
			 bool *leapt, struct dw_die *out);
/* Behind the entry's children, where it says where that is; *end the end of its attributes. */
bool dw_die_leap(const struct dw_die *die, uint64_t *end);
/* Values of the attributes named, in that order; form 0 where one is not there. */
int dw_die_values(const struct dw_die *die, const uint16_t *names, size_t n, struct dw_value *out,
		  uint64_t *end);
/* The entry that an attribute refers to, in whatever unit or file. */
int dw_die_refers(const struct dw_unit *unit, const struct dw_value *value, struct dw_die *out);

/* Reads one attribute; out may be NULL. */
int dw_value_read(const struct dw_unit *unit, struct sym_cursor *c, const struct dw_spec *spec,
		  struct dw_value *out);
int dw_value_addr(const struct dw_unit *unit, const struct dw_value *value, uint64_t *out);
/* As sym_section_text; -ENOENT: no text. */
int dw_value_text(const struct dw_unit *unit, const struct dw_value *value, char *out, size_t room);
int64_t dw_value_number(const struct dw_value *value); /* of constants; 0 for others */

struct dw_range {
	uint64_t low, high;
};
struct dw_ranges {
	struct dw_range *list; /* owned */
	size_t n, room;
};
/* Appends the code that low, high or ranges state; what is empty or at 0 is left out. */
int dw_ranges_add(const struct dw_unit *unit, const struct dw_value *low,
		  const struct dw_value *high, const struct dw_value *ranges,
		  struct dw_ranges *out);

/* ---- symbolizer/dwarf_line.c --------------------------------------------------------- */

/*
 * The line table at off in the file's .debug_line; addr_size: of units that name it.  wanted: of its
 * rows those that cover these addresses, which are ascending; NULL: all.
 */
int dw_table_read(struct dw_file *file, uint64_t off, uint8_t addr_size, const uint64_t *wanted,
		  size_t n_wanted, struct dw_table **out);
void dw_table_free(struct dw_table *table); /* NULL is fine */
/* The row that covers addr, and where the next one begins; -ENOENT. */
int dw_table_find(const struct dw_table *table, uint64_t addr, const struct dw_row **out,
		  uint64_t *end);
/*
 * The file's whole path, as far as the table and dir (the unit's folder) tell; its length or
 * -ENOENT.
 */
int dw_table_path(const struct dw_file *file, const struct dw_table *table, uint32_t index,
		  const char *dir, char *out, size_t room);

#endif

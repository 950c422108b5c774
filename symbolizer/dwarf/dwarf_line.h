/*
 * symbolizer/dwarf/dwarf_line.h: what the parts of the line table's reader share: dwarf_line.c,
 * dwarf_line_names.c and dwarf_line_sort.c.
 */
#ifndef SYMBOLIZER_DWARF_DWARF_LINE_H
#define SYMBOLIZER_DWARF_DWARF_LINE_H

#include "symbolizer/dwarf/dwarf.h"

struct dw_sequence { /* a sequence of rows */
	size_t first, past;
	uint64_t start, end; /* set by dw_table_sort */
};

/* A line program while its lists of directories and files are read into the table. */
struct dw_line_lists {
	struct dw_unit unit; /* version and sizes for reading the forms in the header */
	uint64_t off;	     /* offset of bytes in .debug_line */
	const uint8_t *bytes;
	struct dw_table *table;
	size_t room_files, room_directories;
};

/* ---- symbolizer/dwarf/dwarf_line_names.c --------------------------------------------------- */

/* Read both lists; c is at the first one. -EBADMSG, -E2BIG, -ENOMEM. */
int dw_line_lists_read(struct dw_line_lists *lists, struct uw_bytes *c);
/*
 * Read what follows the name in a file's entry of versions 2 to 4, and add the file. The program
 * itself can contain such an entry, too. text is in lists->bytes.
 */
int dw_line_older_file(struct dw_line_lists *lists, struct uw_bytes *c, const char *text);

/* ---- symbolizer/dwarf/dwarf_line_sort.c ---------------------------------------------------- */

/* Sort the rows by address. The sequences are in the order of their rows, and are reordered. */
int dw_table_sort(struct dw_table *table, struct dw_sequence *sequences, size_t n);

#endif

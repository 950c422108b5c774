/*
 * schema/lines_blob.h: line numbers and inlined calls of one file, as far as they were needed. The bytes
 * are the same in memory and in a store.
 *
 * All numbers are little-endian, and the bytes are read in place: a header, pieces by ascending
 * start, rows, scopes, then the names, each NUL-terminated. A piece is a range of code that was
 * looked up completely. Usually it is code of one line and one chain of inlined calls. It may also
 * be a whole function, code outside of all functions, or code about which the file says nothing.
 * Code between pieces was not looked up.
 *
 *   piece   start …… size          rows [row, row + n_rows), scopes [scope, scope + n_scopes)
 *   row     the file and the line of the code from here on
 *   scope   the function, or inlined call, to which the code from start to end belongs; up is
 *           the scope that contains it
 */
#ifndef SCHEMA_LINES_BLOB_H
#define SCHEMA_LINES_BLOB_H

#include <linux/types.h>

#define LINES_MAGIC   0x4e4c574fu /* "OWLN" */
#define LINES_VERSION 1
#define LINES_READER  1u /* raised when the same file gives other lines */
#define LINES_NONE    0xffffffffu

struct lines_header {
	__u32 magic;
	__u16 version;
	__u16 header_size;
	__u64 size;	/* of the whole */
	__u64 checksum; /* XXH64 of the whole, seed 0, with this field as 0 */
	__u64 key;	/* set by the store: identifies the file from which this was made */
	__u32 n_pieces;
	__u32 n_rows;
	__u32 n_scopes;
	__u32 names_size;
	__u32 reader; /* LINES_READER */
	__u8 spare[12];
};

struct lines_piece {
	__u64 start; /* vaddr; pieces do not overlap */
	__u32 size;  /* > 0 */
	__u32 row, n_rows;
	__u32 scope, n_scopes;
	__u32 spare;
};

struct lines_row {
	__u32 at;   /* offset from the piece's start; ascending */
	__u32 file; /* offset in the names; LINES_NONE: unknown */
	__u32 line; /* 0: unknown */
};

struct lines_scope {
	__u32 start, end; /* offsets from the piece's start; ascending by start; end > start */
	__u32 name;	  /* linkage name, or else the name in the source; LINES_NONE: unknown */
	__u32 line;	  /* of its declaration; 0: unknown */
	__u32 call_file;  /* of an inlined call: the file of the call; LINES_NONE: unknown */
	__u32 call_line;
	__u32 up; /* an earlier scope, by its number in the piece; LINES_NONE: none */
};

_Static_assert(sizeof(struct lines_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct lines_header, checksum) == 16, "checksum");
_Static_assert(sizeof(struct lines_piece) == 32, "piece");
_Static_assert(sizeof(struct lines_row) == 12, "row");
_Static_assert(sizeof(struct lines_scope) == 28, "scope");

#endif

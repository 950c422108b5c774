/*
 * schema/lines.h: lines of code and inlined calls of one file, as far as they
 * were asked for: the same bytes in memory and in a store.
 *
 * Little-endian, read in place: a header, pieces ascending by start, rows,
 * scopes, then the names, each ended by a NUL.  A piece is code of which all is
 * known that was to be known: of one line and one chain of inlined calls as
 * a rule, of a whole function, of none, or of which nothing is told.  What is
 * between pieces was not looked for.
 *
 *   piece   start …… size          rows [row, row + n_rows), scopes [scope, scope + n_scopes)
 *   row     at which line of which file the code stands from here on
 *   scope   which function, or inlined call of one, the code from start to end belongs to; up: the
 *           scope that it lies in
 */
#ifndef SCHEMA_LINES_H
#define SCHEMA_LINES_H

#include <linux/types.h>

#define LINES_MAGIC   0x4e4c574fu /* "OWLN" */
#define LINES_VERSION 1
#define LINES_READER  1u /* raised when the same file gives other lines */
#define LINES_NONE    0xffffffffu

struct lines_header {
	__u32 magic;
	__u16 version;
	__u16 header_size;
	__u64 size;	/* of it all */
	__u64 checksum; /* XXH64 of it all, seed 0, this field as 0 */
	__u64 key;	/* the keeper's: which file it was made from */
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
	__u32 at;   /* from the piece's start; ascending */
	__u32 file; /* offset in the names; LINES_NONE: not known */
	__u32 line; /* 0: not known */
};

struct lines_scope {
	__u32 start, end; /* from the piece's start; ascending by start; end > start */
	__u32 name;	  /* as linked, or else as written; LINES_NONE */
	__u32 line;	  /* where it is declared; 0: not known */
	__u32 call_file;  /* of an inlined call: where from; LINES_NONE */
	__u32 call_line;
	__u32 up; /* an earlier scope of the piece, counted from its first; LINES_NONE */
};

_Static_assert(sizeof(struct lines_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct lines_header, checksum) == 16, "checksum");
_Static_assert(sizeof(struct lines_piece) == 32, "piece");
_Static_assert(sizeof(struct lines_row) == 12, "row");
_Static_assert(sizeof(struct lines_scope) == 28, "scope");

#endif

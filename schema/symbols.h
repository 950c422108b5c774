/*
 * schema/symbols.h: one file's function symbols, sorted and chosen: the same
 * bytes in memory and in a store.
 *
 * Little-endian, read in place, of a table.h's kind (blob.h): a header, sums, and the
 * addresses of entries 0, SYMBOLS_GROUP, …; behind the front n entries, ascending by
 * addr, then the names, each ended by a NUL.
 */
#ifndef SCHEMA_SYMBOLS_H
#define SCHEMA_SYMBOLS_H

#include <linux/types.h>

#include "schema/blob.h"

#define SYMBOLS_MAGIC	0x5953574fu /* "OWSY" */
#define SYMBOLS_VERSION 3
#define SYMBOLS_READER	1u /* raised when the same file gives other symbols */
#define SYMBOLS_NONE	0xffffffffu
#define SYMBOLS_OPEN	(1u << 31)
#define SYMBOLS_GROUP	256u

struct symbols_header {
	struct blob_header blob;
	__u64 key; /* the keeper's: which file it was made from */
	__u32 n;
	__u32 names_size;
	__s32 damage; /* why a part of the file was left out: a negative errno value, or 0 */
	__u32 reader; /* SYMBOLS_READER */
	__u32 group;  /* offset of the groups' addresses: u64 each */
	__u8 spare[4];
};

struct symbols_entry {
	__u64 addr;
	__u64 end;  /* > addr */
	__u32 name; /* offset in the names; SYMBOLS_OPEN: its size was not told */
	__u32 up;   /* the entry it lies in, an earlier one; SYMBOLS_NONE */
};

_Static_assert(sizeof(struct symbols_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct symbols_header, group) == 56, "group");
_Static_assert(sizeof(struct symbols_entry) == 24, "entry");

#endif

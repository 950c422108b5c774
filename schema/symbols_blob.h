/*
 * schema/symbols_blob.h: one file's function symbols, selected and sorted. The bytes are the same in
 * memory and in a store.
 *
 * All numbers are little-endian, and the bytes are read in place, as those of table_blob.h (see blob.h):
 * a header, sums, and the addresses of entries 0, SYMBOLS_GROUP, …; behind the front n entries,
 * ascending by addr, then the names, each NUL-terminated.
 */
#ifndef SCHEMA_SYMBOLS_BLOB_H
#define SCHEMA_SYMBOLS_BLOB_H

#include <linux/types.h>

#include "schema/blob.h"

#define SYMBOLS_MAGIC	0x5953574fu /* "OWSY" */
#define SYMBOLS_VERSION 3
#define SYMBOLS_READER	3u /* raised when the same file gives other symbols */
#define SYMBOLS_NONE	0xffffffffu
#define SYMBOLS_OPEN	(1u << 31)
#define SYMBOLS_GROUP	256u

struct symbols_header {
	struct blob_header blob;
	__u64 key; /* set by the store: identifies the file from which this was made */
	__u32 n;
	__u32 names_size;
	__s32 damage; /* negative errno value if part of the file was left out, else 0 */
	__u32 reader; /* SYMBOLS_READER */
	__u32 group;  /* offset of the groups' addresses: u64 each */
	__u8 spare[4];
};

struct symbols_entry {
	__u64 addr;
	__u64 end;  /* > addr */
	__u32 name; /* offset in the names; SYMBOLS_OPEN: the file states no size */
	__u32 up;   /* number of an earlier entry that contains this one; SYMBOLS_NONE */
};

_Static_assert(sizeof(struct symbols_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct symbols_header, group) == 56, "group");
_Static_assert(sizeof(struct symbols_entry) == 24, "entry");

#endif

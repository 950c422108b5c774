/*
 * schema/export_file.h: layout of a file in which a store exports one unwind table.
 *
 *   table     schema/table_blob.h
 *   ranges    schema/procs_blob.h; may be missing
 *   trailer   struct export_trailer
 *
 * Each blob contains its own size. All numbers are little-endian.
 */
#ifndef SCHEMA_EXPORT_FILE_H
#define SCHEMA_EXPORT_FILE_H

#include <linux/types.h>

#define EXPORT_MAGIC   0x5845574fu /* "OWEX" */
#define EXPORT_VERSION 1u

struct export_trailer {
	__u32 magic;
	__u32 version;
	__u8 identity[32]; /* SHA-256 of what the table was made from */
	__u64 checksum;	   /* XXH64 of the fields above, seed 0 */
};

_Static_assert(sizeof(struct export_trailer) == 48, "trailer");
_Static_assert(__builtin_offsetof(struct export_trailer, checksum) == 40, "checksum");

#endif

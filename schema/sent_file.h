/*
 * schema/sent_file.h: how far each target got to which windows are sent: the file NAME-history.db-sent
 * beside the history.
 *
 *   0    struct sent_header
 *   64   SENT_SLOTS times struct sent_slot
 *
 * A slot is written by one pwrite(2) and lies in one sector, so that it is old or new as a whole. Numbers have the
 * byte order of the machine: the file is not moved to others.
 */
#ifndef SCHEMA_SENT_FILE_H
#define SCHEMA_SENT_FILE_H

#include <linux/types.h>

#define SENT_MAGIC 0x31544e4553574f46ULL /* "FOWSENT1" */
#define SENT_SLOTS 64

struct sent_header {
	__u64 magic;
	__u64 unused[7];
};

struct sent_slot {
	__u8 target[32]; /* SHA-256 of kind, newline and URL; all 0: the slot is not in use */
	__s64 id;	 /* struct history_place (agent/history/history.h) */
	__u64 end_ns;
	__u64 passed;
	__u64 unused;
};

_Static_assert(sizeof(struct sent_header) == 64, "a slot does not cross a sector");
_Static_assert(sizeof(struct sent_slot) == 64, "a slot does not cross a sector");

#endif

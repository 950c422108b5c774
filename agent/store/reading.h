/*
 * agent/store/reading.h: reads blobs of the database: as a whole, or piece by piece as an object or
 * a symbol table needs them.
 */
#ifndef AGENT_STORE_READING_H
#define AGENT_STORE_READING_H

#include "agent/store/session.h"

/*
 * Begin to read a blob lazily; the owner of *out releases it. Return -ENOMEM or what opening the
 * blob failed with.
 */
int reading_begin(struct store *s, const struct reading *what, struct uw_kept *out);
/*
 * Read a whole blob into memory aligned to BLOB_ALIGN; the caller frees *out. -EBADMSG: the row has
 * no such blob, or the database's pages are damaged.
 */
int reading_whole(struct store *s, const struct reading *what, void **out, size_t *size);

#endif

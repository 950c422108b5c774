/*
 * agent/store/stored_blob.h: reads the store's blobs: as a whole, or piece by piece, on the store's
 * connection or on a separate one.
 */
#ifndef AGENT_STORE_STORED_BLOB_H
#define AGENT_STORE_STORED_BLOB_H

#include "agent/store/session.h"

/* Prepare the two readers of a store that is being opened. */
void reading_init(struct store *s);
/* End all reading, and close the separate connection. */
void reading_fini(struct store *s);

/* Open the files of the connection for reading beside, while this process can. */
void reading_open_files(struct store *s);

/*
 * Begin to read a blob lazily; the owner of *out releases it. Return -ENOMEM or what opening the
 * blob failed with.
 */
int reading_begin(struct store *s, const struct blob_place *place, struct uw_blob_source *out);
/*
 * Read a whole blob into memory aligned to BLOB_ALIGN; the caller frees *out. -EBADMSG: the row has
 * no such blob, or the database's pages are damaged.
 */
int reading_whole(struct store *s, const struct blob_place *place, void **out, size_t *size);

#endif

/*
 * agent/store/identity.h: which file is which, so that no stranger's stands in for another.
 *
 * A build-id, a size and a time are claims.  What the store keeps is known by the SHA-256 of the
 * bytes it was made from, and by an inode only where the file system and the owner vouch for it.
 */
#ifndef AGENT_STORE_IDENTITY_H
#define AGENT_STORE_IDENTITY_H

#include "agent/store/store.h"

#define IDENTITY_SIZE 32 /* SHA-256 */

struct identity {
	uint8_t bytes[IDENTITY_SIZE];
};

/* Hash everything that the object's table and ranges are made from; reads the sections.  -ENOMEM. */
int identity_of_object(struct uw_object *object, struct identity *out);
/* Hash what the system says of a file and, where id is not NULL, its build-id. */
void identity_of_file(const struct store_file *file, const struct uw_build_id *id,
		      struct identity *out);

/*
 * Return whether a user may answer for a file that is gone: root, the user who runs this process,
 * and behind sudo the user who called it.
 */
bool identity_is_trusted(int64_t owner);

#endif

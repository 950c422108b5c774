/*
 * agent/store/identity.h: tells files apart securely, so that no other user's file is taken for
 * another.
 *
 * A build-id, a size and a time are only claims. The store identifies what it contains by the
 * SHA-256 of the bytes that it was made from. It identifies a file by its inode only if the file
 * system and the owner vouch for the inode.
 */
#ifndef AGENT_STORE_IDENTITY_H
#define AGENT_STORE_IDENTITY_H

#include "agent/store/store.h"

#define IDENTITY_SIZE 32 /* SHA-256 */

struct identity {
	uint8_t bytes[IDENTITY_SIZE];
};

/*
 * Hash everything that the object's table and ranges are made from. This reads the unwind sections.
 * -ENOMEM.
 */
int identity_of_object(struct uw_object *object, struct identity *out);
/* Hash what fstat(2) says of a file and, if id is not NULL, its build-id. */
void identity_of_file(const struct store_file *file, const struct uw_build_id *id,
		      struct identity *out);

/* Hash all bytes of a file. -EFBIG: it has more than 64 MiB. */
int identity_of_contents(int fd, struct identity *out);

/* Note the user and the root directory of this process, as long as it has them: before the sandbox. */
void identity_init(void);

/*
 * Return whether a user may vouch for a file that no longer exists: root, the user who runs this
 * process, and under sudo the user who called it (SUDO_UID).
 */
bool identity_is_trusted(int64_t owner);

#endif

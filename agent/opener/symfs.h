/*
 * agent/opener/symfs.h: finds files below --symfs by their base names. Needed for files that lie
 * there under a path other than the recorded one: a library's real path instead of its link's, /lib
 * instead of /usr/lib.
 */
#ifndef AGENT_OPENER_SYMFS_H
#define AGENT_OPENER_SYMFS_H

#include <stddef.h>

struct symfs;

/*
 * Read the names of all files below root, without following links. Only the first 200,000 files are
 * read. -ENOMEM.
 */
int symfs_new(const char *root, struct symfs **out);
void symfs_free(struct symfs *symfs); /* NULL is fine */

/*
 * Return the path, relative to root, of file number i with the base name of path. NULL: there are
 * no more. Borrowed.
 */
const char *symfs_find(const struct symfs *symfs, const char *path, size_t i);

#endif

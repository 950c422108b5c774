/*
 * agent/send/htlhash.h: a hash of a file's head, tail and length, by which receivers of OTLP know programs: 4,096 bytes of each end
 * (https://opentelemetry.io/docs/specs/otel/profiles/mappings).
 */
#ifndef AGENT_SEND_HTLHASH_H
#define AGENT_SEND_HTLHASH_H

#include "agent/export/profile/stacks.h"

enum { HTLHASH_TEXT = 33 }; /* with its NUL */

struct htlhashes; /* of files that were met before */

int htlhashes_new(struct htlhashes **out); /* -ENOMEM */
void htlhashes_free(struct htlhashes *h);

/*
 * Return the hash of a module's file in hexadecimal digits, borrowed until the next call; NULL: this host has no such file that
 * everybody may read. Such a file is looked for again after an hour.
 */
const char *htlhash_of(struct htlhashes *h, const struct stacks_module *module);

/* Write the hash of an open file of that size. Return 0 or a negative code. */
int htlhash_file(int fd, size_t size, char out[HTLHASH_TEXT]);

#endif

/* proto/gzip.h: compresses whole messages. */
#ifndef PROTO_GZIP_H
#define PROTO_GZIP_H

#include <stddef.h>
#include <stdint.h>

/*
 * Replace *bytes, which malloc gave, by its gzip form; level is 1 to 9. The gzip header has no name and the
 * time 0, so that the same bytes always give the same. -ENOMEM: *bytes is as it was.
 */
int gzip_replace(uint8_t **bytes, size_t *size, int level);

#endif

/* unwinder/checksum.h: XXH64, against accidents; whoever means harm can compute it too. */
#ifndef UNWINDER_CHECKSUM_H
#define UNWINDER_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t uw_checksum(const void *data, size_t size, uint64_t seed);

#endif

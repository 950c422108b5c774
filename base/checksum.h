/*
 * base/checksum.h: XXH64 checksums. They detect accidental damage, not forgery: anybody can
 * compute them.
 */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "unwinder/unwinder.h" /* uw_checksum, which owners of stored blobs need too */

#endif

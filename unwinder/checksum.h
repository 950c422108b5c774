/* unwinder/checksum.h: XXH64, against accidents; whoever means harm can compute it too. */
#ifndef UNWINDER_CHECKSUM_H
#define UNWINDER_CHECKSUM_H

#include "unwinder/unwinder.h" /* uw_checksum, which keepers of blobs need too */

#endif

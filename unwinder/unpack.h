/*
 * unwinder/unpack.h: bounded decompression of ELF sections.
 *
 * Out is the caller's to free.  -EBADMSG damaged or not the size it claims,
 * -ENOTSUP more than cap or an unknown format, -ENOMEM, -ECANCELED the thread
 * was told to stop (uw_unpack_unless, unwinder.h).
 */
#ifndef UNWINDER_UNPACK_H
#define UNWINDER_UNPACK_H

#include <stddef.h>
#include <stdint.h>

/* size: what the section claims to hold, exactly. */
int uw_unpack_zlib(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out);
int uw_unpack_zstd(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out);

/* xz does not say up front; at most cap bytes. */
int uw_unpack_xz(const uint8_t *in, size_t in_size, uint64_t cap, uint8_t **out, size_t *size);

#endif

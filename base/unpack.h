/*
 * base/unpack.h: bounded decompression of ELF sections.
 *
 * The caller frees *out. -EBADMSG: the input is damaged, or its size is not as claimed. -ENOTSUP:
 * the output is larger than cap. -ENOMEM. -ECANCELED: the thread's stop function said so
 * (uw_unpack_unless, unwinder.h).
 */
#ifndef BASE_UNPACK_H
#define BASE_UNPACK_H

#include <stddef.h>
#include <stdint.h>

/*
 * The largest window of a zstd frame, as log2: 256 MiB. A frame in one segment has all of its
 * content as window, and the unwinder reads sections of up to that size. A decoder may allocate as
 * much.
 */
#define UW_ZSTD_WINDOW_LOG_MAX 28

/* Decompress a section. size is exactly what the section claims to contain. */
int uw_unpack_zlib(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out);
int uw_unpack_zstd(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out);

/*
 * Decompress xz data, whose size is not known beforehand, to at most cap bytes. -ENOTSUP is also
 * for data that takes too much memory to decode.
 */
int uw_unpack_xz(const uint8_t *in, size_t in_size, uint64_t cap, uint8_t **out, size_t *size);

#endif

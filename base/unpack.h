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

/*
 * Call this before size bytes of a file are read or unpacked into memory. It is for threads with a
 * stop function; others never wait and never fail. All of them together hold 384 MiB at most, with
 * what they kept. -ECANCELED: others are using it, and the stop function said so meanwhile; -E2BIG:
 * this thread would exceed it even if it were the only one.
 */
int uw_unpack_reserve(uint64_t size);
/*
 * Let what the calling thread has reserved stay reserved until uw_unpack_release is called with
 * *bytes. -E2BIG: since uw_unpack_unless, something was refused.
 */
int uw_unpack_keep(uint64_t *bytes);
void uw_unpack_release(uint64_t bytes);

#endif

/* symbolizer/xz.h: unpacks the ELF file inside .gnu_debugdata (MiniDebugInfo). */
#ifndef SYMBOLIZER_XZ_H
#define SYMBOLIZER_XZ_H

#include <stddef.h>
#include <stdint.h>

/*
 * Unpack one .xz stream. The caller frees *out. -EBADMSG: damaged. -E2BIG: more than a
 * MiniDebugInfo may have: 256 MiB unpacked, or a decoder of more than 128 MiB (xz -9 needs 65 MiB).
 */
int sym_xz_unpack(const void *packed, size_t size, void **out, size_t *out_size);

#endif

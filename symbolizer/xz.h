/* symbolizer/xz.h: the ELF file packed inside .gnu_debugdata (MiniDebugInfo). */
#ifndef SYMBOLIZER_XZ_H
#define SYMBOLIZER_XZ_H

#include <stddef.h>
#include <stdint.h>

/*
 * Unpacks one .xz stream; *out is the caller's to free.  -EBADMSG damaged,
 * -E2BIG beyond what a MiniDebugInfo may be: 256 MiB, or a decoder of more than
 * 128 MiB (xz -9 needs 65).
 */
int sym_xz_unpack(const void *packed, size_t size, void **out, size_t *out_size);

#endif

/*
 * symbolizer/debug/lines_pack.h: the flat arrays of lines and inlined calls, and their stored form.
 */
#ifndef SYMBOLIZER_DEBUG_LINES_PACK_H
#define SYMBOLIZER_DEBUG_LINES_PACK_H

#include "schema/lines_blob.h"

#include <stddef.h>
#include <stdint.h>

/* Limits above what any profile looks up. Addresses beyond these limits get no lines. */
#define SYM_LINES_PIECES_MAX ((size_t)1 << 20)
#define SYM_LINES_ROWS_MAX   ((size_t)6 << 20)
#define SYM_LINES_SCOPES_MAX ((size_t)2 << 20)
#define SYM_LINES_NAMES_MAX  ((size_t)64 << 20)

struct sym_flat { /* borrowed arrays; the pieces are ascending */
	const struct lines_piece *pieces;
	const struct lines_row *rows;
	const struct lines_scope *scopes;
	const char *names;
	size_t n_pieces, n_rows, n_scopes, names_size;
};

/*
 * Make a blob of the pieces of both, in the order of their addresses; the caller frees it. Fresh
 * pieces with spare set are left out. -E2BIG, -ENOMEM.
 */
int sym_flat_pack(const struct sym_flat *stored, const struct sym_flat *fresh, uint64_t key,
		  void **blob, size_t *size);
/*
 * Set *out to the arrays in a blob, and check that no lookup can read outside the blob. What is in
 * a piece is not checked. -EBADMSG: damaged; -ENOTSUP: of another version; -ENOENT: of another key.
 */
int sym_flat_check(const void *blob, size_t size, uint64_t key, struct sym_flat *out);

#endif

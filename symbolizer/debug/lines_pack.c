/*
 * symbolizer/debug/lines_pack.c: converts lines and inlined calls to bytes for storage, and back
 * (schema/lines_blob.h).
 */
#include "symbolizer/debug/lines_pack.h"

#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t checksum_of(const void *blob, size_t size)
{
	struct lines_header header;

	memcpy(&header, blob, sizeof(header));
	header.checksum = 0;
	return uw_checksum((const uint8_t *)blob + sizeof(header), size - sizeof(header),
			   uw_checksum(&header, sizeof(header), 0));
}

struct packing {
	struct lines_piece *piece;
	struct lines_row *row;
	struct lines_scope *scope;
	uint32_t n_rows, n_scopes;
};

static uint32_t moved(uint32_t name, uint32_t by)
{
	return name == LINES_NONE ? name : name + by;
}

/* Append a piece to the packed arrays. names is added to the offsets of its names. */
static void pack_piece(struct packing *to, const struct sym_flat *f, const struct lines_piece *p,
		       uint32_t names)
{
	struct lines_piece piece = *p;

	piece.row = to->n_rows;
	piece.scope = to->n_scopes;
	*to->piece++ = piece;
	for (uint32_t i = 0; i < p->n_rows; i++) {
		struct lines_row row = f->rows[p->row + i];

		row.file = moved(row.file, names);
		to->row[to->n_rows++] = row;
	}
	for (uint32_t i = 0; i < p->n_scopes; i++) {
		struct lines_scope scope = f->scopes[p->scope + i];

		scope.name = moved(scope.name, names);
		scope.call_file = moved(scope.call_file, names);
		to->scope[to->n_scopes++] = scope;
	}
}

/*
 * Merge the two sorted lists. The names of fresh follow those of stored, so the offsets in fresh
 * pieces grow by the size of stored's names.
 */
int sym_flat_pack(const struct sym_flat *stored, const struct sym_flat *fresh, uint64_t key,
		  void **blob, size_t *size)
{
	struct lines_header h = { .magic = LINES_MAGIC,
				  .version = LINES_VERSION,
				  .header_size = sizeof(h),
				  .key = key,
				  .reader = LINES_READER };
	struct packing to = { 0 };
	size_t i = 0, j = 0, n_pieces = stored->n_pieces, n_rows = stored->n_rows,
	       n_scopes = stored->n_scopes;
	uint8_t *out;

	for (size_t k = 0; k < fresh->n_pieces; k++) {
		if (fresh->pieces[k].spare)
			continue;
		n_pieces++;
		n_rows += fresh->pieces[k].n_rows;
		n_scopes += fresh->pieces[k].n_scopes;
	}
	if (n_pieces > SYM_LINES_PIECES_MAX || n_rows > SYM_LINES_ROWS_MAX ||
	    n_scopes > SYM_LINES_SCOPES_MAX ||
	    stored->names_size + fresh->names_size > SYM_LINES_NAMES_MAX)
		return -E2BIG;
	h.n_pieces = (uint32_t)n_pieces;
	h.n_rows = (uint32_t)n_rows;
	h.n_scopes = (uint32_t)n_scopes;
	h.names_size = (uint32_t)(stored->names_size + fresh->names_size);
	h.size = sizeof(h) + n_pieces * sizeof(*to.piece) + n_rows * sizeof(*to.row) +
		 n_scopes * sizeof(*to.scope) + h.names_size;
	out = malloc(h.size);
	if (!out)
		return -ENOMEM;
	to.piece = (struct lines_piece *)(void *)(out + sizeof(h));
	to.row = (struct lines_row *)(void *)(to.piece + n_pieces);
	to.scope = (struct lines_scope *)(void *)(to.row + n_rows);
	if (stored->names_size)
		memcpy(to.scope + n_scopes, stored->names, stored->names_size);
	if (fresh->names_size)
		memcpy((char *)(to.scope + n_scopes) + stored->names_size, fresh->names,
		       fresh->names_size);
	while (i < stored->n_pieces || j < fresh->n_pieces) {
		if (j < fresh->n_pieces && fresh->pieces[j].spare)
			j++;
		else if (j >= fresh->n_pieces ||
			 (i < stored->n_pieces && stored->pieces[i].start < fresh->pieces[j].start))
			pack_piece(&to, stored, &stored->pieces[i++], 0);
		else
			pack_piece(&to, fresh, &fresh->pieces[j++], (uint32_t)stored->names_size);
	}
	memcpy(out, &h, sizeof(h));
	h.checksum = checksum_of(out, h.size);
	memcpy(out, &h, sizeof(h));
	*blob = out;
	*size = h.size;
	return 0;
}

static int check_piece(const struct lines_piece *p, const struct sym_flat *f, uint64_t *last)
{
	if (p->start < *last || !p->size || p->size > UINT64_MAX - p->start || p->row > f->n_rows ||
	    p->n_rows > f->n_rows - p->row || p->scope > f->n_scopes ||
	    p->n_scopes > f->n_scopes - p->scope || p->spare)
		return -EBADMSG;
	*last = p->start + p->size;
	return 0;
}

int sym_flat_check(const void *blob, size_t size, uint64_t key, struct sym_flat *f)
{
	const struct lines_header *h = blob;
	uint64_t last = 0, want;

	if (size < sizeof(*h) || h->magic != LINES_MAGIC)
		return -EBADMSG;
	if (h->version != LINES_VERSION || h->reader != LINES_READER)
		return -ENOTSUP;
	want = sizeof(*h) + (uint64_t)h->n_pieces * sizeof(*f->pieces) +
	       (uint64_t)h->n_rows * sizeof(*f->rows) + (uint64_t)h->n_scopes * sizeof(*f->scopes) +
	       h->names_size;
	if (h->size != size || h->header_size != sizeof(*h) || want != size ||
	    h->checksum != checksum_of(h, size))
		return -EBADMSG;
	if (h->key != key)
		return -ENOENT;
	*f = (struct sym_flat){ .n_pieces = h->n_pieces,
				.n_rows = h->n_rows,
				.n_scopes = h->n_scopes,
				.names_size = h->names_size };
	f->pieces = (const struct lines_piece *)(const void *)(h + 1);
	f->rows = (const struct lines_row *)(const void *)(f->pieces + f->n_pieces);
	f->scopes = (const struct lines_scope *)(const void *)(f->rows + f->n_rows);
	f->names = (const char *)(f->scopes + f->n_scopes);
	if (f->names_size && f->names[f->names_size - 1])
		return -EBADMSG;
	for (size_t i = 0; i < f->n_pieces; i++) {
		int err = check_piece(&f->pieces[i], f, &last);

		if (err)
			return err;
	}
	return 0;
}

/* symbolizer/keep.c: symbol tables as bytes that outlive the run (schema/symbols.h). */
#include "symbolizer/symbolizer.h"

#include "schema/symbols.h"
#include "symbolizer/table.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct sym_entry) == sizeof(struct symbols_entry) &&
		       offsetof(struct sym_entry, name) == offsetof(struct symbols_entry, name) &&
		       offsetof(struct sym_entry, aux) == offsetof(struct symbols_entry, up) &&
		       SYM_ENTRY_OPEN == SYMBOLS_OPEN,
	       "entries are used as they are kept");

static uint64_t checksum_of(const void *blob, size_t size)
{
	struct symbols_header header;

	memcpy(&header, blob, sizeof(header));
	header.checksum = 0;
	return uw_checksum((const uint8_t *)blob + sizeof(header), size - sizeof(header),
			   uw_checksum(&header, sizeof(header), 0));
}

int sym_table_pack(const struct sym_table *table, uint64_t key, void **blob, size_t *size)
{
	struct symbols_header h = { .magic = SYMBOLS_MAGIC,
				    .version = SYMBOLS_VERSION,
				    .header_size = sizeof(h),
				    .key = key,
				    .n = (__u32)table->n_entries,
				    .damage = table->damage,
				    .reader = SYMBOLS_READER };
	size_t entries = table->n_entries * sizeof(*table->entries);
	uint8_t *out;

	h.names_size = (__u32)table->names_size;
	h.size = sizeof(h) + entries + table->names_size;
	out = malloc(h.size);
	if (!out)
		return -ENOMEM;
	memcpy(out, &h, sizeof(h));
	if (entries)
		memcpy(out + sizeof(h), table->entries, entries);
	if (table->names_size)
		memcpy(out + sizeof(h) + entries, table->names, table->names_size);
	h.checksum = checksum_of(out, h.size);
	memcpy(out, &h, sizeof(h));
	*blob = out;
	*size = h.size;
	return 0;
}

/* No look-up can read outside the blob or go round in it. */
static int check(const struct symbols_header *h, size_t size, uint64_t key)
{
	const struct symbols_entry *e = (const struct symbols_entry *)(const void *)(h + 1);
	const char *names;
	uint64_t last = 0;

	if (size < sizeof(*h) || h->magic != SYMBOLS_MAGIC)
		return -EBADMSG;
	if (h->version != SYMBOLS_VERSION || h->reader != SYMBOLS_READER)
		return -ENOTSUP;
	if (h->size != size || h->header_size != sizeof(*h) ||
	    size - sizeof(*h) != (uint64_t)h->n * sizeof(*e) + h->names_size ||
	    h->checksum != checksum_of(h, size) || h->damage > 0)
		return -EBADMSG;
	if (h->key != key)
		return -ENOENT;
	names = (const char *)(e + h->n);
	if (h->n && (!h->names_size || names[h->names_size - 1]))
		return -EBADMSG;
	for (uint32_t i = 0; i < h->n; i++) {
		if (e[i].addr < last || e[i].end <= e[i].addr ||
		    (e[i].name & ~SYMBOLS_OPEN) >= h->names_size ||
		    (e[i].up != SYMBOLS_NONE && e[i].up >= i))
			return -EBADMSG;
		last = e[i].addr;
	}
	return 0;
}

int sym_table_unpack(void *blob, size_t size, uint64_t key, struct sym_table **out)
{
	struct symbols_header *h = blob;
	int err = check(h, size, key);
	struct sym_table *table = err ? NULL : calloc(1, sizeof(*table));

	if (!table) {
		free(blob);
		return err ? err : -ENOMEM;
	}
	table->blob = blob;
	table->entries = (struct sym_entry *)(void *)(h + 1);
	table->n_entries = h->n;
	table->names = (char *)(table->entries + h->n);
	table->names_size = h->names_size;
	table->damage = h->damage;
	*out = table;
	return 0;
}

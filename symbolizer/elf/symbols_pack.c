/* symbolizer/elf/symbols_pack.c: converts symbol tables to bytes for storage, and back (schema/symbols_blob.h). */
#include "symbolizer/symbolizer.h"

#include "schema/symbols_blob.h"
#include "symbolizer/elf/symbol_table.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct sym_entry) == sizeof(struct symbols_entry) &&
		       offsetof(struct sym_entry, name) == offsetof(struct symbols_entry, name) &&
		       offsetof(struct sym_entry, aux) == offsetof(struct symbols_entry, up) &&
		       SYM_ENTRY_OPEN == SYMBOLS_OPEN,
	       "entries are used as they are stored");

static size_t groups_of(size_t n)
{
	return n / SYMBOLS_GROUP + (n % SYMBOLS_GROUP != 0);
}

/*
 * The parts are, in this order: header, checksums of the blocks, the first address of each group,
 * entries, names. All before the entries is read when the blob is opened.
 */
int sym_table_pack(const struct sym_table *table, uint64_t key, void **blob, size_t *size)
{
	size_t n = table->n_entries, entries = n * sizeof(*table->entries);
	size_t rest = entries + table->names_size, group, front;
	struct symbols_header h = { .blob = { .magic = SYMBOLS_MAGIC,
					      .version = SYMBOLS_VERSION,
					      .header_size = sizeof(h) },
				    .key = key,
				    .n = (__u32)n,
				    .names_size = (__u32)table->names_size,
				    .damage = table->damage,
				    .reader = SYMBOLS_READER };
	uint8_t *out;
	int err = table->lazy_names ? -ENOTSUP : table->stored ? uw_blob_whole(table->stored) : 0;

	if (err)
		return err;
	group = sizeof(h) + uw_blob_sums(rest);
	front = group + groups_of(n) * sizeof(uint64_t);
	out = malloc(front + rest);
	if (!out)
		return -ENOMEM;
	h.group = (__u32)group;
	h.blob.front = (__u32)front;
	h.blob.size = front + rest;
	memcpy(out, &h, sizeof(h));
	for (size_t i = 0; i < n; i += SYMBOLS_GROUP)
		memcpy(out + group + i / SYMBOLS_GROUP * sizeof(uint64_t), &table->entries[i].addr,
		       sizeof(uint64_t));
	if (entries)
		memcpy(out + front, table->entries, entries);
	if (table->names_size)
		memcpy(out + front + entries, table->names, table->names_size);
	uw_blob_seal(out);
	*blob = out;
	*size = front + rest;
	return 0;
}

/* Check the front of a stored table and set up the table. The front is in memory. */
static int open_front(const struct symbols_header *h, uint64_t key, struct sym_table *out)
{
	uint64_t entries = (uint64_t)h->n * sizeof(struct symbols_entry);
	const uint8_t *bytes = (const uint8_t *)h;

	if (h->blob.magic != SYMBOLS_MAGIC)
		return -EBADMSG;
	if (h->blob.version != SYMBOLS_VERSION || h->blob.header_size != sizeof(*h) ||
	    h->reader != SYMBOLS_READER)
		return -ENOTSUP;
	if (h->blob.size - h->blob.front != entries + h->names_size || h->group % 8 ||
	    h->group < sizeof(*h) || h->group > h->blob.front ||
	    groups_of(h->n) * sizeof(uint64_t) > h->blob.front - h->group || h->damage > 0 ||
	    (h->n && !h->names_size))
		return -EBADMSG;
	if (h->key != key)
		return -ENOENT;
	*out = (struct sym_table){
		.entries = (struct sym_entry *)(uintptr_t)(bytes + h->blob.front),
		.n_entries = h->n,
		.names = (char *)(uintptr_t)(bytes + h->blob.front + entries),
		.names_size = h->names_size,
		.damage = h->damage,
		.group = (const uint64_t *)(const void *)(bytes + h->group),
	};
	return 0;
}

/* Check everything that a lookup uses of entry i. */
static bool is_sound(const struct sym_table *t, size_t i)
{
	const struct sym_entry *e = &t->entries[i];

	return e->end > e->addr && (e->name & ~SYM_ENTRY_OPEN) < t->names_size &&
	       (e->aux == SYMBOLS_NONE || e->aux < i);
}

/* Check that no lookup can read outside the blob or loop. */
static int check(const void *blob, size_t size, uint64_t key, struct sym_table *out)
{
	uint64_t last = 0;
	int err = size < sizeof(struct symbols_header) ? -EBADMSG : uw_blob_check(blob, size);

	if (!err)
		err = open_front(blob, key, out);
	if (err)
		return err;
	if (out->n_entries && out->names[out->names_size - 1])
		return -EBADMSG;
	for (size_t i = 0; i < out->n_entries; i++) {
		if (out->entries[i].addr < last || !is_sound(out, i))
			return -EBADMSG;
		last = out->entries[i].addr;
	}
	return 0;
}

int sym_table_unpack(void *blob, size_t size, uint64_t key, struct sym_table **out)
{
	struct sym_table made, *table = NULL;
	int err = check(blob, size, key, &made);

	if (!err) {
		table = malloc(sizeof(*table));
		err = table ? 0 : -ENOMEM;
	}
	if (err) {
		free(blob);
		return err;
	}
	*table = made;
	table->blob = blob;
	*out = table;
	return 0;
}

/* ---- tables that are read when needed -------------------------------------------------------- */

int sym_table_take_stored(const struct uw_blob_source *stored, uint64_t key, struct sym_table **out)
{
	struct sym_table *table = calloc(1, sizeof(*table));
	const struct blob_header *h;
	struct uw_blob *blob = NULL;
	int err = uw_blob_open(stored, SYMBOLS_MAGIC, &blob);

	if (!err && !table)
		err = -ENOMEM;
	if (!err) {
		h = uw_blob_bytes(blob);
		err = h->header_size < sizeof(struct symbols_header)
			      ? -ENOTSUP
			      : open_front((const struct symbols_header *)h, key, table);
	}
	if (err) {
		uw_blob_free(blob);
		free(table);
		return err;
	}
	table->stored = blob;
	*out = table;
	return 0;
}

static uint64_t offset_of(const struct sym_table *t, const void *place)
{
	return (uint64_t)((const uint8_t *)place - (const uint8_t *)uw_blob_bytes(t->stored));
}

int sym_keep_have(const struct sym_table *t, size_t from, size_t past)
{
	if (!t->stored || from == past)
		return 0;
	return uw_blob_need(t->stored, offset_of(t, t->entries + from),
			    (past - from) * sizeof(*t->entries));
}

int sym_keep_need(const struct sym_table *t, size_t i)
{
	int err = sym_keep_have(t, i, i + 1);

	return err || !t->stored || is_sound(t, i) ? err : -EBADMSG;
}

int sym_keep_need_name(const struct sym_table *t, uint32_t name)
{
	size_t at = name;

	/* Read block after block until one contains the end of the name. */
	while (t->stored) {
		size_t left = t->names_size - at, piece = left < 64 ? left : 64;
		int err = uw_blob_need(t->stored, offset_of(t, t->names + at), piece);

		if (err || memchr(t->names + at, 0, piece))
			return err;
		at += piece;
		if (at == t->names_size)
			return -EBADMSG;
	}
	return 0;
}

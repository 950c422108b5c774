/*
 * unwinder/table/procs.c: makes, checks and searches the sorted ranges of an object's procedures
 * (schema/procs_blob.h).
 */
#include "unwinder/table/procs.h"

#include "base/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Return how many groups n entries make. */
static size_t groups_of(uint32_t n)
{
	return n / PROCS_GROUP + (n % PROCS_GROUP != 0);
}

/*
 * Check the header and set the pointers. The entries begin after the front, and nothing follows
 * them.
 */
static int open_front(struct uw_procs *procs, const void *blob)
{
	const struct procs_header *h = blob;

	if (h->blob.magic != PROCS_MAGIC)
		return -EBADMSG;
	if (h->blob.version != PROCS_VERSION || h->blob.header_size != sizeof(*h))
		return -ENOTSUP;
	if (h->blob.size - h->blob.front != (uint64_t)h->n * sizeof(struct procs_entry) ||
	    h->group % 8 || h->group < sizeof(*h) || h->group > h->blob.front ||
	    groups_of(h->n) * sizeof(uint32_t) > h->blob.front - h->group)
		return -EBADMSG;
	*procs = (struct uw_procs){
		.header = h,
		.entries = (const void *)((const uint8_t *)blob + h->blob.front),
		.group = (const void *)((const uint8_t *)blob + h->group),
	};
	return 0;
}

int uw_procs_open(struct uw_procs *procs, const void *blob, size_t size)
{
	struct uw_procs p;
	const struct procs_entry *e;
	uint64_t last = 0;
	int err = size < sizeof(*p.header) ? -EBADMSG : uw_blob_check(blob, size);

	if (!err)
		err = open_front(&p, blob);
	if (err)
		return err;
	e = p.entries;
	for (uint32_t i = 0; i < p.header->n; i++) {
		if (e[i].start < last || !e[i].size ||
		    (i % PROCS_GROUP == 0 && p.group[i / PROCS_GROUP] != e[i].start))
			return -EBADMSG;
		last = (uint64_t)e[i].start + e[i].size;
	}
	if (last > UINT64_MAX - p.header->base)
		return -EBADMSG;
	*procs = p;
	return 0;
}

int uw_procs_open_stored(struct uw_procs *procs, struct uw_blob *blob)
{
	const struct blob_header *h = uw_blob_bytes(blob);
	int err = h->header_size < sizeof(struct procs_header) ? -ENOTSUP : open_front(procs, h);

	if (!err)
		procs->stored = blob;
	return err;
}

/* ---- building ----------------------------------------------------------------------- */

struct range {
	uint64_t start, size;
};

UW_ORDER_2(compare, struct range, start, size)

/* Sort the ranges and remove duplicates. -ENOTSUP: two overlap, or they span too much. */
static int tidy(struct range *ranges, size_t *n)
{
	size_t n_left = 0;
	bool sorted = true;

	for (size_t i = 1; i < *n && sorted; i++)
		sorted = compare(&ranges[i - 1], &ranges[i]) <= 0;
	if (!sorted)
		qsort(ranges, *n, sizeof(*ranges), compare);
	for (size_t i = 0; i < *n; i++) {
		if (n_left && !compare(&ranges[n_left - 1], &ranges[i]))
			continue;
		if (ranges[i].size >= UINT32_MAX || ranges[i].start > UINT64_MAX - UINT32_MAX ||
		    (n_left &&
		     ranges[i].start - ranges[n_left - 1].start < ranges[n_left - 1].size))
			return -ENOTSUP;
		ranges[n_left++] = ranges[i];
	}
	*n = n_left;
	if (n_left && ranges[n_left - 1].start - ranges[0].start > UINT32_MAX)
		return -ENOTSUP;
	return n_left > UINT32_MAX ? -ENOTSUP : 0;
}

/* Make a blob of the ranges. The caller frees *blob. */
static int pack(const struct range *ranges, size_t n, struct procs_header *header, uint8_t **blob,
		size_t *size)
{
	size_t entries = n * sizeof(struct procs_entry), group, front;
	uint8_t *out;
	struct procs_entry *e;
	uint32_t *first;

	group = sizeof(*header) + uw_blob_sums(entries);
	front = (group + groups_of((uint32_t)n) * sizeof(uint32_t) + 7) & ~(size_t)7;
	out = calloc(1, front + entries);
	if (!out)
		return -ENOMEM;
	header->blob.header_size = sizeof(*header);
	header->blob.front = (uint32_t)front;
	header->blob.size = front + entries;
	header->group = (uint32_t)group;
	header->n = (uint32_t)n;
	header->base = n ? ranges[0].start : 0;
	memcpy(out, header, sizeof(*header));
	first = (uint32_t *)(void *)(out + group);
	e = (struct procs_entry *)(void *)(out + front);
	for (size_t i = 0; i < n; i++) {
		e[i] = (struct procs_entry){ .start = (uint32_t)(ranges[i].start - header->base),
					     .size = (uint32_t)ranges[i].size };
		if (i % PROCS_GROUP == 0)
			first[i / PROCS_GROUP] = e[i].start;
	}
	uw_blob_seal(out);
	*blob = out;
	*size = front + entries;
	return 0;
}

int uw_procs_build(struct uw_frames *const frames[], unsigned int n, uint16_t machine,
		   uint64_t src_size, uint64_t src_hash, uint8_t **blob, size_t *size)
{
	struct procs_header header = {
		.blob = { .magic = PROCS_MAGIC, .version = PROCS_VERSION, .machine = machine },
		.src_size = src_size,
		.src_hash = src_hash
	};
	struct range *ranges = NULL;
	size_t n_ranges = 0;
	int err = 0;

	for (unsigned int i = 0; i < n && !err; i++) {
		const struct uw_fde_key *keys;
		struct range *more;
		size_t n_keys;

		err = uw_frames_keys(frames[i], &keys, &n_keys);
		if (err || !n_keys)
			continue;
		more = reallocarray(ranges, n_ranges + n_keys, sizeof(*ranges));
		if (!more) {
			err = -ENOMEM;
			break;
		}
		ranges = more;
		for (size_t k = 0; k < n_keys; k++)
			ranges[n_ranges++] =
				(struct range){ .start = keys[k].start, .size = keys[k].size };
	}
	if (!err)
		err = tidy(ranges, &n_ranges);
	if (!err)
		err = pack(ranges, n_ranges, &header, blob, size);
	free(ranges);
	return err;
}

/* ---- looking up ----------------------------------------------------------------------- */

/* Make sure that the entries [from, past) have been read. */
static int need(const struct uw_procs *procs, size_t from, size_t past)
{
	const uint64_t width = sizeof(struct procs_entry);

	return procs->stored ? uw_blob_need(procs->stored, procs->header->blob.front + from * width,
					    (past - from) * width)
			     : 0;
}

/*
 * Count the entries that begin at or before vaddr. The last of them and the one after it have been
 * read.
 */
static int seek(const struct uw_procs *procs, uint64_t vaddr, size_t *count)
{
	const struct procs_entry *e = procs->entries;
	size_t n = procs->header->n, low = 0, high;
	uint64_t base = procs->header->base, off = vaddr - base;
	int err;

	if (vaddr >= base) /* find the first group that begins after vaddr */
		low = UW_COUNT_WHILE(i, groups_of((uint32_t)n), procs->group[i] <= off);
	high = low * PROCS_GROUP < n ? low * PROCS_GROUP : n;
	low = low ? (low - 1) * PROCS_GROUP : 0;
	/* Also read the entry after them, where a gap may end. */
	err = need(procs, low, high < n ? high + 1 : n);
	if (err)
		return err;
	/* find the first entry that begins after vaddr */
	*count = low + UW_COUNT_WHILE(i, high - low, e[low + i].start <= off);
	return 0;
}

int uw_procs_find(const struct uw_procs *procs, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	const struct procs_entry *e = procs->entries;
	uint64_t base = procs->header->base, off = vaddr - base;
	size_t low;
	int err = seek(procs, vaddr, &low);

	if (err)
		return err;
	if (low && off - e[low - 1].start < e[low - 1].size) {
		*start = base + e[low - 1].start;
		*end = *start + e[low - 1].size;
		return 0;
	}
	*start = low ? base + e[low - 1].start + e[low - 1].size : 0;
	*end = low < procs->header->n ? base + e[low].start : UINT64_MAX;
	/* A stored blob that is read while it is needed was not checked for ascending entries. */
	return *end > vaddr ? -ENOENT : -EBADMSG;
}

int uw_procs_before(const struct uw_procs *procs, uint64_t vaddr, size_t *n)
{
	const struct procs_entry *e = procs->entries;
	uint64_t off = vaddr - procs->header->base;
	int err = seek(procs, vaddr, n);

	if (!err && *n && off - e[*n - 1].start < e[*n - 1].size)
		--*n;
	return err;
}

int uw_procs_at(const struct uw_procs *procs, size_t i, uint64_t *start, uint64_t *end)
{
	int err = need(procs, i, i + 1);

	if (err)
		return err;
	*start = procs->header->base + procs->entries[i].start;
	*end = *start + procs->entries[i].size;
	return 0;
}

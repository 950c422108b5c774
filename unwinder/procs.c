#include "unwinder/procs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/checksum.h"

static uint64_t checksum_of(const void *blob, size_t size)
{
	struct procs_header header;

	memcpy(&header, blob, sizeof(header));
	header.checksum = 0;
	return uw_checksum((const uint8_t *)blob + sizeof(header), size - sizeof(header),
			   uw_checksum(&header, sizeof(header), 0));
}

int uw_procs_open(struct uw_procs *procs, const void *blob, size_t size)
{
	const struct procs_header *h = blob;
	const struct procs_entry *e;
	uint64_t last = 0;

	if (size < sizeof(*h) || h->magic != PROCS_MAGIC)
		return -EBADMSG;
	if (h->version != PROCS_VERSION)
		return -ENOTSUP;
	if (h->size != size || h->n != (size - sizeof(*h)) / sizeof(*e) ||
	    (size - sizeof(*h)) % sizeof(*e) || h->checksum != checksum_of(blob, size))
		return -EBADMSG;
	e = (const struct procs_entry *)(h + 1);
	for (uint32_t i = 0; i < h->n; i++) {
		if (e[i].start < last || !e[i].size)
			return -EBADMSG;
		last = (uint64_t)e[i].start + e[i].size;
	}
	if (last > UINT64_MAX - h->base)
		return -EBADMSG;
	*procs = (struct uw_procs){ .header = h, .entries = e };
	return 0;
}

/* ---- building ----------------------------------------------------------------------- */

struct range {
	uint64_t start, size;
};

static int compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->size < y->size ? -1 : x->size > y->size;
}

/* Sorts and takes out twins; -ENOTSUP where one reaches into the next. */
static int tidy(struct range *ranges, size_t *n)
{
	size_t kept = 0;
	bool sorted = true;

	for (size_t i = 1; i < *n && sorted; i++)
		sorted = compare(&ranges[i - 1], &ranges[i]) <= 0;
	if (!sorted)
		qsort(ranges, *n, sizeof(*ranges), compare);
	for (size_t i = 0; i < *n; i++) {
		if (kept && !compare(&ranges[kept - 1], &ranges[i]))
			continue;
		if (ranges[i].size >= UINT32_MAX || ranges[i].start > UINT64_MAX - UINT32_MAX ||
		    (kept && ranges[i].start - ranges[kept - 1].start < ranges[kept - 1].size))
			return -ENOTSUP;
		ranges[kept++] = ranges[i];
	}
	*n = kept;
	if (kept && ranges[kept - 1].start - ranges[0].start > UINT32_MAX)
		return -ENOTSUP;
	return kept > UINT32_MAX ? -ENOTSUP : 0;
}

static int pack(const struct range *ranges, size_t n, struct procs_header *header, uint8_t **blob,
		size_t *size)
{
	size_t whole = sizeof(*header) + n * sizeof(struct procs_entry);
	uint8_t *out = malloc(whole);
	struct procs_entry *entries;

	if (!out)
		return -ENOMEM;
	header->size = whole;
	header->n = (uint32_t)n;
	header->base = n ? ranges[0].start : 0;
	memcpy(out, header, sizeof(*header));
	entries = (struct procs_entry *)(void *)(out + sizeof(*header));
	for (size_t i = 0; i < n; i++)
		entries[i] =
			(struct procs_entry){ .start = (uint32_t)(ranges[i].start - header->base),
					      .size = (uint32_t)ranges[i].size };
	header->checksum = checksum_of(out, whole);
	memcpy(out, header, sizeof(*header));
	*blob = out;
	*size = whole;
	return 0;
}

int uw_procs_build(struct uw_frames *const frames[], unsigned int n, uint16_t machine,
		   uint64_t src_size, uint64_t src_hash, uint8_t **blob, size_t *size)
{
	struct procs_header header = { .magic = PROCS_MAGIC,
				       .version = PROCS_VERSION,
				       .machine = machine,
				       .src_size = src_size,
				       .src_hash = src_hash };
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

int uw_procs_find(const struct uw_procs *procs, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	const struct procs_entry *e = procs->entries;
	uint64_t base = procs->header->base, off = vaddr - base;
	size_t low = 0, high = procs->header->n;

	if (vaddr < base)
		high = 0;
	while (low < high) { /* the first that begins behind vaddr */
		size_t middle = low + (high - low) / 2;

		if (e[middle].start <= off)
			low = middle + 1;
		else
			high = middle;
	}
	if (low && off - e[low - 1].start < e[low - 1].size) {
		*start = base + e[low - 1].start;
		*end = *start + e[low - 1].size;
		return 0;
	}
	*start = low ? base + e[low - 1].start + e[low - 1].size : 0;
	*end = low < procs->header->n ? base + e[low].start : UINT64_MAX;
	return -ENOENT;
}

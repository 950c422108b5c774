/*
 * unwinder/cfi/ehframe.c: finds the FDE that covers an address, by .eh_frame_hdr or by an index of
 * the section (ehframe.h).
 */
#include "unwinder/cfi/ehframe.h"

#include "base/growth.h"
#include "base/limits.h"
#include "base/search.h"

#include <errno.h>
#include <stdlib.h>

/*
 * How many entries before the last possible one are tried: zero-length and duplicate FDEs share
 * a start.
 */
#define STEPS_BACK 4

/* How many CIEs may lie between two neighbouring FDEs. */
#define CIES_MAX 4

/*
 * The size of an entry in the table as linkers write it, and how many entries one element of
 * the top array stands for.
 */
#define COMMON_SIZE 8u
#define TOP_STEP    64u

/* The layout of .eh_frame_hdr is in LSB 5.0 §10.6.2. */
int uw_hdr_init(struct uw_hdr *table, const uint8_t *data, size_t size, uint64_t vaddr)
{
	struct uw_bytes b = uw_bytes_of(data, size);
	uint8_t version = uw_bytes_u8(&b), frames = uw_bytes_u8(&b);
	uint8_t count = uw_bytes_u8(&b), encoding = uw_bytes_u8(&b);
	struct uw_bases bases = { .start = data,
				  .vaddr = vaddr,
				  .data = vaddr, /* here datarel is relative to the header itself */
				  .has_data = true,
				  .address_size = 8 };
	uint64_t n;
	unsigned int width;

	*table = (struct uw_hdr){ .entries = { .pos = data, .end = data } };
	if (b.err || version != 1)
		return b.err ? b.err : -ENOTSUP;
	if (frames != UW_PE_OMIT) {
		int err = uw_pointer_read(&b, &bases, frames, &table->frames_vaddr);

		if (err)
			return err;
		table->has_frames = true;
	}
	/* From here on, damage only means that the table is not used. */
	width = uw_pointer_size(encoding, 8);
	if (count == UW_PE_OMIT || encoding == UW_PE_OMIT || !width || encoding & UW_PE_INDIRECT ||
	    uw_pointer_read(&b, &bases, count, &n))
		return 0;
	if (n > uw_bytes_left(&b) / (2 * width))
		n = uw_bytes_left(&b) / (2 * width);
	table->entries = uw_bytes_take(&b, n * 2 * width);
	table->bases = bases;
	table->n = n;
	table->encoding = encoding;
	table->width = (uint8_t)width;
	table->common = encoding == (UW_PE_DATAREL | UW_PE_SDATA4);
	return 0;
}

/* Read a number of the table in any encoding. */
static int table_get_slowly(const struct uw_hdr *table, uint64_t i, unsigned int which,
			    uint64_t *out)
{
	struct uw_bytes b = table->entries;

	uw_bytes_skip(&b, (2 * i + which) * table->width);
	return uw_pointer_read(&b, &table->bases, table->encoding, out);
}

/* Read a number of the table as linkers write it: 32 bits, relative to the header. */
static inline uint64_t common_get(const struct uw_hdr *table, uint64_t i, unsigned int which)
{
	return table->bases.data +
	       (uint64_t)(int32_t)uw_bytes_little(table->entries.pos + (2 * i + which) * 4);
}

/*
 * Read the start (which = 0) or the FDE's address (which = 1) of entry i, which must be below
 * table->n.
 */
static inline int table_get(const struct uw_hdr *table, uint64_t i, unsigned int which,
			    uint64_t *out)
{
	if (!table->common)
		return table_get_slowly(table, i, which, out);
	*out = common_get(table, i, which);
	return 0;
}

/*
 * Return how many entries start at or before lookup, in a table of any encoding; 0 if an entry
 * cannot be decoded. The table should be sorted: the caller checks the result.
 */
static uint64_t table_search_slowly(const struct uw_hdr *table, uint64_t lookup)
{
	uint64_t low = 0, high = table->n, start;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (table_get(table, middle, 0, &start))
			return 0;
		if (start <= lookup)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void uw_frames_top(struct uw_frames *frames)
{
	const struct uw_hdr *table = &frames->table;
	size_t n = (size_t)((table->n + TOP_STEP - 1) / TOP_STEP);

	if (!table->common || table->n < 4 * TOP_STEP || frames->top)
		return;
	frames->top = malloc(n * sizeof(*frames->top));
	for (size_t i = 0; frames->top && i < n; i++)
		frames->top[i] =
			(int32_t)uw_bytes_little(table->entries.pos + COMMON_SIZE * TOP_STEP * i);
	frames->n_top = frames->top ? n : 0;
}

/*
 * Return the first of the *n entries to search, by the top array. Set *n, which was the size of
 * the table, to their number, and prefetch them.
 */
static uint64_t search_top(const struct uw_frames *frames, uint64_t lookup, uint64_t *n)
{
	const int32_t *at = frames->top;
	const uint8_t *entries;
	uint64_t first;

	for (size_t left = frames->n_top, half; left > 1; left -= half) {
		half = left / 2;
		at += frames->table.bases.data + (uint64_t)at[half] <= lookup ? half : 0;
	}
	first = (uint64_t)(at - frames->top) * TOP_STEP;
	*n = *n - first < TOP_STEP ? *n - first : TOP_STEP;
	entries = frames->table.entries.pos + COMMON_SIZE * first;
	for (uint64_t i = 0; i < COMMON_SIZE * *n; i += 64)
		__builtin_prefetch(entries + i);
	return first;
}

/*
 * Return how many entries start at or before lookup. For the table as linkers write it, the
 * search has no branch that could be mispredicted.
 */
static uint64_t table_search(const struct uw_frames *frames, uint64_t lookup)
{
	const struct uw_hdr *table = &frames->table;
	uint64_t at = 0, n = table->n;

	if (!table->common || !n)
		return table_search_slowly(table, lookup);
	if (frames->n_top)
		at = search_top(frames, lookup, &n);
	/* The first of the n entries starts at or before lookup, or no entry of the table does. */
	for (uint64_t half; n > 1; n -= half) {
		half = n / 2;
		at += common_get(table, at + half, 0) <= lookup ? half : 0;
	}
	return at + (common_get(table, at, 0) <= lookup);
}

void uw_frames_init(struct uw_frames *frames)
{
	*frames = (struct uw_frames){ .n_keys = 0 };
	pthread_mutex_init(&frames->lock, NULL);
}

void uw_frames_fini(struct uw_frames *frames)
{
	free(frames->keys);
	free(frames->top);
	pthread_mutex_destroy(&frames->lock);
}

UW_ORDER_2(compare_keys, struct uw_fde_key, start, off)

/* How many entries are read before looking whether the thread must give up. */
#define AT_A_TIME 4096

/*
 * Build the index of all FDEs of the section. Damaged and empty FDEs are skipped. -ENOMEM; -E2BIG: there are more
 * than the limit; -ECANCELED: the thread must give up (uw_unpack_unless).
 */
static int collect(struct uw_frames *frames)
{
	const struct uw_cfi *cfi = &frames->cfi;
	size_t room = 0, n = 0;
	uint64_t off = 0, next;
	size_t entries = 0;
	bool sorted = true;

	while (off < cfi->size) {
		struct uw_fde fde;
		int err;

		if (++entries % AT_A_TIME == 0 && uw_unpack_is_stopped())
			return -ECANCELED;
		next = off;
		err = uw_cfi_entry(cfi, off, &fde, &next);
		if (next <= off)
			break; /* without a length, the next entry cannot be found */
		if (err == -ENOENT && uw_cfi_ends(cfi, off))
			break;
		if (!err && fde.end > fde.start) {
			uint64_t size = fde.end - fde.start;

			if (uw_limit_exceeded(functions, n + 1))
				return -E2BIG;
			if (UW_ARRAY_GROW(frames->keys, n, room, SIZE_MAX))
				return -ENOMEM;
			frames->keys[n] = (struct uw_fde_key){
				.start = fde.start,
				.size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
				.off = (uint32_t)off,
			};
			if (n && compare_keys(&frames->keys[n - 1], &frames->keys[n]) > 0)
				sorted = false;
			n++;
		}
		off = next;
	}
	if (!sorted)
		qsort(frames->keys, n, sizeof(*frames->keys), compare_keys);
	frames->n_keys = n;
	return 0;
}

/*
 * Build the index unless it exists. Any number of threads may call this at once; an error is
 * permanent, but for -ECANCELED: another thread may go on.
 */
static int need_index(struct uw_frames *frames)
{
	int ready = atomic_load_explicit(&frames->ready, memory_order_acquire);

	if (!ready) {
		pthread_mutex_lock(&frames->lock);
		ready = atomic_load_explicit(&frames->ready, memory_order_relaxed);
		if (!ready) {
			int err = collect(frames);

			ready = err ? err : 1;
			if (err) {
				free(frames->keys);
				frames->keys = NULL;
			}
			if (err != -ECANCELED)
				atomic_store_explicit(&frames->ready, ready, memory_order_release);
		}
		pthread_mutex_unlock(&frames->lock);
	}
	return ready < 0 ? ready : 0;
}

size_t uw_frames_memory(const struct uw_frames *frames)
{
	return atomic_load_explicit(&frames->ready, memory_order_acquire) > 0
		       ? frames->n_keys * sizeof(*frames->keys)
		       : 0;
}

int uw_frames_keys(struct uw_frames *frames, const struct uw_fde_key **keys, size_t *n)
{
	int err = frames->cfi.size ? need_index(frames) : 0;

	if (!err) {
		*keys = frames->keys;
		*n = frames->n_keys;
	}
	return err;
}

/* Return how many keys of the index start at or before lookup. */
static size_t search(const struct uw_frames *frames, uint64_t lookup)
{
	return UW_COUNT_WHILE(i, frames->n_keys, frames->keys[i].start <= lookup);
}

static bool covers(const struct uw_fde *fde, uint64_t lookup)
{
	return lookup >= fde->start && lookup < fde->end;
}

/*
 * Return whether the table is sorted and has as many entries as the section has FDEs. The FDEs
 * are counted by the headers of entries only: for a large file, that takes a fraction of the
 * time to build the index.
 */
static bool table_is_whole(struct uw_frames *frames)
{
	int whole = atomic_load_explicit(&frames->whole, memory_order_relaxed);

	if (!whole) {
		uint64_t n = 0, start, last = 0;
		bool sorted = true;

		for (uint64_t i = 0; i < frames->table.n && sorted; i++) {
			sorted = !table_get(&frames->table, i, 0, &start) && start >= last;
			last = start;
		}
		if (sorted)
			n = uw_cfi_count(&frames->cfi);
		/* Two threads may do this at once; they get the same result. */
		whole = sorted && n == frames->table.n ? 1 : -1;
		atomic_store_explicit(&frames->whole, whole, memory_order_relaxed);
	}
	return whole > 0;
}

/*
 * Decode the FDE of entry i - 1. *off is its offset, *next that of the following entry.
 * -EBADMSG if the FDE does not start where the table says.
 */
static int entry_before(struct uw_frames *frames, uint64_t i, uint64_t *off, uint64_t *next,
			struct uw_fde *out)
{
	const struct uw_cfi *cfi = &frames->cfi;
	uint64_t start, vaddr;
	int err;

	if (table_get(&frames->table, i - 1, 0, &start) ||
	    table_get(&frames->table, i - 1, 1, &vaddr) || vaddr < cfi->vaddr ||
	    vaddr - cfi->vaddr >= cfi->size)
		return -EBADMSG;
	*off = vaddr - cfi->vaddr;
	err = uw_cfi_entry(cfi, *off, out, next);
	if (err)
		return err == -ENOENT ? -EBADMSG : err;
	return out->start == start ? 0 : -EBADMSG;
}

/*
 * Return whether the FDE of entry i starts where the table says. If not, a search for what it covers ends left of it.
 * Without such an entry there is nothing to say.
 */
static bool starts_as_stated(struct uw_frames *frames, uint64_t i)
{
	uint64_t off, next;
	struct uw_fde fde;

	return i >= frames->table.n || !entry_before(frames, i + 1, &off, &next, &fde);
}

/*
 * Return whether only CIEs lie between an FDE that ends at off and the FDE of entry i.
 *
 * To prove that no FDE covers a pc, all FDEs would have to be checked: the table may lack some.
 * But if the two FDEs that the table has around a pc are neighbours in the section too, no
 * linker has put another one between them: code and FDEs come from the linker's input files in
 * the same order, so an FDE that the table lacks would lie between the two. lazy_fde.c relies on
 * the same argument for a section that has not been read, and gives the same result.
 */
static bool are_neighbours(const struct uw_frames *frames, uint64_t off, uint64_t i)
{
	const struct uw_cfi *cfi = &frames->cfi;
	uint64_t vaddr;

	if (i >= frames->table.n || table_get(&frames->table, i, 1, &vaddr))
		return false;
	for (unsigned int n = 0; n <= CIES_MAX; n++) {
		const uint8_t *at = cfi->data + off;

		if (cfi->vaddr + off == vaddr)
			return true;
		if (off > cfi->size || cfi->size - off < 8 || uw_bytes_little(at + 4) != 0 ||
		    uw_bytes_little(at) >= UINT32_MAX - 4)
			return false;
		off += (uint64_t)uw_bytes_little(at) + 4;
	}
	return false;
}

/*
 * Find the FDE by the table. -ENOENT no FDE covers lookup; -EAGAIN the table cannot be trusted
 * here.
 */
static int find_by_table(struct uw_frames *frames, uint64_t lookup, struct uw_fde *out)
{
	uint64_t i = table_search(frames, lookup), off, next;

	for (unsigned int back = 0; back < STEPS_BACK && i > 0; back++, i--) {
		if (entry_before(frames, i, &off, &next, out))
			return -EAGAIN;
		if (covers(out, lookup))
			return 0;
		if (back == 0 && !starts_as_stated(frames, i))
			return -EAGAIN;
		if (out->end > out->start) {
			if (back == 0 && are_neighbours(frames, next, i))
				return -ENOENT;
			break;
		}
	}
	return table_is_whole(frames) ? -ENOENT : -EAGAIN;
}

/*
 * Find the gap around lookup by the table. -ENOENT an FDE covers lookup; -EAGAIN the table
 * cannot be trusted here.
 */
static int gap_by_table(struct uw_frames *frames, uint64_t lookup, struct uw_gap *gap)
{
	uint64_t i = table_search(frames, lookup), off, next;
	bool certain = false;
	struct uw_fde fde;

	if (i < frames->table.n && table_get(&frames->table, i, 0, &gap->end))
		return -EAGAIN;
	for (unsigned int back = 0; i > 0; back++, i--) {
		if (back == STEPS_BACK || entry_before(frames, i, &off, &next, &fde))
			return -EAGAIN;
		if (covers(&fde, lookup))
			return -ENOENT;
		if (back == 0 && !starts_as_stated(frames, i))
			return -EAGAIN;
		if (fde.end > fde.start) {
			certain = back == 0 && are_neighbours(frames, next, i);
			gap->start = fde.end;
			gap->before = (uint32_t)off;
			gap->has_before = true;
			break;
		}
	}
	return certain || table_is_whole(frames) ? 0 : -EAGAIN;
}

/*
 * Try the file's own search table first. -EAGAIN means that it cannot be relied on; then an index
 * of all FDEs is made, once.
 */
int uw_frames_find(struct uw_frames *frames, uint64_t lookup, struct uw_fde *out)
{
	size_t i;
	int err;

	if (!frames->cfi.size)
		return -ENOENT;
	if (frames->table.n) {
		err = find_by_table(frames, lookup, out);
		if (err != -EAGAIN)
			return err;
	}
	err = need_index(frames);
	if (err)
		return err;
	i = search(frames, lookup);
	for (unsigned int back = 0; back < STEPS_BACK && i > 0; back++) {
		const struct uw_fde_key *key = &frames->keys[--i];

		if (lookup - key->start < key->size)
			return uw_cfi_entry(&frames->cfi, key->off, out, NULL);
	}
	return -ENOENT;
}

/*
 * Use the file's own search table if it can be relied on, as uw_frames_find does, and otherwise the
 * index.
 */
int uw_frames_gap(struct uw_frames *frames, uint64_t lookup, struct uw_gap *out)
{
	struct uw_gap gap = { .end = UINT64_MAX };
	size_t i;
	int err = -EAGAIN;

	if (!frames->cfi.size) {
		*out = gap;
		return 0;
	}
	if (frames->table.n)
		err = gap_by_table(frames, lookup, &gap);
	if (err != -EAGAIN) {
		if (!err)
			*out = gap;
		return err;
	}
	gap = (struct uw_gap){ .end = UINT64_MAX };
	err = need_index(frames);
	if (err)
		return err;
	i = search(frames, lookup);
	if (i > 0) {
		const struct uw_fde_key *key = &frames->keys[i - 1];

		if (lookup - key->start < key->size)
			return -ENOENT;
		gap.start = key->start + key->size;
		gap.before = key->off;
		gap.has_before = true;
	}
	if (i < frames->n_keys)
		gap.end = frames->keys[i].start;
	*out = gap;
	return 0;
}

/*
 * Handle the common case only: the last entry at or before lookup covers it, or is the
 * neighbour of the next entry.
 */
int uw_frames_look(struct uw_frames *frames, uint64_t lookup, struct uw_fde *fde,
		   struct uw_gap *gap)
{
	uint64_t i, off, next;

	*gap = (struct uw_gap){ .end = UINT64_MAX };
	if (!frames->cfi.size)
		return -ENOENT;
	if (!frames->table.n)
		return -EAGAIN;
	i = table_search(frames, lookup);
	if (!i || entry_before(frames, i, &off, &next, fde))
		return -EAGAIN;
	if (covers(fde, lookup))
		return 0;
	if (fde->end <= fde->start || !starts_as_stated(frames, i) ||
	    !are_neighbours(frames, next, i) || table_get(&frames->table, i, 0, &gap->end))
		return -EAGAIN;
	gap->start = fde->end;
	gap->before = (uint32_t)off;
	gap->has_before = true;
	return -ENOENT;
}

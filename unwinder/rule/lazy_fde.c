/*
 * unwinder/rule/lazy_fde.c: lazy FDE lookup, which reads a single FDE from a file whose .eh_frame has not
 * been read.
 */
#include "unwinder/rule/lazy_fde.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/search.h"
#include "unwinder/cfi/pointer.h"
#include "unwinder/table/row.h"

/*
 * Entries of the search table that are looked at together: a page of them. A good guess is inside
 * it.
 */
#define WINDOW 512
/*
 * Entries from one mark to the next. So a search by the marks reads half a KiB of the table, and the
 * marks of a table of 1 MB take 8 KiB.
 */
#define MARKED 64
/* How many times to guess by proportion, before the range is halved each time. */
#define GUESSES 4
#define TRIES	48
/* Bytes of the section that are read at a time to count its FDEs. */
#define COUNTED 4096

/*
 * The largest FDE that is read. Of the 82,000 in libclang, 2 are longer than 4 KiB; of the 49,000
 * in a compiler of GCC's, one has 20 KB.
 */
#define FDE_MAX ((size_t)24 << 10)
/* Bytes of an FDE that are read at first: nearly always all of it and the head of the next one. */
#define FDE_READ 256

/* The largest CIE that is read. */
#define CIE_MAX 128

/* CIEs that may stand between two neighbouring FDEs. */
#define CIES_MAX 4

struct entry {
	uint64_t start, fde; /* vaddr */
};

/* A CIE that has been read. Files have two or three, which all FDEs share. */
struct uw_lazy_cie {
	uint64_t off; /* in the section */
	size_t size;
	uint8_t bytes[CIE_MAX];
};

/* ---- the search table ------------------------------------------------------------- */

/* Decode a signed 32-bit address that counts from the header (datarel sdata4). */
static uint64_t start_of(const struct uw_lazy_fde *lazy, const uint8_t *entry)
{
	return lazy->header_vaddr + (uint64_t)(int32_t)uw_bytes_little(entry);
}

/* Read n entries of the search table from number i. -EAGAIN: they cannot be read. */
static int read_entries(const struct uw_lazy_fde *lazy, uint64_t i, size_t n, uint8_t *out)
{
	return uw_source_read(&lazy->source, lazy->table_off + 8 * i, out, 8 * n) ? -EAGAIN : 0;
}

/*
 * Find the search table, if its header is as linkers write it (LSB 5.0 §10.6.2): pcrel sdata4,
 * udata4, datarel sdata4.
 */
static bool find_table(struct uw_lazy_fde *lazy, const struct uw_elf *elf)
{
	static const uint8_t usual[4] = { 1, UW_PE_PCREL | UW_PE_SDATA4, UW_PE_UDATA4,
					  UW_PE_DATAREL | UW_PE_SDATA4 };
	const Elf64_Phdr *p = NULL;
	uint8_t head[12], first[8], last[8];

	for (size_t i = 0; !p && i < elf->n_segments; i++)
		if (elf->segments[i].p_type == PT_GNU_EH_FRAME)
			p = &elf->segments[i];
	if (!p || p->p_filesz < sizeof(head) ||
	    uw_source_read(&elf->source, p->p_offset, head, sizeof(head)) ||
	    memcmp(head, usual, sizeof(usual)) != 0)
		return false;
	lazy->table_off = p->p_offset + sizeof(head);
	lazy->header_vaddr = p->p_vaddr;
	lazy->n = uw_bytes_little(head + 8);
	if (lazy->n < 2 || lazy->n > (p->p_filesz - sizeof(head)) / 8 ||
	    lazy->n > uw_limit(section_bytes) / 8 || read_entries(lazy, 0, 1, first) ||
	    read_entries(lazy, lazy->n - 1, 1, last))
		return false;
	lazy->first = start_of(lazy, first);
	lazy->last = start_of(lazy, last);
	return lazy->first < lazy->last;
}

void uw_lazy_fde_init(struct uw_lazy_fde *lazy, const struct uw_elf *elf,
		      const struct uw_cfi *bases)
{
	const Elf64_Shdr *frames = uw_elf_section(elf, ".eh_frame");

	*lazy = (struct uw_lazy_fde){ .in_memory = elf->source.image || elf->source.view.bytes,
				      .source = elf->source,
				      .arch = uw_arch_of(elf->machine),
				      .bases = *bases };
	if (!lazy->arch || !frames || frames->sh_type == SHT_NOBITS ||
	    frames->sh_flags & SHF_COMPRESSED || frames->sh_size > UINT32_MAX ||
	    frames->sh_size > uw_limit(section_bytes))
		return;
	lazy->frames_off = frames->sh_offset;
	lazy->frames_vaddr = frames->sh_addr;
	lazy->frames_size = frames->sh_size;
	lazy->usable = find_table(lazy, elf);
}

void uw_lazy_fde_fini(struct uw_lazy_fde *lazy)
{
	free(atomic_load_explicit(&lazy->marks, memory_order_relaxed));
	for (unsigned int i = 0; i < UW_LAZY_CIES; i++)
		free(atomic_load_explicit(&lazy->cies[i], memory_order_relaxed));
}

static size_t n_marks(const struct uw_lazy_fde *lazy)
{
	return (size_t)((lazy->n + MARKED - 1) / MARKED);
}

/*
 * Read the whole table for its marks: the start of each MARKED-th entry, as the table has it. NULL:
 * it cannot be read, or there is no memory.
 */
static int32_t *read_marks(const struct uw_lazy_fde *lazy)
{
	int32_t *marks = malloc(sizeof(*marks) * n_marks(lazy));
	uint8_t room[8 * WINDOW];

	for (uint64_t i = 0; marks && i < lazy->n; i += WINDOW) {
		size_t n = lazy->n - i < WINDOW ? (size_t)(lazy->n - i) : WINDOW;

		if (read_entries(lazy, i, n, room)) {
			free(marks);
			return NULL;
		}
		for (size_t k = 0; k < n; k += MARKED)
			marks[(i + k) / MARKED] = (int32_t)uw_bytes_little(room + 8 * k);
	}
	return marks;
}

/*
 * Return the marks of a table in a file, NULL before they are worth it: reading them takes a system
 * call for each WINDOW entries, and saves one or two of each search. A table of one window has none.
 */
static const int32_t *marks_of(struct uw_lazy_fde *lazy)
{
	int32_t *marks = atomic_load_explicit(&lazy->marks, memory_order_acquire);

	if (marks || lazy->in_memory || lazy->n <= WINDOW ||
	    atomic_fetch_add_explicit(&lazy->n_searches, 1, memory_order_relaxed) !=
		    lazy->n / WINDOW)
		return marks;
	marks = read_marks(lazy);
	atomic_store_explicit(&lazy->marks, marks, memory_order_release);
	return marks;
}

/* Entries of the table by their numbers; low starts at or before what is looked up, high after it. */
struct range {
	uint64_t low, high, low_start, high_start;
};

/* Return the start of the entry of a mark. */
static uint64_t marked_start(const struct uw_lazy_fde *lazy, const int32_t *marks, uint64_t i)
{
	return lazy->header_vaddr + (uint64_t)marks[i];
}

/* Narrow the range to the entries from one mark to the next. The first mark is not after lookup. */
static void narrow(const struct uw_lazy_fde *lazy, const int32_t *marks, uint64_t lookup,
		   struct range *range)
{
	uint64_t low = UW_COUNT_WHILE(i, n_marks(lazy), marked_start(lazy, marks, i) <= lookup);

	low -= low > 0; /* the file may have changed since its first entry was read */
	range->low = low * MARKED;
	range->low_start = marked_start(lazy, marks, low);
	if (range->high - range->low > MARKED) {
		range->high = range->low + MARKED;
		range->high_start = marked_start(lazy, marks, low + 1);
	}
}

/* Consecutive entries of the search table. */
struct some {
	const uint8_t *bytes; /* NULL: each entry is read when it is looked at */
	uint64_t from;	      /* the number of the first */
};

/* Decode entry i of some. */
static int entry_of(const struct uw_lazy_fde *lazy, const struct some *some, size_t i,
		    struct entry *out)
{
	uint8_t room[8];
	const uint8_t *bytes = some->bytes ? some->bytes + 8 * i : room;
	int err = some->bytes ? 0 : read_entries(lazy, some->from + i, 1, room);

	if (!err)
		*out = (struct entry){ .start = start_of(lazy, bytes),
				       .fde = start_of(lazy, bytes + 4) };
	return err;
}

/*
 * Search n entries, the first of which starts at or before lookup, the last after it. found gets
 * the entry that contains lookup and the next one.
 */
static int search(const struct uw_lazy_fde *lazy, const struct some *some, size_t n,
		  uint64_t lookup, struct entry found[2])
{
	size_t low = 0, high = n - 1;
	struct entry entry;
	int err = 0;

	while (!err && high - low > 1) {
		size_t middle = low + (high - low) / 2;

		err = entry_of(lazy, some, middle, &entry);
		if (!err && entry.start <= lookup)
			low = middle;
		else
			high = middle;
	}
	if (!err)
		err = entry_of(lazy, some, low, &found[0]);
	return err ? err : entry_of(lazy, some, low + 1, &found[1]);
}

/*
 * Find the last entry that starts at or before lookup, and the entry after it. Starts grow about
 * evenly with their numbers, so the first look is mostly the only one. -EAGAIN: lookup is outside
 * the table, or the table is not sorted.
 */
static int find_entry(struct uw_lazy_fde *lazy, uint64_t lookup, struct entry found[2])
{
	struct range r = { .high = lazy->n - 1,
			   .low_start = lazy->first,
			   .high_start = lazy->last };
	const int32_t *marks;
	uint8_t room[8 * WINDOW];

	if (lookup < r.low_start || lookup >= r.high_start)
		return -EAGAIN;
	marks = marks_of(lazy);
	if (marks)
		narrow(lazy, marks, lookup, &r);
	/* What the range says of its ends is true if the table is sorted. */
	for (unsigned int try = 0; try < TRIES && r.low < r.high; try++) {
		size_t n = r.high - r.low + 1 < WINDOW ? (size_t)(r.high - r.low + 1) : WINDOW;
		uint64_t at = (r.high - r.low) / 2, from;
		struct entry begin, end;
		struct some some;

		if (r.low_start > lookup || r.high_start <= lookup)
			return -EAGAIN;
		if (try < GUESSES)
			at = (uint64_t)((__uint128_t)(lookup - r.low_start) * (r.high - r.low) /
					(r.high_start - r.low_start));
		from = at < n / 2 ? r.low : r.low + at - n / 2;
		if (from > r.high + 1 - n)
			from = r.high + 1 - n;
		some = (struct some){ .from = from };
		if (!lazy->in_memory) {
			if (read_entries(lazy, from, n, room))
				return -EAGAIN;
			some.bytes = room;
		}
		if (entry_of(lazy, &some, 0, &begin) || entry_of(lazy, &some, n - 1, &end))
			return -EAGAIN;
		if (lookup < begin.start) {
			r.high = from;
			r.high_start = begin.start;
		} else if (lookup >= end.start) {
			r.low = from + n - 1;
			r.low_start = end.start;
		} else {
			return search(lazy, &some, n, lookup, found);
		}
	}
	return -EAGAIN;
}

/* Return whether the starts never decrease from one entry to the next. */
static bool is_sorted(const struct uw_lazy_fde *lazy)
{
	uint8_t room[8 * WINDOW];
	uint64_t last = 0;

	for (uint64_t i = 0; i < lazy->n; i += WINDOW) {
		size_t n = lazy->n - i < WINDOW ? (size_t)(lazy->n - i) : WINDOW;

		if (read_entries(lazy, i, n, room))
			return false;
		for (size_t k = 0; k < n; k++) {
			if (start_of(lazy, room + 8 * k) < last)
				return false;
			last = start_of(lazy, room + 8 * k);
		}
	}
	return true;
}

/*
 * Count the section's FDEs by their heads. If they cannot be counted, return more than the table
 * has.
 */
static uint64_t count_fdes(const struct uw_lazy_fde *lazy)
{
	uint8_t room[COUNTED];
	uint64_t n = 0, off = 0;

	while (off + 8 <= lazy->frames_size && n <= lazy->n) {
		uint64_t left = lazy->frames_size - off, size = left < COUNTED ? left : COUNTED;
		uint64_t at = 0;

		if (uw_source_read(&lazy->source, lazy->frames_off + off, room, size))
			return UINT64_MAX;
		while (at + 8 <= size) {
			uint32_t length = uw_bytes_little(room + at);

			if (!length) /* the terminator, where the loader stops */
				return n;
			if (length < 4 || length >= UINT32_MAX - 15)
				return UINT64_MAX;
			n += uw_bytes_little(room + at + 4) != 0;
			at += 4 + (uint64_t)length;
		}
		off += at;
	}
	return n;
}

/*
 * Return whether every FDE is in the search table. To find out, the whole section is read once,
 * which is worth the cost only if the file is in memory.
 */
static bool table_is_whole(struct uw_lazy_fde *lazy)
{
	int whole = atomic_load_explicit(&lazy->whole, memory_order_relaxed);

	if (!whole && lazy->in_memory) {
		whole = is_sorted(lazy) && count_fdes(lazy) == lazy->n ? 1 : -1;
		atomic_store_explicit(&lazy->whole, whole, memory_order_relaxed);
	}
	return whole > 0;
}

/* ---- an FDE ------------------------------------------------------------------------- */

/* A CIE followed by an FDE, as if they were a section of their own. */
struct pair {
	uint8_t bytes[CIE_MAX + FDE_MAX]; /* the FDE begins at CIE_MAX */
	size_t cie, size;		  /* size of the CIE, size of both */
	uint64_t next;			  /* offset in the file's section of what follows the FDE */
};

/* Read the CIE at off. -EAGAIN: it is larger than CIE_MAX, or cannot be read. */
static int read_cie(const struct uw_lazy_fde *lazy, uint64_t off, struct uw_lazy_cie *out)
{
	uint64_t left = lazy->frames_size - off;

	if (left < 8 || uw_source_read(&lazy->source, lazy->frames_off + off, out->bytes,
				       left < CIE_MAX ? left : CIE_MAX))
		return -EAGAIN;
	if (uw_bytes_little(out->bytes) > CIE_MAX - 4 || uw_bytes_little(out->bytes) + 4 > left)
		return -EAGAIN;
	out->off = off;
	out->size = uw_bytes_little(out->bytes) + 4;
	return 0;
}

/*
 * Return the CIE at off, which lazy holds, or room if it holds as many others. NULL: it cannot be
 * read.
 */
static const struct uw_lazy_cie *cie_at(struct uw_lazy_fde *lazy, uint64_t off,
					struct uw_lazy_cie *room)
{
	struct uw_lazy_cie *cie = NULL, *made;
	unsigned int i;

	for (i = 0; i < UW_LAZY_CIES; i++) {
		cie = atomic_load_explicit(&lazy->cies[i], memory_order_acquire);
		if (!cie || cie->off == off)
			break;
	}
	if (i < UW_LAZY_CIES && cie)
		return cie;
	if (read_cie(lazy, off, room))
		return NULL;
	made = i < UW_LAZY_CIES && !lazy->in_memory ? malloc(sizeof(*made)) : NULL;
	if (made) {
		*made = *room;
		/* Another thread may have taken the place meanwhile. */
		if (!atomic_compare_exchange_strong_explicit(
			    &lazy->cies[i], &cie, made, memory_order_release, memory_order_relaxed))
			free(made);
	}
	return room;
}

/*
 * Read an FDE and its CIE into pair, and change the FDE's CIE pointer so that it fits there.
 * -EAGAIN: the FDE is too large, of another form, or cannot be read.
 */
static int read_pair(struct uw_lazy_fde *lazy, uint64_t fde_vaddr, struct pair *pair)
{
	uint64_t off = fde_vaddr - lazy->frames_vaddr, left = lazy->frames_size - off, size, id;
	uint8_t *fde = pair->bytes + CIE_MAX;
	const struct uw_lazy_cie *cie;
	struct uw_lazy_cie room;

	if (fde_vaddr < lazy->frames_vaddr || off > lazy->frames_size || left < 8 ||
	    uw_source_read(&lazy->source, lazy->frames_off + off, fde,
			   left < FDE_READ ? left : FDE_READ))
		return -EAGAIN;
	size = (uint64_t)uw_bytes_little(fde) + 4;
	id = uw_bytes_little(fde + 4); /* counts back from itself to the CIE */
	if (size < 8 || size > FDE_MAX || size > left || id == 0 || id > off + 4)
		return -EAGAIN;
	if (size > FDE_READ && uw_source_read(&lazy->source, lazy->frames_off + off + FDE_READ,
					      fde + FDE_READ, size - FDE_READ))
		return -EAGAIN;
	cie = cie_at(lazy, off + 4 - id, &room);
	if (!cie)
		return -EAGAIN;
	pair->cie = cie->size;
	memcpy(fde - pair->cie, cie->bytes, pair->cie);
	for (unsigned int i = 0; i < 4; i++)
		fde[4 + i] = (uint8_t)((pair->cie + 4) >> 8 * i);
	pair->size = pair->cie + size;
	pair->next = off + size;
	return 0;
}

static bool has_expression(const struct uw_rule *rule)
{
	bool has = rule->cfa_size;

	for (unsigned int i = 0; i < rule->n_regs; i++)
		has |= rule->regs[i].kind == UW_RULE_AT_EXPR || rule->regs[i].kind == UW_RULE_EXPR;
	return has;
}

/*
 * Return whether the entry at offset off is the FDE at vaddr, with nothing but CIEs between them. A
 * search table may lack FDEs, and only counting them all shows that. But if the two FDEs around a
 * gap are neighbours in the section, too, there is none between them.
 */
static bool are_neighbours(const struct uw_lazy_fde *lazy, uint64_t off, uint64_t vaddr)
{
	uint8_t head[8];

	for (unsigned int i = 0; i <= CIES_MAX; i++) {
		if (lazy->frames_vaddr + off == vaddr)
			return true;
		if (off > lazy->frames_size || lazy->frames_size - off < sizeof(head) ||
		    uw_source_read(&lazy->source, lazy->frames_off + off, head, sizeof(head)) ||
		    uw_bytes_little(head + 4) != 0 || uw_bytes_little(head) >= UINT32_MAX - 4)
			return false;
		off += (uint64_t)uw_bytes_little(head) + 4;
	}
	return false;
}

/*
 * Read the FDE of an entry into fde and pair. -EAGAIN: as for uw_lazy_fde_rule; for example, it starts elsewhere than
 * the entry says.
 */
static int read_fde(struct uw_lazy_fde *lazy, const struct entry *entry, struct uw_cfi *cfi,
		    struct pair *pair, struct uw_fde *fde)
{
	if (read_pair(lazy, entry->fde, pair))
		return -EAGAIN;
	*cfi = lazy->bases;
	cfi->data = pair->bytes + CIE_MAX - pair->cie;
	cfi->size = pair->size;
	cfi->vaddr = entry->fde - pair->cie;
	cfi->eh = true;
	return uw_cfi_entry(cfi, pair->cie, fde, NULL) || fde->start != entry->start ||
			       fde->end <= fde->start
		       ? -EAGAIN
		       : 0;
}

/*
 * Read the FDE of found[0] into fde and pair. -ENOENT: lookup lies after it, in the gap [*start,
 * *end). -EAGAIN: as for uw_lazy_fde_rule.
 */
static int find_fde(struct uw_lazy_fde *lazy, const struct entry found[2], uint64_t lookup,
		    struct uw_cfi *cfi, struct pair *pair, struct uw_fde *fde, uint64_t *start,
		    uint64_t *end)
{
	struct uw_fde right;
	uint64_t next;

	if (read_fde(lazy, &found[0], cfi, pair, fde))
		return -EAGAIN;
	if (lookup < fde->end)
		return 0;
	next = pair->next;
	/* If the entry after it is wrong, the search may have gone the wrong way there. */
	if (read_fde(lazy, &found[1], cfi, pair, &right) ||
	    (!are_neighbours(lazy, next, found[1].fde) && !table_is_whole(lazy)))
		return -EAGAIN;
	*start = fde->end;
	*end = found[1].start;
	return -ENOENT;
}

int uw_lazy_fde_rule(struct uw_lazy_fde *lazy, uint64_t lookup, struct uw_rule *out,
		     uint64_t *start, uint64_t *end)
{
	struct entry found[2];
	struct uw_cfi cfi;
	struct uw_fde fde;
	struct pair pair;
	struct uw_row row;
	int err;

	if (!lazy->usable || find_entry(lazy, lookup, found))
		return -EAGAIN;
	err = find_fde(lazy, found, lookup, &cfi, &pair, &fde, start, end);
	if (err)
		return err;
	err = uw_cfi_rule(&cfi, &fde, lookup, out);
	if (err)
		return -EAGAIN;
	/* the expressions lie in pair; a row does not refer to them */
	if (has_expression(out)) {
		if (uw_row_of(lazy->arch, out, &row))
			return -EAGAIN;
		uw_row_rule(lazy->arch, row.packed, row.ext, out);
	}
	*start = fde.start;
	*end = fde.end;
	return 0;
}

int uw_lazy_fde_range(struct uw_lazy_fde *lazy, uint64_t lookup, uint64_t *start, uint64_t *end)
{
	struct entry found[2];
	struct uw_cfi cfi;
	struct uw_fde fde;
	struct pair pair;
	int err;

	if (!lazy->usable || find_entry(lazy, lookup, found))
		return -EAGAIN;
	err = find_fde(lazy, found, lookup, &cfi, &pair, &fde, start, end);
	if (err)
		return err;
	*start = fde.start;
	*end = fde.end;
	return 0;
}

/*
 * unwinder/dynamic/dynamic_list.c: reads libunwind's list of generated code, whose elements
 * have region descriptors or tables of FDEs (libunwind-dynamic(3); the structures are those of
 * libunwind-dynamic.h of version 1.6).
 */
#include "unwinder/dynamic/target_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/dynamic/dynamic.h"

/* Read and store the NUL-terminated name at addr. */
static void read_name(struct uw_reading *r, uint64_t addr, uint32_t *off)
{
	char name[UW_NAME_MAX_SIZE];
	size_t size = 0;

	*off = 0;
	if (!addr)
		return;
	/* Read pieces that do not cross a page: the memory behind the name may be unmapped. */
	while (size < sizeof(name)) {
		size_t piece = 64 - (addr + size) % 64;
		const char *end;

		if (piece > sizeof(name) - size)
			piece = sizeof(name) - size;
		if (!uw_reading_fetch(r, addr + size, name + size, piece))
			return;
		end = memchr(name + size, 0, piece);
		if (end) {
			size = (size_t)(end - name);
			break;
		}
		size += piece;
	}
	uw_reading_keep_name(r, name, size, off);
}

/* ---- procedures with regions ----------------------------------------------------------- */

/* Order operations by when, then by their original index, which the sort keys hold in val. */
UW_ORDER_2(by_when, struct dynamic_op, when, val)

/*
 * Sort the operations of a region by the instruction at which they take effect (when).
 * Operations with the same when keep their order. -1 stands for the region's entry.
 */
static void sort_ops(struct dynamic_op *ops, uint32_t n)
{
	struct dynamic_op copy[UW_DYNAMIC_OPS], keys[UW_DYNAMIC_OPS];
	bool sorted = true;

	for (uint32_t i = 1; i < n && sorted; i++)
		sorted = ops[i - 1].when <= ops[i].when;
	if (sorted)
		return;
	for (uint32_t i = 0; i < n; i++) {
		copy[i] = ops[i];
		keys[i] = (struct dynamic_op){ .when = ops[i].when, .val = i };
	}
	qsort(keys, n, sizeof(*keys), by_when);
	for (uint32_t i = 0; i < n; i++)
		ops[i] = copy[keys[i].val];
}

/* Return the number of operations before the one that ends the list (OP_STOP, tag 0). */
static uint32_t count_ops(const struct dynamic_op *ops, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && ops[i].tag)
		i++;
	return i;
}

/*
 * Read the chain of regions at addr and store it as the data of proc. Return false if it is
 * damaged or cannot be read.
 */
static bool read_regions(struct uw_reading *r, uint64_t addr, struct dynamic_proc *proc)
{
	struct dynamic_op ops[UW_DYNAMIC_OPS];
	unsigned int n = 0, n_ops = 0;
	uint8_t head[16];

	proc->kind = DYNAMIC_REGIONS;
	for (; addr; addr = uw_reading_number(head, 8)) {
		struct dynamic_region region;
		uint8_t *to;
		uint32_t at;

		if (++n > UW_DYNAMIC_REGIONS || !uw_reading_fetch(r, addr, head, sizeof(head)))
			return false;
		memcpy(&region, head + 8, sizeof(region));
		if (region.op_count > UW_DYNAMIC_OPS - n_ops ||
		    (region.op_count && !uw_reading_fetch(r, addr + sizeof(head), ops,
							  region.op_count * sizeof(*ops))))
			return false;
		region.op_count = count_ops(ops, region.op_count);
		n_ops += region.op_count;
		sort_ops(ops, region.op_count);
		to = uw_reading_keep(r, sizeof(region) + region.op_count * sizeof(*ops), &at);
		if (!to)
			return false;
		memcpy(to, &region, sizeof(region));
		memcpy(to + sizeof(region), ops, region.op_count * sizeof(*ops));
		if (!proc->size)
			proc->data = at;
		proc->size = (uint32_t)r->n_data - proc->data;
		/*
		 * Only the last region may count from the procedure's end
		 * (libunwind-dynamic(3)).
		 */
		if (region.insn_count < 0 && uw_reading_number(head, 8))
			return false;
	}
	return true;
}

/* ---- procedures with FDEs -------------------------------------------------------------------- */

/*
 * Read the header of the CIE or FDE at addr. Set *end to its end, and *cie to the address of an
 * FDE's CIE or to 0 for a CIE.
 */
static bool read_entry(struct uw_reading *r, uint64_t addr, uint64_t *end, uint64_t *cie)
{
	uint8_t head[8];
	uint32_t size, id;

	if (!uw_reading_fetch(r, addr, head, sizeof(head)))
		return false;
	size = (uint32_t)uw_reading_number(head, 4);
	id = (uint32_t)uw_reading_number(head + 4, 4);
	/* The 64-bit form is not accepted: no entry of a table that fits the budget needs it. */
	if (size < 4 || size > DYNAMIC_LISTS_MAX) {
		r->flags |= DYNAMIC_DAMAGED;
		return false;
	}
	*end = addr + 4 + size;
	*cie = id ? addr + 4 - id : 0;
	return true;
}

/* A range of addresses. */
struct span {
	uint64_t start, end;
};

static void widen(struct span *span, uint64_t start, uint64_t end)
{
	if (start < span->start)
		span->start = start;
	if (end > span->end)
		span->end = end;
}

/*
 * A sorted table of pairs of 32-bit offsets from base addresses: where code begins, and where
 * its FDE is.
 */
struct fde_table {
	uint64_t data, n; /* entries */
	uint64_t fde_base;
	uint64_t bias; /* added to the addresses in FDEs */
	uint64_t start, end;
	uint32_t name;
};

/* Return the address of the i-th entry's FDE. pairs has the table's bytes. */
static uint64_t fde_at(const struct fde_table *t, const uint8_t *pairs, uint64_t i)
{
	return t->fde_base + (uint64_t)(int64_t)(int32_t)uw_reading_number(pairs + 8 * i + 4, 4);
}

/* Find the bytes from the table's first to its last CIE or FDE. Return false if one is damaged. */
static bool find_span(struct uw_reading *r, const struct fde_table *t, const uint8_t *pairs,
		      struct span *span)
{
	*span = (struct span){ .start = UINT64_MAX };
	for (uint64_t i = 0; i < t->n; i++) {
		uint64_t fde = fde_at(t, pairs, i);
		uint64_t end, cie, cie_end, none;

		if (!read_entry(r, fde, &end, &cie) || !cie ||
		    !read_entry(r, cie, &cie_end, &none) || none)
			return false;
		widen(span, fde, end);
		widen(span, cie, cie_end);
	}
	return span->end > span->start && span->end - span->start <= DYNAMIC_LISTS_MAX;
}

/*
 * Add the procedure of the FDE at fde, an address of the process. cfi has the stored bytes of the
 * table, at data. A damaged FDE is left out. Return false if no more procedures can be added.
 */
static bool add_fde(struct uw_reading *r, const struct fde_table *t, const struct uw_cfi *cfi,
		    uint32_t data, uint64_t fde)
{
	struct dynamic_proc proc = { .kind = DYNAMIC_FDE,
				     .bias = t->bias,
				     .base = cfi->vaddr,
				     .data = data,
				     .size = (uint32_t)cfi->size,
				     .entry = (uint32_t)(fde - cfi->vaddr),
				     .name = t->name };
	struct uw_fde entry;

	if (uw_cfi_entry(cfi, proc.entry, &entry, NULL)) {
		r->flags |= DYNAMIC_DAMAGED;
		return true;
	}
	proc.start = entry.start + t->bias;
	proc.end = entry.end + t->bias;
	/* The registered range limits the FDE's range. */
	if (proc.start < t->start)
		proc.start = t->start;
	if (proc.end > t->end)
		proc.end = t->end;
	return uw_reading_add(r, &proc);
}

/*
 * Read a table, store the bytes from its first to its last CIE or FDE, and add a procedure for
 * each FDE. Return false, and mark the result as damaged, if that fails.
 */
static bool read_table(struct uw_reading *r, const struct fde_table *t)
{
	struct uw_cfi cfi = { .eh = true };
	struct span span;
	uint8_t *pairs, *block = NULL;
	uint32_t at = 0;
	bool good;

	if (!uw_reading_spend(r, t->n < DYNAMIC_LISTS_MAX ? (size_t)t->n * 8 : SIZE_MAX))
		return false;
	pairs = malloc((size_t)t->n * 8 + 1);
	if (!pairs) {
		r->err = -ENOMEM;
		return false;
	}
	good = (!t->n || uw_reading_fetch(r, t->data, pairs, (size_t)t->n * 8)) &&
	       find_span(r, t, pairs, &span);
	if (good) {
		cfi.size = (size_t)(span.end - span.start);
		cfi.vaddr = span.start;
		block = uw_reading_keep(r, cfi.size, &at);
		good = block && uw_reading_fetch(r, span.start, block, cfi.size);
		cfi.data = block;
	}
	for (uint64_t i = 0; i < t->n && good; i++)
		good = add_fde(r, t, &cfi, at, fde_at(t, pairs, i));
	free(pairs);
	if (!good)
		r->flags |= DYNAMIC_DAMAGED;
	return good;
}

/* ---- libunwind's list ------------------------------------------------------------------ */

enum { FORMAT_DYNAMIC, FORMAT_TABLE, FORMAT_REMOTE_TABLE, FORMAT_ARM_EXIDX, FORMAT_IP_OFFSET };

/* Offsets of members in struct unw_dyn_info. */
enum {
	INFO_NEXT = 0,
	INFO_START = 16,
	INFO_END = 24,
	INFO_FORMAT = 40,
	INFO_LOAD_OFFSET = 48,
	INFO_NAME = 56,
	INFO_REGIONS = 80, /* in unw_dyn_proc_info */
	INFO_SEGBASE = 64, /* in unw_dyn_table_info, as are the next two */
	INFO_TABLE_LEN = 72,
	INFO_TABLE_DATA = 80,
	INFO_SIZE = 88
};

/* Read one element of libunwind's list, of which info holds the bytes. */
static void read_info(struct uw_reading *r, const uint8_t *info)
{
	struct dynamic_proc proc = { .start = uw_reading_number(info + INFO_START, 8),
				     .end = uw_reading_number(info + INFO_END, 8) };
	uint32_t format = (uint32_t)uw_reading_number(info + INFO_FORMAT, 4);
	struct fde_table table = { .data = uw_reading_number(info + INFO_TABLE_DATA, 8),
				   .n = uw_reading_number(info + INFO_TABLE_LEN, 8),
				   .fde_base = uw_reading_number(info + INFO_SEGBASE, 8),
				   .bias = uw_reading_number(info + INFO_LOAD_OFFSET, 8),
				   .start = proc.start,
				   .end = proc.end };

	if (proc.start >= proc.end) {
		r->flags |= DYNAMIC_DAMAGED;
		return;
	}
	read_name(r, uw_reading_number(info + INFO_NAME, 8), &proc.name);
	switch (format) {
	case FORMAT_DYNAMIC:
		if (!read_regions(r, uw_reading_number(info + INFO_REGIONS, 8), &proc)) {
			r->flags |= DYNAMIC_DAMAGED;
			proc.kind = DYNAMIC_NAME;
		}
		(void)uw_reading_add(r, &proc);
		break;
	case FORMAT_TABLE: /* formats differ in who reads the table; here: another process */
	case FORMAT_REMOTE_TABLE:
	case FORMAT_IP_OFFSET:
		table.name = proc.name;
		(void)read_table(r, &table);
		break;
	default:
		r->flags |= DYNAMIC_DAMAGED;
		break;
	}
}

/* The structures are in generator/dynamic.h. UW_VISITS_MAX ends a chain that is a ring. */
void uw_reading_list(struct uw_reading *r, uint64_t list)
{
	uint8_t head[16], info[INFO_SIZE];

	if (!uw_reading_fetch(r, list, head, sizeof(head)))
		return;
	if (uw_reading_number(head, 4) > 1) { /* unknown version */
		r->flags |= DYNAMIC_DAMAGED;
		return;
	}
	for (uint64_t at = uw_reading_number(head + 8, 8); at;
	     at = uw_reading_number(info + INFO_NEXT, 8)) {
		if (++r->visits > UW_VISITS_MAX || !uw_reading_spend(r, 0)) {
			r->flags |= DYNAMIC_CUT;
			return;
		}
		if (!uw_reading_fetch(r, at, info, sizeof(info)))
			return;
		read_info(r, info);
		if (r->err || r->flags & DYNAMIC_CUT)
			return;
	}
}

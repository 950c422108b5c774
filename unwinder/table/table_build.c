/* unwinder/table/table_build.c: compiles an object's call-frame information to a table. */
#include "unwinder/table/table_build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "schema/table_blob.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table_fast.h"
#include "unwinder/table/table_pack.h"
#include "unwinder/table/table_rows.h"

#define UNITS_MAX 0xffff0000u /* spans end below this */
#define AHEAD	  6	      /* FDEs fetched before they are needed */
#define ASK_EVERY 256	      /* FDEs between two calls of stop */

/* An FDE's range in units. */
struct ref {
	uint32_t start, end;
	uint32_t off;	 /* in its section */
	uint8_t section; /* index of the source's cfi */
	bool odd;	 /* begins or ends inside a unit, or was clipped: no rows */
};

struct build {
	const struct uw_table_source *source;
	const struct uw_arch *arch;
	uint64_t base;
	struct uw_table_rows rows;
	struct uw_fast *fast;

	struct ref *refs;
	size_t n_refs, room_refs;
	uint64_t work;
	unsigned int n_asked;
};

/* Count the cost of an entry. The table fails if the sum is too large, or if stop says so. */
static void spend(struct build *b, uint64_t work)
{
	b->work += work;
	if (b->rows.err)
		return;
	if (b->work > UW_TABLE_WORK_MAX || uw_limit_exceeded(functions, b->n_refs) ||
	    uw_limit_exceeded(rows, b->rows.n_rows) || uw_limit_exceeded(rules, b->rows.n_rules))
		uw_table_rows_fail(&b->rows, -EFBIG);
	if (b->source->stop && ++b->n_asked % ASK_EVERY == 0 &&
	    b->source->stop(b->source->stop_ctx))
		uw_table_rows_fail(&b->rows, -ECANCELED);
}

static uint32_t unit_of(const struct build *b, uint64_t vaddr)
{
	return (uint32_t)((vaddr - b->base) >> b->arch->unit_shift);
}

static uint64_t vaddr_of(const struct build *b, uint32_t unit)
{
	return b->base + ((uint64_t)unit << b->arch->unit_shift);
}

/* Add a row, with room for it. */
static void put(struct build *b, uint32_t unit, uint32_t rule)
{
	if (uw_table_rows_reserve(&b->rows, 1))
		uw_table_rows_put(&b->rows, unit, rule);
}

static void put_none(struct build *b, uint32_t unit)
{
	put(b, unit, UW_RULE_NONE);
}

/* ---- the rows of an FDE ------------------------------------------------------------------- */

/* The state of the general decoder. */
struct general {
	struct build *b;
	uint64_t next; /* where the rows so far end */
	uint32_t limit;
};

/* Add one row from the general decoder. 1: the limit is reached. */
static int general_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *rule)
{
	struct general *g = ctx;
	struct build *b = g->b;

	if (unit_of(b, start) >= g->limit)
		return 1;
	/*
	 * If a row begins inside a unit, a unit has two rules, and the table cannot say which one
	 * holds.
	 */
	if ((start | end) & (b->arch->code_align - 1u))
		return -ENOTSUP;
	put(b, unit_of(b, start), uw_table_rows_rule(&b->rows, rule));
	g->next = end;
	return b->rows.err;
}

/* Add the rows of any FDE with the general decoder. Where it fails, the table has no rule. */
static void put_general(struct build *b, const struct ref *ref, uint32_t limit)
{
	const struct uw_cfi *cfi = b->source->cfi[ref->section];
	struct general g = { .b = b, .limit = limit };
	struct uw_fde fde;
	int err = uw_cfi_entry(cfi, ref->off, &fde, NULL);

	if (!err)
		spend(b, UW_TABLE_WORK_GENERAL *
				 (uw_bytes_left(&fde.program) + uw_bytes_left(&fde.cie.program)));
	g.next = vaddr_of(b, ref->start);
	if (!err && !ref->odd)
		err = uw_cfi_rows(cfi, &fde, general_row, &g);
	if ((err < 0 || ref->odd) && unit_of(b, g.next) < limit)
		put_none(b, unit_of(b, g.next));
}

/* Add the rows of an FDE up to limit, the fast way if possible. */
static void put_fde(struct build *b, const struct ref *ref, uint32_t limit)
{
	struct uw_fast_fde fde;

	spend(b, 0);
	if (ref->odd || !uw_fast_read(b->fast, b->source->cfi[ref->section], ref->off, &fde) ||
	    !uw_fast_run(b->fast, &fde, ref->start, limit))
		put_general(b, ref, limit);
}

/* ---- all FDEs, sorted ---------------------------------------------------------------------- */

/* Add an FDE's range, clipped to what a table can cover. */
static void add_ref(struct build *b, unsigned int section, uint64_t off, uint64_t start,
		    uint64_t end)
{
	const uint64_t last = (uint64_t)UNITS_MAX << b->arch->unit_shift,
		       mask = b->arch->code_align - 1u;
	struct ref ref = { .off = (uint32_t)off, .section = (uint8_t)section };

	if (end <= b->base || start >= end || (start > b->base && start - b->base >= last))
		return;
	/* ehframe.c clips ranges longer than 4 GiB. */
	ref.odd = end - start > UINT32_MAX || start < b->base || end - b->base > last ||
		  (start | end) & mask;
	if (start < b->base)
		start = b->base;
	if (end - b->base > last)
		end = b->base + last;
	ref.start = unit_of(b, start);
	ref.end = (uint32_t)((end - b->base + mask) >> b->arch->unit_shift);
	if (b->n_refs == b->room_refs &&
	    !uw_table_rows_grow(&b->rows, &b->refs, b->n_refs, 1, &b->room_refs, sizeof(*b->refs)))
		return;
	b->refs[b->n_refs++] = ref;
}

/* Collect a section's FDEs. Damaged entries are skipped, as collect() in ehframe.c does. */
static void collect(struct build *b, unsigned int section)
{
	const struct uw_cfi *cfi = b->source->cfi[section];
	uint64_t off = 0, next;

	for (; off < cfi->size && !b->rows.err; off = next) {
		struct uw_fast_fde fast;
		struct uw_fde fde;
		int err;

		spend(b, 16);
		if (uw_fast_read(b->fast, cfi, off, &fast)) {
			next = (uint64_t)(fast.end - cfi->data);
			add_ref(b, section, off, fast.start,
				fast.size <= UINT64_MAX - fast.start ? fast.start + fast.size
								     : UINT64_MAX);
			continue;
		}
		next = off;
		err = uw_cfi_entry(cfi, off, &fde, &next);
		if (next <= off || (err == -ENOENT && uw_cfi_ends(cfi, off)))
			break;
		if (!err)
			add_ref(b, section, off, fde.start, fde.end);
	}
}

/*
 * Sort by start (radix sort, stable): FDEs with the same start stay in the order of their sections
 * and offsets.
 */
static void sort_refs(struct build *b)
{
	struct ref *from = b->refs, *to;
	uint32_t high = 0;
	bool sorted = true;

	for (size_t i = 0; i < b->n_refs; i++) {
		sorted &= !i || from[i - 1].start <= from[i].start;
		high |= from[i].start;
	}
	if (sorted)
		return;
	to = malloc(b->n_refs * sizeof(*to));
	if (!to) {
		uw_table_rows_fail(&b->rows, -ENOMEM);
		return;
	}
	for (unsigned int shift = 0; shift < 32 && high >> shift; shift += 11) {
		uint32_t at[2049] = { 0 };
		struct ref *swap = from;

		for (size_t i = 0; i < b->n_refs; i++)
			at[(from[i].start >> shift & 2047) + 1]++;
		for (unsigned int i = 0; i < 2048; i++)
			at[i + 1] += at[i];
		for (size_t i = 0; i < b->n_refs; i++)
			to[at[from[i].start >> shift & 2047]++] = from[i];
		from = to;
		to = swap;
	}
	b->refs = from;
	free(to);
}

/* ---- the sweep ----------------------------------------------------------------------------- */

/* Make all rows, from the lowest address to the highest. */
static void sweep(struct build *b)
{
	const uint32_t padding = UW_PADDING_MAX >> b->arch->unit_shift;
	const uint32_t trampoline = b->arch->trampoline_size >> b->arch->unit_shift;
	uint32_t last = 0;
	const struct ref *refs = b->refs;
	size_t i = 0, n = b->n_refs;

	put_none(b, 0);
	while (i < n && !b->rows.err) {
		const struct ref *ref = &refs[i++];
		size_t before = b->rows.n_rows;
		uint32_t end = ref->end, next;
		bool clash;

		/* Linkers do not order FDEs as functions: fetch the next ones early. */
		if (n - i > AHEAD)
			__builtin_prefetch(b->source->cfi[refs[i + AHEAD].section]->data +
					   refs[i + AHEAD].off);

		/* An earlier section takes precedence. */
		while (i < n && refs[i].end <= end && refs[i].start < end &&
		       refs[i].section > ref->section)
			i++;
		clash = i < n && refs[i].start < end;
		if (!clash) {
			put_fde(b, ref, end);
		} else {
			uint32_t from = refs[i].start;

			if (from > ref->start)
				put_fde(b, ref, from);
			put_none(b, from);
			for (; i < n && refs[i].start < end; i++)
				end = refs[i].end > end ? refs[i].end : end;
		}
		/* The last row before this FDE may have been replaced. */
		uw_table_rows_begin(&b->rows, ref->start, before - 1,
				    ref->start - last >= trampoline);
		last = end;
		next = i < n ? refs[i].start : UINT32_MAX;
		if (clash || next - end >= padding)
			put_none(b, end);
	}
}

/* ---- the whole --------------------------------------------------------------------------- */

/* Collect the FDEs of all sections, sort them by address, and make the rows in one sweep. */
int uw_table_build(const struct uw_table_source *source, uint8_t **blob, size_t *size)
{
	struct build b = { .source = source, .arch = source->arch };
	int err = uw_table_base(source, &b.base);

	if (err)
		return err;
	uw_table_rows_init(&b.rows, b.arch);
	err = uw_fast_new(b.arch, &b.rows, &b.fast);
	if (err)
		goto out;
	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		if (source->cfi[i] && source->cfi[i]->size)
			collect(&b, i);
	if (!b.n_refs)
		uw_table_rows_fail(&b.rows, -ENOENT);
	if (!b.rows.err)
		sort_refs(&b);
	if (!b.rows.err)
		sweep(&b);
	err = b.rows.err ? b.rows.err : uw_table_pack(source, &b.rows, b.base, blob, size);
out:
	uw_fast_free(b.fast);
	uw_table_rows_fini(&b.rows);
	free(b.refs);
	return err;
}

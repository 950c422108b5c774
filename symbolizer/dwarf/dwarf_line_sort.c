/* symbolizer/dwarf/dwarf_line_sort.c: sorts the rows of a line table by address. */
#include "symbolizer/dwarf/dwarf_line.h"

#include "base/search.h"

#include <errno.h>
#include <stdlib.h>

UW_ORDER_2(by_start, struct dw_sequence, start, first)

/*
 * Order the sequences by start. They usually cover different code. If a linker has folded functions with the same code
 * into one (--icf), the code has the sequences of all: only the first of them is left, or the lines of several functions
 * would be mixed. Return false if sequences overlap otherwise, or their addresses decrease.
 */
static bool order_sequences(const struct dw_row *rows, struct dw_sequence *sequences,
			    size_t *n_sequences, bool *sorted)
{
	size_t n = *n_sequences, n_left = 1;

	*sorted = true;
	for (size_t i = 0; i < n; i++) {
		struct dw_sequence *s = &sequences[i];

		for (size_t j = s->first + 1; j < s->past; j++)
			if (rows[j].addr < rows[j - 1].addr)
				return false;
		s->start = rows[s->first].addr;
		s->end = rows[s->past - 1].addr;
		*sorted = *sorted && (!i || s[-1].end <= s->start);
	}
	if (*sorted)
		return true;
	qsort(sequences, n, sizeof(*sequences), by_start);
	for (size_t i = 1; i < n; i++) {
		if (sequences[i].end <= sequences[n_left - 1].end)
			continue;
		if (sequences[i].start < sequences[n_left - 1].end)
			return false;
		sequences[n_left++] = sequences[i];
	}
	*n_sequences = n_left;
	return true;
}

/*
 * Return whether a must be before b: by address, and the end of one sequence before the start of
 * the next.
 */
static bool goes_before(const struct dw_row *a, const struct dw_row *b)
{
	if (a->addr != b->addr)
		return a->addr < b->addr;
	return a->file == DW_ROW_END && b->file != DW_ROW_END;
}

static bool is_sorted(const struct dw_row *rows, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (goes_before(&rows[i], &rows[i - 1]))
			return false;
	return true;
}

/* Return where the run of rows in order ends that begins at first. */
static size_t run_end(const struct dw_row *rows, size_t n, size_t first)
{
	size_t end = first + 1;

	while (end < n && !goes_before(&rows[end], &rows[end - 1]))
		end++;
	return end < n ? end : n;
}

/* Sort rows by merging runs that are in order already. Stable. */
static int merge_rows(struct dw_table *t)
{
	struct dw_row *from = t->rows, *to, *swap;
	size_t n = t->n_rows;

	if (is_sorted(from, n))
		return 0;
	to = reallocarray(NULL, n, sizeof(*to));
	if (!to)
		return -ENOMEM;
	while (!is_sorted(from, n)) { /* each pass halves the number of runs */
		for (size_t at = 0; at < n;) {
			size_t a = at, middle = run_end(from, n, at), b = middle;
			size_t end = middle < n ? run_end(from, n, middle) : n;

			while (a < middle || b < end)
				to[at++] =
					b >= end || (a < middle && !goes_before(&from[b], &from[a]))
						? from[a++]
						: from[b++];
		}
		swap = from;
		from = to;
		to = swap;
	}
	free(to);
	t->rows = from;
	return 0;
}

/*
 * A sequence is usually sorted and alone in its range of addresses: move whole sequences, and merge
 * rows only if some overlap.
 */
int dw_table_sort(struct dw_table *t, struct dw_sequence *sequences, size_t n_sequences)
{
	struct dw_row *to;
	size_t n = 0;
	bool sorted;

	if (!order_sequences(t->rows, sequences, &n_sequences, &sorted))
		return merge_rows(t);
	if (sorted)
		return 0;
	to = reallocarray(NULL, t->n_rows, sizeof(*to));
	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < n_sequences; i++) {
		const struct dw_sequence *s = &sequences[i];

		memcpy(to + n, t->rows + s->first, (s->past - s->first) * sizeof(*to));
		n += s->past - s->first;
	}
	free(t->rows);
	t->rows = to;
	t->n_rows = n;
	return 0;
}

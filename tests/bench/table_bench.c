/*
 * What compiled tables cost: bytes, time to make them, time to look up.
 *   usage: table_bench FILE…            a line each, and one for all
 *          table_bench -p PCS FILE      looks up addresses (hex, a line each; as the file has
 *                                       them), by table and by binary search over its rows
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "unwinder/object.h"
#include "unwinder/table.h"

#define ROUNDS 9

static double seconds(clockid_t clock)
{
	struct timespec t;

	(void)clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double total_s, total_source, total_table;

/* The object, compiled; NULL: nothing to compile. */
static struct uw_object *compile(const char *file, bool print)
{
	struct uw_object *object;
	const struct table_header *h;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : uw_object_open(fd, 0, &object);
	double start, s;

	if (fd >= 0)
		close(fd);
	if (err)
		return NULL;
	(void)uw_object_frames(object, 0), (void)uw_object_frames(object, 1); /* reads what is compiled */
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	err = uw_object_compile(object);
	s = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	if (err) {
		uw_object_put(object);
		return NULL;
	}
	h = uw_object_table(object)->header;
	total_s += s;
	total_source += (double)h->src_size;
	total_table += (double)h->size;
	if (print)
		(void)printf("%-60s %9.0f KB  %.3f of it  %.2f bytes/row  %5u rules  %4.0f MB/s\n",
			     file, (double)h->src_size / 1e3, (double)h->size / (double)h->src_size,
			     (double)h->size / h->n_rows, h->n_rules,
			     (double)h->src_size / s / 1e6);
	return object;
}

struct index {
	uint32_t *start; /* units, ascending */
	uint32_t *rule;
	size_t n;
};

/* Every row's unit, from the table itself. */
static int index_of(const struct uw_table *t, struct index *index)
{
	const struct table_header *h = t->header;
	uint32_t row = 0;

	index->n = h->n_rows;
	index->start = calloc(h->n_rows, sizeof(*index->start));
	index->rule = calloc(h->n_rows, sizeof(*index->rule));
	if (!index->start || !index->rule)
		return -ENOMEM;
	for (uint32_t s = 0; s < h->n_sups; s++) {
		if (t->sup[s].blk == TABLE_NO_BLOCK)
			continue;
		for (uint32_t i = 0; i < 256; i++) {
			const uint16_t *blk = &t->blk[t->sup[s].blk + i];

			for (; row < t->sup[s].row + blk[1]; row++) {
				index->start[row] =
					s * TABLE_SUP_UNITS + i * TABLE_BLOCK_UNITS + t->key[row];
				index->rule[row] = t->rid ? t->rid[row] : t->rid4[row];
			}
		}
	}
	return 0;
}

static uint64_t search(const struct index *index, const struct uw_table *t, uint64_t vaddr)
{
	uint32_t unit = (uint32_t)((vaddr - t->header->base) >> t->header->unit_shift);
	size_t low = 0, high = index->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (index->start[middle] <= unit)
			low = middle + 1;
		else
			high = middle;
	}
	return low && unit < t->header->span ? t->rule[index->rule[low - 1]] : TABLE_NONE;
}

static int look_up(const char *pcs, const char *file)
{
	struct uw_object *object = compile(file, false);
	const struct uw_table *t = object ? uw_object_table(object) : NULL;
	double best_table = 1e9, best_search = 1e9;
	struct index index;
	uint64_t *pc = NULL, sum[2] = { 0 };
	size_t n = 0, room = 0;
	char line[64];
	FILE *in = fopen(pcs, "r");
	const int16_t *ext;

	if (!t || !in || index_of(t, &index))
		return 1;
	while (fgets(line, sizeof(line), in)) {
		if (n == room) {
			room = room ? room * 2 : 4096;
			pc = realloc(pc, room * sizeof(*pc));
			if (!pc)
				return 1;
		}
		pc[n++] = strtoull(line, NULL, 16);
	}
	(void)fclose(in);
	for (int round = 0; round < ROUNDS && n; round++) {
		double start = seconds(CLOCK_MONOTONIC), middle, end;

		for (size_t i = 0; i < n; i++)
			sum[0] += uw_table_word(t, pc[i], &ext);
		middle = seconds(CLOCK_MONOTONIC);
		for (size_t i = 0; i < n; i++)
			sum[1] += search(&index, t, pc[i]);
		end = seconds(CLOCK_MONOTONIC);
		best_table = middle - start < best_table ? middle - start : best_table;
		best_search = end - middle < best_search ? end - middle : best_search;
	}
	if (!n || sum[0] != sum[1]) {
		(void)printf("%s: the two disagree\n", file);
		return 1;
	}
	(void)printf(
		"%zu sampled addresses of %s: table %.1f ns, binary search %.1f ns, ratio %.1f\n",
		n, file, best_table / (double)n * 1e9, best_search / (double)n * 1e9,
		best_search / best_table);
	free(pc);
	free(index.start);
	free(index.rule);
	uw_object_put(object);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "-p"))
		return look_up(argv[2], argv[3]);
	for (int i = 1; i < argc; i++)
		uw_object_put(compile(argv[i], true));
	if (total_s > 0)
		(void)printf("all: %.1f MB, table %.3f of it, %.0f MB/s a thread\n",
			     total_source / 1e6, total_table / total_source,
			     total_source / total_s / 1e6);
	return 0;
}

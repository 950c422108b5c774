/*
 * tests/bench/table_bench.c: measures compiled tables: their size, the time to make them and the
 * time of a look-up.
 *   usage: table_bench FILE…            prints a line per file and one for all; times are medians
 *          table_bench -p PCS FILE      looks up addresses (hex, one per line; vaddrs of the
 *                                       file) by table and by binary search over its rows
 *          table_bench -k DB FILE…      loads the FILEs' tables from a store, as a whole and
 *                                       as blocks are needed, up to the first rule
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/log.h"
#include "agent/store/db.h"
#include "agent/store/store.h"
#include "unwinder/rule/object.h"
#include "unwinder/table/table.h"

#define ROUNDS 9

static double seconds(clockid_t clock)
{
	struct timespec t;

	(void)clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The middle one of n. */
static double median(double *of, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t j = i; j && of[j] < of[j - 1]; j--) {
			double swap = of[j];

			of[j] = of[j - 1];
			of[j - 1] = swap;
		}
	return of[n / 2];
}

/* Return the object, compiled in *s seconds of CPU time; NULL: there is nothing to compile. */
static struct uw_object *compile(const char *file, double *s)
{
	struct uw_object *object;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : uw_object_open(fd, 0, &object);
	double start;

	if (fd >= 0)
		close(fd);
	if (err)
		return NULL;
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) /* reads what is compiled */
		(void)uw_object_frames(object, i);
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	err = uw_object_compile(object);
	*s = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	if (err) {
		uw_object_put(object);
		return NULL;
	}
	return object;
}

/* Each round covers all files, so that other load on the machine affects all of them alike. */
static int build_all(char **files, size_t n)
{
	double(*s)[ROUNDS] = calloc(n, sizeof(*s));
	double all[ROUNDS] = { 0 }, source = 0, table = 0;

	if (!s)
		return 1;
	for (size_t round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < n; i++) {
			struct uw_object *object = compile(files[i], &s[i][round]);

			all[round] += object ? s[i][round] : 0;
			uw_object_put(object);
		}
	}
	for (size_t i = 0; i < n; i++) {
		double once, middle = median(s[i], ROUNDS);
		struct uw_object *object = compile(files[i], &once);
		const struct table_header *h;

		if (!object)
			continue;
		h = uw_object_table(object)->header;
		source += (double)h->src_size;
		table += (double)h->blob.size;
		(void)printf("%-60s %9.0f KB  %.3f of it  %.2f bytes/row  %5u rules  %4.0f MB/s "
			     "(best %.0f)\n",
			     files[i], (double)h->src_size / 1e3,
			     (double)h->blob.size / (double)h->src_size,
			     (double)h->blob.size / h->n_rows, h->n_rules,
			     (double)h->src_size / middle / 1e6,
			     (double)h->src_size / s[i][0] / 1e6);
		uw_object_put(object);
	}
	if (source > 0) {
		double middle = median(all, ROUNDS);

		(void)printf("all: %.1f MB, table %.3f of it, %.0f MB/s a thread, the median of %d "
			     "rounds (best %.0f)\n",
			     source / 1e6, table / source, source / middle / 1e6, ROUNDS,
			     source / all[0] / 1e6);
	}
	free(s);
	return 0;
}

struct index {
	uint32_t *start; /* units, ascending */
	uint32_t *rule;
	size_t n;
};

/* The unit of every row, from the table itself. */
static int index_of(const struct uw_table *t, struct index *index)
{
	const struct table_header *h = t->header;
	uint32_t row = 0;

	index->n = h->n_rows;
	index->start = calloc(h->n_rows, sizeof(*index->start));
	index->rule = calloc(h->n_rows, sizeof(*index->rule));
	if (!index->start || !index->rule)
		return -ENOMEM;
	for (uint32_t s = 0; s < h->n_superblocks; s++) {
		if (t->superblock[s].block == TABLE_NO_BLOCK)
			continue;
		for (uint32_t i = 0; i < 256; i++) {
			const uint16_t *block = &t->block[t->superblock[s].block + i];

			for (; row < t->superblock[s].row + block[1]; row++) {
				index->start[row] = s * TABLE_SUPERBLOCK_UNITS +
						    i * TABLE_BLOCK_UNITS + t->key[row];
				index->rule[row] = t->rule_index ? t->rule_index[row]
								 : t->wide_rule_index[row];
			}
		}
	}
	return 0;
}

typedef uint64_t (*search_fn)(const struct index *index, const struct uw_table *t, uint64_t vaddr);

static inline uint64_t rule_before(const struct index *index, const struct uw_table *t, size_t at,
				   uint32_t unit)
{
	return at && unit < t->header->span ? t->rule[index->rule[at - 1]] : TABLE_NONE;
}

/* The usual binary search, as in std::upper_bound. */
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
	return rule_before(index, t, low, unit);
}

/*
 * Without branches that a CPU could mispredict: not the usual search any more, so it is reported
 * separately.
 */
static uint64_t search_branch_free(const struct index *index, const struct uw_table *t,
				   uint64_t vaddr)
{
	uint32_t unit = (uint32_t)((vaddr - t->header->base) >> t->header->unit_shift);
	const uint32_t *at = index->start;

	for (size_t n = index->n, half; n > 1; n -= half) {
		half = n / 2;
		at += (size_t)(at[half] <= unit) * half;
	}
	return rule_before(index, t, (size_t)(at - index->start) + (*at <= unit), unit);
}

static uint64_t search_table(const struct index *index, const struct uw_table *t, uint64_t vaddr)
{
	uint32_t rule;

	(void)index;
	return uw_table_packed(t, vaddr, &rule);
}

/* Return ns of CPU time per look-up; inlined, because how is constant. */
static inline __attribute__((always_inline)) double
time_of(search_fn how, const struct index *index, const struct uw_table *t, const uint64_t *pc,
	size_t n, uint64_t *sum)
{
	double start = seconds(CLOCK_THREAD_CPUTIME_ID);

	*sum = 0;
	for (size_t i = 0; i < n; i++)
		*sum += how(index, t, pc[i]);
	return (seconds(CLOCK_THREAD_CPUTIME_ID) - start) / (double)n * 1e9;
}

static uint64_t *pcs_of(const char *file, size_t *n)
{
	uint64_t *pc = NULL;
	size_t room = 0;
	char line[64];
	FILE *in = fopen(file, "r");

	for (*n = 0; in && fgets(line, sizeof(line), in); (*n)++) {
		if (*n == room) {
			uint64_t *more;

			room = room ? room * 2 : 4096;
			more = realloc(pc, room * sizeof(*pc));
			if (!more)
				break;
			pc = more;
		}
		pc[*n] = strtoull(line, NULL, 16);
	}
	if (in)
		(void)fclose(in);
	return pc;
}

/*
 * The three ways take turns over all addresses in recorded order; the results are medians of the
 * rounds.
 */
static int look_up(const char *pcs, const char *file)
{
	double s, ns[3][ROUNDS], ratio[2][ROUNDS], least, most;
	struct uw_object *object = compile(file, &s);
	const struct uw_table *t = object ? uw_object_table(object) : NULL;
	struct index index = { .start = NULL };
	uint64_t sum[3];
	size_t n;
	uint64_t *pc = pcs_of(pcs, &n);
	bool agree = n > 0;

	if (!t || !n || index_of(t, &index)) {
		(void)printf("%s: no table or no addresses\n", file);
		return 1;
	}
	for (int r = 0; r < ROUNDS; r++) {
		ns[0][r] = time_of(search_table, &index, t, pc, n, &sum[0]);
		ns[1][r] = time_of(search, &index, t, pc, n, &sum[1]);
		ns[2][r] = time_of(search_branch_free, &index, t, pc, n, &sum[2]);
		ratio[0][r] = ns[1][r] / ns[0][r];
		ratio[1][r] = ns[2][r] / ns[0][r];
		agree = agree && sum[0] == sum[1] && sum[0] == sum[2];
	}
	if (agree) {
		double middle = median(ratio[0], ROUNDS);

		least = ratio[0][0];
		most = ratio[0][ROUNDS - 1];
		(void)printf("%zu sampled addresses of %s: table %.1f ns, binary search %.1f ns, "
			     "ratio %.1f (%.1f to %.1f); without branches %.1f ns, %.1f\n",
			     n, file, median(ns[0], ROUNDS), median(ns[1], ROUNDS), middle, least,
			     most, median(ns[2], ROUNDS), median(ratio[1], ROUNDS));
	} else {
		(void)printf("%s: they disagree\n", file);
	}
	free(pc);
	free(index.start);
	free(index.rule);
	uw_object_put(object);
	return agree ? 0 : 1;
}

/* ---- out of a store ---------------------------------------------------------------------- */

/* Return the CPU seconds until the object has its table and a rule in the middle of its code. */
static int load_once(struct store *store, const char *file, bool whole, double *s)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : 0;
	const struct uw_segment *segments;
	struct uw_object *object = NULL;
	struct store_file known;
	double start;
	uint64_t word;
	uint8_t how;
	size_t n;

	if (!err)
		err = uw_object_open(fd, 0, &object);
	store_file_of(fd, 0, file, &known);
	if (fd >= 0)
		(void)close(fd);
	if (err)
		return err;
	start = seconds(CLOCK_THREAD_CPUTIME_ID);
	err = whole ? store_find(store, object, &known) : store_find_parts(store, object, &known);
	segments = uw_object_segments(object, &n);
	for (size_t i = 0; i < n && !err; i++)
		if (segments[i].flags & 1)
			(void)uw_object_packed(object, segments[i].vaddr + segments[i].mem_size / 2,
					       true, &word, &how);
	*s = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	uw_object_put(object);
	return err;
}

/* Of table and ranges. */
static double kept_bytes(const char *name, const char *file)
{
	char error[DB_ERROR_SIZE], *sql;
	double bytes = 0;
	sqlite3 *db;

	if (db_open(name, &db_store, DB_READ, &db, error))
		return 0;
	sql = sqlite3_mprintf("SELECT max(t.size) FROM tables AS t JOIN objects AS o"
			      " ON o.id = t.object WHERE o.path = %Q",
			      file);
	if (sql)
		bytes = (double)db_number(db, sql);
	sqlite3_free(sql);
	(void)sqlite3_close(db);
	return bytes;
}

static int load_all(const char *db, char **files, int n)
{
	int failures = 0;

	for (int i = 0; i < n; i++) {
		double s[2][ROUNDS], bytes = kept_bytes(db, files[i]), times[2];
		struct store *store;
		int err = store_open(db, &store);

		for (unsigned int r = 0; r < ROUNDS && !err; r++) {
			err = load_once(store, files[i], true, &s[0][r]);
			if (!err)
				err = load_once(store, files[i], false, &s[1][r]);
		}
		store_close(store);
		if (err) {
			(void)printf("%s: %s\n", files[i], strerror(-err));
			failures++;
			continue;
		}
		for (int k = 0; k < 2; k++)
			times[k] = median(s[k], ROUNDS) * 1e3;
		(void)printf(
			"%-60s %5.2f MB: loaded, to its first rule %.3f ms (%.3f ms/MB); all of "
			"it read and checked %.2f ms (%.2f ms/MB)\n",
			files[i], bytes / 1e6, times[1], times[1] / bytes * 1e6, times[0],
			times[0] / bytes * 1e6);
	}
	return failures != 0;
}

int main(int argc, char **argv)
{
	log_quiet(true);
	if (argc >= 4 && !strcmp(argv[1], "-k"))
		return load_all(argv[2], argv + 3, argc - 3);

	if (argc == 4 && !strcmp(argv[1], "-p"))
		return look_up(argv[2], argv[3]);
	return build_all(argv + 1, (size_t)argc - 1);
}

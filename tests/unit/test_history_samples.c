/* tests/unit/test_history_samples.c: tests how samples of a window are packed, read and merged. */
#include "agent/history/samples.h"

#include <stdlib.h>
#include <string.h>

#include "schema/window_blob.h"
#include "tests/check.h"

static struct history_sample sample(uint64_t labels, uint32_t pid, uint32_t tid, uint64_t node,
				    uint64_t time_ms, int64_t value)
{
	return (struct history_sample){ .labels = labels,
					.pid = pid,
					.tid = tid,
					.node = node,
					.time_ns = time_ms * WINDOW_TIME_NS,
					.n_values = 1,
					.values = { { .type = 1, .value = value } } };
}

static struct history_bytes pack(const struct history_sample *samples, size_t n,
				 enum history_level level)
{
	struct history_sample *copy = malloc((n + 1) * sizeof(*copy));
	struct history_bytes out = { .bytes = NULL };

	if (n)
		memcpy(copy, samples, n * sizeof(*copy));
	CHECK(samples_pack(copy, n, level, &out) == 0, "packed");
	free(copy);
	return out;
}

/* Read all of a blob. Return its number of groups, or what is wrong with it. */
static int read_all(const void *bytes, size_t size, struct history_group *last, int64_t *sum)
{
	struct samples_reader r;
	struct history_group group;
	int err = samples_open(bytes, size, &r), n = 0;

	if (sum)
		*sum = 0;
	while (!err && (err = samples_next(&r, &group)) == 1) {
		uint64_t times = 0, time;
		struct history_group copy = group;

		while (samples_time(&copy, &time))
			times++;
		err = times == group.n_times ? 0 : -EIO;
		for (uint32_t i = 0; sum && i < group.sample->n_values; i++)
			*sum += group.sample->values[i].value;
		if (last)
			*last = group;
		n++;
	}
	return err ? err : n;
}

static void test_equal_samples_are_one_group(void)
{
	struct history_sample s[] = { sample(2, 7, 8, 5, 30, 4), sample(1, 7, 8, 5, 20, 1),
				      sample(1, 7, 8, 5, 10, 2), sample(1, 7, 9, 5, 40, 8) };
	static const int groups[] = {
		[HISTORY_TIMES] = 4, [HISTORY_THREADS] = 3, [HISTORY_TOGETHER] = 2
	};

	for (int level = 0; level < HISTORY_LEVELS; level++) {
		struct history_bytes b = pack(s, 4, (enum history_level)level);
		int64_t sum;

		CHECK(read_all(b.bytes, b.size, NULL, &sum) == groups[level] && sum == 15,
		      "groups");
		free(b.bytes);
	}
}

static void test_times_are_in_order(void)
{
	struct history_sample s[] = { sample(1, 7, 8, 5, 9000, 4), sample(1, 7, 8, 5, 0, 4),
				      sample(1, 7, 8, 5, 10, 4), sample(1, 7, 8, 5, 10, 4) };
	static const uint64_t times[] = { 0, 10, 10, 9000 };
	struct history_bytes b = pack(s, 4, HISTORY_TIMES);
	struct samples_reader r;
	struct history_group g;
	uint64_t time, n = 0;

	CHECK(samples_open(b.bytes, b.size, &r) == 0 && samples_next(&r, &g) == 1, "read");
	CHECK(g.n_times == 4 && g.sample->values[0].value == 16, "one group");
	for (; samples_time(&g, &time); n++)
		CHECK(n < 4 && time == times[n] * WINDOW_TIME_NS, "a time");
	CHECK(n == 4 && samples_next(&r, &g) == 0, "the end");
	free(b.bytes);
}

/* A thread that waits at one place now for a moment and now for long: each wait has its own length. */
static void test_each_sample_has_its_own_values(void)
{
	struct history_sample s[] = { sample(1, 7, 8, 5, 40, 800), sample(1, 7, 8, 5, 10, 20),
				      sample(1, 7, 8, 5, 20, 800), sample(1, 7, 8, 5, 30, 800) };
	struct history_bytes b;
	struct samples_reader r;
	struct history_group g;
	uint64_t time;

	s[3].values[s[3].n_values++] = (struct history_value){ 2, 1 };
	b = pack(s, 4, HISTORY_TIMES);
	CHECK(samples_open(b.bytes, b.size, &r) == 0, "opens");
	CHECK(samples_next(&r, &g) == 1 && g.n_times == 1 && g.sample->values[0].value == 20 &&
		      samples_time(&g, &time) && time == 10 * WINDOW_TIME_NS,
	      "the short one");
	CHECK(samples_next(&r, &g) == 1 && g.n_times == 2 && g.sample->values[0].value == 1600 &&
		      samples_time(&g, &time) && time == 20 * WINDOW_TIME_NS,
	      "two that are equal");
	CHECK(samples_next(&r, &g) == 1 && g.n_times == 1 && g.sample->n_values == 2 &&
		      samples_time(&g, &time) && time == 30 * WINDOW_TIME_NS,
	      "one with another value, too");
	CHECK(samples_next(&r, &g) == 0, "the end");
	free(b.bytes);
}

static void test_any_number_is_stored(void)
{
	static const int64_t values[] = { INT64_MIN, INT64_MIN + 1, -65, -64,	   -1, 0, 1, 63,
					  64,	     127,	    128, INT64_MAX };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct history_sample s =
			sample(INT64_MAX, UINT32_MAX, UINT32_MAX, INT64_MAX, 0, values[i]);
		struct history_bytes b;
		struct samples_reader r;
		struct history_group g;
		uint64_t time;

		s.time_ns = UINT64_MAX;
		s.values[0].type = UINT32_MAX;
		b = pack(&s, 1, HISTORY_TIMES);
		CHECK(samples_open(b.bytes, b.size, &r) == 0 && samples_next(&r, &g) == 1, "read");
		CHECK(g.sample->labels == INT64_MAX && g.sample->node == INT64_MAX &&
			      g.sample->pid == UINT32_MAX && g.sample->tid == UINT32_MAX &&
			      g.sample->values[0].type == UINT32_MAX &&
			      g.sample->values[0].value == values[i],
		      "as it was");
		CHECK(samples_time(&g, &time) &&
			      time == s.time_ns / WINDOW_TIME_NS * WINDOW_TIME_NS,
		      "its time");
		CHECK(samples_next(&r, &g) == 0, "the end");
		free(b.bytes);
	}
}

/* Differences between groups are signed where they must be. */
static void test_fields_go_up_and_down(void)
{
	struct history_sample s[] = { sample(1, UINT32_MAX, 1, INT64_MAX, 0, 1),
				      sample(1, UINT32_MAX, 2, 1, 0, 1),
				      sample(2, 0, 0, 0, 0, 1),
				      sample(2, 0, 0, INT64_MAX, 0, 1),
				      sample(2, 0, UINT32_MAX, 3, 0, 1),
				      sample(3, 0, UINT32_MAX, 3, 0, 1) };
	struct history_bytes b = pack(s, 6, HISTORY_THREADS);
	struct samples_reader r;
	struct history_group g;

	CHECK(samples_open(b.bytes, b.size, &r) == 0, "opens");
	for (int i = 0; i < 6; i++)
		CHECK(samples_next(&r, &g) == 1 && g.sample->labels == s[i].labels &&
			      g.sample->pid == s[i].pid && g.sample->tid == s[i].tid &&
			      g.sample->node == s[i].node,
		      "in order");
	CHECK(samples_next(&r, &g) == 0, "the end");
	free(b.bytes);
}

static bool same_values(const struct history_sample *a, const struct history_sample *b)
{
	bool same = a->n_values == b->n_values;

	for (size_t i = 0; same && i < a->n_values; i++)
		same = a->values[i].type == b->values[i].type &&
		       a->values[i].value == b->values[i].value;
	return same;
}

/* Values are differences from those of the group before, if the types are the same. */
static void test_types_change(void)
{
	struct history_sample s[] = {
		sample(1, 0, 0, 1, 0, INT64_MAX), sample(1, 0, 0, 2, 0, INT64_MIN),
		sample(1, 0, 0, 3, 0, 5),	  sample(1, 0, 0, 4, 0, 6),
		sample(1, 0, 0, 5, 0, 7),	  sample(1, 0, 0, 6, 0, 8)
	};
	struct history_bytes b;
	struct samples_reader r;
	struct history_group g;

	s[2].values[0].type = 2;
	s[3].values[s[3].n_values++] = (struct history_value){ 2, 1000 };
	s[4].values[s[4].n_values++] = (struct history_value){ 2, 1001 };
	s[5].n_values = 0;
	b = pack(s, 6, HISTORY_THREADS);
	CHECK(samples_open(b.bytes, b.size, &r) == 0, "opens");
	for (int i = 0; i < 6; i++)
		CHECK(samples_next(&r, &g) == 1 && same_values(g.sample, &s[i]), "as they were");
	CHECK(samples_next(&r, &g) == 0, "the end");
	free(b.bytes);
}

/* CPU time is as many periods as there are samples: then it takes no bytes. */
static void test_multiples(void)
{
	enum { N = 8 };
	static const int64_t values[N][2] = {
		{ 1, 52631578 },
		{ 7, 7 * INT64_C(52631578) },
		{ 60, 60 * INT64_C(52631578) },
		{ 2, 3 }, /* none */
		{ 2, 4 },
		{ -1, INT64_MIN },
		{ 0, 0 },
		{ INT64_MAX, -INT64_MAX },
	};
	struct history_sample s[N];
	struct history_bytes all, few;
	struct samples_reader r;
	struct history_group g;

	for (uint64_t i = 0; i < N; i++) {
		s[i] = sample(1, 7, 8, 1000 + 10 * i, 0, values[i][0]);
		s[i].values[s[i].n_values++] = (struct history_value){ 2, values[i][1] };
	}
	few = pack(s, 1, HISTORY_THREADS);
	all = pack(s, 3, HISTORY_THREADS);
	CHECK(all.size == few.size + 4, "two bytes for each of the later two");
	free(few.bytes);
	free(all.bytes);
	all = pack(s, N, HISTORY_THREADS);
	CHECK(samples_open(all.bytes, all.size, &r) == 0, "opens");
	for (int i = 0; i < N; i++)
		CHECK(samples_next(&r, &g) == 1 && g.sample->n_values == 2 &&
			      g.sample->values[0].value == values[i][0] &&
			      g.sample->values[1].value == values[i][1],
		      "as they were");
	CHECK(samples_next(&r, &g) == 0, "the end");
	free(all.bytes);
}

/* What offwind wrote before groups had heads. */
static void test_version_1(void)
{
	static const uint8_t bytes[] = {
		1,  HISTORY_THREADS, /* header */
		1,  7,
		8,  50,
		3,  1,
		2,  5,
		40, /* labels, threads, node, types and values */
		0,  0,
		1,  1,
		0,  1,
		8, /* the next thread */
		2,  1,
		0,  10,
		2,  3,
		9, /* other labels, and one value of another type */
	};
	static const struct history_sample wanted[] = {
		{ .labels = 1,
		  .pid = 7,
		  .tid = 8,
		  .node = 50,
		  .n_values = 2,
		  .values = { { 1, 5 }, { 2, 40 } } },
		{ .labels = 1,
		  .pid = 7,
		  .tid = 9,
		  .node = 51,
		  .n_values = 2,
		  .values = { { 1, 6 }, { 2, 48 } } },
		{ .labels = 3,
		  .pid = 8,
		  .tid = 9,
		  .node = 61,
		  .n_values = 1,
		  .values = { { 3, 9 } } },
	};
	const struct uw_bytes blob = uw_bytes_of(bytes, sizeof(bytes));
	struct history_bytes merged = { .bytes = NULL };
	struct samples_reader old, new;
	struct history_group g, h;

	CHECK(samples_merge(&blob, 1, HISTORY_THREADS, &merged) == 0, "merged into a later one");
	CHECK(samples_open(bytes, sizeof(bytes), &old) == 0 &&
		      samples_open(merged.bytes, merged.size, &new) == 0 && new.version == 2,
	      "opens");
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		const struct history_sample *w = &wanted[i];

		CHECK(samples_next(&old, &g) == 1 && samples_next(&new, &h) == 1, "a group");
		for (const struct history_sample *s = g.sample; s;
		     s = s == g.sample ? h.sample : NULL)
			CHECK(s->labels == w->labels && s->pid == w->pid && s->tid == w->tid &&
				      s->node == w->node && s->n_values == w->n_values &&
				      !memcmp(s->values, w->values,
					      w->n_values * sizeof(w->values[0])),
			      "as it was written");
	}
	CHECK(samples_next(&old, &g) == 0 && samples_next(&new, &h) == 0, "the end");
	free(merged.bytes);
}

/* Values that do not fit into one number are kept in two groups of one identity. */
static void test_large_sums_are_not_cut(void)
{
	struct history_sample s[] = { sample(1, 7, 8, 5, 0, INT64_MAX),
				      sample(1, 7, 8, 5, 1, INT64_MAX) };
	struct history_bytes b = pack(s, 2, HISTORY_TIMES), merged = { .bytes = NULL };
	struct uw_bytes blobs[2] = { uw_bytes_of(b.bytes, b.size), uw_bytes_of(b.bytes, b.size) };
	struct history_group g;

	CHECK(read_all(b.bytes, b.size, &g, NULL) == 2, "two");
	CHECK(samples_merge(blobs, 2, HISTORY_TOGETHER, &merged) == 0 &&
		      read_all(merged.bytes, merged.size, &g, NULL) == 4,
	      "four");
	free(merged.bytes);
	free(b.bytes);
}

static void test_an_empty_window(void)
{
	struct history_bytes b = pack(NULL, 0, HISTORY_TIMES), merged = { .bytes = NULL };
	struct uw_bytes blob = uw_bytes_of(b.bytes, b.size);

	CHECK(read_all(b.bytes, b.size, NULL, NULL) == 0, "no groups");
	CHECK(samples_merge(&blob, 1, HISTORY_TOGETHER, &merged) == 0 &&
		      read_all(merged.bytes, merged.size, NULL, NULL) == 0,
	      "merged");
	free(merged.bytes);
	merged = (struct history_bytes){ .bytes = NULL };
	CHECK(samples_merge(NULL, 0, HISTORY_THREADS, &merged) == 0 && merged.size == 2, "nothing");
	free(merged.bytes);
	free(b.bytes);
}

/* ---- merging -------------------------------------------------------------------------------- */

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % below;
}

static int64_t value_of(const struct history_sample *s, uint32_t type)
{
	for (uint32_t i = 0; i < s->n_values; i++)
		if (s->values[i].type == type)
			return s->values[i].value;
	return 0;
}

static bool same_groups(const struct history_bytes *a, const struct history_bytes *b)
{
	struct samples_reader x, y;
	struct history_group g, h;
	bool same = !samples_open(a->bytes, a->size, &x) && !samples_open(b->bytes, b->size, &y) &&
		    x.level == y.level;
	int more = 1;

	while (same && more == 1) {
		more = samples_next(&x, &g);
		same = samples_next(&y, &h) == more && more >= 0;
		if (same && more)
			same = g.sample->labels == h.sample->labels &&
			       g.sample->pid == h.sample->pid && g.sample->tid == h.sample->tid &&
			       g.sample->node == h.sample->node &&
			       value_of(g.sample, 1) == value_of(h.sample, 1) &&
			       value_of(g.sample, 2) == value_of(h.sample, 2);
	}
	return same;
}

enum { BLOBS = 9, SAMPLES = 300 };

/* What is merged is what would have been packed at once. */
static void test_merging_is_packing_together(enum history_level level)
{
	static struct history_sample all[BLOBS * SAMPLES];
	struct history_bytes parts[BLOBS], together, merged = { .bytes = NULL };
	struct uw_bytes blobs[BLOBS];
	size_t n = 0;

	for (size_t i = 0; i < BLOBS; i++) {
		size_t first = n, more = draw(SAMPLES);

		for (; n < first + more; n++) {
			all[n] = sample(1 + draw(3), draw(4), draw(4), draw(40), draw(10000),
					draw(9));
			if (draw(2))
				all[n].values[all[n].n_values++] =
					(struct history_value){ .type = 2, .value = 5 };
		}
		/* Some were merged before. */
		parts[i] = pack(all + first, more, i % 3 == 2 ? level : HISTORY_TIMES);
		blobs[i] = uw_bytes_of(parts[i].bytes, parts[i].size);
	}
	together = pack(all, n, level);
	CHECK(samples_merge(blobs, BLOBS, level, &merged) == 0, "merged");
	CHECK(read_all(merged.bytes, merged.size, NULL, NULL) > 10, "groups");
	CHECK(same_groups(&merged, &together), "the same groups");
	free(merged.bytes);
	free(together.bytes);
	for (size_t i = 0; i < BLOBS; i++)
		free(parts[i].bytes);
}

/* ---- damage --------------------------------------------------------------------------------- */

static int open_bytes(const uint8_t *bytes, size_t size)
{
	struct samples_reader r;

	return samples_open(bytes, size, &r);
}

static void test_headers_are_checked(void)
{
	CHECK(open_bytes(NULL, 0) == -EBADMSG, "nothing");
	CHECK(open_bytes((const uint8_t *)"\1", 1) == -EBADMSG, "no level");
	CHECK(open_bytes((const uint8_t *)"\1\3", 2) == -EBADMSG, "no such level");
	CHECK(open_bytes((const uint8_t *)"\0\0", 2) == -ENOTSUP, "no version");
	CHECK(open_bytes((const uint8_t *)"\3\0", 2) == -ENOTSUP, "a later version");
	CHECK(open_bytes((const uint8_t *)"\xff\xff", 2) == -EBADMSG, "a torn number");
	CHECK(open_bytes((const uint8_t *)"\1\0", 2) == 0, "an empty one");
	CHECK(open_bytes((const uint8_t *)"\2\0", 2) == 0, "an empty one of today");
}

/* A torn blob is either read up to a group's end, or said to be damaged. */
static void test_torn_blobs(void)
{
	struct history_sample s[] = { sample(1, 700, 80, 5000, 30, -4),
				      sample(1, 700, 80, 5001, 20, 1),
				      sample(1, 701, 80, 50, 10, 200),
				      sample(2, 7, 9, 5, 4000, 8) };
	struct history_bytes b = pack(s, 4, HISTORY_TIMES);
	int whole = 0;

	for (size_t size = 2; size < b.size; size++) {
		uint8_t *copy = malloc(size); /* so that ASan sees what is read beyond it */
		int n;

		memcpy(copy, b.bytes, size);
		n = read_all(copy, size, NULL, NULL);
		CHECK(n == -EBADMSG || (n >= 0 && n < 4), "torn");
		whole += n >= 0;
		free(copy);
	}
	CHECK(whole == 4, "at each group's end");
	free(b.bytes);
}

static void test_hostile_groups(void)
{
	static const struct {
		const char *what, *bytes;
		size_t size;
	} all[] = {
		{ "too many values", "\1\1\1\0\0\1\12\1\1\1\1\1\1\1\1\1", 16 },
		{ "a type of 64 bits", "\1\1\1\0\0\1\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0",
		  18 },
		{ "a negative pid", "\1\1\1\x7f\0\1\1", 7 },
		{ "a pid of 33 bits", "\1\1\1\x80\x80\x80\x80\x10\0\1\1", 11 },
		{ "a negative tid", "\1\1\1\0\x7f\1\1", 7 },
		{ "a negative node", "\1\1\1\0\0\x7f\1", 7 },
		{ "labels not of SQLite", "\1\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\1\1",
		  16 },
		{ "nodes in no order", "\1\1\1\0\0\5\1\0\0\0\x7f\1", 12 },
		{ "threads in no order", "\1\1\1\0\5\5\1\0\0\x7f\0\1", 12 },
		{ "processes in no order", "\1\1\1\5\5\5\1\0\x7f\0\0\1", 12 },
		{ "fewer times than it says", "\1\0\1\0\0\5\1\5\1\1", 10 },
		{ "a head with a node and another thread", "\2\1\7\1\0\0\1\1", 8 },
		{ "a node beyond all",
		  "\2\1\xfc\xff\xff\xff\xff\xff\xff\xff\xff\1\xfc\xff\xff\xff\xff\xff\xff\xff\xff\1"
		  "\xfc\xff\xff\xff\xff\xff\xff\xff\xff\1",
		  32 },
		{ "too many values behind a head", "\2\1\3\1\0\0\1\12\1\1\1\1\1\1\1\1\1", 17 },
		{ "a head of 65 bits", "\2\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\2", 12 },
		{ "a head alone", "\2\1\2", 3 },
		{ "very many times", "\1\0\1\0\0\5\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 17 },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct history_bytes merged = { .bytes = NULL };
		struct uw_bytes blob = uw_bytes_of(all[i].bytes, all[i].size);

		CHECK(read_all(all[i].bytes, all[i].size, NULL, NULL) == -EBADMSG, all[i].what);
		CHECK(samples_merge(&blob, 1, HISTORY_TOGETHER, &merged) == -EBADMSG, all[i].what);
		free(merged.bytes);
		merged = (struct history_bytes){ .bytes = NULL };
		CHECK(samples_merge(&blob, 1, HISTORY_THREADS, &merged) == -EBADMSG, all[i].what);
		free(merged.bytes);
	}
}

int main(void)
{
	test_equal_samples_are_one_group();
	test_times_are_in_order();
	test_each_sample_has_its_own_values();
	test_any_number_is_stored();
	test_fields_go_up_and_down();
	test_types_change();
	test_multiples();
	test_version_1();
	test_large_sums_are_not_cut();
	test_an_empty_window();
	test_merging_is_packing_together(HISTORY_THREADS);
	test_merging_is_packing_together(HISTORY_TOGETHER);
	test_headers_are_checked();
	test_torn_blobs();
	test_hostile_groups();
	return check_done();
}

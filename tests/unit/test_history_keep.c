/*
 * tests/unit/test_history_keep.c: tests how a history stays within its limits: windows are merged
 * without changing a sum, old ones are deleted, and then what only they referred to.
 */
#include "agent/history/history.h"

#include <errno.h>
#include <unistd.h>

#include "agent/history/history_internal.h"
#include "tests/check.h"
#include "tests/history.h"

#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
/* 34:57 after an hour. */
#define START (UINT64_C(1699999200) * SECOND + 35 * MINUTE - 3 * SECOND)

static const struct history_query everything = { .to_ns = UINT64_MAX };
static const struct history_query with_labels = { .to_ns = UINT64_MAX, .labels = true };
static const struct history_limits defaults = { .bytes = 0 };

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % below;
}

static struct history *open_history(void)
{
	struct history *h = NULL;

	CHECK(history_open(db_name, true, &h) == 0, "opens");
	return h;
}

static struct made_sample draw_sample(uint64_t start_ns, uint64_t length_ns, uint32_t first_frame)
{
	static const char *const comms[] = { "cc1", "bash", "a \"b\"" };
	struct made_sample m = { .time_ns = start_ns + draw((uint32_t)(length_ns / 1000000)) *
							       (uint64_t)1000000,
				 .pid = 1 + draw(3),
				 .comm = comms[draw(3)],
				 .cpu_ns = draw(1000000),
				 .n_frames = 1 + draw(5) };

	m.tid = m.pid + draw(2);
	for (uint32_t i = 0; i < m.n_frames; i++)
		m.frames[i] = first_frame + draw(4);
	return m;
}

enum { SAMPLES = 12 };

/*
 * Add a window of random samples. The same samples go into *together, without times and threads, unless
 * that is NULL.
 */
static void add_window(struct history *h, uint64_t start_ns, uint64_t length_ns,
		       uint32_t first_frame, struct stacks *together)
{
	int64_t lost = draw(3), filtered = draw(9), waiting = (int64_t)draw(5) - 2;
	struct history_counter counters[] = {
		{ "unwound", "", SAMPLES },
		{ "stop", "end", SAMPLES - 2 },
		{ "stop", "torn", 2 },
		{ "lost", "ring", lost },
		{ "filtered", "idle", filtered },
		{ "waiting", "", waiting },
		{ "fired", "", SAMPLES + lost + filtered + waiting },
	};
	struct history_window w = { .start_ns = start_ns,
				    .end_ns = start_ns + length_ns,
				    .counters = counters,
				    .n_counters = sizeof(counters) / sizeof(counters[0]) };
	struct stacks *s = made_profile();

	for (size_t i = 0; i < SAMPLES; i++) {
		struct made_sample m = draw_sample(start_ns, length_ns, first_frame);

		made_add(s, &m);
		m.time_ns = m.pid = m.tid = 0;
		if (together)
			made_add(together, &m);
	}
	CHECK(history_add(h, s, &w) == 0, "added");
	stacks_free(s);
}

static void add_windows(struct history *h, uint64_t start_ns, size_t n, struct stacks *together)
{
	for (size_t i = 0; i < n; i++)
		add_window(h, start_ns + i * 10 * SECOND, 10 * SECOND, 0, together);
}

static char *text_of(struct history *h, const struct history_query *q)
{
	struct history_found found;
	int err;
	char *text = made_read(h, q, &found, &err);

	CHECK(!err && text, "read");
	return text ? text : strdup("");
}

/* Check that a query still gives the same. */
static void check_text(struct history *h, const struct history_query *q, const char *expected,
		       const char *what)
{
	char *text = text_of(h, q);

	CHECK(!strcmp(text, expected), what);
	free(text);
}

/* Do all that is to do. Return how many steps that were. */
static int keep_all(struct history *h, const struct history_limits *limits, uint64_t now)
{
	int steps = 0, err;

	while ((err = history_keep(h, limits, now)) == 1 && steps < 100000)
		steps++;
	CHECK(!err, "kept");
	return steps;
}

static const char balance[] =
	"SELECT count(*) FROM windows WHERE (SELECT sum(iif(what = 'fired', n, 0)) - sum(iif(what "
	"IN"
	" ('unwound', 'waiting', 'filtered', 'lost'), n, 0)) FROM counters WHERE window = id) != 0"
	" OR (SELECT sum(iif(what = 'unwound', n, 0)) - sum(iif(what = 'stop', n, 0)) FROM counters"
	" WHERE window = id) != 0";
/* All counters in one number that is different if one of them is. */
static const char counted[] = "SELECT sum(n * (unicode(what) * 1000 + length(what) * 100 + "
			      "length(reason))) FROM counters";

/* ---- merging --------------------------------------------------------------------------------- */

/* Check that the windows of a level each have a period of their own, and all samples of it. */
static void check_periods(int level, uint64_t period, int64_t n)
{
	char text[200];

	(void)snprintf(text, sizeof(text),
		       "SELECT count(*) = count(DISTINCT start_ns / %" PRIu64
		       ") AND count(*) = %" PRId64 " FROM windows WHERE level = %d",
		       period, n, level);
	CHECK(db_count(text) == 1, text);
}

static void test_merging_changes_no_sum(void)
{
	struct history *h = open_history();
	struct stacks *together = made_profile();
	char *all, *labels, *text;
	int64_t counters;
	int err;

	add_windows(h, START, 240, together); /* 40 minutes */
	all = text_of(h, &everything);
	labels = text_of(h, &with_labels);
	counters = db_count(counted);
	CHECK(history_keep(h, &defaults, START + 6 * HOUR) == 0, "all is new");
	CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 240, "as it was");
	while ((err = history_keep(h, &defaults, START + 8 * HOUR)) == 1) {
		check_text(h, &everything, all, "all");
		check_text(h, &with_labels, labels, "with threads");
		CHECK(db_count(balance) == 0 && db_count(counted) == counters, "counters");
	}
	CHECK(!err && db_count("SELECT count(*) FROM windows WHERE level = 0") == 0, "merged");
	check_periods(1, 10 * MINUTE, 5); /* 34:57 to 74:57 */
	while ((err = history_keep(h, &defaults, START + 3 * DAY)) == 1) {
		check_text(h, &everything, all, "all");
		CHECK(db_count(balance) == 0 && db_count(counted) == counters, "counters");
	}
	check_periods(2, HOUR, 2);
	CHECK(!err && db_count("SELECT count(*) FROM windows") == 2, "merged");
	CHECK(db_count("SELECT sum(n_samples) FROM windows") == 240 * SAMPLES, "samples");
	CHECK(db_count("SELECT min(start_ns) FROM windows") == (int64_t)START &&
		      db_count("SELECT max(end_ns) FROM windows") ==
			      (int64_t)(START + 2400 * SECOND),
	      "times are those of samples");
	check_text(h, &everything, all, "all");
	text = made_text(together);
	check_text(h, &with_labels, text, "labels, and no threads");
	free(text);
	free(all);
	free(labels);
	stacks_free(together);
	history_close(h);
	db_remove();
}

static void test_a_period_is_merged_when_all_of_it_is_old(void)
{
	struct history *h = open_history();
	uint64_t start = START + 3 * SECOND - 5 * MINUTE; /* of a period */

	CHECK(start % (10 * MINUTE) == 0, "a period begins");
	add_windows(h, start, 61, NULL);
	CHECK(keep_all(h, &defaults, start + 6 * HOUR + 10 * MINUTE - 1) == 0, "not yet");
	CHECK(keep_all(h, &defaults, start + 6 * HOUR + 10 * MINUTE) > 0, "now");
	CHECK(db_count("SELECT count(*) FROM windows") == 2, "but the next one");
	history_close(h);
	db_remove();
}

/* Windows that come late, or twice for one time, are merged into what is there. */
static void test_late_windows_are_merged_too(void)
{
	struct history *h = open_history();
	char *all;

	add_windows(h, START, 200, NULL);
	(void)keep_all(h, &defaults, START + 9 * HOUR);
	add_windows(h, START, 20, NULL);
	all = text_of(h, &with_labels);
	CHECK(keep_all(h, &defaults, START + 9 * HOUR) > 0, "merged");
	check_text(h, &with_labels, all, "all");
	CHECK(db_count("SELECT count(*) = count(DISTINCT start_ns / 600000000000) FROM windows") ==
		      1,
	      "one for each period");
	free(all);
	history_close(h);
	db_remove();
}

static void test_whole_windows_of_a_range_are_read(void)
{
	struct history *h = open_history();
	uint64_t start = START + 3 * SECOND - 5 * MINUTE;
	const struct history_query one = { .from_ns = start + 10 * MINUTE,
					   .to_ns = start + 20 * MINUTE };
	struct history_found found;
	char *before, *after;
	int err;

	add_windows(h, start, 180, NULL);
	before = text_of(h, &one);
	(void)keep_all(h, &defaults, start + DAY);
	after = made_read(h, &one, &found, &err);
	CHECK(!err && !strcmp(before, after) && found.n_windows == 1 &&
		      found.n_samples == 60 * SAMPLES && found.start_ns == one.from_ns &&
		      found.end_ns == one.to_ns,
	      "the same");
	free(before);
	free(after);
	history_close(h);
	db_remove();
}

struct range_sums {
	int64_t samples, cpu;
};

static int add_point(void *ctx, const struct history_point *point)
{
	struct range_sums *sums = ctx;

	sums->samples += (int64_t)point->n;
	sums->cpu += point->value;
	return 0;
}

/* Return the sums of a range, which are the same for whole stacks and for single points. */
static struct range_sums range_sums(struct history *h, uint64_t from_ns, uint64_t to_ns)
{
	const struct history_query q = { .from_ns = from_ns, .to_ns = to_ns, .labels = true };
	struct range_sums sums = { 0 }, points = { 0 };
	struct history_found found;
	struct stacks *s = NULL;

	CHECK(!stacks_new(&s) && !history_read(h, &q, s, &found), "read");
	for (size_t i = 0; i < s->n_samples; i++) {
		sums.samples += stacks_value(s, i, stacks_find_type(s, "samples"));
		sums.cpu += stacks_value(s, i, stacks_find_type(s, "cpu"));
	}
	CHECK(found.start_ns == from_ns && found.end_ns == to_ns, "the range that was found");
	CHECK(!history_scan(h, from_ns, to_ns, "cpu", add_point, &points, NULL, NULL), "scanned");
	CHECK(points.samples == sums.samples && points.cpu == sums.cpu, "the same");
	stacks_free(s);
	return sums;
}

/* Ranges that lie in a merged window have their share of it, and those that follow each other all of it. */
static void test_ranges_divide_a_merged_window(void)
{
	static const uint64_t ends[] = { 0, MINUTE, 5 * MINUTE + 7 * SECOND,
					 5 * MINUTE + 8 * SECOND, HOUR };
	const uint64_t start = UINT64_C(1699999200) * SECOND;
	struct history *h = open_history();
	struct range_sums all, sum = { 0 };

	add_windows(h, start, HOUR / (10 * SECOND), NULL);
	all = range_sums(h, start, start + HOUR);
	for (int level = HISTORY_THREADS; level < HISTORY_LEVELS; level++) {
		(void)keep_all(h, &defaults,
			       start + (level == HISTORY_THREADS ? 10 * HOUR : 3 * DAY));
		CHECK(db_count("SELECT count(*) FROM windows") ==
			      (level == HISTORY_THREADS ? 6 : 1),
		      "merged");
		sum = (struct range_sums){ 0 };
		for (size_t i = 1; i < sizeof(ends) / sizeof(ends[0]); i++) {
			const uint64_t length = ends[i] - ends[i - 1];
			const int64_t expected = (int64_t)((uint64_t)all.samples * length / HOUR);
			struct range_sums part =
				range_sums(h, start + ends[i - 1], start + ends[i]);

			CHECK(part.samples >= expected * 3 / 4 - 3 &&
				      part.samples <= expected * 4 / 3 + 3,
			      "its share");
			sum.samples += part.samples;
			sum.cpu += part.cpu;
		}
		CHECK(sum.samples == all.samples && sum.cpu == all.cpu, "together all");
	}
	history_close(h);
	db_remove();
}

/* A merge that fails at its very end changes nothing. */
static void test_a_merge_is_one_transaction(void)
{
	struct history *h = open_history();
	char *labels;
	int64_t counters;

	add_windows(h, START, 100, NULL);
	labels = text_of(h, &with_labels);
	counters = db_count(counted);
	CHECK(db_sql("CREATE TRIGGER t BEFORE DELETE ON windows WHEN old.id = 2"
		     " BEGIN SELECT raise(ABORT, 'no'); END") == SQLITE_OK,
	      "a trigger");
	h->step_ns = HOUR; /* all in one step */
	CHECK(history_keep(h, &defaults, START + DAY) < 0, "fails");
	CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 100 &&
		      db_count(counted) == counters,
	      "as it was");
	check_text(h, &with_labels, labels, "as it was");
	CHECK(db_sql("DROP TRIGGER t") == SQLITE_OK && keep_all(h, &defaults, START + DAY) > 0,
	      "now it goes");
	check_text(h, &with_labels, labels, "merged");
	free(labels);
	history_close(h);
	db_remove();
}

/*
 * Merging takes several steps. Meanwhile windows are added, and those that are merged are deleted, or
 * merged by another process: nothing is lost, and nothing is there twice.
 */
static void test_windows_change_while_others_are_merged(void)
{
	static const char gone[] = "DELETE FROM windows WHERE id = 30";

	for (int change = 0; change < 4; change++) {
		struct history *h = open_history(), *other = open_history();
		int64_t left = change == 1 ? 119 : change == 2 ? 132 : 120;
		char *labels, *counters;
		int steps = 1;

		h->step_ns = 0;
		add_windows(h, START, 120, NULL);
		CHECK(history_keep(h, &defaults, START + DAY) == 1 && h->merge, "a merge begins");
		if (change == 1)
			CHECK(db_sql(gone) == SQLITE_OK, gone);
		else if (change == 2)
			add_windows(other, START, 12, NULL);
		else if (change == 3)
			CHECK(keep_all(other, &defaults, START + DAY) > 0, "another process");
		labels = text_of(h, &with_labels);
		if (asprintf(&counters, "SELECT (%s) = %" PRId64, counted, db_count(counted)) < 0)
			abort();
		steps += keep_all(h, &defaults, START + DAY);
		CHECK(steps > 10 && !h->merge, "several steps");
		CHECK(db_count("SELECT sum(n_samples) FROM windows") == left * SAMPLES, "samples");
		CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 0, "merged");
		CHECK(db_count("SELECT count(*) = count(DISTINCT start_ns / 600000000000) FROM "
			       "windows") == 1,
		      "one for each period");
		CHECK(db_count(counters) == 1 && db_count(balance) == 0, "counters");
		check_text(h, &with_labels, labels, "all");
		free(counters);
		free(labels);
		history_close(other);
		history_close(h);
		db_remove();
	}
}

static void test_damaged_windows_do_not_stop_others(void)
{
	static const char *const damages[] = { "x'01'", "x'0300'", "x'0100010000010b'" };

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct history *h = open_history();
		char text[100];

		add_windows(h, START, 100, NULL);
		(void)snprintf(text, sizeof(text), "UPDATE windows SET samples = %s WHERE id = 7",
			       damages[i]);
		CHECK(db_sql(text) == SQLITE_OK, text);
		(void)keep_all(h, &defaults, START + DAY);
		CHECK(db_count("SELECT sum(n_samples) FROM windows") == 99 * SAMPLES &&
			      db_count("SELECT count(*) FROM windows WHERE level = 0") == 0 &&
			      db_count(balance) == 0,
		      "all others are merged");
		free(text_of(h, &everything));
		history_close(h);
		db_remove();
	}
}

/* ---- deleting -------------------------------------------------------------------------------- */

static const char rows[] =
	"SELECT (SELECT count(*) FROM nodes) * 1000000 + (SELECT count(*) FROM frames) * 10000 +"
	" (SELECT count(*) FROM functions) * 100 + (SELECT count(*) FROM labels)";

/* Add windows of the last day, which have the same samples in each history. */
static void add_last_day(struct history *h)
{
	uint32_t before = state;

	state = 77;
	for (uint32_t i = 0; i < 5; i++)
		add_window(h, START + 40 * DAY + i * MINUTE, 10 * SECOND, 2 * i, NULL);
	state = before;
}

/* What is left is what a history has that never had more. */
static void test_what_nobody_refers_to_is_deleted(void)
{
	struct history *h = open_history();
	char *all;
	int64_t expected, node;

	add_last_day(h);
	expected = db_count(rows);
	all = text_of(h, &with_labels);
	history_close(h);
	db_remove();

	h = open_history();
	h->step_ns = 0;
	for (uint32_t i = 0; i < 40; i++)
		add_window(h, START + i * MINUTE, 10 * SECOND, 2 + 4 * i, NULL);
	add_last_day(h);
	node = db_count("SELECT max(id) FROM nodes");
	CHECK(db_count(rows) > 2 * expected, "more");
	(void)keep_all(h, &defaults, START + 40 * DAY + HOUR);
	CHECK(db_count("SELECT count(*) FROM windows") == 5, "of the last day");
	CHECK(db_count(rows) == expected, "and only what these refer to");
	check_text(h, &with_labels, all, "all");
	CHECK(db_count("SELECT count(*) FROM counters WHERE window NOT IN (SELECT id FROM "
		       "windows)") == 0,
	      "no counters of others");
	/* Ids of rows that were deleted are not used again. */
	CHECK(db_sql("DELETE FROM windows; DELETE FROM nodes") == SQLITE_OK, "all is deleted");
	add_window(h, START + 40 * DAY, 10 * SECOND, 500, NULL);
	CHECK(db_count("SELECT min(id) FROM nodes") > node &&
		      db_count("SELECT min(id) FROM windows") > 45,
	      "new ids");
	free(all);
	history_close(h);
	db_remove();
}

static const char frameless[] =
	"SELECT count(*) FROM nodes WHERE frame NOT IN (SELECT id FROM frames)";
static const char orphans[] =
	"SELECT count(*) FROM nodes WHERE parent NOT IN (SELECT 0 UNION ALL SELECT id FROM nodes)";

/*
 * While stacks are deleted, step by step, windows are added that have stacks from before: some of those
 * were deleted meanwhile and others not.
 */
static void test_windows_are_added_during_a_sweep(bool other_process)
{
	struct history *h = open_history(), *writer = other_process ? open_history() : h;
	int64_t before, now;
	int err = 1, added = 0, steps = 0;

	h->step_ns = 0;
	for (uint32_t i = 0; i < 300; i++)
		add_window(h, START + i * 10 * SECOND, 10 * SECOND, 4 * i, NULL);
	add_last_day(h);
	before = db_count("SELECT count(*) FROM nodes");
	CHECK(before > 6 * 512, "it takes several steps");
	for (; err == 1 && steps < 10000; steps++) {
		err = history_keep(h, &defaults, START + 40 * DAY + HOUR);
		now = db_count("SELECT count(*) FROM nodes");
		if (now < before && added < 6) { /* it deletes */
			added++;
			add_window(writer, START + 40 * DAY, 10 * SECOND, 4 * draw(300), NULL);
			/* This one is deleted before it is seen. */
			add_window(writer, START, 10 * SECOND, 4 * draw(300), NULL);
		}
		free(text_of(h, &with_labels));
	}
	CHECK(!err && added == 6, "done");
	CHECK(db_count("SELECT count(*) FROM windows") == 5 + 6, "all are there");
	CHECK(db_count(frameless) == 0, "each node has a frame");
	/* The next sweep finds what was left. */
	(void)keep_all(h, &defaults, START + 42 * DAY);
	free(text_of(h, &with_labels));
	CHECK(db_count(frameless) == 0 && db_count(orphans) == 0, "each node leads to an end");
	if (other_process)
		history_close(writer);
	history_close(h);
	db_remove();
}

static void test_space_is_limited(void)
{
	static const struct history_limits small = { .bytes = 500000 };
	static const char used[] =
		"SELECT (page_count - freelist_count) * page_size"
		" FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
	struct history *h = open_history();
	uint64_t now = START;
	int64_t all, pages;

	for (uint32_t i = 0; i < 1800; i++, now += 10 * SECOND)
		add_window(h, now, 10 * SECOND, 4 * i, NULL);
	pages = db_count("PRAGMA page_count");
	all = db_count("SELECT count(*) FROM windows");
	CHECK(db_count(used) > 1000000, "too much");
	(void)keep_all(h, &small, now);
	CHECK(db_count(used) <= (int64_t)small.bytes, "small enough");
	CHECK(db_count("SELECT count(*) FROM windows") > 20 &&
		      db_count("SELECT count(*) FROM windows") < all,
	      "some are left");
	CHECK(db_count("SELECT max(end_ns) FROM windows") == (int64_t)now, "the newest ones");
	CHECK(db_count("PRAGMA page_count") < pages - 20, "space is returned");
	free(text_of(h, &with_labels));
	CHECK(db_count("SELECT integrity_check = 'ok' FROM pragma_integrity_check") == 1, "whole");
	history_close(h);
	db_remove();
}

/* However little space there may be, there is a window, and it ends. */
static void test_one_window_is_left(void)
{
	static const struct history_limits none = { .bytes = 1 };
	struct history *h = open_history();

	add_windows(h, START, 30, NULL);
	(void)keep_all(h, &none, START + HOUR);
	CHECK(db_count("SELECT count(*) FROM windows") >= 1, "one");
	free(text_of(h, &with_labels));
	history_close(h);
	db_remove();
}

/* ---- clocks and disks ------------------------------------------------------------------------ */

/* Return how many samples the windows of a range have. */
static uint64_t samples_in(struct history *h, uint64_t from_ns, uint64_t to_ns)
{
	const struct history_query range = { .from_ns = from_ns, .to_ns = to_ns };
	struct history_found found;
	int err;

	free(made_read(h, &range, &found, &err));
	CHECK(!err, "read");
	return found.n_samples;
}

static void test_a_clock_may_be_wrong_for_some_minutes(void)
{
	struct history *h = open_history();
	uint64_t years = 3650 * DAY, now = START + 1000 * SECOND;
	char *all;

	CHECK(history_steady_time(h, now) == 0, "there is no window");
	add_windows(h, START, 89, NULL);
	CHECK(history_steady_time(h, now) == 0, "there are too few");
	add_windows(h, START + 890 * SECOND, 11, NULL);
	CHECK(history_steady_time(h, now) == START + 110 * SECOND, "the 90th from the newest");
	CHECK(history_steady_time(h, START) == START, "not behind the clock");
	/* The clock is set ten years ahead, and back again, but half a minute too much. */
	add_windows(h, now + years, 20, NULL);
	CHECK(history_steady_time(h, now + years) < now, "nobody believes that yet");
	(void)keep_all(h, &defaults, history_steady_time(h, now + years));
	CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 120, "nothing happens");
	add_windows(h, now - 30 * SECOND, 100, NULL);
	all = text_of(h, &with_labels);
	CHECK(samples_in(h, 0, UINT64_MAX) == UINT64_C(220) * SAMPLES, "all are there");
	CHECK(samples_in(h, START, now - 30 * SECOND) == UINT64_C(97) * SAMPLES &&
		      samples_in(h, now - 30 * SECOND, now) == UINT64_C(6) * SAMPLES &&
		      samples_in(h, now, now + DAY) == UINT64_C(97) * SAMPLES &&
		      samples_in(h, now + years, UINT64_MAX) == UINT64_C(20) * SAMPLES,
	      "where the clock was then");
	(void)keep_all(h, &defaults, now + DAY);
	CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 20, "merged");
	check_text(h, &with_labels, all, "all");
	CHECK(samples_in(h, 0, now + DAY) == UINT64_C(200) * SAMPLES, "in their time");
	free(all);
	history_close(h);
	db_remove();
}

/* Let the database have so many pages beyond those that it has, and no more: as a full disk does. */
static void limit_pages(struct history *h, int64_t more)
{
	char sql[80];

	(void)snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %" PRId64,
		       db_number(h->db, "PRAGMA page_count") + more);
	CHECK(!db_exec(h->db, sql), "limited");
}

static void test_a_full_disk_changes_nothing(void)
{
	struct history_counter fired = { "fired", "", 1 };
	struct history_window w = { .start_ns = START + 1000 * SECOND,
				    .end_ns = START + 1010 * SECOND,
				    .counters = &fired,
				    .n_counters = 1 };
	struct history *h = open_history();
	struct stacks *s = made_profile();
	char *all;
	int64_t counters;

	add_windows(h, START, 100, NULL);
	for (uint32_t i = 0; i < 2000; i++) { /* more than the pages have room for */
		struct made_sample m = {
			.time_ns = w.start_ns, .cpu_ns = 1, .frames = { 1000 + i, i }, .n_frames = 2
		};

		made_add(s, &m);
	}
	all = text_of(h, &with_labels);
	counters = db_count(counted);
	limit_pages(h, 1);
	CHECK(history_add(h, s, &w) == -ENOSPC && history_add(h, s, &w) == -ENOSPC, "it is full");
	CHECK(db_count(counted) == counters, "counters");
	check_text(h, &with_labels, all, "as it was");
	limit_pages(h, 0);
	CHECK(db_sql("CREATE TABLE filling AS WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n "
		     "+ 1"
		     " FROM i WHERE n < 200) SELECT zeroblob(16000) FROM i;"
		     "CREATE TRIGGER t AFTER DELETE ON windows BEGIN INSERT INTO filling SELECT *"
		     " FROM filling; END") == SQLITE_OK,
	      "deleting needs space");
	limit_pages(h, 0);
	h->step_ns = HOUR; /* all in one step */
	CHECK(history_keep(h, &defaults, START + DAY) == -ENOSPC, "it is full");
	CHECK(db_count("SELECT count(*) FROM windows WHERE level = 0") == 100 &&
		      db_count(counted) == counters,
	      "as it was");
	check_text(h, &with_labels, all, "as it was");
	/* Space is there again. */
	CHECK(db_sql("DROP TRIGGER t; DROP TABLE filling") == SQLITE_OK, "no trigger");
	limit_pages(h, 100000);
	CHECK(keep_all(h, &defaults, START + DAY) > 0, "merged");
	check_text(h, &with_labels, all, "all");
	CHECK(history_add(h, s, &w) == 0, "added");
	CHECK(samples_in(h, w.start_ns, w.end_ns) == 2000, "all of it");
	free(all);
	stacks_free(s);
	history_close(h);
	db_remove();
}

static void test_limits_are_stored(void)
{
	static const struct history_limits some = { .times_ns = HOUR, .bytes = 12345678901 };
	struct history_limits got;
	struct history *h = open_history();

	CHECK(history_get_limits(h, &got) == 0 && got.times_ns == 6 * HOUR &&
		      got.threads_ns == 2 * DAY && got.age_ns == 30 * DAY &&
		      got.bytes == UINT64_C(4) << 30,
	      "defaults");
	CHECK(history_set_limits(h, &some) == 0 && history_get_limits(h, &got) == 0 &&
		      got.times_ns == HOUR && got.threads_ns == 2 * DAY && got.age_ns == 30 * DAY &&
		      got.bytes == 12345678901,
	      "set");
	CHECK(history_set_limits(h, &(struct history_limits){ .times_ns = 3 * DAY }) == -EINVAL &&
		      history_set_limits(h, &(struct history_limits){ .age_ns = DAY }) == -EINVAL &&
		      history_set_limits(h, &(struct history_limits){ .bytes = UINT64_MAX }) ==
			      -EINVAL,
	      "refused");
	CHECK(history_get_limits(h, &got) == 0 && got.times_ns == HOUR, "as before");
	CHECK(history_set_limits(h, &defaults) == 0 && history_get_limits(h, &got) == 0 &&
		      got.times_ns == 6 * HOUR && got.bytes == UINT64_C(4) << 30,
	      "defaults again");
	CHECK(history_keep(h, &defaults, UINT64_MAX) == -EINVAL &&
		      history_keep(h, &defaults, 0) == 0,
	      "times");
	history_close(h);
	db_remove();
}

int main(void)
{
	db_make_name();
	test_merging_changes_no_sum();
	test_a_period_is_merged_when_all_of_it_is_old();
	test_late_windows_are_merged_too();
	test_whole_windows_of_a_range_are_read();
	test_ranges_divide_a_merged_window();
	test_a_merge_is_one_transaction();
	test_windows_change_while_others_are_merged();
	test_damaged_windows_do_not_stop_others();
	test_what_nobody_refers_to_is_deleted();
	test_windows_are_added_during_a_sweep(false);
	test_windows_are_added_during_a_sweep(true);
	test_space_is_limited();
	test_one_window_is_left();
	test_a_clock_may_be_wrong_for_some_minutes();
	test_a_full_disk_changes_nothing();
	test_limits_are_stored();
	(void)rmdir(db_folder);
	return check_done();
}

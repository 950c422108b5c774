/*
 * tests/unit/test_history_db.c: tests the history: what was added is read, ranges of time, names that
 * become better, several processes, and damage.
 */
#include "agent/history/history.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/history/history_internal.h"
#include "tests/check.h"
#include "tests/history.h"

#define START (UINT64_C(1700000000) * SECOND)

static const struct history_query everything = { .to_ns = UINT64_MAX };
static const struct history_query with_labels = { .to_ns = UINT64_MAX, .labels = true };
static const struct history_query with_all = { .to_ns = UINT64_MAX, .labels = true, .times = true };

/* Samples are counted in a thread (history_count.c), as those of a long range are. */
static bool with_thread;

static struct history *open_history(bool write)
{
	struct history *h = NULL;

	CHECK(history_open(db_name, write, &h) == 0, "opens");
	if (h && with_thread)
		h->thread_after = 0;
	return h;
}

static int add(struct history *h, const struct stacks *s, uint64_t start_ns)
{
	static const struct history_counter counters[] = {
		{ "fired", "", 10 },	  { "unwound", "", 7 },	     { "stop", "end", 7 },
		{ "lost", "ring", 1 },	  { "filtered", "idle", 4 }, { "waiting", "", -2 },
		{ "filtered", "self", 0 }
	};
	struct history_window w = { .start_ns = start_ns,
				    .end_ns = start_ns + 10 * SECOND,
				    .counters = counters,
				    .n_counters = sizeof(counters) / sizeof(counters[0]) };

	return history_add(h, s, &w);
}

/* Check what a query gives. */
static void check_read(struct history *h, const struct history_query *q, const char *expected,
		       const char *what)
{
	struct history_found found;
	int err;
	char *text = made_read(h, q, &found, &err);

	CHECK(!err && text && !strcmp(text, expected), what);
	if (text && strcmp(text, expected) != 0)
		(void)printf("%s: expected\n%sgot\n%s", what, expected, text);
	free(text);
}

static int read_error(struct history *h, const struct history_query *q)
{
	struct history_found found;
	int err;

	free(made_read(h, q, &found, &err));
	return err;
}

/* Make a profile of samples, without what a query leaves out. */
static struct stacks *profile_of(const struct made_sample *samples, size_t n,
				 const struct history_query *q)
{
	struct stacks *s = made_profile();

	for (size_t i = 0; i < n; i++) {
		struct made_sample m = samples[i];

		if (!q->labels) {
			m.pid = m.tid = 0;
			m.comm = NULL;
		}
		if (!q->times)
			m.time_ns = 0;
		made_add(s, &m);
	}
	return s;
}

static void add_samples(struct history *h, const struct made_sample *samples, size_t n,
			uint64_t start_ns)
{
	struct stacks *s = profile_of(samples, n, &with_all);

	CHECK(add(h, s, start_ns) == 0, "added");
	stacks_free(s);
}

/* Check that a query of all windows gives these samples. */
static void check_samples(struct history *h, const struct made_sample *samples, size_t n,
			  const struct history_query *q, const char *what)
{
	struct stacks *s = profile_of(samples, n, q);
	char *text = made_text(s);

	check_read(h, q, text, what);
	free(text);
	stacks_free(s);
}

/* ---- what was added is read ----------------------------------------------------------------- */

static const struct made_sample samples[] = {
	{ START + 1000000, 5, 6, "a", 11, { 3, 2, 1 }, 3 },
	{ START + 5000000, 5, 6, "a", 12, { 3, 2, 1 }, 3 },
	{ START + 5000000, 5, 7, "a", 13, { 3, 2, 1 }, 3 },
	{ START + 5000000, 4, 4, "b", 14, { 2, 1 }, 2 },
	{ START + 9000000, 4, 4, "b", 15, { 0 }, 0 },
	{ START + 9000000, 0, 0, NULL, 16, { 4, 4, 4, 4 }, 4 },
};

enum { SAMPLES = sizeof(samples) / sizeof(samples[0]) };

static void test_samples_are_read_as_they_were(void)
{
	static const struct history_query times = { .to_ns = UINT64_MAX, .times = true };
	struct history *h = open_history(true);
	struct history_found found;
	int err;

	free(made_read(h, &everything, &found, &err));
	CHECK(!err && !found.n_windows && !found.end_ns, "nothing yet");
	add_samples(h, samples, SAMPLES, START);
	check_samples(h, samples, SAMPLES, &with_all, "with all");
	check_samples(h, samples, SAMPLES, &with_labels, "with labels");
	check_samples(h, samples, SAMPLES, &times, "with times");
	check_samples(h, samples, SAMPLES, &everything, "stacks alone");
	free(made_read(h, &everything, &found, &err));
	CHECK(found.n_windows == 1 && found.n_samples == SAMPLES && found.start_ns == START &&
		      found.end_ns == START + 10 * SECOND,
	      "what was found");
	history_close(h);
	/* Once more by somebody who knows nothing of it. */
	h = open_history(false);
	check_samples(h, samples, SAMPLES, &with_all, "with all");
	history_close(h);
	db_remove();
}

static void test_equal_stacks_are_stored_once(void)
{
	struct history *h = open_history(true);
	int64_t nodes, frames, functions;

	add_samples(h, samples, SAMPLES, START);
	nodes = db_count("SELECT count(*) FROM nodes");
	frames = db_count("SELECT count(*) FROM frames");
	functions = db_count("SELECT count(*) FROM functions");
	/* 1, 1;2, 1;2;3 and 4, 4;4, 4;4;4, 4;4;4;4 */
	CHECK(nodes == 7 && frames == 4 && functions == 4, "each once");
	add_samples(h, samples, SAMPLES, START);
	CHECK(db_count("SELECT count(*) FROM nodes") == nodes &&
		      db_count("SELECT count(*) FROM frames") == frames &&
		      db_count("SELECT count(*) FROM functions") == functions &&
		      db_count("SELECT count(*) FROM modules") == 1 &&
		      db_count("SELECT count(*) FROM labels") == 3 &&
		      db_count("SELECT count(*) FROM windows") == 2,
	      "and no more");
	CHECK(db_count("SELECT count(*) FROM counters WHERE window = 1") == 6, "what is not 0");
	CHECK(db_count("SELECT count(*) FROM functions WHERE system_name != ''") == 0,
	      "names are not repeated");
	history_close(h);
	db_remove();
}

static bool is_profile(void *s, size_t sample)
{
	return !((const struct stacks *)s)->samples[sample].base;
}

/* A process that did not add a stack stores it again. */
static void test_stacks_that_are_stored_again_are_counted_together(void)
{
	struct made_sample twice[2 * SAMPLES];
	struct history *h = open_history(true);
	struct history_found found;
	struct stacks *s = NULL;
	char *text, *expected;

	for (size_t i = 0; i < (size_t)2 * SAMPLES; i++)
		twice[i] = samples[i % SAMPLES];
	add_samples(h, samples, SAMPLES, START);
	history_close(h);
	h = open_history(true);
	add_samples(h, samples, SAMPLES, START);
	CHECK(db_count("SELECT value FROM settings WHERE name = 'last_node'") == 14, "again");
	check_samples(h, twice, (size_t)2 * SAMPLES, &everything, "stacks alone");
	check_samples(h, twice, (size_t)2 * SAMPLES, &with_labels, "with labels");
	check_samples(h, twice, (size_t)2 * SAMPLES, &with_all, "with all");
	/* What a profile has already is counted together, too, and a base is not. */
	CHECK(!stacks_new(&s) && !history_read(h, &everything, s, &found) &&
		      !history_read(h, &(struct history_query){ .to_ns = UINT64_MAX, .base = true },
				    s, &found) &&
		      s->n_samples == 8 && !history_read(h, &everything, s, &found) &&
		      s->n_samples == 8,
	      "read three times");
	stacks_filter(s, is_profile, s);
	text = made_text(s);
	stacks_free(s);
	s = profile_of(twice, (size_t)2 * SAMPLES, &everything);
	for (size_t i = 0; i < s->n_samples * s->n_types; i++)
		s->values[i] *= 2;
	expected = made_text(s);
	CHECK(text && expected && !strcmp(text, expected), "twice");
	free(text);
	free(expected);
	stacks_free(s);
	history_close(h);
	db_remove();
}

static void test_labels_can_have_any_text(void)
{
	static const char *const texts[] = { "a \"quoted\" one",
					     "back\\slash",
					     "grüße, 世界",
					     "<b>&amp;</b>",
					     "{\"a\":1}",
					     "'; DROP TABLE x",
					     "",
					     "[1]" };
	struct made_sample all[sizeof(texts) / sizeof(texts[0])];
	size_t n = sizeof(texts) / sizeof(texts[0]);
	struct history *h = open_history(true);

	for (size_t i = 0; i < n; i++)
		all[i] = (struct made_sample){ START, 1, 2, texts[i], 1, { 1 }, 1 };
	add_samples(h, all, n, START);
	check_samples(h, all, n, &with_all, "as they were");
	CHECK(db_count("SELECT count(*) FROM labels WHERE json_valid(labels)") == (int64_t)n,
	      "as JSON");
	history_close(h);
	db_remove();
}

/* A sample of a window has room for values of eight types. */
static void test_samples_can_have_many_types(void)
{
	enum { TYPES = 11 };
	struct history *h = open_history(true);
	const struct history_query q = { .to_ns = UINT64_MAX, .labels = true };
	struct history_found found;
	struct stacks *s = made_profile(), *got = NULL;
	int64_t values[TYPES];
	uint32_t label = made_label(s, HISTORY_TIME_LABEL, NULL, START);

	for (int i = 2; i < TYPES; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "type%d", i);
		CHECK(!stacks_add_type(s, name, "count"), "a type");
	}
	for (int i = 0; i < TYPES; i++)
		values[i] = 100 + i;
	CHECK(!stacks_add(s, &(struct stacks_sample){ .n_labels = 1 }, NULL, &label, values) &&
		      !add(h, s, START),
	      "added");
	CHECK(!stacks_new(&got) && !history_read(h, &q, got, &found) && got->n_samples == 1 &&
		      got->n_types == TYPES,
	      "read");
	for (size_t i = 0; i < TYPES && got->n_samples == 1; i++)
		CHECK(stacks_value(got, 0, i) == values[i], "a value");
	stacks_free(got);
	stacks_free(s);
	history_close(h);
	db_remove();
}

static int count_point(void *ctx, const struct history_point *point)
{
	uint64_t *n = ctx;

	*n = point ? *n + point->n : 0;
	return 0;
}

/* All requests have the same type by default: CPU time, else the one beside the number of samples. */
static void test_one_type_is_the_default(void)
{
	static const struct {
		const char *types[3], *want;
	} cases[] = {
		{ { "samples", "cpu" }, "cpu" },
		{ { "alloc_objects", "alloc_space" }, "alloc_space" },
		{ { "samples", "page-faults", "cpu" }, "cpu" },
		{ { "samples", "page-faults" }, "page-faults" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct history *h = open_history(true);
		const struct history_query q = { .to_ns = UINT64_MAX };
		struct stacks *s = NULL, *got = NULL;
		struct history_found found;
		const char *type = "";
		uint64_t n = 0;
		uint32_t label;

		CHECK(!stacks_new(&s) && !stacks_new(&got), "set up");
		for (size_t t = 0; t < 3 && cases[i].types[t]; t++)
			CHECK(!stacks_add_type(s, cases[i].types[t], "count"), "a type");
		label = made_label(s, HISTORY_TIME_LABEL, NULL, START);
		CHECK(!stacks_add(s, &(struct stacks_sample){ .n_labels = 1 }, NULL, &label,
				  (int64_t[]){ 1, 2, 3 }) &&
			      !add(h, s, START),
		      "added");
		CHECK(!history_read(h, &q, got, &found) &&
			      !strcmp(got->types[got->default_type].type, cases[i].want),
		      cases[i].want);
		CHECK(!history_scan(h, 0, UINT64_MAX, NULL, count_point, &n, &type, NULL) &&
			      !strcmp(type, cases[i].want),
		      type);
		stacks_free(got);
		stacks_free(s);
		history_close(h);
		db_remove();
	}
}

static void test_a_window_needs_times(void)
{
	struct history *h = open_history(true);
	struct made_sample all[] = { samples[0], samples[5], samples[3] };

	all[2].time_ns = 0;
	{
		struct stacks *s = profile_of(all, 3, &with_all);

		CHECK(add(h, s, START) == -EBADMSG, "no time");
		CHECK(history_add(h, s, &(struct history_window){ .start_ns = 2, .end_ns = 1 }) < 0,
		      "it ends before it starts");
		stacks_free(s);
	}
	CHECK(db_count("SELECT (SELECT count(*) FROM windows) + (SELECT count(*) FROM nodes) +"
		       " (SELECT count(*) FROM frames) + (SELECT count(*) FROM functions) +"
		       " (SELECT count(*) FROM labels) + (SELECT count(*) FROM types)") == 0,
	      "nothing is left");
	add_samples(h, samples, SAMPLES, START);
	check_samples(h, samples, SAMPLES, &with_all, "the next one");
	history_close(h);
	db_remove();
}

/* The very last thing that a window writes fails. */
static void test_a_window_is_added_whole_or_not_at_all(void)
{
	struct history *h = open_history(true);
	struct stacks *s = profile_of(samples, SAMPLES, &with_all);

	CHECK(db_sql("CREATE TRIGGER t BEFORE INSERT ON counters WHEN new.what = 'waiting'"
		     " BEGIN SELECT raise(ABORT, 'no'); END") == SQLITE_OK,
	      "a trigger");
	CHECK(add(h, s, START) < 0, "fails");
	CHECK(db_count("SELECT (SELECT count(*) FROM windows) + (SELECT count(*) FROM counters) +"
		       " (SELECT count(*) FROM nodes) + (SELECT count(*) FROM frames) +"
		       " (SELECT count(*) FROM modules) + (SELECT count(*) FROM types)") == 0,
	      "nothing is left");
	CHECK(db_sql("DROP TRIGGER t") == SQLITE_OK && add(h, s, START) == 0, "now it goes");
	check_samples(h, samples, SAMPLES, &with_all, "whole");
	stacks_free(s);
	history_close(h);
	db_remove();
}

/* ---- ranges of time -------------------------------------------------------------------------- */

/* Sum up the values in a text: "… 3 21\n" gives 3 and 21. */
static void sums_of(char *text, int64_t *count, int64_t *cpu)
{
	*count = *cpu = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *second = strrchr(line, ' ');

		*cpu += strtoll(second, NULL, 10);
		*second = '\0';
		*count += strtoll(strrchr(line, ' '), NULL, 10);
	}
}

static void read_sums(struct history *h, struct history_query q, int64_t *count, int64_t *cpu)
{
	struct history_found found;
	int err;
	char *text = made_read(h, &q, &found, &err);

	CHECK(!err && text, "read");
	if (text)
		sums_of(text, count, cpu);
	CHECK((int64_t)found.n_samples == *count, "and counted");
	free(text);
}

/* Wherever a range of time is cut, both parts together are the whole, to the last nanosecond. */
static void test_ranges_cut_windows_exactly(void)
{
	struct made_sample all[40];
	struct history *h = open_history(true);

	for (uint32_t i = 0; i < 40; i++) {
		all[i] = (struct made_sample){ START + i * SECOND / 2, 5, 6, "a", 1001, { 1 }, 1 };
		if (i % 4 == 3)
			all[i].frames[0] = 2;
	}
	all[0].time_ns -= SECOND; /* CPUs' clocks differ */
	all[19].time_ns += SECOND;
	add_samples(h, all, 20, START);
	add_samples(h, all + 20, 20, START + 10 * SECOND);
	for (uint64_t cut = START - SECOND; cut < START + 21 * SECOND; cut += SECOND / 5) {
		for (int times = 0; times < 2; times++) {
			int64_t before, before_cpu, after, after_cpu;

			read_sums(h, (struct history_query){ .to_ns = cut, .times = times },
				  &before, &before_cpu);
			read_sums(h,
				  (struct history_query){
					  .from_ns = cut, .to_ns = UINT64_MAX, .times = times },
				  &after, &after_cpu);
			CHECK(before + after == 40, "samples");
			CHECK(before_cpu + after_cpu == INT64_C(40) * 1001, "CPU time");
			CHECK(cut > START || !before, "not before the first window");
			CHECK(cut < START + 20 * SECOND || !after, "nor behind the last one");
		}
	}
	history_close(h);
	db_remove();
}

/* The memory that reading takes is bounded, and a range that needs less can be read afterwards. */
static void test_a_profile_has_so_many_samples(void)
{
	struct history *h = open_history(true);

	add_samples(h, samples, SAMPLES, START);
	h->sums_max = SAMPLES - 1;
	CHECK(read_error(h, &with_all) == -EFBIG, "one too many");
	check_samples(h, samples, SAMPLES, &everything, "these are fewer");
	h->sums_max++;
	check_samples(h, samples, SAMPLES, &with_all, "not too many");
	history_close(h);
	db_remove();
}

/* More than a thread that counts is given before it must be waited for, and an error of the thread. */
static void test_many_samples_are_counted(void)
{
	enum { MANY = 30000 };
	struct made_sample *many = calloc(MANY, sizeof(*many));
	struct history *h = open_history(true);

	for (uint32_t i = 0; many && i < MANY; i++)
		many[i] = (struct made_sample){
			START + i * (SECOND / MANY), 5, i % 20000, "a", 1001, { 1 }, 1
		};
	CHECK(many, "memory");
	add_samples(h, many, MANY, START);
	check_samples(h, many, MANY, &with_labels, "all of them");
	h->sums_max = 9000;
	CHECK(read_error(h, &with_labels) == -EFBIG, "too many");
	h->sums_max = 20000;
	check_samples(h, many, MANY, &with_labels, "not too many");
	history_close(h);
	free(many);
	db_remove();
}

static void test_any_range_can_be_asked_for(void)
{
	static const struct history_query ranges[] = {
		{ .from_ns = 0, .to_ns = 0 },
		{ .from_ns = UINT64_MAX, .to_ns = UINT64_MAX },
		{ .from_ns = UINT64_MAX, .to_ns = 0 },
		{ .from_ns = START + 5, .to_ns = START },
		{ .from_ns = INT64_MAX, .to_ns = UINT64_MAX },
	};
	struct history *h = open_history(true);

	add_samples(h, samples, SAMPLES, START);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		check_read(h, &ranges[i], "", "nothing");
	history_close(h);
	db_remove();
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Add a window with one sample of one frame. */
static void add_named(struct history *h, const char *path, const char *build_id, uint64_t address,
		      const char *name)
{
	struct stacks *s = made_profile();
	uint32_t at = made_location(s, made_module(s, path, build_id), address, name, "_Zsystem");

	made_add_at(s, &(struct made_sample){ .time_ns = START, .cpu_ns = 3 }, &at, 1);
	CHECK(add(h, s, START) == 0, "added");
	stacks_free(s);
}

static void test_better_names_replace_older_ones(void)
{
	struct history *h = open_history(true), *reader;

	add_named(h, "/bin/a", "abcd", 0x1234, "a+0x234");
	reader = open_history(false);
	check_read(reader, &everything, "a+0x234; 1 3\n", "the name that was known");
	add_named(h, "/bin/a", "abcd", 0x1234, "work");
	check_read(reader, &everything, "work; 2 6\n", "the better one, for both");
	history_close(reader);
	history_close(h);
	db_remove();
}

/* Return a profile with one sample at an address of /bin/a, of which a recording knows so much. */
static struct stacks *named_profile(uint64_t address, const char *name, const char *file,
				    int64_t number)
{
	struct stacks *s = made_profile();
	struct stacks_function f = { .name = stacks_text(s, name),
				     .system_name = stacks_text(s, name),
				     .file = stacks_text(s, file) };
	struct stacks_line line = { .function = stacks_function(s, &f), .line = number };
	struct stacks_location l = { .module = made_module(s, "/bin/a", "abcd"),
				     .address = address,
				     .n_lines = 1 };
	uint32_t at = stacks_location(s, &l, &line);

	made_add_at(s, &(struct made_sample){ .time_ns = START, .cpu_ns = 3 }, &at, 1);
	return s;
}

static void add_profile(struct history *h, uint64_t address, const char *name, const char *file,
			int64_t line)
{
	struct stacks *s = named_profile(address, name, file, line);

	CHECK(add(h, s, START) == 0, "added");
	stacks_free(s);
}

static void rename_one(struct history *h, uint64_t address, const char *name, const char *file,
		       int64_t line, struct history_renamed *out)
{
	struct stacks *s = named_profile(address, name, file, line);

	*out = (struct history_renamed){ .named = 0 };
	CHECK(history_rename(h, s, out) == 0, "renamed");
	stacks_free(s);
}

/* A recorder that read a file before its debug information came does not take names back. */
static void test_names_that_say_less_do_not_replace_others(void)
{
	struct history *h = open_history(true), *reader = open_history(false);

	add_profile(h, 0x1234, "a+0x1230", "", 0);
	check_read(reader, &everything, "a+0x1230; 1 3\n", "a place");
	add_profile(h, 0x1234, "work", "", 0);
	check_read(reader, &everything, "work; 2 6\n", "a name");
	add_profile(h, 0x1234, "a+0x1230", "", 0);
	check_read(reader, &everything, "work; 3 9\n", "the name stays");
	add_profile(h, 0x1234, "labour", "a.c", 7);
	check_read(reader, &everything, "labour; 4 12\n", "with a line");
	add_profile(h, 0x1234, "work", "", 0);
	check_read(reader, &everything, "labour; 5 15\n", "the line stays");
	add_profile(h, 0x1234, "toil", "a.c", 8);
	check_read(reader, &everything, "toil; 6 18\n", "another line is as good");
	history_close(reader);
	history_close(h);
	db_remove();
}

static void test_renaming_says_what_came_of_it(void)
{
	struct history *h = open_history(true), *reader = open_history(false);
	struct history_renamed r;

	add_profile(h, 0x1234, "a+0x1230", "", 0);
	check_read(reader, &everything, "a+0x1230; 1 3\n", "a place");
	rename_one(h, 0x1234, "a+0x1230", "", 0, &r);
	CHECK(r.same == 1 && !r.named && !r.better && !r.not_replaced, "the same");
	rename_one(h, 0x1234, "work", "", 0, &r);
	CHECK(r.named == 1 && !r.same && !r.better && !r.not_replaced, "a name");
	check_read(reader, &everything, "work; 1 3\n", "which others see at once");
	rename_one(h, 0x1234, "work", "a.c", 7, &r);
	CHECK(r.better == 1 && !r.named && !r.same && !r.not_replaced, "a line");
	rename_one(h, 0x1234, "a+0x1230", "", 0, &r);
	CHECK(r.not_replaced == 1 && !r.named && !r.same && !r.better, "what says less");
	rename_one(h, 0x9999, "nobody", "a.c", 7, &r);
	CHECK(!r.not_replaced && !r.named && !r.same && !r.better, "an address that did not run");
	check_read(reader, &everything, "work; 1 3\n", "one window, and nothing new");
	history_close(reader);
	history_close(h);
	db_remove();
}

struct listed {
	char text[512];
	size_t n;
};

static int list_address(void *ctx, const struct history_address *a)
{
	struct listed *l = ctx;

	l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s %s %" PRIx64 "\n",
				 a->path, a->build_id, a->address);
	return 0;
}

/* Names of the kernel and of generated code do not follow from a file. */
static void test_addresses_of_files_are_listed(void)
{
	struct history *h = open_history(true);
	struct listed l = { .n = 0 }, none = { .n = 0 }, some = { .n = 0 };

	add_named(h, "/bin/b", "0123", 0x2000, "of b");
	add_named(h, "/bin/a", "abcd", 0x1234, "first");
	add_named(h, "/bin/a", "abcd", 0x1000, "second");
	add_named(h, "[kernel]", "abcd", 0x1234, "of the kernel");
	add_named(h, "[generated]", "", 0x1234, "generated");
	add_named(h, "/bin/c", "", 0x1234, "of an unknown file");
	CHECK(history_addresses(h, 0, UINT64_MAX, list_address, &l) == 0, "listed");
	CHECK(!strcmp(l.text, "/bin/b 0123 2000\n/bin/a abcd 1000\n/bin/a abcd 1234\n"), l.text);
	CHECK(history_addresses(h, 1, START - SECOND, list_address, &none) == 0 && !none.n,
	      "at a time when nothing ran");
	CHECK(history_addresses(h, START - SECOND, START + 60 * SECOND, list_address, &some) == 0 &&
		      !strcmp(some.text, l.text),
	      "at a time when all ran");
	history_close(h);
	db_remove();
}

/* Without a build-id an address may have been anything at another time, as in generated code. */
static void test_generated_code_has_variants(void)
{
	struct history *h = open_history(true);

	add_named(h, "[generated]", "", 0x1234, "first");
	add_named(h, "[generated]", "", 0x1234, "second");
	add_named(h, "[generated]", "", 0x1234, "first");
	add_named(h, "[kernel]", "abcd", 0x1234, "one start");
	add_named(h, "[kernel]", "abcd", 0x1234, "next start");
	check_read(h, &everything, "first; 2 6\nnext start; 1 3\none start; 1 3\nsecond; 1 3\n",
		   "each has its name");
	CHECK(db_count("SELECT count(*) FROM frames") == 4, "stored once each");
	history_close(h);
	db_remove();
}

static void test_names_keep_all_they_have(void)
{
	struct history *h = open_history(true);
	struct history_found found;
	const struct stacks_location *inner, *outer;
	const struct stacks_function *f;
	struct stacks *s = made_profile(), *got = NULL;
	uint32_t at[2] = { made_location(s, made_module(s, "/bin/a", "ab"), 0x1234, "n", "_Zn"),
			   made_location(s, made_module(s, "", ""), UINT64_MAX, "[nowhere]",
					 "[nowhere]") };

	made_add_at(s, &(struct made_sample){ .time_ns = START, .cpu_ns = 3 }, at, 2);
	CHECK(add(h, s, START) == 0 && !stacks_new(&got) &&
		      !history_read(h, &everything, got, &found),
	      "read");
	CHECK(got->n_functions == 2 && got->n_locations == 2 && got->n_location_ids == 2, "both");
	inner = &got->locations[got->location_ids[0]];
	outer = &got->locations[got->location_ids[1]];
	f = &got->functions[got->lines[inner->first_line].function];
	CHECK(!strcmp(f->system_name, "_Zn") && !strcmp(f->file, "a \"file\".c") &&
		      f->start_line == 7 &&
		      !strcmp(got->functions[got->lines[outer->first_line].function].system_name,
			      "[nowhere]"),
	      "functions");
	CHECK(inner->address == 0x1234 && outer->address == UINT64_MAX &&
		      got->lines[inner->first_line].line == 9,
	      "locations");
	CHECK(!strcmp(got->modules[inner->module].path, "/bin/a") &&
		      !strcmp(got->modules[inner->module].build_id, "ab") &&
		      got->modules[inner->module].start == 0x1000,
	      "modules");
	stacks_free(got);
	stacks_free(s);
	history_close(h);
	db_remove();
}

/* ---- several processes ----------------------------------------------------------------------- */

enum { WRITERS = 3, WINDOWS = 12 };

static int write_many(uint64_t first)
{
	struct history *h = open_history(true);

	for (uint64_t i = 0; i < WINDOWS; i++)
		add_samples(h, samples, SAMPLES, first + i * 10 * SECOND);
	history_close(h);
	return check_failures != 0;
}

/* While others write, a reader sees whole windows. */
static void test_several_processes_write_while_one_reads(void)
{
	struct history *h = open_history(true);
	pid_t writers[WRITERS];
	int running = WRITERS, status;

	for (size_t i = 0; i < WRITERS; i++) {
		(void)fflush(stdout);
		writers[i] = fork();
		if (!writers[i])
			_exit(write_many(START + i * 1000 * SECOND));
	}
	while (running) {
		struct history_found found;
		int err;
		char *text = made_read(h, &everything, &found, &err);
		int64_t count, cpu;

		CHECK(!err && text, "read");
		if (text) {
			sums_of(text, &count, &cpu);
			CHECK(count == (int64_t)found.n_windows * SAMPLES, "whole windows");
		}
		free(text);
		if (waitpid(-1, &status, WNOHANG) > 0) {
			CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "a writer");
			running--;
		}
	}
	CHECK(db_count("SELECT count(*) FROM windows") == (int64_t)WRITERS * WINDOWS &&
		      db_count("SELECT count(*) FROM nodes") <= (int64_t)WRITERS * 7,
	      "all are there, and each writer's stacks once");
	history_close(h);
	db_remove();
}

static void test_one_daemon_has_a_history(void)
{
	int one = -1, two = -1, to_child[2];
	char name[80], byte;
	pid_t pid;

	CHECK(!history_lock(db_name, 0, &one) && one >= 0, "locked");
	CHECK(history_lock(db_name, 0, &two) == -EBUSY && two == -1, "and not twice");
	/* A process that has a copy of the descriptor has the lock, too, until it ends. */
	CHECK(!pipe(to_child), "a pipe");
	pid = fork();
	if (!pid) {
		(void)close(to_child[1]);
		_exit(read(to_child[0], &byte, 1) == 1);
	}
	(void)close(to_child[0]);
	(void)close(one);
	CHECK(history_lock(db_name, 0, &two) == -EBUSY, "the child has it");
	(void)close(to_child[1]);
	CHECK(waitpid(pid, NULL, 0) == pid && !history_lock(db_name, 0, &two), "it ended");
	(void)close(two);
	CHECK(history_lock("/nowhere/h.db", 0, &two) == -ENOENT, "no such directory");
	(void)snprintf(name, sizeof(name), "%s-lock", db_name);
	CHECK(!unlink(name), "it has a file of its own");
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void test_damage_is_found(void)
{
	static const char *const damages[] = {
		"UPDATE nodes SET parent = 7 WHERE id = 1",
		"UPDATE nodes SET parent = -1 WHERE id = 1",
		"UPDATE nodes SET parent = -9223372036854775808 WHERE id = 2",
		"UPDATE nodes SET frame = 9223372036854775807 WHERE id = 1",
		"UPDATE nodes SET frame = -5 WHERE id = 1",
		"UPDATE nodes SET frame = 0 WHERE id = 1",
		"UPDATE nodes SET id = 9223372036854775807 WHERE id = 2",
		"DELETE FROM nodes",
		"DELETE FROM nodes WHERE id = 1",
		"UPDATE frames SET module = 77",
		"UPDATE frames SET lines = x''",
		"UPDATE frames SET lines = x'01'",
		"UPDATE frames SET lines = x'ff'",
		"UPDATE frames SET lines = x'ffffffffffffffffff0101'",
		"UPDATE frames SET lines = x'ffffffffffffffffffff0101'",
		"DELETE FROM frames",
		"DELETE FROM functions",
		"DELETE FROM modules",
		"DELETE FROM types",
		"DELETE FROM types WHERE id = 2",
		"UPDATE types SET id = 9223372036854775807 WHERE id = 2",
		"UPDATE types SET id = -3 WHERE id = 2",
		"UPDATE types SET id = 4096 WHERE id = 2",
		"UPDATE windows SET samples = x''",
		"UPDATE windows SET samples = CAST(x'03' || substr(samples, 2) AS BLOB)",
		"UPDATE windows SET samples = CAST(x'02ff' || substr(samples, 3) AS BLOB)",
		"UPDATE windows SET samples = substr(samples, 1, length(samples) - 1)",
		"UPDATE windows SET samples = CAST(samples || x'ff' AS BLOB)",
		"UPDATE windows SET samples = x'0102010000010b'",
		/* Node 2^56; type 3. */
		"UPDATE windows SET samples = x'010201000080808080808080800100'",
		"UPDATE windows SET samples = x'010201000001020305'",
	};
	static const struct history_query *const queries[] = { &everything, &with_labels,
							       &with_all };

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct history *h = open_history(true);

		add_samples(h, samples, SAMPLES, START);
		CHECK(db_sql(damages[i]) == SQLITE_OK, damages[i]);
		for (size_t k = 0; k < sizeof(queries) / sizeof(queries[0]); k++) {
			struct history_found found;
			int err;
			char *text = made_read(h, queries[k], &found, &err);

			/* A damaged window is left out; all that it may refer to must be there. */
			if (err != -EBADMSG && (err || *text || found.n_damaged != 1))
				(void)printf("%s: %d\n", damages[i], err);
			CHECK(err == -EBADMSG || (!err && !*text && found.n_damaged == 1 &&
						  !found.n_windows && !found.n_samples),
			      damages[i]);
			free(text);
		}
		history_close(h);
		db_remove();
	}
}

/* Return whether a profile of everything says that a window is left out. */
static bool says_damage(struct history *h)
{
	struct history_found found;
	struct stacks *s = NULL;
	bool says;

	if (stacks_new(&s) || history_read(h, &everything, s, &found))
		return false;
	says = s->n_comments == 1 && !strcmp(s->comments[0], "1 damaged window is left out");
	stacks_free(s);
	return says;
}

/* A sum that is too large, as no counter becomes, does not keep windows from being added and merged. */
static void test_sums_that_are_too_large(void)
{
	struct history *h = open_history(true);
	struct history_limits limits = { .bytes = 0 };
	int err;

	for (uint64_t i = 0; i < 3; i++) {
		add_samples(h, samples, SAMPLES, START + i * 10 * SECOND);
		CHECK(db_sql("UPDATE totals SET n = 9223372036854775807; UPDATE counters SET n = "
			     "9223372036854775807") == SQLITE_OK,
		      "as large as can be");
	}
	while ((err = history_keep(h, &limits, START + (uint64_t)86400 * SECOND)) == 1)
		;
	CHECK(!err && db_count("SELECT count(*) FROM windows") == 1, "merged");
	CHECK(db_count("SELECT count(*) FROM counters WHERE n = 9223372036854775807") == 6,
	      "no sum is smaller");
	check_samples(h, samples, 0, &(struct history_query){ .to_ns = 1 }, "nothing else");
	history_close(h);
	db_remove();
}

/* However a window is damaged, those beside it are read, and nothing of it is. */
static void test_a_damaged_window_is_left_out(void)
{
	static const char *const damages[] = {
		"x''",
		"substr(samples, 1, length(samples) - 1)",
		"CAST(samples || x'ff' AS BLOB)",
		"x'0300'",
		"x'010201000080808080808080800100'", /* node 2^56 */
		"x'010201000001020305'",	     /* type 3 */
		"x'0102010000c80100'",		     /* node 200, in a page that has fewer */
	};

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct history *h = open_history(true);
		struct history_found found;
		char sql[200], *without, *text;
		uint64_t n = 0;
		int err;

		add_samples(h, samples, SAMPLES, START);
		add_samples(h, samples, SAMPLES, START + 20 * SECOND);
		without = made_read(h, &with_labels, &found, &err);
		add_samples(h, samples, SAMPLES, START + 10 * SECOND);
		(void)snprintf(sql, sizeof(sql), "UPDATE windows SET samples = %s WHERE id = 3",
			       damages[i]);
		CHECK(db_sql(sql) == SQLITE_OK, sql);
		text = made_read(h, &with_labels, &found, &err);
		CHECK(!err && text && !strcmp(text, without), sql);
		CHECK(found.n_windows == 2 && found.n_damaged == 1 &&
			      found.n_samples == 2 * SAMPLES && found.end_ns == START + 30 * SECOND,
		      "what was found");
		CHECK(!history_scan(h, 0, UINT64_MAX, NULL, count_point, &n, NULL, NULL) &&
			      n == 2 * SAMPLES,
		      "single samples");
		free(text);
		CHECK(says_damage(h), sql);
		free(without);
		history_close(h);
		db_remove();
	}
}

/* These change what is shown, and nothing else. */
static void test_harmless_damage(void)
{
	static const char *const damages[] = {
		"DELETE FROM labels",
		"UPDATE labels SET labels = '[1, 2, {}]' WHERE id = 1",
		("UPDATE labels SET labels = '{\"pid\":\"x\",\"tid\":[],\"time\":null}' "
		 "WHERE id = 1"),
		"UPDATE functions SET name = '', file = CAST(x'00ff' AS TEXT)",
		"UPDATE functions SET name = '', system_name = ''",
		"UPDATE modules SET path = '', build_id = '', start = -1, \"limit\" = -1",
		"UPDATE types SET type = '', unit = '' WHERE id = 2",
		"UPDATE windows SET n_samples = -1, start_ns = 1, end_ns = 9223372036854775807",
		"UPDATE windows SET start_ns = 9223372036854775806, end_ns = 9223372036854775807",
		"DELETE FROM counters",
	};

	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		struct history *h = open_history(true);

		add_samples(h, samples, SAMPLES, START);
		CHECK(db_sql(damages[i]) == SQLITE_OK, damages[i]);
		CHECK(read_error(h, &with_all) == 0, damages[i]);
		CHECK(read_error(h, &everything) == 0, damages[i]);
		history_close(h);
		db_remove();
	}
	{
		struct history *h = open_history(true);

		add_samples(h, samples, SAMPLES, START);
		char value[8] = "x";

		CHECK(db_sql("UPDATE labels SET labels = '{' WHERE id = 1") == SQLITE_OK,
		      "no JSON");
		CHECK(read_error(h, &everything) == 0, "without labels");
		CHECK(history_label(h, 1, "comm", value, sizeof(value)) == 0 && !*value,
		      "as if there were none");
		history_close(h);
		db_remove();
	}
}

static void add_text(void *ctx, const char *text)
{
	char *all = ctx;

	(void)snprintf(all + strlen(all), 100 - strlen(all), "%s ", text);
}

/* Only the samples of labels that are damaged have none, and the profile says so. */
static void test_damaged_labels_are_left_out(void)
{
	struct history *h = open_history(true);
	struct history_found found, before;
	char keys[100] = "", *text;
	struct stacks *s = NULL;
	int err;

	add_samples(h, samples, SAMPLES, START);
	text = made_read(h, &with_all, &before, &err);
	CHECK(!err && strstr(text, "a") && before.n_damaged_labels == 0, "before");
	free(text);
	CHECK(db_sql("UPDATE labels SET labels = substr(labels, 2) WHERE id = 1") == SQLITE_OK,
	      "no JSON");
	CHECK(!stacks_new(&s) && !history_read(h, &with_all, s, &found), "can be read");
	CHECK(found.n_samples == before.n_samples && found.n_damaged_labels == 1 &&
		      s->n_comments == 1 &&
		      !strcmp(s->comments[0], "1 row of labels is damaged: samples have none"),
	      "all samples, and what is wrong");
	stacks_free(s);
	CHECK(!history_label_keys(h, add_text, keys) && *keys, "labels of others");
	history_close(h);
	db_remove();
}

/* Bytes of the file itself are changed, here and there. */
static void test_damaged_files(void)
{
	struct history *h = open_history(true);
	int fine = 0;

	add_samples(h, samples, SAMPLES, START);
	history_close(h);
	CHECK(db_sql("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE") == SQLITE_OK,
	      "in one file");
	for (long at = 100; at < 300000; at += 1709) {
		FILE *file = fopen(db_name, "r+e");
		int old, err;

		CHECK(file && !fseek(file, at, SEEK_SET), "opens");
		old = fgetc(file);
		(void)fseek(file, at, SEEK_SET);
		(void)fputc(old ^ 0x5a, file);
		(void)fclose(file);
		err = history_open(db_name, false, &h);
		if (!err) {
			err = read_error(h, &with_all);
			history_close(h);
		}
		fine += !err;
		file = fopen(db_name, "r+e");
		(void)fseek(file, at, SEEK_SET);
		(void)fputc(old, file);
		(void)fclose(file);
		if (old == EOF)
			break;
	}
	CHECK(fine > 10, "most of a page is free");
	CHECK(!history_open(db_name, false, &h), "opens");
	check_samples(h, samples, SAMPLES, &with_all, "whole again");
	history_close(h);
	db_remove();
}

/* ---- less than all that there is ------------------------------------------------------------- */

static const struct made_sample small[] = {
	{ START + 1000000, 5, 6, "a", 10, { 3, 2, 1 }, 3 },
	{ START + 2000000, 5, 7, "a", 10, { 4, 2, 1 }, 3 },
	{ START + 3000000, 5, 6, "a", 70, { 2, 1 }, 2 },
	{ START + 4000000, 8, 8, "b", 10, { 4, 2, 1 }, 3 },
};

static void test_small_stacks_are_counted_together(void)
{
	struct history *h = open_history(true);
	struct history_query q = { .to_ns = UINT64_MAX, .parts = 3 };

	add_samples(h, small, 4, START);
	history_close(h);
	h = open_history(false);
	/* f3 has a quarter of the samples and a tenth of the time, f4 half of the samples. */
	check_read(h, &q,
		   "f1;f2; 1 70\n"
		   "f1;f2;" HISTORY_CUT "; 1 10\n"
		   "f1;f2;f4; 2 20\n",
		   "a third");
	q.parts = 1;
	check_read(h, &q, "f1;f2; 1 70\nf1;f2;" HISTORY_CUT "; 3 30\n", "all");
	q.labels = q.no_threads = true;
	check_read(h, &q,
		   "comm=a f1;f2; 1 70\n"
		   "comm=a f1;f2;" HISTORY_CUT "; 2 20\n"
		   "comm=b f1;f2;" HISTORY_CUT "; 1 10\n",
		   "labels stay apart");
	q.parts = 1000000;
	check_read(h, &q,
		   "comm=a f1;f2; 1 70\n"
		   "comm=a f1;f2;f3; 1 10\n"
		   "comm=a f1;f2;f4; 1 10\n"
		   "comm=b f1;f2;f4; 1 10\n",
		   "nothing is too small");
	/* With stacks that have nothing in common, their outermost functions are too small. */
	q = (struct history_query){ .to_ns = UINT64_MAX, .parts = 2 };
	history_close(h);
	h = open_history(true);
	add_samples(h,
		    (const struct made_sample[]){ { START + 11 * SECOND, 5, 6, "a", 9, { 5 }, 1 },
						  { START + 12 * SECOND, 5, 6, "a", 0, { 0 }, 0 } },
		    2, START + 10 * SECOND);
	check_read(h, &q, " 1 0\n" HISTORY_CUT "; 1 9\nf1;f2; 1 70\nf1;f2;" HISTORY_CUT "; 3 30\n",
		   "none of a stack is left");
	history_close(h);
	db_remove();
}

static void test_threads_can_be_left_out(void)
{
	const struct history_query q = { .to_ns = UINT64_MAX, .labels = true, .no_threads = true };
	struct history *h = open_history(true);

	add_samples(h, samples, SAMPLES, START);
	check_read(h, &q,
		   "comm=a f1;f2;f3; 3 36\n"
		   "comm=b  1 15\n"
		   "comm=b f1;f2; 1 14\n"
		   "f4;f4;f4;f4; 1 16\n",
		   "labels without processes and threads");
	history_close(h);
	db_remove();
}

static void test_paths(void)
{
	char *path = history_path("/var/lib/offwind/offwind.db");

	CHECK(path && !strcmp(path, "/var/lib/offwind/offwind-history.db"), "beside the store");
	free(path);
	path = history_path("x");
	CHECK(path && !strcmp(path, "x-history.db"), "of any name");
	free(path);
}

static void test_all(void)
{
	test_samples_are_read_as_they_were();
	test_equal_stacks_are_stored_once();
	test_stacks_that_are_stored_again_are_counted_together();
	test_labels_can_have_any_text();
	test_samples_can_have_many_types();
	test_one_type_is_the_default();
	test_a_window_needs_times();
	test_a_window_is_added_whole_or_not_at_all();
	test_ranges_cut_windows_exactly();
	test_a_profile_has_so_many_samples();
	test_many_samples_are_counted();
	test_any_range_can_be_asked_for();
	test_better_names_replace_older_ones();
	test_names_that_say_less_do_not_replace_others();
	test_renaming_says_what_came_of_it();
	test_addresses_of_files_are_listed();
	test_generated_code_has_variants();
	test_names_keep_all_they_have();
	test_several_processes_write_while_one_reads();
	test_one_daemon_has_a_history();
	test_damage_is_found();
	test_a_damaged_window_is_left_out();
	test_sums_that_are_too_large();
	test_harmless_damage();
	test_damaged_labels_are_left_out();
	test_damaged_files();
	test_small_stacks_are_counted_together();
	test_threads_can_be_left_out();
	test_paths();
}

int main(void)
{
	db_make_name();
	test_all();
	with_thread = true;
	test_all();
	(void)rmdir(db_folder);
	return check_done();
}

/* tests/unit/test_stacks.c: tests profiles as stacks: reading, merging, damage, limits. */
#include "agent/export/formats.h"
#include "agent/export/profile/stacks.h"
#include "agent/log.h"
#include "proto/pprof.h"

#include "tests/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *first_type = "samples", *leaf = "leaf\x1b[31m\xff";

/* main → (inlined) middle → leaf, twice; and a stack without symbols. */
static int make(int64_t factor, int64_t time_ns)
{
	int fd = memfd_create("pprof", MFD_CLOEXEC);
	uint64_t locations[3], labels[3], mapping, functions[3];
	struct pprof *p = NULL;

	CHECK(fd >= 0 && !pprof_new(&p), "set up");
	if (!p)
		return fd;
	pprof_sample_type(p, first_type, "count");
	pprof_sample_type(p, "cpu", "nanoseconds");
	pprof_default_sample_type(p, "cpu");
	pprof_period(p, "cpu", "nanoseconds", 10000000);
	pprof_time(p, time_ns, 2000000000);
	pprof_comment(p, "host: box");
	mapping = pprof_mapping(
		p, &(struct pprof_mapping){ 0x1000, 0x9000, 0, "/usr/bin/prog", "abcd", false });
	functions[0] = pprof_function(p, &(struct pprof_function){ "main", NULL, "main.c", 0 });
	functions[1] = pprof_function(
		p, &(struct pprof_function){ "middle()", "_Z6middlev", "main.c", 0 });
	functions[2] = pprof_function(p, &(struct pprof_function){ leaf, NULL, NULL, 0 });
	locations[0] = pprof_location(
		p, mapping, 0x1100,
		(struct pprof_line[]){ { functions[1], 7 }, { functions[0], 30 } }, 2);
	locations[1] =
		pprof_location(p, mapping, 0x1200, (struct pprof_line[]){ { functions[2], 0 } }, 1);
	locations[2] = pprof_location(p, 0, 0x77, NULL, 0);
	labels[0] = pprof_label_number(p, "pid", 10, NULL);
	labels[1] = pprof_label_text(p, "comm", "prog");
	labels[2] = pprof_label_number(p, "pid", 11, NULL);
	pprof_sample(p, &(struct pprof_sample){ (uint64_t[]){ locations[1], locations[0] }, 2,
						(int64_t[]){ factor, factor * 10 }, labels, 2 });
	pprof_sample(p, &(struct pprof_sample){ (uint64_t[]){ locations[2] }, 1,
						(int64_t[]){ 1, 10 }, labels + 2, 1 });
	CHECK(!pprof_write(p, 1, fd) && !lseek(fd, 0, SEEK_SET), "written");
	pprof_free(p);
	return fd;
}

static int load(struct stacks *s, int64_t factor, int64_t time_ns, bool base)
{
	int fd = make(factor, time_ns), err = stacks_load_fd(s, fd, "it", base);

	(void)close(fd);
	return err;
}

static void test_a_file_is_all_there(void)
{
	struct stacks *s = NULL;
	struct stacks_frames frames = { 0 };
	char number[STACKS_NUMBER];

	CHECK(!stacks_new(&s) && !load(s, 5, 1000, false), "loads");
	CHECK(s->n_samples == 2 && s->n_types == 2 && s->default_type == 1 && s->n_functions == 4 &&
		      s->n_modules == 2 && s->n_frames == 4,
	      "counts");
	CHECK(!strcmp(s->types[1].type, "cpu") && !strcmp(s->types[1].unit, "nanoseconds") &&
		      stacks_find_type(s, "samples") == 0 && stacks_find_type(s, "gpu") == SIZE_MAX,
	      "types");
	CHECK(stacks_value(s, 0, 0) == 5 && stacks_value(s, 0, 1) == 50, "values");
	CHECK(!stacks_unfold(s, &s->samples[0], &frames) && frames.n == 3, "frames");
	if (frames.n == 3) {
		const struct stacks_function *f = s->functions;
		const struct stacks_frame *at = frames.frames;

		CHECK(!strcmp(f[at[0].function].name, "leaf?[31m\xef\xbf\xbd") && !at[0].inlined &&
			      at[0].address == 0x1200 && !at[0].line,
		      f[at[0].function].name);
		CHECK(!strcmp(f[at[1].function].name, "middle()") &&
			      !strcmp(f[at[1].function].system_name, "_Z6middlev") &&
			      at[1].inlined && at[1].line == 7 && at[1].address == 0x1100,
		      "the inlined call comes first");
		CHECK(!strcmp(f[at[2].function].name, "main") &&
			      !strcmp(f[at[2].function].file, "main.c") && !at[2].inlined &&
			      at[2].line == 30,
		      "then what it was inlined into");
		CHECK(!strcmp(s->modules[at[2].module].name, "prog") &&
			      !strcmp(s->modules[at[2].module].build_id, "abcd"),
		      "module");
	}
	CHECK(!stacks_unfold(s, &s->samples[1], &frames) && frames.n == 1 &&
		      s->functions[frames.frames[0].function].placed &&
		      !strcmp(s->functions[frames.frames[0].function].name, "[unknown]") &&
		      !frames.frames[0].module,
	      "what has no function is named by its place");
	CHECK(!strcmp(stacks_label_text(stacks_label(s, &s->samples[0], "pid"), number), "10") &&
		      !strcmp(stacks_label_text(stacks_label(s, &s->samples[0], "comm"), number),
			      "prog") &&
		      !stacks_label(s, &s->samples[1], "comm"),
	      "labels");
	CHECK(s->n_comments == 1 && !strcmp(s->comments[0], "host: box"), "comment");
	CHECK(s->time_ns == 1000 && s->duration_ns == 2000000000 && s->period == 10000000 &&
		      !strcmp(s->period_type.type, "cpu"),
	      "times");
	free(frames.frames);
	stacks_free(s);
}

static void test_files_become_one(void)
{
	struct stacks *s = NULL;

	CHECK(!stacks_new(&s) && !load(s, 5, 1000, false) && !load(s, 7, 500, false), "load");
	CHECK(s->n_samples == 2 && s->n_functions == 4 && s->n_locations == 3 && s->n_labels == 3 &&
		      s->n_comments == 1,
	      "equal things are one");
	CHECK(stacks_value(s, 0, 0) == 12 && stacks_value(s, 1, 1) == 20, "their values a sum");
	CHECK(s->time_ns == 500 && s->duration_ns == 4000000000, "the earliest, and all the time");
	CHECK(!load(s, 3, 100, true) && s->n_samples == 4 && s->samples[2].base &&
		      !s->samples[0].base && s->time_ns == 500 && stacks_value(s, 2, 0) == 3,
	      "what is compared with stands apart");
	CHECK(!load(s, INT64_MAX / 10, 100, false) && !load(s, INT64_MAX / 10, 100, false) &&
		      stacks_value(s, 0, 1) == INT64_MAX,
	      "sums do not wrap");
	first_type = "allocations";
	CHECK(load(s, 1, 1, false) == -EINVAL, "other types");
	first_type = "samples";
	stacks_free(s);
}

/* A difference that was written is the same when it is read again: its samples of the base are negative in the file. */
static void test_a_difference_is_read_again(void)
{
	int fd = memfd_create("difference", MFD_CLOEXEC);
	struct stacks *s = NULL, *again = NULL;

	CHECK(!stacks_new(&s) && !load(s, 5, 1000, false) && !s->compared, "what there is now");
	CHECK(!load(s, 7, 500, true) && s->compared && s->n_samples == 4, "and before");
	CHECK(fd >= 0 && !format_pprof(s, 1, 1, fd) && !lseek(fd, 0, SEEK_SET), "written");
	CHECK(!stacks_new(&again) && !stacks_load_fd(again, fd, "it", false), "read");
	CHECK(again->compared && again->n_samples == 4, "four stacks");
	for (size_t i = 0; i < again->n_samples && i < s->n_samples; i++)
		CHECK(again->samples[i].base == s->samples[i].base &&
			      again->samples[i].n_labels == s->samples[i].n_labels &&
			      stacks_value(again, i, 1) == stacks_value(s, i, 1),
		      "with the same values and labels");
	stacks_free(again);
	stacks_free(s);
	(void)close(fd);
}

static void test_damage_is_told(void)
{
	int fd = memfd_create("pprof", MFD_CLOEXEC);
	struct stacks *s = NULL;

	CHECK(!stacks_new(&s) && write(fd, "no profile\n", 11) == 11 && !lseek(fd, 0, SEEK_SET),
	      "set up");
	CHECK(stacks_load_fd(s, fd, "it", false) == -EBADMSG, "damage");
	CHECK(stacks_load(s, "/proc/nonexistent", false) == -ENOENT, "no file");
	stacks_free(s);
	stacks_free(NULL);
	(void)close(fd);
}

/* A location of 4,000 inlined calls, named 100,000 times over: 400 million frames of 100 kB. */
static void test_frames_are_bounded(void)
{
	enum { LINES = 4000, TIMES = 100000 };
	struct pprof_line *lines = calloc(LINES, sizeof(*lines));
	uint64_t *ids = calloc(TIMES, sizeof(*ids)), function, location;
	int fd = memfd_create("pprof", MFD_CLOEXEC);
	struct stacks *s = NULL;
	struct pprof *p = NULL;

	CHECK(lines && ids && !pprof_new(&p) && !stacks_new(&s), "set up");
	pprof_sample_type(p, "samples", "count");
	function = pprof_function(p, &(struct pprof_function){ "f", NULL, NULL, 0 });
	for (size_t i = 0; i < LINES; i++)
		lines[i] = (struct pprof_line){ function, (int64_t)i };
	location = pprof_location(p, 0, 1, lines, LINES);
	for (size_t i = 0; i < TIMES; i++)
		ids[i] = location;
	pprof_sample(p, &(struct pprof_sample){ ids, TIMES, (int64_t[]){ 1 }, NULL, 0 });
	CHECK(!pprof_write(p, 1, fd) && !lseek(fd, 0, SEEK_SET), "written");
	CHECK(stacks_load_fd(s, fd, "it", false) == -EFBIG, "refused");
	pprof_free(p);
	stacks_free(s);
	free(lines);
	free(ids);
	(void)close(fd);
}

/* One sample in a program, one in the kernel, one that was cut; pid and tid with these units. */
static char *tsv_of(const char *comment, const char *pid_unit, const char *tid_unit)
{
	int fd = memfd_create("pprof", MFD_CLOEXEC);
	uint64_t at[2], mapping, kernel, labels[4];
	struct stacks *s = NULL;
	struct pprof *p = NULL;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	CHECK(fd >= 0 && out && !pprof_new(&p) && !stacks_new(&s), "set up");
	pprof_sample_type(p, "samples", "count");
	pprof_comment(p, comment);
	mapping =
		pprof_mapping(p, &(struct pprof_mapping){ 0x1000, 0x9000, 0, "/bin/x", "", false });
	kernel = pprof_mapping(
		p, &(struct pprof_mapping){ 0x10000, 0x20000, 0, "[kernel]", "", false });
	at[0] = pprof_location(p, kernel, 0x10100, NULL, 0);
	at[1] = pprof_location(p, mapping, 0x1100, NULL, 0);
	labels[0] = pprof_label_number(p, "pid", 10, pid_unit);
	labels[1] = pprof_label_number(p, "tid", 11, tid_unit);
	labels[2] = pprof_label_text(p, "stop", "truncated");
	labels[3] = pprof_label_text(p, "confidence", "guess");
	pprof_sample(p, &(struct pprof_sample){ at, 2, (int64_t[]){ 1 }, labels, 2 });
	pprof_sample(p, &(struct pprof_sample){ at, 1, (int64_t[]){ 1 }, labels, 2 });
	pprof_sample(p, &(struct pprof_sample){ at + 1, 1, (int64_t[]){ 1 }, labels, 4 });
	CHECK(!pprof_write(p, 1, fd) && !lseek(fd, 0, SEEK_SET), "written");
	CHECK(!stacks_load_fd(s, fd, "it", false) && !format_write(FORMAT_TSV, s, 0, out) &&
		      !fclose(out),
	      "as TSV");
	stacks_free(s);
	pprof_free(p);
	(void)close(fd);
	return text;
}

/* Return how often text has a row with these ends of the walk. */
static size_t rows(const char *text, const char *stop, const char *confidence)
{
	char columns[64];
	size_t n = 0;

	(void)snprintf(columns, sizeof(columns), "\t-\t-\t%s\t%s\t", stop, confidence);
	while ((text = strstr(text, columns))) {
		text += strlen(columns);
		n++;
	}
	return n;
}

static void test_whole_stacks_of_our_own_have_roots(void)
{
	static const char *const others[][3] = {
		{ "offwind of a barn", "pid", "tid" }, /* no version of ours */
		{ "perf 6.1", "pid", "tid" },
		{ "offwind 0.1.0", "", "tid" }, /* merged with another tool's samples */
		{ "offwind 0.1.0", "pid", "" },
	};
	char *text = tsv_of("offwind 0.1.0", "pid", "tid");

	CHECK(rows(text, "root", "rule") == 2 && rows(text, "-", "rule") == 1 &&
		      rows(text, "truncated", "guess") == 1,
	      text);
	free(text);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		text = tsv_of(others[i][0], others[i][1], others[i][2]);
		CHECK(rows(text, "-", "-") == 3 && rows(text, "truncated", "guess") == 1, text);
		free(text);
	}
}

/* Return a location of a module, with one function. */
static uint32_t place(struct stacks *s, const char *path, uint64_t address)
{
	uint32_t module = stacks_module(s, &(struct stacks_module){ .path = stacks_text(s, path) });
	struct stacks_line line = { .function = stacks_function(
					    s, &(struct stacks_function){ .name = NULL }) };

	return stacks_location(
		s, &(struct stacks_location){ .module = module, .address = address, .n_lines = 1 },
		&line);
}

/* An interpreter's own frames go only from stacks that have those of what it interprets. */
static void test_interpreters_are_hidden(void)
{
	enum { DEEP = 1 << 20 };
	struct stacks *s = NULL;
	uint32_t *deep = calloc(DEEP, sizeof(*deep));
	const int64_t one = 1;

	CHECK(deep && !stacks_new(&s) && !stacks_add_type(s, "cpu", "count"), "set up");
	if (!deep || !s)
		return;
	const uint32_t python = place(s, "/usr/bin/python3.11", 1), code = place(s, "[cpython]", 2),
		       perl = place(s, "/usr/bin/perl", 3), libc = place(s, "/lib/libc.so.6", 4);
	const uint32_t whole[] = { libc, python, code, perl, python, code, libc };
	const uint32_t bare[] = { libc, python, perl }, left[] = { libc, code, perl, code, libc };
	const struct stacks_label guessed = { .key = stacks_text(s, "guessed"),
					      .text = stacks_text(s, "1-3,6") };
	const uint32_t label = stacks_keep_label(s, &guessed);
	const struct stacks_sample *all;

	for (size_t i = 0; i < DEEP; i++)
		deep[i] = python;
	CHECK(!stacks_add(s, &(struct stacks_sample){ .n_locations = 7, .n_labels = 1 }, whole,
			  &label, &one) &&
		      !stacks_add(s, &(struct stacks_sample){ .n_locations = 3 }, bare, NULL,
				  &one) &&
		      !stacks_add(s, &(struct stacks_sample){ .n_locations = DEEP }, deep, NULL,
				  &one),
	      "three stacks");
	/* The time is linear: with each frame compared with each, the deep stack would take an hour. */
	CHECK(!stacks_hide_interpreters(s), "hidden");
	all = s->samples;
	CHECK(all[0].n_locations == 5 && all[0].n_frames == 5 &&
		      !memcmp(s->location_ids + all[0].first_location, left, sizeof(left)),
	      "python's own are gone, perl's are there");
	CHECK(!strcmp(stacks_label(s, &all[0], "guessed")->text, "1-2,4"), "the same are guessed");
	CHECK(all[1].n_locations == 3 && all[2].n_locations == DEEP && s->n_frames == 8 + DEEP,
	      "what interprets nothing stays");
	stacks_free(s);
	free(deep);
}

/* The number beside a value is that of the samples of the value's event. */
static void test_what_counts_samples(void)
{
	static const struct {
		const char *types[8];
		size_t counters[8];
	} cases[] = {
		{ { "samples", "cpu" }, { 0, 0 } },
		{ { "cpu", "samples" }, { 1, 1 } },
		{ { "alloc_objects", "alloc_space" }, { SIZE_MAX, SIZE_MAX } },
		{ { "samples", "sched_switch", "cpu_samples", "cpu" }, { 0, 0, 2, 2 } },
		{ { "samples", "take_samples" }, { 0, 0 } }, /* an event of that name */
		{ { "samples", "cpu", "off_cpu_samples", "off_cpu", "blocked", "runnable", "wall" },
		  { 0, 0, 2, 2, 2, 2, SIZE_MAX } },
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct stacks *s = NULL;
		size_t n = 0;

		CHECK(!stacks_new(&s), "new");
		for (; n < 8 && cases[c].types[n]; n++)
			CHECK(!stacks_add_type(s, cases[c].types[n], "count"), "a type");
		for (size_t t = 0; t < n; t++)
			CHECK(stacks_counter_of(s, t) == cases[c].counters[t], cases[c].types[t]);
		stacks_free(s);
	}
}

int main(void)
{
	test_interpreters_are_hidden();
	test_what_counts_samples();
	test_whole_stacks_of_our_own_have_roots();
	test_a_file_is_all_there();
	test_files_become_one();
	test_a_difference_is_read_again();
	test_damage_is_told();
	test_frames_are_bounded();
	return check_done();
}

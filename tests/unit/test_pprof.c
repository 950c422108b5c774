/*
 * tests/unit/test_pprof.c: tests the encoder and the reader of pprof files, and the checker of
 * profiles.
 */
#include "proto/pprof.h"
#include "proto/pprof_read.h"
#include "proto/utf8.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX = 1 << 20 };

/* Two mappings, three functions (one inlined), two samples. */
static void fill(struct pprof *p)
{
	uint64_t exe, lib, main_id, work, copy, ids[3], labels[3];
	struct pprof_line inlined[2];

	pprof_sample_type(p, "samples", "count");
	pprof_sample_type(p, "cpu", "nanoseconds");
	pprof_default_sample_type(p, "cpu");
	pprof_period(p, "cpu", "nanoseconds", 10101010);
	pprof_time(p, 1700000000000000000, 2500000000);
	pprof_comment(p, "captured 5 = unwound 5 (root 5) + lost 0");
	exe = pprof_mapping(
		p, &(struct pprof_mapping){ 0x1000, 0x3000, 0x1000, "/bin/prog", "ab01", false });
	lib = pprof_mapping(
		p, &(struct pprof_mapping){ 0x1000, 0x9000, 0, "/lib/lib.so", NULL, false });
	main_id = pprof_function(p, &(struct pprof_function){ "main", NULL, NULL, 0 });
	work = pprof_function(p, &(struct pprof_function){ "work(int)", "_Z4worki", "work.cc", 0 });
	copy = pprof_function(p, &(struct pprof_function){ "copy", NULL, NULL, 0 });
	inlined[0] = (struct pprof_line){ copy, 11 };
	inlined[1] = (struct pprof_line){ work, 7 };
	ids[0] = pprof_location(p, lib, 0x1234, inlined, 2);
	ids[1] = pprof_location(p, exe, 0x1fff, &(struct pprof_line){ main_id, 0 }, 1);
	ids[2] = pprof_location(p, 0, 0xdead, NULL, 0);
	labels[0] = pprof_label_number(p, "pid", 42, NULL);
	labels[1] = pprof_label_text(p, "comm", "prog");
	labels[2] = pprof_label_text(p, "stop", "truncated");
	pprof_sample(p, &(struct pprof_sample){ ids, 2, (int64_t[]){ 3, 300 }, labels, 2 });
	pprof_sample(p, &(struct pprof_sample){ ids + 1, 2, (int64_t[]){ 2, 200 }, labels, 3 });
}

/* Make a file in memory with these bytes; its position is at the start. */
static int file_of(const void *bytes, size_t size)
{
	int fd = memfd_create("pprof", 0);

	if (fd >= 0 && (write(fd, bytes, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET))) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static size_t write_it(void (*build)(struct pprof *), int level, uint8_t *out, size_t size)
{
	int fd = memfd_create("pprof", 0);
	struct pprof *p = NULL;
	ssize_t n = -1;

	if (fd >= 0 && !pprof_new(&p)) {
		build(p);
		if (!pprof_write(p, level, fd))
			n = pread(fd, out, size, 0);
	}
	pprof_free(p);
	(void)close(fd);
	CHECK(n > 0 && (size_t)n < size, "written");
	return n > 0 ? (size_t)n : 0;
}

static bool same_sample(const Perftools__Profiles__Sample *a, const Perftools__Profiles__Sample *b)
{
	const size_t size = perftools__profiles__sample__get_packed_size(a);
	uint8_t *x = malloc(size + 1), *y = malloc(size + 1);
	bool same = x && y && perftools__profiles__sample__get_packed_size(b) == size;

	if (same) {
		(void)perftools__profiles__sample__pack(a, x);
		(void)perftools__profiles__sample__pack(b, y);
		same = !memcmp(x, y, size);
	}
	free(x);
	free(y);
	return same;
}

/* Read a profile apart from its samples. The result and all samples must be those of reading it whole. */
static void check_apart(int fd, int whole_err, const struct pprof_file *whole)
{
	const Perftools__Profiles__Profile *p = whole ? pprof_profile(whole) : NULL;
	const Perftools__Profiles__Sample *s;
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];
	size_t n = 0;
	int err;

	(void)lseek(fd, 0, SEEK_SET);
	err = pprof_read_apart(fd, MAX, &file, error);
	if (!err) {
		CHECK(!pprof_profile(file)->n_sample, "no sample is unpacked");
		while ((err = pprof_next_sample(file, &s, error)) == 1) {
			CHECK(!p || (n < p->n_sample && same_sample(s, p->sample[n])), "a sample");
			n++;
		}
	}
	CHECK(whole_err == -EFBIG || err == whole_err, "the same result");
	CHECK((err != 0) == (error[0] != '\0'), "it says why");
	CHECK(!p || n == p->n_sample, "all samples");
	pprof_file_free(file);
}

static int read_it(const void *bytes, size_t size, struct pprof_file **out, char *error)
{
	int fd = file_of(bytes, size);
	int err = pprof_read(fd, MAX, out, error);

	check_apart(fd, err, err ? NULL : *out);
	(void)close(fd);
	return err;
}

static void check_contents(const struct pprof_file *file)
{
	const Perftools__Profiles__Profile *p = pprof_profile(file);
	const Perftools__Profiles__Sample *s;
	const Perftools__Profiles__Location *l;

	CHECK(p->n_sample_type == 2 && p->n_sample == 2 && p->n_mapping == 2 &&
		      p->n_location == 3 && p->n_function == 3,
	      "everything is there once");
	CHECK(!strcmp(pprof_text(file, p->sample_type[0]->type), "samples"), "samples come first");
	CHECK(!strcmp(pprof_text(file, p->default_sample_type), "cpu"), "cpu is shown first");
	CHECK(p->period == 10101010 && p->time_nanos == 1700000000000000000 &&
		      p->duration_nanos == 2500000000,
	      "period and times");
	s = p->sample[0];
	CHECK(s->n_location_id == 2 && s->n_value == 2 && s->value[1] == 300 && s->n_label == 2,
	      "first sample");
	CHECK(s->label[0]->num == 42 && !strcmp(pprof_text(file, s->label[0]->key), "pid"), "pid");
	l = p->location[pprof_place_of_location(file, s->location_id[0])];
	CHECK(l && l->address == 0x1234 && l->n_line == 2, "location with an inlined call");
	CHECK(!strcmp(pprof_text(file,
				 p->function[pprof_place_of_function(file, l->line[0]->function_id)]
					 ->name),
		      "copy") &&
		      l->line[0]->line == 11,
	      "innermost line first");
	CHECK(!strcmp(pprof_text(file,
				 p->function[pprof_place_of_function(file, l->line[1]->function_id)]
					 ->system_name),
		      "_Z4worki"),
	      "name as linked");
	CHECK(!strcmp(pprof_text(file,
				 p->mapping[pprof_place_of_mapping(file, l->mapping_id)]->filename),
		      "/lib/lib.so"),
	      "its mapping");
	CHECK(!strcmp(pprof_text(file, p->mapping[pprof_place_of_mapping(file, 1)]->build_id),
		      "ab01"),
	      "build-id");
	CHECK(p->mapping[0]->has_functions && p->mapping[0]->has_line_numbers, "symbolised");
	CHECK(pprof_place_of_mapping(file, 3) == SIZE_MAX &&
		      pprof_place_of_mapping(file, 0) == SIZE_MAX,
	      "no such mapping");
	CHECK(!strcmp(pprof_text(file, -1), "") && !strcmp(pprof_text(file, 1 << 30), ""),
	      "texts outside are empty");
}

static void test_what_is_written_is_read_back(void)
{
	static uint8_t bytes[65536];
	char error[PPROF_ERROR_SIZE];

	for (int level = 0; level <= 9; level++) {
		size_t n = write_it(fill, level, bytes, sizeof(bytes));
		struct pprof_file *file = NULL;

		CHECK(!read_it(bytes, n, &file, error), error);
		if (!file)
			continue;
		check_contents(file);
		CHECK(!pprof_check(pprof_profile(file), true, NULL, NULL), "strictly sound");
		pprof_file_free(file);
	}
}

static void test_equal_calls_give_equal_bytes(void)
{
	static uint8_t a[65536], b[65536];

	for (int level = 0; level <= 9; level += 9) {
		size_t n = write_it(fill, level, a, sizeof(a));

		CHECK(write_it(fill, level, b, sizeof(b)) == n && !memcmp(a, b, n), "same bytes");
	}
	/* RFC 1952 §2.3.1: bytes 4 to 7 are the time, bit 3 of byte 3 a file name. */
	CHECK(a[0] == 0x1f && a[1] == 0x8b && a[3] == 0 && !memcmp(a + 4, "\0\0\0\0", 4),
	      "the gzip header holds no time and no name");
}

static void fill_many(struct pprof *p)
{
	uint64_t mapping;

	pprof_sample_type(p, "samples", "count");
	mapping = pprof_mapping(p, &(struct pprof_mapping){ 0, 0x100000, 0, "/bin/x", "", false });
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < 5000; i++) {
			char name[32];
			struct pprof_line line = { 0 };
			uint64_t id;

			(void)snprintf(name, sizeof(name), "f%llu", (unsigned long long)i);
			line.function =
				pprof_function(p, &(struct pprof_function){ name, NULL, NULL, 0 });
			id = pprof_location(p, mapping, i, &line, 1);
			CHECK(line.function == i + 1 && id == i + 1, "named twice, kept once");
			CHECK(pprof_label_number(p, "tid", (int64_t)i, NULL) == i + 1,
			      "labels too");
			pprof_sample(p,
				     &(struct pprof_sample){ &id, 1, (int64_t[]){ 1 }, NULL, 0 });
		}
	}
}

static void test_things_are_kept_once_and_ids_count_from_one(void)
{
	static uint8_t bytes[1 << 20];
	char error[PPROF_ERROR_SIZE];
	size_t n = write_it(fill_many, 1, bytes, sizeof(bytes));
	struct pprof_file *file = NULL;

	CHECK(!read_it(bytes, n, &file, error), error);
	if (!file)
		return;
	CHECK(pprof_profile(file)->n_sample == 10000 && pprof_profile(file)->n_location == 5000 &&
		      pprof_profile(file)->n_string_table ==
			      5000 + 5, /* "" samples count path tid */
	      "counts");
	CHECK(!pprof_check(pprof_profile(file), true, NULL, NULL), "strictly sound");
	pprof_file_free(file);
}

static void fill_full(struct pprof *p)
{
	struct pprof_line line = { .line = 12 };
	uint64_t ids[2], labels[2];

	pprof_sample_type(p, "samples", "count");
	line.function = pprof_function(p, &(struct pprof_function){ "f()", "_Z1fv", "f.cc", 10 });
	CHECK(line.function == 1 &&
		      pprof_function(p, &(struct pprof_function){ "f()", "_Z1fv", "f.cc", 0 }) ==
			      2 &&
		      pprof_function(p, &(struct pprof_function){ "f()", "_Z1fv", "f.cc", 10 }) ==
			      1,
	      "told apart by where they start");
	ids[0] = pprof_location_new(p, 0, 5, &line, 1, true);
	ids[1] = pprof_location_new(p, 0, 5, &line, 1, false);
	CHECK(ids[0] == 1 && ids[1] == 2 && pprof_location(p, 0, 5, NULL, 0) == 3,
	      "each a location of its own");
	CHECK(pprof_location(p, 0, 5, &line, 1) == 4 && pprof_location(p, 0, 5, &line, 1) == 4,
	      "with other lines it is another one");
	labels[0] = pprof_label_number(p, "waited", 7, "nanoseconds");
	labels[1] = pprof_label_number(p, "waited", 7, NULL);
	CHECK(labels[0] != labels[1], "a unit tells labels apart");
	pprof_sample(p, &(struct pprof_sample){ ids, 2, (int64_t[]){ 1 }, labels, 2 });
}

static void test_all_that_the_format_has(void)
{
	static uint8_t bytes[65536];
	char error[PPROF_ERROR_SIZE];
	size_t n = write_it(fill_full, 1, bytes, sizeof(bytes));
	struct pprof_file *file = NULL;
	const Perftools__Profiles__Profile *p;

	CHECK(!read_it(bytes, n, &file, error), error);
	if (!file)
		return;
	p = pprof_profile(file);
	CHECK(p->function[0]->start_line == 10 && !p->function[1]->start_line, "start_line");
	CHECK(p->location[0]->is_folded && !p->location[1]->is_folded &&
		      p->location[0]->line[0]->line == 12,
	      "is_folded");
	CHECK(!strcmp(pprof_text(file, p->sample[0]->label[0]->num_unit), "nanoseconds") &&
		      !p->sample[0]->label[1]->num_unit,
	      "num_unit");
	CHECK(!pprof_check(p, true, NULL, NULL), "strictly sound");
	pprof_file_free(file);
}

static void fill_hostile(struct pprof *p)
{
	pprof_sample_type(p, "samples", "count");
	pprof_comment(p, "a\xff\xc0\x80z");
	pprof_comment(p, NULL);
}

static void test_texts_come_out_as_utf8(void)
{
	static uint8_t bytes[65536];
	char error[PPROF_ERROR_SIZE];
	size_t n = write_it(fill_hostile, 0, bytes, sizeof(bytes));
	struct pprof_file *file = NULL;

	CHECK(!read_it(bytes, n, &file, error), error);
	if (!file)
		return;
	CHECK(!strcmp(pprof_text(file, pprof_profile(file)->comment[0]),
		      "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"),
	      "three bytes that are no characters");
	CHECK(!pprof_check(pprof_profile(file), true, NULL, NULL), "strictly sound");
	pprof_file_free(file);
}

static void test_callers_mistakes_are_told(void)
{
	struct pprof *p = NULL;
	int null = memfd_create("pprof", 0);

	CHECK(!pprof_new(&p) && !pprof_write(p, 0, null), "an empty profile is one");
	CHECK(pprof_write(p, 10, null) == -EINVAL, "no such level");
	CHECK(pprof_write(p, 1, -1) == -EBADF, "the file's error comes out");
	pprof_location(p, 7, 0, NULL, 0);
	CHECK(pprof_write(p, 0, null) == -EINVAL, "a mapping that was never made");
	pprof_free(p);
	(void)close(null);
	pprof_free(NULL);
}

static void test_full_disk_is_told(void)
{
	int full = memfd_create("pprof", MFD_ALLOW_SEALING);
	struct pprof *p = NULL;

	CHECK(full >= 0 && !pprof_new(&p), "set up");
	fill(p);
	(void)close(full);
	full = -1;
	FILE *dev = fopen("/dev/full", "w");
	if (dev) {
		CHECK(pprof_write(p, 1, fileno(dev)) == -ENOSPC, "gzip");
		CHECK(pprof_write(p, 0, fileno(dev)) == -ENOSPC, "plain");
		(void)fclose(dev);
	}
	pprof_free(p);
}

/* ---- the checker: each rule with a profile that breaks it alone ------------ */

struct message {
	uint8_t bytes[512];
	size_t n;
};

static void put_varint(struct message *m, uint64_t value)
{
	do {
		m->bytes[m->n++] = (uint8_t)(value >= 0x80 ? value | 0x80 : value);
		value >>= 7;
	} while (value);
}

/* Wire format: https://protobuf.dev/programming-guides/encoding */
static void put_number(struct message *m, unsigned int field, uint64_t value)
{
	put_varint(m, field << 3);
	put_varint(m, value);
}

static void put_bytes(struct message *m, unsigned int field, const void *bytes, size_t n)
{
	put_varint(m, field << 3 | 2);
	put_varint(m, n);
	memcpy(m->bytes + m->n, bytes, n);
	m->n += n;
}

static void put_message(struct message *m, unsigned int field, const struct message *inner)
{
	put_bytes(m, field, inner->bytes, inner->n);
}

static const struct rule {
	const char *name;
	int read; /* what pprof_read says */
	uint64_t type, n_values, sample_location, location_id, mapping_ref, address, mapping_id,
		start, limit, function_id, name_index, label_key, label_num, label_str;
	const char *first;
	int64_t duration;
} rules[] = {
	/* name, read, type, values, sample→, location, →mapping, address, mapping, start, limit, function, name, key, num, str */
	{ "sound", 0, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "first string", -EBADMSG, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "x", 0 },
	{ "type outside", -EBADMSG, 9, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "two values", -EBADMSG, 1, 2, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "unknown location", -EBADMSG, 1, 1, 2, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "location 0", -EBADMSG, 1, 1, 0, 0, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "unknown function", -EBADMSG, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 2, 2, 1, 5, 0, "", 0 },
	{ "name outside", -EBADMSG, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 3, 1, 5, 0, "", 0 },
	{ "label outside", -EBADMSG, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 0, 99, "", 0 },
	{ "ids from 5", 1, 1, 1, 5, 5, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "unknown mapping", 1, 1, 1, 1, 1, 2, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "address at limit", 1, 1, 1, 1, 1, 1, 0x20, 1, 0, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "address before", 1, 1, 1, 1, 1, 1, 0xf, 1, 0x10, 0x20, 1, 2, 1, 5, 0, "", 0 },
	{ "empty mapping", 2, 1, 1, 1, 1, 1, 0x10, 1, 0x10, 0x10, 1, 2, 1, 5, 0, "", 0 },
	{ "label without key", 1, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 0, 5, 0, "", 0 },
	{ "label of both", 1, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 2, "", 0 },
	{ "negative duration", 1, 1, 1, 1, 1, 1, 0x10, 1, 0, 0x20, 1, 2, 1, 5, 0, "", -1 },
};

static struct message profile_of(const struct rule *r)
{
	struct message m = { 0 }, type = { 0 }, label = { 0 }, sample = { 0 }, mapping = { 0 },
		       line = { 0 }, location = { 0 }, function = { 0 };

	put_number(&type, 1, r->type);
	put_number(&type, 2, 2);
	put_message(&m, 1, &type);
	put_number(&label, 1, r->label_key);
	put_number(&label, 2, r->label_str);
	put_number(&label, 3, r->label_num);
	put_number(&sample, 1, r->sample_location);
	for (uint64_t i = 0; i < r->n_values; i++)
		put_number(&sample, 2, 7);
	put_message(&sample, 3, &label);
	put_message(&m, 2, &sample);
	put_number(&mapping, 1, r->mapping_id);
	put_number(&mapping, 2, r->start);
	put_number(&mapping, 3, r->limit);
	put_message(&m, 3, &mapping);
	put_number(&line, 1, r->function_id);
	put_number(&location, 1, r->location_id);
	put_number(&location, 2, r->mapping_ref);
	put_number(&location, 3, r->address);
	put_message(&location, 4, &line);
	put_message(&m, 4, &location);
	put_number(&function, 1, 1);
	put_number(&function, 2, r->name_index);
	put_message(&m, 5, &function);
	put_bytes(&m, 6, r->first, strlen(r->first));
	put_bytes(&m, 6, "cpu", 3);
	put_bytes(&m, 6, "count", 5);
	if (r->duration)
		put_number(&m, 10, (uint64_t)r->duration);
	return m;
}

static void print_fault(void *ctx, const char *text)
{
	(void)printf("  %s: %s\n", (const char *)ctx, text);
}

static void test_each_broken_rule_is_found(void)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const struct rule *r = &rules[i];
		struct message m = profile_of(r);
		struct pprof_file *file = NULL;
		char error[PPROF_ERROR_SIZE];
		int err = read_it(m.bytes, m.n, &file, error);

		CHECK(err == (r->read < 0 ? r->read : 0), r->name);
		CHECK((err != 0) == (error[0] != '\0'), r->name);
		if (file) {
			const Perftools__Profiles__Profile *p = pprof_profile(file);

			CHECK(pprof_check(p, true, NULL, NULL) == (size_t)r->read, r->name);
			if (pprof_check(p, true, NULL, NULL) != (size_t)r->read)
				(void)pprof_check(p, true, print_fault, (void *)(uintptr_t)r->name);
		}
		pprof_file_free(file);
	}
}

static void test_a_nul_inside_a_string_is_found(void)
{
	struct message m = profile_of(&rules[0]);
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];

	CHECK(!read_it(m.bytes, m.n, &file, error), "sound");
	CHECK(!pprof_check_file(file, NULL, NULL), "no fault");
	pprof_file_free(file);
	put_bytes(&m, 6, "na\0me", 5);
	put_number(&m, 12, 1);
	put_bytes(&m, 6, "\0", 1);
	CHECK(!read_it(m.bytes, m.n, &file, error), "it can be read");
	CHECK(pprof_check_file(file, NULL, NULL) == 1, "and is told once");
	CHECK(!pprof_check(pprof_profile(file), true, NULL, NULL), "where nothing else is wrong");
	pprof_file_free(file);
}

/* ---- hostile files --------------------------------------------------------- */

static void test_every_cut_is_an_error_or_a_profile(void)
{
	static uint8_t bytes[65536];
	char error[PPROF_ERROR_SIZE];

	for (int level = 0; level <= 1; level++) {
		size_t n = write_it(fill, level, bytes, sizeof(bytes));

		for (size_t cut = 0; cut < n; cut++) {
			struct pprof_file *file = NULL;
			int err = read_it(bytes, cut, &file, error);

			/*
			 * A message that is not packed has no end mark; cut between fields, it may
			 * be valid.
			 */
			CHECK(level ? err == -EBADMSG : err == -EBADMSG || err == 0, "cut");
			CHECK(!err || error[0], "says why");
			pprof_file_free(file);
		}
	}
}

static void test_flipped_bits_do_no_harm(void)
{
	static uint8_t bytes[65536], bad[65536];
	uint32_t seed = 20240131;
	size_t n_errors = 0;

	for (int level = 0; level <= 1; level++) {
		size_t n = write_it(fill, level, bytes, sizeof(bytes));

		for (int round = 0; round < 4000; round++) {
			struct pprof_file *file = NULL;
			char error[PPROF_ERROR_SIZE];

			memcpy(bad, bytes, n);
			for (int flips = 0; flips <= round % 8; flips++) {
				seed = seed * 1664525 + 1013904223;
				bad[(seed >> 8) % n] ^= (uint8_t)(1u << (seed >> 5 & 7));
			}
			n_errors += read_it(bad, n, &file, error) != 0;
			if (file)
				(void)pprof_check(pprof_profile(file), true, NULL, NULL);
			pprof_file_free(file);
		}
	}
	CHECK(n_errors > 4000, "gzip's checksum alone finds all of its half");
}

static void test_bombs_are_capped(void)
{
	/* 16 MiB of "empty sample", 2 bytes each; a few KiB as gzip. */
	size_t n = 16 << 20;
	uint8_t *plain = malloc(n);
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];
	int fd;

	if (!plain)
		return;
	for (size_t i = 0; i < n; i += 2) {
		plain[i] = 2 << 3 | 2;
		plain[i + 1] = 0;
	}
	CHECK(read_it(plain, n, &file, error) == -EFBIG && !file, "more than the cap");
	fd = file_of(plain, n);
	CHECK(pprof_read(fd, n, &file, error) == -EFBIG && !file, "unpacks to more than the cap");
	(void)close(fd);
	free(plain);
}

static void test_other_files_are_refused(void)
{
	static const uint8_t two[] = { 0x1f, 0x8b };
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];

	CHECK(read_it("", 0, &file, error) == -EBADMSG, "empty");
	CHECK(read_it("PERFILE2", 8, &file, error) == -EBADMSG, "perf.data");
	CHECK(read_it(two, 2, &file, error) == -EBADMSG, "the beginning of gzip");
	CHECK(pprof_read(-1, MAX, &file, error) == -EBADF && error[0], "no file at all");
	CHECK(!file, "nothing is handed out");
}

static void test_utf8_is_checked(void)
{
	CHECK(utf8_valid("", 0) && utf8_valid("a\xc3\xa4", 3) && !utf8_valid("a\xc3", 2), "valid");
	CHECK(utf8_valid("\x1b[0m\n", 5), "control characters are valid");
	CHECK(!utf8_valid("sixteen bytes of\xff", 17), "after plain text");
}

int main(void)
{
	test_what_is_written_is_read_back();
	test_equal_calls_give_equal_bytes();
	test_things_are_kept_once_and_ids_count_from_one();
	test_all_that_the_format_has();
	test_texts_come_out_as_utf8();
	test_callers_mistakes_are_told();
	test_full_disk_is_told();
	test_each_broken_rule_is_found();
	test_a_nul_inside_a_string_is_found();
	test_every_cut_is_an_error_or_a_profile();
	test_flipped_bits_do_no_harm();
	test_bombs_are_capped();
	test_other_files_are_refused();
	test_utf8_is_checked();
	return check_done();
}

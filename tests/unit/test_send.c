/*
 * tests/unit/test_send.c: tests what is sent to other systems: the tables of OTLP profiles, windows in parts,
 * how far a target got, and which window comes next.
 */
#include "agent/send/otlp_encode.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/send/attributes.h"
#include "agent/send/parts.h"
#include "agent/send/ports.h"
#include "agent/send/post.h"
#include "agent/send/sender.h"
#include "agent/send/sent.h"
#include "agent/send/series.h"
#include "proto/otlp.pb-c.h"
#include "tests/asan.h"
#include "tests/check.h"
#include "tests/history.h"

/* ---- OTLP -------------------------------------------------------------------------------- */

static Otlp__ExportRequest *encode(const struct stacks *s, size_t *n_profiles)
{
	const struct send_window w = {
		.id = 7, .start_ns = 5 * SECOND, .end_ns = 6 * SECOND, .host = "h", .stacks = s
	};
	Otlp__ExportRequest *r = NULL;
	uint8_t *bytes = NULL;
	size_t size;

	CHECK(otlp_encode(&(struct otlp_part){ &w, 0, s->n_samples, NULL }, &bytes, &size,
			  n_profiles) == 0,
	      "is encoded");
	if (bytes)
		r = otlp__export_request__unpack(NULL, size, bytes);
	CHECK(r && r->dictionary, "is a message");
	free(bytes);
	return r;
}

/* Return the text of an attribute of a process; "": none. */
static const char *of_process(const Otlp__ResourceProfiles *r, const char *key)
{
	for (size_t i = 0; i < r->resource->n_attributes; i++) {
		const Otlp__KeyValue *a = r->resource->attributes[i];

		if (!strcmp(a->key, key))
			return a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE
				       ? a->value->string_value
				       : "a number";
	}
	return "";
}

static const char *text_at(const Otlp__Dictionary *d, int32_t i)
{
	return i >= 0 && (size_t)i < d->n_string_table ? d->string_table[i] : "outside";
}

static void test_processes_are_resources_and_types_are_profiles(void)
{
	struct stacks *s = made_profile();
	size_t n = 0;
	Otlp__ExportRequest *r;
	const Otlp__Dictionary *d;

	made_add(s, &(struct made_sample){ .pid = 1,
					   .tid = 2,
					   .comm = "a",
					   .cpu_ns = 10,
					   .frames = { 1, 2 },
					   .n_frames = 2 });
	made_add(s, &(struct made_sample){ .pid = 1,
					   .tid = 3,
					   .comm = "a",
					   .cpu_ns = 20,
					   .frames = { 1, 2 },
					   .n_frames = 2 });
	made_add(s, &(struct made_sample){ .pid = 4,
					   .tid = 4,
					   .comm = "b",
					   .cpu_ns = 0,
					   .frames = { 2 },
					   .n_frames = 1 });
	made_add(s, &(struct made_sample){ .pid = 4, .tid = 5, .comm = "b", .cpu_ns = 0 });
	r = encode(s, &n);
	stacks_free(s);
	if (!r)
		return;
	d = r->dictionary;
	CHECK(n == 3, "no profile of a type without values");
	CHECK(r->n_resource_profiles == 2, "two processes");
	CHECK(!strcmp(of_process(r->resource_profiles[0], "service.name"), "a"),
	      "the program's name is its service's");
	CHECK(!strcmp(of_process(r->resource_profiles[0], "host.name"), "h"),
	      "the host that sends");
	CHECK(!strcmp(of_process(r->resource_profiles[1], "process.pid"), "a number"),
	      "pids are numbers");
	CHECK(d->n_stack_table == 3 && d->n_location_table == 3 && d->n_function_table == 3 &&
		      d->n_mapping_table == 2,
	      "everything is there once, behind a zero element");
	CHECK(d->n_link_table == 1 && d->link_table[0]->trace_id.len == 16 &&
		      d->link_table[0]->span_id.len == 8,
	      "the zero link has ids of zeros");
	CHECK(!strcmp(d->string_table[0], "") && !d->location_table[0]->address &&
		      !d->stack_table[0]->n_location_indices,
	      "zero elements");
	if (n == 3 && r->n_resource_profiles == 2 && d->n_stack_table == 3) {
		const Otlp__Profile *p = r->resource_profiles[0]->scope_profiles[0]->profiles[1];
		const Otlp__Stack *stack = d->stack_table[1];
		const Otlp__Location *inner = d->location_table[stack->location_indices[0]];
		const Otlp__Profile *other =
			r->resource_profiles[1]->scope_profiles[0]->profiles[0];

		CHECK(!strcmp(text_at(d, p->sample_type->type_strindex), "cpu") &&
			      p->n_samples == 2 && p->samples[1]->values[0] == 20,
		      "values of the second type");
		CHECK(p->samples[0]->stack_index == p->samples[1]->stack_index,
		      "equal stacks are one");
		CHECK(p->time_unix_nano == 5 * SECOND && p->duration_nano == SECOND &&
			      p->profile_id.len == 16,
		      "time and id");
		CHECK(inner->address == 0x1010 &&
			      !strcmp(text_at(d, d->function_table[inner->lines[0]->function_index]
							 ->name_strindex),
				      "f1"),
		      "the innermost frame is first");
		CHECK(!strcmp(d->attribute_table[inner->attribute_indices[0]]->value->string_value,
			      "native"),
		      "frame type");
		CHECK(other->n_samples == 2 && other->samples[1]->stack_index == 0,
		      "a stack without frames");
	}
	otlp__export_request__free_unpacked(r, NULL);
}

/* What a thread worked for is a link, once for all samples that have it. */
static void test_traces_are_links(void)
{
	static const struct made_trace traces[] = {
		{ .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736", .span_id = "00f067aa0ba902b7" },
		{ .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736", .span_id = "00f067aa0ba902b8" },
		{ .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736", .span_id = "00f067aa0ba902b7" },
		{ .trace_id = NULL },
		{ .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736" }, /* no span */
		{ .trace_id = "no id", .span_id = "00f067aa0ba902b7" },
	};
	static const int32_t links[] = { 1, 2, 1, 0, 0, 0 };
	static const size_t attributes[] = {
		1, 1, 1, 1, 2, 3
	}; /* thread.id, and what is no link */
	struct stacks *s = made_profile();
	size_t n = 0;
	Otlp__ExportRequest *r;
	const Otlp__Dictionary *d;
	const Otlp__Profile *p;

	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
		made_add_traced(s,
				&(struct made_sample){ .pid = 1,
						       .tid = (uint32_t)i + 1,
						       .cpu_ns = 10,
						       .frames = { 1 },
						       .n_frames = 1 },
				&traces[i]);
	r = encode(s, &n);
	stacks_free(s);
	if (!r)
		return;
	d = r->dictionary;
	p = r->n_resource_profiles == 1 ? r->resource_profiles[0]->scope_profiles[0]->profiles[0]
					: NULL;
	CHECK(d->n_link_table == 3, "two links, behind a zero element");
	CHECK(p && p->n_samples == 6, "six samples");
	for (size_t i = 0; p && i < p->n_samples && i < 6; i++)
		CHECK(p->samples[i]->link_index == links[i] &&
			      p->samples[i]->n_attribute_indices == attributes[i],
		      "a link, or attributes");
	if (d->n_link_table == 3) {
		const Otlp__Link *link = d->link_table[2];

		CHECK(link->trace_id.len == 16 && link->trace_id.data[0] == 0x4b &&
			      link->trace_id.data[15] == 0x36 && link->span_id.len == 8 &&
			      link->span_id.data[1] == 0xf0 && link->span_id.data[7] == 0xb8,
		      "the ids");
	}
	otlp__export_request__free_unpacked(r, NULL);
}

/* Requests of one process are its samples' attributes, not processes and series of their own. */
static void test_what_threads_say_is_of_samples(void)
{
	static const char *const routes[] = { "/cart", "/pay", "/cart" };
	struct stacks *s = made_profile();
	struct send_window w = { .start_ns = 1, .end_ns = SECOND, .host = "h", .stacks = s };
	struct series_set set;
	size_t n = 0;
	Otlp__ExportRequest *r;

	for (size_t i = 0; i < 3; i++) {
		const uint32_t labels[] = {
			made_label(s, "pid", NULL, 1),
			made_label(s, "service.name", "shop", 0),
			made_label(s, "shop.region", "north", 0),
			made_label(s, "http.route", routes[i], 0),
		};

		CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 4 }, NULL, labels,
				 (const int64_t[]){ 1, 10 }) == 0,
		      "a sample");
	}
	CHECK(series_make(&w, 0, s->n_samples, &set) == 0 && set.n == 1, "one series");
	if (set.n == 1)
		CHECK(set.all[0].n_labels == 4 && !strcmp(set.all[0].labels[3].name, "shop_region"),
		      "what the program says of itself is its label");
	series_fini(&set);
	r = encode(s, &n);
	stacks_free(s);
	if (!r)
		return;
	CHECK(r->n_resource_profiles == 1, "one process");
	CHECK(!*of_process(r->resource_profiles[0], "http.route") &&
		      !strcmp(of_process(r->resource_profiles[0], "shop.region"), "north"),
	      "what it says of itself");
	CHECK(n == 2 && r->resource_profiles[0]->scope_profiles[0]->profiles[1]->n_samples == 2,
	      "two routes");
	if (n == 2) {
		const Otlp__Sample *sample =
			r->resource_profiles[0]->scope_profiles[0]->profiles[1]->samples[0];
		const Otlp__Attribute *a =
			r->dictionary->attribute_table[sample->attribute_indices[0]];

		CHECK(sample->n_attribute_indices == 1 && sample->values[0] == 20 &&
			      !strcmp(text_at(r->dictionary, a->key_strindex), "http.route") &&
			      !strcmp(a->value->string_value, "/cart"),
		      "the route of a sample");
	}
	otlp__export_request__free_unpacked(r, NULL);
}

/* Of names that are no convention's, one that a process has with two values is its threads', and stays theirs. */
static void test_names_with_two_values_are_of_threads(void)
{
	static const char *const tenants[] = { "north", "south", "north" };
	static const char *const versions[] = { "1", "2", "2" };
	struct attribute_names names = { .n = 0 };
	struct stacks *s = made_profile();
	struct send_window w = {
		.start_ns = 1, .end_ns = SECOND, .host = "h", .stacks = s, .of_threads = &names
	};
	struct series_set set;

	for (size_t i = 0; i < 3; i++) {
		const uint32_t labels[] = {
			made_label(s, "pid", NULL, i == 2 ? 2 : 1),
			made_label(s, "shop.tenant", tenants[i], 0),
			made_label(s, "shop.region", i < 2 ? "west" : "east", 0),
			made_label(s, "service.version", versions[i], 0),
		};

		CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 4 }, NULL, labels,
				 (const int64_t[]){ 1, 10 }) == 0,
		      "a sample");
	}
	CHECK(attribute_is_of_process("shop.tenant", &names), "nothing is known yet");
	CHECK(attribute_names_learn(&names, s) == 0 && names.n == 1, "one name is learnt");
	CHECK(attribute_names_learn(&names, s) == 0 && names.n == 1, "it is learnt once");
	CHECK(!attribute_is_of_process("shop.tenant", &names), "a process has two tenants");
	CHECK(attribute_is_of_process("shop.region", &names), "each process has one region");
	CHECK(attribute_is_of_process("service.version", &names), "conventions say what this is");
	CHECK(!attribute_is_of_process("http.route", &names), "and what that is");
	CHECK(series_make(&w, 0, s->n_samples, &set) == 0 && set.n == 3,
	      "a series of each region and version");
	series_fini(&set);
	CHECK(!series_is_made_by(&w, "shop.tenant") && series_is_made_by(&w, "shop.region"),
	      "tenants make no series");
	stacks_free(s);
	attribute_names_fini(&names);
}

/* So many names are remembered, and no more. */
static void test_names_of_threads_are_bounded(void)
{
	struct attribute_names names = { .n = 0 };
	struct stacks *s = made_profile();
	char key[32];

	for (int i = 0; i < 200; i++) {
		uint32_t labels[2] = { made_label(s, "pid", NULL, 1), 0 };

		(void)snprintf(key, sizeof(key), "own.name-%d", i / 2);
		labels[1] = made_label(s, key, i % 2 ? "b" : "a", 0);
		CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 2 }, NULL, labels,
				 (const int64_t[]){ 1, 10 }) == 0,
		      "a sample");
	}
	CHECK(attribute_names_learn(&names, s) == 0 && names.n == 64, "64 names");
	CHECK(!attribute_is_of_process("own.name-0", &names) &&
		      attribute_is_of_process("own.name-99", &names),
	      "the first ones");
	stacks_free(s);
	attribute_names_fini(&names);
}

static void test_samples_have_their_times(void)
{
	static const uint64_t times[] = { 5000000009, 5000000001, 5000000007, 0, 5000000002 };
	struct stacks *s = made_profile();
	const Otlp__Profile *p;
	Otlp__ExportRequest *r;
	size_t n = 0;

	for (size_t i = 0; i < 5; i++)
		made_add(s, &(struct made_sample){ .time_ns = times[i],
						   .pid = 1,
						   .tid = 1,
						   .cpu_ns = 10 * (int64_t)(i + 1),
						   .frames = { 1 },
						   .n_frames = 1 });
	r = encode(s, &n);
	stacks_free(s);
	if (!r)
		return;
	p = n == 2 ? r->resource_profiles[0]->scope_profiles[0]->profiles[1] : NULL;
	CHECK(p && p->n_samples == 1, "one stack of one thread");
	if (p && p->n_samples == 1) {
		const Otlp__Sample *one = p->samples[0];

		CHECK(one->n_values == 5 && one->n_timestamps_unix_nano == 5,
		      "a value for each time");
		for (size_t i = 0; i < one->n_values && i < 5; i++)
			CHECK(one->values[i] == 10 * (int64_t)(i + 1) &&
				      one->timestamps_unix_nano[i] ==
					      (times[i] ? times[i] : 5 * SECOND),
			      "a sample without a time is seen when the window begins");
		CHECK(one->n_attribute_indices == 1, "the time is no attribute");
	}
	otlp__export_request__free_unpacked(r, NULL);
}

/* Samples that need more memory than one message may take are divided, as those that make too long a message. */
static void test_too_many_samples_are_too_large(void)
{
	enum { TEXT = 60000, SAMPLES = 9000 };
	struct stacks *s = made_profile();
	const struct send_window w = { .id = 1, .end_ns = SECOND, .host = "h", .stacks = s };
	char *text = calloc(1, TEXT + 1), key[16];
	int64_t values[2] = { 1, 1 };
	uint8_t *bytes = NULL;
	size_t size, n;

	CHECK(text != NULL, "memory");
	if (text)
		memset(text, 'x', TEXT);
	for (int i = 0; text && i < SAMPLES; i++) {
		uint32_t label;

		(void)snprintf(key, sizeof(key), "k%d", i);
		label = made_label(s, key, text, 0);
		CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 1 }, NULL, &label,
				 values) == 0,
		      "a sample");
	}
	CHECK(otlp_encode(&(struct otlp_part){ &w, 0, SAMPLES, NULL }, &bytes, &size, &n) == -EFBIG,
	      "all of them");
	CHECK(otlp_encode(&(struct otlp_part){ &w, 0, 3, NULL }, &bytes, &size, &n) == 0 &&
		      size > 3 * TEXT,
	      "some of them");
	free(bytes);
	free(text);
	stacks_free(s);
}

/* A module without build-id has no mapping, so its frames keep their names, even those that are only places. */
static void test_names_that_are_places_need_a_mapping(void)
{
	struct stacks *s = made_profile();
	uint32_t known = made_module(s, "/lib/k.so", "ab"),
		 unknown = made_module(s, "/lib/u.so", "");
	struct stacks_function place = { .name = stacks_text(s, "[x.so]"),
					 .system_name = stacks_text(s, "[x.so]"),
					 .file = s->empty,
					 .placed = true };
	struct stacks_line line = { .function = stacks_function(s, &place) };
	uint32_t ids[2];
	Otlp__ExportRequest *r;
	size_t n;

	ids[0] = stacks_location(
		s, &(struct stacks_location){ .module = known, .address = 0x2000, .n_lines = 1 },
		&line);
	ids[1] = stacks_location(
		s, &(struct stacks_location){ .module = unknown, .address = 0x3000, .n_lines = 1 },
		&line);
	made_add_at(s, &(struct made_sample){ .pid = 1, .cpu_ns = 1 }, ids, 2);
	/* A third module whose location is the same without its path. */
	ids[1] = stacks_location(
		s,
		&(struct stacks_location){ .module = made_module(s, "/lib/v.so", ""),
					   .address = 0x3000,
					   .n_lines = 1 },
		&line);
	made_add_at(s, &(struct made_sample){ .pid = 1, .cpu_ns = 1 }, ids, 2);
	r = encode(s, &n);
	stacks_free(s);
	if (!r)
		return;
	for (size_t i = 1; i < r->dictionary->n_location_table; i++) {
		const Otlp__Location *l = r->dictionary->location_table[i];

		CHECK(l->mapping_index ? l->address == 0x2000 && !l->n_lines
				       : l->address == 0x3000 && l->n_lines == 1,
		      "a mapping or a name");
	}
	CHECK(r->n_resource_profiles == 1 &&
		      r->resource_profiles[0]->scope_profiles[0]->profiles[0]->n_samples == 1 &&
		      r->resource_profiles[0]
				      ->scope_profiles[0]
				      ->profiles[0]
				      ->samples[0]
				      ->values[0] == 2,
	      "two stacks that are one here");
	CHECK(r->dictionary->n_location_table == 3 && r->dictionary->n_mapping_table == 2,
	      "both frames");
	otlp__export_request__free_unpacked(r, NULL);
}

static void test_services_have_names(void)
{
	static const struct {
		const char *key, *text, *service;
	} cases[] = {
		{ "exe", "/usr/bin/nginx", "nginx" },	  { "unit", "web@1.service", "web@1" },
		{ "unit", "a.scope", "unknown_service" }, { "service.name", "shop", "shop" },
		{ "user", "root", "unknown_service" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct stacks *s = made_profile();
		uint32_t label = made_label(s, cases[i].key, cases[i].text, 0);
		int64_t values[2] = { 1, 1 };
		char out[256];

		CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 1 }, NULL, &label,
				 values) == 0,
		      "a sample");
		CHECK(!strcmp(attribute_service(s, &s->samples[0], out), cases[i].service),
		      cases[i].text);
		stacks_free(s);
	}
}

static void test_frames_have_types(void)
{
	static const struct {
		const char *path, *program, *type;
		bool kernel;
	} cases[] = {
		{ "[kernel]", "java", "kernel", true },
		{ "[jit]", "java", "jvm", false },
		{ "[jit]", "cat", "native", false },
		{ "[cpython]", "python3", "cpython", false },
		{ "[v8]", "node", "v8js", false },
		{ "[ruby]", "ruby", "ruby", false },
		{ "[vdso]", "java", "native", false },
		{ "/lib/libjvm.so", "java", "native", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct stacks_module m = { .path = cases[i].path, .kernel = cases[i].kernel };

		CHECK(!strcmp(attribute_frame_type(&m, cases[i].program), cases[i].type),
		      cases[i].path);
	}
}

/* ---- series ------------------------------------------------------------------------------ */

static bool has_no_label(const void *ctx, const char *key)
{
	(void)ctx;
	(void)key;
	return false;
}

/* Write a series as pprof, and read it. NULL: that fails with *err. */
static struct stacks *pack(const struct send_window *w, const struct series *series,
			   const struct series_form *form, int *err)
{
	char path[] = "/tmp/offwind-send-XXXXXX";
	struct stacks *s = NULL;
	uint8_t *bytes = NULL;
	size_t size = 0;
	int fd;

	*err = series_pprof(w, series, form, &bytes, &size);
	if (*err) {
		CHECK(!bytes && !size, "nothing is given that the caller could free");
		return NULL;
	}
	fd = mkstemp(path);
	CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && !lseek(fd, 0, SEEK_SET),
	      "a file");
	(void)unlink(path);
	free(bytes);
	if (stacks_new(&s) || stacks_load_fd(s, fd, "series", false))
		CHECK(false, "is pprof");
	(void)close(fd);
	return s;
}

static void test_services_are_series(void)
{
	struct stacks *s = made_profile(), *read;
	struct send_window w = {
		.id = 1, .start_ns = 5 * SECOND, .end_ns = 7 * SECOND, .host = "h", .stacks = s
	};
	struct series_form form = { .has_label = has_no_label, .depth = 2, .bytes_max = 1 << 20 };
	struct series_set set;
	int err;

	made_add(s, &(struct made_sample){ .pid = 1,
					   .tid = 1,
					   .comm = "a",
					   .cpu_ns = 10,
					   .frames = { 1, 2, 3 },
					   .n_frames = 3 });
	made_add(s, &(struct made_sample){ .pid = 2,
					   .tid = 2,
					   .comm = "a",
					   .cpu_ns = 30,
					   .frames = { 4 },
					   .n_frames = 1 });
	made_add(s, &(struct made_sample){ .pid = 3,
					   .tid = 3,
					   .comm = "b",
					   .cpu_ns = 20,
					   .frames = { 5 },
					   .n_frames = 1 });
	s->default_type = 1;
	CHECK(series_make(&w, 0, s->n_samples, &set) == 0 && set.n == 2, "two programs");
	if (set.n == 2) {
		const struct series *a = &set.all[0];

		CHECK(a->n == 2 && a->n_labels == 3, "two samples, three labels");
		CHECK(!strcmp(a->labels[0].name, "__name__") &&
			      !strcmp(a->labels[1].name, "host") &&
			      !strcmp(a->labels[2].name, "service_name") &&
			      !strcmp(a->labels[2].value, "a"),
		      "sorted labels");
		read = pack(&w, a, &form, &err);
		if (read) {
			CHECK(read->n_samples == 2 && read->n_modules == 2 && !read->n_labels,
			      "samples without labels");
			CHECK(read->samples[0].n_locations == 2 &&
				      read->locations[read->location_ids[0]].address == 0x1020,
			      "the innermost frame is left out");
			CHECK(read->period == 20 && !strcmp(read->period_type.type, "cpu") &&
				      read->time_ns == 5 * (int64_t)SECOND &&
				      read->duration_ns == 2 * (int64_t)SECOND,
			      "period and time");
			stacks_free(read);
		}
		form = (struct series_form){ .bytes_max = 1 << 20 };
		read = pack(&w, &set.all[1], &form, &err);
		if (read)
			CHECK(read->n_samples == 1 && stacks_label(read, &read->samples[0], "pid"),
			      "samples with labels");
		stacks_free(read);
		form.bytes_max = 10;
		CHECK(!pack(&w, a, &form, &err) && err == -EFBIG, "is too large");
	}
	series_fini(&set);
	stacks_free(s);
}

/* Of a label that programs choose, which can be longer than a series has room for. */
static void test_long_services_are_cut_between_characters(void)
{
	struct stacks *s = made_profile();
	struct send_window w = { .id = 1, .host = "h", .stacks = s };
	int64_t values[2] = { 1, 1 };
	struct series_set set;
	char name[301];
	uint32_t label;

	(void)memset(name, 'a', sizeof(name));
	memcpy(name + 254, "ü", 2);
	name[300] = '\0';
	label = made_label(s, "service.name", name, 0);
	CHECK(stacks_add(s, &(struct stacks_sample){ .n_labels = 1 }, NULL, &label, values) == 0,
	      "a sample");
	CHECK(series_make(&w, 0, s->n_samples, &set) == 0 && set.n == 1, "a series");
	CHECK(set.n == 1 && strlen(set.all[0].service) == 254, "without half a character");
	series_fini(&set);
	stacks_free(s);
}

/* ---- parts ------------------------------------------------------------------------------- */

struct receiver {
	size_t most, n_calls, n_taken, fail_at, refuse_at;
};

static int receive(void *ctx, const struct send_window *w, size_t from, size_t to,
		   struct send_report *report)
{
	struct receiver *r = ctx;

	(void)w;
	if (to - from > r->most)
		return PART_TOO_LARGE;
	r->n_calls++;
	if (r->n_calls == r->fail_at)
		return SEND_AGAIN;
	if (r->n_calls == r->refuse_at)
		return SEND_REFUSED;
	r->n_taken += to - from;
	report->n_bytes = 1;
	return SEND_DONE;
}

static void test_parts_are_sent_once(void)
{
	struct stacks *s = made_profile();
	struct receiver r = { .most = 3, .fail_at = 3 }, none = { .most = 0 };
	struct parts p = { .window = 0 };
	struct send_window w = { .id = 1, .stacks = s };
	struct send_report report = { .text = "" };

	for (uint32_t i = 1; i <= 10; i++)
		made_add(s, &(struct made_sample){ .pid = i, .cpu_ns = 1 });
	CHECK(parts_send(&p, &w, SIZE_MAX, receive, &r, &report) == SEND_AGAIN && r.n_taken == 6,
	      "stops at the part that failed");
	CHECK(parts_send(&p, &w, SIZE_MAX, receive, &r, &report) == SEND_DONE && r.n_taken == 10,
	      "goes on there");
	CHECK(report.n_bytes == 4 && !report.dropped[SENDING_DROP_REFUSED],
	      "the report is of all parts");
	r = (struct receiver){ .most = 5, .refuse_at = 2 };
	w.id = 2;
	CHECK(parts_send(&p, &w, SIZE_MAX, receive, &r, &report) == SEND_DONE &&
		      report.dropped[SENDING_DROP_REFUSED] == 5,
	      "a part is refused");
	w.id = 3;
	CHECK(parts_send(&p, &w, SIZE_MAX, receive, &none, &report) == SEND_DONE &&
		      report.dropped[SENDING_DROP_LARGE] == 10,
	      "nothing fits");
	stacks_free(s);
}

/* ---- how far a target got ---------------------------------------------------------------- */

static void test_a_place_survives(void)
{
	const struct history_place begin = { .id = 5, .end_ns = 50 },
				   later = { .id = 9, .end_ns = 90 };
	struct history_place place = { .id = 0 };
	uint64_t busy = 0;
	char path[96];
	int fd = -1, slot;
	struct stat st;

	CHECK(sent_open(db_name, &fd) == 0, "is made");
	(void)snprintf(path, sizeof(path), "%s-sent", db_name);
	CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600, "others cannot read it");
	slot = sent_find(fd, "otlp", "http://a", &begin, &busy, &place);
	CHECK(slot >= 0 && place.id == 5 && place.end_ns == 50, "a new target begins there");
	CHECK(sent_put(fd, slot, &later) == 0, "is written");
	(void)close(fd);
	CHECK(sent_open(db_name, &fd) == 0, "is opened");
	busy = 0;
	CHECK(sent_find(fd, "otlp", "http://b", &begin, &busy, &place) != slot && place.id == 5,
	      "another URL is another target");
	CHECK(sent_find(fd, "parca", "http://a", &begin, &busy, &place) != slot && place.id == 5,
	      "another kind, too");
	CHECK(sent_find(fd, "otlp", "http://a", &begin, &busy, &place) == slot && place.id == 9 &&
		      place.end_ns == 90,
	      "is there");
	for (int i = 0; i < 100; i++) {
		char url[32];

		busy = 0;
		(void)snprintf(url, sizeof(url), "http://%d", i);
		CHECK(sent_find(fd, "otlp", url, &begin, &busy, &place) >= 0,
		      "old targets make room");
	}
	CHECK(sent_find(fd, "otlp", "http://a", &begin, &busy, &place) == slot,
	      "those with the latest windows last");
	CHECK(pwrite(fd, "damage", 6, 0) == 6, "damage");
	(void)close(fd);
	CHECK(sent_open(db_name, &fd) == 0, "a damaged file is replaced");
	CHECK(sent_find(fd, "otlp", "http://a", &begin, &busy, &place) >= 0 && place.id == 5,
	      "and has nothing");
	(void)close(fd);
	(void)unlink(path);
}

static void add_window(struct history *h, uint64_t start_ns, uint64_t end_ns)
{
	struct stacks *s = made_profile();
	const struct history_window w = { .start_ns = start_ns, .end_ns = end_ns };

	made_add(s, &(struct made_sample){ .time_ns = start_ns,
					   .pid = 1,
					   .cpu_ns = 1,
					   .frames = { 1 },
					   .n_frames = 1 });
	CHECK(history_add(h, s, &w) == 0, "is added");
	stacks_free(s);
}

/* Take all windows that come after a place. Return how many, and the place behind them. */
static size_t take_all(struct history *h, struct history_place *place)
{
	struct history_entry w;
	size_t n = 0;

	while (n < 100 && !history_next(h, place, &w)) {
		history_take(place, &w);
		n++;
	}
	return n;
}

static void test_each_window_comes_once(void)
{
	struct history_place place = { .id = 0 };
	struct history *h = NULL;
	struct history_query q = { .window = 2, .labels = true };
	struct history_found found;
	struct stacks *s;

	CHECK(history_open(db_name, true, &h) == 0, "opens");
	if (!h)
		return;
	CHECK(history_end_place(h, &place) == 0 && !place.id && !place.end_ns, "there is none");
	for (uint64_t i = 1; i <= 5; i++)
		add_window(h, 100 * SECOND + i * SECOND, 101 * SECOND + i * SECOND);
	CHECK(take_all(h, &place) == 5 && take_all(h, &place) == 0, "all, and none twice");
	/* The clock is set back by three seconds. */
	for (uint64_t i = 3; i <= 9; i++)
		add_window(h, 100 * SECOND + i * SECOND - 1, 101 * SECOND + i * SECOND - 1);
	CHECK(take_all(h, &place) == 7 && take_all(h, &place) == 0,
	      "those with an earlier time, too");
	q.from_ns = 102 * SECOND;
	q.to_ns = 103 * SECOND;
	if (!stacks_new(&s)) {
		CHECK(history_read(h, &q, s, &found) == 0 && found.n_windows == 1 &&
			      found.n_samples == 1,
		      "one window is read");
		stacks_free(s);
	}
	history_close(h);
}

#ifndef WITH_ASAN

/* A kind of targets that takes each window. */
static int take_open(const struct target *target, void **out)
{
	*out = (void *)(uintptr_t)target;
	return 0;
}

static enum send_outcome take_window(void *opened, const struct send_window *w,
				     struct send_report *report)
{
	(void)opened;
	(void)w;
	(void)report;
	return SEND_DONE;
}

static void take_close(void *opened)
{
	(void)opened;
}

static const struct target_kind taking = {
	.name = "taking", .open = take_open, .send = take_window, .close = take_close
};

/* Wait until a sender's process has sent some windows. False: it has ended, or does not come to it. */
static bool sends(const struct sender *s, pid_t pid, uint64_t n_windows)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	for (int i = 0; i < 30000; i++) {
		siginfo_t ended = { .si_pid = 0 };

		if (atomic_load(&s->sending->targets[0].windows) >= n_windows)
			return true;
		if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) || ended.si_pid)
			return false;
		(void)nanosleep(&pause, NULL);
	}
	return false;
}

/* What cannot be read ever does not keep back what comes after it. */
static void test_a_window_whose_labels_are_damaged_is_given_up(void)
{
	const struct history_place first = { .id = 0 };
	struct history_place place;
	struct sender s = { .n_targets = 1, .history = db_name };
	struct history *h = NULL;
	uint64_t busy = 0;
	char path[128];
	int fd = -1;
	pid_t pid;

	db_remove();
	s.targets[0] = (struct target){ .name = "taking",
					.kind = &taking,
					.url = strdup("http://127.0.0.1:9") };
	CHECK(history_open(db_name, true, &h) == 0 && sender_prepare(&s) == 0 &&
		      sent_open(db_name, &fd) == 0 &&
		      sent_find(fd, "taking", s.targets[0].url, &first, &busy, &place) >= 0,
	      "opens");
	if (!h || fd < 0)
		return;
	(void)close(fd);
	add_window(h, 100 * SECOND, 101 * SECOND);
	CHECK(db_sql("UPDATE labels SET labels = '{'") == SQLITE_OK, "damage");
	for (uint64_t i = 1; i < 3; i++) {
		struct stacks *stacks = made_profile();
		const struct history_window w = { .start_ns = (100 + i) * SECOND,
						  .end_ns = (101 + i) * SECOND };

		made_add(stacks, &(struct made_sample){ .time_ns = w.start_ns,
							.pid = 1,
							.comm = "whole",
							.cpu_ns = 1,
							.frames = { 1 },
							.n_frames = 1 });
		CHECK(history_add(h, stacks, &w) == 0, "is added");
		stacks_free(stacks);
	}
	history_close(h);
	pid = fork();
	if (!pid)
		_exit(sender_run(&s) ? 1 : 0);
	CHECK(pid > 0 && sends(&s, pid, 2), "the windows behind it are sent");
	CHECK(atomic_load(&s.sending->targets[0].dropped[SENDING_DROP_DAMAGED]) == 1 &&
		      atomic_load(&s.sending->targets[0].windows) == 2,
	      "and it is counted");
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	sender_fini(&s);
	(void)snprintf(path, sizeof(path), "%s-sent", db_name);
	(void)unlink(path);
}

#endif

static void test_paths_are_joined(void)
{
	static const char *const cases[][2] = {
		{ "http://a:1", "http://a:1/v1/x" },
		{ "http://a:1/", "http://a:1/v1/x" },
		{ "http://a:1/v1/x", "http://a:1/v1/x" },
		{ "https://a/b", "https://a/b/v1/x" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *url = post_url(cases[i][0], "/v1/x");

		CHECK(url && !strcmp(url, cases[i][1]), cases[i][0]);
		free(url);
	}
}

static void check_ports(const struct target *targets, size_t n, const uint16_t *expected,
			size_t n_expected, const char *what)
{
	struct ports found;

	CHECK(ports_find(targets, n, &found) == 0, what);
	CHECK(found.n == n_expected && !memcmp(found.all, expected, n_expected * sizeof(*expected)),
	      what);
}

static void test_ports_are_those_of_urls_and_proxies(void)
{
	static char secure[] = "https://collector.example/v1", local[] = "http://u:p@[::1]:4318",
		    shards[] = "http://a:8123,https://b:8443/db,http://c,https://d";
	const struct target targets[] = { { .url = secure }, { .url = local }, { .url = shards } };
	const uint16_t of_urls[] = { 53, 443, 4318, 8123, 8443, 80 };
	/* By CURLOPT_PROXY(3): what is not said is http, and port 1080, or 443 for https. */
	const uint16_t of_proxies[] = { 53, 443, 3128, 1080, 8080, 9050 };
	struct ports found;
	struct target files = { .url = secure, .debuginfo = true };

	if (ports_find(targets, 0, &found) == -ENOENT)
		return; /* libcurl is not installed */
	(void)unsetenv("http_proxy");
	(void)unsetenv("https_proxy");
	(void)unsetenv("HTTPS_PROXY");
	(void)unsetenv("all_proxy");
	(void)unsetenv("ALL_PROXY");
	check_ports(targets, 3, of_urls, 6, "ports of URLs");
	(void)setenv("http_proxy", "http://user@proxy.example:3128/", 1);
	(void)setenv("https_proxy", "proxy.example", 1);
	(void)setenv("HTTPS_PROXY", "https://proxy.example", 1);
	(void)setenv("all_proxy", "[::1]:8080", 1);
	(void)setenv("ALL_PROXY", "socks5h://127.0.0.1:9050", 1);
	check_ports(targets, 1, of_proxies, 6, "ports of proxies");
	CHECK(ports_find(&files, 1, &found) == 0 && found.any, "a receiver says where files go");
}

/* ---- hashes of files ----------------------------------------------------------------------- */

/* The expected hashes are those of sha256sum over head, tail and length. */
static void test_files_are_hashed_by_their_ends(void)
{
	static const uint8_t build_id[] = "GNU\0\x12\x34\x56\x78";
	char path[] = "/tmp/offwind-hash-XXXXXX", hash[HTLHASH_TEXT] = "";
	struct stacks_module m = { .path = path, .build_id = "12345678" };
	struct htlhashes *h = NULL;
	uint8_t bytes[10000];
	int fd = mkstemp(path);

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i % 251);
	CHECK(fd >= 0 && pwrite(fd, "abc", 3, 0) == 3, "a short file");
	CHECK(htlhash_file(fd, 3, hash) == 0, "is hashed");
	CHECK(!strcmp(hash, "a7e79e8a85da69bad5c3fea209342ac9"), "its ends are the same bytes");
	CHECK(htlhash_file(fd, 4, hash) == -ESTALE, "a file that has become shorter has none");
	CHECK(pwrite(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes), "a longer file");
	CHECK(htlhash_file(fd, sizeof(bytes), hash) == 0 &&
		      !strcmp(hash, "29e3194e821b97b5565d43a5156ad97a"),
	      "4,096 bytes of each end");
	CHECK(htlhashes_new(&h) == 0, "there is room");
	CHECK(htlhash_of(h, &m) == NULL, "what is no ELF file with the build-id has none");
	CHECK(pwrite(fd, "\177ELF", 4, 0) == 4 &&
		      pwrite(fd, build_id, sizeof(build_id) - 1, 100) == 8,
	      "an ELF file, as far as it is looked at");
	CHECK(htlhash_of(h, &m) == NULL, "the file is not read again at once");
	m.build_id = "123456789a";
	CHECK(htlhash_of(h, &m) == NULL, "another build-id is another file");
	htlhashes_free(h);
	CHECK(htlhashes_new(&h) == 0, "there is room again");
	m.build_id = "12345678";
	CHECK(htlhash_file(fd, sizeof(bytes), hash) == 0 && htlhash_of(h, &m) &&
		      !strcmp(htlhash_of(h, &m), hash),
	      "the file of a module is hashed");
	m.kernel = true;
	CHECK(htlhash_of(h, &m) == NULL, "the kernel has no file");
	htlhashes_free(h);
	(void)close(fd);
	(void)unlink(path);
}

int main(void)
{
	db_make_name();
	test_processes_are_resources_and_types_are_profiles();
	test_traces_are_links();
	test_what_threads_say_is_of_samples();
	test_names_with_two_values_are_of_threads();
	test_names_of_threads_are_bounded();
	test_samples_have_their_times();
	test_too_many_samples_are_too_large();
	test_names_that_are_places_need_a_mapping();
	test_services_have_names();
	test_frames_have_types();
	test_services_are_series();
	test_long_services_are_cut_between_characters();
	test_parts_are_sent_once();
	test_a_place_survives();
	test_each_window_comes_once();
#ifndef WITH_ASAN /* its memory would be within the limit of the sender's */
	test_a_window_whose_labels_are_damaged_is_given_up();
#endif
	test_paths_are_joined();
	test_ports_are_those_of_urls_and_proxies();
	test_files_are_hashed_by_their_ends();
	db_remove();
	return check_done();
}

/*
 * tests/unit/test_context.c: tests what becomes of the records in which threads say what they work for
 * (OpenTelemetry enhancement proposal 4947): what is copied of them, and the labels that follow.
 */
#include "agent/runtime/context.h"

#include "agent/limits.h"
#include "agent/runtime/plan_execute.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the memory of a thread ------------------------------------------------------------------ */

#define BASE	 0x7f0000000000u
#define THREAD	 (BASE + 0x1000) /* the thread pointer */
#define DTV	 (BASE + 0x200)
#define BLOCK	 (BASE + 0x600) /* of module 3 */
#define MEM_SIZE 0x3000u

static struct {
	uint8_t bytes[MEM_SIZE];
} mem;

static int read_mem(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	if (addr < BASE || size > MEM_SIZE || addr - BASE > MEM_SIZE - size)
		return -EFAULT;
	memcpy(out, mem.bytes + (addr - BASE), size);
	return 0;
}

static void put(uint64_t addr, const void *bytes, size_t size)
{
	memcpy(mem.bytes + (addr - BASE), bytes, size);
}

static void put_word(uint64_t addr, uint64_t word)
{
	put(addr, &word, 8);
}

/* Write a record with this size of its attributes; it has the bytes that are there. */
static void put_record(uint64_t addr, uint8_t valid, const char *attributes, size_t there,
		       uint16_t size)
{
	uint8_t head[28];

	for (size_t i = 0; i < 24; i++)
		head[i] = (uint8_t)(0xa0 + i);
	head[24] = valid;
	head[25] = 1;
	memcpy(head + 26, &size, 2);
	put(addr, head, sizeof(head));
	if (there)
		put(addr + 28, attributes, there);
}

/* A payload: ProcessContext with the key map "route", "user.id", "no key!", "pid". */
static const char payload[] = "\x12\x49\x0a\x1d"
			      "threadlocal.attribute_key_map"
			      "\x12\x28\x2a\x26"
			      "\x0a\x07\x0a\x05route"
			      "\x0a\x09\x0a\x07user.id"
			      "\x0a\x09\x0a\x07no key!"
			      "\x0a\x05\x0a\x03pid"
			      "\x12\x26\x0a\x1a"
			      "threadlocal.schema_version"
			      "\x12\x08\x0a\x06tls_v1";

static struct plan_execution model;

/* Run a plan on the memory, and decode what it copied. Return the labels as "key=value key=value". */
static enum context_state decode(const struct plan *plan, const char *others, char out[1024])
{
	struct event_sample sample = { .n_slices = 0 };
	static struct otel_context_keys keys;
	struct labels labels = { .n = 0 };
	const char *text = labels.text;
	struct label_item item;
	struct context_input in = {
		.sample = &sample, .payload = payload, .keys = &keys, .others = others
	};
	enum context_state state;
	size_t n = 0;

	memset(&model, 0, sizeof(model));
	model.r[PLAN_THREAD] = THREAD;
	CHECK(plan_execute(&model, plan, read_mem, NULL) == PLAN_DONE, "the plan comes to its end");
	sample.slices = model.slices;
	sample.n_slices = model.n;
	otel_context_threads(payload, sizeof(payload) - 1, &keys);
	state = context_decode(&in, &labels);
	*out = '\0';
	while (labels_next(&text, &item))
		n += (size_t)snprintf(out + n, 1024 - n, "%s%s=%s", n ? " " : "", item.key,
				      item.value);
	return state;
}

/* Do the same for a variable at -16 from the thread pointer. */
static enum context_state decode_static(char out[1024])
{
	const struct context_place place = { .off = (uint64_t)-16 };
	struct plan part, plan;

	context_otel_part(&place, &part);
	CHECK(!context_join(&part, NULL, &plan), "joined");
	return decode(&plan, NULL, out);
}

#define IDS "trace_id=a0a1a2a3a4a5a6a7a8a9aaabacadaeaf span_id=b0b1b2b3b4b5b6b7"

static char got[1024];

/* ---- tests ------------------------------------------------------------------------------------- */

static void test_the_names_of_attributes_are_in_the_process_context(void)
{
	struct otel_context_keys keys;
	char other[sizeof(payload)];

	otel_context_threads(payload, sizeof(payload) - 1, &keys);
	CHECK(keys.n == 4, "four");
	CHECK(keys.keys[0].size == 5 && !memcmp(payload + keys.keys[0].at, "route", 5), "route");
	CHECK(keys.keys[1].size == 7 && !memcmp(payload + keys.keys[1].at, "user.id", 7),
	      "user.id");
	CHECK(!keys.keys[2].size, "no name of a label");
	CHECK(keys.published, "published");
	memcpy(other, payload, sizeof(payload));
	other[sizeof(payload) - 2] = '2';
	otel_context_threads(other, sizeof(payload) - 1, &keys);
	CHECK(!keys.published && keys.n == 4, "a schema that is not known");
	for (size_t n = 0; n < sizeof(payload) - 1; n++) {
		otel_context_threads(payload, n, &keys);
		CHECK(!keys.published && keys.n <= 4, "cut short");
	}
}

static void test_a_record_gives_labels_wherever_it_is(void)
{
	static const char attributes[] = "\x00\x03one\x01\x05"
					 "alice\x00\x03two";

	for (uint64_t at = 0; at < 16; at += 2) {
		memset(&mem, 0xee, sizeof(mem));
		put_word(THREAD - 16, BASE + 0x800 + at);
		put_record(BASE + 0x800 + at, 1, attributes, sizeof(attributes) - 1,
			   sizeof(attributes) - 1);
		CHECK(decode_static(got) == CONTEXT_LABELS, "labels");
		CHECK(!strcmp(got, IDS " user.id=alice route=two"), got);
	}
}

static void test_a_record_can_end_where_memory_ends(void)
{
	static const char attributes[] = "\x00\x05"
					 "12345"; /* an odd number of bytes */

	for (size_t n = 0; n <= sizeof(attributes) - 1; n++) {
		uint64_t at = (BASE + MEM_SIZE - 28 - n) & ~UINT64_C(1);
		bool whole = n == sizeof(attributes) - 1;

		memset(&mem, 0xee, sizeof(mem));
		put_word(THREAD - 16, at);
		put_record(at, 1, attributes, n, (uint16_t)n);
		CHECK(decode_static(got) == CONTEXT_LABELS, "labels");
		CHECK(!strcmp(got, whole ? IDS " route=12345" : IDS), got);
		/* It says that it is longer. */
		put_record(at, 1, attributes, n, 600);
		CHECK(decode_static(got) == CONTEXT_MISSING, "more than there is");
	}
}

static void test_what_is_no_record_gives_none(void)
{
	memset(&mem, 0, sizeof(mem));
	CHECK(decode_static(got) == CONTEXT_NONE && !*got, "NULL");
	put_word(THREAD - 16, BASE + 0x800);
	put_record(BASE + 0x800, 0, NULL, 0, 0);
	CHECK(decode_static(got) == CONTEXT_CHANGING && !*got, "being written");
	put_record(BASE + 0x800, 2, NULL, 0, 0);
	CHECK(decode_static(got) == CONTEXT_CHANGING && !*got, "another value is invalid, too");
	put_word(THREAD - 16, 0x1234);
	CHECK(decode_static(got) == CONTEXT_MISSING && !*got, "a wild pointer");
	put_word(THREAD - 16, UINT64_MAX - 3);
	CHECK(decode_static(got) == CONTEXT_MISSING && !*got, "another");
	put_word(THREAD - 16, BASE + 0x800);
	put_record(BASE + 0x800, 1, NULL, 0, 0);
	memset(mem.bytes + 0x800, 0, 24);
	CHECK(decode_static(got) == CONTEXT_LABELS && !*got, "no trace is active");
	CHECK(context_says(CONTEXT_CHANGING) && context_says(CONTEXT_MISSING) &&
		      !context_says(CONTEXT_NONE) && !context_says(CONTEXT_LABELS),
	      "what is told");
}

static void test_attributes_are_bounded_and_forge_nothing(void)
{
	char many[2000];
	const uint64_t bytes = limits.thread_label_bytes, labels = limits.thread_labels;

	memset(&mem, 0, sizeof(mem));
	put_word(THREAD - 16, BASE + 0x800);
	/* Keys that no name has: 2 is no name, 3 is one of offwind's own, 4 is none. */
	put_record(BASE + 0x800, 1, "\x02\x01x\x03\x01x\x04\x01x\x00\x01y", 12, 12);
	CHECK(decode_static(got) == CONTEXT_LABELS && !strcmp(got, IDS " route=y"), got);
	/* One that is not whole. */
	put_record(BASE + 0x800, 1, "\x00\x01y\x01\x09x", 6, 6);
	CHECK(decode_static(got) == CONTEXT_LABELS && !strcmp(got, IDS " route=y"), got);
	put_record(BASE + 0x800, 1, "\x00\x00\x01\x04\x1b[1m", 8, 8);
	CHECK(decode_static(got) == CONTEXT_LABELS && !strchr(got, '\x1b'), got);
	memset(many, 0, sizeof(many));
	for (size_t i = 0; i + 4 <= sizeof(many); i += 4)
		memcpy(many + i, "\x00\x02zz", 4);
	memcpy(many + 100, "\x01\x02vv", 4);
	put_record(BASE + 0x800, 1, many, sizeof(many), sizeof(many));
	CHECK(decode_static(got) == CONTEXT_LABELS && strstr(got, "user.id=vv"), got);
	limits.thread_label_bytes = 100;
	CHECK(decode_static(got) == CONTEXT_LABELS && !strstr(got, "user.id=vv"), got);
	CHECK(limits_counts.thread_label_bytes > 0, "counted");
	limits.thread_label_bytes = 0;
	CHECK(decode_static(got) == CONTEXT_LABELS && !strcmp(got, IDS), got);
	limits.thread_label_bytes = bytes;
	limits.thread_labels = 1;
	put_record(BASE + 0x800, 1, "\x00\x01y\x01\x01x", 6, 6);
	CHECK(decode_static(got) == CONTEXT_LABELS && !strcmp(got, IDS " route=y"), got);
	limits.thread_labels = labels;
}

static void test_labels_of_the_process_stay(void)
{
	const struct context_place place = { .off = (uint64_t)-16 };
	struct labels others = { .n = 0 };
	struct plan part, plan;

	memset(&mem, 0, sizeof(mem));
	put_word(THREAD - 16, BASE + 0x800);
	put_record(BASE + 0x800, 1, "\x00\x01y\x01\x01x", 6, 6);
	(void)labels_add(&others, NULL, "user.id", "of the process");
	context_otel_part(&place, &part);
	(void)context_join(&part, NULL, &plan);
	CHECK(decode(&plan, others.text, got) == CONTEXT_LABELS && !strcmp(got, IDS " route=y"),
	      got);
}

/* Thread-local storage of a module: dtv[-1] has how many entries there are. */
static void test_a_thread_may_not_have_used_a_module(void)
{
	const struct context_place place = { .module = 3, .off = 0x28 };
	struct plan part, plan;

	context_otel_part(&place, &part);
	CHECK(!context_join(&part, NULL, &plan), "joined");
	memset(&mem, 0, sizeof(mem));
	put_word(THREAD + 8, DTV);
	put_word(DTV - 16, 3);
	put_word(DTV + 48, BLOCK);
	put_word(BLOCK + 0x28, BASE + 0x800);
	put_record(BASE + 0x800, 1, NULL, 0, 0);
	CHECK(decode(&plan, NULL, got) == CONTEXT_LABELS && !strcmp(got, IDS), got);
	put_word(DTV + 48, UINT64_MAX);
	CHECK(decode(&plan, NULL, got) == CONTEXT_NONE && !*got, "not allocated");
	put_word(DTV + 48, BLOCK);
	put_word(DTV - 16, 2);
	CHECK(decode(&plan, NULL, got) == CONTEXT_NONE && !*got, "what is behind the vector");
}

/* What else a plan copies is found where it was, and begins with registers that are 0. */
static void test_a_part_is_put_before_a_plan(void)
{
	static const struct plan other = {
		.n = 3,
		.ops = { { .what = PLAN_ADD,
			   .src = PLAN_R5,
			   .other = PLAN_R3,
			   .dst = PLAN_R4,
			   .when = PLAN_NONZERO,
			   .reg = PLAN_R4,
			   .jump = 2 },
			 { .what = PLAN_COPY, .src = PLAN_THREAD, .size = 8, .otherwise = 2 },
			 { .what = PLAN_STOP } }
	};
	const struct context_place place = { .off = (uint64_t)-16 };
	struct event_sample sample = { .n_slices = 0 };
	struct plan part, plan, whole = { .n = PLAN_OPS_MAX };

	context_otel_part(&place, &part);
	CHECK(!context_join(&part, &other, &plan) && plan.n == part.n + 3, "joined");
	CHECK(context_join(&part, &whole, &plan) == -E2BIG, "too many");
	CHECK(!context_join(&part, &other, &plan), "joined");
	for (int record = 0; record < 2; record++) {
		memset(&mem, 0, sizeof(mem));
		put_word(THREAD - 16, record ? BASE + 0x800 : 0);
		put_record(BASE + 0x800, 1, "\x00\x01y", 3, 3);
		CHECK(decode(&plan, NULL, got) == (record ? CONTEXT_LABELS : CONTEXT_NONE), got);
		sample.slices = model.slices;
		sample.n_slices = model.n;
		CHECK(context_slices(&sample) == sample.n_slices - 1 &&
			      model.slices[model.n - 1].addr == THREAD,
		      "the plan's slice is behind those of the part");
	}
	sample.n_slices = 0;
	CHECK(!context_slices(&sample), "no slices");
	CHECK(!context_join(NULL, &other, &plan) && !memcmp(&plan, &other, sizeof(plan)),
	      "a plan alone");
}

/* ---- Go ---------------------------------------------------------------------------------------- */

#define G      (BASE + 0x100)
#define M      (BASE + 0x1200)
#define LABELS (BASE + 0x1400) /* what g.labels points to */
#define MAP    (BASE + 0x1500)
#define BUCKET (BASE + 0x1600)
#define TEXTS  (BASE + 0x2800)

static uint64_t text_at; /* where the next text is */

static void put_text(uint64_t at, const char *text)
{
	size_t n = strlen(text);

	put_word(at, n ? text_at : 0);
	put_word(at + 8, n);
	if (n)
		put(text_at, text, n);
	text_at += n; /* one after another, as Go's own are */
}

static void begin_go(uint64_t labels)
{
	memset(&mem, 0, sizeof(mem));
	text_at = TEXTS + 3;
	put_word(THREAD - 8, G);
	put_word(G + 48, M);
	put_word(M + 192, G);
	put_word(G + labels, LABELS);
}

static enum context_state decode_go(unsigned int minor)
{
	struct plan part, plan;

	CHECK(!context_go_part(1, minor, (uint64_t)-8, &part) && !context_join(&part, NULL, &plan),
	      "a plan");
	return decode(&plan, NULL, got);
}

/* Return how the plan ends. */
static enum plan_end decode_steps(unsigned int minor)
{
	struct plan part, plan;

	(void)context_go_part(1, minor, (uint64_t)-8, &part);
	(void)context_join(&part, NULL, &plan);
	memset(&model, 0, sizeof(model));
	model.r[PLAN_THREAD] = THREAD;
	return plan_execute(&model, &plan, read_mem, NULL);
}

static void test_versions_of_go(void)
{
	struct plan part;

	CHECK(context_go_part(1, 16, (uint64_t)-8, &part) == -ENOTSUP, "an old one");
	CHECK(context_go_part(1, 25, (uint64_t)-8, &part) == -ENOTSUP, "a new one");
	CHECK(context_go_part(2, 20, (uint64_t)-8, &part) == -ENOTSUP, "another one");
	for (unsigned int minor = 17; minor <= 24; minor++)
		CHECK(!context_go_part(1, minor, (uint64_t)-8, &part), "known");
}

static void test_go_s_labels_are_a_list(void)
{
	begin_go(352);
	put_word(LABELS, MAP);
	put_word(LABELS + 8, 4);
	put_text(MAP, "route");
	put_text(MAP + 16, "/a");
	put_text(MAP + 32, "empty");
	put_text(MAP + 48, "");
	put_text(MAP + 64, "span_id");
	put_text(MAP + 80, "00f067aa0ba902b7");
	put_text(MAP + 96, "trace_id");
	put_text(MAP + 112, "no id");
	CHECK(decode_go(24) == CONTEXT_LABELS, "labels");
	CHECK(!strcmp(got, "route=/a span_id=00f067aa0ba902b7"), got);
	put_word(LABELS + 8, 0);
	CHECK(decode_go(24) == CONTEXT_LABELS && !*got, "an empty list");
	put_word(G + 352, 0);
	CHECK(decode_go(24) == CONTEXT_NONE && !*got, "no labels");
	put_word(G + 352, LABELS);
	put_word(LABELS + 8, UINT64_MAX / 2);
	CHECK(decode_go(24) == CONTEXT_LABELS && strstr(got, "route=/a"), "a wild length");
	put_word(MAP + 64, 0x1234);
	CHECK(decode_go(24) == CONTEXT_MISSING && !strcmp(got, "route=/a"), "a wild pointer");
}

/* Set the pair in a slot of the bucket at an address. */
static void put_pair(uint64_t bucket, unsigned int slot, const char *key, const char *value)
{
	mem.bytes[MAP - BASE]++; /* how many there are */
	put(bucket + slot, "\x42", 1);
	put_text(bucket + 8 + 16 * (uint64_t)slot, key);
	put_text(bucket + 136 + 16 * (uint64_t)slot, value);
}

static void test_go_s_labels_are_a_map(void)
{
	static const uint16_t labels[] = {
		[17] = 360, [20] = 360, [21] = 344, [22] = 344, [23] = 352
	};
	const uint8_t twice = 1;

	for (unsigned int minor = 17; minor <= 23; minor++) {
		if (!labels[minor])
			continue;
		begin_go(labels[minor]);
		put_word(LABELS, MAP);
		put_word(MAP + 16, BUCKET);
		put_pair(BUCKET, 0, "route", "/a");
		put_pair(BUCKET, 7, "user.id", "eve");
		CHECK(decode_go(minor) == CONTEXT_LABELS && !strcmp(got, "route=/a user.id=eve"),
		      got);
	}
	/* Two buckets, of which the first has a chain. */
	put(MAP + 9, &twice, 1);
	put_pair(BUCKET + 272, 1, "second", "2");
	put_word(BUCKET + 264, BUCKET + 3 * 272);
	put_pair(BUCKET + 3 * 272, 2, "third", "3");
	CHECK(decode_go(23) == CONTEXT_LABELS &&
		      !strcmp(got, "route=/a user.id=eve third=3 second=2"),
	      got);
	put_word(MAP + 24, BUCKET);
	CHECK(decode_go(23) == CONTEXT_MISSING, "the map grows");
	put_word(MAP + 24, 0);
	put_word(BUCKET + 264, 0x1234);
	CHECK(decode_go(23) == CONTEXT_MISSING && !strcmp(got, "route=/a user.id=eve"), got);
	put_word(LABELS, 0);
	CHECK(decode_go(23) == CONTEXT_NONE && !*got, "a map that was not made");
	/* A chain that is a cycle: the plan has so many steps. */
	put_word(LABELS, MAP);
	put_word(BUCKET + 264, BUCKET);
	CHECK(decode_steps(23) == PLAN_STEPS, "it ends");
}

int main(void)
{
	test_the_names_of_attributes_are_in_the_process_context();
	test_a_record_gives_labels_wherever_it_is();
	test_a_record_can_end_where_memory_ends();
	test_what_is_no_record_gives_none();
	test_attributes_are_bounded_and_forge_nothing();
	test_labels_of_the_process_stay();
	test_a_thread_may_not_have_used_a_module();
	test_a_part_is_put_before_a_plan();
	test_versions_of_go();
	test_go_s_labels_are_a_list();
	test_go_s_labels_are_a_map();
	return check_done();
}

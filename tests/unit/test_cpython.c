/*
 * tests/unit/test_cpython.c: tests which frames of Python code are found in the memory of forged processes,
 * sound and hostile ones, and the lines of code objects.
 */
#include "agent/limits.h"
#include "agent/runtime/cpython_code.h"

#include <stdlib.h>

#include "tests/check.h"
#include "tests/cpython_image.h"

static struct image image;
static struct image_slices slices;
static struct runtime_memory *memory;
static struct runtime_frames *frames;
static struct runtime_put put[RUNTIME_PUT_MAX];
static struct runtime_stack stack;
static struct plan plan;

/* Two calls of the loop, each with something around it. */
static const struct uw_frame native[] = {
	{ .sp = IMAGE_BASE + IMAGE_STACK, .cfa = IMAGE_BASE + IMAGE_STACK + 0x80 },
	{ .sp = IMAGE_BASE + IMAGE_STACK + 0x80, .cfa = IMAGE_BASE + IMAGE_STACK + 0x180 },
	{ .sp = IMAGE_BASE + IMAGE_STACK + 0x180, .cfa = IMAGE_BASE + IMAGE_STACK + 0x1c0 },
	{ .sp = IMAGE_BASE + IMAGE_STACK + 0x1c0, .cfa = IMAGE_BASE + IMAGE_STACK + 0x300 },
	{ .sp = IMAGE_BASE + IMAGE_STACK + 0x300 },
};
static const struct uw_frame *const natives[] = { &native[0], &native[1], &native[2], &native[3],
						  &native[4] };

static void *attached(uint16_t version)
{
	struct runtime_file file = { .memory = memory, .bias = 0x1000 };
	struct module module = { .kind = MODULE_FILE };
	char path[64];
	void *state = NULL;

	(void)snprintf(path, sizeof(path), "/usr/bin/python3.%d", version & 0xff);
	module.path = path;
	file.module = &module;
	file.exports[0] = IMAGE_BASE + IMAGE_RUNTIME;
	plan = (struct plan){ .n = 0 };
	CHECK(!runtime_cpython.attach(&file, &state, &plan), path);
	return state;
}

/*
 * Decode the image: the stack and what its plan copies, and for names alone the image itself. Return the frames
 * as a text.
 */
static const char *decoded(uint16_t version, uint32_t most)
{
	static char text[4096];
	const struct uw_region thread_stack = { IMAGE_BASE + IMAGE_STACK, 0x1000,
						image.bytes + IMAGE_STACK };
	struct event event = { .type = EVENT_SAMPLE };
	struct event_sample *s = &event.sample;
	void *state;
	size_t n = 0;

	CHECK(!runtime_memory_new(&memory) && !runtime_frames_new(&frames), "memory");
	s->regions = &thread_stack;
	s->n_regions = 1;
	runtime_memory_begin(memory, s, image_live, &image);
	state = attached(version);
	image_plan(&image, &plan, 0x1000, most, &slices);
	s->slices = slices.regions;
	s->n_slices = slices.n;
	s->slices_end = (uint8_t)slices.end;
	stack = (struct runtime_stack){ .event = &event,
					.memory = memory,
					.frames = frames,
					.native = natives,
					.n_native = 5,
					.put = put,
					.max_put = RUNTIME_PUT_MAX };
	text[0] = '\0';
	if (state) {
		runtime_cpython.decode(state, &stack);
		runtime_cpython.detach(state);
	}
	for (size_t i = 0; i < stack.n_put && n < sizeof(text) - 128; i++) {
		struct runtime_name name = { .function = "?" };
		char *found = runtime_frames_find(frames, put[i].address, &name);

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s:%s:%u@%u", i ? " " : "",
				      name.function, name.file ? name.file : "", name.line,
				      put[i].at);
		free(found);
	}
	runtime_memory_free(memory);
	runtime_frames_free(frames);
	return text;
}

static void test_every_version(void)
{
	static const uint16_t versions[] = {
		0x308, 0x309, 0x30a, 0x30b, 0x30c, 0x30d, 0x30e, 0x30f
	};

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		uint8_t offsets[CPYTHON_OFFSETS_MAX];
		struct cpython_layout l;
		const char *want = cpython_layout_of(versions[i])->entry == CPYTHON_EACH
					   ? "f0:0.py:10@5 f1:1.py:20@5 f2:2.py:30@5"
					   : "f0:0.py:10@1 f1:1.py:20@1 f2:2.py:30@3";

		for (int gil = 0; gil < 2; gil++) {
			const char *text;

			CHECK(!image_layout(versions[i], offsets, &l), "its layout");
			image_make(&image, &l, gil);
			if (cpython_has_offsets(versions[i]))
				memcpy(image.bytes + IMAGE_RUNTIME, offsets, sizeof(offsets));
			text = decoded(versions[i], PLAN_BYTES_MAX);
			CHECK(!strcmp(text, want), text);
			CHECK(slices.end == PLAN_DONE && !stack.missing, "complete");
			CHECK(slices.used < 600, "few bytes");
		}
	}
}

/* A process that says where its fields are can say any place. What is there is read, and nothing behind it. */
static void test_fields_far_away_in_a_code_object(void)
{
	static const struct {
		unsigned int number;
		const char *want;
	} cases[] = {
		{ 34, "[unknown]::0@1 [unknown]::0@1 [unknown]::0@3" },
		{ 35, "f0:0.py:0@1 f1:1.py:0@1 f2:2.py:0@3" },
		{ 36, "f0:0.py:0@1 f1:1.py:0@1 f2:2.py:0@3" },
	};
	uint8_t offsets[CPYTHON_OFFSETS_MAX];
	struct cpython_layout l;

	CHECK(!image_layout(0x30d, offsets, &l), "its layout");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *text;

		image_make(&image, &l, false);
		memcpy(image.bytes + IMAGE_RUNTIME, offsets, sizeof(offsets));
		image_put(&image, IMAGE_RUNTIME + 24 + 8 * cases[i].number, 20000, 8);
		text = decoded(0x30d, PLAN_BYTES_MAX);
		CHECK(!strcmp(text, cases[i].want), text);
	}
}

static void test_a_thread_without_python(void)
{
	image_make(&image, cpython_layout_of(0x30b), false);
	image_put(&image, IMAGE_THREAD + image.layout.thread_id, 5, 8);
	CHECK(!*decoded(0x30b, PLAN_BYTES_MAX) && !stack.missing && slices.end == PLAN_DONE,
	      "none");
}

static void test_a_frame_without_code(void)
{
	image_make(&image, cpython_layout_of(0x30c), true);
	image_put(&image, IMAGE_STACK + 0x100 + image.layout.f_code, 0, 8);
	CHECK(!strcmp(decoded(0x30c, PLAN_BYTES_MAX), "f0:0.py:10@1 f1:1.py:20@1 f2:2.py:30@3"),
	      "as marks of calls have it");
}

static void test_hostile_structures_end(void)
{
	const struct cpython_layout *l = cpython_layout_of(0x30b);
	const char *text;

	image_make(&image, l, true);
	image_frame(&image, 0, IMAGE_FRAMES, false); /* a cycle */
	text = decoded(0x30b, PLAN_BYTES_MAX);
	CHECK(slices.end == PLAN_STEPS || slices.end == PLAN_ROOM, "bounded");
	CHECK(stack.missing && stack.n_put <= RUNTIME_PUT_MAX && !strncmp(text, "f0:0.py:10@", 11),
	      "with a reason");
	image_make(&image, l, true);
	image_put(&image, IMAGE_FRAMES + 0x100 + l->f_previous, 0xdead0000, 8);
	CHECK(!strcmp(decoded(0x30b, PLAN_BYTES_MAX), "f0:0.py:10@1 f1:1.py:20@1") &&
		      slices.end == PLAN_FAULT && stack.missing,
	      stack.missing);
	image_make(&image, l, true);
	image_put(&image, IMAGE_CODES + 0x100 + 16, UINT32_MAX, 8); /* the length of a name */
	CHECK(strlen(decoded(0x30b, PLAN_BYTES_MAX)) < 4000, "cut");
	image_make(&image, l, true);
	image_put(&image, IMAGE_CODES + 0x300 + 16, UINT32_MAX, 8); /* of a line table */
	CHECK(!strncmp(decoded(0x30b, PLAN_BYTES_MAX), "f0:0.py:0@1", 11), "without a line");
	image_make(&image, l, true);
	image_put(&image, IMAGE_CODES + l->c_name, 0x5000, 8);
	CHECK(!strncmp(decoded(0x30b, PLAN_BYTES_MAX), "[unknown]::0@1 f1:", 18) && stack.missing,
	      "a name that cannot be read");
	image_make(&image, l, true);
	image_put(&image, IMAGE_FRAMES + l->f_instr, 0, 8);
	CHECK(!strncmp(decoded(0x30b, PLAN_BYTES_MAX), "f0:0.py:10@1", 12), "a wild instruction");
	image_make(&image, l, true);
	text = decoded(0x30b, 256);
	CHECK(!strcmp(text, "f0:0.py:10@5") && slices.end == PLAN_ROOM && stack.missing, text);
}

static void test_code_that_has_changed(void)
{
	struct event_sample s = { .read = image_read, .read_ctx = &image };
	const struct cpython_layout *l = cpython_layout_of(0x30b);
	struct cpython_code codes[2] = { { .addr = IMAGE_BASE + IMAGE_CODES } };

	image_make(&image, l, true);
	CHECK(!runtime_memory_new(&memory), "memory");
	runtime_memory_begin(memory, &s, NULL, NULL);
	memcpy(codes[0].check, image.bytes + IMAGE_CODES + l->c_check, l->c_check_size);
	codes[1] = codes[0];
	codes[1].check[0] ^= 1;
	cpython_codes_read(l, memory, codes, 2);
	CHECK(!codes[0].why && !strcmp(codes[0].function, "f0") && codes[0].first_line == 10,
	      "read");
	CHECK(codes[1].why && !codes[1].function, "another one is there now");
	cpython_code_fini(&codes[0]);
	runtime_memory_free(memory);
}

/*
 * Freed memory keeps a code object's words, but what they lead to can be others' texts by then. The count of references
 * is 0, or the allocator has put the address of the next free block there.
 */
static void test_code_that_was_freed(void)
{
	enum { IMAGE_TYPE = 0xa5a5a0 };
	static const struct {
		uint64_t references;
		bool alive;
		uint64_t type;
	} cases[] = {
		{ 1, true, 0 },
		{ 1, true, IMAGE_TYPE },
		{ 0x1a23450, false, 0x123456789abcdef }, /* freed, in a heap at low addresses */
		{ UINT32_MAX, true, 0 },		 /* immortal, 3.12 */
		{ UINT64_C(1) << 48 | UINT64_C(3) << 30, true, 0 }, /* with flags, 3.14 */
		{ 0, false, 0 },
		{ UINT64_C(0x7f1234567890), false, 0 },
		{ UINT64_C(0x55d412345670), false, 0 },
	};
	struct event_sample s = { .read = image_read, .read_ctx = &image };
	const struct cpython_layout *l = cpython_layout_of(0x30b);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cpython_code code = { .addr = IMAGE_BASE + IMAGE_CODES };
		struct cpython_layout with_type = *l;

		with_type.code_type = cases[i].type ? IMAGE_TYPE : 0;
		image_make(&image, l, true);
		image_put(&image, IMAGE_CODES, cases[i].references, 8);
		image_put(&image, IMAGE_CODES + 8, cases[i].type, 8);
		CHECK(!runtime_memory_new(&memory), "memory");
		runtime_memory_begin(memory, &s, NULL, NULL);
		memcpy(code.check, image.bytes + IMAGE_CODES + l->c_check, l->c_check_size);
		cpython_codes_read(&with_type, memory, &code, 1);
		CHECK(!code.why == cases[i].alive, "alive");
		cpython_code_fini(&code);
		runtime_memory_free(memory);
	}
}

/* What the import system runs by this function and frees then is the body of a module; other code that was freed has no name. */
static void test_the_freed_body_of_a_module(void)
{
	static const uint16_t versions[] = { 0x308, 0x30b, 0x30c };
	static const struct {
		const char *caller, *file, *want;
		uint64_t references;
	} cases[] = {
		{ "_call_with_frames_removed", "<frozen importlib._bootstrap>", "<module>:", 0 },
		{ "_call_with_frames_removed", "<frozen importlib._bootstrap>", "f0:0.py", 1 },
		{ "_call_with_frames_removed", "1.py", "[unknown]:", 0 },
		{ "exec", "<frozen importlib._bootstrap>", "[unknown]:", 0 },
	};

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
		for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
			const uint64_t caller = IMAGE_CODES + 0x400;
			const char *text;

			image_make(&image, cpython_layout_of(versions[i]), true);
			image_put(&image, IMAGE_CODES, cases[k].references, 8);
			image_text(&image, caller + 0x100, cases[k].caller);
			image_text(&image, caller + 0x200, cases[k].file);
			text = decoded(versions[i], PLAN_BYTES_MAX);
			CHECK(!strncmp(text, cases[k].want, strlen(cases[k].want)), text);
			CHECK(strstr(text, cases[k].caller), "its caller");
			CHECK(!stack.missing == (cases[k].want[0] != '['),
			      "what is missing is said");
		}
}

/* Frees a code object while it is read, as far as can be seen: after so many readings its words change. */
static int freed_after;

static int changing_live(void *ctx, struct opener_part *parts, size_t n)
{
	if (!freed_after--)
		image.bytes[IMAGE_CODES + cpython_layout_of(0x30b)->c_check] ^= 1;
	return image_live(ctx, parts, n);
}

static void test_code_that_changes_while_it_is_read(void)
{
	static const struct event_sample nothing = { .n_regions = 0 };
	const struct cpython_layout *l = cpython_layout_of(0x30b);
	uint8_t check[CPYTHON_CHECK_MAX];
	struct cpython_code code;
	int n = 0;

	image_make(&image, l, true);
	memcpy(check, image.bytes + IMAGE_CODES + l->c_check, l->c_check_size);
	for (freed_after = -1; freed_after < 0; n++) {
		image_make(&image, l, true);
		code = (struct cpython_code){ .addr = IMAGE_BASE + IMAGE_CODES };
		memcpy(code.check, check, sizeof(check));
		CHECK(!runtime_memory_new(&memory), "memory");
		runtime_memory_begin(memory, &nothing, changing_live, &image);
		freed_after = n;
		cpython_codes_read(l, memory, &code, 1);
		CHECK((freed_after < 0) == (code.why != NULL), "seen");
		if (!code.why)
			cpython_code_fini(&code);
		runtime_memory_free(memory);
	}
	CHECK(n == 4, "heads, texts, heads");
}

/*
 * What co_linetable (co_lnotab before 3.10) of this function is, and findlinestarts and co_lines say of it:
 *
 *	def f(a):          # line 2
 *		x = [a,
 *			a + 1]
 *	                   # line 5
 *		for i in x:
 *			try:
 *				g(i,
 *					2)
 *			except ValueError:
 *				pass
 *		return x
 */
static void test_lines(void)
{
	static uint8_t pairs[] = { 0, 1, 2, 1, 6,   255, 4, 3,	8, 1, 2,
				   1, 4, 1, 2, 255, 8,	 2, 12, 1, 8, 1 };
	static uint8_t ranges[] = { 2, 1, 6, 1,	  4,  255, 8, 3, 2, 1,	 4, 1,
				    2, 1, 8, 255, 12, 2,   4, 1, 2, 255, 4, 2 };
	static uint8_t locations[] = { 128, 0,	 216, 9,   10,	216, 9,	  10,  136, 81,	 137, 21,
				       240, 3,	 1,   9,   16,	128, 65,  240, 6,   0,	 14,  15,
				       240, 0,	 5,   5,   17,	240, 0,	  5,   5,   17,	 136, 1,
				       240, 2,	 4,   9,   17,	221, 12,  13,  136, 97,	 216, 14,
				       15,  241, 3,   1,   13,	17,  244, 0,   1,   13,	 17,  240,
				       0,   1,	 13,  17,  240, 0,   1,	  13,  17,  248, 229, 15,
				       25,  240, 0,   1,   9,	17,  240, 0,   1,   9,	 17,  240,
				       0,   1,	 9,   17,  216, 12,  16,  136, 68,  240, 3,   1,
				       9,   17,	 248, 248, 248, 224, 11,  12,  128, 72 };
	static const struct {
		uint16_t version;
		uint8_t *lines;
		size_t n;
		struct {
			int64_t off;
			uint32_t line;
		} want[12];
	} cases[] = {
		{ 0x309,
		  pairs,
		  sizeof(pairs),
		  { { 0, 3 },
		    { 2, 4 },
		    { 6, 4 },
		    { 8, 3 },
		    { 12, 6 },
		    { 20, 7 },
		    { 22, 8 },
		    { 26, 9 },
		    { 28, 8 },
		    { 36, 10 },
		    { 48, 11 },
		    { 58, 12 } } },
		{ 0x30a,
		  ranges,
		  sizeof(ranges),
		  { { 0, 3 },
		    { 2, 4 },
		    { 8, 3 },
		    { 12, 6 },
		    { 20, 7 },
		    { 22, 8 },
		    { 26, 9 },
		    { 28, 8 },
		    { 36, 10 },
		    { 48, 11 },
		    { 52, 10 },
		    { 56, 12 } } },
		{ 0x30b,
		  locations,
		  sizeof(locations),
		  { { 0, 2 },
		    { 2, 3 },
		    { 4, 4 },
		    { 12, 3 },
		    { 16, 6 },
		    { 24, 7 },
		    { 40, 9 },
		    { 42, 8 },
		    { 60, 0 },
		    { 62, 10 },
		    { 80, 11 },
		    { 94, 12 } } },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct cpython_layout *l = cpython_layout_of(cases[i].version);
		struct cpython_code code = { .first_line = 2,
					     .lines = cases[i].lines,
					     .n_lines = cases[i].n };

		for (size_t k = 0; k < 12; k++) {
			char what[64];

			(void)snprintf(what, sizeof(what), "%x: %d at %d", l->version,
				       (int)cpython_line(l, &code, cases[i].want[k].off),
				       (int)cases[i].want[k].off);
			CHECK(cpython_line(l, &code, cases[i].want[k].off) == cases[i].want[k].line,
			      what);
		}
		CHECK(cpython_line(l, &code, -2) == 2, "not begun");
		CHECK(cpython_line(l, &code, 100000) == (l->version == 0x309 ? 12 : 0), "beyond");
		for (code.n_lines = 0; code.n_lines < cases[i].n; code.n_lines++)
			(void)cpython_line(l, &code, 50);
	}
}

static void test_offsets_that_a_version_says(void)
{
	uint8_t bytes[CPYTHON_OFFSETS_MAX] = "xdebugpy";
	uint64_t value = UINT64_C(0x030d00f0);
	struct cpython_layout l;

	memcpy(bytes + 8, &value, 8);
	for (size_t i = 0; i < 100; i++) {
		value = i * 8;
		memcpy(bytes + 24 + i * 8, &value, 8);
	}
	CHECK(!cpython_layout_read(bytes, sizeof(bytes), &l), "3.13");
	CHECK(l.interpreters == 16 && l.threads == 48 && l.frame == 160 && l.f_instr == 224 &&
		      l.c_code == 320 && l.str_ascii == 536 && l.str_compact == 552,
	      "their places");
	value = UINT64_C(1) << 40;
	memcpy(bytes + 24 + (size_t)6 * 8, &value, 8);
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -EBADMSG, "an impossible one");
	value = 48;
	memcpy(bytes + 24 + (size_t)6 * 8, &value, 8);
	CHECK(!cpython_layout_read(bytes, sizeof(bytes), &l), "a possible one");
	value = 35;
	memcpy(bytes + 24 + (size_t)67 * 8, &value, 8);
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -EBADMSG, "a str without its state");
	value = 40;
	memcpy(bytes + 24 + (size_t)67 * 8, &value, 8);
	value = 20000;
	memcpy(bytes + 24 + (size_t)27 * 8, &value, 8);
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -EBADMSG, "a frame of 20,000 bytes");
	value = 216;
	memcpy(bytes + 24 + (size_t)27 * 8, &value, 8);
	value = 20000;
	memcpy(bytes + 24 + (size_t)30 * 8, &value, 8);
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -EBADMSG, "an owner far away");
	bytes[16] = 1;
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -ENOTSUP, "without the GIL");
	bytes[16] = 0;
	bytes[10] = 0x10;
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -ENOTSUP, "3.16");
	CHECK(cpython_layout_read(bytes, 100, &l) < 0, "short");
	bytes[0] = 'y';
	CHECK(cpython_layout_read(bytes, sizeof(bytes), &l) == -EBADMSG, "no offsets");
}

int main(void)
{
	test_every_version();
	test_fields_far_away_in_a_code_object();
	test_a_thread_without_python();
	test_a_frame_without_code();
	test_hostile_structures_end();
	test_code_that_has_changed();
	test_code_that_was_freed();
	test_the_freed_body_of_a_module();
	test_code_that_changes_while_it_is_read();
	test_lines();
	test_offsets_that_a_version_says();
	return check_done();
}

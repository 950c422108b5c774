/*
 * tests/unit/test_interpreter.c: tests where frames of interpreted code stand among native ones, and when their names
 * are looked for. The interpreter is this program: it has an evaluation loop, and a large function that another loop
 * calls.
 */
#include "agent/runtime/interpreter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

extern const char __ehdr_start[];

/* Functions that unwind information bounds. They are never called. */
int loop(int n);
int large(int n);

__attribute__((noinline)) int loop(int n)
{
	return n > 1 ? loop(n / 2) + n % 3 : n;
}

__attribute__((noinline)) int large(int n)
{
	__asm__ volatile(".skip 4096, 0x90" : "+r"(n));
	return n > 1 ? large(n / 2) + 1 : n;
}

static struct uw_object *object;
static uint64_t bias;
static struct runtime_frames *names;
static struct runtime_memory *memory;
static unsigned int n_named;
static bool fails;

/* The function of code 7 is "f7". */
static int name_frame(void *ctx, struct raw_reader *r, const struct raw_frame *frame,
		      struct raw_name *out)
{
	char text[32];

	CHECK(ctx == &n_named && r->memory == memory, "context");
	n_named++;
	raw_text_clear(&out->function);
	raw_text_clear(&out->file);
	(void)snprintf(text, sizeof(text), "f%d", (int)frame->code);
	raw_text_word(&out->function, text);
	out->line = (uint32_t)frame->at;
	out->start_line = 0;
	return fails ? -EFAULT : 0;
}

static struct interpreter *make(uint64_t callee_size)
{
	struct interpreter_options options = {
		.module = "[test]",
		.loop = (uint64_t)(uintptr_t)loop + 1,
		.object = object,
		.bias = bias,
		.callee_size = callee_size,
		.name = name_frame,
		.ctx = &n_named,
	};
	struct interpreter *in = NULL;

	CHECK(!interpreter_new(&options, &in), "new");
	return in;
}

#define NATIVE_MAX 8

static struct uw_frame native[NATIVE_MAX];
static struct runtime_put put[16];
static const char *missing;

/*
 * Put the frames, which text describes: a letter for each, innermost first. native: n any function, L the loop, B the
 * large function. raw: a digit is a frame's code; "!" behind it: it has an entry; "?": it is nameless with an entry;
 * "<": it lies within the second loop. Return the merged stack: digits, and the native letters that are left.
 */
static const char *merged(struct interpreter *in, const char *native_text, const char *raw_text)
{
	static char out[64];
	struct uw_mapping mapping = { .object = object, .bias = bias };
	struct raw_stack raw = interpreter_stack(in);
	const struct uw_frame *frames[NATIVE_MAX];
	struct runtime_stack stack = { .frames = names,
				       .memory = memory,
				       .native = frames,
				       .put = put,
				       .max_put = sizeof(put) / sizeof(put[0]) };
	struct runtime_name name;
	size_t n = 0, next = 0;

	for (const char *c = native_text; *c; c++) {
		uint64_t pc = (uint64_t)(uintptr_t)(*c == 'L' ? loop : large) + 4;

		native[stack.n_native] =
			(struct uw_frame){ .lookup = *c == 'n' ? 16 : pc,
					   .cfa = 1000 * (stack.n_native + 1),
					   .mapping = *c == 'n' ? NULL : &mapping };
		frames[stack.n_native] = &native[stack.n_native];
		stack.n_native++;
	}
	for (const char *c = raw_text; *c; c++) {
		struct raw_frame frame = { .code = (uint64_t)(*c - '0'), .at = 5 };

		frame.entry = c[1] == '!' || c[1] == '?';
		frame.nameless = c[1] == '?';
		frame.within = c[1] == '<' ? 1500 : 0;
		frame.short_lived = frame.code == 9;
		CHECK(raw_add(&raw, &frame), "room");
		c += frame.entry || frame.within;
	}
	interpreter_put(in, &raw, &stack);
	missing = stack.missing;
	for (size_t i = 0; i <= stack.n_native; i++) {
		bool instead = false;

		for (; next < stack.n_put && stack.put[next].at <= i; next++) {
			char *text = runtime_frames_find(names, stack.put[next].address, &name);

			CHECK(text && (name.line == 5) == (name.function[0] == 'f'), "name");
			instead |= stack.put[next].instead;
			out[n++] = text ? name.function[1] : '-';
			free(text);
		}
		if (i < stack.n_native && !instead)
			out[n++] = native_text[i];
	}
	out[n] = '\0';
	return out;
}

static void test_each_loop_stands_for_the_frames_up_to_its_entry(void)
{
	struct interpreter *in = make(0);

	CHECK(!strcmp(merged(in, "nLnLn", "1!23!"), "n1n23n"), "two loops");
	CHECK(!strcmp(merged(in, "LnLn", "12!3!"), "12n3n"), "in the loop");
	CHECK(!strcmp(merged(in, "nn", ""), "nn"), "none");
	CHECK(!strcmp(merged(in, "nLnLn", "1!"), "n1nLn"), "a loop without frames stays");
	CHECK(!strcmp(merged(in, "nLnLn", "1?23!"), "nLn23n"), "an entry of something nameless");
	CHECK(!strcmp(merged(in, "nLn", "12!34!"), "n12n34"), "a native stack that is cut");
	CHECK(!strcmp(merged(in, "nB", "1!2!"), "nB12"), "without any loop");
	interpreter_free(in);
}

/* The first frame has no entry of its own, but the native stack shows that its loop ends there. */
static void test_frames_within_a_loop(void)
{
	struct interpreter *in = make(0);

	CHECK(!strcmp(merged(in, "LnLnL", "1<23!"), "1n23nL"), "the address is between two loops");
	CHECK(!strcmp(merged(in, "L", "1<2!"), "12"), "there is only one loop");
	interpreter_free(in);
}

static void test_loop_that_another_function_calls(void)
{
	struct interpreter *in = make(4096);

	CHECK(!strcmp(merged(in, "nBLnBLn", "1!23!"), "n1Ln23Ln"), "the large one runs the code");
	CHECK(!strcmp(merged(in, "nLnBL", "1!2!"), "n1n2L"), "before it is called");
	interpreter_free(in);
}

static void test_names_are_looked_for_once(void)
{
	struct interpreter *in = make(0);

	n_named = 0;
	CHECK(!strcmp(merged(in, "L", "1121!"), "1121") && n_named == 2, "two different frames");
	CHECK(!strcmp(merged(in, "L", "21!"), "21") && n_named == 2, "in the next sample");
	CHECK(!strcmp(merged(in, "L", "99!"), "99") && n_named == 4,
	      "what lives shortly is not stored");
	CHECK(!strcmp(merged(in, "", "45!"), "") && n_named == 6 && !missing,
	      "a sample that is not walked");
	fails = true;
	CHECK(!strcmp(merged(in, "L", "63!"), "uu") && missing, "[unknown]");
	fails = false;
	CHECK(!strcmp(merged(in, "L", "63!"), "63") && !missing, "they are found later");
	interpreter_free(in);
}

static void test_stack_without_room(void)
{
	struct interpreter *in = make(0);

	CHECK(!strcmp(merged(in, "nLn", "12345123451234512345!"), "n1234512345123451n") && missing,
	      "the outermost are missing");
	interpreter_free(in);
}

static void test_file_without_the_loop(void)
{
	struct interpreter_options options = { .loop = 0, .object = object };
	struct interpreter *in;

	CHECK(interpreter_new(&options, &in) == -ENOTSUP, "not exported");
	options.loop = bias + 1;
	options.bias = bias;
	CHECK(interpreter_new(&options, &in) == -ENOTSUP, "no function is there");
}

int main(void)
{
	const struct uw_segment *segments;
	int fd = open("/proc/self/exe", O_RDONLY);
	size_t n;

	CHECK(fd >= 0 && !uw_object_open(fd, 0, &object) && !runtime_frames_new(&names) &&
		      !runtime_memory_new(&memory),
	      "open");
	segments = uw_object_segments(object, &n);
	bias = (uint64_t)(uintptr_t)__ehdr_start - segments[0].vaddr;
	test_each_loop_stands_for_the_frames_up_to_its_entry();
	test_frames_within_a_loop();
	test_loop_that_another_function_calls();
	test_names_are_looked_for_once();
	test_stack_without_room();
	test_file_without_the_loop();
	runtime_memory_free(memory);
	runtime_frames_free(names);
	uw_object_put(object);
	(void)close(fd);
	return check_done();
}

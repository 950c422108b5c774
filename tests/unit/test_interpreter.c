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
static int name_frame(struct interpreter *in, struct raw_reader *r, const struct raw_frame *frame,
		      struct raw_name *out)
{
	char text[32];

	CHECK(interpreter_own(in) && r->memory == memory, "context");
	n_named++;
	raw_text_clear(&out->function);
	raw_text_clear(&out->file);
	(void)snprintf(text, sizeof(text), "f%d", (int)frame->code);
	raw_text_word(&out->function, text);
	out->line = (uint32_t)frame->at;
	out->start_line = 0;
	return fails ? -EFAULT : 0;
}

/* The raw frames of the sample, and what reading them returns. */
static struct raw_frame found[32];
static size_t n_found;
static int found_err;

static int find_stack(struct interpreter *in, const struct runtime_stack *stack,
		      struct raw_stack *raw)
{
	CHECK(*(int *)interpreter_own(in) == 42 && stack->memory == memory, "state");
	for (size_t i = 0; i < n_found; i++)
		CHECK(raw_add(raw, &found[i]), "room");
	return found_err;
}

static int begin(struct interpreter *in, const struct runtime_file *file, struct plan *plan)
{
	int *own = interpreter_own(in);

	CHECK(!*own && file->object == object, "the own state is zero at first");
	*own = 42;
	plan->n = 1;
	return file->exports[2] ? 0 : -ENOTSUP;
}

static uint64_t find_loop(const struct runtime_file *file)
{
	return file->exports[1];
}

static const struct interpreter_kind kinds[] = {
	{ .module = "[test]",
	  .own_size = sizeof(int),
	  .loop = find_loop,
	  .attach = begin,
	  .stack = find_stack,
	  .name = name_frame },
	{ .module = "[test]",
	  .own_size = sizeof(int),
	  .loop = find_loop,
	  .callee_size = 4096,
	  .attach = begin,
	  .stack = find_stack,
	  .name = name_frame },
};

static struct runtime_file file_with(uint64_t loop_at, uint64_t other)
{
	return (struct runtime_file){ .object = object,
				      .bias = bias,
				      .exports = { 0, loop_at, other } };
}

static void *make(const struct interpreter_kind *kind)
{
	struct runtime_file file = file_with((uint64_t)(uintptr_t)loop + 1, 1);
	struct plan plan = { .n = 0 };
	void *in = NULL;

	CHECK(!interpreter_attach(kind, &file, &in, &plan) && plan.n == 1, "attach");
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
static const char *merged(void *in, const char *native_text, const char *raw_text)
{
	static char out[64];
	struct uw_mapping mapping = { .object = object, .bias = bias };
	const struct uw_frame *frames[NATIVE_MAX];
	struct runtime_stack stack = { .frames = names,
				       .memory = memory,
				       .native = frames,
				       .put = put,
				       .max_put = sizeof(put) / sizeof(put[0]) };
	struct runtime_name name;
	size_t n = 0, next = 0;

	n_found = 0;
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
		found[n_found++] = frame;
		c += frame.entry || frame.within;
	}
	interpreter_decode(in, &stack);
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
	void *in = make(&kinds[0]);

	CHECK(!strcmp(merged(in, "nLnLn", "1!23!"), "n1n23n"), "two loops");
	CHECK(!strcmp(merged(in, "LnLn", "12!3!"), "12n3n"), "in the loop");
	CHECK(!strcmp(merged(in, "nn", ""), "nn"), "none");
	CHECK(!strcmp(merged(in, "nLnLn", "1!"), "n1nLn"), "a loop without frames stays");
	CHECK(!strcmp(merged(in, "nLnLn", "1?23!"), "nLn23n"), "an entry of something nameless");
	CHECK(!strcmp(merged(in, "nLn", "12!34!"), "n12n34"), "a native stack that is cut");
	CHECK(!strcmp(merged(in, "nB", "1!2!"), "nB12"), "without any loop");
	interpreter_detach(in);
}

/* The first frame has no entry of its own, but the native stack shows that its loop ends there. */
static void test_frames_within_a_loop(void)
{
	void *in = make(&kinds[0]);

	CHECK(!strcmp(merged(in, "LnLnL", "1<23!"), "1n23nL"), "the address is between two loops");
	CHECK(!strcmp(merged(in, "L", "1<2!"), "12"), "there is only one loop");
	interpreter_detach(in);
}

static void test_loop_that_another_function_calls(void)
{
	void *in = make(&kinds[1]);

	CHECK(!strcmp(merged(in, "nBLnBLn", "1!23!"), "n1Ln23Ln"), "the large one runs the code");
	CHECK(!strcmp(merged(in, "nLnBL", "1!2!"), "n1n2L"), "before it is called");
	interpreter_detach(in);
}

static void test_names_are_looked_for_once(void)
{
	void *in = make(&kinds[0]);

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
	interpreter_detach(in);
}

static void test_stack_without_room(void)
{
	void *in = make(&kinds[0]);

	CHECK(!strcmp(merged(in, "nLn", "12345123451234512345!"), "n1234512345123451n") && missing,
	      "the outermost are missing");
	interpreter_detach(in);
}

static void test_frames_that_were_found_before_damage(void)
{
	void *in = make(&kinds[0]);

	found_err = -EFAULT;
	CHECK(!strcmp(merged(in, "Ln", "1!"), "1n") && missing, "not captured");
	found_err = -ELOOP;
	CHECK(!strcmp(merged(in, "Ln", "1!"), "1n") && missing, "a cycle");
	found_err = 0;
	CHECK(!strcmp(merged(in, "Ln", "1!"), "1n") && !missing, "sound");
	interpreter_detach(in);
}

static void test_plan_begins_at_the_first_slice(void)
{
	const struct uw_region slice = { .addr = 77 };
	struct event event = { .type = EVENT_SAMPLE };
	struct runtime_stack stack = { .event = &event };
	uint64_t addr = 1;

	CHECK(interpreter_first_slice(&stack, &addr) == -EFAULT && addr == 1, "none");
	event.sample.slices = &slice;
	event.sample.n_slices = 1;
	CHECK(!interpreter_first_slice(&stack, &addr) && addr == 77, "the first one");
}

static void test_file_that_is_no_interpreter(void)
{
	struct runtime_file file = file_with(0, 1);
	struct plan plan = { .n = 0 };
	void *in = NULL;

	CHECK(interpreter_attach(&kinds[0], &file, &in, &plan) == -ENOTSUP, "not exported");
	file = file_with(bias + 1, 1);
	CHECK(interpreter_attach(&kinds[0], &file, &in, &plan) == -ENOTSUP, "no function is there");
	file = file_with((uint64_t)(uintptr_t)loop, 0);
	CHECK(interpreter_attach(&kinds[0], &file, &in, &plan) == -ENOTSUP && !in, "no layout");
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
	test_frames_that_were_found_before_damage();
	test_plan_begins_at_the_first_slice();
	test_file_that_is_no_interpreter();
	runtime_memory_free(memory);
	runtime_frames_free(names);
	uw_object_put(object);
	(void)close(fd);
	return check_done();
}

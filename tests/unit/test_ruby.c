/* tests/unit/test_ruby.c: tests the reader of Ruby's stack and names, with sound and with hostile memory. */
#include "agent/runtime/ruby.h"

#include "tests/check.h"
#include "tests/ruby_image.h"

#define FILE_NAME "/srv/a-long-directory/shop.rb"

static struct raw_frame frames[16];
static struct raw_name name;

static const struct ruby_layout *layout(void)
{
	return ruby_layout_of(3, ruby_minor);
}

static struct ruby_known *known(void)
{
	static struct ruby_known known;

	known.symbols = ruby_symbol_table;
	return &known;
}

static int find(struct runtime_memory *m, struct raw_stack *stack)
{
	*stack = (struct raw_stack){ .frames = frames, .max = 16 };
	return ruby_stack(m, layout(), ruby_ec, stack);
}

static bool is(struct runtime_memory *m, const struct raw_frame *frame, const char *function,
	       const char *file, unsigned int line, unsigned int start_line)
{
	return !ruby_name(reading(m), layout(), known(), frame, &name) &&
	       !strcmp(name.function.bytes, function) && !strcmp(name.file.bytes, file) &&
	       name.line == line && name.start_line == start_line;
}

static void test_stack_has_all_calls(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack) && stack.n == 5, "five frames");
	CHECK(is(m, &frames[0], "block in Cart#total", FILE_NAME, 51, 50), "a block");
	CHECK(is(m, &frames[1], "Array#each", "", 0, 0), "a C function");
	CHECK(is(m, &frames[2], "Cart#total", FILE_NAME, 499, 100), "a method");
	CHECK(is(m, &frames[3], "Cart.open", FILE_NAME, 12, 10), "a method of the class");
	CHECK(is(m, &frames[4], "<main>", FILE_NAME, 3, 0), "the program");
	CHECK(frames[0].entry && !frames[1].entry && !frames[2].entry && !frames[3].entry &&
		      frames[4].entry,
	      "where C code called");
	CHECK(!ruby_name(reading(m), layout(), &(struct ruby_known){ 0 }, &frames[2], &name) &&
		      !strcmp(name.function.bytes, ruby_minor == 3 ? "Cart#total" : "total"),
	      "without symbols there are no classes, but where they have a field");
	runtime_memory_free(m);
}

/* Put the calls so that there are n of them, and copy by the plan. Return how many frames were found. */
static size_t planned(unsigned int n, enum plan_end *end)
{
	static struct plan_execution model;
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t index, thread, vector, block;
	struct plan plan;

	put_ruby();
	index = take(16);
	put_word(index, 2);
	put_word(index + 8, 24);
	thread = take(64);
	vector = take(64);
	put_word(thread + 8, vector);
	block = take(64);
	put_word(vector + 32, block);
	put_word(block + 24, ruby_ec);
	put_word(ruby_ec + 16, ruby_frames + ruby_cf() * (5 - n));
	ruby_plan(layout(), index, BASE, &plan);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = thread };
	m = planned_memory(&model, &plan, end);
	if (find(m, &stack) || model.slices[0].addr != ruby_ec)
		stack.n = 0;
	else if (n == 5)
		/* The environment between the block's and the method's is of no frame. */
		CHECK(is(m, &frames[0], "block in total", FILE_NAME, 51, 50) &&
			      is(m, &frames[1], "Array#each", "", 0, 0) && frames[0].entry &&
			      is(m, &frames[2], "Cart#total", FILE_NAME, 499, 100) &&
			      is(m, &frames[4], "<main>", FILE_NAME, 3, 0),
		      "the same frames");
	runtime_memory_free(m);
	return stack.n;
}

static void test_plan_copies_what_the_stack_needs(void)
{
	enum plan_end end;

	for (unsigned int n = 1; n <= 5; n++)
		CHECK(planned(n, &end) == n && end == PLAN_DONE, "an even or odd number of frames");
	CHECK(!planned(0, &end) && end == PLAN_DONE, "none");
}

/* Each position of a sequence has the line of its instruction, near the start and behind the first blocks. */
static void test_lines_of_all_positions(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	unsigned int wrong = 0;
	uint64_t code;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack), "stack");
	code = frames[2].at - 16 * 399u;
	for (unsigned int pos = 1; pos <= 800; pos++) {
		struct raw_frame frame = { .code = frames[2].code, .at = code + 8 * pos };

		wrong += !is(m, &frame, "total", FILE_NAME, 101 + (pos - 1) / 2, 100);
	}
	CHECK(!wrong, "all lines");
	frames[2].at = code + 8 * 801;
	CHECK(is(m, &frames[2], "Cart#total", FILE_NAME, 100, 100),
	      "behind the end: the function's");
	frames[2].at = code - 8;
	CHECK(is(m, &frames[2], "Cart#total", FILE_NAME, 100, 100), "before it");
	runtime_memory_free(m);
}

/* A symbol that is made after the table was read is found. */
static void test_symbols_grow(void)
{
	uint64_t part[2 * RUBY_SYMBOLS_END + 2];
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t definition;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack) && is(m, &frames[1], "Array#each", "", 0, 0), "before");
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++)
		part[i] = 8;
	part[2 * RUBY_SYMBOLS_END] = ruby_string("map");
	put_word(ruby_symbol_table + 16,
		 ruby_array((uint64_t[]){ ruby_array(part, 2 * RUBY_SYMBOLS_END + 2) }, 1));
	memcpy(&definition, image.bytes + (frames[1].code + 16 - BASE), 8);
	put_word(definition + 32, (uint64_t)RUBY_SYMBOLS_END << 4);
	CHECK(!ruby_name(reading(m), layout(), known(), &frames[1], &name) &&
		      strstr(name.function.bytes, "map"),
	      "after");
	runtime_memory_free(m);
}

static void test_symbols_are_found_in_code(void)
{
	/* lea; mov 0x10(%rip), %rdi; mov (%rip), %rbp: only the last one leads to the table. */
	uint8_t code[] = { 0x48, 0x8d, 0x05, 0,	   0,	 0,    0, 0x48, 0x8b, 0x3d, 0x10,
			   0,	 0,    0,    0x48, 0x8b, 0x2d, 0, 0,	0,    0,    0xc3 };
	struct runtime_memory *m;
	uint64_t addr;
	int32_t to;

	put_ruby();
	m = image_memory();
	addr = take(sizeof(code));
	to = (int32_t)(ruby_symbol_table + 16 - (addr + 21));
	memcpy(code + 17, &to, 4);
	CHECK(ruby_symbols(reading(m), layout(), code, sizeof(code), addr) == ruby_symbol_table,
	      "found");
	CHECK(!ruby_symbols(reading(m), layout(), code, 20, addr), "cut");
	CHECK(!ruby_symbols(reading(m), layout(), code, sizeof(code), addr + 8), "elsewhere");
	runtime_memory_free(m);
}

static void test_hostile_stacks_end(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_ruby();
	m = image_memory();
	put_word(ruby_ec + 8, UINT64_MAX / 8);
	CHECK(find(m, &stack) == -EBADMSG && !stack.n, "2^61 words");
	put_word(ruby_ec + 8, RUBY_WORDS + ruby_cf() * 800);
	CHECK(find(m, &stack) < 0 && stack.n >= 5, "frames that are not there");
	put_word(ruby_ec + 8, RUBY_WORDS);
	put_word(ruby_ec + 16, ruby_frames + 8);
	CHECK(find(m, &stack) == -EBADMSG, "between two frames");
	put_word(ruby_ec + 16, ruby_frames + ruby_cf() * (RUBY_FRAMES + 1));
	CHECK(find(m, &stack) == -EBADMSG, "behind the stack");
	put_word(ruby_ec + 16, ruby_frames);
	put_word(ruby_frames + 32, 0);
	CHECK(!find(m, &stack) && stack.n == 5 && !frames[0].entry && !frames[0].owner,
	      "without its environment a frame is still there");
	CHECK(is(m, &frames[0], "block in total", FILE_NAME, 51, 50), "its name lacks the class");
	put_word(ruby_frames + ruby_cf() + 32, 7);
	CHECK(!find(m, &stack) && stack.n == 4, "a C function is not");
	runtime_memory_free(m);
}

static void test_scopes_of_a_block_are_bounded(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t ep;

	put_ruby();
	m = image_memory();
	memcpy(&ep, image.bytes + (ruby_frames + 32 - BASE), 8);
	put_word(ep - 8, ep | 1); /* it is around itself */
	CHECK(!find(m, &stack) && stack.n == 5 && !frames[0].owner, "a cycle");
	runtime_memory_free(m);
}

static void test_hostile_names_end(void)
{
	struct runtime_memory *m;
	struct raw_frame frame;
	struct raw_stack stack;
	uint64_t body, table;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack), "stack");
	frame = frames[1];
	frame.code = ruby_names;
	CHECK(ruby_name(reading(m), layout(), known(), &frame, &name) == -EBADMSG, "no method");
	frame = frames[2];
	frame.code = ruby_names;
	CHECK(ruby_name(reading(m), layout(), known(), &frame, &name) == -EBADMSG, "no sequence");
	frame.code = BASE + IMAGE_SIZE;
	CHECK(ruby_name(reading(m), layout(), known(), &frame, &name) == -EBADMSG, "no memory");
	memcpy(&body, image.bytes + (frames[2].code + 16 - BASE), 8);
	put(body + layout()->info_n, 3, 4);
	CHECK(is(m, &frames[2], "Cart#total", FILE_NAME, 100, 100), "an entry beyond the table");
	runtime_memory_free(m);

	if (ruby_minor == 3)
		return;
	/* A class with 2^64 variables. */
	m = image_memory();
	memcpy(&body, image.bytes + (frames[1].code + 8 - BASE), 8);
	memcpy(&body, image.bytes + (body + 24 - BASE), 8);
	memcpy(&table, image.bytes + (body + 8 - BASE), 8);
	put_word(table + 32, 2);
	put_word(table + 40, UINT64_MAX);
	image.reads = 0;
	CHECK(is(m, &frames[1], "each", "", 0, 0) && image.reads < 5000, "the search is bounded");
	runtime_memory_free(m);
}

/* In 3.3 a class that is in one without a name has a name, too, but not for good. */
static void test_class_whose_name_may_change(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t class;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack) && is(m, &frames[1], "Array#each", "", 0, 0), "for good");
	memcpy(&class, image.bytes + (frames[1].code + 8 - BASE), 8);
	put(class + 149, 0xfe, 1);
	CHECK(is(m, &frames[1], "each", "", 0, 0), "not for good");
	put_word(class + 152, BASE + IMAGE_SIZE);
	put(class + 149, 1, 1);
	CHECK(is(m, &frames[1], "each", "", 0, 0), "no memory");
	runtime_memory_free(m);
}

/* Since 3.3 a short array has up to 127 values, and a string's length is a number of its own. */
static void test_lengths_of_short_arrays_and_strings(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t label, body, part;

	put_ruby();
	m = image_memory();
	CHECK(!find(m, &stack), "stack");
	memcpy(&body, image.bytes + (frames[3].code + 16 - BASE), 8);
	memcpy(&label, image.bytes + (body + 80 - BASE), 8);
	put_word(label + 16, UINT64_MAX);
	image.reads = 0;
	CHECK(!ruby_name(reading(m), layout(), known(), &frames[3], &name) &&
		      name.function.n <= RAW_PART_MAX && image.reads < 100,
	      "a string of 2^64 bytes is cut");
	part = take(16 + 8 * 80);
	put_word(part, 7 | 1 << 13 | (uint64_t)80 << 15);
	put_word(part + 16 + 8 * 2, ruby_string("+"));
	put_word(ruby_names, 7 | 1 << 13 | (uint64_t)1 << 15);
	put_word(ruby_names + 16, part);
	put_word(part + 16 + 8 * 78, ruby_string("map"));
	put_word(ruby_symbol_table, 200);
	memcpy(&body, image.bytes + (frames[1].code + 16 - BASE), 8);
	put_word(body + 32, 39);
	CHECK(!ruby_name(reading(m), layout(), known(), &frames[1], &name) &&
		      strstr(name.function.bytes, "map"),
	      "the 79th of 80 values");
	runtime_memory_free(m);
}

int main(void)
{
	for (ruby_minor = 1; ruby_minor <= 3; ruby_minor += 2) {
		test_stack_has_all_calls();
		test_plan_copies_what_the_stack_needs();
		test_lines_of_all_positions();
		test_symbols_grow();
		test_symbols_are_found_in_code();
		test_hostile_stacks_end();
		test_scopes_of_a_block_are_bounded();
		test_hostile_names_end();
	}
	ruby_minor = 3;
	test_class_whose_name_may_change();
	test_lengths_of_short_arrays_and_strings();
	return check_done();
}

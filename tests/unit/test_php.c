/* tests/unit/test_php.c: tests the reader of PHP's stack and names, with sound and with hostile memory. */
#include "agent/runtime/php.h"

#include "tests/check.h"
#include "tests/php_image.h"

static struct raw_frame frames[16];
static struct raw_name name;

static const struct php_layout *layout(void)
{
	return php_layout_of(4, php_places->minor);
}

static int find(struct runtime_memory *m, struct raw_stack *stack)
{
	*stack = (struct raw_stack){ .frames = frames, .max = 16 };
	return php_stack(m, layout(), php_globals, stack);
}

static bool is(struct runtime_memory *m, const struct raw_frame *frame, const char *function,
	       const char *file, unsigned int line, unsigned int start_line)
{
	return !php_name(reading(m), layout(), frame, &name) &&
	       !strcmp(name.function.bytes, function) && !strcmp(name.file.bytes, file) &&
	       name.line == line && name.start_line == start_line;
}

static void test_stack_has_all_calls(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_php();
	m = image_memory();
	CHECK(!find(m, &stack) && stack.n == 4, "four functions");
	CHECK(is(m, &frames[0], "Cart::{closure}", "/srv/shop.php", 23, 21), "closure");
	CHECK(is(m, &frames[1], "array_map", "", 0, 0), "the interpreter's own");
	CHECK(is(m, &frames[2], "Cart::total", "/srv/shop.php", 21, 20), "method");
	CHECK(is(m, &frames[3], "{main}", "/srv/shop.php", 5, 1), "file");
	CHECK(frames[0].entry && !frames[1].entry && !frames[2].entry && frames[3].entry,
	      "where execute_ex began");
	runtime_memory_free(m);
}

static void test_plan_copies_what_the_stack_needs(void)
{
	static struct plan_execution model;
	struct runtime_memory *m;
	struct raw_stack stack;
	enum plan_end end;
	struct plan plan;

	put_php();
	php_plan(layout(), php_globals, BASE, &plan);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_DONE && !find(m, &stack) && stack.n == 4, "four functions");
	CHECK(is(m, &frames[0], "Cart::{closure}", "/srv/shop.php", 23, 21) && frames[0].owner &&
		      frames[0].entry && is(m, &frames[3], "{main}", "/srv/shop.php", 5, 1),
	      "the same names");
	runtime_memory_free(m);

	put_word(php_calls[4] + 48, php_calls[0]);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_STEPS && find(m, &stack) == -ELOOP, "a cycle ends");
	runtime_memory_free(m);

	put_word(php_globals + 488, 0);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_DONE && model.n == 1 && !find(m, &stack) && !stack.n, "no call");
	runtime_memory_free(m);
}

static void test_operation_of_another_function(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_php();
	put_word(php_calls[0], BASE + 0x10);
	m = image_memory();
	CHECK(!find(m, &stack) && is(m, &frames[0], "Cart::{closure}", "/srv/shop.php", 21, 21),
	      "the function's line stands for it");
	runtime_memory_free(m);
}

/* The next request has another function at the address of one that was read. */
static void test_function_that_took_the_place_of_another(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t string, scope;

	put_php();
	m = image_memory();
	CHECK(!find(m, &stack) && is(m, &frames[2], "Cart::total", "/srv/shop.php", 21, 20),
	      "before");
	memcpy(&string, image.bytes + (frames[2].code + 8 - BASE), 8);
	memcpy(&scope, image.bytes + (frames[2].code + 16 - BASE), 8);
	put_word(frames[2].code + 8, php_string("pay"));
	put_word(scope + 8, php_string("Bill"));
	put(frames[2].code + php_places->line_start, 70, 4);
	put_text(string + 24, "wrong");
	CHECK(!find(m, &stack) && is(m, &frames[2], "Bill::pay", "/srv/shop.php", 21, 70), "after");
	CHECK(is(m, &frames[0], "Cart::{closure}", "/srv/shop.php", 23, 21), "the others");
	put_word(frames[2].code + 8, string);
	CHECK(php_name(reading(m), layout(), &frames[2], &name) == -EBADMSG,
	      "one that came after the sample has another hash");
	runtime_memory_free(m);
}

static void test_hostile_stacks_end(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_php();
	m = image_memory();
	put_word(php_calls[4] + 48, php_calls[3]);
	CHECK(find(m, &stack) == -ELOOP && stack.n >= 4, "a cycle");
	put_word(php_calls[4] + 48, php_calls[4]);
	CHECK(find(m, &stack) == -ELOOP, "a cycle of one");
	put_word(php_calls[4] + 48, BASE - 8);
	CHECK(find(m, &stack) == -EFAULT && stack.n == 4, "no memory: what was found stays");
	put_word(php_calls[4] + 48, UINT64_MAX - 3);
	CHECK(find(m, &stack) == -EFAULT, "the end of all memory");
	put_word(php_calls[4] + 48, 0);
	stack = (struct raw_stack){ .frames = frames, .max = 2 };
	CHECK(php_stack(m, layout(), php_globals, &stack) == -E2BIG && stack.n == 2, "no room");
	CHECK(php_stack(m, layout(), 4, &stack) == -EFAULT, "no globals");
	CHECK(!php_layout_of(4, 99), "a version that is not known");
	runtime_memory_free(m);
}

static void test_hostile_names_end(void)
{
	struct runtime_memory *m;
	struct raw_frame frame;
	struct raw_stack stack;
	uint64_t string;

	put_php();
	m = image_memory();
	CHECK(!find(m, &stack), "stack");
	frame = frames[2];
	put(frame.code, 9, 1);
	CHECK(php_name(reading(m), layout(), &frame, &name) == -EBADMSG, "no function");
	runtime_memory_free(m);

	m = image_memory();
	put(frame.code, 2, 1);
	memcpy(&string, image.bytes + (frame.code + 8 - BASE), 8);
	put_word(string + 16, UINT64_MAX);
	(void)php_name(reading(m), layout(), &frame, &name);
	CHECK(name.function.n <= 2 * RAW_PART_MAX, "a text of 2^64 bytes is cut");
	runtime_memory_free(m);

	m = image_memory();
	frame.code = BASE + IMAGE_SIZE - 4;
	CHECK(php_name(reading(m), layout(), &frame, &name) == -EFAULT, "no memory");
	runtime_memory_free(m);
}

int main(void)
{
	for (size_t i = 0; i < PHP_VERSIONS; i++) {
		php_places = &php_versions[i];
		test_stack_has_all_calls();
		test_plan_copies_what_the_stack_needs();
		test_operation_of_another_function();
		test_function_that_took_the_place_of_another();
		test_hostile_stacks_end();
		test_hostile_names_end();
	}
	return check_done();
}

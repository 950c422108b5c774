/* tests/unit/test_perl.c: tests the reader of Perl's stack and names, with sound and with hostile memory. */
#include "agent/runtime/perl.h"

#include "tests/check.h"
#include "tests/perl_image.h"

static struct raw_frame frames[16];
static struct raw_name name;

static unsigned int version = 36, size = 3768;

static const struct perl_layout *layout(void)
{
	return perl_layout_of(version, size);
}

static int find(struct runtime_memory *m, struct raw_stack *stack)
{
	*stack = (struct raw_stack){ .frames = frames, .max = 16 };
	return perl_stack(m, layout(), perl_interpreter, stack);
}

static bool is(struct runtime_memory *m, const struct raw_frame *frame, const char *function,
	       const char *file, unsigned int line)
{
	return !perl_name(reading(m), layout(), frame, &name) &&
	       !strcmp(name.function.bytes, function) && !strcmp(name.file.bytes, file) &&
	       name.line == line;
}

static void test_stack_has_all_calls(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_perl();
	m = image_memory();
	CHECK(!find(m, &stack) && stack.n == 4, "two calls, an eval, the program");
	CHECK(is(m, &frames[0], "Shop::Order::cmp", "Shop.pm", 5),
	      "a function with a name of its own");
	CHECK(is(m, &frames[1], "Shop::total", "Shop.pm", 9), "a function with a glob");
	CHECK(is(m, &frames[2], "(eval)", "shop.pl", 41), "eval");
	CHECK(is(m, &frames[3], "(main)", "shop.pl", 40), "program");
	CHECK(frames[0].entry && !frames[1].entry && !frames[2].entry && frames[3].entry,
	      "where C code called");
	runtime_memory_free(m);
}

static void test_plan_copies_what_the_stack_needs(void)
{
	static struct plan_execution model;
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t key, thread;
	enum plan_end end;
	struct plan plan;

	put_perl();
	key = take(8);
	put_word(key, UINT64_MAX << 32 | 3); /* the key is an int */
	thread = take(0x900);
	put_word(thread + 0x310 + 3 * 16 + 8, perl_interpreter);
	perl_plan(layout(), key, BASE, &plan);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = thread };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_DONE && model.slices[0].addr == perl_interpreter + 208, "first slice");
	CHECK(!find(m, &stack) && stack.n == 4 &&
		      is(m, &frames[0], "Shop::Order::cmp", "Shop.pm", 5) &&
		      is(m, &frames[3], "(main)", "shop.pl", 40),
	      "the same frames");
	runtime_memory_free(m);

	put(perl_infos[1] + 32, UINT32_MAX, 4);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = thread };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_DONE && !find(m, &stack) && stack.n == 3, "no context");
	runtime_memory_free(m);

	put_word(perl_infos[0] + 16, perl_infos[1]);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = thread };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_STEPS && find(m, &stack) == -ELOOP, "a cycle ends");
	runtime_memory_free(m);

	put_word(thread + 0x310 + 3 * 16 + 8, 0);
	model = (struct plan_execution){ .r[PLAN_BASE] = BASE, .r[PLAN_THREAD] = thread };
	m = planned_memory(&model, &plan, &end);
	CHECK(end == PLAN_DONE && !model.n, "a thread without interpreter");
	runtime_memory_free(m);
}

/* sort calls its block in an evaluation loop of its own, but the block is no function. */
static void test_block_of_sort_only_marks_an_entry(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_perl();
	put(perl_contexts[1], 0 | 0x10, 1);
	m = image_memory();
	CHECK(!find(m, &stack) && stack.n == 4 && frames[0].nameless && frames[0].entry, "a mark");
	CHECK(is(m, &frames[1], "Shop::total", "Shop.pm", 9), "the function around it");
	put(perl_contexts[1], 9 | 0x80, 1);
	CHECK(!find(m, &stack) && stack.n == 3 && is(m, &frames[0], "Shop::total", "Shop.pm", 5),
	      "code in a regular expression belongs to the function that has it");
	runtime_memory_free(m);
}

/* Only the outermost of evals with one JMPENV can have an entry, and the native stack says whether it has. */
static void test_evals_that_catch_in_one_place(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_perl();
	m = image_memory();
	CHECK(!find(m, &stack) && frames[2].within == PERL_TOP_ENV && !frames[2].short_lived,
	      "one");
	put(perl_contexts[0], 11, 1);
	put_word(perl_contexts[0] + 16, perl_cop("shop.pl", 50));
	put_word(perl_contexts[0] + 96, PERL_TOP_ENV);
	CHECK(!find(m, &stack) && stack.n == 5 && !frames[2].within &&
		      frames[3].within == PERL_TOP_ENV,
	      "the outer one of two");
	put_word(perl_contexts[0] + 96, PERL_TOP_ENV + 0x100);
	CHECK(!find(m, &stack) && frames[2].within == PERL_TOP_ENV && frames[3].within,
	      "two places");
	runtime_memory_free(m);
}

/* The statements of a text that eval compiled are gone soon: other statements may be where they were. */
static void test_statements_of_eval_are_read_anew(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_perl();
	put(perl_contexts[0] + 104, 11 | 0x20, 1);
	m = image_memory();
	CHECK(!find(m, &stack) && frames[2].short_lived &&
		      is(m, &frames[2], "(eval)", "shop.pl", 41),
	      "before");
	put(frames[2].at + 36, 77, 4);
	CHECK(is(m, &frames[2], "(eval)", "shop.pl", 77), "another one");
	put(frames[2].at + 32, 0x1ff, 2);
	CHECK(is(m, &frames[2], "(eval)", "", 0), "none");
	runtime_memory_free(m);
}

/* Perl frees a BEGIN block (each `use` is one) when it has run: what called it tells that it was one. */
static void test_begin_blocks_are_named_when_they_are_gone(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	uint64_t cv;

	put_perl();
	cv = perl_function(perl_stash("Shop", false), "BEGIN", true);
	perl_context(perl_contexts[1], 0, 11 | 0x40, perl_cop("Shop.pm", 3), 0, 0);
	perl_context(perl_contexts[1], 1, 9 | 0x20, perl_cop("Shop.pm", 4), 0, cv);
	put(perl_infos[1] + 44, 9, 4);
	m = image_memory();
	CHECK(!find(m, &stack) && stack.n == 5 && is(m, &frames[0], "Shop::BEGIN", "Shop.pm", 5),
	      "still there");
	put(cv + 12, 0xff, 4);
	put(frames[0].at + 32, 0x1ff, 2);
	CHECK(is(m, &frames[0], "BEGIN", "", 0), "gone");
	put(cv + 12, 13, 4);
	perl_context(perl_contexts[1], 1, 9 | 0x20, perl_cop("Shop.pm", 4), 0,
		     perl_function(perl_stash("Shop", false), "total", true));
	CHECK(!find(m, &stack) && is(m, &frames[0], "BEGIN", "", 0), "another function is there");
	put(perl_contexts[1], 11 | 0x20, 1);
	CHECK(!find(m, &stack) && !is(m, &frames[0], "BEGIN", "", 0), "a text that is evaluated");
	put(perl_contexts[1], 11 | 0x40, 1);
	put(perl_infos[1] + 44, 3, 4);
	CHECK(!find(m, &stack) && !is(m, &frames[0], "BEGIN", "", 0), "called by sort");
	runtime_memory_free(m);
}

static void test_hostile_stacks_end(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;

	put_perl();
	m = image_memory();
	put_word(perl_infos[0] + 16, perl_infos[1]);
	CHECK(find(m, &stack) == -ELOOP && stack.n >= 3, "a cycle");
	put_word(perl_infos[0] + 16, BASE - 1);
	CHECK(find(m, &stack) == -EFAULT && stack.n == 3, "no memory: what was found stays");
	put_word(perl_infos[0] + 16, 0);
	put(perl_infos[1] + 32, INT32_MAX, 4);
	CHECK(find(m, &stack) == -EBADMSG && !stack.n, "2^31 contexts");
	put(perl_infos[1] + 32, 0x80000000u, 4);
	CHECK(find(m, &stack) == -EBADMSG, "less than none");
	put(perl_infos[1] + 32, 5000, 4);
	CHECK(find(m, &stack) == -EFAULT && !stack.n, "contexts that are not there");
	put(perl_infos[1] + 32, UINT32_MAX, 4);
	CHECK(!find(m, &stack) && stack.n == 3, "none");
	CHECK(perl_stack(m, layout(), 8, &stack) == -EFAULT, "no interpreter");
	CHECK(!perl_layout_of(36, 3896) && !perl_layout_of(41, 3768),
	      "versions that are not known");
	runtime_memory_free(m);
}

static void test_hostile_names_end(void)
{
	struct runtime_memory *m;
	struct raw_stack stack;
	struct raw_frame frame;

	put_perl();
	m = image_memory();
	CHECK(!find(m, &stack), "stack");
	frame = frames[0];
	frame.code = perl_infos[0];
	CHECK(perl_name(reading(m), layout(), &frame, &name) == -EBADMSG, "no function");
	frame = frames[0];
	frame.at = BASE + IMAGE_SIZE;
	CHECK(perl_name(reading(m), layout(), &frame, &name) == -EFAULT, "no statement");
	runtime_memory_free(m);

	/* A file's name without an end, up to the end of what can be read. */
	m = image_memory();
	frame = frames[0];
	memset(image.bytes + 0x7000, 'x', 0x1000);
	put_word(frame.at + 48, BASE + 0x7000);
	CHECK(!perl_name(reading(m), layout(), &frame, &name) && name.file.n == RAW_PART_MAX,
	      "cut");
	put_word(frame.at + 48, BASE + IMAGE_SIZE - 40);
	runtime_memory_free(m);
	m = image_memory();
	CHECK(!perl_name(reading(m), layout(), &frame, &name) && name.file.n == 40,
	      "as far as it goes");
	runtime_memory_free(m);
}

/* The numbers of statements as opnames.h of each version has them: what is a statement in one is none in others. */
static void test_versions_have_other_statements(void)
{
	static const struct {
		unsigned int version, size, nextstate;
	} versions[] = {
		{ 36, 3768, 195 }, { 38, 3896, 198 }, { 40, 3768, 198 }, { 42, 3768, 202 }
	};
	const size_t n = sizeof(versions) / sizeof(versions[0]);

	for (size_t i = 0; i < n * n; i++) {
		bool same = versions[i / n].nextstate == versions[i % n].nextstate;
		struct runtime_memory *m;
		struct raw_stack stack;

		version = versions[i / n].version;
		size = versions[i / n].size;
		perl_nextstate = versions[i % n].nextstate;
		put_perl();
		m = image_memory();
		CHECK(!find(m, &stack) && stack.n == 4, "frames");
		CHECK(is(m, &frames[0], "Shop::Order::cmp", "Shop.pm", 5) == same, "a line");
		CHECK(is(m, &frames[3], "(main)", "shop.pl", 40) == same, "the program's");
		runtime_memory_free(m);
	}
	version = 36;
	size = 3768;
	perl_nextstate = 195;
}

int main(void)
{
	test_stack_has_all_calls();
	test_plan_copies_what_the_stack_needs();
	test_block_of_sort_only_marks_an_entry();
	test_evals_that_catch_in_one_place();
	test_statements_of_eval_are_read_anew();
	test_begin_blocks_are_named_when_they_are_gone();
	test_versions_have_other_statements();
	test_hostile_stacks_end();
	test_hostile_names_end();
	return check_done();
}

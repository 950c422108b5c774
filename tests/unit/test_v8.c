/*
 * tests/unit/test_v8.c: tests which JavaScript functions are read from V8's heap: names, lines, what is checked, and
 * hostile heaps.
 */
#include "agent/process/v8.h"

#include "schema/calls_blob.h"
#include "tests/check.h"
#include "tests/v8_heap.h"

static struct calls *calls;

static int look(struct v8 *v, uint64_t pc, uint64_t fp, uint64_t now)
{
	struct uw_regs regs = { .known = 0 };
	struct calls_sample sample = { .regs = &regs,
				       .addr = STACK,
				       .stack = (void *)words,
				       .size = sizeof(words),
				       .now = now };
	const void *bytes;
	size_t size;
	int err;

	regs.value[UW_X86_64_RIP] = pc;
	regs.value[UW_X86_64_RBP] = fp;
	err = v8_calls(v, read_heap, NULL, &sample, &bytes, &size);
	if (!err)
		CHECK(calls_are(bytes, size) && calls_take(&calls, bytes, size) == 0, "sound");
	return err;
}

static bool is(uint64_t key, uint64_t kind, const char *function_name, const char *file,
	       uint32_t line)
{
	struct call found;

	return calls && calls_find(calls, key, kind, &found, 1) == 1 &&
	       !strcmp(found.function, function_name) && found.file && !strcmp(found.file, file) &&
	       found.line == line && found.start_line == line;
}

static bool knows(uint64_t key, uint64_t kind)
{
	struct call found;

	return calls && calls_find(calls, key, kind, &found, 1) != 0;
}

static void test_functions(void)
{
	uint64_t source, empty, none, wide, outside, at;
	struct function plain, anonymous, method, locals;
	struct v8 *v = NULL;

	begin();
	empty = text("");
	none = object(131, 4);
	source = text("one\ntwo\nthree\nfour\n");
	at = script("file:///srv/app.js", source);
	plain = function(at, text("plain"), none, 0, 5);
	anonymous = function(at, empty, none, 0, 0);
	method = function(at, empty, joined(joined(text("Mod"), text("ule."), 7), text("load"), 11),
			  0, 9);
	/* Two bytes a character, in a place of its own. */
	wide = take(16);
	put(wide, 'a' | (uint64_t)0xf6 << 16 | (uint64_t)'\n' << 32 | (uint64_t)0x20ac << 48, 8);
	outside = object(2, 4);
	put(outside - 1 + 12, 4, 4);
	set(outside, 24, wide);
	locals = function(script("/wide.js", outside), outside, none, 3, 3);

	CHECK(v8_new(exports, &v) == 0 && v8_is_of(v, exports), "new");
	memset(words, 0, sizeof(words));
	put_frame(20, &plain, plain.bytecode, 30, 0x1234);
	put_frame(30, &anonymous, anonymous.bytecode, 40, method.pc);
	put_frame(40, &method, 0, 50, 0x1234); /* optimized */
	put_frame(50, &locals, locals.bytecode, 60, 0x1234);
	CHECK(look(v, 0x1234, STACK + 8 * 20, 1) == 0, "there is news");
	CHECK(is(plain.bytecode, V8_KEY_BYTECODE, "plain", "/srv/app.js", 2),
	      "a name, and the second line");
	CHECK(is(anonymous.bytecode, V8_KEY_BYTECODE, "(anonymous)", "/srv/app.js", 1), "no name");
	CHECK(is(method.pc, V8_KEY_PC, "Module.load", "/srv/app.js", 3),
	      "optimized; an inferred name of parts");
	CHECK(is(locals.bytecode, V8_KEY_BYTECODE, "a\xc3\xb6\n\xe2\x82\xac", "/wide.js", 2),
	      "two bytes, outside of the heap, behind names of locals");
	CHECK(calls_interpreter_of(calls)->runtime == CALLS_V8 &&
		      calls_interpreter_of(calls)->slots[0] == -2 &&
		      calls_interpreter_of(calls)->slots[1] == -4,
	      "the slots");
	heap.reads = 0;
	CHECK(look(v, 0x1234, STACK + 8 * 20, 2) == -EAGAIN && !heap.reads,
	      "nothing is read again");
	CHECK(look(v, 0x1234, STACK + 8 * 20, 2000000000) == 0, "but after a second");

	/* The function has another bytecode now: the word belongs to another function. */
	set(plain.shared, 8, method.bytecode);
	calls_free(calls);
	calls = NULL;
	v8_free(v);
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, 0x1234, STACK + 8 * 20, 3);
	CHECK(!knows(plain.bytecode, V8_KEY_BYTECODE) && knows(anonymous.bytecode, V8_KEY_BYTECODE),
	      "a function with another bytecode");
	/* It has baseline code, which leads to its bytecode; not that of another function. */
	at = object(245, 8);
	set(plain.shared, 8, at);
	for (unsigned int i = 0; i < 2; i++) {
		set(at, 16, i ? plain.bytecode : method.bytecode);
		calls_free(calls);
		calls = NULL;
		v8_free(v);
		CHECK(v8_new(exports, &v) == 0, "new");
		(void)look(v, 0x1234, STACK + 8 * 20, 3);
		CHECK(knows(plain.bytecode, V8_KEY_BYTECODE) == (i == 1), "baseline code");
	}
	/* No object of that type is there any more. */
	put(anonymous.shared - 1, 0, 8);
	calls_free(calls);
	calls = NULL;
	v8_free(v);
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, 0x1234, STACK + 8 * 20, 3);
	CHECK(!knows(anonymous.bytecode, V8_KEY_BYTECODE) && knows(method.pc, V8_KEY_PC),
	      "a moved object");
	heap.reads = 0;
	(void)look(v, 0x1234, STACK + 8 * 20, 4);
	CHECK(!heap.reads, "it is not looked at again at once");
	(void)look(v, 0x1234, STACK + 8 * 20, 2000004);
	CHECK(heap.reads, "but soon");
	heap.reads = 0;
	(void)look(v, 0x1234, STACK + 8 * 20, 4000003);
	CHECK(!heap.reads, "and then later than before");
	CHECK(v8_memory_of(v) > 10000 && v8_memory_of(v) < 4000000, "memory");
	v8_free(v);
	calls_free(calls);
	calls = NULL;

	/* Without streams, as in node 18, the context tells. */
	exports[V8_TYPE_STREAM] = 0;
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, 0x1234, STACK + 8 * 20, 3);
	CHECK(is(method.pc, V8_KEY_PC, "Module.load", "/srv/app.js", 3), "by its context");
	v8_free(v);
	calls_free(calls);
	calls = NULL;
	set(method.function, 32, plain.context);
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, 0x1234, STACK + 8 * 20, 3);
	CHECK(!knows(method.pc, V8_KEY_PC), "another context");
	set(method.context, 16 + 8 * 1, plain.context);
	(void)look(v, 0x1234, STACK + 8 * 20, 3000000000);
	CHECK(knows(method.pc, V8_KEY_PC), "a context of its own, within that one");
	v8_free(v);
	calls_free(calls);
	calls = NULL;

	exports[V8_FP_FUNCTION] = 0;
	CHECK(v8_new(exports, &v) == -ENOTSUP, "a number that is needed is missing");
	begin();
	put(exports[V8_TAGGED_SIZE], 4, 4);
	CHECK(v8_new(exports, &v) == 0 && look(v, 0, 0, 1) == -ENOENT, "compressed pointers");
	v8_free(v);
}

static uint64_t seed = 7;

static uint64_t any(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static void test_harm(void)
{
	static const uint64_t bad[] = {
		0, 1, UINT64_MAX, INT64_MAX, (uint64_t)INT32_MAX << 32, BASE + 1
	};
	unsigned int good = 0;

	for (unsigned int i = 0; i < 2000; i++) {
		struct function f, g;
		struct v8 *v = NULL;
		uint64_t at;

		begin();
		at = script("/app.js", text("a\nb\nc\n"));
		f = function(at, joined(text("x"), text("y"), 2), object(131, 4), 2, 3);
		g = function(at, text("g"), object(131, 4), 0, 1);
		memset(words, 0, sizeof(words));
		put_frame(20, &f, f.bytecode, 40, g.pc);
		put_frame(40, &g, 0, 60, 0x1234);
		for (unsigned int k = (unsigned int)(any() % 8); k-- > 0;) {
			uint64_t where = BASE + (any() % heap.used & ~7ull);

			if (any() % 2)
				put(where, bad[any() % 6], 8);
			else
				put(where, BASE + any() % heap.used, 8);
		}
		if (v8_new(exports, &v))
			continue;
		for (unsigned int k = 0; k < 2; k++) {
			heap.reads = 0;
			heap.reads_max = i % 3 ? 100000 : 8;
			good += !look(v, f.pc, STACK + 8 * 20, 1 + k * UINT64_C(5000000000));
		}
		v8_free(v);
		calls_free(calls);
		calls = NULL;
	}
	CHECK(good > 500, "much of it could be read");
}

int main(void)
{
	test_functions();
	test_harm();
	return check_done();
}

/*
 * tests/unit/test_v8.c: tests which JavaScript functions are read from V8's heap: names, lines, what is checked, and
 * hostile heaps.
 */
#include "agent/process/v8.h"

#include "schema/calls_blob.h"
#include "tests/check.h"
#include "tests/v8_heap.h"

static struct calls *calls;

static struct uw_regs regs;

static int look(struct v8 *v, uint64_t pc, uint64_t fp, uint64_t now)
{
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

	/* Without streams, and of a version that is not known, the context tells. */
	exports[V8_TYPE_STREAM] = 0;
	exports[V8_MAJOR] = 0;
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

/* Return whether call i of n of a frame is this one. */
static bool has(uint64_t key, uint64_t kind, size_t i, size_t n, const char *function_name,
		uint32_t line)
{
	struct call found[4];

	return calls && calls_find(calls, key, kind, found, 4) == n && i < n &&
	       !strcmp(found[i].function, function_name) && found[i].line == line;
}

/* Forget all, and look at the stack of a function whose optimized code runs. */
static void look_again(uint64_t pc)
{
	struct v8 *v = NULL;

	calls_free(calls);
	calls = NULL;
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, pc, STACK + 8 * 20, 1);
	v8_free(v);
}

static void test_inlined(void)
{
	/* Place 0, three times, each 2^62 - 1 behind the position before it. */
	static const uint8_t far_positions[] = {
		2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
		0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
		0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
	};
	uint64_t none, at, key;
	struct function outer, inner, own;

	begin();
	none = object(131, 4);
	at = script("/app.js", text("one\ntwo\nthree\nfour\n"));
	outer = function(at, text("outer"), none, 0, 0);
	inner = function(at, text("inner"), none, 0, 4);
	inline_into(&outer, &inner, translations, sizeof(translations));
	set_exit(&outer, 0, 5, 0, UINT32_MAX);
	set_exit(&outer, 1, 7, 0, 284);
	set_exit(&outer, 2, 5, 19, 300);
	memset(words, 0, sizeof(words));
	put_frame(20, &outer, 0, 30, 0x1234);

	look_again(outer.pc);
	CHECK(has(outer.pc, V8_KEY_INTERRUPTED, 0, 2, "inner", 2) &&
		      has(outer.pc, V8_KEY_INTERRUPTED, 1, 2, "outer", 1),
	      "an inlined call, without positions");
	set(inner.bytecode, 32, bytes(positions, sizeof(positions)));
	set(outer.bytecode, 32, bytes(positions, sizeof(positions)));
	look_again(outer.pc);
	CHECK(has(outer.pc, V8_KEY_INTERRUPTED, 0, 2, "inner", 3) &&
		      has(outer.pc, V8_KEY_INTERRUPTED, 1, 2, "outer", 2),
	      "with positions");
	look_again(outer.pc - 284 + 360 + 4);
	CHECK(has(outer.pc - 284 + 360 + 4, V8_KEY_INTERRUPTED, 0, 2, "inner", 3),
	      "a return address that was replaced");
	look_again(outer.pc + 4);
	CHECK(has(outer.pc + 4, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "no return address");
	look_again(outer.pc + 200);
	CHECK(!knows(outer.pc + 200, V8_KEY_INTERRUPTED), "beyond the code");

	/* One of V8's own functions, which has a name only. */
	own = function(at, none, none, 0, 0);
	set(own.shared, 16, text("map"));
	inline_into(&outer, &own, translations, sizeof(translations));
	look_again(outer.pc + 16);
	CHECK(has(outer.pc + 16, V8_KEY_INTERRUPTED, 0, 2, "map", 0) &&
		      has(outer.pc + 16, V8_KEY_INTERRUPTED, 1, 2, "outer", 2),
	      "a translation that begins as another one");

	/* What does not fit is not believed: the function of the code is left. */
	inline_into(&outer, &inner, translations, sizeof(translations));
	set_exit(&outer, 1, 8, 0, 284);
	look_again(outer.pc);
	CHECK(has(outer.pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "another place in the exit");
	set_exit(&outer, 1, 7, 1, 284);
	look_again(outer.pc);
	CHECK(has(outer.pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "no beginning of a translation");
	set_exit(&outer, 1, 7, 0, 284);
	inline_into(&inner, &outer, translations, sizeof(translations));
	set(outer.data, 16 + 8 * 2, inner.data);
	look_again(outer.pc);
	CHECK(has(outer.pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "other literals");

	/* Interpreted code: each place has a line. */
	put_frame(20, &inner, inner.bytecode, 30, 0x1234);
	words[15] = small(53 + 7);
	key = v8_key_at(words[15]);
	look_again(0x1234);
	CHECK(has(inner.bytecode, V8_KEY_BYTECODE, 0, 1, "inner", 2) &&
		      has(inner.bytecode, key, 0, 1, "inner", 3),
	      "a place in bytecode");
	set(inner.bytecode, 32, bytes(far_positions, sizeof(far_positions)));
	look_again(0x1234);
	CHECK(has(inner.bytecode, key, 0, 1, "inner", 2), "positions whose sum is too large");
	set(inner.bytecode, 32, none);
	look_again(0x1234);
	CHECK(has(inner.bytecode, V8_KEY_BYTECODE, 0, 1, "inner", 2) && !knows(inner.bytecode, key),
	      "without positions");
	CHECK(!v8_key_at(inner.bytecode) && v8_key_at(small(1)) != v8_key_at(small(2)),
	      "what is no place");
}

/* Where optimized code is no call that V8 can leave the code after, the table of its positions tells the place. */
static void test_positions_of_code(void)
{
	static const struct entry entries[] = {
		{ 0, 0, 0 }, { 286, 9, 1 }, { 296, 8, 0 }, { 300, 20, 0 }
	};
	static const struct entry wrong[] = { { 0, 9, 2 } };
	struct function outer, inner;
	uint64_t at, pc;

	begin();
	at = script("/app.js", text("one\ntwo\nthree\nfour\n"));
	outer = function(at, text("outer"), object(131, 4), 0, 0);
	inner = function(at, text("inner"), object(131, 4), 0, 4);
	inline_into(&outer, &inner, translations, sizeof(translations));
	set_exit(&outer, 1, 7, 0, 284);
	set_exit(&outer, 2, 5, 19, 300);
	set_positions(&outer, entries, 4, 5);
	memset(words, 0, sizeof(words));
	put_frame(20, &outer, 0, 30, 0x1234);
	for (pc = outer.pc + 2; pc < outer.pc + 12; pc++) {
		look_again(pc);
		CHECK(has(pc, V8_KEY_INTERRUPTED, 0, 2, "inner", 3) &&
			      has(pc, V8_KEY_INTERRUPTED, 1, 2, "outer", 2),
		      "within the function that was inlined");
	}
	look_again(outer.pc + 1);
	CHECK(has(outer.pc + 1, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "before it");
	look_again(pc);
	CHECK(has(pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 3), "behind it");
	look_again(outer.pc + 17);
	CHECK(has(outer.pc + 17, V8_KEY_INTERRUPTED, 0, 1, "outer", 1),
	      "a position outside of the function");

	/* The call before a return address is what counts. */
	put_frame(20, &inner, inner.bytecode, 30, pc);
	put_frame(30, &outer, 0, 40, 0x1234);
	look_again(0x1234);
	CHECK(has(pc, V8_KEY_PC, 0, 2, "inner", 3) && has(pc, V8_KEY_PC, 1, 2, "outer", 2) &&
		      !knows(pc, V8_KEY_INTERRUPTED),
	      "a call after which the code is never left");

	put_frame(20, &outer, 0, 30, 0x1234);
	set_positions(&outer, wrong, 1, 5);
	look_again(pc);
	CHECK(has(pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "no such function was inlined");
	set_positions(&outer, entries, 0, 5);
	look_again(pc);
	CHECK(has(pc, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "no positions");
	calls_free(calls);
	calls = NULL;
}

static void test_source_that_cannot_be_read(void)
{
	uint64_t none, source;
	struct function f;

	begin();
	none = object(131, 4);
	source = object(2 | 8, 4);
	put(source - 1 + 12, 40, 4);
	set(source, 24, BASE + sizeof(heap.bytes)); /* where there is nothing */
	f = function(script("/app.js", source), text("f"), none, 0, 7);
	memset(words, 0, sizeof(words));
	put_frame(20, &f, f.bytecode, 30, 0x1234);
	look_again(0x1234);
	CHECK(is(f.bytecode, V8_KEY_BYTECODE, "f", "/app.js", 0), "no line");
}

static void test_baseline(void)
{
	static const struct {
		uint64_t off;
		uint32_t line; /* of place 2 at most: 2; from place 6 on: 3 */
	} places[] = { { 20, 2 }, { 21, 2 }, { 230, 2 }, { 231, 3 }, { 265, 3 } };
	struct function f;
	uint64_t start, at;

	begin();
	at = script("/app.js", text("one\ntwo\nthree\nfour\n"));
	f = function(at, text("f"), object(131, 4), 0, 4);
	start = baseline(&f);
	memset(words, 0, sizeof(words));
	put_frame(20, &f, f.bytecode, 30, 0x1234);
	words[15] = feedback(&f);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		at = start + places[i].off;
		look_again(at);
		CHECK(has(f.bytecode, V8_KEY_BYTECODE, 0, 1, "f", 2) &&
			      has(at, V8_KEY_BASELINE, 0, 1, "f", places[i].line) &&
			      !knows(at, V8_KEY_PC) && !knows(at, V8_KEY_INTERRUPTED),
		      "a place in code");
	}
	look_again(start + 266);
	CHECK(has(f.bytecode, V8_KEY_BYTECODE, 0, 1, "f", 2) &&
		      !knows(start + 266, V8_KEY_BASELINE),
	      "behind the last place");
	put(f.bytecode - 1 + 54, 255, 1);
	look_again(start + 231);
	CHECK(!knows(start + 231, V8_KEY_BASELINE), "no operation");
	calls_free(calls);
	calls = NULL;
}

/* The registers of interpreted code: where in its bytecode it is, and the table of the code for operations. */
static void set_registers(const struct function *f, uint64_t place, uint64_t table)
{
	regs.value[UW_X86_64_R9] = 53 + place;
	regs.value[UW_X86_64_R12] = f->bytecode;
	regs.value[UW_X86_64_R15] = table;
	regs.value[UW_X86_64_RSP] = STACK + 8 * 4;
}

static void test_interrupted(void)
{
	static const struct {
		uint64_t place, at; /* in the code for operations */
		uint32_t line;	    /* of place 2 at most: 2; from place 6 on: 3; 0: not known */
	} places[] = {
		{ 0, 4, 2 },   { 1, 4, 0 }, { 2, 128, 2 },     { 3, 191, 2 }, { 4, 128, 0 },
		{ 6, 64, 3 },  { 7, 4, 3 }, { 7, 127, 3 },     { 6, 4, 0 },   { 6, 140, 2 },
		{ 7, 140, 0 }, { 9, 4, 0 }, { 1 << 30, 4, 0 },
	};
	const uint64_t stale = small(53 + 7);
	struct function f, g;
	struct v8 *v = NULL;
	uint64_t at, table;

	begin();
	at = script("/app.js", text("one\ntwo\nthree\nfour\n"));
	f = function(at, text("f"), object(131, 4), 0, 4);
	g = function(at, text("g"), object(131, 4), 0, 0);
	(void)baseline(&f);
	table = handlers();
	memset(words, 0, sizeof(words));
	put_frame(20, &f, f.bytecode, 30, 0x1234);
	put_frame(30, &g, g.bytecode, 40, 0x1234);
	words[15] = stale;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t pc = HANDLERS + places[i].at,
			 key = v8_key_here(small(53 + places[i].place), pc);

		set_registers(&f, places[i].place, table);
		look_again(pc);
		CHECK(places[i].line ? has(f.bytecode, key, 0, 1, "f", places[i].line)
				     : !knows(f.bytecode, key),
		      "where an operation was interrupted");
	}

	/* The code for the operation has a frame; below are those that it called before. */
	words[5] = words[10] = STACK + 8 * 20;
	words[6] = HANDLERS + 70;
	words[11] = 0x1234;
	set_registers(&f, 0, table);
	CHECK(v8_new(exports, &v) == 0, "new");
	(void)look(v, HANDLERS + 4, STACK + 8 * 10, 1);
	CHECK(has(f.bytecode, v8_key_here(small(53), HANDLERS + 4), 0, 1, "f", 2),
	      "code with a frame");
	/* It has called something else, and has stored its place. */
	words[5] = STACK + 8 * 10;
	words[6] = HANDLERS + 64; /* behind its end */
	set_registers(&g, 0, 0);
	(void)look(v, 0x1234, STACK + 8 * 5, 2);
	CHECK(has(f.bytecode, v8_key_here(stale, HANDLERS + 64), 0, 1, "f", 3),
	      "a call of something else");
	words[6] = HANDLERS + 66;
	(void)look(v, 0x1234, STACK + 8 * 5, 3);
	CHECK(!knows(f.bytecode, v8_key_here(stale, HANDLERS + 66)), "another operation's code");
	v8_free(v);

	words[5] = words[6] = words[10] = words[11] = 0;
	set_registers(&g, 0, table);
	look_again(HANDLERS + 4);
	CHECK(!v8_place_now(&regs, f.bytecode) && v8_place_now(&regs, g.bytecode) == small(53) &&
		      !knows(f.bytecode, v8_key_here(small(53), HANDLERS + 4)),
	      "another function's registers");
	put(table + 8 * 200, HANDLERS + 0x10000000, 8);
	set_registers(&f, 0, table);
	look_again(HANDLERS + 4);
	CHECK(!knows(f.bytecode, v8_key_here(small(53), HANDLERS + 4)), "no table");
	set_registers(&f, 0, 0x1000);
	look_again(HANDLERS + 4);
	CHECK(!knows(f.bytecode, v8_key_here(small(53), HANDLERS + 4)) &&
		      has(f.bytecode, V8_KEY_BYTECODE, 0, 1, "f", 2),
	      "a table that cannot be read");
	regs = (struct uw_regs){ .known = 0 };
	calls_free(calls);
	calls = NULL;
}

/* Look at the same stack each ms, until what cannot be read is taken to last. */
static void look_for_long(struct v8 *v, uint64_t from)
{
	for (uint64_t now = from; now < from + 400000000; now += 1000000)
		(void)look(v, 0x1234, STACK + 8 * 20, now);
}

/* As V8 10.2 has it: code is in its Code, and all of a translation are signed numbers. */
static void test_inlined_before_streams(void)
{
	static const uint8_t old[] = { 6,  4,  4, 0,	   /* 2 frames, 2 of functions */
				       36, 10, 0, 2, 0, 0, /* place 5 of the first function */
				       44, 0,		   /* a literal */
				       36, 14, 2, 2, 0, 2 };
	struct function outer, inner;
	uint64_t none, at, code, back, map;
	struct v8 *v = NULL;

	begin();
	put(exports[V8_MAJOR], 10, 4);
	put(exports[V8_MINOR], 2, 4);
	exports[V8_TYPE_STREAM] = exports[V8_CODE_DEOPT] = exports[V8_DEOPT_SHARED] = 0;
	none = object(131, 4);
	at = script("/app.js", text("one\ntwo\n"));
	outer = function(at, text("outer"), none, 0, 0);
	inner = function(at, text("inner"), none, 0, 4);
	inline_into(&outer, &inner, old, sizeof(old));
	set_exit(&outer, 0, 5, 0, UINT32_MAX);
	set_exit(&outer, 1, 7, 0, 284);
	set_exit(&outer, 2, 7, 0, 300);
	code = object(245, 64);
	set(code, 16, outer.data);
	put(code - 1 + 40, 384, 4);
	memset(words, 0, sizeof(words));
	put_frame(20, &outer, 0, 30, 0x1234);
	back = code - 1 + 128 + 284;
	look_again(back);
	CHECK(has(back, V8_KEY_INTERRUPTED, 0, 2, "inner", 2) &&
		      has(back, V8_KEY_INTERRUPTED, 1, 2, "outer", 1),
	      "an inlined call");
	look_again(code - 1 + 128 + 290);
	CHECK(has(code - 1 + 128 + 290, V8_KEY_INTERRUPTED, 0, 1, "outer", 1), "no return address");
	calls_free(calls);
	calls = NULL;

	/* What was read in the middle of a change is read again soon. */
	put_frame(20, &inner, inner.bytecode, 30, back);
	put_frame(30, &outer, 0, 40, 0x1234);
	CHECK(v8_new(exports, &v) == 0, "new");
	set_exit(&outer, 1, 8, 0, 284);
	(void)look(v, 0x1234, STACK + 8 * 20, 1);
	CHECK(has(back, V8_KEY_PC, 0, 1, "outer", 1), "the code's function");
	set_exit(&outer, 1, 7, 0, 284);
	heap.reads = 0;
	CHECK(look(v, 0x1234, STACK + 8 * 20, 2) == -EAGAIN && !heap.reads, "not at once");
	(void)look(v, 0x1234, STACK + 8 * 20, 2000002);
	CHECK(has(back, V8_KEY_PC, 0, 2, "inner", 2), "but after 2 ms");
	CHECK(look(v, 0x1234, STACK + 8 * 20, 900000000) == -EAGAIN,
	      "and then as late as all that is known");
	/* What is known is not replaced by less, unless that lasts. */
	set_exit(&outer, 1, 8, 0, 284);
	(void)look(v, 0x1234, STACK + 8 * 20, 1002000002);
	CHECK(has(back, V8_KEY_PC, 0, 2, "inner", 2), "another change");
	look_for_long(v, 1002000002);
	CHECK(has(back, V8_KEY_PC, 0, 1, "outer", 1), "which lasts");
	set_exit(&outer, 1, 7, 0, 284);
	(void)look(v, 0x1234, STACK + 8 * 20, 1500000000);
	CHECK(has(back, V8_KEY_PC, 0, 2, "inner", 2), "read again soon, too");
	v8_free(v);
	calls_free(calls);
	calls = NULL;

	/* While the function of an inlined call cannot be read, the frame has no name, unless that lasts. */
	CHECK(v8_new(exports, &v) == 0, "new");
	memcpy(&map, heap.bytes + (inner.shared - 1 - BASE), 8);
	put(inner.shared - 1, map + 64, 8);
	(void)look(v, 0x1234, STACK + 8 * 20, 1);
	CHECK(!knows(back, V8_KEY_PC), "no name without that of the inlined call");
	put(inner.shared - 1, map, 8);
	(void)look(v, 0x1234, STACK + 8 * 20, 2000002);
	CHECK(has(back, V8_KEY_PC, 0, 2, "inner", 2), "after 2 ms");
	v8_free(v);
	calls_free(calls);
	calls = NULL;
	CHECK(v8_new(exports, &v) == 0, "new");
	put(inner.shared - 1, map + 64, 8);
	look_for_long(v, 1);
	CHECK(has(back, V8_KEY_PC, 0, 1, "outer", 1), "the code's function");
	v8_free(v);
	calls_free(calls);
	calls = NULL;
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
		inline_into(&g, &f, translations, sizeof(translations));
		set_exit(&g, 1, 7, 0, 284);
		set_exit(&g, 2, 5, 19, 300);
		put_frame(20, &f, f.bytecode, 40, g.pc + 16 * (i % 2));
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
			set_registers(&f, any() % 16, k ? BASE + (any() % 8) * 8 : any());
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
	test_inlined();
	test_positions_of_code();
	test_inlined_before_streams();
	test_source_that_cannot_be_read();
	test_baseline();
	test_interrupted();
	test_harm();
	return check_done();
}

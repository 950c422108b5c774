/*
 * tests/v8_heap.h: the memory of a small V8: a function in a script, its bytecode and its optimized code, and a
 * stack that runs both. One file includes this header.
 */
#ifndef TESTS_V8_HEAP_H
#define TESTS_V8_HEAP_H

#include "agent/process/v8.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define BASE 0x7f0000000000u

static struct {
	uint8_t bytes[0x8000];
	size_t used;
	unsigned int reads, reads_max;
} heap;

static int read_heap(void *ctx, uint64_t addr, void *out, size_t size)
{
	(void)ctx;
	if (heap.reads++ >= heap.reads_max)
		return -ETIME;
	if (addr < BASE || size > sizeof(heap.bytes) || addr - BASE > sizeof(heap.bytes) - size)
		return -EFAULT;
	memcpy(out, heap.bytes + (addr - BASE), size);
	return 0;
}

static void put(uint64_t addr, uint64_t value, unsigned int size)
{
	memcpy(heap.bytes + (addr - BASE), &value, size);
}

/* node 20's numbers; those of the objects' fields are of node 18, too. */
static const int32_t values[V8_VALUES] = {
	[V8_TAGGED_SIZE] = 8,
	[V8_FP_CONTEXT] = -8,
	[V8_FP_FUNCTION] = -16,
	[V8_FP_BYTECODE] = -32,
	[V8_FUNCTION_CONTEXT] = 32,
	[V8_FUNCTION_SHARED] = 24,
	[V8_SHARED_NAME] = 16,
	[V8_SHARED_DATA] = 8,
	[V8_SHARED_SCRIPT] = 32,
	[V8_SCRIPT_NAME] = 16,
	[V8_SCRIPT_SOURCE] = 8,
	[V8_MAP_TYPE] = 12,
	[V8_STRING_LENGTH] = 12,
	[V8_STRING_CHARS] = 16,
	[V8_CONS_FIRST] = 16,
	[V8_CONS_SECOND] = 24,
	[V8_THIN_ACTUAL] = 16,
	[V8_SLICED_PARENT] = 16,
	[V8_SLICED_OFFSET] = 24,
	[V8_EXTERNAL_RESOURCE] = 16,
	[V8_TYPE_SHARED] = 262,
	[V8_TYPE_SCOPE] = 261,
	[V8_TYPE_SCRIPT] = 167,
	[V8_TYPE_BYTECODE] = 191,
	[V8_TYPE_NO_STRING] = 128,
	[V8_SCOPE_LOCALS] = 2,
	[V8_SCOPE_FIRST] = 3,
	[V8_CONTEXT_PREVIOUS] = 1,
	[V8_TYPE_STREAM] = 252,
	[V8_TYPE_CODE] = 245,
	[V8_CODE_DEOPT] = 16,
	[V8_ARRAY_DATA] = 16,
	[V8_DEOPT_SHARED] = 6,
	[V8_CODE_BYTECODE] = 16,
	[V8_MAJOR] = 11,
	[V8_MINOR] = 3,
	[V8_STREAM_START] = 16,
	[V8_CODE_START] = 128,
	[V8_BYTECODE_DATA] = 54,
	[V8_TYPE_BYTES] = 190,
};

static uint64_t exports[V8_VALUES];

static uint64_t take(size_t size)
{
	uint64_t at = BASE + heap.used;

	heap.used += (size + 15) & ~(size_t)15;
	return at;
}

/* Make an object of a type with so many words, with its map; return it tagged. */
static uint64_t object(int type, unsigned int words)
{
	uint64_t map = take(16), at = take(8 * (size_t)words);

	put(map + 12, (uint64_t)type, 2);
	put(at, map + 1, 8);
	return at + 1;
}

static void set(uint64_t of, int off, uint64_t value)
{
	put(of - 1 + (uint64_t)off, value, 8);
}

static uint64_t small(uint64_t value)
{
	return value << 32;
}

/* Kinds of strings: see enum in agent/process/v8.c. */
static uint64_t text(const char *s)
{
	uint64_t at = object(8, 2 + (unsigned int)strlen(s) / 8 + 1);

	put(at - 1 + 12, strlen(s), 4);
	memcpy(heap.bytes + (at - 1 + 16 - BASE), s, strlen(s));
	return at;
}

static uint64_t joined(uint64_t a, uint64_t b, unsigned int length)
{
	uint64_t at = object(1 | 8, 4);

	put(at - 1 + 12, length, 4);
	set(at, 16, a);
	set(at, 24, b);
	return at;
}

#define DATA_WORDS (11 + 3 * 3) /* of a DeoptimizationData with three exits */

/* A function that begins at a position of a script. */
struct function {
	uint64_t function, shared, scope, bytecode, context, code, data, pc;
};

static uint64_t script(const char *name, uint64_t source)
{
	uint64_t at = object(167, 8);

	set(at, 16, text(name));
	set(at, 8, source);
	return at;
}

/* locals: how many its context has; the ScopeInfo has their names first. */
static struct function function(uint64_t of, uint64_t name, uint64_t inferred, unsigned int locals,
				unsigned int start)
{
	struct function f = { .function = object(2066, 8),
			      .shared = object(262, 8),
			      .scope = object(261, 16 + 2 * locals),
			      .bytecode = object(191, 8),
			      .context = object(300, 4) };
	uint64_t code = object(245, 8);
	int at = 8 + 8 * 3;

	set(f.function, 24, f.shared);
	set(f.function, 32, f.context);
	set(f.shared, 8, f.bytecode);
	set(f.shared, 16, f.scope);
	set(f.shared, 32, of);
	set(f.scope, 8 + 8 * 2, small(locals));
	for (unsigned int i = 0; i < locals; i++) {
		set(f.scope, at + 8 * (int)i, text("local"));
		set(f.scope, at + 8 * (int)(locals + i), small(7));
	}
	at += 16 * (int)locals;
	set(f.scope, at, name);
	set(f.scope, at + 8, small(UINT32_MAX));
	set(f.scope, at + 16, inferred);
	set(f.scope, at + 24, small(start));
	set(f.scope, at + 32, small(start + 10));
	f.code = object(252, 64);
	set(f.code, 8, code);
	f.data = object(175, 2 + DATA_WORDS);
	set(code, 16, f.data);
	put(code - 1 + 56, 400, 4);
	set(f.data, 16 + 8 * 6, f.shared);
	f.pc = f.code - 1 + 300;
	return f;
}

/* ---- what was inlined ---- */

static uint64_t bytes(const uint8_t *from, unsigned int n)
{
	uint64_t at = object(190, 3 + n / 8);

	set(at, 8, small(n));
	memcpy(heap.bytes + (at - 1 + 16 - BASE), from, n);
	return at;
}

/* Let optimized code have inlined another function, so that its translations can name both: as elements 0 and 1. */
static void inline_into(const struct function *f, const struct function *inlined,
			const uint8_t *translations, unsigned int n)
{
	uint64_t literals = object(240, 4);

	set(literals, 8, small(2));
	set(literals, 16, f->shared);
	set(literals, 24, inlined->shared);
	set(f->data, 8, small(DATA_WORDS));
	set(f->data, 16, bytes(translations, n));
	set(f->data, 16 + 8 * 2, literals);
	set(f->data, 16 + 8 * 8, small(360)); /* where the exits begin */
	set(f->data, 16 + 8 * 9, small(1));   /* of a check, and of two calls */
	set(f->data, 16 + 8 * 10, small(2));
}

/* Set an exit: the innermost place in bytecode, its translation, the return address. */
static void set_exit(const struct function *f, int i, uint32_t place, uint32_t translation,
		     uint32_t off)
{
	set(f->data, 16 + 8 * (11 + 3 * i), small(place));
	set(f->data, 16 + 8 * (11 + 3 * i + 1), small(translation));
	set(f->data, 16 + 8 * (11 + 3 * i + 2), small(off));
}

/* An entry of a table of positions of code. */
struct entry {
	uint32_t off, position,
		inlined; /* inlined: 0, or which function that was inlined, plus 1 */
};

static void put_number(uint8_t *to, unsigned int *n, int64_t value)
{
	uint64_t left = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);

	for (; left > 127; left >>= 7)
		to[(*n)++] = (uint8_t)(0x80 | left);
	to[(*n)++] = (uint8_t)left;
}

/* As V8's SourcePosition. */
static uint64_t position_word(const struct entry *e)
{
	return (uint64_t)(e->position + 1) << 1 | (uint64_t)e->inlined << 31;
}

/*
 * Give a function's code a table of positions (src/codegen/source-position-table.cc), whose offsets are from its first
 * instruction, and the function that was inlined: element 1 of the literals, called at a position.
 */
static void set_positions(const struct function *f, const struct entry *entries, size_t n_entries,
			  uint32_t call)
{
	uint64_t inlined = object(190, 4);
	struct entry last = { .off = UINT32_MAX };
	int64_t word = 0;
	uint8_t table[256];
	unsigned int n = 0;
	uint64_t code;

	for (size_t i = 0; i < n_entries; i++) {
		/* No statement begins there. */
		put_number(table, &n, -(int64_t)(entries[i].off - last.off) - 1);
		put_number(table, &n, (int64_t)position_word(&entries[i]) - word);
		last = entries[i];
		word = (int64_t)position_word(&last);
	}
	memcpy(&code, heap.bytes + (f->code - 1 + 8 - BASE), 8);
	set(code, 24, bytes(table, n));
	set(inlined, 8, small(16));
	set(inlined, 16, position_word(&(struct entry){ .position = call }));
	set(inlined, 24, 1);
	set(f->data, 16 + 8 * 7, inlined);
}

static void begin(void)
{
	memset(&heap, 0, sizeof(heap));
	heap.used = 64;
	heap.reads_max = 100000;
	for (unsigned int i = 0; i < V8_VALUES; i++) {
		exports[i] = take(4);
		put(exports[i], (uint64_t)(uint32_t)values[i], 4);
	}
}

/*
 * As V8 11.3 writes them (src/deoptimizer/translation-opcode.h): signed numbers are doubled. The second one begins as
 * the first one, by the number of operations (36 and it).
 */
static const uint8_t translations[] = {
	2,  0,	4,  4,	     /* 0: without feedback, not as before, 2 frames, 2 of functions */
	24, 10, 0,  2,	     /* place 5 of the first function, which has no result */
	29, 0,	28,	     /* a literal, and what was optimized out */
	23, 14, 2,  2, 0, 2, /* place 7 of the second function, whose result is known */
	30, 2,		     /* a register */
	2,  19, 6,  4,	     /* 19: as 19 bytes before, 3 frames, 2 of functions */
	39,		     /* from there 3 operations: up to what was optimized out */
	14, 2,	4,	     /* more arguments of the second function: no frame of it */
	25, 10, 2,  2,	     /* one of V8's own, as if at place 5 */
};

/* As src/codegen/source-position-table.cc does: from place 0 on at position 4, from place 6 on at 10. */
static const uint8_t positions[] = { 2, 20, 13, 24 };

/*
 * Make the baseline compiler's code of a function; return where its instructions begin. Its bytecode has operations at
 * places 0, 2 (with a prefix), 6 and 7, of which 10, 200, 5 and 30 bytes of code were made, behind 20 others.
 */
static uint64_t baseline(const struct function *f)
{
	static const uint8_t operations[] = { 11, 1, 0, 11, 1, 0, 12, 11, 1 };
	static const uint8_t places[] = { 20, 10, 200, 1, 5, 30 };
	uint64_t stream = object(252, 64), code = object(245, 8);

	set(stream, 8, code);
	set(code, 16, f->bytecode);
	set(code, 24, bytes(places, sizeof(places)));
	put(code - 1 + 56, 400, 4);
	set(f->bytecode, 8, small(sizeof(operations)));
	memcpy(heap.bytes + (f->bytecode - 1 + 54 - BASE), operations, sizeof(operations));
	set(f->bytecode, 32, bytes(positions, sizeof(positions)));
	return stream - 1 + 16;
}

/* What a frame of it has instead of the place: its feedback, which leads to the function. */
static uint64_t feedback(const struct function *f)
{
	uint64_t at = object(160, 4);

	set(at, 8, f->shared);
	return at;
}

#define HANDLERS \
	(BASE +  \
	 0x200000) /* code for operations 11, 12, and 11 with the prefix for two bytes, each 64 bytes long */

/* Make the table of the code for operations. */
static uint64_t handlers(void)
{
	uint64_t at = take(8 * 768);

	put(at + 8 * 11, HANDLERS, 8);
	put(at + 8 * 12, HANDLERS + 64, 8);
	put(at + 8 * (256 + 11), HANDLERS + 128, 8);
	return at;
}

/* ---- a stack ---- */

#define STACK (BASE + 0x100000)
#define WORDS 64

static uint64_t words[WORDS];

/* Put a frame whose rbp points to words[at], called from one at words[caller] that runs at pc. */
static void put_frame(unsigned int at, const struct function *f, uint64_t bytecode,
		      unsigned int caller, uint64_t caller_pc)
{
	words[at] = STACK + 8 * caller;
	words[at + 1] = caller_pc;
	words[at - 1] = f->context;
	words[at - 2] = f->function;
	words[at - 4] = bytecode;
}

#endif

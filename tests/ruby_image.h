/*
 * tests/ruby_image.h: the memory of a small interpreter with a stack. Places in structures are those of the
 * headers of Ruby 3.1 and 3.3 for x86_64, as offsetof gives them.
 */
#ifndef TESTS_RUBY_IMAGE_H
#define TESTS_RUBY_IMAGE_H

#include "tests/interpreter_image.h"

static unsigned int ruby_minor = 1; /* the version that is made: 3.1 or 3.3 */

/* Return the size of a control frame. */
static unsigned int ruby_cf(void)
{
	return ruby_minor == 3 ? 56 : 64;
}

/* A string. Since 3.2 short ones have a length, too, as long ones have. */
static uint64_t ruby_string(const char *text)
{
	uint64_t at = take(48), size = strlen(text), body;

	if (size < 24 && ruby_minor == 3) {
		put_word(at, 5);
		put_word(at + 16, size);
		put_text(at + 24, text);
	} else if (size < 24) {
		put_word(at, 5 | size << 14);
		put_text(at + 16, text);
	} else {
		put_word(at, 5 | 1 << 13);
		put_word(at + 16, size);
		body = take(size + 1);
		put_word(at + 24, body);
		put_text(body, text);
	}
	return at;
}

static uint64_t ruby_array(const uint64_t *values, size_t n)
{
	uint64_t at = take(40), from = at + 16;

	if (n > 3) {
		put_word(at, 7);
		put_word(at + 16, n);
		from = take(8 * n);
		put_word(at + 32, from);
	} else {
		put_word(at, 7 | 1 << 13 | n << 15);
	}
	for (size_t i = 0; i < n; i++)
		put_word(from + 8 * i, values[i]);
	return at;
}

static uint64_t ruby_symbol_table, ruby_names;

/* Symbols after the last operator: their IDs are number << 4. */
enum { RUBY_CLASSPATH = 200, RUBY_ATTACHED, RUBY_EACH, RUBY_SYMBOLS_END };

static void put_ruby_symbols(void)
{
	static const char *const names[] = { "__classpath__", "__attached__", "each" };
	uint64_t part[2 * RUBY_SYMBOLS_END];

	for (size_t i = 0; i < 2 * (size_t)RUBY_SYMBOLS_END; i++)
		part[i] = 8;
	part[2 * '+'] = ruby_string("+");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		part[2 * (RUBY_CLASSPATH + i)] = ruby_string(names[i]);
	ruby_symbol_table = take(32);
	ruby_names = ruby_array((uint64_t[]){ ruby_array(part, 2 * RUBY_SYMBOLS_END) }, 1);
	put(ruby_symbol_table, RUBY_SYMBOLS_END - 1, 4);
	put_word(ruby_symbol_table + 16, ruby_names);
}

/* A class with one instance variable, or since 3.3 with what was in it in a field. */
static uint64_t ruby_class(uint64_t flags, unsigned int symbol, uint64_t value)
{
	uint64_t at = take(160), ext = take(112), table = take(56), entries = take(3 * 24);

	put_word(at, flags);
	if (ruby_minor == 3) {
		put(at + 149, symbol == RUBY_CLASSPATH, 1); /* for good */
		put_word(at + (symbol == RUBY_CLASSPATH ? 152 : 128), value);
		return at;
	}
	put_word(at + 24, ext);
	put_word(ext + 8, table);
	put_word(table + 32, 1); /* the first entry was deleted */
	put_word(table + 40, 2);
	put_word(table + 48, entries);
	put_word(entries + 24 + 8, (uint64_t)symbol << 4);
	put_word(entries + 24 + 16, value);
	return at;
}

static uint64_t ruby_method(uint64_t class, unsigned int symbol)
{
	uint64_t at = take(40), definition = take(56);

	put_word(at, 0x1a | 6 << 12);
	put_word(at + 8, class);
	put_word(at + 16, definition);
	put_word(definition + 32, (uint64_t)symbol << 4);
	return at;
}

/*
 * An instruction sequence of n instructions of two words; the line of each is one more than that of the one
 * before it. With one instruction there is no index.
 */
static uint64_t ruby_iseq(const char *label, const char *base, unsigned int line, unsigned int n,
			  bool real_path)
{
	uint64_t at = take(40), body = take(320), table = take(12 * n), index = take(48 + 80 * 4);
	uint64_t code = take(16 * n), path = ruby_string("/srv/a-long-directory/shop.rb");
	unsigned int info = ruby_minor == 3 ? 112 : 120;
	unsigned int rank = 0, block = 0;

	put_word(at, 0x1a | 7 << 12);
	put_word(at + 16, body);
	put(body + 4, 2 * n, 4);
	put_word(body + 8, code);
	put_word(body + 64, real_path ? ruby_array((uint64_t[]){ path, 8 }, 2) : path);
	put_word(body + 72, ruby_string(base));
	put_word(body + 80, ruby_string(label));
	if (ruby_minor == 3)
		put(body + 88, line, 4);
	else
		put_word(body + 88, (uint64_t)line << 1 | 1);
	put_word(body + info, table);
	put(body + info + 16, n, 4);
	put_word(body + info + 24, n > 1 ? index : 0);
	for (unsigned int i = 0; i < n; i++)
		put(table + 12 * i, line + 1 + i, 4);
	/* succ_index_table_create of iseq.c: an instruction begins at each even position. */
	for (unsigned int pos = 0; pos < 2 * n; pos++) {
		uint64_t near = index + 8 * (pos / 9), far = index + 48;
		unsigned int bit = (pos - 54) % 512;
		uint64_t word;

		rank += pos % 2 == 0;
		if (pos < 54) {
			memcpy(&word, image.bytes + (near - BASE), 8);
			put_word(near, word | (uint64_t)rank << (7 * (pos % 9)));
			continue;
		}
		far += 80 * ((pos - 54) / 512);
		if (!bit)
			put(far, block = rank - (pos % 2 == 0), 4);
		if (bit && bit % 64 == 0) {
			memcpy(&word, image.bytes + (far + 8 - BASE), 8);
			put_word(far + 8, word | (uint64_t)(rank - (pos % 2 == 0) - block)
							  << (9 * (bit / 64 - 1)));
		}
		memcpy(&word, image.bytes + (far + 16 + 8 * (bit / 64) - BASE), 8);
		put_word(far + 16 + 8 * (bit / 64), word | (uint64_t)(pos % 2 == 0) << (bit % 64));
	}
	return at;
}

/* Three words of an environment; return its ep. */
static uint64_t ruby_environment(uint64_t method, uint64_t previous, uint64_t flags)
{
	uint64_t at = take(24);

	put_word(at, method);
	put_word(at + 8, previous);
	put_word(at + 16, flags);
	return at + 16;
}

enum { RUBY_WORDS = 100, RUBY_FRAMES = 6 };
static uint64_t ruby_ec, ruby_frames;

/* Put a control frame; instruction: of the iseq; 0: none. */
static void ruby_frame(unsigned int i, uint64_t iseq, unsigned int instruction, uint64_t ep)
{
	uint64_t at = ruby_frames + ruby_cf() * i, body, code = 0;

	if (instruction) {
		memcpy(&body, image.bytes + (iseq + 16 - BASE), 8);
		memcpy(&code, image.bytes + (body + 8 - BASE), 8);
		code += 16 * instruction; /* behind the one that runs, which is counted from 1 */
	}
	put_word(at, code);
	put_word(at + 16, iseq);
	put_word(at + 32, ep);
}

/*
 * <main> calls Cart.open on line 3, that Cart#total on line 12, that Array#each, which calls a block; around
 * the whole is the frame without code with which a stack begins.
 */
static void put_ruby(void)
{
	uint64_t cart, single, array, total, open, env, svar, stack;

	clear_image();
	put_ruby_symbols();
	cart = ruby_class(2, RUBY_CLASSPATH, ruby_string("Cart"));
	single = ruby_class(2 | 1 << 12, RUBY_ATTACHED, cart);
	array = ruby_class(2, RUBY_CLASSPATH, ruby_string("Array"));
	total = ruby_method(cart, RUBY_EACH);
	open = ruby_method(single, RUBY_EACH);
	svar = take(40);
	put_word(svar, 0x1a | 2 << 12);
	put_word(svar + 8, total);
	stack = take(8 * RUBY_WORDS);
	ruby_frames = stack + 8 * RUBY_WORDS - ruby_cf() * RUBY_FRAMES;
	ruby_ec = take(64);
	put_word(ruby_ec, stack);
	put_word(ruby_ec + 8, RUBY_WORDS);
	put_word(ruby_ec + 16, ruby_frames);
	ruby_frame(5, 0, 0, ruby_environment(0, 0, 0x79990001 | 2 | 0x20));
	ruby_frame(4, ruby_iseq("<main>", "<main>", 0, 5, false), 3,
		   ruby_environment(0, 0, 0x77770001 | 2 | 0x20));
	ruby_frame(3, ruby_iseq("open", "open", 10, 40, true), 2,
		   ruby_environment(open, 0, 0x11110001 | 2));
	env = ruby_environment(svar, 0, 0x11110001 | 2);
	ruby_frame(2, ruby_iseq("total", "total", 100, 400, false), 399, env);
	ruby_frame(1, 0, 0,
		   ruby_environment(ruby_method(array, RUBY_EACH), 0, 0x55550001 | 2 | 0x80));
	env = ruby_environment(8, env | 1, 0x22220001);
	ruby_frame(0, ruby_iseq("block in total", "total", 50, 1, false), 1,
		   ruby_environment(0, env | 3, 0x22220001 | 0x20));
}

#endif

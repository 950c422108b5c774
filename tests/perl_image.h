/*
 * tests/perl_image.h: the memory of a small interpreter with a stack. Places in structures are those of the
 * headers of Perl 5.36 to 5.42 (with threads) for x86_64, as offsetof gives them.
 */
#ifndef TESTS_PERL_IMAGE_H
#define TESTS_PERL_IMAGE_H

#include "tests/interpreter_image.h"

#define PERL_TOP_ENV 0x7fff1000u /* on the native stack */

static unsigned int perl_nextstate = 195; /* OP_NEXTSTATE of 5.36 */

static uint64_t perl_hek(const char *text)
{
	uint64_t at = take(8 + strlen(text) + 2);

	put(at + 4, strlen(text), 4);
	put_text(at + 8, text);
	return at;
}

/* A package: an HV whose body has its name; several: as an array of names. */
static uint64_t perl_stash(const char *name, bool several)
{
	uint64_t at = take(24), body = take(88), names = perl_hek(name);

	put_word(at, body);
	put(at + 12, 12 | 0x2000000, 4);
	if (several) {
		uint64_t array = take(16);

		put_word(array, names);
		names = array;
	}
	put_word(body + 32, names);
	put(body + 60, several ? 2 : 0, 4);
	return at;
}

/* A CV; named: it has its name itself, and no GV. */
static uint64_t perl_function(uint64_t stash, const char *name, bool named)
{
	uint64_t at = take(24), body = take(104), gv;

	put_word(at, body);
	put(at + 12, 13, 4);
	put_word(body + 32, stash);
	put(body + 92, named ? 0x8000 : 0, 4);
	if (named) {
		put_word(body + 56, perl_hek(name));
		return at;
	}
	gv = take(24);
	put_word(body + 56, gv);
	put(gv + 12, 9, 4);
	body = take(48);
	put_word(gv, body);
	put_word(body + 32, perl_hek(name));
	put_word(body + 40, stash);
	return at;
}

static uint64_t perl_cop(const char *file, unsigned int line)
{
	uint64_t at = take(88), text = take(strlen(file) + 1);

	put_text(text, file);
	put(at + 32, perl_nextstate, 2);
	put(at + 36, line, 4);
	put_word(at + 48, text);
	return at;
}

static void perl_context(uint64_t contexts, unsigned int i, unsigned int type, uint64_t old_cop,
			 uint64_t retop, uint64_t cv)
{
	uint64_t at = contexts + 104 * i;

	put(at, type, 1);
	put_word(at + 16, old_cop);
	put_word(at + 48, retop);
	put_word(at + 72, cv);
	if ((type & 0xf) == 11)
		put_word(at + 96, PERL_TOP_ENV);
}

static uint64_t perl_info(uint64_t contexts, unsigned int n, uint64_t prev)
{
	uint64_t at = take(56);

	put_word(at + 8, contexts);
	put_word(at + 16, prev);
	put(at + 32, n - 1, 4);
	return at;
}

static uint64_t perl_interpreter, perl_infos[2], perl_contexts[2];

/*
 * The program's line 40 calls Shop::total from line 30 in an eval; total sorts on line 9, which C code does;
 * for each two values it calls Shop::cmp, in whose loop line 5 runs.
 */
static void put_perl(void)
{
	uint64_t shop, op;

	clear_image();
	perl_interpreter = take(3768);
	shop = perl_stash("Shop", true);
	op = take(40);
	perl_contexts[0] = take(104 * 4);
	perl_contexts[1] = take(104 * 2);
	perl_context(perl_contexts[0], 0, 2, 0, 0, 0); /* a block */
	perl_context(perl_contexts[0], 1, 11 | 0x40, perl_cop("shop.pl", 40), op, 0);
	perl_context(perl_contexts[0], 2, 9 | 0x20, perl_cop("shop.pl", 41), op,
		     perl_function(shop, "total", false));
	perl_context(perl_contexts[0], 3, 8, perl_cop("Shop.pm", 8), 0, 0);
	perl_context(perl_contexts[1], 0, 9 | 0x10, perl_cop("Shop.pm", 9), 0,
		     perl_function(perl_stash("Shop::Order", false), "cmp", true));
	perl_context(perl_contexts[1], 1, 4, perl_cop("Shop.pm", 4), 0, 0);
	perl_infos[0] = perl_info(perl_contexts[0], 4, 0);
	perl_infos[1] = perl_info(perl_contexts[1], 2, perl_infos[0]);
	put_word(perl_interpreter + 208, perl_cop("Shop.pm", 5));
	put_word(perl_interpreter + 224, perl_infos[1]);
}

#endif

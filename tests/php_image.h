/*
 * tests/php_image.h: the memory of a small interpreter with a stack. Places in structures are those of the
 * headers of PHP 8.2 to 8.4 for x86_64, as offsetof gives them.
 */
#ifndef TESTS_PHP_IMAGE_H
#define TESTS_PHP_IMAGE_H

#include "tests/interpreter_image.h"

/* Where a zend_op_array of each version has what is elsewhere in others. */
static const struct php_places {
	unsigned int minor, opcodes, n_opcodes, filename, line_start;
} php_versions[] = { { 2, 88, 80, 152, 160 }, { 3, 80, 76, 144, 152 }, { 4, 104, 96, 168, 176 } };
enum { PHP_VERSIONS = sizeof(php_versions) / sizeof(php_versions[0]) };
static const struct php_places *php_places = php_versions; /* of the version that is made */

static uint64_t php_string(const char *text)
{
	uint64_t at = take(24 + strlen(text) + 1), hash = 5381;

	for (const char *c = text; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	put_word(at + 8, hash | UINT64_C(1) << 63);
	put_word(at + 16, strlen(text));
	put_text(at + 24, text);
	return at;
}

/* A zend_op_array of 4 zend_ops, on lines line + 1 to line + 4. */
static uint64_t php_function(unsigned int type, const char *class, const char *name,
			     unsigned int line)
{
	uint64_t at = take(240), ops = take(4 * 32), scope = class ? take(512) : 0;

	put(at, type, 1);
	put_word(at + 8, name ? php_string(name) : 0);
	put_word(at + 16, scope);
	if (scope)
		put_word(scope + 8, php_string(class));
	if (type == 1)
		return at;
	put(at + php_places->n_opcodes, 4, 4);
	put_word(at + php_places->opcodes, ops);
	put_word(at + php_places->filename, php_string("/srv/shop.php"));
	put(at + php_places->line_start, line, 4);
	for (unsigned int i = 0; i < 4; i++)
		put(ops + 32 * i + 24, line + 1 + i, 4);
	return at;
}

/* A zend_execute_data; op: number of the function's zend_op that runs. */
static uint64_t php_call(uint64_t function, unsigned int op, bool top, uint64_t prev)
{
	uint64_t at = take(80), ops = 0;

	if (function)
		memcpy(&ops, image.bytes + (function + php_places->opcodes - BASE), 8);
	put_word(at, ops + 32 * op);
	put_word(at + 24, function);
	put(at + 40, top ? 1u << 17 : 0, 4);
	put_word(at + 48, prev);
	return at;
}

/* The calls of put_php, the innermost first. */
static uint64_t php_globals, php_calls[5];

/* {main} calls Cart::total, which calls array_map, which calls a closure; a frame without function is between. */
static void put_php(void)
{
	clear_image();
	php_globals = take(1700);
	php_calls[4] = php_call(php_function(2, NULL, NULL, 1), 3, true, 0);
	php_calls[3] = php_call(php_function(2, "Cart", "total", 20), 0, false, php_calls[4]);
	php_calls[2] = php_call(0, 0, false, php_calls[3]);
	php_calls[1] = php_call(php_function(1, NULL, "array_map", 0), 0, false, php_calls[2]);
	php_calls[0] = php_call(php_function(2, "Cart", "{closure}", 21), 1, true, php_calls[1]);
	put_word(php_globals + 488, php_calls[0]);
}

#endif

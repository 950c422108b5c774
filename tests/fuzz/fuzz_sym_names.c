/*
 * tests/fuzz/fuzz_sym_names.c: fuzzes the sanitizer of names: its result is valid, bounded, and the
 * same when sanitized again.
 */
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t limit = size ? (size_t)data[0] : 0;
	char *name = malloc(size + 1);
	char *text, *again;

	if (!name)
		return 0;
	memcpy(name, data, size);
	name[size] = '\0';
	text = sym_demangle(name);
	again = text ? sym_sanitize(text, strlen(text), 0) : NULL;
	if (!text || !again || strcmp(text, again) != 0 || strlen(text) > 65536)
		abort();
	free(again);
	free(text);
	text = sym_sanitize(name, size, limit);
	if (!text || (limit && strlen(text) > limit))
		abort();
	free(text);
	free(name);
	return 0;
}

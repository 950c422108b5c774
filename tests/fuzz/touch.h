/*
 * tests/fuzz/touch.h: checks that bytes which a reader returned can be read: all of them for the
 * address sanitizer, and one of each 256 truly, because it does not know of the ends of mapped files.
 */
#ifndef TESTS_FUZZ_TOUCH_H
#define TESTS_FUZZ_TOUCH_H

#include <sanitizer/asan_interface.h>
#include <stddef.h>
#include <stdint.h>

static inline uint64_t touch(const void *bytes, size_t size)
{
	const volatile uint8_t *b = bytes;
	uint64_t sum = 0;

	if (!size)
		return 0;
	if (__asan_region_is_poisoned((void *)(uintptr_t)bytes, size))
		__builtin_trap();
	for (size_t i = 0; i < size; i += 256)
		sum += b[i];
	return sum + b[size - 1];
}

#endif

/*
 * tests/asan.h: defines WITH_ASAN where ASan replaces the allocator, for tests that ask how much memory
 * is in use or where malloc is.
 */
#ifndef TESTS_ASAN_H
#define TESTS_ASAN_H

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#endif

#endif

/*
 * tests/check.h: defines CHECK, which reports a failure and continues, so that one run shows every
 * failure.
 * A test's main returns check_done(): 0 all checks held, 1 some failed, 77 skipped.
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdio.h>

static int check_failures;
static int check_count;

#define CHECK(ok, what)                           \
	(check_count++, (ok) ? (void)0            \
			     : (check_failures++, \
				(void)printf("%s:%d: %s: %s\n", __FILE__, __LINE__, (what), #ok)))

static inline int check_done(void)
{
	if (check_failures)
		(void)printf("%d of %d checks failed\n", check_failures, check_count);
	else if (!check_count)
		(void)printf("no check ran\n");
	return check_failures || !check_count;
}

#endif

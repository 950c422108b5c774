/*
 * tests/unit/test_log.c: tests warnings: their limit, and that lines of several threads do not mix.
 */
#include "agent/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

static char said[1 << 20];
static FILE *captured;
static int standard_error;

static void listen_in(void)
{
	captured = tmpfile();
	standard_error = dup(STDERR_FILENO);
	(void)dup2(fileno(captured), STDERR_FILENO);
}

/* Return what was printed since listen_in. */
static void hear(void)
{
	size_t n;

	(void)fflush(stderr);
	(void)dup2(standard_error, STDERR_FILENO);
	(void)close(standard_error);
	rewind(captured);
	n = fread(said, 1, sizeof(said) - 1, captured);
	said[n] = '\0';
	(void)fclose(captured);
}

static size_t count(const char *text)
{
	size_t n = 0;

	for (const char *at = said; (at = strstr(at, text)); at += strlen(text))
		n++;
	return n;
}

static void test_ten_warnings_of_a_kind_then_their_number(void)
{
	listen_in();
	for (int i = 0; i < 500; i++)
		log_warning("file %d: missing", i);
	log_warning("something else");
	log_end();
	hear();
	CHECK(count("\n") == 12, "ten, another, and the sum");
	CHECK(count("warning: file 9: missing\n") == 1 && !count("file 10:"), "the first ten");
	CHECK(count("warning: something else\n") == 1, "others are not affected");
	CHECK(count("490 more like this were left out") == 1, "how many were not printed");
	CHECK(count("the last was: file 499: missing\n") == 1, "and one of them");
	listen_in();
	log_end();
	hear();
	CHECK(!count("\n"), "nothing is said twice");
}

static void test_errors_and_verbose_are_not_limited(void)
{
	listen_in();
	for (int i = 0; i < 30; i++)
		log_error("input %d", i);
	log_verbose(true);
	for (int i = 0; i < 30; i++)
		log_warning("odd %d", i);
	log_verbose(false);
	hear();
	CHECK(count("offwind: input ") == 30, "each error");
	CHECK(count("warning: odd ") == 30, "all, if asked for all");
}

static void *talk(void *ctx)
{
	(void)ctx;
	for (int i = 0; i < 1000; i++) {
		log_warning("from a thread: %s", "abcdefghijklmnopqrstuvwxyz");
		log_error("error: %s", "abcdefghijklmnopqrstuvwxyz");
	}
	return NULL;
}

static void test_lines_of_threads_do_not_mix(void)
{
	pthread_t threads[4];

	listen_in();
	for (size_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, talk, NULL), "thread");
	for (size_t i = 0; i < 4; i++)
		(void)pthread_join(threads[i], NULL);
	log_end();
	hear();
	CHECK(count("offwind: error: abcdefghijklmnopqrstuvwxyz\n") == 4000, "errors whole");
	CHECK(count("warning: from a thread: abcdefghijklmnopqrstuvwxyz\n") == 10, "warnings");
	CHECK(count("3990 more like this") == 1, "the rest counted");
}

int main(void)
{
	test_ten_warnings_of_a_kind_then_their_number();
	test_errors_and_verbose_are_not_limited();
	test_lines_of_threads_do_not_mix();
	return check_done();
}

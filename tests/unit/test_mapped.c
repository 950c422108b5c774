/*
 * tests/unit/test_mapped.c: tests mapped files that are cut off or unmapped while they are in use.
 */
#include "agent/source/mapped.h"

#include "tests/check.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 4, MANY = 100 };

static int file_of_ones(size_t size)
{
	int fd = memfd_create("mapped", MFD_CLOEXEC);
	char byte = 1;

	for (size_t i = 0; fd >= 0 && i < size; i++)
		if (write(fd, &byte, 1) != 1)
			return -1;
	return fd;
}

static void test_bytes_are_the_files(void)
{
	struct mapped m;
	int fd = file_of_ones(100);

	mapped_open(&m, fd, 100);
	(void)close(fd);
	CHECK(m.bytes && m.size == 100 && m.bytes[0] == 1 && m.bytes[99] == 1, "mapped");
	CHECK(!m.cut, "whole");
	mapped_close(&m);
	mapped_close(&m);
	CHECK(!m.bytes, "closed, twice");
}

static void test_what_is_cut_off_reads_as_zeros(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = file_of_ones(PAGES * page);
	struct mapped m;

	mapped_open(&m, fd, PAGES * page);
	CHECK(m.bytes && m.bytes[3 * page] == 1, "mapped");
	CHECK(!ftruncate(fd, (off_t)page), "cut");
	CHECK(m.bytes[0] == 1 && !m.cut, "what is left is there");
	CHECK(m.bytes[3 * page + 5] == 0 && m.cut, "the rest is zeros, and it is told");
	CHECK(m.bytes[page] == 0, "all of it");
	mapped_close(&m);
	(void)close(fd);
}

static void test_what_was_let_go_is_there_again(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = file_of_ones(PAGES * page);
	unsigned char in_core[PAGES];
	struct mapped m;

	mapped_open(&m, fd, PAGES * page);
	CHECK(m.bytes && m.bytes[0] == 1 && m.bytes[2 * page] == 1, "mapped");
	mapped_let_go(&m, 1, 3 * page);
	mapped_let_go(&m, PAGES * page, page);
	mapped_let_go(&m, 0, UINT64_MAX);
	CHECK(!mincore((void *)(uintptr_t)m.bytes, PAGES * page, in_core), "still mapped");
	CHECK(m.bytes[0] == 1 && m.bytes[2 * page] == 1 && !m.cut, "the same bytes");
	CHECK(!ftruncate(fd, (off_t)page), "cut");
	CHECK(m.bytes[2 * page] == 0 && m.cut, "zeros");
	mapped_let_go(&m, 0, PAGES * page);
	CHECK(m.bytes[2 * page] == 0 && m.bytes[0] == 1, "zeros again");
	mapped_close(&m);
	(void)close(fd);
}

static void test_more_than_can_be_mapped_are_not(void)
{
	struct mapped m[MANY];
	int fd = file_of_ones(10), n = 0;

	for (int i = 0; i < MANY; i++) {
		mapped_open(&m[i], fd, 10);
		n += m[i].bytes != NULL;
	}
	CHECK(n > 0 && n < MANY, "some are left to be read");
	for (int i = 0; i < MANY; i++)
		mapped_close(&m[i]);
	mapped_open(&m[0], fd, 10);
	CHECK(m[0].bytes, "there is room again");
	mapped_close(&m[0]);
	mapped_open(&m[0], fd, 0);
	CHECK(!m[0].bytes, "nothing to map");
	mapped_open(&m[0], -1, 10);
	CHECK(!m[0].bytes, "no file to map");
	(void)close(fd);
}

/* Errors at other addresses end the program as usual. */
static void test_other_errors_are_not_ours(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = file_of_ones(2 * page), status = 0;
	struct mapped m;
	pid_t pid;

	mapped_open(&m, fd, page);
	pid = fork();
	if (!pid) {
		volatile char *other = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE, fd, 0);

		(void)signal(SIGALRM, SIG_DFL);
		(void)alarm(20); /* a handler that returns again and again is a failure, too */
		(void)ftruncate(fd, (off_t)page);
		(void)close(2); /* the report of a sanitizer is not needed */
		_exit(other[page] & 0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid, "waited for");
	CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) ||
		      (WIFEXITED(status) && WEXITSTATUS(status) != 0), /* a sanitizer ended it */
	      "ended by it");
	mapped_close(&m);
	(void)close(fd);
}

int main(void)
{
	test_bytes_are_the_files();
	test_what_is_cut_off_reads_as_zeros();
	test_what_was_let_go_is_there_again();
	test_more_than_can_be_mapped_are_not();
	test_other_errors_are_not_ours();
	return check_done();
}

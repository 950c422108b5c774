/*
 * tests/unit/test_output.c: tests output files: whole or not at all, private to their owner, links.
 */
#include "agent/export/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static char dir[] = "/tmp/output.XXXXXX", path[64];

static const char *contents(void)
{
	static char text[64];
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	text[n] = '\0';
	if (f)
		(void)fclose(f);
	return f ? text : NULL;
}

static void test_a_result_appears_only_when_committed(void)
{
	struct output out;

	CHECK(!output_open(&out, path), "open");
	CHECK(fputs("new", output_file(&out)) >= 0 && !fflush(output_file(&out)), "write");
	CHECK(!contents(), "nothing there yet");
	CHECK(!output_commit(&out), "commit");
	CHECK(contents() && !strcmp(contents(), "new"), "there whole");
	output_abort(&out);
}

static mode_t mode_of(const char *name)
{
	struct stat st;

	return lstat(name, &st) ? 0 : st.st_mode;
}

static void test_results_are_for_their_owner_alone(void)
{
	mode_t mask = umask(0);
	struct output out;
	int fd = -1;

	CHECK(!chmod(path, 0666), "an older one that all may read");
	CHECK(!output_open(&out, path) && !output_commit(&out), "a new one");
	CHECK(mode_of(path) == (S_IFREG | 0600), "whatever the umask and the older one");
	CHECK(!chmod(path, 0666), "again");
	CHECK(!output_create(path, &fd) && write(fd, "new", 3) == 3, "one that grows");
	CHECK(!close(fd) && mode_of(path) == (S_IFREG | 0600), "likewise");
	(void)umask(mask);
}

static void test_only_links_of_one_s_own_are_written_through(void)
{
	char link[80], other[80];
	struct output out;
	int fd = -1;

	(void)snprintf(link, sizeof(link), "%s/link", dir);
	(void)snprintf(other, sizeof(other), "%s/other", dir);
	CHECK(!symlink(other, link), "own link");
	CHECK(!output_open(&out, link) && !output_commit(&out), "written through");
	CHECK(S_ISLNK(mode_of(link)) && mode_of(other) == (S_IFREG | 0600), "the link stays");
	CHECK(!output_create(link, &fd) && !close(fd) && S_ISLNK(mode_of(link)), "likewise");
	/*
	 * In a directory in which everybody can write, the file may be another user's when it is
	 * opened.
	 */
	CHECK(!chmod(dir, 0777), "a directory of everybody's");
	CHECK(!output_open(&out, link) && !output_commit(&out), "replaced");
	CHECK(mode_of(link) == (S_IFREG | 0600), "the link is gone");
	CHECK(!unlink(link) && !symlink(other, link), "again");
	CHECK(!output_create(link, &fd) && !close(fd), "one that grows");
	CHECK(mode_of(link) == (S_IFREG | 0600), "replaces it too");
	CHECK(!chmod(dir, 0700), "own again");
	if (!geteuid()) {
		CHECK(!unlink(link) && !symlink(other, link) && !lchown(link, 65534, 65534), "");
		CHECK(!output_open(&out, link) && !output_commit(&out), "another user's");
		CHECK(mode_of(link) == (S_IFREG | 0600), "is replaced");
	}
	CHECK(!unlink(link) && !unlink(other), "nothing else is left");
}

static void test_an_aborted_one_leaves_the_older_as_it_was(void)
{
	struct output out;

	CHECK(!output_open(&out, path) && write(out.fd, "half", 4) == 4, "begun");
	output_abort(&out);
	CHECK(contents() && !strcmp(contents(), "new"), "the older one stands");
	CHECK(!unlink(path) && !rmdir(dir), "and nothing else is left in the folder");
}

static void test_a_full_disk_is_an_error_of_commit(void)
{
	struct output out;

	CHECK(!output_open(&out, "/dev/full"), "no regular file is opened directly");
	CHECK(fputs("lost", output_file(&out)) >= 0, "buffered");
	CHECK(output_commit(&out) == -ENOSPC, "said at commit");
	CHECK(!access("/dev/full", F_OK), "and the device is not removed");
	CHECK(output_open(&out, "/proc/nonexistent/file") == -ENOENT, "no directory");
	output_abort(&out);
}

int main(void)
{
	CHECK(mkdtemp(dir) != NULL, "temporary folder");
	(void)snprintf(path, sizeof(path), "%s/result", dir);
	test_a_result_appears_only_when_committed();
	test_results_are_for_their_owner_alone();
	test_only_links_of_one_s_own_are_written_through();
	test_an_aborted_one_leaves_the_older_as_it_was();
	test_a_full_disk_is_an_error_of_commit();
	return check_done();
}

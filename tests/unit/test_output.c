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
	CHECK(output_open(&out, "/nonexistent/file") == -ENOENT, "no folder");
	output_abort(&out);
}

int main(void)
{
	CHECK(mkdtemp(dir) != NULL, "temporary folder");
	(void)snprintf(path, sizeof(path), "%s/result", dir);
	test_a_result_appears_only_when_committed();
	test_an_aborted_one_leaves_the_older_as_it_was();
	test_a_full_disk_is_an_error_of_commit();
	return check_done();
}

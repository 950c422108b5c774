/*
 * tests/unit/test_advice.c: tests what is said at the end of a recording: its summary, and the advice about
 * functions without names: their share, the files, the packages.
 */
#include "agent/cli/advice.h"
#include "agent/cmd/record/outcome.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static char folder[] = "/tmp/test_advice.XXXXXX";

static void write_list(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	CHECK(file && fputs(text, file) >= 0 && !fclose(file), path);
}

static void remove_list(const char *name)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	CHECK(!unlink(path), path);
}

static char *path_of(const char *text)
{
	return (char *)(uintptr_t)text;
}

static bool says(const struct unnamed *u, const char *packages, bool fetches, const char *want)
{
	const struct advice_places places = { .packages = packages,
					      .fetches = fetches,
					      .limit_ns = UINT64_C(60000000000) };
	char text[1024];

	advice_text(u, &places, text, sizeof(text));
	if (strcmp(text, want) != 0)
		(void)printf("got:  %s\nwant: %s\n", text, want);
	return !strcmp(text, want);
}

/* Packages that are named after their files are found without reading any other package's list. */
static void test_likely_packages(void)
{
	struct unnamed_file files[] = {
		{ .path = path_of("/usr/lib/libLLVM-14.so.1"), .own = true, .value = 30 },
		{ .path = path_of("/usr/lib/libsqlite3.so.0.8.6"), .own = true, .value = 20 },
		{ .path = path_of("/usr/bin/git"), .own = true, .value = 10 },
	};
	const struct unnamed u = { .whole = 100, .value = 60, .files = files, .n_files = 3 };
	const struct advice_places places = { .packages = folder, .fetches = true };
	char text[1024];

	write_list("libllvm14:amd64.list", "/.\n/usr/lib/libLLVM-14.so.1\n");
	write_list("libsqlite3-0:arm64.list", "/.\n/usr/lib/libsqlite3.so.0.8.6\n");
	write_list("git.list", "/.\n/usr/bin/git\n");
	advice_text(&u, &places, text, sizeof(text));
	CHECK(strstr(text, "install libllvm14-dbgsym libsqlite3-0-dbgsym git-dbgsym"), text);
	remove_list("libllvm14:amd64.list");
	remove_list("libsqlite3-0:arm64.list");
	remove_list("git.list");
}

/* Return whether the summary of a recording of that length, of as much CPU time, begins so. */
static bool sums_up(uint64_t ns, const char *want)
{
	struct source_event event = { .type = "cpu", .unit = "nanoseconds" };
	const struct source_info info = { .events = &event, .n_events = 1 };
	const struct accounting total = { .captured = 1234 };
	const uint64_t values[OUTCOME_EVENTS] = { ns };
	int standard_error = dup(STDERR_FILENO);
	FILE *said = tmpfile();
	char text[256] = "";

	(void)dup2(fileno(said), STDERR_FILENO);
	outcome_say(&(struct outcome){
		.total = &total, .info = &info, .values = values, .duration_ns = ns });
	(void)dup2(standard_error, STDERR_FILENO);
	(void)close(standard_error);
	rewind(said);
	(void)!fgets(text, sizeof(text), said);
	(void)fclose(said);
	if (strcmp(text, want) != 0)
		(void)printf("got:  %swant: %s", text, want);
	return !strcmp(text, want);
}

static void test_times_of_a_summary(void)
{
	CHECK(sums_up(253400000, "offwind: 1,234 samples, 0.253 s of CPU in 0.253 s, none lost\n"),
	      "a part of a second");
	CHECK(sums_up(13540000000, "offwind: 1,234 samples, 13.5 s of CPU in 13.5 s, none lost\n"),
	      "seconds");
	CHECK(sums_up(999600000000, "offwind: 1,234 samples, 1000 s of CPU in 1000 s, none lost\n"),
	      "a thousand");
	CHECK(sums_up(UINT64_C(54123400000000),
		      "offwind: 1,234 samples, 54123 s of CPU in 54123 s, none lost\n"),
	      "hours");
}

int main(void)
{
	struct unnamed_file files[] = {
		{ .path = path_of("/usr/lib/x86_64-linux-gnu/libz.so.1.2.13"),
		  .own = true,
		  .value = 10 },
		{ .path = path_of("/usr/bin/git"), .own = true, .value = 20 },
		{ .path = path_of("/usr/lib/git-core/git-x"), .own = true, .value = 5 },
		{ .path = path_of("/tmp/small"), .own = true, .value = 1 },
	};
	struct unnamed u = { .whole = 100, .value = 36, .files = files, .n_files = 4 };
	struct stat st;

	CHECK(mkdtemp(folder) != NULL, "a folder");
	test_likely_packages();
	/*
	 * Neither the directory of this file's name matches nor a name that only begins or ends
	 * like it.
	 */
	write_list("other.list", "/.\n/usr/bin/gitk\n/opt/usr/bin/git\n/x/lib/x86_64-linux-gnu/"
				 "libz.so.1.2.13\n/lib/x86_64-linux-gnu/libz.so.1\n");
	write_list("git.list", "/.\n/usr\n/usr/bin/git\n/usr/lib/git-core/git-x\n");
	write_list("zlib1g:amd64.list", "/.\n/lib/x86_64-linux-gnu/libz.so.1.2.13"); /* no end */

	CHECK(says(&u, folder, false,
		   "36 % of the time is in functions without names (git 20 %, libz.so.1.2.13 10 %, "
		   "git-x 5 %): install git-dbgsym zlib1g-dbgsym, or set DEBUGINFOD_URLS"),
	      "packages, each once");
	CHECK(says(&u, folder, true,
		   "36 % of the time is in functions without names (git 20 %, libz.so.1.2.13 10 %, "
		   "git-x 5 %): install git-dbgsym zlib1g-dbgsym"),
	      "servers are asked already");
	CHECK(says(&u, "/nonexistent/info", false,
		   "36 % of the time is in functions without names (git 20 %, libz.so.1.2.13 10 %, "
		   "git-x 5 %): set DEBUGINFOD_URLS, or build with symbols (-g, not stripped)"),
	      "no dpkg");
	u.files = &files[3];
	u.n_files = 1;
	CHECK(says(&u, folder, true,
		   "36 % of the time is in functions without names (small 1 %): build with symbols "
		   "(-g, not stripped)"),
	      "of no package");

	/* The list is searched to its end, which is no line's, and no further. */
	files[3].path = path_of("");
	CHECK(says(&u, folder, true,
		   "36 % of the time is in functions without names ( 1 %): build with symbols "
		   "(-g, not stripped)"),
	      "of no name");

	/*
	 * A package's list may have files below /usr that were mapped through the link to it, and
	 * the reverse.
	 */
	files[0].path = path_of("/lib/i386-linux-gnu/libz.so.1.2.13");
	write_list("zlib1g:i386.list", "/.\n/usr/lib/i386-linux-gnu/libz.so.1.2.13\n");
	u = (struct unnamed){ .whole = 100, .value = 10, .files = files, .n_files = 1 };
	(void)snprintf(u.what, sizeof(u.what), "cache-misses");
	CHECK(says(&u, folder, true,
		   "10 % of cache-misses is in functions without names (libz.so.1.2.13 10 %): "
		   "install zlib1g-dbgsym:i386"),
	      "another architecture");
	u.what[0] = '\0';

	/* A package that is installed already did not help. */
	files[0].path = path_of("/usr/bin/git");
	write_list("git-dbgsym.list", "/.\n");
	CHECK(says(&u, folder, true,
		   "10 % of the time is in functions without names (git 10 %): build with symbols "
		   "(-g, not stripped)"),
	      "an installed package");
	remove_list("git-dbgsym.list");

	/* A container's file at the same path does not belong to this package. */
	CHECK(!stat("/bin/sh", &st), "/bin/sh");
	write_list("dash.list", "/.\n/bin/sh\n");
	files[0] = (struct unnamed_file){
		.path = path_of("/bin/sh"), .own = true, .inode = st.st_ino, .value = 10
	};
	CHECK(says(&u, folder, true,
		   "10 % of the time is in functions without names (sh 10 %): install dash-dbgsym"),
	      "the very file");
	files[0].inode++;
	CHECK(says(&u, folder, true,
		   "10 % of the time is in functions without names (sh 10 %): build with symbols "
		   "(-g, not stripped)"),
	      "another file");
	files[0].inode = 0;
	files[0].own = false;
	CHECK(says(&u, folder, true,
		   "10 % of the time is in functions without names (sh 10 %): build with symbols "
		   "(-g, not stripped)"),
	      "in a container");

	u.value = 4;
	CHECK(says(&u, folder, false, ""), "too little for a line");
	u.value = 10;
	u.unsure = true;
	CHECK(says(&u, folder, false, ""), "names that took too long to read");
	u = (struct unnamed){ .whole = 0 };
	CHECK(says(&u, folder, false, ""), "no samples");

	remove_list("other.list");
	remove_list("git.list");
	remove_list("zlib1g:amd64.list");
	remove_list("zlib1g:i386.list");
	remove_list("dash.list");
	CHECK(!rmdir(folder), folder);
	test_times_of_a_summary();
	return check_done();
}

/* tests/unit/test_report.c: tests offwind report: shares, views, hostile names, exit codes. */
#include "agent/cmd/cmd.h"
#include "agent/cmd/query_print.h"
#include "agent/log.h"
#include "proto/pprof.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64] = "/tmp/test_report.XXXXXX";
static const char *unit = "nanoseconds";
static int64_t scale = 1000000;
static const char *leaf = "leaf";

/*
 * a → b → leaf 60, a → b 30, a → a → leaf (recursion) 10; the last leaf is in lib.so, without a
 * symbol.
 */
static void write_profile(void)
{
	static const char *const names[] = { "a", "b" };
	uint64_t ids[4], mapping;
	struct pprof *p = NULL;
	FILE *file = fopen(path, "w");

	CHECK(file && !pprof_new(&p), "set up");
	if (!file || !p)
		return;
	pprof_sample_type(p, "samples", "count");
	pprof_sample_type(p, "cpu", unit);
	pprof_default_sample_type(p, "cpu");
	pprof_time(p, 1, 2500000000);
	pprof_comment(p, "captured 100 = unwound 100 (root 100) + lost 0");
	pprof_comment(p, "two\nlines \x1b[31m");
	mapping = pprof_mapping(
		p, &(struct pprof_mapping){ 0, 0x1000, 0, "/lib/lib.so", NULL, false });
	for (size_t i = 0; i < 2; i++)
		ids[i] = pprof_location(
			p, mapping, i + 1,
			&(struct pprof_line){
				pprof_function(p,
					       &(struct pprof_function){ names[i], NULL, NULL, 0 }),
				0 },
			1);
	ids[2] = pprof_location(
		p, 0, 3,
		&(struct pprof_line){
			pprof_function(p, &(struct pprof_function){ leaf, NULL, NULL, 0 }), 0 },
		1);
	ids[3] = pprof_location(p, mapping, 4, NULL, 0);
	pprof_sample(p, &(struct pprof_sample){ (uint64_t[]){ ids[2], ids[1], ids[0] }, 3,
						(int64_t[]){ 6, 60 * scale }, NULL, 0 });
	pprof_sample(p, &(struct pprof_sample){ (uint64_t[]){ ids[1], ids[0] }, 2,
						(int64_t[]){ 3, 30 * scale }, NULL, 0 });
	pprof_sample(p, &(struct pprof_sample){ (uint64_t[]){ ids[3], ids[0], ids[0] }, 3,
						(int64_t[]){ 1, 10 * scale }, NULL, 0 });
	CHECK(!pprof_write(p, 1, fileno(file)), "written");
	pprof_free(p);
	(void)fclose(file);
}

static char *print(int top)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	CHECK(!report_print(path, top, out) && !fclose(out), "printed");
	return text;
}

/* The part after the line with the path, which differs from run to run. */
static const char *rest(const char *text)
{
	const char *end = strchr(text, '\n');

	return end ? end + 1 : "";
}

static void test_functions_by_their_own_share(void)
{
	char *text;

	write_profile();
	text = print(0);
	CHECK(!strcmp(rest(text), "# captured 100 = unwound 100 (root 100) + lost 0\n"
				  "# two?lines ?[31m\n"
				  "# 10 samples, 100.00 ms of cpu in 2.50 s\n"
				  "#\n"
				  "   SELF                  TOTAL                MODULE  FUNCTION\n"
				  " 60.00%      60.00 ms   60.00%      60.00 ms          leaf\n"
				  " 30.00%      30.00 ms   90.00%      90.00 ms  lib.so  b\n"
				  " 10.00%      10.00 ms   10.00%      10.00 ms  lib.so  [lib.so]\n"
				  "  0.00%          0 ns  100.00%     100.00 ms  lib.so  a\n"),
	      text);
	free(text);
	text = print(1);
	CHECK(strstr(text, "leaf\n# … and 3 functions more\n"), text);
	free(text);
}

static void test_no_sum_overflows(void)
{
	char *text;

	scale = INT64_MAX / 61;
	unit = "count";
	write_profile();
	text = print(0);
	CHECK(strstr(text, "9223372036854775807 of cpu"), text);
	free(text);
	scale = 1000000;
	unit = "nanoseconds";
}

static void test_hostile_names_stay_on_their_line(void)
{
	char *text;
	size_t n = 0;

	leaf = "x\ny\t\x1b]0;title\x07\xff";
	write_profile();
	text = print(0);
	for (const char *at = text; *at; at++) {
		n += *at == '\n';
		CHECK(*at == '\n' || (unsigned char)*at >= 0x20, "a control character");
	}
	CHECK(n == 10, text);
	free(text);
	leaf = "leaf";
}

/* Run offwind report WORD…; return its output without the line with the path. */
static char *report(char *const *words)
{
	int out = dup(STDOUT_FILENO), argc = 1, fd;
	char *argv[16] = { (char *)(uintptr_t) "report" }, *text = calloc(1, 65536);
	char name[] = "/tmp/test_report_out.XXXXXX";

	for (; words[argc - 1]; argc++)
		argv[argc] = words[argc - 1];
	argv[argc++] = path;
	fd = mkstemp(name);
	CHECK(fd >= 0 && text && !fflush(stdout) && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO,
	      "set up");
	optind = 0; /* getopt starts anew */
	CHECK(cmd_report(argc, argv) == CMD_DONE, words[0]);
	(void)fflush(stdout);
	(void)dup2(out, STDOUT_FILENO);
	CHECK(text && pread(fd, text, 65535, 0) > 0, "prints");
	(void)close(fd);
	(void)close(out);
	(void)unlink(name);
	return text;
}

#define REPORT(...) report((char *[]){ __VA_ARGS__, NULL })

static void has(char *text, const char *what)
{
	CHECK(strstr(text, what), text);
	free(text);
}

/* Write a profile of the same types without samples, beside the other one. */
static void write_empty(char out[128])
{
	struct pprof *p = NULL;
	FILE *file;

	(void)snprintf(out, 128, "%s.empty", path);
	file = fopen(out, "w");
	CHECK(file && !pprof_new(&p), "set up");
	if (!file || !p)
		return;
	pprof_sample_type(p, "samples", "count");
	pprof_sample_type(p, "cpu", unit);
	CHECK(!pprof_write(p, 1, fileno(file)), "written");
	pprof_free(p);
	(void)fclose(file);
}

static void test_views(void)
{
	char by[] = "--by", module[] = "module", callers[] = "--callers=^leaf$",
	     always[] = "--bars=always", callees[] = "--callees=^b$", focus[] = "--focus=^leaf$",
	     ignore[] = "--ignore=leaf", folded[] = "--format=folded", type[] = "--sample-type=cpu",
	     in_lib[] = "--module=/lib/lib.so$", diff[144], empty[128];

	write_profile();
	has(REPORT(by, module), "   SELF                  TOTAL                MODULE\n"
				" 60.00%      60.00 ms   60.00%      60.00 ms  [unknown]\n"
				" 40.00%      40.00 ms  100.00%     100.00 ms  lib.so\n");
	/* Equal shares are sorted by name; recursion is one step per call. */
	has(REPORT(callers), " 60.00%      60.00 ms  leaf\n"
			     " 60.00%      60.00 ms    b  (lib.so)\n"
			     " 60.00%      60.00 ms      a  (lib.so)\n");
	has(REPORT(callees), " 90.00%      90.00 ms  b  (lib.so)\n"
			     " 60.00%      60.00 ms    leaf\n");
	has(REPORT(focus), "# 6 samples, 60.00 ms of cpu in 2.50 s\n");
	has(REPORT(ignore), "# 4 samples, 40.00 ms of cpu in 2.50 s\n");
	has(REPORT(in_lib), "# 10 samples, 100.00 ms of cpu");
	has(REPORT(always),
	    " 60.00%      60.00 ms   60.00%      60.00 ms  ███████▎              leaf\n");
	has(REPORT(folded), "a;a;[lib.so] 1\n");
	has(REPORT(folded), "a;b 3\na;b;leaf 6\n");
	has(REPORT(folded, type), "a;b 30000000\na;b;leaf 60000000\n");
	(void)snprintf(diff, sizeof(diff), "--diff=%s", path);
	has(REPORT(diff), "  60.00%    60.00%     +0.00%          0 ns          leaf\n");
	has(REPORT(folded, diff), "a;b;leaf 6 6\n");
	/* Two numbers, also if the base has none of these samples. */
	write_empty(empty);
	(void)snprintf(diff, sizeof(diff), "--diff=%s", empty);
	has(REPORT(folded, diff), "a;b;leaf 0 6\n");
	(void)unlink(empty);
}

static int run(const char *a, const char *b)
{
	char name[] = "report",
	     *argv[] = { name, (char *)(uintptr_t)a, (char *)(uintptr_t)b, NULL };
	int argc = 1 + (a != NULL) + (b != NULL);

	optind = 0; /* getopt starts anew */
	return cmd_report(argc, argv);
}

static void test_exit_codes(void)
{
	FILE *file;

	write_profile();
	CHECK(run(path, "--check") == CMD_DONE, "a sound file");
	CHECK(run(NULL, NULL) == CMD_USAGE, "no file");
	CHECK(run(path, path) == CMD_DONE, "two files are one");
	CHECK(run("--callers=(", path) == CMD_USAGE, "no pattern");
	CHECK(run("--by=colour", path) == CMD_USAGE, "no such rows");
	CHECK(run("--format=svg", path) == CMD_USAGE, "no such format");
	CHECK(run("--diff=x", "--callers=y") == CMD_USAGE, "not together");
	CHECK(run("--output=/dev/null", path) == CMD_DONE, "a table in a file");
	CHECK(run("--output=x.svg", path) == CMD_USAGE, "a file of no known format");
	CHECK(run("--stop=truncated", path) == CMD_FAILED, "no sample matches");
	CHECK(run("--time=1,2", path) == CMD_FAILED, "a profile has no times");
	CHECK(run("--label=x", path) == CMD_USAGE, "no value");
	CHECK(run("--top=x", path) == CMD_USAGE, "no number");
	CHECK(run("--sort=name", path) == CMD_USAGE, "no such order");
	CHECK(run("--type=gpu", path) == CMD_FAILED, "no such type");
	CHECK(run("--type=samples", path) == CMD_DONE, "a type");
	CHECK(run("--help", NULL) == CMD_DONE, "help");
	CHECK(run("/proc/nonexistent", NULL) == CMD_FAILED, "no such file");
	file = fopen(path, "w");
	CHECK(file && fputs("no profile\n", file) > 0 && !fclose(file), "damage");
	CHECK(run(path, NULL) == CMD_FAILED, "a damaged file");
	CHECK(report_print(path, 10, stdout) == -EBADMSG, "its code");
}

/* What a heat map's reply says of its rows is not believed. */
static void test_charts_of_replies(void)
{
	static const char reply[] =
		"{\"type\":\"cpu\",\"unit\":\"nanoseconds\",\"begin_ns\":0,"
		"\"column_ns\":1000000000,\"rows\":%s,\"columns\":[[1,2],[3,4],[5,6],[7,8]]}";
	static const struct {
		const char *rows;
		int err;
		size_t lines;
	} cases[] = { { "2", 0, 3 },
		      { "0", 0, 1 },
		      { "-1", -EBADMSG, 0 },
		      { "4611686018427387904", -EBADMSG, 0 } }; /* times 4 columns: 0 */

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char json[512], *text = NULL;
		size_t size = 0, lines = 0;
		FILE *out = open_memstream(&text, &size);

		(void)snprintf(json, sizeof(json), reply, cases[i].rows);
		CHECK(out && query_print_heatmap(json, out) == cases[i].err, cases[i].rows);
		CHECK(out && !fclose(out), "close");
		for (size_t at = 0; at < size; at++)
			lines += text[at] == '\n';
		CHECK(lines == cases[i].lines, cases[i].rows);
		free(text);
	}
}

/* Print a reply. The caller frees the text. */
static char *print_reply(int (*print_it)(const char *json, FILE *out), const char *json)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	CHECK(out && !print_it(json, out) && !fclose(out), "print");
	return text;
}

/* Columns of a query have any names, also twice: a value belongs to its place in the row. */
static void test_rows_of_queries_have_all_values(void)
{
	static const char json[] = "[\n{\"1\":\"one\",\"max(w.end_ns)\":22,\"id\":33,\"id\":44,\"$"
				   "a\":5.5,\"[0]\":null,"
				   "\"a\\\"b\":66},\n{\"1\":\"two\",\"max(w.end_ns)\":77,\"id\":88,"
				   "\"id\":99,\"$a\":-1,\"[0]\":"
				   "\"x\",\"a\\\"b\":\"[1]\"}\n]\n";
	static const char expected[] = "1    max(w.end_ns)  id  id  $a   [0]  a\"b\n"
				       "one  22             33  44  5.5       66\n"
				       "two  77             88  99  -1   x    [1]\n";
	char *text = print_reply(query_print_rows, json);

	CHECK(text && !strcmp(text, expected), text);
	free(text);
}

/* A reply of top to the rows' order: names of wakers, and totals, if the rows are in their order. */
static void test_tables_of_replies(void)
{
	static const char json[] =
		"{\"begin_ns\":0,\"to_ns\":1,\"type\":\"off_cpu\",\"unit\":\"nanoseconds\","
		"\"samples\":3,"
		"\"value\":100,\"base\":\"before\",\"base_value\":100,\"by\":\"waker\",\"sort\":"
		"\"total\","
		"\"rows_left_out\":0,\"rows\":[{\"waker\":\"postgres\",\"self\":10,\"total\":70,"
		"\"base_self\":10,\"base_total\":40}]}\n";
	char *text = print_reply(query_print_top, json);

	CHECK(text && strstr(text, "postgres") && strstr(text, "40.00%") &&
		      strstr(text, "70.00%") && strstr(text, "+30.00%"),
	      text);
	free(text);
}

int main(void)
{
	int fd = mkstemp(path);

	/* Commands run one after the other in this process. */
	CHECK(!setenv("OFFWIND_SANDBOX", "off", 1), "setenv");
	CHECK(fd >= 0, "a temporary file");
	(void)close(fd);
	test_functions_by_their_own_share();
	test_no_sum_overflows();
	test_hostile_names_stay_on_their_line();
	test_views();
	test_exit_codes();
	test_charts_of_replies();
	test_rows_of_queries_have_all_values();
	test_tables_of_replies();
	(void)unlink(path);
	return check_done();
}

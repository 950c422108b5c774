/*
 * tests/unit/test_api_compare.c: tests requests that compare two times or two labels, that ask when a
 * function ran, and the page for browsers.
 */
#include "agent/http/api.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

#define SECOND ((uint64_t)1000000000)
#define START  (UINT64_C(1700000000) * SECOND)

static char dir[] = "/tmp/offwind-test-XXXXXX", path[64];

static uint32_t location(struct stacks *s, const char *name, uint64_t address)
{
	struct stacks_module m = { .path = stacks_text(s, "/bin/made"),
				   .build_id = stacks_text(s, "ab"),
				   .start = 0x1000,
				   .limit = 0x9000 };
	struct stacks_function f = { .name = stacks_text(s, name),
				     .system_name = stacks_text(s, name),
				     .file = stacks_text(s, "") };
	struct stacks_line line = { .function = stacks_function(s, &f) };
	struct stacks_location l = { .module = stacks_module(s, &m),
				     .address = address,
				     .n_lines = 1 };

	return stacks_location(s, &l, &line);
}

static uint32_t label(struct stacks *s, const char *key, const char *text, uint64_t number)
{
	struct stacks_label l = { .key = stacks_text(s, key),
				  .text = text ? stacks_text(s, text) : NULL,
				  .number = (int64_t)number };

	return stacks_keep_label(s, &l);
}

/* Add n samples of main calling a function, one each second. */
static void add(struct stacks *s, const char *comm, const char *function, uint64_t address,
		uint64_t start_ns, int n)
{
	uint32_t ids[] = { location(s, function, address), location(s, "main", 0x1000) };

	for (int i = 0; i < n; i++) {
		uint32_t labels[] = { label(s, HISTORY_TIME_LABEL, NULL,
					    start_ns + (uint64_t)i * SECOND),
				      label(s, "comm", comm, 0) };
		int64_t values[] = { 1, (int64_t)SECOND, strcmp(function, "rest") ? 0 : 5 };

		if (stacks_add(s, &(struct stacks_sample){ .n_locations = 2, .n_labels = 2 }, ids,
			       labels, values))
			abort();
	}
}

/* Add a sample of "c" in a container. */
static void add_in_container(struct stacks *s, const char *id, uint64_t time_ns)
{
	uint32_t labels[] = { label(s, HISTORY_TIME_LABEL, NULL, time_ns), label(s, "comm", "c", 0),
			      label(s, "container_id", id, 0) };
	const int64_t values[] = { 1, (int64_t)SECOND, 0 };

	if (stacks_add(s, &(struct stacks_sample){ .n_labels = 3 }, NULL, labels, values))
		abort();
}

/*
 * Ten seconds in which "a" works, then ten in which "a" rests and "b" works, then ten of programs with odd
 * names.
 */
static struct history *fill(void)
{
	struct history *h = NULL;
	struct stacks *s[3];

	for (int i = 0; i < 3; i++)
		if (stacks_new(&s[i]) || stacks_add_type(s[i], "samples", "count") ||
		    stacks_add_type(s[i], "cpu", "nanoseconds") ||
		    stacks_add_type(s[i], "off_cpu", "nanoseconds"))
			abort();
	add(s[0], "a", "work", 0x2000, START, 10);
	add(s[1], "a", "rest", 0x3000, START + 10 * SECOND, 4);
	add(s[1], "b", "work", 0x2000, START + 10 * SECOND, 6);
	add(s[2], "x,y", "work", 0x2000, START + 20 * SECOND, 1);
	add(s[2], "x", "work", 0x2000, START + 20 * SECOND, 2);
	add(s[2], "x\\x2dy", "work", 0x2000, START + 20 * SECOND, 4);
	add_in_container(s[2], "4f2cabcd", START + 20 * SECOND);
	add_in_container(s[2], "4f2d", START + 20 * SECOND);
	CHECK(!history_open(path, true, &h), "the history opens");
	for (uint64_t i = 0; i < 3; i++) {
		const struct history_window w = { .start_ns = START + i * 10 * SECOND,
						  .end_ns = START + (i + 1) * 10 * SECOND };

		CHECK(!history_add(h, s[i], &w), "a window is added");
		stacks_free(s[i]);
	}
	return h;
}

/*
 * Answer a request, "PATH?KEY=VALUE&KEY=VALUE", and return the reply or the error. The caller frees it.
 */
static char *ask(struct history *h, const char *url, unsigned int status)
{
	struct http_request r = { .method = "GET", .body = "", .now_ns = START + 60 * SECOND };
	struct http_reply reply = { .status = 0 };
	struct api api = { .history = h };
	char *copy = strdup(url), *text = NULL, *at = copy, *part;
	size_t size;

	reply.out = open_memstream(&text, &size);
	r.path = strsep(&at, "?");
	while ((part = strsep(&at, "&"))) {
		char *value = strchr(part, '=');

		*value = '\0';
		r.arguments[r.n_arguments++] = (struct http_argument){ part, value + 1 };
	}
	api_answer(&api, &r, &reply);
	(void)fclose(reply.out);
	free(copy);
	CHECK(reply.status == status, url);
	if (reply.status == 200)
		return text;
	free(text);
	return strdup(reply.error);
}

static void check_has(struct history *h, const char *url, unsigned int status, const char *wanted,
		      const char *what)
{
	char *text = ask(h, url, status);

	CHECK(strstr(text, wanted) != NULL, what);
	if (!strstr(text, wanted))
		(void)printf("%s\n%s\n", url, text);
	free(text);
}

#define FIRST	   "from=@1700000000&to=@1700000010"
#define SECOND_TEN "from=@1700000010&to=@1700000020"
#define BASE	   "base_from=@1700000000&base_to=@1700000010"

static void test_top_compares(struct history *h)
{
	const char *times = "/api/v1/top?" SECOND_TEN "&" BASE;
	char *text;

	check_has(h, times, 200,
		  "\"base\":\"2023-11-14T22:13:20Z to "
		  "2023-11-14T22:13:30Z\",\"base_value\":10000000000",
		  "the base has a name and a sum");
	check_has(h, times, 200, "\"value\":10000000000,", "the sum is that of the profile alone");
	check_has(h, times, 200,
		  "{\"function\":\"work\",\"module\":\"made\",\"self\":6000000000,\"self_percent\":"
		  "60",
		  "the profile's value");
	check_has(h, times, 200, "\"base_self\":10000000000,\"base_self_percent\":100",
		  "the base's value");
	check_has(h, times, 200, "\"samples\":10,", "samples of the base are not counted");
	check_has(h, "/api/v1/top?" FIRST "&by=comm&base_from=@1700000010&base_to=@1700000020", 200,
		  "{\"comm\":\"b\",\"self\":0,\"self_percent\":0,\"total\":0,\"total_percent\":0,"
		  "\"base_self\":6000000000",
		  "what only the base has");
	text = ask(h,
		   "/api/v1/top?" FIRST
		   "&sort=change&n=1&base_from=@1700000010&base_to=@1700000020",
		   200);
	CHECK(strstr(text, "\"sort\":\"change\"") && strstr(text, "_percent\":40,") &&
		      !strstr(text, "main"),
	      "what changed most comes first");
	free(text);
	text = ask(h, "/api/v1/top?" FIRST, 200);
	CHECK(!strstr(text, "base"), "without a base there is none");
	free(text);
}

static void test_labels_compare(struct history *h)
{
	const char *url = "/api/v1/top?" SECOND_TEN "&comm=a&base.comm=b";

	check_has(h, url, 200, "\"value\":4000000000,", "only a");
	check_has(h, url, 200, ", comm=b\",\"base_value\":6000000000", "with b");
	check_has(h, "/api/v1/top?" SECOND_TEN "&comm=a&base_from=@1700000010", 200,
		  "\"base_value\":10000000000", "conditions on labels are not the base's");
	check_has(h, "/api/v1/top?" SECOND_TEN "&focus=work&base.comm=a", 200, "\"base_value\":0",
		  "conditions on functions are");
	check_has(h, "/api/v1/flamegraph?" SECOND_TEN "&comm=a&base.comm=b", 200, "\"diff\":true",
		  "a flame graph");
	check_has(h, "/api/v1/flamegraph?" SECOND_TEN, 200, "\"diff\":false", "one without a base");
	check_has(h, "/api/v1/top?" FIRST "&base_from=never", 400, "base_from takes a time",
		  "no time");
	check_has(h, "/api/v1/top?" FIRST "&base_to=@1600000000", 400,
		  "base_to is not after base_from", "an empty base");
	check_has(h, "/api/v1/top?" FIRST "&b%d=1", 400, "takes no argument", "no argument");
}

static void test_timeline_of_a_function(struct history *h)
{
	/* Written out, as regcomp does it, the large ones have 2^40, 16,384 and 40,000 pieces and more. */
	static const char *const small[] = { "work{200}", "(a+b+c+d+e+f+g+h+i+j+k+l+m+n+){2,9}",
					     "[+{9}]{9}[[:digit:]+]*", "w\\{200}{9}|a{,}" };
	static const char *const large[] = { "x++++++++++++++++++++++++++++++++++++++++",
					     "x{200}{200}",
					     "((x{1,200}){200,}|y)",
					     "x{,200}{000000000200}",
					     "((((((((((((()+)+)+)+)+)+)+)+)+)+)+)+)+",
					     "((((((((((((((x+)+)+)+)+)+)+)+)+)+)+)+)+)+)" };
	const char *all = "from=@1700000000&to=@1700000020&step=10000";
	char url[256];

	(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=^work$&by=comm", all);
	check_has(h, url, 200, "{\"value\":\"a\",\"values\":[10000000000,0]}", "when a works");
	check_has(h, url, 200, "{\"value\":\"b\",\"values\":[0,6000000000]}", "when b works");
	(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=main", all);
	check_has(h, url, 200, "[10000000000,10000000000]", "a caller is found in all stacks");
	(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=absent&by=comm", all);
	check_has(h, url, 200, "\"series\":[\n]}", "a function that never ran");
	(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=(", all);
	check_has(h, url, 400, "focus: '(' is no valid condition: ", "no regular expression");
	for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
		(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=%s", all, small[i]);
		check_has(h, url, 200, "\"series\":[", small[i]);
	}
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
		(void)snprintf(url, sizeof(url), "/api/v1/timeline?%s&focus=%s", all, large[i]);
		check_has(h, url, 400, "is no valid condition: it repeats too much", large[i]);
	}
	check_has(h, "/api/v1/labels?key=comm&focus=rest&" SECOND_TEN, 200,
		  "{\"value\":\"a\",\"samples\":4,\"sum\":4000000000}", "labels of a function");
	check_has(h, "/api/v1/heatmap?focus=rest&step=1000&rows=1&" SECOND_TEN, 200,
		  "[1000000000],\n[1000000000],\n[1000000000],\n[1000000000],\n[0]",
		  "the heat map of a function");
}

/* Two waits like one that ended at 8.5 s: blocked from 2.5 s on, ready to run from 6.5 s on. */
static struct history *fill_waits(const char *file)
{
	static const char *const types[][2] = {
		{ "samples", "count" },		{ "cpu", "nanoseconds" },
		{ "off_cpu_samples", "count" }, { "off_cpu", "nanoseconds" },
		{ "blocked", "nanoseconds" },	{ "runnable", "nanoseconds" },
	};
	const int64_t s = (int64_t)SECOND;
	const int64_t values[] = { 0, 0, 2, 12 * s, 8 * s, 4 * s };
	const struct history_window w = { .start_ns = START, .end_ns = START + 10 * SECOND };
	struct history *h = NULL;
	struct stacks *stacks;
	uint32_t id, when;

	if (stacks_new(&stacks))
		abort();
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (stacks_add_type(stacks, types[i][0], types[i][1]))
			abort();
	id = location(stacks, "waits", 0x2000);
	when = label(stacks, HISTORY_TIME_LABEL, NULL, START + 8 * SECOND + SECOND / 2);
	CHECK(!stacks_add(stacks, &(struct stacks_sample){ .n_locations = 1, .n_labels = 1 }, &id,
			  &when, values),
	      "a wait");
	CHECK(!history_open(file, true, &h) && !history_add(h, stacks, &w), "a window is added");
	stacks_free(stacks);
	return h;
}

static void test_a_wait_takes_its_whole_time(void)
{
	const char *all = "/api/v1/timeline?from=@1700000000&to=@1700000010&step=1000&type=";
	char file[80], url[128];
	struct history *h;

	(void)snprintf(file, sizeof(file), "%s/waits.db", dir);
	h = fill_waits(file);
	(void)snprintf(url, sizeof(url), "%soff_cpu", all);
	check_has(h, url, 200,
		  "[0,0,1000000000,2000000000,2000000000,2000000000,2000000000,2000000000,"
		  "1000000000,0]",
		  "from its beginning to its end");
	(void)snprintf(url, sizeof(url), "%sblocked", all);
	check_has(h, url, 200, "[0,0,1000000000,2000000000,2000000000,2000000000,1000000000,0,0,0]",
		  "until it was woken");
	(void)snprintf(url, sizeof(url), "%srunnable", all);
	check_has(h, url, 200, "[0,0,0,0,0,0,1000000000,2000000000,1000000000,0]", "from then on");
	(void)snprintf(url, sizeof(url), "%soff_cpu_samples", all);
	check_has(h, url, 200, "[0,0,0,0,0,0,0,0,2,0]", "their number belongs to the end");
	check_has(h, "/api/v1/timeline?from=@1700000005&to=@1700000010&step=1000&type=off_cpu", 200,
		  "[2000000000,2000000000,2000000000,1000000000,0]", "what was before is left out");
	history_close(h);
}

/* Ten seconds with a sample of each of 1,000 programs, and one in each second of two more. */
static struct history *fill_many(const char *file)
{
	const struct history_window w = { .start_ns = START, .end_ns = START + 10 * SECOND };
	struct history *h = NULL;
	struct stacks *s;
	char comm[16];

	if (stacks_new(&s) || stacks_add_type(s, "samples", "count") ||
	    stacks_add_type(s, "cpu", "nanoseconds") ||
	    stacks_add_type(s, "off_cpu", "nanoseconds"))
		abort();
	for (unsigned int i = 0; i < 1000; i++) {
		(void)snprintf(comm, sizeof(comm), "p%u", i);
		add(s, comm, "work", 0x2000, START + i % 10 * SECOND, 1);
		if (i == 500)
			add(s, "long", "work", 0x2000, START, 10);
		if (i == 900)
			add(s, "longer", "work", 0x2000, START, 10);
	}
	add(s, "longer", "work", 0x2000, START + 3 * SECOND + SECOND / 2, 1);
	CHECK(!history_open(file, true, &h) && !history_add(h, s, &w), "a window is added");
	stacks_free(s);
	return h;
}

/* Read the numbers of a series, a thousand of them or one as one; NULL: there is none with this value. */
static const char *sum_series(const char *text, const char *value, int together, int64_t out[10])
{
	const char *at = strstr(text, value);
	char *end;

	at = at ? strstr(at, "\"values\":[") : NULL;
	if (!at)
		return NULL;
	at += strlen("\"values\":[");
	for (int i = 0; i < 10 * together; i++, at = end + 1) {
		out[i / together] += strtoll(at, &end, 10);
		if (*end != (i + 1 < 10 * together ? ',' : ']'))
			return NULL;
	}
	return at;
}

/* More values and steps than are added up at once give the same sums as fewer steps. */
static void test_a_timeline_of_many_values(void)
{
	static const char *const values[] = { "{\"value\":\"longer\",", "{\"value\":\"long\",",
					      "{\"value\":null," };
	static const int in_second_3[] = { 2, 1, 100 };
	const char *all = "/api/v1/timeline?from=@1700000000&to=@1700000010&by=comm";
	char file[80], url[160], *few, *many;
	struct history *h;

	(void)snprintf(file, sizeof(file), "%s/many.db", dir);
	h = fill_many(file);
	(void)snprintf(url, sizeof(url), "%s&n=2&step=1000", all);
	few = ask(h, url, 200);
	(void)snprintf(url, sizeof(url), "%s&n=2&step=1", all);
	many = ask(h, url, 200);
	for (size_t i = 0; i < 3; i++) {
		int64_t a[10] = { 0 }, b[10] = { 0 };

		CHECK(sum_series(few, values[i], 1, a) && sum_series(many, values[i], 1000, b) &&
			      !memcmp(a, b, sizeof(a)),
		      values[i]);
		CHECK(a[3] == in_second_3[i] * (int64_t)SECOND, "the sum of a second");
	}
	free(few);
	free(many);
	(void)snprintf(url, sizeof(url), "%s&n=1000&step=1", all);
	check_has(h, url, 400, "too many values for so many steps", "more rows than there is room");
	history_close(h);
}

static void test_whole_stacks_are_found(struct history *h)
{
	check_has(h, "/api/v1/timeline?" FIRST "&step=10000&by=stop&stop=root", 200,
		  "{\"value\":\"root\",\"values\":[10000000000]}",
		  "a stack without the label ended at its root");
}

static void test_samples(struct history *h)
{
	check_has(h, "/api/v1/labels", 200,
		  "{\"keys\":[\"comm\",\"container_id\",\"pid\",\"tid\"],\"types\":[\"samples\","
		  "\"cpu\",\"off_cpu\"]}",
		  "names of labels");
	check_has(h, "/api/v1/labels?key=stop&" FIRST, 200,
		  "{\"value\":\"root\",\"samples\":10,\"sum\":10000000000,\"meaning\":\"The stack "
		  "ended",
		  "reasons");
	check_has(h, "/api/v1/samples?n=4&type=off_cpu&" SECOND_TEN, 200, "\"samples_left_out\":0}",
		  "only samples that have a value");
	check_has(h, "/api/v1/explain?time_ns=1700000003000000000", 200,
		  "\"stop\":\"root\",\"meaning\":\"The stack ended at its outermost",
		  "why a stack ends");
}

/* The samples of values are counted in both ways: from a whole profile, and point by point. */
static void test_values_of_a_label(struct history *h)
{
	static const struct {
		const char *conditions;
		int n;
	} cases[] = {
		{ "comm=x", 2 },
		{ "comm=x,y", 2 },
		{ "comm=x\\,y", 1 },
		{ "comm=x\\,y,x", 3 },
		{ "comm=x\\x2dy", 4 },
		{ "comm=x\\x2dy&comm=x\\,y", 5 },
		{ "comm=x&comm=x", 2 },
		{ "comm=x&stop=truncated", 0 },
		{ "comm=", 0 },
		{ "comm=x\\", 0 },
		{ "comm=x\\,", 0 },
		{ "container_id=4f2c", 1 },
		{ "container_id=4f2", 2 },
		{ "container_id=4f2d,4f2ca", 2 },
		{ "container_id=f2", 0 },
		{ "container_id=&comm=c,x", 2 },
		{ "comm=4f", 0 },
	};
	char url[256], wanted[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)snprintf(url, sizeof(url), "/api/v1/top?from=@1700000020&to=@1700000030&%s",
			       cases[i].conditions);
		(void)snprintf(wanted, sizeof(wanted), "\"value\":%d000000000,", cases[i].n);
		check_has(h, url, 200, cases[i].n ? wanted : "\"value\":0,", "of a profile");
		(void)snprintf(
			url, sizeof(url),
			"/api/v1/heatmap?from=@1700000020&to=@1700000030&step=10000&rows=1&%s",
			cases[i].conditions);
		(void)snprintf(wanted, sizeof(wanted), "[%d000000000]", cases[i].n);
		check_has(h, url, 200, cases[i].n ? wanted : "[0]", "of points");
	}
}

static void run_sql(const char *sql)
{
	sqlite3 *db = NULL;

	CHECK(sqlite3_open(path, &db) == SQLITE_OK &&
		      sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK,
	      sql);
	(void)sqlite3_close(db);
}

/* What of a window came before its damage is in no answer. */
static void test_a_damaged_window_is_left_out(struct history *h)
{
	static const char *const urls[] = {
		"/api/v1/timeline?from=@1700000000&to=@1700000030&step=1000&by=comm",
		"/api/v1/timeline?from=@1700000000&to=@1700000030&step=1000&by=pid",
		"/api/v1/heatmap?from=@1700000000&to=@1700000030",
		"/api/v1/labels?from=@1700000000&to=@1700000030&key=comm",
	};
	char *damaged[sizeof(urls) / sizeof(urls[0])];

	run_sql("UPDATE windows SET samples = substr(samples, 1, length(samples) - 1) WHERE id = "
		"2");
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
		damaged[i] = ask(h, urls[i], 200);
	run_sql("DELETE FROM windows WHERE id = 2");
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		char *without = ask(h, urls[i], 200);

		CHECK(!strcmp(damaged[i], without), urls[i]);
		free(damaged[i]);
		free(without);
	}
}

static void test_page(struct history *h)
{
	struct http_request r = { .method = "GET", .path = "/", .body = "" };
	struct http_reply reply = { .status = 0 };
	struct api api = { .history = h };
	char *text = NULL;
	size_t size;

	reply.out = open_memstream(&text, &size);
	api_answer(&api, &r, &reply);
	(void)fclose(reply.out);
	CHECK(reply.status == 200 && !strcmp(reply.type, "text/html; charset=utf-8"), "a page");
	CHECK(!strncmp(text, "<!doctype html>", 15) && strstr(text, "</html>"), "it is whole");
	CHECK(reply.policy && strstr(reply.policy, "default-src 'none'; script-src 'sha256-"),
	      "it has a policy");
	CHECK(!strstr(reply.policy, "unsafe") && !strchr(reply.policy, '*'), "which is strict");
	free(text);
}

int main(void)
{
	struct history *h;

	if (!mkdtemp(dir))
		abort();
	(void)snprintf(path, sizeof(path), "%s/history.db", dir);
	h = fill();
	test_top_compares(h);
	test_labels_compare(h);
	test_timeline_of_a_function(h);
	test_whole_stacks_are_found(h);
	test_a_wait_takes_its_whole_time();
	test_a_timeline_of_many_values();
	test_samples(h);
	test_values_of_a_label(h);
	test_page(h);
	test_a_damaged_window_is_left_out(h);
	history_close(h);
	for (int i = 0; i < 9; i++) {
		char file[96];

		(void)snprintf(file, sizeof(file), "%s/%s.db%s", dir,
			       (const char *const[]){ "history", "waits", "many" }[i / 3],
			       (const char *const[]){ "", "-wal", "-shm" }[i % 3]);
		(void)unlink(file);
	}
	(void)rmdir(dir);
	return check_done();
}

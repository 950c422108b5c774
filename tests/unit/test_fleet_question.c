/* tests/unit/test_fleet_question.c: tests which of the fleet's tables questions are asked from, and what is said if one cannot be. */
#include "agent/fleet/fleet.h"

#include "agent/fleet/batch.h"
#include "tests/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START UINT64_C(1700002800) /* an hour begins */

#if defined(__has_feature)
#define HAS_ASAN __has_feature(address_sanitizer)
#else
#define HAS_ASAN 0
#endif

static long n_streams = -1; /* texts that can still be begun; -1: all */
static bool failed;	    /* one could not */

#if !HAS_ASAN
/* Stand in for libc's function, as the program's own definition comes first. */
FILE *open_memstream(char **text, size_t *size)
{
	FILE *(*of_libc)(char **, size_t *) = NULL;

	failed = !n_streams;
	if (failed) {
		errno = ENOMEM;
		return NULL;
	}
	n_streams -= n_streams > 0;
	*(void **)&of_libc = dlsym(RTLD_NEXT, "open_memstream");
	return of_libc(text, size);
}
#endif

/* What a server says, and what it was asked last that is no question about its tables. */
struct server {
	uint64_t n_batches, ends, times; /* of samples */
	uint64_t n_late;		 /* that arrive when those there were counted */
	uint64_t n_later;		 /* that arrive while the question is answered */
	uint64_t n_summed;		 /* of the tables of sums */
	uint64_t share[2];		 /* rows of all stacks, and of those that match */
	bool has_sums, has_stack, lacks_totals;
	char asked[8192], said[8192];
};

struct bytes {
	uint8_t bytes[256];
	size_t n;
};

static void put(struct bytes *to, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to->bytes[to->n++] = (uint8_t)(value >> (8 * i));
}

static void put_text(struct bytes *to, const char *text)
{
	put(to, strlen(text), 1);
	memcpy(to->bytes + to->n, text, strlen(text));
	to->n += strlen(text);
}

/* A row of names: a frame of a file with the build-id "ab". */
static void put_name(struct bytes *to, uint64_t frame, const char *module, const char *function)
{
	put(to, frame, 8);
	put_text(to, "ab");
	put(to, 0x1000 * frame, 8);
	put_text(to, module);
	put(to, 1, 1);
	put_text(to, function);
	put(to, 1, 1);
	put_text(to, "a.c");
	put(to, 1, 1);
	put(to, 7, 4);
	put(to, 1, 8);
}

static int answer(void *ctx, const char *sql, const struct fleet_ids *ids, char **text,
		  size_t *size)
{
	struct server *s = ctx;
	struct bytes reply = { .n = 0 };

	(void)ids;
	if (strstr(sql, " FROM types")) {
		put(&reply, batch_type_id("cpu", "nanoseconds"), 4);
		put_text(&reply, "cpu");
		put_text(&reply, "nanoseconds");
		put_text(&reply, "samples");
	} else if (strstr(sql, "uniqExact(host")) {
		put(&reply, s->n_batches, 8);
		put(&reply, 300, 8);
		put(&reply, START, 8);
		put(&reply, START + 7200, 8);
		put(&reply, s->n_batches * s->times, 8);
		put(&reply, s->ends, 8);
		s->n_batches += s->n_late;
		s->n_late = 0;
	} else if (strstr(sql, "system.tables")) {
		put(&reply, s->has_sums && !(s->lacks_totals && strstr(sql, "'host_totals'")), 8);
	} else if (strstr(sql, "sum(rows)")) {
		put(&reply, s->n_summed, 8);
		put(&reply, s->ends, 8);
	} else if (strstr(sql, "part_matching")) {
		put(&reply, s->share[0], 8);
		put(&reply, s->share[1], 8);
	} else if (strstr(sql, "SELECT stack, frames FROM")) {
		put(&reply, 5, 8);
		put(&reply, 2, 1);
		put(&reply, 1, 8);
		put(&reply, 2, 8);
	} else if (strstr(sql, "SELECT frame, build_id")) {
		put_name(&reply, 1, "/usr/bin/a", "inner");
		put_name(&reply, 2, "/opt/b", "outer");
	} else {
		if (s->has_stack && strstr(sql, "SELECT stack")) {
			put(&reply, 5, 8);
			put(&reply, 0, 8);
			put_text(&reply, "");
			put(&reply, 3, 8);
			put(&reply, 30, 8);
		}
		(void)snprintf(s->asked, sizeof(s->asked), "%s", sql);
		s->n_batches += s->n_later;
		s->n_later = 0;
	}
	*text = malloc(sizeof(reply.bytes));
	if (!*text)
		return -ENOMEM;
	memcpy(*text, reply.bytes, reply.n);
	*size = reply.n;
	return 0;
}

/* Ask "PATH?KEY=VALUE&KEY=VALUE". Return the status; error has room for what went wrong. */
static unsigned int ask(struct server *s, const char *url, char error[HTTP_ERROR])
{
	struct fleet fleet = { .ask = answer, .ctx = s };
	struct api_remote remote = fleet_remote(&fleet);
	struct api api = { .remote = &remote };
	struct http_request r = { .method = "GET",
				  .body = "",
				  .now_ns = (START + 86400) * 1000000000 };
	struct http_reply reply = { .status = 200 };
	char *copy = strdup(url), *at = copy, *part;

	reply.out = tmpfile();
	r.path = strsep(&at, "?");
	while ((part = strsep(&at, "&"))) {
		char *value = strchr(part, '=');

		*value = '\0';
		r.arguments[r.n_arguments++] = (struct http_argument){ part, value + 1 };
	}
	s->asked[0] = '\0';
	api_answer(&api, &r, &reply);
	rewind(reply.out);
	s->said[fread(s->said, 1, sizeof(s->said) - 1, reply.out)] = '\0';
	(void)fclose(reply.out);
	free(copy);
	(void)snprintf(error, HTTP_ERROR, "%s", reply.error);
	return reply.status;
}

static bool asks_from(struct server *s, const char *url, const char *from)
{
	char error[HTTP_ERROR];
	unsigned int status = ask(s, url, error);
	/* A question to host_sums asks samples, too. */
	bool ok = status == 200 && strstr(s->asked, from) &&
		  !strstr(s->asked, "host_sums") == !strstr(from, "host_sums");

	if (!ok)
		(void)printf("%s: %u %s\n%s\n", url, status, error, s->asked);
	return ok;
}

#define DAY  "from=@1700002800&to=@1700089200"
#define PART "from=@1700003000&to=@1700010300"
#define HALF "from=@1700002800&to=@1700004600"

static void test_the_smallest_table_is_asked(void)
{
	struct server s = {
		.n_batches = 24, .ends = 7, .times = 1, .n_summed = 24, .has_sums = true
	};

	CHECK(asks_from(&s, "/api/v1/top?" DAY, "FROM hour_sums WHERE"), "all hosts");
	CHECK(strstr(s.asked, " UNION ALL SELECT stack, sum(n) AS part_n, sum(value) AS part_value "
			      "FROM sums WHERE"),
	      "the rest of a range");
	CHECK(asks_from(&s, "/api/v1/top?" HALF, "FROM sums WHERE"), "all hosts, not for long");
	CHECK(asks_from(&s, "/api/v1/timeline?focus=^a$&" DAY, "FROM sums WHERE"),
	      "all hosts by time");
	CHECK(asks_from(&s, "/api/v1/timeline?" DAY, "FROM host_totals WHERE"),
	      "all stacks by time");
	CHECK(asks_from(&s, "/api/v1/labels?key=host&" DAY, "FROM host_totals WHERE"), "by host");
	CHECK(asks_from(&s, "/api/v1/labels?key=host&host=a&" HALF, "FROM host_totals WHERE"),
	      "by host, less than an hour");
	CHECK(asks_from(&s, "/api/v1/labels?key=host&focus=^a$&" DAY, "FROM host_sums WHERE"),
	      "hosts of a function");
	CHECK(asks_from(&s, "/api/v1/top?by=host&" DAY, "FROM host_totals WHERE"), "top by host");
	CHECK(asks_from(&s, "/api/v1/top?host=a&" DAY, "FROM host_sums WHERE"), "one host");
	CHECK(asks_from(&s, "/api/v1/top?host=a&comm=b&" DAY, "FROM samples WHERE"),
	      "a host and a label");
	CHECK(asks_from(&s, "/api/v1/labels?key=comm&" DAY, "FROM samples WHERE"), "by a label");
	CHECK(asks_from(&s, "/api/v1/top?container_id=4f,&" DAY,
			"(startsWith(vals[indexOf(keys, 'container_id')], '4f') OR "
			"vals[indexOf(keys, 'container_id')] = '')"),
	      "a container's id begins so, or there is none");
	CHECK(asks_from(&s, "/api/v1/timeline?by=host&" DAY, "FROM host_totals WHERE"),
	      "by host and time");
	CHECK(asks_from(&s, "/api/v1/timeline?by=host&focus=^a$&" DAY, "FROM samples WHERE"),
	      "of some stacks by host and time");
	CHECK(asks_from(&s, "/api/v1/labels?key=host&focus=^a$&" HALF, "FROM samples WHERE"),
	      "of some stacks, less than an hour");
}

static void test_hours_are_whole(void)
{
	struct server s = {
		.n_batches = 24, .ends = 7, .times = 1, .n_summed = 24, .has_sums = true
	};

	CHECK(asks_from(&s, "/api/v1/labels?key=host&focus=^a$&" PART,
			"FROM host_sums WHERE type = 3854237421 AND hour >= toDateTime(1700003000) "
			"AND hour <= toDateTime(1700006700)"),
	      "the hours that begin and end in the range");
	CHECK(strstr(s.asked, "(toStartOfHour(time) < toDateTime(1700003000) OR "
			      "toStartOfHour(time) > toDateTime(1700006700))") != NULL,
	      "the others");
}

static void test_sums_have_the_batches(void)
{
	struct server s = {
		.n_batches = 24, .ends = 7, .times = 1, .n_summed = 23, .has_sums = true
	};

	CHECK(asks_from(&s, "/api/v1/labels?key=host&" DAY, "FROM samples WHERE"),
	      "a batch is missing");
	s.n_summed = 24;
	s.has_sums = false;
	CHECK(asks_from(&s, "/api/v1/labels?key=host&" DAY, "FROM samples WHERE"), "no such table");
	s.has_sums = true;
	s.times = 2;
	CHECK(asks_from(&s, "/api/v1/labels?key=host&" DAY, "FROM samples FINAL WHERE"),
	      "a batch is there twice");
}

static void test_batches_arrive_meanwhile(void)
{
	struct server s = { .n_batches = 23,
			    .n_late = 1,
			    .ends = 7,
			    .times = 1,
			    .n_summed = 24,
			    .has_sums = true };

	CHECK(asks_from(&s, "/api/v1/top?by=host&" DAY, "FROM host_totals WHERE"),
	      "a batch that arrived after they were counted");
}

/* Return how often a text is in the last question. */
static int times_in(const struct server *s, const char *text)
{
	int n = 0;

	for (const char *at = s->asked; (at = strstr(at, text)); at++)
		n++;
	return n;
}

static void test_what_most_stacks_have_is_the_difference(void)
{
	static const char url[] = "/api/v1/labels?key=host&host=h&focus=^a$&" PART;
	static const char begin[] = "FROM (SELECT host, toInt64(sum(n)) AS part_n";
	static const char subtracted[] = " UNION ALL SELECT host, -toInt64(sum(n)) AS part_n, "
					 "-toInt64(sum(value)) AS part_value FROM ";
	struct server s = { .n_batches = 24,
			    .ends = 7,
			    .times = 1,
			    .n_summed = 24,
			    .share = { 9, 5 },
			    .has_sums = true };

	CHECK(asks_from(&s, url, "FROM host_sums WHERE"), "the stacks that do not match");
	CHECK(strstr(s.asked, begin) != NULL, s.asked);
	CHECK(times_in(&s, subtracted) == 2, "whole hours and the others");
	CHECK(times_in(&s, "AND host IN ('h')") == 3, "each has the condition on hosts");
	CHECK(times_in(&s, " AND NOT (stack IN (SELECT stack FROM stacks_by_frame") == 2,
	      "which stacks do not match");
	CHECK(strstr(s.asked, " AND stack IN (SELECT stack FROM hour_sums WHERE") &&
		      strstr(s.asked, " AND stack IN (SELECT stack FROM sums WHERE"),
	      "of those that there are");
	CHECK(strstr(s.asked, " HAVING sum(part_n) != 0 OR sum(part_value) != 0"),
	      "hosts without the function are none");
	s.n_later = 1;
	CHECK(asks_from(&s, url, "FROM host_sums WHERE") && !strstr(s.asked, begin),
	      "a batch arrived meanwhile: the sums themselves are asked");
	s.n_batches = 24;
	s.lacks_totals = true;
	CHECK(asks_from(&s, url, "FROM host_sums WHERE") && !strstr(s.asked, begin),
	      "there are no totals");
	s.lacks_totals = false;
	s.share[1] = 4;
	CHECK(asks_from(&s, url, "FROM host_sums WHERE") && !strstr(s.asked, begin),
	      "most stacks do not match");
}

static void test_a_file_has_one_path(void)
{
	struct server s = { .n_batches = 24, .ends = 7, .times = 1, .has_stack = true };
	char error[HTTP_ERROR];

	CHECK(ask(&s, "/api/v1/top?" DAY, error) == 200, error);
	CHECK(strstr(s.said, "\"inner\"") && strstr(s.said, "\"outer\""), "both functions");
	CHECK(strstr(s.said, "\"module\":\"a\"") && !strstr(s.said, "\"module\":\"b\""),
	      "they are in one file, though hosts have it at different paths");
}

/* Whichever text cannot be begun, the reply says that there is no answer. */
static void test_no_memory_is_said(void)
{
	static const char *const urls[] = { "/api/v1/labels",
					    "/api/v1/labels?key=host&" DAY,
					    "/api/v1/top?" DAY,
					    "/api/v1/timeline?" DAY,
					    "/api/v1/labels?key=host&focus=^a$&" DAY,
					    "/api/v1/counters?" DAY };
	struct server s = { .n_batches = 24,
			    .ends = 7,
			    .times = 1,
			    .n_summed = 24,
			    .share = { 9, 5 },
			    .has_sums = true };
	char error[HTTP_ERROR];

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		long n = 0;

		do {
			unsigned int status;

			failed = false;
			n_streams = n;
			status = ask(&s, urls[i], error);
			n_streams = -1;
			CHECK(failed ? status != 200 && *error : status == 200, urls[i]);
		} while (failed && n++ < 100);
		CHECK(n > 0, "texts are begun");
	}
}

int main(void)
{
	test_the_smallest_table_is_asked();
	test_hours_are_whole();
	test_sums_have_the_batches();
	test_batches_arrive_meanwhile();
	test_what_most_stacks_have_is_the_difference();
	test_a_file_has_one_path();
	if (!HAS_ASAN)
		test_no_memory_is_said();
	return check_done();
}

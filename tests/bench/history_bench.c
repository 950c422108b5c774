/*
 * tests/bench/history_bench.c: makes histories of busy machines, and measures how fast they are read.
 *   usage: history_bench make DB CPUS HERTZ HOURS STACKS   windows of all levels, up to now
 *          history_bench replay DB HOURS                   what a daemon recorded, again and again up to now, and merged
 *          history_bench read DB HOURS                     the last hours: stacks alone, with labels
 *          history_bench ask DB HOURS [FOLDER]             the same by requests to the daemon, without HTTP; the
 *                                                          replies go to the folder
 *          history_bench keep DB                           what merging and deleting takes, by step
 *
 * Stacks are drawn with a probability of 1 / rank, which gives as many different ones in 10 s as builds
 * do on two CPUs (about 340 of 380 with two million stacks). A stack is three frames more than one before
 * it in its program. Its depth is about 15.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/clock.h"
#include "agent/history/history.h"
#include "agent/history/history_internal.h"
#include "agent/http/api.h"

#define SECOND ((uint64_t)1000000000)
#define HOUR   (3600 * SECOND)

enum { PROGRAMS = 300, THREADS = 4, FUNCTIONS = 400, ADDRESSES = 3, NEW_FRAMES = 3, DEPTH = 15 };

struct made_stack {
	uint32_t program, depth;
	int64_t node;
};

static struct made_stack *stacks;
static uint32_t n_stacks;

static void die(const char *what, int err)
{
	(void)fprintf(stderr, "%s: %s\n", what, strerror(-err));
	exit(1);
}

static uint64_t draw(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint32_t draw_below(uint32_t n)
{
	return (uint32_t)((draw() >> 32) * n >> 32);
}

static double draw_unit(void)
{
	return (double)(draw() >> 11) * 0x1p-53;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void run(struct history *h, const char *sql)
{
	int err = db_exec(h->db, sql);

	if (err)
		die(sql, err);
}

static void make_names(struct history *h)
{
	char sql[1024];

	(void)snprintf(
		sql, sizeof(sql),
		"INSERT INTO types (type, unit) VALUES ('samples', 'count'), ('cpu', "
		"'nanoseconds');"
		"WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < %d)"
		" INSERT INTO modules SELECT n, '/usr/bin/program' || n, printf('%%040x', n), 0, 0,"
		" 1000000 FROM i;"
		"INSERT INTO labels SELECT id, json_object('comm', 'program' || id, 'cgroup',"
		" '/system.slice/program' || id || '.service'), id FROM modules;"
		"WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < %d)"
		" INSERT INTO functions SELECT n + 1, 'function_with_a_name_' || n || '(int, char"
		" const*)', '_Z' || n || 'function_with_a_name', 'src/file' || (n / 50) || '.cc', "
		"n,"
		" 0, n FROM i",
		PROGRAMS, PROGRAMS * FUNCTIONS - 1);
	run(h, sql);
}

static void make_frames(struct history *h)
{
	struct history_new_frames frames = { .last = 0 };
	int failed = history_frames_begin(h, &frames);

	for (uint32_t i = 0; i < PROGRAMS * FUNCTIONS * ADDRESSES; i++) {
		struct history_bytes lines = { .bytes = NULL };
		const struct history_frame_key key = { .module = i / (FUNCTIONS * ADDRESSES) + 1,
						       .address = 16 * i % 1000000 };
		int64_t id;

		history_put_uleb(&lines, i / ADDRESSES + 1, &failed);
		history_put_uleb(&lines, i % 200, &failed);
		if (!failed)
			failed = history_frames_add(h, &frames, &key,
						    uw_bytes_of(lines.bytes, lines.size), &id);
		free(lines.bytes);
	}
	if (!failed)
		failed = history_frames_end(h, &frames);
	if (failed)
		die("frames", failed);
	history_frames_fini(&frames);
}

/* Add frames to a stack of the program that there is already, or begin a new one. */
static void make_stack(struct history *h, struct history_new_nodes *nodes, struct made_stack *s,
		       const uint32_t *last, int64_t *parents)
{
	int64_t parent = 0;
	uint32_t depth = 0, n = NEW_FRAMES;
	int err;

	if (last[s->program] != UINT32_MAX && draw_below(DEPTH)) {
		const struct made_stack *other = &stacks[last[s->program]];
		uint32_t up = draw_below(2 * NEW_FRAMES);

		parent = other->node;
		for (depth = other->depth; depth && (up || depth > 2 * DEPTH); depth--) {
			parent = parents[parent];
			up -= up != 0;
		}
	} else {
		n = DEPTH;
	}
	for (; n--; depth++) {
		int64_t frame =
			1 + s->program * FUNCTIONS * ADDRESSES + draw_below(FUNCTIONS * ADDRESSES);
		int64_t node = 0;

		err = history_nodes_find(h, nodes, parent, frame, &node);
		if (err)
			die("nodes", err);
		parents[node] = parent;
		parent = node;
	}
	s->node = parent;
	s->depth = depth;
}

static void make_stacks(struct history *h)
{
	static uint32_t last[PROGRAMS];
	struct history_new_nodes nodes = { .last = 0 };
	int64_t *parents = calloc((size_t)n_stacks * (NEW_FRAMES + 2) + 100000, sizeof(*parents));

	memset(last, 0xff, sizeof(last));
	stacks = calloc(n_stacks, sizeof(*stacks));
	if (!stacks || !parents || history_nodes_begin(h, &nodes))
		die("stacks", -ENOMEM);
	for (uint32_t i = 0; i < n_stacks; i++) {
		stacks[i].program = draw_below(PROGRAMS);
		make_stack(h, &nodes, &stacks[i], last, parents);
		last[stacks[i].program] = i;
	}
	if (history_nodes_end(h, &nodes))
		die("stacks", -EIO);
	history_nodes_fini(&nodes);
	free(parents);
}

/* Add a window with n samples. Those of merged windows are counted first: they are many. */
static void make_window(struct history *h, uint64_t start_ns, uint64_t length_ns, size_t n,
			enum history_level level, int64_t period_ns)
{
	uint32_t threads = level == HISTORY_TOGETHER ? 1 : THREADS;
	uint32_t *counts = calloc((size_t)n_stacks * threads, sizeof(*counts));
	struct history_sample *samples = calloc(n, sizeof(*samples));
	struct history_bytes packed = { .bytes = NULL };
	size_t n_groups = 0;
	int64_t id;
	int err;

	if (!counts || !samples)
		die("window", -ENOMEM);
	for (size_t i = 0; i < n; i++) {
		uint32_t rank = (uint32_t)exp(draw_unit() * log(n_stacks));
		size_t at = (size_t)(rank % n_stacks) * threads + draw_below(threads);

		if (level == HISTORY_TIMES || !counts[at]++) {
			const struct made_stack *s = &stacks[at / threads];

			samples[n_groups++] = (struct history_sample){
				.labels = s->program + 1,
				.node = (uint64_t)s->node,
				.pid = 1000 + s->program,
				.tid = 1000 + s->program + (uint32_t)(at % threads),
				.time_ns = (uint64_t)(draw_unit() * (double)length_ns),
				.n_values = 2,
				.values = { { 1, 1 }, { 2, period_ns } }
			};
		}
	}
	for (size_t i = 0; level != HISTORY_TIMES && i < n_groups; i++) {
		/* What the first sample of a group was drawn as is not known any more: any count will do. */
		samples[i].values[0].value = 1 + draw_below((uint32_t)(2 * n / n_groups));
		samples[i].values[1].value = samples[i].values[0].value * period_ns;
	}
	err = samples_pack(samples, n_groups, level, &packed);
	if (!err)
		err = history_add_window(h,
					 &(struct history_row){ (int64_t)start_ns,
								(int64_t)(start_ns + length_ns),
								level, (int64_t)n, &packed },
					 &id);
	if (err)
		die("window", err);
	free(packed.bytes);
	free(samples);
	free(counts);
}

static void make(const char *path, double cpus, double hertz, double hours)
{
	static const uint64_t length_ns[] = { 10 * SECOND, 600 * SECOND, HOUR };
	uint64_t now = clock_ns(CLOCK_REALTIME) / HOUR * HOUR;
	uint64_t at = now - (uint64_t)(hours * (double)HOUR);
	struct history *h;
	int err = history_open(path, true, &h);

	if (err)
		die(path, err);
	run(h, "PRAGMA cache_size = -200000; BEGIN");
	make_names(h);
	make_frames(h);
	make_stacks(h);
	run(h, "COMMIT");
	while (at < now) {
		enum history_level level = now - at <= 6 * HOUR	   ? HISTORY_TIMES
					   : now - at <= 48 * HOUR ? HISTORY_THREADS
								   : HISTORY_TOGETHER;

		make_window(h, at, length_ns[level],
			    (size_t)(cpus * hertz * (double)(length_ns[level] / SECOND)), level,
			    (int64_t)(1e9 / hertz));
		at += length_ns[level];
	}
	run(h, "PRAGMA wal_checkpoint(TRUNCATE)");
	(void)printf("%.1f MB: nodes %" PRId64 ", windows %" PRId64 " with %.1f MB\n",
		     (double)db_number(h->db, "SELECT page_count * page_size FROM"
					      " pragma_page_count, pragma_page_size") *
			     1e-6,
		     db_number(h->db, "SELECT value FROM settings WHERE name = 'last_node'"),
		     db_number(h->db, "SELECT count(*) FROM windows"),
		     (double)db_number(h->db, "SELECT sum(length(samples)) FROM windows") * 1e-6);
	history_close(h);
}

/* Return what SQL gives as a number, as a time. */
static uint64_t time_of(struct history *h, const char *sql)
{
	return (uint64_t)db_number(h->db, sql);
}

/* Replace all windows by the recorded ones, so often that they fill so many hours, and merge them as the daemon does. */
static void replay(const char *path, double hours)
{
	const struct history_limits limits = { .bytes = 0 };
	const uint64_t now = clock_ns(CLOCK_REALTIME), all = (uint64_t)(hours * (double)HOUR);
	uint64_t end, span;
	struct history *h;
	char sql[512];
	int err = history_open(path, true, &h);

	if (err)
		die(path, err);
	end = time_of(h, "SELECT max(end_ns) FROM windows WHERE level = 0");
	span = end - time_of(h, "SELECT min(start_ns) FROM windows WHERE level = 0");
	if (!end)
		die("no recorded windows", -ENOENT);
	run(h, "BEGIN; CREATE TEMP TABLE recorded AS SELECT * FROM windows WHERE level = 0; DELETE "
	       "FROM windows");
	for (uint64_t done = 0; done < all; done += span) {
		(void)snprintf(sql, sizeof(sql),
			       "INSERT INTO windows (start_ns, end_ns, level, n_samples, samples)"
			       " SELECT start_ns + %" PRId64 ", end_ns + %" PRId64
			       ", 0, n_samples, samples FROM recorded WHERE end_ns + %" PRId64
			       " > %" PRIu64,
			       (int64_t)(now - done - end), (int64_t)(now - done - end),
			       (int64_t)(now - done - end), now - all);
		run(h, sql);
	}
	run(h, "COMMIT");
	do
		err = history_keep(h, &limits, now);
	while (err == 1);
	if (err)
		die(path, err);
	run(h, "PRAGMA wal_checkpoint(TRUNCATE)");
	(void)printf("%.1f hours of %.1f recorded ones: windows %" PRId64 " with %.1f MB\n", hours,
		     (double)span / (double)HOUR, db_number(h->db, "SELECT count(*) FROM windows"),
		     (double)db_number(h->db, "SELECT sum(length(samples)) FROM windows") * 1e-6);
	history_close(h);
}

/* ---- reading --------------------------------------------------------------------------------- */

static double peak_mb(void)
{
	struct rusage used;

	(void)getrusage(RUSAGE_SELF, &used);
	return (double)used.ru_maxrss / 1024;
}

static void read_once(struct history *h, const struct history_query *q, const char *what)
{
	struct history_found found;
	struct stacks *s;
	uint64_t start = now_ns(), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	int err = stacks_new(&s);

	if (!err)
		err = history_read(h, q, s, &found);
	if (err)
		die(what, err);
	(void)printf("%-28s %8.1f ms, %8.1f of CPU; %" PRIu64 " windows, %" PRIu64
		     " samples, %zu sums of %.1f frames, peak %.0f MiB\n",
		     what, (double)(now_ns() - start) * 1e-6,
		     (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e-6, found.n_windows,
		     found.n_samples, s->n_samples,
		     (double)s->n_location_ids / (double)(s->n_samples + 1), peak_mb());
	stacks_free(s);
}

static void read_hours(const char *path, double hours)
{
	struct history *h;
	int err = history_open(path, false, &h);
	uint64_t now;
	struct history_query q = { .to_ns = UINT64_MAX };

	if (err)
		die(path, err);
	now = (uint64_t)db_number(h->db, "SELECT max(end_ns) FROM windows");
	q.from_ns = now - (uint64_t)(hours * (double)HOUR);
	read_once(h, &q, "stacks alone, first");
	read_once(h, &q, "stacks alone, again");
	q.labels = true;
	read_once(h, &q, "with labels and threads");
	history_close(h);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* What is asked, as the page and the command do. "STEP": a column of the heat map for each pixel, at least a second. */
static const struct {
	const char *path, *key, *value;
	bool first; /* by a new connection, which has read nothing yet */
} requests[] = {
	{ "/api/v1/timeline", NULL, NULL, true },   { "/api/v1/timeline", "by", "comm", false },
	{ "/api/v1/timeline", "by", "pid", false }, { "/api/v1/heatmap", "step", "STEP", false },
	{ "/api/v1/labels", "key", "comm", false }, { "/api/v1/top", NULL, NULL, true },
	{ "/api/v1/top", "by", "comm", false },	    { "/api/v1/flamegraph", "cut", "2000", true },
	{ "/api/v1/flamegraph", NULL, NULL, true }, { "/api/v1/flamegraph", "by", "comm", true },
	{ "/api/v1/profile", NULL, NULL, true },
};

enum { REQUESTS = sizeof(requests) / sizeof(requests[0]) };

/* Answer one request, and keep the reply if there is a folder. */
static void ask_once(struct api *api, size_t i, const struct http_argument *range,
		     const char *value, const char *folder)
{
	const char *key = requests[i].key, *path = requests[i].path;
	struct http_request r = { .method = "GET",
				  .path = path,
				  .arguments = { range[0], range[1], { key, value } },
				  .n_arguments = key ? 3 : 2,
				  .body = "" };
	struct http_reply reply = { .out = NULL };
	uint64_t start = now_ns(), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	char name[256];

	(void)snprintf(name, sizeof(name), "%s/%zu%s", folder ? folder : "", i,
		       strrchr(path, '/') + 1);
	reply.out = folder ? fopen(name, "w+") : tmpfile();
	if (!reply.out)
		die("a reply", -ENOMEM);
	api_answer(api, &r, &reply);
	(void)printf(
		"%-20s %-6s %-6s %-6s %8.1f ms, %8.1f of CPU; status %u, %.1f KiB, peak %.0f MiB\n",
		path, key ? key : "", value ? value : "", requests[i].first ? "first" : "again",
		(double)(now_ns() - start) * 1e-6,
		(double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e-6, reply.status,
		(double)ftell(reply.out) / 1024, peak_mb());
	(void)fclose(reply.out);
}

static void ask_hours(const char *path, double hours, const char *folder)
{
	struct api api = { .history = NULL };
	char from[32], to[32], step[32];
	struct http_argument range[] = { { "from", from }, { "to", to } };

	(void)snprintf(step, sizeof(step), "%.0f", hours > 0.33 ? hours * 3000 : 1000);
	for (size_t i = 0; i < REQUESTS; i++) {
		const bool is_step = requests[i].value && !strcmp(requests[i].value, "STEP");
		uint64_t now;
		int err = 0;

		if (requests[i].first) {
			history_close(api.history);
			err = history_open(path, false, &api.history);
		}
		if (err)
			die(path, err);
		now = history_newest(api.history);
		(void)snprintf(from, sizeof(from), "%" PRIu64 "ns",
			       now - (uint64_t)(hours * (double)HOUR));
		(void)snprintf(to, sizeof(to), "%" PRIu64 "ns", now);
		ask_once(&api, i, range, is_step ? step : requests[i].value, folder);
	}
	history_close(api.history);
}

/* ---- merging and deleting -------------------------------------------------------------------- */

static void keep(const char *path)
{
	struct history *h;
	uint64_t now = clock_ns(CLOCK_REALTIME) + 24 * HOUR, longest = 0, all = 0, longest_cpu = 0;
	struct history_limits limits = { .bytes = 0 };
	int err = history_open(path, true, &h), steps = 0;

	while (!err) {
		uint64_t start = now_ns(), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), took;

		err = history_keep(h, &limits, now);
		if (err != 1)
			break;
		err = 0;
		took = now_ns() - start;
		longest = took > longest ? took : longest;
		cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		longest_cpu = cpu > longest_cpu ? cpu : longest_cpu;
		all += took;
		steps++;
	}
	if (err)
		die(path, err);
	(void)printf("a day later: %d steps, %.1f ms each, the longest %.1f ms, or %.1f of CPU; "
		     "peak %.0f MiB\n",
		     steps, (double)all * 1e-6 / (steps ? steps : 1), (double)longest * 1e-6,
		     (double)longest_cpu * 1e-6, peak_mb());
	history_close(h);
}

int main(int argc, char **argv)
{
	if (argc == 7 && !strcmp(argv[1], "make")) {
		n_stacks = (uint32_t)strtoul(argv[6], NULL, 10);
		make(argv[2], strtod(argv[3], NULL), strtod(argv[4], NULL), strtod(argv[5], NULL));
	} else if (argc == 4 && !strcmp(argv[1], "replay")) {
		replay(argv[2], strtod(argv[3], NULL));
	} else if (argc == 4 && !strcmp(argv[1], "read")) {
		read_hours(argv[2], strtod(argv[3], NULL));
	} else if ((argc == 4 || argc == 5) && !strcmp(argv[1], "ask")) {
		ask_hours(argv[2], strtod(argv[3], NULL), argv[4]);
	} else if (argc == 3 && !strcmp(argv[1], "keep")) {
		keep(argv[2]);
	} else {
		(void)fprintf(stderr, "usage: see tests/bench/history_bench.c\n");
		return 2;
	}
	return 0;
}

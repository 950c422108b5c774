/* agent/cmd/top.c: the top command: shows what the system runs right now, on a terminal. */
#include "agent/cli/columns.h"
#include "agent/cli/input.h"
#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/cli/screen.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/export/export.h"
#include "agent/export/result.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/pipeline/fold.h"
#include "agent/pipeline/names.h"
#include "agent/role/reading.h"
#include "agent/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WINDOWS_MAX = 600, PIDS_MAX = 64, QUERY_MAX = 64 };
#define SECOND_NS UINT64_C(1000000000)

static const enum ranking_by bys[] = { RANKING_SYMBOL, RANKING_MODULE, RANKING_PID,
				       RANKING_COMM,   RANKING_THREAD, RANKING_CONTAINER };
static const char *const by_names[] = { "symbol", "module", "pid", "comm", "thread", "container" };
static const char *const order_names[] = { "self", "total", "name" };
enum { N_BYS = sizeof(bys) / sizeof(bys[0]), N_ORDERS = 3 };

struct options {
	struct source_live_options live;
	struct walking walking;
	int32_t pids[PIDS_MAX];
	uint64_t delay_ns, window_ns, count;
	bool batch, hide_interpreters;
	size_t by, order; /* indexes of by_names and order_names */
};

enum prompt { PROMPT_NONE, PROMPT_PID, PROMPT_NAME };

struct top {
	const struct options *options;
	struct source *source;
	struct pipeline *pipeline;
	struct names *names;
	struct stacks *windows[WINDOWS_MAX]; /* newest first */
	size_t n_windows, most_windows;
	size_t by, order, scroll;
	uint64_t short_ns; /* by how much the newest window is shorter than the delay */
	bool paused, keys, redraw;
	uint64_t drawn; /* number of tables shown */
	struct accounting total;
	enum prompt prompt;
	char query[QUERY_MAX]; /* input of the prompt */
	uint64_t only_pid;     /* 0: all processes */
	char only_name[QUERY_MAX];
};

/* ---- what is shown ------------------------------------------------------------------ */

/* Free all windows from the given one on; the newest has number 0. */
static void forget(struct top *t, size_t from)
{
	for (size_t i = from; i < t->n_windows; i++)
		stacks_free(t->windows[i]);
	if (t->n_windows > from)
		t->n_windows = from;
}

/* Convert a profile to stacks with names. Return 0 or a negative code; the caller frees *out. */
static int load_window(struct top *t, const struct profile *profile, struct stacks **out)
{
	struct result *r = NULL;
	struct stacks *s = NULL;
	int err = stacks_new(&s);

	if (!err)
		err = result_into(s, false, &r);
	if (!err)
		err = result_add(r, profile, t->names, &t->source->info);
	if (!err && t->options->hide_interpreters)
		err = stacks_hide_interpreters(s);
	result_free(r);
	if (err)
		stacks_free(s);
	else
		*out = s;
	return err;
}

/*
 * Take what was folded since the last call, and make it the newest window; the oldest window is
 * dropped. While the display is paused, drop the samples. Return 0 or a negative code.
 */
static int take_window(struct top *t)
{
	struct profile *profile;
	struct stacks *s = NULL;
	int err = pipeline_take(t->pipeline, &profile);

	if (err)
		return err;
	if (!t->paused)
		err = load_window(t, profile, &s);
	names_bound(&t->names, now_ns());
	profile_free(profile);
	if (err || !s)
		return err;
	forget(t, t->most_windows - 1);
	memmove(t->windows + 1, t->windows, t->n_windows * sizeof(*t->windows));
	t->windows[0] = s;
	t->n_windows++;
	return 0;
}

/*
 * Keep only the rows whose names contain part, whatever the case. Shares are still of all samples.
 */
static void keep_names(struct ranking *r, const char *part)
{
	size_t n = 0;

	if (!*part)
		return;
	for (size_t i = 0; i < r->n_rows; i++)
		if (strcasestr(r->rows[i].name, part))
			r->rows[n++] = r->rows[i];
	r->n_rows = n;
}

/*
 * Rank the samples of all windows, of one process if the user chose one. Return 0 or a negative
 * code.
 */
static int rank(struct top *t, struct ranking *r)
{
	int err = 0;

	for (size_t i = 0; !err && i < t->n_windows; i++)
		err = ranking_add_of(r, t->windows[i], t->windows[i]->default_type,
				     t->only_pid ? "pid" : NULL, (int64_t)t->only_pid);
	if (!err)
		ranking_sort(r, (enum ranking_order)t->order);
	keep_names(r, t->only_name);
	return err;
}

/* Print the first line: time, host, what is shown, samples and losses. */
static void print_status(const struct top *t, const struct ranking *r, FILE *out)
{
	const char *unit = t->n_windows ? t->windows[0]->types[t->windows[0]->default_type].unit
					: "nanoseconds";
	uint64_t lost = 0;
	char value[TABLE_VALUE];
	struct tm tm;
	time_t now = time(NULL);
	char clock[16] = "";
	double seconds = (double)(t->n_windows * t->options->delay_ns - t->short_ns) / 1e9;

	if (localtime_r(&now, &tm))
		(void)strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	for (size_t i = 0; i < EVENT_LOST_N; i++)
		lost += t->total.lost[i];
	table_value(r->total, unit, value);
	(void)fprintf(out, "offwind top  %s  ", clock);
	table_text(t->source->info.host, 0, false, out);
	(void)fprintf(out,
		      "  last %.*f s: %s%s; by %s, sorted by %s; %" PRIu64 " samples, %" PRIu64
		      " lost%s\n",
		      seconds < 9.95, seconds, value, t->only_pid ? " of one process" : "",
		      by_names[t->by], order_names[t->order], t->total.captured, lost,
		      t->paused ? "; PAUSED" : "");
}

/* Print the second line: the prompt, the conditions in effect, or the keys. */
static void print_prompt(const struct top *t, FILE *out)
{
	if (t->prompt == PROMPT_PID)
		(void)fprintf(out, "only the process with the number (empty: all): %s_\n",
			      t->query);
	else if (t->prompt == PROMPT_NAME)
		(void)fprintf(out, "only names that contain (empty: all): %s_\n", t->query);
	else if (t->only_pid || *t->only_name)
		(void)fprintf(out, "only%s%.0" PRIu64 "%s%s  (f and / change that)\n",
			      t->only_pid ? " process " : "", t->only_pid,
			      *t->only_name ? " names that contain " : "", t->only_name);
	else
		(void)fputs(
			"s sort  b rows  f process  / name  space pause  r reset  ? keys  q quit\n",
			out);
}

static void print_keys(FILE *out)
{
	(void)fputs(
		"\n  s            sort: self, total, name\n"
		"  b            rows: functions, modules, processes, names, threads, containers\n"
		"  f            only one process, by its number\n"
		"  /            only rows whose names contain a text\n"
		"  space, p     pause; samples of the pause are not shown\n"
		"  r            start again with no samples\n"
		"  j k, arrows  scroll; page keys scroll by ten\n"
		"  ?            show the table again\n"
		"  q            quit\n",
		out);
}

/* Draw the screen or, in batch mode, print a table. Return 0 or a negative code. */
static int draw(struct top *t)
{
	size_t columns = 0, rows = 0;
	struct table_options table = { .order = (enum ranking_order)t->order,
				       .unit = "nanoseconds",
				       .bars = true };
	struct ranking r = { .by = bys[t->by] };
	int err = rank(t, &r);
	FILE *out;

	pipeline_total(t->pipeline, &t->total);
	if (t->n_windows)
		table.unit = t->windows[0]->types[t->windows[0]->default_type].unit;
	if (t->options->batch) {
		table.bars = false;
		table.n = 30;
		print_status(t, &r, stdout);
		table_print(&r, &table, stdout);
		(void)fputc('\n', stdout);
		if (!err && export_flush(stdout))
			err = -EIO;
	} else if (!err && (out = screen_draw())) {
		screen_size(&columns, &rows);
		print_status(t, &r, out);
		print_prompt(t, out);
		if (t->keys) {
			print_keys(out);
		} else {
			size_t skip = t->scroll < r.n_rows ? t->scroll : r.n_rows;
			struct ranking part = r;

			part.rows += skip;
			part.n_rows -= skip;
			table.width = columns;
			table.n = rows > 4 ? rows - 4 : 1;
			table_print(&part, &table, out);
		}
		screen_show();
	}
	t->redraw = false;
	ranking_fini(&r);
	return err;
}

/* ---- keys ---------------------------------------------------------------------------- */

/* Apply what was typed. A number that is not valid selects all processes. */
static void end_prompt(struct top *t)
{
	char *end;

	if (t->prompt == PROMPT_PID) {
		unsigned long long pid = strtoull(t->query, &end, 10);

		t->only_pid = *end || pid > INT32_MAX ? 0 : pid;
	} else {
		(void)snprintf(t->only_name, sizeof(t->only_name), "%s", t->query);
	}
	t->prompt = PROMPT_NONE;
	t->scroll = 0;
}

/* Handle a key while a prompt is open: Enter applies the input, Escape drops it. */
static void type_key(struct top *t, int key)
{
	size_t n = strlen(t->query);

	if (key == '\n' || key == '\r') {
		end_prompt(t);
	} else if (key == 27) { /* Escape */
		t->prompt = PROMPT_NONE;
	} else if (key == 127 || key == 8) {
		if (n)
			t->query[n - 1] = '\0';
	} else if (key >= ' ' && key < 127 && n + 1 < sizeof(t->query)) {
		t->query[n] = (char)key;
		t->query[n + 1] = '\0';
	}
}

/* Scroll by so many rows. draw limits the position to the rows that there are. */
static void scroll(struct top *t, int64_t by)
{
	int64_t to = (int64_t)t->scroll + by;

	t->scroll = to < 0 ? 0 : to > 100000 ? 100000 : (size_t)to;
}

static void begin_prompt(struct top *t, enum prompt prompt)
{
	t->prompt = prompt;
	t->query[0] = '\0';
}

/* Handle a key. Return false to quit. */
static bool press(struct top *t, int key)
{
	t->redraw = true;
	if (t->prompt != PROMPT_NONE) {
		type_key(t, key);
		return true;
	}
	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case 's':
		t->order = (t->order + 1) % N_ORDERS;
		break;
	case 'b':
		t->by = (t->by + 1) % N_BYS;
		t->scroll = 0;
		break;
	case 'f':
		begin_prompt(t, PROMPT_PID);
		break;
	case '/':
		begin_prompt(t, PROMPT_NAME);
		break;
	case ' ':
	case 'p':
		t->paused = !t->paused;
		break;
	case 'r':
		forget(t, 0);
		break;
	case '?':
	case 'h':
		t->keys = !t->keys;
		break;
	case 'j':
	case SCREEN_DOWN:
		scroll(t, 1);
		break;
	case 'k':
	case SCREEN_UP:
		scroll(t, -1);
		break;
	case SCREEN_PAGE_DOWN:
		scroll(t, 10);
		break;
	case SCREEN_PAGE_UP:
		scroll(t, -10);
		break;
	default:
		t->redraw = false;
	}
	return true;
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* By a signal before there is a screen, which takes signals itself (screen.c). */
static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	supervisor_hear_signals();
}

/* Handle keys, signals and changes of the terminal's size. Return false to quit. */
static bool look_at_screen(struct top *t)
{
	int key;

	if (interrupted)
		return false;
	if (t->options->batch)
		return true;
	if (screen_ended())
		return false;
	while ((key = screen_key()) != SCREEN_NONE)
		if (key == SCREEN_END || !press(t, key))
			return false;
	t->redraw = screen_changed() || t->redraw;
	return true;
}

/* The processes that are shown have ended: print what they ran since the last table, which was due at next_ns. */
static int show_last(struct top *t, uint64_t next_ns)
{
	uint64_t now = now_ns();
	int err = take_window(t);

	t->short_ns = next_ns > now ? next_ns - now : 0;
	return err ? err : draw(t);
}

/*
 * Sample, and draw after each delay, until the user quits, --count tables are shown or an error
 * occurs. Return 0, or a negative code after reporting it.
 */
static int run(struct top *t)
{
	uint64_t next = now_ns() + t->options->delay_ns, looked = 0;
	struct event event;
	int err = t->options->batch ? 0 : draw(t);

	while (!err) {
		int rc = source_next(t->source, &event, 50);
		uint64_t now = now_ns();

		if (rc == 0) {
			err = t->options->batch ? show_last(t, next) : 0;
			break;
		}
		if (rc == 1) {
			reading_busy(true);
			err = pipeline_event(t->pipeline, &event);
			reading_busy(false);
		} else if (rc != -EAGAIN && rc != -EINTR) {
			log_error("%s", t->source->error);
			return rc;
		}
		/* Look at the terminal at most 50 times a second while samples come. */
		if (rc == 1 && now < looked + SECOND_NS / 50)
			continue;
		looked = now;
		if (!look_at_screen(t))
			return 0;
		if (!err && now >= next) {
			next = now + t->options->delay_ns;
			err = take_window(t);
			if (!err && !t->paused) {
				err = draw(t);
				t->drawn++;
			}
			if (t->options->count && t->drawn >= t->options->count)
				return err;
		} else if (!err && t->redraw) {
			err = draw(t);
		}
	}
	if (err)
		log_error("top: %s", strerror(-err));
	return err;
}

/* In the supervisor. */
static void on_worker_ended(void *ctx)
{
	(void)ctx;
	screen_restore();
}

/* Open everything that top needs, and run. Return 0, or a negative code after reporting it. */
static int top(struct options *o)
{
	struct top t = { .options = o, .by = o->by, .order = o->order };
	struct walking walking = o->walking;
	char error[512] = "";
	/* Needed until the end, by the supervisor. */
	const struct supervision given = { .live = &o->live,
					   .db = walking.db,
					   .no_store = walking.no_cache,
					   .ended = on_worker_ended };
	bool freed;
	int err;

	if (!o->batch)
		screen_note();
	err = supervisor_start(&given);
	if (err)
		return err;
	if (supervisor_is_again())
		screen_restore();
	catch_signals();
	err = source_live_open(&o->live, &t.source, error);
	if (err) {
		log_error("%s", error);
		return err;
	}
	t.most_windows = (size_t)((o->window_ns + o->delay_ns - 1) / o->delay_ns);
	if (!t.most_windows)
		t.most_windows = 1;
	walking_open_store(&walking);
	supervisor_confine();
	err = pipeline_new(&walking.pipeline, &t.source->info, &t.pipeline);
	if (!err)
		err = names_new(pipeline_opener(t.pipeline), &t.source->info, !walking.as_linked,
				&t.names);
	if (!err)
		names_store(t.names, walking.pipeline.store);
	if (err)
		log_error("cannot start: %s", strerror(-err));
	if (!err && !o->batch) {
		err = screen_open();
		if (err)
			log_error("top: standard input and output must be a terminal; --batch "
				  "needs none");
	}
	if (!err)
		err = run(&t);
	screen_close();
	forget(&t, 0);
	names_free(t.names);
	freed = pipeline_free(t.pipeline);
	source_close(t.source);
	if (freed)
		store_close(walking.pipeline.store);
	return err;
}

/* ---- command ------------------------------------------------------------------------------- */

/* Read a list of processes. to is the struct options. */
static int take_pids(void *to, const char *option, char *text)
{
	struct options *o = to;

	for (bool more = true; more;) {
		size_t n = strcspn(text, ",");
		char word[16];
		uint64_t pid;

		(void)snprintf(word, sizeof(word), "%.*s", n < sizeof(word) ? (int)n : 15, text);
		if (input_number(option, word, 1, INT32_MAX, &pid))
			return -EINVAL;
		if (o->live.n_pids == PIDS_MAX) {
			log_error("%s: more than %d processes", option, PIDS_MAX);
			return -EINVAL;
		}
		o->pids[o->live.n_pids++] = (int32_t)pid;
		more = text[n] == ',';
		text += n + more;
	}
	o->live.pids = o->pids;
	return 0;
}

/*
 * Parse a time of at least 100 ms and at most an hour; a number alone is in seconds. Return 0, or
 * -EINVAL after reporting what is wrong.
 */
static int take_seconds(void *to, const char *option, char *text)
{
	uint64_t *out_ns = to, seconds;

	if (text[strspn(text, "0123456789")]) {
		if (input_time(option, text, 3600 * SECOND_NS, out_ns))
			return -EINVAL;
	} else {
		if (input_number(option, text, 1, 3600, &seconds))
			return -EINVAL;
		*out_ns = seconds * SECOND_NS;
	}
	if (*out_ns < SECOND_NS / 10) {
		log_error("%s: at least 100ms", option);
		return -EINVAL;
	}
	return 0;
}

/* Take one of the words. Return 0, or -EINVAL after reporting that it is none of them. */
static int one_of(const char *option, const char *text, const char *const *words, size_t n,
		  size_t *out)
{
	int i = option_word(option, text, words, n);

	if (i < 0)
		return i;
	*out = (size_t)i;
	return 0;
}

static int take_by(void *to, const char *option, char *text)
{
	return one_of(option, text, by_names, N_BYS, to);
}

static int take_order(void *to, const char *option, char *text)
{
	return one_of(option, text, order_names, N_ORDERS, to);
}

static int take_count(void *to, const char *option, char *text)
{
	return input_number(option, text, 1, UINT32_MAX, to);
}

/* to is the struct options. */
static int take_frequency(void *to, const char *option, char *text)
{
	struct options *o = to;
	uint64_t number;

	if (input_number(option, text, 1, 50000, &number))
		return -EINVAL;
	o->live.frequency_hz = (uint32_t)number;
	return 0;
}

static const char help_before[] = "usage: offwind top [OPTION]…\n"
				  "Shows in a terminal which functions run now.\n"
				  "\n";

static const char help_after[] =
	"\n"
	"Keys: s sort; b change the rows; f show one process only; / show only rows whose names\n"
	"contain a text; space or p pause; r start again; arrows, j, k and page keys scroll;\n"
	"? list the keys; q quit.\n"
	"\n"
	"This needs root, or CAP_BPF and CAP_PERFMON; see offwind doctor.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--pid", 'p', "PID[,PID…]", "show only these processes and their children",
	  .set = take_pids },
	{ "--freq", 'F', "HZ", "take HZ samples a second on each CPU (default 99)",
	  .set = take_frequency },
	{ "--delay", 0, "SEC", "draw the table every SEC seconds; also 500ms (default 2)",
	  .set = take_seconds, AT(delay_ns) },
	{ "--window", 0, "SEC",
	  "count the samples of the last SEC seconds (default 10; at most 600 times\n"
	  "those of --delay)",
	  .set = take_seconds, AT(window_ns) },
	{ "--by", 0, "WHAT",
	  "choose what a row is: symbol (default), module, pid, comm, thread or\n"
	  "container",
	  .set = take_by, AT(by) },
	{ "--sort", 0, "self|total|name", "sort the rows by this column (default self)",
	  .set = take_order, AT(order) },
	{ "--hide-interpreters", 0, NULL,
	  "leave out an interpreter's own functions between those that it runs", .set = option_true,
	  AT(hide_interpreters) },
	{ "--batch", 'b', NULL, "print tables one after another, without a terminal",
	  .set = option_true, AT(batch) },
	{ "--count", 'n', "N", "end after N tables", .set = take_count, AT(count) },
	{ "--max-frames", 0, "N", OPTION_BESIDE, .set = walking_max_frames, AT(walking) },
	{ "--scan", 0, NULL, OPTION_BESIDE, .set = option_true, AT(walking.pipeline.scan) },
	{ "--no-demangle", 0, NULL, OPTION_BESIDE, .set = option_true, AT(walking.as_linked) },
	{ "--db", 0, "FILE", OPTION_BESIDE, .set = option_text, AT(walking.db) },
	{ "--no-cache", 0, NULL, "as for record", .set = option_true, AT(walking.no_cache) },
	WALKING_NO_LINES_HIDDEN(struct options),
	{ "--debug-dir", 0, "DIR", .set = option_text, AT(walking.pipeline.debug_dir) },
	LIMIT_OPTION,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/*
 * Read the command line into *o. Return 0; 1 after --help was printed; or a negative code after
 * reporting what is wrong.
 */
static int parse(int argc, char **argv, struct options *o)
{
	int err = option_read(&option_table, argc, argv, o);

	if (!err && optind < argc) {
		log_error("top takes no arguments; see offwind top --help");
		err = -EINVAL;
	}
	if (!err && o->window_ns > WINDOWS_MAX * o->delay_ns) {
		log_error("--window is at most %d times --delay", WINDOWS_MAX);
		err = -EINVAL;
	}
	return err;
}

int cmd_top(int argc, char **argv)
{
	struct options o = { .live = { .frequency_hz = 99, .stack_max = 256 << 10 },
			     .walking = { .pipeline = { .live = true, .fold = true },
					  .frames_limit = 1 << 20 },
			     .delay_ns = 2 * SECOND_NS,
			     .window_ns = 10 * SECOND_NS };
	int rc = parse(argc, argv, &o);

	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	if (!o.batch && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
		log_error("top: standard input and output must be a terminal; --batch needs none");
		return CMD_USAGE;
	}
	io_allow_many_files();
	return top(&o) ? CMD_FAILED : CMD_DONE;
}

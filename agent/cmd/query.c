/* agent/cmd/query.c: the query command: asks a running daemon or a fleet what ran, and prints the replies. */
#include "agent/cli/option.h"
#include "agent/cli/when.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/fleet_answer.h"
#include "agent/cmd/query_print.h"

#include "agent/clock.h"
#include "agent/export/output.h"
#include "agent/http/client.h"
#include "agent/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URL_DEFAULT "http://127.0.0.1:7227"
enum { ARGUMENTS_MAX = 60, TOKEN_MAX = 4096 };

struct options {
	const char *url, *fleet, *token_file, *ca_file, *output;
	bool json, sql;
	struct argument { /* of the request: KEY=VALUE */
		const char *key, *value;
		size_t key_size;
		bool base; /* base.KEY */
	} arguments[ARGUMENTS_MAX];
	size_t n_arguments;
	uint64_t from_ns, to_ns, base_from_ns, base_to_ns; /* 0: not given */
};

/* What can be asked for. */
static const struct question {
	const char *name, *path;
	query_print *print; /* NULL: the reply is written as it is */
	const char *output; /* by default */
	const char *takes;  /* the argument behind the name; NULL: none */
	bool posts;	    /* with that argument as the body */
} questions[] = {
	{ "top", "/api/v1/top", query_print_top, "-", NULL, false },
	{ "flamegraph", "/api/v1/flamegraph", NULL, "offwind.html", NULL, false },
	{ "profile", "/api/v1/profile", NULL, "offwind.pb.gz", NULL, false },
	{ "record", "/api/v1/record", NULL, "offwind.pb.gz", NULL, true },
	{ "labels", "/api/v1/labels", query_print_labels, "-", "the key of a label", false },
	{ "timeline", "/api/v1/timeline", query_print_timeline, "-", NULL, false },
	{ "heatmap", "/api/v1/heatmap", query_print_heatmap, "-", NULL, false },
	{ "completeness", "/api/v1/completeness", query_print_rows, "-", NULL, false },
	{ "sql", "/api/v1/query", query_print_rows, "-", "a query", true },
};

static const char help_before[] =
	"usage: offwind query WHAT [OPTION]… [KEY | SQL]\n"
	"Asks a running offwind daemon by HTTP what ran, or a fleet's ClickHouse (docs/fleet.md).\n"
	"WHAT is one of:\n"
	"\n"
	"  top             functions, or what --by says, by their share\n"
	"  flamegraph      a flame graph page, in offwind.html\n"
	"  profile         the stacks as pprof, in offwind.pb.gz, or as --format says\n"
	"  record          stacks that are recorded now, for --seconds, as profile has them\n"
	"  labels KEY      the values of a label: comm, container_id, unit, …; of a fleet also "
	"host\n"
	"  timeline        sums by time, a line for each value of --by\n"
	"  heatmap         sums for the parts of each second\n"
	"  completeness    where stacks end that are not whole, and why\n"
	"  sql QUERY       the rows of a query in SQL (docs/history.md, docs/store.md, "
	"docs/fleet.md)\n"
	"\n";

static const char help_after[] = "\n"
				 "Exit code: 0 success, 1 failure, 2 wrong command line.\n";

static int add(struct options *o, const char *key, size_t key_size, const char *value, bool base)
{
	if (o->n_arguments == ARGUMENTS_MAX) {
		log_error("more than %d conditions", ARGUMENTS_MAX);
		return -E2BIG;
	}
	o->arguments[o->n_arguments++] = (struct argument){ key, value, key_size, base };
	return 0;
}

/* Take an option as the argument of that name. */
static int take_argument(void *to, const char *option, char *text)
{
	const char *name = option + strspn(option, "-");

	return add(to, name, strlen(name), text, false);
}

/* The same; the option may have no argument. */
static int take_optional(void *to, const char *option, char *text)
{
	char none[] = "";

	return take_argument(to, option, text ? text : none);
}

static int take_n(void *to, const char *option, char *text)
{
	(void)option;
	return add(to, "n", 1, text, false);
}

static int take_hide(void *to, const char *option, char *text)
{
	(void)option;
	(void)text;
	return add(to, "hide", strlen("hide"), "interpreters", false);
}

/* Return the label that a word names; as report and top --by have it, "container" is container_id. */
static const char *label_of(const char *word)
{
	return !strcmp(word, "container") ? "container_id" : word;
}

static int take_condition(void *to, const char *option, char *text)
{
	const char *equals = strchr(text, '=');
	size_t size = equals ? (size_t)(equals - text) : 0;
	bool base = !strcmp(option, "--base-label");

	if (!size) {
		log_error("%s takes KEY=VALUE, not '%s'", option, text);
		return -EINVAL;
	}
	if (size == strlen("container") && !strncmp(text, "container", size))
		return add(to, "container_id", strlen("container_id"), equals + 1, base);
	return add(to, text, size, equals + 1, base);
}

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--url", 0, "URL",
	  "ask the daemon at URL: " URL_DEFAULT " (default), https://…,\n"
	  "unix:/run/offwind/offwind.sock",
	  .set = option_text, AT(url) },
	{ "--fleet", 0, "URL",
	  "ask the fleet's ClickHouse at http://[USER:PASSWORD@]HOST:8123[/DATABASE]",
	  .set = option_text, AT(fleet) },
	{ "--sql", 0, NULL, "of a fleet: print the queries in SQL instead of the answer",
	  .set = option_true, AT(sql) },
	{ "--token-file", 0, "FILE", "send the token in FILE", .set = option_text, AT(token_file) },
	{ "--ca-file", 0, "FILE", "trust the certificates in FILE (PEM), not those of the system",
	  .set = option_text, AT(ca_file) },
	{ "--from", 0, "TIME",
	  "begin at TIME: -10m, 23:59, 2026-01-31T23:59:59Z, … (default: -5m, of a fleet -1h)",
	  .set = when_option, AT(from_ns) },
	{ "--to", 0, "TIME", "end before TIME (default: now)", .set = when_option, AT(to_ns) },
	{ "--label", 0, "KEY=VALUE[,…]",
	  "use only samples whose label KEY has this VALUE: comm, pid, container,\n"
	  "unit, stop, …",
	  .set = take_condition },
	{ "--focus", 0, "REGEX", "use only stacks with a matching function", .set = take_argument },
	{ "--ignore", 0, "REGEX", "use only stacks without a matching function",
	  .set = take_argument },
	{ "--module", 0, "REGEX", "use only stacks with a matching file", .set = take_argument },
	{ "--hide-interpreters", 0, NULL,
	  "leave out an interpreter's own functions between those that it\nruns; for top, "
	  "flamegraph and profile",
	  .set = take_hide },
	{ "--base-from", 0, "TIME", OPTION_BESIDE, .set = when_option, AT(base_from_ns) },
	{ "--base-to", 0, "TIME", "compare with this time; for top and flamegraph",
	  .set = when_option, AT(base_to_ns) },
	{ "--base-label", 0, "KEY=VALUE[,…]", "compare with the samples with this label",
	  .set = take_condition },
	{ "--type", 0, "TYPE", "use this sample type: samples, cpu, …", .set = take_argument },
	{ "--by", 0, "WORD",
	  "of top: add up by symbol (default), module, source, pid, comm, thread,\n"
	  "container or stop; of flamegraph and timeline: by this label",
	  .set = take_argument },
	{ "--sort", 0, "self|total|change", "sort top by this column (default self)",
	  .set = take_argument },
	{ "--top", 'n', "N", "print N rows or lines; 0 prints all of top", .set = take_n },
	{ "--step", 0, "MS", "let a step of timeline or heatmap be MS milliseconds",
	  .set = take_argument },
	{ "--rows", 0, "N", "divide each step of the heatmap into N parts", .set = take_argument },
	{ "--seconds", 0, "N", "record for N seconds (default 10)", .set = take_argument },
	{ "--freq", 'F', "HZ", "record HZ samples a second on each CPU (default 99)",
	  .set = take_argument },
	{ "--off-cpu", 0, "[=MIN]", "record waiting threads too, if they wait at least MIN",
	  .set = take_optional },
	{ "--event", 'e', "EVENT", OPTION_BESIDE, .set = take_argument },
	{ "--uprobe", 0, "FILE:FUNCTION", OPTION_BESIDE, .set = take_argument },
	{ "--alloc", 0, "[=BYTES]",
	  "record what offwind record has with this option, if the daemon's\n"
	  "settings allow it (record = any)",
	  .set = take_optional },
	{ "--format", 0, "FORMAT",
	  "of profile and record: pprof (default), folded, text, tsv, jsonl,\n"
	  "speedscope, firefox or parquet; of sql: csv",
	  .set = take_argument },
	{ "--json", 0, NULL, "print the daemon's reply in JSON", .set = option_true, AT(json) },
	{ "--output", 'o', "FILE", "write to FILE; - is standard output", .set = option_text,
	  AT(output) },
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/* ---- the request ------------------------------------------------------------------------- */

/* Write text, percent-encoded (RFC 3986, 2.1). */
static void put_encoded(const char *text, size_t size, FILE *out)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    (c && strchr("-._~,:/", c)))
			(void)fputc(c, out);
		else
			(void)fprintf(out, "%%%02X", c);
	}
}

/* Return the path of the request with all arguments; NULL: no memory. The caller frees it. */
static char *make_path(const struct question *q, const struct options *o, const char *key)
{
	const struct {
		const char *name;
		uint64_t ns;
	} times[] = { { "from", o->from_ns },
		      { "to", o->to_ns },
		      { "base_from", o->base_from_ns },
		      { "base_to", o->base_to_ns } };
	char *path = NULL, separator = '?';
	size_t size;
	FILE *out = open_memstream(&path, &size);

	if (!out)
		return NULL;
	(void)fputs(q->path, out);
	for (size_t i = 0; i < o->n_arguments; i++, separator = '&') {
		const struct argument *a = &o->arguments[i];

		(void)fprintf(out, "%c%s", separator, a->base ? "base." : "");
		put_encoded(a->key, a->key_size, out);
		(void)fputc('=', out);
		put_encoded(a->value, strlen(a->value), out);
	}
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (times[i].ns) {
			(void)fprintf(out, "%c%s=%" PRIu64 "ns", separator, times[i].name,
				      times[i].ns);
			separator = '&';
		}
	if (key) {
		(void)fprintf(out, "%ckey=", separator);
		put_encoded(key, strlen(key), out);
	}
	if (fclose(out)) {
		free(path);
		return NULL;
	}
	return path;
}

/* ---- a fleet ----------------------------------------------------------------------------- */

#define FLEET_FROM_NS UINT64_C(3600000000000)

/* Add an argument to a request, whose texts are owned then. */
static int add_argument(struct http_request *r, const char *before, const char *key,
			size_t key_size, const char *value)
{
	char *name = NULL, *copy = strdup(value);

	if (!copy || r->n_arguments == HTTP_ARGUMENTS ||
	    asprintf(&name, "%s%.*s", before, (int)key_size, key) < 0) {
		free(copy);
		return -ENOMEM;
	}
	r->arguments[r->n_arguments++] = (struct http_argument){ name, copy };
	return 0;
}

static int add_time(struct http_request *r, const char *key, uint64_t ns)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%" PRIu64 "ns", ns);
	return ns ? add_argument(r, "", key, strlen(key), text) : 0;
}

/* Ask a fleet as a daemon is asked. */
static int ask_fleet(const struct question *q, const struct options *o, const char *argument,
		     char **text, size_t *size)
{
	struct http_request r = { .method = "GET",
				  .path = q->path,
				  .now_ns = clock_ns(CLOCK_REALTIME) };
	struct fleet_asked asked = {
		.url = o->fleet, .request = &r, .sql = o->sql, .posts = q->posts
	};
	int err = add_time(&r, "from", o->from_ns ? o->from_ns : r.now_ns - FLEET_FROM_NS);

	if (asked.posts)
		r.body = argument;
	if (!err)
		err = add_time(&r, "to", o->to_ns);
	if (!err)
		err = add_time(&r, "base_from", o->base_from_ns);
	if (!err)
		err = add_time(&r, "base_to", o->base_to_ns);
	if (!err && argument && !asked.posts)
		err = add_argument(&r, "", "key", strlen("key"), argument);
	for (size_t i = 0; i < o->n_arguments && !err; i++)
		err = add_argument(&r, o->arguments[i].base ? "base." : "", o->arguments[i].key,
				   o->arguments[i].key_size, o->arguments[i].value);
	if (!err)
		err = fleet_answer(&asked, text, size);
	else
		log_error("%s", strerror(-err));
	for (size_t i = 0; i < r.n_arguments; i++) {
		free((char *)(uintptr_t)r.arguments[i].key);
		free((char *)(uintptr_t)r.arguments[i].value);
	}
	return err;
}

/* Read the token. Return 0 or a negative code after reporting it. */
static int read_token(const char *path, char token[TOKEN_MAX])
{
	FILE *file = fopen(path, "re");
	bool read = file && fgets(token, TOKEN_MAX, file);

	if (!read)
		log_error("%s: %s", path, file && !ferror(file) ? "is empty" : strerror(errno));
	else
		token[strcspn(token, "\r\n")] = '\0';
	if (file)
		(void)fclose(file);
	return read ? 0 : -EINVAL;
}

/* ---- the reply --------------------------------------------------------------------------- */

/* Write a reply, as a table if print is not NULL. Return 0 or a negative code after reporting it. */
static int write_reply(const char *path, query_print *print, const char *text, size_t size)
{
	struct output out = { .fd = -1 };
	FILE *file = NULL;
	int err = 0;

	/* Compressed (RFC 1952, 2.3.1), or a table of Parquet. */
	if (!strncmp(text, "\x1f\x8b", 2) || !strncmp(text, "PAR1", 4))
		err = output_not_terminal("query", path);
	if (!err)
		err = output_open(&out, path);
	if (!err && !(file = output_file(&out))) {
		err = -ENOMEM;
		log_unwritable(path, err);
	}
	if (!err && print)
		err = print(text, file);
	else if (!err)
		(void)fwrite(text, 1, size, file);
	if (!err)
		err = output_commit(&out);
	output_abort(&out);
	return err;
}

static const char *argument_of(const struct options *o, const char *key)
{
	for (size_t i = 0; i < o->n_arguments; i++)
		if (!strncmp(o->arguments[i].key, key, o->arguments[i].key_size) &&
		    !key[o->arguments[i].key_size])
			return o->arguments[i].value;
	return NULL;
}

/* Ask, and print. Return the exit code. */
static int query(const struct question *q, const struct options *o, const char *argument)
{
	const char *format = argument_of(o, "format");
	const char *path = o->output				    ? o->output
			   : o->sql				    ? "-"
			   : format && strcmp(format, "pprof") != 0 ? "-"
								    : q->output;
	char token[TOKEN_MAX], *request_path, *text = NULL;
	struct client_request request = { .url = o->url,
					  .body = !q->posts  ? NULL
						  : argument ? argument
							     : "" };
	bool prints = !o->json && !o->sql && !(format && !strcmp(format, "csv"));
	size_t size = 0;
	int err = o->token_file ? read_token(o->token_file, token) : 0;

	if (err)
		return CMD_FAILED;
	if (o->fleet) {
		err = ask_fleet(q, o, argument, &text, &size);
		if (!err)
			err = write_reply(path, prints ? q->print : NULL, text, size);
		free(text);
		return err ? CMD_FAILED : CMD_DONE;
	}
	request.token = o->token_file ? token : NULL;
	request.ca_file = o->ca_file;
	request.path = request_path = make_path(q, o, q->posts ? NULL : argument);
	if (!request_path) {
		log_error("%s", strerror(ENOMEM));
		return CMD_FAILED;
	}
	err = client_ask(&request, &text, &size);
	if (!err)
		err = write_reply(path, prints ? q->print : NULL, text, size);
	free(text);
	free(request_path);
	return err ? CMD_FAILED : CMD_DONE;
}

int cmd_query(int argc, char **argv)
{
	struct options o = { .url = URL_DEFAULT };
	int parsed = option_read(&option_table, argc, argv, &o);
	const struct question *q = NULL;
	int n;

	if (parsed)
		return parsed < 0 ? CMD_USAGE : CMD_DONE;
	n = argc - optind;
	for (size_t i = 0; n > 0 && i < sizeof(questions) / sizeof(questions[0]) && !q; i++)
		if (!strcmp(argv[optind], questions[i].name))
			q = &questions[i];
	if (!q) {
		log_error("query asks for top, flamegraph, profile, record, labels, timeline, "
			  "heatmap, completeness or sql%s%s%s",
			  n > 0 ? ", not '" : "", n > 0 ? argv[optind] : "", n > 0 ? "'" : "");
		return CMD_USAGE;
	}
	if (q->takes ? n != 2 : n != 1) {
		log_error("query %s takes %s%s", q->name, q->takes ? q->takes : "no argument",
			  q->takes && n < 2 ? ""
			  : q->takes	    ? " only"
					    : " behind it");
		return CMD_USAGE;
	}
	if (o.fleet && q->posts && q->print != query_print_rows) {
		log_error("query %s is for a daemon, not for a fleet", q->name);
		return CMD_USAGE;
	}
	if (!o.fleet && o.sql) {
		log_error("--sql is for a fleet: give its --fleet URL");
		return CMD_USAGE;
	}
	for (size_t i = 0; i < o.n_arguments && q->print != query_print_top; i++)
		if (o.arguments[i].key_size == 2 && !strncmp(o.arguments[i].key, "by", 2))
			o.arguments[i].value = label_of(o.arguments[i].value);
	if (q->print == query_print_labels)
		return query(q, &o, label_of(argv[optind + 1]));
	return query(q, &o, q->takes ? argv[optind + 1] : NULL);
}

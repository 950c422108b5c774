/* agent/cmd/daemon.c: the daemon command: records the machine all the time, and serves its history. */
#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cli/rights.h"
#include "agent/cli/supervisor.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/exports.h"
#include "agent/cmd/notify.h"
#include "agent/cmd/on_demand.h"
#include "agent/cmd/record/record_options.h"
#include "agent/history/history.h"
#include "agent/http/server.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/send/sender.h"
#include "agent/store/db.h"
#include "agent/textbuf.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONFIG_DEFAULT "/etc/offwind/offwind.conf"
#define LISTEN_DEFAULT "127.0.0.1:7227"

enum { WORDS_MAX = 256 };

enum { LOCK_MS = 5000 }; /* the processes of a daemon that was killed end a moment later */

struct setting {
	char *text; /* owned; NULL: not set */
	int line;   /* of the file; 0: of the command line */
};

/* What the command line and the configuration file say. */
struct daemon_options {
	const char *config; /* NULL: the default, which need not exist */
	bool check;
	struct setting listen[SERVER_SOCKETS];
	size_t n_listen;
	struct setting db, token_file, certificate, key;
	enum on_demand_mode on_demand;
	struct exports exports;
	/* Words for offwind record: what is recorded, and how. Owned. */
	char *words[WORDS_MAX];
	size_t n_words;
	struct history_limits limits;
	char *parsed[WORDS_MAX]; /* copies of the words, which parse_record divides; owned */
};

/* ---- the configuration file -------------------------------------------------------------- */

/* Begin messages with the place of a setting in the file. line 0: with none. */
static void at_line(const struct daemon_options *o, int line)
{
	static char place[4096 + 16];

	(void)snprintf(place, sizeof(place), "%s:%d: ", o->config ? o->config : "", line);
	log_place(line ? place : NULL);
}

static int keep(struct setting *to, const char *value, int line)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(to->text);
	*to = (struct setting){ copy, line };
	return 0;
}

static int add_listen(struct daemon_options *o, const char *value, int line)
{
	if (o->n_listen == SERVER_SOCKETS) {
		log_error("there are more than %d addresses to listen on", SERVER_SOCKETS);
		return -E2BIG;
	}
	return keep(&o->listen[o->n_listen++], value, line);
}

/* Options of offwind record that have a meaning for a daemon. */
static bool is_record_option(const char *name)
{
	static const char *const names[] = {
		"all-cpus",   "pid",	   "comm",    "uid",	     "cgroup",	   "container",
		"cpu-budget", "pod",	   "unit",    "cpu",	     "freq",	   "event",
		"uprobe",     "count",	   "off-cpu", "alloc",	     "max-frames", "stack-max",
		"ring",	      "realtime",  "scan",    "no-demangle", "no-lines",   "no-inline",
		"limit",      "debug-dir", "rotate",  "quiet",	     "verbose",	   "wait-rate",
		"wakers",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Add an option for offwind record. value NULL: it has no argument. */
static int give_word(struct daemon_options *o, const char *name, const char *value)
{
	if (o->n_words + 2 >= WORDS_MAX) {
		log_error("there are more than %d options", WORDS_MAX);
		return -E2BIG;
	}
	if (asprintf(&o->words[o->n_words], "--%s%s%s", name, value ? "=" : "",
		     value ? value : "") < 0)
		return -ENOMEM;
	o->n_words++;
	return 0;
}

/* Do the same. value "yes": the option has no argument; "no": it is not given. */
static int add_word(struct daemon_options *o, const char *name, const char *value)
{
	if (!strcmp(value, "no"))
		return 0;
	return give_word(o, name, !strcmp(value, "yes") ? NULL : value);
}

/*
 * Check one word as offwind record does, so that what is wrong with it is reported at its line. What
 * checks it divides lists.
 */
static int check_word(const char *word)
{
	struct record_options record = RECORD_OPTIONS_DEFAULT;
	char name[] = "record", needed[] = "--off-cpu"; /* by --wakers */
	char *copy = strdup(word), *argv[] = { name, needed, copy, NULL };
	int err;

	if (!copy) {
		log_error("%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	optind = 0;
	err = record_options_parse(3, argv, &record);
	record_options_fini(&record);
	free(copy);
	return err ? -EINVAL : 0;
}

/* How long the history has what, and how large it may be. */
static const struct {
	const char *name;
	size_t at; /* in struct history_limits */
} limits[] = {
	{ "times", offsetof(struct history_limits, times_ns) },
	{ "threads", offsetof(struct history_limits, threads_ns) },
	{ "age", offsetof(struct history_limits, age_ns) },
	{ "bytes", offsetof(struct history_limits, bytes) },
};

static int take_limit(struct daemon_options *o, const char *name, const char *value)
{
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t *to = (uint64_t *)((char *)&o->limits + limits[i].at);

		if (strcmp(name, limits[i].name) != 0)
			continue;
		return !strcmp(name, "bytes")
			       ? input_size(name, value, HISTORY_BYTES_MIN, INT64_MAX, to)
			       : input_duration(name, value, HISTORY_AGE_MAX, to);
	}
	log_error("there is no setting '%s' in [history]", name);
	return -EINVAL;
}

/* What requests may have recorded. */
static int take_on_demand(struct daemon_options *o, const char *value)
{
	static const char *const names[] = {
		[ON_DEMAND_TIME] = "time", [ON_DEMAND_NO] = "no", [ON_DEMAND_ANY] = "any"
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(value, names[i])) {
			o->on_demand = (enum on_demand_mode)i;
			return 0;
		}
	log_error("record takes time, any or no, not '%s'", value);
	return -EINVAL;
}

/* The file while it is read. */
struct config_file {
	struct daemon_options *o;
	FILE *file;
	int line;     /* the number of the current one */
	bool pending; /* the current line is a setting, which take_setting has not got yet */
	bool broken;  /* something is wrong; it was reported */
};

/* Take a setting: ini_handler. Return 0 after reporting what is wrong. */
static int take_setting(void *ctx, const char *section, const char *name, const char *value)
{
	struct config_file *f = ctx;
	struct daemon_options *o = f->o;
	bool server = !strcmp(section, "server");
	size_t n_words = o->n_words;
	int err = -EINVAL;

	f->pending = false;
	at_line(o, f->line);
	if (server && !strcmp(name, "listen"))
		err = add_listen(o, value, f->line);
	else if (server && !strcmp(name, "token-file"))
		err = keep(&o->token_file, value, f->line);
	else if (server && !strcmp(name, "tls-certificate"))
		err = keep(&o->certificate, value, f->line);
	else if (server && !strcmp(name, "tls-key"))
		err = keep(&o->key, value, f->line);
	else if (server && !strcmp(name, "record"))
		err = take_on_demand(o, value);
	else if (!strcmp(section, "store") && !strcmp(name, "db"))
		err = keep(&o->db, value, f->line);
	else if (!strcmp(section, "history"))
		err = take_limit(o, name, value);
	else if (exports_is_section(section))
		err = exports_take(&o->exports, section, name, value, f->line);
	else if (!strcmp(section, "record") && is_record_option(name))
		err = add_word(o, name, value);
	else if (!strcmp(section, "labels") && !strcmp(name, "keep"))
		err = give_word(o, "keep-labels", value);
	else if (!strcmp(section, "labels") && !strcmp(name, "drop"))
		err = give_word(o, "drop-labels", value);
	else if (!strcmp(section, "labels") && !strcmp(name, "rename"))
		err = give_word(o, "rename-labels", value);
	else
		log_error("there is no setting '%s' in [%s]", name, section);
	if (!err && o->n_words > n_words)
		err = check_word(o->words[n_words]);
	at_line(o, 0);
	f->broken |= err != 0;
	return !err;
}

static void report_line(struct config_file *f, const char *what)
{
	at_line(f->o, f->line);
	log_error("%s", what);
	at_line(f->o, 0);
	f->broken = true;
}

/* Report the current line if it should have been a setting. */
static void end_line(struct config_file *f)
{
	if (f->pending)
		report_line(f, "this is no setting: NAME = VALUE is expected");
	f->pending = false;
}

/* Read the next line: ini_reader. inih does not number lines, and cuts those that are too long. */
static char *next_line(char *line, int size, void *ctx)
{
	struct config_file *f = ctx;
	const char *at = line;
	size_t n;

	end_line(f);
	if (!fgets(line, size, f->file))
		return NULL;
	f->line++;
	n = strlen(line);
	if (n && line[n - 1] != '\n' && !feof(f->file)) {
		report_line(f, "the line is too long");
		for (int c = 0; c != EOF && c != '\n';)
			c = getc(f->file);
		(void)strcpy(line, "\n");
	}
	if (f->line == 1 && !strncmp(at, "\xef\xbb\xbf", 3))
		at += 3; /* the byte order mark of UTF-8 */
	while (isspace((unsigned char)*at))
		at++;
	if (*at == '[' && !strchr(at, ']'))
		report_line(f, "the section's name does not end: ] is expected");
	f->pending = *at && *at != '[' && *at != '#' && *at != ';';
	return line;
}

/* Read the file. Return 0, or -EINVAL after reporting each line that is wrong. */
static int read_file(struct daemon_options *o)
{
	struct config_file f = { .o = o };
	bool given = o->config != NULL;

	if (!given)
		o->config = CONFIG_DEFAULT;
	f.file = fopen(o->config, "re");
	if (!f.file && !given && errno == ENOENT)
		return 0;
	if (!f.file) {
		log_error("%s: %s", o->config, strerror(errno));
		return -EINVAL;
	}
	(void)ini_parse_stream(next_line, &f, take_setting, &f);
	end_line(&f);
	if (ferror(f.file)) {
		log_error("%s: %s", o->config, strerror(errno));
		f.broken = true;
	}
	(void)fclose(f.file);
	return f.broken ? -EINVAL : 0;
}

static void move(struct setting *to, struct setting *from)
{
	if (to->text || !from->text)
		return;
	*to = *from;
	from->text = NULL;
}

static void fini(struct daemon_options *o)
{
	for (size_t i = 0; i < o->n_listen; i++)
		free(o->listen[i].text);
	for (size_t i = 0; i < o->n_words; i++)
		free(o->words[i]);
	for (size_t i = 0; i < WORDS_MAX; i++)
		free(o->parsed[i]);
	free(o->db.text);
	free(o->token_file.text);
	free(o->certificate.text);
	free(o->key.text);
	exports_fini(&o->exports);
}

/* Read the file for what the command line does not say. */
static int read_config(struct daemon_options *o)
{
	struct daemon_options file = { .config = o->config };
	int err = read_file(&file);

	o->config = file.config;
	/* Of an option that is given twice, the last one counts. */
	for (size_t i = 0; i < o->n_words && file.n_words < WORDS_MAX; i++) {
		file.words[file.n_words++] = o->words[i];
		o->words[i] = NULL;
	}
	memcpy(o->words, file.words, sizeof(o->words));
	o->n_words = file.n_words;
	file.n_words = 0;
	for (size_t i = 0; !o->n_listen && i < file.n_listen; i++)
		move(&o->listen[i], &file.listen[i]);
	for (size_t i = 0; i < SERVER_SOCKETS && o->listen[i].text; i++)
		o->n_listen = i + 1;
	o->limits = file.limits;
	o->on_demand = file.on_demand;
	exports_move(&o->exports, &file.exports);
	move(&o->db, &file.db);
	move(&o->token_file, &file.token_file);
	move(&o->certificate, &file.certificate);
	move(&o->key, &file.key);
	fini(&file);
	return err;
}

/* ---- the command line -------------------------------------------------------------------- */

static int take_listen(void *to, const char *option, char *text)
{
	(void)option;
	return add_listen(to, text, 0);
}

static int take_owned(void *to, const char *option, char *text)
{
	(void)option;
	return keep(to, text, 0);
}

static int take_frequency(void *to, const char *option, char *text)
{
	(void)option;
	return add_word(to, "freq", text);
}

static int take_cpu_budget(void *to, const char *option, char *text)
{
	int err = add_word(to, "cpu-budget", text);

	(void)option;
	return err;
}

static int take_export(void *to, const char *option, char *text)
{
	struct daemon_options *o = to;

	(void)option;
	return exports_add(&o->exports, text);
}

static int take_fleet(void *to, const char *option, char *text)
{
	struct daemon_options *o = to;

	(void)option;
	return exports_take(&o->exports, "export clickhouse", "url", text, 0);
}

static const char help_before[] =
	"usage: offwind daemon [OPTION]…\n"
	"Records the whole machine all the time into a history, and serves it by HTTP: a page\n"
	"for browsers at /, and the interfaces that docs/api.md lists.\n"
	"\n";

static const char help_after[] =
	"\n"
	"SIGTERM and SIGINT end it, and SIGHUP lets it read its settings again; the window in\n"
	"flight is recorded.  This needs root, or CAP_BPF and CAP_PERFMON; see offwind doctor.\n";

#define AT(field) .at = offsetof(struct daemon_options, field)

static const struct option_row option_rows[] = {
	{ "--config", 0, "FILE", "read settings from FILE (default " CONFIG_DEFAULT ")",
	  .set = option_text, AT(config) },
	{ "--check-config", 0, NULL, "only check the settings", .set = option_true, AT(check) },
	{ "--db", 0, "FILE",
	  "use FILE as the store of unwind tables; the history is beside it, as\n"
	  "NAME-history.db (default: /var/lib/offwind/offwind.db)",
	  .set = take_owned, AT(db) },
	{ "--listen", 0, "ADDRESS",
	  "serve at ADDRESS: 127.0.0.1:7227 (default), [::1]:7227 or\n"
	  "unix:PATH; may be given several times",
	  .set = take_listen },
	{ "--export", 0, "KIND=URL",
	  "send windows to another system, too: otlp=http://collector:4318; may be\n"
	  "given several times (more settings: offwind.conf(5))",
	  .set = take_export },
	{ "--fleet", 0, "URL[,URL…]",
	  "send windows to the fleet's ClickHouse, to one of the URLs: the same as\n"
	  "--export clickhouse=URL (docs/fleet.md)",
	  .set = take_fleet },
	{ "--freq", 'F', "HZ", "take HZ samples a second on each CPU (default 19)",
	  .set = take_frequency },
	{ "--cpu-budget", 0, "PERCENT",
	  "lower the rate while the daemon itself takes more than this share of\n"
	  "one CPU, over a minute (default 0: no limit)",
	  .set = take_cpu_budget },
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 22,
	OPTION_ROWS(option_rows),
};

/* ---- what it needs ----------------------------------------------------------------------- */

/* Read a small file as a text. NULL after reporting why not. The caller frees it. */
static char *read_text(const char *path, bool secret)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t n = -1;
	struct stat st;

	if (file && !fstat(fileno(file), &st) && secret &&
	    st.st_mode & (S_IRGRP | S_IROTH | S_IWGRP | S_IWOTH)) {
		log_error("%s: others can read it: chmod 600 it", path);
		(void)fclose(file);
		return NULL;
	}
	if (file)
		n = getdelim(&text, &room, '\0', file);
	if (n < 0)
		log_error("%s: %s", path, file && !ferror(file) ? "is empty" : strerror(errno));
	if (file)
		(void)fclose(file);
	if (n >= 0)
		return text;
	free(text);
	return NULL;
}

/* Read the file that a setting names, if it is set. Return 0, or -EINVAL after reporting why not. */
static int read_setting(const struct daemon_options *o, const struct setting *setting, bool secret,
			const char **out)
{
	if (!setting->text)
		return 0;
	at_line(o, setting->line);
	*out = read_text(setting->text, secret);
	at_line(o, 0);
	return *out ? 0 : -EINVAL;
}

/* Listen where the service manager does, else where the settings say, else at the default address. */
static int listen_all(const struct daemon_options *o, struct server *s)
{
	int err = s->check ? 0 : server_take_passed(s);

	if (s->n_sockets && o->n_listen)
		log_warning("the service manager says where to listen (offwind.socket): --listen "
			    "and listen are not used");
	if (err || s->n_sockets)
		return err;
	for (size_t i = 0; i < o->n_listen && (!err || s->check); i++) {
		at_line(o, o->listen[i].line);
		err |= server_listen(s, o->listen[i].text) ? -EINVAL : 0;
	}
	at_line(o, 0);
	return o->n_listen ? err : server_listen(s, LISTEN_DEFAULT);
}

/*
 * Read the secrets, and open the sockets, or only check the addresses (s->check). Return 0 or a negative
 * code after reporting each setting that is wrong.
 */
static int set_up_server(const struct daemon_options *o, struct server *s)
{
	int err = read_setting(o, &o->token_file, true, &s->token);

	if (s->token)
		((char *)(uintptr_t)s->token)[strcspn(s->token, "\r\n")] = '\0';
	err |= read_setting(o, &o->certificate, false, &s->certificate);
	err |= read_setting(o, &o->key, true, &s->key);
	if (!o->certificate.text != !o->key.text) {
		at_line(o, o->key.text ? o->key.line : o->certificate.line);
		log_error("tls-certificate and tls-key belong together");
		at_line(o, 0);
		err = -EINVAL;
	}
	return err && !s->check ? err : err | listen_all(o, s);
}

/*
 * Let the sender have the targets, with their secrets, or only check the settings. Return 0 or a negative
 * code after reporting each setting that is wrong.
 */
static int set_up_sender(const struct daemon_options *o, bool check, struct sender *s)
{
	int err = 0;

	for (size_t i = 0; i < o->exports.n; i++) {
		const struct export *e = &o->exports.all[i];
		const struct setting token = { e->token_file, e->token_line };
		struct target *to = &s->targets[s->n_targets];

		at_line(o, e->line);
		err |= exports_check(e);
		at_line(o, 0);
		err |= target_copy(&e->target, to);
		s->n_targets++;
		err |= read_setting(o, &token, true, (const char **)&to->token);
		if (to->token)
			to->token[strcspn(to->token, "\r\n")] = '\0';
	}
	return err || check || !s->n_targets ? err : sender_prepare(s);
}

/* Create the store, so that the process that serves can read it. */
static int make_store(const char *path)
{
	char error[DB_ERROR_SIZE] = "";
	sqlite3 *db = NULL;
	int err = db_open(path, &db_store, DB_WRITE, &db, error);

	if (err)
		log_error("%s", error[0] ? error : strerror(-err));
	(void)sqlite3_close(db);
	return err;
}

/* Check the limits of the history, or also create it and set them. */
static int set_limits(const struct daemon_options *o, const char *path, bool check)
{
	struct history *h;
	int err = history_check_limits(&o->limits);

	if (err)
		log_error(
			"[history]: times must not be longer than threads, nor threads longer than "
			"age; the defaults are 6h, 2d and 30d");
	if (err || check)
		return err;
	err = history_open(path, true, &h);
	if (err)
		return err;
	err = history_set_limits(h, &o->limits);
	history_close(h);
	return err;
}

/* Return whether a word of offwind record can be changed while recording goes on. */
static bool is_changeable(const char *word)
{
	static const char *const names[] = { "all-cpus", "freq",      "pid", "comm", "uid",
					     "cgroup",	 "container", "pod", "unit", "cpu-budget" };
	size_t size = strcspn(word, "=");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (size == strlen(names[i]) + 2 && !strncmp(word + 2, names[i], size - 2))
			return true;
	return false;
}

/*
 * Let the words be a command line of offwind record, with what a daemon always has. changeable: only those
 * words.
 */
static int parse_record(struct daemon_options *o, bool changeable, const char *db,
			const char *history, struct record_options *record)
{
	char *argv[WORDS_MAX + 8], freq[] = "--freq=19", name[] = "record";
	char db_word[] = "--db", history_word[] = "--history";
	int argc = 0;

	argv[argc++] = name;
	argv[argc++] = freq; /* which a setting replaces */
	for (size_t i = 0; i < o->n_words; i++) {
		if (changeable && !is_changeable(o->words[i]))
			continue;
		free(o->parsed[i]);
		o->parsed[i] = strdup(o->words[i]);
		if (!o->parsed[i])
			return -ENOMEM;
		argv[argc++] = o->parsed[i];
	}
	argv[argc++] = db_word;
	argv[argc++] = (char *)(uintptr_t)db;
	argv[argc++] = history_word;
	argv[argc++] = (char *)(uintptr_t)history;
	argv[argc] = NULL;
	optind = 0;
	return record_options_parse(argc, argv, record);
}

/* ---- as a service ------------------------------------------------------------------------ */

/* What the supervisor knows of this service. */
struct service {
	int argc;
	char **argv;			/* of the command */
	struct daemon_options *options; /* those that hold now */
	bool changes;			/* what is recorded can be changed */
	const struct server *server;
	struct on_demand on_demand;
	enum supervisor_state state; /* that the service manager knows */
	bool ready;		     /* and that it is */
	uint64_t every_ns, last_ns;  /* when it is told that the service lives; 0: never */
	uint64_t beats;		     /* at that time */
};

static int run(struct daemon_options *o, int argc, char **argv);

/* Tell the service manager that everything works, and where it is served. */
static void say_ready(struct service *s)
{
	char text[64 + SERVER_SOCKETS * (SERVER_HOST + 8)];
	int n = snprintf(text, sizeof(text), "READY=1\nSTATUS=Records, and serves at");

	for (int i = 0; i < s->server->n_sockets; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %s%s",
			      s->server->sockets[i].local ? "unix:" : "",
			      s->server->sockets[i].host);
	(void)notify_send(text);
	s->ready = true;
}

/* Tell the service manager that the settings are read, until READY=1. */
static void say_reloading(const char *status)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=%s",
		       now_ns() / 1000, status);
	(void)notify_send(text);
}

/* Tell the service manager what changed, and that the service lives if it does. */
static void watch(void *ctx, enum supervisor_state state, uint64_t beats)
{
	struct service *s = ctx;
	uint64_t now = now_ns();

	if (state != s->state && state == SUPERVISOR_RELOADS) {
		say_reloading("Begins again with other settings");
	} else if (state != s->state && state == SUPERVISOR_ENDS) {
		(void)notify_send("STOPPING=1\nSTATUS=Records the last window");
	}
	s->state = state;
	if (state == SUPERVISOR_RECORDS && !s->ready && beats &&
	    atomic_load(&s->server->shared->serving))
		say_ready(s);
	if (s->every_ns && beats != s->beats && now - s->last_ns >= s->every_ns) {
		s->beats = beats;
		s->last_ns = now;
		(void)notify_send("WATCHDOG=1");
	}
}

/*
 * Check the settings in a process of its own, because they change more than struct daemon_options. Return
 * whether they can be used.
 */
static bool can_use_settings(const struct service *s)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		struct daemon_options o = { .config = NULL };
		int rc = CMD_USAGE;

		optind = 0;
		if (!option_read(&option_table, s->argc, s->argv, &o)) {
			o.check = true;
			rc = read_config(&o) ? CMD_USAGE : run(&o, s->argc, s->argv);
		}
		_exit(rc);
	}
	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	return pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool is_same(const struct setting *a, const struct setting *b)
{
	return a->text && b->text ? !strcmp(a->text, b->text) : a->text == b->text;
}

/* Return the next word from *i on that can be changed, or cannot; NULL: there is none. */
static const char *next_word(const struct daemon_options *o, bool changeable, size_t *i)
{
	while (*i < o->n_words && is_changeable(o->words[*i]) != changeable)
		++*i;
	return *i < o->n_words ? o->words[(*i)++] : NULL;
}

static bool have_same_words(const struct daemon_options *a, const struct daemon_options *b,
			    bool changeable)
{
	for (size_t i = 0, j = 0;;) {
		const char *x = next_word(a, changeable, &i), *y = next_word(b, changeable, &j);

		if (!x || !y)
			return x == y;
		if (strcmp(x, y) != 0)
			return false;
	}
}

/* Return whether only that differs which can be changed while recording goes on. */
static bool is_change(const struct daemon_options *now, const struct daemon_options *next)
{
	bool same = now->n_listen == next->n_listen && is_same(&now->db, &next->db) &&
		    is_same(&now->token_file, &next->token_file) &&
		    is_same(&now->certificate, &next->certificate) &&
		    is_same(&now->key, &next->key) && now->on_demand == next->on_demand &&
		    exports_are_same(&now->exports, &next->exports) &&
		    !memcmp(&now->limits, &next->limits, sizeof(now->limits));

	for (size_t i = 0; same && i < now->n_listen; i++)
		same = is_same(&now->listen[i], &next->listen[i]);
	return same && have_same_words(now, next, false) && !have_same_words(now, next, true);
}

/* Record with other words from now on. The texts of next move to the options that hold. */
static void change(struct service *s, struct daemon_options *next)
{
	struct record_options record = RECORD_OPTIONS_DEFAULT;
	char error[512] = "", *swap[WORDS_MAX], said[512] = "";
	int err = parse_record(next, true, "", "", &record);
	size_t n_words = next->n_words;

	say_reloading("Changes what is recorded");
	if (!err)
		err = supervisor_change(&record.live, record.cpu_budget, error);
	record_options_fini(&record);
	if (err) {
		log_error("what is recorded cannot be changed: %s; recording goes on as before",
			  *error ? error : strerror(-err));
	} else {
		memcpy(swap, s->options->words, sizeof(swap));
		memcpy(s->options->words, next->words, sizeof(swap));
		memcpy(next->words, swap, sizeof(swap));
		next->n_words = s->options->n_words;
		s->options->n_words = n_words;
		for (size_t i = 0; i < n_words; i++)
			if (is_changeable(s->options->words[i]))
				textbuf_add(said, sizeof(said), " %s", s->options->words[i]);
		log_info("the settings have changed:%s", *said ? said : " as by default");
	}
	say_ready(s);
}

/* supervisor_service.reload: what can be changed while recording goes on is changed here. */
static bool reload(void *ctx)
{
	struct service *s = ctx;
	struct daemon_options next = { .config = NULL };
	bool again = true;

	if (!can_use_settings(s)) {
		log_error("the settings are not read again; recording goes on with those from "
			  "before");
		return false;
	}
	optind = 0;
	if (s->ready && s->changes && !option_read(&option_table, s->argc, s->argv, &next) &&
	    !read_config(&next) && is_change(s->options, &next)) {
		change(s, &next);
		again = false;
	}
	fini(&next);
	return again;
}

/* Execute this program anew, with its sockets. SIGHUP waits until it can be handled. */
static void again(void *ctx)
{
	const struct service *s = ctx;
	char *argv[s->argc + 2];
	sigset_t hangup;

	argv[0] = program_invocation_name;
	memcpy(argv + 1, s->argv, (size_t)s->argc * sizeof(*argv));
	argv[s->argc + 1] = NULL;
	(void)sigemptyset(&hangup);
	(void)sigaddset(&hangup, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &hangup, NULL);
	server_lend(s->server);
	(void)execv("/proc/self/exe", argv);
	log_error("cannot be executed again: %s", strerror(errno));
}

/* ---- what requests have recorded --------------------------------------------------------- */

static void say_settings(void *ctx, struct on_demand_settings *out) /* on_demand.settings */
{
	const struct service *s = ctx;

	*out = (struct on_demand_settings){ .mode = s->options->on_demand,
					    .db = s->server->store,
					    .words = s->options->words,
					    .n_words = s->options->n_words,
					    .cost = s->server->cost };
}

static void before_or_after_fork(void *ctx, bool forked) /* supervisor_service.fork */
{
	struct on_demand *o = ctx;
	int err = 0;

	if (forked)
		on_demand_began(o);
	else
		err = on_demand_begin(o);
	if (err)
		log_warning("requests can record nothing: %s", strerror(-err));
}

static void leave_on_demand(void *ctx)
{
	on_demand_leave(ctx);
}

static void act_on_demand(void *ctx)
{
	on_demand_act(ctx);
}

static void end_on_demand(void *ctx)
{
	on_demand_end(ctx);
}

static struct channels *serve_on_demand(void *ctx) /* server.supervisor */
{
	return on_demand_serve(ctx);
}

/* ---- recording and serving --------------------------------------------------------------- */

/* Serve, and record until a signal comes. Return the exit code. */
static int serve_and_record(struct daemon_options *o, struct record_options *record,
			    struct server *server, int argc, char **argv)
{
	struct service service = { .argc = argc,
				   .argv = argv,
				   .options = o,
				   .changes = !record->live.alloc_interval,
				   .server = server,
				   .on_demand = { .settings = say_settings,
						  .ctx = &service,
						  .counts = &server->shared->recordings,
						  .poll = -1 },
				   .every_ns = notify_every_ns() };
	const struct supervisor_service hooks = { .watch = watch,
						  .reload = reload,
						  .again = again,
						  .ctx = &service,
						  .fork = before_or_after_fork,
						  .leave = leave_on_demand,
						  .act = act_on_demand,
						  .end = end_on_demand,
						  .poll = &service.on_demand.poll,
						  .asked = &service.on_demand };

	for (int i = 0; i < server->n_sockets; i++)
		log_info("serving at %s%s%s",
			 server->sockets[i].local ? "unix:"
			 : server->certificate	  ? "https://"
						  : "http://",
			 server->sockets[i].host, server->sockets[i].local ? "" : "/");
	server->supervisor = serve_on_demand;
	server->ctx = &service.on_demand;
	record->server = server;
	/* The probes of allocations are attached for what is selected when recording begins. */
	record->live.changes = service.changes;
	record->service = &hooks;
	return record_run(record);
}

/* Do what the options ask for. Return the exit code. */
static int run(struct daemon_options *o, int argc, char **argv)
{
	struct record_options record = RECORD_OPTIONS_DEFAULT;
	struct server server = { .check = o->check };
	struct sender sender = { .n_targets = 0 };
	char *db = NULL, *history = NULL;
	int rc = CMD_FAILED, err = db_path(o->db.text, &db), lock = -1;

	if (!err && !(history = history_path(db)))
		err = -ENOMEM;
	if (err)
		log_error("daemon: there is no place for a history: %s", strerror(-err));
	if (!err)
		err = parse_record(o, false, db, history, &record);
	if (!err && o->check) {
		err = set_limits(o, history, true);
		err |= set_up_server(o, &server) ? -EINVAL : 0;
		err |= set_up_sender(o, true, &sender) ? -EINVAL : 0;
	}
	if (err) {
		rc = CMD_USAGE;
	} else if (o->check) {
		rc = CMD_DONE;
	} else if (supervisor_is_off()) {
		log_error("the daemon serves from a process of its own, and there is only one %s: "
			  "use "
			  "offwind record --history",
			  getenv("OFFWIND_SANDBOX") ? "with OFFWIND_SANDBOX=off"
						    : "in a program with a sanitizer");
	} else if (!rights_missing("daemon")) {
		io_allow_many_files();
		server.history = history;
		server.store = db;
		server.shared = mmap(NULL, sizeof(*server.shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		err = server.shared == MAP_FAILED ? -errno : 0;
		if (err)
			log_error("%s", strerror(-err));
		sender.history = history;
		if (!err)
			err = set_up_sender(o, false, &sender);
		if (sender.n_targets) {
			server.sending = sender.sending;
			record.sender = &sender;
		}
		if (!err)
			err = make_store(db);
		if (!err)
			err = history_lock(history, LOCK_MS, &lock);
		if (!err)
			err = set_limits(o, history, false);
		server_inherit(&server);
		if (!err)
			err = set_up_server(o, &server);
		server_listened(&server);
		if (!err)
			rc = serve_and_record(o, &record, &server, argc, argv);
		server_close(&server, false);
		if (lock >= 0)
			(void)close(lock);
	}
	record_options_fini(&record);
	sender_fini(&sender);
	free(history);
	free(db);
	return rc;
}

int cmd_daemon(int argc, char **argv)
{
	struct daemon_options o = { .config = NULL };
	int parsed = option_read(&option_table, argc, argv, &o), rc = CMD_USAGE;

	if (parsed > 0)
		return CMD_DONE;
	if (!parsed && optind < argc) {
		log_error("daemon takes no argument '%s'", argv[optind]);
		parsed = -EINVAL;
	}
	if (!parsed && !read_config(&o))
		rc = run(&o, argc, argv);
	fini(&o);
	return rc;
}

/* agent/cmd/daemon.c: the daemon command: records the machine all the time, and serves its history. */
#include "agent/cli/option.h"
#include "agent/cli/rights.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/record/record_options.h"
#include "agent/history/history.h"
#include "agent/http/server.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/store/db.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_DEFAULT "/etc/offwind/offwind.conf"
#define LISTEN_DEFAULT "127.0.0.1:7227"

enum { WORDS_MAX = 256 };

/* What the command line and the configuration file say. The texts are owned. */
struct daemon_options {
	const char *config; /* NULL: the default, which need not exist */
	bool check;
	char *listen[SERVER_SOCKETS];
	size_t n_listen;
	char *db, *token_file, *certificate, *key;
	/* Words for offwind record: what is recorded, and how. */
	char *words[WORDS_MAX];
	size_t n_words;
};

/* ---- the configuration file -------------------------------------------------------------- */

static int keep(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*to);
	*to = copy;
	return 0;
}

static int add_listen(struct daemon_options *o, const char *value)
{
	if (o->n_listen == SERVER_SOCKETS) {
		log_error("there are more than %d addresses to listen on", SERVER_SOCKETS);
		return -E2BIG;
	}
	return keep(&o->listen[o->n_listen++], value);
}

/* Options of offwind record that have a meaning for a daemon. */
static bool is_record_option(const char *name)
{
	static const char *const names[] = {
		"all-cpus",    "pid",	     "comm",	  "uid",    "cgroup",	 "container",
		"cpu",	       "freq",	     "event",	  "uprobe", "count",	 "off-cpu",
		"alloc",       "max-frames", "stack-max", "ring",   "realtime",	 "scan",
		"no-demangle", "no-lines",   "no-inline", "limit",  "debug-dir", "rotate",
		"quiet",       "verbose",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Add an option for offwind record. value "yes": the option has no argument; "no": it is not given. */
static int add_word(struct daemon_options *o, const char *name, const char *value)
{
	int n;

	if (!strcmp(value, "no"))
		return 0;
	if (o->n_words + 2 >= WORDS_MAX) {
		log_error("there are more than %d options", WORDS_MAX);
		return -E2BIG;
	}
	n = !strcmp(value, "yes") ? asprintf(&o->words[o->n_words], "--%s", name)
				  : asprintf(&o->words[o->n_words], "--%s=%s", name, value);
	if (n < 0)
		return -ENOMEM;
	o->n_words++;
	return 0;
}

/* Take a line of the file: ini_handler. Return 0 after reporting what is wrong. */
static int take_line(void *ctx, const char *section, const char *name, const char *value)
{
	struct daemon_options *o = ctx;
	bool server = !strcmp(section, "server");
	int err = -EINVAL;

	if (server && !strcmp(name, "listen"))
		err = add_listen(o, value);
	else if (server && !strcmp(name, "token-file"))
		err = keep(&o->token_file, value);
	else if (server && !strcmp(name, "tls-certificate"))
		err = keep(&o->certificate, value);
	else if (server && !strcmp(name, "tls-key"))
		err = keep(&o->key, value);
	else if (!strcmp(section, "store") && !strcmp(name, "db"))
		err = keep(&o->db, value);
	else if (!strcmp(section, "record") && is_record_option(name))
		err = add_word(o, name, value);
	else
		log_error("%s: there is no setting '%s' in [%s]", o->config, name, section);
	return !err;
}

static int read_file(struct daemon_options *o)
{
	bool given = o->config != NULL;
	int line;

	if (!given)
		o->config = CONFIG_DEFAULT;
	line = ini_parse(o->config, take_line, o);
	if (line == -1 && !given && errno == ENOENT)
		return 0;
	if (line == -1) {
		log_error("%s: %s", o->config, strerror(errno));
		return -EINVAL;
	}
	if (line)
		log_error("%s:%d: this is no setting", o->config, line);
	return line ? -EINVAL : 0;
}

static void move(char **to, char **from)
{
	if (*to || !*from)
		return;
	*to = *from;
	*from = NULL;
}

static void fini(struct daemon_options *o)
{
	for (size_t i = 0; i < o->n_listen; i++)
		free(o->listen[i]);
	for (size_t i = 0; i < o->n_words; i++)
		free(o->words[i]);
	free(o->db);
	free(o->token_file);
	free(o->certificate);
	free(o->key);
}

/* Read the file for what the command line does not say. */
static int read_config(struct daemon_options *o)
{
	struct daemon_options file = { .config = o->config };
	int err = read_file(&file);

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
	for (size_t i = 0; i < SERVER_SOCKETS && o->listen[i]; i++)
		o->n_listen = i + 1;
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
	return add_listen(to, text);
}

static int take_owned(void *to, const char *option, char *text)
{
	(void)option;
	return keep(to, text);
}

static int take_frequency(void *to, const char *option, char *text)
{
	(void)option;
	return add_word(to, "freq", text);
}

static const char help_before[] =
	"usage: offwind daemon [OPTION]…\n"
	"Records the whole machine all the time into a history, and serves it by HTTP: a page\n"
	"for browsers at /, and the interfaces that docs/api.md lists.\n"
	"\n";

static const char help_after[] =
	"\n"
	"SIGTERM and SIGINT end it; the window in flight is recorded.  This needs root, or\n"
	"CAP_BPF and CAP_PERFMON; see offwind doctor.\n";

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
	{ "--freq", 'F', "HZ", "take HZ samples a second on each CPU (default 19)",
	  .set = take_frequency },
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

/* Read the secrets, and open the sockets. Return 0 or a negative code after reporting it. */
static int set_up_server(const struct daemon_options *o, struct server *s)
{
	int err = 0;

	if (o->token_file) {
		char *token = read_text(o->token_file, true);

		if (!token)
			return -EINVAL;
		token[strcspn(token, "\r\n")] = '\0';
		s->token = token;
	}
	if (o->certificate && !(s->certificate = read_text(o->certificate, false)))
		return -EINVAL;
	if (o->key && !(s->key = read_text(o->key, true)))
		return -EINVAL;
	if (!s->certificate != !s->key) {
		log_error("tls-certificate and tls-key belong together");
		return -EINVAL;
	}
	s->shared = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->shared == MAP_FAILED)
		return -errno;
	for (size_t i = 0; i < o->n_listen && !err; i++)
		err = server_listen(s, o->listen[i]);
	return err || o->n_listen ? err : server_listen(s, LISTEN_DEFAULT);
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

/* Let the words be a command line of offwind record, with what a daemon always has. */
static int parse_record(struct daemon_options *o, const char *db, const char *history,
			struct record_options *record)
{
	char *argv[WORDS_MAX + 8], freq[] = "--freq=19", name[] = "record";
	char db_word[] = "--db", history_word[] = "--history";
	int argc = 0;

	argv[argc++] = name;
	argv[argc++] = freq; /* which a setting replaces */
	for (size_t i = 0; i < o->n_words; i++)
		argv[argc++] = o->words[i];
	argv[argc++] = db_word;
	argv[argc++] = (char *)(uintptr_t)db;
	argv[argc++] = history_word;
	argv[argc++] = (char *)(uintptr_t)history;
	argv[argc] = NULL;
	optind = 0;
	return record_options_parse(argc, argv, record);
}

/* Serve, and record until a signal comes. Return the exit code. */
static int run(struct daemon_options *o)
{
	struct record_options record = RECORD_OPTIONS_DEFAULT;
	struct server server = { .n_sockets = 0 };
	char *db = NULL, *history = NULL;
	int rc = CMD_FAILED, err = db_path(o->db, &db);

	if (!err && !(history = history_path(db)))
		err = -ENOMEM;
	if (err)
		log_error("daemon: there is no place for a history: %s", strerror(-err));
	if (!err)
		err = parse_record(o, db, history, &record);
	if (err) {
		rc = CMD_USAGE;
	} else if (o->check) {
		rc = CMD_DONE;
	} else if (!rights_missing("daemon")) {
		io_allow_many_files();
		err = make_store(db);
		if (!err)
			err = set_up_server(o, &server);
		server.history = history;
		server.store = db;
		record.server = &server;
		if (!err) {
			for (int i = 0; i < server.n_sockets; i++)
				log_info("serving at %s%s%s",
					 server.sockets[i].local ? "unix:"
					 : server.certificate	 ? "https://"
								 : "http://",
					 server.sockets[i].host,
					 server.sockets[i].local ? "" : "/");
			rc = record_run(&record);
		}
		server_close(&server, false);
	}
	record_options_fini(&record);
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
		rc = run(&o);
	fini(&o);
	return rc;
}

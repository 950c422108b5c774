/* agent/cmd/daemon/daemon_config.c: reads the daemon's file of settings. */
#include "agent/cmd/daemon/daemon.h"

#include "agent/cli/input.h"
#include "agent/log.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begin messages with the place of a setting in the file. line 0: with none. */
void daemon_at_line(const struct daemon_options *o, int line)
{
	static char place[4096 + 16];

	(void)snprintf(place, sizeof(place), "%s:%d: ", o->config ? o->config : "", line);
	log_place(line ? place : NULL);
}

int daemon_keep(struct setting *to, const char *value, int line)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(to->text);
	*to = (struct setting){ copy, line };
	return 0;
}

int daemon_add_listen(struct daemon_options *o, const char *value, int line)
{
	if (o->n_listen == SERVER_SOCKETS) {
		log_error("there are more than %d addresses to listen on", SERVER_SOCKETS);
		return -E2BIG;
	}
	return daemon_keep(&o->listen[o->n_listen++], value, line);
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
	if (o->n_words + 2 >= DAEMON_WORDS) {
		log_error("there are more than %d options", DAEMON_WORDS);
		return -E2BIG;
	}
	if (asprintf(&o->words[o->n_words], "--%s%s%s", name, value ? "=" : "",
		     value ? value : "") < 0)
		return -ENOMEM;
	o->n_words++;
	return 0;
}

/* Do the same. value "yes": the option has no argument; "no": it is not given. */
int daemon_add_word(struct daemon_options *o, const char *name, const char *value)
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
	char name[] = "record", needed[] = "--off-cpu"; /* by --wakers and --wait-rate */
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
	daemon_at_line(o, f->line);
	if (server && !strcmp(name, "listen"))
		err = daemon_add_listen(o, value, f->line);
	else if (server && !strcmp(name, "token-file"))
		err = daemon_keep(&o->token_file, value, f->line);
	else if (server && !strcmp(name, "tls-certificate"))
		err = daemon_keep(&o->certificate, value, f->line);
	else if (server && !strcmp(name, "tls-key"))
		err = daemon_keep(&o->key, value, f->line);
	else if (server && !strcmp(name, "record"))
		err = take_on_demand(o, value);
	else if (!strcmp(section, "store") && !strcmp(name, "db"))
		err = daemon_keep(&o->db, value, f->line);
	else if (!strcmp(section, "history"))
		err = take_limit(o, name, value);
	else if (exports_is_section(section))
		err = exports_take(&o->exports, section, name, value, f->line);
	else if (!strcmp(section, "record") && is_record_option(name))
		err = daemon_add_word(o, name, value);
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
	daemon_at_line(o, 0);
	f->broken |= err != 0;
	return !err;
}

static void report_line(struct config_file *f, const char *what)
{
	daemon_at_line(f->o, f->line);
	log_error("%s", what);
	daemon_at_line(f->o, 0);
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
		o->config = DAEMON_CONFIG;
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

void daemon_fini(struct daemon_options *o)
{
	for (size_t i = 0; i < o->n_listen; i++)
		free(o->listen[i].text);
	for (size_t i = 0; i < o->n_words; i++)
		free(o->words[i]);
	for (size_t i = 0; i < DAEMON_WORDS; i++)
		free(o->parsed[i]);
	free(o->db.text);
	free(o->token_file.text);
	free(o->certificate.text);
	free(o->key.text);
	exports_fini(&o->exports);
}

/* Read the file for what the command line does not say. */
int daemon_read_config(struct daemon_options *o)
{
	struct daemon_options file = { .config = o->config };
	int err = read_file(&file);

	o->config = file.config;
	/* Of an option that is given twice, the last one counts. */
	for (size_t i = 0; i < o->n_words && file.n_words < DAEMON_WORDS; i++) {
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
	daemon_fini(&file);
	return err;
}

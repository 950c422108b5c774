/* agent/cmd/daemon/daemon_setup.c: prepares what the daemon needs before it records. */
#include "agent/cmd/daemon/daemon.h"

#include "agent/log.h"
#include "agent/store/db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_DEFAULT "127.0.0.1:7227"

/* Read the file that a setting names, if it is set. Return 0, or -EINVAL after reporting why not. */
static int read_setting(const struct daemon_options *o, const struct setting *setting,
			enum server_text kind, const char **out)
{
	if (!setting->text)
		return 0;
	daemon_at_line(o, setting->line);
	*out = server_read_text(setting->text, kind);
	daemon_at_line(o, 0);
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
		daemon_at_line(o, o->listen[i].line);
		err |= server_listen(s, o->listen[i].text) ? -EINVAL : 0;
	}
	daemon_at_line(o, 0);
	return o->n_listen ? err : server_listen(s, LISTEN_DEFAULT);
}

/*
 * Read the secrets, and open the sockets, or only check the addresses (s->check). Return 0 or a negative
 * code after reporting each setting that is wrong.
 */
int daemon_set_up_server(const struct daemon_options *o, struct server *s)
{
	int err = read_setting(o, &o->token_file, SERVER_TEXT_TOKEN, &s->token);

	err |= read_setting(o, &o->certificate, SERVER_TEXT_PUBLIC, &s->certificate);
	err |= read_setting(o, &o->key, SERVER_TEXT_SECRET, &s->key);
	if (!o->certificate.text != !o->key.text) {
		daemon_at_line(o, o->key.text ? o->key.line : o->certificate.line);
		log_error("tls-certificate and tls-key belong together");
		daemon_at_line(o, 0);
		err = -EINVAL;
	}
	return err && !s->check ? err : err | listen_all(o, s);
}

/* Return whether a setting's file has this text. */
static bool has_text(const struct daemon_options *o, const struct setting *setting,
		     enum server_text kind, const char *text)
{
	const char *now = NULL;
	bool same = !read_setting(o, setting, kind, &now) &&
		    (now && text ? !strcmp(now, text) : now == text);

	free((void *)(uintptr_t)now);
	return same;
}

bool daemon_has_same_secrets(const struct daemon_options *o, const struct server *s)
{
	for (size_t i = 0; i < o->exports.n; i++)
		if (o->exports.all[i].token_file)
			return false;
	return has_text(o, &o->token_file, SERVER_TEXT_TOKEN, s->token) &&
	       has_text(o, &o->certificate, SERVER_TEXT_PUBLIC, s->certificate) &&
	       has_text(o, &o->key, SERVER_TEXT_SECRET, s->key);
}

/*
 * Let the sender have the targets, with their secrets, or only check the settings. Return 0 or a negative
 * code after reporting each setting that is wrong.
 */
int daemon_set_up_sender(const struct daemon_options *o, bool check, struct sender *s)
{
	int err = 0;

	for (size_t i = 0; i < o->exports.n; i++) {
		const struct export *e = &o->exports.all[i];
		const struct setting token = { e->token_file, e->token_line };
		struct target *to = &s->targets[s->n_targets];

		daemon_at_line(o, e->line);
		err |= exports_check(e);
		daemon_at_line(o, 0);
		err |= target_copy(&e->target, to);
		s->n_targets++;
		err |= read_setting(o, &token, SERVER_TEXT_TOKEN, (const char **)&to->token);
	}
	return err || check || !s->n_targets ? err : sender_prepare(s);
}

/* Create the store, so that the process that serves can read it. */
int daemon_make_store(const char *path)
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
int daemon_set_limits(const struct daemon_options *o, const char *path, bool check)
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
bool daemon_is_changeable(const char *word)
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
int daemon_parse_record(struct daemon_options *o, bool changeable, const char *db,
			const char *history, struct record_options *record)
{
	char *argv[DAEMON_WORDS + 8], freq[] = "--freq=19", name[] = "record";
	char db_word[] = "--db", history_word[] = "--history";
	int argc = 0;

	argv[argc++] = name;
	argv[argc++] = freq; /* which a setting replaces */
	for (size_t i = 0; i < o->n_words; i++) {
		if (changeable && !daemon_is_changeable(o->words[i]))
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

/*
 * agent/cmd/daemon/daemon.h: what the parts of the daemon command share. daemon.c has its command line, daemon_config.c
 * its file of settings, daemon_setup.c what it needs before it records, and daemon_service.c what a service does.
 */
#ifndef AGENT_CMD_DAEMON_DAEMON_H
#define AGENT_CMD_DAEMON_DAEMON_H

#include "agent/cli/option.h"
#include "agent/cmd/exports.h"
#include "agent/cmd/on_demand.h"
#include "agent/cmd/record/record_options.h"
#include "agent/history/history.h"
#include "agent/http/server.h"
#include "agent/send/sender.h"

#include <stdbool.h>
#include <stddef.h>

#define DAEMON_CONFIG "/etc/offwind/offwind.conf"

enum { DAEMON_WORDS = 256 };

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
	char *words[DAEMON_WORDS];
	size_t n_words;
	int lock; /* of the history, once it records */
	struct history_limits limits;
	char *parsed[DAEMON_WORDS]; /* copies of the words, which parse_record divides; owned */
};

extern const struct option_table daemon_option_table;
/* Do what the options ask for, or only check them. Return the exit code. */
int daemon_run(struct daemon_options *o, int argc, char **argv);

/* ---- daemon_config.c ---- */

/* Begin messages with the place of a setting in the file. line 0: with none. */
void daemon_at_line(const struct daemon_options *o, int line);
/* Copy a value to a setting. -ENOMEM. */
int daemon_keep(struct setting *to, const char *value, int line);
/* Add an address to listen on. -ENOMEM, or -E2BIG after reporting that there are too many. */
int daemon_add_listen(struct daemon_options *o, const char *value, int line);
/*
 * Add an option for offwind record. value "yes": the option has no argument; "no": it is not given. -ENOMEM, or
 * -E2BIG after reporting that there are too many.
 */
int daemon_add_word(struct daemon_options *o, const char *name, const char *value);
/*
 * Read the file for what the command line does not say. Return 0, or a negative code after reporting each line that is
 * wrong.
 */
int daemon_read_config(struct daemon_options *o);
void daemon_fini(struct daemon_options *o);

/* ---- daemon_setup.c: errors are reported ---- */

/* Read the secrets, and open the sockets, or only check the addresses (s->check). */
int daemon_set_up_server(const struct daemon_options *o, struct server *s);
/*
 * Return whether the server has the token, certificate and key that the settings' files have now, and no target of theirs
 * has a token, which may have been replaced, too.
 */
bool daemon_has_same_secrets(const struct daemon_options *o, const struct server *s);
/* Let the sender have the targets, with their secrets, or only check the settings. */
int daemon_set_up_sender(const struct daemon_options *o, bool check, struct sender *s);
/* Create the store, so that the process that serves can read it. */
int daemon_make_store(const char *path);
/* Check the limits of the history, or also create it and set them. */
int daemon_set_limits(const struct daemon_options *o, const char *path, bool check);
/* Return whether a word of offwind record can be changed while recording goes on. */
bool daemon_is_changeable(const char *word);
/*
 * Let the words be a command line of offwind record, with what a daemon always has. changeable: only those
 * words.
 */
int daemon_parse_record(struct daemon_options *o, bool changeable, const char *db,
			const char *history, struct record_options *record);

/* ---- daemon_service.c ---- */

/* Serve, and record until a signal comes. Return the exit code. */
int daemon_serve_and_record(struct daemon_options *o, struct record_options *record,
			    struct server *server, int argc, char **argv);

#endif

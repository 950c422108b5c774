/* agent/cmd/daemon/daemon.c: the daemon command: records the machine all the time, and serves its history. */
#include "agent/cmd/daemon/daemon.h"

#include "agent/cli/rights.h"
#include "agent/cli/supervisor.h"
#include "agent/cmd/cmd.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/store/db.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCK_MS = 5000 }; /* the processes of a daemon that was killed end a moment later */

/* ---- the command line -------------------------------------------------------------------- */

static int take_listen(void *to, const char *option, char *text)
{
	(void)option;
	return daemon_add_listen(to, text, 0);
}

static int take_owned(void *to, const char *option, char *text)
{
	(void)option;
	return daemon_keep(to, text, 0);
}

static int take_frequency(void *to, const char *option, char *text)
{
	(void)option;
	return daemon_add_word(to, "freq", text);
}

static int take_cpu_budget(void *to, const char *option, char *text)
{
	int err = daemon_add_word(to, "cpu-budget", text);

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
	{ "--config", 0, "FILE", "read settings from FILE (default " DAEMON_CONFIG ")",
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

const struct option_table daemon_option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 22,
	OPTION_ROWS(option_rows),
};

/* Do what the options ask for. Return the exit code. */
int daemon_run(struct daemon_options *o, int argc, char **argv)
{
	struct record_options record = RECORD_OPTIONS_DEFAULT;
	struct server server = { .check = o->check };
	struct sender sender = { .n_targets = 0 };
	char *db = NULL, *history = NULL;
	int rc = CMD_FAILED, err = db_path(o->db.text, &db);

	o->lock = -1;
	if (!err && !(history = history_path(db)))
		err = -ENOMEM;
	if (err)
		log_error("daemon: there is no place for a history: %s", strerror(-err));
	if (!err)
		err = daemon_parse_record(o, false, db, history, &record);
	if (!err && o->check) {
		err = daemon_set_limits(o, history, true);
		err |= daemon_set_up_server(o, &server) ? -EINVAL : 0;
		err |= daemon_set_up_sender(o, true, &sender) ? -EINVAL : 0;
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
		server.shared = io_shared(sizeof(*server.shared));
		err = server.shared ? 0 : -errno;
		if (err)
			log_error("%s", strerror(-err));
		sender.history = history;
		if (!err)
			err = daemon_set_up_sender(o, false, &sender);
		if (sender.n_targets) {
			server.sending = sender.sending;
			record.sender = &sender;
		}
		if (!err)
			err = daemon_make_store(db);
		if (!err)
			err = history_lock(history, LOCK_MS, &o->lock);
		if (!err)
			err = daemon_set_limits(o, history, false);
		server_inherit(&server);
		if (!err)
			err = daemon_set_up_server(o, &server);
		server_listened(&server);
		if (!err)
			rc = daemon_serve_and_record(o, &record, &server, argc, argv);
		server_close(&server, false);
		if (o->lock >= 0)
			(void)close(o->lock);
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
	int parsed = option_read(&daemon_option_table, argc, argv, &o), rc = CMD_USAGE;

	if (parsed > 0)
		return CMD_DONE;
	if (!parsed && optind < argc) {
		log_error("daemon takes no argument '%s'", argv[optind]);
		parsed = -EINVAL;
	}
	if (!parsed && !daemon_read_config(&o))
		rc = daemon_run(&o, argc, argv);
	daemon_fini(&o);
	return rc;
}

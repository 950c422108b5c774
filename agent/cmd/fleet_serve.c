/*
 * agent/cmd/fleet_serve.c: serves the page over all hosts of a fleet. A process of its own answers from the fleet's
 * ClickHouse, without the rights of who started it; this one holds the sockets, and waits.
 */
#include "agent/cmd/fleet_serve.h"

#include "agent/cmd/cmd.h"
#include "agent/fleet/server.h"
#include "agent/http/server.h"
#include "agent/log.h"
#include "agent/role/sandbox.h"
#include "agent/send/ports.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LISTEN_DEFAULT "127.0.0.1:7228"

enum { QUERY_SECONDS = 60 };

/* What answers. */
struct asked {
	struct server_url url;
	char *database;
	struct fleet_server server;
	struct ports ports;
	struct sandbox_sending reach;
};

/* server.remote: each thread asks on its own, and the memory is in use until the process ends. */
static int add_thread(void *ctx, struct api_remote *out)
{
	struct asked *a = ctx;
	struct fleet *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->ask = server_ask;
	f->ctx = &a->server;
	*out = fleet_remote(f);
	return 0;
}

/*
 * Find the database, and what a connection to it takes. The server is asked here for the first time, so that
 * libcurl is loaded when the other process gives up its rights.
 */
static int find(const char *url, struct asked *a)
{
	int err = server_url_parse(url, &a->url);
	struct target target = { .url = a->url.base };

	if (!err)
		err = server_find_database(&a->url, &a->database);
	if (!err)
		err = ports_find(&target, 1, &a->ports);
	if (err)
		return err;
	a->server = (struct fleet_server){ &a->url, a->database, QUERY_SECONDS };
	a->reach = (struct sandbox_sending){ .ports = a->ports.all,
					     .n_ports = a->ports.n,
					     .any_port = a->ports.any,
					     .serves = true };
	return 0;
}

/* Read a file that an option names, if it does. Return 0, or -EINVAL after reporting why not. */
static int read_file(const char *path, enum server_text kind, const char **out)
{
	*out = path ? server_read_text(path, kind) : NULL;
	return path && !*out ? -EINVAL : 0;
}

static int set_up(const struct fleet_serve *o, struct server *s)
{
	int err = read_file(o->token_file, SERVER_TEXT_TOKEN, &s->token);

	if (!err)
		err = read_file(o->certificate, SERVER_TEXT_PUBLIC, &s->certificate);
	if (!err)
		err = read_file(o->key, SERVER_TEXT_SECRET, &s->key);
	if (!err && !o->certificate != !o->key) {
		log_error("--tls-certificate and --tls-key belong together");
		err = -EINVAL;
	}
	return err ? err : server_listen(s, o->listen ? o->listen : LISTEN_DEFAULT);
}

/* Wait until a signal ends this command, or the process that serves has ended by itself. Return the exit code. */
static int wait_for(pid_t serving, const sigset_t *signals)
{
	int signal = 0, status;
	pid_t ended = 0;

	while (!ended && (sigwait(signals, &signal) || signal == SIGCHLD))
		ended = waitpid(serving, &status, WNOHANG);
	if (ended) {
		log_error("the process that serves has ended");
		return CMD_FAILED;
	}
	(void)kill(serving, SIGKILL); /* it has nothing to finish */
	(void)waitpid(serving, &status, 0);
	return CMD_DONE;
}

/* Serve in a process of its own. Return the exit code. */
static int run(struct server *s)
{
	sigset_t signals, before;
	pid_t pid;

	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGINT);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGHUP);
	(void)sigaddset(&signals, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &signals, &before);
	pid = fork();
	if (pid < 0) {
		log_error("%s", strerror(errno));
		return CMD_FAILED;
	}
	if (!pid) {
		(void)sigprocmask(SIG_SETMASK, &before, NULL);
		_exit(server_run(s) ? CMD_FAILED : CMD_DONE);
	}
	log_info("serving at %s%s%s",
		 s->sockets[0].local ? "unix:"
		 : s->certificate    ? "https://"
				     : "http://",
		 s->sockets[0].host, s->sockets[0].local ? "" : "/");
	return wait_for(pid, &signals);
}

int fleet_serve(const struct fleet_serve *o)
{
	static struct server_shared shared;
	struct asked asked = { .database = NULL };
	struct server server = {
		.shared = &shared, .remote = add_thread, .ctx = &asked, .reach = &asked.reach
	};
	int err = find(o->url, &asked), code = err == -EINVAL ? CMD_USAGE : CMD_FAILED;

	if (!err)
		err = set_up(o, &server);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	if (!err)
		code = run(&server);
	server_close(&server, true);
	free((char *)(uintptr_t)server.token);
	free((char *)(uintptr_t)server.certificate);
	free((char *)(uintptr_t)server.key);
	free(asked.database);
	server_url_fini(&asked.url);
	return code;
}

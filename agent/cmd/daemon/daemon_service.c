/* agent/cmd/daemon/daemon_service.c: the daemon as a service: tells its manager how things are, and takes new settings. */
#include "agent/cmd/daemon/daemon.h"

#include "agent/cli/supervisor.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/notify.h"
#include "agent/log.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIED_RING = 4 << 20 }; /* bytes of the ring with which settings are tried */

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

/* Wait for a process; pid < 0: it could not be made. Return whether it exited with 0. */
static bool ended_well(pid_t pid)
{
	int status = -1;

	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	return pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

/*
 * Check the settings in a process of its own, because they change more than struct daemon_options. Return
 * whether they can be used.
 */
static bool can_use_settings(const struct service *s)
{
	pid_t pid = fork();

	if (!pid) {
		struct daemon_options o = { .config = NULL };
		int rc = CMD_USAGE;

		optind = 0;
		if (!option_read(&daemon_option_table, s->argc, s->argv, &o)) {
			o.check = true;
			rc = daemon_read_config(&o) ? CMD_USAGE : daemon_run(&o, s->argc, s->argv);
		}
		_exit(rc);
	}
	return ended_well(pid);
}

static bool is_same(const struct setting *a, const struct setting *b)
{
	return a->text && b->text ? !strcmp(a->text, b->text) : a->text == b->text;
}

/* Return the next word from *i on that can be changed, or cannot; NULL: there is none. */
static const char *next_word(const struct daemon_options *o, bool changeable, size_t *i)
{
	while (*i < o->n_words && daemon_is_changeable(o->words[*i]) != changeable)
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
	char error[512] = "", *swap[DAEMON_WORDS], said[512] = "";
	int err = daemon_parse_record(next, true, "", "", &record);
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
			if (daemon_is_changeable(s->options->words[i]))
				textbuf_add(said, sizeof(said), " %s", s->options->words[i]);
		log_info("the settings have changed:%s", *said ? said : " as by default");
	}
	say_ready(s);
}

/*
 * Begin to record with other settings, in a process of its own that ends at once. Return whether that is possible: this machine
 * may lack an event, a function or a CPU, and then a daemon that began again would end.
 */
static bool can_record(struct daemon_options *next)
{
	pid_t pid = fork();

	if (!pid) {
		struct record_options record = RECORD_OPTIONS_DEFAULT;
		char error[512] = ""; /* as in source.error */
		struct source *source;
		int err = daemon_parse_record(next, false, "", "", &record);

		/* Probes of allocators slow down all processes, and can be had if others can. */
		record.live.alloc_interval = 0;
		record.live.ring_bytes = TRIED_RING;
		if (!err)
			err = source_live_open(&record.live, &source, error);
		if (err)
			log_error("%s", *error ? error : strerror(-err));
		_exit(err ? CMD_FAILED : CMD_DONE);
	}
	return ended_well(pid);
}

/* supervisor_service.reload: what can be changed while recording goes on is changed here. */
static bool reload(void *ctx)
{
	struct service *s = ctx;
	struct daemon_options next = { .config = NULL };
	bool usable = can_use_settings(s), again = true;

	optind = 0;
	usable = usable && !option_read(&daemon_option_table, s->argc, s->argv, &next) &&
		 !daemon_read_config(&next);
	if (usable && s->ready && s->changes && is_change(s->options, &next) &&
	    daemon_has_same_secrets(&next, s->server)) {
		change(s, &next);
		again = false;
	} else if (!usable || !can_record(&next)) {
		log_error("the settings are not read again; recording goes on with those from "
			  "before");
		again = false;
	}
	daemon_fini(&next);
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
int daemon_serve_and_record(struct daemon_options *o, struct record_options *record,
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
						  .asked = &service.on_demand,
						  .lock = o->lock };

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

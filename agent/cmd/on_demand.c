/* agent/cmd/on_demand.c: runs offwind record for requests of the process that serves HTTP. */
#include "agent/cmd/on_demand.h"

#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/http/recording.h"
#include "agent/log.h"
#include "agent/role/channel.h"
#include "agent/role/cost.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	ARGUMENTS_MAX = 384, /* more than the daemon's own options and a request's */
};
#define SECOND_NS UINT64_C(1000000000)

struct on_demand_one {
	pid_t pid; /* 0: there is none */
	int pidfd, text, end;
	bool left; /* the other end of the socket is closed */
	uint64_t until_ns;
};

/* ---- what may be asked for --------------------------------------------------------------- */

/*
 * The options that a request may give, and of which of the daemon's options they are the same kind: both
 * would be added up, so that a request could have more than the settings choose.
 */
static const struct {
	const char *name, *kind;
	bool any; /* only if the settings allow any event */
} allowed[] = {
	{ "pid", "pid", false },	  { "comm", "comm", false },
	{ "uid", "uid", false },	  { "cgroup", "cgroup", false },
	{ "container", "cgroup", false }, { "pod", "cgroup", false },
	{ "unit", "cgroup", false },	  { "format", NULL, false },
	{ "sample-type", NULL, false },	  { "off-cpu", NULL, false },
	{ "event", NULL, true },	  { "uprobe", NULL, true },
	{ "alloc", NULL, true },
};

enum { ALLOWED = sizeof(allowed) / sizeof(allowed[0]) };

/* Options of the daemon that a recording does not have: what is sampled, and how the daemon runs. */
static const char *const dropped[] = { "freq",	   "event",  "uprobe",	   "count", "off-cpu",
				       "alloc",	   "rotate", "cpu-budget", "quiet", "verbose",
				       "all-cpus", "ring",   "realtime",   "wakers" };

/* Return whether a word, "--unit=a", is the option called name. */
static bool is_option(const char *word, const char *name)
{
	size_t size = strlen(name);

	return !strncmp(word + 2, name, size) && (!word[2 + size] || word[2 + size] == '=');
}

/* A recording of waits takes as many of them as the daemon does; without waits the option would be wrong. */
static bool is_dropped(const char *word, bool off_cpu)
{
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
		if (is_option(word, dropped[i]))
			return true;
	return !off_cpu && is_option(word, "wait-rate");
}

/* Return a word of the daemon's that chooses by the same kind of thing; NULL: there is none. */
static const char *chosen_already(const struct on_demand_settings *s, const char *kind)
{
	for (size_t i = 0; kind && i < s->n_words; i++)
		for (size_t j = 0; j < ALLOWED; j++)
			if (allowed[j].kind && !strcmp(allowed[j].kind, kind) &&
			    is_option(s->words[i], allowed[j].name))
				return s->words[i];
	return NULL;
}

static int refuse(char *text, int err, const char *what, const char *which)
{
	(void)snprintf(text, RECORDING_ERROR, "%s%.100s", what, which);
	return err;
}

/* Check a wish. Return 0, or a code after writing why it is refused. */
static int check(const struct on_demand_settings *s, const struct recording_wish *wish, char *text)
{
	if (s->mode == ON_DEMAND_NO)
		return refuse(text, -EPERM,
			      "the settings allow no recordings: record = no in [server]", "");
	for (size_t i = 0; i < wish->n_words; i++) {
		const char *name = wish->words[i].name, *word;
		size_t j = 0;

		while (j < ALLOWED && strcmp(name, allowed[j].name) != 0)
			j++;
		if (j == ALLOWED)
			return refuse(text, -EINVAL, "no recording can be asked for with ", name);
		if (allowed[j].any && s->mode != ON_DEMAND_ANY)
			return refuse(text, -EPERM,
				      "the settings allow only recordings of CPU time and waiting, "
				      "not of ",
				      name);
		word = chosen_already(s, allowed[j].kind);
		if (word)
			return refuse(text, -EPERM, "the settings choose what is recorded by ",
				      word);
	}
	return 0;
}

/* ---- running it -------------------------------------------------------------------------- */

/* The command line of a recording; its words are owned. */
struct command {
	char *argv[ARGUMENTS_MAX];
	int argc;
	int err;
};

__attribute__((format(printf, 2, 3))) static void add(struct command *c, const char *format, ...)
{
	va_list args;

	if (!c->err && c->argc + 1 == ARGUMENTS_MAX)
		c->err = -E2BIG;
	if (c->err)
		return;
	va_start(args, format);
	if (vasprintf(&c->argv[c->argc], format, args) < 0) {
		c->argv[c->argc] = NULL;
		c->err = -ENOMEM;
	} else {
		c->argc++;
	}
	va_end(args);
}

static void make_command(struct command *c, const struct on_demand_settings *s,
			 const struct recording_wish *wish)
{
	bool off_cpu = false;

	for (size_t i = 0; i < wish->n_words; i++)
		off_cpu |= !strcmp(wish->words[i].name, "off-cpu");
	add(c, "offwind");
	add(c, "record");
	for (size_t i = 0; i < s->n_words; i++)
		if (!is_dropped(s->words[i], off_cpu))
			add(c, "%s", s->words[i]);
	add(c, "--quiet");
	add(c, "--db=%s", s->db);
	add(c, "--duration=%" PRIu32, wish->seconds);
	add(c, "--freq=%" PRIu32, wish->hz);
	add(c, "--output=-");
	for (size_t i = 0; i < wish->n_words; i++)
		if (wish->words[i].value)
			add(c, "--%s=%s", wish->words[i].name, wish->words[i].value);
		else
			add(c, "--%s", wish->words[i].name);
}

static void free_command(struct command *c)
{
	for (int i = 0; i < c->argc; i++)
		free(c->argv[i]);
}

/* Become the recording. All other files are closed when the program is executed. */
static _Noreturn void execute(const struct command *c, pid_t parent, int profile, int text)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || dup2(profile, STDOUT_FILENO) < 0 ||
	    dup2(text, STDERR_FILENO) < 0)
		_exit(CMD_FAILED);
	(void)unsetenv("NOTIFY_SOCKET");
	(void)signal(SIGHUP, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)execv("/proc/self/exe", c->argv);
	log_error("cannot be executed: %s", strerror(errno));
	_exit(CMD_FAILED);
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static int watch(struct on_demand *o, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };

	return epoll_ctl(o->poll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* Run a recording. Its profile and the other end of its socket are for the reply, and the caller's. */
static int run(struct on_demand *o, struct on_demand_one *one, const struct command *c,
	       uint32_t seconds, int *profile, int *end)
{
	const pid_t self = getpid();
	int ends[2] = { -1, -1 }, err = 0;

	*one = (struct on_demand_one){ .pidfd = -1, .text = -1, .end = -1 };
	*profile = memfd_create("recording", MFD_CLOEXEC);
	one->text = memfd_create("messages", MFD_CLOEXEC);
	if (*profile < 0 || one->text < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		err = -errno;
	one->end = ends[0];
	*end = ends[1];
	if (!err)
		err = watch(o, one->end, EPOLLRDHUP | EPOLLONESHOT);
	if (!err) {
		one->pid = fork();
		if (!one->pid)
			execute(c, self, *profile, one->text);
		if (one->pid < 0)
			err = -errno;
	}
	if (!err) {
		one->until_ns = now_ns() + (seconds + RECORDING_GRACE_S) * SECOND_NS;
		one->pidfd = pidfd_open(one->pid, 0);
		/* Without it, the end is seen a second later. */
		if (one->pidfd >= 0)
			(void)watch(o, one->pidfd, EPOLLIN);
		return 0;
	}
	one->pid = 0;
	close_one(&one->text);
	close_one(&one->end);
	close_one(profile);
	close_one(end);
	return err;
}

/* Answer a request: channel_handle_fn. */
static void answer(void *ctx, struct message *request, struct message *reply)
{
	struct on_demand *o = ctx;
	struct on_demand_one *one = NULL;
	struct on_demand_settings settings = { .db = NULL };
	struct recording_wish wish;
	struct command command = { .argc = 0 };
	char text[RECORDING_ERROR] = "the request is damaged";
	int profile = -1, end = -1, err = recording_take(request, &wish);

	o->settings(o->ctx, &settings);
	if (!err)
		err = check(&settings, &wish, text);
	for (size_t i = 0; i < RECORDINGS_MAX && !one; i++)
		if (!o->all[i].pid)
			one = &o->all[i];
	if (!err && !one)
		err = refuse(text, -EBUSY, "other requests are recording; try again later", "");
	if (!err) {
		make_command(&command, &settings, &wish);
		err = command.err;
		if (!err)
			err = run(o, one, &command, wish.seconds, &profile, &end);
		if (err)
			(void)refuse(text, err, "recording cannot begin: ", strerror(-err));
		free_command(&command);
	}
	if (err)
		atomic_fetch_add(&o->counts->n[RECORDING_REFUSED], 1);
	else
		atomic_fetch_add(&o->counts->running, 1);
	/* The files are closed after they were sent. */
	recording_reply(reply, err, err ? text : "", profile, end);
}

/* ---- its end ----------------------------------------------------------------------------- */

/* Return the rest of a text that begins with those words, else the text. */
static const char *without(const char *text, const char *words)
{
	size_t size = strlen(words);

	return strncmp(text, words, size) != 0 ? text : text + size;
}

/* Read what a recording reported: its last error, else its last warning. */
static void read_text(int fd, char out[RECORDING_ERROR])
{
	char all[4096], *rest = all, *line;
	ssize_t n = pread(fd, all, sizeof(all) - 1, 0);
	bool has_error = false;

	out[0] = all[n > 0 ? n : 0] = '\0';
	while ((line = strsep(&rest, "\n"))) {
		const char *said = without(line, "offwind: ");
		bool is_error =
			!strncmp(line, "offwind: ", 9) && said == without(said, "warning: ");

		if (!*line || (has_error && !is_error))
			continue;
		has_error = is_error;
		(void)snprintf(out, RECORDING_ERROR, "%s", without(said, "warning: "));
	}
}

/* A recording has ended, with that status of waitpid(2). */
static void ended(struct on_demand *o, struct on_demand_one *one, int status,
		  const struct rusage *used)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	enum recording_result result = one->left	  ? RECORDING_LEFT
				       : code == CMD_DONE ? RECORDING_DONE
							  : RECORDING_FAILED;
	struct on_demand_settings settings = { .cost = NULL };
	char text[RECORDING_ERROR];

	o->settings(o->ctx, &settings);
	read_text(one->text, text);
	if (one->end >= 0)
		recording_say_end(one->end, code, text);
	close_one(&one->pidfd);
	close_one(&one->text);
	close_one(&one->end);
	one->pid = 0;
	atomic_fetch_add(&o->counts->n[result], 1);
	atomic_fetch_sub(&o->counts->running, 1);
	if (settings.cost)
		atomic_fetch_add(
			&settings.cost->cpu_ns[COST_RECORDINGS],
			(uint64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * SECOND_NS +
				(uint64_t)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) * 1000);
}

/* See whether a recording ended, or is to be ended. */
static void look(struct on_demand *o, struct on_demand_one *one)
{
	char byte;
	struct rusage used;
	int status;

	if (!one->pid)
		return;
	if (wait4(one->pid, &status, WNOHANG, &used) == one->pid) {
		ended(o, one, status, &used);
		return;
	}
	/* The server sends nothing: it can only close its end. */
	if (!one->left && one->end >= 0 &&
	    (recv(one->end, &byte, 1, MSG_DONTWAIT) >= 0 || errno == ECONNRESET)) {
		one->left = true;
		close_one(&one->end);
		(void)kill(one->pid, SIGTERM);
	}
	if (now_ns() > one->until_ns) {
		log_warning("a recording does not end, and is killed");
		(void)kill(one->pid, SIGKILL);
	}
}

void on_demand_act(struct on_demand *o)
{
	struct epoll_event ignored[RECORDINGS_MAX + 1];

	if (!o->all)
		return;
	(void)epoll_wait(o->poll, ignored, RECORDINGS_MAX + 1, 0);
	for (size_t i = 0; i < RECORDINGS_MAX; i++)
		look(o, &o->all[i]);
	if (o->channels && channels_answer_next(o->channels, 0, answer, o)) {
		/* The server died. Its successor gets another channel. */
		channels_free(o->channels);
		o->channels = NULL;
	}
}

void on_demand_end(struct on_demand *o)
{
	struct rusage used;
	int status;

	for (size_t i = 0; o->all && i < RECORDINGS_MAX; i++) {
		struct on_demand_one *one = &o->all[i];

		if (!one->pid)
			continue;
		/* Nobody waits for the profile any more. */
		one->left = true;
		(void)kill(one->pid, SIGKILL);
		while (wait4(one->pid, &status, 0, &used) < 0 && errno == EINTR)
			;
		ended(o, one, status, &used);
	}
}

/* ---- the processes ----------------------------------------------------------------------- */

int on_demand_begin(struct on_demand *o)
{
	int err;

	if (!o->all) {
		o->all = calloc(RECORDINGS_MAX, sizeof(*o->all));
		o->poll = epoll_create1(EPOLL_CLOEXEC);
		if (!o->all || o->poll < 0)
			return o->all ? -errno : -ENOMEM;
		for (size_t i = 0; i < RECORDINGS_MAX; i++)
			o->all[i] = (struct on_demand_one){ .pidfd = -1, .text = -1, .end = -1 };
	}
	channels_free(o->channels);
	o->channels = NULL;
	err = channels_new(1, &o->channels);
	return err ? err : watch(o, channels_answer_fd(o->channels), EPOLLIN);
}

void on_demand_began(struct on_demand *o)
{
	/* It closes the server's end, too. */
	on_demand_act(o);
}

struct channels *on_demand_serve(struct on_demand *o)
{
	struct channels *channels = o->channels;

	o->channels = NULL;
	on_demand_leave(o);
	if (channels)
		channels_ask(channels);
	return channels;
}

void on_demand_leave(struct on_demand *o)
{
	for (size_t i = 0; o->all && i < RECORDINGS_MAX; i++) {
		close_one(&o->all[i].pidfd);
		close_one(&o->all[i].text);
		close_one(&o->all[i].end);
	}
	if (o->all)
		close_one(&o->poll);
	channels_free(o->channels);
	o->channels = NULL;
}

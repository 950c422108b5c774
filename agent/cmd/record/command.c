/* agent/cmd/record/command.c: runs the command that is recorded. */
#include "agent/cmd/record/command.h"

#include "agent/cmd/cmd.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/role/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * In the child: wait at the gate until everything that observes the child is set up, then run the
 * command. If execvp fails, write its errno into fault.
 */
static void __attribute__((noreturn)) become_command(char **command, int gate, int fault)
{
	char byte;
	int err;

	/* Not SIGHUP: nohup(1) is for the command, too. */
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGPIPE, SIG_DFL);
	io_usual_files();
	/* No byte means that the recorder failed before the command could start. */
	if (read(gate, &byte, 1) != 1)
		_exit(CMD_FAILED);
	(void)execvp(command[0], command);
	err = errno;
	(void)!write(fault, &err, sizeof(err));
	_exit(127);
}

int command_start(struct command *c)
{
	int gate[2] = { -1, -1 }, fault[2] = { -1, -1 }, err = 0;
	pid_t pid = -1;

	if (pipe2(gate, O_CLOEXEC) || pipe2(fault, O_CLOEXEC) || (pid = fork()) < 0)
		err = -errno;
	if (!pid) {
		(void)close(gate[1]);
		become_command(c->argv, gate[0], fault[1]);
	}
	if (gate[0] >= 0)
		(void)close(gate[0]);
	if (fault[1] >= 0)
		(void)close(fault[1]);
	c->gate = gate[1];
	c->fault = fault[0];
	if (!err)
		c->pid = pid;
	return err;
}

/* How long to wait for the exit code: so many times so long. */
enum { AWAIT_N = 1000, AWAIT_NS = 1000000 };

/* The requests to the supervisor, and their results in one number: an error and an exit code. */
enum { RELEASE, ENDED, ENDED_LATE };

static uint64_t result_of(int err, int code)
{
	return (uint64_t)(uint32_t)-err << 32 | (uint32_t)code;
}

static int ask(struct command *c, uint64_t what)
{
	uint64_t result = result_of(-EIO, 0);
	int err = files_command(what, &result);

	c->code = (int)(uint32_t)result;
	return err ? err : -(int)(result >> 32);
}

/* Let the child run the command. Return 0, or why the command cannot be run. */
static int release(struct command *c)
{
	int why = 0, err = 0;

	if (write(c->gate, "", 1) != 1)
		err = -errno;
	(void)close(c->gate);
	c->gate = -1;
	/*
	 * The other end has close-on-exec: a successful execvp closes it, a failed one sends
	 * errno.
	 */
	if (!err && read(c->fault, &why, sizeof(why)) == (ssize_t)sizeof(why))
		err = -why;
	(void)close(c->fault);
	c->fault = -1;
	return err;
}

int command_release(struct command *c)
{
	int err;

	if (c->gate < 0)
		return 0;
	err = files_are_asked_for() ? ask(c, RELEASE) : release(c);
	if (err) {
		log_error("%s: cannot be run: %s", c->argv[0], strerror(-err));
		c->code = err == -ENOENT ? 127 : 126;
	}
	return err;
}

bool command_ended(struct command *c, bool keep_code)
{
	int status, code = c->code;

	if (c->pid && files_are_asked_for()) {
		if (ask(c, keep_code ? ENDED : ENDED_LATE)) {
			c->code = code;
			return false;
		}
		c->pid = 0;
		return true;
	}
	if (!c->pid || waitpid(c->pid, &status, WNOHANG) != c->pid)
		return false;
	c->pid = 0;
	if (keep_code)
		c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		log_info("%s: ended by signal %d (%s)", c->argv[0], WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		log_info("%s: exit status %d", c->argv[0], WEXITSTATUS(status));
	return true;
}

void command_await(struct command *c)
{
	const struct timespec pause = { .tv_nsec = AWAIT_NS };

	for (int i = 0; c->pid && !command_ended(c, true) && i < AWAIT_N; i++)
		(void)nanosleep(&pause, NULL);
}

int command_ask(void *ctx, uint64_t what, uint64_t *number)
{
	struct command *c = ctx;
	int err = 0;

	if (what == RELEASE)
		err = release(c);
	else if (what == ENDED || what == ENDED_LATE)
		err = command_ended(c, what == ENDED) ? 0 : -EAGAIN;
	else
		return -EINVAL;
	*number = result_of(err, c->code);
	return 0;
}

void command_worker_ended(void *ctx)
{
	command_end(ctx);
}

char *command_find(const char *name)
{
	const char *path = getenv("PATH");
	char *copy, *rest, *directory, *found = NULL;

	if (strchr(name, '/'))
		return strdup(name);
	rest = copy = strdup(path ? path : "/bin:/usr/bin");
	while (copy && !found && (directory = strsep(&rest, ":"))) {
		if (asprintf(&found, "%s/%s", *directory ? directory : ".", name) < 0) {
			found = NULL;
			break;
		}
		if (access(found, X_OK)) {
			free(found);
			found = NULL;
		}
	}
	free(copy);
	return found;
}

void command_end(struct command *c)
{
	const struct timespec pause = { .tv_nsec = 20000000 };

	if (files_are_asked_for())
		return; /* the supervisor does it */
	if (c->gate >= 0)
		(void)close(c->gate); /* the command has not begun, so the child ends */
	if (c->fault >= 0)
		(void)close(c->fault);
	if (c->pid <= 0)
		return;
	(void)kill(c->pid, SIGTERM);
	for (int i = 0; i < 25; i++) {
		if (waitpid(c->pid, NULL, WNOHANG))
			return;
		(void)nanosleep(&pause, NULL);
	}
	log_info("%s: still runs as process %d", c->argv[0], (int)c->pid);
}

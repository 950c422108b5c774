/* agent/cli/supervisor_signals.c: passes signals on to the worker, and leaves them alone in other processes. */
#include "agent/cli/supervisor_internal.h"

#include <errno.h>
#include <stddef.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often to look, 5 ms apart, whether the worker has stopped. */
#define STOP_TURNS 400

/*
 * Signals that are passed on to the worker, those of keys always, and all while recording, which they
 * end. Else the supervisor's end is the worker's end.
 */
static const int passed[SUPERVISOR_PASSED] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };

struct supervisor_signals supervisor_signals;

/* In a recording's worker: signals wait until it has handlers, and then these ones are blocked. */
static bool deferred;
static sigset_t heard;

/*
 * Once the end is asked for, SIGALRM comes every second: a wait of the supervisor itself, for a pipe
 * that nobody opens, ends with EINTR, even if it began only after the signal.
 */
static void interrupt_again(int number)
{
	(void)number;
	(void)alarm(1);
}

static void ask_for_end(int number)
{
	supervisor_signals.end = number;
	(void)alarm(1);
}

/*
 * The worker decides what a key on the terminal does, which reaches all processes; a signal that was
 * sent to the supervisor by a process is passed on.
 */
static void pass_on(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (number != SIGTSTP)
		ask_for_end(number);
	/* A worker that ends already would take a second signal as a wish to lose its results. */
	if (supervisor_signals.worker > 0 && info->si_code != SI_KERNEL &&
	    !supervisor_signals.reloading)
		(void)kill(supervisor_signals.worker, number);
}

/* For a service: SIGHUP that a process sent asks for new settings; a terminal that is gone ends it. */
static void hang_up(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (info->si_code != SI_KERNEL) {
		supervisor_signals.reload = 1;
		return;
	}
	ask_for_end(SIGTERM);
	if (supervisor_signals.worker > 0 && !supervisor_signals.reloading)
		(void)kill(supervisor_signals.worker, SIGTERM);
}

/*
 * Stop and continue together with the worker, which restores a terminal before it stops. (The other
 * processes stop if the signal came from a key, and else have nothing to do.)
 */
static void stop_with(int number, siginfo_t *info, void *context)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	siginfo_t worker = { .si_pid = 0 };
	int before = errno;

	pass_on(number, info, context);
	/* A shell that sees this process stop writes to the terminal. */
	for (int i = 0; i < STOP_TURNS && supervisor_signals.worker > 0 && !worker.si_pid; i++) {
		if (waitid(P_PID, (id_t)supervisor_signals.worker, &worker,
			   WSTOPPED | WEXITED | WNOHANG | WNOWAIT))
			break;
		if (!worker.si_pid)
			(void)nanosleep(&pause, NULL);
	}
	(void)raise(SIGSTOP);
	errno = before;
}

static void continue_with(int number)
{
	if (supervisor_signals.worker > 0)
		(void)kill(supervisor_signals.worker, number);
}

/*
 * Pass a signal on to the worker, unless it was ignored (nohup(1), a shell's background). A recording
 * ends by signals in a shell's background, too.
 */
static void take_signal(int number, struct sigaction *before, const struct supervision *given)
{
	const struct sigaction action = { .sa_sigaction = given->service && number == SIGHUP
								  ? hang_up
								  : pass_on,
					  .sa_flags = SA_SIGINFO };
	const bool live = given->live != NULL;
	bool is_key = number == SIGINT || number == SIGQUIT, ignored;

	if (sigaction(number, NULL, before))
		return;
	ignored = before->sa_handler == SIG_IGN;
	if (live ? !ignored || number != SIGHUP : !ignored && is_key)
		(void)sigaction(number, &action, NULL);
}

/* A service that executed itself anew blocked SIGHUP until there is a handler. */
static void unblock_hangup(void)
{
	sigset_t hangup;

	(void)sigemptyset(&hangup);
	(void)sigaddset(&hangup, SIGHUP);
	(void)sigprocmask(SIG_UNBLOCK, &hangup, NULL);
}

/* Follow SIGTSTP and SIGCONT, unless the user's shell has no job control. */
static void take_stops(void)
{
	const struct sigaction stop = { .sa_sigaction = stop_with, .sa_flags = SA_SIGINFO };
	struct sigaction before;

	if (sigaction(SIGTSTP, NULL, &before) || before.sa_handler == SIG_IGN)
		return;
	(void)sigaction(SIGTSTP, &stop, NULL);
	(void)signal(SIGCONT, continue_with);
}

void supervisor_take_signals(struct supervisor *s)
{
	(void)sigaction(SIGALRM, &(struct sigaction){ .sa_handler = interrupt_again }, NULL);
	for (size_t i = 0; i < SUPERVISOR_PASSED; i++)
		take_signal(passed[i], &s->before[i], s->given);
	if (s->given->service)
		unblock_hangup();
	if (s->given->live)
		take_stops();
}

void supervisor_block_signals(sigset_t *before)
{
	sigset_t blocked;

	(void)sigemptyset(&blocked);
	for (size_t i = 0; i < SUPERVISOR_PASSED; i++)
		(void)sigaddset(&blocked, passed[i]);
	(void)sigprocmask(SIG_BLOCK, &blocked, before);
}

/* In a new process: stop and continue as every process does. */
static void leave_stops(void)
{
	struct sigaction now;

	if (sigaction(SIGTSTP, NULL, &now) || now.sa_handler == SIG_IGN)
		return;
	(void)signal(SIGTSTP, SIG_DFL);
	(void)signal(SIGCONT, SIG_DFL);
}

void supervisor_ignore_signals(void)
{
	for (size_t i = 0; i < SUPERVISOR_PASSED; i++)
		(void)signal(passed[i], SIG_IGN);
	leave_stops();
}

void supervisor_restore_signals(const struct supervisor *s)
{
	const bool live = s->given->live != NULL;

	for (size_t i = 0; i < SUPERVISOR_PASSED; i++)
		/* To ignore a signal for a moment would also drop one that waits. */
		if (live && (passed[i] == SIGINT || passed[i] == SIGTERM))
			(void)signal(passed[i], SIG_DFL);
		else
			(void)sigaction(passed[i], &s->before[i], NULL);
	/* Only the supervisor decides what SIGHUP means for a service. */
	if (s->given->service)
		(void)signal(SIGHUP, SIG_IGN);
	if (live) {
		deferred = true;
		heard = s->signals;
	} else {
		(void)sigprocmask(SIG_SETMASK, &s->signals, NULL);
	}
	leave_stops();
}

void supervisor_hear_signals(void)
{
	if (deferred)
		(void)sigprocmask(SIG_SETMASK, &heard, NULL);
	deferred = false;
}

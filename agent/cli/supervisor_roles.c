/* agent/cli/supervisor_roles.c: starts and ends the processes of a command. */
#include "agent/cli/supervisor_internal.h"

#include "agent/cli/priority.h"
#include "agent/clock.h"
#include "agent/history/request.h"
#include "agent/limits.h"
#include "agent/live/capture.h"
#include "agent/live/system/decode.h"
#include "agent/log.h"
#include "agent/role/channel.h"
#include "agent/role/files.h"
#include "agent/role/reading.h"
#include "agent/role/sandbox.h"
#include "agent/store/change.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A command that reads files waits for each of them anyway, so one channel to the opener is enough.
 */
#define CHANNELS 1
/*
 * A recording opens files on several threads, and leaves those behind that take too long (errand.h):
 * each of these keeps its channel, as does memory that does not answer (agent/process/generated.c).
 */
#define LIVE_CHANNELS 28
/*
 * An opener that hangs for so long with half of its channels is replaced by one with fewer, whose
 * descriptors wait in all that time. The worker's main thread waits no longer for a free one.
 */
#define HUNG_NS	       UINT64_C(10000000000)
#define SPARE_CHANNELS 14
/* With fewer descriptors than that, all of them are needed for files. */
#define SPARES_FROM   ((rlim_t)1024)
#define OPENER_END_MS 100
/* How long to wait for the capture process, which detaches its programs. */
#define CAPTURE_END_MS 2000
/* How soon a process beside the worker may be begun again. */
#define BESIDE_AGAIN_NS UINT64_C(5000000000)

/* Close what processes beside the worker have, but for one of them; NULL: for none. */
static void close_beside(const struct supervisor *s, const struct supervisor_beside *but)
{
	const struct supervisor_service *service = s->given->service;

	for (const struct supervisor_beside *b = s->given->beside;
	     b < s->given->beside + SUPERVISOR_BESIDE; b++)
		for (size_t i = 0; b != but && i < b->n_fds; i++)
			(void)close(b->fds[i]);
	if (service && service->fork && !(but && but->asks))
		service->leave(service->asked);
}

/* Begin a process that serves the worker. The supervisor ends it. */
static void be_helper(const struct supervisor *s, const char *name)
{
	(void)prctl(PR_SET_NAME, name);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	supervisor_ignore_signals();
	if (s->standard >= 0)
		(void)close(s->standard);
	supervisor_let_go_of_output();
	close_beside(s, NULL);
}

/* Close the lock of a service, in a process that it may not be able to end. */
static void leave_lock(const struct supervisor *s)
{
	if (s->given->service && s->given->service->lock >= 0)
		(void)close(s->given->service->lock);
}

/* In a process that was begun after the worker: close what is for others, but for these channels. */
static void leave_others(struct supervisor *s, const struct channels *but)
{
	capture_free(s->live);
	if (s->socket >= 0)
		(void)close(s->socket);
	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		if (s->outputs[i].fd >= 0)
			(void)close(s->outputs[i].fd);
	for (size_t i = 0; i < KEEPERS; i++)
		if (s->keepers[i].channels != but)
			channels_free(s->keepers[i].channels);
	for (size_t i = 0; i < REQUEST_SPARES; i++)
		if (s->spares[i] != but)
			channels_free(s->spares[i]);
}

/* The opener's process. It ends with its worker, whose ends of the channels are closed then. */
static _Noreturn void be_opener(struct supervisor *s, struct channels *channels)
{
	/* To look at processes, read their files, and become their users for that. */
	static const int needed[] = { CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE,
				      CAP_SETUID,     CAP_SETGID,	   CAP_SYSLOG };

	be_helper(s, "offwind-opener");
	if (s->live)
		priority_apart();
	leave_lock(s);
	sandbox_keep(needed, sizeof(needed) / sizeof(needed[0]));
	request_serve(channels);
	_exit(0);
}

/* The capture process, which serves all workers. */
static _Noreturn void be_capture(struct supervisor *s)
{
	/*
	 * For programs and events, and to look at processes and open the files they map. SYS_ADMIN is
	 * for notices of executed files (fanotify(7)) and for probes in programs (uprobes).
	 */
	static const int needed[] = {
		CAP_BPF,    CAP_PERFMON,  CAP_SYS_PTRACE,   CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH,
		CAP_SYSLOG, CAP_IPC_LOCK, CAP_SYS_RESOURCE, CAP_SYS_NICE,  CAP_CHECKPOINT_RESTORE
	};
	int err;

	be_helper(s, "offwind-capture");
	priority_apart();
	leave_lock(s);
	sandbox_keep(needed, sizeof(needed) / sizeof(needed[0]));
	if (s->given->realtime)
		(void)priority_realtime(s->given->realtime);
	live_tracepoints_keep();
	err = sandbox_narrow();
	if (err) {
		log_error("rights cannot be given up: %s", strerror(-err));
		_exit(1);
	}
	capture_serve(s->live, s->given->live, s->given->cost);
	_exit(0);
}

/* The process that writes the store, or the history. It ends with its worker, too. */
static _Noreturn void be_keeper(struct supervisor *s, size_t which)
{
	leave_others(s, s->keepers[which].channels);
	be_helper(s, which == STORE ? "offwind-store" : "offwind-history");
	if (which == STORE)
		change_serve(s->keepers[STORE].channels, s->given->db);
	else
		history_serve(s->keepers[HISTORY].channels, s->given->history);
	_exit(0);
}

/* Become the worker: everything is read and opened through the other two from now on. */
static void be_worker(struct supervisor *s, struct channels *channels, const int ends[2])
{
	close_beside(s, NULL);
	cost_free(s->given->cost);
	(void)prctl(PR_SET_NAME, "offwind-worker");
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/*
	 * The programs of a machine take some tens of megabytes, and debug information of some
	 * gigabytes goes to an unnamed file.
	 */
	if (s->live) {
		priority_apart();
		sandbox_limit_memory(limits.memory_bytes);
	}
	supervisor_restore_signals(s);
	(void)close(ends[1]);
	if (s->live)
		capture_use(s->live, s->opener);
	channels_ask(channels);
	request_use(channels);
	for (size_t i = 0; i < KEEPERS; i++)
		if (s->keepers[i].channels)
			channels_ask(s->keepers[i].channels);
	if (s->keepers[STORE].channels)
		change_ask(s->keepers[STORE].channels);
	if (s->keepers[HISTORY].channels)
		history_ask(s->keepers[HISTORY].channels);
	for (size_t i = 0; i < REQUEST_SPARES; i++)
		if (s->spares[i]) {
			channels_ask(s->spares[i]);
			request_spare(s->spares[i], HUNG_NS, capture_use_opener);
		}
	reading_use(s->reading);
	files_ask(ends[0]);
	if (s->standard >= 0) {
		(void)dup2(s->standard, STDOUT_FILENO);
		(void)close(s->standard);
	}
}

/* Fork a process. Return 1 in it, 0 in this one, or a negative code. */
static int fork_role(pid_t *pid)
{
	*pid = fork();
	return *pid < 0 ? -errno : !*pid;
}

/*
 * Fork the worker and make it current. Signals that are passed on wait meanwhile in both processes,
 * so that each is for the worker, too. One that came earlier is passed on now. The worker unblocks
 * them in be_worker, or when it has handlers (supervisor_hear_signals).
 */
static int fork_worker(struct supervisor *s)
{
	sigset_t before;
	int rc;

	supervisor_block_signals(&before);
	rc = fork_role(&s->worker);
	if (rc == 1) {
		s->signals = before;
		return rc;
	}
	if (!rc) {
		supervisor_signals.worker = s->worker;
		if (supervisor_signals.end)
			(void)kill(s->worker, supervisor_signals.end);
	}
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* A process beside the worker. It ends with the supervisor. */
static _Noreturn void be_beside(struct supervisor *s, const struct supervisor_beside *b)
{
	(void)prctl(PR_SET_NAME, b->title);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	supervisor_ignore_signals();
	if (s->standard >= 0)
		(void)close(s->standard);
	supervisor_let_go_of_output();
	close_beside(s, b);
	leave_others(s, NULL);
	_exit(b->run(s->given->ctx) ? 1 : 0);
}

/* Start a process beside the worker, and start it again, not too often, when it died. */
static void keep_one_beside(struct supervisor *s, const struct supervisor_beside *b,
			    struct beside *now)
{
	const struct supervisor_service *service = b->asks ? s->given->service : NULL;
	int status;

	if (now->pid > 0) {
		if (waitpid(now->pid, &status, WNOHANG) != now->pid)
			return;
		now->pid = 0;
		log_warning("the process that %s ended%s%s, and is begun again", b->what,
			    WIFSIGNALED(status) ? " by SIG" : "",
			    WIFSIGNALED(status) ? supervisor_signal_name(WTERMSIG(status)) : "");
	}
	if (now->began_ns && now_ns() - now->began_ns < BESIDE_AGAIN_NS)
		return;
	now->began_ns = now_ns();
	if (service && service->fork)
		service->fork(service->asked, false);
	if (fork_role(&now->pid) == 1)
		be_beside(s, b);
	if (service && service->fork)
		service->fork(service->asked, true);
}

void supervisor_keep_beside(struct supervisor *s)
{
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->given->beside[i].run)
			keep_one_beside(s, &s->given->beside[i], &s->beside[i]);
}

/* End the processes beside the worker. They may still hold what they read. */
void supervisor_end_beside(struct supervisor *s)
{
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->beside[i].pid > 0 && !kill(s->beside[i].pid, SIGKILL))
			(void)waitpid(s->beside[i].pid, NULL, 0);
}

/* End what was begun for requests. */
void supervisor_end_asked_for(const struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	if (service && service->fork)
		service->end(service->asked);
}

/* Start the capture process, before there are others. */
int supervisor_start_capture(struct supervisor *s)
{
	int rc = s->given->live ? capture_new(s->given->live, &s->live) : 0;

	if (!rc && s->live)
		rc = supervisor_cost_init(s);
	if (!rc && s->live) {
		rc = fork_role(&s->capture);
		if (rc == 1)
			be_capture(s);
		capture_keep(s->live);
	}
	return rc;
}

/* Make the channels to the next openers. */
static int make_spares(struct supervisor *s)
{
	struct rlimit limit;
	int err = 0;

	if (!s->live || getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max < SPARES_FROM)
		return 0;
	for (size_t i = 0; !err && i < REQUEST_SPARES; i++)
		err = channels_new(SPARE_CHANNELS, &s->spares[i]);
	return err;
}

/*
 * Fork an opener and a worker. Return 1 in the worker, 0 in the supervisor, or a negative code. The
 * opener comes first: the capture process must know both (capture_use).
 */
int supervisor_fork_roles(struct supervisor *s)
{
	struct channels *channels = NULL;
	int ends[2] = { -1, -1 };
	int rc = channels_new(s->given->live ? LIVE_CHANNELS : CHANNELS, &channels);

	if (!rc)
		rc = fork_role(&s->opener);
	if (rc == 1) {
		capture_free(s->live);
		be_opener(s, channels);
	}
	if (!rc && !s->given->no_store)
		rc = channels_new(1, &s->keepers[STORE].channels);
	if (!rc && s->given->history)
		rc = channels_new(1, &s->keepers[HISTORY].channels);
	if (!rc)
		rc = make_spares(s);
	if (!rc && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		rc = -errno;
	if (!rc && s->live)
		capture_next_worker(s->live);
	if (!rc)
		rc = fork_worker(s);
	if (rc == 1) {
		be_worker(s, channels, ends);
		return 1;
	}
	channels_free(channels);
	supervisor_cost_of(s->live);
	if (ends[0] >= 0)
		(void)close(ends[0]);
	s->socket = ends[1];
	if (rc)
		supervisor_end_opener(s);
	return rc;
}

/* End the opener. One that waits for a file server may not end, even when it is killed. */
void supervisor_end_opener(struct supervisor *s)
{
	if (s->opener > 0 && !kill(s->opener, SIGKILL))
		(void)supervisor_wait_for(s->opener, OPENER_END_MS);
	s->opener = 0;
}

/* Start a keeper, which answers the worker from now on. If that fails, the worker is told. */
void supervisor_start_keeper(struct supervisor *s, size_t which)
{
	struct keeper *k = &s->keepers[which];

	if (fork_role(&k->pid) == 1)
		be_keeper(s, which);
	if (k->pid < 0)
		k->pid = 0;
	channels_free(k->channels);
	k->channels = NULL;
}

/* Start another opener, and end the one before. If that fails, that one stays, and the worker is told. */
void supervisor_start_spare(struct supervisor *s, size_t which)
{
	pid_t next;
	int rc = fork_role(&next);

	if (rc == 1) {
		leave_others(s, s->spares[which]);
		be_opener(s, s->spares[which]);
	}
	if (rc) {
		log_warning("another process that opens files cannot be begun: %s", strerror(-rc));
	} else {
		supervisor_end_opener(s);
		s->opener = next;
	}
	channels_free(s->spares[which]);
	s->spares[which] = NULL;
}

/* Wait for a process that is about to end, but not for ever. Return whether it ended. */
bool supervisor_wait_for(pid_t pid, int most_ms)
{
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	uint64_t now = now_ns(), until = now + (uint64_t)most_ms * 1000000;
	bool ended;

	/* A signal ends a pause early. Without a descriptor a pause takes a millisecond. */
	while (!(ended = waitpid(pid, NULL, WNOHANG) != 0) && now < until) {
		(void)poll(&end, 1, end.fd < 0 ? 1 : (int)((until - now + 999999) / 1000000));
		now = now_ns();
	}
	if (end.fd >= 0)
		(void)close(end.fd);
	return ended;
}

/*
 * End the capture process, by closing the last ends of what it serves, and wait for it: it detaches
 * its programs. It opens files that others may serve, so do not wait for ever.
 */
void supervisor_end_capture(struct supervisor *s)
{
	supervisor_cost_of(NULL);
	capture_free(s->live);
	s->live = NULL;
	if (s->capture > 0 && !supervisor_wait_for(s->capture, CAPTURE_END_MS))
		(void)kill(s->capture, SIGKILL);
}

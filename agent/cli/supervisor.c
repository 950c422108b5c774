/* agent/cli/supervisor.c: forks the opener and the worker, and serves the worker until it ends. */
#include "agent/cli/supervisor.h"

#include "agent/cli/advice.h"
#include "agent/cli/cpu_budget.h"
#include "agent/cli/priority.h"
#include "agent/clock.h"
#include "agent/export/output.h"
#include "agent/export/windows.h"
#include "agent/history/request.h"
#include "agent/limits.h"
#include "agent/live/capture.h"
#include "agent/live/choice.h"
#include "agent/live/system/hint.h"
#include "agent/log.h"
#include "agent/opener/request.h"
#include "agent/owc/owc_format.h"
#include "agent/role/channel.h"
#include "agent/role/cost.h"
#include "agent/role/files.h"
#include "agent/role/message.h"
#include "agent/role/reading.h"
#include "agent/role/sandbox.h"
#include "agent/source/memory_image.h"
#include "agent/store/change.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
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
#define OUTPUTS_MAX   16
/* How long to wait for the capture process, which detaches its programs. */
#define CAPTURE_END_MS 2000
#define OPENER_END_MS  100
#define KEEPER_END_MS  5000
/* How often to look, 5 ms apart, whether the worker has stopped. */
#define STOP_TURNS 400
/* A worker that does not go on for so many seconds is ended. */
#define SILENT_S   30
#define MEASURE_NS UINT64_C(1000000000)
/* How soon a process beside the worker may be begun again. */
#define BESIDE_AGAIN_NS UINT64_C(5000000000)
/* Workers that may die before the command fails; while recording, so many within an hour. */
#define DEATHS_MAX 8
#define DEATHS_NS  (UINT64_C(3600) * 1000000000)

/*
 * Signals that are passed on to the worker, those of keys always, and all while recording, which they
 * end. Else the supervisor's end is the worker's end.
 */
static const int passed[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
#define N_PASSED (sizeof(passed) / sizeof(passed[0]))

/* A process that writes a database. It has no other rights, so it is started when it is first asked. */
struct keeper {
	struct channels *channels; /* to it; NULL: it was started, or is not wanted */
	pid_t pid;		   /* 0: there is none */
};

enum { STORE, HISTORY, KEEPERS };

struct beside {
	pid_t pid; /* 0: there is none */
	uint64_t began_ns;
};

struct supervisor {
	const struct supervision *given;
	struct reading_notes *reading; /* shared with the workers */
	int socket;		       /* to the worker */
	pid_t worker, opener, capture; /* 0: there is none */
	struct beside beside[SUPERVISOR_BESIDE];
	struct cost_seen seen[COST_BPF]; /* what each role's process had used at measured_ns */
	uint64_t measured_ns;
	struct capture *live; /* to the capture process; NULL: there is none */
	struct keeper keepers[KEEPERS];
	struct output outputs[OUTPUTS_MAX]; /* which the worker writes; fd -1: not in use */
	struct sigaction
		before[N_PASSED]; /* what the signals that are passed on did at the start */
	sigset_t signals;	  /* blocked ones, for a new worker */
	int standard;		  /* standard output, for the next worker; -1: it is closed */
	off_t input_at;		  /* where standard input began; -1: it cannot be read again */
	bool done;		  /* the result is complete */
	bool reads_standard;	  /* standard input is an input */
};

/* What the capture process of this supervisor was told, and how the rate follows the budget. */
static struct {
	struct capture *capture; /* NULL: there is none */
	struct live_choice choice;
	struct cpu_budget budget;
	struct cost *cost;
} recording;
static volatile pid_t current_worker;
static volatile sig_atomic_t end_asked;	   /* the signal that did, or 0 */
static volatile sig_atomic_t reload_asked; /* by SIGHUP, for a service */
static volatile sig_atomic_t reloading;	   /* the worker was asked to end for that */
static int n_workers;			   /* that there were before the current one */

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
	end_asked = number;
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
	if (current_worker > 0 && info->si_code != SI_KERNEL && !reloading)
		(void)kill(current_worker, number);
}

/* For a service: SIGHUP that a process sent asks for new settings; a terminal that is gone ends it. */
static void hang_up(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (info->si_code != SI_KERNEL) {
		reload_asked = 1;
		return;
	}
	ask_for_end(SIGTERM);
	if (current_worker > 0 && !reloading)
		(void)kill(current_worker, SIGTERM);
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
	for (int i = 0; i < STOP_TURNS && current_worker > 0 && !worker.si_pid; i++) {
		if (waitid(P_PID, (id_t)current_worker, &worker,
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
	if (current_worker > 0)
		(void)kill(current_worker, number);
}

/* ---- requests of the worker -------------------------------------------------------------- */

/* Return whether a path is another path, or below that directory. ".." leads nowhere. */
static bool is_below(const char *path, const char *directory)
{
	size_t n = strlen(directory), whole = strlen(path);

	if (!n || strncmp(path, directory, n) != 0)
		return false;
	if (!path[n])
		return true;
	if (path[n] != '/' && directory[n - 1] != '/')
		return false;
	return !strstr(path + n - 1, "/../") && (whole < 3 || strcmp(path + whole - 3, "/..") != 0);
}

const char *supervision_input(const struct supervision *given, size_t i)
{
	if (i < given->n_inputs)
		return given->inputs[i];
	i -= given->n_inputs;
	return i < given->n_bases ? given->bases[i] : NULL;
}

static bool may_read(const struct supervision *given, const char *path)
{
	const char *input;
	bool may = false;

	for (size_t i = 0; !may && (input = supervision_input(given, i)); i++)
		may = is_below(path, input);
	return may;
}

static bool may_write(const struct supervision *given, const char *path)
{
	return (given->output && !strcmp(path, given->output)) ||
	       (given->statistics && !strcmp(path, given->statistics)) ||
	       (given->windows && window_is_in(given->windows, path));
}

/* While recording, whether a process writes names of its generated code (agent/cmd/runtime.h). */
static bool may_stat(const struct supervision *given, const char *path)
{
	unsigned int pid;
	char map[64];

	if (given->live && sscanf(path, "/tmp/perf-%u.map", &pid) == 1) {
		(void)snprintf(map, sizeof(map), "/tmp/perf-%u.map", pid);
		if (!strcmp(path, map))
			return true;
	}
	return may_read(given, path);
}

/* Let readers of a pipe see its end when the worker closes it. */
static void let_go_of_output(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null >= 0) {
		(void)dup2(null, STDOUT_FILENO);
		(void)close(null);
	}
}

/* A result may be called /dev/stdout: while it is opened, standard output is what it was at the start. */
static void lend_output(const struct supervisor *s)
{
	if (s->standard >= 0)
		(void)dup2(s->standard, STDOUT_FILENO);
}

/* Begin a result. Its number is its place in the table. */
static int begin_output(struct supervisor *s, const char *path, bool in_place, int *fd,
			uint64_t *number)
{
	int err;

	for (size_t i = 0; i < OUTPUTS_MAX; i++) {
		if (s->outputs[i].path)
			continue;
		lend_output(s);
		err = output_begin(&s->outputs[i], path, in_place);
		let_go_of_output();
		if (err) {
			output_abort(&s->outputs[i]);
			return err;
		}
		*number = i;
		*fd = dup(s->outputs[i].fd);
		return *fd < 0 ? -errno : 0;
	}
	return -EMFILE;
}

static int commit_output(struct supervisor *s, uint64_t number)
{
	int err;

	if (number >= OUTPUTS_MAX || !s->outputs[number].path)
		return -EINVAL;
	err = output_rename(&s->outputs[number]);
	output_abort(&s->outputs[number]);
	return err;
}

/* Open a file below a directory that the worker has open, and so may read. */
static int open_in(int directory, const char *name, bool follow_link, int *fd)
{
	return strchr(name, '/') || !strcmp(name, "..") || directory < 0
		       ? -EINVAL
		       : files_open_in(directory, name, follow_link, fd);
}

/* Close what keeps readers of standard output waiting: the result is complete. */
static void result_is_done(struct supervisor *s)
{
	s->done = true;
	if (s->standard >= 0)
		(void)close(s->standard);
	s->standard = -1;
}

/* Do what one request asks for. Return its error. */
static int serve(struct supervisor *s, uint64_t what, const char *path, uint64_t value, int with,
		 int *fd, uint64_t *number, struct files_facts *facts)
{
	bool named = path != NULL;

	switch (what) {
	case FILES_OPEN:
		return named && may_read(s->given, path) ? files_open(path, fd) : -EPERM;
	case FILES_OPEN_IN:
		return named ? open_in(with, path, value, fd) : -EINVAL;
	case FILES_STAT:
		return named && may_stat(s->given, path) ? files_stat(path, facts) : -EPERM;
	case FILES_OUTPUT:
		return named && may_write(s->given, path) ? begin_output(s, path, value, fd, number)
							  : -EPERM;
	case FILES_COMMIT:
		return commit_output(s, value);
	case FILES_ABORT:
		if (value < OUTPUTS_MAX)
			output_abort(&s->outputs[value]);
		return 0;
	case FILES_SCRATCH:
		return files_scratch(fd);
	case FILES_KEEP:
		if (s->given->windows)
			windows_keep(s->given->windows, s->given->keep);
		return 0;
	case FILES_COMMAND:
		return s->given->ask ? s->given->ask(s->given->ctx, value, number) : -EINVAL;
	case FILES_DONE:
		result_is_done(s);
		return 0;
	default:
		return -EINVAL;
	}
}

static void start_keeper(struct supervisor *s, size_t which);
static void keep_beside(struct supervisor *s);

/* ---- what a recording costs -------------------------------------------------------------- */

static void say_rate(void)
{
	if (!recording.cost)
		return;
	atomic_store(&recording.cost->rate_hz, recording.budget.hz);
	atomic_store(&recording.cost->configured_hz, recording.budget.most_hz);
}

/* Record at the rate that the budget allows now; before is the rate until now. */
static void follow_budget(uint32_t before)
{
	struct cpu_budget *b = &recording.budget;
	char error[LIVE_ERROR_SIZE] = "";
	int err;

	recording.choice.options.frequency_hz = b->hz;
	err = capture_change(recording.capture, &recording.choice.options, error);
	if (err) {
		log_warning("the rate cannot be changed: %s", error);
		recording.choice.options.frequency_hz = before;
		cpu_budget_keep(b, before);
	} else if (b->hz < before) {
		atomic_fetch_add(&recording.cost->n_lowered, 1);
		log_warning("offwind takes more than %g %% of a CPU: %" PRIu32
			    " samples a second instead of %" PRIu32,
			    b->share / 1e4, b->hz, before);
	} else {
		log_info("offwind takes less CPU time: %" PRIu32
			 " samples a second instead of %" PRIu32,
			 b->hz, before);
	}
	say_rate();
}

/* Measure all processes, about once a second, and keep to the budget. */
static void look_at_cost(struct supervisor *s)
{
	pid_t pids[COST_ROLES] = {
		[COST_SUPERVISOR] = getpid(),
		[COST_CAPTURE] = s->capture,
		[COST_OPENER] = s->opener,
		[COST_WORKER] = s->worker,
		[COST_STORE] = s->keepers[STORE].pid,
		[COST_HISTORY] = s->keepers[HISTORY].pid,
	};
	struct cpu_budget *b = &recording.budget;
	uint32_t before = b->hz;
	uint64_t now = now_ns();
	bool spent = b->spent;

	if (!s->given->cost || now < s->measured_ns + MEASURE_NS)
		return;
	s->measured_ns = now;
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->given->beside[i].run)
			pids[s->given->beside[i].cost] = s->beside[i].pid;
	for (size_t i = 0; i < COST_BPF; i++)
		cost_measure(s->given->cost, (enum cost_role)i, pids[i], &s->seen[i]);
	/* Before it records, the rate cannot be changed. */
	if (!s->reading->beats || end_asked || reloading)
		return;
	if (cpu_budget_look(b, now, cost_cpu_ns(s->given->cost)))
		follow_budget(before);
	if (b->spent && !spent)
		log_warning("offwind takes more than %g %% of a CPU, also at one sample a second",
			    b->share / 1e4);
}

/* For a service: begin to reload if that is asked for, and say how things are. */
static void look_after_service(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	if (!service)
		return;
	if (reload_asked && !reloading && !end_asked) {
		reload_asked = 0;
		if (service->reload(service->ctx)) {
			reloading = 1;
			(void)kill(s->worker, SIGTERM);
		}
	}
	service->watch(service->ctx,
		       end_asked   ? SUPERVISOR_ENDS
		       : reloading ? SUPERVISOR_RELOADS
				   : SUPERVISOR_RECORDS,
		       s->reading->beats);
}

/*
 * Wait for a request, or for the worker's end. End a worker that is busy and does not go on. Time
 * counts only while this process runs, too.
 */
static void wait_for_request(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;
	struct pollfd requests[2 + KEEPERS] = { { .fd = s->socket, .events = POLLIN } };
	const bool asked = service && service->fork;
	uint64_t seen = 0;

	for (int silent = 0;; silent++) {
		keep_beside(s);
		look_after_service(s);
		look_at_cost(s);
		for (size_t i = 0; i < KEEPERS; i++) {
			struct channels *c = s->keepers[i].channels;

			requests[1 + i] = (struct pollfd){ .fd = c ? channels_answer_fd(c) : -1,
							   .events = POLLIN };
		}
		requests[1 + KEEPERS] =
			(struct pollfd){ .fd = asked ? *service->poll : -1, .events = POLLIN };
		if (poll(requests, 2 + KEEPERS, 1000) > 0) {
			if (requests[0].revents)
				return;
			for (size_t i = 0; i < KEEPERS; i++)
				if (requests[1 + i].revents)
					start_keeper(s, i);
		}
		if (asked)
			service->act(service->asked);

		uint64_t turns = s->reading->turns;

		if (turns != seen || !(turns & 1))
			silent = 0;
		seen = turns;
		if (silent >= SILENT_S) {
			log_warning("the worker has not gone on for %d s, and is ended", SILENT_S);
			(void)kill(s->worker, SIGKILL);
			return;
		}
	}
}

/* Answer the worker's requests until it closes the socket, which it does by ending. */
static void attend(struct supervisor *s, struct message *m)
{
	for (wait_for_request(s); !message_receive(s->socket, m); wait_for_request(s)) {
		uint64_t what = message_take_number(m), value = message_take_number(m), number = 0;
		const char *text = message_take_text(m);
		int with = message_take_fd(m), fd = -1, err = m->err;
		struct files_facts facts = { .mode = 0 };

		if (!err && what == FILES_ADVISE)
			advice_serve(m);
		else if (!err)
			err = serve(s, what, text, value, with, &fd, &number, &facts);
		if (with >= 0)
			(void)close(with);
		message_fini(m);
		message_init(m);
		message_number(m, (uint64_t)(int64_t)err);
		message_number(m, number);
		message_bytes(m, &facts, sizeof(facts));
		message_fd(m, fd);
		err = message_send(s->socket, m);
		if (fd >= 0)
			(void)close(fd);
		if (err)
			break;
	}
}

/* ---- workers that died ------------------------------------------------------------------- */

/*
 * Return whether a process that this signal ended may have been ended by what it read. SIGKILL: the
 * memory was used up, or somebody sent it.
 */
static bool is_crash(int number)
{
	switch (number) {
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGABRT:
	case SIGTRAP:
	case SIGSYS:
	case SIGXCPU:
	case SIGKILL:
		return true;
	default:
		return false;
	}
}

static const char *signal_name(int number)
{
	const char *name = sigabbrev_np(number);

	return name ? name : "?";
}

/* Store the quarantine of a file that ended a worker, so that no later run reads it. */
static void put_in_quarantine(const struct supervisor *s, const struct reading_file *file,
			      const char *why)
{
	struct store_file stored = { .known = true,
				     .dev = file->dev,
				     .ino = file->ino,
				     .elf_off = file->elf_off,
				     .size = file->size,
				     .uid = file->uid,
				     .mtime_ns = file->mtime_ns,
				     .ctime_ns = file->ctime_ns,
				     .path = file->path };
	struct store *store;

	if (s->given->no_store || store_open(s->given->db, &store))
		return;
	(void)store_quarantine(store, NULL, &stored, why);
	store_close(store);
}

/*
 * Refuse the files that the dead worker was reading to the next one, or else the sample that it was
 * walking, and report them. Return whether there are any.
 */
static bool refuse_what_it_read(struct supervisor *s, int number)
{
	struct reading_notes *r = s->reading;
	char why[64];
	/* Somebody else may have killed the worker: then only this run does without the file. */
	bool any = false, lasting = number != SIGKILL;

	(void)snprintf(why, sizeof(why), "a worker that read it was ended by SIG%s",
		       signal_name(number));
	for (size_t i = 0; i < READING_MAX; i++) {
		struct reading_file *file = &r->now[i].file;

		if (!r->now[i].taken)
			continue;
		/* The worker may have been taken over before it died. */
		file->path[sizeof(file->path) - 1] = '\0';
		log_warning("%s: %s; it is not read any more%s", file->path, why,
			    lasting ? ", and stays in quarantine until it changes" : "");
		if (lasting)
			put_in_quarantine(s, file, why);
		if (r->n_refused < READING_MAX)
			r->refused[r->n_refused++] = *file;
		any = true;
	}
	memset(r->now, 0, sizeof(r->now));
	r->turns = 0;
	if (!any && r->sample && r->n_refused_samples < READING_MAX) {
		log_warning(s->given->live
				    ? "process %" PRIu64
				      ": walking a stack of it ended the worker by SIG%s; its "
				      "samples are lost"
				    : "sample %" PRIu64
				      ": walking it ended the worker by SIG%s; it is lost",
			    (uint64_t)r->sample, signal_name(number));
		r->refused_samples[r->n_refused_samples++] = r->sample;
		any = true;
	}
	r->sample = 0;
	return any;
}

/* Remove unfinished results. */
static void abort_outputs(struct supervisor *s)
{
	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		output_abort(&s->outputs[i]);
}

/* Return whether another worker can do the work from its beginning. */
static bool can_begin_again(const struct supervisor *s)
{
	struct stat st;

	if (s->done || (s->reads_standard && s->input_at < 0) || s->given->streams)
		return false;
	/* A recording writes its result at its end. */
	if (s->given->live)
		return true;
	/* What was written to a pipe or a terminal cannot be taken back. */
	return s->given->output && (strcmp(s->given->output, "-") != 0 ||
				    (!fstat(s->standard, &st) && S_ISREG(st.st_mode)));
}

/* Bring standard input and output back to where they were. */
static void rewind_standard(struct supervisor *s, off_t output_at)
{
	if (s->reads_standard)
		(void)lseek(STDIN_FILENO, s->input_at, SEEK_SET);
	/* If the result goes elsewhere, what stands there is others'. */
	if (s->standard >= 0 && output_at >= 0 && s->given->output &&
	    !strcmp(s->given->output, "-")) {
		(void)ftruncate(s->standard, output_at);
		(void)lseek(s->standard, output_at, SEEK_SET);
	}
}

/* ---- processes --------------------------------------------------------------------------- */

/* In a new process: stop and continue as every process does. */
static void leave_stops(void)
{
	struct sigaction now;

	if (sigaction(SIGTSTP, NULL, &now) || now.sa_handler == SIG_IGN)
		return;
	(void)signal(SIGTSTP, SIG_DFL);
	(void)signal(SIGCONT, SIG_DFL);
}

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
	for (size_t i = 0; i < N_PASSED; i++)
		(void)signal(passed[i], SIG_IGN);
	leave_stops();
	if (s->standard >= 0)
		(void)close(s->standard);
	let_go_of_output();
	close_beside(s, NULL);
}

/* The opener's process. It ends with its worker, whose ends of the channels are closed then. */
static _Noreturn void be_opener(struct supervisor *s, struct channels *channels)
{
	/* To look at processes, read their files, and become their users for that. */
	static const int needed[] = { CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE,
				      CAP_SETUID,     CAP_SETGID,	   CAP_SYSLOG };

	be_helper(s, "offwind-opener");
	sandbox_keep(needed, sizeof(needed) / sizeof(needed[0]));
	capture_free(s->live);
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
	sandbox_keep(needed, sizeof(needed) / sizeof(needed[0]));
	if (s->given->realtime)
		(void)priority_realtime(s->given->realtime);
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
	be_helper(s, which == STORE ? "offwind-store" : "offwind-history");
	capture_free(s->live);
	(void)close(s->socket);
	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		if (s->outputs[i].fd >= 0)
			(void)close(s->outputs[i].fd);
	for (size_t i = 0; i < KEEPERS; i++)
		if (i != which)
			channels_free(s->keepers[i].channels);
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
	if (s->live)
		sandbox_limit_memory(limits.memory_bytes);
	for (size_t i = 0; i < N_PASSED; i++)
		(void)sigaction(passed[i], &s->before[i], NULL);
	/* Only the supervisor decides what SIGHUP means for a service. */
	if (s->given->service)
		(void)signal(SIGHUP, SIG_IGN);
	(void)sigprocmask(SIG_SETMASK, &s->signals, NULL);
	leave_stops();
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
 * them when it is ready (be_worker).
 */
static int fork_worker(struct supervisor *s)
{
	sigset_t blocked, before;
	int rc;

	(void)sigemptyset(&blocked);
	for (size_t i = 0; i < N_PASSED; i++)
		(void)sigaddset(&blocked, passed[i]);
	(void)sigprocmask(SIG_BLOCK, &blocked, &before);
	rc = fork_role(&s->worker);
	if (rc == 1) {
		s->signals = before;
		return rc;
	}
	if (!rc) {
		current_worker = s->worker;
		if (end_asked)
			(void)kill(s->worker, end_asked);
	}
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* A process beside the worker. It ends with the supervisor. */
static _Noreturn void be_beside(struct supervisor *s, const struct supervisor_beside *b)
{
	(void)prctl(PR_SET_NAME, b->title);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < N_PASSED; i++)
		(void)signal(passed[i], SIG_IGN);
	leave_stops();
	if (s->standard >= 0)
		(void)close(s->standard);
	let_go_of_output();
	close_beside(s, b);
	capture_free(s->live);
	if (s->socket >= 0)
		(void)close(s->socket);
	for (size_t i = 0; i < KEEPERS; i++)
		channels_free(s->keepers[i].channels);
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
			    WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "");
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

static void keep_beside(struct supervisor *s)
{
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->given->beside[i].run)
			keep_one_beside(s, &s->given->beside[i], &s->beside[i]);
}

/* End the processes beside the worker. They may still hold what they read. */
static void end_beside(struct supervisor *s)
{
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->beside[i].pid > 0 && !kill(s->beside[i].pid, SIGKILL))
			(void)waitpid(s->beside[i].pid, NULL, 0);
}

/* End what was begun for requests. */
static void end_asked_for(const struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	if (service && service->fork)
		service->end(service->asked);
}

/* Start the capture process, before there are others. */
static int start_capture(struct supervisor *s)
{
	int rc = s->given->live ? capture_new(s->given->live, &s->live) : 0;

	if (!rc && s->live)
		rc = live_choice_copy(s->given->live, &recording.choice);
	if (!rc && s->live) {
		recording.cost = s->given->cost;
		cpu_budget_init(&recording.budget, s->given->cpu_budget,
				s->given->live->frequency_hz);
		say_rate();
	}
	if (!rc && s->live) {
		rc = fork_role(&s->capture);
		if (rc == 1)
			be_capture(s);
		capture_keep(s->live);
	}
	return rc;
}

/*
 * Fork an opener and a worker. Return 1 in the worker, 0 in the supervisor, or a negative code. The
 * opener comes first: the capture process must know both (capture_use).
 */
static int fork_roles(struct supervisor *s)
{
	struct channels *channels = NULL;
	int ends[2] = { -1, -1 };
	int rc = channels_new(s->given->live ? LIVE_CHANNELS : CHANNELS, &channels);

	if (!rc)
		rc = fork_role(&s->opener);
	if (rc == 1)
		be_opener(s, channels);
	if (!rc && !s->given->no_store)
		rc = channels_new(1, &s->keepers[STORE].channels);
	if (!rc && s->given->history)
		rc = channels_new(1, &s->keepers[HISTORY].channels);
	if (!rc && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		rc = -errno;
	if (!rc)
		rc = fork_worker(s);
	if (rc == 1) {
		be_worker(s, channels, ends);
		return 1;
	}
	channels_free(channels);
	recording.capture = s->live;
	if (ends[0] >= 0)
		(void)close(ends[0]);
	s->socket = ends[1];
	if (rc && s->opener > 0)
		(void)kill(s->opener, SIGKILL);
	return rc;
}

/* Start a keeper, which answers the worker from now on. If that fails, the worker is told. */
static void start_keeper(struct supervisor *s, size_t which)
{
	if (fork_role(&s->keepers[which].pid) == 1)
		be_keeper(s, which);
	channels_free(s->keepers[which].channels);
	s->keepers[which].channels = NULL;
}

/* Wait for a process that is about to end, but not for ever. Return whether it ended. */
static bool wait_for(pid_t pid, int most_ms)
{
	struct timespec pause = { .tv_nsec = 50000 };
	uint64_t until = now_ns() + (uint64_t)most_ms * 1000000;

	while (!waitpid(pid, NULL, WNOHANG)) {
		if (now_ns() > until)
			return false;
		(void)nanosleep(&pause, NULL);
		if (pause.tv_nsec < 2000000)
			pause.tv_nsec *= 2;
	}
	return true;
}

/*
 * End the capture process, by closing the last ends of what it serves, and wait for it: it detaches
 * its programs. It opens files that others may serve, so do not wait for ever.
 */
static void end_capture(struct supervisor *s)
{
	recording.capture = NULL;
	capture_free(s->live);
	s->live = NULL;
	if (s->capture > 0 && !wait_for(s->capture, CAPTURE_END_MS))
		(void)kill(s->capture, SIGKILL);
}

/* Wait for the worker and end the opener. Return the worker's status, as waitpid(2). */
static int reap(struct supervisor *s)
{
	int status = 0;

	current_worker = 0;
	(void)close(s->socket);
	s->socket = -1;
	while (waitpid(s->worker, &status, 0) < 0 && errno == EINTR)
		;
	/* The keepers do what they were asked for last, and end. */
	for (size_t i = 0; i < KEEPERS; i++) {
		channels_free(s->keepers[i].channels);
		if (s->keepers[i].pid > 0)
			(void)wait_for(s->keepers[i].pid, KEEPER_END_MS);
		s->keepers[i] = (struct keeper){ .pid = 0 };
	}
	/* An opener that waits for a file server may not end, even when it is killed. */
	(void)kill(s->opener, SIGKILL);
	wait_for(s->opener, OPENER_END_MS);
	return status;
}

/* End this process as the worker ended. */
static _Noreturn void end_like(struct supervisor *s, int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	end_asked_for(s);
	end_beside(s);
	end_capture(s);
	if (s->given->ended)
		s->given->ended(s->given->ctx);
	if (!number)
		_exit(WEXITSTATUS(status));
	if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT ||
	    number == SIGPIPE) {
		const struct rlimit none = { 0, 0 };

		(void)setrlimit(RLIMIT_CORE, &none);
		(void)signal(number, SIG_DFL);
		(void)raise(number);
	}
	if (!s->done)
		log_error(
			"the process that reads the input was ended by SIG%s; please report this, "
			"with the input if you can",
			signal_name(number));
	/* The result was complete; only work for later runs is lost. */
	_exit(s->done ? 0 : 1);
}

/* Execute this program anew, when all other processes have ended. */
static _Noreturn void begin_again(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	end_asked_for(s);
	end_beside(s);
	end_capture(s);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	lend_output(s);
	service->again(service->ctx);
	_exit(1);
}

/* The supervisor's life. Returns only in a worker, or with a negative code. */
static int supervise(struct supervisor *s)
{
	uint64_t first_death = 0;
	int deaths = 0;
	struct message *m = malloc(sizeof(*m));
	off_t output_at = s->standard >= 0 ? lseek(s->standard, 0, SEEK_CUR) : -1;
	int rc = m ? start_capture(s) : -ENOMEM;

	for (n_workers = 0;; n_workers++) {
		int status;

		if (!rc)
			rc = fork_roles(s);
		if (rc) {
			free(m);
			if (rc < 0)
				end_capture(s);
			return rc;
		}
		/* From now on standard output is the worker's alone. */
		let_go_of_output();
		attend(s, m);
		status = reap(s);
		abort_outputs(s);
		if (reloading && !end_asked)
			begin_again(s);
		if (!deaths || (s->given->live && now_ns() - first_death > DEATHS_NS)) {
			first_death = now_ns();
			deaths = 0;
		}
		deaths++;
		if (!WIFSIGNALED(status) || !is_crash(WTERMSIG(status)) ||
		    !(refuse_what_it_read(s, WTERMSIG(status)) || s->given->live) ||
		    deaths == DEATHS_MAX || !can_begin_again(s))
			end_like(s, status);
		if (s->given->live)
			log_warning(
				"the worker was ended by SIG%s: what was recorded until now is "
				"lost, except for profiles that are complete; recording goes on",
				signal_name(WTERMSIG(status)));
		rewind_standard(s, output_at);
	}
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

bool supervisor_is_off(void)
{
	const char *sandbox = getenv("OFFWIND_SANDBOX");

	return (sandbox && !strcmp(sandbox, "off")) || !sandbox_is_possible();
}

/* Read what the sources want to know of this machine, and arrange for what will not be possible. */
static void prepare_worker(void)
{
	struct uw_build_id kernel;
	char boot[OWC_BOOT_ID_SIZE];

	image_kernel_build_id(&kernel);
	(void)owc_boot_id(boot);
	sym_scratch_by(files_scratch);
}

int supervisor_start(const struct supervision *given)
{
	static struct supervisor s; /* too large for the stack, and needed until the end */
	const char *input;
	int err;

	if (supervisor_is_off())
		return 0;
	s = (struct supervisor){ .given = given, .socket = -1, .standard = -1, .input_at = -1 };
	for (size_t i = 0; i < OUTPUTS_MAX; i++)
		s.outputs[i].fd = -1;
	for (size_t i = 0; (input = supervision_input(given, i)); i++)
		s.reads_standard |= !strcmp(input, "-");
	s.input_at = lseek(STDIN_FILENO, 0, SEEK_CUR);
	s.reading = mmap(NULL, sizeof(*s.reading), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s.reading == MAP_FAILED) {
		err = -errno;
	} else {
		/* Nothing may be written twice. */
		(void)fflush(stdout);
		(void)fflush(stderr);
		(void)sigaction(SIGALRM, &(struct sigaction){ .sa_handler = interrupt_again },
				NULL);
		for (size_t i = 0; i < N_PASSED; i++)
			take_signal(passed[i], &s.before[i], given);
		if (given->service)
			unblock_hangup();
		if (given->live)
			take_stops();
		s.standard = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		err = supervise(&s);
	}
	if (err < 0)
		log_error("the sandbox cannot be made: %s", strerror(-err));
	if (err == 1)
		prepare_worker();
	return err < 0 ? err : 0;
}

int supervisor_change(const struct source_live_options *options, uint32_t cpu_budget, char *error)
{
	struct live_choice choice;
	int err = live_choice_copy(options, &choice);

	(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
	if (!err)
		err = capture_change(recording.capture, options, error);
	if (err) {
		live_choice_fini(&choice);
		return err;
	}
	live_choice_fini(&recording.choice);
	recording.choice = choice;
	cpu_budget_init(&recording.budget, cpu_budget, options->frequency_hz);
	say_rate();
	return 0;
}

bool supervisor_is_again(void)
{
	return n_workers > 0;
}

void supervisor_confine(void)
{
	int err;

	if (!files_are_asked_for())
		return; /* there is no worker */
	err = sandbox_enter();
	if (err) {
		log_error("the sandbox cannot be entered: %s; OFFWIND_SANDBOX=off works without it",
			  strerror(-err));
		_exit(1);
	}
}

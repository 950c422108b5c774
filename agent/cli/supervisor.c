/* agent/cli/supervisor.c: serves the worker until it ends, and begins another one if it died. */
#include "agent/cli/supervisor.h"

#include "agent/cli/advice.h"
#include "agent/cli/supervisor_internal.h"
#include "agent/clock.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/owc/owc_format.h"
#include "agent/role/channel.h"
#include "agent/role/files.h"
#include "agent/role/message.h"
#include "agent/role/reading.h"
#include "agent/role/sandbox.h"
#include "agent/source/memory_image.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEPER_END_MS 5000
#define KILLED_END_MS 100
/* A worker that does not go on for so many seconds is ended. */
#define SILENT_S 30
/* Workers that may die before the command fails; while recording, so many within an hour. */
#define DEATHS_MAX 8
#define DEATHS_NS  (UINT64_C(3600) * 1000000000)

static int n_workers; /* that there were before the current one */

/* For a service: begin to reload if that is asked for, and say how things are. */
static void look_after_service(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	if (!service)
		return;
	if (supervisor_signals.reload && !supervisor_signals.reloading && !supervisor_signals.end) {
		supervisor_signals.reload = 0;
		if (service->reload(service->ctx)) {
			supervisor_signals.reloading = 1;
			(void)kill(s->worker, SIGTERM);
		}
	}
	service->watch(service->ctx,
		       supervisor_signals.end	      ? SUPERVISOR_ENDS
		       : supervisor_signals.reloading ? SUPERVISOR_RELOADS
						      : SUPERVISOR_RECORDS,
		       s->reading->beats);
}

static struct pollfd request_through(const struct channels *channels)
{
	return (struct pollfd){ .fd = channels ? channels_answer_fd(channels) : -1,
				.events = POLLIN };
}

/*
 * Wait for a request, or for the worker's end. End a worker that is busy and does not go on. Time
 * counts only while this process runs, too.
 */
static void wait_for_request(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;
	enum {
		OF_KEEPERS = 1,
		OF_SPARES = OF_KEEPERS + KEEPERS,
		OF_ASKED = OF_SPARES + REQUEST_SPARES,
		ALL
	};
	struct pollfd requests[ALL] = { { .fd = s->socket, .events = POLLIN } };
	const bool asked = service && service->fork;
	uint64_t seen = 0;

	for (int silent = 0;; silent++) {
		supervisor_keep_beside(s);
		look_after_service(s);
		supervisor_look_at_cost(s);
		for (size_t i = 0; i < KEEPERS; i++)
			requests[OF_KEEPERS + i] = request_through(s->keepers[i].channels);
		for (size_t i = 0; i < REQUEST_SPARES; i++)
			requests[OF_SPARES + i] = request_through(s->spares[i]);
		requests[OF_ASKED] =
			(struct pollfd){ .fd = asked ? *service->poll : -1, .events = POLLIN };
		if (poll(requests, ALL, 1000) > 0) {
			if (requests[0].revents)
				return;
			for (size_t i = 0; i < KEEPERS; i++)
				if (requests[OF_KEEPERS + i].revents)
					supervisor_start_keeper(s, i);
			for (size_t i = 0; i < REQUEST_SPARES; i++)
				if (requests[OF_SPARES + i].revents)
					supervisor_start_spare(s, i);
		} else if (s->given->live && s->keepers[STORE].channels) {
			/*
			 * While nobody who may write the store has it open, SQLite trusts none of the
			 * pages that the worker has cached, and reads them again for each block.
			 */
			supervisor_start_keeper(s, STORE);
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
			err = supervisor_serve(s, what, text, value, with, &fd, &number, &facts);
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

/* Wait for the worker and end the opener. Return the worker's status, as waitpid(2). */
static int reap(struct supervisor *s)
{
	int status = 0;

	supervisor_signals.worker = 0;
	(void)close(s->socket);
	s->socket = -1;
	while (waitpid(s->worker, &status, 0) < 0 && errno == EINTR)
		;
	/* The keepers do what they were asked for last, and end. */
	for (size_t i = 0; i < KEEPERS; i++) {
		channels_free(s->keepers[i].channels);
		if (s->keepers[i].pid > 0 &&
		    !supervisor_wait_for(s->keepers[i].pid, KEEPER_END_MS)) {
			/* It may be stopped, with locks of the database that the next one needs. */
			log_warning("the process that writes the %s does not end, and is killed",
				    i == STORE ? "store" : "history");
			(void)kill(s->keepers[i].pid, SIGKILL);
			(void)supervisor_wait_for(s->keepers[i].pid, KILLED_END_MS);
		}
		s->keepers[i] = (struct keeper){ .pid = 0 };
	}
	for (size_t i = 0; i < REQUEST_SPARES; i++) {
		channels_free(s->spares[i]);
		s->spares[i] = NULL;
	}
	supervisor_end_opener(s);
	return status;
}

/* End this process as the worker ended. */
static _Noreturn void end_like(struct supervisor *s, int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	supervisor_end_asked_for(s);
	supervisor_end_beside(s);
	supervisor_end_capture(s);
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
			supervisor_signal_name(number));
	/* The result was complete; only work for later runs is lost. */
	_exit(s->done ? 0 : 1);
}

/* Execute this program anew, when all other processes have ended. */
static _Noreturn void begin_again(struct supervisor *s)
{
	const struct supervisor_service *service = s->given->service;

	supervisor_end_asked_for(s);
	supervisor_end_beside(s);
	supervisor_end_capture(s);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	supervisor_lend_output(s);
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
	int rc = m ? supervisor_start_capture(s) : -ENOMEM;

	for (n_workers = 0;; n_workers++) {
		int status;

		if (!rc)
			rc = supervisor_fork_roles(s);
		if (rc) {
			free(m);
			if (rc < 0)
				supervisor_end_capture(s);
			return rc;
		}
		/* From now on standard output is the worker's alone. */
		supervisor_let_go_of_output();
		attend(s, m);
		status = reap(s);
		supervisor_abort_outputs(s);
		if (supervisor_signals.reloading && !supervisor_signals.end)
			begin_again(s);
		if (!deaths || (s->given->live && now_ns() - first_death > DEATHS_NS)) {
			first_death = now_ns();
			deaths = 0;
		}
		deaths++;
		if (!WIFSIGNALED(status) || !supervisor_is_crash(WTERMSIG(status)) ||
		    !(supervisor_refuse_what_it_read(s, WTERMSIG(status)) || s->given->live) ||
		    deaths == DEATHS_MAX || !supervisor_can_begin_again(s))
			end_like(s, status);
		if (s->given->live)
			log_warning(
				"the worker was ended by SIG%s: what was recorded until now is "
				"lost, except for profiles that are complete; recording goes on",
				supervisor_signal_name(WTERMSIG(status)));
		supervisor_rewind_standard(s, output_at);
	}
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
	s.reading = io_shared(sizeof(*s.reading));
	if (!s.reading) {
		err = -errno;
	} else {
		/* Nothing may be written twice. */
		(void)fflush(stdout);
		(void)fflush(stderr);
		supervisor_take_signals(&s);
		s.standard = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		err = supervise(&s);
	}
	if (err < 0)
		log_error("the sandbox cannot be made: %s", strerror(-err));
	if (err == 1)
		prepare_worker();
	return err < 0 ? err : 0;
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

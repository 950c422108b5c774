/* Which events belong to the selected processes; the tables of the kernel are imitated. */
#include "agent/live/bpf/bpf.h"
#include "agent/live/selected.h"

#include "tests/check.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t kernel[8]; /* the processes that the kernel follows */
static size_t n_kernel;
static bool followed;
static uint32_t filters; /* that are on */
static int n_lost;	 /* times that a process which stays selected did not pass */
static uint32_t stays;
static char comms[2][CAPTURE_COMM];
static size_t n_comms;

int live_bpf_follow(struct live_bpf *bpf, char *error)
{
	(void)bpf;
	(void)error;
	followed = true;
	return 0;
}

int live_bpf_want(struct live_bpf *bpf, uint32_t pid)
{
	(void)bpf;
	kernel[n_kernel++ % 8] = pid;
	return 0;
}

bool live_bpf_wants(struct live_bpf *bpf, uint32_t pid)
{
	(void)bpf;
	for (size_t i = 0; i < n_kernel; i++)
		if (kernel[i] == pid)
			return true;
	return false;
}

int live_bpf_want_thread(struct live_bpf *bpf, uint32_t tid)
{
	(void)bpf;
	(void)tid;
	return 0;
}

int live_bpf_want_comm(struct live_bpf *bpf, const char *comm)
{
	(void)bpf;
	(void)snprintf(comms[n_comms++ % 2], CAPTURE_COMM, "%s", comm);
	return 0;
}

void live_bpf_filter(struct live_bpf *bpf, uint32_t on)
{
	filters = on;
	n_lost += stays && !live_bpf_wants(bpf, stays);
}

void live_bpf_unfollow(struct live_bpf *bpf)
{
	(void)bpf;
	followed = false;
}

void live_bpf_only_processes(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	size_t n = 0;

	for (size_t i = 0; i < n_kernel; i++)
		if (keep(ctx, &kernel[i]))
			kernel[n++] = kernel[i];
	n_kernel = n;
	n_lost += stays && !live_bpf_wants(bpf, stays);
}

void live_bpf_only_comms(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	(void)bpf;
	for (size_t i = 0; i < n_comms; i++)
		if (!keep(ctx, comms[i]))
			memmove(comms[i], comms[--n_comms], CAPTURE_COMM);
}

void live_bpf_only_uids(struct live_bpf *bpf, live_keep_fn keep, const void *ctx)
{
	(void)bpf;
	(void)keep;
	(void)ctx;
}

int live_bpf_want_uid(struct live_bpf *bpf, uint32_t uid)
{
	(void)bpf;
	(void)uid;
	return 0;
}

bool live_bpf_any_alive(struct live_bpf *bpf)
{
	(void)bpf;
	return false;
}

static struct event fork_of(uint32_t parent, uint32_t child)
{
	return (struct event){
		.type = EVENT_FORK, .pid = child, .tid = child, .fork = { .parent_pid = parent }
	};
}

static struct event mapping_of(uint32_t pid)
{
	return (struct event){ .type = EVENT_MAPPING, .pid = pid, .tid = pid };
}

static void test_all_are_selected_unless_some_are(void)
{
	struct source_live_options options = { .frequency_hz = 99 };
	struct live_selected s = { 0 };
	char error[LIVE_ERROR_SIZE];
	struct event event = mapping_of(77);

	CHECK(!live_selected_open(&s, NULL, &options, error) && !followed, "opened");
	CHECK(live_selected_has(&s, 77) && live_selected_takes(&s, &event) &&
		      !live_selected_drops(&s, &event),
	      "any process");
	live_selected_fini(&s);
}

/* A process, its child that runs already, and those that are born later. */
static void test_descendants_are_selected(void)
{
	enum { NEW = 4000000, NEWER, STRANGE };
	const uint32_t own = (uint32_t)getpid();
	int32_t pids[] = { (int32_t)own };
	struct source_live_options options = { .pids = pids, .n_pids = 1 };
	struct live_selected s = { 0 };
	char error[LIVE_ERROR_SIZE];
	struct event event;
	pid_t child = fork();

	if (!child) {
		(void)pause();
		_exit(0);
	}
	CHECK(!live_selected_open(&s, NULL, &options, error) && followed, "opened");
	CHECK(live_selected_has(&s, own) && live_selected_has(&s, (uint32_t)child) &&
		      live_bpf_wants(NULL, (uint32_t)child),
	      "with the child");
	CHECK(!live_selected_has(&s, 1) && live_selected_other(&s, 1), "init is another process");
	event = mapping_of(1);
	CHECK(live_selected_drops(&s, &event) && !live_selected_takes(&s, &event),
	      "whose events are dropped early");
	event = fork_of((uint32_t)child, NEW);
	CHECK(!live_selected_drops(&s, &event) && live_selected_takes(&s, &event) &&
		      live_selected_has(&s, NEW),
	      "a grandchild");
	event = fork_of(NEW, NEWER);
	CHECK(live_selected_takes(&s, &event) && live_selected_has(&s, NEWER), "and its child");
	live_selected_fork(&s, STRANGE, 1);
	event = mapping_of(STRANGE);
	CHECK(live_selected_drops(&s, &event), "a child of another process");
	event = fork_of(1, NEW);
	CHECK(!live_selected_drops(&s, &event) && !live_selected_takes(&s, &event) &&
		      !live_selected_has(&s, NEW),
	      "another process has the pid of one that was selected");
	live_selected_unsure(&s);
	event = mapping_of(STRANGE);
	CHECK(!live_selected_drops(&s, &event) && !live_selected_takes(&s, &event),
	      "after a loss only the order of times decides");
	CHECK(!live_selected_any_alive(&s), "as the kernel says");
	live_selected_fini(&s);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

/* From this process to its child alone, which was selected all the time, to a name, to everything. */
static void test_what_stays_selected_passes_all_the_time(void)
{
	const uint32_t own = (uint32_t)getpid();
	pid_t child = fork();
	int32_t first[] = { (int32_t)own }, second[] = { (int32_t)child };
	const char *name[] = { "prog" };
	struct source_live_options options = { .pids = first, .n_pids = 1, .changes = true };
	struct live_selected s = { 0 };
	char error[LIVE_ERROR_SIZE] = "";

	if (!child) {
		(void)pause();
		_exit(0);
	}
	n_kernel = 0;
	CHECK(!live_selected_open(&s, NULL, &options, error) &&
		      !live_selected_change(&s, &options, CAPTURE_FILTER_TASK, error),
	      "opened");
	CHECK(filters == CAPTURE_FILTER_TASK && followed && live_bpf_wants(NULL, own) &&
		      live_bpf_wants(NULL, (uint32_t)child),
	      "a process and its child");
	CHECK(live_selected_has(&s, 1) && !live_selected_other(&s, 1),
	      "events of all processes are taken");
	stays = (uint32_t)child;
	options.pids = second;
	CHECK(!live_selected_change(&s, &options, CAPTURE_FILTER_TASK, error), "changed");
	CHECK(!live_bpf_wants(NULL, own) && live_bpf_wants(NULL, stays) && !n_lost,
	      "the child alone");
	stays = 0;
	options = (struct source_live_options){ .comms = name, .n_comms = 1, .changes = true };
	CHECK(!live_selected_change(&s, &options, CAPTURE_FILTER_COMM, error) && !n_kernel &&
		      n_comms == 1 && !followed && filters == CAPTURE_FILTER_COMM,
	      "a name");
	options.n_comms = 0;
	CHECK(!live_selected_change(&s, &options, 0, error) && !n_comms && !filters, "everything");
	options.pids = second;
	options.n_pids = 1;
	second[0] = -5;
	CHECK(live_selected_change(&s, &options, CAPTURE_FILTER_TASK, error) && *error && !filters,
	      "a process that is not there is refused, before a filter is on");
	live_selected_fini(&s);
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
}

static void test_a_process_must_be_there(void)
{
	int32_t pids[] = { -5 };
	struct source_live_options options = { .pids = pids, .n_pids = 1 };
	struct live_selected s = { 0 };
	char error[LIVE_ERROR_SIZE] = "";

	CHECK(live_selected_open(&s, NULL, &options, error) && error[0], "refused, and said why");
	live_selected_fini(&s);
}

int main(void)
{
	test_all_are_selected_unless_some_are();
	test_descendants_are_selected();
	test_a_process_must_be_there();
	test_what_stays_selected_passes_all_the_time();
	return check_done();
}

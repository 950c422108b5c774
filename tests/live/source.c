/*
 * tests/live/source.c: tests the live source with processes whose registers, stacks and mappings
 * are known.
 *   usage: source TARGET [GOROUTINE]     (tests/live/target.c and goroutine.go, built)
 */
#include "agent/live/bpf/bpf.h"
#include "agent/live/capture.h"
#include "agent/live/live.h"
#include "agent/live/system/decode.h"
#include "agent/live/system/perf.h"
#include "schema/capture.h"

#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARK_ABOVE 0x1122334455667788u
#define MARK_BELOW 0x8877665544332211u

static const char *target;

static uint64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- targets ---------------------------------------------------------------------- */

struct run {
	pid_t pid;
	uint64_t pc, mark, hole, hole_end; /* its output, if it prints */
};

static pid_t start(const char *mode, const char *arg, int in, int out)
{
	char *const argv[] = { (char *)(uintptr_t)target, (char *)(uintptr_t)mode,
			       (char *)(uintptr_t)arg, NULL };
	pid_t pid = fork();

	if (pid)
		return pid;
	if (in >= 0)
		(void)dup2(in, STDIN_FILENO);
	if (out >= 0)
		(void)dup2(out, STDOUT_FILENO);
	(void)execv(target, argv);
	_exit(127);
}

static struct run start_ready(const char *mode, const char *arg)
{
	struct run run = { 0 };
	char line[256] = "";
	FILE *file;
	int pipes[2];

	if (pipe2(pipes, O_CLOEXEC))
		return run;
	run.pid = start(mode, arg, -1, pipes[1]);
	(void)close(pipes[1]);
	file = fdopen(pipes[0], "r");
	if (!file || !fgets(line, sizeof(line), file) || strncmp(line, "ready", 5) != 0)
		CHECK(false, mode);
	(void)sscanf(line, "ready %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &run.pc, &run.mark,
		     &run.hole, &run.hole_end);
	if (file)
		(void)fclose(file);
	return run;
}

/* How much longer everything takes here than on hardware: SLOW, set if the machine is emulated. */
static uint64_t slow(void)
{
	const char *times = getenv("SLOW");

	return times ? strtoull(times, NULL, 10) : 1;
}

static void end(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

/* ---- what the events said so far ------------------------------------------------------ */

struct known {
	uint32_t pid;
	uint64_t start, end;
	bool build_id, image, path, anonymous;
};

struct state {
	struct known *known;
	size_t n, room;
	uint64_t n_events[EVENT_LOST + 1], n_lost, last_ns;
	bool ordered;
	struct live_totals totals;
};

static void add(struct state *state, struct known known)
{
	if (state->n == state->room) {
		state->room = state->room ? state->room * 2 : 1024;
		state->known = reallocarray(state->known, state->room, sizeof(*state->known));
		if (!state->known)
			abort();
	}
	state->known[state->n++] = known;
}

static void drop(struct state *state, uint32_t pid)
{
	size_t kept = 0;

	for (size_t i = 0; i < state->n; i++)
		if (state->known[i].pid != pid)
			state->known[kept++] = state->known[i];
	state->n = kept;
}

static void follow(struct state *state, const struct event *e)
{
	size_t n = state->n;

	state->n_events[e->type]++;
	state->ordered &= e->time_ns >= state->last_ns;
	state->last_ns = e->time_ns;
	switch (e->type) {
	case EVENT_MAPPING:
		add(state, (struct known){ .pid = e->pid,
					   .start = e->mapping.start,
					   .end = e->mapping.end,
					   .build_id = e->mapping.build_id.size != 0,
					   .image = e->mapping.image != NULL,
					   .path = e->mapping.path[0] == '/' &&
						   strncmp(e->mapping.path, "//anon", 6) != 0,
					   .anonymous = !e->mapping.path[0] });
		break;
	case EVENT_EXEC:
		drop(state, e->pid);
		break;
	case EVENT_FORK:
		if (e->pid == e->fork.parent_pid)
			break;
		drop(state, e->pid);
		n = state->n;
		for (size_t i = 0; i < n; i++) {
			struct known copy = state->known[i];

			if (copy.pid != e->fork.parent_pid)
				continue;
			copy.pid = e->pid;
			add(state, copy);
		}
		break;
	case EVENT_LOST:
		state->n_lost += e->lost.n_samples;
		break;
	default:
		break;
	}
}

static const struct known *find(const struct state *state, uint32_t pid, uint64_t addr)
{
	for (size_t i = state->n; i-- > 0;) {
		const struct known *k = &state->known[i];

		if (k->pid == pid && addr >= k->start && addr < k->end)
			return k;
	}
	return NULL;
}

/* ---- recording ---------------------------------------------------------------------------- */

static bool apart; /* record in a process of its own (agent/live/capture.h) */
static struct capture *capture;
static pid_t capturing, supervising;
static int ask_supervisor = -1; /* each byte begins a worker */

/* Do what the supervisor does before it begins a worker. */
static void begin_worker(void)
{
	char byte = 0;

	CHECK(write(ask_supervisor, &byte, 1) == 1 && read(ask_supervisor, &byte, 1) == 1,
	      "a worker begins");
}

/* The supervisor's life. It holds what a worker gives up. */
static _Noreturn void supervise(int socket)
{
	char byte;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	capture_keep(capture);
	while (read(socket, &byte, 1) == 1) {
		capture_next_worker(capture);
		(void)write(socket, &byte, 1);
	}
	_exit(0);
}

/* Open the live source, in this process or in another. */
static int open_source(const struct source_live_options *options, struct source **out, char *error)
{
	struct source_live_options live = *options;
	int sockets[2];

	if (!apart)
		return source_live_open(options, out, error);
	if (!live.stack_max)
		live.stack_max = CAPTURE_STACK_DEFAULT;
	CHECK(!capture_new(&live, &capture), "what both processes need");
	capturing = fork();
	if (!capturing) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		capture_serve(capture, &live, NULL);
		_exit(0);
	}
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), "sockets");
	supervising = fork();
	if (!supervising) {
		(void)close(sockets[0]);
		supervise(sockets[1]);
	}
	(void)close(sockets[1]);
	ask_supervisor = sockets[0];
	begin_worker();
	capture_use(capture, getpid());
	return source_live_open(options, out, error);
}

static void close_source(struct source *source)
{
	source_close(source);
	if (!capture)
		return;
	capture_free(capture);
	capture_use(NULL, 0);
	(void)close(ask_supervisor);
	(void)waitpid(supervising, NULL, 0);
	CHECK(waitpid(capturing, NULL, 0) == capturing, "the capture process ends with its worker");
	capture = NULL;
}

typedef void (*sample_fn)(void *ctx, const struct state *state, const struct event *event);

static bool enough; /* set by a sample_fn: the recording may end early */

/*
 * Record for ms (0: until the stream ends by itself, at most two minutes), give each event to fn
 * after the state has taken it in, and check the accounting.
 */
static void record(const struct source_live_options *options, uint64_t ms, sample_fn fn, void *ctx,
		   struct state *state, struct live_counters *counters)
{
	uint64_t until = now_ms() + (ms ? ms : 120000);
	struct live_totals totals = { 0 };
	struct source *source;
	struct event event;
	char error[512] = "";
	bool stopped = false;
	int rc = open_source(options, &source, error);

	*state = (struct state){ .ordered = true };
	*counters = (struct live_counters){ 0 };
	if (rc) {
		(void)printf("source_live_open: %s\n", error);
		CHECK(!rc, "the live source opens");
		return;
	}
	until = now_ms() + (ms ? ms : 120000);
	enough = false;
	for (;;) {
		rc = source_next(source, &event, 100);
		if (rc < 0 && rc != -EAGAIN)
			(void)printf("source_next: %s\n", source->error);
		if (!rc || (rc < 0 && rc != -EAGAIN))
			break;
		if (rc > 0) {
			follow(state, &event);
			if (fn)
				fn(ctx, state, &event);
		}
		if (!stopped && (enough || now_ms() >= until)) {
			CHECK(ms, "the stream ends by itself");
			source_stop(source);
			stopped = true;
		}
	}
	CHECK(!rc, "the stream ends without an error");
	CHECK(!source_live_counters(source, -1, counters), "counters can be read");
	CHECK(!source_live_totals(source, &totals), "and totals");
	CHECK(state->ordered, "events come in the order of their times");
	CHECK(counters->fired == counters->filtered + counters->captured + counters->ring_full +
					 counters->unreadable,
	      "fired = filtered + captured + ring_full + unreadable");
	CHECK(state->n_events[EVENT_SAMPLE] == counters->delivered, "delivered is what came");
	CHECK(state->n_events[EVENT_SAMPLE] + state->n_lost + counters->off_cpu_short ==
		      counters->fired - counters->filtered,
	      "delivered + lost + short waits = fired - filtered");
	CHECK(counters->off_cpu == counters->off_cpu_ended + counters->off_cpu_short +
					   counters->still_waiting + counters->off_cpu_skipped +
					   counters->off_cpu_uncaptured + counters->no_room +
					   counters->unended,
	      "every wait has ended, goes on or is lost");
	CHECK(!counters->damaged, "no record is torn");
	state->totals = totals;
	close_source(source);
}

/* Copy all of it or nothing, as the unwinder needs it. */
static bool captured(const struct event_sample *s, uint64_t addr, void *out, size_t size)
{
	struct uw_memory memory = { s->regions, s->n_regions };

	return !uw_memory_read(&memory, addr, out, size);
}

/* ---- tests --------------------------------------------------------------------------------- */

struct seen {
	struct run run;
	uint64_t n, n_pc, n_mapped, n_regs, n_above, n_below, n_hole, n_regions, n_cut, n_named;
	uint64_t n_above_cut;
	uint64_t top, bytes;
	char comm[16];
};

static void look(void *ctx, const struct state *state, const struct event *e)
{
	struct seen *seen = ctx;
	const struct event_sample *s = &e->sample;
	uint64_t value, sp, same = 0;
	uint8_t byte;
	bool above;

	if (e->pid != (uint32_t)seen->run.pid)
		return;
	if (e->type == EVENT_COMM)
		(void)snprintf(seen->comm, sizeof(seen->comm), "%s", e->comm.comm);
	if (e->type != EVENT_SAMPLE || s->n_kernel_ips)
		return;
	sp = s->regs.value[UW_X86_64_RSP];
	seen->n++;
	seen->n_pc += s->regs.value[UW_X86_64_RIP] == seen->run.pc;
	seen->n_mapped += find(state, e->pid, s->regs.value[UW_X86_64_RIP]) != NULL;
	for (uint64_t i = 0; i < 16; i++)
		same += i == UW_X86_64_RSP || s->regs.value[i] == 0x5a00000000000000u + i;
	seen->n_regs += same == 16 && s->regs.known == 0x1ffff;
	above = captured(s, seen->run.mark, &value, 8) && value == MARK_ABOVE;
	seen->n_above += above;
	seen->n_above_cut += above && s->stack_cut;
	seen->n_below += captured(s, sp - 64, &value, 8) && value == MARK_BELOW;
	/* The page in the middle of the untouched stretch. */
	seen->n_hole += !captured(s, (seen->run.hole + seen->run.hole_end) / 2, &byte, 1);
	seen->n_regions += s->n_regions;
	seen->n_cut += s->stack_cut;
	enough = seen->n >= 100;
	if (s->n_regions)
		seen->top = s->regions[s->n_regions - 1].addr + s->regions[s->n_regions - 1].size;
}

/* Counted in all samples, because the first may come from the time before the spin. */
static bool nearly_all(uint64_t n, uint64_t of)
{
	return of && n + 1 + of / 100 >= of;
}

static void test_registers_and_stack_are_those_of_the_thread(const char *mode)
{
	struct seen seen = { .run = start_ready(mode, NULL) };
	int32_t pid = seen.run.pid;
	bool alone = !strcmp(mode, "coroutine") || !strcmp(mode, "signal");
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = alone ? &pid : NULL,
						     .n_pids = alone };
	struct live_counters counters;
	struct state state;

	record(&options, 10000 * slow(), look, &seen, &state, &counters);
	(void)printf("%s: %" PRIu64 " user samples, %" PRIu64 " regions; holes in %" PRIu64 "\n",
		     mode, seen.n, seen.n_regions, counters.holes);
	CHECK(!alone || counters.find_vma <= 2, "the end of a stack is sought once");
	CHECK(seen.n >= 20, "samples arrive");
	CHECK(nearly_all(seen.n_pc, seen.n), "pc stands at the spin");
	CHECK(nearly_all(seen.n_regs, seen.n), "each register by its DWARF number");
	CHECK(seen.n_mapped == seen.n, "the mapping came before the sample");
	CHECK(nearly_all(seen.n_above, seen.n), "the caller's frame is there");
	CHECK(nearly_all(seen.n_below, seen.n), "the red zone is there");
	CHECK(!seen.n_cut, "no stack is cut");
	CHECK(!strcmp(seen.comm, "target"), "the inventory names the thread");
	if (!strcmp(mode, "hole")) {
		CHECK(nearly_all(seen.n_hole, seen.n), "an untouched page is no data");
		CHECK(seen.n_regions >= 2 * (seen.n - 1), "what lies beyond a hole is kept");
	} else if (!strcmp(mode, "signal")) {
		CHECK(counters.top_signal >= seen.n && !counters.find_vma, "bounds of sigaltstack");
		CHECK(seen.n_regions == 2 * seen.n, "the handler's stack and the thread's");
	} else {
		CHECK(seen.n_regions == seen.n, "one region");
	}
	free(state.known);
	end(seen.run.pid);
}

#define PIDS 65536

struct tally {
	uint32_t *children; /* by pid: only these processes count; NULL: all */
	uint32_t pid, other;
	uint64_t n, n_mapped, n_build_id, n_other, n_kernel, n_kernel_text, n_deep, n_compat;
	uint32_t pids[64];
	size_t n_pids;
	int go;
	uint64_t n_exec, n_exec_mapped;
};

static void count(void *ctx, const struct state *state, const struct event *e)
{
	struct tally *t = ctx;
	const struct known *k;
	size_t i;

	if (t->go) { /* the source is open: let the child continue, and its children, with a byte each */
		(void)!write(t->go, "\0\0", 3);
		(void)close(t->go);
		t->go = 0;
	}
	if (e->type == EVENT_EXEC && e->pid == t->pid)
		t->n_exec++;
	if (e->type == EVENT_FORK && e->fork.parent_pid == t->pid && t->children)
		t->children[e->pid % PIDS] = e->pid;
	if (e->type != EVENT_SAMPLE || (t->children && t->children[e->pid % PIDS] != e->pid))
		return;
	t->n_other += e->pid == t->other;
	for (i = 0; i < t->n_pids && t->pids[i] != e->pid; i++)
		;
	if (i == t->n_pids && i < 64)
		t->pids[t->n_pids++] = e->pid;
	if (e->sample.n_kernel_ips) {
		t->n_kernel++;
		t->n_kernel_text += e->sample.kernel_ips[0] >> 47 == 0x1ffff;
	}
	if (!e->sample.has_user_regs)
		return;
	t->n++;
	k = find(state, e->pid, e->sample.regs.value[UW_X86_64_RIP]);
	t->n_mapped += k && (k->path || k->image);
	t->n_build_id += k && (k->build_id || k->image);
	t->n_exec_mapped += e->pid == t->pid && t->n_exec && k && k->path;
}

/*
 * On a busy machine it takes a while until there are as many samples as the test needs. There the
 * first children also end before their file can be looked at: a few samples more have to outweigh
 * theirs.
 */
static void count_short(void *ctx, const struct state *state, const struct event *e)
{
	const struct tally *t = ctx;

	count(ctx, state, e);
	enough = t->n >= 200 && state->n_events[EVENT_EXEC] >= 100 &&
		 state->n_events[EVENT_EXIT] >= 100 && t->n_build_id * 100 >= t->n * 99 &&
		 t->n_mapped * 100 >= t->n * 99;
}

static void test_short_lived_processes_have_their_mappings(void)
{
	const struct source_live_options options = { .frequency_hz = 999 };
	pid_t pid = start("churn", "100000", -1, -1);
	struct live_counters counters;
	struct tally t = { .pid = (uint32_t)pid, .children = calloc(PIDS, sizeof(uint32_t)) };
	struct state state;

	record(&options, 15000 * slow(), count_short, &t, &state, &counters);
	(void)printf("churn: %" PRIu64 " samples, %" PRIu64 " in a file or the vDSO, %" PRIu64
		     " with build-id; %" PRIu64 " execs, %" PRIu64 " late events\n",
		     t.n, t.n_mapped, t.n_build_id, state.n_events[EVENT_EXEC], state.totals.late);
	CHECK(t.n >= 200, "samples arrive");
	/* Some hundred are expected: other programs may leave little of the CPUs. */
	CHECK(state.n_events[EVENT_EXEC] >= 50, "execs are told");
	CHECK(state.n_events[EVENT_EXIT] >= 50, "exits are told");
	CHECK(t.n_mapped * 100 >= t.n * 99, "99 % of pcs lie in a mapping told before");
	CHECK(t.n_build_id * 100 >= t.n * 99, "… whose build-id is told");
	CHECK(!state.totals.sideband_lost, "no side-band record is lost");
	free(state.known);
	free(t.children);
	end(pid);
}

static void test_pid_filter_follows_children_and_ends(void)
{
	struct run other = start_ready("spin", NULL);
	struct live_counters counters;
	struct state state;
	uint64_t began = now_ms();
	int go[2];
	int32_t pid;

	CHECK(!pipe2(go, O_CLOEXEC), "pipe");
	/* Its processes work once the source is open, however long that takes. */
	pid = start("tree", "400000", go[0], -1);
	(void)close(go[0]);
	struct tally t = { .other = (uint32_t)other.pid, .pid = (uint32_t)pid, .go = go[1] };
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = &pid,
						     .n_pids = 1 };

	record(&options, 0, count, &t, &state, &counters);
	(void)printf("tree: %zu processes, %" PRIu64 " samples, filtered %" PRIu64 ", %" PRIu64
		     " ms\n",
		     t.n_pids, t.n, counters.filtered_process, now_ms() - began);
	CHECK(t.n_pids == 3, "the process, its child and its grandchild");
	CHECK(!t.n_other, "nobody else");
	CHECK(counters.filtered_process > 0, "others are counted as filtered");
	CHECK(t.n_mapped == t.n, "children inherit mappings");
	free(state.known);
	end(pid);
	end(other.pid);
}

/* As in `record -- CMD`: the process is selected before it becomes the command. */
static void test_a_command_is_recorded_from_its_exec(void)
{
	char *const argv[] = { (char *)(uintptr_t)target, "burn", "300000", NULL };
	struct live_counters counters;
	struct state state;
	int go[2];
	int32_t pid;
	char byte;

	CHECK(!pipe2(go, O_CLOEXEC), "pipe");
	pid = fork();
	if (!pid) {
		/* Wait for the byte that says that the source is open. */
		(void)close(go[1]);
		(void)!read(go[0], &byte, 1);
		(void)execv(target, argv);
		_exit(127);
	}
	(void)close(go[0]);
	struct tally t = { .pid = (uint32_t)pid, .go = go[1] };
	const struct source_live_options options = { .frequency_hz = 999,
						     .pids = &pid,
						     .n_pids = 1 };
	record(&options, 0, count, &t, &state, &counters);
	(void)printf("command: %" PRIu64 " execs, %" PRIu64 " of %" PRIu64 " samples after it\n",
		     t.n_exec, t.n_exec_mapped, t.n);
	CHECK(t.n_exec == 1, "the exec is told");
	CHECK(t.n_exec_mapped >= 100, "its mappings are those of the command");
	free(state.known);
	end(pid);
}

static void count_kernel(void *ctx, const struct state *state, const struct event *e)
{
	const struct tally *t = ctx;

	count(ctx, state, e);
	enough = t->n_kernel >= 50 && t->n >= 200;
}

static void test_kernel_hits_have_a_kernel_stack(void)
{
	struct run run = start_ready("deep", "30");
	int32_t pid = run.pid;
	const struct source_live_options options = { .frequency_hz = 999,
						     .pids = &pid,
						     .n_pids = 1 };
	struct live_counters counters;
	struct tally t = { .pid = (uint32_t)pid };
	struct state state;

	record(&options, 10000 * slow(), count_kernel, &t, &state, &counters);
	(void)printf("kernel: %" PRIu64 " of %" PRIu64 " samples hit the kernel\n", t.n_kernel,
		     t.n);
	CHECK(t.n_kernel > 10, "read() of /dev/zero is seen at work");
	CHECK(t.n_kernel_text == t.n_kernel, "their innermost address is the kernel's");
	CHECK(t.n_mapped == t.n, "and they have their user registers too");
	free(state.known);
	end(run.pid);
}

/*
 * A process that waits a thousand times per second: on a busy machine no other process may wait at
 * all.
 */
static pid_t start_waiting(void)
{
	pid_t pid = fork();

	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)usleep(1000);
	}
	return pid;
}

static void test_every_sample_is_accounted_for(uint32_t ring_bytes, bool off_cpu)
{
	const struct source_live_options options = { .frequency_hz = 4999,
						     .ring_bytes = ring_bytes,
						     .off_cpu = off_cpu };
	struct run a = start_ready("deep", "24"), b = start_ready("deep", "60");
	pid_t waiting = off_cpu ? start_waiting() : -1;
	struct live_counters counters;
	struct state state;

	record(&options, 1000, NULL, NULL, &state, &counters);
	(void)printf("ring %u: fired %" PRIu64 ", filtered %" PRIu64 ", delivered %" PRIu64
		     ", ring full %" PRIu64 ", lost told %" PRIu64 "\n",
		     ring_bytes, counters.fired, counters.filtered, counters.delivered,
		     counters.ring_full, state.n_lost);
	CHECK(counters.fired > 1000, "the clock ticks");
	if (ring_bytes)
		CHECK(counters.ring_full > 100 && state.n_lost >= counters.ring_full,
		      "a small ring overflows, and that is told");
	if (off_cpu) {
		(void)printf("waits %" PRIu64 ", ended %" PRIu64 ", still %" PRIu64
			     ", not captured %" PRIu64 ", of unknown end %" PRIu64 " (%" PRIu64
			     " wakes lost)\n",
			     counters.off_cpu, counters.off_cpu_ended, counters.still_waiting,
			     counters.off_cpu_uncaptured, counters.unended, counters.wakes_lost);
		CHECK(ring_bytes || counters.off_cpu_ended, "waits end");
		CHECK(!counters.unended, "a full ring keeps room for the ends of waits");
	}
	free(state.known);
	if (waiting > 0)
		end(waiting);
	end(a.pid);
	end(b.pid);
}

/* A goroutine's stack is in Go's heap, far from the thread's own stack. */
static void test_goroutines_have_stacks_of_their_own(void)
{
	struct seen seen = { .run = start_ready("", NULL) };
	int32_t pid = seen.run.pid;
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = &pid,
						     .n_pids = 1 };
	struct live_counters counters;
	struct state state;

	record(&options, 10000 * slow(), look, &seen, &state, &counters);
	(void)printf("goroutine: %" PRIu64 " samples, %" PRIu64 " tops by Go, %" PRIu64
		     " bpf_find_vma\n",
		     seen.n, counters.top_go, counters.find_vma);
	CHECK(seen.n >= 20, "samples arrive");
	/* Samples of Go's own threads (collector, monitor) may come in between. */
	CHECK(counters.top_go * 10 >= seen.n * 9, "its bounds are Go's");
	CHECK(seen.n_above * 10 >= seen.n * 9, "its first frame is there");
	/*
	 * Go's own threads have no bounds but an arena's of 64 MiB, and their stacks may be cut
	 * off.
	 */
	CHECK(!seen.n_above_cut, "no goroutine's stack is cut");
	free(state.known);
	end(seen.run.pid);
}

/* A sample_fn: end the recording after *ctx samples. */
static void count_down(void *ctx, const struct state *state, const struct event *event)
{
	unsigned int *left = ctx;

	(void)state;
	if (event->type == EVENT_SAMPLE && *left)
		enough = !--*left;
}

static void test_a_low_limit_cuts_and_says_so(void)
{
	unsigned int left = 50;
	struct run run = start_ready("deep", "60");
	int32_t pid = run.pid;
	const struct source_live_options options = {
		.frequency_hz = 499, .pids = &pid, .n_pids = 1, .stack_max = 8192
	};
	struct live_counters counters;
	struct state state;

	record(&options, 10000 * slow(), count_down, &left, &state, &counters);
	CHECK(!left, "samples arrive");
	CHECK(counters.cut == counters.captured, "all are cut");
	free(state.known);
	end(run.pid);
}

static void test_a_high_limit_does_not(void)
{
	unsigned int left = 20;
	struct run run = start_ready("deep", "700"); /* over 700 KiB */
	int32_t pid = run.pid;
	const struct source_live_options options = {
		.frequency_hz = 199, .pids = &pid, .n_pids = 1, .stack_max = CAPTURE_STACK_LIMIT
	};
	struct live_counters counters;
	struct state state;

	record(&options, 10000 * slow(), count_down, &left, &state, &counters);
	CHECK(!left, "samples arrive");
	CHECK(counters.bytes > counters.captured * 700 * 1024, "with all of their stacks");
	CHECK(!counters.cut, "none is cut");
	free(state.known);
	end(run.pid);
}

/* The process was not reaped yet, so its number still exists. */
static void test_a_process_that_has_ended_ends_the_stream(void)
{
	int32_t pid = start("burn", "0", -1, -1);
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = &pid,
						     .n_pids = 1 };
	struct live_counters counters;
	struct state state;
	siginfo_t info;

	CHECK(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), "it ends");
	record(&options, 0, NULL, NULL, &state, &counters);
	CHECK(!counters.captured, "with nothing");
	free(state.known);
	end(pid);
}

static uint64_t cpu_ms(void)
{
	struct timespec used;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

static void test_waiting_ends_in_time_and_costs_nothing(void)
{
	int32_t pid = fork();
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = &pid,
						     .n_pids = 1 };
	struct source *source;
	struct event event;
	uint64_t began, used;
	char error[512];
	int rc, n = 0;

	if (!pid) {
		(void)pause();
		_exit(0);
	}
	CHECK(!open_source(&options, &source, error), "open");
	while ((rc = source_next(source, &event, 300)) == 1) /* the inventory */
		n++;
	CHECK(rc == -EAGAIN && n >= 2, "then nothing");
	began = now_ms();
	used = cpu_ms();
	for (int i = 0; i < 5; i++) /* shorter and longer than a tick */
		CHECK(source_next(source, &event, 50 + 100 * i) == -EAGAIN, "still nothing");
	CHECK(now_ms() - began >= 1250 && now_ms() - began < 10000, "after as long as was asked");
	CHECK(cpu_ms() - used < 50, "asleep");
	CHECK(source_next(source, &event, 0) == -EAGAIN, "at once");
	end(pid);
	for (n = 0; (rc = source_next(source, &event, -1)) == 1;)
		n += event.type == EVENT_EXIT;
	CHECK(n == 1 && !rc, "its end is that of the stream");
	CHECK(source_next(source, &event, -1) == 0, "which stays");
	close_source(source);
}

static pid_t start_on(int cpu)
{
	cpu_set_t before, set;
	pid_t pid;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_getaffinity(0, sizeof(before), &before);
	CHECK(!sched_setaffinity(0, sizeof(set), &set), "the CPU is ours");
	pid = start_ready("spin", NULL).pid;
	(void)sched_setaffinity(0, sizeof(before), &before);
	return pid;
}

/*
 * A CPU that goes offline is reported; when it comes back, so are the events that were missed in
 * the meantime.
 */
static void test_cpus_come_and_go(void)
{
	const struct source_live_options options = { .frequency_hz = 499 };
	uint64_t n_before = 0, n_after = 0, n_born = 0, n_born_mapped = 0, until;
	pid_t old, born = 0;
	struct state state = { .ordered = true };
	struct source *source;
	struct event event;
	char error[512];
	int *cpus, last, rc;
	bool gone = false;
	size_t n;

	CHECK(!live_cpus_online(&cpus, &n), "CPUs");
	last = cpus[n - 1];
	if (n < 2) {
		free(cpus);
		return;
	}
	old = start_on(last);
	CHECK(!source_live_open(&options, &source, error), "open");
	until = now_ms() + 60000 * slow();
	while ((n_before < 20 || n_after < 20 || n_born < 20) && now_ms() < until) {
		rc = source_next(source, &event, 100);
		if (rc != 1 && rc != -EAGAIN)
			break;
		if (!gone && n_before >= 20) {
			CHECK(!source_live_set_cpus(source, cpus, n - 1), "the last one goes");
			gone = true;
			/* Nothing reports this one: it is found when the CPU is there again. */
			born = start_on(last);
		}
		if (rc != 1)
			continue;
		follow(&state, &event);
		if (event.type != EVENT_SAMPLE)
			continue;
		n_before += !gone && event.pid == (uint32_t)old;
		n_after += gone && event.pid == (uint32_t)old;
		if (born && event.pid == (uint32_t)born) {
			n_born++;
			n_born_mapped += find(&state, event.pid,
					      event.sample.regs.value[UW_X86_64_RIP]) != NULL;
		}
	}
	(void)printf("CPU %d: %" PRIu64 " samples before it went, %" PRIu64
		     " after it came, %" PRIu64 " of one born meanwhile\n",
		     last, n_before, n_after, n_born);
	CHECK(n_before >= 20 && n_after >= 20, "it is sampled before and after");
	CHECK(n_born >= 20 && n_born_mapped == n_born, "what was born meanwhile is known");
	CHECK(state.ordered, "events stay in order");
	source_close(source);
	free(state.known);
	free(cpus);
	end(old);
	end(born);
}

/* One of the kernel's code symbols: all names of its address, with spaces around each. */
struct listed {
	uint64_t addr;
	char names[1024];
};

static size_t list_code(struct listed *list, size_t room)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[1024], type, name[512], module[128];
	size_t n = 0;

	while (file && n < room && fgets(line, sizeof(line), file)) {
		uint64_t addr;
		size_t used;

		/* Modules come and go; the kernel's own symbols stay. */
		if (sscanf(line, "%" SCNx64 " %c %511s %127s", &addr, &type, name, module) != 3 ||
		    !strchr("tTwW", type))
			continue;
		if (!n || list[n - 1].addr != addr)
			list[n++] = (struct listed){ .addr = addr, .names = " " };
		used = strlen(list[n - 1].names);
		(void)snprintf(list[n - 1].names + used, sizeof(list[n - 1].names) - used, "%s ",
			       name);
	}
	if (file)
		(void)fclose(file);
	return n;
}

static void test_the_kernel_names_its_addresses(void)
{
	const struct source_live_options options = { .frequency_hz = 1 };
	const size_t room = 400000;
	struct listed *list = calloc(room, sizeof(*list));
	const struct source_info *info;
	char error[512] = "";
	struct source *source = NULL;
	struct source_kernel_symbol s;
	size_t n, n_wrong = 0;

	CHECK(!open_source(&options, &source, error), error);
	if (!list || !source)
		goto out;
	info = &source->info;
	if (info->kernel_symbol(info->kernel_symbol_ctx, 4096, &s) == -ENOTSUP)
		goto out; /* before 5.13 */
	n = list_code(list, room);
	CHECK(n > 10000, "a kernel has that many functions");
	/* Look up some hundred symbols, at their first and second bytes. */
	for (size_t i = 0; n && i < n - 1; i += 1 + n / 500) {
		char name[600];

		if (info->kernel_symbol(info->kernel_symbol_ctx, list[i].addr, &s))
			n_wrong++;
		else if (s.addr != list[i].addr || *s.module ||
			 snprintf(name, sizeof(name), " %s ", s.name) < 0 ||
			 !strstr(list[i].names, name))
			n_wrong++;
		if (list[i + 1].addr > list[i].addr + 1 &&
		    (info->kernel_symbol(info->kernel_symbol_ctx, list[i].addr + 1, &s) ||
		     s.addr != list[i].addr))
			n_wrong++;
	}
	CHECK(!n_wrong, "names as in kallsyms");
	CHECK(info->kernel_symbol(info->kernel_symbol_ctx, 4096, &s) == -ENOENT, "nothing there");
out:
	close_source(source);
	free(list);
}

static void test_bad_options_are_refused(void)
{
	int32_t nobody = 4194304; /* above every pid */
	const struct source_live_options bad[] = {
		{ .frequency_hz = 0 },
		{ .frequency_hz = 1000000 },
		{ .frequency_hz = 99, .stack_max = 2u << 20 },
		{ .frequency_hz = 99, .pids = &nobody, .n_pids = 1 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct source *source = NULL;
		char error[512] = "";

		CHECK(source_live_open(&bad[i], &source, error) < 0, "refused");
		CHECK(!source && error[0], "with a reason");
	}
}

struct again { /* what a worker was told that follows one that died */
	uint64_t crashed, mappings, samples;
};

/* Read events until there are some samples. */
static void read_some(struct source *source, struct again *seen)
{
	uint64_t until = now_ms() + 60000 * slow();
	struct event event;

	*seen = (struct again){ .samples = 0 };
	while (seen->samples < 20 && now_ms() < until) {
		if (source_next(source, &event, 100) != 1)
			continue;
		seen->samples += event.type == EVENT_SAMPLE;
		seen->mappings += event.type == EVENT_MAPPING && !seen->samples;
		if (event.type == EVENT_LOST && event.lost.reason == EVENT_LOST_CRASHED)
			seen->crashed += event.lost.n_samples;
	}
}

/*
 * Count how often this process has mapped a table of the BPF programs. It can write none of them, nor allow itself
 * to, and it has no descriptor of one.
 */
static unsigned int n_tables_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], name[64];
	unsigned int n = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char rights[5];

		if (!strstr(line, "bpf-map") ||
		    sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3)
			continue;
		n++;
		CHECK(!strcmp(rights, "r--s"), "mapped for reading");
		CHECK(mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) &&
			      errno == EACCES,
		      "for ever");
		CHECK(mremap((void *)start, end - start, end - start + 4096, MREMAP_MAYMOVE) ==
			      MAP_FAILED,
		      "and not more of it");
	}
	if (maps)
		(void)fclose(maps);
	for (int fd = 0; fd < 1024; fd++) {
		char path[64];
		ssize_t size;

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		size = readlink(path, name, sizeof(name) - 1);
		name[size < 0 ? 0 : size] = '\0';
		CHECK(!strstr(name, "bpf"), "no descriptor");
	}
	return n;
}

/* This process is all workers: it opens the source again, as another would. */
static void test_another_worker_goes_on(void)
{
	struct run run = start_ready("spin", NULL);
	int32_t pid = run.pid;
	const struct source_live_options options = { .frequency_hz = 499,
						     .pids = &pid,
						     .n_pids = 1 };
	struct live_counters counters;
	struct source *first, *second, *third;
	struct again one, two, three;
	char error[512] = "";

	CHECK(!open_source(&options, &first, error), "open");
	read_some(first, &one);
	CHECK(one.samples == 20 && one.mappings > 2 && !one.crashed, "the first");
	CHECK(n_tables_mapped() == 1, "it reads the ring");
	capture_use(capture, getpid());
	CHECK(!source_live_open(&options, &second, error), "open again");
	read_some(second, &two);
	CHECK(two.samples == 20 && two.mappings > 2, "the second is told what runs");
	(void)printf("another worker: %" PRIu64 " of %" PRIu64 " samples crashed\n", two.crashed,
		     one.samples);
	CHECK(two.crashed >= one.samples, "what the first had is lost");
	CHECK(n_tables_mapped() == 1, "a worker that asks again is not given the ring again");
	begin_worker();
	capture_use(capture, getpid());
	CHECK(!source_live_open(&options, &third, error), "open once more");
	read_some(third, &three);
	CHECK(three.samples == 20 && three.mappings > 2, "the third is told, too");
	CHECK(three.crashed >= two.crashed + two.samples, "what both had is lost");
	CHECK(n_tables_mapped() == 2, "a new worker is given the ring");
	CHECK(!source_live_counters(third, -1, &counters) &&
		      counters.delivered >= three.crashed + three.samples,
	      "and all was counted");
	CHECK(!counters.ring_full, "no record stays in the ring");
	source_close(first);
	source_close(second);
	close_source(third);
	end(pid);
}

static void test_all(const char *goroutine)
{
	test_the_kernel_names_its_addresses();
	test_waiting_ends_in_time_and_costs_nothing();
	test_a_process_that_has_ended_ends_the_stream();
	test_registers_and_stack_are_those_of_the_thread("spin");
	test_registers_and_stack_are_those_of_the_thread("hole");
	test_registers_and_stack_are_those_of_the_thread("thread");
	test_registers_and_stack_are_those_of_the_thread("coroutine");
	test_registers_and_stack_are_those_of_the_thread("signal");
	test_short_lived_processes_have_their_mappings();
	test_pid_filter_follows_children_and_ends();
	test_a_command_is_recorded_from_its_exec();
	test_kernel_hits_have_a_kernel_stack();
	test_every_sample_is_accounted_for(64u << 10, false);
	test_every_sample_is_accounted_for(64u << 10, true);
	test_every_sample_is_accounted_for(0, true);
	test_a_low_limit_cuts_and_says_so();
	test_a_high_limit_does_not();
	if (goroutine) {
		const char *other = target;

		target = goroutine;
		test_goroutines_have_stacks_of_their_own();
		target = other;
	}
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		return 2;
	target = argv[1];
	if (geteuid()) {
		(void)printf("needs root\n");
		return 77;
	}
	if (access("/sys/kernel/btf/vmlinux", R_OK) || live_clock_try(false)) {
		(void)printf("needs a kernel with BTF and perf events\n");
		return 77;
	}
	test_bad_options_are_refused();
	test_cpus_come_and_go();
	test_all(argc == 3 ? argv[2] : NULL);
	apart = true;
	test_another_worker_goes_on();
	test_all(argc == 3 ? argv[2] : NULL);
	return check_done();
}

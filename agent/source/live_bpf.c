#include "agent/source/live_bpf.h"

#include "agent/source/live_inventory.h"
#include "agent/source/live_perf.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "bpf/capture.skel.h"
#pragma GCC diagnostic pop

#define RING_DEFAULT	(16u << 20)
#define RING_LIMIT	(1u << 30)
#define WAKE_BYTES	(1u << 20)
#define FXSAVE_SIZE	512
#define FXSAVE_SW_BYTES 464 /* where software may write, and the kernel does */
#define PROCESSES_MAX	65536
#define SCRATCH_TAIL	(CAPTURE_INTERRUPTED_MAX + CAPTURE_PAGE) /* as in capture.bpf.c */
#define FOLLOW_PROGRAMS 3

struct live_bpf {
	struct capture *skeleton;
	struct bpf_link **links; /* perf events */
	size_t n_links;
	struct bpf_link *follow[FOLLOW_PROGRAMS];
	size_t ring_size;
	int n_cpus;	    /* possible: those that have counters */
	size_t n_online;    /* those that can have a clock */
	uint32_t n_scratch; /* up to the last online: those that have a scratch */
	struct capture_counters *per_cpu;
};

/* ---- what libbpf says ------------------------------------------------------------ */

/* libbpf has one voice for the whole program; each thread that opens keeps what it said last. */
static _Thread_local char said[256];

static int hear(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[256];

	if (level != LIBBPF_WARN)
		return 0;
	/* The first complaint names the cause; a verifier's log and its consequences follow. */
	if (said[0])
		return 0;
	(void)vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	/* The memory limit matters before 5.11 only, and is complained of whatever failed. */
	if (strncmp(line, "libbpf: ", 8) != 0 || strstr(line, "BEGIN PROG LOAD LOG") ||
	    strstr(line, "RLIMIT_MEMLOCK"))
		return 0;
	(void)snprintf(said, sizeof(said), "%s", line + 8);
	return 0;
}

const char *live_hint(int err)
{
	switch (err < 0 ? -err : err) {
	case EPERM:
	case EACCES:
		return "; run as root (`offwind doctor` tells what else may be missing)";
	case ENOSYS:
		return "; this kernel was built without it";
	case EMFILE:
		return "; raise the limit of open files (ulimit -n)";
	case ENOMEM:
		return "; not enough memory, or the limit of locked memory (ulimit -l) is too low";
	default:
		return "";
	}
}

static int fail(char *error, int err, const char *step)
{
	(void)snprintf(error, LIVE_ERROR_SIZE, "%s: %s%s%s%s%s", step, strerror(-err),
		       said[0] ? " (" : "", said, said[0] ? ")" : "", live_hint(err));
	return err;
}

/* ---- loading ----------------------------------------------------------------------- */

/*
 * How large the FPU state in a signal frame is depends on the machine and the
 * kernel; a frame of our own says it (struct _fpx_sw_bytes in <asm/sigcontext.h>).
 */
static volatile uint32_t xstate_seen;

static void see_frame(int number, siginfo_t *info, void *context)
{
	const ucontext_t *frame = context;
	const struct _fpx_sw_bytes *bytes;

	(void)number;
	(void)info;
	if (!frame->uc_mcontext.fpregs)
		return;
	bytes = (const void *)((const uint8_t *)frame->uc_mcontext.fpregs + FXSAVE_SW_BYTES);
	xstate_seen = bytes->magic1 == FP_XSTATE_MAGIC1 ? bytes->extended_size : FXSAVE_SIZE;
}

static uint32_t xstate_size(void)
{
	const struct sigaction see = { .sa_sigaction = see_frame, .sa_flags = SA_SIGINFO };
	const int number = SIGURG; /* ignored unless somebody asks for it */
	sigset_t only, before;
	struct sigaction old;

	xstate_seen = 0;
	(void)sigemptyset(&only);
	(void)sigaddset(&only, number);
	if (sigaction(number, &see, &old))
		return 0;
	(void)pthread_sigmask(SIG_UNBLOCK, &only, &before);
	(void)raise(number);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)sigaction(number, &old, NULL);
	return xstate_seen;
}

static uint32_t ring_size(uint32_t asked)
{
	uint32_t size = (uint32_t)sysconf(_SC_PAGESIZE);

	while (size < asked && size < RING_LIMIT)
		size *= 2;
	return size;
}

static int set_sizes(struct live_bpf *bpf, const struct live_bpf_options *options)
{
	struct capture *s = bpf->skeleton;
	uint32_t stack_max = options->stack_max ? options->stack_max : CAPTURE_STACK_DEFAULT;
	int err;

	bpf->ring_size = ring_size(options->ring_bytes ? options->ring_bytes : RING_DEFAULT);
	s->rodata->stack_max = stack_max;
	s->rodata->wake_bytes =
		bpf->ring_size / 4 < WAKE_BYTES ? bpf->ring_size / 4 : (size_t)WAKE_BYTES;
	s->rodata->self_pid = (uint32_t)getpid();
	s->rodata->filter_pids = options->filter;
	s->rodata->xstate_size = xstate_size();
	err = bpf_map__set_max_entries(s->maps.ring, (uint32_t)bpf->ring_size);
	if (!err)
		err = bpf_map__set_max_entries(s->maps.scratch, bpf->n_scratch);
	if (!err)
		err = bpf_map__set_value_size(s->maps.scratch,
					      CAPTURE_HEAD_SIZE + stack_max + SCRATCH_TAIL);
	if (!err && options->filter)
		err = bpf_map__set_max_entries(s->maps.processes, PROCESSES_MAX);
	if (err)
		return err;
	(void)bpf_program__set_autoload(s->progs.follow_fork, options->filter);
	(void)bpf_program__set_autoload(s->progs.follow_exit, options->filter);
	(void)bpf_program__set_autoload(s->progs.follow_free, options->filter);
	return 0;
}

/* A scratch is large and the possible CPUs of a virtual machine may be hundreds. */
static int count_cpus(struct live_bpf *bpf)
{
	int *online, err = live_cpus_online(&online, &bpf->n_online);

	if (err)
		return err;
	for (size_t i = 0; i < bpf->n_online; i++)
		if ((uint32_t)online[i] >= bpf->n_scratch)
			bpf->n_scratch = (uint32_t)online[i] + 1;
	free(online);
	bpf->n_cpus = libbpf_num_possible_cpus();
	return bpf->n_cpus < 0 ? bpf->n_cpus : 0;
}

int live_bpf_open(const struct live_bpf_options *options, struct live_bpf **out, char *error)
{
	struct live_bpf *bpf;
	int err = -ENOMEM;

	said[0] = '\0';
	if (options->stack_max > CAPTURE_STACK_LIMIT) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "at most %u bytes of a stack can be copied",
			       CAPTURE_STACK_LIMIT);
		return -EINVAL;
	}
	if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		(void)snprintf(error, LIVE_ERROR_SIZE,
			       "/sys/kernel/btf/vmlinux: %s; recording needs a kernel with "
			       "CONFIG_DEBUG_INFO_BTF",
			       strerror(errno));
		return -ENOTSUP;
	}
	(void)libbpf_set_print(hear);
	bpf = calloc(1, sizeof(*bpf));
	if (!bpf)
		return fail(error, err, "capture program");
	err = count_cpus(bpf);
	if (err) {
		(void)fail(error, err, "count of CPUs");
		goto out;
	}
	err = -ENOMEM;
	bpf->per_cpu = calloc((size_t)bpf->n_cpus, sizeof(*bpf->per_cpu));
	bpf->links = calloc(bpf->n_online, sizeof(struct bpf_link *));
	if (!bpf->per_cpu || !bpf->links) {
		(void)fail(error, err, "capture program");
		goto out;
	}
	errno = ENOMEM;
	bpf->skeleton = capture__open();
	if (!bpf->skeleton) {
		err = -errno;
		(void)fail(error, err, "opening the capture program");
		goto out;
	}
	err = set_sizes(bpf, options);
	if (err) {
		(void)fail(error, err, "sizing the capture program's maps");
		goto out;
	}
	err = capture__load(bpf->skeleton);
	if (err) {
		(void)fail(error, err, "loading the capture program into the kernel");
		/* 0: a program can be loaded, but not one that calls it. */
		if (!libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_find_vma, NULL))
			(void)snprintf(error, LIVE_ERROR_SIZE,
				       "this kernel is too old: recording needs Linux 5.17 or newer"
				       " (bpf_find_vma)");
		goto out;
	}
	*out = bpf;
	return 0;
out:
	live_bpf_free(bpf);
	return err;
}

void live_bpf_free(struct live_bpf *bpf)
{
	if (!bpf)
		return;
	for (size_t i = 0; i < bpf->n_links; i++)
		(void)bpf_link__destroy(bpf->links[i]);
	for (size_t i = 0; i < FOLLOW_PROGRAMS; i++)
		(void)bpf_link__destroy(bpf->follow[i]);
	capture__destroy(bpf->skeleton);
	free(bpf->per_cpu);
	free(bpf->links);
	free(bpf);
}

int live_bpf_attach(struct live_bpf *bpf, int fd, char *error)
{
	struct bpf_link *link;
	int err;

	said[0] = '\0';
	if (bpf->n_links == bpf->n_online) {
		(void)close(fd);
		return fail(error, -EINVAL, "more CPUs than were online");
	}
	link = bpf_program__attach_perf_event(bpf->skeleton->progs.capture_sample, fd);
	if (!link) {
		err = -errno;
		(void)close(fd);
		return fail(error, err, "attaching the capture program to a perf event");
	}
	bpf->links[bpf->n_links++] = link; /* it closes fd */
	return 0;
}

/* ---- wanted processes ------------------------------------------------------------------ */

int live_bpf_follow(struct live_bpf *bpf, char *error)
{
	struct bpf_program *programs[FOLLOW_PROGRAMS] = { bpf->skeleton->progs.follow_fork,
							  bpf->skeleton->progs.follow_exit,
							  bpf->skeleton->progs.follow_free };

	said[0] = '\0';
	for (size_t i = 0; i < FOLLOW_PROGRAMS; i++) {
		bpf->follow[i] = bpf_program__attach(programs[i]);
		if (!bpf->follow[i])
			return fail(error, -errno, "following forks of the processes asked for");
	}
	return 0;
}

int live_bpf_want(struct live_bpf *bpf, uint32_t pid)
{
	const struct capture_process process = { .start_ns = 0 };
	int err = bpf_map_update_elem(bpf_map__fd(bpf->skeleton->maps.processes), &pid, &process,
				      BPF_NOEXIST);

	return err == -EEXIST ? 0 : err;
}

bool live_bpf_any_alive(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.processes);
	struct capture_process process;
	uint32_t pid, next;

	/* A deleted key starts the round again, so the rounds are bounded by count. */
	for (size_t i = 0; i < 2 * PROCESSES_MAX; i++) {
		if (bpf_map_get_next_key(fd, i ? &pid : NULL, &next))
			return false;
		pid = next;
		/* It may have ended before the table knew it, and then nobody marked it. */
		if (!bpf_map_lookup_elem(fd, &pid, &process) && !process.dead &&
		    !live_process_ended(pid))
			return true;
	}
	return true;
}

/* ---- reading ------------------------------------------------------------------------------ */

int live_bpf_ring_fd(const struct live_bpf *bpf)
{
	return bpf_map__fd(bpf->skeleton->maps.ring);
}

size_t live_bpf_ring_size(const struct live_bpf *bpf)
{
	return bpf->ring_size;
}

int live_bpf_program_fd(const struct live_bpf *bpf)
{
	return bpf_program__fd(bpf->skeleton->progs.capture_sample);
}

int live_bpf_counters(const struct live_bpf *bpf, struct capture_counters *sum)
{
	_Static_assert(sizeof(struct capture_counters) % sizeof(uint64_t) == 0, "only u64");
	uint64_t total[sizeof(*sum) / sizeof(uint64_t)] = { 0 };
	uint64_t one[sizeof(*sum) / sizeof(uint64_t)];
	uint32_t zero = 0;
	int err =
		bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.counters), &zero, bpf->per_cpu);

	if (err)
		return err;
	for (int cpu = 0; cpu < bpf->n_cpus; cpu++) {
		memcpy(one, &bpf->per_cpu[cpu], sizeof(one));
		for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
			total[i] += one[i];
	}
	memcpy(sum, total, sizeof(total));
	return 0;
}

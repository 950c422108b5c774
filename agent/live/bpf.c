/* agent/live/bpf.c: loads and attaches the BPF programs of bpf/capture.bpf.c. */
#include "agent/live/bpf.h"

#include "agent/array.h"
#include "agent/live/btf.h"
#include "agent/live/decode.h"
#include "agent/live/inventory.h"
#include "agent/live/multi.h"
#include "agent/live/perf.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "bpf/capture.skel.h"
#pragma GCC diagnostic pop

#define RING_DEFAULT	(16u << 20)
#define RING_LEAST	(4u << 20)
#define RING_LIMIT	(1u << 30)
#define WAKE_BYTES	(1u << 20)
#define FXSAVE_SIZE	512
#define HAS_XSTATE	1   /* UC_FP_XSTATE of <asm/ucontext.h>, which clashes with libc's */
#define FXSAVE_SW_BYTES 464 /* offset of the bytes reserved for software, which the kernel fills */
#define PROCESSES_MAX	65536
#define WANTED_MAX	4096 /* entries of each filter: threads, names, users */
#define FOLLOW_PROGRAMS 3
#define ALLOC_THREADS	16384 /* threads that allocate; the least active ones are evicted */
#define WAITS_MAX	32768 /* threads that wait at the same time */
#define RESERVE_MAX	(512u << 10)
#define PACE_LEAST	400u /* fewest samples a second of a paced event that is frequent enough */
#define DETACH_THREADS	31

/* A program that is attached: to a perf event, a probe or a tracepoint. */
struct attached {
	struct bpf_link *link;
	/* Descriptor of a uprobe-multi link, which libbpf does not know; -1: link is used. */
	int multi;
	int cpu; /* -1: all */
	/* The fd of a perf event that can be disabled, which stops the program; -1: detach. */
	int clock;
	bool allocator;
	uint32_t pid; /* of an allocator's probes: their process; 0: all */
};

struct live_bpf {
	struct capture *skeleton;
	/* Plain programs of events that are not the first of their kind. */
	struct capture *others[CAPTURE_EVENTS_MAX];
	const struct live_events *events;
	struct attached *attached;
	size_t n_attached, room;
	struct bpf_link *follow[FOLLOW_PROGRAMS];
	/*
	 * Probes of processes that ended. A thread removes them; going_lock protects these fields.
	 */
	pthread_mutex_t going_lock;
	struct attached *going;
	size_t n_going, going_room;
	pthread_t goer;
	bool goer_runs, goer_started; /* started: the thread must be joined */
	size_t ring_size;
	bool plain;	 /* use the plain programs, which are for old kernels */
	bool multi;	 /* probes of allocators are attached as one link per file */
	bool any_thread; /* single threads are selected */
	uint32_t alive;	 /* a selected process that was alive at the last check */
	/* A file with the kernel's types that the programs use; -1: libbpf looks for all types. */
	int types;
	int n_cpus;	    /* possible CPUs: they have counters */
	uint32_t n_scratch; /* up to the last present CPU: they have a scratch buffer */
	struct capture_counters *per_cpu;
};

/* ---- messages of libbpf ----------------------------------------------------------- */

/*
 * libbpf has one print function for the whole process. Each thread stores the first warning since
 * its last open or attach.
 */
static _Thread_local char said[256];

/* Print function of libbpf: store the first warning that helps a user. */
static int hear(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[256];

	if (level != LIBBPF_WARN)
		return 0;
	/* The first warning names the cause; the verifier's log and later failures follow. */
	if (said[0])
		return 0;
	(void)vsnprintf(line, sizeof(line), format, args);
	line[strcspn(line, "\n")] = '\0';
	/*
	 * The warning about RLIMIT_MEMLOCK matters only before 5.11, and comes with every failure.
	 */
	if (strncmp(line, "libbpf: ", 8) != 0 || strstr(line, "BEGIN PROG LOAD LOG") ||
	    strstr(line, "RLIMIT_MEMLOCK"))
		return 0;
	(void)snprintf(said, sizeof(said), "%s", line + 8);
	return 0;
}

/* Return the soft limit of locked memory, in bytes. */
static rlim_t locked_memory(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_MEMLOCK, &limit) ? RLIM_INFINITY : limit.rlim_cur;
}

const char *live_hint(int err)
{
	switch (err < 0 ? -err : err) {
	case EPERM:
		/* Before 5.11 EPERM also means that a map exceeds the limit of locked memory. */
		if (locked_memory() < RING_DEFAULT)
			return "; run as root, or with a higher limit of locked memory (ulimit -l; "
			       "`offwind doctor` tells what else may be missing)";
		return "; run as root (`offwind doctor` tells what else may be missing)";
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

/* Write the failed step, the error, libbpf's warning and a hint to error. Return err. */
static int fail(char *error, int err, const char *step)
{
	(void)snprintf(error, LIVE_ERROR_SIZE, "%s: %s%s%s%s%s", step, strerror(-err),
		       said[0] ? " (" : "", said, said[0] ? ")" : "", live_hint(err));
	return err;
}

bool live_bpf_without(const char *feature)
{
	const char *list = getenv("OFFWIND_WITHOUT");
	size_t n = strlen(feature);

	while (list && *list) {
		size_t word = strcspn(list, ",");

		if (word == n && !strncmp(list, feature, n))
			return true;
		list += word + (list[word] == ',');
	}
	return false;
}

/* ---- loading ----------------------------------------------------------------------- */

/*
 * The size of the FPU state in a signal frame depends on the machine and the kernel. Our own
 * process raises a signal and reads it from the frame (struct _fpx_sw_bytes in <asm/sigcontext.h>).
 */
static volatile uint32_t xstate_seen;

/* Signal handler: store the size of the FPU state in this signal's frame. */
static void see_frame(int number, siginfo_t *info, void *context)
{
	const ucontext_t *frame = context;
	const struct _fpx_sw_bytes *bytes;

	(void)number;
	(void)info;
	if (!frame->uc_mcontext.fpregs)
		return;
	bytes = (const void *)((const uint8_t *)frame->uc_mcontext.fpregs + FXSAVE_SW_BYTES);
	/*
	 * Without XSAVE the kernel fills these bytes, too, but writes no FP_XSTATE_MAGIC2 behind
	 * the state, for which extended_size has room.
	 */
	xstate_seen = frame->uc_flags & HAS_XSTATE && bytes->magic1 == FP_XSTATE_MAGIC1
			      ? bytes->extended_size
			      : FXSAVE_SIZE;
}

/*
 * Return the size of the FPU state in a signal frame, 0 on failure. The signal's disposition and
 * mask are restored.
 */
static uint32_t xstate_size(void)
{
	const struct sigaction see = { .sa_sigaction = see_frame, .sa_flags = SA_SIGINFO };
	const int number = SIGURG; /* ignored by default */
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

/* Return asked, rounded up to a power of two of whole pages and limited to RING_LIMIT. */
static uint32_t ring_size(uint32_t asked)
{
	uint32_t size = (uint32_t)sysconf(_SC_PAGESIZE);

	while (size < asked && size < RING_LIMIT)
		size *= 2;
	return size;
}

/*
 * Return a suitable size for the ring, in bytes. The kernel allocates the whole ring at once. If
 * only clocks are sampled, the number of samples in a second is known: take room for one second,
 * with stacks of three eighths of stack_max (clang's stacks are a tenth of the default), if that is
 * less than RING_DEFAULT.
 */
static uint32_t ring_fitting(const struct live_bpf *bpf, uint32_t stack_max)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < bpf->events->n; i++) {
		const struct live_event *e = &bpf->events->events[i];

		if (e->kind != LIVE_EVENT_SAMPLED || e->attr.freq || !e->attr.sample_period ||
		    e->attr.type != PERF_TYPE_SOFTWARE || e->attr.config != PERF_COUNT_SW_CPU_CLOCK)
			return RING_DEFAULT;
		/* The period is in nanoseconds. */
		bytes += (1000000000 / e->attr.sample_period + 1) * bpf->n_scratch *
			 (stack_max / 8 * 3);
	}
	if (bytes > RING_DEFAULT)
		return RING_DEFAULT;
	return bytes < RING_LEAST ? RING_LEAST : (uint32_t)bytes;
}

/* Return whether any event is of this kind. */
static bool uses(const struct live_bpf *bpf, enum live_event_kind kind)
{
	for (size_t i = 0; i < bpf->events->n; i++)
		if (bpf->events->events[i].kind == kind)
			return true;
	return false;
}

/* Return the constant that holds the number of the event for programs without an attach cookie. */
static uint32_t *number_of(struct capture *s, enum live_event_kind kind)
{
	switch (kind) {
	case LIVE_EVENT_SAMPLED:
		break;
	case LIVE_EVENT_TRACEPOINT:
		return &s->rodata->plain_tracepoint;
	case LIVE_EVENT_PROBE:
		return &s->rodata->plain_probe;
	case LIVE_EVENT_OFF_CPU:
		return &s->rodata->off_cpu_event;
	case LIVE_EVENT_ALLOC:
		return &s->rodata->alloc_event;
	}
	return &s->rodata->plain_event;
}

/*
 * Return the number of samples a second of a paced event. With PACE_LEAST samples, at most 1 / 400
 * of the occurrences come after the last sample.
 */
static uint32_t pace_samples(const struct source_event *info)
{
	uint64_t samples = 4 * info->frequency_hz;

	return samples < PACE_LEAST ? PACE_LEAST : (uint32_t)samples;
}

/*
 * Set the constants of the programs. The verifier removes code that a constant switches off.
 * -E2BIG: too many cgroups; -EINVAL: a CPU that is out of range.
 */
static int set_constants(const struct live_bpf *bpf, struct capture *s,
			 const struct live_bpf_options *options)
{
	s->rodata->stack_max = options->stack_max ? options->stack_max : CAPTURE_STACK_DEFAULT;
	s->rodata->wake_bytes =
		bpf->ring_size / 4 < WAKE_BYTES ? bpf->ring_size / 4 : (size_t)WAKE_BYTES;
	s->rodata->self_pid = (uint32_t)getpid();
	s->rodata->xstate_size = xstate_size();
	s->rodata->n_scratch = bpf->n_scratch;
	s->rodata->ring_size = bpf->ring_size;
	/* Records for the ends of waits and for frees take 32 and 40 bytes of the ring. */
	s->rodata->ring_reserve =
		bpf->ring_size / 16 < RESERVE_MAX ? bpf->ring_size / 16 : (size_t)RESERVE_MAX;
	s->rodata->filters = options->filters;
	if (options->n_cgroups > CAPTURE_CGROUPS_MAX)
		return -E2BIG;
	for (size_t i = 0; i < options->n_cgroups; i++)
		s->rodata->wanted_cgroups[i] = options->cgroups[i];
	for (size_t i = 0; i < options->n_cpus; i++) {
		if (options->cpus[i] < 0 || options->cpus[i] >= (int)CAPTURE_CPUS_MAX)
			return -EINVAL;
		s->rodata->wanted_cpus[options->cpus[i] / 64] |= 1ull << options->cpus[i] % 64;
	}
	for (size_t i = bpf->events->n; i-- > 0;) {
		s->rodata->every[i] = bpf->events->events[i].every;
		s->rodata->paced[i] = bpf->events->events[i].paced;
		if (bpf->events->events[i].paced)
			s->rodata->pace_samples = pace_samples(&bpf->events->events[i].info);
		/*
		 * The first event of a kind uses this skeleton; the others have skeletons of their
		 * own.
		 */
		*number_of(s, bpf->events->events[i].kind) = (uint32_t)i;
	}
	s->rodata->alloc_interval = options->alloc_interval ? options->alloc_interval : 1;
	return 0;
}

/* Select the programs to load. Each capturing program is loaded in one of its two versions. */
static void set_programs(struct live_bpf *bpf, bool follow)
{
	const struct capture *s = bpf->skeleton;
	const enum bpf_attach_type multi = (enum bpf_attach_type)LIVE_MULTI_ATTACH_TYPE;
	const bool plain = bpf->plain, allocs = uses(bpf, LIVE_EVENT_ALLOC);
	const struct {
		struct bpf_program *program, *plain;
		bool wanted;
	} twice[] = {
		{ s->progs.capture_sample, s->progs.plain_sample, uses(bpf, LIVE_EVENT_SAMPLED) },
		{ s->progs.capture_tracepoint, s->progs.plain_tracepoints,
		  uses(bpf, LIVE_EVENT_TRACEPOINT) },
		{ s->progs.capture_probe, s->progs.plain_probes, uses(bpf, LIVE_EVENT_PROBE) },
		{ s->progs.capture_switch, s->progs.plain_switch, uses(bpf, LIVE_EVENT_OFF_CPU) },
		{ s->progs.alloc_returns, s->progs.plain_returns, allocs },
	};
	const struct {
		struct bpf_program *program;
		bool wanted;
	} once[] = {
		{ s->progs.follow_fork, follow },
		{ s->progs.follow_exit, follow },
		{ s->progs.follow_free, follow },
		{ s->progs.alloc_any, allocs && bpf->multi },
		{ s->progs.alloc_malloc, allocs && !bpf->multi },
		{ s->progs.alloc_calloc, allocs && !bpf->multi },
		{ s->progs.alloc_realloc, allocs && !bpf->multi },
		{ s->progs.alloc_memalign, allocs && !bpf->multi },
		{ s->progs.alloc_posix_memalign, allocs && !bpf->multi },
		{ s->progs.alloc_mmap, allocs && !bpf->multi },
		{ s->progs.alloc_mremap, allocs && !bpf->multi },
		{ s->progs.alloc_free, allocs && !bpf->multi },
		{ s->progs.alloc_munmap, allocs && !bpf->multi },
	};

	for (size_t i = 0; i < sizeof(twice) / sizeof(twice[0]); i++) {
		(void)bpf_program__set_autoload(twice[i].program, twice[i].wanted && !plain);
		(void)bpf_program__set_autoload(twice[i].plain, twice[i].wanted && plain);
	}
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		(void)bpf_program__set_autoload(once[i].program, once[i].wanted);
	if (bpf->multi) {
		(void)bpf_program__set_expected_attach_type(s->progs.alloc_any, multi);
		(void)bpf_program__set_expected_attach_type(s->progs.alloc_returns, multi);
		(void)bpf_program__set_expected_attach_type(s->progs.plain_returns, multi);
	}
}

/*
 * Return whether the kernel can only run the plain programs. Ask the kernel for each helper: its
 * version number does not show what was backported.
 */
static bool takes_only_plain(void)
{
	const struct {
		const char *name;
		enum bpf_func_id helper;
	} needed[] = { { "find_vma", BPF_FUNC_find_vma },
		       { "loop", BPF_FUNC_loop },
		       { "task_storage", BPF_FUNC_task_storage_get },
		       { "task_pt_regs", BPF_FUNC_task_pt_regs },
		       { "attach_cookie", BPF_FUNC_get_attach_cookie } };

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (live_bpf_without(needed[i].name) ||
		    libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, needed[i].helper, NULL) == 0)
			return true;
	return false;
}

/* Write the path by which libbpf can open the file of types. */
static void types_path(const struct live_bpf *bpf, char *path, size_t size)
{
	(void)snprintf(path, size, "/proc/self/fd/%d", bpf->types);
}

/* Return whether a struct has a member of this name, also inside an unnamed struct or union. */
static bool has_member(const struct btf *btf, const struct btf_type *type, const char *name,
		       int depth)
{
	const struct btf_member *member = btf_members(type);

	for (int i = 0; i < btf_vlen(type); i++, member++) {
		const struct btf_type *inner = btf__type_by_id(btf, member->type);
		const char *its = btf__name_by_offset(btf, member->name_off);

		if (its && !strcmp(its, name))
			return true;
		if (its && !*its && inner && btf_is_composite(inner) && depth &&
		    has_member(btf, inner, name, depth - 1))
			return true;
	}
	return false;
}

/*
 * Return whether mm_struct has a red-black tree of VMAs (mm_rb). Takes ownership of btf; NULL: the
 * types could not be read.
 */
static bool has_area_tree(struct btf *btf)
{
	bool has = false;
	int id;

	if (!btf)
		return false;
	id = btf__find_by_name_kind(btf, "mm_struct", BTF_KIND_STRUCT);
	if (id > 0)
		has = has_member(btf, btf__type_by_id(btf, (uint32_t)id), "mm_rb", 4);
	btf__free(btf);
	return has;
}

bool live_bpf_area_tree(void)
{
	return has_area_tree(btf__load_vmlinux_btf());
}

/* As live_bpf_area_tree, but from the reduced types if there are any. */
static bool area_tree(const struct live_bpf *bpf)
{
	char path[32];

	if (bpf->types < 0)
		return live_bpf_area_tree();
	types_path(bpf, path, sizeof(path));
	return has_area_tree(btf__parse(path, NULL));
}

/* Set the sizes of the maps, the constants, and which programs are loaded. */
static int set_sizes(struct live_bpf *bpf, const struct live_bpf_options *options)
{
	struct capture *s = bpf->skeleton;
	bool follow = options->filters & CAPTURE_FILTER_TASK;
	bool probes = uses(bpf, LIVE_EVENT_PROBE), off_cpu = uses(bpf, LIVE_EVENT_OFF_CPU);
	bool allocs = uses(bpf, LIVE_EVENT_ALLOC);
	const bool plain = bpf->plain;
	/*
	 * Without the reduced types, reading all types of the kernel is worth its time for
	 * allocations only.
	 */
	const bool thrifty = follow && !plain && bpf->types >= 0;
	const bool tree = (thrifty || allocs) && area_tree(bpf);
	/* The last kind of programs in use. The kinds before it have scratch buffers, too. */
	const enum capture_scratch last_kind = probes || allocs ? CAPTURE_SCRATCH_PROBE
					       : off_cpu	? CAPTURE_SCRATCH_SWITCH
								: CAPTURE_SCRATCH_EVENT;
	int err;

	bpf->multi = allocs && !live_bpf_without("uprobe_multi") && live_multi_supported();
	bpf->ring_size =
		ring_size(options->ring_bytes
				  ? options->ring_bytes
				  : ring_fitting(bpf, options->stack_max ? options->stack_max
									 : CAPTURE_STACK_DEFAULT));
	err = set_constants(bpf, s, options);
	if (!err)
		err = bpf_map__set_max_entries(s->maps.ring, (uint32_t)bpf->ring_size);
	if (!err)
		err = bpf_map__set_max_entries(s->maps.scratch, (last_kind + 1) * bpf->n_scratch);
	if (!err)
		err = bpf_map__set_value_size(s->maps.scratch,
					      CAPTURE_SCRATCH_SIZE(s->rodata->stack_max));
	if (!err && follow)
		err = bpf_map__set_max_entries(s->maps.processes, PROCESSES_MAX);
	/*
	 * Do not preallocate the table, which saves 6 MB. Old kernels warn of tracing programs that
	 * allocate.
	 */
	if (!err && thrifty && !tree)
		err = bpf_map__set_map_flags(s->maps.processes, BPF_F_NO_PREALLOC);
	if (!err && options->threads)
		err = bpf_map__set_max_entries(s->maps.threads, WANTED_MAX);
	if (!err && options->filters & CAPTURE_FILTER_COMM)
		err = bpf_map__set_max_entries(s->maps.comms, WANTED_MAX);
	if (!err && options->filters & CAPTURE_FILTER_UID)
		err = bpf_map__set_max_entries(s->maps.uids, WANTED_MAX);
	if (!err && allocs)
		err = bpf_map__set_max_entries(s->maps.live, CAPTURE_LIVE_MAX);
	/* Before 6.1 the kernel warns of tracing programs that allocate map entries. */
	if (!err && allocs && tree)
		err = bpf_map__set_map_flags(s->maps.live, 0);
	if (!err && allocs)
		err = bpf_map__set_max_entries(s->maps.alloc_threads, ALLOC_THREADS);
	if (!err && off_cpu)
		err = bpf_map__set_max_entries(s->maps.waits, WAITS_MAX);
	if (err)
		return err;
	(void)bpf_map__set_autocreate(s->maps.tops, !plain);
	(void)bpf_map__set_autocreate(s->maps.waits, off_cpu);
	set_programs(bpf, follow);
	return 0;
}

/*
 * Count the possible CPUs and the CPUs that need a scratch buffer. A scratch buffer is large, and a
 * virtual machine may have hundreds of possible CPUs, so only CPUs up to the last present one get a
 * buffer. Present CPUs may go offline and come back.
 */
static int count_cpus(struct live_bpf *bpf)
{
	int *present, err;
	size_t n;

	err = live_cpus_present(&present, &n);
	if (err)
		return err;
	for (size_t i = 0; i < n; i++)
		if ((uint32_t)present[i] >= bpf->n_scratch)
			bpf->n_scratch = (uint32_t)present[i] + 1;
	free(present);
	bpf->n_cpus = libbpf_num_possible_cpus();
	return bpf->n_cpus < 0 ? bpf->n_cpus : 0;
}

/* Detach a program. Also frees the link or closes the descriptor. */
static void detach(struct attached *a)
{
	(void)bpf_link__destroy(a->link);
	a->link = NULL;
	if (a->multi >= 0)
		(void)close(a->multi);
	a->multi = -1;
}

struct detaching {
	struct live_bpf *bpf;
	bool clocks; /* detach the clocks, too */
	atomic_size_t next;
};

/* Thread function: detach programs until none is left. */
static void *detach_some(void *arg)
{
	struct detaching *d = arg;
	size_t i;

	while ((i = atomic_fetch_add(&d->next, 1)) < d->bpf->n_attached) {
		struct attached *a = &d->bpf->attached[i];

		if (d->clocks || a->clock < 0)
			detach(a);
	}
	return NULL;
}

/*
 * Detach all programs, with the clocks or without them. For each probe the kernel waits for every
 * CPU, which takes a tenth of a second; several threads share that time.
 */
static void detach_all(struct live_bpf *bpf, bool clocks)
{
	struct detaching d = { .bpf = bpf, .clocks = clocks };
	pthread_t threads[DETACH_THREADS];
	size_t n_slow = 0, n = 0;

	for (size_t i = 0; i < bpf->n_attached; i++)
		n_slow += bpf->attached[i].clock < 0 &&
			  (bpf->attached[i].link || bpf->attached[i].multi >= 0);
	while (n < DETACH_THREADS && n + 1 < n_slow &&
	       !pthread_create(&threads[n], NULL, detach_some, &d))
		n++;
	(void)detach_some(&d);
	for (size_t i = 0; i < n; i++)
		(void)pthread_join(threads[i], NULL);
}

/* Thread function: remove the probes in bpf->going until there are none. */
static void *take_away(void *arg)
{
	struct live_bpf *bpf = arg;
	struct attached a;
	bool any = true;

	while (any) {
		(void)pthread_mutex_lock(&bpf->going_lock);
		any = bpf->n_going != 0;
		if (any)
			a = bpf->going[--bpf->n_going];
		bpf->goer_runs = any;
		(void)pthread_mutex_unlock(&bpf->going_lock);
		if (any)
			detach(&a);
	}
	return NULL;
}

/*
 * Pass probes on to the thread that removes them. Without memory or threads they are removed here.
 */
static void let_go(struct live_bpf *bpf, struct attached *a)
{
	void *array;
	int err;

	(void)pthread_mutex_lock(&bpf->going_lock);
	array = bpf->going;
	err = array_make_room(&array, bpf->n_going, &bpf->going_room, sizeof(*bpf->going));
	bpf->going = array;
	if (!err)
		bpf->going[bpf->n_going++] = *a;
	if (!err && !bpf->goer_runs) {
		if (bpf->goer_started)
			(void)pthread_join(bpf->goer, NULL);
		bpf->goer_started = !pthread_create(&bpf->goer, NULL, take_away, bpf);
		bpf->goer_runs = bpf->goer_started;
		if (!bpf->goer_started) {
			bpf->n_going--;
			err = -EAGAIN;
		}
	}
	(void)pthread_mutex_unlock(&bpf->going_lock);
	if (err)
		detach(a);
}

void live_bpf_detach_allocators(struct live_bpf *bpf, uint32_t pid)
{
	size_t kept = 0;

	for (size_t i = 0; i < bpf->n_attached; i++) {
		struct attached *a = &bpf->attached[i];

		if (a->allocator && (!pid || a->pid == pid))
			let_go(bpf, a);
		else
			bpf->attached[kept++] = *a;
	}
	bpf->n_attached = kept;
}

/* Move the probes that the thread has not removed yet back to the attached programs. */
static void take_back_going(struct live_bpf *bpf)
{
	struct attached *going;
	void *array = bpf->attached;
	size_t n;

	(void)pthread_mutex_lock(&bpf->going_lock);
	going = bpf->going;
	n = bpf->n_going;
	bpf->going = NULL;
	bpf->n_going = bpf->going_room = 0;
	(void)pthread_mutex_unlock(&bpf->going_lock);
	if (bpf->goer_started)
		(void)pthread_join(bpf->goer, NULL);
	bpf->goer_started = false;
	for (size_t i = 0; i < n; i++) {
		if (array_make_room(&array, bpf->n_attached, &bpf->room, sizeof(*going))) {
			detach(&going[i]);
			continue;
		}
		bpf->attached = array;
		bpf->attached[bpf->n_attached++] = going[i];
	}
	free(going);
}

/*
 * Return whether event i is not the first of its kind. Without attach cookies, such an event needs
 * a skeleton of its own.
 */
static bool is_another(const struct live_events *events, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (events->events[j].kind == events->events[i].kind)
			return true;
	return false;
}

/*
 * Return the program of a skeleton for events of this kind; NULL for allocations, which have
 * several.
 */
static struct bpf_program *program_of(const struct capture *s, enum live_event_kind kind,
				      bool plain)
{
	switch (kind) {
	case LIVE_EVENT_SAMPLED:
		return plain ? s->progs.plain_sample : s->progs.capture_sample;
	case LIVE_EVENT_TRACEPOINT:
		return plain ? s->progs.plain_tracepoints : s->progs.capture_tracepoint;
	case LIVE_EVENT_PROBE:
		return plain ? s->progs.plain_probes : s->progs.capture_probe;
	case LIVE_EVENT_OFF_CPU:
		return plain ? s->progs.plain_switch : s->progs.capture_switch;
	case LIVE_EVENT_ALLOC:
		return NULL;
	}
	return NULL;
}

/* Open a skeleton. libbpf reads the file of types later, when the skeleton is loaded. */
static struct capture *open_skeleton(const struct live_bpf *bpf)
{
	LIBBPF_OPTS(bpf_object_open_opts, options);
	char path[32];

	if (bpf->types < 0)
		return capture__open();
	types_path(bpf, path, sizeof(path));
	options.btf_custom_path = path;
	return capture__open_opts(&options);
}

/*
 * Open the first skeleton, and write the kernel's types that its programs use into a file. -ENOMEM,
 * or libbpf's error.
 */
static int open_first(struct live_bpf *bpf)
{
	errno = ENOMEM;
	bpf->types = live_bpf_without("reduced_btf") ? -1 : memfd_create("btf", MFD_CLOEXEC);
	bpf->skeleton = open_skeleton(bpf);
	if (!bpf->skeleton)
		return -errno;
	if (bpf->types < 0 || !live_btf_write(bpf_object__btf(bpf->skeleton->obj), bpf->types))
		return 0;
	/* libbpf has other ways to find types, and reports what is wrong. */
	(void)close(bpf->types);
	bpf->types = -1;
	capture__destroy(bpf->skeleton);
	errno = ENOMEM;
	bpf->skeleton = open_skeleton(bpf);
	return bpf->skeleton ? 0 : -errno;
}

/*
 * Let a further skeleton use the maps of the first one, except for its constants, which hold the
 * event's number.
 */
static int share_maps(const struct live_bpf *bpf, struct capture *s)
{
	struct bpf_map *map = NULL, *first;
	int err = 0;

	while (!err && (map = bpf_object__next_map(s->obj, map))) {
		if (map == s->maps.rodata)
			continue;
		first = bpf_object__find_map_by_name(bpf->skeleton->obj, bpf_map__name(map));
		if (first && bpf_map__fd(first) >= 0)
			err = bpf_map__reuse_fd(map, bpf_map__fd(first));
		else
			err = bpf_map__set_autocreate(map, false);
	}
	return err;
}

/* Load the plain program of event i again, in a skeleton of its own. */
static int load_again(struct live_bpf *bpf, size_t i, const struct live_bpf_options *options)
{
	const enum live_event_kind kind = bpf->events->events[i].kind;
	struct capture *s = open_skeleton(bpf);
	struct bpf_program *program = NULL;
	int err;

	if (!s)
		return -errno;
	bpf->others[i] = s;
	err = set_constants(bpf, s, options);
	*number_of(s, kind) = (uint32_t)i;
	while ((program = bpf_object__next_program(s->obj, program)))
		(void)bpf_program__set_autoload(program, program == program_of(s, kind, true));
	if (!err)
		err = share_maps(bpf, s);
	return err ? err : capture__load(s);
}

/* Return whether the kernel has BPF ring buffers (5.8 and newer). */
static bool has_ring_buffers(void)
{
	return !live_bpf_without("ringbuf") &&
	       libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, NULL) != 0;
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
	bpf->events = options->events;
	bpf->types = -1;
	(void)pthread_mutex_init(&bpf->going_lock, NULL);
	err = count_cpus(bpf);
	if (err) {
		(void)fail(error, err, "count of CPUs");
		goto out;
	}
	err = -ENOMEM;
	bpf->per_cpu = calloc((size_t)bpf->n_cpus, sizeof(*bpf->per_cpu));
	if (!bpf->per_cpu) {
		(void)fail(error, err, "capture program");
		goto out;
	}
	err = open_first(bpf);
	if (err) {
		(void)fail(error, err, "opening the capture program");
		goto out;
	}
	bpf->plain = takes_only_plain();
	err = set_sizes(bpf, options);
	if (err) {
		(void)fail(error, err, "sizing the capture program's maps");
		goto out;
	}
	err = live_bpf_without("ringbuf") ? -EINVAL : capture__load(bpf->skeleton);
	if (err == -EINVAL && !has_ring_buffers()) {
		(void)snprintf(
			error, LIVE_ERROR_SIZE,
			"this kernel has no BPF ring buffers; recording needs Linux 5.10 or newer");
		goto out;
	}
	for (size_t i = 0; !err && bpf->plain && i < bpf->events->n; i++)
		if (is_another(bpf->events, i))
			err = load_again(bpf, i, options);
	if (err) {
		(void)fail(error, err, "loading the capture program into the kernel");
		goto out;
	}
	if (bpf->types >= 0)
		(void)close(bpf->types);
	bpf->types = -1;
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
	take_back_going(bpf);
	detach_all(bpf, true);
	for (size_t i = 0; i < FOLLOW_PROGRAMS; i++)
		(void)bpf_link__destroy(bpf->follow[i]);
	for (size_t i = 0; i < CAPTURE_EVENTS_MAX; i++)
		capture__destroy(bpf->others[i]);
	capture__destroy(bpf->skeleton);
	if (bpf->types >= 0)
		(void)close(bpf->types);
	(void)pthread_mutex_destroy(&bpf->going_lock);
	free(bpf->going);
	free(bpf->per_cpu);
	free(bpf->attached);
	free(bpf);
}

/* ---- attaching ---------------------------------------------------------------------- */

/*
 * Attach a program to a perf event. The link owns fd; on failure fd is closed and errno says why.
 */
static struct bpf_link *attach_perf(struct bpf_program *program, size_t i, int fd)
{
	LIBBPF_OPTS(bpf_perf_event_opts, options, .bpf_cookie = i);
	struct bpf_link *link = bpf_program__attach_perf_event_opts(program, fd, &options);
	int err = errno;

	if (!link)
		(void)close(fd);
	errno = err;
	return link;
}

/* Attach a program to a function or an offset of a file, in all processes. */
static struct bpf_link *attach_probe(struct bpf_program *program, size_t i,
				     const struct live_event *e)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = i, .func_name = e->symbol);

	return bpf_program__attach_uprobe_opts(program, -1, e->file, e->off, &options);
}

int live_bpf_attach(struct live_bpf *bpf, size_t i, int cpu, int fd, char *error)
{
	const struct live_event *e = &bpf->events->events[i];
	struct bpf_program *program =
		program_of(bpf->others[i] ? bpf->others[i] : bpf->skeleton, e->kind, bpf->plain);
	/* Old kernels accept no cookie but 0. */
	const size_t cookie = bpf->plain ? 0 : i;
	struct bpf_link *link = NULL;
	void *array = bpf->attached;
	char step[192];

	said[0] = '\0';
	if (array_make_room(&array, bpf->n_attached, &bpf->room, sizeof(*bpf->attached))) {
		if (fd >= 0)
			(void)close(fd);
		return fail(error, -ENOMEM, "attaching the capture program");
	}
	bpf->attached = array;
	switch (e->kind) {
	case LIVE_EVENT_SAMPLED:
	case LIVE_EVENT_TRACEPOINT:
		link = attach_perf(program, cookie, fd);
		break;
	case LIVE_EVENT_PROBE:
		link = attach_probe(program, cookie, e);
		break;
	case LIVE_EVENT_OFF_CPU:
		link = bpf_program__attach(program);
		break;
	case LIVE_EVENT_ALLOC:
		return 0; /* attached for each file: live_bpf_attach_allocator */
	}
	if (!link) {
		int err = -errno;

		if (e->kind == LIVE_EVENT_PROBE)
			(void)snprintf(step, sizeof(step), "probe %.80s:%.80s", e->file,
				       e->symbol ? e->symbol : e->info.name);
		else
			(void)snprintf(step, sizeof(step),
				       "attaching the capture program to event %s", e->info.name);
		return fail(error, err, step);
	}
	bpf->attached[bpf->n_attached++] =
		(struct attached){ .link = link,
				   .multi = -1,
				   .cpu = cpu,
				   .clock = e->kind == LIVE_EVENT_SAMPLED ? fd : -1 };
	return 0;
}

/* Attach a program to one function of an allocator, at its beginning or its return. */
static int attach_function(struct live_bpf *bpf, struct bpf_program *program, uint32_t pid,
			   const char *path, uint64_t off, bool returns)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = returns);
	void *array = bpf->attached;
	struct bpf_link *link;

	if (array_make_room(&array, bpf->n_attached, &bpf->room, sizeof(*bpf->attached)))
		return -ENOMEM;
	bpf->attached = array;
	link = bpf_program__attach_uprobe_opts(program, pid ? (pid_t)pid : -1, path, off, &options);
	if (!link)
		return -errno;
	bpf->attached[bpf->n_attached++] = (struct attached){ link, -1, -1, -1, true, pid };
	return 0;
}

/* Return the program for the returns of an allocator's functions. */
static struct bpf_program *returns_of(const struct live_bpf *bpf)
{
	return bpf->plain ? bpf->skeleton->progs.plain_returns : bpf->skeleton->progs.alloc_returns;
}

/* Attach a program to several functions as one link. Without cookies: to their returns. */
static int attach_multi(struct live_bpf *bpf, struct bpf_program *program, uint32_t pid,
			const char *path, const uint64_t *offs, const uint64_t *cookies, size_t n)
{
	void *array = bpf->attached;
	int fd;

	if (array_make_room(&array, bpf->n_attached, &bpf->room, sizeof(*bpf->attached)))
		return -ENOMEM;
	bpf->attached = array;
	fd = live_multi_attach(bpf_program__fd(program), pid, path, offs, cookies, n, !cookies);
	if (fd < 0)
		return fd;
	bpf->attached[bpf->n_attached++] = (struct attached){ NULL, fd, -1, -1, true, pid };
	return 0;
}

/*
 * Attach the probes of one file as two links: first the returns, then the beginnings, of which the
 * functions that free are first. See live_bpf_attach_allocator.
 */
static int attach_file(struct live_bpf *bpf, const char *path, uint32_t pid,
		       const struct live_alloc_place *places, size_t n)
{
	uint64_t offs[LIVE_PLACES_MAX], cookies[LIVE_PLACES_MAX], returns[LIVE_PLACES_MAX];
	size_t n_offs = 0, n_returns = 0;
	int err;

	for (size_t i = n; i-- > 0;) {
		if (places[i].function < CAPTURE_ALLOC_FREE)
			continue;
		offs[n_offs] = places[i].off;
		cookies[n_offs++] = places[i].function;
	}
	for (size_t i = 0; i < n; i++) {
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			continue;
		offs[n_offs] = places[i].off;
		cookies[n_offs++] = places[i].function;
		returns[n_returns++] = places[i].off;
	}
	err = attach_multi(bpf, returns_of(bpf), pid, path, returns, NULL, n_returns);
	if (err)
		return err;
	return attach_multi(bpf, bpf->skeleton->progs.alloc_any, pid, path, offs, cookies, n_offs);
}

int live_bpf_attach_allocator(struct live_bpf *bpf, const char *path, uint32_t pid,
			      const struct live_alloc_place *places, size_t n, char *error)
{
	const struct capture *s = bpf->skeleton;
	struct bpf_program *const programs[] = {
		[CAPTURE_ALLOC_MALLOC] = s->progs.alloc_malloc,
		[CAPTURE_ALLOC_CALLOC] = s->progs.alloc_calloc,
		[CAPTURE_ALLOC_REALLOC] = s->progs.alloc_realloc,
		[CAPTURE_ALLOC_MEMALIGN] = s->progs.alloc_memalign,
		[CAPTURE_ALLOC_POSIX_MEMALIGN] = s->progs.alloc_posix_memalign,
		[CAPTURE_ALLOC_MMAP] = s->progs.alloc_mmap,
		[CAPTURE_ALLOC_MREMAP] = s->progs.alloc_mremap,
		[CAPTURE_ALLOC_FREE] = s->progs.alloc_free,
		[CAPTURE_ALLOC_MUNMAP] = s->progs.alloc_munmap,
	};
	struct bpf_program *returns = returns_of(bpf);
	int err = 0;

	said[0] = '\0';
	if (n > LIVE_PLACES_MAX)
		return fail(error, -E2BIG, "watching an allocator");
	if (bpf->multi) {
		err = attach_file(bpf, path, pid, places, n);
		return err ? fail(error, err, "watching an allocator") : 0;
	}
	/*
	 * Attach functions that free first. Otherwise an allocation could be taken for live because
	 * its free was not seen.
	 */
	for (size_t i = n; !err && i-- > 0;)
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			err = attach_function(bpf, programs[places[i].function], pid, path,
					      places[i].off, false);
	for (size_t i = 0; !err && i < n; i++) {
		if (places[i].function >= CAPTURE_ALLOC_FREE)
			continue;
		err = attach_function(bpf, returns, pid, path, places[i].off, true);
		if (!err)
			err = attach_function(bpf, programs[places[i].function], pid, path,
					      places[i].off, false);
	}
	return err ? fail(error, err, "watching an allocator") : 0;
}

void live_bpf_sweep(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.live);
	struct capture_live_key key, next;
	struct capture_live value;
	uint32_t known = 0;
	bool ended = false, any = false;

	/* Deleting a key may start the iteration again, so the number of steps is bounded. */
	for (size_t i = 0; i < 2 * (size_t)CAPTURE_LIVE_MAX; i++) {
		if (bpf_map_get_next_key(fd, any ? &key : NULL, &next))
			return;
		any = true;
		if (!bpf_map_lookup_elem(fd, &next, &value)) {
			if (value.pid != known)
				ended = live_process_ended(value.pid);
			known = value.pid;
			if (ended) {
				/*
				 * key stays at the previous key, from which the iteration goes on.
				 */
				(void)bpf_map_delete_elem(fd, &next);
				continue;
			}
		}
		key = next;
	}
}

void live_bpf_detach_cpu(struct live_bpf *bpf, int cpu)
{
	size_t kept = 0;

	for (size_t i = 0; i < bpf->n_attached; i++) {
		if (bpf->attached[i].cpu == cpu)
			(void)bpf_link__destroy(bpf->attached[i].link);
		else
			bpf->attached[kept++] = bpf->attached[i];
	}
	bpf->n_attached = kept;
}

void live_bpf_stop(struct live_bpf *bpf)
{
	size_t n_detached = 0;

	/*
	 * Stop the probes at once. Otherwise memory that is allocated while the probes are removed
	 * one by one would seem to be never freed.
	 */
	__atomic_store_n(&bpf->skeleton->bss->alloc_stopped, 1, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < bpf->n_attached; i++) {
		if (bpf->attached[i].clock >= 0)
			(void)ioctl(bpf->attached[i].clock, PERF_EVENT_IOC_DISABLE, 0);
		else
			n_detached++;
	}
	if (!n_detached)
		return;
	detach_all(bpf, false);
	/* Wait for every CPU that may still run a program that is detached now. */
	(void)syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
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

/* Add a key to the map of a filter. */
static int want(struct bpf_map *map, const void *key)
{
	const uint8_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(map), key, &one, BPF_ANY);
}

int live_bpf_want_thread(struct live_bpf *bpf, uint32_t tid)
{
	bpf->any_thread = true;
	return want(bpf->skeleton->maps.threads, &tid);
}

int live_bpf_want_comm(struct live_bpf *bpf, const char *comm)
{
	char key[CAPTURE_COMM] = "";

	if (strlen(comm) >= sizeof(key))
		return -ENAMETOOLONG;
	strcpy(key, comm);
	return want(bpf->skeleton->maps.comms, key);
}

int live_bpf_want_uid(struct live_bpf *bpf, uint32_t uid)
{
	return want(bpf->skeleton->maps.uids, &uid);
}

bool live_bpf_wants(struct live_bpf *bpf, uint32_t pid)
{
	struct capture_process process;

	if (!(bpf->skeleton->rodata->filters & CAPTURE_FILTER_TASK))
		return true;
	/* A selected thread may belong to any process. */
	if (bpf->any_thread)
		return true;
	return !bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.processes), &pid, &process);
}

/* Return whether a process is in the table and was not seen to end. */
static bool is_marked_alive(int fd, uint32_t pid)
{
	struct capture_process process;

	return !bpf_map_lookup_elem(fd, &pid, &process) && !process.dead;
}

/*
 * Return whether a process is alive. A process that ended before it was in the table is not marked
 * as dead, so /proc is asked, too.
 */
static bool is_alive(int fd, uint32_t pid)
{
	return is_marked_alive(fd, pid) && !live_process_ended(pid);
}

bool live_bpf_waits(const struct live_bpf *bpf, uint32_t tid, uint64_t since_ns)
{
	struct capture_waiting waiting;

	return !bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.waits), &tid, &waiting) &&
	       waiting.since_ns == since_ns;
}

bool live_bpf_any_alive(struct live_bpf *bpf)
{
	int fd = bpf_map__fd(bpf->skeleton->maps.processes);
	uint32_t pid, next;

	/*
	 * The kernel takes half a millisecond to find the next key in a large table that is almost
	 * empty. So check first the process that was alive at the last call: it is marked when it
	 * ends.
	 */
	if (bpf->alive && is_marked_alive(fd, bpf->alive))
		return true;
	/* Deleting a key may start the iteration again, so the number of steps is bounded. */
	for (size_t i = 0; i < 2 * PROCESSES_MAX; i++) {
		if (bpf_map_get_next_key(fd, i ? &pid : NULL, &next))
			return false;
		pid = next;
		if (is_alive(fd, pid)) {
			bpf->alive = pid;
			return true;
		}
	}
	return true;
}

/* ---- reading ------------------------------------------------------------------------------ */

void live_bpf_reading(struct live_bpf *bpf)
{
	__atomic_store_n(&bpf->skeleton->bss->wake_asked, 0, __ATOMIC_SEQ_CST);
}

bool live_bpf_plain(const struct live_bpf *bpf)
{
	return bpf->plain;
}

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
	const struct capture *s = bpf->skeleton;
	struct bpf_program *programs[] = { s->progs.capture_sample,	s->progs.plain_sample,
					   s->progs.capture_switch,	s->progs.plain_switch,
					   s->progs.capture_tracepoint, s->progs.plain_tracepoints,
					   s->progs.capture_probe,	s->progs.plain_probes,
					   s->progs.alloc_returns,	s->progs.plain_returns };

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (bpf_program__fd(programs[i]) >= 0)
			return bpf_program__fd(programs[i]);
	return -ENOENT;
}

int live_bpf_n_cpus(const struct live_bpf *bpf)
{
	return bpf->n_cpus;
}

int live_bpf_counters(const struct live_bpf *bpf, const struct capture_counters **per_cpu,
		      struct capture_counters *sum)
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
	if (per_cpu)
		*per_cpu = bpf->per_cpu;
	return 0;
}

int live_bpf_counted(const struct live_bpf *bpf, size_t i, uint64_t *counted)
{
	struct capture_pace *paces;
	uint32_t key = (uint32_t)i;
	uint64_t sum = 0;
	int err;

	if (i >= bpf->events->n || !bpf->events->events[i].paced)
		return -ENOENT;
	paces = calloc((size_t)bpf->n_cpus, sizeof(*paces));
	if (!paces)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(bpf->skeleton->maps.paces), &key, paces);
	for (int cpu = 0; !err && cpu < bpf->n_cpus; cpu++)
		sum += paces[cpu].counted;
	free(paces);
	if (!err)
		*counted = sum;
	return err;
}

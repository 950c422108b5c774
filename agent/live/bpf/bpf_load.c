/* agent/live/bpf/bpf_load.c: sizes, configures and loads the BPF programs of bpf/capture.bpf.c. */
#include "agent/live/bpf/bpf_internal.h"

#include "agent/limits.h"
#include "agent/live/bpf/btf.h"
#include "agent/live/bpf/multi.h"
#include "agent/live/bpf/xstate.h"
#include "agent/live/system/cpus.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RING_LEAST    (4u << 20)
#define RING_LIMIT    (1u << 30)
#define RING_MOST     (32u << 20) /* that is chosen by itself */
#define WAKE_BYTES    (8u << 20)
#define ALLOC_THREADS 16384 /* threads that allocate; the least active ones are evicted */
#define OFF_CPU_MAX   32768 /* threads that wait at the same time */
#define RESERVE_MAX   (512u << 10)
#define PACE_LEAST    400u /* fewest samples a second of a paced event that is frequent enough */

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
 * only clocks are sampled, the number of samples in a second is known, with stacks of three eighths
 * of stack_max (clang's stacks are a tenth of the default): take room for one second, but at most
 * LIVE_RING_DEFAULT, or for an eighth of a second, but at most RING_MOST. With a smaller ring, at high
 * rates, waking the reader so often would cost more than a twentieth of what the samples do.
 */
static uint32_t ring_fitting(const struct live_bpf *bpf, uint32_t stack_max)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < bpf->events->n; i++) {
		const struct live_event *e = &bpf->events->events[i];

		if (e->kind != LIVE_EVENT_SAMPLED || e->attr.freq || !e->attr.sample_period ||
		    e->attr.type != PERF_TYPE_SOFTWARE || e->attr.config != PERF_COUNT_SW_CPU_CLOCK)
			return LIVE_RING_DEFAULT;
		/* The period is in nanoseconds. */
		bytes += (1000000000 / e->attr.sample_period + 1) * bpf->n_scratch *
			 (stack_max / 8 * 3);
	}
	if (bytes < RING_LEAST)
		return RING_LEAST;
	if (bytes / 8 > LIVE_RING_DEFAULT)
		return bytes / 8 < RING_MOST ? (uint32_t)(bytes / 8) : RING_MOST;
	return bytes < LIVE_RING_DEFAULT ? (uint32_t)bytes : LIVE_RING_DEFAULT;
}

static bool uses(const struct live_bpf *bpf, enum live_event_kind kind)
{
	for (size_t i = 0; i < bpf->events->n; i++)
		if (bpf->events->events[i].kind == kind)
			return true;
	return false;
}

bool live_bpf_all_alike(const struct live_bpf *bpf)
{
	const struct capture__bss *bss = bpf->skeleton->bss;

	return !uses(bpf, LIVE_EVENT_OFF_CPU) && !uses(bpf, LIVE_EVENT_ALLOC) &&
	       !(bss->filters & CAPTURE_FILTER_CGROUP) && !bss->plans_in_use;
}

/* Return the constant that holds the number of the event for programs without an attach cookie. */
static uint32_t *number_of(struct capture *s, enum live_event_kind kind)
{
	switch (kind) {
	case LIVE_EVENT_SAMPLED:
		break;
	case LIVE_EVENT_TRACEPOINT:
		return &s->rodata->fallback_tracepoint;
	case LIVE_EVENT_PROBE:
		return &s->rodata->fallback_probe;
	case LIVE_EVENT_OFF_CPU:
		return &s->rodata->off_cpu_event;
	case LIVE_EVENT_ALLOC:
		return &s->rodata->alloc_event;
	}
	return &s->rodata->fallback_event;
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
 * -EINVAL: a CPU that is out of range.
 */
static int set_constants(const struct live_bpf *bpf, struct capture *s,
			 const struct live_bpf_options *options)
{
	s->rodata->stack_max = options->stack_max ? options->stack_max : CAPTURE_STACK_DEFAULT;
	s->rodata->wake_bytes =
		bpf->ring_size / 4 < WAKE_BYTES ? bpf->ring_size / 4 : (size_t)WAKE_BYTES;
	s->rodata->xstate_size = live_xstate_size();
	s->rodata->n_scratch = bpf->n_scratch;
	s->rodata->ring_size = bpf->ring_size;
	/* Records for the ends of waits and for frees take 112 and 40 bytes of the ring. */
	s->rodata->ring_reserve =
		bpf->ring_size / 16 < RESERVE_MAX ? bpf->ring_size / 16 : (size_t)RESERVE_MAX;
	s->rodata->filters_possible = options->filters | options->possible;
	s->bss->filters = options->filters;
	for (size_t i = 0; i < options->n_cpus; i++) {
		if (options->cpus[i] < 0 || options->cpus[i] >= (int)CAPTURE_CPUS_MAX)
			return -EINVAL;
		s->rodata->wanted_cpus[options->cpus[i] / 64] |= 1ull << options->cpus[i] % 64;
	}
	for (size_t i = bpf->events->n; i-- > 0;) {
		s->rodata->every[i] = bpf->events->events[i].every;
		s->rodata->paced[i] = bpf->events->events[i].paced;
		/*
		 * The first event of a kind uses this skeleton; the others have skeletons of their
		 * own.
		 */
		*number_of(s, bpf->events->events[i].kind) = (uint32_t)i;
	}
	s->rodata->slice_bytes = live_bpf_without("plans") ? 0 : (uint32_t)limits.slice_bytes;
	s->rodata->waker_min_ns = options->waker_min_ns;
	s->rodata->alloc_interval = options->alloc_interval ? options->alloc_interval : 1;
	return 0;
}

/* Return the rate of the first clock; 0: there is none. */
static uint64_t clock_hz(const struct live_bpf *bpf)
{
	for (size_t i = 0; i < bpf->events->n; i++)
		if (bpf->events->events[i].kind == LIVE_EVENT_SAMPLED)
			return bpf->events->events[i].info.frequency_hz;
	return 0;
}

/*
 * Set how many waits are captured: fewer if the rate of the clock is lower than at the beginning,
 * because both have to do with what the recording may cost.
 */
static void pace_off_cpu(struct live_bpf *bpf)
{
	uint64_t hz = clock_hz(bpf), rate = bpf->wait_rate;

	if (hz < bpf->first_hz)
		rate = rate * hz / bpf->first_hz;
	__atomic_store_n(&bpf->skeleton->bss->wait_rate, rate ? (uint32_t)rate : 1,
			 __ATOMIC_SEQ_CST);
}

void live_bpf_pace(struct live_bpf *bpf)
{
	pace_off_cpu(bpf);
	for (size_t i = bpf->events->n; i-- > 0;)
		if (bpf->events->events[i].paced)
			__atomic_store_n(&bpf->skeleton->bss->pace_samples,
					 pace_samples(&bpf->events->events[i].info),
					 __ATOMIC_SEQ_CST);
}

/* Select the programs to load. Each capturing program is loaded in one of its two versions. */
static void set_programs(struct live_bpf *bpf, bool follow, bool cgroups)
{
	const struct capture *s = bpf->skeleton;
	const enum bpf_attach_type multi = (enum bpf_attach_type)LIVE_MULTI_ATTACH_TYPE;
	const bool fallback = bpf->fallback, allocs = uses(bpf, LIVE_EVENT_ALLOC);
	const struct {
		struct bpf_program *program, *fallback;
		bool wanted;
	} twice[] = {
		{ s->progs.capture_sample, s->progs.fallback_sample,
		  uses(bpf, LIVE_EVENT_SAMPLED) },
		{ s->progs.capture_tracepoint, s->progs.fallback_tracepoints,
		  uses(bpf, LIVE_EVENT_TRACEPOINT) },
		{ s->progs.capture_probe, s->progs.fallback_probes, uses(bpf, LIVE_EVENT_PROBE) },
		{ s->progs.capture_switch, s->progs.fallback_switch,
		  uses(bpf, LIVE_EVENT_OFF_CPU) },
		{ s->progs.capture_waking, s->progs.fallback_waking,
		  uses(bpf, LIVE_EVENT_OFF_CPU) && !bpf->wakers },
		{ s->progs.capture_wakers, s->progs.fallback_wakers,
		  uses(bpf, LIVE_EVENT_OFF_CPU) && bpf->wakers },
		{ s->progs.alloc_returns, s->progs.fallback_returns, allocs },
	};
	const struct {
		struct bpf_program *program;
		bool wanted;
	} once[] = {
		{ s->progs.follow_fork, follow },
		{ s->progs.follow_exit, follow },
		{ s->progs.follow_free, follow },
		{ s->progs.cgroup_begins, cgroups },
		{ s->progs.cgroup_ends, cgroups },
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
		(void)bpf_program__set_autoload(twice[i].program, twice[i].wanted && !fallback);
		(void)bpf_program__set_autoload(twice[i].fallback, twice[i].wanted && fallback);
	}
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
		(void)bpf_program__set_autoload(once[i].program, once[i].wanted);
	if (bpf->multi) {
		(void)bpf_program__set_expected_attach_type(s->progs.alloc_any, multi);
		(void)bpf_program__set_expected_attach_type(s->progs.alloc_returns, multi);
		(void)bpf_program__set_expected_attach_type(s->progs.fallback_returns, multi);
	}
}

/* Write the path by which libbpf can open the file of types. */
static void types_path(const struct live_bpf *bpf, char *path, size_t size)
{
	(void)snprintf(path, size, "/proc/self/fd/%d", bpf->types);
}

/* As live_bpf_vma_tree, but from the reduced types if there are any. */
static bool vma_tree(const struct live_bpf *bpf)
{
	char path[32];

	if (bpf->types < 0)
		return live_bpf_vma_tree();
	types_path(bpf, path, sizeof(path));
	return live_bpf_vma_tree_in(path);
}

/*
 * Set the sizes of the maps; those that are not used keep one entry. tree: before 6.1, see
 * vma_tree.
 */
static int set_maps(const struct live_bpf *bpf, const struct live_bpf_options *options, bool tree)
{
	const struct capture *s = bpf->skeleton;
	const uint32_t filters = options->filters | options->possible;
	const bool follow = filters & CAPTURE_FILTER_TASK;
	const bool off_cpu = uses(bpf, LIVE_EVENT_OFF_CPU), allocs = uses(bpf, LIVE_EVENT_ALLOC);
	const bool probes = allocs || uses(bpf, LIVE_EVENT_PROBE);
	/* The last kind of programs in use. The kinds before it have scratch buffers, too. */
	const enum capture_scratch last_kind = probes	 ? CAPTURE_SCRATCH_PROBE
					       : off_cpu ? CAPTURE_SCRATCH_SWITCH
							 : CAPTURE_SCRATCH_EVENT;
	const struct {
		struct bpf_map *map;
		uint32_t entries;
		bool used;
	} sizes[] = {
		{ s->maps.ring, (uint32_t)bpf->ring_size, true },
		{ s->maps.scratch, (last_kind + 1) * bpf->n_scratch, true },
		{ s->maps.plan_bases, bpf->n_scratch, s->rodata->slice_bytes != 0 },
		{ s->maps.processes, LIVE_PROCESSES_MAX, follow },
		{ s->maps.threads, LIVE_WANTED_MAX, options->threads },
		{ s->maps.comms, LIVE_WANTED_MAX, filters & CAPTURE_FILTER_COMM },
		{ s->maps.uids, LIVE_WANTED_MAX, filters & CAPTURE_FILTER_UID },
		{ s->maps.cgroups, CAPTURE_CGROUPS_MAX, filters & CAPTURE_FILTER_CGROUP },
		{ s->maps.live, CAPTURE_LIVE_MAX, allocs },
		{ s->maps.alloc_threads, ALLOC_THREADS, allocs },
		{ s->maps.off_cpu, OFF_CPU_MAX, off_cpu },
		{ s->maps.wait_slots, CAPTURE_WAIT_SLOTS, off_cpu },
		{ s->maps.wait_sites, CAPTURE_WAIT_SLOTS, off_cpu },
	};
	int err = bpf_map__set_value_size(s->maps.scratch,
					  CAPTURE_SCRATCH_SIZE(s->rodata->stack_max));

	for (size_t i = 0; !err && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i].used)
			err = bpf_map__set_max_entries(sizes[i].map, sizes[i].entries);
	/*
	 * Do not preallocate the table, which saves 6 MB. Old kernels warn of tracing programs that
	 * allocate; without the reduced types it is not known whether this one does.
	 */
	if (!err && follow && !bpf->fallback && bpf->types >= 0 && !tree)
		err = bpf_map__set_map_flags(s->maps.processes, BPF_F_NO_PREALLOC);
	/* Before 6.1 the kernel warns of tracing programs that allocate map entries. */
	if (!err && allocs && tree)
		err = bpf_map__set_map_flags(s->maps.live, 0);
	(void)bpf_map__set_autocreate(s->maps.tops, !bpf->fallback);
	(void)bpf_map__set_autocreate(s->maps.off_cpu, off_cpu);
	return err;
}

/* Set the sizes of the maps, the constants, and which programs are loaded. */
static int set_sizes(struct live_bpf *bpf, const struct live_bpf_options *options)
{
	const uint32_t filters = options->filters | options->possible;
	const bool follow = filters & CAPTURE_FILTER_TASK;
	const bool allocs = uses(bpf, LIVE_EVENT_ALLOC);
	const uint32_t stack_max = options->stack_max ? options->stack_max : CAPTURE_STACK_DEFAULT;
	bool tree;
	int err;

	/*
	 * Without the reduced types, reading all types of the kernel is worth its time for
	 * allocations only.
	 */
	tree = (allocs || (follow && !bpf->fallback && bpf->types >= 0)) && vma_tree(bpf);
	bpf->multi = allocs && !live_bpf_without("uprobe_multi") && live_multi_supported();
	bpf->ring_size =
		ring_size(options->ring_bytes ? options->ring_bytes : ring_fitting(bpf, stack_max));
	err = set_constants(bpf, bpf->skeleton, options);
	bpf->wait_rate = options->wait_rate;
	bpf->wakers = options->wakers;
	bpf->first_hz = clock_hz(bpf);
	live_bpf_pace(bpf);
	if (!err)
		err = set_maps(bpf, options, tree);
	if (!err)
		set_programs(bpf, follow, filters & CAPTURE_FILTER_CGROUP);
	return err;
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

struct bpf_program *live_bpf_program_of(const struct capture *s, enum live_event_kind kind,
					bool fallback)
{
	switch (kind) {
	case LIVE_EVENT_SAMPLED:
		return fallback ? s->progs.fallback_sample : s->progs.capture_sample;
	case LIVE_EVENT_TRACEPOINT:
		return fallback ? s->progs.fallback_tracepoints : s->progs.capture_tracepoint;
	case LIVE_EVENT_PROBE:
		return fallback ? s->progs.fallback_probes : s->progs.capture_probe;
	case LIVE_EVENT_OFF_CPU:
		return fallback ? s->progs.fallback_switch : s->progs.capture_switch;
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
 * Load a skeleton. libbpf leaves out the variables if it found that the kernel cannot map arrays
 * (before Linux 5.5); it also finds that if its test failed for want of memory.
 */
static int load(struct capture *s)
{
	int err = capture__load(s);

	return err ? err : s->rodata && s->bss ? 0 : -ENOMEM;
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

/* Load the fallback program of event i again, in a skeleton of its own. */
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
		(void)bpf_program__set_autoload(program,
						program == live_bpf_program_of(s, kind, true));
	if (!err)
		err = share_maps(bpf, s);
	return err ? err : load(s);
}

/*
 * Open the skeleton, choose between the full and the fallback programs, set the sizes of the maps,
 * and then load: libbpf allows these changes only between opening and loading.
 */
int live_bpf_open(const struct live_bpf_options *options, struct live_bpf **out, char *error)
{
	struct live_bpf *bpf;
	int err = -ENOMEM;

	live_bpf_begin();
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
	live_bpf_hear();
	bpf = calloc(1, sizeof(*bpf));
	if (!bpf)
		return live_bpf_fail(error, err, "capture program");
	bpf->events = options->events;
	bpf->types = -1;
	(void)pthread_mutex_init(&bpf->going_lock, NULL);
	err = count_cpus(bpf);
	if (err) {
		(void)live_bpf_fail(error, err, "count of CPUs");
		goto out;
	}
	err = -ENOMEM;
	bpf->per_cpu = calloc((size_t)bpf->n_cpus, sizeof(*bpf->per_cpu));
	if (!bpf->per_cpu) {
		(void)live_bpf_fail(error, err, "capture program");
		goto out;
	}
	err = open_first(bpf);
	if (err) {
		(void)live_bpf_fail(error, err, "opening the capture program");
		goto out;
	}
	bpf->fallback = live_bpf_needs_fallback();
	err = set_sizes(bpf, options);
	if (err) {
		(void)live_bpf_fail(error, err, "sizing the capture program's maps");
		goto out;
	}
	err = live_bpf_without("ringbuf") ? -EINVAL : load(bpf->skeleton);
	if (err == -EINVAL && !live_bpf_has_ring_buffers()) {
		(void)snprintf(
			error, LIVE_ERROR_SIZE,
			"this kernel has no BPF ring buffers; recording needs Linux 5.10 or newer");
		goto out;
	}
	for (size_t i = 0; !err && bpf->fallback && i < bpf->events->n; i++)
		if (is_another(bpf->events, i))
			err = load_again(bpf, i, options);
	if (err) {
		(void)live_bpf_fail(error, err, "loading the capture program into the kernel");
		goto out;
	}
	live_bpf_own(bpf, NULL, 0);
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
	live_bpf_detach_all(bpf);
	for (size_t i = 0; i < LIVE_FOLLOW_PROGRAMS; i++)
		(void)bpf_link__destroy(bpf->follow[i]);
	for (size_t i = 0; i < LIVE_CGROUP_PROGRAMS; i++)
		(void)bpf_link__destroy(bpf->cgroups[i]);
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

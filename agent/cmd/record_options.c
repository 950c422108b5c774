/* agent/cmd/record_options.c: reads the command line of offwind record. */
#include "agent/cmd/record_options.h"

#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/export/output.h"
#include "agent/live/perf.h"
#include "agent/log.h"
#include "schema/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define RATE_MAX  50000
/* Hz, default for COMMAND; for the system or for running processes the default is 99 */
#define RATE_COMMAND 997
#define DURATION_MAX (UINT64_C(10000) * 86400 * SECOND_NS)
#define ROTATE_MAX   (UINT64_C(7) * 86400 * SECOND_NS)
/* bytes; the same as Go's runtime.MemProfileRate */
#define ALLOC_INTERVAL UINT64_C(524288)

static const char help[] =
	"usage: offwind record [OPTION]… [-a | -p PID[,PID…] | [--] COMMAND [ARG]…]\n"
	"Samples the stacks of the live system and writes a pprof profile.\n"
	"\n"
	"  -a, --all-cpus        the whole system (the default)\n"
	"  -p, --pid PID[,PID…]  these processes and the children they make\n"
	"  -t, --tid TID[,TID…]  these threads\n"
	"      --comm NAME[,…]   threads of this name\n"
	"  -u, --uid USER[,…]    of this user, by name or number\n"
	"      --cgroup PATH[,…] in this cgroup and those below it\n"
	"      --container ID[,…]\n"
	"                        in the containers whose ids begin so\n"
	"  -C, --cpu LIST        on these CPUs: 0-3,8\n"
	"  -F, --freq HZ         samples a second on each CPU, or max (default 99; 997 for "
	"COMMAND)\n"
	"  -e, --event EVENT[,…] sample this instead of the CPU's time, in perf's words: cycles,\n"
	"                        page-faults, sched:sched_process_exec; :u or :k behind a\n"
	"                        counter: in user mode or in the kernel\n"
	"      --uprobe FILE:FUNCTION\n"
	"                        sample each call of a function\n"
	"  -c, --count N         one sample every N events, not by frequency\n"
	"      --off-cpu[=MIN]   threads that wait too, for MIN at least: 500us, 10ms (default 0)\n"
	"      --alloc[=BYTES]   memory that programs allocate, one of so many bytes (default "
	"512K;\n"
	"                        1: every allocation): all of it and what is in use at the end;\n"
	"                        a malloc or free takes about 1 us more, with -p and COMMAND in\n"
	"                        these processes alone, else in all\n"
	"  -d, --duration TIME   stop after that long: 10 (seconds), 500ms, 5m, 1h, 2d (default:\n"
	"                        at Ctrl-C, or when COMMAND ends)\n"
	"  -f, --format FORMAT   pprof (default), folded, text, tsv, jsonl, speedscope or "
	"firefox,\n"
	"                        of equal stacks counted together\n"
	"      --sample-type TYPE\n"
	"                        what readers show first, and all formats but pprof: \"cpu\",\n"
	"                        \"samples\", with --off-cpu \"off_cpu\" or \"wall\" (the default "
	"then)\n"
	"  -o, --output FILE     where to (default offwind.pb.gz; with --raw offwind.owc;\n"
	"                        with --rotate the folder offwind-profiles); its ending names the\n"
	"                        format unless -f does: .folded, .txt, .jsonl, .owc (--raw), …\n"
	"      --raw[=FILE]      write a capture file, to be unwound later; with FILE, beside\n"
	"                        the profile.  It keeps what naming and walking need of the\n"
	"                        sampled files, which may be gone by then\n"
	"      --with-files      with --raw: keep all of each sampled file\n"
	"      --rotate TIME     a profile for every TIME (60, 5m, 1h), in the folder that -o "
	"names\n"
	"      --keep N          with --rotate: keep the N newest profiles (default: all)\n"
	"      --max-frames N    most frames of one stack (default 1024)\n"
	"      --stack-max BYTES most bytes copied of one stack (default 256K, up to 1M)\n"
	"  -m, --ring SIZE       the buffer between kernel and offwind, 4M to 1G (default: by "
	"rate\n"
	"                        and CPUs, 4M to 16M); a number alone is pages, as in perf record\n"
	"  -r, --realtime PRIO   run with SCHED_FIFO of this priority while recording, 1 to 99\n"
	"                        (default: nice -20)\n"
	"      --scan            where nothing else leads on, take the next word on the stack\n"
	"                        that follows a call; marked as a guess\n"
	"      --stats FILE      what became of everything that fired, CPU by CPU, as JSON\n"
	"      --verify-reuse    walk stacks fully as well, where callers are taken over from a\n"
	"                        thread's sample before, and fail if that makes a difference\n"
	"      --no-demangle     names as linked\n"
	"      --no-lines        no source lines and inlined calls\n"
	"      --no-inline       no inlined calls\n"
	"      --debug-dir DIR   look for debug files there, too, before /usr/lib/debug\n"
	"      --db FILE         the store of unwind tables (default: see man offwind)\n"
	"      --no-cache        without a store\n"
	"  -q, --quiet           errors and warnings only\n"
	"  -v, --verbose         say more\n"
	"  -h, --help            this text\n"
	"\n"
	"Exit code: that of COMMAND, 128 + N if signal N ended it, 127 or 126 if it could not be\n"
	"run; without COMMAND, or where the recording ends first, 0 done, 1 failed or nothing of\n"
	"what was chosen was recorded, 2 usage, 3 some profiles could not be written.\n"
	"SIGINT, SIGTERM and SIGHUP end the recording; the profile is there within a second.\n"
	"Needs root, or CAP_BPF and CAP_PERFMON; see offwind doctor.  -g and --call-graph of perf\n"
	"are taken and change nothing: stacks are always recorded.\n";

/*
 * Append value, of size bytes, to an array of n elements, which is reallocated. array is the
 * address of the pointer to the array. Return 0 or -ENOMEM.
 */
static int append(void *array, size_t *n, const void *value, size_t size)
{
	void **to = array;
	char *bigger = reallocarray(*to, *n + 1, size);

	if (!bigger)
		return -ENOMEM;
	memcpy(bigger + *n * size, value, size);
	*to = bigger;
	++*n;
	return 0;
}

/*
 * Call take for each word of a comma-separated list, in order, until one fails. text is modified;
 * take may keep the words. Return 0 or take's error.
 */
static int each_word(char *text, int (*take)(struct record_options *o, const char *word),
		     struct record_options *o)
{
	char *word;
	int err = 0;

	while (!err && (word = strsep(&text, ",")))
		err = take(o, word);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	return err;
}

/*
 * Add a process to record. Return 0, or a negative code after reporting it; so do all take_
 * functions.
 */
static int take_pid(struct record_options *o, const char *word)
{
	uint64_t pid;
	int32_t number;
	int err = input_number("--pid", word, 1, INT32_MAX, &pid);

	if (!err && kill((pid_t)pid, 0) && errno == ESRCH) {
		log_error("--pid %" PRIu64 ": no such process", pid);
		err = -ESRCH;
	}
	number = err ? 0 : (int32_t)pid;
	return err ? err : append(&o->live.pids, &o->live.n_pids, &number, sizeof(number));
}

static int take_tid(struct record_options *o, const char *word)
{
	uint64_t tid;
	int32_t number;
	char path[32];
	int err = input_number("--tid", word, 1, INT32_MAX, &tid);

	if (err)
		return err;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu64, tid);
	if (access(path, F_OK)) {
		log_error("--tid %" PRIu64 ": no such thread", tid);
		return -ESRCH;
	}
	number = (int32_t)tid;
	return append(&o->live.tids, &o->live.n_tids, &number, sizeof(number));
}

/* Add a user, by name or number. A name that consists of digits is looked up as a name first. */
static int take_uid(struct record_options *o, const char *word)
{
	const struct passwd *user = getpwnam(word);
	uint64_t number = user ? user->pw_uid : 0;
	uint32_t uid;

	if (!user && word[strspn(word, "0123456789")]) {
		log_error("--uid %s: no such user", word);
		return -EINVAL;
	}
	if (!user && input_number("--uid", word, 0, UINT32_MAX, &number))
		return -EINVAL;
	uid = (uint32_t)number;
	return append(&o->live.uids, &o->live.n_uids, &uid, sizeof(uid));
}

static int take_comm(struct record_options *o, const char *word)
{
	return append(&o->live.comms, &o->live.n_comms, &word, sizeof(word));
}

static int take_cgroup(struct record_options *o, const char *word)
{
	return append(&o->live.cgroups, &o->live.n_cgroups, &word, sizeof(word));
}

static int take_container(struct record_options *o, const char *word)
{
	return append(&o->live.containers, &o->live.n_containers, &word, sizeof(word));
}

static int take_event(struct record_options *o, const char *word)
{
	return append(&o->live.events, &o->live.n_events, &word, sizeof(word));
}

static int take_probe(struct record_options *o, const char *word)
{
	return append(&o->live.probes, &o->live.n_probes, &word, sizeof(word));
}

/* Replace the list of CPUs to record. Return 0, or a negative code after reporting it. */
static int parse_cpus(const char *text, struct record_options *o)
{
	int *cpus, err;
	size_t n;

	err = live_cpus_parse(text, &cpus, &n);
	if (err) {
		log_error("--cpu takes a list such as 0-3,8, not '%s'", text);
		return err;
	}
	free(o->live.cpus);
	o->live.cpus = cpus;
	o->live.n_cpus = n;
	return 0;
}

/*
 * Return true if processes or threads were chosen by number. Filters by name, user or cgroup
 * narrow down any choice, so they do not count here.
 */
static bool picks_tasks(const struct source_live_options *live)
{
	return live->n_pids || live->n_tids;
}

void record_options_fini(struct record_options *o)
{
	free(o->live.pids);
	free(o->live.tids);
	free(o->live.uids);
	free(o->live.cpus);
	free((void *)(uintptr_t)o->live.comms);
	free((void *)(uintptr_t)o->live.cgroups);
	free((void *)(uintptr_t)o->live.containers);
	free((void *)(uintptr_t)o->live.events);
	free((void *)(uintptr_t)o->live.probes);
}

/*
 * Return the highest sampling rate that the kernel allows, at most RATE_MAX, as perf record -F max
 * does.
 */
static uint32_t rate_max(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned int rate = 0;

	if (file) {
		if (fscanf(file, "%u", &rate) != 1)
			rate = 0;
		(void)fclose(file);
	}
	return rate < 1 ? 1 : rate > RATE_MAX ? RATE_MAX : rate;
}

int record_options_parse(int argc, char **argv, struct record_options *o, bool *done)
{
	enum {
		RAW = 256,
		WITH_FILES,
		ROTATE,
		KEEP,
		STACK_MAX,
		COMM,
		CGROUP,
		CONTAINER,
		OFF_CPU,
		UPROBE,
		ALLOC,
		STATS,
		SAMPLE_TYPE,
		CALL_GRAPH
	};
	static const struct option options[] = {
		{ "all-cpus", no_argument, NULL, 'a' },
		{ "pid", required_argument, NULL, 'p' },
		{ "tid", required_argument, NULL, 't' },
		{ "uid", required_argument, NULL, 'u' },
		{ "cpu", required_argument, NULL, 'C' },
		{ "comm", required_argument, NULL, COMM },
		{ "cgroup", required_argument, NULL, CGROUP },
		{ "container", required_argument, NULL, CONTAINER },
		{ "event", required_argument, NULL, 'e' },
		{ "count", required_argument, NULL, 'c' },
		{ "off-cpu", optional_argument, NULL, OFF_CPU },
		{ "uprobe", required_argument, NULL, UPROBE },
		{ "alloc", optional_argument, NULL, ALLOC },
		{ "stats", required_argument, NULL, STATS },
		{ "freq", required_argument, NULL, 'F' },
		{ "call-graph", required_argument, NULL, CALL_GRAPH },
		{ "duration", required_argument, NULL, 'd' },
		{ "output", required_argument, NULL, 'o' },
		{ "format", required_argument, NULL, 'f' },
		{ "sample-type", required_argument, NULL, SAMPLE_TYPE },
		{ "raw", optional_argument, NULL, RAW },
		{ "with-files", no_argument, NULL, WITH_FILES },
		{ "rotate", required_argument, NULL, ROTATE },
		{ "keep", required_argument, NULL, KEEP },
		WALKING_OPTIONS,
		WALKING_FOLD_OPTIONS,
		{ "stack-max", required_argument, NULL, STACK_MAX },
		{ "ring", required_argument, NULL, 'm' },
		{ "mmap-pages", required_argument, NULL, 'm' },
		{ "realtime", required_argument, NULL, 'r' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool has_format = false;
	uint64_t number;
	int c;

	/* +: stop at COMMAND, so that its own options are not read here */
	while ((c = option_next(argc, argv, "+ap:t:u:C:e:c:F:d:o:f:m:r:gqvh", options)) != -1) {
		switch (c) {
		case 'a':
			o->all = true;
			break;
		case 'p':
			if (each_word(optarg, take_pid, o))
				return -EINVAL;
			break;
		case 't':
			if (each_word(optarg, take_tid, o))
				return -EINVAL;
			break;
		case 'u':
			if (each_word(optarg, take_uid, o))
				return -EINVAL;
			break;
		case 'C':
			if (parse_cpus(optarg, o))
				return -EINVAL;
			break;
		case COMM:
			if (each_word(optarg, take_comm, o))
				return -EINVAL;
			break;
		case CGROUP:
			if (each_word(optarg, take_cgroup, o))
				return -EINVAL;
			break;
		case CONTAINER:
			if (each_word(optarg, take_container, o))
				return -EINVAL;
			break;
		case 'e':
			if (take_event(o, optarg))
				return -EINVAL;
			break;
		case UPROBE:
			if (take_probe(o, optarg))
				return -EINVAL;
			break;
		case 'c':
			if (input_number("--count", optarg, 1, INT64_MAX, &o->live.count))
				return -EINVAL;
			break;
		case OFF_CPU:
			o->live.off_cpu = true;
			if (optarg &&
			    input_time("--off-cpu", optarg, INT64_MAX, &o->live.off_cpu_min_ns))
				return -EINVAL;
			break;
		case ALLOC:
			o->live.alloc_interval = ALLOC_INTERVAL;
			if (optarg && input_size("--alloc", optarg, 1, CAPTURE_INTERVAL_MAX,
						 &o->live.alloc_interval))
				return -EINVAL;
			break;
		case STATS:
			o->stats_path = optarg;
			break;
		case 'g':
		case CALL_GRAPH:
			log_info("%s: stacks are always recorded, so this option changes nothing",
				 c == 'g' ? "-g" : "--call-graph");
			break;
		case 'F':
			o->has_rate = true;
			if (!strcmp(optarg, "max")) {
				o->live.frequency_hz = rate_max();
				break;
			}
			if (input_number("--freq", optarg, 1, RATE_MAX, &number))
				return -EINVAL;
			o->live.frequency_hz = (uint32_t)number;
			break;
		case 'd':
			if (input_duration("--duration", optarg, DURATION_MAX, &o->duration_ns))
				return -EINVAL;
			break;
		case 'o':
			o->path = optarg;
			break;
		case 'f':
			o->format = format_find(optarg);
			if (o->format == FORMAT_N)
				return -EINVAL;
			has_format = true;
			break;
		case SAMPLE_TYPE:
			o->sample_type = optarg;
			break;
		case WITH_FILES:
			o->with_files = true;
			break;
		case RAW:
			o->raw = true;
			o->raw_path = optarg;
			break;
		case ROTATE:
			if (input_duration("--rotate", optarg, ROTATE_MAX, &o->rotate_ns))
				return -EINVAL;
			if (o->rotate_ns < SECOND_NS) {
				log_error("--rotate takes a second at least, not '%s'", optarg);
				return -EINVAL;
			}
			break;
		case KEEP:
			if (input_number("--keep", optarg, 1, UINT32_MAX, &number))
				return -EINVAL;
			o->keep = (uint32_t)number;
			break;
		case STACK_MAX:
			if (input_size("--stack-max", optarg, 4096, 1 << 20, &number))
				return -EINVAL;
			o->live.stack_max = (uint32_t)number;
			break;
		case 'm':
			if (input_pages("--ring", optarg, 4 << 20, 1 << 30, &number))
				return -EINVAL;
			o->live.ring_bytes = (uint32_t)number;
			break;
		case 'r':
			if (input_number("--realtime", optarg, 1, 99, &number))
				return -EINVAL;
			o->realtime = (int)number;
			break;
		case 'q':
			log_quiet(true);
			break;
		case 'v':
			log_verbose(true);
			break;
		case 'h':
			(void)fputs(help, stdout);
			*done = true;
			return 0;
		default:
			if (walking_option(&o->walking, c, optarg) != 1)
				return -EINVAL;
		}
	}
	if (optind < argc)
		o->command = argv + optind;
	if (o->command && !o->has_rate)
		o->live.frequency_hz = RATE_COMMAND;
	if ((o->all && (o->command || picks_tasks(&o->live))) ||
	    (o->command && picks_tasks(&o->live))) {
		log_error("record: only one of -a, -p or -t, and COMMAND");
		return -EINVAL;
	}
	if (o->keep && !o->rotate_ns) {
		log_error("record: --keep goes with --rotate");
		return -EINVAL;
	}
	/* If neither -f nor --raw gives the type of the file that -o names, its suffix does. */
	if (o->path && !has_format && !o->raw && !o->rotate_ns) {
		size_t size = strlen(o->path);

		o->raw = size > 4 && !strcmp(o->path + size - 4, ".owc");
		if (!o->raw && format_of_path(o->path, &o->format))
			return -EINVAL;
	}
	if (has_format && o->raw && !o->raw_path) {
		log_error("record: --raw writes a capture file, which has no --format; a profile "
			  "beside it: --raw=FILE");
		return -EINVAL;
	}
	if (o->path && (o->format == FORMAT_PPROF || o->raw) &&
	    output_not_terminal("record", o->path))
		return -EINVAL;
	if (o->with_files && !o->raw) {
		log_error("record: --with-files goes with --raw");
		return -EINVAL;
	}
	if (o->raw && !o->raw_path && o->rotate_ns) {
		log_error("record: --raw with --rotate needs a file: --raw=FILE");
		return -EINVAL;
	}
	if (o->raw && !o->raw_path) {
		if (!o->path)
			o->path = "offwind.owc";
		o->raw_path = o->path; /* the same pointer means that no profile is wanted */
	}
	if (!o->path)
		o->path = o->rotate_ns ? "offwind-profiles" : format_file(o->format);
	return 0;
}

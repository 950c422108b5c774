/* agent/cmd/record/record_options.c: reads the command line of offwind record. */
#include "agent/cmd/record/record_options.h"

#include "agent/cli/input.h"
#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/export/output.h"
#include "agent/labels.h"
#include "agent/live/system/perf.h"
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

#define SECOND_NS     UINT64_C(1000000000)
#define RATE_MAX      50000
#define WAIT_RATE_MAX 1000000
#define BUDGET_MAX    100000 /* percent of a CPU */
/* Hz, default for COMMAND; for the system or for running processes the default is 99 */
#define RATE_COMMAND 997
#define DURATION_MAX (UINT64_C(10000) * 86400 * SECOND_NS)
#define WINDOW_NS    (10 * SECOND_NS)
#define ROTATE_MAX   (UINT64_C(7) * 86400 * SECOND_NS)
/* bytes; the same as Go's runtime.MemProfileRate */
#define ALLOC_INTERVAL UINT64_C(524288)

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
static int each_word(struct record_options *o, const char *option, char *text,
		     int (*take)(struct record_options *o, const char *option, const char *word))
{
	char *word;
	int err = 0;

	while (!err && (word = strsep(&text, ",")))
		err = take(o, option, word);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	return err;
}

/*
 * Append the words between separators to an array of n texts, which borrows them. array is the
 * address of the pointer to the array. Return 0, or -ENOMEM after reporting it.
 */
static int each_text(void *array, size_t *n, char *text, const char *separators)
{
	char *word;
	int err = 0;

	while (!err && (word = strsep(&text, separators)))
		err = append(array, n, &word, sizeof(word));
	if (err)
		log_error("%s", strerror(-err));
	return err;
}

/*
 * Add a process to record. Return 0, or a negative code after reporting it; so do all add_
 * functions.
 */
static int add_pid(struct record_options *o, const char *option, const char *word)
{
	uint64_t pid;
	int32_t number;
	int err = input_number(option, word, 1, INT32_MAX, &pid);

	if (!err && kill((pid_t)pid, 0) && errno == ESRCH) {
		log_error("%s %" PRIu64 ": no such process", option, pid);
		err = -ESRCH;
	}
	number = err ? 0 : (int32_t)pid;
	return err ? err : append(&o->live.pids, &o->live.n_pids, &number, sizeof(number));
}

static int add_tid(struct record_options *o, const char *option, const char *word)
{
	uint64_t tid;
	int32_t number;
	char path[32];
	int err = input_number(option, word, 1, INT32_MAX, &tid);

	if (err)
		return err;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu64, tid);
	if (access(path, F_OK)) {
		log_error("%s %" PRIu64 ": no such thread", option, tid);
		return -ESRCH;
	}
	number = (int32_t)tid;
	return append(&o->live.tids, &o->live.n_tids, &number, sizeof(number));
}

/* Add a user, by name or number. A name that consists of digits is looked up as a name first. */
static int add_uid(struct record_options *o, const char *option, const char *word)
{
	const struct passwd *user = getpwnam(word);
	uint64_t number = user ? user->pw_uid : 0;
	uint32_t uid;

	if (!user && word[strspn(word, "0123456789")]) {
		log_error("%s %s: no such user", option, word);
		return -EINVAL;
	}
	if (!user && input_number(option, word, 0, UINT32_MAX, &number))
		return -EINVAL;
	uid = (uint32_t)number;
	return append(&o->live.uids, &o->live.n_uids, &uid, sizeof(uid));
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
	free((void *)(uintptr_t)o->live.pods);
	free((void *)(uintptr_t)o->live.units);
	free((void *)(uintptr_t)o->live.events);
	free((void *)(uintptr_t)o->live.probes);
	label_rules_free(o->rules);
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

/* ---- the options: each takes one of them; to is the struct record_options ------------- */

static int take_pids(void *to, const char *option, char *text)
{
	return each_word(to, option, text, add_pid);
}

static int take_tids(void *to, const char *option, char *text)
{
	return each_word(to, option, text, add_tid);
}

static int take_uids(void *to, const char *option, char *text)
{
	return each_word(to, option, text, add_uid);
}

static int take_comms(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.comms, &o->live.n_comms, text, ",");
}

static int take_cgroups(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.cgroups, &o->live.n_cgroups, text, ",");
}

static int take_containers(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.containers, &o->live.n_containers, text, ",");
}

static int take_pods(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.pods, &o->live.n_pods, text, ",");
}

static int take_units(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.units, &o->live.n_units, text, ",");
}

/* Take one text, "" separates nothing: the source itself splits a list of events. */
static int take_event(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.events, &o->live.n_events, text, "");
}

static int take_probe(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	return each_text(&o->live.probes, &o->live.n_probes, text, "");
}

/* Replace the list of CPUs to record. */
static int take_cpus(void *to, const char *option, char *text)
{
	struct record_options *o = to;
	int *cpus, err;
	size_t n;

	err = live_cpus_parse(text, &cpus, &n);
	if (err) {
		log_error("%s takes a list such as 0-3,8, not '%s'", option, text);
		return err;
	}
	free(o->live.cpus);
	o->live.cpus = cpus;
	o->live.n_cpus = n;
	return 0;
}

/* Take a number within [min, max] that fits into *out. */
static int take_u32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t number;

	if (input_number(option, text, min, max, &number))
		return -EINVAL;
	*out = (uint32_t)number;
	return 0;
}

static int take_frequency(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	o->has_rate = true;
	if (!strcmp(text, "max")) {
		o->live.frequency_hz = rate_max();
		return 0;
	}
	return take_u32(option, text, 1, RATE_MAX, &o->live.frequency_hz);
}

static int take_count(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	return input_number(option, text, 1, INT64_MAX, &o->live.count);
}

static int take_off_cpu(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	o->live.off_cpu = true;
	return text ? input_time(option, text, INT64_MAX, &o->live.off_cpu_min_ns) : 0;
}

static int take_wait_rate(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	return take_u32(option, text, 1, WAIT_RATE_MAX, &o->live.wait_rate);
}

static int take_alloc(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	o->live.alloc_interval = ALLOC_INTERVAL;
	return text ? input_size(option, text, 1, CAPTURE_INTERVAL_MAX, &o->live.alloc_interval)
		    : 0;
}

static int take_call_graph(void *to, const char *option, char *text)
{
	(void)to;
	(void)text;
	log_info("%s: stacks are always recorded, so this option changes nothing", option);
	return 0;
}

static int take_duration(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	return input_duration(option, text, DURATION_MAX, &o->duration_ns);
}

static int take_raw(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	(void)option;
	o->raw = true;
	o->raw_path = text;
	return 0;
}

static int take_rotate(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	if (input_duration(option, text, ROTATE_MAX, &o->rotate_ns))
		return -EINVAL;
	if (o->rotate_ns < SECOND_NS) {
		log_error("%s takes at least one second, not '%s'", option, text);
		return -EINVAL;
	}
	return 0;
}

static int take_keep(void *to, const char *option, char *text)
{
	struct record_options *o = to;

	return take_u32(option, text, 1, UINT32_MAX, &o->keep);
}

static int take_stack_max(void *to, const char *option, char *text)
{
	struct record_options *o = to;
	uint64_t bytes;

	if (input_size(option, text, 4096, 1 << 20, &bytes))
		return -EINVAL;
	o->live.stack_max = (uint32_t)bytes;
	return 0;
}

static int take_ring(void *to, const char *option, char *text)
{
	struct record_options *o = to;
	uint64_t bytes;

	if (input_pages(option, text, 4 << 20, 1 << 30, &bytes))
		return -EINVAL;
	o->live.ring_bytes = (uint32_t)bytes;
	return 0;
}

/* Add rules for labels. */
static int add_rules(struct record_options *o, enum label_rule kind, const char *option,
		     const char *text)
{
	char error[LABELS_ERROR] = "";
	int err = o->rules ? 0 : label_rules_new(&o->rules);

	if (!err)
		err = label_rules_add(o->rules, kind, text, error);
	if (err)
		log_error("%s %s", option, *error ? error : strerror(-err));
	o->walking.pipeline.rules = o->rules;
	return err;
}

static int take_keep_labels(void *to, const char *option, char *text)
{
	return add_rules(to, LABEL_KEEP, option, text);
}

static int take_drop_labels(void *to, const char *option, char *text)
{
	return add_rules(to, LABEL_DROP, option, text);
}

static int take_rename_labels(void *to, const char *option, char *text)
{
	return add_rules(to, LABEL_RENAME, option, text);
}

static int take_realtime(void *to, const char *option, char *text)
{
	struct record_options *o = to;
	uint64_t priority;

	if (input_number(option, text, 1, 99, &priority))
		return -EINVAL;
	o->realtime = (int)priority;
	return 0;
}

/* Take a share of a CPU in percent, such as 1 or 0.25. */
static int take_cpu_budget(void *to, const char *option, char *text)
{
	struct record_options *o = to;
	char *end;
	double percent = strtod(text, &end);

	if (end == text || *end || !(percent == 0 || (percent >= 0.01 && percent <= BUDGET_MAX))) {
		log_error("%s takes a share of one CPU in percent, 0.01 to %d, or 0, not '%s'",
			  option, BUDGET_MAX, text);
		return -EINVAL;
	}
	o->cpu_budget = (uint32_t)(percent * 10000 + 0.5);
	return 0;
}

static const char help_before[] =
	"usage: offwind record [OPTION]… [-a | -p PID[,PID…] | [--] COMMAND [ARG]…]\n"
	"Samples the stacks of the live system and writes a pprof profile.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: that of COMMAND; 128 + N if signal N ended it; 127 if it was not found;\n"
	"126 if it could not be executed.  Without COMMAND, or if the recording ends first:\n"
	"0 success, 1 failure or no sample was recorded, 2 wrong command line, 3 some profiles\n"
	"could not be written.\n"
	"SIGINT, SIGTERM and SIGHUP end the recording; the profile is written within a second.\n"
	"This needs root, or CAP_BPF and CAP_PERFMON; see offwind doctor.  The options -g and\n"
	"--call-graph of perf record are ignored: stacks are always recorded.\n";

#define AT(field) .at = offsetof(struct record_options, field)

static const struct option_row option_rows[] = {
	{ "--all-cpus", 'a', NULL, "record the whole system (default without -p, -t and COMMAND)",
	  .set = option_true, AT(all) },
	{ "--pid", 'p', "PID[,PID…]", "record these processes and their children",
	  .set = take_pids },
	{ "--tid", 't', "TID[,TID…]", "record these threads", .set = take_tids },
	{ "--comm", 0, "NAME[,…]", "record threads with this name", .set = take_comms },
	{ "--uid", 'u', "USER[,…]", "record threads of this user, by name or number",
	  .set = take_uids },
	{ "--cgroup", 0, "PATH[,…]", "record threads in this cgroup and in cgroups below it",
	  .set = take_cgroups },
	{ "--container", 0, "ID[,…]", "record threads in containers whose ids begin with ID",
	  .set = take_containers },
	{ "--pod", 0, "UID[,…]", "record threads in Kubernetes' pods whose uids begin with UID",
	  .set = take_pods },
	{ "--unit", 0, "UNIT[,…]",
	  "record threads in these units and slices of systemd; * and ? are\n"
	  "wildcards, and a name without a suffix is a service",
	  .set = take_units },
	{ "--cpu", 'C', "LIST", "record only on these CPUs, for example 0-3,8", .set = take_cpus },
	{ "--freq", 'F', "HZ",
	  "take HZ samples a second on each CPU, or max: as many as the kernel\n"
	  "allows (default 99; with COMMAND 997)",
	  .set = take_frequency },
	{ "--event", 'e', "EVENT[,…]",
	  "sample this event instead of CPU time, with a name of perf list:\n"
	  "cycles, page-faults, sched:sched_process_exec; with the suffix :u\n"
	  "only in user mode, with :k only in the kernel",
	  .set = take_event },
	{ "--uprobe", 0, "FILE:FUNCTION", "sample each call of a function", .set = take_probe },
	{ "--count", 'c', "N", "take one sample every N events instead of a number per second",
	  .set = take_count },
	{ "--off-cpu", 0, "[=MIN]",
	  "record waiting threads too, if they wait at least MIN, for example\n"
	  "500us or 10ms (default 0)",
	  .set = take_off_cpu },
	{ "--wait-rate", 0, "N",
	  "with --off-cpu, record about N waits a second on each CPU (default\n"
	  "1000); if more begin, choose some at random, and let each stand for\n"
	  "several",
	  .set = take_wait_rate },
	{ "--wakers", 0, NULL,
	  "with --off-cpu, record also the stack of the thread that ends each wait,\n"
	  "and append it to that of the thread that waits",
	  .set = option_true, AT(live.wakers) },
	{ "--alloc", 0, "[=BYTES]",
	  "record the memory that programs allocate and the memory that is in\n"
	  "use at the end, with one sample for BYTES bytes (default 512K; 1:\n"
	  "each allocation); a malloc or free takes about 1 us longer, with -p\n"
	  "or COMMAND only in these processes, otherwise in all",
	  .set = take_alloc },
	{ "--duration", 'd', "TIME",
	  "stop after this time: 10 (seconds), 500ms, 5m, 1h or 2d (default:\n"
	  "at Ctrl-C, or when COMMAND ends)",
	  .set = take_duration },
	{ "--format", 'f', "FORMAT",
	  "write pprof (default), " FORMAT_OTHERS ";\n"
	  "equal stacks are counted together",
	  .set = format_take, AT(format) },
	{ "--sample-type", 0, "TYPE",
	  "choose the type that readers of pprof show first and that other\n"
	  "formats show: cpu, samples, with --off-cpu also off_cpu, blocked,\n"
	  "runnable and wall (then the default)",
	  .set = option_text, AT(sample_type) },
	{ "--output", 'o', "FILE",
	  "write to FILE (default offwind.pb.gz; with --raw offwind.owc; with\n"
	  "--rotate the directory offwind-profiles); without -f the suffix\n"
	  "chooses the format: .folded, .txt, .parquet, .owc (--raw), …",
	  .set = option_text, AT(path) },
	{ "--raw", 0, "[=FILE]",
	  "write a capture file, which offwind unwind reads later; with FILE, in\n"
	  "addition to the profile; it stores what walking and naming need of\n"
	  "the sampled files, because these may be gone by then",
	  .set = take_raw },
	{ "--with-files", 0, NULL, "with --raw: store each sampled file as a whole",
	  .set = option_true, AT(with_files) },
	{ "--rotate", 0, "TIME",
	  "write a profile for every TIME (60, 5m, 1h) into the directory of -o",
	  .set = take_rotate },
	{ "--keep", 0, "N", "with --rotate: keep the N newest profiles (default: all)",
	  .set = take_keep },
	{ "--history", 0, "FILE",
	  "add windows of 10 s (or --rotate) to the history FILE, a database that\n"
	  "offwind report --from reads, instead of writing profiles",
	  .set = option_text, AT(history) },
	{ "--keep-labels", 0, "PATTERN[,…]",
	  "give samples only labels whose names match, such as comm,service.*",
	  .set = take_keep_labels },
	{ "--drop-labels", 0, "PATTERN[,…]",
	  "give samples no labels whose names match, such as tid,thread", .set = take_drop_labels },
	{ "--rename-labels", 0, "OLD:NEW[,…]", "give the label OLD the name NEW",
	  .set = take_rename_labels },
	WALKING_MAX_FRAMES(struct record_options),
	{ "--stack-max", 0, "BYTES", "copy at most BYTES bytes of a stack (default 256K, limit 1M)",
	  .set = take_stack_max },
	{ "--ring", 'm', "SIZE",
	  "set the size of the buffer between kernel and offwind, 4M to 1G\n"
	  "(default 4M to 16M, by rate and CPUs); a number without a unit is\n"
	  "pages, as in perf record",
	  .set = take_ring },
	{ "--mmap-pages", 0, "SIZE", .set = take_ring },
	{ "--realtime", 'r', "PRIO",
	  "run with this SCHED_FIFO priority while recording, 1 to 99\n"
	  "(default: nice value -20)",
	  .set = take_realtime },
	{ "--cpu-budget", 0, "PERCENT",
	  "lower the rate while offwind itself takes more than this share of one\n"
	  "CPU, over a minute, and raise it again when there is room (default 0:\n"
	  "no limit)",
	  .set = take_cpu_budget },
	WALKING_SCAN(struct record_options),
	{ "--stats", 0, "FILE",
	  "write to FILE what became of every event that fired, by CPU, as JSON",
	  .set = option_text, AT(stats_path) },
	WALKING_VERIFY_REUSE(struct record_options),
	WALKING_NO_DEMANGLE(struct record_options),
	WALKING_NO_LINES(struct record_options),
	LIMIT_OPTION,
	WALKING_STORE(struct record_options),
	{ "--call-graph", 0, "HOW", .set = take_call_graph },
	{ "-g", 'g', NULL, .set = take_call_graph },
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	.stops = true,
	OPTION_ROWS(option_rows),
};

/*
 * Decide about what -o names, unless the options do. If neither -f nor --raw gives the type of the
 * file, its suffix does. Return 0, or -EINVAL after reporting what is wrong.
 */
static int decide_paths(struct record_options *o)
{
	bool has_format = o->format != FORMAT_N;

	if (!has_format)
		o->format = FORMAT_PPROF;
	if (o->path && !has_format && !o->raw && !o->rotate_ns) {
		size_t size = strlen(o->path);

		o->raw = size > 4 && !strcmp(o->path + size - 4, ".owc");
		if (!o->raw && format_of_path(o->path, &o->format))
			return -EINVAL;
	}
	if (has_format && o->raw && !o->raw_path) {
		log_error("record: --raw writes a capture file, which has no --format; --raw=FILE "
			  "writes a profile too");
		return -EINVAL;
	}
	if (o->path && (format_is_binary(o->format) || o->raw) &&
	    output_not_terminal("record", o->path))
		return -EINVAL;
	if (o->with_files && !o->raw) {
		log_error("record: --with-files needs --raw");
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
	if (!o->path && !o->history)
		o->path = o->rotate_ns ? "offwind-profiles" : format_file(o->format);
	if (o->raw && o->raw_path != o->path && !strcmp(o->raw_path, o->path)) {
		log_error(
			"record: --raw and -o name the same file; the capture file and the profile "
			"need one each");
		return -EINVAL;
	}
	return 0;
}

int record_options_parse(int argc, char **argv, struct record_options *o)
{
	int err = option_read(&option_table, argc, argv, o);

	if (err)
		return err;
	if (optind < argc)
		o->command = argv + optind;
	if (o->command && !o->has_rate)
		o->live.frequency_hz = RATE_COMMAND;
	if ((o->all && (o->command || picks_tasks(&o->live))) ||
	    (o->command && picks_tasks(&o->live))) {
		log_error("record: use only one of -a, -p or -t, and COMMAND");
		return -EINVAL;
	}
	if ((o->live.wakers || o->live.wait_rate) && !o->live.off_cpu) {
		log_error("record: --%s needs --off-cpu", o->live.wakers ? "wakers" : "wait-rate");
		return -EINVAL;
	}
	if (o->history && (o->raw || o->path || o->keep || o->format != FORMAT_N)) {
		log_error("record: --history goes without -o, -f, --raw and --keep");
		return -EINVAL;
	}
	if (o->history) {
		o->walking.pipeline.separate = true;
		o->rotate_ns = o->rotate_ns ? o->rotate_ns : WINDOW_NS;
	}
	if (o->keep && !o->rotate_ns) {
		log_error("record: --keep needs --rotate");
		return -EINVAL;
	}
	return decide_paths(o);
}

/*
 * agent/cmd/doctor.c: the doctor command: checks what of recording works on this machine, and says
 * what to do about the rest.
 */
#include "agent/cli/option.h"
#include "agent/cli/rights.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/export/json.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/bpf/multi.h"
#include "agent/live/live.h"
#include "agent/live/system/decode.h"
#include "agent/live/system/inventory.h"
#include "agent/live/system/perf.h"
#include "agent/log.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MS UINT64_C(1000000) /* in ns */

enum state { OK, PARTLY, NO };

struct doctor {
	bool json;
	/* number of checks, by state */
	size_t n[NO + 1];
	char partly[256]; /* names of the checks that are not ok, for the last line */
};

static const char help_before[] =
	"usage: offwind doctor [--json]\n"
	"Checks what is needed to record the live system, and says how to repair the rest.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: 0 recording works, 1 it does not, 2 wrong command line, 3 it works in part.\n";

static const struct option_row option_rows[] = {
	{ "--json", 0, NULL,
	  "print an array of {\"check\", \"state\", \"text\"}; a state is ok, partly\n"
	  "or no",
	  .set = option_true, .at = offsetof(struct doctor, json) },
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

static void say(struct doctor *doctor, const char *check, enum state state, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Print the result of one check, as a line or as an element of the JSON array, and count it. */
static void say(struct doctor *doctor, const char *check, enum state state, const char *format, ...)
{
	static const char *const names[] = { "ok", "partly", "no" };
	char text[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (doctor->json) {
		bool first = !(doctor->n[OK] + doctor->n[PARTLY] + doctor->n[NO]);

		(void)printf("%s\n{\"check\":", first ? "[" : ",");
		json_text(stdout, check);
		(void)printf(",\"state\":\"%s\",\"text\":", names[state]);
		json_text(stdout, text);
		(void)putchar('}');
	} else {
		(void)printf("%-22s %-7s %s\n", check, names[state], text);
	}
	doctor->n[state]++;
	if (state != OK)
		textbuf_add(doctor->partly, sizeof(doctor->partly), "%s%s",
			    *doctor->partly ? ", " : "", check);
}

/*
 * Read the first line of a small file of the kernel, without the newline. Return 0, or a negative
 * code if the file cannot be opened or is empty.
 */
static int read_line(const char *path, char *line, int size)
{
	FILE *file = fopen(path, "re");
	int err = 0;

	if (!file)
		return -errno;
	if (!fgets(line, size, file))
		err = -EBADMSG;
	(void)fclose(file);
	if (!err)
		line[strcspn(line, "\n")] = '\0';
	return err;
}

/* Read a number in decimal from the first line of a file. Return false if there is none. */
static bool read_number(const char *path, long *out)
{
	char line[64], *end;

	if (read_line(path, line, sizeof(line)))
		return false;
	*out = strtol(line, &end, 10);
	return end != line;
}

/* ---- the kernel -------------------------------------------------------------------- */

static void check_kernel(struct doctor *doctor)
{
	unsigned int major = 0, minor = 0;
	struct utsname uts;

	if (uname(&uts))
		return;
	(void)sscanf(uts.release, "%u.%u", &major, &minor);
	if (strcmp(uts.machine, "x86_64") != 0)
		say(doctor, "kernel", NO, "%s on %s; the capture program is for x86_64",
		    uts.release, uts.machine);
	else if (major < 5 || (major == 5 && minor < 10))
		say(doctor, "kernel", NO, "%s; 5.10 or newer is needed", uts.release);
	else
		say(doctor, "kernel", OK, "%s on %s", uts.release, uts.machine);
}

/*
 * The capture program is relocated for the running kernel by the kernel's own BTF type
 * information.
 */
static void check_btf(struct doctor *doctor)
{
	const char *path = "/sys/kernel/btf/vmlinux";

	if (!access(path, R_OK))
		say(doctor, "type information", OK, "%s", path);
	else
		say(doctor, "type information", NO,
		    "%s: %s; needs a kernel with CONFIG_DEBUG_INFO_BTF (Debian's have it)", path,
		    strerror(errno));
}

/* See kernel_lockdown(7): in confidentiality mode BPF programs cannot read kernel memory. */
static void check_lockdown(struct doctor *doctor)
{
	char line[128];

	if (read_line("/sys/kernel/security/lockdown", line, sizeof(line)))
		say(doctor, "lockdown", OK, "this kernel has none");
	else if (strstr(line, "[confidentiality]"))
		say(doctor, "lockdown", NO,
		    "%s: BPF may not read memory; boot with lockdown=integrity or none", line);
	else
		say(doctor, "lockdown", OK, "%s", line);
}

/* ---- rights ------------------------------------------------------------------------- */

static const struct {
	unsigned int bit;
	const char *name;
	bool needed; /* if false, recording works without it in part */
	const char *use;
} capabilities[] = {
	{ CAP_BPF, "CAP_BPF", true, "load the capture program" },
	{ CAP_PERFMON, "CAP_PERFMON", true, "open perf events and read stacks" },
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE", false, "read mappings of other users' processes" },
	{ CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false,
	  "open other users' programs and name cgroups" },
	{ CAP_SYS_ADMIN, "CAP_SYS_ADMIN", false, "open programs that are deleted as they start" },
	{ CAP_SYSLOG, "CAP_SYSLOG", false, "name kernel functions" },
};

/*
 * Check this process's effective capabilities. Return false if one is missing that recording
 * cannot do without.
 */
static bool check_capabilities(struct doctor *doctor)
{
	char line[256], missing[512] = "";
	enum state state = OK;
	uint64_t held = 0;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		(void)sscanf(line, "CapEff: %" SCNx64, &held);
	if (file)
		(void)fclose(file);
	/*
	 * CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON: before Linux 5.8 there was only this
	 * one, and some kernels with a strict perf_event_paranoid still ask for it.
	 */
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++) {
		bool by_admin = held >> CAP_SYS_ADMIN & 1 && (capabilities[i].bit == CAP_BPF ||
							      capabilities[i].bit == CAP_PERFMON);

		if (held >> capabilities[i].bit & 1 || by_admin)
			continue;
		state = capabilities[i].needed ? NO : state == NO ? NO : PARTLY;
		textbuf_add(missing, sizeof(missing), "%s%s (to %s)", *missing ? ", " : "",
			    capabilities[i].name, capabilities[i].use);
	}
	if (state == OK)
		say(doctor, "capabilities", OK, "all that recording needs");
	else
		say(doctor, "capabilities", state, "missing: %s; run as root", missing);
	return state != NO;
}

/*
 * Check sysctls that restrict unprivileged users. able: the capabilities for recording are there.
 */
static void check_settings(struct doctor *doctor, bool able)
{
	bool admin = !geteuid();
	long value;

	if (read_number("/proc/sys/kernel/perf_event_paranoid", &value))
		say(doctor, "perf_event_paranoid", value > 2 && !admin ? PARTLY : OK, "%ld%s",
		    value,
		    value > 2 && !admin ? "; above 2, Debian's kernels require CAP_SYS_ADMIN" : "");
	else
		say(doctor, "perf_event_paranoid", NO,
		    "there is no such setting: the kernel was built without CONFIG_PERF_EVENTS");
	if (read_number("/proc/sys/kernel/unprivileged_bpf_disabled", &value))
		say(doctor, "unprivileged_bpf", OK, "%s",
		    !value ? "allowed (recording does not need this)"
		    : able ? "disabled (fine: offwind has CAP_BPF)"
			   : "disabled (fine: as root, offwind has CAP_BPF)");
}

static void check_kallsyms(struct doctor *doctor)
{
	uint64_t addr = 0;
	long restricted = 0;
	char line[256];

	(void)read_number("/proc/sys/kernel/kptr_restrict", &restricted);
	if (!read_line("/proc/kallsyms", line, sizeof(line)))
		(void)sscanf(line, "%" SCNx64, &addr);
	/* The first symbols may be per-CPU offsets whose real address is 0. */
	if (addr || (restricted < 2 && !geteuid()))
		say(doctor, "kernel symbols", OK, "/proc/kallsyms (kptr_restrict %ld)", restricted);
	else
		say(doctor, "kernel symbols", PARTLY,
		    restricted < 2 ? "addresses are hidden from this user, so kernel frames have "
				     "no names: run as root"
				   : "addresses are hidden, so kernel frames have no names: set "
				     "kernel.kptr_restrict to 1 or 0 (it is 2)");
}

/* Recording needs the host's pid namespace: the kernel reports pids of that namespace. */
static void check_namespace(struct doctor *doctor)
{
	struct stat ns;

	if (stat("/proc/self/ns/pid", &ns))
		return;
	if (ns.st_ino == 0xeffffffcu) /* PROC_PID_INIT_INO */
		say(doctor, "pid namespace", OK, "the host's");
	else
		say(doctor, "pid namespace", NO,
		    "a container's; run the container with the host's (docker --pid=host, "
		    "hostPID)");
}

/* ---- trying it ------------------------------------------------------------------------- */

static void check_clock(struct doctor *doctor)
{
	int cycles = live_clock_try(true), clock = live_clock_try(false);

	if (clock)
		say(doctor, "clock", NO, "perf event cpu-clock: %s%s", strerror(-clock),
		    live_hint(clock));
	else if (cycles)
		say(doctor, "clock", OK, "cpu-clock (no hardware cycles here: %s)",
		    strerror(-cycles));
	else
		say(doctor, "clock", OK, "hardware cycles");
}

/* Check the perf events that report mappings and processes. */
static void check_sideband(struct doctor *doctor)
{
	char error[LIVE_ERROR_SIZE];
	struct live_sideband *sideband;

	if (live_sideband_open(false, &sideband, error)) {
		say(doctor, "mappings", NO, "%s", error);
		return;
	}
	if (live_sideband_build_ids(sideband))
		say(doctor, "mappings", OK, "the kernel reports each with its build-id");
	else
		say(doctor, "mappings", OK,
		    "the kernel reports each; build-ids are read from the files (this kernel "
		    "cannot report them, or that would spoil the records of other programs such as "
		    "perf)");
	live_sideband_free(sideband);
}

static void check_inventory(struct doctor *doctor)
{
	/*
	 * This never fails: without PROCMAP_QUERY the source reads /proc/PID/maps, and later the
	 * build-ids from the files.
	 */
	say(doctor, "running programs", OK, "%s",
	    live_procmap_query()
		    ? "/proc, with build-ids (PROCMAP_QUERY)"
		    : "/proc (no PROCMAP_QUERY before 6.11: build-ids from the files)");
}

/*
 * Load the programs that record what asked names. Return them, to be freed with live_bpf_free, and
 * *events, to be released with live_events_fini; or NULL with the reason in error.
 */
static struct live_bpf *try_programs(const struct source_live_options *asked,
				     struct live_events *events, uint32_t filters, char *error)
{
	const struct live_bpf_options options = { .ring_bytes = 1u << 20,
						  .events = events,
						  .filters = filters };
	struct live_bpf *bpf;

	if (live_events_of(asked, events, error))
		return NULL;
	if (!live_bpf_open(&options, &bpf, error))
		return bpf;
	live_events_fini(events);
	return NULL;
}

static void check_programs(struct doctor *doctor)
{
	const struct source_live_options asked = { .frequency_hz = 99, .off_cpu = true };
	char error[LIVE_ERROR_SIZE];
	struct live_events events;
	struct live_bpf *bpf = try_programs(&asked, &events, CAPTURE_FILTER_TASK, error);

	if (!bpf) {
		say(doctor, "capture program", NO, "%s", error);
		return;
	}
	if (live_bpf_follow(bpf, error))
		say(doctor, "capture program", PARTLY, "loads, but -p and COMMAND do not work: %s",
		    error);
	else
		say(doctor, "capture program", OK, "loads into the kernel, %s%s",
		    live_bpf_is_fallback(bpf)
			    ? "as fallback programs: no bpf_find_vma (new in 5.17); the ends of "
			      "stacks are "
			    : "as full programs: bpf_find_vma, task storage, attach cookies",
		    !live_bpf_is_fallback(bpf) ? ""
		    : live_bpf_vma_tree()      ? "found in the tree of VMAs"
					       : "guessed");
	if (live_bpf_attach(bpf, events.n - 1, -1, -1, error))
		say(doctor, "waiting threads", PARTLY, "--off-cpu does not work: %s", error);
	else
		say(doctor, "waiting threads", OK, "tp_btf/sched_switch");
	live_bpf_free(bpf);
	live_events_fini(&events);
}

/*
 * Try a uprobe at offset 0 of this program's own file. The ELF header there is never executed, so
 * the probe never fires.
 */
static void check_probes(struct doctor *doctor)
{
	const char *const probes[] = { "/proc/self/exe:0x0" };
	const struct source_live_options asked = { .probes = probes, .n_probes = 1 };
	const struct source_live_options allocs = { .alloc_interval = 1 };
	char error[LIVE_ERROR_SIZE];
	struct live_events events;
	struct live_bpf *bpf = try_programs(&asked, &events, 0, error);
	int err = bpf ? live_bpf_attach(bpf, 0, -1, -1, error) : -ENOTSUP; /* see error */

	if (err)
		say(doctor, "probes", PARTLY, "--uprobe does not work: %s", error);
	else
		say(doctor, "probes", OK, "uprobes");
	if (bpf) {
		live_bpf_free(bpf);
		live_events_fini(&events);
	}
	bpf = err ? NULL : try_programs(&allocs, &events, 0, error);
	if (!bpf) {
		say(doctor, "allocations", PARTLY, "--alloc does not work: %s", error);
		return;
	}
	say(doctor, "allocations", OK, "%s",
	    !live_bpf_without("uprobe_multi") && live_multi_supported()
		    ? "uprobes, one link for each file"
		    : "uprobes one by one (before 6.10: recordings end some tenths of a second "
		      "later)");
	live_bpf_free(bpf);
	live_events_fini(&events);
}

/*
 * Keep a CPU busy, because the clock ticks only on busy CPUs. This process's own ticks are
 * counted, although they are filtered out.
 */
static void work(uint64_t ms)
{
	uint64_t until = now_ns() + ms * MS;

	while (now_ns() < until)
		;
}

/* Record the system for 0.3 s. Return true if the clock ticked and no error occurred. */
static bool check_recording(struct doctor *doctor)
{
	const struct source_live_options options = { .frequency_hz = 999 };
	uint64_t n_samples = 0, n_mappings = 0, until;
	struct live_counters counters;
	char error[LIVE_ERROR_SIZE];
	struct source *source;
	struct event event;
	int rc = source_live_open(&options, &source, error);

	if (rc) {
		say(doctor, "recording", NO, "%s", error);
		return false;
	}
	until = now_ns() + 300 * MS;
	work(30);
	for (bool stopped = false;;) {
		if (!stopped && now_ns() >= until) {
			source_stop(source);
			stopped = true;
		}
		rc = source_next(source, &event, 50);
		if (rc == -EAGAIN)
			continue;
		if (rc <= 0)
			break;
		n_samples += event.type == EVENT_SAMPLE;
		n_mappings += event.type == EVENT_MAPPING;
	}
	if (!rc)
		rc = source_live_counters(source, -1, &counters);
	if (rc)
		say(doctor, "recording", NO, "%s",
		    source->error[0] ? source->error : strerror(-rc));
	else if (!counters.fired)
		say(doctor, "recording", NO,
		    "the clock did not tick once in 0.3 s; is perf_event_max_sample_rate 0, or "
		    "perf_cpu_time_max_percent?");
	else
		say(doctor, "recording", OK,
		    "0.3 s at 999 Hz: %" PRIu64 " samples, %" PRIu64 " mappings, %" PRIu64 " lost",
		    n_samples, n_mappings, counters.ring_full + counters.unreadable);
	source_close(source);
	return !rc && counters.fired;
}

/* ---- what else is of use --------------------------------------------------------------------- */

/* Return true if an executable of that name is in a directory of PATH. */
static bool installed(const char *program)
{
	const char *path = getenv("PATH");
	char file[4096];

	while (path && *path) {
		size_t n = strcspn(path, ":");

		(void)snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, program);
		if (!access(file, X_OK))
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

/* Report optional programs; a missing one is no fault. */
static void check_tools(struct doctor *doctor)
{
	say(doctor, "go tool pprof", OK, "%s",
	    installed("go") ? "installed"
			    : "not installed (optional: shows profiles; package golang-go)");
	say(doctor, "perf", OK, "%s",
	    installed("perf") ? "installed"
			      : "not installed (optional: makes recordings; package linux-perf)");
}

/* Print the conclusion of all checks. */
static void say_end(const struct doctor *doctor, bool works)
{
	if (doctor->json)
		(void)printf("\n]\n");
	else if (!works)
		(void)printf("\nRecording the live system does not work here: %s.\n",
			     doctor->partly);
	else if (doctor->n[PARTLY] + doctor->n[NO])
		(void)printf("\nRecording the live system works, except for: %s.\n",
			     doctor->partly);
	else
		(void)printf("\nRecording the live system works.\n");
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor doctor = { 0 };
	bool works = false, able;
	int rc = option_read(&option_table, argc, argv, &doctor);

	if (rc < 0)
		option_help(&option_table, stderr);
	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	if (optind != argc) {
		log_error("doctor: no argument expected, got \"%s\"", argv[optind]);
		return CMD_USAGE;
	}
	check_kernel(&doctor);
	check_btf(&doctor);
	able = check_capabilities(&doctor);
	check_namespace(&doctor);
	check_lockdown(&doctor);
	check_settings(&doctor, able);
	check_kallsyms(&doctor);
	check_inventory(&doctor);
	if (able) {
		check_clock(&doctor);
		check_sideband(&doctor);
		check_programs(&doctor);
		check_probes(&doctor);
		works = check_recording(&doctor);
	} else {
		/* Each of these checks would fail for the reason that was just reported. */
		say(&doctor, "recording", NO,
		    "not tried without these capabilities: sudo offwind record …, or once: sudo "
		    "setcap " RIGHTS_SETCAP "+ep FILE of offwind");
	}
	check_tools(&doctor);
	say_end(&doctor, works);
	return !works ? CMD_FAILED : doctor.n[PARTLY] + doctor.n[NO] ? CMD_PARTLY : CMD_DONE;
}

/* agent/live/system/decode.c: parses perf's names of events, tracepoints and probes. */
#include "agent/live/system/decode.h"

#include "agent/live/system/hint.h"
#include "agent/live/system/perf.h"
#include "schema/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

struct word { /* an entry of the list of event names in perf */
	const char *name, *other;
	uint32_t type;
	uint64_t config;
};

#define HARDWARE(name, other, config)                                   \
	{                                                               \
		name, other, PERF_TYPE_HARDWARE, PERF_COUNT_HW_##config \
	}
#define SOFTWARE(name, other, config)                                   \
	{                                                               \
		name, other, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_##config \
	}

static const struct word words[] = {
	HARDWARE("cycles", "cpu-cycles", CPU_CYCLES),
	HARDWARE("instructions", NULL, INSTRUCTIONS),
	HARDWARE("cache-references", NULL, CACHE_REFERENCES),
	HARDWARE("cache-misses", NULL, CACHE_MISSES),
	HARDWARE("branches", "branch-instructions", BRANCH_INSTRUCTIONS),
	HARDWARE("branch-misses", NULL, BRANCH_MISSES),
	HARDWARE("bus-cycles", NULL, BUS_CYCLES),
	HARDWARE("stalled-cycles-frontend", "idle-cycles-frontend", STALLED_CYCLES_FRONTEND),
	HARDWARE("stalled-cycles-backend", "idle-cycles-backend", STALLED_CYCLES_BACKEND),
	HARDWARE("ref-cycles", NULL, REF_CPU_CYCLES),
	SOFTWARE("cpu-clock", NULL, CPU_CLOCK),
	SOFTWARE("task-clock", NULL, TASK_CLOCK),
	SOFTWARE("page-faults", "faults", PAGE_FAULTS),
	SOFTWARE("minor-faults", NULL, PAGE_FAULTS_MIN),
	SOFTWARE("major-faults", NULL, PAGE_FAULTS_MAJ),
	SOFTWARE("context-switches", "cs", CONTEXT_SWITCHES),
	SOFTWARE("cpu-migrations", "migrations", CPU_MIGRATIONS),
	SOFTWARE("alignment-faults", NULL, ALIGNMENT_FAULTS),
	SOFTWARE("emulation-faults", NULL, EMULATION_FAULTS),
};

/* Return whether the event measures time. */
static bool is_clock(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && (attr->config == PERF_COUNT_SW_CPU_CLOCK ||
						    attr->config == PERF_COUNT_SW_TASK_CLOCK);
}

/*
 * Parse the name of a cache event such as "L1-dcache-load-misses": cache, operation, result. See
 * perf_event_open(2), PERF_TYPE_HW_CACHE.
 */
static bool cache_word(const char *name, struct perf_event_attr *attr)
{
	static const char *const caches[] = { "L1-dcache", "L1-icache", "LLC", "dTLB",
					      "iTLB",	   "branch",	"node" };
	static const char *const uses[] = { "-load", "-store", "-prefetch" };
	static const char *const plural[] = { "s", "s", "es" };

	for (uint64_t c = 0; c < sizeof(caches) / sizeof(caches[0]); c++) {
		const char *rest = name + strlen(caches[c]);

		if (strncmp(name, caches[c], strlen(caches[c])) != 0)
			continue;
		for (uint64_t u = 0; u < sizeof(uses) / sizeof(uses[0]); u++) {
			const char *result = rest + strlen(uses[u]);
			bool missed;

			if (strncmp(rest, uses[u], strlen(uses[u])) != 0)
				continue;
			missed = !strcmp(result, "-misses");
			if (!missed && strcmp(result, plural[u]) != 0)
				continue;
			attr->type = PERF_TYPE_HW_CACHE;
			attr->config = c | u << 8 | (uint64_t)missed << 16;
			return true;
		}
	}
	return false;
}

/* Parse a name in the list, of a cache event, or of a raw event such as "r01c2". */
static bool known_word(const char *name, struct perf_event_attr *attr)
{
	char *end;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(name, words[i].name) != 0 &&
		    (!words[i].other || strcmp(name, words[i].other) != 0))
			continue;
		attr->type = words[i].type;
		attr->config = words[i].config;
		return true;
	}
	if (cache_word(name, attr))
		return true;
	if (name[0] != 'r' || !name[1] || strspn(name + 1, "0123456789abcdefABCDEF") > 16)
		return false;
	attr->config = strtoull(name + 1, &end, 16);
	attr->type = PERF_TYPE_RAW;
	return !*end;
}

/*
 * Parse the modifiers after an event's colon: u, k and h select modes; each p makes the sample's pc
 * more precise (perf_event_open(2), precise_ip).
 */
static bool modifiers(const char *text, struct perf_event_attr *attr)
{
	bool user = strchr(text, 'u'), kernel = strchr(text, 'k'), hypervisor = strchr(text, 'h');
	uint32_t precise = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (!strchr("ukhp", *text))
			return false;
		precise += *text == 'p';
	}
	if (precise > 3)
		return false;
	if (user || kernel || hypervisor) {
		attr->exclude_user = !user;
		attr->exclude_kernel = !kernel;
		attr->exclude_hv = !hypervisor;
	}
	attr->precise_ip = precise & 3;
	return true;
}

/* ---- tracepoints -------------------------------------------------------------- */

/* The directory of tracepoints, if tracefs is not mounted; -1: it is mounted, or cannot be. */
static int tracefs = -1;

/* Open the directory of tracepoints where it is mounted. Return a descriptor; -1: it is not. */
static int open_mounted(void)
{
	static const char *const places[] = { "/sys/kernel/tracing/events",
					      "/sys/kernel/debug/tracing/events" };
	int fd = -1;

	for (size_t i = 0; fd < 0 && i < sizeof(places) / sizeof(places[0]); i++)
		fd = open(places[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd;
}

/* Mount tracefs for this process alone, as long as the directory is open that is returned. */
static int mount_tracefs(void)
{
	int fd, context, mount, err;

	context = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (context < 0)
		return -errno;
	if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ||
	    (mount = fsmount(context, FSMOUNT_CLOEXEC, 0)) < 0) {
		err = -errno;
		(void)close(context);
		return err;
	}
	(void)close(context);
	fd = openat(mount, "events", O_PATH | O_DIRECTORY | O_CLOEXEC);
	err = fd < 0 ? -errno : fd;
	(void)close(mount);
	return err;
}

void live_tracepoints_keep(void)
{
	int fd = open_mounted();

	if (fd >= 0)
		(void)close(fd);
	else
		tracefs = mount_tracefs();
}

/* Open the directory of tracepoints, whether tracefs is mounted or not. Return a descriptor. */
static int open_tracefs(void)
{
	int fd = open_mounted();

	if (fd >= 0)
		return fd;
	if (tracefs < 0)
		return mount_tracefs();
	fd = fcntl(tracefs, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

/*
 * Read the number of a tracepoint. -ENOENT: there is no such tracepoint; -EINVAL: not a valid name.
 */
static int tracepoint_id(const char *system, const char *name, uint64_t *id)
{
	char path[256], text[32] = "";
	int directory, fd, err = -EINVAL;
	ssize_t n;

	if (strchr(name, '/') || strchr(system, '/') || system[0] == '.' || name[0] == '.' ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s/id", system, name) >= sizeof(path))
		return err;
	directory = open_tracefs();
	if (directory < 0)
		return directory;
	fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	err = fd < 0 ? -errno : 0;
	(void)close(directory);
	if (err)
		return err;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (n <= 0)
		return -EBADMSG;
	*id = strtoull(text, NULL, 10);
	return *id ? 0 : -EBADMSG;
}

/* ---- one word of the command line ------------------------------------------------ */

/* Append an event with default attributes. -E2BIG: the list is full. */
static int grow(struct live_events *list, struct live_event **out)
{
	struct live_event *bigger;

	if (list->n == CAPTURE_EVENTS_MAX)
		return -E2BIG;
	bigger = reallocarray(list->events, list->n + 1, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	list->events = bigger;
	*out = &bigger[list->n++];
	**out = (struct live_event){
		.attr = { .size = sizeof(struct perf_event_attr), .disabled = 1 }, .every = 1
	};
	return 0;
}

/* Set the name, the type and the unit of an event's samples. */
static void name_event(struct live_event *e, const char *name)
{
	bool time = e->kind == LIVE_EVENT_SAMPLED && is_clock(&e->attr);

	(void)snprintf(e->info.name, sizeof(e->info.name), "%s", name);
	(void)snprintf(e->info.type, sizeof(e->info.type), "%.31s", time ? "cpu" : name);
	(void)snprintf(e->info.unit, sizeof(e->info.unit), "%s", time ? "nanoseconds" : "count");
}

/* Return whether kernel code counts this event, one occurrence at a time. */
static bool is_counted(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && !is_clock(attr);
}

/*
 * Set the period or the frequency of an event. Clocks get a period. For hardware counters the
 * kernel adapts the period to the frequency. For its software counters the BPF program sees each
 * occurrence, because the kernel's periods would not add up to the number of occurrences.
 */
static void set_rate(struct live_event *e, const struct source_live_options *options)
{
	uint32_t hz = options->frequency_hz;

	e->attr.exclude_idle = 1;
	e->attr.exclude_guest = 1;
	if (options->count)
		e->attr.sample_period = options->count;
	else if (is_clock(&e->attr))
		e->attr.sample_period = 1000000000u / hz;
	if (e->attr.sample_period) {
		e->info.period = e->attr.sample_period;
	} else if (is_counted(&e->attr)) {
		e->attr.sample_period = 1;
		e->paced = true;
	} else {
		e->attr.freq = 1;
		e->attr.sample_freq = hz;
	}
	if (!options->count)
		e->info.frequency_hz = hz;
}

/* Complete the event for a tracepoint. On failure error says why. */
static int add_tracepoint(struct live_event *e, char *system, char *name,
			  const struct source_live_options *options, char *error)
{
	uint64_t id;
	int err = tracepoint_id(system, name, &id);

	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "event %s:%s: %s%s", system, name,
			       err == -ENOENT ? "there is no such tracepoint" : strerror(-err),
			       live_hint(err));
		return err == -ENOENT ? -EINVAL : err;
	}
	e->kind = LIVE_EVENT_TRACEPOINT;
	e->attr.type = PERF_TYPE_TRACEPOINT;
	e->attr.config = id;
	e->attr.sample_period = 1;
	if (options->count)
		e->every = options->count < UINT32_MAX ? (uint32_t)options->count : UINT32_MAX;
	e->info.period = e->every;
	return 0;
}

/* Parse one event name and append the event. */
static int add_word(struct live_events *list, const char *word,
		    const struct source_live_options *options, char *error)
{
	struct live_event *e;
	char *name, *colon;
	int err = grow(list, &e);

	name = err ? NULL : strdup(word);
	if (!name) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "event %s: %s", word,
			       err == -E2BIG ? "too many events" : strerror(ENOMEM));
		return err ? err : -ENOMEM;
	}
	colon = strchr(name, ':');
	if (colon)
		*colon++ = '\0';
	if (known_word(name, &e->attr)) {
		if (colon && !modifiers(colon, &e->attr)) {
			(void)snprintf(error, LIVE_ERROR_SIZE,
				       "event %s: only u, k, h and p may follow the colon", word);
			err = -EINVAL;
		}
		set_rate(e, options);
	} else if (colon && *name && *colon) {
		err = add_tracepoint(e, name, colon, options, error);
	} else {
		(void)snprintf(error, LIVE_ERROR_SIZE,
			       "event %s: not known; `perf list` shows the names of events", word);
		err = -EINVAL;
	}
	name_event(e, word);
	free(name);
	return err;
}

/* Parse event names that are separated by commas, as in perf. */
static int add_words(struct live_events *list, const char *text,
		     const struct source_live_options *options, char *error)
{
	char *copy = strdup(text), *rest = copy, *word;
	int err = copy ? 0 : -ENOMEM;

	while (!err && (word = strsep(&rest, ",")))
		err = add_word(list, word, options, error);
	free(copy);
	return err;
}

/*
 * Parse a probe: "FILE:SYMBOL", "FILE:SYMBOL+OFF" or "FILE:OFF". The file's name may contain
 * colons.
 */
static int add_probe(struct live_events *list, const char *text,
		     const struct source_live_options *options, char *error)
{
	const char *colon = strrchr(text, ':');
	struct live_event *e;
	char *plus, *end;
	int err;

	if (!colon || colon == text || !colon[1]) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "probe %s: must be FILE:FUNCTION", text);
		return -EINVAL;
	}
	err = grow(list, &e);
	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "probe %s: %s", text, strerror(-err));
		return err;
	}
	e->kind = LIVE_EVENT_PROBE;
	e->file = strndup(text, (size_t)(colon - text));
	e->symbol = strdup(colon + 1);
	if (!e->file || !e->symbol) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "probe %s: %s", text, strerror(ENOMEM));
		return -ENOMEM;
	}
	if (options->count)
		e->every = options->count < UINT32_MAX ? (uint32_t)options->count : UINT32_MAX;
	e->info.period = e->every;
	name_event(e, colon + 1);
	plus = strchr(e->symbol, '+');
	if (plus)
		*plus++ = '\0';
	else if (e->symbol[0] >= '0' && e->symbol[0] <= '9')
		plus = e->symbol;
	if (!plus)
		return 0;
	errno = 0;
	e->off = strtoull(plus, &end, 0);
	if (errno || *end || end == plus) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "probe %s: '%s' is not a number", text,
			       plus);
		return -EINVAL;
	}
	if (plus == e->symbol) {
		free(e->symbol);
		e->symbol = NULL;
	}
	return 0;
}

/* Append the event of waiting threads. */
static int add_waiting(struct live_events *list, char *error)
{
	struct live_event *e;
	int err = grow(list, &e);

	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "--off-cpu: %s", strerror(-err));
		return err;
	}
	e->kind = LIVE_EVENT_OFF_CPU;
	e->info = (struct source_event){ .name = "off-cpu",
					 .type = SOURCE_OFF_CPU,
					 .unit = "nanoseconds" };
	return 0;
}

/* Append the event of allocations, with the mean distance between captured bytes. */
static int add_allocations(struct live_events *list, uint64_t interval, char *error)
{
	struct live_event *e;
	int err = grow(list, &e);

	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "--alloc: %s", strerror(-err));
		return err;
	}
	e->kind = LIVE_EVENT_ALLOC;
	e->info = (struct source_event){
		.name = "alloc", .type = SOURCE_ALLOC, .unit = "bytes", .period = interval
	};
	return 0;
}

int live_events_of(const struct source_live_options *options, struct live_events *out, char *error)
{
	struct live_events list = { 0 };
	int err = 0;

	for (size_t i = 0; !err && i < options->n_events; i++)
		err = add_words(&list, options->events[i], options, error);
	for (size_t i = 0; !err && i < options->n_probes; i++)
		err = add_probe(&list, options->probes[i], options, error);
	/* The time spent waiting cannot be added to cycles. */
	if (!err && !list.n && (options->off_cpu || !options->alloc_interval))
		err = add_word(&list,
			       options->off_cpu || live_clock_try(true) ? "cpu-clock" : "cycles",
			       options, error);
	if (!err && options->off_cpu)
		err = add_waiting(&list, error);
	if (!err && options->alloc_interval)
		err = add_allocations(&list, options->alloc_interval, error);
	if (err) {
		live_events_fini(&list);
		return err;
	}
	*out = list;
	return 0;
}

bool live_events_set_rate(struct live_events *events, uint32_t frequency_hz)
{
	const struct source_live_options options = { .frequency_hz = frequency_hz };
	bool any = false;

	for (size_t i = 0; i < events->n; i++) {
		struct live_event *e = &events->events[i];

		if (e->kind != LIVE_EVENT_SAMPLED || !e->info.frequency_hz ||
		    e->info.frequency_hz == frequency_hz)
			continue;
		e->attr.sample_period = e->attr.freq = 0;
		e->info.period = 0;
		set_rate(e, &options);
		any = true;
	}
	return any;
}

void live_events_fini(struct live_events *events)
{
	for (size_t i = 0; i < events->n; i++) {
		free(events->events[i].file);
		free(events->events[i].symbol);
	}
	free(events->events);
	*events = (struct live_events){ 0 };
}

int live_clock_try(bool hardware)
{
	const struct source_live_options options = { .frequency_hz = 99 };
	struct live_event e = { .attr = { .size = sizeof(e.attr), .disabled = 1 } };
	int *cpus, fd, err;
	size_t n;

	(void)known_word(hardware ? "cycles" : "cpu-clock", &e.attr);
	set_rate(&e, &options);
	err = live_cpus_online(&cpus, &n);
	if (err)
		return err;
	/* CPUs may differ; all of them must support the event. */
	for (size_t i = 0; !err && i < n; i++) {
		fd = live_perf_open(&e.attr, cpus[i]);
		if (fd >= 0)
			(void)close(fd);
		else if (fd != -ENODEV) /* ENODEV: it has gone offline since the list was read */
			err = fd;
	}
	free(cpus);
	return err;
}

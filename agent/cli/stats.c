/* agent/cli/stats.c: statistics of a recording, as text and as JSON. */
#include "agent/cli/stats.h"

#include "agent/export/json.h"
#include "agent/export/output.h"
#include "agent/limits.h"
#include "agent/live/live.h"
#include "agent/log.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen { /* a CPU's samples */
	uint64_t stop[UW_STOP_N];
	uint64_t written;
};

struct stats {
	struct source *source;
	struct seen *seen; /* by CPU */
	int n_cpus;
	uint64_t not_written;
	struct stats_event *events; /* one for each event of the source */
};

int stats_new(struct source *source, struct stats **out)
{
	struct stats *stats = calloc(1, sizeof(*stats));

	if (!stats)
		return -ENOMEM;
	stats->source = source;
	stats->n_cpus = source_live_n_cpus(source);
	stats->seen = calloc((size_t)stats->n_cpus, sizeof(*stats->seen));
	stats->events = calloc(source->info.n_events + 1, sizeof(*stats->events));
	if (!stats->seen || !stats->events) {
		stats_free(stats);
		return -ENOMEM;
	}
	*out = stats;
	return 0;
}

void stats_free(struct stats *stats)
{
	if (!stats)
		return;
	free(stats->events);
	free(stats->seen);
	free(stats);
}

const struct stats_event *stats_events(const struct stats *stats)
{
	return stats->events;
}

/*
 * Return the counters of the sample's CPU. Samples from a CPU that the source does not know count
 * for the first CPU, as in the source.
 */
static struct seen *seen_at(struct stats *stats, const struct event *event)
{
	uint32_t cpu = event->sample.cpu;

	return &stats->seen[cpu < (uint32_t)stats->n_cpus ? cpu : 0];
}

static void count(struct stats *stats, const struct event *event)
{
	struct stats_event *e = &stats->events[event->sample.event];

	e->samples++;
	e->sum += event->sample.period;
}

void stats_walked(struct stats *stats, const struct event *event, enum uw_stop stop)
{
	seen_at(stats, event)->stop[stop]++;
	count(stats, event);
}

void stats_written(struct stats *stats, const struct event *event)
{
	seen_at(stats, event)->written++;
	count(stats, event);
}

void stats_not_written(struct stats *stats, uint64_t n)
{
	stats->not_written += n;
}

/* Append a number and what it counts, if it is not 0. */
static void put(char *out, size_t size, const char *what, uint64_t n, const char **separator)
{
	if (!n)
		return;
	textbuf_add(out, size, "%s%s %" PRIu64, *separator, what, n);
	*separator = ", ";
}

/* Count a wait that was too short as filtered: it was not asked for. */
void stats_text(struct stats *stats, char *out, size_t size)
{
	const char *separator = " (";
	struct live_counters c;
	uint64_t filtered;

	out[0] = '\0';
	if (source_live_counters(stats->source, -1, &c))
		return;
	filtered = c.filtered + c.off_cpu_short;
	(void)snprintf(out, size, "fired %" PRIu64 " = filtered %" PRIu64, c.fired, filtered);
	put(out, size, "idle", c.filtered_idle, &separator);
	put(out, size, "self", c.filtered_self, &separator);
	put(out, size, "process", c.filtered_process, &separator);
	put(out, size, "other", c.filtered_other, &separator);
	put(out, size, "cgroup", c.filtered_cgroup, &separator);
	put(out, size, "period", c.filtered_period, &separator);
	put(out, size, "failed", c.filtered_failed, &separator);
	put(out, size, "short_wait", c.off_cpu_short, &separator);
	(void)snprintf(out + strlen(out), size - strlen(out), "%s + captured %" PRIu64,
		       filtered ? ")" : "", c.fired - filtered);
}

void stats_off_cpu_text(struct stats *stats, char *out, size_t size)
{
	const char *separator = " (";
	struct live_counters c;
	uint64_t lost;

	out[0] = '\0';
	if (source_live_counters(stats->source, -1, &c) || !c.off_cpu)
		return;
	lost = c.off_cpu_uncaptured + c.no_room + c.unended;
	(void)snprintf(out, size,
		       "waits %" PRIu64 " = ended %" PRIu64 " + too short %" PRIu64
		       " + not sampled %" PRIu64 " + still waiting at the end %" PRIu64
		       " + lost %" PRIu64,
		       c.off_cpu, c.off_cpu_ended, c.off_cpu_short, c.off_cpu_skipped,
		       c.still_waiting, lost);
	put(out, size, "uncaptured", c.off_cpu_uncaptured, &separator);
	put(out, size, "no_room", c.no_room, &separator);
	put(out, size, "end_unknown", c.unended, &separator);
	if (lost)
		(void)snprintf(out + strlen(out), size - strlen(out), ")");
}

struct field {
	const char *name;
	uint64_t n;
};

/* Write a JSON object of numbers. */
static void fields(FILE *out, const char *name, const struct field *f, size_t n)
{
	(void)fprintf(out, "\"%s\": {", name);
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", f[i].name, f[i].n);
	(void)fprintf(out, "}");
}

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Write the members of one CPU; cpu -1: of all CPUs. Return 0 or a negative code. */
static int write_one(struct stats *stats, FILE *out, int cpu)
{
	struct field stops[UW_STOP_N];
	struct seen seen = { 0 };
	struct live_counters c;
	uint64_t counted;
	int err = source_live_counters(stats->source, cpu, &c);

	if (err)
		return err;
	for (int i = 0; i < stats->n_cpus; i++) {
		if (cpu >= 0 && i != cpu)
			continue;
		for (size_t j = 0; j < UW_STOP_N; j++)
			seen.stop[j] += stats->seen[i].stop[j];
		seen.written += stats->seen[i].written;
	}
	counted = seen.written;
	for (size_t j = 0; j < UW_STOP_N; j++)
		counted += seen.stop[j];
	for (size_t j = 0; j < UW_STOP_N; j++)
		stops[j] = (struct field){ uw_stop_name((enum uw_stop)j), seen.stop[j] };

	const struct field filtered[] = {
		{ "idle", c.filtered_idle },	   { "self", c.filtered_self },
		{ "process", c.filtered_process }, { "other", c.filtered_other },
		{ "cgroup", c.filtered_cgroup },   { "period", c.filtered_period },
		{ "failed", c.filtered_failed },   { "short_wait", c.off_cpu_short },
	};
	/* What a worker was given that died, or whose stacks no worker walks any more. */
	const uint64_t crashed = c.delivered > counted ? c.delivered - counted : 0;
	const struct field lost[] = { { "ring_full", c.ring_full + c.no_room },
				      { "unreadable", c.unreadable },
				      { "damaged", c.damaged },
				      { "wait_end", c.unended },
				      { "crashed", crashed } };
	const struct field off_cpu[] = {
		{ "begun", c.off_cpu },
		{ "ended", c.off_cpu_ended },
		{ "too_short", c.off_cpu_short },
		{ "not_sampled", c.off_cpu_skipped },
		{ "still_waiting", c.still_waiting },
		{ "uncaptured", c.off_cpu_uncaptured },
		{ "no_room", c.no_room },
		{ "end_unknown", c.unended },
	};
	const struct field wakes[] = { { "seen_late", c.wakes_unseen },
				       { "waker_unknown", c.unwoken },
				       { "ring_full", c.wakes_lost } };
	const struct field wakers[] = { { "seen", c.wakers },
					{ "captured", c.wakers_captured },
					{ "too_short", c.wakers_short },
					{ "not_selected", c.wakers_other },
					{ "ring_full", c.wakers_full },
					{ "unreadable", c.wakers_unreadable } };
	const struct field captured[] = { { "samples", c.captured },
					  { "bytes", c.bytes },
					  { "stack_bytes", c.stack_bytes },
					  { "truncated_at_cap", c.cut },
					  { "holes", c.holes } };
	const struct field tops[] = {
		{ "cached", c.top_cached }, { "start_stack", c.top_start }, { "tls", c.top_tls },
		{ "go", c.top_go },	    { "signal", c.top_signal },	    { "vma", c.top_vma },
		{ "none", c.top_none },	    { "find_vma", c.find_vma },
	};
	const struct field frees[] = { { "reported", c.frees },
				       { "ring_full", c.frees_lost },
				       { "table_full", c.untracked } };

	if (cpu >= 0)
		(void)fprintf(out, "\"cpu\": %d, ", cpu);
	(void)fprintf(out, "\"fired\": %" PRIu64 ", ", c.fired);
	fields(out, "filtered", filtered, N(filtered));
	(void)fprintf(out, ", ");
	fields(out, "lost", lost, N(lost));
	(void)fprintf(out, ", \"waiting\": %" PRIu64 ", ", c.waiting);
	if (seen.written)
		(void)fprintf(out, "\"written\": %" PRIu64 ", ", seen.written);
	fields(out, "unwound", stops, N(stops));
	(void)fprintf(out, ", ");
	fields(out, "captured", captured, N(captured));
	(void)fprintf(out, ", ");
	fields(out, "stack_ends", tops, N(tops));
	(void)fprintf(out, ", ");
	fields(out, "waits", off_cpu, N(off_cpu));
	(void)fprintf(out, ", ");
	fields(out, "wakes", wakes, N(wakes));
	(void)fprintf(out, ", ");
	fields(out, "wakers", wakers, N(wakers));
	(void)fprintf(out, ", ");
	fields(out, "frees", frees, N(frees));
	return 0;
}

/* Write the array of events. "counted" is how often an event occurred, if the source knows it. */
static void write_events(struct stats *stats, FILE *out)
{
	const struct source_info *info = &stats->source->info;
	uint64_t counted;

	(void)fprintf(out, ",\n \"events\": [");
	for (size_t i = 0; i < info->n_events; i++) {
		(void)fprintf(out, "%s{\"name\": ", i ? ", " : "");
		json_text(out, info->events[i].name);
		(void)fprintf(out, ", \"samples\": %" PRIu64 ", \"sum\": %" PRIu64,
			      stats->events[i].samples, stats->events[i].sum);
		if (!source_live_counted(stats->source, i, &counted))
			(void)fprintf(out, ", \"counted\": %" PRIu64, counted);
		(void)fprintf(out, "}");
	}
	(void)fprintf(out, "]");
}

/* Write how often each limit was reached: things refused, or unused things that went. */
static void write_limits(FILE *out)
{
	size_t n;
	const struct limits_row *rows = limits_rows(&n);

	(void)fprintf(out, ",\n \"limits\": {");
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "%s\"%s\": %" PRIu64, i ? ", " : "", rows[i].name,
			      limits_count(&rows[i]));
	(void)fprintf(out, "}");
}

/*
 * Write the whole JSON document. CPUs on which nothing fired are left out. Return 0 or a negative
 * code.
 */
static int write_all(struct stats *stats, const struct pipeline_reuse *reuse, FILE *out)
{
	const struct field reused[] = {
		{ "samples", reuse->n_samples },     { "frames_walked", reuse->n_walked },
		{ "frames_taken", reuse->n_taken },  { "verified", reuse->n_verified },
		{ "differing", reuse->n_differing },
	};
	const struct field interpreted[] = { { "samples", reuse->n_interpreted },
					     { "incomplete", reuse->n_incomplete } };
	const struct field labels[] = { { "samples", reuse->n_labelled },
					{ "changing", reuse->n_changing },
					{ "unreadable", reuse->n_unreadable } };
	struct live_totals totals;
	const char *separator = "";
	int err;

	err = source_live_totals(stats->source, &totals);
	if (err)
		return err;
	(void)fprintf(out, "{\"total\": {");
	err = write_one(stats, out, -1);
	(void)fprintf(out,
		      "},\n \"sideband\": {\"records\": %" PRIu64 ", \"lost\": %" PRIu64
		      ", \"late\": %" PRIu64 "},\n \"in_ring_ns\": %" PRIu64
		      ",\n \"allocators\": %" PRIu64 ",\n \"program\": {\"runs\": %" PRIu64
		      ", \"ns\": %" PRIu64 "},\n ",
		      totals.sideband, totals.sideband_lost, totals.late, totals.in_ring_ns,
		      totals.allocators, totals.runs, totals.run_ns);
	fields(out, "reuse", reused, N(reused));
	(void)fputs(",\n ", out);
	fields(out, "interpreted", interpreted, N(interpreted));
	(void)fputs(",\n ", out);
	fields(out, "thread_labels", labels, N(labels));
	write_limits(out);
	write_events(stats, out);
	if (stats->not_written)
		(void)fprintf(out, ",\n \"not_written\": %" PRIu64, stats->not_written);
	(void)fprintf(out, ",\n \"cpus\": [");
	separator = "";
	for (int cpu = 0; !err && cpu < stats->n_cpus; cpu++) {
		struct live_counters c;

		err = source_live_counters(stats->source, cpu, &c);
		if (err || !c.fired)
			continue;
		(void)fprintf(out, "%s\n  {", separator);
		err = write_one(stats, out, cpu);
		(void)fprintf(out, "}");
		separator = ",";
	}
	(void)fprintf(out, "]}\n");
	return err;
}

int stats_write(struct stats *stats, const struct pipeline_reuse *reuse, const char *path)
{
	struct output out;
	int err = output_open(&out, path);

	if (err)
		return err; /* output_open reported it */
	err = output_file(&out) ? write_all(stats, reuse, out.file) : -ENOMEM;
	if (err)
		log_unwritable(path, err);
	else
		err = output_commit(&out);
	output_abort(&out);
	return err;
}

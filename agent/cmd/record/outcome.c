/* agent/cmd/record/outcome.c: warnings and the summary at the end of a recording. */
#include "agent/cmd/record/outcome.h"

#include "agent/log.h"
#include "agent/textbuf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	LOST_SHARE = 1000, /* one lost sample in so many gives a warning */
	CUT_SHARE = 100,   /* … and one cut stack in so many */
	FEW = 20, /* with fewer samples than this, their sum may well be wrong by a quarter */
};

static double percent(uint64_t part, uint64_t whole)
{
	return 100 * (double)part / (double)whole;
}

/*
 * Return the number of stacks that lack frames because they were larger than the copy. Where the end of a stack is not
 * known, such as a goroutine's, the copy may be cut behind the outermost frame.
 */
static uint64_t lack_frames(const struct accounting *total)
{
	uint64_t truncated = total->stop[UW_STOP_TRUNCATED];

	return total->unwound && truncated < total->cut ? truncated : total->cut;
}

void outcome_warn(const struct accounting *total)
{
	uint64_t lack = lack_frames(total);
	uint64_t full = total->lost[EVENT_LOST_RING_FULL];
	uint64_t unreadable = total->lost[EVENT_LOST_UNREADABLE];

	if (full && full >= total->captured / LOST_SHARE)
		log_warning("%.3g %% of the samples were lost (%" PRIu64 " of %" PRIu64
			    "), because offwind could not keep up: lower the rate (-F), enlarge "
			    "the buffer (-m 64M), raise the priority (-r 1), or record less (-p, "
			    "--comm, -C)",
			    percent(full, total->captured), full, total->captured);
	if (unreadable && unreadable >= total->captured / CUT_SHARE)
		log_warning("%.3g %% of the samples were lost (%" PRIu64 " of %" PRIu64
			    "), because the kernel could not read their threads' registers or "
			    "stacks",
			    percent(unreadable, total->captured), unreadable, total->captured);
	if (total->sideband_lost)
		log_warning("%" PRIu64 " records of mappings and processes were lost: some "
			    "functions may have no names; raise the priority (-r 1)",
			    total->sideband_lost);
	if (lack && lack >= total->captured / CUT_SHARE)
		log_warning("%" PRIu64 " of %" PRIu64
			    " stacks were larger than the copy and lack their outermost frames: "
			    "raise --stack-max, up to 1M",
			    lack, total->captured);
}

void outcome_warn_rough(const struct source_info *info, const struct stats_event *events)
{
	for (size_t i = 0; i < info->n_events; i++) {
		const struct source_event *e = &info->events[i];
		uint64_t n = events[i].samples;

		/*
		 * A wait has its own duration, and a clock's samples are its time. If the sum is
		 * the number of samples, each occurrence was a sample.
		 */
		if (!n || !strcmp(e->type, "cpu") || n >= FEW || events[i].sum == n ||
		    !strcmp(e->type, SOURCE_OFF_CPU))
			continue;
		log_warning("only %" PRIu64 " %s of %s: its figures are rough; record longer, or "
			    "take more samples (%s)",
			    n, n == 1 ? "sample" : "samples", e->name,
			    !strcmp(e->type, SOURCE_ALLOC) ? "--alloc with fewer bytes"
			    : e->frequency_hz		   ? "a higher -F"
							   : "a lower -c");
	}
}

/* Append a number and what it counts, if it is not 0. */
static void add(char *text, size_t size, uint64_t n, const char *what)
{
	if (n)
		textbuf_add(text, size, "%s%" PRIu64 " %s", *text ? ", " : "", n, what);
}

void outcome_warn_empty(const struct live_counters *c)
{
	char why[512] = "";

	add(why, sizeof(why), c->filtered_process, "in processes that were not selected");
	add(why, sizeof(why), c->filtered_other,
	    "in threads whose name, user or CPU was not selected");
	add(why, sizeof(why), c->filtered_cgroup, "in cgroups that were not selected");
	add(why, sizeof(why), c->filtered_idle, "on idle CPUs");
	add(why, sizeof(why), c->filtered_self, "in offwind itself");
	add(why, sizeof(why), c->filtered_period, "between the events that are sampled");
	add(why, sizeof(why), c->filtered_failed, "of allocations that failed");
	add(why, sizeof(why), c->off_cpu_short, "of waits shorter than the minimum of --off-cpu");
	if (c->fired)
		log_warning("no samples were recorded: the event occurred %" PRIu64 " times: %s",
			    c->fired, why);
	else
		log_warning("no samples were recorded: the event did not occur");
}

/* Format n with commas between groups of three digits. Return out. */
static const char *grouped(uint64_t n, char out[32])
{
	char digits[24];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n), used = 0;

	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			out[used++] = ',';
		out[used++] = digits[i];
	}
	out[used] = '\0';
	return out;
}

/* Append a time in seconds, with three digits or all of those before the point: "0.25 s", "13.5 s", "1284 s". */
static void put_seconds(char *text, size_t size, const char *before, uint64_t ns)
{
	double seconds = (double)ns / 1e9;

	textbuf_add(text, size, seconds < 999.5 ? "%s%.3g s" : "%s%.0f s", before, seconds);
}

/* Append the times that were recorded: ", 13.5 s of CPU, 60.1 s of waiting". */
static void put_values(char *text, size_t size, const struct outcome *o)
{
	for (size_t i = 0; i < o->info->n_events && i < OUTCOME_EVENTS; i++) {
		const struct source_event *e = &o->info->events[i];

		if (!o->values[i] || strcmp(e->unit, "nanoseconds") != 0)
			continue;
		put_seconds(text, size, ", ", o->values[i]);
		textbuf_add(text, size, " of %s",
			    !strcmp(e->type, "cpu")	       ? "CPU"
			    : !strcmp(e->type, SOURCE_OFF_CPU) ? "waiting"
							       : e->type);
	}
}

void outcome_say(const struct outcome *o)
{
	const struct accounting *a = o->total;
	uint64_t lost = 0, root = a->stop[UW_STOP_ROOT];
	char text[1024] = "", number[32];

	for (size_t i = 0; i < EVENT_LOST_N; i++)
		lost += a->lost[i];
	textbuf_add(text, sizeof(text), "%s sample%s", grouped(a->captured, number),
		    a->captured == 1 ? "" : "s");
	put_values(text, sizeof(text), o);
	put_seconds(text, sizeof(text), " in ", o->duration_ns);
	if (lost)
		textbuf_add(text, sizeof(text), ", %s lost", grouped(lost, number));
	else
		textbuf_add(text, sizeof(text), ", none lost");
	/* Round down, so that 999 whole stacks of 1,000 are 99.9 %, and never 100 %. */
	if (o->walked && a->unwound)
		textbuf_add(text, sizeof(text), ", %g %% whole stacks",
			    (double)(root * 1000 / a->unwound) / 10);
	if (o->path && strcmp(o->path, "-") != 0)
		textbuf_add(text, sizeof(text), " → %s", o->path);
	if (o->path && strcmp(o->path, "-") != 0 && (!o->walked || o->format == FORMAT_PPROF))
		textbuf_add(text, sizeof(text), "; see: offwind report %s", o->path);
	log_info("%s", text);
}

/* agent/http/api_metrics.c: metrics in the text format of Prometheus. */
#include "agent/http/api_internal.h"

#include "agent/event.h"
#include "agent/http/recording.h"
#include "agent/role/cost.h"
#include "agent/role/sending.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static const struct {
	const char *what, *name, *label, *help;
} families[] = {
	{ "fired", "offwind_events_fired_total", NULL, "Sampling events that occurred." },
	{ "filtered", "offwind_events_filtered_total", "reason",
	  "Events that were not sampled, by reason." },
	{ "unwound", "offwind_samples_unwound_total", NULL, "Samples whose stacks were recorded." },
	{ "lost", "offwind_samples_lost_total", "reason", "Samples that were lost, by reason." },
	{ "stop", "offwind_stacks_total", "stop",
	  "Recorded stacks, by the reason why the walk stopped; root is a whole stack." },
	{ "cut", "offwind_stacks_cut_total", NULL,
	  "Recorded stacks of which only a part was copied." },
	{ "windows", "offwind_windows_total", NULL, "Windows added to the history." },
};

struct metrics {
	FILE *out;
	size_t family;
	bool begun;
	bool lost[EVENT_LOST_N]; /* the reason has a line */
};

static void begin(FILE *out, const char *name, const char *type, const char *help)
{
	(void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put(void *ctx, const struct history_counter *c)
{
	struct metrics *m = ctx;
	const char *name = families[m->family].name, *label = families[m->family].label;

	if (strcmp(c->what, families[m->family].what) != 0)
		return;
	if (!m->begun)
		begin(m->out, name, "counter", families[m->family].help);
	m->begun = true;
	for (size_t i = 0; i < EVENT_LOST_N; i++)
		m->lost[i] |= !strcmp(c->reason, event_lost_name((enum event_lost_reason)i));
	/* Reasons are words of offwind's own. */
	if (label)
		(void)fprintf(m->out, "%s{%s=\"%s\"} %" PRId64 "\n", name, label, c->reason, c->n);
	else
		(void)fprintf(m->out, "%s %" PRId64 "\n", name, c->n);
}

/*
 * Write 0 for what has not been counted yet: how much a counter grew is not known to Prometheus if the counter was not there
 * before it did.
 */
static void put_zeros(struct metrics *m)
{
	const char *what = families[m->family].what;

	if (!families[m->family].label && !m->begun)
		put(m, &(struct history_counter){ .what = what, .reason = "" });
	for (size_t i = 0; i < EVENT_LOST_N && !strcmp(what, "lost"); i++)
		if (!m->lost[i])
			put(m, &(struct history_counter){
				       .what = what,
				       .reason = event_lost_name((enum event_lost_reason)i) });
}

/* What the daemon itself uses. */
static void put_cost(struct cost *cost, FILE *out)
{
	begin(out, "offwind_cpu_seconds_total", "counter",
	      "CPU time of the daemon, by process; bpf: of its programs, in what is sampled.");
	for (size_t i = 0; i < COST_ROLES; i++)
		(void)fprintf(out, "offwind_cpu_seconds_total{role=\"%s\"} %.6f\n",
			      cost_name((enum cost_role)i),
			      (double)atomic_load(&cost->cpu_ns[i]) / 1e9);
	begin(out, "offwind_resident_bytes", "gauge", "Memory of the daemon, by process.");
	for (size_t i = 0; i < COST_BPF; i++)
		(void)fprintf(out, "offwind_resident_bytes{role=\"%s\"} %" PRIu64 "\n",
			      cost_name((enum cost_role)i), atomic_load(&cost->resident[i]));
	begin(out, "offwind_rate_hertz", "gauge", "Samples a second on each CPU.");
	(void)fprintf(out, "offwind_rate_hertz %" PRIu64 "\n", atomic_load(&cost->rate_hz));
	begin(out, "offwind_rate_configured_hertz", "gauge",
	      "The rate without a budget of CPU time.");
	(void)fprintf(out, "offwind_rate_configured_hertz %" PRIu64 "\n",
		      atomic_load(&cost->configured_hz));
	begin(out, "offwind_rate_lowered_total", "counter",
	      "Times that the rate was lowered to keep to the budget.");
	(void)fprintf(out, "offwind_rate_lowered_total %" PRIu64 "\n",
		      atomic_load(&cost->n_lowered));
}

/* What became of recordings that requests asked for. */
static void put_recordings(const struct recordings *r, FILE *out)
{
	begin(out, "offwind_recordings_total", "counter",
	      "Recordings that requests asked for, by what became of them.");
	for (size_t i = 0; i < RECORDING_RESULTS; i++)
		(void)fprintf(out, "offwind_recordings_total{result=\"%s\"} %" PRIu64 "\n",
			      recording_result_name((enum recording_result)i),
			      atomic_load(&r->n[i]));
	begin(out, "offwind_recordings_running", "gauge", "Recordings under way for requests.");
	(void)fprintf(out, "offwind_recordings_running %" PRIu64 "\n", atomic_load(&r->running));
}

/* Write one family with a value of each target. at: in struct sending_target. */
static void put_targets(struct sending *sending, const char *name, const char *type,
			const char *help, size_t at, double unit, FILE *out)
{
	begin(out, name, type, help);
	for (size_t i = 0; i < SENDING_TARGETS; i++) {
		struct sending_target *t = &sending->targets[i];

		/* Names have no characters that must be escaped. */
		if (t->name[0])
			(void)fprintf(out, "%s{target=\"%.*s\"} %.*f\n", name, SENDING_NAME,
				      t->name, unit == 1 ? 0 : 3,
				      (double)atomic_load((_Atomic uint64_t *)((char *)t + at)) /
					      unit);
	}
}

/* Do the same for n values of each target, by reason. */
static void put_reasons(struct sending *sending, const char *name, const char *help, size_t at,
			size_t n, const char *(*reason)(size_t i), FILE *out)
{
	begin(out, name, "counter", help);
	for (size_t i = 0; i < SENDING_TARGETS; i++) {
		struct sending_target *t = &sending->targets[i];
		_Atomic uint64_t *values = (_Atomic uint64_t *)((char *)t + at);

		for (size_t j = 0; t->name[0] && j < n; j++)
			(void)fprintf(out, "%s{target=\"%.*s\",reason=\"%s\"} %" PRIu64 "\n", name,
				      SENDING_NAME, t->name, reason(j), atomic_load(&values[j]));
	}
}

static const char *fault_name(size_t i)
{
	return sending_fault_name((enum sending_fault)i);
}

static const char *drop_name(size_t i)
{
	return sending_drop_name((enum sending_drop)i);
}

/* What is sent to other systems. */
static void put_sending(struct sending *s, FILE *out)
{
#define AT(field) offsetof(struct sending_target, field)
	put_targets(s, "offwind_export_windows_total", "counter", "Windows that were sent.",
		    AT(windows), 1, out);
	put_targets(s, "offwind_export_samples_total", "counter", "Samples that were sent.",
		    AT(samples), 1, out);
	put_targets(s, "offwind_export_bytes_total", "counter", "Bytes of requests that were sent.",
		    AT(bytes), 1, out);
	put_targets(s, "offwind_export_settled_timestamp_seconds", "gauge",
		    "When the newest window ended that was sent or dropped.", AT(until_ns), 1e9,
		    out);
	put_reasons(s, "offwind_export_failures_total", "Attempts to send that failed, by reason.",
		    AT(failed), SENDING_FAULT_N, fault_name, out);
	put_reasons(s, "offwind_export_samples_dropped_total",
		    "Samples that were not sent, by reason; they are in the history.", AT(dropped),
		    SENDING_DROP_N, drop_name, out);
#undef AT
}

void api_metrics(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	FILE *out = reply->out;
	uint64_t newest = history_newest(api->history);
	int err = 0;

	(void)r;
	reply->type = "text/plain; version=0.0.4; charset=utf-8";
	begin(out, "offwind_build_info", "gauge", "The version that runs.");
	(void)fprintf(out, "offwind_build_info{version=\"%s\"} 1\n", OFFWIND_VERSION);
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]) && !err; i++) {
		struct metrics m = { .out = out, .family = i };

		err = history_totals(api->history, put, &m);
		if (!err)
			put_zeros(&m);
	}
	begin(out, "offwind_history_newest_timestamp_seconds", "gauge",
	      "When the newest window ended.");
	(void)fprintf(out, "offwind_history_newest_timestamp_seconds %.3f\n", (double)newest / 1e9);
	begin(out, "offwind_history_bytes", "gauge", "Size of the history.");
	(void)fprintf(out, "offwind_history_bytes %" PRIu64 "\n", history_size(api->history));
	if (api->cost)
		put_cost(api->cost, out);
	if (api->recordings)
		put_recordings(api->recordings, out);
	if (api->sending)
		put_sending(api->sending, out);
	if (err)
		(void)api_failed(reply, err);
}

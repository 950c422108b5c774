/* agent/live/online.c: starts and stops events as CPUs go online and offline. */
#include "agent/live/online.h"

#include "agent/clock.h"
#include "agent/live/bpf/bpf.h"
#include "agent/live/system/cpus.h"
#include "agent/live/system/decode.h"
#include "agent/live/system/perf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPUS_NS	  UINT64_C(1000000000) /* between two checks of which CPUs are online */
#define ASLEEP_NS INT64_C(500000000)   /* a shorter sleep is none */

int live_online_init(struct live_online *o, struct live_bpf *bpf, const struct live_events *events,
		     const int *only, size_t n_only)
{
	*o = (struct live_online){ .bpf = bpf, .events = events, .fd = -1 };
	if (!n_only)
		return 0;
	o->only = calloc(n_only, sizeof(*o->only));
	if (!o->only)
		return -ENOMEM;
	memcpy(o->only, only, n_only * sizeof(*o->only));
	o->n_only = n_only;
	return 0;
}

void live_online_fini(struct live_online *o)
{
	free(o->cpus);
	free(o->only);
	if (o->fd >= 0)
		(void)close(o->fd);
}

/* Describe in error, of LIVE_ERROR_SIZE bytes, why a perf event could not be opened. */
static void say_event(const struct live_event *e, int err, char *error)
{
	if (err == -ENOENT || err == -EOPNOTSUPP)
		(void)snprintf(error, LIVE_ERROR_SIZE, "event %s: this machine does not have it",
			       e->info.name);
	else
		(void)snprintf(error, LIVE_ERROR_SIZE, "event %s: %s%s", e->info.name,
			       strerror(-err), live_hint(err));
}

/* Start the sampled events on one CPU. -ENODEV: the CPU has gone offline. */
static int start_cpu(struct live_online *o, int cpu, char *error)
{
	int err = 0;

	for (size_t i = 0; !err && i < o->events->n; i++) {
		const struct live_event *e = &o->events->events[i];
		int fd;

		if (e->kind != LIVE_EVENT_SAMPLED)
			continue;
		fd = live_perf_open(&e->attr, cpu);
		if (fd >= 0) {
			err = live_bpf_attach(o->bpf, i, cpu, fd, error);
			continue;
		}
		err = fd;
		say_event(e, err, error);
	}
	return err;
}

/* Start the events that are not per CPU: tracepoints, probes, waits and allocations. */
static int start_everywhere(struct live_online *o, char *error)
{
	int err = 0;

	for (size_t i = 0; !err && i < o->events->n; i++) {
		const struct live_event *e = &o->events->events[i];
		int fd = -1;

		if (e->kind == LIVE_EVENT_SAMPLED)
			continue;
		if (e->kind == LIVE_EVENT_TRACEPOINT) {
			fd = live_perf_open(&e->attr, o->cpus[0]);
			if (fd < 0) {
				say_event(e, fd, error);
				return fd;
			}
		}
		err = live_bpf_attach(o->bpf, i, -1, fd, error);
	}
	return err;
}

/* Return whether a CPU may be recorded. */
static bool is_wanted(const struct live_online *o, int cpu)
{
	return !o->only || live_cpus_have(o->only, o->n_only, cpu);
}

/*
 * The new event of a CPU begins before the old one ends, so that a failure leaves the old one. Both
 * sample for some microseconds.
 */
int live_online_restart(struct live_online *o, char *error)
{
	int err = 0;

	for (size_t i = 0; !err && i < o->n; i++) {
		size_t n = live_bpf_n_attached(o->bpf);

		if (!is_wanted(o, o->cpus[i]))
			continue;
		err = start_cpu(o, o->cpus[i], error);
		if (!err)
			live_bpf_detach_cpu(o->bpf, o->cpus[i], n);
		else if (err == -ENODEV)
			err = 0;
	}
	return err;
}

bool live_online_has(const struct live_online *o, int cpu)
{
	return live_cpus_have(o->cpus, o->n, cpu);
}

int live_online_change(struct live_online *o, int *cpus, size_t n, size_t *n_new, char *error)
{
	int err = 0;

	*n_new = 0;
	for (size_t i = 0; i < o->n; i++)
		if (!live_cpus_have(cpus, n, o->cpus[i]))
			live_bpf_detach_cpu(o->bpf, o->cpus[i], live_bpf_n_attached(o->bpf));
	for (size_t i = 0; !err && i < n; i++) {
		if (live_online_has(o, cpus[i]) || !is_wanted(o, cpus[i]))
			continue;
		err = start_cpu(o, cpus[i], error);
		/* Offline since the list was read: the next check will notice. */
		if (err == -ENODEV)
			err = 0;
		else
			++*n_new;
	}
	free(o->cpus);
	o->cpus = cpus;
	o->n = n;
	return err;
}

/* Return how long the machine has slept since it was started; a little less than 0 if it has not. */
static int64_t asleep_ns(void)
{
	return (int64_t)(clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC));
}

int live_online_start(struct live_online *o, char *error)
{
	size_t n = 0, n_new;
	int *cpus = NULL, err = live_cpus_online(&cpus, &n);

	if (err) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "/sys/devices/system/cpu/online: %s",
			       strerror(-err));
		return err;
	}
	err = live_online_change(o, cpus, n, &n_new, error);
	if (!err && !n_new) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "none of the CPUs asked for is online");
		err = -ENODEV;
	}
	if (!err)
		err = start_everywhere(o, error);
	o->looked_ns = now_ns();
	o->asleep_ns = asleep_ns();
	return err;
}

bool live_online_changed(struct live_online *o, uint64_t now, int **cpus, size_t *n, bool *slept)
{
	int64_t before_ns = o->asleep_ns;

	if (now < o->looked_ns + CPUS_NS)
		return false;
	o->looked_ns = now;
	o->asleep_ns = asleep_ns();
	/* The two clocks are not read at the same time. */
	*slept = o->asleep_ns > before_ns + ASLEEP_NS;
	*n = 0;
	if (live_cpus_online_now(&o->fd, cpus, n))
		return false;
	if (*slept || *n != o->n || memcmp(*cpus, o->cpus, *n * sizeof(**cpus)) != 0)
		return true;
	free(*cpus);
	return false;
}

/* agent/send/sender.c: takes windows from the history, one after the other, and has them sent. */
#include "agent/send/sender.h"

#include "agent/clock.h"
#include "agent/history/history.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/role/sandbox.h"
#include "agent/send/attributes.h"
#include "agent/send/ports.h"
#include "agent/send/sent.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS    UINT64_C(1000000000)
#define LOOK_NS	     SECOND_NS /* how often it is looked whether there is a new window */
#define AGAIN_MIN_NS SECOND_NS
#define AGAIN_MAX_NS (60 * SECOND_NS)
#define MEMORY_MAX   (UINT64_C(2) << 30)

enum { COUNTERS_MAX = 256 };

/* What became of all that fired in a window. */
struct counters {
	struct history_counter all[COUNTERS_MAX];
	size_t n;
	struct strings texts;
	uint64_t unwound;
};

/* One target, and its thread. */
struct line {
	const struct target *target;
	struct sending_target *counts;
	struct history *history;
	void *opened;
	int sent, slot;		    /* the file, and where in it */
	struct history_place place; /* behind the window that was read last */
	struct history_place noted; /* behind the last one that is settled, as the file has it */
	uint64_t held_windows, held_samples; /* between the two */
	struct counters counters;
	struct attribute_names of_threads;
	char host[256];
	bool failed; /* the last attempt did */
	enum sending_fault fault;
};

/* ---- one window -------------------------------------------------------------------------- */

static void pause_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / SECOND_NS),
				 .tv_nsec = (long)(ns % SECOND_NS) };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* Count a failed attempt, and say so once for each reason. */
static void count_failure(struct line *l, const struct send_report *report)
{
	(void)atomic_fetch_add(&l->counts->failed[report->fault], 1);
	if (!l->failed || l->fault != report->fault)
		log_warning("export %s: %s: %s; windows wait in the history", l->target->name,
			    sending_fault_name(report->fault), report->text);
	l->failed = true;
	l->fault = report->fault;
}

static void drop(struct line *l, enum sending_drop why, uint64_t n_samples, const char *text)
{
	(void)atomic_fetch_add(&l->counts->dropped[why], n_samples);
	if (n_samples)
		log_warning("export %s: %" PRIu64 " samples are not sent: %s%s%s", l->target->name,
			    n_samples, sending_drop_name(why), *text ? ": " : "", text);
}

/*
 * Return how long to wait before the next attempt: twice as long each time, up to a minute, or as long as the
 * receiver wants. Many senders that lost the same receiver do not come back at the same time.
 */
static uint64_t wait_of(unsigned int attempt, uint64_t wanted_ns)
{
	uint64_t ns = attempt < 6 ? AGAIN_MIN_NS << attempt : AGAIN_MAX_NS;
	uint8_t noise = 0;

	(void)!getrandom(&noise, sizeof(noise), 0);
	if (ns > AGAIN_MAX_NS)
		ns = AGAIN_MAX_NS;
	return (wanted_ns > ns ? wanted_ns : ns) + ns / 4 * noise / 255;
}

static bool is_too_old(const struct line *l, const struct history_entry *w)
{
	uint64_t age = l->target->kind->age_ns, now = clock_ns(CLOCK_REALTIME);

	return age && now > w->end_ns && now - w->end_ns > age;
}

/* Note that all windows until l->place are settled. */
static void note(struct line *l)
{
	int err;

	l->noted = l->place;
	atomic_store(&l->counts->until_ns, l->place.end_ns);
	err = sent_put(l->sent, l->slot, &l->place);
	if (err)
		log_warning("export %s: how far it got cannot be noted: %s", l->target->name,
			    strerror(-err));
}

/* The receiver has the windows that were held. */
static void count_held(struct line *l)
{
	(void)atomic_fetch_add(&l->counts->windows, l->held_windows);
	(void)atomic_fetch_add(&l->counts->samples, l->held_samples);
	l->held_windows = l->held_samples = 0;
	note(l);
}

/* Count what became of a window that is settled or held, and of those that were held before it. */
static void count_settled(struct line *l, enum send_outcome outcome, uint64_t n_samples,
			  const struct send_report *report)
{
	uint64_t dropped = 0;

	if (report->settled)
		count_held(l);
	if (outcome == SEND_HELD) {
		if (report->settled && l->failed) {
			log_info("export %s: windows are sent again", l->target->name);
			l->failed = false;
		}
		l->held_windows++;
		l->held_samples += n_samples;
		(void)atomic_fetch_add(&l->counts->bytes, report->n_bytes);
		return;
	}
	if (outcome == SEND_REFUSED) {
		drop(l, SENDING_DROP_REFUSED, n_samples, report->text);
		return;
	}
	for (size_t i = 0; i < SENDING_DROP_N; i++) {
		drop(l, (enum sending_drop)i, report->dropped[i], report->text);
		dropped += report->dropped[i];
	}
	if (l->failed)
		log_info("export %s: windows are sent again", l->target->name);
	l->failed = false;
	(void)atomic_fetch_add(&l->counts->windows, 1);
	(void)atomic_fetch_add(&l->counts->samples, dropped < n_samples ? n_samples - dropped : 0);
	(void)atomic_fetch_add(&l->counts->bytes, report->n_bytes);
}

/* Send a window until that is settled or held. -EAGAIN: windows that were held must come again before it. */
static int send_until_settled(struct line *l, const struct history_entry *w,
			      const struct stacks *stacks, uint64_t n_samples)
{
	const struct send_window window = { .id = w->id,
					    .start_ns = w->start_ns,
					    .end_ns = w->end_ns,
					    .host = l->target->host ? l->target->host : l->host,
					    .stacks = stacks,
					    .of_threads = &l->of_threads,
					    .counters = l->counters.all,
					    .n_counters = l->counters.n };

	for (unsigned int attempt = 0;; attempt++) {
		struct send_report report = { .text = "" };
		enum send_outcome outcome;

		if (is_too_old(l, w)) {
			drop(l, SENDING_DROP_OLD, n_samples, "");
			return 0;
		}
		outcome = l->target->kind->send(l->opened, &window, &report);
		if (outcome != SEND_AGAIN) {
			count_settled(l, outcome, n_samples, &report);
			return 0;
		}
		count_failure(l, &report);
		if (report.rewind) {
			l->place = l->noted;
			l->held_windows = l->held_samples = 0;
			return -EAGAIN;
		}
		pause_ns(wait_of(attempt, report.after_ns));
	}
}

static void take_counter(void *ctx, const struct history_counter *c)
{
	struct counters *to = ctx;
	const char *what = strings_keep(&to->texts, c->what, strlen(c->what));
	const char *reason = strings_keep(&to->texts, c->reason, strlen(c->reason));

	if (!strcmp(c->what, "unwound"))
		to->unwound += c->n > 0 ? (uint64_t)c->n : 0;
	if (what && reason && to->n < COUNTERS_MAX)
		to->all[to->n++] = (struct history_counter){ what, reason, c->n };
}

static int read_counters(struct line *l, int64_t window)
{
	l->counters.n = 0;
	l->counters.unwound = 0;
	return history_window_counters(l->history, window, take_counter, &l->counters);
}

/*
 * Read a window and send it. Return 0 when it is settled, or a negative code if the history cannot be read
 * now.
 */
static int settle(struct line *l, const struct history_entry *w)
{
	const struct history_query query = { .from_ns = w->start_ns,
					     .to_ns = w->end_ns,
					     .labels = true,
					     .times = l->target->kind->times || l->target->times,
					     .window = w->id };
	struct history_found found;
	struct stacks *stacks = NULL;
	int err;

	err = read_counters(l, w->id);
	if (err)
		return err;
	if (w->merged && w->start_ns < l->place.end_ns) {
		drop(l, SENDING_DROP_MERGED, w->n_samples, "");
		return 0;
	}
	if (is_too_old(l, w)) {
		drop(l, SENDING_DROP_OLD, w->n_samples, "");
		return 0;
	}
	err = stacks_new(&stacks);
	if (!err)
		err = history_read(l->history, &query, stacks, &found);
	if (!err)
		err = attribute_names_learn(&l->of_threads, stacks);
	if (err == -EFBIG)
		drop(l, SENDING_DROP_LARGE, w->n_samples, "");
	/* Without its labels, a sample would be sent as that of another service. */
	else if (err == -EBADMSG || (!err && (found.n_damaged || found.n_damaged_labels)))
		drop(l, SENDING_DROP_DAMAGED, w->n_samples, "");
	else if (!err && (found.n_samples || l->target->kind->has_batches))
		err = send_until_settled(l, w, stacks, found.n_samples);
	stacks_free(stacks);
	/* Another attempt would read the same. */
	return err == -EFBIG || err == -EBADMSG ? 0 : err;
}

/* ---- all windows ------------------------------------------------------------------------- */

/*
 * Count the samples of the windows that the history deleted between the place and a window: what all windows had that are
 * behind the window, without those that were taken.
 */
static void count_deleted(struct line *l, const struct history_entry *w)
{
	uint64_t passed, taken = l->place.passed + l->counters.unwound;
	struct history_place after = l->place;

	if (!w->merged && w->id == l->place.id + 1) {
		l->place.passed = taken;
		return;
	}
	history_take(&after, w);
	if (history_passed(l->history, &after, &passed))
		return;
	/* Of what is merged, a part may have been taken before. */
	if (!w->merged && passed > taken)
		drop(l, SENDING_DROP_DELETED, passed - taken, "");
	l->place.passed = passed;
}

/* A window is settled or held. */
static void advance(struct line *l, const struct history_entry *w)
{
	count_deleted(l, w);
	history_take(&l->place, w);
	if (!l->held_windows)
		note(l);
}

static void *run_line(void *ctx) /* for pthread_create */
{
	struct line *l = ctx;

	for (;;) {
		struct history_entry w;

		if (history_next(l->history, &l->place, &w) || settle(l, &w))
			pause_ns(LOOK_NS);
		else
			advance(l, &w);
	}
	return NULL;
}

static int open_line(struct line *l, const struct sender *s, size_t i, int sent, uint64_t *busy)
{
	const char *host = getenv("OFFWIND_HOST");
	struct history_place end = { .id = 0 };
	int err;

	*l = (struct line){ .target = &s->targets[i],
			    .counts = &s->sending->targets[i],
			    .sent = sent };
	/* A container has a name of its own; who starts it knows the machine's. */
	if (host && *host)
		(void)snprintf(l->host, sizeof(l->host), "%s", host);
	else
		(void)gethostname(l->host, sizeof(l->host) - 1);
	err = history_open(s->history, false, &l->history);
	if (!err)
		err = history_end_place(l->history, &end);
	if (!err)
		err = history_passed(l->history, &end, &end.passed);
	if (!err) {
		l->slot = sent_find(sent, l->target->kind->name, l->target->url, &end, busy,
				    &l->place);
		err = l->slot < 0 ? l->slot : 0;
		if (l->place.id > end.id) /* this is another history than before */
			l->place = end;
		if (err)
			log_error("export %s: %s", l->target->name, strerror(-err));
	}
	l->noted = l->place;
	if (!err)
		err = l->target->kind->open(l->target, &l->opened);
	atomic_store(&l->counts->until_ns, l->place.end_ns);
	return err;
}

int sender_prepare(struct sender *s)
{
	s->sending = io_shared(sizeof(*s->sending));
	if (!s->sending)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_targets; i++)
		(void)snprintf(s->sending->targets[i].name, SENDING_NAME, "%s", s->targets[i].name);
	return 0;
}

int sender_run(struct sender *s)
{
	static struct line lines[SENDING_TARGETS];
	const char *readable[2 * SENDING_TARGETS];
	size_t n_readable = 0;
	struct ports ports;
	uint64_t busy = 0;
	int sent = -1, err;

	(void)setpriority(PRIO_PROCESS, 0, 0); /* what is recorded comes first */
	sandbox_limit_memory(MEMORY_MAX);
	err = sent_open(s->history, &sent);
	if (!err)
		err = history_write_nothing(s->history, NULL);
	for (size_t i = 0; i < s->n_targets && !err; i++) {
		err = open_line(&lines[i], s, i, sent, &busy);
		if (s->targets[i].ca_file)
			readable[n_readable++] = s->targets[i].ca_file;
		if (s->targets[i].debuginfo || s->targets[i].htlhash)
			readable[n_readable++] = "/";
	}
	if (!err)
		err = ports_find(s->targets, s->n_targets, &ports);
	if (!err && sandbox_is_possible()) {
		err = sandbox_enter_sender(&(struct sandbox_sending){ .readable = readable,
								      .n_readable = n_readable,
								      .ports = ports.all,
								      .n_ports = ports.n,
								      .any_port = ports.any });
		if (err)
			log_error("the sender: giving up rights: %s", strerror(-err));
	}
	for (size_t i = 0; i < s->n_targets && !err; i++) {
		pthread_t thread;

		err = -pthread_create(&thread, NULL, run_line, &lines[i]);
		if (err)
			log_error("the sender: %s", strerror(-err));
	}
	while (!err) /* the threads do not end */
		pause_ns(AGAIN_MAX_NS);
	return err;
}

void sender_fini(struct sender *s)
{
	for (size_t i = 0; i < s->n_targets; i++)
		target_fini(&s->targets[i]);
	if (s->sending)
		(void)munmap(s->sending, sizeof(*s->sending));
}

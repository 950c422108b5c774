/* agent/live/capture.c: the capture process: gives the live source's events, and answers requests. */
#include "agent/live/capture.h"

#include "agent/clock.h"
#include "agent/io.h"
#include "agent/live/capture_internal.h"
#include "agent/live/choice.h"
#include "agent/live/live.h"
#include "agent/live/system/hint.h"
#include "agent/role/cost.h"
#include "agent/role/message.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FEED_LEAST ((size_t)4 << 20)
/*
 * Room for so many of the largest samples. Two of them must fit, whatever is in front of them
 * (feed_put); each has up to two stacks.
 */
#define FEED_SAMPLES 8
/* Between two looks for requests, while events come without a pause. */
#define LOOK_EVERY 256
/* While there is no room for an event, the kernel's rings are read so often. */
#define FULL_MS 20
/* A change that takes longer is given up by the supervisor. */
#define CHANGE_MS 10000
#define COST_NS	  UINT64_C(1000000000)

int capture_new(const struct source_live_options *options, struct capture **out)
{
	struct capture *capture = calloc(1, sizeof(*capture));
	size_t size = FEED_SAMPLES * (size_t)options->stack_max;
	int err = capture ? 0 : -ENOMEM;

	if (!err)
		err = feed_new(size < FEED_LEAST ? FEED_LEAST : size, &capture->feed);
	if (!err)
		err = channels_new(1, &capture->channel);
	if (!err)
		err = channels_new(1, &capture->control);
	if (!err) {
		capture->n_workers = io_shared(sizeof(*capture->n_workers));
		err = capture->n_workers ? 0 : -errno;
	}
	if (err) {
		capture_free(capture);
		return err;
	}
	*out = capture;
	return 0;
}

void capture_free(struct capture *capture)
{
	if (!capture)
		return;
	feed_free(capture->feed);
	channels_free(capture->channel);
	channels_free(capture->control);
	capture_leave_count(capture);
	free(capture);
}

void capture_leave_count(struct capture *capture)
{
	if (capture->n_workers)
		(void)munmap(capture->n_workers, sizeof(*capture->n_workers));
	capture->n_workers = NULL;
}

/* ---- requests ---------------------------------------------------------------------------- */

struct serving {
	const struct source_live_options *options;
	struct feed *feed;
	int requests, control; /* readable when there is one, of the worker or the supervisor */
	struct source *source; /* NULL: not opened yet, or that failed */
	bool lends; /* samples stay in the kernel's ring until the worker has read them */
	bool over;  /* the source's last event was given */
	int end_err;
	bool has_event; /* there was no room yet for event */
	struct event event;
	unsigned int n_given;
	_Atomic uint64_t *n_workers;
	uint64_t ring_given; /* the last of them that was given the ring; 0: none */
	/* What workers that died were given of the feed: see taken. */
	uint64_t given_before;
	struct cost *cost; /* NULL: nobody wants to know */
	uint64_t cost_ns;  /* when it was said */
	/* What the worker was told: samples, and the sums of what was lost. */
	uint64_t samples, lost[EVENT_LOST_N], sideband_lost;
};

/* ---- events ------------------------------------------------------------------------------ */

/* Remember that an event was given, for a worker that may follow. */
static void note_given(struct serving *s, const struct event *event)
{
	s->n_given++;
	if (event->type == EVENT_SAMPLE) {
		s->samples++;
	} else if (event->type == EVENT_LOST) {
		s->lost[event->lost.reason] += event->lost.n_samples;
		s->sideband_lost += event->lost.n_sideband;
	}
}

static void end(struct serving *s, int err, const char *error)
{
	feed_end(s->feed, err, error);
	s->over = true;
	s->end_err = err;
}

/* Callback of source_live_lend_to: what this worker and those before have read, or never will. */
static uint64_t taken(void *ctx)
{
	const struct serving *s = ctx;

	return s->given_before + feed_taken(s->feed);
}

/* Tell a worker that follows one that died what was lost, and what runs now. */
static int begin_again(struct serving *s)
{
	int err = 0;

	if (s->has_event)
		note_given(s, &s->event);
	s->has_event = false;
	s->given_before += feed_given(s->feed);
	feed_empty(s->feed);
	feed_lend(s->feed, NULL, 0);
	source_live_leave_records(s->source, false);
	s->lends = false;
	s->lost[EVENT_LOST_CRASHED] += s->samples;
	s->samples = 0;
	for (int i = 0; !err && i < EVENT_LOST_N; i++) {
		const struct event event = { .type = EVENT_LOST,
					     .time_ns = now_ns(),
					     .lost = { .reason = (enum event_lost_reason)i,
						       .n_samples = s->lost[i],
						       .n_sideband = i ? 0 : s->sideband_lost } };

		if (event.lost.n_samples || event.lost.n_sideband)
			err = feed_put(s->feed, &event);
	}
	if (s->over)
		end(s, s->end_err, s->end_err ? s->source->error : "");
	return err ? err : source_live_again(s->source);
}

/* Get the next event, or wait for it or for a request. Return whether to look for requests. */
static bool next_event(struct serving *s)
{
	int rc = source_next(s->source, &s->event, 0);

	if (rc == -EAGAIN) {
		feed_flush(s->feed);
		rc = source_next(s->source, &s->event, -1);
	}
	if (rc == 1)
		s->has_event = true;
	else if (rc != -EAGAIN && rc != -EINTR)
		end(s, rc, rc ? s->source->error : "");
	return rc != 1;
}

/* Give the event. Return whether to look for requests: if it has no room, and sometimes else. */
static bool give_event(struct serving *s)
{
	int err = feed_put(s->feed, &s->event);

	if (err == -EAGAIN) {
		/* The worker may have to ask something before it can take more. */
		struct pollfd news[] = { { .fd = feed_bell(s->feed), .events = POLLIN },
					 { .fd = s->requests, .events = POLLIN },
					 { .fd = s->control, .events = POLLIN } };

		feed_flush(s->feed);
		(void)poll(news, 3, FULL_MS);
		feed_heard(s->feed);
		err = source_live_keep_up(s->source);
		if (err)
			end(s, err, s->source->error);
		return true;
	}
	s->has_event = false;
	note_given(s, &s->event);
	if (s->lends && s->event.type == EVENT_SAMPLE)
		source_live_lend(s->source, s->given_before + feed_given(s->feed));
	if (err)
		end(s, err, strerror(-err));
	return s->n_given % LOOK_EVERY == 0;
}

/*
 * Add the ring to a reply, once for each worker. Who has its descriptor can map the consumer's position for
 * writing, and let the kernel write over records that are being read. So a worker that was taken over must
 * not get it by asking again.
 */
static void give_ring(struct serving *s, struct message *reply)
{
	const struct live_memory memory = source_live_memory(s->source);
	uint64_t n_workers = atomic_load(s->n_workers);
	bool given = n_workers > s->ring_given;

	s->ring_given = n_workers;
	message_number(reply, given ? memory.size : 0);
	message_bytes(reply, &memory.data, sizeof(memory.data));
	if (given) /* it is closed after the reply was sent */
		message_fd(reply, fcntl(memory.fd, F_DUPFD_CLOEXEC, 3));
}

/* Do not sample this program's processes. */
static void leave_own(struct serving *s, uint64_t worker, uint64_t opener)
{
	const pid_t own[] = { getpid(), getppid(), (pid_t)worker, (pid_t)opener };

	source_live_own(s->source, own, sizeof(own) / sizeof(own[0]));
}

static int open_source(struct serving *s, uint64_t worker, uint64_t opener, struct message *reply)
{
	char error[LIVE_ERROR_SIZE] = "";
	const struct source_info *info;
	int err = s->source ? begin_again(s) : source_live_open(s->options, &s->source, error);

	message_text(reply, error);
	if (err)
		return err;
	source_live_lend_to(s->source, taken, s);
	leave_own(s, worker, opener);
	info = &s->source->info;
	message_number(reply, (uint64_t)source_live_n_cpus(s->source));
	message_bytes(reply, info, sizeof(*info));
	message_bytes(reply, info->events, info->n_events * sizeof(*info->events));
	give_ring(s, reply);
	return 0;
}

/* Let the worker, which has mapped the ring, read samples there from now on. */
static int lend_ring(struct serving *s)
{
	const struct live_memory memory = source_live_memory(s->source);

	feed_lend(s->feed, memory.data, memory.size);
	source_live_leave_records(s->source, true);
	s->lends = true;
	return 0;
}

/* Open a file that the kernel reported as mapped. Only files that can be code are given out. */
static int open_file(const struct serving *s, struct message *request, uint32_t major,
		     uint32_t minor, struct message *reply)
{
	uint64_t inode = message_take_number(request);
	const char *path = message_take_text(request);
	const struct source_info *info = &s->source->info;
	int fd = -1, err = request->err || !path ? -EINVAL : 0;

	if (!err)
		err = info->file(info->file_ctx, major, minor, inode, path, &fd);
	if (!err && !io_is_elf(fd, 0)) {
		(void)close(fd);
		err = -ENOENT;
	} else if (!err) {
		message_fd(reply, fd); /* closed after the reply was sent */
	}
	return err;
}

/* Look up kernel symbols, as many as the reply has room for. */
static int find_symbols(const struct serving *s, uint64_t n, struct message *request,
			struct message *reply)
{
	const struct source_info *info = &s->source->info;
	static struct message all; /* too large for the stack; there is one thread */
	uint64_t n_found = 0;

	message_init(&all);
	for (; n_found < n && n_found < CAPTURE_SYMBOLS_MAX && !request->err; n_found++) {
		struct source_kernel_symbol symbol = { .name = "", .module = "" };
		uint64_t addr = message_take_number(request);
		size_t size = all.size;
		int err = info->kernel_symbol(info->kernel_symbol_ctx, addr, &symbol);

		message_number(&all, (uint64_t)(int64_t)err);
		message_number(&all, symbol.addr);
		message_number(&all, symbol.size);
		message_text(&all, symbol.name);
		message_text(&all, symbol.module);
		if (all.err || all.size > MESSAGE_MAX / 2) {
			n_found += !all.err;
			all.size = all.err ? size : all.size;
			break;
		}
	}
	message_number(reply, n_found);
	message_bytes(reply, all.bytes, all.size);
	return request->err;
}

/* Set the plan of a process. Whatever it is, it can only add memory of that process to its samples. */
static int set_plan(const struct serving *s, uint32_t pid, bool has_plan, struct message *request)
{
	const struct source_info *info = &s->source->info;
	struct plan_task task = { 0 };
	struct plan plan = { 0 };

	message_take_bytes(request, &task, sizeof(task));
	if (has_plan)
		message_take_bytes(request, &plan, sizeof(plan));
	if (request->err)
		return -EBADMSG;
	return info->plan(info->plan_ctx, pid, &task, has_plan ? &plan : NULL);
}

/* Do what one request asks for, and add the result to the reply. Return its error. */
static int serve(struct serving *s, uint64_t what, uint64_t a, uint64_t b, struct message *request,
		 struct message *reply)
{
	struct live_counters counters = { 0 };
	struct live_totals totals = { 0 };
	struct live_alloc_cost cost = { 0 };
	uint64_t counted = 0;
	int err = 0;

	if (what == CAPTURE_OPEN)
		return open_source(s, a, b, reply);
	if (!s->source)
		return -EINVAL;
	switch (what) {
	case CAPTURE_BORROW:
		return lend_ring(s);
	case CAPTURE_STOP:
		source_stop(s->source);
		return 0;
	case CAPTURE_COUNTERS:
		err = source_live_counters(s->source, (int)(int64_t)a, &counters);
		message_bytes(reply, &counters, sizeof(counters));
		return err;
	case CAPTURE_TOTALS:
		err = source_live_totals(s->source, &totals);
		message_bytes(reply, &totals, sizeof(totals));
		return err;
	case CAPTURE_COUNTED:
		err = a < s->source->info.n_events ? source_live_counted(s->source, a, &counted)
						   : -EINVAL;
		message_number(reply, counted);
		return err;
	case CAPTURE_ALLOC_COST:
		err = source_live_alloc_cost(s->source, &cost);
		message_bytes(reply, &cost, sizeof(cost));
		return err;
	case CAPTURE_FILE:
		return open_file(s, request, (uint32_t)a, (uint32_t)b, reply);
	case CAPTURE_SYMBOLS:
		return find_symbols(s, a, request, reply);
	case CAPTURE_PLAN:
		return set_plan(s, (uint32_t)a, b != 0, request);
	case CAPTURE_OWN:
		leave_own(s, a, b);
		return 0;
	default:
		return -EINVAL;
	}
}

/* The reply begins with the error, which is known last. */
static void answer(void *ctx, struct message *request, struct message *reply)
{
	static struct message result; /* too large for the stack; there is one thread */
	uint64_t what = message_take_number(request), a = message_take_number(request),
		 b = message_take_number(request);
	int err;

	message_init(&result);
	err = request->err ? -EBADMSG : serve(ctx, what, a, b, request, &result);
	message_number(reply, (uint64_t)(int64_t)(err ? err : result.err));
	message_bytes(reply, result.bytes, result.size);
	for (size_t i = 0; i < result.n_fds; i++)
		message_fd(reply, result.fds[i]);
}

/* ---- requests of the supervisor ---------------------------------------------------------- */

/* Do what the supervisor asks for: change the rate and the filters. */
static void answer_control(void *ctx, struct message *request, struct message *reply)
{
	struct serving *s = ctx;
	struct live_choice choice;
	char error[LIVE_ERROR_SIZE] = "";
	int err = live_choice_take(request, &choice);

	if (!err)
		err = s->source && !s->over ? source_live_change(s->source, &choice.options, error)
					    : -EAGAIN;
	live_choice_fini(&choice);
	message_number(reply, (uint64_t)(int64_t)err);
	message_text(reply, error);
}

int capture_change(struct capture *capture, const struct source_live_options *options, char *error)
{
	struct message *m;
	int err = 0;

	/* The one channel is in use until the last reply has come. */
	if (capture->is_late)
		capture->is_late = channels_is_late(capture->control, capture->late);
	if (capture->is_late) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "the last change is still under way");
		return -EAGAIN;
	}
	m = malloc(sizeof(*m));
	if (!m) {
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	message_init(m);
	live_choice_put(m, options);
	err = m->err;
	if (!err)
		err = channels_call_within(capture->control, m, m, CHANGE_MS, &capture->late);
	capture->is_late = err == -ETIMEDOUT;
	(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(-err));
	if (!err) {
		const char *text;

		err = (int)(int64_t)message_take_number(m);
		text = message_take_text(m);
		if (m->err)
			err = m->err;
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", text && *text ? text : strerror(-err));
		message_fini(m);
	}
	free(m);
	return err;
}

void capture_next_worker(struct capture *capture)
{
	atomic_fetch_add(capture->n_workers, 1);
}

void capture_keep(struct capture *capture)
{
	channels_ask(capture->channel);
	if (capture->control)
		channels_ask(capture->control);
	feed_taker(capture->feed);
}

/* Wait until there is a request, of whomever. */
static void wait_for_request(const struct serving *s)
{
	struct pollfd requests[] = { { .fd = s->requests, .events = POLLIN },
				     { .fd = s->control, .events = POLLIN } };

	(void)poll(requests, 2, -1);
}

/* Say about once a second what the BPF programs take. */
static void say_cost(struct serving *s)
{
	struct live_counters counters;
	uint64_t now = now_ns();

	if (!s->cost || !s->source || now < s->cost_ns + COST_NS)
		return;
	s->cost_ns = now;
	if (!source_live_counters(s->source, -1, &counters))
		atomic_store(&s->cost->cpu_ns[COST_BPF], counters.program_ns);
}

void capture_serve(struct capture *capture, const struct source_live_options *options,
		   struct cost *cost)
{
	struct serving s = { .options = options,
			     .cost = cost,
			     .feed = capture->feed,
			     .n_workers = capture->n_workers,
			     .requests = channels_answer_fd(capture->channel),
			     .control = channels_answer_fd(capture->control) };
	bool look = true, watched = false;

	feed_giver(capture->feed);
	for (;;) {
		if (!s.source || s.over)
			wait_for_request(&s);
		if (look && (channels_answer_next(capture->channel, 0, answer, &s) ||
			     channels_answer_next(capture->control, 0, answer_control, &s)))
			break;
		if (look)
			say_cost(&s);
		if (s.source && !watched) {
			watched = true;
			if (source_live_watch(s.source, s.requests) ||
			    source_live_watch(s.source, s.control))
				break;
		}
		look = true;
		if (s.source && !s.over)
			look = s.has_event ? give_event(&s) : next_event(&s);
	}
	source_close(s.source);
}

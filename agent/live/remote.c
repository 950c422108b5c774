/* agent/live/remote.c: asks the capture process for events, counters, files and symbols. */
#include "agent/live/remote.h"

#include "agent/clock.h"
#include "agent/live/capture_internal.h"
#include "agent/live/captured.h"
#include "agent/live/ring.h"
#include "agent/live/system/hint.h"
#include "agent/log.h"
#include "agent/role/message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct capture *used; /* NULL: recording works in this process */

static pid_t other; /* the opener */

void capture_use(struct capture *capture, pid_t opener)
{
	used = capture;
	other = opener;
	if (!capture)
		return;
	channels_free(capture->control);
	capture->control = NULL;
	capture_leave_count(capture);
	capture_keep(capture);
}

bool live_remote_is_used(void)
{
	return used != NULL;
}

struct remote {
	struct source base;
	int n_cpus;
	struct found *found; /* kernel symbols, sorted by the addresses asked for; owned */
	size_t n_found;
	const uint8_t
		*ring; /* the data of the kernel's ring of samples; NULL: samples are copied */
	size_t ring_size;
	struct uw_region regions[LIVE_REGIONS_MAX]; /* of the last sample */
	struct live_bases bases;
};

/* ---- requests ---------------------------------------------------------------------------- */

struct asked { /* a request; see enum capture_request */
	enum capture_request what;
	uint64_t a, b, inode;
	const char *path;
};

/* Begin a request. */
static void begin(struct message *m, enum capture_request what, uint64_t a, uint64_t b)
{
	message_init(m);
	message_number(m, what);
	message_number(m, a);
	message_number(m, b);
}

/* Send a request, and receive the reply into the same message. Return the reply's error. */
static int call(struct message *m)
{
	int err = channels_call(used->channel, m, m);

	if (err)
		return err == -EPIPE ? -EIO : err; /* the capture process is gone */
	return (int)(int64_t)message_take_number(m);
}

/*
 * Send a request. On success the caller takes the reply's fields from *reply, and frees it with
 * done_with.
 */
static int ask(const struct asked *asked, struct message **reply)
{
	struct message *m = malloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	begin(m, asked->what, asked->a, asked->b);
	message_number(m, asked->inode);
	message_text(m, asked->path);
	*reply = m;
	return call(m);
}

static int done_with(struct message *m, int err)
{
	if (m && !err)
		err = m->err;
	if (m)
		message_fini(m);
	free(m);
	return err;
}

/* Ask for something of a fixed size. */
static int ask_bytes(const struct asked *asked, void *out, size_t size)
{
	struct message *m = NULL;
	int err = ask(asked, &m);

	if (!err)
		message_take_bytes(m, out, size);
	return done_with(m, err);
}

void capture_use_opener(pid_t opener)
{
	struct message *m = NULL;
	int err = 0;

	other = opener;
	if (used)
		err = ask(&(struct asked){ .what = CAPTURE_OWN,
					   .a = (uint64_t)getpid(),
					   .b = (uint64_t)opener },
			  &m);
	(void)done_with(m, err);
}

int live_remote_counters(struct source *source, int cpu, struct live_counters *counters)
{
	(void)source;
	return ask_bytes(&(struct asked){ .what = CAPTURE_COUNTERS, .a = (uint64_t)(int64_t)cpu },
			 counters, sizeof(*counters));
}

int live_remote_totals(struct source *source, struct live_totals *totals)
{
	(void)source;
	return ask_bytes(&(struct asked){ .what = CAPTURE_TOTALS }, totals, sizeof(*totals));
}

int live_remote_n_cpus(struct source *source)
{
	return ((struct remote *)source)->n_cpus;
}

int live_remote_counted(struct source *source, size_t event, uint64_t *counted)
{
	(void)source;
	return ask_bytes(&(struct asked){ .what = CAPTURE_COUNTED, .a = event }, counted,
			 sizeof(*counted));
}

int live_remote_alloc_cost(struct source *source, struct live_alloc_cost *cost)
{
	(void)source;
	return ask_bytes(&(struct asked){ .what = CAPTURE_ALLOC_COST }, cost, sizeof(*cost));
}

/* source_info.file */
static int open_file(void *ctx, uint32_t major, uint32_t minor, uint64_t inode, const char *path,
		     int *fd)
{
	struct message *m = NULL;
	int err = ask(&(struct asked){ CAPTURE_FILE, major, minor, inode, path }, &m), opened = -1;

	(void)ctx;
	if (!err)
		opened = message_take_fd(m);
	err = done_with(m, err);
	if (!err && opened < 0)
		err = -ENOENT;
	if (!err)
		*fd = opened;
	return err;
}

/* source_info.plan */
static int set_plan(void *ctx, uint32_t pid, const struct plan_task *task, const struct plan *plan)
{
	struct message *m = malloc(sizeof(*m));
	int err;

	(void)ctx;
	if (!m)
		return -ENOMEM;
	begin(m, CAPTURE_PLAN, pid, plan != NULL);
	message_bytes(m, task, sizeof(*task));
	if (plan)
		message_bytes(m, plan, sizeof(*plan));
	err = call(m);
	return done_with(m, err);
}

/* ---- kernel symbols ---------------------------------------------------------------------- */

struct found { /* what the capture process said of an address */
	uint64_t asked;
	int err;
	struct source_kernel_symbol symbol; /* its texts are owned */
};

static void forget(struct remote *remote)
{
	for (size_t i = 0; i < remote->n_found; i++) {
		free((void *)(uintptr_t)remote->found[i].symbol.name);
		free((void *)(uintptr_t)remote->found[i].symbol.module);
	}
	free(remote->found);
	remote->found = NULL;
	remote->n_found = 0;
}

static char *copy_text(const char *text)
{
	return strdup(text ? text : "");
}

/* Ask for some of the addresses, and add what is known of them. Return how many; 0: none. */
static size_t ask_some(struct remote *remote, const uint64_t *addrs, size_t n)
{
	struct message *m = malloc(sizeof(*m));
	uint64_t n_answered = 0;
	int err;

	if (n > CAPTURE_SYMBOLS_MAX)
		n = CAPTURE_SYMBOLS_MAX;
	if (!m)
		return 0;
	begin(m, CAPTURE_SYMBOLS, n, 0);
	for (size_t i = 0; i < n; i++)
		message_number(m, addrs[i]);
	err = call(m);
	if (!err)
		n_answered = message_take_number(m);
	for (size_t i = 0; i < n_answered && i < n && !m->err; i++) {
		struct found *f = &remote->found[remote->n_found];

		f->asked = addrs[i];
		f->err = (int)(int64_t)message_take_number(m);
		f->symbol.addr = message_take_number(m);
		f->symbol.size = message_take_number(m);
		f->symbol.name = copy_text(message_take_text(m));
		f->symbol.module = copy_text(message_take_text(m));
		remote->n_found++;
		if (!f->symbol.name || !f->symbol.module)
			f->err = -ENOMEM;
	}
	if (m->err)
		n_answered = 0;
	(void)done_with(m, err);
	return n_answered < n ? n_answered : n;
}

static int by_asked(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->asked == y->asked ? 0 : x->asked < y->asked ? -1 : 1;
}

/* source_info.kernel_symbols_ahead */
static void find_ahead(void *ctx, const uint64_t *addrs, size_t n)
{
	struct remote *remote = ctx;
	size_t at = 0, some;

	forget(remote);
	remote->found = calloc(n, sizeof(*remote->found));
	if (!remote->found)
		return;
	while (at < n && (some = ask_some(remote, addrs + at, n - at)))
		at += some;
	qsort(remote->found, remote->n_found, sizeof(*remote->found), by_asked);
}

/* source_info.kernel_symbol */
static int kernel_symbol(void *ctx, uint64_t addr, struct source_kernel_symbol *out)
{
	const struct found key = { .asked = addr }, *f;
	struct remote *remote = ctx;

	f = remote->n_found ? bsearch(&key, remote->found, remote->n_found, sizeof(key), by_asked)
			    : NULL;
	if (!f) {
		find_ahead(remote, &addr, 1);
		f = remote->n_found ? remote->found : NULL;
	}
	if (!f)
		return -ENOTSUP;
	*out = f->symbol;
	return f->err;
}

/* ---- the source -------------------------------------------------------------------------- */

/* Take the next event as feed_take does. A record is decoded; it may have come late, so it has the event's time. */
static int take(struct remote *remote, struct event *event)
{
	int rc = feed_take(used->feed, event, remote->base.error);
	uint64_t time_ns;

	if (rc != 1 || event->type != EVENT_SAMPLE || !event->sample.record)
		return rc;
	time_ns = event->time_ns;
	live_captured_sample(event->sample.record, 1, &remote->bases, remote->regions, event);
	event->time_ns = time_ns;
	return rc;
}

static int remote_next(struct source *source, struct event *event, int timeout_ms)
{
	struct remote *remote = (struct remote *)source;
	uint64_t deadline = timeout_ms < 0 ? 0 : now_ns() + (uint64_t)timeout_ms * 1000000;

	for (;;) {
		struct pollfd bell = { .fd = feed_bell(used->feed), .events = POLLIN };
		int rc = take(remote, event), left = -1;

		if (rc != -EAGAIN)
			return rc;
		if (timeout_ms >= 0) {
			uint64_t now = now_ns();

			if (now >= deadline)
				return -EAGAIN;
			left = (int)((deadline - now + 999999) / 1000000);
		}
		if (poll(&bell, 1, left) < 0)
			return -errno;
		if (bell.revents & (POLLHUP | POLLERR)) {
			/* What it gave before it ended is still delivered. */
			rc = take(remote, event);
			if (rc != -EAGAIN)
				return rc;
			(void)snprintf(source->error, sizeof(source->error),
				       "the process that captures samples has ended");
			return -EIO;
		}
		feed_heard(used->feed);
	}
}

static void remote_stop(struct source *source)
{
	struct message *m = NULL;
	int err = ask(&(struct asked){ .what = CAPTURE_STOP }, &m);

	(void)source;
	(void)done_with(m, err);
}

static void remote_close(struct source *source)
{
	struct remote *remote = (struct remote *)source;

	forget(remote);
	feed_borrow(used->feed, NULL, NULL, 0);
	live_ring_unmap_data(remote->ring, remote->ring_size);
	live_bases_fini(&remote->bases);
	free(remote->base.info.events);
	free(remote);
}

static const struct source_ops remote_ops = { .next = remote_next,
					      .stop = remote_stop,
					      .close = remote_close };

bool live_is_remote(const struct source *source)
{
	return source->ops == &remote_ops;
}

/* Take the source's facts. What they point to in the capture process is replaced. */
static int take_info(struct message *m, struct remote *remote)
{
	struct source_info *info = &remote->base.info;

	remote->n_cpus = (int)message_take_number(m);
	message_take_bytes(m, info, sizeof(*info));
	info->events = NULL;
	if (m->err)
		return m->err;
	info->events = calloc(info->n_events + 1, sizeof(*info->events));
	if (!info->events)
		return -ENOMEM;
	message_take_bytes(m, info->events, info->n_events * sizeof(*info->events));
	info->file = open_file;
	info->kernel_symbol = kernel_symbol;
	info->kernel_symbols_ahead = find_ahead;
	info->plan = set_plan;
	info->file_ctx = info->kernel_symbol_ctx = info->plan_ctx = remote;
	return m->err;
}

/*
 * Map the ring that came with the source's facts, and say so. From then on samples are read there. Without a ring
 * they are copied: nothing else is different.
 */
static void borrow_ring(struct message *m, struct remote *remote)
{
	uint64_t size = message_take_number(m);
	struct message *reply = NULL;
	const uint8_t *there;
	int fd, err;

	message_take_bytes(m, &there, sizeof(there));
	fd = size && !m->lost_fds ? message_take_fd(m) : -1;
	if (fd < 0)
		return;
	err = live_ring_map_data(fd, size, &remote->ring);
	(void)close(fd);
	if (err) {
		log_debug("the ring of samples cannot be mapped: %s", strerror(-err));
		return;
	}
	remote->ring_size = size;
	feed_borrow(used->feed, there, remote->ring, size);
	err = ask(&(struct asked){ .what = CAPTURE_BORROW }, &reply);
	(void)done_with(reply, err);
}

int live_remote_open(struct source **out, char *error)
{
	struct remote *remote = calloc(1, sizeof(*remote));
	struct message *m = NULL;
	const char *text;
	struct asked asked = { .what = CAPTURE_OPEN,
			       .a = (uint64_t)getpid(),
			       .b = (uint64_t)other };
	int err = remote ? ask(&asked, &m) : -ENOMEM;

	text = m ? message_take_text(m) : NULL;
	if (err)
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", text && *text ? text : strerror(-err));
	if (!err) {
		err = take_info(m, remote);
		if (!err)
			borrow_ring(m, remote);
		if (err)
			(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(-err));
	}
	err = done_with(m, err);
	if (err) {
		if (remote)
			free(remote->base.info.events);
		free(remote);
		return err;
	}
	remote->base.ops = &remote_ops;
	*out = &remote->base;
	return 0;
}

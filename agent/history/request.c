/* agent/history/request.c: sends windows and names to the process that writes the history, and serves there. */
#include "agent/history/request.h"

#include "agent/clock.h"
#include "agent/log.h"
#include "agent/role/channel.h"
#include "agent/role/message.h"
#include "agent/role/sandbox.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTERS_MAX = 256 };

enum history_request { HISTORY_WINDOW, HISTORY_NAMES };

static struct channels *asked; /* NULL: windows are added in this process */

void history_ask(struct channels *channels)
{
	asked = channels;
}

/* Read a profile. Errors are reported; the caller frees *out in each case. */
static int load(int fd, struct stacks **out)
{
	int err = stacks_new(out);

	if (err)
		log_error("%s", strerror(-err));
	if (!err && lseek(fd, 0, SEEK_SET))
		err = -errno;
	return err ? err : stacks_load_fd(*out, fd, "window", false);
}

/* Read the profile, and add it as a window. */
static int add(struct history *h, int fd, const struct history_window *window)
{
	struct stacks *stacks = NULL;
	int err = load(fd, &stacks);

	if (!err)
		err = history_add(h, stacks, window);
	stacks_free(stacks);
	return err;
}

/* Read the profile, and give its addresses these names. */
static int add_names(struct history *h, int fd, struct history_renamed *out)
{
	struct stacks *stacks = NULL;
	int err = load(fd, &stacks);

	if (!err)
		err = history_rename(h, stacks, out);
	stacks_free(stacks);
	return err;
}

/* Do a piece of what keeps the history within its limits. Return whether there may be more to do. */
static bool keep(struct history *h)
{
	struct history_limits limits;

	return !history_get_limits(h, &limits) &&
	       history_keep(h, &limits, history_steady_time(h, clock_ns(CLOCK_REALTIME))) == 1;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Send a request and take the error from the reply. On success the rest of it is for the caller. */
static int ask(struct message *m)
{
	int err = channels_call(asked, m, m);

	if (err) {
		log_error("the history: %s", strerror(-err));
		return err;
	}
	err = (int)(int64_t)message_take_number(m);
	err = err ? err : m->err;
	if (err)
		message_fini(m);
	return err;
}

static int send(int fd, const struct history_window *w)
{
	struct message *m = malloc(sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	message_init(m);
	message_number(m, HISTORY_WINDOW);
	message_number(m, w->start_ns);
	message_number(m, w->end_ns);
	message_number(m, w->n_counters);
	for (size_t i = 0; i < w->n_counters; i++) {
		message_text(m, w->counters[i].what);
		message_text(m, w->counters[i].reason);
		message_number(m, (uint64_t)w->counters[i].n);
	}
	message_fd(m, fd);
	err = ask(m);
	if (!err)
		message_fini(m);
	free(m);
	return err;
}

static int send_names(int fd, struct history_renamed *out)
{
	struct message *m = malloc(sizeof(*m));
	struct history_renamed renamed;
	int err;

	if (!m)
		return -ENOMEM;
	message_init(m);
	message_number(m, HISTORY_NAMES);
	message_fd(m, fd);
	err = ask(m);
	if (!err) {
		message_take_bytes(m, &renamed, sizeof(renamed));
		err = m->err;
		message_fini(m);
	}
	if (!err) {
		out->named += renamed.named;
		out->better += renamed.better;
		out->same += renamed.same;
		out->not_replaced += renamed.not_replaced;
	}
	free(m);
	return err;
}

int history_put_names(const char *path, int fd, struct history_renamed *out)
{
	struct history *h;
	int err;

	if (asked)
		return send_names(fd, out);
	err = history_open(path, true, &h);
	if (err)
		return err;
	err = add_names(h, fd, out);
	history_close(h);
	return err;
}

int history_put(const char *path, int fd, const struct history_window *window)
{
	struct history *h;
	int err;

	if (asked)
		return send(fd, window);
	err = history_open(path, true, &h);
	if (err)
		return err;
	err = add(h, fd, window);
	while (!err && keep(h))
		;
	history_close(h);
	return err;
}

/* ---- serving ----------------------------------------------------------------------------- */

struct serving {
	struct history *history;
	bool keeps; /* a window came: this process keeps the history within its limits */
};

static int take_window(struct serving *s, struct message *request)
{
	struct history_counter counters[COUNTERS_MAX];
	struct history_window w = { .start_ns = message_take_number(request),
				    .end_ns = message_take_number(request),
				    .counters = counters,
				    .n_counters = (size_t)message_take_number(request) };
	int err = w.n_counters > COUNTERS_MAX ? -EBADMSG : 0, fd;

	for (size_t i = 0; !err && i < w.n_counters; i++) {
		counters[i].what = message_take_text(request);
		counters[i].reason = message_take_text(request);
		counters[i].n = (int64_t)message_take_number(request);
		if (!counters[i].what || !counters[i].reason)
			err = -EBADMSG;
	}
	fd = message_take_fd(request);
	if (fd < 0 || request->err)
		err = -EBADMSG;
	s->keeps = true;
	if (!err)
		err = add(s->history, fd, &w);
	if (fd >= 0)
		(void)close(fd);
	return err;
}

static int take_names(struct serving *s, struct message *request, struct history_renamed *out)
{
	int fd = message_take_fd(request), err = -EBADMSG;

	if (fd >= 0 && !request->err)
		err = add_names(s->history, fd, out);
	if (fd >= 0)
		(void)close(fd);
	return err;
}

/* Add a window or names, and reply. */
static void answer(void *ctx, struct message *request, struct message *reply)
{
	struct history_renamed renamed = { .named = 0 };
	uint64_t what = message_take_number(request);
	int err = what == HISTORY_WINDOW  ? take_window(ctx, request)
		  : what == HISTORY_NAMES ? take_names(ctx, request, &renamed)
					  : -EBADMSG;

	message_number(reply, (uint64_t)(int64_t)err);
	if (what == HISTORY_NAMES)
		message_bytes(reply, &renamed, sizeof(renamed));
}

/* Between windows, keep the history within its limits, piece by piece. */
static void serve(struct channels *channels, struct history *h)
{
	struct serving s = { .history = h };
	bool more = false;

	while (!channels_answer_next(channels, more ? 0 : -1, answer, &s)) {
		more = s.keeps && keep(h);
		if (!more)
			(void)malloc_trim(
				0); /* return memory to the system until the next window */
	}
}

void history_serve(struct channels *channels, const char *path)
{
	struct history *h;
	int err = history_open(path, true, &h);

	if (err)
		return;
	err = sandbox_is_possible() ? sandbox_enter() : 0;
	if (err)
		log_error("the history: giving up rights: %s", strerror(-err));
	else
		serve(channels, h);
	history_close(h);
}

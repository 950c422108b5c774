/* agent/role/channel.c: a pool of socket pairs for requests and replies. */
#include "agent/role/channel.h"

#include "agent/clock.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct channel {
	int ask, answer; /* the two ends; -1: closed */
	bool taken;	 /* a request is under way, or late, or the channel is broken */
	bool slow;	 /* the request under way may take long */
	uint64_t since;	 /* when the request under way, or late, began; 0: there is none */
	uint32_t n_asked;
};

struct channels {
	pthread_mutex_t lock;
	pthread_cond_t free; /* a channel is not taken any more */
	size_t n, n_broken;
	bool abandoned;
	struct message *request, *reply; /* of channels_answer_next; NULL until its first call */
	struct channel channel[];
};

int channels_new(size_t n, struct channels **out)
{
	struct channels *c = calloc(1, sizeof(*c) + n * sizeof(c->channel[0]));
	int err = c ? 0 : -ENOMEM;

	assert(n <= CHANNELS_MAX);
	for (size_t i = 0; !err && i < n; i++) {
		int ends[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
			err = -errno;
			break;
		}
		c->channel[c->n++] = (struct channel){ .ask = ends[0], .answer = ends[1] };
	}
	if (err) {
		channels_free(c);
		return err;
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->free, NULL);
	*out = c;
	return 0;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void channels_free(struct channels *c)
{
	for (size_t i = 0; c && i < c->n; i++) {
		close_end(&c->channel[i].ask);
		close_end(&c->channel[i].answer);
	}
	if (c) {
		free(c->request);
		free(c->reply);
	}
	free(c);
}

void channels_ask(struct channels *c)
{
	for (size_t i = 0; i < c->n; i++)
		close_end(&c->channel[i].answer);
}

/* ---- answering --------------------------------------------------------------------- */

struct answering {
	int fd;
	channel_handle_fn handle;
	void *ctx;
};

/* Answer a request that was received. reply is memory for its message. */
static int reply_to(const struct answering *a, struct message *request, struct message *reply)
{
	int err;

	message_init(reply);
	a->handle(a->ctx, request, reply);
	reply->tag = request->tag;
	message_fini(request);
	err = message_send(a->fd, reply);
	message_fini(reply); /* the other process has its own descriptors */
	return err;
}

/* A channel that is answered on a thread of its own. */
struct answerer {
	struct answering what;
	struct channels *channels;
	size_t number;	       /* of the channel */
	struct answerer *next; /* which this one begins; NULL: there is none, or it has begun */
	pthread_t thread;      /* valid if it has begun; the first has none */
	bool has_begun;
};

static void *answer(void *ctx);

/* Begin the thread of the next channel. */
static void begin_next(struct answerer *a)
{
	struct channels *c = a->channels;
	struct answerer *next = a->next;

	if (!next)
		return;
	a->next = NULL;
	next->has_begun = !pthread_create(&next->thread, NULL, answer, next);
	/* Fewer threads mean fewer channels: calls on the others fail at once. */
	for (size_t i = next->number; !next->has_begun && i < c->n; i++)
		close_end(&c->channel[i].answer);
}

/*
 * Wait for something to receive, on this channel or on those that have no thread yet. The process that asks
 * takes the first channel that is free: the next one is used because this one is, or because it failed there.
 */
static void wait_for_request(struct answerer *a)
{
	const struct channels *c = a->channels;
	struct pollfd requests[CHANNELS_MAX];
	nfds_t n = 0;

	for (size_t i = a->number; i < c->n; i++)
		requests[n++] = (struct pollfd){ .fd = c->channel[i].answer, .events = POLLIN };
	if (poll(requests, n, -1) <= 0 || !requests[0].revents)
		begin_next(a);
}

/* Answer the requests of one channel until its other end is closed. */
static void *answer(void *ctx)
{
	struct answerer *a = ctx;
	struct message *request = malloc(sizeof(*request)), *reply = malloc(sizeof(*reply));
	int err;

	do {
		if (a->next)
			wait_for_request(a);
		err = request && reply ? message_receive(a->what.fd, request) : -ENOMEM;
		if (err != -EPIPE)
			begin_next(a);
		if (!err)
			err = reply_to(&a->what, request, reply);
	} while (!err);
	free(request);
	free(reply);
	/* The process that waits for a reply sees that none will come. */
	(void)shutdown(a->what.fd, SHUT_RDWR);
	return NULL;
}

int channels_answer_fd(const struct channels *c)
{
	return c->channel[0].answer;
}

int channels_answer_next(struct channels *c, int timeout_ms, channel_handle_fn handle, void *ctx)
{
	struct answering a = { c->channel[0].answer, handle, ctx };
	struct pollfd request = { .fd = a.fd, .events = POLLIN };

	for (size_t i = 0; i < c->n; i++)
		close_end(&c->channel[i].ask);
	if (poll(&request, 1, timeout_ms) <= 0)
		return 0;
	if (!c->request)
		c->request = malloc(sizeof(*c->request));
	if (!c->reply)
		c->reply = malloc(sizeof(*c->reply));
	return !c->request || !c->reply || message_receive(a.fd, c->request) ||
			       reply_to(&a, c->request, c->reply)
		       ? -EPIPE
		       : 0;
}

/* The first channel is answered on this thread, each other one on a thread of its own. */
void channels_answer(struct channels *c, channel_handle_fn handle, void *ctx)
{
	struct answerer *all = calloc(c->n, sizeof(*all));

	for (size_t i = 0; i < c->n; i++)
		close_end(&c->channel[i].ask);
	for (size_t i = 0; all && i < c->n; i++)
		all[i] = (struct answerer){ .what = { c->channel[i].answer, handle, ctx },
					    .channels = c,
					    .number = i,
					    .next = i + 1 < c->n ? &all[i + 1] : NULL };
	if (all && c->n)
		(void)answer(&all[0]);
	for (size_t i = 1; all && i < c->n && all[i].has_begun; i++)
		(void)pthread_join(all[i].thread, NULL);
	free(all);
}

/* ---- asking ------------------------------------------------------------------------ */

/* Wait until a channel may be free, but not longer than until then. Return false if it is later. */
static bool wait_free(struct channels *c, uint64_t until_ns)
{
	struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
				  .tv_nsec = (long)(until_ns % 1000000000) };

	return !until_ns ? !pthread_cond_wait(&c->free, &c->lock)
			 : !pthread_cond_clockwait(&c->free, &c->lock, CLOCK_MONOTONIC, &until);
}

/*
 * Find a free channel. Slow requests have half of them, so that others need not wait. -EBUSY: there is none now.
 * -EPIPE: all are broken, or abandoned.
 */
static int find_free(struct channels *c, bool slow, struct channel **out)
{
	size_t n_slow = 0;

	if (c->n_broken == c->n || c->abandoned)
		return -EPIPE;
	for (size_t i = 0; slow && i < c->n; i++)
		n_slow += c->channel[i].since && c->channel[i].slow;
	if (n_slow && n_slow >= c->n / 2)
		return -EBUSY;
	for (size_t i = 0; i < c->n; i++) {
		if (!c->channel[i].taken) {
			*out = &c->channel[i];
			return 0;
		}
	}
	return -EBUSY;
}

/* Take a free channel for a request that may be slow; wait for one until then, 0: without limit. */
static int take(struct channels *c, uint64_t until_ns, bool slow, struct channel **out)
{
	bool in_time = true;
	int err;

	(void)pthread_mutex_lock(&c->lock);
	while ((err = find_free(c, slow, out)) == -EBUSY && in_time)
		in_time = wait_free(c, until_ns);
	if (!err) {
		(*out)->taken = true;
		(*out)->slow = slow;
		(*out)->since = now_ns();
	}
	(void)pthread_mutex_unlock(&c->lock);
	return err;
}

/* Put a channel back. One that failed is not used any more: a late reply could arrive on it. */
static void put(struct channels *c, struct channel *channel, bool broken)
{
	(void)pthread_mutex_lock(&c->lock);
	channel->taken = broken;
	channel->since = 0;
	c->n_broken += broken;
	/* The first that waits may be one for whom it is not. */
	(void)pthread_cond_broadcast(&c->free);
	(void)pthread_mutex_unlock(&c->lock);
}

/* Return whether there is something to receive; wait for it until then. */
static bool is_readable(int fd, uint64_t until_ns)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	int n;

	do {
		uint64_t now = now_ns();

		n = poll(&readable, 1,
			 now < until_ns ? (int)((until_ns - now + 999999) / 1000000) : 0);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

/*
 * Wait for the reply to the request with this tag. Replies to an earlier process that asked on this
 * channel, and replies that came too late, are dropped. -ETIMEDOUT: there is none until then, 0: without limit.
 */
static int receive(const struct channel *channel, uint64_t tag, uint64_t until_ns,
		   struct message *reply)
{
	int err;

	for (;;) {
		if (until_ns && !is_readable(channel->ask, until_ns))
			return -ETIMEDOUT;
		err = message_receive(channel->ask, reply);
		if (err || reply->tag == tag)
			return err;
		message_fini(reply);
	}
}

bool channels_is_late(struct channels *c, size_t late)
{
	if (!is_readable(c->channel[late].ask, 0))
		return true;
	put(c, &c->channel[late], false);
	return false;
}

bool channels_hang(struct channels *c, uint64_t for_ns)
{
	uint64_t now = now_ns();
	size_t n = 0, n_slow = 0;

	(void)pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->n; i++) {
		const struct channel *channel = &c->channel[i];
		bool slow = channel->since && channel->slow;

		n_slow += slow;
		n += !slow && channel->since && channel->since + for_ns < now;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return n && 2 * n >= c->n - n_slow;
}

void channels_abandon(struct channels *c)
{
	(void)pthread_mutex_lock(&c->lock);
	c->abandoned = true;
	for (size_t i = 0; i < c->n; i++)
		(void)shutdown(c->channel[i].ask, SHUT_RDWR);
	(void)pthread_cond_broadcast(&c->free);
	(void)pthread_mutex_unlock(&c->lock);
}

int channels_call(struct channels *c, struct message *request, struct message *reply)
{
	return channels_call_within(c, request, reply, CHANNEL_NO_LIMIT, NULL);
}

int channels_call_within(struct channels *c, struct message *request, struct message *reply,
			 int timeout_ms, size_t *late)
{
	uint64_t until_ns = timeout_ms < 0 ? 0 : now_ns() + (uint64_t)timeout_ms * 1000000;
	struct channel *channel;
	uint64_t tag;
	int err = request->err;

	if (!err)
		err = take(c, until_ns, timeout_ms == CHANNEL_SLOW, &channel);
	if (err)
		return err;
	/* The channel is this thread's, so its number is, too. */
	tag = request->tag = (uint64_t)getpid() << 32 | channel->n_asked++;
	err = message_send(channel->ask, request);
	if (!err)
		err = receive(channel, tag, until_ns, reply);
	if (err == -ETIMEDOUT)
		*late = (size_t)(channel - c->channel);
	else
		put(c, channel, err != 0);
	return err == -ECONNRESET ? -EPIPE : err;
}

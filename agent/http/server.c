/* agent/http/server.c: takes requests from connections, has them answered, and sends the replies. */
#include "agent/http/server.h"

#include "agent/clock.h"
#include "agent/http/api.h"
#include "agent/http/microhttpd.h"
#include "agent/log.h"
#include "agent/role/sandbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	THREADS = 4,		  /* that answer at the same time, for each socket */
	CONNECTIONS = 1000,	  /* at the same time, for each socket */
	IDLE_S = 30,		  /* a connection that does nothing for so long is closed */
	CONNECTION_BYTES = 65536, /* of memory for one, with its headers */
	BODY_MAX = 65536,
	SHORT_REPLY = 65536,
	WAITING_MAX = 64, /* requests that wait for their samples */
};
#define UNSENT_MAX (UINT64_C(256) << 20) /* bytes of replies that clients have not read */
/* How long a request waits for the window that was ended for it. A busy machine takes some seconds to write one. */
#define WINDOW_WAIT_NS UINT64_C(15000000000)
#define MEMORY_MAX     (UINT64_C(2) << 30)
#define LOOK_NS	       100000000 /* how often the waiting requests are looked at */

/* A request from its first byte to its reply. */
struct exchange {
	char *body;
	size_t body_size;
	bool too_long;
	bool waited;		    /* for its samples */
	bool left;		    /* the client closed the connection meanwhile */
	uint64_t until_ns;	    /* CLOCK_MONOTONIC: when its samples are taken */
	uint64_t unsent;	    /* bytes of the reply */
	struct recording recording; /* that the request asked for */
};

struct waiting {
	struct MHD_Connection *connection; /* NULL: not in use */
	struct exchange *exchange;
	int fd; /* of the connection, which owns it */
};

struct serving {
	struct server *server;
	struct microhttpd mhd;
	pthread_mutex_t lock;
	struct api free[SERVER_SOCKETS * THREADS]; /* not in use by a thread */
	size_t n_free;
	struct api_remote remotes[SERVER_SOCKETS * THREADS]; /* of these, if there is no history */
	struct waiting waiting[WAITING_MAX];
	size_t n_waiting;
	pthread_cond_t added;	 /* with lock: one more waits */
	_Atomic uint64_t unsent; /* bytes of all replies */
};

struct listener {
	struct serving *serving;
	const struct server_socket *socket;
};

/* ---- who asks ---------------------------------------------------------------------------- */

/* Compare without telling by the time it takes how much is equal. */
static bool same_secret(const char *a, const char *b)
{
	size_t n = strlen(a);
	unsigned char differ = n != strlen(b);

	for (size_t i = 0; i < n && !(differ && i >= strlen(b)); i++)
		differ |= (unsigned char)(a[i] ^ b[i]);
	return !differ;
}

/* Return whether a host, "localhost:7227", is a name of this machine that no web site can have. */
static bool is_own_host(const struct server_socket *socket, const char *host)
{
	static const char *const own[] = { "localhost", "127.0.0.1", "[::1]" };

	if (socket->local || !strcasecmp(host, socket->host))
		return true;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		size_t n = strlen(own[i]);

		if (!strncasecmp(host, own[i], n) && (!host[n] || host[n] == ':'))
			return true;
	}
	return false;
}

/*
 * Refuse what a web page of others makes a browser ask for: a name that it let lead here (Host), or a
 * request from its own scripts (Origin). Return the status to refuse with, or 0.
 */
static unsigned int check_asker(const struct listener *l, struct MHD_Connection *c,
				const char *path)
{
	const struct microhttpd *mhd = &l->serving->mhd;
	const char *token = l->serving->server->token;
	const char *host = mhd->value(c, MHD_HEADER_KIND, "Host");
	const char *origin = mhd->value(c, MHD_HEADER_KIND, "Origin");
	const char *given = mhd->value(c, MHD_HEADER_KIND, "Authorization");
	const char *slashes = origin ? strstr(origin, "://") : NULL;

	if (l->socket->loopback && host && !is_own_host(l->socket, host))
		return MHD_HTTP_MISDIRECTED_REQUEST;
	if (origin && (!slashes || !host || strcasecmp(slashes + 3, host) != 0))
		return MHD_HTTP_FORBIDDEN;
	if (l->socket->local || !token || !strcmp(path, "/"))
		return 0; /* the page has no data; it asks for the token */
	return given && !strncasecmp(given, "Bearer ", 7) && same_secret(given + 7, token)
		       ? 0
		       : MHD_HTTP_UNAUTHORIZED;
}

/* ---- replies ----------------------------------------------------------------------------- */

static void add_headers(const struct serving *s, struct MHD_Response *r, const char *type)
{
	static const char *const headers[][2] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "Cache-Control", "no-store" },
		{ "Referrer-Policy", "no-referrer" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
		{ "X-Frame-Options", "SAMEORIGIN" },
	};

	(void)s->mhd.add_header(r, "Content-Type", type);
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		(void)s->mhd.add_header(r, headers[i][0], headers[i][1]);
}

static enum MHD_Result reply_error(const struct serving *s, struct MHD_Connection *c,
				   unsigned int status, const char *text, const char *allow)
{
	char line[HTTP_ERROR + 2];
	int n = snprintf(line, sizeof(line), "%s\n", text);
	struct MHD_Response *r = s->mhd.from_buffer((size_t)n, line, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result queued;

	if (!r)
		return MHD_NO;
	add_headers(s, r, "text/plain; charset=utf-8");
	if (status == MHD_HTTP_UNAUTHORIZED)
		(void)s->mhd.add_header(r, "WWW-Authenticate", "Bearer");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED && allow)
		(void)s->mhd.add_header(r, "Allow", allow);
	queued = s->mhd.queue(c, status, r);
	s->mhd.destroy(r);
	return queued;
}

static enum MHD_Result reply_text(const struct serving *s, struct MHD_Connection *c,
				  unsigned int status, const char *text)
{
	return reply_error(s, c, status, text, NULL);
}

/* Send the file of a reply, which is closed in each case. */
static enum MHD_Result reply_file(struct serving *s, struct MHD_Connection *c, struct exchange *e,
				  struct http_reply *reply)
{
	struct MHD_Response *r = NULL;
	enum MHD_Result queued;
	char disposition[128];
	struct stat st;
	int fd = -1;

	if (!fflush(reply->out) && !ferror(reply->out))
		fd = dup(fileno(reply->out));
	(void)fclose(reply->out);
	if (fd >= 0 && !fstat(fd, &st)) {
		uint64_t size = (uint64_t)st.st_size, others = atomic_fetch_add(&s->unsent, size);

		/* Short replies, such as those about health, are always given. */
		if (size > SHORT_REPLY && others + size > UNSENT_MAX) {
			(void)atomic_fetch_sub(&s->unsent, size);
			(void)close(fd);
			return reply_text(s, c, MHD_HTTP_SERVICE_UNAVAILABLE,
					  "too many replies wait for their clients");
		}
		e->unsent = size;
		r = s->mhd.from_fd((size_t)st.st_size, fd);
	}
	if (!r) {
		if (fd >= 0)
			(void)close(fd);
		return reply_text(s, c, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no memory");
	}
	add_headers(s, r, reply->type);
	if (reply->policy)
		(void)s->mhd.add_header(r, "Content-Security-Policy", reply->policy);
	if (reply->file) {
		(void)snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"",
			       reply->file);
		(void)s->mhd.add_header(r, "Content-Disposition", disposition);
	}
	queued = s->mhd.queue(c, reply->status, r);
	s->mhd.destroy(r);
	return queued;
}

/* ---- requests ---------------------------------------------------------------------------- */

static enum MHD_Result take_argument(void *ctx, enum MHD_ValueKind kind, const char *key,
				     const char *value)
{
	struct http_request *r = ctx;

	(void)kind;
	if (r->n_arguments == HTTP_ARGUMENTS)
		return MHD_NO;
	r->arguments[r->n_arguments++] =
		(struct http_argument){ .key = key, .value = value ? value : "" };
	return MHD_YES;
}

/* Take one that no thread uses, if there is one. */
static bool take_api(struct serving *s, struct api *out)
{
	bool there;

	(void)pthread_mutex_lock(&s->lock);
	there = s->n_free > 0;
	if (there)
		*out = s->free[--s->n_free];
	(void)pthread_mutex_unlock(&s->lock);
	return there;
}

static void give_api(struct serving *s, const struct api *api)
{
	(void)pthread_mutex_lock(&s->lock);
	s->free[s->n_free++] = *api;
	(void)pthread_mutex_unlock(&s->lock);
}

/* Suspend a request until its samples are taken, or its recording is over. Return whether there was room. */
static bool suspend(struct serving *s, struct MHD_Connection *c, struct exchange *e)
{
	const union MHD_ConnectionInfo *info = s->mhd.info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	bool room = false;

	(void)pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < WAITING_MAX && !room; i++) {
		if (s->waiting[i].connection)
			continue;
		room = true;
		s->waiting[i] = (struct waiting){ c, e, info ? info->connect_fd : -1 };
		s->n_waiting++;
		(void)pthread_cond_signal(&s->added);
		s->mhd.suspend(c);
	}
	(void)pthread_mutex_unlock(&s->lock);
	return room;
}

/* Let a request wait for samples. Return whether there was room for it. */
static bool wait_for_samples(struct serving *s, struct MHD_Connection *c, struct exchange *e,
			     uint32_t seconds)
{
	e->waited = true;
	e->until_ns = now_ns() + (uint64_t)seconds * 1000000000;
	return suspend(s, c, e);
}

/* Answer a request that is complete. */
static enum MHD_Result answer(struct serving *s, struct MHD_Connection *c, struct exchange *e,
			      const struct http_request *request)
{
	struct api api;
	bool there = take_api(s, &api);
	struct http_reply reply = { .status = 200 };
	int fd = memfd_create("reply", MFD_CLOEXEC);

	if (fd >= 0 && !(reply.out = fdopen(fd, "w+")))
		(void)close(fd);
	if (reply.out && there)
		api_answer(&api, request, &reply);
	else
		(void)http_fail(&reply, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no memory");
	if (there)
		give_api(s, &api);
	if (reply.status == 200)
		return reply_file(s, c, e, &reply);
	if (reply.out)
		(void)fclose(reply.out);
	if (reply.status == HTTP_LATER && suspend(s, c, e))
		return MHD_YES;
	if (reply.status == HTTP_LATER)
		return reply_text(s, c, MHD_HTTP_TOO_MANY_REQUESTS, "too many requests wait");
	return reply_error(s, c, reply.status, reply.error, reply.allow);
}

/* Return whether the history has the samples until a time; CLOCK_MONOTONIC. */
static bool is_written(const struct serving *s, uint64_t until_ns)
{
	/* A window ends within a millisecond of what was asked for. */
	return atomic_load(&s->server->shared->written_ns) + 1000000 >= until_ns;
}

/* Answer, or let the request wait first. */
static enum MHD_Result complete(const struct listener *l, struct MHD_Connection *c,
				struct exchange *e, const char *method, const char *path)
{
	struct serving *s = l->serving;
	struct http_request r = { .method = method,
				  .path = path,
				  .body = e->body ? e->body : "",
				  .body_size = e->body_size,
				  .now_ns = clock_ns(CLOCK_REALTIME),
				  .recording = &e->recording };
	unsigned int refused = check_asker(l, c, path);
	char from[32], to[32];
	uint32_t seconds;

	if (e->left)
		return MHD_NO;
	if (refused)
		return reply_text(s, c, refused,
				  refused == MHD_HTTP_UNAUTHORIZED ? "a token is required"
				  : refused == MHD_HTTP_FORBIDDEN  ? "this is not for other sites"
								  : "this host is not served here");
	/* Two are added below. */
	if (s->mhd.values(c, MHD_GET_ARGUMENT_KIND, NULL, NULL) > HTTP_ARGUMENTS - 2)
		return reply_text(s, c, MHD_HTTP_URI_TOO_LONG, "there are too many arguments");
	(void)s->mhd.values(c, MHD_GET_ARGUMENT_KIND, take_argument, &r);
	seconds = s->server->remote ? 0 : api_seconds(&r); /* hosts record, not their store */
	if (seconds && !e->waited) {
		if (wait_for_samples(s, c, e, seconds))
			return MHD_YES;
		return reply_text(s, c, MHD_HTTP_TOO_MANY_REQUESTS, "too many requests wait");
	}
	if (e->waited && !is_written(s, e->until_ns))
		return reply_text(s, c, MHD_HTTP_SERVICE_UNAVAILABLE,
				  "the samples were not written in time");
	if (e->waited) {
		/* Windows have the time that was told when they ended, if the clock was set. */
		double end = (double)(r.now_ns - (now_ns() - e->until_ns)) / 1e9;

		(void)snprintf(from, sizeof(from), "@%.6f", end - seconds);
		(void)snprintf(to, sizeof(to), "@%.6f", end);
		r.arguments[r.n_arguments++] = (struct http_argument){ "from", from };
		r.arguments[r.n_arguments++] = (struct http_argument){ "to", to };
	}
	return answer(s, c, e, &r);
}

/* Add a part of the body. */
static void take_body(struct exchange *e, const char *data, size_t size)
{
	char *longer;

	if (e->too_long || size > BODY_MAX - e->body_size ||
	    !(longer = realloc(e->body, e->body_size + size + 1))) {
		e->too_long = true;
		return;
	}
	e->body = longer;
	memcpy(e->body + e->body_size, data, size);
	e->body_size += size;
	e->body[e->body_size] = '\0';
}

/* Return whether a request says that its body will be too long; the body is not read then. */
static bool says_too_long(const struct listener *l, struct MHD_Connection *c)
{
	const char *size = l->serving->mhd.value(c, MHD_HEADER_KIND, "Content-Length");

	return size && strtoull(size, NULL, 10) > BODY_MAX;
}

static enum MHD_Result take(void *ctx, struct MHD_Connection *c, const char *path,
			    const char *method, const char *version, const char *data, size_t *size,
			    void **state)
{
	const struct listener *l = ctx;
	struct exchange *e = *state;

	(void)version;
	if (!e) {
		*state = e = calloc(1, sizeof(*e));
		if (e)
			e->recording = (struct recording)RECORDING_NONE;
		return !e		     ? MHD_NO
		       : says_too_long(l, c) ? reply_text(l->serving, c, MHD_HTTP_CONTENT_TOO_LARGE,
							  "the request is too long")
					     : MHD_YES;
	}
	if (*size) {
		take_body(e, data, *size);
		*size = 0;
		/* A body that comes in pieces of its own sizes may have no end: close the connection. */
		return e->too_long ? MHD_NO : MHD_YES;
	}
	return complete(l, c, e, method, path);
}

static void forget(void *ctx, struct MHD_Connection *c, void **state,
		   enum MHD_RequestTerminationCode why)
{
	struct exchange *e = *state;
	struct serving *s = ctx;

	(void)c;
	(void)why;
	if (e) {
		(void)atomic_fetch_sub(&s->unsent, e->unsent);
		recording_end(&e->recording);
		free(e->body);
	}
	free(e);
	*state = NULL;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Return whether the client closed its end; libmicrohttpd does not look at a suspended connection. */
static bool has_left(const struct waiting *w)
{
	struct pollfd end = { .fd = w->fd, .events = POLLRDHUP };

	return poll(&end, 1, 0) == 1 && end.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

/* Go on with a request that waited. */
static void resume(struct serving *s, struct waiting *w)
{
	s->mhd.resume(w->connection);
	w->connection = NULL;
	s->n_waiting--;
}

/*
 * Go on with the requests whose samples are there, or do not come, or are not wanted any more. Before, sleep until a request
 * waits.
 */
static void look_at_waiting(struct serving *s)
{
	uint64_t now;

	(void)pthread_mutex_lock(&s->lock);
	while (!s->n_waiting)
		(void)pthread_cond_wait(&s->added, &s->lock);
	now = now_ns();
	for (size_t i = 0; i < WAITING_MAX; i++) {
		struct waiting *w = &s->waiting[i];

		if (!w->connection)
			continue;
		w->exchange->left = has_left(w);
		if (w->exchange->left) {
			resume(s, w);
			continue;
		}
		if (w->exchange->recording.end >= 0) {
			if (!recording_is_over(&w->exchange->recording, now))
				continue;
			resume(s, w);
			continue;
		}
		if (now < w->exchange->until_ns)
			continue;
		if (atomic_load(&s->server->shared->flush_ns) < w->exchange->until_ns)
			atomic_store(&s->server->shared->flush_ns, w->exchange->until_ns);
		if (!is_written(s, w->exchange->until_ns) &&
		    now < w->exchange->until_ns + WINDOW_WAIT_NS)
			continue;
		resume(s, w);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

/* ---- serving ----------------------------------------------------------------------------- */

static int open_histories(struct serving *s)
{
	struct channels *supervisor =
		s->server->supervisor ? s->server->supervisor(s->server->ctx) : NULL;
	int err = 0;

	for (int i = 0; i < s->server->n_sockets * THREADS && !err; i++) {
		struct api *api = &s->free[i];

		api->cost = s->server->cost;
		api->supervisor = supervisor;
		api->recordings = &s->server->shared->recordings;
		api->sending = s->server->sending;
		err = history_open(s->server->history, false, &api->history);
		if (!err) /* without unwind tables the rest is served */
			(void)api_sql_open(s->server->store, s->server->history, api->history,
					   &api->sql);
		s->n_free += !err;
	}
	return err;
}

static int open_remotes(struct serving *s)
{
	int err = 0;

	for (int i = 0; i < s->server->n_sockets * THREADS && !err; i++) {
		err = s->server->remote(s->server->ctx, &s->remotes[i]);
		s->free[i].remote = &s->remotes[i];
		s->n_free += !err;
	}
	return err;
}

/* Open what is served, and give up all rights but those to serve it. */
static int prepare(struct serving *s)
{
	const struct server *server = s->server;
	int err = server->remote ? open_remotes(s)
				 : history_write_nothing(server->history, server->store);

	if (!err && !server->remote)
		err = open_histories(s);
	if (err || !sandbox_is_possible())
		return err;
	err = server->remote ? sandbox_enter_sender(server->reach) : sandbox_enter_server();
	if (err)
		log_error("the server: giving up rights: %s", strerror(-err));
	return err;
}

static int start(struct serving *s, struct listener *l)
{
	const struct server *server = s->server;
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
	const bool tls = server->certificate && !l->socket->local;
	struct MHD_OptionItem secure[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)server->certificate },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)server->key },
		{ MHD_OPTION_END, 0, NULL },
	};

	if (tls)
		flags |= MHD_USE_TLS;
	if (!s->mhd.start(flags, 0, NULL, NULL, take, l, MHD_OPTION_LISTEN_SOCKET, l->socket->fd,
			  MHD_OPTION_THREAD_POOL_SIZE, (unsigned int)THREADS,
			  MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS,
			  MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_S,
			  MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
			  MHD_OPTION_NOTIFY_COMPLETED, forget, s, MHD_OPTION_ARRAY,
			  tls ? secure : secure + 2, MHD_OPTION_END)) {
		log_error("%s: cannot be served", l->socket->host);
		return -EIO;
	}
	return 0;
}

int server_run(struct server *server)
{
	static struct serving s;
	static struct listener listeners[SERVER_SOCKETS];
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	int err;

	s = (struct serving){ .server = server };
	(void)setpriority(PRIO_PROCESS, 0, 0); /* what is recorded comes first */
	sandbox_limit_memory(MEMORY_MAX);
	(void)pthread_mutex_init(&s.lock, NULL);
	(void)pthread_cond_init(&s.added, NULL);
	err = microhttpd_load(&s.mhd);
	if (!err)
		err = prepare(&s);
	for (int i = 0; i < server->n_sockets && !err; i++) {
		listeners[i] = (struct listener){ &s, &server->sockets[i] };
		err = start(&s, &listeners[i]);
	}
	if (!err)
		atomic_store(&server->shared->serving, true);
	while (!err) {
		(void)nanosleep(&pause, NULL);
		look_at_waiting(&s);
	}
	return err;
}

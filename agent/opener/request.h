/*
 * agent/opener/request.h: the opener in a process of its own: its functions as requests and replies.
 *
 * A worker in the sandbox can open no file. Its opener (opener_new after request_use) sends every call
 * to the opener's process, and gets descriptors back. That process opens and never reads: of what it
 * opens by a name it looks at the bytes only that tell an ELF file, to give out nothing else.
 */
#ifndef AGENT_OPENER_REQUEST_H
#define AGENT_OPENER_REQUEST_H

#include "agent/opener/opener.h"
#include "agent/role/channel.h"

#include <sys/types.h>

/* In the opener's process: answer requests until the asking process has ended. */
void request_serve(struct channels *channels);

/*
 * What request_serve uses: the openers that were asked for, and the answer to one request
 * (channel_handle_fn; ctx is the server). The files in reply belong to the caller.
 */
struct request_server;
int request_server_new(struct request_server **out); /* -ENOMEM */
void request_server_free(struct request_server *server);
void request_answer(void *ctx, struct message *request, struct message *reply);

/* In the worker: send the calls of all openers made from now on through these channels; borrowed. */
void request_use(struct channels *channels);
/*
 * Let another process answer, at the other end of these channels, when calls to the one before have had no reply
 * for hung_ns: half of as many as there can be, or one of the main thread. It waits for files that do not
 * answer, and may do so for ever. Calls that wait fail then. replaced is called with the new process's id.
 * If this one cannot begin, nor another one after it, the worker ends by SIGKILL, for the next worker to have an
 * opener. Borrowed; REQUEST_SPARES at most, before there are other threads.
 */
enum { REQUEST_SPARES = 3 };
void request_spare(struct channels *channels, uint64_t hung_ns, void (*replaced)(pid_t pid));

enum request_what {
	REQUEST_NEW,
	REQUEST_USER_OF,
	REQUEST_VIEW,
	REQUEST_HAS_OWN_DEBUG,
	REQUEST_OPEN,
	REQUEST_OPEN_DEBUG,
	REQUEST_FETCH,
	REQUEST_WANT_DEBUG,
	REQUEST_FETCHED_DEBUG,
	REQUEST_OPEN_NAMED,
	REQUEST_OPEN_SUFFIXED,
	REQUEST_PERF_MAP,
	REQUEST_OPEN_JIT,
	REQUEST_KALLSYMS,
	REQUEST_COPY_KALLSYMS,
	REQUEST_KEEP_KALLSYMS,
	REQUEST_STORED_KALLSYMS,
	REQUEST_MEMORY,
	REQUEST_READ_MEMORY,
	REQUEST_USER_NAME,
	REQUEST_CONTEXT,
	REQUEST_PROCESS, /* the id of the opener's process */
};

/* All that a request can hold; which fields a call uses is the same as its function's parameters. */
struct request {
	enum request_what what;
	uint64_t opener; /* number of the opener in its process */
	struct opener_options options;
	struct opener_file file;
	struct opener_user user; /* of perf maps and jitdump files; file has its own */
	struct uw_build_id id;
	const char *link, *name, *directory;
	uint64_t next;
	uint32_t pid, ns_pid;
	bool flag;
	int fd; /* -1: none */
	struct opener_part *parts;
	size_t n_parts;
};

struct reply {
	int err;
	uint64_t number; /* next, view, opener, process, or whether it is so */
	bool linked;
	struct opener_user user;
	int fd;		/* -1: none */
	uint8_t *bytes; /* of memory; owned in the opener's process, NULL elsewhere */
	size_t n_bytes;
};

/* Return the opener's number in its process, for opener_new; 0: the opener works in this process. */
int request_new(const struct opener_options *options, uint64_t *number);
/* Let that opener ask debuginfod, for opener_fetch. Return whether there is a server to ask. */
bool request_fetch(uint64_t number);
/* Send a request and wait for its reply. Return reply->err, or the error of the connection. */
int request_call(struct request *request, struct reply *reply);
/*
 * Do the same for a file: *fd, and *next if the request is for the next candidate (else NULL). *fd is
 * unchanged on failure.
 */
int request_file(struct request *request, unsigned int *next, int *fd);

/*
 * Read memory in the opener's process: request->parts, at most REQUEST_PARTS_MAX of together at most
 * REQUEST_BYTES_MAX, and request->fd the memory. -EBUSY: nothing could be asked within timeout_ms.
 * -ETIMEDOUT: there was no reply, and *late is for request_is_late, which returns whether it is still to come:
 * none is from a process that was replaced.
 */
#define REQUEST_BYTES_MAX ((size_t)28 << 10)
#define REQUEST_PARTS_MAX ((size_t)128)
int request_parts(struct request *request, int timeout_ms, size_t *late);
bool request_is_late(size_t late);
/* Copy a process context: request->pid and request->next, its known time. As request_parts. */
int request_context(struct request *request, int timeout_ms, struct opener_context *out,
		    size_t *late);
/* Read a user's name: request->user.uid has the number. */
int request_user_name(struct request *request, char name[OPENER_USER_NAME]);

#endif

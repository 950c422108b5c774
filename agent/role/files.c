/* agent/role/files.c: opens named files here, or through the supervisor. */
#include "agent/role/files.h"

#include "agent/role/message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int supervisor = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one request at a time */

void files_ask(int socket)
{
	supervisor = socket;
}

bool files_are_asked_for(void)
{
	return supervisor >= 0;
}

/*
 * Send a request and read the reply's error, number, facts and file, each into what is not NULL.
 * Frees nothing: m is the caller's.
 */
static int ask(struct message *m, int *fd, uint64_t *number, struct files_facts *facts)
{
	struct files_facts its;
	uint64_t taken;
	int err, got;

	(void)pthread_mutex_lock(&lock);
	err = message_send(supervisor, m);
	if (!err)
		err = message_receive(supervisor, m);
	(void)pthread_mutex_unlock(&lock);
	if (err)
		return err;
	err = (int)(int64_t)message_take_number(m);
	taken = message_take_number(m);
	message_take_bytes(m, &its, sizeof(its));
	got = fd ? message_take_fd(m) : -1;
	message_fini(m);
	if (!err && (m->err || (fd && got < 0)))
		err = m->err ? m->err : -EBADMSG;
	if (err && got >= 0)
		(void)close(got);
	else if (!err && fd)
		*fd = got;
	if (!err && number)
		*number = taken;
	if (!err && facts)
		*facts = its;
	return err;
}

/* A request; of the fields of a reply, NULL is not wanted. */
struct call {
	enum files_request what;
	const char *text;
	uint64_t value;
	int with; /* a file that goes with the request; -1: none */
	int *fd;
	uint64_t *number;
	struct files_facts *facts;
	files_put_fn put; /* writes further fields; NULL: there are none */
	void *ctx;
};

static int call(const struct call *c)
{
	struct message *m = malloc(sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	message_init(m);
	message_number(m, c->what);
	message_number(m, c->value);
	message_text(m, c->text);
	message_fd(m, c->with);
	if (c->put)
		c->put(c->ctx, m);
	err = m->err ? m->err : ask(m, c->fd, c->number, c->facts);
	free(m);
	return err;
}

#define CALL(...) call(&(struct call){ .with = -1, __VA_ARGS__ })

int files_open(const char *path, int *fd)
{
	bool standard = !strcmp(path, "-");
	int opened;

	if (supervisor >= 0 && !standard)
		return CALL(.what = FILES_OPEN, .text = path, .fd = fd);
	opened = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

int files_open_in(int directory, const char *name, bool follow_link, int *fd)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow_link ? 0 : O_NOFOLLOW), opened;
	struct call open_in = { .what = FILES_OPEN_IN,
				.text = name,
				.value = follow_link,
				.with = directory,
				.fd = fd };

	if (supervisor >= 0)
		return call(&open_in);
	opened = openat(directory, name, flags);
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

int files_stat(const char *path, struct files_facts *out)
{
	struct stat st;

	if (supervisor >= 0)
		return CALL(.what = FILES_STAT, .text = path, .facts = out);
	if (stat(path, &st))
		return -errno;
	*out = (struct files_facts){ .mode = st.st_mode,
				     .inode = st.st_ino,
				     .mtime_s = st.st_mtim.tv_sec };
	return 0;
}

int files_scratch(int *fd)
{
	int opened;

	if (supervisor >= 0)
		return CALL(.what = FILES_SCRATCH, .fd = fd);
	opened = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (opened < 0)
		opened = memfd_create("scratch", MFD_CLOEXEC);
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

int files_output(const char *path, bool in_place, int *fd, uint64_t *number)
{
	return CALL(.what = FILES_OUTPUT, .text = path, .value = in_place, .fd = fd,
		    .number = number);
}

int files_commit(uint64_t number)
{
	return CALL(.what = FILES_COMMIT, .value = number);
}

void files_abort(uint64_t number)
{
	(void)CALL(.what = FILES_ABORT, .value = number);
}

void files_tell(enum files_request what, files_put_fn put, void *ctx)
{
	if (supervisor >= 0)
		(void)CALL(.what = what, .put = put, .ctx = ctx);
}

void files_keep(void)
{
	(void)CALL(.what = FILES_KEEP);
}

int files_command(uint64_t what, uint64_t *number)
{
	return CALL(.what = FILES_COMMAND, .value = what, .number = number);
}

void files_done(void)
{
	if (supervisor >= 0)
		(void)CALL(.what = FILES_DONE);
}

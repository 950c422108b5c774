/* agent/opener/request.c: the two ends of an opener that is in another process. */
#include "agent/opener/request.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/io.h"
#include "agent/log.h"
#include "agent/opener/places.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPENERS_MAX 4096

/* How long a new process may take to answer at first. */
#define BEGIN_MS 10000

/* An opener in that process. */
struct made {
	struct opener_options options; /* owned */
	bool fetches;
};

/* In the worker: whom it asks. */
static struct {
	struct channels *of[1 + REQUEST_SPARES]; /* each to a process */
	_Atomic size_t n;			 /* 0: openers work in this process */
	_Atomic size_t now;			 /* the current one */
	uint64_t hung_ns;
	void (*replaced)(pid_t pid);
	atomic_bool has_symfs;
	pthread_mutex_t lock; /* held while one is replaced; and of what follows */
	struct made *made;    /* by their number - 1; owned */
	size_t n_made, room;
} used = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void free_options(struct opener_options *o)
{
	free((char *)(uintptr_t)o->symfs);
	free((char *)(uintptr_t)o->exe);
	free((char *)(uintptr_t)o->beside);
	free((char *)(uintptr_t)o->debug_dir);
}

void request_use(struct channels *channels)
{
	for (size_t i = 0; i < used.n_made; i++)
		free_options(&used.made[i].options);
	used.n_made = 0;
	used.has_symfs = false;
	used.of[0] = channels;
	used.n = channels != NULL;
	used.now = 0;
}

void request_spare(struct channels *channels, uint64_t hung_ns, void (*replaced)(pid_t pid))
{
	assert(used.n && used.n <= REQUEST_SPARES);
	used.of[used.n] = channels;
	used.n++;
	used.hung_ns = hung_ns;
	used.replaced = replaced;
}

/* ---- requests and replies as messages --------------------------------------------------- */

static void put_user(struct message *m, const struct opener_user *user)
{
	message_number(m, (uint64_t)user->known | (uint64_t)user->reads_all << 1);
	message_number(m, user->uid);
	message_number(m, user->gid);
	message_number(m, user->n_groups);
	message_bytes(m, user->groups, sizeof(user->groups));
}

/* The other process may have been taken over: each field gets a value that it can have. */
static void take_user(struct message *m, struct opener_user *user)
{
	uint64_t flags = message_take_number(m);

	user->known = flags & 1;
	user->reads_all = flags >> 1 & 1;
	user->uid = (uint32_t)message_take_number(m);
	user->gid = (uint32_t)message_take_number(m);
	user->n_groups = (uint32_t)message_take_number(m);
	message_take_bytes(m, user->groups, sizeof(user->groups));
	if (user->n_groups > OPENER_GROUPS_MAX) {
		user->n_groups = 0;
		m->err = m->err ? m->err : -EBADMSG;
	}
}

static void put_id(struct message *m, const struct uw_build_id *id)
{
	message_bytes(m, id, sizeof(*id));
}

static void take_id(struct message *m, struct uw_build_id *id)
{
	message_take_bytes(m, id, sizeof(*id));
	if (id->size > UW_BUILD_ID_MAX)
		m->err = m->err ? m->err : -EBADMSG;
}

static void put_options(struct message *m, const struct opener_options *o)
{
	message_number(m, o->live);
	message_number(m, o->other_host);
	message_number(m, o->until_ns);
	message_text(m, o->symfs);
	message_text(m, o->exe);
	message_text(m, o->beside);
	message_text(m, o->debug_dir);
}

static void take_options(struct message *m, struct opener_options *o)
{
	o->live = message_take_number(m);
	o->other_host = message_take_number(m);
	o->until_ns = message_take_number(m);
	o->symfs = message_take_text(m);
	o->exe = message_take_text(m);
	o->beside = message_take_text(m);
	o->debug_dir = message_take_text(m);
}

static void put_file(struct message *m, const struct opener_file *f)
{
	static const struct opener_user unknown = { .known = false };

	message_number(m, f->pid);
	message_number(m, f->start);
	message_number(m, f->end);
	message_number(m, f->major);
	message_number(m, f->minor);
	message_number(m, f->inode);
	message_number(m, f->inode_generation);
	message_number(m, (uint64_t)f->deleted | (uint64_t)f->main_program << 1 |
				  (uint64_t)f->named << 2 | (uint64_t)f->compared << 3 |
				  (uint64_t)(f->user != NULL) << 4);
	message_number(m, f->view);
	message_number(m, f->elf_off);
	put_id(m, &f->build_id);
	put_user(m, f->user ? f->user : &unknown);
	message_text(m, f->path);
}

static void take_file(struct message *m, struct opener_file *f, struct opener_user *user)
{
	uint64_t flags;

	f->pid = (uint32_t)message_take_number(m);
	f->start = message_take_number(m);
	f->end = message_take_number(m);
	f->major = (uint32_t)message_take_number(m);
	f->minor = (uint32_t)message_take_number(m);
	f->inode = message_take_number(m);
	f->inode_generation = message_take_number(m);
	flags = message_take_number(m);
	f->deleted = flags & 1;
	f->main_program = flags >> 1 & 1;
	f->named = flags >> 2 & 1;
	f->compared = flags >> 3 & 1;
	f->view = message_take_number(m);
	f->elf_off = message_take_number(m);
	take_id(m, &f->build_id);
	take_user(m, user);
	f->user = flags >> 4 & 1 ? user : NULL;
	f->path = message_take_text(m);
}

static void put_parts(struct message *m, const struct opener_part *parts, size_t n)
{
	message_number(m, n);
	for (size_t i = 0; i < n; i++) {
		message_number(m, parts[i].addr);
		message_number(m, parts[i].size);
	}
}

/* Take what put_parts wrote: at most REQUEST_PARTS_MAX. */
static size_t take_parts(struct message *m, struct opener_part *parts)
{
	uint64_t n = message_take_number(m);

	if (n > REQUEST_PARTS_MAX) {
		m->err = m->err ? m->err : -EBADMSG;
		return 0;
	}
	for (uint64_t i = 0; i < n; i++) {
		parts[i] = (struct opener_part){ .addr = message_take_number(m) };
		parts[i].size = message_take_number(m);
	}
	return n;
}

static void put_request(struct message *m, const struct request *r)
{
	message_init(m);
	message_number(m, r->what);
	message_number(m, r->opener);
	message_number(m, r->next);
	message_number(m, r->pid);
	message_number(m, r->ns_pid);
	message_number(m, r->flag);
	put_options(m, &r->options);
	put_file(m, &r->file);
	put_id(m, &r->id);
	put_user(m, &r->user);
	message_text(m, r->link);
	message_text(m, r->name);
	message_text(m, r->directory);
	if (r->what == REQUEST_READ_MEMORY)
		put_parts(m, r->parts, r->n_parts);
	message_fd(m, r->fd);
}

/*
 * user: where the user of r->file is stored; r->parts has room for REQUEST_PARTS_MAX. The texts are borrowed
 * from m.
 */
static void take_request(struct message *m, struct request *r, struct opener_user *user)
{
	r->what = (enum request_what)message_take_number(m);
	r->opener = message_take_number(m);
	r->next = message_take_number(m);
	r->pid = (uint32_t)message_take_number(m);
	r->ns_pid = (uint32_t)message_take_number(m);
	r->flag = message_take_number(m);
	take_options(m, &r->options);
	take_file(m, &r->file, user);
	take_id(m, &r->id);
	take_user(m, &r->user);
	r->link = message_take_text(m);
	r->name = message_take_text(m);
	r->directory = message_take_text(m);
	if (r->what == REQUEST_READ_MEMORY)
		r->n_parts = take_parts(m, r->parts);
	r->fd = message_take_fd(m);
}

static void put_reply(struct message *m, const struct reply *r)
{
	message_init(m);
	message_number(m, (uint64_t)(int64_t)r->err);
	message_number(m, r->number);
	message_number(m, r->linked);
	put_user(m, &r->user);
	message_bytes(m, r->bytes, r->n_bytes);
	message_fd(m, r->fd);
}

static void take_reply(struct message *m, struct reply *r)
{
	r->err = (int)(int64_t)message_take_number(m);
	r->number = message_take_number(m);
	r->linked = message_take_number(m);
	take_user(m, &r->user);
	r->fd = message_take_fd(m);
}

/* ---- the worker's end ------------------------------------------------------------------- */

/* Take the bytes of the parts: which of them could be read, then these. */
static void take_read(struct message *m, struct opener_part *parts, size_t n)
{
	uint8_t has[REQUEST_PARTS_MAX];

	message_take_bytes(m, has, n);
	for (size_t i = 0; i < n && !m->err; i++) {
		if (!has[i])
			continue;
		message_take_bytes(m, parts[i].out, parts[i].size);
		parts[i].err = m->err ? -EFAULT : 0;
	}
}

/* Ask a process that is not the current one yet. m is memory for the messages. */
static int ask_next(struct channels *channels, const struct request *request, struct message *m,
		    uint64_t *number)
{
	struct reply reply = { .fd = -1 };
	size_t late;
	int err;

	put_request(m, request);
	err = channels_call_within(channels, m, m, BEGIN_MS, &late);
	if (err)
		return err;
	take_reply(m, &reply);
	*number = reply.number;
	err = m->err ? m->err : reply.err;
	message_fini(m);
	return err;
}

/* Let the next process have the opener that the current one has with this number. */
static int make_in_next(struct channels *next, struct message *m, uint64_t number)
{
	const struct made *made = &used.made[number - 1];
	struct request request = { .what = REQUEST_NEW, .options = made->options, .fd = -1 };
	uint64_t got = 0;
	int err = ask_next(next, &request, m, &got);

	if (!err && got != number)
		err = -EBADMSG;
	if (err || !made->fetches)
		return err;
	request = (struct request){ .what = REQUEST_FETCH, .opener = number, .fd = -1 };
	err = ask_next(next, &request, m, &got);
	if (!err && !got)
		log_warning("the next process that opens files cannot ask debuginfod: debug files "
			    "are not fetched any more");
	return err;
}

static int begin_next(struct channels *next, struct message *m, uint64_t *pid)
{
	struct request request = { .what = REQUEST_PROCESS, .opener = 1, .fd = -1 };
	int err = 0;

	for (size_t i = 0; !err && i < used.n_made; i++)
		err = make_in_next(next, m, i + 1);
	return err ? err : ask_next(next, &request, m, pid);
}

/*
 * Let the next process answer that can begin. Its first request begins it, and ends the current one
 * (supervisor_start_spare): so without a next one, this worker cannot go on. m is memory for the messages.
 */
static void replace(struct message *m)
{
	size_t before = used.now, next = before;
	uint64_t pid = 0;
	int err;

	do {
		err = begin_next(used.of[++next], m, &pid);
		if (err)
			log_warning("the process that opens files waits for files that do not "
				    "answer, and another one could not be begun: %s%s",
				    strerror(-err),
				    next + 1 < used.n
					    ? ""
					    : "; nor is there a further one, so the worker ends");
	} while (err && next + 1 < used.n);
	if (err)
		(void)raise(SIGKILL);
	log_warning("the process that opens files waits for files that do not answer, and is "
		    "replaced (%zu of %zu times)",
		    next, used.n - 1);
	used.now = next;
	channels_abandon(used.of[before]);
	used.replaced((pid_t)pid);
}

/* Replace the current process if it hangs: half of its channels, or the main thread that waited for which. */
static void replace_hung(struct message *m, const size_t *which)
{
	(void)pthread_mutex_lock(&used.lock);
	if (used.now + 1 < used.n &&
	    (which ? *which == used.now : channels_hang(used.of[used.now], used.hung_ns)))
		replace(m);
	(void)pthread_mutex_unlock(&used.lock);
}

/* Return whether another process answers than this one. Wait, if that is about to be so. */
static bool is_replaced(size_t which)
{
	bool replaced;

	(void)pthread_mutex_lock(&used.lock);
	replaced = used.now != which;
	(void)pthread_mutex_unlock(&used.lock);
	return replaced;
}

/*
 * Return how long a call may take that has no limit: while the main thread waits, nothing is recorded, and
 * the worker would be ended (wait_for_request). To wait for debuginfod, and to list what is below --symfs, takes long.
 */
static int limit_of(const struct request *request, bool *is_ours)
{
	bool slow = request->what == REQUEST_FETCHED_DEBUG;

	*is_ours = gettid() == getpid() && used.now + 1 < used.n && !slow && !used.has_symfs;
	if (*is_ours)
		return (int)(used.hung_ns / 1000000);
	return slow ? CHANNEL_SLOW : CHANNEL_NO_LIMIT;
}

/* A late reply's number says which process it is of. */
enum { LATE_BITS = 16 };

/*
 * Send a request through channels and receive the reply in m. If the process is replaced meanwhile, and it
 * is not known that it hangs because of this request, ask the next one.
 */
static int ask_current(const struct request *request, struct message *m, int timeout_ms,
		       size_t *late)
{
	uint64_t began = now_ns();
	bool is_ours = false;
	size_t which, number = 0;
	int err;

	replace_hung(m, NULL);
	if (timeout_ms < 0)
		timeout_ms = limit_of(request, &is_ours);
	do {
		which = used.now;
		put_request(m, request);
		err = channels_call_within(used.of[which], m, m, timeout_ms, &number);
	} while (err == -EPIPE && now_ns() - began < used.hung_ns && is_replaced(which));
	if ((err == -ETIMEDOUT || err == -EBUSY) && is_ours) {
		replace_hung(m, &which);
		return -EPIPE;
	}
	if (err == -ETIMEDOUT)
		*late = number | which << LATE_BITS;
	return err;
}

/*
 * Send a request and wait for its reply: timeout_ms at most, -1: without limit. Copy the n bytes that
 * come with a success, or those of the request's parts.
 */
static int call(struct request *request, int timeout_ms, struct reply *reply, void *bytes, size_t n,
		size_t *late)
{
	struct message *m = malloc(sizeof(*m));
	int err;

	*reply = (struct reply){ .fd = -1 };
	if (!m)
		return -ENOMEM;
	err = ask_current(request, m, timeout_ms, late);
	if (!err) {
		take_reply(m, reply);
		if (!reply->err && n)
			message_take_bytes(m, bytes, n);
		if (!reply->err)
			take_read(m, request->parts, request->n_parts);
		err = m->err ? m->err : reply->err;
		message_fini(m);
		if (m->err)
			reply->user = (struct opener_user){ .known = false };
	}
	free(m);
	if (err && reply->fd >= 0) {
		(void)close(reply->fd);
		reply->fd = -1;
	}
	/* The opener's process has ended. */
	return err == -EPIPE ? -EIO : err;
}

int request_call(struct request *request, struct reply *reply)
{
	return call(request, -1, reply, NULL, 0, NULL);
}

int request_parts(struct request *request, int timeout_ms, size_t *late)
{
	struct reply reply;

	return call(request, timeout_ms, &reply, NULL, 0, late);
}

int request_context(struct request *request, int timeout_ms, struct opener_context *out,
		    size_t *late)
{
	struct reply reply;
	int err = call(request, timeout_ms, &reply, out, sizeof(*out), late);

	return !err && out->n > sizeof(out->bytes) ? -EBADMSG : err;
}

int request_user_name(struct request *request, char name[OPENER_USER_NAME])
{
	struct reply reply;
	int err = call(request, -1, &reply, name, OPENER_USER_NAME, NULL);

	name[OPENER_USER_NAME - 1] = '\0';
	return err;
}

bool request_is_late(size_t late)
{
	return channels_is_late(used.of[late >> LATE_BITS], late & (((size_t)1 << LATE_BITS) - 1));
}

int request_file(struct request *request, unsigned int *next, int *fd)
{
	struct reply reply;
	int err;

	if (next)
		request->next = *next;
	err = request_call(request, &reply);
	if (next)
		*next = (unsigned int)reply.number;
	if (!err)
		*fd = reply.fd;
	return err;
}

static char *copy_text(const char *text, int *err)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		*err = -ENOMEM;
	return copy;
}

/*
 * Note an opener that the current process has, for the next one. Without memory there is no next one. The
 * worker makes its openers on one thread, so a number that does not follow the last one is of an earlier opener.
 */
static void note_made(const struct opener_options *options, uint64_t number)
{
	struct opener_options copy = *options;
	int err;

	(void)pthread_mutex_lock(&used.lock);
	if (number == used.n_made + 1) {
		err = array_grow(used.made, used.n_made, used.room);
		copy.symfs = copy_text(options->symfs, &err);
		copy.exe = copy_text(options->exe, &err);
		copy.beside = copy_text(options->beside, &err);
		copy.debug_dir = copy_text(options->debug_dir, &err);
		if (err) {
			free_options(&copy);
			used.n = used.now + 1;
		} else {
			used.made[used.n_made++] = (struct made){ .options = copy };
			used.has_symfs |= copy.symfs != NULL;
		}
	}
	(void)pthread_mutex_unlock(&used.lock);
}

int request_new(const struct opener_options *options, uint64_t *number)
{
	struct request request = { .what = REQUEST_NEW, .options = *options, .fd = -1 };
	struct reply reply;
	size_t which;
	int err;

	*number = 0;
	if (!used.n)
		return 0;
	/* A process that took over before it was noted does not have it. */
	do {
		which = used.now;
		err = request_call(&request, &reply);
		if (err)
			return err;
		*number = reply.number;
		note_made(options, reply.number);
	} while (is_replaced(which));
	return 0;
}

bool request_fetch(uint64_t number)
{
	struct request request = { .what = REQUEST_FETCH, .opener = number, .fd = -1 };
	struct reply reply;
	bool fetches = !request_call(&request, &reply) && reply.number;

	(void)pthread_mutex_lock(&used.lock);
	if (number <= used.n_made)
		used.made[number - 1].fetches = fetches;
	(void)pthread_mutex_unlock(&used.lock);
	return fetches;
}

/* ---- the opener's end ------------------------------------------------------------------- */

/*
 * The openers that were asked for, each once. None is freed: a worker could ask one thread to free
 * what another uses.
 */
struct request_server {
	pthread_mutex_t lock;
	struct opener **openers;
	size_t n, room;
	pthread_mutex_t symfs; /* the index of --symfs is built at its first use */
};

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool has_options(const struct opener *o, const struct opener_options *options)
{
	return o->live == options->live && o->other_host == options->other_host &&
	       o->until_ns == options->until_ns && same_text(o->symfs, options->symfs) &&
	       same_text(o->exe, options->exe) && same_text(o->beside, options->beside) &&
	       same_text(o->debug_dir, options->debug_dir);
}

/* Find the opener with these options, or make it. Its number begins with 1. */
static int find_or_make(struct request_server *s, const struct opener_options *options,
			uint64_t *number)
{
	int err = 0;

	(void)pthread_mutex_lock(&s->lock);
	*number = 0;
	for (size_t i = 0; !*number && i < s->n; i++)
		if (has_options(s->openers[i], options))
			*number = i + 1;
	if (!*number) {
		err = s->n == OPENERS_MAX ? -EMFILE : array_grow(s->openers, s->n, s->room);
		if (!err)
			err = opener_new(options, &s->openers[s->n]);
		if (!err)
			*number = ++s->n;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return err;
}

static struct opener *opener_number(struct request_server *s, uint64_t number)
{
	struct opener *opener;

	(void)pthread_mutex_lock(&s->lock);
	opener = number && number <= s->n ? s->openers[number - 1] : NULL;
	(void)pthread_mutex_unlock(&s->lock);
	return opener;
}

/* As far before the reported offset as the reader looks for an image (agent/process/module_elf.c). */
#define ARCHIVE_BACK_MAX ((uint64_t)64 << 20)
#define ARCHIVE_PAGE	 ((uint64_t)4096)

/*
 * Return whether a file may be given out: an ELF file, or an archive with an ELF image at a page
 * boundary near elf_off. A name in a recording can be any file's; only what can be code is opened
 * for it.
 */
static bool can_hold_code(int fd, uint64_t elf_off)
{
	uint64_t off = elf_off & ~(ARCHIVE_PAGE - 1);
	uint64_t least = off > ARCHIVE_BACK_MAX ? off - ARCHIVE_BACK_MAX : ARCHIVE_PAGE;
	bool can = io_is_elf(fd, 0);

	for (; !can && off >= least; off -= ARCHIVE_PAGE)
		can = io_is_elf(fd, off);
	return can;
}

/* Return whether a file begins as a jitdump file of this machine or of one with the other byte order. */
static bool is_jitdump(int fd)
{
	char head[4];

	return pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       (!memcmp(head, "JiTD", sizeof(head)) || !memcmp(head, "DTiJ", sizeof(head)));
}

/*
 * Open a jitdump file or a perf map. The dump's name is in the recording, so it could be any file's:
 * what is no jitdump file is not given out.
 */
static int open_jit(struct opener *opener, const struct request *r, int *fd)
{
	const struct opener_user *user = r->flag ? &r->user : NULL;
	int err = opener_open_jit(opener, r->pid, user, r->name, fd);

	if (err || !r->name || is_jitdump(*fd))
		return err;
	(void)close(*fd);
	*fd = -1;
	return opener_open_jit(opener, r->pid, user, NULL, fd);
}

/* Return err, or -ENOTSUP after closing a file that cannot be code. */
static int only_code(int err, uint64_t elf_off, int *fd)
{
	if (err || can_hold_code(*fd, elf_off))
		return err;
	(void)close(*fd);
	*fd = -1;
	return -ENOTSUP;
}

/* Open the next candidate, of the file or of its debug file. */
static int open_next(struct request_server *s, struct opener *opener, const struct request *r,
		     unsigned int *next, struct reply *reply)
{
	int err;

	if (opener->symfs)
		(void)pthread_mutex_lock(&s->symfs);
	err = r->what == REQUEST_OPEN ? opener_open(opener, &r->file, next, &reply->fd)
				      : opener_open_debug(opener, &r->file, r->link, next,
							  &reply->linked, &reply->fd);
	if (opener->symfs)
		(void)pthread_mutex_unlock(&s->symfs);
	return err;
}

/*
 * Return whether the open file is the one that the kernel mapped, and the kernel found no build-id in
 * it. If it is no code either, all other candidates are this file, too.
 */
static bool is_last(const struct opener *opener, const struct request *r, int fd)
{
	return opener->live && r->what == REQUEST_OPEN && !r->file.build_id.size &&
	       places_is_mapped(&r->file, fd);
}

/*
 * Open candidates until one can be code, or is a jitdump file and asked for by name. -ENOTSUP: there
 * are candidates, but none can.
 */
static int open_code(struct request_server *s, struct opener *opener, const struct request *r,
		     struct reply *reply)
{
	unsigned int next = (unsigned int)r->next;
	bool last = false;
	int refused = 0, err = 0;

	while (!last) {
		err = open_next(s, opener, r, &next, reply);
		if (err)
			break;
		if (r->file.named && is_jitdump(reply->fd)) {
			refused = 0;
			break;
		}
		last = is_last(opener, r, reply->fd);
		refused = only_code(0, r->file.elf_off, &reply->fd);
		if (!refused)
			break;
	}
	reply->number = next;
	return refused ? refused : err;
}

/*
 * Read the request's parts of a memory, which may never answer. The reply has a byte for each part, whether it could be
 * read, then the bytes of those that could.
 */
static int read_parts(struct opener *opener, const struct request *r, struct reply *reply)
{
	struct opener_wait wait;
	size_t size = 0, at;
	int err;

	for (size_t i = 0; i < r->n_parts; i++) {
		if (r->parts[i].size > REQUEST_BYTES_MAX - size)
			return -EINVAL;
		size += r->parts[i].size;
	}
	reply->bytes = malloc(r->n_parts + size + 1);
	if (!reply->bytes)
		return -ENOMEM;
	at = r->n_parts;
	for (size_t i = 0; i < r->n_parts; i++) {
		r->parts[i].out = reply->bytes + at;
		err = opener_read_parts(opener, r->fd, &r->parts[i], 1, &wait);
		if (err)
			return err;
		reply->bytes[i] = !r->parts[i].err;
		at += r->parts[i].err ? 0 : r->parts[i].size;
	}
	reply->n_bytes = at;
	return 0;
}

/* Copy the context of the request's process. */
static int read_context(struct opener *opener, const struct request *r, struct reply *reply)
{
	struct opener_context *context = calloc(1, sizeof(*context));
	struct opener_wait wait;
	int err;

	if (!context)
		return -ENOMEM;
	err = opener_context(opener, r->pid, r->next, context, &wait);
	reply->bytes = (uint8_t *)context;
	reply->n_bytes = err ? 0 : sizeof(*context);
	return err;
}

/* Read the name of the request's user. */
static int read_user_name(const struct opener *opener, const struct request *r, struct reply *reply)
{
	int err;

	reply->bytes = calloc(1, OPENER_USER_NAME);
	if (!reply->bytes)
		return -ENOMEM;
	err = opener_user_name(opener, r->user.uid, (char *)reply->bytes);
	reply->n_bytes = err ? 0 : OPENER_USER_NAME;
	return err;
}

/* Call the function that the request names. */
static int serve_one(struct request_server *s, struct opener *opener, struct request *r,
		     struct reply *reply)
{
	unsigned int next = (unsigned int)r->next;
	int err = 0;

	switch (r->what) {
	case REQUEST_NEW:
		return -EINVAL; /* request_answer does it */
	case REQUEST_USER_OF:
		opener_user_of(opener, r->pid, &reply->user);
		return 0;
	case REQUEST_VIEW:
		reply->number = opener_view(opener, r->pid, r->flag);
		return 0;
	case REQUEST_HAS_OWN_DEBUG:
		reply->number = opener_has_own_debug(opener, &r->file, r->link);
		return 0;
	case REQUEST_OPEN:
	case REQUEST_OPEN_DEBUG:
		return open_code(s, opener, r, reply);
	case REQUEST_FETCH:
		(void)pthread_mutex_lock(&s->lock);
		opener_fetch(opener, NULL);
		(void)pthread_mutex_unlock(&s->lock);
		reply->number = opener_fetches(opener);
		return 0;
	case REQUEST_WANT_DEBUG:
		opener_want_debug(opener, &r->file);
		return 0;
	case REQUEST_FETCHED_DEBUG:
		return only_code(opener_fetched_debug(opener, &r->id, &reply->fd), 0, &reply->fd);
	case REQUEST_OPEN_NAMED:
		err = r->name && r->fd >= 0
			      ? opener_open_named(opener, &r->file, r->fd, r->directory, r->name,
						  r->flag ? &r->id : NULL, &reply->fd)
			      : -EINVAL;
		return only_code(err, 0, &reply->fd);
	case REQUEST_OPEN_SUFFIXED:
		err = r->name && r->fd >= 0
			      ? opener_open_suffixed(opener, &r->file, r->fd, r->name, &reply->fd)
			      : -EINVAL;
		return only_code(err, 0, &reply->fd);
	case REQUEST_PERF_MAP:
		return opener_perf_map(opener, r->pid, r->ns_pid, &r->user, &reply->fd);
	case REQUEST_OPEN_JIT:
		return open_jit(opener, r, &reply->fd);
	case REQUEST_KALLSYMS:
		return opener_kallsyms(opener, &reply->fd);
	case REQUEST_COPY_KALLSYMS:
		return opener_copy_kallsyms(opener, &reply->fd);
	case REQUEST_KEEP_KALLSYMS:
		if (r->fd >= 0)
			opener_keep_kallsyms(opener, &r->id, r->fd);
		return 0;
	case REQUEST_STORED_KALLSYMS:
		err = opener_stored_kallsyms(opener, &r->id, &next, &reply->fd);
		reply->number = next;
		return err;
	case REQUEST_MEMORY:
		return opener_memory(opener, r->pid, &reply->fd);
	case REQUEST_READ_MEMORY:
		return read_parts(opener, r, reply);
	case REQUEST_CONTEXT:
		return read_context(opener, r, reply);
	case REQUEST_USER_NAME:
		return read_user_name(opener, r, reply);
	case REQUEST_PROCESS:
		reply->number = (uint64_t)getpid();
		return 0;
	}
	return -EINVAL;
}

void request_answer(void *ctx, struct message *request, struct message *reply)
{
	struct opener_part parts[REQUEST_PARTS_MAX];
	struct request r = { .fd = -1, .parts = parts };
	struct reply result = { .fd = -1 };
	struct opener_user user;
	struct opener *opener;

	take_request(request, &r, &user);
	if (!r.file.path)
		r.file.path = "";
	if (request->err) {
		result.err = request->err;
	} else if (r.what == REQUEST_NEW) {
		result.err = find_or_make(ctx, &r.options, &result.number);
	} else {
		opener = opener_number(ctx, r.opener);
		result.err = opener ? serve_one(ctx, opener, &r, &result) : -EINVAL;
	}
	if (r.fd >= 0)
		(void)close(r.fd);
	put_reply(reply, &result);
	free(result.bytes);
}

int request_server_new(struct request_server **out)
{
	struct request_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_mutex_init(&s->symfs, NULL);
	*out = s;
	return 0;
}

void request_server_free(struct request_server *s)
{
	for (size_t i = 0; i < s->n; i++)
		opener_free(s->openers[i]);
	free(s->openers);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_mutex_destroy(&s->symfs);
	free(s);
}

void request_serve(struct channels *channels)
{
	struct request_server *server;

	/* Without one, the channels are closed, and every call fails. */
	if (request_server_new(&server))
		return;
	channels_answer(channels, request_answer, server);
	request_server_free(server);
}

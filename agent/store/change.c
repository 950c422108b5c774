/* agent/store/change.c: asks the store process for changes, and makes them there. */
#include "agent/store/change.h"

#include "agent/io.h"
#include "agent/log.h"
#include "agent/role/channel.h"
#include "agent/role/message.h"
#include "agent/role/sandbox.h"
#include "agent/store/parts.h"
#include "schema/procs_blob.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* With these nobody can change an unnamed file, so the bytes stay as they were when they were checked. */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static struct channels *asked; /* NULL: changes are made in this process */

void change_ask(struct channels *channels)
{
	asked = channels;
}

bool change_is_asked_for(void)
{
	return asked != NULL;
}

/* ---- fields ------------------------------------------------------------------------------ */

static void put_file(struct message *m, const struct store_file *f)
{
	const uint64_t numbers[] = { f->known,
				     f->vouched,
				     f->dev,
				     f->ino,
				     f->elf_off,
				     f->size,
				     f->uid,
				     (uint64_t)f->mtime_ns,
				     (uint64_t)f->ctime_ns,
				     (uint64_t)f->owner };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		message_number(m, numbers[i]);
	message_text(m, f->path);
}

/* The path is borrowed from the message. */
static void take_file(struct message *m, struct store_file *out)
{
	out->known = message_take_number(m) != 0;
	out->vouched = message_take_number(m) != 0;
	out->dev = message_take_number(m);
	out->ino = message_take_number(m);
	out->elf_off = message_take_number(m);
	out->size = message_take_number(m);
	out->uid = message_take_number(m);
	out->mtime_ns = (int64_t)message_take_number(m);
	out->ctime_ns = (int64_t)message_take_number(m);
	out->owner = (int64_t)message_take_number(m);
	out->path = message_take_text(m);
}

static void put_build_id(struct message *m, const struct uw_build_id *id)
{
	static const struct uw_build_id none;

	message_bytes(m, id ? id : &none, sizeof(none));
}

static void take_build_id(struct message *m, struct uw_build_id *out)
{
	message_take_bytes(m, out, sizeof(*out));
	if (!m->err && out->size > UW_BUILD_ID_MAX)
		m->err = -EBADMSG;
}

/* The second of two blobs begins at a multiple of 8, because its fields are read where they are. */
static uint64_t second_at(uint64_t first_size)
{
	return (first_size + 7) & ~UINT64_C(7);
}

/* Copy bytes to an unnamed file that nobody can change any more, and add it to the message. */
static int put_blobs(struct message *m, const void *first, size_t first_size, const void *second,
		     size_t second_size)
{
	int fd = memfd_create("stored", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = fd < 0 ? -errno : 0;

	if (!err && first_size)
		err = io_write(fd, first, first_size);
	if (!err && second_size && lseek(fd, (off_t)second_at(first_size), SEEK_SET) < 0)
		err = -errno;
	if (!err && second_size)
		err = io_write(fd, second, second_size);
	if (!err && fcntl(fd, F_ADD_SEALS, SEALS))
		err = -errno;
	message_number(m, first_size);
	message_number(m, second_size);
	if (!err)
		message_fd(m, fd);
	else if (fd >= 0)
		(void)close(fd);
	return err;
}

struct blobs {
	void *mapped; /* all of them; NULL: they are empty */
	size_t size;
	const void *first, *second; /* NULL: not there */
	size_t first_size, second_size;
};

static int map_sealed(int fd, struct blobs *b)
{
	struct stat st;
	uint64_t at;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st))
		return -EBADMSG;
	if (b->first_size >= BLOB_MAX || b->second_size >= BLOB_MAX || !st.st_size)
		return -EBADMSG;
	at = second_at(b->first_size);
	if ((uint64_t)st.st_size != (b->second_size ? at + b->second_size : b->first_size))
		return -EBADMSG;
	b->size = (size_t)st.st_size;
	b->mapped = mmap(NULL, b->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (b->mapped == MAP_FAILED) {
		b->mapped = NULL;
		return -errno;
	}
	b->first = b->first_size ? b->mapped : NULL;
	b->second = b->second_size ? (const char *)b->mapped + at : NULL;
	return 0;
}

/* Map what put_blobs added. The caller unmaps it. */
static int take_blobs(struct message *m, struct blobs *out)
{
	int fd, err;

	*out = (struct blobs){ .first_size = message_take_number(m) };
	out->second_size = message_take_number(m);
	fd = message_take_fd(m);
	err = fd >= 0 ? map_sealed(fd, out) : m->err ? m->err : -EBADMSG;
	if (fd >= 0)
		(void)close(fd);
	return err;
}

static void unmap(const struct blobs *b)
{
	if (b->mapped)
		(void)munmap(b->mapped, b->size);
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Begin a request. NULL: no memory. send() frees it. */
static struct message *begin(const struct store *s, enum change what)
{
	struct message *m = malloc(sizeof(*m));

	if (!m)
		return NULL;
	message_init(m);
	message_number(m, what);
	message_number(m, s->hurried);
	return m;
}

/* Send a request, unless err is set, and wait until the change is made. */
static int send(struct store *s, struct message *m, int err)
{
	if (!m)
		return -ENOMEM;
	/* Nothing that is read here may hold up the writer. */
	blob_reader_rest(&s->blobs);
	if (!err)
		err = channels_call(asked, m, m);
	if (!err) {
		err = (int)(int64_t)message_take_number(m);
		s->counters.stored += message_take_number(m);
		s->counters.evicted += message_take_number(m);
		err = err ? err : m->err;
		message_fini(m);
	}
	free(m);
	return err;
}

/* The same for a request with a descriptor, which is the last one that was added. */
static int send_blobs(struct store *s, struct message *m, int err)
{
	int fd = m && !err ? m->fds[0] : -1;

	err = send(s, m, err);
	if (fd >= 0)
		(void)close(fd);
	return err;
}

int change_table(struct store *s, const struct new_table *t, const struct store_file *file)
{
	struct message *m = begin(s, CHANGE_TABLE);
	int err = 0;

	if (m) {
		put_build_id(m, &t->build_id);
		message_number(m, t->machine);
		message_bytes(m, &t->identity, sizeof(t->identity));
		message_bytes(m, &t->contents, sizeof(t->contents));
		put_file(m, file);
		err = put_blobs(m, t->rules, t->rules_size, t->procs, t->procs_size);
	}
	return send_blobs(s, m, err);
}

int change_file(struct store *s, const struct new_inode *new, const struct store_file *file)
{
	struct message *m = begin(s, CHANGE_FILE);

	if (m) {
		message_number(m, (uint64_t) new->object);
		put_build_id(m, new->build_id);
		message_number(m, new->machine);
		message_bytes(m, new->identity, sizeof(*new->identity));
		put_file(m, file);
	}
	return send(s, m, 0);
}

int change_symbols(struct store *s, const struct new_symbols *k)
{
	struct message *m = begin(s, CHANGE_SYMBOLS);
	int err = 0;

	if (m) {
		message_number(m, k->lines);
		message_number(m, k->n);
		put_build_id(m, &k->build_id);
		message_number(m, k->beside != NULL);
		if (k->beside)
			message_bytes(m, k->beside, sizeof(*k->beside));
		put_file(m, &k->file);
		err = put_blobs(m, k->blob, k->size, NULL, 0);
	}
	return send_blobs(s, m, err);
}

int change_quarantine(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		      const char *reason)
{
	struct message *m = begin(s, CHANGE_QUARANTINE);

	if (m) {
		put_build_id(m, id);
		put_file(m, file);
		message_text(m, reason);
	}
	return send(s, m, 0);
}

int change_contents(struct store *s, const struct store_file *file, uint64_t size,
		    const struct identity *contents)
{
	struct message *m = begin(s, CHANGE_CONTENTS);

	if (m) {
		put_file(m, file);
		message_number(m, size);
		message_bytes(m, contents, sizeof(*contents));
	}
	return send(s, m, 0);
}

int change_missing(struct store *s, const struct uw_build_id *id)
{
	struct message *m = begin(s, CHANGE_MISSING);

	if (m)
		put_build_id(m, id);
	return send(s, m, 0);
}

/* Send as many rows as one message has room for, and add their number to *n. */
static int change_some(struct store *s, size_t *n)
{
	size_t first = *n, size = 0;
	struct message *m = begin(s, CHANGE_ROWS);

	if (!m)
		return -ENOMEM;
	for (size_t i = first; i < s->n_used; i++) {
		size += 64 + (s->used[i].path ? strlen(s->used[i].path) : 0);
		if (size > MESSAGE_MAX - 1024 && *n > first)
			break;
		++*n;
	}
	message_number(m, *n - first);
	for (size_t i = first; i < *n; i++) {
		message_number(m, s->used[i].what);
		message_number(m, (uint64_t)s->used[i].row);
		message_text(m, s->used[i].path);
	}
	return send(s, m, 0);
}

int change_rows(struct store *s)
{
	size_t n = 0;
	int err = 0;

	while (!err && n < s->n_used)
		err = change_some(s, &n);
	return err;
}

/* ---- serving ----------------------------------------------------------------------------- */

/* Check that the blobs begin with the headers that the columns are taken from. */
static int check_headers(const struct blobs *b)
{
	return (b->first && b->first_size < sizeof(struct table_header)) ||
			       (b->second && b->second_size < sizeof(struct procs_header))
		       ? -EBADMSG
		       : 0;
}

static int serve_table(struct store *s, struct message *m)
{
	struct new_table new = { .machine = 0 };
	struct store_file file;
	struct blobs blobs;
	int err;

	take_build_id(m, &new.build_id);
	new.machine = (uint16_t)message_take_number(m);
	message_take_bytes(m, &new.identity, sizeof(new.identity));
	message_take_bytes(m, &new.contents, sizeof(new.contents));
	take_file(m, &file);
	err = take_blobs(m, &blobs);
	if (!err)
		err = m->err ? m->err : check_headers(&blobs);
	if (!err) {
		new.rules = blobs.first;
		new.rules_size = blobs.first_size;
		new.procs = blobs.second;
		new.procs_size = blobs.second_size;
		err = table_insert(s, &new, &file);
	}
	unmap(&blobs);
	return err;
}

static int serve_file(struct store *s, struct message *m)
{
	struct uw_build_id id;
	struct uw_identity identity;
	struct new_inode new = { .object = (int64_t)message_take_number(m),
				 .build_id = &id,
				 .identity = &identity };
	struct store_file file;

	take_build_id(m, &id);
	new.machine = (uint16_t)message_take_number(m);
	message_take_bytes(m, &identity, sizeof(identity));
	take_file(m, &file);
	return m->err ? m->err : table_note_file(s, &new, &file);
}

static int serve_symbols(struct store *s, struct message *m)
{
	struct new_symbols new = { .lines = message_take_number(m) != 0 };
	struct identity beside;
	struct blobs blobs;
	int err;

	new.n = (size_t)message_take_number(m);
	take_build_id(m, &new.build_id);
	if (message_take_number(m)) {
		message_take_bytes(m, &beside, sizeof(beside));
		new.beside = &beside;
	}
	take_file(m, &new.file);
	err = take_blobs(m, &blobs);
	if (!err)
		err = m->err;
	if (!err) {
		new.blob = blobs.mapped;
		new.size = blobs.size;
		err = symbols_insert(s, &new);
	}
	unmap(&blobs);
	return err;
}

static int serve_quarantine(struct store *s, struct message *m)
{
	struct uw_build_id id;
	struct store_file file;
	const char *reason;

	take_build_id(m, &id);
	take_file(m, &file);
	reason = message_take_text(m);
	return m->err || !reason ? -EBADMSG : quarantine_insert(s, &id, &file, reason);
}

static int serve_contents(struct store *s, struct message *m)
{
	struct store_file file;
	struct identity contents;
	uint64_t size;

	take_file(m, &file);
	size = message_take_number(m);
	message_take_bytes(m, &contents, sizeof(contents));
	return m->err ? m->err : quarantine_add_contents(s, &file, size, &contents);
}

/* Remember the rows, and write what was remembered. */
static int serve_rows(struct store *s, struct message *m)
{
	uint64_t n = message_take_number(m);

	for (uint64_t i = 0; i < n && !m->err; i++) {
		uint64_t what = message_take_number(m), row = message_take_number(m);
		const char *path = message_take_text(m);

		if (what != MARK_USED && what != USED_SYMBOLS && what != DROP_TABLE &&
		    what != DROP_SYMBOLS)
			return -EBADMSG;
		session_remember(s, (enum statement)what, (int64_t)row,
				 what == MARK_USED && !path ? "" : path);
	}
	return m->err ? m->err : session_write_used(s);
}

static int serve(struct store *s, struct message *m)
{
	struct uw_build_id id;
	uint64_t what = message_take_number(m);

	s->hurried = message_take_number(m) != 0;
	switch (what) {
	case CHANGE_TABLE:
		return serve_table(s, m);
	case CHANGE_FILE:
		return serve_file(s, m);
	case CHANGE_SYMBOLS:
		return serve_symbols(s, m);
	case CHANGE_ROWS:
		return serve_rows(s, m);
	case CHANGE_QUARANTINE:
		return serve_quarantine(s, m);
	case CHANGE_CONTENTS:
		return serve_contents(s, m);
	case CHANGE_MISSING:
		take_build_id(m, &id);
		return m->err ? m->err : missing_insert(s, &id);
	default:
		return -EBADMSG;
	}
}

/* Make one change, and reply. */
static void answer(void *ctx, struct message *request, struct message *reply)
{
	struct store *s = ctx;
	const struct store_counters before = s->counters;
	int err;

	pthread_mutex_lock(&s->lock);
	err = serve(s, request);
	pthread_mutex_unlock(&s->lock);
	message_number(reply, (uint64_t)(int64_t)err);
	message_number(reply, s->counters.stored - before.stored);
	message_number(reply, s->counters.evicted - before.evicted);
}

void change_serve(struct channels *channels, const char *db)
{
	struct store *s;
	int err;

	if (store_open(db, &s))
		return;
	store_open_files(s);
	/*
	 * What is deleted next is looked for in the whole database. If that is mapped, each page that was read once
	 * counts as this process's memory, up to the size of the store.
	 */
	if (s->db)
		(void)db_unmap(s->db);
	err = sandbox_is_possible() ? sandbox_enter() : 0;
	if (err)
		log_error("the store: giving up rights: %s", strerror(-err));
	else
		while (!channels_answer_next(channels, -1, answer, s))
			;
	store_release(s);
}

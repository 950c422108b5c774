/*
 * tests/unit/test_change.c: tests the store process: a worker that has the database for reading alone
 * stores through it, and nothing in a request can harm the database.
 */
#include "agent/store/change.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/role/channel.h"
#include "agent/role/message.h"
#include "agent/store/db.h"
#include "agent/store/session.h"
#include "tests/check.h"

static char folder[] = "/tmp/offwind-change-XXXXXX";
static char db_name[64], program[64];
static const struct uw_build_id some_id = { 4, { 1, 2, 3, 4 } };

/* Start the store process. */
static pid_t start(struct channels **channels)
{
	pid_t pid;

	CHECK(!channels_new(1, channels), "channels");
	pid = fork();
	if (!pid) {
		change_serve(*channels, db_name);
		_exit(0);
	}
	channels_ask(*channels);
	return pid;
}

static void end(pid_t pid, struct channels *channels)
{
	int status = -1;

	channels_free(channels);
	CHECK(waitpid(pid, &status, 0) == pid && !status, "it ends with its worker");
}

/* ---- requests ---------------------------------------------------------------------------- */

static struct message m; /* too large for the stack */

static struct message *begin(uint64_t what)
{
	message_init(&m);
	message_number(&m, what);
	message_number(&m, 0);
	return &m;
}

/* Send the request, and return the change's error. */
static int send_it(struct channels *channels)
{
	int err = channels_call(channels, &m, &m);

	if (err)
		return err;
	err = (int)(int64_t)message_take_number(&m);
	message_fini(&m);
	return err;
}

static void put_file(void)
{
	for (int i = 0; i < 10; i++)
		message_number(&m, i < 2 ? 1 : 7);
	message_text(&m, "/bin/some");
}

static int bytes_with(unsigned int seals, size_t size)
{
	int fd = memfd_create("bytes", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)size) && !fcntl(fd, F_ADD_SEALS, seals), "bytes");
	return fd;
}

/* A table of size bytes, of which the message claims others. */
static int send_table(struct channels *channels, unsigned int seals, size_t size, uint64_t rules,
		      uint64_t procs)
{
	static const uint8_t zeros[64];
	int fd = bytes_with(seals, size), err;

	begin(CHANGE_TABLE);
	message_bytes(&m, &some_id, sizeof(some_id));
	message_number(&m, 62);
	message_bytes(&m, zeros, sizeof(struct uw_identity));
	message_bytes(&m, zeros, 32);
	put_file();
	message_number(&m, rules);
	message_number(&m, procs);
	message_fd(&m, fd);
	err = send_it(channels);
	(void)close(fd);
	return err;
}

static int send_row(struct channels *channels, uint64_t what, uint64_t n)
{
	begin(CHANGE_ROWS);
	message_number(&m, n);
	message_number(&m, what);
	message_number(&m, 1);
	message_text(&m, NULL);
	return send_it(channels);
}

static int64_t ask_db(const char *sql)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *db = NULL;
	int64_t n = -1;

	if (!db_open(db_name, &db_store, DB_READ, &db, error))
		n = db_number(db, sql);
	(void)sqlite3_close(db);
	return n;
}

static void test_bad_requests_are_refused(void)
{
	const unsigned int all = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	const struct uw_build_id too_long = { .size = 255 };
	struct channels *channels;
	pid_t pid = start(&channels);

	begin(1000);
	CHECK(send_it(channels) == -EBADMSG, "no such request");
	begin(CHANGE_MISSING);
	CHECK(send_it(channels) == -EBADMSG, "a request that ends too early");
	begin(CHANGE_MISSING);
	message_bytes(&m, &too_long, sizeof(too_long));
	CHECK(send_it(channels) == -EBADMSG, "a build-id of 255 bytes");
	begin(CHANGE_QUARANTINE);
	message_bytes(&m, &some_id, sizeof(some_id));
	put_file();
	message_text(&m, NULL);
	CHECK(send_it(channels) == -EBADMSG, "a quarantine without a reason");
	CHECK(send_row(channels, DROP_OBJECT, 1) == -EBADMSG, "another statement");
	CHECK(send_row(channels, 1u << 20, 1) == -EBADMSG, "no statement");
	CHECK(send_row(channels, DROP_TABLE, UINT64_MAX) == -EBADMSG, "more rows than are there");
	CHECK(send_table(channels, all & ~(unsigned int)F_SEAL_WRITE, 4096, 4096, 0) == -EBADMSG,
	      "bytes that can change");
	CHECK(send_table(channels, all & ~(unsigned int)F_SEAL_SHRINK, 4096, 4096, 0) == -EBADMSG,
	      "bytes that can go");
	CHECK(send_table(channels, all, 4096, 8192, 0) == -EBADMSG, "more than there is");
	CHECK(send_table(channels, all, 4096, UINT64_MAX, 4097) == -EBADMSG, "sizes that wrap");
	CHECK(send_table(channels, all, 8, 8, 0) == -EBADMSG, "a table without its header");
	CHECK(send_table(channels, all, 4104, 4096, 8) == -EBADMSG, "ranges without their header");
	CHECK(send_table(channels, all, 0, 0, 0) == -EBADMSG, "nothing");
	begin(CHANGE_TABLE);
	CHECK(send_it(channels) == -EBADMSG, "no table");
	/* After all this it does what it is for. */
	begin(CHANGE_MISSING);
	message_bytes(&m, &some_id, sizeof(some_id));
	CHECK(!send_it(channels), "a good request");
	end(pid, channels);
	CHECK(ask_db("SELECT count(*) FROM objects") == 0, "nothing else was stored");
	CHECK(ask_db("SELECT count(*) FROM missing") == 1, "what was asked for was");
	CHECK(ask_db("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") ==
		      1,
	      "the database is sound");
}

/* ---- a worker ------------------------------------------------------------------------------ */

/* A copy of this program that is old enough to be identified by its inode. */
static void make_program(void)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "cp /proc/%d/exe %s && touch -d -1hour %s",
		       getpid(), program, program);
	CHECK(!system(command), "a program"); // NOLINT(cert-env33-c)
}

static struct uw_object *open_program(struct store_file *file)
{
	struct uw_object *object = NULL;
	int fd = open(program, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && !uw_object_open(fd, 0, &object), "the program");
	store_file_of(fd, 0, program, file);
	(void)close(fd);
	/* A changed inode is not vouched for at once; this one will not change again. */
	file->known = file->vouched = true;
	return object;
}

/* Count the descriptors of the database, and of these those that can be written. */
static void count_files(size_t *n, size_t *n_writable)
{
	char name[64], target[128];

	*n = *n_writable = 0;
	for (int fd = 0; fd < 256; fd++) {
		ssize_t size;

		(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		size = readlink(name, target, sizeof(target));
		if (size < (ssize_t)strlen(db_name) ||
		    strncmp(target, db_name, strlen(db_name)) != 0)
			continue;
		++*n;
		*n_writable += (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
	}
}

/* What one worker does. Return its store's counters. */
static struct store_counters work(struct channels *channels)
{
	struct store_counters counters;
	struct store_file file;
	struct uw_object *object = open_program(&file);
	struct store *store;
	size_t n, n_writable;

	change_ask(channels);
	CHECK(!store_open(db_name, &store), "opens");
	store_open_files(store);
	count_files(&n, &n_writable);
	CHECK(n >= 2 && !n_writable, "the database is open for reading alone");
	if (store_find(store, object, &file))
		CHECK(!store_keep(store, object, &file), "stores");
	CHECK(!store_quarantine(store, &some_id, &file, "a reason"), "a quarantine");
	count_files(&n, &n_writable);
	CHECK(n >= 2 && !n_writable, "and it stays so");
	store_counters(store, &counters);
	store_close(store);
	change_ask(NULL);
	db_write_nothing(false); /* the next store process is a fork of this one */
	uw_object_put(object);
	return counters;
}

static void test_a_worker_stores(void)
{
	struct store_counters counters;
	struct channels *channels;
	pid_t pid = start(&channels);

	counters = work(channels);
	end(pid, channels);
	CHECK(counters.missing == 1 && counters.built == 1 && counters.stored == 1 &&
		      !counters.failed,
	      "the first worker stores the table");
	CHECK(ask_db("SELECT count(*) FROM tables") == 1, "it is there");
	CHECK(ask_db("SELECT count(*) FROM building") == 0, "and no note is left");
	CHECK(ask_db("SELECT count(*) FROM quarantine") == 1, "a refusal is there");
	pid = start(&channels);
	counters = work(channels);
	end(pid, channels);
	CHECK(counters.found == 1 && !counters.built && !counters.failed, "the second finds it");
}

/* If the store process dies, work goes on without the store. */
static void test_the_store_process_dies(void)
{
	struct store_file file;
	struct uw_object *object = open_program(&file);
	struct channels *channels;
	pid_t pid = start(&channels);
	struct store *store;

	(void)kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid, "it is gone");
	change_ask(channels);
	CHECK(!store_open(db_name, &store), "opens");
	CHECK(store_quarantine(store, &some_id, &file, "a reason") == -EPIPE, "nobody answers");
	CHECK(!store_find(store, object, &file), "what is there is found");
	store_close(store);
	change_ask(NULL);
	db_write_nothing(false); /* the next store process is a fork of this one */
	channels_free(channels);
	uw_object_put(object);
}

int main(void)
{
	if (!mkdtemp(folder))
		return 1;
	(void)snprintf(db_name, sizeof(db_name), "%s/store.db", folder);
	(void)snprintf(program, sizeof(program), "%s/program", folder);
	make_program();
	test_bad_requests_are_refused();
	test_a_worker_stores();
	test_the_store_process_dies();
	{
		char command[64];

		(void)snprintf(command, sizeof(command), "rm -r %s", folder);
		CHECK(!system(command), "cleaned up"); // NOLINT(cert-env33-c)
	}
	return check_done();
}

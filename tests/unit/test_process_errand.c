/*
 * tests/unit/test_process_errand.c: tests whose processes are still looked at while those of other users keep threads
 * waiting. Directories with owners stand for processes.
 */
#include "agent/errand.h"
#include "agent/opener/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

#define MS UINT64_C(1000000)

static char folder[] = "/tmp/offwind-errand.XXXXXX";
static int gate[2]; /* a pipe that is closed at the end */

static void block(void *ctx)
{
	char byte;

	(void)ctx;
	(void)!read(gate[0], &byte, 1);
}

static void pass(void *ctx)
{
	(void)ctx;
}

/* Run something for a process of a user. */
static int errand_of(uid_t uid, void (*run)(void *ctx))
{
	const struct errand errand = { .run = run, .drop = pass };
	int process, err;

	if (chown(folder, uid, (gid_t)-1))
		return -errno;
	process = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return -errno;
	err = opener_errand(process, &errand, 50 * MS);
	(void)close(process);
	return err;
}

static void test_kinds(void)
{
	CHECK(!errand_of(1000, pass), "nobody waits");
	CHECK(errand_of(1000, block) == -ETIMEDOUT, "a user's process keeps a thread");
	CHECK(errand_of(1000, pass) == -EBUSY, "that user is not asked again");
	CHECK(!errand_of(1001, pass), "others are");
	for (uid_t uid = 100000; uid < 100004; uid++)
		CHECK(errand_of(uid, block) == -ETIMEDOUT, "one user has many ids");
	CHECK(errand_of(100004, pass) == -EBUSY, "four are enough");
	CHECK(!errand_of(1001, pass) && !errand_of(0, pass), "they stop no ordinary user");
	for (uid_t uid = 1001; uid < 1004; uid++)
		CHECK(errand_of(uid, block) == -ETIMEDOUT, "four ordinary users");
	CHECK(errand_of(33, pass) == -EBUSY, "stop ordinary users");
	CHECK(!errand_of(0, pass), "but not root");
	CHECK(errand_of(0, block) == -ETIMEDOUT && errand_of(0, pass) == -EBUSY,
	      "root's processes keep a thread, too");
}

/* Wait until a user is asked again. */
static bool is_asked(uid_t uid)
{
	const struct timespec pause = { .tv_nsec = MS };
	int err;

	for (int i = 0; (err = errand_of(uid, pass)) == -EBUSY && i < 60000; i++)
		(void)nanosleep(&pause, NULL);
	return !err;
}

int main(void)
{
	if (geteuid()) {
		(void)printf("needs root, to make directories of other users\n");
		return 77;
	}
	if (!mkdtemp(folder) || pipe(gate)) {
		perror(folder);
		return 1;
	}
	test_kinds();
	(void)close(gate[1]);
	CHECK(is_asked(0) && is_asked(1000) && is_asked(33) && is_asked(100004),
	      "all are asked again when the threads have ended");
	(void)rmdir(folder);
	return check_done();
}

/* tests/unit/test_live_pin.c: tests how long executed files are held open. */
#include "agent/live/system/pin.h"

#include "agent/live/system/mount.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

struct program {
	char path[64];
	uint32_t major, minor;
	uint64_t inode;
};

/* Make a program of its own that does nothing. */
static void make(struct program *p, const char *dir, const char *name)
{
	char command[256];
	int fd;

	(void)snprintf(p->path, sizeof(p->path), "%s/%s", dir, name);
	(void)snprintf(command, sizeof(command), "cp /bin/true %s", p->path);
	CHECK(!system(command), "copied");
	fd = open(p->path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !live_file_identity(fd, &p->major, &p->minor, &p->inode), "its inode");
	(void)close(fd);
}

/* Execute it, and read the notice of that. */
static void execute(struct live_pins *pins, const struct program *p, uint64_t now_ns)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		(void)execl(p->path, p->path, NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status, "it runs");
	live_pins_drain(pins, now_ns);
}

static bool is_held(struct live_pins *pins, const struct program *p)
{
	int fd = -1, err = live_pins_open(pins, p->major, p->minor, p->inode, &fd);

	if (fd >= 0)
		(void)close(fd);
	return !err;
}

/* A file that is executed again and again does not keep those that come after it open. */
static void test_files_are_held_for_seconds(struct live_pins *pins, const char *dir)
{
	struct program often, once;

	make(&often, dir, "often");
	make(&once, dir, "once");
	execute(pins, &often, SECOND);
	execute(pins, &often, SECOND);
	execute(pins, &once, SECOND);
	CHECK(is_held(pins, &often) && is_held(pins, &once), "at first");
	CHECK(!unlink(once.path), "deleted");
	for (uint64_t s = 2; s < 12; s++) {
		execute(pins, &often, s * SECOND);
		execute(pins, &often, s * SECOND);
		CHECK(is_held(pins, &often), "what is executed is held");
	}
	CHECK(!is_held(pins, &once), "what ran once is not");
	for (uint64_t s = 12; s < 24; s++)
		live_pins_drain(pins, s * SECOND);
	CHECK(!is_held(pins, &often), "nor is what does not run any more");
	CHECK(!unlink(often.path), "deleted");
}

int main(void)
{
	char dir[] = "/tmp/offwind-pin.XXXXXX";
	struct live_pins *pins = NULL;
	int err = live_pins_new(&pins);

	if (err == -EPERM || err == -ENOTSUP) {
		(void)puts("executed files cannot be watched here");
		return 77;
	}
	CHECK(!err && mkdtemp(dir), "live_pins_new");
	test_files_are_held_for_seconds(pins, dir);
	live_pins_free(pins);
	CHECK(!rmdir(dir), "rmdir");
	return check_done();
}

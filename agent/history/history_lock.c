/* agent/history/history_lock.c: lets one daemon at a time have a history. */
#include "agent/history/history.h"

#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 100 };

/* Take the lock. */
static int lock(int fd, unsigned int wait_ms)
{
	const struct timespec pause = { .tv_nsec = TURN_MS * 1000000 };

	for (unsigned int waited_ms = 0;; waited_ms += TURN_MS) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (waited_ms >= wait_ms)
			return -EBUSY;
		(void)nanosleep(&pause, NULL);
	}
}

int history_lock(const char *path, unsigned int wait_ms, int *out)
{
	char *name = NULL;
	int fd = -1, err = asprintf(&name, "%s-lock", path) < 0 ? -ENOMEM : 0;

	if (err)
		name = NULL;
	else
		fd = open(name, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
	if (!err)
		err = fd < 0 ? -errno : lock(fd, wait_ms);
	if (err == -EBUSY)
		log_error("%s: another daemon records into this history", path);
	else if (err)
		log_error("%s: %s", name ? name : path, strerror(-err));
	if (err && fd >= 0)
		(void)close(fd);
	free(name);
	if (!err)
		*out = fd;
	return err;
}

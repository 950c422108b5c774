/* agent/store/alive.c: reads the start time of a process from /proc/PID/stat. */
#include "agent/store/alive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The index of "starttime" among the fields of stat (proc(5)), counted after the name, which may
 * contain any characters.
 */
#define FIELD_STARTTIME 20

/* Read the start time of a process. -ENOENT and -ESRCH: it has ended. */
static int read_start(int64_t pid, uint64_t *begun)
{
	char path[64], text[1024];
	const char *at;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (n <= 0)
		return n ? -errno : -EIO;
	text[n] = '\0';
	at = strrchr(text, ')');
	if (at && (!strncmp(at, ") Z", 3) || !strncmp(at, ") X", 3)))
		return -ESRCH; /* a zombie or a dead process */
	for (int i = 0; at && i < FIELD_STARTTIME; i++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EIO;
	*begun = strtoull(at + 1, NULL, 10);
	return 0;
}

uint64_t alive_since(int64_t pid)
{
	uint64_t begun = 0;

	return read_start(pid, &begun) ? 0 : begun;
}

bool alive_ended(int64_t pid, uint64_t begun)
{
	uint64_t now = 0;
	int err = read_start(pid, &now);

	return err ? err == -ENOENT || err == -ESRCH : begun && now != begun;
}

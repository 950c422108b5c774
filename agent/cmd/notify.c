/* agent/cmd/notify.c: sends datagrams to the service manager. */
#include "agent/cmd/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *lines)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	int fd, err = 0;

	if (!n)
		return 0;
	if ((*path != '/' && *path != '@') || n >= sizeof(to.sun_path))
		return -EINVAL;
	memcpy(to.sun_path, path, n);
	if (*path == '@')
		to.sun_path[0] = '\0'; /* an abstract address (unix(7)) */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		err = -errno;
	(void)close(fd);
	return err ? err : 1;
}

uint64_t notify_every_ns(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	char *end;
	uint64_t n;

	if (!usec || (pid && strtol(pid, NULL, 10) != getpid()))
		return 0;
	n = strtoull(usec, &end, 10);
	return *end || n > UINT64_MAX / 1000 ? 0 : n * 1000 / 2;
}

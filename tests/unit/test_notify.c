/* tests/unit/test_notify.c: tests what is sent to the service manager, and where. */
#include "agent/cmd/notify.h"

#include "tests/check.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Bind a socket as a service manager does; name[0] may be NUL. Return it. */
static int listen_at(const char *name, size_t size)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(at.sun_path, name, size);
	CHECK(!bind(fd, (const struct sockaddr *)&at,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)),
	      "a socket");
	return fd;
}

static void check_received(int fd, const char *want)
{
	char text[64] = "";
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	CHECK(n == (ssize_t)strlen(want) && !strcmp(text, want), text);
}

static void test_one_datagram_for_each_message(void)
{
	char path[] = "/tmp/offwind-notify-XXXXXX/s", *slash = strrchr(path, '/');
	int fd;

	*slash = '\0';
	if (!mkdtemp(path)) {
		CHECK(false, "a directory");
		return;
	}
	*slash = '/';
	fd = listen_at(path, strlen(path));
	(void)setenv("NOTIFY_SOCKET", path, 1);
	CHECK(notify_send("READY=1\nSTATUS=x") == 1, "a path");
	check_received(fd, "READY=1\nSTATUS=x");
	(void)close(fd);
	CHECK(notify_send("READY=1") == -ECONNREFUSED, "nobody is there");
	(void)unlink(path);
	CHECK(notify_send("READY=1") == -ENOENT, "no socket");
	*slash = '\0';
	(void)rmdir(path);
}

static void test_abstract_addresses(void)
{
	char name[64];
	int n = snprintf(name, sizeof(name), "@offwind-notify-%d", (int)getpid()), fd;

	(void)setenv("NOTIFY_SOCKET", name, 1);
	name[0] = '\0';
	fd = listen_at(name, (size_t)n);
	CHECK(notify_send("WATCHDOG=1") == 1, "an abstract address");
	check_received(fd, "WATCHDOG=1");
	(void)close(fd);
}

static void test_no_service_manager(void)
{
	char long_path[256];

	(void)unsetenv("NOTIFY_SOCKET");
	CHECK(notify_send("READY=1") == 0, "none");
	(void)setenv("NOTIFY_SOCKET", "", 1);
	CHECK(notify_send("READY=1") == 0, "empty");
	(void)setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	CHECK(notify_send("READY=1") == -EINVAL, "another kind of address");
	memset(long_path, '/', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	(void)setenv("NOTIFY_SOCKET", long_path, 1);
	CHECK(notify_send("READY=1") == -EINVAL, "too long");
}

static void test_half_of_the_watchdog_time(void)
{
	char pid[16];

	(void)unsetenv("WATCHDOG_USEC");
	CHECK(notify_every_ns() == 0, "none");
	(void)setenv("WATCHDOG_USEC", "3000000", 1);
	CHECK(notify_every_ns() == 1500000000, "without a pid");
	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	(void)setenv("WATCHDOG_PID", pid, 1);
	CHECK(notify_every_ns() == 1500000000, "for this process");
	(void)setenv("WATCHDOG_PID", "1", 1);
	CHECK(notify_every_ns() == 0, "for another process");
	(void)unsetenv("WATCHDOG_PID");
	(void)setenv("WATCHDOG_USEC", "3s", 1);
	CHECK(notify_every_ns() == 0, "no number");
	(void)setenv("WATCHDOG_USEC", "18446744073709551615", 1);
	CHECK(notify_every_ns() == 0, "too large");
}

int main(void)
{
	test_one_datagram_for_each_message();
	test_abstract_addresses();
	test_no_service_manager();
	test_half_of_the_watchdog_time();
	return check_done();
}

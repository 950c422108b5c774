/* agent/http/server_listen.c: opens the sockets that a server listens on. */
#include "agent/http/server.h"

#include "agent/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/* Listen on a bound socket. Return 0, or a negative code after closing and reporting it. */
static int begin(struct server *s, const char *address, const struct server_socket *new)
{
	int err = listen(new->fd, BACKLOG) ? -errno : 0;

	if (err) {
		log_error("%s: %s", address, strerror(-err));
		(void)close(new->fd);
		return err;
	}
	s->sockets[s->n_sockets++] = *new;
	return 0;
}

/*
 * Remove a socket that a daemon left behind. One that somebody listens on, and any other kind of file,
 * stays.
 */
static int remove_old(const struct sockaddr_un *at)
{
	struct stat st;
	int fd, err = 0;

	if (lstat(at->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!connect(fd, (const struct sockaddr *)at, sizeof(*at)))
		err = -EADDRINUSE;
	(void)close(fd);
	return err ? err : unlink(at->sun_path) ? -errno : 0;
}

static int listen_local(struct server *s, const char *address, const char *path)
{
	struct server_socket new = { .local = true };
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	mode_t mask;
	int err;

	if (strlen(path) >= sizeof(at.sun_path) || *path != '/') {
		log_error("%s: unix: takes an absolute path of up to %zu bytes", address,
			  sizeof(at.sun_path) - 1);
		return -EINVAL;
	}
	(void)strcpy(at.sun_path, path);
	(void)snprintf(new.host, sizeof(new.host), "%s", path);
	err = remove_old(&at);
	new.fd = err ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!err && new.fd < 0)
		err = -errno;
	mask = umask(0117); /* for the user and the group; the directory may say more */
	if (!err && bind(new.fd, (const struct sockaddr *)&at, sizeof(at)))
		err = -errno;
	(void)umask(mask);
	if (err) {
		log_error("%s: %s", address, strerror(-err));
		if (new.fd >= 0)
			(void)close(new.fd);
		return err;
	}
	return begin(s, address, &new);
}

static bool is_loopback(const struct sockaddr *at)
{
	const struct sockaddr_in *four = (const void *)at;
	const struct sockaddr_in6 *six = (const void *)at;

	return at->sa_family == AF_INET	   ? ntohl(four->sin_addr.s_addr) >> 24 == 127
	       : at->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)
					   : false;
}

static int bind_to(struct server *s, const char *address, const struct addrinfo *at)
{
	struct server_socket new = { .loopback = is_loopback(at->ai_addr) };
	const int on = 1;
	int err = 0;

	(void)snprintf(new.host, sizeof(new.host), "%s", address);
	if (!new.loopback && (!s->token || !s->certificate)) {
		log_error("%s: others can reach this address: it takes a token and a certificate "
			  "(token-file, tls-certificate and tls-key)",
			  address);
		return -EPERM;
	}
	new.fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (new.fd < 0)
		err = -errno;
	if (!err)
		(void)setsockopt(new.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!err && bind(new.fd, at->ai_addr, at->ai_addrlen))
		err = -errno;
	if (err) {
		log_error("%s: %s", address, strerror(-err));
		if (new.fd >= 0)
			(void)close(new.fd);
		return err;
	}
	return begin(s, address, &new);
}

int server_listen(struct server *s, const char *address)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE };
	const char *colon = strrchr(address, ':');
	char host[SERVER_HOST];
	struct addrinfo *found = NULL;
	int err;

	if (s->n_sockets == SERVER_SOCKETS) {
		log_error("%s: there are %d addresses already", address, SERVER_SOCKETS);
		return -E2BIG;
	}
	if (!strncmp(address, "unix:", 5))
		return listen_local(s, address, address + 5);
	if (!colon || (size_t)(colon - address) >= sizeof(host) || colon == address ||
	    (*address == '[' && colon[-1] != ']')) {
		log_error("%s is no address such as 127.0.0.1:7227, [::1]:7227 or unix:/run/x",
			  address);
		return -EINVAL;
	}
	(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (*host == '[') {
		memmove(host, host + 1, strlen(host));
		host[strlen(host) - 1] = '\0';
	}
	err = getaddrinfo(!strcmp(host, "localhost") ? "127.0.0.1" : host, colon + 1, &hints,
			  &found);
	if (err) {
		log_error("%s: %s", address, gai_strerror(err));
		return -EINVAL;
	}
	err = bind_to(s, address, found);
	freeaddrinfo(found);
	return err;
}

void server_close(struct server *s, bool remove)
{
	for (int i = 0; i < s->n_sockets; i++) {
		(void)close(s->sockets[i].fd);
		if (remove && s->sockets[i].local)
			(void)unlink(s->sockets[i].host);
	}
	s->n_sockets = 0;
}

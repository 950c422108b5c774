/* agent/http/server_listen.c: opens the sockets that a server listens on. */
#include "agent/http/server.h"

#include "agent/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 128, TURNS = 50, TURN_NS = 100000000 };

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

/* Return the inherited socket that is bound to an address, which is no longer inherited then; -1: none. */
static int take_inherited(struct server *s, const void *address, socklen_t size)
{
	for (int i = 0; i < s->n_inherited; i++) {
		struct sockaddr_storage at;
		socklen_t n = sizeof(at);
		int fd = s->inherited[i];

		if (getsockname(fd, (struct sockaddr *)&at, &n) || n != size ||
		    memcmp(&at, address, size) != 0)
			continue;
		s->inherited[i] = s->inherited[--s->n_inherited];
		return fd;
	}
	return -1;
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
	/* The processes of a daemon that was killed end a moment later. One that ends itself removes its socket. */
	for (int i = 0; i < TURNS; i++) {
		const struct timespec pause = { .tv_nsec = TURN_NS };

		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		err = connect(fd, (const struct sockaddr *)at, sizeof(*at)) ? 0 : -EADDRINUSE;
		(void)close(fd);
		if (!err)
			break;
		(void)nanosleep(&pause, NULL);
	}
	return err ? err : unlink(at->sun_path) && errno != ENOENT ? -errno : 0;
}

static int listen_local(struct server *s, const char *address, const char *path)
{
	struct server_socket new = { .local = true };
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	mode_t mask;
	int err = 0;

	if (strlen(path) >= sizeof(at.sun_path) || *path != '/') {
		log_error("%s: unix: takes an absolute path of up to %zu bytes", address,
			  sizeof(at.sun_path) - 1);
		return -EINVAL;
	}
	(void)strcpy(at.sun_path, path);
	(void)snprintf(new.host, sizeof(new.host), "%s", path);
	if (s->check)
		return 0;
	/* The kernel ends a socket's path with a NUL (unix(7)). */
	new.fd = take_inherited(
		s, &at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1));
	if (new.fd >= 0)
		return begin(s, address, &new);
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

/* Refuse an address that others can reach, unless it is protected. */
static int check_reach(const struct server *s, const char *address, const struct sockaddr *at)
{
	if (is_loopback(at) || (s->token && s->certificate))
		return 0;
	log_error("%s: others can reach this address: it takes a token and a certificate "
		  "(token-file, tls-certificate and tls-key)",
		  address);
	return -EPERM;
}

/* Port 0 leaves the choice to the kernel (ip(7)): let the name of the socket have the port that it chose. */
static void take_port(struct server_socket *s)
{
	struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
	socklen_t size = sizeof(at);
	char *colon = strrchr(s->host, ':'), port[8];

	if (!colon || getsockname(s->fd, (struct sockaddr *)&at, &size) ||
	    getnameinfo((const struct sockaddr *)&at, size, NULL, 0, port, sizeof(port),
			NI_NUMERICSERV))
		return;
	(void)snprintf(colon + 1, sizeof(s->host) - (size_t)(colon + 1 - s->host), "%s", port);
}

static int bind_to(struct server *s, const char *address, const struct addrinfo *at)
{
	struct server_socket new = { .loopback = is_loopback(at->ai_addr) };
	const int on = 1;
	int err = check_reach(s, address, at->ai_addr);

	(void)snprintf(new.host, sizeof(new.host), "%s", address);
	if (err)
		return err;
	if (s->check)
		return 0;
	new.fd = take_inherited(s, at->ai_addr, at->ai_addrlen);
	if (new.fd >= 0)
		return begin(s, address, &new);
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
	take_port(&new);
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

char *server_read_text(const char *path, enum server_text kind)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	ssize_t n = -1;
	struct stat st;

	if (file && !fstat(fileno(file), &st) && kind != SERVER_TEXT_PUBLIC &&
	    st.st_mode & (S_IRGRP | S_IROTH | S_IWGRP | S_IWOTH)) {
		log_error("%s: others can read it: chmod 600 it", path);
		(void)fclose(file);
		return NULL;
	}
	if (file)
		n = getdelim(&text, &room, '\0', file);
	if (n >= 0 && kind == SERVER_TEXT_TOKEN) {
		text[strcspn(text, "\r\n")] = '\0';
		n = *text ? n : -1; /* everybody knows the empty token */
	}
	if (n < 0)
		log_error("%s: %s", path, file && !ferror(file) ? "is empty" : strerror(errno));
	if (file)
		(void)fclose(file);
	if (n < 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* Describe a socket that somebody else bound. Return 0, or a negative code after reporting it. */
static int describe(const struct server *s, struct server_socket *new)
{
	struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
	struct sockaddr *any = (struct sockaddr *)&at;
	socklen_t size = sizeof(at);
	char host[INET6_ADDRSTRLEN], port[8];

	if (getsockname(new->fd, any, &size)) {
		int err = -errno;

		log_error("the service manager passed descriptor %d, which is no socket: %s",
			  new->fd, strerror(-err));
		return err;
	}
	new->local = at.ss_family == AF_UNIX;
	new->loopback = is_loopback(any);
	if (new->local) {
		(void)snprintf(new->host, sizeof(new->host), "%s",
			       ((const struct sockaddr_un *)any)->sun_path);
		return 0;
	}
	if (getnameinfo(any, size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV)) {
		log_error("the service manager passed a socket that is neither TCP's nor UNIX's");
		return -EINVAL;
	}
	(void)snprintf(new->host, sizeof(new->host), at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
		       host, port);
	return check_reach(s, new->host, any);
}

int server_take_passed(struct server *s)
{
	const char *pid = getenv("LISTEN_PID"), *number = getenv("LISTEN_FDS");
	int n, err = 0;

	if (!pid || !number || strtol(pid, NULL, 10) != getpid())
		return 0;
	n = (int)strtol(number, NULL, 10);
	for (int i = 0; i < n && !err; i++) {
		struct server_socket new = { .fd = 3 + i, .passed = true };
		int flags = fcntl(new.fd, F_GETFL);

		if (s->n_sockets == SERVER_SOCKETS) {
			log_error("the service manager passed more than %d sockets",
				  SERVER_SOCKETS);
			return -E2BIG;
		}
		err = describe(s, &new);
		if (err)
			break;
		(void)fcntl(new.fd, F_SETFD, FD_CLOEXEC);
		(void)fcntl(new.fd, F_SETFL, flags | O_NONBLOCK);
		s->sockets[s->n_sockets++] = new;
	}
	return err;
}

#define SOCKETS "OFFWIND_SOCKETS" /* numbers of file descriptors */

void server_lend(const struct server *s)
{
	char text[16 * SERVER_SOCKETS] = "";
	size_t n = 0;

	for (int i = 0; i < s->n_sockets; i++) {
		(void)fcntl(s->sockets[i].fd, F_SETFD, 0);
		if (s->sockets[i].passed)
			continue; /* they stay those of the service manager's variables */
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%d ", s->sockets[i].fd);
	}
	(void)setenv(SOCKETS, text, 1);
}

void server_inherit(struct server *s)
{
	const char *text = getenv(SOCKETS);

	while (text && s->n_inherited < SERVER_SOCKETS) {
		int listens = 0, read = 0, fd;
		socklen_t size = sizeof(listens);

		if (sscanf(text, "%d %n", &fd, &read) != 1)
			break;
		text += read;
		/* Others may have set the variable. */
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
			continue;
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
		s->inherited[s->n_inherited++] = fd;
	}
	(void)unsetenv(SOCKETS);
}

void server_listened(struct server *s)
{
	for (int i = 0; i < s->n_inherited; i++) {
		struct sockaddr_un at;
		socklen_t size = sizeof(at);

		if (!getsockname(s->inherited[i], (struct sockaddr *)&at, &size) &&
		    at.sun_family == AF_UNIX && *at.sun_path)
			(void)unlink(at.sun_path);
		(void)close(s->inherited[i]);
	}
	s->n_inherited = 0;
}

void server_close(struct server *s, bool remove)
{
	for (int i = 0; i < s->n_sockets; i++) {
		/* While this one listens, a daemon that begins does not put its own socket there. */
		if (remove && s->sockets[i].local && !s->sockets[i].passed)
			(void)unlink(s->sockets[i].host);
		(void)close(s->sockets[i].fd);
	}
	s->n_sockets = 0;
}

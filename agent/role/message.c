/* agent/role/message.c: writes, sends, receives and reads messages, with SCM_RIGHTS (unix(7)). */
#include "agent/role/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NO_TEXT UINT64_MAX /* the length of a text that is NULL */

void message_init(struct message *m)
{
	m->tag = m->size = m->at = m->n_fds = m->fds_at = 0;
	m->err = 0;
	m->lost_fds = false;
}

/* ---- fields ------------------------------------------------------------------------ */

void message_bytes(struct message *m, const void *bytes, size_t size)
{
	if (!m->err && size > sizeof(m->bytes) - m->size)
		m->err = -E2BIG;
	if (m->err || !size)
		return;
	memcpy(m->bytes + m->size, bytes, size);
	m->size += size;
}

void message_number(struct message *m, uint64_t number)
{
	message_bytes(m, &number, sizeof(number));
}

/* The terminating zero is sent too, so that the reader can borrow the text. */
void message_text(struct message *m, const char *text)
{
	size_t length = text ? strlen(text) + 1 : 0;

	message_number(m, text ? length : NO_TEXT);
	message_bytes(m, text, length);
}

void message_fd(struct message *m, int fd)
{
	if (fd < 0)
		return;
	if (m->n_fds == MESSAGE_FDS)
		m->err = m->err ? m->err : -E2BIG;
	else
		m->fds[m->n_fds++] = fd;
}

/* Return the next size bytes, or NULL after an error. */
static const void *take(struct message *m, uint64_t size)
{
	const void *bytes = m->bytes + m->at;

	if (!m->err && size > m->size - m->at)
		m->err = -EBADMSG;
	if (m->err)
		return NULL;
	m->at += size;
	return bytes;
}

uint64_t message_take_number(struct message *m)
{
	uint64_t number;

	message_take_bytes(m, &number, sizeof(number));
	return number;
}

const char *message_take_text(struct message *m)
{
	uint64_t length = message_take_number(m);
	const char *text;

	if (m->err || length == NO_TEXT)
		return NULL;
	text = take(m, length);
	if (text && (!length || text[length - 1])) {
		m->err = -EBADMSG;
		return NULL;
	}
	return text;
}

void message_take_bytes(struct message *m, void *out, size_t size)
{
	const void *bytes = take(m, size);

	if (bytes)
		memcpy(out, bytes, size);
	else
		memset(out, 0, size);
}

int message_take_fd(struct message *m)
{
	if (m->lost_fds && !m->err)
		m->err = -EMFILE;
	return m->fds_at < m->n_fds ? m->fds[m->fds_at++] : -1;
}

/* ---- transport --------------------------------------------------------------------- */

union control { /* aligned as struct cmsghdr */
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int) * MESSAGE_FDS)];
};

int message_send(int socket, const struct message *m)
{
	struct iovec parts[] = { { (void *)(uintptr_t)&m->tag, sizeof(m->tag) },
				 { (void *)(uintptr_t)m->bytes, m->size } };
	union control control = { .room = { 0 } };
	struct msghdr header = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t n;

	if (m->err)
		return m->err;
	if (m->n_fds) {
		struct cmsghdr *rights = &control.header;

		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int) * m->n_fds);
		memcpy(CMSG_DATA(rights), m->fds, sizeof(int) * m->n_fds);
		header.msg_control = &control;
		header.msg_controllen = CMSG_SPACE(sizeof(int) * m->n_fds);
	}
	do
		n = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Store the received files in m. */
static void take_rights(struct message *m, struct msghdr *header)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (m->n_fds < MESSAGE_FDS)
				m->fds[m->n_fds++] = fd;
			else
				(void)close(fd);
		}
	}
}

int message_receive(int socket, struct message *m)
{
	struct iovec parts[] = { { &m->tag, sizeof(m->tag) }, { m->bytes, sizeof(m->bytes) } };
	union control control = { .room = { 0 } };
	struct msghdr header = { .msg_iov = parts,
				 .msg_iovlen = 2,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	ssize_t n;

	message_init(m);
	do
		n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take_rights(m, &header);
	if (!n)
		return -EPIPE; /* no message is empty: the other end is closed */
	if (header.msg_flags & MSG_CTRUNC) {
		message_fini(m);
		m->lost_fds = true;
	}
	if ((size_t)n < sizeof(m->tag) || header.msg_flags & MSG_TRUNC) {
		message_fini(m);
		return -EBADMSG;
	}
	m->size = (size_t)n - sizeof(m->tag);
	return 0;
}

void message_fini(struct message *m)
{
	while (m->fds_at < m->n_fds)
		(void)close(m->fds[m->fds_at++]);
}

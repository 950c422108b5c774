/*
 * agent/role/message.h: the messages between offwind's processes (docs/security.md, "Roles").
 *
 * A message is a row of numbers, texts and bytes, with a few open files. It is written and read field
 * by field. The reader does not trust the writer: each take function checks what is left, and after
 * the first error it returns nothing.
 *
 * Both processes are forks of one program, so the byte order and the sizes are the machine's own.
 */
#ifndef AGENT_ROLE_MESSAGE_H
#define AGENT_ROLE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_MAX ((size_t)32 << 10)
#define MESSAGE_FDS 2

struct message {
	uint64_t tag; /* sent with the message; for channels */
	size_t size;  /* bytes written, or received */
	size_t at;    /* bytes taken */
	int err; /* the first error: -E2BIG while writing, -EBADMSG or -EMFILE while reading; else 0 */
	int fds[MESSAGE_FDS];
	size_t n_fds, fds_at;
	bool lost_fds; /* received without its open files */
	uint8_t bytes[MESSAGE_MAX];
};

void message_init(struct message *m); /* an empty message */

void message_number(struct message *m, uint64_t number);
void message_text(struct message *m, const char *text); /* NULL is kept */
void message_bytes(struct message *m, const void *bytes, size_t size);
/* Add an open file. It is borrowed until the message has been sent. fd -1: nothing is added. */
void message_fd(struct message *m, int fd);

/* Take the next number; 0 after an error. */
uint64_t message_take_number(struct message *m);
/* Take the next text; borrowed from the message. NULL: it was NULL, or after an error. */
const char *message_take_text(struct message *m);
/* Take exactly size bytes into out; zeros after an error. */
void message_take_bytes(struct message *m, void *out, size_t size);
/*
 * Take the next open file, which then belongs to the caller. -1: there is none. This process may have
 * as many files open as it may: then the message comes without any, and asking for one is the error
 * -EMFILE.
 */
int message_take_fd(struct message *m);

/* Send a message. Return 0, m->err, -EPIPE if the other process is gone, or another negative code. */
int message_send(int socket, const struct message *m);
/*
 * Wait for a message. The open files that nobody takes are closed by message_fini. Return 0, -EPIPE
 * if the other process is gone, -EBADMSG if the message is too long, or another negative code.
 */
int message_receive(int socket, struct message *m);
/* Close the received files that were not taken. */
void message_fini(struct message *m);

#endif

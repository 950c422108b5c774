/*
 * agent/role/sending.h: what became of the windows that are sent to other systems, in memory that the
 * daemon's processes share. The process that sends (agent/send/sender.h) counts, and others read.
 */
#ifndef AGENT_ROLE_SENDING_H
#define AGENT_ROLE_SENDING_H

#include <stdint.h>

/* Why an attempt failed. The window is tried again later. */
enum sending_fault {
	SENDING_FAULT_CONNECT, /* nobody is found or answers there, or the connection ended */
	SENDING_FAULT_TIMEOUT,
	SENDING_FAULT_TLS,
	SENDING_FAULT_BUSY,   /* the receiver asks to wait: 429, 503 and the like */
	SENDING_FAULT_ACCESS, /* 401, 403, 404: the settings are wrong, here or there */
	SENDING_FAULT_REPLY,  /* it cannot be understood */
	SENDING_FAULT_MEMORY,
	SENDING_FAULT_N
};

/* Why samples were given up. They stay in the history. */
enum sending_drop {
	SENDING_DROP_REFUSED,  /* the receiver does not want the window, ever */
	SENDING_DROP_REJECTED, /* it took the window without these */
	SENDING_DROP_OLD,      /* receivers of this kind refuse windows of that age */
	SENDING_DROP_MERGED,   /* merged with some that were sent, while the receiver was away */
	SENDING_DROP_LARGE,    /* one stack is larger than receivers take */
	SENDING_DROP_DAMAGED,  /* the window cannot be read */
	SENDING_DROP_DELETED,  /* the history deleted it before it was sent */
	SENDING_DROP_N
};

enum { SENDING_TARGETS = 8, SENDING_NAME = 64 };

struct sending_target {
	char name[SENDING_NAME]; /* written before there are processes; "": there is none */
	_Atomic uint64_t windows, samples, bytes; /* that were taken; bytes as they were sent */
	_Atomic uint64_t failed[SENDING_FAULT_N]; /* attempts */
	_Atomic uint64_t dropped[SENDING_DROP_N]; /* samples */
	_Atomic uint64_t until_ns; /* the newest window that is settled ended then, since 1970 */
};

struct sending {
	struct sending_target targets[SENDING_TARGETS];
};

const char *sending_fault_name(enum sending_fault fault);
const char *sending_drop_name(enum sending_drop drop);

#endif

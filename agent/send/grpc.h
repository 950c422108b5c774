/* agent/send/grpc.h: unary calls of gRPC, over HTTP/2 with libcurl. */
#ifndef AGENT_SEND_GRPC_H
#define AGENT_SEND_GRPC_H

#include "agent/send/post.h"

#include <stddef.h>
#include <stdint.h>

/* A gRPC receiver takes messages of so many bytes by default. */
#define GRPC_BYTES_MAX ((size_t)4 << 20)

struct grpc_call {
	const char *url;    /* with the path: "https://HOST/PACKAGE.SERVICE/METHOD" */
	const char *header; /* beside those of gRPC and of the target; NULL: none */
	/* malloc gave the message; it is replaced. */
	uint8_t **message;
	size_t size;
	bool gzip; /* compress it */
};

/*
 * Call, and wait for the reply. Return SEND_DONE and the reply's message, which is borrowed until the next
 * request; or another outcome of parts_send_fn, and the report says why.
 */
int grpc_call(struct post *post, const struct grpc_call *call, const char **message, size_t *size,
	      struct send_report *report);

/* Take the reply apart: the second half of grpc_call. */
int grpc_read_reply(const struct post_reply *reply, const char **message, size_t *size,
		    struct send_report *report);

#endif

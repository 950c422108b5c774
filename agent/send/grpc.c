/* agent/send/grpc.c: calls of gRPC: frames, headers and what a status means. */
#include "agent/send/grpc.h"

#include "agent/send/parts.h"
#include "proto/gzip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FRAME_HEADER = 5, GZIP_LEVEL = 6 };

/* Of gRPC's status codes. */
enum {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_ABORTED = 10,
	GRPC_OUT_OF_RANGE = 11,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAVAILABLE = 14,
	GRPC_DATA_LOSS = 15,
	GRPC_UNAUTHENTICATED = 16,
};

static int digit(char c)
{
	const char *digits = "0123456789abcdef", *at = strchr(digits, c | 0x20);

	return c && at ? (int)(at - digits) : -1;
}

/* Put a percent-encoded text behind the number of the status in the report. */
static void say_status(const struct post_reply *reply, struct send_report *report)
{
	char reason[32], text[256];
	size_t n = 0;

	for (const char *p = reply->grpc_text; *p && n + 1 < sizeof(text); p++) {
		int high = *p == '%' ? digit(p[1]) : -1, low = high >= 0 ? digit(p[2]) : -1;

		text[n++] = low >= 0 ? (char)(high << 4 | low) : *p;
		p += low >= 0 ? 2 : 0;
	}
	text[n] = '\0';
	(void)snprintf(reason, sizeof(reason), "gRPC status %d", reply->grpc_status);
	post_say(report, reason, text);
}

/* Return whether a status says that the message is too large: by default, servers take 4 MiB. */
static bool is_too_large(const struct post_reply *reply)
{
	return reply->grpc_status == GRPC_RESOURCE_EXHAUSTED &&
	       (strstr(reply->grpc_text, "arger than max") ||
		strstr(reply->grpc_text, "too large"));
}

/* As the specification of OTLP says, which codes are worth another attempt. */
static int outcome_of(const struct post_reply *reply, struct send_report *report)
{
	say_status(reply, report);
	report->after_ns = reply->retry_ns;
	if (is_too_large(reply))
		return PART_TOO_LARGE;
	switch (reply->grpc_status) {
	case GRPC_CANCELLED:
	case GRPC_DEADLINE_EXCEEDED:
	case GRPC_RESOURCE_EXHAUSTED:
	case GRPC_ABORTED:
	case GRPC_OUT_OF_RANGE:
	case GRPC_UNAVAILABLE:
	case GRPC_DATA_LOSS:
		report->fault = SENDING_FAULT_BUSY;
		return SEND_AGAIN;
	case GRPC_PERMISSION_DENIED:
	case GRPC_UNIMPLEMENTED:
	case GRPC_UNAUTHENTICATED:
		report->fault = SENDING_FAULT_ACCESS;
		return SEND_AGAIN;
	default:
		return SEND_REFUSED;
	}
}

static int no_reply(struct send_report *report, const char *why)
{
	report->fault = SENDING_FAULT_REPLY;
	post_say(report, why, NULL);
	return SEND_AGAIN;
}

int grpc_read_reply(const struct post_reply *reply, const char **message, size_t *size,
		    struct send_report *report)
{
	const uint8_t *frame = (const uint8_t *)reply->body;
	uint32_t length;

	if (reply->status != 200) {
		int outcome = (int)post_outcome(reply, report);

		return outcome == SEND_DONE ? no_reply(report, "the reply is not of gRPC")
					    : outcome;
	}
	if (strncasecmp(reply->type, "application/grpc", 16) != 0 || reply->grpc_status < 0)
		return no_reply(report, "the reply is not of gRPC");
	if (reply->grpc_status != GRPC_OK)
		return outcome_of(reply, report);
	if (reply->size < FRAME_HEADER)
		return no_reply(report, "the reply has no message");
	length = (uint32_t)frame[1] << 24 | (uint32_t)frame[2] << 16 | (uint32_t)frame[3] << 8 |
		 frame[4];
	/* It was asked for without compression, and a unary call has one message. */
	if (frame[0] || length != reply->size - FRAME_HEADER)
		return no_reply(report, "the reply is not one message");
	*message = reply->body + FRAME_HEADER;
	*size = length;
	return SEND_DONE;
}

/* Put the header of a frame before the message, which is compressed if that is wanted. */
static int make_frame(const struct grpc_call *call, uint8_t **frame, size_t *size)
{
	size_t n = call->size;
	int err = call->gzip ? gzip_replace(call->message, &n, GZIP_LEVEL) : 0;
	uint8_t *bytes = err ? NULL : malloc(n + FRAME_HEADER);

	if (!bytes)
		return -ENOMEM;
	bytes[0] = call->gzip;
	for (int i = 0; i < 4; i++)
		bytes[1 + i] = (uint8_t)(n >> (24 - 8 * i));
	memcpy(bytes + FRAME_HEADER, *call->message, n);
	*frame = bytes;
	*size = n + FRAME_HEADER;
	return 0;
}

int grpc_call(struct post *post, const struct grpc_call *call, const char **message, size_t *size,
	      struct send_report *report)
{
	const char *headers[5] = { "Content-Type: application/grpc", "TE: trailers",
				   "grpc-accept-encoding: identity" };
	struct post_request request = {
		.url = call->url, .headers = headers, .n_headers = 3, .http2 = true
	};
	struct post_reply reply;
	uint8_t *frame = NULL;
	int outcome = SEND_AGAIN;

	if (call->gzip)
		headers[request.n_headers++] = "grpc-encoding: gzip";
	if (call->header)
		headers[request.n_headers++] = call->header;
	if (make_frame(call, &frame, &request.size)) {
		report->fault = SENDING_FAULT_MEMORY;
		post_say(report, strerror(ENOMEM), NULL);
		return SEND_AGAIN;
	}
	request.body = frame;
	if (post_send(post, &request, &reply, report))
		outcome = grpc_read_reply(&reply, message, size, report);
	free(frame);
	return outcome;
}

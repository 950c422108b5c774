/*
 * tests/fuzz/fuzz_send.c: fuzzes what receivers of windows reply (agent/send). The input is the kind of reply, its
 * status, and its body; the report must be a text that a terminal can show.
 */
#include "agent/send/grpc.h"
#include "agent/send/otlp_reply.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const long statuses[] = { 200, 204, 302, 400, 401, 413, 429, 500, 503, 0 };
	static const char *const types[] = { "application/x-protobuf", "application/grpc",
					     "text/plain", "" };
	struct send_report report = { .text = "" };
	struct post_reply reply = { .grpc_status = -1 };
	const char *message = NULL;
	char *body, text[64];
	size_t n = 0;

	if (size < 4)
		return 0;
	reply.status = statuses[data[0] % 10];
	reply.type = types[data[1] % 4];
	reply.grpc_status = data[2] % 20 - 1;
	body = malloc(size - 3 + 1);
	if (!body)
		return 0;
	memcpy(body, data + 3, size - 3);
	body[size - 3] = '\0';
	(void)strncpy(text, body, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	reply.grpc_text = text;
	reply.body = body;
	reply.size = size - 3;
	if (data[1] & 0x80) {
		if (grpc_read_reply(&reply, &message, &n, &report) == SEND_DONE)
			(void)otlp_read_response(message, n, 3, 100, &report);
	} else {
		(void)otlp_read_reply(&reply, 3, 100, &report);
	}
	for (const char *p = report.text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == '\x7f')
			abort();
	if (report.dropped[SENDING_DROP_REJECTED] > 100)
		abort();
	free(body);
	return 0;
}

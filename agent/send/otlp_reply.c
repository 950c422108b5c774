/* agent/send/otlp_reply.c: reads the replies of OTLP. */
#include "agent/send/otlp_reply.h"

#include "agent/send/parts.h"
#include "proto/arena.h"
#include "proto/otlp.pb-c.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { REPLY_ARENA = 1 << 20 };

static void take_rejected(const Otlp__PartialSuccess *p, size_t n_profiles, uint64_t n_samples,
			  struct send_report *report)
{
	uint64_t n = p->rejected_profiles < 0 ? 0 : (uint64_t)p->rejected_profiles;

	if (n > n_profiles)
		n = n_profiles;
	report->dropped[SENDING_DROP_REJECTED] =
		n_profiles ? (uint64_t)((unsigned __int128)n_samples * n / n_profiles) : 0;
	post_say(report, "the receiver says", p->error_message);
}

int otlp_read_response(const char *bytes, size_t size, size_t n_profiles, uint64_t n_samples,
		       struct send_report *report)
{
	struct arena arena;
	Otlp__ExportResponse *r;

	arena_init(&arena, REPLY_ARENA);
	r = otlp__export_response__unpack(&arena.allocator, size, (const uint8_t *)bytes);
	if (r && r->partial_success) {
		take_rejected(r->partial_success, n_profiles, n_samples, report);
	} else if (!r) {
		report->fault = SENDING_FAULT_REPLY;
		post_say(report, "the reply is no message of OTLP", NULL);
	}
	arena_fini(&arena);
	return r ? SEND_DONE : SEND_AGAIN;
}

/* Add what the receiver says of a request that it did not take: a google.rpc.Status, or a text. */
static void read_refusal(const struct post_reply *reply, struct send_report *report)
{
	char reason[32];
	struct arena arena;
	Otlp__Status *s = NULL;

	(void)snprintf(reason, sizeof(reason), "status %ld", reply->status);
	arena_init(&arena, REPLY_ARENA);
	if (strstr(reply->type, "protobuf"))
		s = otlp__status__unpack(&arena.allocator, reply->size,
					 (const uint8_t *)reply->body);
	if (s)
		post_say(report, reason, s->message);
	else if (!strncasecmp(reply->type, "text/plain", 10))
		post_say(report, reason, reply->body);
	arena_fini(&arena);
}

int otlp_read_reply(const struct post_reply *reply, size_t n_profiles, uint64_t n_samples,
		    struct send_report *report)
{
	enum send_outcome outcome;

	if (reply->status == 413)
		return PART_TOO_LARGE;
	outcome = post_outcome(reply, report);
	if (outcome == SEND_DONE)
		return otlp_read_response(reply->body, reply->size, n_profiles, n_samples, report);
	read_refusal(reply, report);
	return (int)outcome;
}

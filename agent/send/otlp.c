/* agent/send/otlp.c: sends windows as OTLP profiles, by HTTP. */
#include "agent/log.h"
#include "agent/send/kinds.h"
#include "agent/send/otlp_encode.h"
#include "agent/send/parts.h"
#include "agent/send/post.h"
#include "proto/arena.h"
#include "proto/gzip.h"
#include "proto/otlp.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * The version of what proto/otlp.proto describes, as long as OTLP profiles are being developed: receivers
 * refuse another one.
 */
#define DEVELOPMENT_VERSION "1"

enum { GZIP_LEVEL = 6, REPLY_ARENA = 1 << 20 };

struct otlp {
	const struct target *target;
	struct post *post;
	char *url, *version; /* of the request, and of its header */
	struct parts parts;
};

static void otlp_close(void *opened)
{
	struct otlp *o = opened;

	if (!o)
		return;
	post_free(o->post);
	free(o->url);
	free(o->version);
	free(o);
}

static int otlp_open(const struct target *t, void **out)
{
	struct otlp *o = calloc(1, sizeof(*o));
	int err = o ? post_new(t, &o->post) : -ENOMEM;

	if (!err) {
		o->target = t;
		o->url = post_url(t->url, "/v1development/profiles");
		if (!o->url || asprintf(&o->version, "OTLP-Profiles-Development-Version: %s",
					t->version ? t->version : DEVELOPMENT_VERSION) < 0) {
			o->version = NULL;
			err = -ENOMEM;
		}
	}
	if (err) {
		otlp_close(o);
		return err;
	}
	*out = o;
	return 0;
}

/* ---- what the receiver says -------------------------------------------------------------- */

/* Take over how many of n profiles were rejected: as many of the samples. */
static void take_rejected(const Otlp__ExportResponse *r, size_t n_profiles, uint64_t n_samples,
			  struct send_report *report)
{
	const Otlp__PartialSuccess *p = r->partial_success;
	uint64_t n;

	if (!p)
		return;
	n = p->rejected_profiles < 0 ? 0 : (uint64_t)p->rejected_profiles;
	if (n > n_profiles)
		n = n_profiles;
	report->dropped[SENDING_DROP_REJECTED] =
		n_profiles ? (uint64_t)((unsigned __int128)n_samples * n / n_profiles) : 0;
	post_say(report, "the receiver says", p->error_message);
}

/* Read the message of a request that was taken. Return whether it is one. */
static bool read_response(const char *body, size_t size, size_t n_profiles, uint64_t n_samples,
			  struct send_report *report)
{
	struct arena arena;
	Otlp__ExportResponse *r;

	arena_init(&arena, REPLY_ARENA);
	r = otlp__export_response__unpack(&arena.allocator, size, (const uint8_t *)body);
	if (r)
		take_rejected(r, n_profiles, n_samples, report);
	arena_fini(&arena);
	return r != NULL;
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

/* ---- sending ----------------------------------------------------------------------------- */

/* Send a request that is encoded, by HTTP. bytes are replaced. */
static int send_http(struct otlp *o, uint8_t **bytes, size_t size, size_t n_profiles,
		     uint64_t n_samples, struct send_report *report)
{
	const char *const headers[] = { "Content-Type: application/x-protobuf",
					"Content-Encoding: gzip", o->version };
	struct post_request request = { .url = o->url, .headers = headers, .n_headers = 3 };
	struct post_reply reply;
	enum send_outcome outcome;

	report->fault = SENDING_FAULT_MEMORY;
	if (gzip_replace(bytes, &size, GZIP_LEVEL)) {
		post_say(report, strerror(ENOMEM), NULL);
		return SEND_AGAIN;
	}
	request.body = *bytes;
	request.size = size;
	if (!post_send(o->post, &request, &reply, report))
		return SEND_AGAIN;
	if (reply.status == 413)
		return PART_TOO_LARGE;
	outcome = post_outcome(&reply, report);
	if (outcome != SEND_DONE) {
		read_refusal(&reply, report);
	} else if (!read_response(reply.body, reply.size, n_profiles, n_samples, report)) {
		report->fault = SENDING_FAULT_REPLY;
		post_say(report, "the reply is no message of OTLP", NULL);
		return SEND_AGAIN;
	}
	return (int)outcome;
}

static int send_part(void *ctx, const struct send_window *w, size_t from, size_t to,
		     struct send_report *report)
{
	struct otlp *o = ctx;
	uint8_t *bytes = NULL;
	size_t size = 0, n_profiles = 0;
	int err = otlp_encode(w, from, to, &bytes, &size, &n_profiles), outcome;

	if (err == -EFBIG) {
		outcome = PART_TOO_LARGE;
	} else if (err) {
		report->fault = SENDING_FAULT_MEMORY;
		post_say(report, strerror(-err), NULL);
		outcome = SEND_AGAIN;
	} else {
		outcome = send_http(o, &bytes, size, n_profiles, parts_count(w->stacks, from, to),
				    report);
	}
	free(bytes);
	return outcome;
}

static enum send_outcome otlp_send(void *opened, const struct send_window *w,
				   struct send_report *report)
{
	struct otlp *o = opened;

	return parts_send(&o->parts, w, SIZE_MAX, send_part, o, report);
}

const struct target_kind target_otlp = {
	.name = "otlp",
	.has_version = true,
	.open = otlp_open,
	.send = otlp_send,
	.close = otlp_close,
};

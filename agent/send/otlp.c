/* agent/send/otlp.c: sends windows as OTLP profiles, by HTTP or gRPC. */
#include "agent/send/grpc.h"
#include "agent/send/kinds.h"
#include "agent/send/otlp_encode.h"
#include "agent/send/otlp_reply.h"
#include "agent/send/parts.h"
#include "agent/send/post.h"
#include "proto/gzip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The version of what proto/otlp.proto describes, as long as OTLP profiles are being developed: receivers
 * refuse another one.
 */
#define DEVELOPMENT_VERSION "1"

#define HTTP_PATH "/v1development/profiles"
#define GRPC_PATH "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"

enum { GZIP_LEVEL = 6 };

struct otlp {
	const struct target *target;
	struct post *post;
	char *url, *version;	  /* of the request, and of its header */
	struct htlhashes *hashes; /* NULL: they are not sent */
	struct parts parts;
};

static void otlp_close(void *opened)
{
	struct otlp *o = opened;

	if (!o)
		return;
	post_free(o->post);
	htlhashes_free(o->hashes);
	free(o->url);
	free(o->version);
	free(o);
}

static int otlp_open(const struct target *t, void **out)
{
	struct otlp *o = calloc(1, sizeof(*o));
	int err = o ? post_open(t, t->grpc ? GRPC_PATH : HTTP_PATH, &o->post, &o->url) : -ENOMEM;

	if (!err) {
		o->target = t;
		if (asprintf(&o->version, "OTLP-Profiles-Development-Version: %s",
			     t->version ? t->version : DEVELOPMENT_VERSION) < 0) {
			o->version = NULL;
			err = -ENOMEM;
		}
	}
	if (!err && t->htlhash)
		err = htlhashes_new(&o->hashes);
	if (err) {
		otlp_close(o);
		return err;
	}
	*out = o;
	return 0;
}

/* A part of a window as a request. */
struct request {
	uint8_t *bytes; /* owned */
	size_t size, n_profiles;
	uint64_t n_samples;
};

static int no_memory(struct send_report *report)
{
	report->fault = SENDING_FAULT_MEMORY;
	post_say(report, strerror(ENOMEM), NULL);
	return SEND_AGAIN;
}

static int send_http(struct otlp *o, struct request *r, struct send_report *report)
{
	const char *const headers[] = { "Content-Type: application/x-protobuf",
					"Content-Encoding: gzip", o->version };
	struct post_request request = { .url = o->url, .headers = headers, .n_headers = 3 };
	struct post_reply reply;

	if (gzip_replace(&r->bytes, &r->size, GZIP_LEVEL))
		return no_memory(report);
	request.body = r->bytes;
	request.size = r->size;
	return post_send(o->post, &request, &reply, report)
		       ? otlp_read_reply(&reply, r->n_profiles, r->n_samples, report)
		       : SEND_AGAIN;
}

static int send_grpc(struct otlp *o, struct request *r, struct send_report *report)
{
	const struct grpc_call call = { .url = o->url,
					.header = o->version,
					.message = &r->bytes,
					.size = r->size,
					.gzip = true };
	const char *message;
	size_t size;
	int outcome = grpc_call(o->post, &call, &message, &size, report);

	return outcome == SEND_DONE
		       ? otlp_read_response(message, size, r->n_profiles, r->n_samples, report)
		       : outcome;
}

static int send_part(void *ctx, const struct send_window *w, size_t from, size_t to,
		     struct send_report *report)
{
	struct otlp *o = ctx;
	struct request r = { .n_samples = parts_count(w->stacks, from, to) };
	const struct otlp_part part = { w, from, to, o->hashes };
	int err = otlp_encode(&part, &r.bytes, &r.size, &r.n_profiles), outcome;

	if (err == -EFBIG)
		outcome = PART_TOO_LARGE;
	else if (err)
		outcome = no_memory(report);
	else
		outcome = o->target->grpc ? send_grpc(o, &r, report) : send_http(o, &r, report);
	free(r.bytes);
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
	.has_grpc = true,
	.has_version = true,
	.has_times = true,
	.has_htlhash = true,
	.open = otlp_open,
	.send = otlp_send,
	.close = otlp_close,
};

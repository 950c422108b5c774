/* agent/send/parca.c: writes windows to Parca, by gRPC. */
#include "agent/send/debuginfo.h"
#include "agent/send/grpc.h"
#include "agent/send/kinds.h"
#include "agent/send/parts.h"
#include "agent/send/post.h"
#include "agent/send/series.h"
#include "proto/arena.h"
#include "proto/push.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH	    "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"
#define REPLY_ARENA ((size_t)1 << 20)

struct parca {
	const struct target *target;
	struct post *post;
	char *url;
	struct debuginfo *debuginfo; /* NULL: no files are sent */
	struct parts parts;
};

static void parca_close(void *opened)
{
	struct parca *p = opened;

	if (!p)
		return;
	debuginfo_free(p->debuginfo);
	post_free(p->post);
	free(p->url);
	free(p);
}

static int parca_open(const struct target *t, void **out)
{
	struct parca *p = calloc(1, sizeof(*p));
	int err = p ? post_open(t, PATH, &p->post, &p->url) : -ENOMEM;

	if (!err && t->debuginfo)
		err = debuginfo_new(t, p->post, &p->debuginfo);
	if (err) {
		parca_close(p);
		return err;
	}
	p->target = t;
	*out = p;
	return 0;
}

/* ---- the request ------------------------------------------------------------------------- */

/* Of samples, what is not of their series: the process and the thread. */
static bool has_label(const void *ctx, const char *key)
{
	return !series_is_made_by(ctx, key) || !strcmp(key, "comm");
}

/* One series of the request, with what it points to. */
struct written {
	Push__WriteSeries series, *pointer;
	Push__LabelSet set;
	Push__Label labels[SERIES_LABELS], *label_pointers[SERIES_LABELS];
	Push__RawSample sample, *sample_pointer;
	uint8_t *bytes; /* owned */
};

static int write_series(const struct send_window *w, const struct series *from, struct written *to)
{
	static const struct series_form form = { .has_label = has_label,
						 .bytes_max = GRPC_BYTES_MAX };
	size_t size = 0;
	int err = series_pprof(w, from, &form, &to->bytes, &size);

	if (err)
		return err;
	to->series = (Push__WriteSeries)PUSH__WRITE_SERIES__INIT;
	to->set = (Push__LabelSet)PUSH__LABEL_SET__INIT;
	to->sample = (Push__RawSample)PUSH__RAW_SAMPLE__INIT;
	for (size_t i = 0; i < from->n_labels; i++) {
		to->labels[i] = (Push__Label)PUSH__LABEL__INIT;
		to->labels[i].name = (char *)(uintptr_t)from->labels[i].name;
		to->labels[i].value = (char *)(uintptr_t)from->labels[i].value;
		to->label_pointers[i] = &to->labels[i];
	}
	to->set.labels = to->label_pointers;
	to->set.n_labels = from->n_labels;
	to->sample.raw_profile = (ProtobufCBinaryData){ size, to->bytes };
	to->sample_pointer = &to->sample;
	to->series.labels = &to->set;
	to->series.samples = &to->sample_pointer;
	to->series.n_samples = 1;
	return 0;
}

/* Encode the samples [from, to). The caller frees the bytes. -EFBIG: there are too many. */
static int encode(const struct send_window *w, size_t from, size_t to, uint8_t **bytes,
		  size_t *size)
{
	Push__WriteRawRequest request = PUSH__WRITE_RAW_REQUEST__INIT;
	struct written *written = NULL;
	struct series_set set;
	int err = series_make(w, from, to, &set);

	if (!err) {
		written = calloc(set.n + 1, sizeof(*written));
		request.series = calloc(set.n + 1, sizeof(*request.series));
		err = written && request.series ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < set.n && !err; i++) {
		err = write_series(w, &set.all[i], &written[i]);
		request.series[i] = &written[i].series;
		request.n_series += !err;
	}
	request.normalized = 1;
	if (!err) {
		*size = push__write_raw_request__get_packed_size(&request);
		err = *size > GRPC_BYTES_MAX ? -EFBIG : 0;
	}
	if (!err && !(*bytes = malloc(*size + 1)))
		err = -ENOMEM;
	if (!err)
		(void)push__write_raw_request__pack(&request, *bytes);
	for (size_t i = 0; written && i < set.n; i++)
		free(written[i].bytes);
	free(written);
	free(request.series);
	series_fini(&set);
	return err;
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Return whether a reply is the message that Parca answers with, which has no fields. */
static bool is_response(const char *bytes, size_t size)
{
	Push__WriteRawResponse *r;
	struct arena arena;

	arena_init(&arena, REPLY_ARENA);
	r = push__write_raw_response__unpack(&arena.allocator, size, (const uint8_t *)bytes);
	arena_fini(&arena);
	return r != NULL;
}

static int send_part(void *ctx, const struct send_window *w, size_t from, size_t to,
		     struct send_report *report)
{
	struct parca *p = ctx;
	uint8_t *bytes = NULL;
	/* The profiles are compressed; the request is not a second time. */
	struct grpc_call call = { .url = p->url, .message = &bytes };
	const char *message;
	size_t size;
	int err = encode(w, from, to, &bytes, &call.size), outcome;

	if (err == -EFBIG)
		return PART_TOO_LARGE;
	if (err) {
		report->fault = SENDING_FAULT_MEMORY;
		post_say(report, strerror(-err), NULL);
		return SEND_AGAIN;
	}
	outcome = grpc_call(p->post, &call, &message, &size, report);
	if (outcome == SEND_DONE && !is_response(message, size)) {
		report->fault = SENDING_FAULT_REPLY;
		post_say(report, "the reply is no message of Parca", NULL);
		outcome = SEND_AGAIN;
	}
	free(bytes);
	return outcome;
}

static enum send_outcome parca_send(void *opened, const struct send_window *w,
				    struct send_report *report)
{
	struct parca *p = opened;
	enum send_outcome outcome = parts_send(&p->parts, w, SIZE_MAX, send_part, p, report);

	if (outcome == SEND_DONE && p->debuginfo)
		debuginfo_send(p->debuginfo, w->stacks);
	return outcome;
}

const struct target_kind target_parca = {
	.name = "parca",
	.has_debuginfo = true,
	.open = parca_open,
	.send = parca_send,
	.close = parca_close,
};

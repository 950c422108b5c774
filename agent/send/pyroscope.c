/* agent/send/pyroscope.c: pushes windows to Pyroscope, by the protocol of Connect. */
#include "agent/send/kinds.h"
#include "agent/send/parts.h"
#include "agent/send/post.h"
#include "agent/send/series.h"
#include "proto/arena.h"
#include "proto/push.pb-c.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/push.v1.PusherService/Push"

/* What a tenant of Pyroscope may send, by default. */
#define SAMPLES_MAX ((size_t)16000)
#define DEPTH_MAX   1000
#define BYTES_MAX   ((size_t)4 << 20)
#define AGE_NS	    (UINT64_C(3600) * 1000000000)
#define ARENA_MAX   ((size_t)256 << 20)

enum { ID_TEXT = 37 };

struct pyroscope {
	struct post *post;
	char *url;
	struct parts parts;
};

static void pyroscope_close(void *opened)
{
	struct pyroscope *p = opened;

	if (!p)
		return;
	post_free(p->post);
	free(p->url);
	free(p);
}

static int pyroscope_open(const struct target *t, void **out)
{
	struct pyroscope *p = calloc(1, sizeof(*p));
	int err = p ? post_open(t, PATH, &p->post, &p->url) : -ENOMEM;

	if (err) {
		pyroscope_close(p);
		return err;
	}
	*out = p;
	return 0;
}

/* ---- the request ------------------------------------------------------------------------- */

/* Write an id that follows from the window and the series, in the form of a UUID. */
static void make_id(const struct send_window *w, size_t from, size_t number, char out[ID_TEXT])
{
	const uint64_t numbers[] = { (uint64_t)w->id, w->start_ns, w->end_ns, from, number };
	uint8_t hash[16];
	struct sha256_ctx sha;

	sha256_init(&sha);
	sha256_update(&sha, strlen(w->host), (const uint8_t *)w->host);
	sha256_update(&sha, sizeof(numbers), (const uint8_t *)numbers);
	sha256_digest(&sha, sizeof(hash), hash);
	hash[6] = (uint8_t)((hash[6] & 0x0f) | 0x80); /* version 8: made by a rule of one's own */
	hash[8] = (uint8_t)((hash[8] & 0x3f) | 0x80);
	for (int i = 0, n = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			out[n++] = '-';
		n += snprintf(out + n, 3, "%02x", hash[i]);
	}
}

/* Fill a series of the request. All that it refers to is in the arena or in the series. */
static int fill(struct arena *a, const struct series *from, Push__PushSeries *to,
		const Push__RawSample *sample)
{
	Push__Label *labels = arena_alloc(a, from->n_labels * sizeof(*labels));
	Push__RawSample *copy = arena_alloc(a, sizeof(*copy));

	to->labels = arena_alloc(a, from->n_labels * sizeof(*to->labels));
	to->samples = arena_alloc(a, sizeof(*to->samples));
	if (!labels || !copy || !to->labels || !to->samples)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_labels; i++) {
		labels[i] = (Push__Label)PUSH__LABEL__INIT;
		labels[i].name = (char *)(uintptr_t)from->labels[i].name;
		labels[i].value = (char *)(uintptr_t)from->labels[i].value;
		to->labels[i] = &labels[i];
	}
	to->n_labels = from->n_labels;
	*copy = *sample;
	to->samples[0] = copy;
	to->n_samples = 1;
	return 0;
}

/* Pyroscope makes a series of each set of labels that samples have. */
static bool has_label(const void *ctx, const char *key)
{
	(void)ctx;
	(void)key;
	return false;
}

/* Add a series with its profile. -EFBIG: the profile is too large. */
static int add_series(struct arena *a, const struct send_window *w, const struct series *from,
		      const char *id, Push__PushSeries **to)
{
	static const struct series_form form = { .has_label = has_label,
						 .depth = DEPTH_MAX,
						 .bytes_max = BYTES_MAX };
	Push__RawSample sample = PUSH__RAW_SAMPLE__INIT;
	uint8_t *bytes = NULL;
	size_t size;
	int err = series_pprof(w, from, &form, &bytes, &size);

	if (err)
		return err;
	*to = arena_alloc(a, sizeof(**to));
	sample.raw_profile.data = arena_alloc(a, size);
	sample.raw_profile.len = size;
	sample.id = arena_alloc(a, ID_TEXT);
	if (*to && sample.raw_profile.data && sample.id) {
		**to = (Push__PushSeries)PUSH__PUSH_SERIES__INIT;
		memcpy(sample.raw_profile.data, bytes, size);
		memcpy(sample.id, id, ID_TEXT);
		err = fill(a, from, *to, &sample);
	} else {
		err = -ENOMEM;
	}
	free(bytes);
	return err;
}

/* Encode the samples [from, to). The caller frees the bytes. */
static int encode(const struct send_window *w, size_t from, size_t to, uint8_t **bytes,
		  size_t *size)
{
	Push__PushRequest request = PUSH__PUSH_REQUEST__INIT;
	struct series_set set;
	struct arena arena;
	char id[ID_TEXT];
	int err = series_make(w, from, to, &set);

	arena_init(&arena, ARENA_MAX);
	if (!err && !(request.series = arena_alloc(&arena, (set.n + 1) * sizeof(*request.series))))
		err = -ENOMEM;
	for (size_t i = 0; i < set.n && !err; i++) {
		make_id(w, from, i, id);
		err = add_series(&arena, w, &set.all[i], id, &request.series[i]);
		request.n_series += !err;
	}
	if (!err) {
		*size = push__push_request__get_packed_size(&request);
		*bytes = malloc(*size + 1);
		err = *bytes ? 0 : -ENOMEM;
	}
	if (!err)
		(void)push__push_request__pack(&request, *bytes);
	if (err == -ENOMEM && arena.full)
		err = -EFBIG;
	arena_fini(&arena);
	series_fini(&set);
	return err;
}

/* ---- sending ----------------------------------------------------------------------------- */

static int send_part(void *ctx, const struct send_window *w, size_t from, size_t to,
		     struct send_report *report)
{
	/* The profiles are compressed; the request is not a second time. */
	static const char *const headers[] = { "Content-Type: application/proto",
					       "Connect-Protocol-Version: 1" };
	struct pyroscope *p = ctx;
	struct post_request request = { .url = p->url, .headers = headers, .n_headers = 2 };
	struct post_reply reply;
	uint8_t *bytes = NULL;
	int err = encode(w, from, to, &bytes, &request.size), outcome = SEND_AGAIN;

	if (err == -EFBIG)
		return PART_TOO_LARGE;
	if (err) {
		report->fault = SENDING_FAULT_MEMORY;
		post_say(report, strerror(-err), NULL);
		return SEND_AGAIN;
	}
	request.body = bytes;
	if (post_send(p->post, &request, &reply, report)) {
		outcome = reply.status == 413 ? PART_TOO_LARGE : (int)post_outcome(&reply, report);
		/* A page to log in is no reply of Connect, whose errors are JSON. */
		if (outcome == SEND_DONE && strncmp(reply.type, "application/proto", 17) != 0) {
			report->fault = SENDING_FAULT_REPLY;
			post_say(report, "the reply is not of Connect", NULL);
			outcome = SEND_AGAIN;
		} else if (outcome != SEND_DONE && !strncmp(reply.type, "application/json", 16)) {
			char reason[32];

			(void)snprintf(reason, sizeof(reason), "status %ld", reply.status);
			post_say(report, reason, reply.body);
		}
	}
	free(bytes);
	return outcome;
}

static enum send_outcome pyroscope_send(void *opened, const struct send_window *w,
					struct send_report *report)
{
	struct pyroscope *p = opened;

	return parts_send(&p->parts, w, SAMPLES_MAX, send_part, p, report);
}

const struct target_kind target_pyroscope = {
	.name = "pyroscope",
	.age_ns = AGE_NS,
	.open = pyroscope_open,
	.send = pyroscope_send,
	.close = pyroscope_close,
};

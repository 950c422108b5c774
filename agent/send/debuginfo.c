/* agent/send/debuginfo.c: sends files with symbols to Parca. */
#include "agent/send/debuginfo.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/log.h"
#include "agent/send/grpc.h"
#include "agent/send/programs.h"
#include "proto/arena.h"
#include "proto/push.pb-c.h"

#include <ctype.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SERVICE "/parca.debuginfo.v1alpha1.DebuginfoService/"

#define REPLY_ARENA  ((size_t)1 << 20)
#define ASK_AGAIN_NS (UINT64_C(3600) * 1000000000)

enum { KNOWN_MAX = 16384, ASKED_AT_ONCE = 16, BY_SIGNED_URL = 2 };

struct known {
	char build_id[2 * PROGRAMS_BUILD_ID + 1];
	uint64_t again_ns; /* when the receiver is asked again; UINT64_MAX: never */
};

struct debuginfo {
	const struct target *target;
	struct post *post;
	char *should, *initiate, *finished; /* URLs */
	struct known *known;
	size_t n, room;
	struct uw_hash_index by_id;
};

int debuginfo_new(const struct target *t, struct post *post, struct debuginfo **out)
{
	struct debuginfo *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->target = t;
	d->post = post;
	d->should = post_url(t->url, SERVICE "ShouldInitiateUpload");
	d->initiate = post_url(t->url, SERVICE "InitiateUpload");
	d->finished = post_url(t->url, SERVICE "MarkUploadFinished");
	if (!d->should || !d->initiate || !d->finished) {
		debuginfo_free(d);
		return -ENOMEM;
	}
	*out = d;
	return 0;
}

void debuginfo_free(struct debuginfo *d)
{
	if (!d)
		return;
	free(d->should);
	free(d->initiate);
	free(d->finished);
	free(d->known);
	uw_hash_fini(&d->by_id);
	free(d);
}

/* ---- files ------------------------------------------------------------------------------- */

/* Open the debug file of a module, or the module. */
static int open_module(const struct stacks_module *m, size_t *size)
{
	char path[64 + 2 * PROGRAMS_BUILD_ID];
	int fd;

	(void)snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%.2s/%s.debug", m->build_id,
		       m->build_id + 2);
	fd = programs_open(path, m->build_id, size);
	return fd >= 0 ? fd : programs_open(m->path, m->build_id, size);
}

/* Write the SHA-256 of a file as text. */
static int hash_file(int fd, char out[2 * SHA256_DIGEST_SIZE + 1])
{
	uint8_t buffer[65536], digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx sha;
	off_t at = 0;
	ssize_t n;

	sha256_init(&sha);
	while ((n = pread(fd, buffer, sizeof(buffer), at)) > 0) {
		sha256_update(&sha, (size_t)n, buffer);
		at += n;
	}
	sha256_digest(&sha, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
	return n < 0 ? -errno : 0;
}

/* ---- the receiver ------------------------------------------------------------------------ */

/* Call with a message, which is packed here. Return whether there is a reply, which is borrowed. */
static bool call(struct debuginfo *d, const char *url, const ProtobufCMessage *m,
		 const char **reply, size_t *size, struct send_report *report)
{
	uint8_t *bytes = malloc(protobuf_c_message_get_packed_size(m) + 1);
	const struct grpc_call call = { .url = url,
					.message = &bytes,
					.size = bytes ? protobuf_c_message_pack(m, bytes) : 0 };
	bool done = bytes && grpc_call(d->post, &call, reply, size, report) == SEND_DONE;

	free(bytes);
	return done;
}

/* Return 1 if the receiver wants a file, 0 if it does not, -1 if it cannot be asked. */
static int is_wanted(struct debuginfo *d, char *build_id, char *hash, struct send_report *report)
{
	Push__ShouldInitiateUploadRequest request = PUSH__SHOULD_INITIATE_UPLOAD_REQUEST__INIT;
	Push__ShouldInitiateUploadResponse *r = NULL;
	struct arena arena;
	const char *reply;
	size_t size;
	int wanted = -1;

	request.build_id = build_id;
	request.hash = hash;
	arena_init(&arena, REPLY_ARENA);
	if (call(d, d->should, &request.base, &reply, &size, report))
		r = push__should_initiate_upload_response__unpack(&arena.allocator, size,
								  (const uint8_t *)reply);
	if (r)
		wanted = r->should_initiate_upload;
	arena_fini(&arena);
	return wanted;
}

/* Send a file to the URL that the receiver gave, without the target's token: it may be another machine. */
static bool put_file(struct debuginfo *d, const char *url, int fd, size_t size,
		     struct send_report *report)
{
	static const char *const headers[] = { "Content-Type: application/octet-stream" };
	struct post_request request = { .url = url,
					.headers = headers,
					.n_headers = 1,
					.size = size,
					.anonymous = true,
					.file = fd };
	struct post_reply reply;

	return !lseek(fd, 0, SEEK_SET) && post_send(d->post, &request, &reply, report) &&
	       post_outcome(&reply, report) == SEND_DONE;
}

static bool finish(struct debuginfo *d, char *build_id, char *upload_id, struct send_report *report)
{
	Push__MarkUploadFinishedRequest request = PUSH__MARK_UPLOAD_FINISHED_REQUEST__INIT;
	const char *reply;
	size_t size;

	request.build_id = build_id;
	request.upload_id = upload_id;
	return call(d, d->finished, &request.base, &reply, &size, report);
}

/* Send a file that is wanted. Return whether the receiver has it. */
static bool upload(struct debuginfo *d, char *build_id, char *hash, int fd, size_t size,
		   struct send_report *report)
{
	Push__InitiateUploadRequest request = PUSH__INITIATE_UPLOAD_REQUEST__INIT;
	Push__InitiateUploadResponse *r = NULL;
	const Push__UploadInstructions *how;
	struct arena arena;
	const char *reply;
	size_t n;
	bool done = false;

	request.build_id = build_id;
	request.hash = hash;
	request.size = (int64_t)size;
	arena_init(&arena, REPLY_ARENA);
	if (call(d, d->initiate, &request.base, &reply, &n, report))
		r = push__initiate_upload_response__unpack(&arena.allocator, n,
							   (const uint8_t *)reply);
	how = r ? r->upload_instructions : NULL;
	if (how && how->upload_strategy == BY_SIGNED_URL)
		done = put_file(d, how->signed_url, fd, size, report) &&
		       finish(d, build_id, how->upload_id, report);
	else if (how)
		post_say(report, "it takes files in a way that is not supported", NULL);
	arena_fini(&arena);
	return done;
}

/* ---- modules ----------------------------------------------------------------------------- */

/* Find what is known of a build-id, or add it. NULL: no memory. */
static struct known *known_of(struct debuginfo *d, const char *build_id)
{
	uint64_t hash = hash_bytes(0, build_id, strlen(build_id));
	uint32_t at = UW_HASH_FIND(i, &d->by_id, hash, !strcmp(d->known[i].build_id, build_id));

	if (at != UW_HASH_NONE)
		return &d->known[at];
	if (d->n == KNOWN_MAX) {
		d->n = 0;
		uw_hash_clear(&d->by_id);
	}
	if (array_grow(d->known, d->n, d->room) || uw_hash_add(&d->by_id, hash, (uint32_t)d->n))
		return NULL;
	d->known[d->n] = (struct known){ .again_ns = 0 };
	(void)snprintf(d->known[d->n].build_id, sizeof(d->known->build_id), "%s", build_id);
	return &d->known[d->n++];
}

/* Ask about a module, and send it if it is wanted. Return whether a file was sent. */
static bool send_module(struct debuginfo *d, const struct stacks_module *m, struct known *known)
{
	char hash[2 * SHA256_DIGEST_SIZE + 1];
	struct send_report report = { .text = "" };
	size_t size;
	int fd = open_module(m, &size), wanted;
	bool sent = false;

	known->again_ns = UINT64_MAX;
	if (fd < 0)
		return false;
	wanted = hash_file(fd, hash) ? -1 : is_wanted(d, known->build_id, hash, &report);
	if (wanted > 0)
		sent = upload(d, known->build_id, hash, fd, size, &report);
	if (wanted < 0 || (wanted && !sent)) {
		known->again_ns = now_ns() + ASK_AGAIN_NS;
		log_warning("export %s: %s: the file is not sent: %s", d->target->name, m->path,
			    report.text);
	} else if (sent) {
		log_info("export %s: sent %s, %zu bytes", d->target->name, m->path, size);
	}
	(void)close(fd);
	return sent;
}

void debuginfo_send(struct debuginfo *d, const struct stacks *s)
{
	int asked = 0;

	for (size_t i = 1; i < s->n_modules && asked < ASKED_AT_ONCE; i++) {
		const struct stacks_module *m = &s->modules[i];
		struct known *known;

		if (!programs_have(m))
			continue;
		known = known_of(d, m->build_id);
		if (!known || now_ns() < known->again_ns)
			continue;
		asked++;
		if (send_module(d, m, known))
			break; /* the next window comes first */
	}
}

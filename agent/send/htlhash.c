/* agent/send/htlhash.c: hashes of files' heads, tails and lengths. */
#include "agent/send/htlhash.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/send/programs.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_NS (UINT64_C(3600) * 1000000000)

enum { KNOWN_MAX = 16384, END_BYTES = 4096, HASH_BYTES = 16 };

struct known {
	char *path, *build_id; /* owned */
	char hash[HTLHASH_TEXT];
	uint64_t again_ns; /* when the file is read again; UINT64_MAX: never */
};

struct htlhashes {
	struct known *known;
	size_t n, room;
	struct uw_hash_index by_file;
};

int htlhashes_new(struct htlhashes **out)
{
	struct htlhashes *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	*out = h;
	return 0;
}

/* Forget all files. */
static void clear(struct htlhashes *h)
{
	for (size_t i = 0; i < h->n; i++) {
		free(h->known[i].path);
		free(h->known[i].build_id);
	}
	h->n = 0;
	uw_hash_clear(&h->by_file);
}

void htlhashes_free(struct htlhashes *h)
{
	if (!h)
		return;
	clear(h);
	free(h->known);
	uw_hash_fini(&h->by_file);
	free(h);
}

/* Add bytes of a file to a digest. */
static int add_bytes(struct sha256_ctx *digest, int fd, size_t size, off_t off)
{
	uint8_t bytes[END_BYTES];
	ssize_t n = pread(fd, bytes, size, off);

	if (n < 0)
		return -errno;
	if ((size_t)n != size)
		return -ESTALE; /* it is written at the moment */
	sha256_update(digest, size, bytes);
	return 0;
}

int htlhash_file(int fd, size_t size, char out[HTLHASH_TEXT])
{
	size_t end = size < END_BYTES ? size : END_BYTES; /* the ends of a short file overlap */
	uint8_t length[8], hash[HASH_BYTES];
	struct sha256_ctx digest;
	int err;

	sha256_init(&digest);
	err = add_bytes(&digest, fd, end, 0);
	if (!err)
		err = add_bytes(&digest, fd, end, (off_t)(size - end));
	if (err)
		return err;
	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
	sha256_update(&digest, sizeof(length), length);
	sha256_digest(&digest, sizeof(hash), hash);
	for (int i = 0; i < HASH_BYTES; i++)
		(void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
	return 0;
}

/* Find what is known of a module's file, or add it. NULL: no memory. */
static struct known *known_of(struct htlhashes *h, const struct stacks_module *m)
{
	uint64_t hash = hash_bytes(hash_bytes(0, m->path, strlen(m->path)), m->build_id,
				   strlen(m->build_id));
	uint32_t at = UW_HASH_FIND(i, &h->by_file, hash,
				   !strcmp(h->known[i].path, m->path) &&
					   !strcmp(h->known[i].build_id, m->build_id));
	struct known new = { .again_ns = 0 };

	if (at != UW_HASH_NONE)
		return &h->known[at];
	if (h->n == KNOWN_MAX)
		clear(h);
	new.path = strdup(m->path);
	new.build_id = strdup(m->build_id);
	if (!new.path || !new.build_id || array_grow(h->known, h->n, h->room) ||
	    uw_hash_add(&h->by_file, hash, (uint32_t)h->n)) {
		free(new.path);
		free(new.build_id);
		return NULL;
	}
	h->known[h->n] = new;
	return &h->known[h->n++];
}

const char *htlhash_of(struct htlhashes *h, const struct stacks_module *m)
{
	struct known *known = programs_have(m) ? known_of(h, m) : NULL;
	uint64_t now = now_ns();
	size_t size;
	int fd;

	if (!known)
		return NULL;
	if (now >= known->again_ns) {
		known->again_ns = now + AGAIN_NS;
		fd = programs_open(m->path, m->build_id, &size);
		if (fd >= 0 && !htlhash_file(fd, size, known->hash))
			known->again_ns = UINT64_MAX;
		if (fd >= 0)
			(void)close(fd);
	}
	return *known->hash ? known->hash : NULL;
}

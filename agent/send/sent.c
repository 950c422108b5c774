/* agent/send/sent.c: reads and writes how far each target got. */
#include "agent/send/sent.h"

#include "agent/log.h"
#include "schema/sent_file.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static off_t offset_of(int slot)
{
	return (off_t)(sizeof(struct sent_header) + (size_t)slot * sizeof(struct sent_slot));
}

static int write_at(int fd, const void *bytes, size_t size, off_t off)
{
	ssize_t n = pwrite(fd, bytes, size, off);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -ENOSPC;
}

/* Make an empty file. */
static int begin(int fd)
{
	const struct sent_header header = { .magic = SENT_MAGIC };

	if (ftruncate(fd, 0) || ftruncate(fd, offset_of(SENT_SLOTS)))
		return -errno;
	return write_at(fd, &header, sizeof(header), 0);
}

int sent_open(const char *history, int *out)
{
	struct sent_header header = { .magic = 0 };
	char *path;
	ssize_t n;
	int fd, err = 0;

	if (asprintf(&path, "%s-sent", history) < 0)
		return -ENOMEM;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		err = -errno;
	if (!err) {
		n = pread(fd, &header, sizeof(header), 0);
		if (n && (n != sizeof(header) || header.magic != SENT_MAGIC))
			log_warning("%s: is damaged; a new one is begun", path);
		if (n != sizeof(header) || header.magic != SENT_MAGIC)
			err = begin(fd);
	}
	if (err) {
		log_error("%s: %s", path, strerror(-err));
		if (fd >= 0)
			(void)close(fd);
	} else {
		*out = fd;
	}
	free(path);
	return err;
}

static void hash_target(const char *kind, const char *url, uint8_t out[SHA256_DIGEST_SIZE])
{
	struct sha256_ctx sha;

	sha256_init(&sha);
	sha256_update(&sha, strlen(kind), (const uint8_t *)kind);
	sha256_update(&sha, 1, (const uint8_t *)"\n");
	sha256_update(&sha, strlen(url), (const uint8_t *)url);
	sha256_digest(&sha, SHA256_DIGEST_SIZE, out);
}

/* Read a slot. One that cannot be read is not in use. */
static struct sent_slot read_slot(int fd, int slot)
{
	struct sent_slot s;

	if (pread(fd, &s, sizeof(s), offset_of(slot)) != (ssize_t)sizeof(s) || s.id < 0)
		return (struct sent_slot){ .id = 0 };
	return s;
}

int sent_find(int fd, const char *kind, const char *url, const struct history_place *begin_at,
	      uint64_t *busy, struct history_place *place)
{
	struct sent_slot new = { .id = begin_at->id,
				 .end_ns = begin_at->end_ns,
				 .passed = begin_at->passed };
	static const uint8_t none[sizeof(new.target)];
	uint64_t oldest = UINT64_MAX;
	int slot = -1, err;

	hash_target(kind, url, new.target);
	for (int i = 0; i < SENT_SLOTS; i++) {
		struct sent_slot s = read_slot(fd, i);
		bool used = memcmp(s.target, none, sizeof(none)) != 0;

		if (used && !memcmp(s.target, new.target, sizeof(s.target))) {
			*place = (struct history_place){ .id = s.id,
							 .end_ns = s.end_ns,
							 .passed = s.passed };
			*busy |= UINT64_C(1) << i;
			return i;
		}
		if (!(*busy >> i & 1) && (used ? s.end_ns : 0) < oldest) {
			oldest = used ? s.end_ns : 0;
			slot = i;
		}
	}
	if (slot < 0)
		return -ENOSPC;
	err = write_at(fd, &new, sizeof(new), offset_of(slot));
	if (err)
		return err;
	*place = *begin_at;
	*busy |= UINT64_C(1) << slot;
	return slot;
}

int sent_put(int fd, int slot, const struct history_place *place)
{
	struct sent_slot s = read_slot(fd, slot);

	s.id = place->id;
	s.end_ns = place->end_ns;
	s.passed = place->passed;
	return write_at(fd, &s, sizeof(s), offset_of(slot));
}

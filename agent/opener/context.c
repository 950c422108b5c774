/*
 * agent/opener/context.c: copies the process context that a program publishes (OpenTelemetry
 * enhancement proposal 4719): a mapping of a known name with a header, which says where the payload is.
 */
#include "agent/opener/opener.h"

#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/opener/places.h"
#include "agent/opener/request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 2
#define TRIES	3 /* while the program changes its context */

struct header {
	char signature[8]; /* "OTEL_CTX" */
	uint32_t version, payload_size;
	uint64_t published_ns; /* 0: it is being changed */
	uint64_t payload;      /* address */
};
_Static_assert(sizeof(struct header) == 32, "as programs write it");

bool places_is_context(const char *name)
{
	static const char *const names[] = { "/memfd:OTEL_CTX", "[anon_shmem:OTEL_CTX]",
					     "[anon:OTEL_CTX]" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

static int find_mapping(uint32_t pid, uint64_t *start)
{
	char path[32], *line = NULL;
	int at, err = -ENOENT;
	size_t room = 0;
	FILE *maps;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/maps", pid);
	maps = fopen(path, "re");
	while (maps && err && getline(&line, &room, maps) > 0) {
		at = 0;
		/* Nearly no line has it, and sscanf takes long. */
		if (strstr(line, "OTEL_CTX") &&
		    sscanf(line, "%" SCNx64 "-%*s %*s %*s %*s %*s %n", start, &at) == 1 && at &&
		    places_is_context(line + at))
			err = 0;
	}
	if (maps)
		(void)fclose(maps);
	free(line);
	return err;
}

static bool copy(int memory, uint64_t addr, void *out, size_t size)
{
	return addr <= INT64_MAX - size && pread(memory, out, size, (off_t)addr) == (ssize_t)size;
}

/* Copy the context once. -EAGAIN: it was changed meanwhile. */
static int copy_context(int memory, uint64_t start, uint64_t known_ns, struct opener_context *out)
{
	struct header before, after;

	if (!copy(memory, start, &before, sizeof(before)))
		return -EFAULT;
	if (memcmp(before.signature, "OTEL_CTX", sizeof(before.signature)) != 0)
		return -ENOENT;
	if (before.version != VERSION)
		return -ENOTSUP;
	if (!before.published_ns)
		return -EAGAIN;
	out->published_ns = before.published_ns;
	out->n = 0;
	if (before.published_ns == known_ns)
		return 0;
	if (before.payload_size > limits.context_bytes)
		return -E2BIG;
	if (!copy(memory, before.payload, out->bytes, before.payload_size) ||
	    !copy(memory, start, &after, sizeof(after)))
		return -EFAULT;
	if (memcmp(&before, &after, sizeof(before)) != 0)
		return -EAGAIN;
	out->n = before.payload_size;
	return 0;
}

int opener_context(struct opener *opener, uint32_t pid, uint64_t known_ns,
		   struct opener_context *out, struct opener_wait *wait)
{
	char path[32];
	uint64_t start;
	int memory, err;

	wait->ns = 0;
	if (opener->number) {
		struct request request = { .what = REQUEST_CONTEXT,
					   .opener = opener->number,
					   .pid = pid,
					   .next = known_ns,
					   .fd = -1 };
		uint64_t began = now_ns();

		err = request_context(&request, OPENER_MEMORY_MS, out, &wait->late);
		wait->ns = now_ns() - began;
		return err;
	}
	if (!opener->live)
		return -ENOENT;
	err = find_mapping(pid, &start);
	if (err)
		return err;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/mem", pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	if (memory < 0)
		return -errno;
	err = -EAGAIN;
	for (int i = 0; i < TRIES && err == -EAGAIN; i++)
		err = copy_context(memory, start, known_ns, out);
	(void)close(memory);
	return err;
}

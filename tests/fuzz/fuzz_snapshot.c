/*
 * tests/fuzz/fuzz_snapshot.c: fuzzes the reader of snapshots: registers, mappings and two memory
 * files, separated by 0xff.
 */
#include "agent/source/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* all bytes that are returned must be readable */
static char folder[] = "/tmp/fuzz_snapshot.XXXXXX";
static const char *const names[] = { "regs.txt", "maps.txt", "stack.data", "other.data" };

static void clean_up(void)
{
	char path[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(folder);
}

static void put(int dir, const char *name, const uint8_t *data, size_t size)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct source *source = NULL;
	char error[512] = "";
	struct event event;
	int dir, rc;

	if (folder[strlen(folder) - 1] == 'X') {
		if (!mkdtemp(folder))
			abort();
		(void)atexit(clean_up);
	}
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
		size_t n = end ? (size_t)(end - data) : size;

		put(dir, names[i], data, n);
		data += end ? n + 1 : n;
		size -= end ? n + 1 : n;
	}
	rc = source_snapshot_open(dir, folder, &source, error);
	if (rc) {
		if (source || !error[0] || strchr(error, '\n'))
			abort();
		return 0;
	}
	while ((rc = source_next(source, &event, -1)) == 1) {
		uint8_t *image;
		size_t n;

		if (event.type == EVENT_MAPPING) {
			sink += strlen(event.mapping.path);
			if (!source->info.image(source->info.image_ctx, event.pid,
						event.mapping.start, &image, &n)) {
				sink += n ? image[n - 1] : 0;
				free(image);
			}
		} else if (event.type == EVENT_SAMPLE) {
			uint8_t bytes[32];

			if (event.sample.regs.known >> UW_REGS_MAX)
				abort();
			for (unsigned int i = 0; i < UW_REGS_MAX; i++)
				if (!event.sample.read(event.sample.read_ctx,
						       event.sample.regs.value[i], bytes, i))
					sink += bytes[0];
		}
	}
	if (rc)
		abort();
	source_close(source);
	return 0;
}

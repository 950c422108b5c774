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
static char folder[] = "/dev/shm/fuzz_snapshot.XXXXXX"; /* a disk would be slower */
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

/* The files stay open and get other contents each time. */
static void put(int dir, size_t which, const uint8_t *data, size_t size)
{
	static int fds[sizeof(names) / sizeof(names[0])];

	if (!fds[which])
		fds[which] = openat(dir, names[which], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fds[which] < 0 || pwrite(fds[which], data, size, 0) != (ssize_t)size ||
	    ftruncate(fds[which], (off_t)size))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool made;
	struct source *source = NULL;
	char error[512] = "";
	struct event event;
	int dir, rc;

	if (!made) {
		if (!mkdtemp(folder))
			abort();
		made = true;
		(void)atexit(clean_up);
	}
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
		size_t n = end ? (size_t)(end - data) : size;

		put(dir, i, data, n);
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

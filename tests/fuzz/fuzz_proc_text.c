/*
 * tests/fuzz/fuzz_proc_text.c: fuzzes the readers of text from /proc: the input is each such file.
 * Processes choose names of files, of themselves and of mount points that stand in it.
 */
#include "agent/container.h"
#include "agent/opener/opener.h"
#include "agent/source/procfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *text;
static size_t n_text;
static bool running;
static volatile uint64_t sink;

FILE *fopen(const char *path, const char *mode)
{
	int flags = strchr(mode, 'w') ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
	int fd;

	if (running && !strncmp(path, "/proc/", 6))
		return fmemopen((void *)(uintptr_t)text, n_text, "r");
	fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? NULL : fdopen(fd, mode);
}

static void use_mapping(const struct event_mapping *m)
{
	if (m->start >= m->end)
		abort();
	sink += strlen(m->path);
}

/* Every line, as the inventory reads it. */
static void use_lines(void)
{
	char *copy = malloc(n_text + 1), *line, *rest, id[CONTAINER_ID + 1];

	if (!copy)
		return;
	memcpy(copy, text, n_text);
	copy[n_text] = '\0';
	for (rest = copy; (line = strsep(&rest, "\n"));) {
		struct event_mapping m;
		struct container_labels l;

		container_labels(line, &l);
		sink += strlen(l.unit) + strlen(l.slice) + strlen(l.pod) + strlen(l.id);
		if (container_of(line, id) && strlen(id) != CONTAINER_ID)
			abort();
		if (!procfs_maps_line(line, &m))
			use_mapping(&m);
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint32_t minor = 1; /* answers are cached by this number */
	struct event_mapping mapping;
	char *line = NULL;
	uint32_t number, pid = (uint32_t)getpid();

	if (!size)
		return 0;
	text = data;
	n_text = size;
	use_lines();
	running = true;
	if (!procfs_own_mapping(0x1234, &mapping, &line))
		use_mapping(&mapping);
	free(line);
	sink += (uint64_t)procfs_parent(1, &number) + (uint64_t)procfs_group(1, &number) +
		procfs_ended(1);
	minor = minor % 0xfffff + 1;
	sink += opener_device_is_served(pid, 0, minor);
	sink += opener_device_is_fuse(pid, 0, minor);
	sink += opener_device_is_served(pid, 0, 27); /* this one is in seeds */
	running = false;
	return 0;
}

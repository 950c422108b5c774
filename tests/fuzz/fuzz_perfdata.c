/*
 * tests/fuzz/fuzz_perfdata.c: fuzzes the reader of perf.data. The first byte says whether the rest
 * is read as a file or through a pipe. Every byte of what the reader returns is read.
 */
#include <sanitizer/asan_interface.h>
#include <stdbool.h>
#include <stdlib.h>

/*
 * What comes through a pipe is read into blocks of a megabyte, which the sanitizer would map and unmap for each input:
 * the first block of each is the same memory. It is poisoned while it is free.
 */
static void *first_block;
static bool block_is_used;

static void *block_alloc(size_t alignment, size_t size)
{
	if (block_is_used)
		return aligned_alloc(alignment, size);
	if (!first_block)
		first_block = aligned_alloc(alignment, size);
	block_is_used = first_block;
	ASAN_UNPOISON_MEMORY_REGION(first_block, size);
	return first_block;
}

static void block_free(void *bytes);

#define aligned_alloc block_alloc
#define free	      block_free
#include "agent/perfdata/stream.c"
#undef aligned_alloc
#undef free

static void block_free(void *bytes)
{
	if (!bytes || bytes != first_block) {
		free(bytes);
		return;
	}
	if (!block_is_used)
		abort();
	block_is_used = false;
	ASAN_POISON_MEMORY_REGION(bytes, PERFDATA_BLOCK);
}

#include "agent/source/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/touch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The seed of hash tables: it is constant, so that an input takes the same path each time. */
ssize_t getrandom(void *out, size_t size, unsigned int flags)
{
	(void)flags;
	memset(out, 7, size);
	return (ssize_t)size;
}

static volatile uint64_t sink;

static void use(const void *bytes, size_t size)
{
	sink += touch(bytes, size);
}

static void use_event(const struct event *event)
{
	const struct event_sample *sample = &event->sample;

	if (event->type == EVENT_MAPPING)
		use(event->mapping.path, strlen(event->mapping.path));
	if (event->type == EVENT_COMM)
		use(event->comm.comm, strlen(event->comm.comm));
	if (event->type != EVENT_SAMPLE)
		return;
	if (!sample->period)
		abort();
	for (uint32_t i = 0; i < sample->n_regions; i++)
		use(sample->regions[i].bytes, sample->regions[i].size);
	use(sample->kernel_ips, sample->n_kernel_ips * sizeof(*sample->kernel_ips));
	use(sample->user_ips, sample->n_user_ips * sizeof(*sample->user_ips));
}

static int as_pipe(const uint8_t *data, size_t size)
{
	int ends[2];

	/* The data must fit into the pipe: nobody writes while it is read. */
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	if (size > 65536)
		size = 65536;
	if (write(ends[1], data, size) != (ssize_t)size)
		abort();
	(void)close(ends[1]);
	return ends[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[512] = "";
	struct source *source;
	struct event event;
	int fd, rc;

	if (size < 1)
		return 0;
	fd = data[0] & 1 ? as_pipe(data + 1, size - 1) : memory_file(data + 1, size - 1);
	if (fd < 0)
		return 0;
	if (source_perfdata_open(fd, "fuzz", &source, error)) {
		if (!strstr(error, "fuzz: offset 0x") || strchr(error, '\n'))
			abort();
		return 0;
	}
	while ((rc = source_next(source, &event, -1)) == 1)
		use_event(&event);
	if (rc && (!strstr(source->error, "fuzz: offset 0x") || strchr(source->error, '\n')))
		abort();
	source_close(source);
	if (block_is_used)
		abort();
	return 0;
}

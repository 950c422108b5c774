/*
 * tests/fuzz/fuzz_core.c: fuzzes the reader of core files: segments, notes, mappings, headers of
 * files in memory.
 */
#include "agent/source/source.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/touch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGES_MAX 3

static volatile uint64_t sink; /* all bytes that are returned must be readable */

static void touch_sample(const struct source *source, const struct event *e)
{
	const struct event_sample *s = &e->sample;
	uint8_t bytes[300];

	if (s->regs.known >> UW_REGS_MAX || !s->name || !strchr(s->name, ':') || !s->read ||
	    s->event >= source->info.n_events)
		abort();
	for (unsigned int i = 0; i < UW_REGS_MAX; i++)
		if (!s->read(s->read_ctx, s->regs.value[i], bytes, i * 9 + 1))
			sink += bytes[i * 9];
}

static void touch_mapping(const struct source *source, const struct event *e, unsigned int *images)
{
	const struct event_mapping *m = &e->mapping;
	uint8_t *image;
	size_t size;

	sink += strlen(m->path);
	if (m->start >= m->end || m->build_id.size > UW_BUILD_ID_MAX)
		abort();
	if (++*images > IMAGES_MAX ||
	    source->info.image(source->info.image_ctx, e->pid, m->start, &image, &size))
		return;
	if (size < 64)
		sink++;
	sink += touch(image, size);
	free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct source *source = NULL;
	char error[512] = "";
	struct event event;
	unsigned int images = 0;
	uint64_t end = 0;
	int rc = source_core_open(memory_file(data, size), "fuzz", &source, error);
	if (rc) {
		if (source || !error[0])
			abort();
		return 0;
	}
	while ((rc = source_next(source, &event, -1)) == 1) {
		if (event.type == EVENT_SAMPLE) {
			touch_sample(source, &event);
		} else if (event.type == EVENT_MAPPING) {
			if (event.mapping.start < end) /* sorted, and none overlap */
				abort();
			end = event.mapping.end;
			touch_mapping(source, &event, &images);
		} else if (event.type == EVENT_COMM) {
			sink += strlen(event.comm.comm);
		}
	}
	if (rc && !source->error[0])
		abort();
	source_close(source);
	return 0;
}

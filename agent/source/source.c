/*
 * agent/source/source.c: dispatches the calls of source.h to the source's own functions and
 * detects file formats.
 */
#include "agent/source/source.h"

#include <elf.h>
#include <string.h>

int source_next(struct source *source, struct event *event, int timeout_ms)
{
	return source->ops->next(source, event, timeout_ms);
}

void source_stop(struct source *source)
{
	if (source->ops->stop)
		source->ops->stop(source);
}

void source_close(struct source *source)
{
	if (source)
		source->ops->close(source);
}

enum source_format source_detect(const void *head, size_t size)
{
	/*
	 * "2ELIFREP" is the magic number as a big-endian machine writes it. "PERFFILE" was written
	 * by perf before Linux 3.2.
	 */
	if (size >= 8 && (!memcmp(head, "PERFILE2", 8) || !memcmp(head, "2ELIFREP", 8) ||
			  !memcmp(head, "PERFFILE", 8)))
		return SOURCE_PERFDATA;
	if (size >= 8 && !memcmp(head, "OFFWIND1", 8))
		return SOURCE_OWC;
	/* e_type, at offset 16, in either byte order. */
	if (size >= SOURCE_HEAD && !memcmp(head, ELFMAG, SELFMAG)) {
		const uint8_t *type = (const uint8_t *)head + 16;

		if (type[0] + type[1] == ET_CORE && type[0] * type[1] == 0)
			return SOURCE_CORE;
	}
	return SOURCE_UNKNOWN;
}

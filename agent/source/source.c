#include "agent/source/source.h"

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
	if (size >= 8 && (!memcmp(head, "PERFILE2", 8) || !memcmp(head, "2ELIFREP", 8)))
		return SOURCE_PERFDATA;
	if (size >= 8 && !memcmp(head, "OFFWIND1", 8))
		return SOURCE_OWC;
	return SOURCE_UNKNOWN;
}

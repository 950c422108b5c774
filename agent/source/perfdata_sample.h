/*
 * agent/source/perfdata_sample.h: a sample record → struct event_sample.
 */
#ifndef AGENT_SOURCE_PERFDATA_SAMPLE_H
#define AGENT_SOURCE_PERFDATA_SAMPLE_H

#include "agent/source/perfdata_attrs.h"

/*
 * A record's bytes, perhaps not all of them in memory yet: most of a sample of
 * 64 KiB is stack nobody used, and reading it would be most of the work.
 */
struct perfdata_body {
	const uint8_t *bytes; /* size of them, those before have are there */
	uint32_t size, have;
	/* Brings [from, to) there; NULL: all is there.  0 or a negative code. */
	int (*load)(void *ctx, uint32_t from, uint32_t to);
	/* [from, to) where it lies, to be looked at and not believed; NULL, or gives NULL: load it. */
	const uint8_t *(*view)(void *ctx, uint32_t from, uint32_t to);
	void *ctx;
};

struct perfdata_sample { /* what an event's pointers point to */
	struct uw_region stack;
	uint64_t *kernel_ips; /* and the user's behind them; owned */
	uint32_t kernel_ips_room;
};

void perfdata_sample_fini(struct perfdata_sample *sample);

/*
 * Fills the event (not its time) from body, which follows the record's header;
 * misc is the header's.  Pointers in it hold until body or sample change.
 * -EBADMSG: the record contradicts itself; others as load gave them.
 */
int perfdata_sample_read(struct perfdata_sample *sample, const struct perfdata_attr *attr,
			 uint16_t machine, uint16_t misc, struct perfdata_body *body,
			 struct event *event);

#endif

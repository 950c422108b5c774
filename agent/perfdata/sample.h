/*
 * agent/perfdata/sample.h: translates sample records of perf.data into struct event_sample.
 */
#ifndef AGENT_PERFDATA_SAMPLE_H
#define AGENT_PERFDATA_SAMPLE_H

#include "agent/perfdata/attrs.h"
#include "agent/perfdata/deferred.h"
#include "agent/source/machine.h"

/*
 * The body of a record, which may be in memory only in part. Most of a 64 KiB sample is unused
 * stack, and reading all of it would be most of the work.
 */
struct perfdata_body {
	const uint8_t *bytes; /* buffer of size bytes; those below have are loaded */
	uint32_t size, have;
	/* Load [from, to) into bytes. Return 0 or a negative code. NULL: everything is loaded. */
	int (*load)(void *ctx, uint32_t from, uint32_t to);
	/*
	 * Return [from, to) without copying. Its contents can change at any time and must not be
	 * trusted. If it returns NULL or is NULL, use load.
	 */
	const uint8_t *(*view)(void *ctx, uint32_t from, uint32_t to);
	void *ctx;
};

struct perfdata_value { /* of a counter */
	uint64_t id, value;
};

struct perfdata_sample { /* memory that the event's pointers point to */
	struct uw_region stack;
	uint64_t *kernel_ips; /* kernel addresses, then user addresses; owned */
	uint32_t kernel_ips_room;
	/* The counters of the sample's group, if they have ids; owned. */
	struct perfdata_value *values;
	size_t n_values, room_values;
};

void perfdata_sample_fini(struct perfdata_sample *sample);

/*
 * Fill the event, except its time, from body, which follows the record's header. misc is from that
 * header. deferred has the user's part of chains that were taken later. The values of its group are in sample.
 * Pointers in the event are valid until body or sample changes. Return -EBADMSG if the record contradicts itself, -ENOMEM, or an error of load.
 */
int perfdata_sample_read(struct perfdata_sample *sample, const struct perfdata_attr *attr,
			 const struct machine *machine, const struct perfdata_deferred *deferred,
			 uint16_t misc, struct perfdata_body *body, struct event *event);

#endif

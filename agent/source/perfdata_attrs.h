/*
 * agent/source/perfdata_attrs.h: the events of a recording, and which of them
 * a record belongs to.
 *
 * What a record holds depends on its event's sample_type.  With several events
 * an id in the record tells them apart, and its place must be the same for all
 * of them: first in samples and last in others (PERF_SAMPLE_IDENTIFIER), or
 * where PERF_SAMPLE_ID stands.
 */
#ifndef AGENT_SOURCE_PERFDATA_ATTRS_H
#define AGENT_SOURCE_PERFDATA_ATTRS_H

#include "agent/source/source.h"

#include <linux/perf_event.h>

#define PERFDATA_ATTRS_MAX 4096u
#define PERFDATA_IDS_MAX   (1u << 20)

struct perfdata_attr {
	struct perf_event_attr attr;
	int32_t event; /* in source_info.events; -1: it takes no samples (dummy) */
	uint64_t default_period;
	uint32_t trailer; /* bytes of sample_id_all at the end of what is no sample */
};

struct perfdata_id {
	uint64_t id;
	uint32_t attr_plus_1; /* 0: the slot is free */
};

struct perfdata_attrs {
	struct perfdata_attr *attrs;
	size_t n;
	struct perfdata_id *ids; /* open addressing, a power of two, at most half full */
	size_t n_ids, ids_room;
	uint64_t seed;	  /* of the hash: what nobody can guess */
	int sample_id_at; /* u64s from a sample's start to its id; -1: none */
	int record_id_at; /* u64s from the end of others to theirs; -1: none */
	struct source_event *events;
	size_t n_events;
};

void perfdata_attrs_init(struct perfdata_attrs *attrs, uint64_t seed);
void perfdata_attrs_fini(struct perfdata_attrs *attrs);

/*
 * One more event: size bytes of a perf_event_attr and its n_ids ids.
 * -EBADMSG: too short, or its layout does not go with the others'; -E2BIG: too many.
 */
int perfdata_attrs_add(struct perfdata_attrs *attrs, const uint8_t *bytes, size_t size,
		       const uint8_t *ids, size_t n_ids);

/* name need not end in NUL.  An unknown id is ignored. */
void perfdata_attrs_name(struct perfdata_attrs *attrs, uint64_t id, const char *name, size_t size);
/* The same for the nth event. */
void perfdata_attrs_name_nth(struct perfdata_attrs *attrs, size_t n, const char *name, size_t size);

/* By id; NULL: nobody has it. */
const struct perfdata_attr *perfdata_attrs_find(const struct perfdata_attrs *attrs, uint64_t id);

/*
 * The event of a record, whose body is what follows its header; NULL: unknown.
 * Of a sample the first bytes suffice (PERFDATA_SAMPLE_HEAD); of others all is needed.
 */
const struct perfdata_attr *perfdata_attrs_of_sample(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size);
const struct perfdata_attr *perfdata_attrs_of_record(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size);

/* IDENTIFIER, IP, TID, TIME, ADDR, ID: all that says what and when a sample is. */
#define PERFDATA_SAMPLE_HEAD (6 * 8)

/* False: it tells no time.  attr may be NULL. */
bool perfdata_sample_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns);
bool perfdata_record_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns);

#endif

/*
 * agent/perfdata/attrs.h: the events of a perf.data recording, and to which event a record
 * belongs.
 *
 * The layout of a record depends on the sample_type of its event. With several events, an id in
 * the record tells which event it is. The id must be at the same place for all events: first in
 * samples and last in other records (PERF_SAMPLE_IDENTIFIER), or where PERF_SAMPLE_ID is.
 */
#ifndef AGENT_PERFDATA_ATTRS_H
#define AGENT_PERFDATA_ATTRS_H

#include "agent/hash.h"
#include "agent/source/source.h"

#include <linux/perf_event.h>

#define PERFDATA_ATTRS_MAX 4096u
#define PERFDATA_IDS_MAX   (1u << 20)

struct perfdata_attr {
	struct perf_event_attr attr;
	int32_t event; /* index in source_info.events; -1: takes no samples (dummy) */
	uint64_t default_period;
	uint32_t trailer; /* bytes of sample_id_all at the end of other records */
	bool off_cpu;	  /* perf record --off-cpu: the raw data of a sample are what counts */
};

struct perfdata_id {
	uint64_t id;
	uint32_t attr; /* index in perfdata_attrs.attrs */
};

struct perfdata_attrs {
	struct perfdata_attr *attrs;
	size_t n, room;
	struct perfdata_id *ids;
	size_t n_ids, room_ids;
	struct uw_hash_index by_id;
	int sample_id_at; /* u64s from a sample's start to its id; -1: samples have no id */
	int record_id_at; /* u64s from the end of other records to the id; -1: no id */
	struct source_event *events;
	size_t n_events, room_events;
};

void perfdata_attrs_init(struct perfdata_attrs *attrs);
void perfdata_attrs_fini(struct perfdata_attrs *attrs);

/*
 * Add an event: size bytes of a perf_event_attr, and its n_ids ids. Return -EBADMSG if it is too
 * short or its layout does not fit the other events, -E2BIG if there are too many events or ids,
 * or -ENOMEM.
 */
int perfdata_attrs_add(struct perfdata_attrs *attrs, const uint8_t *bytes, size_t size,
		       const uint8_t *ids, size_t n_ids);

/*
 * Set the name of the event with this id. name need not end with a NUL. An unknown id is ignored.
 */
void perfdata_attrs_name(struct perfdata_attrs *attrs, uint64_t id, const char *name, size_t size);
/* The same for event number n. */
void perfdata_attrs_name_nth(struct perfdata_attrs *attrs, size_t n, const char *name, size_t size);

/*
 * Return the event of a record, or NULL if it is unknown. body is what follows the record's
 * header. For a sample the first bytes are enough (PERFDATA_SAMPLE_HEAD); for other records all of
 * the body is needed.
 */
const struct perfdata_attr *perfdata_attrs_of_sample(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size);
const struct perfdata_attr *perfdata_attrs_of_record(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size);

/* Return the event with this id, or NULL. */
const struct perfdata_attr *perfdata_attrs_of_id(const struct perfdata_attrs *attrs, uint64_t id);

/*
 * Bytes of a sample's IDENTIFIER, IP, TID, TIME, ADDR and ID. They are enough to know its event
 * and its time.
 */
#define PERFDATA_SAMPLE_HEAD (6 * 8)

/* Read the time of a sample or of another record. Return false if it has none. attr may be NULL. */
bool perfdata_sample_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns);
bool perfdata_record_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns);

#endif

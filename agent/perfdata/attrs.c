/*
 * agent/perfdata/attrs.c: stores the events of a perf.data recording and finds the event of
 * a record.
 */
#include "agent/perfdata/attrs.h"

#include "agent/array.h"
#include "agent/perfdata/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fields of struct sample_id in <linux/perf_event.h>. */
#define TRAILER_FIELDS                                                                 \
	(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)

void perfdata_attrs_init(struct perfdata_attrs *attrs)
{
	*attrs = (struct perfdata_attrs){ .sample_id_at = -1, .record_id_at = -1 };
}

void perfdata_attrs_fini(struct perfdata_attrs *attrs)
{
	free(attrs->attrs);
	free(attrs->ids);
	uw_hash_fini(&attrs->by_id);
	free(attrs->events);
	perfdata_attrs_init(attrs);
}

/* ---- ids ------------------------------------------------------------------ */

/* Return the index of an id in attrs->ids, or UW_HASH_NONE. */
static uint32_t find_id(const struct perfdata_attrs *attrs, uint64_t id)
{
	return UW_HASH_FIND(i, &attrs->by_id, hash_u64(0, id), attrs->ids[i].id == id);
}

/* Let an id, known or not, be that of event number attr. -ENOMEM. */
static int set_id(struct perfdata_attrs *attrs, uint64_t id, uint32_t attr)
{
	uint32_t i = find_id(attrs, id);

	if (i == UW_HASH_NONE) {
		i = (uint32_t)attrs->n_ids;
		if (array_grow(attrs->ids, attrs->n_ids, attrs->room_ids) ||
		    uw_hash_add(&attrs->by_id, hash_u64(0, id), i))
			return -ENOMEM;
		attrs->n_ids++;
	}
	attrs->ids[i] = (struct perfdata_id){ .id = id, .attr = attr };
	return 0;
}

const struct perfdata_attr *perfdata_attrs_of_id(const struct perfdata_attrs *attrs, uint64_t id)
{
	uint32_t i = find_id(attrs, id);

	return i == UW_HASH_NONE ? NULL : &attrs->attrs[attrs->ids[i].attr];
}

/* ---- layouts ---------------------------------------------------------------- */

static int bits(uint64_t mask)
{
	return __builtin_popcountll(mask);
}

/* Return the place of the id in a sample, in u64s from its start; -1: it has none. */
static int sample_id_at(uint64_t type)
{
	if (type & PERF_SAMPLE_IDENTIFIER)
		return 0;
	if (!(type & PERF_SAMPLE_ID))
		return -1;
	return bits(type &
		    (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR));
}

/*
 * Return the place of the id in a record that is not a sample, in u64s from its end; -1: it has
 * none.
 */
static int record_id_at(const struct perf_event_attr *attr)
{
	uint64_t type = attr->sample_type;

	if (!attr->sample_id_all)
		return -1;
	if (type & PERF_SAMPLE_IDENTIFIER)
		return 1;
	if (!(type & PERF_SAMPLE_ID))
		return -1;
	return 1 + bits(type & (PERF_SAMPLE_CPU | PERF_SAMPLE_STREAM_ID));
}

/*
 * Return the event of a record whose id is `at` bytes from its start; NULL: it has no such event.
 * Records that perf itself makes have the id 0.
 */
static const struct perfdata_attr *attr_at(const struct perfdata_attrs *attrs, const uint8_t *body,
					   size_t size, size_t at)
{
	uint64_t id;

	if (size < 8 || at > size - 8)
		return NULL;
	id = uw_bytes_little8(body + at);
	return id ? perfdata_attrs_of_id(attrs, id) : &attrs->attrs[0];
}

const struct perfdata_attr *perfdata_attrs_of_sample(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size)
{
	if (attrs->n < 2 || attrs->sample_id_at < 0)
		return attrs->n ? &attrs->attrs[0] : NULL;
	return attr_at(attrs, body, size, (size_t)attrs->sample_id_at * 8);
}

const struct perfdata_attr *perfdata_attrs_of_record(const struct perfdata_attrs *attrs,
						     const uint8_t *body, size_t size)
{
	if (attrs->n < 2 || attrs->record_id_at < 0)
		return attrs->n ? &attrs->attrs[0] : NULL;
	return attr_at(attrs, body, size, size - (size_t)attrs->record_id_at * 8);
}

bool perfdata_sample_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns)
{
	uint64_t type = attr ? attr->attr.sample_type : 0;
	size_t at;

	if (!(type & PERF_SAMPLE_TIME))
		return false;
	at = (size_t)bits(type & (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID)) * 8;
	if (size < 8 || at > size - 8)
		return false;
	*time_ns = uw_bytes_little8(body + at);
	return true;
}

bool perfdata_record_time(const struct perfdata_attr *attr, const uint8_t *body, size_t size,
			  uint64_t *time_ns)
{
	uint64_t type = attr ? attr->attr.sample_type : 0;
	size_t at;

	if (!(type & PERF_SAMPLE_TIME) || !attr->attr.sample_id_all || attr->trailer > size)
		return false;
	at = size - attr->trailer + (type & PERF_SAMPLE_TID ? 8 : 0);
	*time_ns = uw_bytes_little8(body + at);
	return true;
}

/* ---- names ------------------------------------------------------------------ */

/* Names by PERF_COUNT_SW_* and PERF_COUNT_HW_*. */
static const char *const software[] = {
	"cpu-clock",	    "task-clock",   "page-faults",  "context-switches",
	"cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
	"emulation-faults", "dummy",	    "bpf-output",   "cgroup-switches",
};

static const char *const hardware[] = {
	"cycles",
	"instructions",
	"cache-references",
	"cache-misses",
	"branches",
	"branch-misses",
	"bus-cycles",
	"stalled-cycles-frontend",
	"stalled-cycles-backend",
	"ref-cycles",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Return whether the event is a clock, whose period is in nanoseconds. */
static bool is_clock(const struct perf_event_attr *attr)
{
	return attr->type == PERF_TYPE_SOFTWARE && (attr->config == PERF_COUNT_SW_CPU_CLOCK ||
						    attr->config == PERF_COUNT_SW_TASK_CLOCK);
}

/* Return whether the event, by its name, is perf's own for waits (perf record --off-cpu). Its period is in nanoseconds. */
static bool is_off_cpu(const struct perf_event_attr *attr, const char *name)
{
	return attr->type == PERF_TYPE_SOFTWARE && attr->config == PERF_COUNT_SW_BPF_OUTPUT &&
	       !strcmp(name, "offcpu-time");
}

/* Set the event's name, and its type for pprof. */
static void name_event(struct source_event *event, const struct perf_event_attr *attr,
		       const char *name, size_t size)
{
	size = strnlen(name, size);
	if (!size)
		return;
	(void)snprintf(event->name, sizeof(event->name), "%.*s", (int)(size < 256 ? size : 256),
		       name);
	(void)snprintf(event->type, sizeof(event->type), "%.*s", (int)sizeof(event->type) - 1,
		       is_clock(attr) ? "cpu" : event->name);
}

/* Fill *event with a default name, unit and period. The recording may name the event later. */
static void describe(struct source_event *event, const struct perf_event_attr *attr)
{
	char made[64];
	const char *name = made;

	if (attr->type == PERF_TYPE_SOFTWARE && attr->config < COUNT(software))
		name = software[attr->config];
	else if (attr->type == PERF_TYPE_HARDWARE && attr->config < COUNT(hardware))
		name = hardware[attr->config];
	else if (attr->type == PERF_TYPE_TRACEPOINT)
		(void)snprintf(made, sizeof(made), "tracepoint:%llu",
			       (unsigned long long)attr->config);
	else if (attr->type == PERF_TYPE_RAW)
		(void)snprintf(made, sizeof(made), "r%llx", (unsigned long long)attr->config);
	else
		(void)snprintf(made, sizeof(made), "type%u:%llx", attr->type,
			       (unsigned long long)attr->config);
	name_event(event, attr, name, sizeof(made));
	(void)snprintf(event->unit, sizeof(event->unit), "%s",
		       is_clock(attr) ? "nanoseconds" : "count");
	if (attr->freq)
		event->frequency_hz = attr->sample_freq;
	else
		event->period = attr->sample_period;
}

void perfdata_attrs_name_nth(struct perfdata_attrs *attrs, size_t n, const char *name, size_t size)
{
	struct perfdata_attr *attr = n < attrs->n ? &attrs->attrs[n] : NULL;
	struct source_event *event;

	if (!attr || attr->event < 0)
		return;
	event = &attrs->events[attr->event];
	name_event(event, &attr->attr, name, size);
	if (is_off_cpu(&attr->attr, event->name)) {
		attr->off_cpu = attr->attr.sample_type & PERF_SAMPLE_RAW;
		(void)snprintf(event->unit, sizeof(event->unit), "nanoseconds");
	}
}

void perfdata_attrs_name(struct perfdata_attrs *attrs, uint64_t id, const char *name, size_t size)
{
	const struct perfdata_attr *attr = perfdata_attrs_of_id(attrs, id);

	if (attr)
		perfdata_attrs_name_nth(attrs, (size_t)(attr - attrs->attrs), name, size);
}

/* ---- adding an event ----------------------------------------------------------- */

/*
 * Return the period of a sample that does not state one. With a fixed frequency only a clock has a
 * known period; 1 for other events.
 */
static uint64_t default_period(const struct perf_event_attr *attr)
{
	if (!attr->freq)
		return attr->sample_period ? attr->sample_period : 1;
	if (is_clock(attr) && attr->sample_freq && attr->sample_freq <= 1000000000)
		return 1000000000 / attr->sample_freq;
	return 1;
}

/*
 * Return whether the event fits the earlier ones: the id of a record must be readable before its
 * event is known.
 */
static bool fits(const struct perfdata_attrs *attrs, const struct perf_event_attr *attr)
{
	const struct perf_event_attr *first;

	if (!attrs->n)
		return true;
	first = &attrs->attrs[0].attr;
	if (sample_id_at(attr->sample_type) != attrs->sample_id_at ||
	    record_id_at(attr) != attrs->record_id_at)
		return false;
	/* Without ids the events cannot be told apart, so their records must have one layout. */
	return attrs->sample_id_at >= 0 || (attr->sample_type == first->sample_type &&
					    attr->read_format == first->read_format &&
					    attr->sample_regs_user == first->sample_regs_user &&
					    attr->sample_regs_intr == first->sample_regs_intr &&
					    attr->branch_sample_type == first->branch_sample_type);
}

/*
 * Add an event. An attr of another size than ours comes from an older or newer perf: missing
 * fields are 0, unknown ones are ignored.
 */
int perfdata_attrs_add(struct perfdata_attrs *attrs, const uint8_t *bytes, size_t size,
		       const uint8_t *ids, size_t n_ids)
{
	struct perfdata_attr new = { .event = -1 };
	size_t own = sizeof(new.attr);
	int err = 0;

	if (size < PERF_ATTR_SIZE_VER0)
		return -EBADMSG;
	if (attrs->n >= PERFDATA_ATTRS_MAX)
		return -E2BIG;
	memcpy(&new.attr, bytes, size < own ? size : own);
	if (!fits(attrs, &new.attr))
		return -EBADMSG;
	new.default_period = default_period(&new.attr);
	if (new.attr.sample_id_all)
		new.trailer = 8 * (uint32_t)bits(new.attr.sample_type &TRAILER_FIELDS);

	if (n_ids > PERFDATA_IDS_MAX - attrs->n_ids)
		return -E2BIG;
	if (array_grow(attrs->attrs, attrs->n, attrs->room) ||
	    array_grow(attrs->events, attrs->n_events, attrs->room_events))
		return -ENOMEM;
	if (new.attr.type != PERF_TYPE_SOFTWARE || new.attr.config != PERF_COUNT_SW_DUMMY) {
		struct source_event *event = &attrs->events[attrs->n_events];

		new.event = (int32_t)attrs->n_events++;
		*event = (struct source_event){ .period = 0 };
		describe(event, &new.attr);
	}
	if (!attrs->n) {
		attrs->sample_id_at = sample_id_at(new.attr.sample_type);
		attrs->record_id_at = record_id_at(&new.attr);
	}
	attrs->attrs[attrs->n++] = new;
	for (size_t i = 0; !err && i < n_ids; i++)
		err = set_id(attrs, uw_bytes_little8(ids + 8 * i), (uint32_t)attrs->n - 1);
	return err;
}

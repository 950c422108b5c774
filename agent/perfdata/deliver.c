/*
 * agent/perfdata/deliver.c: turns queued records into events. The stack of a sample is read here,
 * and only the part of the stack that was in use.
 */
#include "agent/perfdata/reader_state.h"

#include "agent/perfdata/format.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/*
 * Bytes copied of a large record before its needed parts are known: from a mapped file and from
 * one that is read.
 */
#define HEAD_MAPPED 512u
#define HEAD_READ   2048u

static const char cut_short[] = "the file was cut short while it was read, or its disk failed";

/* perfdata_body.load: read [from, to) of the record's body into p->scratch. */
static int load(void *ctx, uint32_t from, uint32_t to)
{
	struct perfdata *p = ctx;
	uint32_t header = PERFDATA_RECORD_HEADER_SIZE;

	return perfdata_window_read(&p->window, p->scratch + header + from, to - from,
				    p->record_off + header + from);
}

/*
 * perfdata_body.view: return [from, to) of the record's body in the mapped file, or NULL if the
 * file is not mapped.
 */
static const uint8_t *view(void *ctx, uint32_t from, uint32_t to)
{
	struct perfdata *p = ctx;

	return perfdata_window_view(&p->window, p->record_off + PERFDATA_RECORD_HEADER_SIZE + from,
				    to - from);
}

/*
 * Return the bytes of a queued record. All of them are returned unless it is a large sample, of
 * which *have is the size of the part that is there. -EBADMSG: the file changed since it was
 * scanned.
 */
static int record_bytes(struct perfdata *p, const struct perfdata_entry *entry, const uint8_t **out,
			uint32_t *have)
{
	uint32_t size = PERFDATA_ENTRY_SIZE(entry->order);
	bool mapped = p->window.mapped.bytes != NULL, all = !mapped && size <= PERFDATA_GAP;
	int err;

	*have = size;
	if (entry->order & PERFDATA_ENTRY_COPIED) {
		*out = p->held = (const uint8_t *)(uintptr_t)entry->where;
		return 0;
	}
	*out = mapped ? NULL : perfdata_window_has(&p->window, entry->where, size);
	if (*out)
		return 0;
	p->record_off = entry->where;
	if (!all && *have > (mapped ? HEAD_MAPPED : HEAD_READ))
		*have = mapped ? HEAD_MAPPED : HEAD_READ;
	err = perfdata_window_read(&p->window, p->scratch, *have, entry->where);
	if (err)
		return err;
	/*
	 * The type was checked when the record was scanned. Another size now means that the file
	 * has changed.
	 */
	if (uw_bytes_little2(p->scratch + 6) != size)
		return -EBADMSG;
	if (*have < size && uw_bytes_little(p->scratch) != PERF_RECORD_SAMPLE) {
		err = load(p, *have - PERFDATA_RECORD_HEADER_SIZE,
			   size - PERFDATA_RECORD_HEADER_SIZE);
		*have = size;
	}
	*out = p->scratch;
	return err;
}

/* Make *event an EVENT_LOST of n samples. Its pid and tid stay. */
static void set_lost(struct event *event, enum event_lost_reason reason, uint64_t n)
{
	*event = (struct event){ .type = EVENT_LOST,
				 .pid = event->pid,
				 .tid = event->tid,
				 .lost = { .reason = reason, .n_samples = n } };
}

/*
 * Let the values of a sample's group be the periods of its events: the sample is one of each that has occurred since the last
 * one. With inherit, which groups may have since Linux 6.12, each thread has counters of its own.
 */
static int take_values(struct perfdata *p, const struct perfdata_attr *attr)
{
	const struct perf_event_attr *a = &attr->attr;
	uint32_t tid = a->inherit && a->sample_type & PERF_SAMPLE_TID ? p->next[0].tid : 0;
	int err = 0;

	for (size_t i = 0; i < p->sample.n_values && !err; i++) {
		const struct perfdata_value *value = &p->sample.values[i];
		const struct perfdata_attr *of = perfdata_attrs_of_id(&p->attrs, value->id);
		uint64_t since;

		err = perfdata_counts_since(&p->counts, value->id, tid, value->value, &since);
		if (err || !since || !of || of->event < 0)
			continue;
		/* Another event with a period has samples of its own. */
		if (of == attr)
			p->next[0].sample.period = since;
		else if (!of->attr.sample_period && p->n_members < PERFDATA_MEMBERS_MAX)
			p->members[p->n_members++] =
				(struct perfdata_member){ (uint16_t)of->event, since };
	}
	return err;
}

/*
 * Fill p->next[0] from a sample record of which have bytes are in memory. A damaged sample and one
 * of an event that takes no samples become EVENT_LOST. Return 1, or the error that made the sample
 * damaged.
 */
static int deliver_sample(struct perfdata *p, const struct perfdata_record *record, uint32_t have)
{
	struct perfdata_body body = { .bytes = record->body,
				      .size = record->size,
				      .have = have,
				      .load = have < record->size ? load : NULL,
				      .view = have < record->size ? view : NULL,
				      .ctx = p };
	int err;

	p->n_samples++;
	err = record->attr ? perfdata_sample_read(&p->sample, record->attr, p->machine,
						  &p->deferred, record->misc, &body, &p->next[0])
			   : -EBADMSG;

	if (!err && record->attr->event >= 0)
		err = take_values(p, record->attr);
	if (err) {
		set_lost(&p->next[0], EVENT_LOST_DAMAGED, 1);
		p->n_members = 0;
	} else if (record->attr->event < 0) {
		set_lost(&p->next[0], EVENT_LOST_UNSUPPORTED, 1);
	}
	return err ? err : 1;
}

/*
 * Count lost samples. Return the number of events to deliver for the record.
 *
 * perf record writes the sum of all lost samples at the end, in a record without a time. That sum
 * includes the records that the kernel wrote before, so it is stored here and the difference is
 * reported by perfdata_deliver_lost().
 */
static int count_lost(struct perfdata *p, const struct perfdata_record *record, int n)
{
	uint64_t lost = n > 0 ? p->next[0].lost.n_samples : 0;

	if (record->type == PERF_RECORD_LOST_SAMPLES && !record->has_time && record->attr &&
	    record->attr->trailer && record->attr->attr.sample_type & PERF_SAMPLE_TIME) {
		p->lost_counted += lost;
		return 0;
	}
	p->lost += lost;
	return n;
}

/*
 * Store the time of the first event, on the source's clock and, if the recording relates the two
 * clocks, as wall-clock time.
 */
static void note_first_time(struct perfdata *p, const struct perfdata_record *record)
{
	struct source_info *info = &p->source.info;
	const struct perf_event_attr *attr = record->attr ? &record->attr->attr : NULL;

	info->wall_first_ns = record->time_ns;
	if (p->facts.has_clock)
		info->wall_start_ns = p->facts.wall_ns + (record->time_ns - p->facts.clock_ns);
	else if (attr && attr->use_clockid && attr->clockid == CLOCK_REALTIME)
		info->wall_start_ns = record->time_ns;
}

void perfdata_deliver(struct perfdata *p, const struct perfdata_entry *entry)
{
	const uint8_t *bytes = NULL;
	uint64_t off = entry->order & PERFDATA_ENTRY_COPIED ? p->off : entry->where;
	uint32_t have;
	struct perfdata_record record = { .has_time = entry->time_ns, .time_ns = entry->time_ns };
	int n = record_bytes(p, entry, &bytes, &have);

	p->at_next = p->n_next = 0;
	p->at_member = p->n_members = 0;
	p->next[0] = p->next[1] = (struct event){ .type = EVENT_LOST };
	if (n) {
		perfdata_damage(p, n, off, "%s",
				n == -EBADMSG ? "the file changed while it was read"
					      : strerror(-n));
		return;
	}
	record.type = uw_bytes_little(bytes);
	record.misc = uw_bytes_little2(bytes + 4);
	record.body = bytes + PERFDATA_RECORD_HEADER_SIZE;
	record.size = PERFDATA_ENTRY_SIZE(entry->order) - PERFDATA_RECORD_HEADER_SIZE;
	have -= PERFDATA_RECORD_HEADER_SIZE;
	if (record.type == PERF_RECORD_SAMPLE) {
		record.attr = perfdata_attrs_of_sample(&p->attrs, record.body, have);
		n = deliver_sample(p, &record, have);
	} else {
		record.attr = perfdata_attrs_of_record(&p->attrs, record.body, record.size);
		n = perfdata_record_read(&record, &p->facts, p->path, p->next);
		if (record.type == PERF_RECORD_LOST || record.type == PERF_RECORD_LOST_SAMPLES)
			n = count_lost(p, &record, n);
		else if (record.type == PERFDATA_CALLCHAIN_DEFERRED && !n)
			perfdata_deferred_drop(&p->deferred, uw_bytes_little8(record.body));
	}
	if (n >= 0 && atomic_exchange(&p->window.mapped.cut, false))
		perfdata_damage(p, -EBADMSG, off, "%s", cut_short);
	if (n < 0) {
		perfdata_damage(p, n, off, "a record of type %u contradicts itself", record.type);
		n = record.type == PERF_RECORD_SAMPLE;
	}
	p->n_next = n;
	p->next[0].time_ns = p->next[1].time_ns = entry->time_ns;
	if (entry->time_ns && !p->source.info.wall_first_ns)
		note_first_time(p, &record);
}

/*
 * Check at the end that the file did not shrink. Access to a missing page is noticed (see
 * mapped.h), but the missing rest of the last page reads as zeros without any error.
 */
static void check_size(struct perfdata *p)
{
	struct stat st;

	if (p->seekable && !fstat(p->fd, &st) && (uint64_t)st.st_size < p->file_size)
		perfdata_damage(p, -EBADMSG, (uint64_t)st.st_size, "%s", cut_short);
}

bool perfdata_deliver_lost(struct perfdata *p)
{
	uint64_t counted = p->lost_counted > p->lost ? p->lost_counted - p->lost : 0;

	p->at_next = p->n_next = 0;
	if (p->reported_lost)
		return false;
	p->reported_lost = true;
	check_size(p);
	/* A record of compressed data whose rest is missing. */
	if (perfdata_stream_size(&p->inflated) >= PERFDATA_RECORD_HEADER_SIZE)
		p->torn_sample |= uw_bytes_little(p->inflated.begin) == PERF_RECORD_SAMPLE;
	if (p->has_trace && !p->n_samples)
		perfdata_damage(p, -ENOTSUP, 0,
				"there is only hardware trace (ETM, Intel PT), and no sample; "
				"perf inject --itrace makes samples of it");
	if (counted)
		set_lost(&p->next[p->n_next++], EVENT_LOST_RING_FULL, counted);
	if (p->torn_sample)
		set_lost(&p->next[p->n_next++], EVENT_LOST_DAMAGED, 1);
	for (int i = 0; i < p->n_next; i++) {
		p->next[i].pid = p->next[i].tid = 0;
		p->next[i].time_ns = p->queue.newest_ns;
	}
	return p->n_next > 0;
}

#define PREFETCH_MAX 8704u /* a record with 8 KiB of stack, perf's default */
#define LINE_BYTES   64u

void perfdata_prefetch(const struct perfdata *p)
{
	const struct perfdata_entry *entry = perfdata_queue_first(&p->queue);
	uint32_t size;
	const uint8_t *bytes;

	if (!entry || entry->order & PERFDATA_ENTRY_COPIED)
		return;
	size = PERFDATA_ENTRY_SIZE(entry->order);
	if (size > PREFETCH_MAX)
		size = PREFETCH_MAX;
	bytes = perfdata_window_view(&p->window, entry->where, size);
	for (uint32_t at = 0; bytes && at < size; at += LINE_BYTES)
		__builtin_prefetch(bytes + at);
}

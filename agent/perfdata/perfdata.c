/*
 * agent/perfdata/perfdata.c: reads a perf.data file or pipe, as written by perf record, and makes
 * events of it.
 *
 * scan() reads one record after another from the file, the pipe or the decompressor, and puts each
 * record that has a time into a queue. deliver() turns the oldest record of the queue into events.
 * For a record in a file the queue stores only its offset. The stack of a sample is read when the
 * sample is delivered, and only the part of the stack that was in use.
 *
 * Memory: 24 MiB for the queue, and BLOCKS_MAX for records that cannot be read a second time. When
 * either limit is reached, the older half of the queue is delivered at once. A record may then be
 * delivered after a newer one.
 *
 * A record that contradicts itself is left out (a sample counts as lost) and reading goes on
 * behind it. Reading ends where records can no longer be told apart. In both cases the first
 * damage is returned as the error at the end of the stream.
 */
#include "agent/io.h"
#include "agent/perfdata/attrs.h"
#include "agent/perfdata/facts.h"
#include "agent/perfdata/format.h"
#include "agent/perfdata/queue.h"
#include "agent/perfdata/records.h"
#include "agent/perfdata/sample.h"
#include "agent/perfdata/stream.h"
#include "agent/source/source.h"

#include <elf.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

/*
 * Limits for decompression, against zstd bombs. The unused part of each stack is zeros, but real
 * recordings still shrink only to a tenth or a hundredth.
 */
#define INFLATED_RATIO 1000u
#define INFLATED_MIN   (256u << 20)
#define BLOCKS_MAX     48u /* blocks of 1 MiB */

struct perfdata {
	struct source source;
	int fd;
	char *name;
	bool seekable;
	bool closed;	    /* perf completed the header when it ended */
	uint64_t file_size; /* seekable */
	uint64_t off;	    /* of the next record, in the file or stream */
	uint64_t end;	    /* end of the records that are in the file */
	uint64_t end_told;  /* end of the records as the header says */

	struct perfdata_attrs attrs;
	struct perfdata_facts facts;
	struct perfdata_queue queue;
	uint64_t n_records;

	struct perfdata_window window; /* seekable */
	uint8_t *scratch;	       /* buffer for one record that is not in the window */
	struct perfdata_pool pool;
	struct perfdata_stream pipe; /* used unless seekable */
	bool pipe_ended;

	ZSTD_DCtx *zstd;
	struct perfdata_stream inflated;
	ZSTD_inBuffer deflated; /* borrowed from window or pipe */
	bool inflating;		/* deflated or zstd still holds data */
	uint64_t deflated_off;
	uint64_t n_deflated, n_inflated; /* bytes */

	struct perfdata_entry direct; /* a record without a time: delivered at once */
	bool has_direct;
	const uint8_t *held; /* bytes in the block of the record being delivered, or NULL */
	struct event next[2];
	int n_next, at_next;
	char path[PERFDATA_PATH_MAX];
	struct perfdata_sample sample;
	uint64_t record_off; /* file offset of the record that load() and view() read */

	bool scanned;	       /* everything was scanned */
	bool torn_sample;      /* the input ends inside a sample */
	uint64_t lost;	       /* samples, as reported by the kernel */
	uint64_t lost_counted; /* as counted by perf at the end; includes lost */
	bool told_lost;
	uint64_t n_samples; /* sample records, damaged ones included */
	bool has_trace;	    /* hardware trace of all branches (ETM, Intel PT) */
	int err;	    /* error code of the first damage */
	uint64_t n_damaged;
	char damage[400];
	uint64_t damage_off;
};

/*
 * Bytes copied of a large record before its needed parts are known: from a mapped file and from
 * one that is read.
 */
#define HEAD_MAPPED 512u
#define HEAD_READ   2048u

static const char cut_short[] = "the file was cut short while it was read, or its disk failed";

/* Flags and size of a record in perfdata_entry.order; scan_kernel() sets them. */
#define ENTRY_COPIED	  1u
#define ENTRY_SIZE(order) ((uint32_t)((order) >> 1 & 0xffff))

/* ---- damage ----------------------------------------------------------------------- */

/* Record damage at file offset off. Only the first damage is stored, the others are counted. */
__attribute__((format(printf, 4, 5))) static void damage(struct perfdata *p, int err, uint64_t off,
							 const char *format, ...)
{
	va_list args;

	p->n_damaged++;
	if (p->err)
		return;
	p->err = err;
	p->damage_off = off;
	va_start(args, format);
	(void)vsnprintf(p->damage, sizeof(p->damage), format, args);
	va_end(args);
}

/* Record damage after which nothing can be decoded: scanning ends. */
#define STOP(p, err, off, ...)                          \
	do {                                            \
		damage((p), (err), (off), __VA_ARGS__); \
		(p)->scanned = true;                    \
	} while (0)

/* Format the stored damage as one line for source.error. */
static void write_error(const struct perfdata *p, char *out, size_t size)
{
	char more[96] = "";

	if (!p->closed)
		(void)snprintf(more, sizeof(more), "; perf record did not close the file");
	else if (p->n_damaged > 1)
		(void)snprintf(more, sizeof(more), "; %llu more records are damaged",
			       (unsigned long long)p->n_damaged - 1);
	(void)snprintf(out, size, "%.200s: offset 0x%llx: %.200s%s", p->name,
		       (unsigned long long)p->damage_off, p->damage, more);
}

/* ---- bytes -------------------------------------------------------------------------- */

/*
 * Return up to size bytes from p->off on without consuming them. *got is less than size only at
 * the end of the input. *out is valid until the next call. A pipe is waited for.
 */
static int peek(struct perfdata *p, size_t size, const uint8_t **out, size_t *got)
{
	if (p->seekable)
		return perfdata_window_get(&p->window, p->off, size, p->end, out, got);
	while (perfdata_stream_size(&p->pipe) < size && !p->pipe_ended) {
		uint8_t *to;
		size_t room;
		ssize_t n;
		int err = perfdata_stream_room(&p->pipe, &to, &room);

		if (err)
			return err;
		n = read(p->fd, to, room);
		if (n < 0 && errno == EAGAIN)
			(void)poll(&(struct pollfd){ .fd = p->fd, .events = POLLIN }, 1, -1);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return -errno;
		p->pipe_ended = !n;
		perfdata_stream_filled(&p->pipe, (size_t)n);
	}
	*out = p->pipe.begin;
	*got = perfdata_stream_size(&p->pipe) < size ? perfdata_stream_size(&p->pipe) : size;
	return 0;
}

/* Consume size bytes that peek() returned. */
static void pass(struct perfdata *p, size_t size)
{
	p->off += size;
	if (!p->seekable)
		p->pipe.begin += size;
}

/* Skip any number of bytes. Return false if the input ends before. */
static bool skip(struct perfdata *p, uint64_t size)
{
	if (p->seekable) {
		bool there = size <= p->end - p->off;

		p->off = there ? p->off + size : p->end;
		return there;
	}
	while (size) {
		const uint8_t *bytes;
		size_t one = size < PERFDATA_RECORD_MAX ? (size_t)size : PERFDATA_RECORD_MAX, got;

		if (peek(p, one, &bytes, &got) || !got)
			return false;
		pass(p, got);
		size -= got;
	}
	return true;
}

/* ---- scanning ------------------------------------------------------------------------ */

/*
 * Add the description of one event (a perf_event_attr with its ids) that was found at file offset
 * off.
 */
static void take_attr(struct perfdata *p, uint64_t off, const uint8_t *attr, size_t size,
		      const uint8_t *ids, size_t n_ids)
{
	int err = perfdata_attrs_add(&p->attrs, attr, size, ids, n_ids);

	p->source.info.events = p->attrs.events;
	p->source.info.n_events = p->attrs.n_events;
	if (err == -EBADMSG)
		damage(p, err, off,
		       "an event's description is too short or does not fit the others");
	else if (err == -E2BIG)
		damage(p, -EBADMSG, off, "more events or ids than can be meant");
	else if (err)
		STOP(p, err, off, "%s", strerror(-err));
}

/*
 * Read a record that perf itself wrote (not the kernel). These records hold what the header of a
 * file holds otherwise. All size bytes of the record are in memory.
 */
static void scan_user(struct perfdata *p, uint64_t off, const uint8_t *record, size_t size)
{
	uint32_t type = perfdata_u32(record);
	int err = 0;

	switch (type) {
	case PERFDATA_HEADER_ATTR: {
		size_t attr = size >= 16 ? perfdata_u32(record + 12) : 0;

		if (!attr)
			attr = PERF_ATTR_SIZE_VER0;
		if (size < 16 || attr > size - 8)
			err = -EBADMSG;
		else
			take_attr(p, off, record + 8, attr, record + 8 + attr,
				  (size - 8 - attr) / 8);
		break;
	}
	case PERFDATA_HEADER_BUILD_ID:
		err = perfdata_facts_build_id(&p->facts, record, size);
		break;
	case PERFDATA_HEADER_FEATURE:
		if (size < 16)
			err = -EBADMSG;
		else if (perfdata_u64(record + 8) < PERFDATA_FEATURES)
			err = perfdata_facts_feature(&p->facts, &p->attrs,
						     (unsigned int)perfdata_u64(record + 8),
						     record + 16, size - 16);
		break;
	case PERFDATA_EVENT_UPDATE:
		if (size < 24)
			err = -EBADMSG;
		else if (perfdata_u64(record + 8) == PERFDATA_UPDATE_NAME)
			perfdata_attrs_name(&p->attrs, perfdata_u64(record + 16),
					    (const char *)record + 24, size - 24);
		break;
	case PERFDATA_FINISHED_ROUND:
		perfdata_queue_round(&p->queue);
		break;
	default: /* nothing we need */
		break;
	}
	if (err == -EBADMSG)
		damage(p, err, off, "a record of type %u contradicts itself", type);
	else if (err)
		STOP(p, err, off, "%s", strerror(-err));
}

/* Return whether records of this kernel type become events. */
static bool gives_events(uint32_t type)
{
	return type == PERF_RECORD_MMAP || type == PERF_RECORD_MMAP2 || type == PERF_RECORD_COMM ||
	       type == PERF_RECORD_FORK || type == PERF_RECORD_EXIT || type == PERF_RECORD_LOST ||
	       type == PERF_RECORD_LOST_SAMPLES || type == PERF_RECORD_SAMPLE;
}

/*
 * Read the time of a kernel record. Return false if it has none; the values 0 and UINT64_MAX mean
 * that the time is unknown.
 */
static bool read_time(const struct perfdata *p, const uint8_t *record, size_t size,
		      uint64_t *time_ns)
{
	const uint8_t *body = record + PERFDATA_RECORD_HEADER_SIZE;
	bool told;

	size -= PERFDATA_RECORD_HEADER_SIZE;
	if (perfdata_u32(record) == PERF_RECORD_SAMPLE)
		told = perfdata_sample_time(perfdata_attrs_of_sample(&p->attrs, body, size), body,
					    size, time_ns);
	else
		told = perfdata_record_time(perfdata_attrs_of_record(&p->attrs, body, size), body,
					    size, time_ns);
	return told && *time_ns && *time_ns != UINT64_MAX;
}

/*
 * If the mapping record is the one of the kernel's text, store the address of _text and the
 * build-id of the kernel.
 */
static void find_kernel_text(struct perfdata *p, const uint8_t *bytes, size_t size)
{
	struct perfdata_record record = { .type = perfdata_u32(bytes),
					  .misc = perfdata_u16(bytes + 4),
					  .body = bytes + PERFDATA_RECORD_HEADER_SIZE,
					  .size = (uint32_t)size - PERFDATA_RECORD_HEADER_SIZE };
	struct uw_build_id id = { .size = 0 };
	uint64_t text = perfdata_record_kernel_text(&record, &id);

	if (text && !p->source.info.kernel_text)
		p->source.info.kernel_text = text;
	/* With perf record --buildid-mmap this is the only place that has it. */
	if (text && !p->facts.kernel_build_id.size)
		p->facts.kernel_build_id = id;
}

/*
 * Queue a record that the kernel wrote, or set it as p->direct, to be delivered at once. got of
 * its size bytes are in memory: all, or the head of a sample in a file. where is the file offset
 * of the record or, if copied, its address in a block, which is then held.
 */
static void scan_kernel(struct perfdata *p, const uint8_t *record, size_t got, uint64_t where,
			bool copied)
{
	struct perfdata_entry entry = { .where = where };
	uint32_t type = perfdata_u32(record), size = perfdata_u16(record + 6);
	int err;

	if (!gives_events(type))
		return;
	if (type == PERF_RECORD_MMAP || type == PERF_RECORD_MMAP2)
		find_kernel_text(p, record, got);
	if (copied)
		perfdata_hold(record);
	entry.order = p->n_records++ << 17 | size << 1 | (copied ? ENTRY_COPIED : 0);
	if (!read_time(p, record, got, &entry.time_ns)) {
		entry.time_ns = 0;
		p->direct = entry;
		p->has_direct = true;
		return;
	}
	err = perfdata_queue_add(&p->queue, &entry);
	if (err) {
		if (copied)
			perfdata_release(&p->pool, record);
		STOP(p, err, p->off, "%s", strerror(-err));
	} else if (copied && p->pool.n_used > BLOCKS_MAX) {
		perfdata_queue_half(&p->queue);
	}
}

/*
 * Start to decompress a compressed record. Its bytes stay borrowed from the window or the pipe
 * until inflating is false again.
 */
static void scan_compressed(struct perfdata *p, uint64_t off, const uint8_t *record, size_t size)
{
	bool second = perfdata_u32(record) == PERFDATA_COMPRESSED2;
	size_t at = second ? 16 : 8;

	if (size < at || (second && perfdata_u64(record + 8) > size - at)) {
		STOP(p, -EBADMSG, off, "a compressed record contradicts itself");
		return;
	}
	if (!p->zstd && !(p->zstd = ZSTD_createDCtx())) {
		STOP(p, -ENOMEM, off, "%s", strerror(ENOMEM));
		return;
	}
	p->deflated =
		(ZSTD_inBuffer){ .src = record + at,
				 .size = second ? (size_t)perfdata_u64(record + 8) : size - at };
	p->deflated_off = off;
	p->n_deflated += p->deflated.size;
	p->inflating = true;
}

/*
 * Decompress up to one block's room of the compressed record. Reading ends at damaged data and at
 * data that grow more than INFLATED_RATIO times.
 */
static void inflate(struct perfdata *p)
{
	ZSTD_outBuffer out = { .pos = 0 };
	uint8_t *to;
	size_t left;
	int err = perfdata_stream_room(&p->inflated, &to, &out.size);

	if (err) {
		STOP(p, err, p->deflated_off, "%s", strerror(-err));
		return;
	}
	out.dst = to;
	left = ZSTD_decompressStream(p->zstd, &out, &p->deflated);
	if (ZSTD_isError(left)) {
		STOP(p, -EBADMSG, p->deflated_off, "compressed data are damaged: %s",
		     ZSTD_getErrorName(left));
		return;
	}
	perfdata_stream_filled(&p->inflated, out.pos);
	p->n_inflated += out.pos;
	if (p->n_inflated > INFLATED_MIN && p->n_inflated / INFLATED_RATIO > p->n_deflated) {
		STOP(p, -EBADMSG, p->deflated_off, "compressed data grow more than %u times",
		     INFLATED_RATIO);
		return;
	}
	/* If zstd left room in the buffer, it has no more output for this input. */
	p->inflating = p->deflated.pos < p->deflated.size || out.pos == out.size;
}

/* Scan the next decompressed record. Return false if no whole record is there. */
static bool scan_inflated(struct perfdata *p)
{
	const uint8_t *record = p->inflated.begin;
	size_t there = perfdata_stream_size(&p->inflated), size;
	uint32_t type;

	if (there < PERFDATA_RECORD_HEADER_SIZE)
		return false;
	type = perfdata_u32(record);
	size = perfdata_record_size(record);
	if (!size || size > PERFDATA_RECORD_MAX || type == PERFDATA_COMPRESSED ||
	    type == PERFDATA_COMPRESSED2) {
		STOP(p, -EBADMSG, p->deflated_off, "no record where one must be (compressed)");
		return true;
	}
	if (size > there)
		return false;
	if (type < PERFDATA_USER_TYPES)
		scan_kernel(p, record, size, (uint64_t)(uintptr_t)record, true);
	else
		scan_user(p, p->deflated_off, record, size);
	p->inflated.begin += size;
	return true;
}

/*
 * End the scan at the end of the input, and record damage if the input is shorter than it should
 * be.
 */
static void scan_end(struct perfdata *p)
{
	p->scanned = true;
	if (perfdata_stream_size(&p->inflated))
		damage(p, -EBADMSG, p->deflated_off, "the compressed data end inside a record");
	if (p->seekable && p->end < p->end_told)
		damage(p, -EBADMSG, p->end, "the file ends here, %llu bytes short",
		       (unsigned long long)(p->end_told - p->end));
	if (!p->closed)
		damage(p, -EBADMSG, p->off, "the file ends here");
}

/*
 * Return the size of the data that follow the record outside of its own size. Only two types have
 * such data; 0 for all others.
 */
static uint64_t payload_of(const uint8_t *record, size_t size)
{
	uint64_t told;

	switch (perfdata_u32(record)) {
	case PERFDATA_HEADER_TRACING_DATA: /* the record of simpleperf contains its data */
		told = size >= 12 ? perfdata_u32(record + 8) : 0;
		return told > size - 12 ? told : 0;
	case PERFDATA_AUXTRACE:
		return size >= 16 ? perfdata_u64(record + 8) : 0;
	default:
		return 0;
	}
}

/*
 * Scan the next record of the file or the pipe. Of a sample in a file only the first
 * PERFDATA_SAMPLE_HEAD bytes of the body are read, which hold its time and id.
 */
static void scan_next(struct perfdata *p)
{
	const uint8_t *record;
	uint64_t off = p->off, payload;
	size_t size = PERFDATA_RECORD_HEADER_SIZE, wanted = size, got;
	uint32_t type = 0;
	int err = peek(p, size, &record, &got);

	if (!err && !got) {
		scan_end(p);
		return;
	}
	if (!err && got == size) {
		type = perfdata_u32(record);
		size = perfdata_record_size(record);
		if (!size) {
			STOP(p, -EBADMSG, off, "no record where one must be (type %u, size %u)",
			     type, perfdata_u16(record + 6));
			return;
		}
		if (perfdata_is_simpleperf(type)) {
			if (!skip(p, size)) /* nothing we need */
				STOP(p, -EBADMSG, off, "the %s ends inside a record",
				     p->seekable ? "file" : "stream");
			return;
		}
		wanted = size;
		if (p->seekable && type == PERF_RECORD_SAMPLE &&
		    size > PERFDATA_RECORD_HEADER_SIZE + PERFDATA_SAMPLE_HEAD)
			wanted = PERFDATA_RECORD_HEADER_SIZE + PERFDATA_SAMPLE_HEAD;
		err = peek(p, wanted, &record, &got);
		if (!err && got == wanted && p->seekable && size > p->end - off)
			got = (size_t)(p->end - off); /* the file ends inside the sample */
		else if (!err && got == wanted)
			got = size;
	}
	if (err) {
		STOP(p, err, off, "%s", strerror(-err));
		return;
	}
	if (got < size) {
		p->torn_sample = type == PERF_RECORD_SAMPLE;
		STOP(p, -EBADMSG, off, "the %s ends inside a record",
		     p->seekable ? "file" : "stream");
		return;
	}

	payload = payload_of(record, size);
	p->has_trace |= type == PERFDATA_AUXTRACE;
	if (type < PERFDATA_USER_TYPES)
		scan_kernel(p, record, wanted, p->seekable ? off : (uint64_t)(uintptr_t)record,
			    !p->seekable);
	else if (type == PERFDATA_COMPRESSED || type == PERFDATA_COMPRESSED2)
		scan_compressed(p, off, record, size);
	else
		scan_user(p, off, record, size);
	pass(p, size);
	if (payload && !skip(p, payload))
		STOP(p, -EBADMSG, off, "the %s ends inside a record's data",
		     p->seekable ? "file" : "stream");
}

/*
 * Do one step of the scan: first consume records that are already decompressed, then decompress
 * more, then read on.
 */
static void scan(struct perfdata *p)
{
	if (scan_inflated(p))
		return;
	if (p->inflating)
		inflate(p);
	else
		scan_next(p);
}

/* ---- delivering --------------------------------------------------------------------- */

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
	uint32_t size = ENTRY_SIZE(entry->order);
	bool mapped = p->window.mapped.bytes != NULL, all = !mapped && size <= PERFDATA_GAP;
	int err;

	*have = size;
	if (entry->order & ENTRY_COPIED) {
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
	if (perfdata_u16(p->scratch + 6) != size)
		return -EBADMSG;
	if (*have < size && perfdata_u32(p->scratch) != PERF_RECORD_SAMPLE) {
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
	err = record->attr ? perfdata_sample_read(&p->sample, record->attr, p->source.info.machine,
						  record->misc, &body, &p->next[0])
			   : -EBADMSG;

	if (err)
		set_lost(&p->next[0], EVENT_LOST_DAMAGED, 1);
	else if (record->attr->event < 0)
		set_lost(&p->next[0], EVENT_LOST_UNSUPPORTED, 1);
	return err ? err : 1;
}

/*
 * Count lost samples. Return the number of events to deliver for the record.
 *
 * perf record writes the sum of all lost samples at the end, in a record without a time. That sum
 * includes the records that the kernel wrote before, so it is stored here and the difference is
 * reported by deliver_lost().
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

/*
 * Fill p->next with the events of a queued record. A damaged record is recorded as damage; if it
 * is a sample, one lost sample is delivered.
 */
static void deliver(struct perfdata *p, const struct perfdata_entry *entry)
{
	const uint8_t *bytes = NULL;
	uint64_t off = entry->order & ENTRY_COPIED ? p->off : entry->where;
	uint32_t have;
	struct perfdata_record record = { .has_time = entry->time_ns, .time_ns = entry->time_ns };
	int n = record_bytes(p, entry, &bytes, &have);

	p->at_next = p->n_next = 0;
	p->next[0] = p->next[1] = (struct event){ .type = EVENT_LOST };
	if (n) {
		damage(p, n, off, "%s",
		       n == -EBADMSG ? "the file changed while it was read" : strerror(-n));
		return;
	}
	record.type = perfdata_u32(bytes);
	record.misc = perfdata_u16(bytes + 4);
	record.body = bytes + PERFDATA_RECORD_HEADER_SIZE;
	record.size = ENTRY_SIZE(entry->order) - PERFDATA_RECORD_HEADER_SIZE;
	have -= PERFDATA_RECORD_HEADER_SIZE;
	if (record.type == PERF_RECORD_SAMPLE) {
		record.attr = perfdata_attrs_of_sample(&p->attrs, record.body, have);
		n = deliver_sample(p, &record, have);
	} else {
		record.attr = perfdata_attrs_of_record(&p->attrs, record.body, record.size);
		n = perfdata_record_read(&record, &p->facts, p->path, p->next);
		if (record.type == PERF_RECORD_LOST || record.type == PERF_RECORD_LOST_SAMPLES)
			n = count_lost(p, &record, n);
	}
	if (n >= 0 && atomic_exchange(&p->window.mapped.cut, false))
		damage(p, -EBADMSG, off, "%s", cut_short);
	if (n < 0) {
		damage(p, n, off, "a record of type %u contradicts itself", record.type);
		n = record.type == PERF_RECORD_SAMPLE;
	}
	p->n_next = n;
	p->next[0].time_ns = p->next[1].time_ns = entry->time_ns;
	if (entry->time_ns && !p->source.info.wall_first_ns)
		note_first_time(p, &record);
}

/* Release the block that the pointers of the last events pointed into. */
static void release_held(struct perfdata *p)
{
	if (p->held)
		perfdata_release(&p->pool, p->held);
	p->held = NULL;
}

/*
 * Check at the end that the file did not shrink. Access to a missing page is noticed (see
 * mapped.h), but the missing rest of the last page reads as zeros without any error.
 */
static void check_size(struct perfdata *p)
{
	struct stat st;

	if (p->seekable && !fstat(p->fd, &st) && (uint64_t)st.st_size < p->file_size)
		damage(p, -EBADMSG, (uint64_t)st.st_size, "%s", cut_short);
}

/*
 * Deliver, once and at the end, the lost samples that no record with a time reported. Return
 * whether there is an event.
 */
static bool deliver_lost(struct perfdata *p)
{
	uint64_t counted = p->lost_counted > p->lost ? p->lost_counted - p->lost : 0;

	p->at_next = p->n_next = 0;
	if (p->told_lost)
		return false;
	p->told_lost = true;
	check_size(p);
	if (p->has_trace && !p->n_samples)
		damage(p, -ENOTSUP, 0,
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

/*
 * Prefetch the next record into the CPU cache while this one is processed: a cache miss takes as
 * long as a walk.
 */
static void prefetch_next(const struct perfdata *p)
{
	const struct perfdata_entry *entry = p->queue.heap;
	uint32_t size;
	const uint8_t *bytes;

	if (!p->queue.n || entry->order & ENTRY_COPIED)
		return;
	size = ENTRY_SIZE(entry->order);
	if (size > PREFETCH_MAX)
		size = PREFETCH_MAX;
	bytes = perfdata_window_view(&p->window, entry->where, size);
	for (uint32_t at = 0; bytes && at < size; at += LINE_BYTES)
		__builtin_prefetch(bytes + at);
}

/*
 * source_ops.next: return the events of the current record, then deliver or scan more until there
 * is an event.
 */
static int next(struct source *source, struct event *event, int timeout_ms)
{
	struct perfdata *p = (struct perfdata *)source;
	struct perfdata_entry entry;

	(void)timeout_ms; /* a file is always ready, and read() waits for a pipe */
	while (p->at_next == p->n_next) {
		release_held(p);
		if (p->has_direct) {
			p->has_direct = false;
			deliver(p, &p->direct);
		} else if (perfdata_queue_take(&p->queue, &entry)) {
			prefetch_next(p);
			deliver(p, &entry);
		} else if (!p->scanned) {
			scan(p);
			if (p->scanned)
				perfdata_queue_drain(&p->queue);
		} else if (!deliver_lost(p)) {
			if (p->err)
				write_error(p, source->error, sizeof(source->error));
			return p->err;
		}
	}
	*event = p->next[p->at_next++];
	return 1;
}

static void close_source(struct source *source)
{
	struct perfdata *p = (struct perfdata *)source;
	struct perfdata_entry entry;

	if (p->has_direct && p->direct.order & ENTRY_COPIED)
		perfdata_release(&p->pool, (const uint8_t *)(uintptr_t)p->direct.where);
	perfdata_queue_drain(&p->queue);
	while (perfdata_queue_take(&p->queue, &entry))
		if (entry.order & ENTRY_COPIED)
			perfdata_release(&p->pool, (const uint8_t *)(uintptr_t)entry.where);
	release_held(p);
	perfdata_queue_fini(&p->queue);
	perfdata_stream_fini(&p->pipe);
	perfdata_stream_fini(&p->inflated);
	perfdata_pool_fini(&p->pool);
	perfdata_window_fini(&p->window);
	perfdata_attrs_fini(&p->attrs);
	perfdata_facts_fini(&p->facts);
	perfdata_sample_fini(&p->sample);
	(void)ZSTD_freeDCtx(p->zstd);
	free(p->scratch);
	free(p->name);
	(void)close(p->fd);
	free(p);
}

/* ---- opening ------------------------------------------------------------------------ */

struct section {
	uint64_t off, size;
};

static struct section section_at(const uint8_t *bytes)
{
	return (struct section){ .off = perfdata_u64(bytes), .size = perfdata_u64(bytes + 8) };
}

/* Return whether all of the section is inside the file. */
static bool is_there(const struct perfdata *p, const struct section *s)
{
	return s->off <= p->file_size && s->size <= p->file_size - s->off;
}

/*
 * Read a section of at most max bytes. The caller frees the result. On failure record damage at
 * told_at, where the file describes the section, and return NULL.
 */
static uint8_t *read_section(struct perfdata *p, const struct section *s, uint64_t max,
			     uint64_t told_at, const char *what)
{
	uint8_t *bytes = NULL;
	int err = -EBADMSG;

	if (is_there(p, s) && s->size <= max) {
		bytes = malloc(s->size ? (size_t)s->size : 1);
		err = bytes ? io_read_at(p->fd, s->off, bytes, (size_t)s->size) : -ENOMEM;
	}
	if (!err)
		return bytes;
	free(bytes);
	damage(p, err, told_at, "%s: %s", what,
	       err == -EBADMSG ? "not all of it is in the file" : strerror(-err));
	return NULL;
}

/* Read the attrs section: the events and their ids. */
static void read_attrs(struct perfdata *p, const struct section *attrs, uint64_t attr_size)
{
	enum { ATTRS_AT = 24 };
	size_t size = (size_t)attr_size;
	uint8_t *bytes;

	if (attr_size < PERF_ATTR_SIZE_VER0 + PERFDATA_SECTION_SIZE || attr_size > 4096) {
		damage(p, -EBADMSG, 16, "an event's description cannot have %llu bytes",
		       (unsigned long long)attr_size);
		return;
	}
	bytes = read_section(p, attrs, (uint64_t)PERFDATA_ATTRS_MAX * attr_size, ATTRS_AT,
			     "the events");
	for (uint64_t at = 0; bytes && attrs->size - at >= attr_size && !p->err; at += attr_size) {
		uint64_t ids_at = attrs->off + at + attr_size - PERFDATA_SECTION_SIZE;
		struct section ids = section_at(bytes + at + attr_size - PERFDATA_SECTION_SIZE);
		uint8_t *id_bytes = read_section(p, &ids, (uint64_t)PERFDATA_IDS_MAX * 8, ids_at,
						 "an event's ids");

		if (id_bytes)
			take_attr(p, attrs->off + at, bytes + at, size - PERFDATA_SECTION_SIZE,
				  id_bytes, (size_t)ids.size / 8);
		free(id_bytes);
	}
	free(bytes);
}

/*
 * Read the feature sections that are needed. Damage in them costs names and build-ids but no
 * events, so reading goes on and the damage is reported at the end.
 */
static void read_features(struct perfdata *p, const uint8_t *header)
{
	uint64_t at = p->end;

	for (unsigned int i = 0; i < PERFDATA_FEATURES; i++) {
		uint8_t bytes[PERFDATA_SECTION_SIZE], *content;
		struct section table = { .off = at, .size = sizeof(bytes) }, s;
		int err;

		if (!(header[72 + i / 8] >> i % 8 & 1))
			continue;
		if (!is_there(p, &table) || io_read_at(p->fd, at, bytes, sizeof(bytes))) {
			damage(p, -EBADMSG, at, "the file ends before its features");
			return;
		}
		s = section_at(bytes);
		if (perfdata_facts_wants(i)) {
			content = read_section(p, &s, PERFDATA_FEATURE_MAX, at, "a feature");
			err = content ? perfdata_facts_feature(&p->facts, &p->attrs, i, content,
							       (size_t)s.size)
				      : 0;
			if (err)
				damage(p, err, s.off, "feature %u is damaged", i);
			free(content);
		} else if (!is_there(p, &s)) {
			damage(p, -EBADMSG, at, "the file ends inside its features");
		}
		at += sizeof(bytes);
	}
}

/*
 * Read the header of a file, its events and its features. Return false if the file cannot be read;
 * damage then says why. A header whose data size is 0 belongs to a recording that perf did not
 * finish: its records reach to the end of the file.
 */
static bool open_file(struct perfdata *p)
{
	uint8_t header[PERFDATA_FILE_HEADER_SIZE];
	struct section attrs, data;
	bool has_features;

	if (!p->seekable) {
		damage(p, -ENOTSUP, 0,
		       "a perf.data file cannot be read from a pipe: name the file itself");
		return false;
	}
	if (io_read_at(p->fd, 0, header, sizeof(header))) {
		damage(p, -EBADMSG, 0, "the file ends inside its header");
		return false;
	}
	/* The first versions of the format had no features. */
	has_features = perfdata_u64(header + 8) == PERFDATA_FILE_HEADER_SIZE;
	if (!has_features && perfdata_u64(header + 8) != 72) {
		damage(p, -EBADMSG, 8, "a header cannot have %llu bytes",
		       (unsigned long long)perfdata_u64(header + 8));
		return false;
	}
	attrs = section_at(header + 24);
	data = section_at(header + 40);
	read_attrs(p, &attrs, perfdata_u64(header + 16));
	if (p->err)
		return false;
	if (!p->attrs.n) {
		damage(p, -EBADMSG, 24, "no event is described");
		return false;
	}
	if (data.off > p->file_size) {
		damage(p, -EBADMSG, 40, "the records begin behind the end of the file");
		return false;
	}
	p->closed = data.size != 0;
	p->off = data.off;
	p->end = p->end_told = p->file_size;
	if (p->closed && data.size <= p->file_size - data.off)
		p->end = p->end_told = data.off + data.size;
	else if (p->closed)
		p->end_told = data.size > UINT64_MAX - data.off ? UINT64_MAX : data.off + data.size;
	if (p->closed && p->end == p->end_told && has_features)
		read_features(p, header);
	return true;
}

/* Set up the stream mode of perf record -o -, whose header is only a magic number and a size. */
static bool open_pipe(struct perfdata *p)
{
	p->closed = true;
	p->off = PERFDATA_PIPE_HEADER_SIZE;
	p->end = p->end_told = p->seekable ? p->file_size : UINT64_MAX;
	if (!p->seekable)
		p->pipe.begin += PERFDATA_PIPE_HEADER_SIZE;
	return true;
}

/*
 * Read the header of a file or stream. Return false if nothing can be read; damage then says why.
 */
static bool read_header(struct perfdata *p)
{
	const uint8_t *head;
	size_t got;
	int err = peek(p, PERFDATA_PIPE_HEADER_SIZE, &head, &got);

	if (err) {
		damage(p, err, 0, "%s", strerror(-err));
		return false;
	}
	if (got >= 8 && !memcmp(head, "2ELIFREP", 8))
		damage(p, -ENOTSUP, 0, "recorded on a big-endian machine, which is not supported");
	else if (got >= 8 && !memcmp(head, "PERFFILE", 8))
		damage(p, -ENOTSUP, 0, "written by perf before Linux 3.2, which is not supported");
	else if (got < PERFDATA_PIPE_HEADER_SIZE || memcmp(head, "PERFILE2", 8) != 0)
		damage(p, -EBADMSG, 0, "not a recording of perf");
	else if (perfdata_u64(head + 8) == PERFDATA_PIPE_HEADER_SIZE)
		return open_pipe(p);
	else
		return open_file(p);
	return false;
}

/* Return the ELF machine for the name that uname -m prints, or EM_NONE. */
static uint16_t machine_of(const char *arch)
{
	if (!strcmp(arch, "x86_64") || !strcmp(arch, "amd64"))
		return EM_X86_64;
	if (!strcmp(arch, "aarch64") || !strcmp(arch, "arm64"))
		return EM_AARCH64;
	return EM_NONE;
}

/*
 * Guess the machine of a recording that does not name it: a pipe of an old perf, or a truncated
 * file.
 */
static uint16_t guess_machine(const struct perfdata *p)
{
	struct utsname here;

	/*
	 * On x86 the general registers have numbers below 24 and additional ones begin at 32.
	 * aarch64 uses the numbers 0 to 32.
	 */
	for (size_t i = 0; i < p->attrs.n; i++)
		if (p->attrs.attrs[i].attr.sample_regs_user)
			return p->attrs.attrs[i].attr.sample_regs_user & 0xff000000 ? EM_AARCH64
										    : EM_X86_64;
	return uname(&here) || machine_of(here.machine) == EM_NONE ? EM_X86_64
								   : machine_of(here.machine);
}

/*
 * Return whether the file was last written before this machine was booted. Such a file cannot be a
 * recording of the running kernel. Also true if the times cannot be read.
 */
static bool older_than_boot(int fd)
{
	struct timespec now, up;
	struct stat st;

	if (fstat(fd, &st) || clock_gettime(CLOCK_REALTIME, &now) ||
	    clock_gettime(CLOCK_BOOTTIME, &up))
		return true;
	return S_ISREG(st.st_mode) && st.st_mtim.tv_sec < now.tv_sec - up.tv_sec - 1;
}

/*
 * Return whether the recording was made under the running kernel, as far as the file shows. A
 * recording of user code only (cpu-clock:u) contains neither the kernel's address nor its
 * build-id. Then host name, kernel release and the age of the file must decide.
 */
static bool is_same_kernel(const struct perfdata *p)
{
	const struct source_info *info = &p->source.info;
	const struct uw_build_id *id = &info->kernel_build_id;
	struct uw_build_id running;
	struct utsname here;

	if (uname(&here) || !info->host[0] || strcmp(info->host, here.nodename) != 0 ||
	    strcmp(info->kernel, here.release) != 0)
		return false;
	perfdata_running_kernel(&running);
	return (!id->size || uw_build_id_equal(id, &running)) && !older_than_boot(p->fd);
}

/* Fill source.info from the facts that the recording contains. */
static void fill_info(struct perfdata *p)
{
	struct source_info *info = &p->source.info;
	struct utsname here;

	(void)snprintf(info->kind, sizeof(info->kind), "perf.data");
	(void)snprintf(info->host, sizeof(info->host), "%s", p->facts.host);
	(void)snprintf(info->kernel, sizeof(info->kernel), "%s", p->facts.kernel);
	(void)snprintf(info->recorder, sizeof(info->recorder), "%s", p->facts.recorder);
	(void)snprintf(info->command, sizeof(info->command), "%s", p->facts.command);
	info->kernel_build_id = p->facts.kernel_build_id;
	info->machine = p->facts.arch[0] ? machine_of(p->facts.arch) : guess_machine(p);
	info->same_kernel = is_same_kernel(p);
	info->other_host = info->host[0] && !uname(&here) && strcmp(info->host, here.nodename) != 0;
	/* The user of kallsyms must still check that _text is at kernel_text. */
	info->same_boot = info->same_kernel && info->kernel_text;
}

/*
 * Scan until the first kernel record. In a pipe, the records before it hold what the header of a
 * file holds.
 */
static void scan_head(struct perfdata *p)
{
	while (!p->scanned && !p->has_direct && !p->queue.n)
		scan(p);
	if (p->scanned)
		perfdata_queue_drain(&p->queue);
}

static const struct source_ops ops = { .next = next, .close = close_source };

int source_perfdata_open(int fd, const char *name, struct source **out, char *error)
{
	struct perfdata *p = calloc(1, sizeof(*p));
	off_t size = lseek(fd, 0, SEEK_END);
	int err = -ENOMEM;

	if (!p) {
		(void)snprintf(error, 512, "%.200s: %s", name, strerror(ENOMEM));
		(void)close(fd);
		return -ENOMEM;
	}
	p->source.ops = &ops;
	p->fd = fd;
	p->name = strdup(name);
	p->closed = true;
	p->seekable = size >= 0;
	p->end = p->file_size = p->seekable ? (uint64_t)size : 0;
	p->pipe.pool = p->inflated.pool = &p->pool;
	/*
	 * Without a random seed an attacker could build a file that is slow to read. That is no
	 * reason to refuse the file, so a failure is ignored.
	 */
	(void)getrandom(&p->facts.seed, sizeof(p->facts.seed), GRND_NONBLOCK);
	perfdata_attrs_init(&p->attrs, p->facts.seed);
	perfdata_queue_init(&p->queue);
	perfdata_window_init(&p->window, fd, p->file_size);
	p->scratch = malloc(PERFDATA_RECORD_MAX + 1);
	if (!p->name || !p->scratch) {
		(void)snprintf(error, 512, "%.200s: %s", name, strerror(ENOMEM));
		goto fail;
	}

	if (!read_header(p))
		goto damaged;
	scan_head(p);
	if (!p->attrs.n) {
		damage(p, -EBADMSG, p->off, "no event is described");
		goto damaged;
	}
	if (p->facts.is_directory) {
		p->err = 0;
		damage(p, -ENOTSUP, 0,
		       "its data lie in other files (perf record --threads), "
		       "which is not supported");
		goto damaged;
	}
	fill_info(p);
	if (p->source.info.machine == EM_NONE) {
		p->err = 0;
		damage(p, -ENOTSUP, 0, "recorded on %s, which is not supported", p->facts.arch);
		goto damaged;
	}
	*out = &p->source;
	return 0;

damaged:
	p->n_damaged = 0;
	p->closed = true;
	err = p->err;
	write_error(p, error, 512);
fail:
	close_source(&p->source);
	return err;
}

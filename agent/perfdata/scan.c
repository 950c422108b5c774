/*
 * agent/perfdata/scan.c: reads one record after another from the file, the pipe or the
 * decompressor, and puts each record that has a time into the queue.
 */
#include "agent/perfdata/reader_state.h"

#include "agent/perfdata/format.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/*
 * Limits for decompression, against zstd bombs. The unused part of each stack is zeros, but real
 * recordings still shrink only to a tenth or a hundredth.
 */
#define INFLATED_RATIO 1000u
#define INFLATED_MIN   (256u << 20)
#define BLOCKS_MAX     48u /* blocks of 1 MiB */

/* ---- bytes -------------------------------------------------------------------------- */

int perfdata_peek(struct perfdata *p, size_t size, const uint8_t **out, size_t *got)
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

/* Consume size bytes that perfdata_peek() returned. */
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

		if (perfdata_peek(p, one, &bytes, &got) || !got)
			return false;
		pass(p, got);
		size -= got;
	}
	return true;
}

/* ---- scanning ------------------------------------------------------------------------ */

void perfdata_take_attr(struct perfdata *p, uint64_t off, const uint8_t *attr, size_t size,
			const uint8_t *ids, size_t n_ids)
{
	int err = perfdata_attrs_add(&p->attrs, attr, size, ids, n_ids);

	p->source.info.events = p->attrs.events;
	p->source.info.n_events = p->attrs.n_events;
	if (err == -EBADMSG)
		perfdata_damage(p, err, off,
				"an event's description is too short or does not fit the others");
	else if (err == -E2BIG)
		perfdata_damage(p, -EBADMSG, off, "more events or ids than can be meant");
	else if (err)
		PERFDATA_STOP(p, err, off, "%s", strerror(-err));
}

/*
 * Read a record that perf itself wrote (not the kernel). These records hold what the header of a
 * file holds otherwise. All size bytes of the record are in memory.
 */
static void scan_user(struct perfdata *p, uint64_t off, const uint8_t *record, size_t size)
{
	uint32_t type = uw_bytes_little(record);
	int err = 0;

	switch (type) {
	case PERFDATA_HEADER_ATTR: {
		size_t attr = size >= 16 ? uw_bytes_little(record + 12) : 0;

		if (!attr)
			attr = PERF_ATTR_SIZE_VER0;
		if (size < 16 || attr > size - 8)
			err = -EBADMSG;
		else
			perfdata_take_attr(p, off, record + 8, attr, record + 8 + attr,
					   (size - 8 - attr) / 8);
		break;
	}
	case PERFDATA_HEADER_BUILD_ID:
		err = perfdata_facts_build_id(&p->facts, record, size);
		break;
	case PERFDATA_HEADER_FEATURE:
		/* An empty one ends the features. Its number is one more than the last that this perf knew. */
		if (size < 16)
			err = -EBADMSG;
		else if (size > 16 && uw_bytes_little8(record + 8) < PERFDATA_FEATURES)
			err = perfdata_facts_feature(&p->facts, &p->attrs,
						     (unsigned int)uw_bytes_little8(record + 8),
						     record + 16, size - 16);
		break;
	case PERFDATA_EVENT_UPDATE:
		if (size < 24)
			err = -EBADMSG;
		else if (uw_bytes_little8(record + 8) == PERFDATA_UPDATE_NAME)
			perfdata_attrs_name(&p->attrs, uw_bytes_little8(record + 16),
					    (const char *)record + 24, size - 24);
		break;
	case PERFDATA_FINISHED_ROUND:
		perfdata_queue_round(&p->queue);
		break;
	default: /* nothing we need */
		break;
	}
	if (err == -EBADMSG)
		perfdata_damage(p, err, off, "a record of type %u contradicts itself", type);
	else if (err)
		PERFDATA_STOP(p, err, off, "%s", strerror(-err));
}

/* Return whether records of this kernel type become events. */
static bool gives_events(uint32_t type)
{
	return type == PERF_RECORD_MMAP || type == PERF_RECORD_MMAP2 || type == PERF_RECORD_COMM ||
	       type == PERF_RECORD_FORK || type == PERF_RECORD_EXIT || type == PERF_RECORD_LOST ||
	       type == PERF_RECORD_LOST_SAMPLES || type == PERF_RECORD_SAMPLE ||
	       type == PERFDATA_CALLCHAIN_DEFERRED;
}

/*
 * Read the time of a kernel record. Return false if it has none; the values 0 and UINT64_MAX mean
 * that the time is unknown. What perf adds at the end belongs to all of the recording, and has its newest time.
 */
static bool read_time(const struct perfdata *p, const uint8_t *record, size_t size,
		      uint64_t *time_ns)
{
	const uint8_t *body = record + PERFDATA_RECORD_HEADER_SIZE;
	bool stated;

	size -= PERFDATA_RECORD_HEADER_SIZE;
	if (uw_bytes_little(record) == PERF_RECORD_SAMPLE)
		stated = perfdata_sample_time(perfdata_attrs_of_sample(&p->attrs, body, size), body,
					      size, time_ns);
	else
		stated = perfdata_record_time(perfdata_attrs_of_record(&p->attrs, body, size), body,
					      size, time_ns);
	if (stated && *time_ns >= PERFDATA_NO_TIME && *time_ns != UINT64_MAX)
		*time_ns = p->queue.newest_ns;
	return stated && *time_ns && *time_ns != UINT64_MAX;
}

/*
 * If the mapping record is the one of the kernel's text, store the address of _text and the
 * build-id of the kernel.
 */
static void find_kernel_text(struct perfdata *p, const uint8_t *bytes, size_t size)
{
	struct perfdata_record record = { .type = uw_bytes_little(bytes),
					  .misc = uw_bytes_little2(bytes + 4),
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
	uint32_t type = uw_bytes_little(record), size = uw_bytes_little2(record + 6);
	int err;

	if (!gives_events(type))
		return;
	if (type == PERF_RECORD_MMAP || type == PERF_RECORD_MMAP2)
		find_kernel_text(p, record, got);
	if (type == PERFDATA_CALLCHAIN_DEFERRED) {
		err = perfdata_deferred_add(&p->deferred, record + PERFDATA_RECORD_HEADER_SIZE,
					    got - PERFDATA_RECORD_HEADER_SIZE);
		if (err == -EBADMSG)
			perfdata_damage(p, err, p->off, "a record of type %u contradicts itself",
					type);
		else if (err)
			PERFDATA_STOP(p, err, p->off, "%s", strerror(-err));
		if (err)
			return;
	}
	if (copied)
		perfdata_hold(record);
	entry.order = p->n_records++ << 17 | size << 1 | (copied ? PERFDATA_ENTRY_COPIED : 0);
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
		PERFDATA_STOP(p, err, p->off, "%s", strerror(-err));
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
	bool second = uw_bytes_little(record) == PERFDATA_COMPRESSED2;
	size_t at = second ? 16 : 8;

	if (size < at || (second && uw_bytes_little8(record + 8) > size - at)) {
		PERFDATA_STOP(p, -EBADMSG, off, "a compressed record contradicts itself");
		return;
	}
	if (!p->zstd && !(p->zstd = ZSTD_createDCtx())) {
		PERFDATA_STOP(p, -ENOMEM, off, "%s", strerror(ENOMEM));
		return;
	}
	p->deflated = (ZSTD_inBuffer){ .src = record + at,
				       .size = second ? (size_t)uw_bytes_little8(record + 8)
						      : size - at };
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
		PERFDATA_STOP(p, err, p->deflated_off, "%s", strerror(-err));
		return;
	}
	out.dst = to;
	left = ZSTD_decompressStream(p->zstd, &out, &p->deflated);
	if (ZSTD_isError(left)) {
		PERFDATA_STOP(p, -EBADMSG, p->deflated_off, "compressed data are damaged: %s",
			      ZSTD_getErrorName(left));
		return;
	}
	perfdata_stream_filled(&p->inflated, out.pos);
	p->n_inflated += out.pos;
	if (p->n_inflated > INFLATED_MIN && p->n_inflated / INFLATED_RATIO > p->n_deflated) {
		PERFDATA_STOP(p, -EBADMSG, p->deflated_off,
			      "compressed data grow more than %u times", INFLATED_RATIO);
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
	type = uw_bytes_little(record);
	size = perfdata_record_size(record);
	if (!size || size > PERFDATA_RECORD_MAX || type == PERFDATA_COMPRESSED ||
	    type == PERFDATA_COMPRESSED2) {
		PERFDATA_STOP(p, -EBADMSG, p->deflated_off,
			      "no record where one must be (compressed)");
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
		perfdata_damage(p, -EBADMSG, p->deflated_off,
				"the compressed data end inside a record");
	if (p->seekable && p->end < p->end_declared)
		perfdata_damage(p, -EBADMSG, p->end, "the file ends here, %llu bytes short",
				(unsigned long long)(p->end_declared - p->end));
	if (!p->closed)
		perfdata_damage(p, -EBADMSG, p->off, "the file ends here");
}

/*
 * Return the size of the data that follow the record outside of its own size. Only two types have
 * such data; 0 for all others.
 */
static uint64_t payload_of(const uint8_t *record, size_t size)
{
	uint64_t stated;

	switch (uw_bytes_little(record)) {
	case PERFDATA_HEADER_TRACING_DATA: /* the record of simpleperf contains its data */
		stated = size >= 12 ? uw_bytes_little(record + 8) : 0;
		return stated > size - 12 ? stated : 0;
	case PERFDATA_AUXTRACE:
		return size >= 16 ? uw_bytes_little8(record + 8) : 0;
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
	int err = perfdata_peek(p, size, &record, &got);

	if (!err && !got) {
		scan_end(p);
		return;
	}
	if (!err && got == size) {
		type = uw_bytes_little(record);
		size = perfdata_record_size(record);
		if (!size) {
			PERFDATA_STOP(p, -EBADMSG, off,
				      "no record where one must be (type %u, size %u)", type,
				      uw_bytes_little2(record + 6));
			return;
		}
		if (perfdata_is_simpleperf(type)) {
			if (!skip(p, size)) /* nothing we need */
				PERFDATA_STOP(p, -EBADMSG, off, "the %s ends inside a record",
					      p->seekable ? "file" : "stream");
			return;
		}
		wanted = size;
		if (p->seekable && type == PERF_RECORD_SAMPLE &&
		    size > PERFDATA_RECORD_HEADER_SIZE + PERFDATA_SAMPLE_HEAD)
			wanted = PERFDATA_RECORD_HEADER_SIZE + PERFDATA_SAMPLE_HEAD;
		err = perfdata_peek(p, wanted, &record, &got);
		if (!err && got == wanted && p->seekable && size > p->end - off)
			got = (size_t)(p->end - off); /* the file ends inside the sample */
		else if (!err && got == wanted)
			got = size;
	}
	if (err) {
		PERFDATA_STOP(p, err, off, "%s", strerror(-err));
		return;
	}
	if (got < size) {
		p->torn_sample = type == PERF_RECORD_SAMPLE;
		PERFDATA_STOP(p, -EBADMSG, off, "the %s ends inside a record",
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
		PERFDATA_STOP(p, -EBADMSG, off, "the %s ends inside a record's data",
			      p->seekable ? "file" : "stream");
}

void perfdata_scan(struct perfdata *p)
{
	if (scan_inflated(p))
		return;
	if (p->inflating)
		inflate(p);
	else
		scan_next(p);
}

/* agent/live/system/sideband_record.c: decodes the records of the side-band. */
#include "agent/live/system/sideband_record.h"

#include <string.h>

/*
 * Return the string after a record's fixed part, or NULL if the string does not end before the
 * sample_id.
 */
static char *text_of(struct perf_event_header *record, size_t fixed)
{
	char *text = (char *)record + fixed;
	size_t room = record->size - fixed - sizeof(struct live_sample_id);

	return memchr(text, '\0', room) ? text : NULL;
}

/* Return the size of a record's fixed part; 0 for types that are not decoded. */
static size_t fixed_size(uint32_t type)
{
	switch (type) {
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		return sizeof(struct live_task_record);
	case PERF_RECORD_COMM:
		return sizeof(struct live_comm_record);
	case PERF_RECORD_MMAP2:
		return sizeof(struct live_mmap2_record);
	case PERF_RECORD_LOST:
		return sizeof(struct live_lost_record);
	default:
		return 0;
	}
}

/* Decode a mapping record. Return false if it is not sound. */
static bool decode_mapping(struct perf_event_header *record, const struct live_file *file,
			   struct event *event)
{
	const struct live_mmap2_record *r = (const void *)record;
	struct event_mapping *m = &event->mapping;
	char *path = text_of(record, sizeof(*r));
	size_t length;

	if (!path || !r->len || r->len > UINT64_MAX - r->addr)
		return false;
	event->type = EVENT_MAPPING;
	event->pid = r->pid;
	event->tid = r->tid;
	*m = (struct event_mapping){ .start = r->addr,
				     .end = r->addr + r->len,
				     .off = r->pgoff,
				     .prot = r->prot,
				     .path = path };
	if (record->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		if (r->build_id_size <= sizeof(r->build_id)) {
			m->build_id.size = r->build_id_size;
			memcpy(m->build_id.bytes, r->build_id, r->build_id_size);
		}
		if (file) {
			m->major = file->major;
			m->minor = file->minor;
			m->inode = file->inode;
			m->inode_generation = file->generation;
		}
	} else {
		m->major = r->maj;
		m->minor = r->min;
		m->inode = r->ino;
		m->inode_generation = r->ino_generation;
	}
	length = strlen(path);
	if (length > 10 && !strcmp(path + length - 10, " (deleted)")) {
		path[length - 10] = '\0';
		m->deleted = true;
	}
	return true;
}

bool live_sideband_pid(const struct perf_event_header *record, uint32_t *pid)
{
	if ((record->type != PERF_RECORD_MMAP2 && record->type != PERF_RECORD_COMM) ||
	    record->size < sizeof(struct live_comm_record))
		return false;
	/* pid is at the same place in both records. */
	*pid = ((const struct live_comm_record *)(const void *)record)->pid;
	return true;
}

/*
 * The layouts are in perf_event_open(2). Each record ends with struct live_sample_id, because
 * sample_id_all is set. An exec is a COMM record with a flag, and becomes two events.
 */
size_t live_sideband_decode(struct perf_event_header *record, const struct live_file *file,
			    struct event events[LIVE_DECODE_MAX])
{
	size_t fixed = fixed_size(record->type), n = 0;
	const struct live_task_record *task = (const void *)record;
	const struct live_comm_record *comm = (const void *)record;
	const struct live_lost_record *lost = (const void *)record;
	struct live_sample_id id;
	const char *name;

	if (!fixed || record->size < fixed + sizeof(id))
		return 0;
	memcpy(&id, (const uint8_t *)record + record->size - sizeof(id), sizeof(id));
	events[0] = events[1] = (struct event){ .time_ns = id.time_ns };
	switch (record->type) {
	case PERF_RECORD_FORK:
		events[n].type = EVENT_FORK;
		events[n].pid = task->pid;
		events[n].tid = task->tid;
		events[n++].fork =
			(struct event_fork){ .parent_pid = task->ppid, .parent_tid = task->ptid };
		break;
	case PERF_RECORD_EXIT:
		events[n].type = EVENT_EXIT;
		events[n].pid = task->pid;
		events[n++].tid = task->tid;
		break;
	case PERF_RECORD_COMM:
		name = text_of(record, sizeof(*comm));
		if (!name)
			return 0;
		if (record->misc & PERF_RECORD_MISC_COMM_EXEC) {
			events[n].type = EVENT_EXEC;
			events[n].pid = comm->pid;
			events[n++].tid = comm->tid;
		}
		events[n].type = EVENT_COMM;
		events[n].pid = comm->pid;
		events[n].tid = comm->tid;
		events[n++].comm.comm = name;
		break;
	case PERF_RECORD_MMAP2:
		n = decode_mapping(record, file, &events[0]);
		break;
	case PERF_RECORD_LOST:
		events[n].type = EVENT_LOST;
		events[n++].lost = (struct event_lost){ .reason = EVENT_LOST_RING_FULL,
							.n_sideband = lost->lost };
		break;
	default:
		break;
	}
	return n;
}

/*
 * agent/perfdata/records.c: translates mapping, fork, exit, name and loss records of
 * perf.data into events.
 */
#include "agent/perfdata/records.h"

#include "agent/perfdata/format.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/*
 * Return the string at offset at of the body; NULL if it does not end before the trailer, within
 * max bytes.
 */
static const char *string_at(const struct perfdata_record *record, uint32_t at, size_t max)
{
	uint32_t trailer = record->attr ? record->attr->trailer : 0;
	const char *string = (const char *)record->body + at;
	size_t room;

	if (record->size < trailer || record->size - trailer < at)
		return NULL;
	room = record->size - trailer - at;
	if (room > max)
		room = max;
	return memchr(string, 0, room) ? string : NULL;
}

/* Return whether the record is a mapping of the kernel. */
static bool is_kernels(const struct perfdata_record *record)
{
	return (record->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL ||
	       uw_bytes_little(record->body) == EVENT_PID_KERNEL;
}

/*
 * Return whether the record belongs to a virtual machine, whose files and memory are not available
 * here.
 */
static bool is_guests(const struct perfdata_record *record)
{
	uint16_t mode = record->misc & PERF_RECORD_MISC_CPUMODE_MASK;

	return mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_GUEST_USER ||
	       mode == PERF_RECORD_MISC_HYPERVISOR;
}

/*
 * MMAP:  u32 pid, tid; u64 addr, len, pgoff; path
 * MMAP2: u32 pid, tid; u64 addr, len, pgoff; 24 bytes of device, inode and
 *        generation, or of a build-id; u32 prot, flags; path
 */
enum { MMAP_PATH_AT = 32, MMAP2_PATH_AT = 64 };

static uint32_t path_at(const struct perfdata_record *record)
{
	return record->type == PERF_RECORD_MMAP2 ? MMAP2_PATH_AT : MMAP_PATH_AT;
}

/*
 * Return whether an MMAP2 record has a build-id.
 *
 * PERF_RECORD_MISC_MMAP_BUILD_ID cannot be trusted. If another program records with build-ids at
 * the same time, the kernel (6.18) leaves the bit that it set for that program's record in the
 * records of all other programs, too. So the bit counts only if the event asked for build-ids;
 * otherwise the fields hold a device and inode. perf inject adds valid build-ids to events that
 * did not ask for them; those have one of the two sizes in use.
 */
static bool has_build_id(const struct perfdata_record *record)
{
	const uint8_t *at = record->body + 32; /* u8 size, u8 reserved[3], u8 id[20] */

	if (!(record->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) || at[0] > 20)
		return false;
	return (record->attr && record->attr->attr.build_id) ||
	       ((at[0] == 16 || at[0] == 20) && !at[1] && !at[2] && !at[3]);
}

/* Read the additional fields of an MMAP2 record. */
static void read_mmap2(const struct perfdata_record *record, struct event_mapping *out)
{
	const uint8_t *body = record->body;

	out->prot = uw_bytes_little(body + 56) & (PROT_READ | PROT_WRITE | PROT_EXEC);
	if (has_build_id(record)) {
		out->build_id.size = body[32];
		memcpy(out->build_id.bytes, body + 36, body[32]);
		return;
	}
	out->major = uw_bytes_little(body + 32);
	out->minor = uw_bytes_little(body + 36);
	out->inode = uw_bytes_little8(body + 40);
	out->inode_generation = uw_bytes_little8(body + 48);
}

/* Make an EVENT_MAPPING. Return 1, or 0 if the record is not needed, or -EBADMSG. */
static int read_mapping(const struct perfdata_record *record, const struct perfdata_facts *facts,
			char *path, struct event *out)
{
	static const char suffix[] = " (deleted)";
	struct event_mapping *mapping = &out->mapping;
	const struct uw_build_id *reported;
	const char *given = string_at(record, path_at(record), PERFDATA_PATH_MAX);
	uint64_t length;
	size_t n;

	if (!given)
		return -EBADMSG;
	if (is_guests(record))
		return 0;
	out->type = EVENT_MAPPING;
	out->pid = is_kernels(record) ? EVENT_PID_KERNEL : uw_bytes_little(record->body);
	out->tid = uw_bytes_little(record->body + 4);
	*mapping = (struct event_mapping){ .start = uw_bytes_little8(record->body + 8),
					   .off = uw_bytes_little8(record->body + 24),
					   .path = given };
	length = uw_bytes_little8(record->body + 16);
	/*
	 * If the kernel hides its addresses, perf writes a mapping at address 0 that fills the
	 * address space.
	 */
	if (length > UINT64_MAX - mapping->start)
		length = UINT64_MAX - mapping->start;
	mapping->end = mapping->start + length;
	if (!length)
		return 0;
	if (record->type == PERF_RECORD_MMAP2)
		read_mmap2(record, mapping);
	else
		mapping->prot = record->misc & PERF_RECORD_MISC_MMAP_DATA ? PROT_READ | PROT_WRITE
									  : PROT_READ | PROT_EXEC;
	reported = perfdata_facts_find(facts, given);
	if (!reported && out->pid == EVENT_PID_KERNEL && !strncmp(given, "[kernel.kallsyms]", 17))
		reported = &facts->kernel_build_id;
	if (reported && !mapping->build_id.size)
		mapping->build_id = *reported;

	n = strlen(given);
	if (n >= sizeof(suffix) - 1 && !strcmp(given + n - (sizeof(suffix) - 1), suffix)) {
		n -= sizeof(suffix) - 1;
		memcpy(path, given, n);
		path[n] = 0;
		mapping->path = path;
		mapping->deleted = true;
	}
	return 1;
}

/* Make an EVENT_FORK or EVENT_EXIT. Layout: u32 pid, ppid, tid, ptid; u64 time. */
static int read_fork(const struct perfdata_record *record, struct event out[2])
{
	const uint8_t *body = record->body;
	/* The kernel has always filled in the time that is a part of these records; perf leaves it 0. */
	bool made_by_perf =
		record->misc & PERF_RECORD_MISC_FORK_EXEC || !uw_bytes_little8(body + 16);

	out[0].type = record->type == PERF_RECORD_FORK ? EVENT_FORK : EVENT_EXIT;
	out[0].pid = uw_bytes_little(body);
	out[0].tid = uw_bytes_little(body + 8);
	if (out[0].type == EVENT_EXIT)
		return 1;
	out[0].fork.parent_pid = uw_bytes_little(body + 4);
	out[0].fork.parent_tid = uw_bytes_little(body + 12);
	/*
	 * For processes that were running before the recording, perf writes a fork and then all of
	 * their mappings. They do not inherit what the parent has mapped at that time, so an
	 * EVENT_EXEC clears it.
	 */
	if (!made_by_perf || !record->attr || out[0].pid == out[0].fork.parent_pid)
		return 1;
	out[1] = (struct event){ .type = EVENT_EXEC, .pid = out[0].pid, .tid = out[0].tid };
	return 2;
}

/*
 * Make an EVENT_COMM, after an EVENT_EXEC if the name was set by an exec. Layout: u32 pid, tid;
 * name.
 */
static int read_comm(const struct perfdata_record *record, struct event out[2])
{
	const char *comm = string_at(record, 8, 256);
	int n = 0;

	if (!comm)
		return -EBADMSG;
	if (record->misc & PERF_RECORD_MISC_COMM_EXEC)
		out[n++].type = EVENT_EXEC;
	out[n].type = EVENT_COMM;
	out[n].comm.comm = comm;
	for (int i = 0; i <= n; i++) {
		out[i].pid = uw_bytes_little(record->body);
		out[i].tid = uw_bytes_little(record->body + 4);
	}
	return n + 1;
}

/*
 * Make an EVENT_LOST. Layout of LOST: u64 id, n. Layout of LOST_SAMPLES: u64 n.
 *
 * LOST counts records of any kind; nearly all of them are samples. Its id is that of the event
 * whose record found room again.
 */
static int read_lost(const struct perfdata_record *record, struct event *out)
{
	uint64_t n = uw_bytes_little8(record->body + (record->type == PERF_RECORD_LOST ? 8 : 0));

	if (record->type == PERF_RECORD_LOST_SAMPLES && record->misc & PERFDATA_MISC_LOST_BPF)
		return 0; /* not wanted, and not lost */
	*out = (struct event){ .type = EVENT_LOST,
			       .lost = { .reason = EVENT_LOST_RING_FULL, .n_samples = n } };
	return n != 0;
}

/*
 * Check the sizes of all types here, so that each reader finds the fixed part of its record
 * complete.
 */
int perfdata_record_read(const struct perfdata_record *record, const struct perfdata_facts *facts,
			 char path[PERFDATA_PATH_MAX], struct event out[2])
{
	static const struct {
		uint32_t type, size;
	} least[] = {
		{ PERF_RECORD_MMAP, MMAP_PATH_AT + 1 },
		{ PERF_RECORD_MMAP2, MMAP2_PATH_AT + 1 },
		{ PERF_RECORD_FORK, 24 },
		{ PERF_RECORD_EXIT, 24 },
		{ PERF_RECORD_COMM, 8 + 1 },
		{ PERF_RECORD_LOST, 16 },
		{ PERF_RECORD_LOST_SAMPLES, 8 },
	};

	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++)
		if (record->type == least[i].type && record->size < least[i].size)
			return -EBADMSG;
	switch (record->type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		return read_mapping(record, facts, path, &out[0]);
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		return read_fork(record, out);
	case PERF_RECORD_COMM:
		return read_comm(record, out);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		return read_lost(record, &out[0]);
	default:
		return 0;
	}
}

uint64_t perfdata_record_kernel_text(const struct perfdata_record *record,
				     struct uw_build_id *build_id)
{
	struct event_mapping mapping = { 0 };
	const char *path;

	if ((record->type != PERF_RECORD_MMAP && record->type != PERF_RECORD_MMAP2) ||
	    record->size <= path_at(record) || !is_kernels(record))
		return 0;
	/* perf appends to the bracketed name the symbol whose address is in pgoff. */
	path = string_at(record, path_at(record), PERFDATA_PATH_MAX);
	if (!path || strcmp(path, "[kernel.kallsyms]_text") != 0)
		return 0;
	if (record->type == PERF_RECORD_MMAP2)
		read_mmap2(record, &mapping);
	if (mapping.build_id.size)
		*build_id = mapping.build_id;
	return uw_bytes_little8(record->body + 24);
}

/*
 * agent/live/system/sideband_record.h: the records of the side-band as the kernel lays them out
 * (include/uapi/linux/perf_event.h, enum perf_event_type), and what they say.
 */
#ifndef AGENT_LIVE_SYSTEM_SIDEBAND_RECORD_H
#define AGENT_LIVE_SYSTEM_SIDEBAND_RECORD_H

#include "agent/event.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At the end of each record, because of sample_id_all. sample_type selects the fields. */
struct live_sample_id {
	uint32_t pid, tid;
	uint64_t time_ns;
	uint64_t id; /* of the event that wrote the record */
	uint32_t cpu, reserved;
};

struct live_task_record { /* PERF_RECORD_FORK, PERF_RECORD_EXIT */
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time_ns;
};

struct live_comm_record { /* followed by the name */
	struct perf_event_header header;
	uint32_t pid, tid;
};

struct live_mmap2_record { /* followed by the path */
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	union {
		struct {
			uint32_t maj, min;
			uint64_t ino, ino_generation;
		};
		struct { /* if PERF_RECORD_MISC_MMAP_BUILD_ID is set */
			uint8_t build_id_size, reserved[3];
			uint8_t build_id[20];
		};
	};
	uint32_t prot, flags;
};

struct live_lost_record {
	struct perf_event_header header;
	uint64_t id, lost;
};

_Static_assert(sizeof(struct live_sample_id) == 32, "as the kernel writes it");
_Static_assert(sizeof(struct live_task_record) == 32, "as the kernel writes it");
_Static_assert(sizeof(struct live_comm_record) == 16, "as the kernel writes it");
_Static_assert(sizeof(struct live_mmap2_record) == 72, "as the kernel writes it");
_Static_assert(sizeof(struct live_lost_record) == 24, "as the kernel writes it");

/* The file of a mapping: what its record cannot hold in addition to the build-id. */
struct live_file {
	uint32_t pid;
	uint32_t major, minor;
	uint64_t start, size;
	uint64_t inode, generation;
};

/* Get the process of a mapping record or a name record. Return false for every other record. */
bool live_sideband_pid(const struct perf_event_header *record, uint32_t *pid);

/*
 * Decode a record into up to two events. Their strings are in the record, which is changed. Return
 * the number of events; 0 if the record is damaged or of no interest.
 */
#define LIVE_DECODE_MAX 2
size_t live_sideband_decode(struct perf_event_header *record, const struct live_file *file,
			    struct event events[LIVE_DECODE_MAX]);

#endif

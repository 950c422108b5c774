/*
 * agent/perfdata/format.h: the layout of perf.data files, as far as the kernel's
 * <linux/perf_event.h> does not define it. All numbers are little-endian.
 *
 * File mode:
 *
 *    0  magic "PERFILE2"
 *    8  u64 size of this header: 104
 *   16  u64 attr_size: size of one entry of the attrs section
 *   24  section attrs         section: u64 offset, u64 size
 *   40  section data          records; size 0: perf was killed before it wrote the size
 *   56  section event types   unused
 *   72  u64[4] features       bit i: feature i has a section
 *
 * An attrs entry is a perf_event_attr and a section with its u64 ids. The sections of the features
 * follow right after the data: one for each bit that is set, lowest bit first.
 *
 * Pipe mode: magic, u64 size = 16, then records. Records of their own hold what the header of a
 * file holds.
 */
#ifndef AGENT_PERFDATA_FORMAT_H
#define AGENT_PERFDATA_FORMAT_H

#include "base/bytes.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	PERFDATA_PIPE_HEADER_SIZE = 16,
	PERFDATA_FILE_HEADER_SIZE = 104,
	PERFDATA_SECTION_SIZE = 16,
	PERFDATA_RECORD_HEADER_SIZE = 8, /* u32 type, u16 misc, u16 size */
	PERFDATA_RECORD_MAX = 65535,	 /* the largest 16-bit size */
};

/* Record types that perf itself writes (tools/lib/perf: enum perf_user_event_type). */
enum {
	PERFDATA_USER_TYPES = 64,
	PERFDATA_HEADER_ATTR = 64,
	PERFDATA_HEADER_EVENT_TYPE = 65,
	PERFDATA_HEADER_TRACING_DATA = 66,
	PERFDATA_HEADER_BUILD_ID = 67,
	PERFDATA_FINISHED_ROUND = 68,
	PERFDATA_ID_INDEX = 69,
	PERFDATA_AUXTRACE_INFO = 70,
	PERFDATA_AUXTRACE = 71,
	PERFDATA_EVENT_UPDATE = 78,
	PERFDATA_HEADER_FEATURE = 80,
	PERFDATA_COMPRESSED = 81,
	PERFDATA_FINISHED_INIT = 82,
	PERFDATA_COMPRESSED2 = 83,
	PERFDATA_TYPES = 128, /* larger than all types of perf */
	/*
	 * Record types of Android's simpleperf. Their size has 32 bits, of which the upper 16 are
	 * where misc is otherwise.
	 */
	PERFDATA_SIMPLEPERF = 32768,
	PERFDATA_SIMPLEPERF_TYPES = PERFDATA_SIMPLEPERF + 128, /* a larger type is damage */
};

enum { PERFDATA_UPDATE_NAME = 2 }; /* kind of PERFDATA_EVENT_UPDATE */

enum { /* features */
       PERFDATA_FEATURE_BUILD_ID = 2,
       PERFDATA_FEATURE_HOSTNAME = 3,
       PERFDATA_FEATURE_OSRELEASE = 4,
       PERFDATA_FEATURE_VERSION = 5,
       PERFDATA_FEATURE_ARCH = 6,
       PERFDATA_FEATURE_CMDLINE = 11,
       PERFDATA_FEATURE_EVENT_DESC = 12,
       PERFDATA_FEATURE_DIR_FORMAT = 24,
       PERFDATA_FEATURE_CLOCK_DATA = 29,
       PERFDATA_FEATURES = 256,
};

enum { PERFDATA_MISC_BUILD_ID_SIZE = 1 << 15 }; /* in HEADER_BUILD_ID: its size byte is valid */
enum { PERFDATA_MISC_LOST_BPF = 1 << 15 }; /* in LOST_SAMPLES: what a filter of perf's left out */

/*
 * perf's samples of waits (perf record --off-cpu) that it writes at the end have this instead of a time, and more for each
 * further one.
 */
#define PERFDATA_NO_TIME (UINT64_MAX << 32)

/* Missing in the oldest <linux/perf_event.h> that this builds with. */
enum { PERFDATA_FORMAT_LOST = 1 << 4, PERFDATA_BRANCH_COUNTERS = 1 << 19 };
enum { PERFDATA_CALLCHAIN_DEFERRED = 22 };	   /* PERF_RECORD_CALLCHAIN_DEFERRED */
#define PERFDATA_CONTEXT_DEFERRED ((uint64_t)-640) /* PERF_CONTEXT_USER_DEFERRED */

static inline bool perfdata_is_simpleperf(uint32_t type)
{
	return type >= PERFDATA_SIMPLEPERF;
}

/* Return the size of the record with this header, or 0 if it cannot be the header of a record. */
static inline uint32_t perfdata_record_size(const uint8_t *header)
{
	uint32_t type = uw_bytes_little(header), size = uw_bytes_little2(header + 6);

	if (perfdata_is_simpleperf(type))
		size |= (uint32_t)uw_bytes_little2(header + 4) << 16;
	if (!type || (type >= PERFDATA_TYPES && !perfdata_is_simpleperf(type)) ||
	    type >= PERFDATA_SIMPLEPERF_TYPES || size < PERFDATA_RECORD_HEADER_SIZE)
		return 0;
	return size;
}

#endif

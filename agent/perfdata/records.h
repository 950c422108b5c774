/*
 * agent/perfdata/records.h: translates records of perf.data that are not samples into
 * events. Some records become two events: perf.data reports an exec as a new name (COMM with a
 * flag), and a process that is older than the recording as a FORK.
 */
#ifndef AGENT_PERFDATA_RECORDS_H
#define AGENT_PERFDATA_RECORDS_H

#include "agent/perfdata/attrs.h"
#include "agent/perfdata/facts.h"

#define PERFDATA_PATH_MAX 4096 /* as the kernel's PATH_MAX, with its NUL */

struct perfdata_record {
	uint32_t type;
	uint16_t misc;
	const uint8_t *body;		  /* what follows the header */
	uint32_t size;			  /* of body */
	const struct perfdata_attr *attr; /* NULL: unknown */
	bool has_time; /* true: made by the kernel at time_ns; false: made by perf */
	uint64_t time_ns;
};

/*
 * Fill up to two events, whose strings are in the record or in path. Return their number, which is
 * 0 for a record that is not needed, or -EBADMSG.
 */
int perfdata_record_read(const struct perfdata_record *record, const struct perfdata_facts *facts,
			 char path[PERFDATA_PATH_MAX], struct event out[2]);

/*
 * Return the run-time address of _text if the record is the mapping that has it, else 0. *build_id
 * is set to the kernel's build-id if that mapping has one.
 */
uint64_t perfdata_record_kernel_text(const struct perfdata_record *record,
				     struct uw_build_id *build_id);

#endif

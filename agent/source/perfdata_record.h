/*
 * agent/source/perfdata_record.h: a record that is no sample → an event, or
 * two: an exec is told as a new name, a process of the time before the
 * recording as a fork.
 */
#ifndef AGENT_SOURCE_PERFDATA_RECORD_H
#define AGENT_SOURCE_PERFDATA_RECORD_H

#include "agent/source/perfdata_attrs.h"
#include "agent/source/perfdata_facts.h"

#define PERFDATA_PATH_MAX 4096 /* as the kernel's PATH_MAX, with its NUL */

struct perfdata_record {
	uint32_t type;
	uint16_t misc;
	const uint8_t *body;		  /* what follows the header */
	uint32_t size;			  /* of body */
	const struct perfdata_attr *attr; /* NULL: not known */
	bool has_time;			  /* the kernel made it, at this time; else perf did */
	uint64_t time_ns;
};

/*
 * Fills up to two events, whose strings stand in the record or in path.
 * Their number, 0 for a record that says nothing to us, or -EBADMSG.
 */
int perfdata_record_read(const struct perfdata_record *record, const struct perfdata_facts *facts,
			 char path[PERFDATA_PATH_MAX], struct event out[2]);

/*
 * Run-time address of _text, if the record is the mapping that tells it; else 0.  *build_id: the
 * kernel's, where that mapping has it.
 */
uint64_t perfdata_record_kernel_text(const struct perfdata_record *record,
				     struct uw_build_id *build_id);

#endif

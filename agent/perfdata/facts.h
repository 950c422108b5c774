/*
 * agent/perfdata/facts.h: facts about a perf.data recording: where, when and with what it
 * was made, and the build-ids of the mapped files.
 */
#ifndef AGENT_PERFDATA_FACTS_H
#define AGENT_PERFDATA_FACTS_H

#include "agent/perfdata/attrs.h"

#define PERFDATA_FEATURE_MAX	    (64u << 20) /* bytes of one feature; more is damage */
#define PERFDATA_BUILD_ID_NAMES_MAX (32u << 20) /* bytes of file names; more are ignored */

struct perfdata_build_id {
	char *name; /* owned; NULL: the slot is free */
	struct uw_build_id id;
};

struct perfdata_facts {
	char arch[16]; /* as uname -m prints it; "" if unknown */
	char host[65], kernel[65], recorder[64];
	char command[512];
	bool is_directory; /* the samples are in other files */
	bool has_clock;
	uint64_t wall_ns, clock_ns; /* one moment on both clocks */
	struct uw_build_id kernel_build_id;
	struct perfdata_build_id *build_ids;
	size_t n_build_ids, room_build_ids, names_size;
	struct uw_hash_index by_name;
};

void perfdata_facts_fini(struct perfdata_facts *facts);

/* Return whether perfdata_facts_feature() reads this feature. */
bool perfdata_facts_wants(unsigned int feature);

/*
 * Read a feature section. Names of events are stored in attrs. -EBADMSG: the section is damaged;
 * what was read before the damage stays.
 */
int perfdata_facts_feature(struct perfdata_facts *facts, struct perfdata_attrs *attrs,
			   unsigned int feature, const uint8_t *bytes, size_t size);

/* Read a HEADER_BUILD_ID record, which begins with its header. */
int perfdata_facts_build_id(struct perfdata_facts *facts, const uint8_t *record, size_t size);

/*
 * Return the build-id of the file with this name, as in its mappings; NULL: unknown. The result is
 * borrowed until the next build-id is added.
 */
const struct uw_build_id *perfdata_facts_find(const struct perfdata_facts *facts, const char *name);

#endif

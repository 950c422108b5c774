/*
 * agent/source/perfdata_facts.h: what a recording says about itself: where,
 * when and with what it was made, and the build-ids of files it met.
 */
#ifndef AGENT_SOURCE_PERFDATA_FACTS_H
#define AGENT_SOURCE_PERFDATA_FACTS_H

#include "agent/source/perfdata_attrs.h"

#define PERFDATA_FEATURE_MAX	    (64u << 20) /* bytes of one feature; more is damage */
#define PERFDATA_BUILD_ID_NAMES_MAX (32u << 20) /* bytes of file names; more are ignored */

struct perfdata_build_id {
	char *name; /* owned; NULL: the slot is free */
	struct uw_build_id id;
};

struct perfdata_facts {
	char arch[16]; /* as uname -m says it; "" where not told */
	char host[65], kernel[65], recorder[64];
	char command[512];
	bool is_directory; /* the data lie in other files */
	bool has_clock;
	uint64_t wall_ns, clock_ns; /* the same moment on both clocks */
	struct uw_build_id kernel_build_id;
	struct perfdata_build_id *build_ids; /* open addressing, at most half full */
	size_t n_build_ids, build_ids_room, names_size;
	uint64_t seed; /* of the hash: what nobody can guess */
};

void perfdata_facts_fini(struct perfdata_facts *facts);

/* Whether perfdata_facts_feature takes anything from this feature. */
bool perfdata_facts_wants(unsigned int feature);

/* Event names go to attrs.  -EBADMSG: damaged; what came before the damage is kept. */
int perfdata_facts_feature(struct perfdata_facts *facts, struct perfdata_attrs *attrs,
			   unsigned int feature, const uint8_t *bytes, size_t size);

/* One HEADER_BUILD_ID record, from its header on. */
int perfdata_facts_build_id(struct perfdata_facts *facts, const uint8_t *record, size_t size);

/* By the name a mapping has; NULL: not told. */
const struct uw_build_id *perfdata_facts_find(const struct perfdata_facts *facts, const char *name);

/* The build-id of the kernel that runs here, size 0 where it cannot be read. */
void perfdata_running_kernel(struct uw_build_id *out);

#endif

/* agent/fleet/reading.h: reads sums by stack from the fleet, with all that they refer to, as a profile. */
#ifndef AGENT_FLEET_READING_H
#define AGENT_FLEET_READING_H

#include "agent/fleet/fleet.h"
#include "agent/fleet/queries.h"

struct fleet_type {
	uint32_t id;
	bool counted;		   /* what was asked for is in n, not in value */
	char name[256], unit[256]; /* of value */
	char counts[256];	   /* of n; "": there is none */
};

/*
 * Add the types, the samples and all that they refer to to a profile. any: there are batches in the range. A negative
 * code: the reply of asked may say why, or does not yet.
 */
int reading_do(struct fleet *f, const struct query_sums *asked, const struct fleet_type *type,
	       bool any, struct stacks *s, struct history_found *found);

#endif

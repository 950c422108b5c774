/* agent/export/profile/ranking_json.h: prints the table of offwind report as one JSON object, for scripts. */
#ifndef AGENT_EXPORT_PROFILE_RANKING_JSON_H
#define AGENT_EXPORT_PROFILE_RANKING_JSON_H

#include "agent/export/profile/ranking.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ranking_json {
	char **paths; /* of the profiles; borrowed, as all strings here */
	int n_paths;
	const char *base; /* the profile that they are compared with; NULL: none */
	size_t n;	  /* most rows; 0: all */
	const char *sort; /* what the rows are ordered by: "self", "total", "change" */
};

/*
 * Write the profile's header data, and the first rows of a sorted ranking of its values of that
 * type.
 */
void ranking_json_print(const struct stacks *stacks, size_t type, const struct ranking *ranking,
			const struct ranking_json *options, FILE *out);

#endif

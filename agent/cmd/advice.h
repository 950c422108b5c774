/*
 * agent/cmd/advice.h: what to install where functions have no names.
 */
#ifndef AGENT_CMD_ADVICE_H
#define AGENT_CMD_ADVICE_H

#include "agent/pipeline/unnamed.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct advice_places {
	const char *packages; /* dpkg's lists of files: a folder of PACKAGE.list; may not exist */
	bool fetches;	      /* debuginfod servers are asked already */
	uint64_t limit_ns;    /* how long reading the lists may take */
};

/*
 * Write one sentence without a line's end: the share of functions without names, the files that most of it is in,
 * and what to do; "" where the share is below 5 %.
 */
void advice_text(const struct unnamed *unnamed, const struct advice_places *places, char *out,
		 size_t size);

/* Print it of this system, unless --quiet. */
void advice_say(const struct unnamed *unnamed);

#endif

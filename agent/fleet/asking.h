/* agent/fleet/asking.h: asks the fleet's server one query in SQL, and reads texts of its reply. */
#ifndef AGENT_FLEET_ASKING_H
#define AGENT_FLEET_ASKING_H

#include "agent/export/profile/stacks.h"
#include "agent/fleet/fleet.h"
#include "base/bytes.h"

#include <stdio.h>

struct sql { /* a query that is written */
	FILE *out;
	char *text;
	size_t size;
};

/* Begin a query. -ENOMEM. */
int sql_begin(struct sql *q);
/* Give it up without asking it. */
void sql_drop(struct sql *q);
/*
 * Ask the query, which is ended here. ids NULL: it needs none. The caller frees *text, to which *out refers. A negative
 * code: the reply says why there is no answer.
 */
int sql_ask(struct sql *q, struct fleet *f, struct http_reply *reply, const struct fleet_ids *ids,
	    char **text, struct uw_bytes *out);

/* Say in the reply that the fleet gave no answer, for the reason err. Return -EINVAL. */
int sql_unreachable(struct http_reply *reply, int err);

/* Read a text into the profile's texts. NULL: it is damaged, or there is no memory. */
const char *sql_take_text(struct uw_bytes *b, struct stacks *s);
/* Read a text into a buffer; what does not fit is cut. */
void sql_take_short(struct uw_bytes *b, char *out, size_t room);

#endif

/* agent/fleet/condition.h: the conditions of a request in ClickHouse's SQL. */
#ifndef AGENT_FLEET_CONDITION_H
#define AGENT_FLEET_CONDITION_H

#include "agent/history/history.h"
#include "agent/http/http.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Write a text as a literal. */
void condition_text(FILE *sql, const char *text);
/* Write the value of a label of a row in label_sets. */
void condition_value(FILE *sql, const char *key);

/* What labels the conditions of a request are on. */
enum condition_labels { CONDITION_NO_LABELS, CONDITION_HOSTS, CONDITION_LABELS };
/* Return whether the request has conditions on hosts alone, or on other labels; base: of the base. */
enum condition_labels condition_labels(const struct http_request *r, bool base);

/* Return whether the request has conditions on functions or files. */
bool condition_has_frames(const struct http_request *r);

/* Say in the reply that processes and threads are not told apart. Return -EINVAL. */
int condition_no_processes(struct http_reply *reply, const char *key);

/* Which part of a range: tables by hour have the hours that lie in it as a whole, and others have the rest. */
enum condition_part { CONDITION_ALL, CONDITION_WHOLE_HOURS, CONDITION_OTHER_HOURS };

/* Which stacks: those that meet the conditions on functions and files, all, or those that do not meet them. */
enum condition_stacks { CONDITION_MATCHING, CONDITION_ALL_STACKS, CONDITION_OTHER_STACKS };

struct condition_range {
	uint64_t from_ns, to_ns;
	bool base; /* the conditions on labels are those of the base */
	enum condition_part part;
	enum condition_stacks stacks;
	bool all_labels; /* without the conditions on labels */
};

/*
 * Write the conditions on functions and files, of which there must be some; CONDITION_OTHER_STACKS: that one of them is not met.
 * -EINVAL: see condition_write.
 */
int condition_frames(FILE *sql, const struct http_request *r, struct http_reply *reply,
		     enum condition_stacks stacks);

/* Write the condition that a row's time is in a range. */
void condition_time(FILE *sql, const struct condition_range *range);

/*
 * Write the conditions on rows of the table samples (of a table by hour for whole hours): type, time, functions, labels.
 * -EINVAL: one cannot be asked; the reply says which.
 */
int condition_write(FILE *sql, const struct http_request *r, struct http_reply *reply,
		    const struct condition_range *range, uint32_t type);

#endif

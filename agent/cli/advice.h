/* agent/cli/advice.h: advises the user what to install if functions have no names. */
#ifndef AGENT_CLI_ADVICE_H
#define AGENT_CLI_ADVICE_H

#include "agent/pipeline/unnamed.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct advice_places {
	const char *packages; /* directory of dpkg's file lists (PACKAGE.list); need not exist */
	bool fetches;	      /* debuginfod servers are already used */
	uint64_t limit_ns;    /* at most this long is spent on reading the lists */
};

/*
 * Write one sentence, without a newline, into out: the share of functions without names, the files
 * with most of it, and what to do. Write "" if the share is below 5 % or cannot be known
 * (unnamed->unsure).
 */
void advice_text(const struct unnamed *unnamed, const struct advice_places *places, char *out,
		 size_t size);

/*
 * Print the sentence for this system, unless --quiet was given. A worker cannot read the lists, and
 * has its supervisor print the sentence.
 */
void advice_say(const struct unnamed *unnamed);
/* In the supervisor: print the sentence for what a worker sent (FILES_ADVISE). */
struct message;
void advice_serve(struct message *m);

#endif

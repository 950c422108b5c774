/* agent/send/sent.h: the file that says how far each target got (schema/sent_file.h). */
#ifndef AGENT_SEND_SENT_H
#define AGENT_SEND_SENT_H

#include "agent/history/history.h"

#include <stddef.h>

/*
 * Open the file of the history at path, or make it; one that is damaged is replaced, with a warning. Errors are reported.
 * The descriptor *out is the caller's.
 */
int sent_open(const char *history, int *out);
/*
 * Find the slot of a target. A new target gets a free one, or that of the target that was sent to the longest time ago,
 * and the place *begin. busy: the slots that other targets of this process have; the slot is added to it. Return the
 * slot's number, and *place, or a negative code.
 */
int sent_find(int fd, const char *kind, const char *url, const struct history_place *begin,
	      uint64_t *busy, struct history_place *place);
/* Note how far the target of a slot got. Return 0 or a negative code. Threads may use different slots. */
int sent_put(int fd, int slot, const struct history_place *place);

#endif

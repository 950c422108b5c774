/*
 * agent/send/parts.h: sends a window in as many parts as its size takes, and goes on behind the last part
 * that was sent when the window is sent again.
 */
#ifndef AGENT_SEND_PARTS_H
#define AGENT_SEND_PARTS_H

#include "agent/send/target.h"

#include <stddef.h>

struct parts { /* all zero: nothing was sent */
	int64_t window;
	size_t done; /* samples of stacks that are settled */
	size_t step; /* how many to send at once */
	uint64_t n_bytes, dropped[SENDING_DROP_N];
};

/* In addition to enum send_outcome: the part is too large, and is to be divided. */
enum { PART_TOO_LARGE = SEND_REFUSED + 1 };

/*
 * Send the samples [from, to) of the window's stacks, as target_kind.send does, or return PART_TOO_LARGE.
 * report->n_bytes and report->dropped are of this part.
 */
typedef int (*parts_send_fn)(void *ctx, const struct send_window *window, size_t from, size_t to,
			     struct send_report *report);

/* Send a window by parts of at most most samples of stacks. */
enum send_outcome parts_send(struct parts *parts, const struct send_window *window, size_t most,
			     parts_send_fn send, void *ctx, struct send_report *report);

/* Return how many samples were taken that the samples [from, to) of stacks stand for. */
uint64_t parts_count(const struct stacks *stacks, size_t from, size_t to);

#endif

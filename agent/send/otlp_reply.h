/* agent/send/otlp_reply.h: what a receiver of OTLP profiles says of a request. */
#ifndef AGENT_SEND_OTLP_REPLY_H
#define AGENT_SEND_OTLP_REPLY_H

#include "agent/send/post.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Read the message of a request that was taken, and how many of its profiles were rejected: as many of its samples.
 * Return SEND_DONE, or SEND_AGAIN if it is no such message.
 */
int otlp_read_response(const char *bytes, size_t size, size_t n_profiles, uint64_t n_samples,
		       struct send_report *report);
/* Do the same with a reply by HTTP. Return an outcome of parts_send_fn. */
int otlp_read_reply(const struct post_reply *reply, size_t n_profiles, uint64_t n_samples,
		    struct send_report *report);

#endif

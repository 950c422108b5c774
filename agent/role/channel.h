/*
 * agent/role/channel.h: requests from one process to another, each with one reply.
 *
 * A channel is a pair of connected sockets, made before the fork. Several threads may ask at once: each
 * takes the first free channel, and waits for one if all are taken. At the other end each channel has a
 * thread, so a request that never ends, for a file that does not answer, occupies one channel. Such a
 * thread begins when the channel before is used for the first time.
 */
#ifndef AGENT_ROLE_CHANNEL_H
#define AGENT_ROLE_CHANNEL_H

#include "agent/role/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channels;

#define CHANNELS_MAX 64

/* Make n channels, CHANNELS_MAX at most. -EMFILE, -ENOMEM, … */
int channels_new(size_t n, struct channels **out);
/* Close the ends that this process has. NULL is fine. */
void channels_free(struct channels *channels);

/* In the process that asks: close the ends of the process that answers. */
void channels_ask(struct channels *channels);
/*
 * In the process that answers: close the other ends and answer requests until the asking process is
 * gone. handle is called by several threads at once, and fills reply, which is empty. The files in
 * reply are closed after it was sent; those in request, unless handle took them.
 */
typedef void (*channel_handle_fn)(void *ctx, struct message *request, struct message *reply);
void channels_answer(struct channels *channels, channel_handle_fn handle, void *ctx);

/*
 * For a process that answers between other work: the first channel's descriptor, which is readable
 * when there is a request; and wait up to timeout_ms (-1: without limit) for a request and answer it.
 * Return 0, also if there was none, or -EPIPE if the asking process is gone.
 */
int channels_answer_fd(const struct channels *channels);
int channels_answer_next(struct channels *channels, int timeout_ms, channel_handle_fn handle,
			 void *ctx);

/*
 * Send a request and wait for its reply. request and reply may be the same message. The caller calls
 * message_fini(reply) after a success. A process that follows one that ended, with the same channels,
 * does not get replies to that one. -EPIPE: the other process is gone.
 */
int channels_call(struct channels *channels, struct message *request, struct message *reply);
/* CHANNEL_SLOW: nor does channels_hang count the request, and half of the channels stay for others. */
enum { CHANNEL_NO_LIMIT = -1, CHANNEL_SLOW = -2 };
/*
 * The same, but wait timeout_ms at most, or as above. -EBUSY: no channel was free. -ETIMEDOUT: there was
 * no reply, and *late is the number of its channel, which nobody can use until channels_is_late has returned
 * false for it.
 */
int channels_call_within(struct channels *channels, struct message *request, struct message *reply,
			 int timeout_ms, size_t *late);
/* Return whether a reply is still to come; none is after channels_abandon. If not, the channel can be used again. */
bool channels_is_late(struct channels *channels, size_t late);

/* Return whether half of the channels that slow requests leave have had no reply for so long. */
bool channels_hang(struct channels *channels, uint64_t for_ns);
/* Let all calls fail, those that wait and later ones: -EPIPE. */
void channels_abandon(struct channels *channels);

#endif

/*
 * agent/live/capture.h: the live source in a process of its own (docs/security.md, "Roles").
 *
 * The capture process has the rights that recording takes, and reads what the kernel reports. The
 * process that walks, names and writes has none of these rights: there source_live_open returns a
 * source whose events come from the capture process (agent/live/feed.h), and whose other functions
 * are requests to it (agent/role/channel.h).
 */
#ifndef AGENT_LIVE_CAPTURE_H
#define AGENT_LIVE_CAPTURE_H

#include "agent/source/source.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct capture;
struct cost;

/* Make what both processes need, before the fork. options are those that will be recorded with. */
int capture_new(const struct source_live_options *options, struct capture **out);
void capture_free(struct capture *capture); /* what this process has of it; NULL is fine */

/*
 * In the capture process: open the live source when a worker asks for it, and serve that worker until
 * all other ends of capture are closed. cost gets the time of the BPF programs; NULL: it is not wanted.
 *
 * If another worker asks for the source, the one before has died. What that one was given, and its
 * profile, is lost: the next worker is told so (EVENT_LOST_CRASHED), and what runs now.
 */
void capture_serve(struct capture *capture, const struct source_live_options *options,
		   struct cost *cost);

/* In the supervisor, after the fork: it uses only what follows, but the next worker may need more. */
void capture_keep(struct capture *capture);
/*
 * In the supervisor, before it forks a worker. Each worker is once given the kernel's ring of samples, to map it
 * for reading. It asks for that before it reads anything; who takes it over later gets nothing.
 */
void capture_next_worker(struct capture *capture);
/*
 * In the supervisor: record with another rate and other filters from now on (source_live_change). Only
 * while a worker records. On failure error, of 512 bytes, says why; nothing has changed, except after
 * -ETIMEDOUT.
 */
int capture_change(struct capture *capture, const struct source_live_options *options, char *error);

/*
 * In the worker: from now on source_live_open opens that source. capture is borrowed; NULL: recording
 * works in this process again. opener is another process of offwind that is not sampled.
 */
void capture_use(struct capture *capture, pid_t opener);
/* In the worker: another process is the opener now. */
void capture_use_opener(pid_t opener);

#endif

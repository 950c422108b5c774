/* agent/live/system/hint.h: why something failed in the kernel or in libbpf, in words for the user. */
#ifndef AGENT_LIVE_SYSTEM_HINT_H
#define AGENT_LIVE_SYSTEM_HINT_H

/* The largest ring that is chosen if no size is asked for, in bytes of locked memory. */
#define LIVE_RING_DEFAULT (16u << 20)

#define LIVE_ERROR_SIZE 512 /* as in source.error */

/* Return what an errno value of a step means for the user, or "". The string is static. */
const char *live_hint(int err);

/*
 * Store the warnings of libbpf from now on, for live_bpf_fail, instead of printing them. libbpf has
 * one print function for the whole process; warnings are stored for each thread.
 */
void live_bpf_hear(void);
/* Forget the stored warning of this thread: a new step begins. */
void live_bpf_begin(void);
/*
 * Write the failed step, the error, libbpf's first warning since live_bpf_begin and a hint to
 * error, which has LIVE_ERROR_SIZE bytes. Return err.
 */
int live_bpf_fail(char *error, int err, const char *step);

#endif

/* agent/live/bpf/xstate.h: the size of the FPU state in a signal frame. */
#ifndef AGENT_LIVE_BPF_XSTATE_H
#define AGENT_LIVE_BPF_XSTATE_H

#include <stdint.h>

/*
 * Return the size of the FPU state in a signal frame of this machine and kernel, in bytes; 0 on
 * failure. The process raises SIGURG and looks at its own frame. The signal's disposition and mask
 * are restored. Not for two threads at a time.
 */
uint32_t live_xstate_size(void);

#endif

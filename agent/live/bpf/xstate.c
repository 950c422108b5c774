/* agent/live/bpf/xstate.c: raises a signal and reads the size of the FPU state from its frame. */
#include "agent/live/bpf/xstate.h"

#include <signal.h>
#include <stddef.h>
#include <ucontext.h>

#define FXSAVE_SIZE	512
#define HAS_XSTATE	1   /* UC_FP_XSTATE of <asm/ucontext.h>, which clashes with libc's */
#define FXSAVE_SW_BYTES 464 /* offset of the bytes reserved for software, which the kernel fills */

/*
 * The size of the FPU state in a signal frame depends on the machine and the kernel. Our own
 * process raises a signal and reads it from the frame (struct _fpx_sw_bytes in <asm/sigcontext.h>).
 */
static volatile uint32_t xstate_seen;

/* Signal handler: store the size of the FPU state in this signal's frame. */
static void see_frame(int number, siginfo_t *info, void *context)
{
	const ucontext_t *frame = context;
	const struct _fpx_sw_bytes *bytes;

	(void)number;
	(void)info;
	if (!frame->uc_mcontext.fpregs)
		return;
	bytes = (const void *)((const uint8_t *)frame->uc_mcontext.fpregs + FXSAVE_SW_BYTES);
	/*
	 * Without XSAVE the kernel fills these bytes, too, but writes no FP_XSTATE_MAGIC2 behind
	 * the state, for which extended_size has room.
	 */
	xstate_seen = frame->uc_flags & HAS_XSTATE && bytes->magic1 == FP_XSTATE_MAGIC1
			      ? bytes->extended_size
			      : FXSAVE_SIZE;
}

uint32_t live_xstate_size(void)
{
	const struct sigaction see = { .sa_sigaction = see_frame, .sa_flags = SA_SIGINFO };
	const int number = SIGURG; /* ignored by default */
	sigset_t only, before;
	struct sigaction old;

	xstate_seen = 0;
	(void)sigemptyset(&only);
	(void)sigaddset(&only, number);
	if (sigaction(number, &see, &old))
		return 0;
	(void)pthread_sigmask(SIG_UNBLOCK, &only, &before);
	(void)raise(number);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)sigaction(number, &old, NULL);
	return xstate_seen;
}

/* agent/cli/priority.c: nice values and real-time scheduling of the recorder. */
#include "agent/cli/priority.h"

#include "agent/log.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

/*
 * Among 850 runnable threads on a CPU, a thread with nice -20 gets about a tenth of that CPU,
 * which is several times what recording needs; and it cannot lock out other threads as SCHED_FIFO
 * could.
 */
enum { NICE = -20 };

void priority_raise(void)
{
	errno = 0;
	if (getpriority(PRIO_PROCESS, 0) == 0 && !errno && setpriority(PRIO_PROCESS, 0, NICE))
		log_debug("the nice value stays 0: %s", strerror(errno));
}

int priority_realtime(int priority)
{
	const struct sched_param param = { .sched_priority = priority };
	int err;

	/*
	 * SCHED_RESET_ON_FORK: threads and programs that this thread creates get normal
	 * scheduling.
	 */
	if (!sched_setscheduler(0, priority ? SCHED_FIFO | SCHED_RESET_ON_FORK : SCHED_OTHER,
				&param))
		return 0;
	err = -errno;
	log_error("--realtime %d: %s%s", priority, strerror(-err),
		  err == -EPERM ? " (needs CAP_SYS_NICE, and a cgroup that may use it)" : "");
	return err;
}

/* agent/cli/priority.c: nice values, sessions and real-time scheduling of the recorder. */
#include "agent/cli/priority.h"

#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

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

/*
 * What a session weighs against others: this one as much as nine. That is enough beside a hundred busy
 * ones; with the weight of nice -20, which is 87, tables that are built beside the recording would take
 * whole CPUs.
 */
static const char session_nice[] = "-10";

/* Return whether keys of a terminal reach this process by its session. */
static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return errno != ENXIO;
	(void)close(fd);
	return true;
}

/* Without CAP_SYS_ADMIN one write to any autogroup is allowed in 100 ms: three processes take turns. */
enum { TRIES = 6, PAUSE_MS = 110 };

/* Give the session of this process its nice value. Return 0 or a negative code. */
static int write_session_nice(int fd)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };

	for (int i = 1; write(fd, session_nice, sizeof(session_nice) - 1) < 0; i++) {
		if (errno != EAGAIN || i == TRIES)
			return -errno;
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

void priority_apart(void)
{
	int fd, err;

	if (getpriority(PRIO_PROCESS, 0) >= 0 || has_terminal())
		return;
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	err = setsid() < 0 ? -errno : write_session_nice(fd);
	if (err)
		log_debug("the session has no nice value: %s", strerror(-err));
	(void)close(fd);
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

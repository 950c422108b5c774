/*
 * tests/faults/preload/clock_steps.c: lets the clock of the time of day step for one program: by as many seconds as the
 * file CLOCK_AHEAD says (an int64_t, which may be changed at any time); without one by an hour, back and forth,
 * every 100 ms.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int (*clock_fn)(clockid_t, struct timespec *);

static const volatile int64_t *ahead_s; /* NULL: back and forth */

/* Processes that are forked have the file, too, also those that may open none. */
__attribute__((constructor)) static void open_file(void)
{
	const char *path = getenv("CLOCK_AHEAD");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = MAP_FAILED;

	if (fd >= 0) {
		page = mmap(NULL, sizeof(*ahead_s), PROT_READ, MAP_SHARED, fd, 0);
		(void)close(fd);
	}
	if (path && page == MAP_FAILED)
		abort();
	ahead_s = path ? page : NULL;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	static clock_fn real;
	struct timespec now;

	if (!real)
		real = (clock_fn)dlsym(RTLD_NEXT, "clock_gettime");
	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
		return real(clock, out);
	if (real(clock, out) || real(CLOCK_MONOTONIC, &now))
		return -1;
	out->tv_sec += ahead_s ? *ahead_s : now.tv_nsec / 100000000 % 2 ? 3600 : -3600;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	*out = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
	return 0;
}

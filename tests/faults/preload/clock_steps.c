/* tests/faults/preload/clock_steps.c: lets the clock of the time of day jump by an hour, back and forth, every 100 ms. */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

typedef int (*clock_fn)(clockid_t, struct timespec *);

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
	out->tv_sec += now.tv_nsec / 100000000 % 2 ? 3600 : -3600;
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

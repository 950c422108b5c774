/* agent/live/system/cpus.c: reads lists of CPUs. */
#include "agent/live/system/cpus.h"

#include "agent/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define CPUS_MAX 65536
#define ONLINE	 "/sys/devices/system/cpu/online"

/* Parse the format of /sys/devices/system/cpu/online; a newline ends the list. */
int live_cpus_parse(const char *list, int **cpus, size_t *n_cpus)
{
	int *out = NULL;
	size_t n = 0, room = 0;

	while (*list && *list != '\n') {
		char *end;
		long first = strtol(list, &end, 10), last = first;

		if (end == list || first < 0 || first >= CPUS_MAX)
			goto bad;
		if (*end == '-') {
			list = end + 1;
			last = strtol(list, &end, 10);
			if (end == list || last < first || last >= CPUS_MAX)
				goto bad;
		}
		if (*end == ',')
			end++;
		else if (*end && *end != '\n')
			goto bad;
		list = end;
		for (long cpu = first; cpu <= last; cpu++) {
			if (n == CPUS_MAX || array_grow(out, n, room)) {
				free(out);
				return -ENOMEM;
			}
			out[n++] = (int)cpu;
		}
	}
	if (!n)
		goto bad;
	*cpus = out;
	*n_cpus = n;
	return 0;
bad:
	free(out);
	return -EBADMSG;
}

/*
 * Read a list of CPUs from a file. *fd is the file's descriptor, or -1 to open path; it stays open.
 */
static int read_cpus(const char *path, int *fd, int **cpus, size_t *n_cpus)
{
	char list[4096];
	ssize_t n;

	if (*fd < 0)
		*fd = open(path, O_RDONLY | O_CLOEXEC);
	n = *fd < 0 ? -1 : pread(*fd, list, sizeof(list) - 1, 0);
	if (n < 0)
		return -errno;
	list[n] = '\0';
	return live_cpus_parse(list, cpus, n_cpus);
}

/* As read_cpus, and close the file. */
static int read_cpus_once(const char *path, int **cpus, size_t *n_cpus)
{
	int fd = -1, err = read_cpus(path, &fd, cpus, n_cpus);

	if (fd >= 0)
		(void)close(fd);
	return err;
}

int live_cpus_online(int **cpus, size_t *n_cpus)
{
	return read_cpus_once(ONLINE, cpus, n_cpus);
}

int live_cpus_online_now(int *fd, int **cpus, size_t *n_cpus)
{
	return read_cpus(ONLINE, fd, cpus, n_cpus);
}

int live_cpus_present(int **cpus, size_t *n_cpus)
{
	return read_cpus_once("/sys/devices/system/cpu/present", cpus, n_cpus);
}

bool live_cpus_have(const int *cpus, size_t n, int cpu)
{
	for (size_t i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

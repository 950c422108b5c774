/* agent/opener/generated.c: files in which processes name the code that they generate. */
#include "agent/opener/places.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The owner of a process that lives; else this user. */
static uid_t owner_of(const struct opener *opener, uint32_t pid)
{
	struct stat st;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%u", pid);
	return opener->live && !stat(path, &st) ? st.st_uid : geteuid();
}

/* What the process itself takes its number for, in the innermost of its namespaces. */
static uint32_t own_pid(const struct opener *opener, uint32_t pid)
{
	char path[48], line[256];
	uint32_t found = pid;
	FILE *status;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", pid);
	status = opener->live ? fopen(path, "re") : NULL;
	while (status && fgets(line, sizeof(line), status)) {
		const char *last = strrchr(line, '\t');

		if (!strncmp(line, "NSpid:", 6) && last)
			(void)sscanf(last, "%u", &found);
	}
	if (status)
		(void)fclose(status);
	return found;
}

static int open_it(const struct opener *opener, const char *root, uint32_t pid, const char *path,
		   int *fd)
{
	struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_IN_ROOT };
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), opened, err = 0;
	struct stat st;

	if (dir < 0)
		return -errno;
	opened = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	if (opened < 0)
		err = -errno;
	(void)close(dir);
	if (err)
		return err;
	if (fstat(opened, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		err = -EINVAL;
	else if (st.st_uid && st.st_uid != geteuid() && st.st_uid != owner_of(opener, pid))
		err = -EACCES;
	if (err)
		(void)close(opened);
	else
		*fd = opened;
	return err;
}

int opener_open_jit(struct opener *opener, uint32_t pid, const char *dump, int *fd)
{
	const char *symfs = opener->symfs ? opener->symfs : "/";
	char root[32], map[64], own[64];

	(void)snprintf(root, sizeof(root), "/proc/%u/root", pid);
	(void)snprintf(map, sizeof(map), "/tmp/perf-%u.map", pid);
	(void)snprintf(own, sizeof(own), "/tmp/perf-%u.map", own_pid(opener, pid));
	if (dump && opener->live && !open_it(opener, root, pid, dump, fd))
		return 0;
	if (dump && !open_it(opener, symfs, pid, dump, fd))
		return 0;
	if (opener->live && !open_it(opener, root, pid, own, fd))
		return 0;
	return open_it(opener, symfs, pid, map, fd);
}

/*
 * tests/live/containers.c: runs a process in each of many containers, for daemon.sh.
 *   usage: containers CGROUP N   makes N cgroups below CGROUP, named as docker names those of its containers, prints
 *                                the process and the container's id, and removes them when its input ends
 *
 * Each process calls mark once, and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sum;

__attribute__((noinline)) void mark(void);
void mark(void)
{
	sum++;
}

static void die(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void name_of(char out[96], const char *id)
{
	(void)snprintf(out, 96, "docker-%s.scope", id);
}

/* Ids differ at their beginnings, as those of containers do. */
static void id_of(char out[65], unsigned int i)
{
	(void)snprintf(out, 65, "%08x%056x", i * 2654435761u, i);
}

/* Begin a process in a cgroup, which is an open directory. */
static pid_t run_in(int cgroup)
{
	struct clone_args args = { .flags = CLONE_INTO_CGROUP,
				   .exit_signal = SIGCHLD,
				   .cgroup = (uint32_t)cgroup };
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (!pid) {
		mark();
		_exit(0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	unsigned int n = argc == 3 ? (unsigned int)strtoul(argv[2], NULL, 10) : 0;
	char id[65], name[96];
	int status, below = n ? open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

	if (below < 0)
		die("usage: containers CGROUP N");
	for (unsigned int i = 0; i < n; i++) {
		pid_t pid;
		int cgroup;

		id_of(id, i);
		name_of(name, id);
		if (mkdirat(below, name, 0755))
			die(name);
		cgroup = openat(below, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		pid = cgroup < 0 ? -1 : run_in(cgroup);
		if (pid < 0)
			die(name);
		(void)close(cgroup);
		(void)printf("%d %s\n", (int)pid, id);
		if (waitpid(pid, &status, 0) != pid || status)
			die("a process");
	}
	(void)fflush(stdout);
	(void)fclose(stdout);
	while (getchar() != EOF)
		;
	for (unsigned int i = 0; i < n; i++) {
		id_of(id, i);
		name_of(name, id);
		(void)unlinkat(below, name, AT_REMOVEDIR);
	}
	return 0;
}

/* tests/faults/hostile/mounts.c: has very many mounts, in namespaces of an ordinary user. */
#include "attack.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(path);
	(void)close(fd);
}

static void become_root(void)
{
	char map[64];
	uid_t uid = getuid();
	gid_t gid = getgid();

	(void)snprintf(map, sizeof(map), "0 %d 1", (int)uid);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		fail("unshare");
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", map);
	(void)snprintf(map, sizeof(map), "0 %d 1", (int)gid);
	write_file("/proc/self/gid_map", map);
}

static void new_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);

	if (fd < 0 || write(fd, "\x48\xff\xc0\xeb\xfb", 5) != 5)
		fail(path);
	(void)close(fd);
}

/*
 * DIRECTORY MOUNTS SPACES: that many mounts on files of DIRECTORY, in so many mount namespaces; and code runs in files of
 * file systems that were detached.
 */
static void many(char **args)
{
	char path[512], source[512];

	become_root();
	if (mount("none", args[0], "tmpfs", 0, "") || chdir(args[0]))
		fail("tmpfs");
	(void)snprintf(source, sizeof(source), "%s/source", args[0]);
	new_file(source);
	for (int i = 0; i < atoi(args[1]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%d", args[0], i);
		new_file(path);
		if (mount(source, path, NULL, MS_BIND, NULL))
			break; /* fs.mount-max */
	}
	for (int i = 1; i < atoi(args[2]); i++)
		if (!fork()) {
			(void)unshare(CLONE_NEWNS);
			for (;;) {
				work();
				pause_ms(50);
			}
		}
	if (mkdir("d", 0755))
		fail("mkdir");
	for (int i = 0;; i++) {
		void *page;
		int fd;

		if (mount("none", "d", "tmpfs", 0, ""))
			fail("tmpfs");
		new_file("d/code");
		fd = open("d/code", O_RDONLY | O_CLOEXEC);
		page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		(void)umount2("d", MNT_DETACH);
		if (!i)
			ready();
		if (!fork()) {
			(void)alarm(1);
			run_code(page);
		}
		pause_ms(200);
	}
}

/* DIRECTORY DEPTH: mounts on mounts on one place. */
static void stacked(char **args)
{
	uint8_t *code = new_code(4096, 0);

	become_root();
	for (int i = 0; i < atoi(args[1]); i++)
		if (mount(args[0], args[0], NULL, MS_BIND, NULL))
			break;
	ready();
	run_code(code);
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = { { "many", 3, many }, { "stacked", 2, stacked } };

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}

/*
 * tests/faults/preload/hostile.c: what code that took over a worker could do, for LD_PRELOAD.
 *
 * Once the process is confined, its next read of a file runs this:
 *   HOSTILE=attack      try everything that the sandbox forbids and print what succeeded
 *   HOSTILE=crash:INODE die of SIGSEGV if the file has this inode and is not only hashed
 *   HOSTILE=hang:INODE  stop if the file has this inode, the first time among all processes
 *   HOSTILE=stop        stop the worker (SIGSTOP), so that /proc/PID can be looked at
 *
 * Not of a worker, but of the supervisor:
 *   HOSTILE=signal:PATH SIGINT comes just before this file is opened
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_bool began;
static int tried, succeeded;

/* PR_GET_SECCOMP gives 0 without a filter; the worker's filter refuses the call itself. */
static int is_confined(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0;
}

static void say(const char *text)
{
	(void)!write(2, text, strlen(text));
}

/* result >= 0: the attack succeeded. */
static void try(const char *name, long result)
{
	char line[160];

	tried++;
	if (result < 0)
		return;
	succeeded++;
	(void)snprintf(line, sizeof(line), "hostile: succeeded: %s (%ld)\n", name, result);
	say(line);
}

static void attack(void)
{
	struct open_how how = { .flags = O_RDONLY };
	struct stat st;
	pid_t parent = getppid();
	char byte, line[80];
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)0x400000, 1 };
	long page = sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint64_t attr[16] = { 0 };

	try("open", open("/etc/passwd", O_RDONLY));
	try("open the root", open("/", O_RDONLY | O_DIRECTORY));
	try("open the current directory", open(".", O_RDONLY | O_DIRECTORY));
	try("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", &how, sizeof(how)));
	try("open by handle", syscall(SYS_open_by_handle_at, AT_FDCWD, attr, O_RDONLY));
	try("create", open("/tmp/hostile", O_CREAT | O_WRONLY, 0600));
	try("O_TMPFILE", open("/tmp", O_TMPFILE | O_RDWR, 0600));
	try("own memory by /proc", open("/proc/self/mem", O_RDWR));
	try("another's memory by /proc", open("/proc/1/mem", O_RDONLY));
	try("truncate", truncate("/etc/passwd", 0));
	try("unlink", unlink("/etc/passwd"));
	try("rename", rename("/etc/passwd", "/etc/passwd-"));
	try("link", link("/etc/passwd", "/tmp/hostile"));
	try("symlink", symlink("/etc/passwd", "/tmp/hostile"));
	try("mkdir", mkdir("/tmp/hostile", 0700));
	try("chmod", chmod("/etc/passwd", 0666));
	try("chown", chown("/etc/passwd", 1, 1));
	try("stat", stat("/etc/passwd", &st));
	if (!getenv("HOSTILE_HAS_ROOT")) /* an ordinary user cannot change the root directory */
		try("stat, through the flag for descriptors",
		    syscall(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &st, AT_EMPTY_PATH));
	try("access", access("/etc/passwd", R_OK));
	try("readlink", readlink("/proc/self/exe", &byte, 1));
	try("chdir", chdir("/etc"));
	try("chroot", chroot("/"));
	try("mount", syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL));
	try("unshare", unshare(CLONE_NEWUSER));
	try("setns", setns(0, 0));
	try("socket: internet", socket(AF_INET, SOCK_STREAM, 0));
	try("socket: unix", socket(AF_UNIX, SOCK_STREAM, 0));
	try("socket: netlink", socket(AF_NETLINK, SOCK_RAW, 0));
	try("fork", syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
	try("clone3", syscall(SYS_clone3, attr, sizeof(attr)));
	try("execve", execve("/bin/true", (char *[]){ "true", NULL }, (char *[]){ NULL }));
	try("execveat", syscall(SYS_execveat, 0, "", NULL, NULL, AT_EMPTY_PATH));
	try("ptrace", ptrace(PTRACE_SEIZE, parent, NULL, NULL));
	try("process_vm_readv", process_vm_readv(parent, &here, 1, &there, 1, 0));
	try("process_vm_writev", process_vm_writev(parent, &here, 1, &there, 1, 0));
	try("kill", kill(parent, 0));
	try("tgkill of another process", syscall(SYS_tgkill, parent, parent, 0));
	try("pidfd_open", syscall(SYS_pidfd_open, parent, 0));
	try("executable memory", mmap(NULL, (size_t)page, PROT_READ | PROT_EXEC,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
					 ? -1
					 : 0);
	try("memory made executable", mprotect(memory, (size_t)page, PROT_READ | PROT_EXEC));
	try("bpf", syscall(SYS_bpf, 0, attr, sizeof(attr)));
	try("perf_event_open", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
	try("io_uring", syscall(SYS_io_uring_setup, 1, attr));
	try("userfaultfd", syscall(SYS_userfaultfd, 0));
	try("keyctl", syscall(SYS_keyctl, 0, -1, 0));
	try("setuid", setuid(0));
	try("setgroups", syscall(SYS_setgroups, 0, NULL));
	try("capset", syscall(SYS_capset, attr, attr));
	try("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
	try("prctl", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	try("a limit of another process", syscall(SYS_prlimit64, parent, 0, NULL, attr));
	try("a terminal's input", syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, "x"));
	(void)snprintf(line, sizeof(line), "hostile: tried %d, succeeded %d\n", tried, succeeded);
	say(line);
}

/* The store process is confined, too, but nobody lets it go on. */
static bool is_store;

int prctl(int what, ...)
{
	unsigned long args[4];
	va_list list;

	va_start(list, what);
	for (int i = 0; i < 4; i++)
		args[i] = va_arg(list, unsigned long);
	va_end(list);
	if (what == PR_SET_NAME)
		is_store = !strcmp((const char *)args[0], "offwind-store");
	return (int)syscall(SYS_prctl, what, args[0], args[1], args[2], args[3]);
}

/* In memory that all processes share. */
static atomic_bool *hung;

static void __attribute__((constructor)) share(void)
{
	hung = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* How much the product reads at once of a file that it only hashes (agent/store/identity.c). */
#define HASHED 16384

static void look(int fd, size_t size)
{
	const char *what = getenv("HOSTILE");
	struct stat st;

	if (!what || fd < 0 || atomic_load(&began) || !is_confined())
		return;
	if (!strncmp(what, "crash:", 6)) {
		if (!fstat(fd, &st) && st.st_ino == strtoull(what + 6, NULL, 10) && size != HASHED)
			(void)raise(SIGSEGV);
		return;
	}
	if (!strncmp(what, "hang:", 5)) {
		if (!fstat(fd, &st) && st.st_ino == strtoull(what + 5, NULL, 10) &&
		    !atomic_exchange(hung, 1))
			(void)raise(SIGSTOP);
		return;
	}
	if (atomic_exchange(&began, 1))
		return;
	if (!strcmp(what, "attack"))
		attack();
	else if (!strcmp(what, "stop") && !is_store)
		(void)raise(SIGSTOP);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
	look(fd, size);
	return syscall(SYS_pread64, fd, bytes, size, at);
}

ssize_t pread64(int fd, void *bytes, size_t size, off_t at)
{
	return pread(fd, bytes, size, at);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t off)
{
	look(fd, size);
	return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, off);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t off)
{
	return mmap(at, size, protection, flags, fd, off);
}

/* The handler runs before raise(3) returns, as if the signal had come by itself. */
static void interrupt(const char *path)
{
	const char *what = getenv("HOSTILE");

	if (what && !strncmp(what, "signal:", 7) && !strcmp(what + 7, path))
		(void)raise(SIGINT);
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	interrupt(path);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	return open(path, flags, mode);
}

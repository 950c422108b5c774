/*
 * tests/faults/preload/hostile.c: what code that took over a process of offwind could do, for LD_PRELOAD.
 *
 * Once the process is confined, its next read of a file runs this:
 *   HOSTILE=attack      try everything that the sandbox of its role forbids and print what succeeded; a sender
 *                       needs the ports HOSTILE_TARGET and HOSTILE_OTHER, and the path HOSTILE_SOCKET
 *   HOSTILE=crash:INODE die of SIGSEGV if the file has this inode and is not only hashed
 *   HOSTILE=hang:INODE  stop if the file has this inode, the first time among all processes
 *   HOSTILE=stop        stop the worker (SIGSTOP), so that /proc/PID can be looked at
 *
 * Not of a confined process:
 *   HOSTILE=early       SIGINT comes to the supervisor when a worker has just begun
 *   HOSTILE=signal:PATH SIGINT comes just before the supervisor opens this file
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/openat2.h>
#include <netinet/in.h>
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
#include <sys/un.h>
#include <time.h>
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

/* The name of this process, which tells its role. */
static char role[16];

static bool is_role(const char *name)
{
	return !strcmp(role, name);
}

static void report(const char *name, long result)
{
	char line[160];

	succeeded++;
	(void)snprintf(line, sizeof(line), "hostile: %s: succeeded: %s (%ld)\n", role, name,
		       result);
	say(line);
}

/* result >= 0: the attack succeeded. */
static void try(const char *name, long result)
{
	tried++;
	if (result >= 0)
		report(name, result);
}

/* The same for a call that could fail for another reason than that it is forbidden. */
static void try_refused(const char *name, long result)
{
	tried++;
	if (result >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS))
		report(name, result < 0 ? -errno : result);
}

/* A file that could be harmed, which the test made; it belongs to root and everybody may read it. */
static const char *victim(void)
{
	const char *path = getenv("HOSTILE_VICTIM");

	return path ? path : "/nobody/has/this";
}

/* To execute, to make processes, to reach others, to get rights back. No confined process may do any of it. */
static void attack_machine(void)
{
	pid_t parent = getppid();
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)0x400000, 1 };
	uint64_t attr[16] = { 0 };

	try_refused("truncate", truncate(victim(), 0));
	try_refused("unlink", unlink(victim()));
	try_refused("rename", rename(victim(), "/tmp/hostile"));
	try_refused("link", link(victim(), "/tmp/hostile"));
	try_refused("symlink", symlink(victim(), "/tmp/hostile"));
	try_refused("mkdir", mkdir("/tmp/hostile", 0700));
	try_refused("mknod", mknod("/tmp/hostile", S_IFIFO | 0600, 0));
	try_refused("chmod", chmod(victim(), 0666));
	try_refused("chown", chown(victim(), 1, 1));
	try_refused("chroot", chroot("/"));
	try_refused("mount", syscall(SYS_mount, "none", "/", "none", 0, NULL));
	try_refused("unshare", unshare(CLONE_NEWUSER));
	try_refused("setns", setns(0, 0));
	try_refused("socket: internet", socket(AF_INET, SOCK_RAW, IPPROTO_TCP));
	try_refused("socket: unix", socket(AF_UNIX, SOCK_STREAM, 0));
	try_refused("socket: netlink", socket(AF_NETLINK, SOCK_RAW, 0));
	try_refused("socket: packets", socket(AF_PACKET, SOCK_RAW, 0));
	try_refused("bind", bind(-1, NULL, 0));
	try_refused("listen", listen(-1, 1));
	try_refused("accept", accept(-1, NULL, NULL));
	try_refused("fork", syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
	try_refused("vfork", syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL));
	try_refused("clone3", syscall(SYS_clone3, attr, sizeof(attr)));
	try_refused("execve", execve("/bin/true", (char *[]){ "true", NULL }, (char *[]){ NULL }));
	try_refused("execveat", syscall(SYS_execveat, 0, "", NULL, NULL, AT_EMPTY_PATH));
	try_refused("ptrace", ptrace(PTRACE_SEIZE, parent, NULL, NULL));
	try_refused("process_vm_writev", process_vm_writev(parent, &here, 1, &there, 1, 0));
	try_refused("kill", kill(parent, 0));
	try_refused("tgkill of another process", syscall(SYS_tgkill, parent, parent, 0));
	try_refused("a limit of another process", syscall(SYS_prlimit64, parent, 0, NULL, attr));
	try_refused("a descriptor of another process", syscall(SYS_pidfd_getfd, -1, 0, 0));
	try_refused("a module of the kernel", syscall(SYS_init_module, attr, 0, ""));
	try_refused("io_uring", syscall(SYS_io_uring_setup, 1, attr));
	try_refused("userfaultfd", syscall(SYS_userfaultfd, 0));
	try_refused("keyctl", syscall(SYS_keyctl, 0, -1, 0));
	try_refused("setuid", setuid(1));
	try_refused("the clock", syscall(SYS_clock_settime, 0, NULL));
	try_refused("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
}

/* What processes without capabilities may not do either, and recording takes. */
static void attack_more(void)
{
	pid_t parent = getppid();
	char byte, path[64];
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)0x400000, 1 };
	long page = sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint64_t attr[16] = { 0 };

	try("create", open("/tmp/hostile", O_CREAT | O_WRONLY, 0600));
	try("O_TMPFILE", open("/tmp", O_TMPFILE | O_RDWR, 0600));
	try("write a file", open(victim(), O_WRONLY));
	try("open by handle", syscall(SYS_open_by_handle_at, AT_FDCWD, attr, O_RDONLY));
	try("own memory by /proc", open("/proc/self/mem", O_RDWR));
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)parent);
	try("another's memory by /proc", open(path, O_RDONLY));
	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)parent);
	try("another's environment", open(path, O_RDONLY));
	try_refused("process_vm_readv", process_vm_readv(parent, &here, 1, &there, 1, 0));
	try_refused("pidfd_open", syscall(SYS_pidfd_open, parent, 0));
	try_refused("setgroups", syscall(SYS_setgroups, 0, NULL));
	try_refused("capset", syscall(SYS_capset, attr, attr));
	try("executable memory", mmap(NULL, (size_t)page, PROT_READ | PROT_EXEC,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
					 ? -1
					 : 0);
	try("memory made executable", mprotect(memory, (size_t)page, PROT_READ | PROT_EXEC));
	try_refused("bpf", syscall(SYS_bpf, 0, attr, sizeof(attr)));
	try_refused("perf_event_open", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
	try_refused("prctl", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	try_refused("a terminal's input", syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, "x"));
	try_refused("chdir", chdir("/etc"));
}

/* To learn anything by a path, which only a sender may. */
static void attack_paths(void)
{
	struct open_how how = { .flags = O_RDONLY };
	struct stat st;
	char byte;

	try("open", open("/etc/passwd", O_RDONLY));
	try("open the root", open("/", O_RDONLY | O_DIRECTORY));
	try("open the current directory", open(".", O_RDONLY | O_DIRECTORY));
	try("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", &how, sizeof(how)));
	try("stat", stat("/etc/passwd", &st));
	if (!getenv("HOSTILE_HAS_ROOT")) /* an ordinary user cannot change the root directory */
		try("stat, through the flag for descriptors",
		    syscall(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &st, AT_EMPTY_PATH));
	try("access", access("/etc/passwd", R_OK));
	try("readlink", readlink("/proc/self/exe", &byte, 1));
	try_refused("socket: TCP", socket(AF_INET, SOCK_STREAM, 0));
	try_refused("socket: UDP", socket(AF_INET, SOCK_DGRAM, 0));
	try_refused("connect", connect(-1, NULL, 0));
}

static struct sockaddr_in address_of(const char *name)
{
	const char *port = getenv(name);

	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)(port ? atoi(port) : 0)),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* A sender opens what everybody may read of /etc, and connects to the ports of its targets. */
static void attack_network(void)
{
	const struct sockaddr_in target = address_of("HOSTILE_TARGET"),
				 other = address_of("HOSTILE_OTHER");
	const struct sockaddr *to = (const struct sockaddr *)&other;
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct sockaddr_in own = other;
	struct open_how how = { .flags = O_RDONLY };
	int fd, pair[2], type;
	socklen_t size = sizeof(type);

	/* Files. */
	try("read a file", open(victim(), O_RDONLY));
	try("read a secret", open("/etc/shadow", O_RDONLY));
	try("write in /etc", open("/etc/passwd", O_RDWR));
	try("a path to a file", open("/etc/passwd", O_PATH));
	try("open the root", open("/", O_RDONLY | O_DIRECTORY));
	try("the command line of a process", open("/proc/1/cmdline", O_RDONLY));
	try("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/passwd", &how, sizeof(how)));
	/* Sockets of other kinds, and ways round the rules for TCP. */
	try_refused("socket: MPTCP", socket(AF_INET, SOCK_STREAM, 262 /* IPPROTO_MPTCP */));
	try_refused("socket: SCTP", socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP));
	try_refused("socket: ping", socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
	try_refused("socket: VSOCK", socket(40 /* AF_VSOCK */, SOCK_STREAM, 0));
	try_refused("socket: cryptography", socket(38 /* AF_ALG */, SOCK_SEQPACKET, 0));
	try_refused("a pair for messages", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	try_refused("a pair for packets", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	if (!socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
		(void)snprintf(local.sun_path, sizeof(local.sun_path), "%s",
			       getenv("HOSTILE_SOCKET"));
		try("connect a pair to a UNIX socket",
		    connect(pair[0], (const struct sockaddr *)&local, sizeof(local)));
		try("send to a UNIX socket",
		    sendto(pair[0], "x", 1, 0, (const struct sockaddr *)&local, sizeof(local)));
	}
	/* What it was given. */
	for (fd = 0; fd < 1024; fd++)
		if (fd != pair[0] && fd != pair[1] &&
		    !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size))
			report("an inherited socket", fd);
	/* Connections. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	own.sin_port = 0;
	try_refused("bind to a port", bind(fd, (const struct sockaddr *)&own, sizeof(own)));
	try_refused("listen", listen(fd, 1));
	if (!getenv("HOSTILE_ANY_PORT")) /* Landlock knows ports since Linux 6.7 */
		try_refused("connect to another port", connect(fd, to, sizeof(other)));
	try_refused("connect by sending", sendto(fd, "x", 1, MSG_FASTOPEN, to, sizeof(other)));
	try_refused("connect by sending a message",
		    sendmsg(fd,
			    &(struct msghdr){ .msg_name = (void *)(uintptr_t)to,
					      .msg_namelen = sizeof(other) },
			    MSG_FASTOPEN));
	if (connect(fd, (const struct sockaddr *)&target, sizeof(target)))
		report("the target cannot be reached", -errno);
	(void)close(fd);
}

static void attack(void)
{
	char line[80];

	attack_machine();
	if (!is_role("offwind-capture"))
		attack_more();
	if (is_role("offwind-sender"))
		attack_network();
	else if (!is_role("offwind-capture"))
		attack_paths();
	(void)snprintf(line, sizeof(line), "hostile: %s: tried %d, succeeded %d\n", role, tried,
		       succeeded);
	say(line);
}

/* Return once SIGINT, which was sent to the parent, has been passed on and waits for this process. */
static void interrupt_parent(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	sigset_t pending;

	(void)kill(getppid(), SIGINT);
	for (int i = 0; i < 60000 && !sigpending(&pending) && !sigismember(&pending, SIGINT); i++)
		(void)nanosleep(&pause, NULL);
}

int prctl(int what, ...)
{
	const char *hostile = getenv("HOSTILE");
	unsigned long args[4];
	va_list list;

	va_start(list, what);
	for (int i = 0; i < 4; i++)
		args[i] = va_arg(list, unsigned long);
	va_end(list);
	if (what == PR_SET_NAME)
		(void)snprintf(role, sizeof(role), "%.15s", (const char *)args[0]);
	if (what == PR_SET_NAME && is_role("offwind-worker") && hostile &&
	    !strcmp(hostile, "early"))
		interrupt_parent();
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

	/* Only what tries everything is for the capture process, too, which has a filter of its own. */
	if (!what || fd < 0 || atomic_load(&began) ||
	    (is_role("offwind-capture") && strcmp(what, "attack") != 0) || !is_confined())
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
	else if (!strcmp(what, "stop") &&
		 !is_role("offwind-store")) /* nobody lets that one go on */
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

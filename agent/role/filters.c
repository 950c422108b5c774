/*
 * agent/role/filters.c: a program that make runs. It makes the filters of system calls that
 * agent/role/sandbox.c installs, and prints them as C.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Stands for the process that installs the filter. No process has this id: the highest is 2^22 - 1. */
#define FILTER_PID UINT32_C(0x7e1d0ff3)
/* Instructions of a filter, at most; the kernel takes 4096. */
#define FILTER_MAX 1024

/* Who is confined. */
enum role { WORKER, SERVER, SENDER };

/* ---- of processes without rights --------------------------------------------------------- */

/*
 * What the worker needs: memory, threads, time, and its open files. Everything else gives EPERM: no
 * path is looked up, nothing is executed, no process and no socket is made.
 */
static const int allowed[] = {
	/* open files */
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	SCMP_SYS(pread64),
	SCMP_SYS(pwrite64),
	SCMP_SYS(preadv),
	SCMP_SYS(preadv2),
	SCMP_SYS(pwritev),
	SCMP_SYS(lseek),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(fstatfs),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fadvise64),
	SCMP_SYS(dup),
	SCMP_SYS(dup2),
	SCMP_SYS(dup3),
	SCMP_SYS(pipe2),
	SCMP_SYS(tee),
	SCMP_SYS(getdents64),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(memfd_create),
	SCMP_SYS(copy_file_range),
	SCMP_SYS(flock),
	SCMP_SYS(recvmsg),
	SCMP_SYS(shutdown),
	/* memory; see also allow_memory */
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(mincore),
	SCMP_SYS(msync),
	/* threads; see also allow_threads */
	SCMP_SYS(futex),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(gettid),
	SCMP_SYS(getpid),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(getcpu),
	SCMP_SYS(membarrier),
	SCMP_SYS(getpriority),
	SCMP_SYS(restart_syscall),
	/* signals to itself */
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack),
	/* time and facts */
	SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(times),
	SCMP_SYS(getrandom),
	SCMP_SYS(getrusage),
	SCMP_SYS(sysinfo),
	SCMP_SYS(uname),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(getppid),
};

/* What a server needs beside these: connections to the sockets that it has. */
static const int allowed_server[] = {
	SCMP_SYS(accept4),    SCMP_SYS(recvfrom),    SCMP_SYS(sendto),	    SCMP_SYS(setsockopt),
	SCMP_SYS(getsockopt), SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),  SCMP_SYS(epoll_wait),  SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2),
	SCMP_SYS(sendfile),
};

/* What a sender needs beside the worker's: names of hosts, and connections of its own (allow_sender). */
static const int allowed_sender[] = {
	SCMP_SYS(connect),    SCMP_SYS(recvfrom),    SCMP_SYS(recvmmsg),    SCMP_SYS(setsockopt),
	SCMP_SYS(getsockopt), SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(eventfd2),
	SCMP_SYS(access),     SCMP_SYS(stat),	     SCMP_SYS(newfstatat),  SCMP_SYS(readlink),
	SCMP_SYS(statx),
};

/* Allow a call if the masked argument has this value. */
static int allow_if(scmp_filter_ctx filter, int call, unsigned int argument, uint64_t mask,
		    uint64_t value)
{
	struct scmp_arg_cmp only = SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, mask, value);

	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1, only);
}

/* Memory may be mapped and protected, but never be executable: there is no new code. */
static int allow_memory(scmp_filter_ctx filter)
{
	int err = allow_if(filter, SCMP_SYS(mmap), 2, PROT_EXEC, 0);

	return err ? err : allow_if(filter, SCMP_SYS(mprotect), 2, PROT_EXEC, 0);
}

/*
 * Threads may be made, processes not. The flags of clone3 are in memory, where a filter cannot see
 * them; libc uses clone if clone3 does not exist. Signals go to this process only.
 */
static int allow_threads(scmp_filter_ctx filter)
{
	int err = allow_if(filter, SCMP_SYS(clone), 0, CLONE_THREAD, CLONE_THREAD);

	if (!err)
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (!err)
		err = allow_if(filter, SCMP_SYS(tgkill), 0, UINT32_MAX, FILTER_PID);
	if (!err)
		err = allow_if(filter, SCMP_SYS(prctl), 0, UINT32_MAX, PR_SET_NAME);
	/* A thread may give up a raised priority. */
	if (!err)
		err = allow_if(filter, SCMP_SYS(setpriority), 2, UINT32_MAX, 0);
	if (!err)
		err = allow_if(filter, SCMP_SYS(sched_setscheduler), 1, UINT32_MAX, SCHED_OTHER);
	/* prlimit64 of this process (0) only. */
	return err ? err : allow_if(filter, SCMP_SYS(prlimit64), 0, UINT32_MAX, 0);
}

/* Files: facts of an open file, locks of the store, the size of a terminal. */
static int allow_files(scmp_filter_ctx filter)
{
	static const uint64_t controls[] = { TCGETS, TCSETS, TIOCGWINSZ, FIONREAD, FIOCLEX };
	static const uint64_t commands[] = {
		F_GETFD,      F_SETFD,	   F_GETFL,	F_SETFL,     F_DUPFD,	   F_GETLK,
		F_SETLK,      F_SETLKW,	   F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_DUPFD_CLOEXEC,
		F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS, F_SETPIPE_SZ
	};
	int err = 0;

	/* libc's fstat. A path may be given with this flag too, but the root directory has none. */
	err = allow_if(filter, SCMP_SYS(newfstatat), 3, AT_EMPTY_PATH, AT_EMPTY_PATH);
	if (!err)
		err = allow_if(filter, SCMP_SYS(statx), 2, AT_EMPTY_PATH, AT_EMPTY_PATH);
	for (size_t i = 0; !err && i < sizeof(controls) / sizeof(controls[0]); i++)
		err = allow_if(filter, SCMP_SYS(ioctl), 1, UINT32_MAX, controls[i]);
	for (size_t i = 0; !err && i < sizeof(commands) / sizeof(commands[0]); i++)
		err = allow_if(filter, SCMP_SYS(fcntl), 1, UINT32_MAX, commands[i]);
	return err;
}

/* Bytes go to what a socket is connected to: this flag would connect it past the rules for ports. */
static int allow_messages(scmp_filter_ctx filter, enum role role)
{
	int err = allow_if(filter, SCMP_SYS(sendmsg), 2, MSG_FASTOPEN, 0);

	if (!err && role == SENDER)
		err = allow_if(filter, SCMP_SYS(sendto), 3, MSG_FASTOPEN, 0);
	if (!err && role == SENDER)
		err = allow_if(filter, SCMP_SYS(sendmmsg), 3, MSG_FASTOPEN, 0);
	return err;
}

/* Allow to make sockets of a family, a type and a protocol. */
static int allow_sockets(scmp_filter_ctx filter, int call, int family, int type, int protocol)
{
	const uint64_t flags = SOCK_NONBLOCK | SOCK_CLOEXEC;

	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 3,
				SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint64_t)family),
				SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX & ~flags, (uint64_t)type),
				SCMP_A2(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint64_t)protocol));
}

/*
 * Files are opened to be read only. Sockets are TCP's, and UDP's to look up names. libcurl wakes its thread by
 * a pair of sockets: one for messages could send to every UNIX socket.
 */
static int allow_sender(scmp_filter_ctx filter)
{
	static const int families[] = { AF_INET, AF_INET6 };
	static const struct {
		int type, protocol;
	} kinds[] = { { SOCK_STREAM, 0 },
		      { SOCK_STREAM, IPPROTO_TCP },
		      { SOCK_DGRAM, 0 },
		      { SOCK_DGRAM, IPPROTO_UDP } };
	int err = allow_if(filter, SCMP_SYS(openat), 2,
			   O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | (O_TMPFILE & ~O_DIRECTORY),
			   O_RDONLY);

	for (size_t i = 0; !err && i < sizeof(allowed_sender) / sizeof(allowed_sender[0]); i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_sender[i], 0);
	for (size_t i = 0; !err && i < 2 * sizeof(kinds) / sizeof(kinds[0]); i++)
		err = allow_sockets(filter, SCMP_SYS(socket), families[i % 2], kinds[i / 2].type,
				    kinds[i / 2].protocol);
	if (!err)
		err = allow_sockets(filter, SCMP_SYS(socketpair), AF_UNIX, SOCK_STREAM, 0);
	return err ? err : allow_if(filter, SCMP_SYS(ioctl), 1, UINT32_MAX, FIONBIO);
}

/* Add the rules of a process without rights; serves: it may also accept connections. */
static int confine(scmp_filter_ctx filter, enum role role, bool serves)
{
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(allowed) / sizeof(allowed[0]); i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; !err && serves && i < sizeof(allowed_server) / sizeof(allowed_server[0]);
	     i++)
		/* A sender's messages have a rule of their own (allow_messages). */
		if (role == SERVER || allowed_server[i] != SCMP_SYS(sendto))
			err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_server[i], 0);
	if (!err && role == SENDER)
		err = allow_sender(filter);
	if (!err)
		err = allow_messages(filter, role);
	if (!err)
		err = allow_memory(filter);
	if (!err)
		err = allow_threads(filter);
	return err ? err : allow_files(filter);
}

/* ---- of processes with capabilities ------------------------------------------------------ */

/* What recording does not take: to execute, to connect, to change files, mounts, the machine and other processes. */
static const int refused[] = { SCMP_SYS(execve),
			       SCMP_SYS(execveat),
			       SCMP_SYS(fork),
			       SCMP_SYS(vfork),
			       SCMP_SYS(ptrace),
			       SCMP_SYS(process_vm_writev),
			       SCMP_SYS(kill),
			       SCMP_SYS(tkill),
			       SCMP_SYS(rt_sigqueueinfo),
			       SCMP_SYS(rt_tgsigqueueinfo),
			       SCMP_SYS(pidfd_send_signal),
			       SCMP_SYS(pidfd_getfd),
			       SCMP_SYS(kcmp),
			       SCMP_SYS(move_pages),
			       SCMP_SYS(migrate_pages),
			       SCMP_SYS(setns),
			       SCMP_SYS(unshare),
			       SCMP_SYS(socket),
			       SCMP_SYS(connect),
			       SCMP_SYS(bind),
			       SCMP_SYS(listen),
			       SCMP_SYS(accept),
			       SCMP_SYS(accept4),
			       SCMP_SYS(creat),
			       SCMP_SYS(truncate),
			       SCMP_SYS(unlink),
			       SCMP_SYS(unlinkat),
			       SCMP_SYS(rename),
			       SCMP_SYS(renameat),
			       SCMP_SYS(renameat2),
			       SCMP_SYS(link),
			       SCMP_SYS(linkat),
			       SCMP_SYS(symlink),
			       SCMP_SYS(symlinkat),
			       SCMP_SYS(mkdir),
			       SCMP_SYS(mkdirat),
			       SCMP_SYS(rmdir),
			       SCMP_SYS(mknod),
			       SCMP_SYS(mknodat),
			       SCMP_SYS(chmod),
			       SCMP_SYS(fchmod),
			       SCMP_SYS(fchmodat),
			       SCMP_SYS(chown),
			       SCMP_SYS(fchown),
			       SCMP_SYS(lchown),
			       SCMP_SYS(fchownat),
			       SCMP_SYS(setxattr),
			       SCMP_SYS(lsetxattr),
			       SCMP_SYS(fsetxattr),
			       SCMP_SYS(chroot),
			       SCMP_SYS(pivot_root),
			       SCMP_SYS(mount),
			       SCMP_SYS(umount2),
			       SCMP_SYS(open_tree),
			       SCMP_SYS(move_mount),
			       SCMP_SYS(fsopen),
			       SCMP_SYS(fsmount),
			       SCMP_SYS(swapon),
			       SCMP_SYS(swapoff),
			       SCMP_SYS(init_module),
			       SCMP_SYS(finit_module),
			       SCMP_SYS(delete_module),
			       SCMP_SYS(kexec_load),
			       SCMP_SYS(kexec_file_load),
			       SCMP_SYS(reboot),
			       SCMP_SYS(iopl),
			       SCMP_SYS(ioperm),
			       SCMP_SYS(settimeofday),
			       SCMP_SYS(clock_settime),
			       SCMP_SYS(clock_adjtime),
			       SCMP_SYS(adjtimex),
			       SCMP_SYS(sethostname),
			       SCMP_SYS(setdomainname),
			       SCMP_SYS(syslog),
			       SCMP_SYS(setuid),
			       SCMP_SYS(setreuid),
			       SCMP_SYS(setresuid),
			       SCMP_SYS(add_key),
			       SCMP_SYS(request_key),
			       SCMP_SYS(keyctl),
			       SCMP_SYS(userfaultfd),
			       SCMP_SYS(io_uring_setup) };

static int refuse_if(scmp_filter_ctx filter, int call, struct scmp_arg_cmp only)
{
	return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 1, only);
}

static int narrow(scmp_filter_ctx filter)
{
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(refused) / sizeof(refused[0]); i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
	if (!err) /* its flags are in memory; libc goes on with clone */
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (!err)
		err = refuse_if(filter, SCMP_SYS(clone),
				SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	if (!err)
		err = refuse_if(filter, SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_NE, FILTER_PID, 0));
	return err ? err : refuse_if(filter, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_NE, 0, 0));
}

/* ---- as C -------------------------------------------------------------------------------- */

/* Print a filter as an array. In exactly one place it must compare with the process. */
static int print(scmp_filter_ctx filter, const char *name)
{
	struct sock_filter code[FILTER_MAX];
	int fd = memfd_create(name, MFD_CLOEXEC), err = fd < 0 ? -errno : 0;
	ssize_t size = 0;
	size_t n_pids = 0;

	if (!err)
		err = seccomp_export_bpf(filter, fd);
	if (!err && lseek(fd, 0, SEEK_END) > (off_t)sizeof(code))
		err = -E2BIG;
	if (!err)
		size = pread(fd, code, sizeof(code), 0);
	if (fd >= 0)
		(void)close(fd);
	if (err || size <= 0)
		return err ? err : -EIO;
	(void)printf("\nstatic const struct sock_filter %s[] = {\n", name);
	for (size_t i = 0; i < (size_t)size / sizeof(code[0]); i++) {
		n_pids += BPF_CLASS(code[i].code) == BPF_JMP && code[i].k == FILTER_PID;
		(void)printf("\t{ 0x%02x, %u, %u, 0x%08x },\n", code[i].code, code[i].jt,
			     code[i].jf, code[i].k);
	}
	(void)printf("};\n");
	return n_pids == 1 ? 0 : -EINVAL;
}

int main(void)
{
	static const struct {
		const char *name;
		enum role role;
		bool serves, narrows;
	} filters[] = {
		{ "filter_worker", .role = WORKER },
		{ "filter_server", .role = SERVER, .serves = true },
		{ "filter_sender", .role = SENDER },
		{ "filter_serving_sender", .role = SENDER, .serves = true },
		{ "filter_narrow", .narrows = true },
	};

	(void)printf("/* The work of agent/role/filters.c. */\n#include <linux/filter.h>\n\n"
		     "#define FILTER_PID 0x%08xu\n#define FILTER_MAX %d\n",
		     FILTER_PID, FILTER_MAX);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		scmp_filter_ctx filter =
			seccomp_init(filters[i].narrows ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
		int err = filter ? 0 : -ENOMEM;

		/*
		 * A call is found by a search, not by comparing with one after the other: the kernel tries all
		 * numbers of calls when it installs a filter.
		 */
		if (!err)
			err = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
		if (!err)
			err = filters[i].narrows
				      ? narrow(filter)
				      : confine(filter, filters[i].role, filters[i].serves);
		if (!err)
			err = print(filter, filters[i].name);
		if (filter)
			seccomp_release(filter);
		if (err) {
			(void)fprintf(stderr, "%s: %s\n", filters[i].name, strerror(-err));
			return 1;
		}
	}
	return fflush(stdout) ? 1 : 0;
}

/*
 * agent/role/sandbox.c: another root directory, a user of its own, no capabilities, Landlock and a
 * filter of system calls.
 */
#include "agent/role/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * The sanitizers open files when they report, and the leak sanitizer traces the process from a
 * process of its own.
 */
bool sandbox_is_possible(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	return false;
#else
	return true;
#endif
#else
	return true;
#endif
}

/* ---- file system and identity ------------------------------------------------------- */

/*
 * Make a directory the root of this process that shows nothing but facts about its own open files, and
 * in which nothing can be created, not even by root. Needs CAP_SYS_CHROOT; without it, or without
 * /proc, the other layers remain. (An empty directory would have to be made on a disk first, which
 * takes longer than all the rest.)
 */
static void leave_file_system(void)
{
	int err;

	if (geteuid())
		return;
	err = chdir("/proc/self/fdinfo");
	if (!err)
		err = chroot(".");
	(void)err;
}

/*
 * A user that nobody else is, so that no other process of offwind or of anybody can be reached by its
 * user id. systemd's UIDS-GIDS lists 0x70000000 to 0x7fffffff as unused by everybody.
 */
#define OWN_USER  0x70000000u
#define OWN_USERS 0x0fffffffu
#define NOBODY	  65534u

static bool become(uid_t user)
{
	return !setresgid(user, user, user) && !setresuid(user, user, user);
}

/*
 * Become another user, if this process is root. In a user namespace neither of the numbers may exist:
 * its root then loses its capabilities only.
 */
static void leave_user(void)
{
	uid_t own = OWN_USER + ((uid_t)getpid() & OWN_USERS);

	if (geteuid())
		return;
	(void)setgroups(0, NULL);
	if (!become(own))
		(void)become(NOBODY);
}

/* No program that would be executed could get a capability. Before leave_user: it takes CAP_SETPCAP. */
static void empty_bounding_set(void)
{
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

/* Drop every capability. */
static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &header, none) ? -errno : 0;
}

void sandbox_keep(const int *caps, size_t n)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3];
	uint64_t keep = 0;

	if (syscall(SYS_capget, &header, held))
		return;
	for (size_t i = 0; i < n; i++)
		keep |= UINT64_C(1) << caps[i];
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (!(keep >> cap & 1))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		held[i].permitted &= (uint32_t)(keep >> 32 * i);
		held[i].effective &= (uint32_t)(keep >> 32 * i);
		held[i].inheritable = 0;
	}
	(void)syscall(SYS_capset, &header, held);
}

void sandbox_limit_memory(uint64_t bytes)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_DATA, &limit) || limit.rlim_cur <= bytes)
		return;
	limit.rlim_cur = bytes;
	(void)setrlimit(RLIMIT_DATA, &limit);
}

/* Who is confined. */
enum role { WORKER, SERVER, SENDER };

struct confinement {
	enum role role;
	struct sandbox_sending sending; /* of a SENDER */
};

/* Of linux/landlock.h, which is older in Debian 12 than the kernels that know these. */
struct ruleset {
	uint64_t files, ports, scopes;
};
struct port_rule {
	uint64_t allowed, port;
};
#define RULE_PORT    2 /* LANDLOCK_RULE_NET_PORT */
#define BIND_TCP     UINT64_C(1)
#define CONNECT_TCP  UINT64_C(2)
#define SCOPE_UNIX   UINT64_C(1) /* abstract UNIX sockets of others */
#define SCOPE_SIGNAL UINT64_C(2)

/* Since which version of Landlock there is what beside the rights of version 1. */
static const struct {
	long version;
	struct ruleset more;
} landlock_rights[] = {
	{ 2, { .files = UINT64_C(1) << 13 } }, /* LANDLOCK_ACCESS_FS_REFER */
	{ 3, { .files = UINT64_C(1) << 14 } }, /* LANDLOCK_ACCESS_FS_TRUNCATE */
	{ 4, { .ports = BIND_TCP | CONNECT_TCP } },
	{ 5, { .files = UINT64_C(1) << 15 } }, /* LANDLOCK_ACCESS_FS_IOCTL_DEV */
	{ 6, { .scopes = SCOPE_UNIX | SCOPE_SIGNAL } },
};

/* What a connection needs: names of hosts, certificates, and what links in /etc lead to. */
static const char *const connection_files[] = {
	"/etc",
	"/run/systemd/resolve",
	"/run/resolvconf",
	"/run/NetworkManager",
	"/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
};

/* Let a ruleset allow to read a file, or what is below a directory, if it exists. */
static void allow_below(int ruleset, const char *path)
{
	struct landlock_path_beneath_attr below = {
		.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
		.parent_fd = open(path, O_PATH | O_CLOEXEC),
	};
	struct stat st;

	if (below.parent_fd < 0)
		return;
	if (!fstat(below.parent_fd, &st) && S_ISDIR(st.st_mode))
		below.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
	(void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
	(void)close(below.parent_fd);
}

/* Let a ruleset allow to connect to a port by TCP. */
static void allow_port(int ruleset, uint16_t port)
{
	const struct port_rule rule = { CONNECT_TCP, port };

	(void)syscall(SYS_landlock_add_rule, ruleset, RULE_PORT, &rule, 0);
}

/*
 * Forbid everything that Landlock knows, with a ruleset that allows nothing but what a sender reads and
 * connects to. A kernel that does not know a right refuses the whole ruleset, so ask only for those of its
 * version.
 */
static void enter_landlock(const struct confinement *c)
{
	const struct sandbox_sending *sending = &c->sending;
	struct ruleset all = { .files = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1 };
	long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	int fd;

	if (version < 1)
		return;
	for (size_t i = 0; i < sizeof(landlock_rights) / sizeof(landlock_rights[0]); i++)
		if (version >= landlock_rights[i].version) {
			all.files |= landlock_rights[i].more.files;
			all.ports |= landlock_rights[i].more.ports;
			all.scopes |= landlock_rights[i].more.scopes;
		}
	if (sending->any_port)
		all.ports &= ~CONNECT_TCP;
	/* Older kernels take a longer struct if what they do not know is 0. */
	fd = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof(all), 0);
	if (fd < 0)
		return;
	for (size_t i = 0;
	     c->role == SENDER && i < sizeof(connection_files) / sizeof(connection_files[0]); i++)
		allow_below(fd, connection_files[i]);
	for (size_t i = 0; i < sending->n_readable; i++)
		allow_below(fd, sending->readable[i]);
	for (size_t i = 0; i < sending->n_ports && all.ports & CONNECT_TCP; i++)
		allow_port(fd, sending->ports[i]);
	(void)syscall(SYS_landlock_restrict_self, fd, 0);
	(void)close(fd);
}

/* ---- system calls --------------------------------------------------------------------- */

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
		err = allow_if(filter, SCMP_SYS(tgkill), 0, UINT32_MAX, (uint64_t)getpid());
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

/* Install the filter. It needs no_new_privs, which seccomp_load sets. */
static int filter_calls(const struct confinement *c)
{
	const enum role role = c->role;
	const bool serves = role == SERVER || c->sending.serves;
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int err = filter ? 0 : -ENOMEM;

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
	if (!err)
		err = allow_files(filter);
	if (!err)
		err = seccomp_load(filter);
	if (filter)
		seccomp_release(filter);
	return err;
}

static int enter(const struct confinement *c)
{
	const struct rlimit none = { 0, 0 };
	int err;

	/* libc reads the time zone's file at the first use. */
	tzset();
	if (c->role != SENDER)
		leave_file_system();
	empty_bounding_set();
	leave_user();
	err = drop_capabilities();
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = -errno;
	if (err)
		return err;
	/* A change of the user clears this: end together with the supervisor. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)setrlimit(RLIMIT_CORE, &none);
	enter_landlock(c);
	return filter_calls(c);
}

int sandbox_enter(void)
{
	return enter(&(struct confinement){ .role = WORKER });
}

int sandbox_enter_server(void)
{
	return enter(&(struct confinement){ .role = SERVER });
}

int sandbox_enter_sender(const struct sandbox_sending *sending)
{
	return enter(&(struct confinement){ SENDER, *sending });
}

/* ---- processes with capabilities --------------------------------------------------------- */

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

int sandbox_narrow(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int err = filter ? 0 : -ENOMEM;

	/* Most calls go on: find them by a search, not one after the other. */
	if (!err)
		(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (size_t i = 0; !err && i < sizeof(refused) / sizeof(refused[0]); i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
	if (!err) /* its flags are in memory; libc goes on with clone */
		err = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (!err)
		err = refuse_if(filter, SCMP_SYS(clone),
				SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	if (!err)
		err = refuse_if(filter, SCMP_SYS(tgkill),
				SCMP_A0(SCMP_CMP_NE, (uint64_t)getpid(), 0));
	if (!err)
		err = refuse_if(filter, SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_NE, 0, 0));
	if (!err)
		err = seccomp_load(filter);
	if (filter)
		seccomp_release(filter);
	return err;
}

/*
 * agent/role/sandbox.c: another root directory, a user of its own, no capabilities, Landlock and a
 * filter of system calls.
 */
#include "agent/role/sandbox.h"

#include "agent/role/filters.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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
 * Install a filter for good, in which FILTER_PID stands for this process. The filters were made with this
 * program (agent/role/filters.c): to make one here takes as long as a fork.
 */
static int install(const struct sock_filter *filter, size_t n)
{
	struct sock_filter own[FILTER_MAX];
	const struct sock_fprog program = { .len = (unsigned short)n, .filter = own };

	memcpy(own, filter, n * sizeof(*own));
	for (size_t i = 0; i < n; i++)
		if (BPF_CLASS(own[i].code) == BPF_JMP && own[i].k == FILTER_PID)
			own[i].k = (uint32_t)getpid();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		return -errno;
	return 0;
}

#define INSTALL(filter) install(filter, sizeof(filter) / sizeof(filter[0]))

static int filter_calls(const struct confinement *c)
{
	switch (c->role) {
	case WORKER:
		return INSTALL(filter_worker);
	case SERVER:
		return INSTALL(filter_server);
	case SENDER:
		return c->sending.serves ? INSTALL(filter_serving_sender) : INSTALL(filter_sender);
	}
	return -EINVAL;
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

int sandbox_narrow(void)
{
	return INSTALL(filter_narrow);
}

/* agent/opener/user.c: takes a user's file system rights temporarily, for one thread. */
#include "agent/opener/user.h"

#include "agent/opener/places.h"
#include "agent/opener/request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The overflow user and group. They own nothing and are in no group, so they may read only what
 * everybody may read.
 */
enum { NOBODY = 65534 };

#define CAP_BIT(cap) (UINT64_C(1) << (cap))
#define READ_CAPS    (CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_DAC_READ_SEARCH))

/* Open the user namespace of a process, and return whether it is this one, so that capabilities count here. */
static bool open_namespace(int process, int *ns)
{
	struct stat own, its;

	*ns = -1;
	return !places_process_open(process, "ns/user", O_RDONLY, ns) && !fstat(*ns, &its) &&
	       !stat("/proc/self/ns/user", &own) && own.st_dev == its.st_dev &&
	       own.st_ino == its.st_ino;
}

static bool in_own_namespace(int process)
{
	int ns;
	bool is_own = open_namespace(process, &ns);

	if (ns >= 0)
		(void)close(ns);
	return is_own;
}

bool user_mounts(int process)
{
	uid_t owner, own = geteuid();
	int ns;
	bool is_own = open_namespace(process, &ns);

	if (!is_own && own) /* root makes namespaces for others: containers */
		is_own = ns >= 0 && !ioctl(ns, NS_GET_OWNER_UID, &owner) && owner == own;
	if (ns >= 0)
		(void)close(ns);
	return is_own;
}

/*
 * Choose among the real, effective and file system id of a process. A program that was started with
 * more rights than its user has (set-user-ID) counts as the user's. A root daemon that took fewer
 * rights counts as the user that it became.
 */
static uint32_t least(const char *line)
{
	uint32_t real = NOBODY, effective = NOBODY, saved, fs = NOBODY;

	if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &real, &effective, &saved,
		   &fs) != 4)
		return NOBODY;
	return real ? real : effective ? effective : fs;
}

/* Read the supplementary groups of a user, OPENER_GROUPS_MAX at most. */
static void read_groups(const char *line, struct opener_user *user)
{
	uint32_t group;
	int n;

	/* Without the groups beyond the limit the user has fewer rights, never more. */
	while (user->n_groups < OPENER_GROUPS_MAX &&
	       sscanf(line, "%" SCNu32 "%n", &group, &n) == 1) {
		user->groups[user->n_groups++] = group;
		line += n;
	}
}

/*
 * Read /proc/PID/status (proc_pid_status(5)). A user who may read all files is root with READ_CAPS
 * in this program's own user namespace: elsewhere, capabilities mean nothing for the host's files.
 */
int user_of(int process, struct opener_user *out)
{
	struct opener_user user = { .known = true, .uid = NOBODY, .gid = NOBODY };
	int fd = openat(process, "status", O_RDONLY | O_CLOEXEC);
	FILE *status = fd < 0 ? NULL : fdopen(fd, "r");
	uint64_t effective = 0;
	bool has_uid = false;
	char *line = NULL;
	size_t room = 0;

	if (!status) {
		if (fd >= 0)
			(void)close(fd);
		return -ESRCH;
	}
	while (getline(&line, &room, status) > 0) {
		if (!strncmp(line, "Uid:", 4)) {
			user.uid = least(line + 4);
			has_uid = true;
		} else if (!strncmp(line, "Gid:", 4)) {
			user.gid = least(line + 4);
		} else if (!strncmp(line, "Groups:", 7)) {
			read_groups(line + 7, &user);
		} else if (!strncmp(line, "CapEff:", 7)) {
			(void)sscanf(line + 7, "%" SCNx64, &effective);
		}
	}
	free(line);
	(void)fclose(status);
	if (!has_uid)
		return -ESRCH;
	user.reads_all = !user.uid && (effective & READ_CAPS) && in_own_namespace(process);
	*out = user;
	return 0;
}

int opener_user_name(const struct opener *opener, uint32_t uid, char name[OPENER_USER_NAME])
{
	struct request request = { .what = REQUEST_USER_NAME,
				   .opener = opener->number,
				   .user = { .uid = uid },
				   .fd = -1 };
	FILE *file = opener->number ? NULL : fopen("/etc/passwd", "re");
	struct passwd entry, *found;
	char text[1024];
	int err = -ENOENT;

	if (opener->number)
		return request_user_name(&request, name);
	while (file && err && !fgetpwent_r(file, &entry, text, sizeof(text), &found)) {
		if (found->pw_uid != uid || strlen(found->pw_name) >= OPENER_USER_NAME)
			continue;
		(void)strcpy(name, found->pw_name);
		err = 0;
	}
	if (file)
		(void)fclose(file);
	return err;
}

/*
 * These four use the system calls directly: libc's functions change all threads, or do not exist.
 */
static int set_groups(int n, const gid_t *groups)
{
	return syscall(SYS_setgroups, (size_t)n, groups) ? -errno : 0;
}

static uid_t fs_uid(void)
{
	return (uid_t)setfsuid((uid_t)-1);
}

static gid_t fs_gid(void)
{
	return (gid_t)setfsgid((gid_t)-1);
}

static int caps(long call, struct __user_cap_data_struct *data)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(call, &header, data) ? -errno : 0;
}

/*
 * Change this thread's groups, ids and effective capabilities. Return whether everything was
 * changed.
 */
static bool become(const struct opener_user *user, uid_t uid, gid_t gid)
{
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
	bool became = !set_groups(user->known ? (int)user->n_groups : 0, user->groups);

	(void)setfsgid(gid);
	(void)setfsuid(uid);
	became &= fs_gid() == gid && fs_uid() == uid;
	/*
	 * Drop the capabilities last, because the calls above need them. The permitted ones stay,
	 * for the way back.
	 */
	if (caps(SYS_capget, none))
		return false;
	for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		none[i].effective = 0;
	return !caps(SYS_capset, none) && became;
}

int user_enter(const struct opener_user *user, struct user_left *left, bool *public)
{
	uid_t uid = user && user->known ? user->uid : NOBODY;
	gid_t gid = user && user->known ? user->gid : NOBODY;
	int err;

	*public = false;
	*left = (struct user_left){ .uid = fs_uid(), .gid = fs_gid() };
	if (!user || (user->known && user->reads_all))
		return 0;
	err = caps(SYS_capget, left->caps);
	if (err)
		return err;
	left->n_groups = getgroups(0, NULL);
	left->groups = calloc((size_t)(left->n_groups > 0 ? left->n_groups : 0) + 1, sizeof(gid_t));
	if (!left->groups)
		return -ENOMEM;
	left->n_groups = getgroups(left->n_groups, left->groups);
	left->dumpable = prctl(PR_GET_DUMPABLE) == 1;
	left->entered = true;
	/*
	 * Files of the agent's own user are read with its own rights; only the capabilities must
	 * go. With another user's id, the agent's own groups must not stay.
	 */
	*public = !become(user, uid, gid) && left->uid != uid;
	return 0;
}

/* Restore the rights that the thread had before user_enter, and free left's memory. */
void user_leave(struct user_left *left)
{
	if (left->entered) {
		int err = caps(SYS_capset, left->caps);

		/*
		 * Either both ids were changed or none. Root's capabilities come and go with its
		 * id.
		 */
		(void)setfsuid(left->uid);
		(void)setfsgid(left->gid);
		(void)set_groups(left->n_groups, left->groups);
		err |= caps(SYS_capset, left->caps);
		/* Abort, so that this thread does no other work with the wrong rights. */
		if (err || fs_uid() != left->uid || fs_gid() != left->gid)
			abort();
		/*
		 * The kernel clears the dumpable flag of a process that changes its ids, which
		 * locks out debuggers.
		 */
		if (left->dumpable)
			(void)prctl(PR_SET_DUMPABLE, 1);
	}
	free(left->groups);
	left->groups = NULL;
	left->entered = false;
}

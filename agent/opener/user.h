/*
 * agent/opener/user.h: takes the file system rights of a process's user. The agent opens with these
 * rights what it finds by name for that process. The agent may run as root; a name that a stranger
 * chose must not lead the agent to a file that the stranger may not read.
 */
#ifndef AGENT_OPENER_USER_H
#define AGENT_OPENER_USER_H

#include "agent/opener/opener.h"

#include <linux/capability.h>
#include <sys/types.h>

/*
 * Read the user of a process. process is a descriptor of its directory in /proc. -ESRCH: it has
 * ended.
 */
int user_of(int process, struct opener_user *out);
/*
 * Return whether root or this user decides what is mounted for a process: the process is in this user namespace,
 * or in one of an ordinary user who runs this program. In all others anybody can mount file systems of his own, and
 * user ids in the list of mounts are those of that namespace.
 */
bool user_mounts(int process);

struct user_left { /* the rights that this thread had before user_enter */
	bool entered, dumpable;
	uid_t uid;
	gid_t gid;
	int n_groups;
	gid_t *groups;
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
};

/*
 * Give this thread the file system rights of user, and no more, until user_leave. NULL changes
 * nothing. *public is set if the agent cannot become this user; then open only what everybody may
 * read. -ENOMEM, or the error of capget. Pair every successful call with user_leave.
 */
int user_enter(const struct opener_user *user, struct user_left *left, bool *public);
void user_leave(struct user_left *left);

#endif

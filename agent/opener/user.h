/*
 * agent/opener/user.h: the rights of a process's user, with which the agent opens what it finds for that process by
 * name.  The agent may run as root; a name that a stranger chose must not lead it to what the stranger may not read.
 */
#ifndef AGENT_OPENER_USER_H
#define AGENT_OPENER_USER_H

#include "agent/opener/opener.h"

#include <linux/capability.h>
#include <sys/types.h>

/* Read whose process it is of which the directory in /proc is open as process.  -ESRCH: it has ended. */
int user_of(int process, struct opener_user *out);

struct user_left { /* what this thread was before user_enter */
	bool entered, dumpable;
	uid_t uid;
	gid_t gid;
	int n_groups;
	gid_t *groups;
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
};

/*
 * Give this thread the file system rights of user, and no more, until user_leave; NULL changes nothing.  *public: the
 * agent cannot become this user, so that it must open only what everybody may read.  -ENOMEM, or what capget says.
 */
int user_enter(const struct opener_user *user, struct user_left *left, bool *public);
void user_leave(struct user_left *left);

#endif

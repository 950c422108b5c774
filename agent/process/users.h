/* agent/process/users.h: gives the label of a user, by number. */
#ifndef AGENT_PROCESS_USERS_H
#define AGENT_PROCESS_USERS_H

#include "agent/hash.h"
#include "agent/labels.h"
#include "agent/opener/opener.h"

struct users { /* all but opener and rules zero: empty */
	struct known_user {
		uint32_t uid;
		const char *labels;
		uint64_t asked_ns;
	} * users;
	size_t n, room;
	struct uw_hash_index by_uid;
	struct strings texts;
	struct opener *opener; /* knows the names; borrowed; NULL: there are only numbers */
	const struct label_rules *rules; /* borrowed; NULL: none */
};

/*
 * Return the text (agent/labels.h) of the label of a user; now_ns is on any clock. Names are read again
 * after a minute. Equal texts are equal pointers, valid until users_forget. NULL: out of memory.
 */
const char *users_label(struct users *users, uint32_t uid, uint64_t now_ns);
/* As cgroups_are_many and cgroups_forget, but no user is left. */
bool users_are_many(const struct users *users);
void users_forget(struct users *users);
void users_fini(struct users *users);

#endif

/* agent/process/users.c: the labels of users. */
#include "agent/process/users.h"

#include "agent/array.h"
#include "symbolizer/symbolizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS  UINT64_C(60000000000)
#define USERS_MAX 4096

/* Make the label: the name, or the number of a user without one. */
static const char *make(struct users *users, uint32_t uid)
{
	char name[OPENER_USER_NAME] = "", number[16];
	struct labels labels = { .n = 0 };
	char *sanitized = NULL;

	if (users->opener && !opener_user_name(users->opener, uid, name))
		sanitized = sym_sanitize(name, strlen(name), sizeof(name));
	(void)snprintf(number, sizeof(number), "%" PRIu32, uid);
	(void)labels_add(&labels, users->rules, "user",
			 sanitized && *sanitized ? sanitized : number);
	free(sanitized);
	return strings_keep(&users->texts, labels.text, labels.n);
}

const char *users_label(struct users *users, uint32_t uid, uint64_t now_ns)
{
	uint64_t hash = hash_u64(0, uid);
	uint32_t at = UW_HASH_FIND(i, &users->by_uid, hash, users->users[i].uid == uid);
	const char *labels;

	if (at != UW_HASH_NONE && now_ns - users->users[at].asked_ns < AGAIN_NS)
		return users->users[at].labels;
	labels = make(users, uid);
	if (labels && at == UW_HASH_NONE) {
		if (array_grow(users->users, users->n, users->room) ||
		    uw_hash_add(&users->by_uid, hash, (uint32_t)users->n))
			return NULL;
		at = (uint32_t)users->n++;
	}
	if (labels)
		users->users[at] = (struct known_user){ uid, labels, now_ns };
	return labels;
}

bool users_are_many(const struct users *users)
{
	return users->n > USERS_MAX || users->texts.n > (size_t)2 * USERS_MAX;
}

void users_forget(struct users *users)
{
	users->n = 0;
	uw_hash_clear(&users->by_uid);
	strings_sweep(&users->texts);
}

void users_fini(struct users *users)
{
	free(users->users);
	uw_hash_fini(&users->by_uid);
	strings_fini(&users->texts);
	*users = (struct users){ 0 };
}

/* tests/unit/test_users.c: tests the labels of users. */
#include "agent/process/users.h"

#include "tests/check.h"

#include <pwd.h>
#include <string.h>

#define MINUTE UINT64_C(60000000000)

/* Return the user in a text, or "". */
static const char *user_in(const char *text)
{
	static struct label_item item;

	return labels_next(&text, &item) && !strcmp(item.key, "user") ? item.value : "";
}

static void test_users_have_names_or_numbers(struct opener *opener)
{
	const struct passwd *root = getpwuid(0);
	struct users users = { .opener = opener };
	const char *first = users_label(&users, 0, 1);

	CHECK(root && !strcmp(user_in(first), root->pw_name), user_in(first));
	CHECK(!strcmp(user_in(users_label(&users, 0x70001234, 1)), "1879052852"), "no such user");
	CHECK(users_label(&users, 0, 2) == first && users_label(&users, 0, 2 * MINUTE) == first,
	      "the same text");
	users_fini(&users);
	CHECK(!strcmp(user_in(users_label(&users, 0, 1)), "0"), "without names");
	users_fini(&users);
}

static void test_many_users_take_bounded_memory(void)
{
	struct users users = { .n = 0 };
	const char *first = users_label(&users, 7, 1);
	size_t most = 0;

	for (uint32_t i = 0; i < 100000; i++) {
		CHECK(users_label(&users, i, 1), "a user");
		most = most > users.texts.n ? most : users.texts.n;
		if (!users_are_many(&users))
			continue;
		strings_mark(first);
		users_forget(&users);
	}
	CHECK(most < 10000, "few texts");
	CHECK(users_label(&users, 7, 1) == first, "one that is in use stays");
	users_fini(&users);
}

static void test_rules_apply(void)
{
	struct label_rules *rules;
	char error[LABELS_ERROR];
	struct users users = { .n = 0 };

	CHECK(!label_rules_new(&rules) && !label_rules_add(rules, LABEL_DROP, "user", error),
	      "rules");
	users.rules = rules;
	CHECK(!*users_label(&users, 1, 1) && users_label(&users, 1, 1) == users_label(&users, 2, 1),
	      "all are one");
	users_fini(&users);
	label_rules_free(rules);
}

int main(void)
{
	const struct opener_options options = { 0 };
	struct opener *opener;

	CHECK(!opener_new(&options, &opener), "opener");
	test_users_have_names_or_numbers(opener);
	test_many_users_take_bounded_memory();
	test_rules_apply();
	opener_free(opener);
	return check_done();
}

/* tests/unit/test_labels.c: tests the rules for labels, and labels as one string. */
#include "agent/labels.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct label_rules *rules;
static char error[LABELS_ERROR];

static void begin(void)
{
	label_rules_free(rules);
	rules = NULL;
	*error = '\0';
	CHECK(!label_rules_new(&rules), "rules");
}

static bool is_called(const char *key, const char *name)
{
	const char *found = label_rules_name(rules, key);

	return name ? found && !strcmp(found, name) : !found;
}

static void test_without_rules_all_labels_are_kept(void)
{
	label_rules_free(rules);
	rules = NULL;
	CHECK(is_called("pid", "pid") && is_called("service.name", "service.name"), "no rules");
	begin();
	CHECK(is_called("pid", "pid") && is_called("service.name", "service.name"), "empty rules");
}

static void test_what_is_dropped_is_not_kept(void)
{
	begin();
	CHECK(!label_rules_add(rules, LABEL_DROP, "tid, thread,service.*", error), error);
	CHECK(is_called("tid", NULL) && is_called("thread", NULL), "two names");
	CHECK(is_called("service.name", NULL) && is_called("service", "service"), "a pattern");
	CHECK(is_called("pid", "pid"), "another");
	CHECK(!label_rules_add(rules, LABEL_KEEP, "tid,unit", error), error);
	CHECK(is_called("tid", NULL), "dropping counts more than keeping");
	CHECK(is_called("unit", "unit") && is_called("pid", NULL), "only what is kept");
	CHECK(!label_rules_add(rules, LABEL_KEEP, "*", error), error);
	CHECK(is_called("pid", "pid") && is_called("thread", NULL), "a later rule keeps more");
}

static void test_labels_are_renamed(void)
{
	begin();
	CHECK(!label_rules_add(rules, LABEL_RENAME, "container_id:container, pod:k8s.pod.uid",
			       error),
	      error);
	CHECK(is_called("container_id", "container") && is_called("pod", "k8s.pod.uid"), "renamed");
	CHECK(is_called("unit", "unit"), "another");
	CHECK(!label_rules_add(rules, LABEL_KEEP, "container_id", error), error);
	CHECK(is_called("container_id", "container"), "rules know labels by their first names");
	CHECK(label_rules_are_own(rules, "container") &&
		      label_rules_are_own(rules, "k8s.pod.uid") &&
		      label_rules_are_own(rules, "pid") && label_rules_are_own(rules, "stop") &&
		      !label_rules_are_own(rules, "service.name") &&
		      label_rules_are_own(NULL, "pid") && !label_rules_are_own(NULL, "container"),
	      "names of own labels");
}

static void test_wrong_rules_are_refused(void)
{
	static const struct {
		enum label_rule kind;
		const char *list, *why;
	} cases[] = {
		{ LABEL_DROP, "", "is empty" },
		{ LABEL_DROP, "pid,,tid", "is empty" },
		{ LABEL_DROP, "pid,", "is empty" },
		{ LABEL_DROP, "p d", "no such label" },
		{ LABEL_DROP, "container", "no such label" },
		{ LABEL_KEEP, "stop", "no such label" },
		{ LABEL_KEEP, "a=b.c", "letters" },
		{ LABEL_KEEP, "[a-z]*", "letters" },
		{ LABEL_RENAME, "pod", "OLD:NEW" },
		{ LABEL_RENAME, "pod:", "is empty" },
		{ LABEL_RENAME, ":pod", "is empty" },
		{ LABEL_RENAME, "pod:p*", "letters" },
		{ LABEL_RENAME, "p*:q", "only one" },
		{ LABEL_RENAME, "pod:unit", "already" },
		{ LABEL_RENAME, "tid:thread_id", "cannot be" },
		{ LABEL_RENAME, "pod:a,qos:a", "another rule" },
		{ LABEL_RENAME, "pod:a,pod:b", "another rule" },
	};
	char many[3 * 300];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin();
		CHECK(label_rules_add(rules, cases[i].kind, cases[i].list, error) == -EINVAL,
		      cases[i].list);
		CHECK(strstr(error, cases[i].why), error);
	}
	begin();
	memset(many, 'a', sizeof(many) - 1);
	many[sizeof(many) - 1] = '\0';
	CHECK(label_rules_add(rules, LABEL_KEEP, many, error) == -EINVAL, "a long name");
	for (size_t i = 0; i + 2 < sizeof(many); i += 2)
		memcpy(many + i, "*,", 2);
	CHECK(label_rules_add(rules, LABEL_KEEP, many, error) == -E2BIG, "many rules");
}

static void test_a_set_gives_what_it_got(void)
{
	struct labels labels = { .n = 0 };
	struct label_item item;
	const char *at = labels.text;
	char value[LABELS_VALUE_MAX + 2];
	size_t n = 0;

	CHECK(!labels_next(&at, &item), "nothing");
	at = NULL;
	CHECK(!labels_next(&at, &item), "no text");
	begin();
	CHECK(!label_rules_add(rules, LABEL_RENAME, "unit:u", error) &&
		      !label_rules_add(rules, LABEL_DROP, "qos", error),
	      error);
	CHECK(labels_add(&labels, rules, "unit", "a=b,c"), "one");
	CHECK(!labels_add(&labels, rules, "qos", "guaranteed"), "a dropped one");
	CHECK(!labels_add(&labels, rules, "pod", ""), "an empty one");
	CHECK(!labels_add(&labels, rules, "pod", "x\1y"), "control characters");
	memset(value, 'x', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	CHECK(!labels_add(&labels, rules, "pod", value), "a long value");
	value[LABELS_VALUE_MAX] = '\0';
	CHECK(labels_add(&labels, rules, "exe", value), "the longest value");
	CHECK(!labels_add(&labels, rules, "slice", value), "no room");
	at = labels.text;
	CHECK(labels_next(&at, &item) && !strcmp(item.key, "u") && !strcmp(item.value, "a=b,c"),
	      "the first");
	CHECK(labels_next(&at, &item) && !strcmp(item.key, "exe") && !strcmp(item.value, value),
	      "the second");
	CHECK(!labels_next(&at, &item), "no third");
	while (labels_add(&labels, NULL, "k", "v"))
		n++;
	CHECK(labels.n <= LABELS_TEXT_MAX && labels.n + 4 > LABELS_TEXT_MAX && n > 100, "full");
}

int main(void)
{
	test_without_rules_all_labels_are_kept();
	test_what_is_dropped_is_not_kept();
	test_labels_are_renamed();
	test_wrong_rules_are_refused();
	test_a_set_gives_what_it_got();
	label_rules_free(rules);
	return check_done();
}

/* tests/unit/test_container.c: tests what cgroup paths say, and how many of them are known. */
#include "agent/container.h"
#include "agent/limits.h"
#include "agent/process/cgroups.h"

#include "tests/check.h"

#include <string.h>

#define ID    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

/* Paths that these programs make (from their documentation; systemd and cgroupfs drivers). */
static const struct {
	const char *path, *id;
} cases[] = {
	{ "/docker/" ID, ID },
	{ "/system.slice/docker-" ID ".scope", ID },
	{ "/kubepods.slice/kubepods-besteffort.slice/"
	  "kubepods-besteffort-pod2c48913c_b29f_11e7_9350_020968147796.slice/cri-containerd-" ID
	  ".scope",
	  ID },
	{ "/kubepods/burstable/pod2c48913c-b29f-11e7-9350-020968147796/" ID, ID },
	{ "/machine.slice/libpod-" ID ".scope/container", ID },
	{ "/docker/" ID "/docker/" OTHER, OTHER },
	{ "/user.slice/user-1000.slice/session-2.scope", NULL },
	{ "/a/0" ID, NULL }, /* 65 digits are not an id */
	{ "/", NULL },
	{ "", NULL },
};

static void test_containers_are_known_by_their_cgroups(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char id[CONTAINER_ID + 1] = "";
		bool found = container_of(cases[i].path, id);

		CHECK(found == (cases[i].id != NULL), cases[i].path);
		CHECK(!found || !strcmp(id, cases[i].id), cases[i].path);
	}
}

/* Paths of systemd, and what journald says of them; of Kubernetes with both drivers. */
static const struct {
	const char *path, *unit, *user_unit, *slice, *runtime, *id, *pod, *qos;
} places[] = {
	{ "/system.slice/nginx.service", "nginx.service", "", "system.slice", "", "", "", "" },
	{ "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope/y",
	  "user@1000.service", "app-x.scope", "user-1000.slice", "", "", "", "" },
	{ "/init.scope", "init.scope", "", "", "", "", "", "" },
	{ "/docker/" ID, "", "", "", "docker", ID, "", "" },
	{ "/system.slice/docker-" ID ".scope/init.scope", "docker-" ID ".scope", "", "system.slice",
	  "docker", ID, "", "" },
	{ "/machine.slice/libpod-" ID ".scope/container", "libpod-" ID ".scope", "",
	  "machine.slice", "podman", ID, "", "" },
	{ "/machine.slice/systemd-nspawn@web.service/payload", "systemd-nspawn@web.service", "",
	  "machine.slice", "systemd-nspawn", "web", "", "" },
	{ "/machine.slice/machine-web.scope", "machine-web.scope", "", "machine.slice",
	  "systemd-nspawn", "web", "", "" },
	{ "/kubepods.slice/kubepods-besteffort.slice/"
	  "kubepods-besteffort-pod2c48913c_b29f_11e7_9350_020968147796.slice/cri-containerd-" ID
	  ".scope",
	  "cri-containerd-" ID ".scope", "",
	  "kubepods-besteffort-pod2c48913c_b29f_11e7_9350_020968147796.slice", "containerd", ID,
	  "2c48913c-b29f-11e7-9350-020968147796", "besteffort" },
	{ "/kubepods.slice/kubepods-pod2c48913c_b29f_11e7_9350_020968147796.slice/crio-" ID
	  ".scope",
	  "crio-" ID ".scope", "", "kubepods-pod2c48913c_b29f_11e7_9350_020968147796.slice",
	  "cri-o", ID, "2c48913c-b29f-11e7-9350-020968147796", "guaranteed" },
	{ "/kubepods/burstable/pod2c48913c-b29f-11e7-9350-020968147796/" ID, "", "", "", "", ID,
	  "2c48913c-b29f-11e7-9350-020968147796", "burstable" },
	{ "/podium.slice/x-podcast.service", "x-podcast.service", "", "podium.slice", "", "", "",
	  "" },
	{ "/.slice/.service/docker-.scope//", "docker-.scope", "", "", "", "", "", "" },
	{ "", "", "", "", "", "", "", "" },
};

static void test_labels_follow_from_the_path(void)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct container_labels l;

		container_labels(places[i].path, &l);
		CHECK(!strcmp(l.unit, places[i].unit), l.unit);
		CHECK(!strcmp(l.user_unit, places[i].user_unit), l.user_unit);
		CHECK(!strcmp(l.slice, places[i].slice), l.slice);
		CHECK(!strcmp(l.runtime, places[i].runtime), places[i].path);
		CHECK(!strcmp(l.id, places[i].id), l.id);
		CHECK(!strcmp(l.pod, places[i].pod), l.pod);
		CHECK(!strcmp(l.qos, places[i].qos), places[i].path);
	}
}

/* Return the path of a cgroup, or NULL. */
static const char *path_of(struct cgroups *cgroups, uint64_t id)
{
	const struct cgroup *found = cgroups_find(cgroups, id);

	return found ? found->path : NULL;
}

static void test_a_cgroup_is_known_by_its_last_path(void)
{
	const struct event_cgroup events[] = {
		{ 7, "/a" }, { 8, "/a" }, { UINT64_MAX, "/b\n\xff" }, { 7, "/c" }
	};
	struct cgroups cgroups = { 0 };

	CHECK(!path_of(&cgroups, 7), "nothing is known");
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		CHECK(!cgroups_event(&cgroups, &events[i]), "taken");
	CHECK(!strcmp(path_of(&cgroups, 7), "/c"), "the newer path");
	CHECK(!strcmp(path_of(&cgroups, 8), "/a"), "another");
	CHECK(!strchr(path_of(&cgroups, UINT64_MAX), '\xff'), "bytes that are no text");
	CHECK(!path_of(&cgroups, 9), "one that was not told");
	cgroups_fini(&cgroups);
}

/* Return the value of a label in a text, or "". */
static const char *label_in(const char *text, const char *key)
{
	static struct label_item item;

	while (labels_next(&text, &item))
		if (!strcmp(item.key, key))
			return item.value;
	return "";
}

static void test_rules_apply_to_the_labels_of_a_cgroup(void)
{
	const struct event_cgroup events[] = { { 1, "/a.slice/docker-" ID ".scope" },
					       { 2, "/a.slice/docker-" OTHER ".scope" } };
	struct cgroups cgroups = { 0 };
	struct label_rules *rules;
	char error[LABELS_ERROR];
	const char *first;

	CHECK(!cgroups_event(&cgroups, &events[0]) && !cgroups_event(&cgroups, &events[1]), "two");
	first = cgroups_find(&cgroups, 1)->labels;
	CHECK(!strcmp(label_in(first, "container_id"), ID) &&
		      !strcmp(label_in(first, "slice"), "a.slice") &&
		      !strcmp(label_in(first, "cgroup"), events[0].path) &&
		      !strcmp(label_in(first, "pod"), ""),
	      "all labels");
	CHECK(first != cgroups_find(&cgroups, 2)->labels, "others");
	cgroups_fini(&cgroups);
	CHECK(!label_rules_new(&rules) &&
		      !label_rules_add(rules, LABEL_KEEP, "slice,container_runtime", error) &&
		      !label_rules_add(rules, LABEL_RENAME, "slice:part", error),
	      "rules");
	cgroups.rules = rules;
	CHECK(!cgroups_event(&cgroups, &events[0]) && !cgroups_event(&cgroups, &events[1]), "two");
	first = cgroups_find(&cgroups, 1)->labels;
	CHECK(!strcmp(label_in(first, "part"), "a.slice") &&
		      !strcmp(label_in(first, "container_id"), ""),
	      "few labels");
	CHECK(first == cgroups_find(&cgroups, 2)->labels, "the same text");
	cgroups_fini(&cgroups);
	label_rules_free(rules);
}

static void test_a_long_path_is_refused(void)
{
	struct cgroups cgroups = { 0 };
	char path[2048] = "/";
	const struct event_cgroup event = { 5, path };
	uint64_t before = limits_counts.cgroup_path_bytes;

	memset(path + 1, 'x', limits.cgroup_path_bytes - 1);
	CHECK(!cgroups_event(&cgroups, &event) && path_of(&cgroups, 5), "the longest path");
	CHECK(limits_counts.cgroup_path_bytes == before, "not counted");
	cgroups_fini(&cgroups);
	strcat(path, "x");
	CHECK(!cgroups_event(&cgroups, &event) && !path_of(&cgroups, 5), "a longer one");
	CHECK(limits_counts.cgroup_path_bytes == before + 1, "counted");
	cgroups_fini(&cgroups);
}

/* Containers that come and go: 100,000 of them. Every tenth sample is of the same one. */
static void test_many_containers_take_bounded_memory(void)
{
	struct cgroups cgroups = { 0 };
	uint64_t before = limits_counts.cgroups;
	const char *kept = NULL;
	size_t most = 0, texts = 0;
	char path[256];

	for (uint64_t i = 0; i < 100000; i++) {
		const struct event_cgroup event = { i, path };

		(void)snprintf(path, sizeof(path),
			       "/kubepods.slice/kubepods-burstable.slice/"
			       "kubepods-burstable-pod%08x_b29f_11e7_9350_020968147796.slice/"
			       "cri-containerd-%064x.scope",
			       (unsigned int)i, (unsigned int)i);
		CHECK(!cgroups_event(&cgroups, &event), "taken");
		CHECK(i % 10 || cgroups_find(&cgroups, 0), "the one that is always there");
		if (i == 3)
			kept = cgroups_find(&cgroups, 3)->labels;
		if (!cgroups_are_many(&cgroups))
			continue;
		most = most > cgroups.n ? most : cgroups.n;
		texts = texts > cgroups.texts.n ? texts : cgroups.texts.n;
		strings_mark(kept);
		cgroups_forget(&cgroups);
	}
	printf("at most %zu cgroups, %zu texts\n", most, texts);
	CHECK(most == limits.cgroups + 1 && texts <= 2 * most + 1, "as many as the limit");
	CHECK(cgroups_find(&cgroups, 0) && cgroups_find(&cgroups, 99999), "used and new ones stay");
	CHECK(!cgroups_find(&cgroups, 3), "an old one is forgotten");
	CHECK(!strcmp(label_in(kept, "qos"), "burstable"), "a marked text stays");
	CHECK(limits_counts.cgroups >= before + 100000 - limits.cgroups, "counted");
	cgroups_fini(&cgroups);
}

int main(void)
{
	test_containers_are_known_by_their_cgroups();
	test_labels_follow_from_the_path();
	test_a_cgroup_is_known_by_its_last_path();
	test_rules_apply_to_the_labels_of_a_cgroup();
	test_a_long_path_is_refused();
	test_many_containers_take_bounded_memory();
	return check_done();
}

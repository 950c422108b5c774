/* tests/unit/test_container.c: tests how container ids are found in cgroup paths. */
#include "agent/container.h"
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

static void test_a_cgroup_is_known_by_its_last_path(void)
{
	const struct event_cgroup events[] = {
		{ 7, "/a" }, { 8, "/a" }, { UINT64_MAX, "/b\n\xff" }, { 7, "/c" }
	};
	struct cgroups cgroups = { 0 };

	CHECK(!cgroups_path(&cgroups, 7), "nothing is known");
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		CHECK(!cgroups_event(&cgroups, &events[i]), "taken");
	CHECK(!strcmp(cgroups_path(&cgroups, 7), "/c"), "the newer path");
	CHECK(!strcmp(cgroups_path(&cgroups, 8), "/a"), "another");
	CHECK(!strchr(cgroups_path(&cgroups, UINT64_MAX), '\xff'), "bytes that are no text");
	CHECK(!cgroups_path(&cgroups, 9), "one that was not told");
	cgroups_fini(&cgroups);
}

int main(void)
{
	test_containers_are_known_by_their_cgroups();
	test_a_cgroup_is_known_by_its_last_path();
	return check_done();
}

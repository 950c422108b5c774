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
	test_labels_follow_from_the_path();
	test_a_cgroup_is_known_by_its_last_path();
	return check_done();
}

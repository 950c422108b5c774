/* Which cgroups the options select; the table of the kernel is imitated. */
#include "agent/live/bpf/bpf.h"
#include "agent/live/cgroups.h"
#include "agent/live/system/hint.h"

#include "tests/check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint64_t told_id;
static int told = -1; /* enum capture_cgroup; -1: nothing; -2: forgotten */

int live_bpf_tell_cgroup(struct live_bpf *bpf, uint64_t id, enum capture_cgroup answer)
{
	(void)bpf;
	told_id = id;
	told = (int)answer;
	return 0;
}

void live_bpf_forget_cgroup(struct live_bpf *bpf, uint64_t id)
{
	(void)bpf;
	told_id = id;
	told = -2;
}

#define ID	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ANOTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD	"3f1c2d4e-0000-1111-2222-333344445555"

/* Check whether a selection has the cgroup of a path. */
static bool has(const struct source_live_options *options, const char *path)
{
	char error[LIVE_ERROR_SIZE] = "";
	struct live_cgroups c;
	bool found;

	if (live_cgroups_init(&c, options, error)) {
		(void)fprintf(stderr, "%s\n", error);
		return false;
	}
	found = live_cgroups_match(&c, path);
	live_cgroups_fini(&c);
	return found;
}

static bool unit(const char *name, const char *path)
{
	return has(&(struct source_live_options){ .units = &name, .n_units = 1 }, path);
}

static bool container(const char *id, const char *path)
{
	return has(&(struct source_live_options){ .containers = &id, .n_containers = 1 }, path);
}

static bool pod(const char *uid, const char *path)
{
	return has(&(struct source_live_options){ .pods = &uid, .n_pods = 1 }, path);
}

static void test_unit_has_what_runs_below_it(void)
{
	CHECK(unit("nginx.service", "/system.slice/nginx.service"), "unit has what runs below it");
	CHECK(unit("nginx", "/system.slice/nginx.service/workers/1"),
	      "unit has what runs below it");
	CHECK(!unit("nginx", "/system.slice/nginx2.service"), "unit has what runs below it");
	CHECK(!unit("nginx", "/system.slice"), "unit has what runs below it");
	CHECK(!unit("nginx", "/"), "unit has what runs below it");
	CHECK(unit("getty@*", "/system.slice/system-getty.slice/getty@tty1.service"),
	      "unit has what runs below it");
	CHECK(!unit("getty@*.socket", "/system.slice/system-getty.slice/getty@tty1.service"),
	      "unit has what runs below it");
	CHECK(unit("app-x.service",
		   "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service"),
	      "unit has what runs below it");
	CHECK(unit("user@1000", "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"),
	      "unit has what runs below it");
}

static void test_slice_has_the_units_in_it(void)
{
	CHECK(unit("user.slice", "/user.slice/user-1000.slice/session-1.scope"),
	      "slice has the units in it");
	CHECK(unit("user-1000.slice", "/user.slice/user-1000.slice/session-1.scope"),
	      "slice has the units in it");
	CHECK(!unit("user-1001.slice", "/user.slice/user-1000.slice/session-1.scope"),
	      "slice has the units in it");
}

static void test_container_is_found_by_the_beginning_of_its_id(void)
{
	CHECK(container("0123", "/system.slice/docker-" ID ".scope"),
	      "container is found by the beginning of its id");
	CHECK(container(ID, "/docker/" ID "/init.scope"),
	      "container is found by the beginning of its id");
	CHECK(!container("1234", "/system.slice/docker-" ID ".scope"),
	      "container is found by the beginning of its id");
	CHECK(!container("0123", "/system.slice"), "container is found by the beginning of its id");
	CHECK(container("web", "/machine.slice/machine-web.scope/payload"),
	      "container is found by the beginning of its id");
}

static void test_container_has_the_containers_in_it(void)
{
	static const char path[] = "/docker/" ID "/docker/" ANOTHER "/work";

	CHECK(container("0123", path), "container has the containers in it");
	CHECK(container("fedc", path), "container has the containers in it");
	CHECK(!container("abcd", path), "container has the containers in it");
}

static void test_pod_has_its_containers(void)
{
	static const char path[] =
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
		"3f1c2d4e_0000_1111_2222_333344445555.slice/cri-containerd-" ID ".scope";

	CHECK(pod(POD, path), "pod has its containers");
	CHECK(pod("3f1c", path), "pod has its containers");
	CHECK(!pod("4f1c", path), "pod has its containers");
	CHECK(container("0123", path), "pod has its containers");
}

static void test_one_choice_of_several_is_enough(void)
{
	static const char *const units[] = { "a", "b" }, *const pods[] = { POD };
	const struct source_live_options options = {
		.units = units, .n_units = 2, .pods = pods, .n_pods = 1
	};

	CHECK(has(&options, "/system.slice/b.service/x"), "one choice of several is enough");
	CHECK(has(&options, "/kubepods/pod" POD "/" ID), "one choice of several is enough");
	CHECK(!has(&options, "/system.slice/c.service"), "one choice of several is enough");
}

static void test_nothing_named_is_nothing_selected(void)
{
	struct source_live_options options = { .frequency_hz = 1 };
	struct live_cgroups c;
	const char *empty = "";
	char error[LIVE_ERROR_SIZE] = "";

	CHECK(!live_cgroups_init(&c, &options, error) && !c.n, "nothing named is nothing selected");
	CHECK(!live_cgroups_match(&c, "/"), "nothing named is nothing selected");
	live_cgroups_fini(&c);
	options.units = &empty;
	options.n_units = 1;
	CHECK(live_cgroups_init(&c, &options, error) == -EINVAL,
	      "nothing named is nothing selected");
	CHECK(!strncmp(error, "unit ", 5), "nothing named is nothing selected");
	live_cgroups_fini(&c);
}

static void test_long_paths_are_cut(void)
{
	enum { SIZE = 20000 };
	static char path[SIZE];

	for (size_t i = 0; i + 1 < SIZE; i++)
		path[i] = i % 2 ? 'a' : '/';
	CHECK(!unit("nginx", path), "long paths are cut");
	CHECK(!unit("nginx", ""), "long paths are cut");
}

static void test_cgroup_without_a_path_is_another(void)
{
	struct live_cgroups c = { .n = 0 };

	CHECK(!live_cgroups_tell(&c, NULL, NULL, 7), "cgroup without a path is another");
	CHECK(told_id == 7 && told == CAPTURE_CGROUP_OTHER, "cgroup without a path is another");
}

int main(void)
{
	test_unit_has_what_runs_below_it();
	test_slice_has_the_units_in_it();
	test_container_is_found_by_the_beginning_of_its_id();
	test_container_has_the_containers_in_it();
	test_pod_has_its_containers();
	test_one_choice_of_several_is_enough();
	test_nothing_named_is_nothing_selected();
	test_long_paths_are_cut();
	test_cgroup_without_a_path_is_another();
	return check_done();
}

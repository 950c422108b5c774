/* Which processes get probes on their allocator; the probes themselves are imitated. */
#include "agent/live/alloc/alloc.h"
#include "agent/live/alloc/cost.h"
#include "agent/live/bpf/bpf.h"

#include "tests/asan.h"
#include "tests/check.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHOSEN = 64 }; /* as many processes have probes of their own */

static size_t n_attached, n_detached, n_everywhere;
static uint32_t last_attached, last_detached;

int live_bpf_attach_allocator(struct live_bpf *bpf, const char *path, uint32_t pid,
			      const struct live_alloc_place *places, size_t n, char *error)
{
	(void)bpf;
	(void)path;
	(void)places;
	(void)error;
	n_attached++;
	n_everywhere += !pid;
	last_attached = pid;
	return n ? 0 : -EINVAL;
}

void live_bpf_detach_allocators(struct live_bpf *bpf, uint32_t pid)
{
	(void)bpf;
	n_detached++;
	last_detached = pid;
}

/* The path of the C library that this process uses. */
static bool find_libc(char path[4096])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[8192];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, "libc.so") &&
			sscanf(line, "%*s %*s %*s %*s %*s %4095s", path) == 1;
	if (maps)
		(void)fclose(maps);
	return found;
}

static void test_measuring_changes_nothing(const char *libc)
{
	struct live_allocators *a;
	pid_t children[CHOSEN];
	struct live_cost plain = { 0 }, more;

	CHECK(!live_allocators_new(NULL, false, &a), "new");
	for (size_t i = 0; i < CHOSEN; i++) {
		children[i] = fork();
		if (!children[i]) {
			(void)pause();
			_exit(0);
		}
		CHECK(!live_allocators_file(a, (uint32_t)children[i], libc), "watched");
	}
	CHECK(n_attached == CHOSEN && !n_everywhere, "each has its probes");
	CHECK(!live_cost_measure(a, &plain, &more), "measured");
#if !defined(WITH_ASAN) /* which has malloc in the program itself */
	CHECK(last_attached == (uint32_t)getpid() && last_detached == (uint32_t)getpid(),
	      "with probes of this process");
	CHECK(!live_allocators_everywhere(a) && !n_everywhere && n_detached == 1,
	      "no other process pays");
#endif
	CHECK(!live_allocators_file(a, (uint32_t)getppid(), libc) && live_allocators_everywhere(a),
	      "one more process is too many");
	for (size_t i = 0; i < CHOSEN; i++) {
		(void)kill(children[i], SIGKILL);
		(void)waitpid(children[i], NULL, 0);
	}
	live_allocators_free(a);
}

/* If all processes have probes, this one has, too. Only an earlier measurement is without them. */
static void test_the_cost_everywhere_is_measured(void)
{
	struct live_cost plain = { 0 }, more = { 0 };
	struct live_allocators *a;

	n_attached = n_detached = 0;
	CHECK(!live_allocators_new(NULL, true, &a), "new");
	CHECK(!live_cost_measure(a, &plain, &more), "measured");
	CHECK(more.malloc_ns && more.free_ns, "compared with the earlier times");
	CHECK(!n_attached && !n_detached, "without other probes");
	live_allocators_free(a);
}

int main(void)
{
	char libc[4096];

	if (!find_libc(libc)) {
		(void)printf("no C library of its own file\n");
		return 77;
	}
	test_measuring_changes_nothing(libc);
	test_the_cost_everywhere_is_measured();
	return check_done();
}

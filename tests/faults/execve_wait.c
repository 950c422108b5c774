/*
 * tests/faults/execve_wait.c: looks at a process that stays within execve, and whose maps and memory keep everybody
 * waiting who opens them.
 *   usage: execve_wait PID
 */
#include "agent/live/system/inventory.h"
#include "agent/opener/opener.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>

static bool is_it(const void *ctx, uint32_t pid)
{
	return pid == *(const uint32_t *)ctx;
}

static int count(void *ctx, const struct event *event)
{
	++*(unsigned int *)ctx;
	CHECK(event->type != EVENT_MAPPING, "its mappings cannot be read");
	return 0;
}

int main(int argc, char **argv)
{
	const struct opener_options options = { .live = true };
	uint32_t pid = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	struct opener_user user;
	unsigned int n = 0;
	struct opener *opener;
	int fd;

	if (!pid || opener_new(&options, &opener))
		return 2;
	opener_user_of(opener, pid, &user);
	CHECK(user.known, "its user is known");
	CHECK(opener_memory(opener, pid, &fd) == -EBUSY, "its memory is not waited for");
	CHECK(opener_memory(opener, pid, &fd) == -EBUSY, "nor when it is asked for again");
	CHECK(!live_inventory(is_it, &pid, count, &n), "the inventory does not wait for it");
	CHECK(n >= 2, "and has it, and its name");
	opener_free(opener);
	return check_done();
}

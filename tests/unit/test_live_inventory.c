/* tests/unit/test_live_inventory.c: tests how /proc is read at the start of a recording. */
#include "agent/live/system/inventory.h"

#include "tests/check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct found {
	bool fork, comm, mapping, order, told;
};

static int on_event(void *ctx, const struct event *event)
{
	struct found *found = ctx;
	uint64_t here = (uintptr_t)on_event;

	found->told |= event->pid != (uint32_t)getpid();
	if (event->type == EVENT_FORK && event->tid == event->pid)
		found->fork = !event->fork.parent_pid && !found->mapping;
	if (event->type == EVENT_COMM && event->tid == event->pid)
		found->comm = !strncmp(event->comm.comm, "test_live_inven", 15);
	if (event->type == EVENT_MAPPING && here >= event->mapping.start &&
	    here < event->mapping.end)
		found->mapping = strstr(event->mapping.path, "/test_live_inventory") &&
				 event->mapping.prot & PROT_EXEC;
	return 0;
}

static bool only_us(const void *ctx, uint32_t pid)
{
	(void)ctx;
	return pid == (uint32_t)getpid();
}

static int refuse(void *ctx, const struct event *event)
{
	(void)ctx;
	(void)event;
	return -ENOMEM;
}

static void test_the_inventory_knows_this_process(void)
{
	struct found found = { 0 };

	CHECK(!live_inventory(only_us, NULL, on_event, &found), "it can be made");
	CHECK(found.fork, "the process comes first");
	CHECK(found.comm, "its name");
	CHECK(found.mapping, "the mapping of this code");
	CHECK(!found.told, "and nobody else");
	CHECK(live_inventory(only_us, NULL, refuse, NULL) == -ENOMEM, "a refusal ends it");
}

int main(void)
{
	test_the_inventory_knows_this_process();
	return check_done();
}

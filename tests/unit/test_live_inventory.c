/* tests/unit/test_live_inventory.c: tests how /proc is read at the start of a recording. */
#include "agent/live/system/inventory.h"

#include "tests/check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int parse(const char *text, struct event_mapping *m)
{
	static char line[512];

	(void)snprintf(line, sizeof(line), "%s", text);
	return live_maps_line(line, m);
}

/* Lines of proc(5), and the kernel's form of strange names (fs/proc/task_mmu.c). */
static void test_lines_of_maps_are_read(void)
{
	struct event_mapping m;

	CHECK(!parse("00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus-daemon\n",
		     &m),
	      "a file");
	CHECK(m.start == 0x400000 && m.end == 0x452000 && m.off == 0x1000, "where");
	CHECK(m.prot == (PROT_READ | PROT_EXEC) && m.major == 8 && m.minor == 2 &&
		      m.inode == 173521,
	      "what");
	CHECK(!strcmp(m.path, "/usr/bin/dbus-daemon") && !m.deleted, "path");
	CHECK(!parse("7f00-8f00 rwxp 00000000 00:00 0 \n", &m) && !m.path[0], "anonymous");
	CHECK(!parse("7f00-8f00 r-xs 00000000 00:1f 9   /tmp/a b (deleted)\n", &m) && m.deleted &&
		      !strcmp(m.path, "/tmp/a b"),
	      "deleted");
	CHECK(!parse("7f00-8f00 --xp 00000000 fd:100 9   /tmp/a\\012b\n", &m) &&
		      !strcmp(m.path, "/tmp/a\nb") && m.major == 0xfd && m.minor == 0x100,
	      "a newline in a name");
	CHECK(!parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n",
		     &m) &&
		      m.prot == PROT_EXEC,
	      "[vsyscall]");
	CHECK(parse("", &m) == -EBADMSG, "empty");
	CHECK(parse("7f00-8f00 r-x", &m) == -EBADMSG, "cut short");
	CHECK(parse("8f00-7f00 r-xp 00000000 00:00 0 \n", &m) == -EBADMSG, "upside down");
}

struct found {
	bool fork, comm, mapping, order, told;
};

static int on_event(void *ctx, const struct event *event)
{
	struct found *found = ctx;
	uint64_t here = (uintptr_t)test_lines_of_maps_are_read;

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
	uint32_t number;

	CHECK(!live_inventory(only_us, NULL, on_event, &found), "it can be made");
	CHECK(found.fork, "the process comes first");
	CHECK(found.comm, "its name");
	CHECK(found.mapping, "the mapping of this code");
	CHECK(!found.told, "and nobody else");
	CHECK(live_inventory(only_us, NULL, refuse, NULL) == -ENOMEM, "a refusal ends it");
	CHECK(!live_process_parent((uint32_t)getpid(), &number) && number == (uint32_t)getppid(),
	      "parent");
	CHECK(!live_process_group((uint32_t)getpid(), &number) && number == (uint32_t)getpid(),
	      "thread group");
	CHECK(live_process_parent(4194304, &number) == -ENOENT, "nobody");
	CHECK(!live_process_ended((uint32_t)getpid()), "at work");
	CHECK(live_process_ended(4194304), "never was");
}

int main(void)
{
	test_lines_of_maps_are_read();
	test_the_inventory_knows_this_process();
	return check_done();
}

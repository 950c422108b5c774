/* tests/unit/test_procfs.c: tests how mappings and the state of processes are read from /proc. */
#include "agent/source/procfs.h"

#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int parse(const char *text, struct event_mapping *m)
{
	static char line[512];

	(void)snprintf(line, sizeof(line), "%s", text);
	return procfs_maps_line(line, m);
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

static void test_own_mappings_are_found_by_address(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *two = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct event_mapping m;
	char *line;

	CHECK(two != MAP_FAILED && !mprotect(two + page, page, PROT_NONE),
	      "two mappings of a page");
	CHECK(!procfs_own_mapping((uintptr_t)two + page - 1, &m, &line), "its last byte");
	CHECK(m.end == (uintptr_t)two + page && m.prot == PROT_READ && !*m.path, "the mapping");
	free(line);
	CHECK(!procfs_own_mapping((uintptr_t)two + page, &m, &line), "the next byte");
	CHECK(m.start == (uintptr_t)two + page && !m.prot, "the next mapping");
	free(line);
	CHECK(procfs_own_mapping(1, &m, &line) == -ENOENT, "nothing is mapped there");
	free(line);
	CHECK(!procfs_own_mapping((uintptr_t)test_own_mappings_are_found_by_address, &m, &line) &&
		      strstr(m.path, "/test_procfs"),
	      "this code's");
	free(line);
}

static void test_the_state_of_processes_is_read(void)
{
	uint32_t number;

	CHECK(!procfs_parent((uint32_t)getpid(), &number) && number == (uint32_t)getppid(),
	      "parent");
	CHECK(!procfs_group((uint32_t)getpid(), &number) && number == (uint32_t)getpid(),
	      "thread group");
	CHECK(procfs_parent(4194304, &number) == -ENOENT, "nobody");
	CHECK(!procfs_ended((uint32_t)getpid()), "at work");
	CHECK(procfs_ended(4194304), "never was");
}

static void test_places_of_mounts_are_restored(void)
{
	char path[] = "/a\\040b\\011c\\012d\\134e\\08\\";

	CHECK(!strcmp(procfs_mount_path(path), "/a b\tc\nd\\e\\08\\"), "what is escaped");
}

int main(void)
{
	test_places_of_mounts_are_restored();
	test_lines_of_maps_are_read();
	test_own_mappings_are_found_by_address();
	test_the_state_of_processes_is_read();
	return check_done();
}

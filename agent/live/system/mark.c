/* agent/live/system/mark.c: tests whether build-ids in perf's records disturb other listeners. */
#include "agent/live/system/mark.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The kernel writes records first to the event that was opened last. One event is opened before and
 * one after the event that asks for build-ids, so that the order does not matter.
 */
enum { BEFORE, ASKS, AFTER, N_LISTENERS };

struct listener {
	int fd;				   /* -1: not open */
	struct perf_event_mmap_page *page; /* followed by one page of records; NULL: not mapped */
};

/* Open an event for the mappings of this thread. asks: with build-ids. Return false on failure. */
static bool open_listener(struct listener *l, bool asks, size_t page_size)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = asks,
		.exclude_kernel = 1,
	};
	void *page;

	l->fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (l->fd < 0)
		return false;
	page = mmap(NULL, 2 * page_size, PROT_READ | PROT_WRITE, MAP_SHARED, l->fd, 0);
	if (page == MAP_FAILED)
		return false;
	l->page = page;
	return true;
}

static void close_listener(struct listener *l, size_t page_size)
{
	if (l->page)
		(void)munmap(l->page, 2 * page_size);
	if (l->fd >= 0)
		(void)close(l->fd);
}

/*
 * Map a file in memory as code, which makes the kernel write records. The file begins with the
 * first page of this program, which has its build-id. The test may set the flag in other listeners'
 * records of this one mapping. perf 6.1 takes the inode in such a record for a build-id once a
 * sample hits the file; but no sample ever hits this file, because its code never runs.
 */
static bool map_code(size_t page_size)
{
	int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int fd = memfd_create("build-id", MFD_CLOEXEC);
	char *page = malloc(page_size);
	void *code = MAP_FAILED;

	if (program >= 0 && fd >= 0 && page &&
	    read(program, page, page_size) == (ssize_t)page_size &&
	    write(fd, page, page_size) == (ssize_t)page_size)
		code = mmap(NULL, page_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	free(page);
	if (fd >= 0)
		(void)close(fd);
	if (program >= 0)
		(void)close(program);
	if (code == MAP_FAILED)
		return false;
	(void)munmap(code, page_size);
	return true;
}

/* Count the mapping records, and those with the build-id flag. */
static void count_records(const struct listener *l, size_t page_size, size_t *n, size_t *n_marked)
{
	const uint8_t *records = (const uint8_t *)l->page + page_size;
	uint64_t head = __atomic_load_n(&l->page->data_head, __ATOMIC_ACQUIRE), at = 0;
	struct perf_event_header header;

	*n = *n_marked = 0;
	/*
	 * The page holds more records than one mapping produces, so no record wraps around its end.
	 */
	for (; head <= page_size && at + sizeof(header) <= head; at += header.size) {
		memcpy(&header, records + at, sizeof(header));
		if (header.size < sizeof(header))
			return;
		*n += header.type == PERF_RECORD_MMAP2;
		*n_marked += header.type == PERF_RECORD_MMAP2 &&
			     header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID;
	}
}

/*
 * Map a page of code while all listeners are open. Only the records of the listener that asked for
 * build-ids may have the flag.
 */
bool live_mark_build_ids_are_safe(void)
{
	struct listener listeners[N_LISTENERS];
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE), n, n_marked;
	bool safe = true;

	for (int i = 0; i < N_LISTENERS; i++)
		listeners[i] = (struct listener){ .fd = -1 };
	for (int i = 0; safe && i < N_LISTENERS; i++)
		safe = open_listener(&listeners[i], i == ASKS, page_size);
	safe = safe && map_code(page_size);
	for (int i = 0; safe && i < N_LISTENERS; i++) {
		count_records(&listeners[i], page_size, &n, &n_marked);
		safe = n && (i == ASKS ? n_marked == n : !n_marked);
	}
	for (int i = 0; i < N_LISTENERS; i++)
		close_listener(&listeners[i], page_size);
	return safe;
}

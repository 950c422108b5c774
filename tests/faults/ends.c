/*
 * tests/faults/ends.c: is a program that makes recording hard; it never ends.
 *   ends lease FILE    maps a copy of FILE and takes a lease on it: whoever opens it has to wait
 *   ends maps FILE     maps pages of FILE as often as a process can; so do its 30 children
 *   ends moves DIRECTORY   runs generated code and writes a jitdump file with 300,000 moves of it
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOVES = 300000, LOADS = 66000, MAPS = 65000, CHILDREN = 30 };

/* inc rax; jmp back */
static const uint8_t spin[] = { 0x48, 0xff, 0xc0, 0xeb, 0xfb };

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int lease(const char *path)
{
	int fd = open(path, O_RDONLY);
	void (*code)(void);
	uint8_t *page;

	if (fd < 0)
		return fail(path);
	page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	(void)signal(SIGIO, SIG_IGN);
	if (page == MAP_FAILED || fcntl(fd, F_SETLEASE, F_WRLCK))
		return fail("lease");
	memcpy(&code, &page, sizeof(code));
	(void)puts("ready");
	(void)fflush(stdout);
	code(); /* the file begins with the loop */
	return 0;
}

static void put_record(FILE *file, uint32_t id, const void *body, uint32_t size)
{
	uint32_t head[4] = { id, 16 + size };

	(void)fwrite(head, sizeof(head), 1, file);
	(void)fwrite(body, size, 1, file);
}

/* Linux, tools/perf/Documentation/jitdump-specification.txt */
static int moves(const char *folder)
{
	const uint32_t head[10] = { 0x4a695444, 1, 40, 62 };
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct {
		uint32_t pid, tid;
		uint64_t vma, addr, size, index;
		char name[8];
	} load = { .name = "f" };
	struct {
		uint32_t pid, tid;
		uint64_t vma, from, to, size, index;
	} move = { .from = 1 };
	void (*code)(void);
	char path[512];
	FILE *file;

	if (page == MAP_FAILED)
		return fail("mmap");
	memcpy(page, spin, sizeof(spin));
	(void)snprintf(path, sizeof(path), "%s/jit-%d.dump", folder, (int)getpid());
	file = fopen(path, "w+");
	if (!file)
		return fail(path);
	(void)fwrite(head, sizeof(head), 1, file);
	for (uint64_t i = 0; i < LOADS; i++) {
		load.addr = (uintptr_t)page + 8192 + 16 * i;
		load.size = 16;
		put_record(file, 0, &load, sizeof(load));
	}
	for (uint64_t i = 0; i < MOVES; i++) /* of code that is not registered */
		put_record(file, 1, &move, sizeof(move));
	(void)fflush(file);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED)
		return fail("mapping the file");
	memcpy(&code, &page, sizeof(code));
	(void)puts("ready");
	(void)fflush(stdout);
	code();
	return 0;
}

static int maps(const char *path)
{
	int fd = open(path, O_RDONLY);
	pid_t parent = getpid();

	if (fd < 0)
		return fail(path);
	/* Always the same page: the kernel never joins two such mappings. */
	for (int i = 0; i < MAPS; i++)
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			break; /* vm.max_map_count */
	for (int i = 0; i < CHILDREN; i++) {
		if (fork())
			continue;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			(void)pause();
		_exit(0);
	}
	(void)puts("ready");
	(void)fflush(stdout);
	for (;;)
		(void)pause();
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "lease"))
		return lease(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "maps"))
		return maps(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "moves"))
		return moves(argv[2]);
	return 2;
}

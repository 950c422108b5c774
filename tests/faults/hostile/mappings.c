/* tests/faults/hostile/mappings.c: has more mappings than others, or ever other ones. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int opened(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0755);

	if (fd < 0)
		fail(path);
	return fd;
}

/* Map a page of the file as often as the kernel allows (vm.max_map_count), but for what the program needs itself. */
static void fill(int fd)
{
	void *last[16] = { NULL };

	/* Always the same page: the kernel never joins two such mappings. */
	for (size_t i = 0;; i++) {
		void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

		if (page == MAP_FAILED)
			break;
		last[i % 16] = page;
	}
	for (size_t i = 0; i < 16; i++)
		(void)munmap(last[i], 4096);
}

static void fork_sleepers(int n)
{
	pid_t parent = getpid();

	for (int i = 0; i < n; i++) {
		if (fork())
			continue;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			(void)pause();
		_exit(0);
	}
}

/* FILE CHILDREN: map a page of FILE as often as a process can; so do its children, who sleep. */
static void many(char **args)
{
	fill(opened(args[0], O_RDONLY));
	fork_sleepers(atoi(args[1]));
	ready();
	for (;;)
		(void)pause();
}

/* FILE: the same, and fork and end again and again while it is recorded. */
static void many_forks(char **args)
{
	fill(opened(args[0], O_RDONLY));
	ready();
	(void)signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (!fork())
			_exit(0);
		work();
	}
}

/* FILE: map and unmap it without pause. */
static void flood(char **args)
{
	int fd = opened(args[0], O_RDONLY);

	ready();
	for (;;)
		(void)munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), 4096);
}

/* FILE: map it as often as a process can, and unmap all of it, while it is recorded. */
static void come_and_go(char **args)
{
	int fd = opened(args[0], O_RDONLY);
	const size_t size = (size_t)60000 * 4096;

	ready();
	for (;;) {
		uint8_t *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t i = 0; base != MAP_FAILED && i < size; i += 8192)
			(void)mmap(base + i, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
				   fd, 0);
		if (base != MAP_FAILED)
			(void)munmap(base, size);
	}
}

/* FILE: as many mappings as a process can have, and one more before each sample, which is in generated code. */
static void one_more(char **args)
{
	/* mov ecx,100000; dec ecx; jnz back; ret */
	static const uint8_t code[] = { 0xb9, 0xa0, 0x86, 1, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	int fd = opened(args[0], O_RDONLY);
	void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made == MAP_FAILED)
		fail("mmap");
	memcpy(made, code, sizeof(code));
	fill(fd);
	ready();
	for (;;) {
		((void (*)(void))made)();
		(void)munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), 4096);
	}
}

/* FILE: run code at ever other offsets of a file that is no ELF file. */
static void offsets(char **args)
{
	/* mov ecx,1000000; dec ecx; jnz back; ret */
	static const uint8_t code[] = { 0xb9, 0x40, 0x42, 0xf, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	int fd = opened(args[0], O_RDWR | O_CREAT | O_TRUNC);

	ready();
	for (off_t i = 0;; i = (i + 1) % 8000) {
		off_t off = ((off_t)64 << 20) + (i << 16);
		void *page;

		if (pwrite(fd, code, sizeof(code), off) != (ssize_t)sizeof(code))
			fail(args[0]);
		page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, off);
		if (page == MAP_FAILED)
			fail("mmap");
		run_code(page);
		(void)munmap(page, 4096);
	}
}

/* Make pages executable and not, one by one. */
static void protections(char **args)
{
	const size_t size = 20000 * 4096;
	uint8_t *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)args;
	ready();
	for (int with = 0;; with ^= PROT_EXEC)
		for (size_t i = 0; i < size; i += 8192)
			(void)mprotect(base + i, 4096, PROT_READ | with);
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "many", 2, many },
		{ "many-forks", 1, many_forks },
		{ "flood", 1, flood },
		{ "come-and-go", 1, come_and_go },
		{ "one-more", 1, one_more },
		{ "offsets", 1, offsets },
		{ "protections", 0, protections },
	};

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}

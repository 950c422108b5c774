/* tests/faults/hostile/files.c: runs files that change, vanish, or cannot be opened without waiting. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int opened(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0755);

	if (fd < 0)
		fail(path);
	return fd;
}

static size_t read_all(const char *path, uint8_t **out)
{
	int fd = opened(path, O_RDONLY);
	struct stat st;

	if (fstat(fd, &st))
		fail(path);
	*out = malloc((size_t)st.st_size);
	if (!*out || read(fd, *out, (size_t)st.st_size) != st.st_size)
		fail(path);
	(void)close(fd);
	return (size_t)st.st_size;
}

/* Return a file at path with these bytes, open for writing. */
static int write_all(const char *path, const uint8_t *data, size_t size)
{
	int fd = opened(path, O_RDWR | O_CREAT | O_TRUNC);

	if (write(fd, data, size) != (ssize_t)size)
		fail(path);
	return fd;
}

/*
 * FILE: take a lease on it, and map it: whoever opens it has to wait. It begins with a loop. There is no lease on a
 * file that somebody has open, such as another recording that has seen the mapping.
 */
static void lease(char **args)
{
	int fd = opened(args[0], O_RDONLY);
	void *page;

	(void)signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_WRLCK))
		fail("lease");
	page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (page == MAP_FAILED)
		fail("mmap");
	ready();
	run_code(page);
}

/*
 * FILE COPY: map COPY, an ELF file whose code is a loop at 0x1000, and run it in a child; cut COPY short and make it
 * whole again, or write other bytes over all but its code.
 */
static void change(char **args, int cut)
{
	uint8_t *good, *bad;
	size_t size = read_all(args[0], &good);
	int fd = write_all(args[1], good, size);
	uint8_t *base = mmap(NULL, 0x2000, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	if (base == MAP_FAILED || !(bad = malloc(size)))
		fail("mmap");
	if (!fork())
		run_code(base + 0x1000);
	ready();
	for (unsigned int n = 0;; n++) {
		static const size_t keep[] = { 0x2000, 0x2001, 0x2800, 0x3000 };

		if (cut && ftruncate(fd, (off_t)keep[n % 4]))
			fail("ftruncate");
		for (size_t i = 0; !cut && i < size; i++)
			bad[i] = i < 64 || (i >= 0x1000 && i < 0x2000)
					 ? good[i]
					 : (uint8_t)(good[i] ^ (uint8_t)(n * 37 + i * n % 251));
		if (!cut)
			(void)!pwrite(fd, bad, size, 0);
		pause_ms(1);
		(void)!pwrite(fd, good, size, 0);
		pause_ms(n % 3);
	}
}

static void truncated(char **args)
{
	change(args, 1);
}

static void rewritten(char **args)
{
	change(args, 0);
}

/* FILE DIRECTORY: map copies of FILE one after another, and put FIFOs, links and directories in their place. */
static void replaced(char **args)
{
	uint8_t *data;
	size_t size = read_all(args[0], &data);

	if (chdir(args[1]))
		fail(args[1]);
	ready();
	for (unsigned int n = 0;; n++) {
		char path[32];
		int fd;
		uint8_t *page;

		(void)snprintf(path, sizeof(path), "lib%u.so", n % 50);
		(void)(unlink(path) && rmdir(path));
		fd = write_all(path, data, size);
		page = mmap(NULL, 0x2000, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		(void)close(fd);
		(void)unlink(path);
		(void)(n % 3 == 0   ? mkfifo(path, 0666)
		       : n % 3 == 1 ? symlink("/dev/zero", path)
				    : mkdir(path, 0755));
		pause_ms(1);
		(void)munmap(page, 0x2000);
	}
}

/* DIRECTORY: a new file with a path of nearly 4,000 bytes, mapped and deleted, for ever. */
static void deleted(char **args)
{
	char name[256];

	(void)memset(name, 'D', 240);
	(void)snprintf(name + 200, sizeof(name) - 200, "\033[2J<b>\n\xe2\x80\xae");
	if (chdir(args[0]))
		fail(args[0]);
	for (int i = 0; i < 15; i++)
		if (mkdir(name, 0755) || chdir(name))
			break;
	ready();
	for (unsigned long n = 0;; n++) {
		int fd;
		void *page;

		(void)snprintf(name, sizeof(name), "f%lu", n);
		fd = write_all(name, (const uint8_t *)name, sizeof(name));
		page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		pause_ms(0);
		(void)munmap(page, 4096);
		(void)close(fd);
		(void)unlink(name);
	}
}

/* DIRECTORY COUNT: COUNT files, each mapped for a moment. */
static void many(char **args)
{
	if (chdir(args[0]))
		fail(args[0]);
	ready();
	for (long i = 0; i < atol(args[1]); i++) {
		char name[32];
		int fd;

		(void)snprintf(name, sizeof(name), "f%ld", i);
		fd = write_all(name, (const uint8_t *)name, sizeof(name));
		(void)munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), 4096);
		(void)close(fd);
	}
	for (;;)
		(void)pause();
}

/* FILE: run it from memory that has no path, under a hostile name. */
static void memory(char **args)
{
	char *argv[] = { args[0], NULL };
	uint8_t *data;
	size_t size = read_all(args[0], &data);
	int fd = memfd_create("\033[2J<script>\xff", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		fail("memfd_create");
	ready();
	(void)fexecve(fd, argv, environ);
	fail("fexecve");
}

/* Run code in a mapping of /dev/zero. */
static void device(char **args)
{
	static const uint8_t spin[] = { 0x48, 0xff, 0xc0, 0xeb, 0xfb };
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE,
			     opened("/dev/zero", O_RDWR), 0);

	(void)args;
	if (page == MAP_FAILED)
		fail("/dev/zero");
	memcpy(page, spin, sizeof(spin));
	ready();
	run_code(page);
}

int main(int argc, char **argv)
{
	static const struct attack attacks[] = {
		{ "lease", 1, lease },	       { "truncated", 2, truncated },
		{ "rewritten", 2, rewritten }, { "replaced", 2, replaced },
		{ "deleted", 1, deleted },     { "many", 2, many },
		{ "memory", 1, memory },       { "device", 0, device },
	};

	return attack_main(argc, argv, attacks, sizeof(attacks) / sizeof(attacks[0]));
}

/* agent/io.c: pread and write in loops, the first bytes of ELF files, the limit of open files, and shared memory. */
#include "agent/io.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int io_read_at(int fd, uint64_t off, void *out, size_t size)
{
	uint8_t *to = out;

	while (size) {
		ssize_t n = pread(fd, to, size, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EBADMSG;
		to += n;
		off += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

bool io_is_elf(int fd, uint64_t off)
{
	char magic[SELFMAG];

	return off <= INT64_MAX && !io_read_at(fd, off, magic, sizeof(magic)) &&
	       !memcmp(magic, ELFMAG, sizeof(magic));
}

int io_write(int fd, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;

	while (size) {
		ssize_t n = write(fd, from, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		from += n;
		size -= (size_t)n;
	}
	return 0;
}

static rlim_t usual_files; /* the limit before it was raised; 0: it was not */

void io_allow_many_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max)
		return;
	usual_files = limit.rlim_cur;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

void io_usual_files(void)
{
	struct rlimit limit;

	if (!usual_files || getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = usual_files;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

void *io_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

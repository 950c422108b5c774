/*
 * tests/fuzz/memory_file.h: a file in memory for each input. The kernel makes it once; each input has its own
 * descriptor of it and the position 0.
 */
#ifndef TESTS_FUZZ_MEMORY_FILE_H
#define TESTS_FUZZ_MEMORY_FILE_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Return a descriptor of a file with these bytes. What used the last one must have ended. */
static inline int memory_file(const void *bytes, size_t size)
{
	static int file = -1;
	int fd;

	if (file < 0)
		file = memfd_create("fuzz", MFD_CLOEXEC);
	fd = fcntl(file, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET) ||
	    (size && pwrite(fd, bytes, size, 0) != (ssize_t)size))
		abort();
	return fd;
}

#endif

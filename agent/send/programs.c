/* agent/send/programs.c: opens the files of modules by their build-ids. */
#include "agent/send/programs.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX  ((off_t)1 << 30)  /* bytes; larger files are not sent */
#define NOTES_MAX ((size_t)1 << 20) /* the build-id is looked for in so many bytes */

/* Write the bytes of a build-id in hexadecimal digits. Return their number; 0: it is none. */
static size_t bytes_of(const char *hex, uint8_t out[PROGRAMS_BUILD_ID])
{
	size_t n = strlen(hex) / 2;
	unsigned int byte;

	if (n < 2 || n > PROGRAMS_BUILD_ID || strlen(hex) % 2 ||
	    strspn(hex, "0123456789abcdef") != 2 * n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		(void)sscanf(hex + 2 * i, "%2x", &byte);
		out[i] = (uint8_t)byte;
	}
	return n;
}

bool programs_have(const struct stacks_module *m)
{
	uint8_t id[PROGRAMS_BUILD_ID];

	return !m->kernel && *m->path == '/' && bytes_of(m->build_id, id);
}

/*
 * Return whether an ELF file has this build-id: whether the bytes of its note are there. The file is not
 * read in any other way: its receiver does that.
 */
static bool has_build_id(int fd, const char *hex)
{
	uint8_t note[4 + PROGRAMS_BUILD_ID] = "GNU", *bytes = malloc(NOTES_MAX);
	size_t n = bytes_of(hex, note + 4);
	ssize_t size = bytes ? pread(fd, bytes, NOTES_MAX, 0) : -1;
	bool has = n && size > 4 && !memcmp(bytes, "\177ELF", 4) &&
		   memmem(bytes, (size_t)size, note, 4 + n);

	free(bytes);
	return has;
}

int programs_open(const char *path, const char *build_id, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX ||
	    !has_build_id(fd, build_id)) {
		(void)close(fd);
		return -1;
	}
	*size = (size_t)st.st_size;
	return fd;
}

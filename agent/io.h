/* agent/io.h: complete reads and writes, repeated after short transfers and signals, and what needs them; shared memory. */
#ifndef AGENT_IO_H
#define AGENT_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Read size bytes at offset off into out. Return 0, -EBADMSG if the file ends before, or another
 * negative code.
 */
int io_read_at(int fd, uint64_t off, void *out, size_t size);
/* Return whether an ELF image's first bytes stand at offset off of a file. */
bool io_is_elf(int fd, uint64_t off);
/* Write size bytes to fd. Return 0 or a negative code; part of the bytes may then be written. */
int io_write(int fd, const void *bytes, size_t size);

/*
 * Raise the limit of open files (RLIMIT_NOFILE) to the hard limit. Each CPU needs three descriptors,
 * and each file that any process has mapped is kept open; the usual limit is 1,024.
 */
void io_allow_many_files(void);
/* Set the limit back, for another program that is to be executed. */
void io_usual_files(void);

/*
 * Return memory of so many bytes, all zero, which this process shares with those that it forks from now on. NULL:
 * errno says why not. munmap(2) releases this process's view of it.
 */
void *io_shared(size_t size);

#endif

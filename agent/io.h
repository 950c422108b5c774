/*
 * agent/io.h: all of what is read or written, however many calls the kernel takes for it.
 */
#ifndef AGENT_IO_H
#define AGENT_IO_H

#include <stddef.h>
#include <stdint.h>

/* size bytes from off on; -EBADMSG: the file ends before; or a system code. */
int io_read_at(int fd, uint64_t off, void *out, size_t size);
int io_write(int fd, const void *bytes, size_t size);

#endif

/*
 * agent/source/live_btf.h: of the kernel's type information what one program asks for.
 *
 * The kernel's is some 6 MB of 150,000 types.  libbpf reads all of it into memory of its own,
 * twice, and goes through all names once for each type that a program was compiled with; that
 * was half of what starting took.  It is given a few hundred types instead: those whose names
 * the program knows, with what lies within them.  What they point to is left out: void.
 */
#ifndef AGENT_SOURCE_LIVE_BTF_H
#define AGENT_SOURCE_LIVE_BTF_H

#include <stddef.h>
#include <stdint.h>

struct btf;

/*
 * wanted: the program's own; its types' names count without what follows "___" in them.  all: as
 * /sys/kernel/btf/vmlinux is.  *out is the caller's to free.  -EBADMSG: all is damaged, or not of
 * this machine's byte order; -ENOTSUP: it has what was not known when this was written.
 */
int live_btf_reduce(const struct btf *wanted, const void *all, size_t size, uint8_t **out,
		    size_t *out_size);

/* Of the running kernel's, into a file without a name.  Also what open, mmap and read may say. */
int live_btf_write(const struct btf *wanted, int fd);

#endif

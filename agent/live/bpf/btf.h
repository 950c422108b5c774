/*
 * agent/live/bpf/btf.h: reduces the kernel's type information (BTF) to the types that one BPF
 * program needs.
 *
 * The kernel's BTF is about 6 MB with 150,000 types. libbpf copies all of it to memory of its own,
 * twice, and searches all names once for each type that a program was compiled with. That was half
 * of the time of starting a recording. Instead, libbpf gets a few hundred types: those whose names
 * the program contains, and the types inside them. Types that are only pointed to are left out:
 * such a pointer becomes a pointer to void.
 */
#ifndef AGENT_LIVE_BPF_BTF_H
#define AGENT_LIVE_BPF_BTF_H

#include <stddef.h>
#include <stdint.h>

struct btf;

/*
 * Reduce the BTF all, which has the format of /sys/kernel/btf/vmlinux, to the types that wanted
 * needs. wanted is the BTF of the program; the part of a type's name from "___" on is ignored. The
 * caller frees *out. -EBADMSG: all is damaged, or has another byte order than this machine;
 * -ENOTSUP: all has a kind of type that is not supported here; -ENOMEM.
 */
int live_btf_reduce(const struct btf *wanted, const void *all, size_t size, uint8_t **out,
		    size_t *out_size);

/*
 * Write the reduced BTF of the running kernel to the file fd. Also returns errors of open, mmap,
 * read and write.
 */
int live_btf_write(const struct btf *wanted, int fd);

#endif

/*
 * agent/source/linkmap.h: lists the files that a process's dynamic linker has loaded. The list is
 * read from the process's memory (r_debug and link_map, <link.h>).
 */
#ifndef AGENT_SOURCE_LINKMAP_H
#define AGENT_SOURCE_LINKMAP_H

#include "unwinder/unwinder.h"

#define LINKMAP_NAME_MAX 4096

struct linkmap_file {
	/* bias: run-time address - vaddr; dynamic: address of the dynamic section */
	uint64_t bias, dynamic;
	char name[LINKMAP_NAME_MAX]; /* "" for the program itself */
};

struct linkmap {
	uw_read_fn read;
	void *ctx;
	uint64_t next; /* address of the next entry; 0: none */
	unsigned int n;
};

/*
 * Find the list by the program's headers at phdr (AT_PHDR, AT_PHNUM). Return -ENOENT if the
 * program is static, if the dynamic linker has not made the list yet, or if memory lacks part of
 * it.
 */
int linkmap_open(uw_read_fn read, void *ctx, uint64_t phdr, uint64_t n_phdrs, struct linkmap *out);

/*
 * Read the NUL-terminated string at addr. Return -ENOENT if it is too long or memory ends before
 * its NUL.
 */
int linkmap_string(uw_read_fn read, void *ctx, uint64_t addr, char out[LINKMAP_NAME_MAX]);

/* Read the next entry. Return 1, or 0 at the end of the list or if memory lacks the entry. */
int linkmap_next(struct linkmap *map, struct linkmap_file *out);

#endif

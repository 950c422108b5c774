/*
 * agent/source/linkmap.h: the files that a process's dynamic linker has loaded, as its own list in
 * the process's memory tells them (r_debug and link_map, <link.h>).
 */
#ifndef AGENT_SOURCE_LINKMAP_H
#define AGENT_SOURCE_LINKMAP_H

#include "unwinder/unwinder.h"

#define LINKMAP_NAME_MAX 4096

struct linkmap_file {
	uint64_t bias, dynamic;	     /* run-time address - vaddr; where its dynamic section is */
	char name[LINKMAP_NAME_MAX]; /* "" for the program itself */
};

struct linkmap {
	uw_read_fn read;
	void *ctx;
	uint64_t next; /* address of the next entry; 0: none */
	unsigned int n;
};

/*
 * Find the list by the program headers at phdr (AT_PHDR, AT_PHNUM).  -ENOENT where the program is
 * static, has not got so far, or memory has not all of it.
 */
int linkmap_open(uw_read_fn read, void *ctx, uint64_t phdr, uint64_t n_phdrs, struct linkmap *out);

/* Read the string at addr, which ends with a NUL.  -ENOENT: it is too long or memory ends before. */
int linkmap_string(uw_read_fn read, void *ctx, uint64_t addr, char out[LINKMAP_NAME_MAX]);

/* Read the next entry.  Return 1, or 0 at the end and where memory does not have it. */
int linkmap_next(struct linkmap *map, struct linkmap_file *out);

#endif

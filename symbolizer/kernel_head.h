/*
 * symbolizer/kernel_head.h: the first part of a list of kernel symbols, which stays text.
 *
 * The kernel's own symbols come first, sorted by address: 200,000 lines, of which a profile needs
 * some hundred. This first part of the list, the head, stays text, with a table of the address at
 * which each block begins. Lines that do not have this form (modules, lists written by other
 * programs) are parsed one by one. If the list is a regular file, even the head's text is read
 * block by block during lookups: writing a new page of memory takes longer than everything else
 * that is done with its lines.
 */
#ifndef SYMBOLIZER_KERNEL_HEAD_H
#define SYMBOLIZER_KERNEL_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest list, in bytes. */
#define SYM_KERNEL_TEXT_MAX ((size_t)128 << 20)

/* A smaller value is a better name. */
enum sym_kernel_bind { SYM_KERNEL_GLOBAL, SYM_KERNEL_WEAK, SYM_KERNEL_LOCAL, SYM_KERNEL_NOT_CODE };

struct sym_kernel_block {
	uint64_t addr;
	size_t off; /* offset in the text of its first line */
	enum { SYM_KERNEL_BLOCK_ABSENT, SYM_KERNEL_BLOCK_THERE, SYM_KERNEL_BLOCK_BAD } state;
};

struct sym_kernel_head {
	char *text;  /* NUL-terminated lines, in the head only of blocks that were read; owned */
	int fd;	     /* the file that blocks are read from; -1: all text is in memory; owned */
	size_t size; /* of the head's text; 0: no head. Other lines of the list may follow in text */
	struct sym_kernel_block *blocks; /* owned */
	size_t n_blocks, room_blocks;
};

/* The best symbol for an address so far, and where the next symbol starts. */
struct sym_kernel_found {
	uint64_t addr, next; /* next: UINT64_MAX: there is none */
	const char *name, *module, *next_module;
	enum sym_kernel_bind bind;
	bool any;
};

/* Return the kind of a symbol by its letter in kallsyms (nm(1)). */
static inline enum sym_kernel_bind sym_kernel_bind_of(char type)
{
	if (type == 'T')
		return SYM_KERNEL_GLOBAL;
	if (type == 't')
		return SYM_KERNEL_LOCAL;
	return type == 'W' || type == 'w' ? SYM_KERNEL_WEAK : SYM_KERNEL_NOT_CODE;
}

/*
 * Open a file whose head stays in the file. The text has room for the whole file (*size bytes), and
 * holds the part after the head. -ENOENT: the file is not suitable; or a system code.
 */
int sym_kernel_head_open(struct sym_kernel_head *head, int fd, size_t *size);
/*
 * Find the head in size bytes of text in memory: plain lines without modules, in ascending order of
 * their blocks' addresses. -ENOMEM.
 */
int sym_kernel_head_in(struct sym_kernel_head *head, char *text, size_t size);
void sym_kernel_head_fini(struct sym_kernel_head *head);

/* Look up the symbol that contains addr. */
void sym_kernel_head_find(const struct sym_kernel_head *head, uint64_t addr,
			  struct sym_kernel_found *out);
/* Find a code symbol by its name. */
bool sym_kernel_head_lookup(const struct sym_kernel_head *head, const char *name, uint64_t *addr);

/* Return whether a name of this kind is better than the one that was found at the same address. */
bool sym_kernel_name_is_better(enum sym_kernel_bind bind, const char *name,
			       const struct sym_kernel_found *than);

#endif

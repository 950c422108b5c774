/* symbolizer/elf/pages.h: a set of pages in a file's code, to which a symbol table can be limited. */
#ifndef SYMBOLIZER_ELF_PAGES_H
#define SYMBOLIZER_ELF_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYM_PAGE_SHIFT 12

struct sym_pages {
	uint64_t low;	/* vaddr of the first page */
	size_t n;	/* 0: no set */
	uint64_t *bits; /* owned */
};

/* Return whether the page of addr is in the set. */
static inline bool sym_pages_has(const struct sym_pages *pages, uint64_t addr)
{
	uint64_t page = (addr - pages->low) >> SYM_PAGE_SHIFT;

	return addr >= pages->low && page < pages->n && pages->bits[page / 64] >> page % 64 & 1;
}

/* Add the page of addr, if it is in the range of the set. */
static inline void sym_pages_add(struct sym_pages *pages, uint64_t addr)
{
	uint64_t page = (addr - pages->low) >> SYM_PAGE_SHIFT;

	if (addr >= pages->low && page < pages->n)
		pages->bits[page / 64] |= (uint64_t)1 << page % 64;
}

/* Return whether [addr, end) overlaps any page of the set. */
static inline bool sym_pages_overlap(const struct sym_pages *pages, uint64_t addr, uint64_t end)
{
	uint64_t page, last;

	if (end <= pages->low)
		return false;
	page = addr < pages->low ? 0 : (addr - pages->low) >> SYM_PAGE_SHIFT;
	last = (end - 1 - pages->low) >> SYM_PAGE_SHIFT;
	if (last >= pages->n)
		last = pages->n - 1;
	while (page <= last) {
		uint64_t word = pages->bits[page / 64] >> page % 64;

		if (word)
			return page + (uint64_t)__builtin_ctzll(word) <= last;
		page += 64 - page % 64;
	}
	return false;
}

#endif

/* unwinder/rule/syscalls.c: finds pages of code that have a system call instruction. */
#include "unwinder/rule/syscalls.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SHIFT 12
#define PAGE_SIZE  ((uint64_t)1 << PAGE_SHIFT)
#define PAGES_MAX  ((uint64_t)1 << 18) /* 1 GiB of code */

/* The state of a page. */
enum { UNREAD, NONE, SOME };

static bool is_code(const struct uw_segment *s)
{
	return s->flags & PF_X && s->file_size && s->file_size < UINT64_MAX - s->vaddr;
}

void uw_syscalls_init(struct uw_syscalls *s, const struct uw_code_source *code)
{
	uint64_t first = UINT64_MAX, last = 0;

	for (size_t i = 0; i < code->n_segments; i++) {
		const struct uw_segment *segment = &code->segments[i];
		uint64_t end = segment->vaddr + segment->file_size;

		if (!is_code(segment))
			continue;
		if (segment->vaddr >> PAGE_SHIFT < first)
			first = segment->vaddr >> PAGE_SHIFT;
		if (end >> PAGE_SHIFT > last) /* a return address may be just behind the code */
			last = end >> PAGE_SHIFT;
	}
	s->first = first;
	s->n = last >= first && last - first < PAGES_MAX ? last - first + 1 : 0;
	s->pages = s->n ? calloc(s->n, sizeof(*s->pages)) : NULL;
	if (!s->pages)
		s->n = 0;
}

void uw_syscalls_fini(struct uw_syscalls *s)
{
	free(s->pages);
}

/* Return whether the bytes have the system call instruction. */
static bool has_syscall(const struct uw_arch *arch, const uint8_t *bytes, size_t size)
{
	const size_t before = arch->syscall_size - 1u;
	const uint8_t *end = bytes + size, *p = bytes + before;

	/* Search for its last byte: memchr is the fastest search. */
	while (p < end && (p = memchr(p, arch->syscall[before], (size_t)(end - p)))) {
		if (p[-1] == arch->syscall[before - 1] &&
		    !memcmp(p - before, arch->syscall, before))
			return true;
		p++;
	}
	return false;
}

/* Read a page, with the bytes around it that uw_object_code shows for a pc in the page. */
static unsigned char read_page(const struct uw_code_source *code, uint64_t page)
{
	uint8_t bytes[UW_CODE_BEFORE + PAGE_SIZE + UW_CODE_AFTER];
	uint64_t start = page << PAGE_SHIFT, end = start + PAGE_SIZE + UW_CODE_AFTER, off;
	const struct uw_segment *only = NULL;

	if (end < start)
		end = UINT64_MAX;
	start = start < UW_CODE_BEFORE ? 0 : start - UW_CODE_BEFORE;
	for (size_t i = 0; i < code->n_segments; i++) {
		const struct uw_segment *s = &code->segments[i];

		if ((s->flags & PF_W && !(s->flags & PF_X)) || s->vaddr >= end ||
		    (s->vaddr < start && s->file_size <= start - s->vaddr))
			continue;
		if (only || !is_code(s))
			/* not sure: two segments show the page, or one that is not plain code */
			return SOME;
		only = s;
	}
	if (!only)
		return NONE;
	if (start < only->vaddr)
		start = only->vaddr;
	if (end > only->vaddr + only->file_size)
		end = only->vaddr + only->file_size;
	off = start - only->vaddr;
	if (only->off > UINT64_MAX - off ||
	    uw_source_read(code->source, only->off + off, bytes, end - start))
		return SOME;
	return has_syscall(code->arch, bytes, (size_t)(end - start)) ? SOME : NONE;
}

bool uw_syscalls_near(const struct uw_syscalls *s, const struct uw_code_source *code, uint64_t pc)
{
	uint64_t page = pc >> PAGE_SHIFT;
	unsigned char state;

	if (page < s->first || page - s->first >= s->n)
		return true;
	state = atomic_load_explicit(&s->pages[page - s->first], memory_order_relaxed);
	if (state == UNREAD) {
		state = read_page(code, page);
		atomic_store_explicit(&s->pages[page - s->first], state, memory_order_relaxed);
	}
	return state == SOME;
}

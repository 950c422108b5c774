/* agent/live/alloc/alloc_search.c: the names of allocation functions, and where a probe costs least. */
#include "agent/live/alloc/alloc_search.h"

#include "agent/source/machine.h"
#include "symbolizer/symbolizer.h"

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEGMENTS_MAX 256u /* segments of one file that are read */

/*
 * The functions of allocators. Leading underscores and glibc's prefix "__libc_" are removed before
 * the comparison.
 */
static const struct {
	const char *name;
	enum capture_alloc_function function;
} functions[] = {
	{ "malloc", CAPTURE_ALLOC_MALLOC },
	{ "valloc", CAPTURE_ALLOC_MALLOC },
	{ "pvalloc", CAPTURE_ALLOC_MALLOC },
	{ "calloc", CAPTURE_ALLOC_CALLOC },
	{ "realloc", CAPTURE_ALLOC_REALLOC },
	{ "memalign", CAPTURE_ALLOC_MEMALIGN },
	{ "aligned_alloc", CAPTURE_ALLOC_MEMALIGN },
	{ "posix_memalign", CAPTURE_ALLOC_POSIX_MEMALIGN },
	{ "free", CAPTURE_ALLOC_FREE },
	{ "cfree", CAPTURE_ALLOC_FREE },
	{ "mmap", CAPTURE_ALLOC_MMAP },
	{ "mmap64", CAPTURE_ALLOC_MMAP },
	{ "mremap", CAPTURE_ALLOC_MREMAP },
	{ "munmap", CAPTURE_ALLOC_MUNMAP },
	/* C++ operators, for allocators whose operators do not call malloc. */
	{ "Znwm", CAPTURE_ALLOC_MALLOC },
	{ "Znam", CAPTURE_ALLOC_MALLOC },
	{ "ZdlPv", CAPTURE_ALLOC_FREE },
	{ "ZdaPv", CAPTURE_ALLOC_FREE },
	{ "ZdlPvm", CAPTURE_ALLOC_FREE },
	{ "ZdaPvm", CAPTURE_ALLOC_FREE },
};

#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

/* Return the index of the allocator function with this symbol name, or N_FUNCTIONS. */
static size_t function_of(const char *name)
{
	name += strspn(name, "_");
	if (!strncmp(name, "libc_", 5))
		name += 5;
	for (size_t i = 0; i < N_FUNCTIONS; i++)
		if (!strcmp(name, functions[i].name))
			return i;
	return N_FUNCTIONS;
}

/*
 * Return the file offset of the code at vaddr, or 0 if there is none. Only 64-bit ELF files of this
 * machine have one.
 */
static uint64_t offset_of(int fd, uint64_t vaddr)
{
	Elf64_Ehdr head;
	Elf64_Phdr segment;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_machine != machine_here()->elf || head.e_phentsize != sizeof(segment) ||
	    head.e_phoff > INT64_MAX / 2)
		return 0;
	for (unsigned int i = 0; i < head.e_phnum && i < SEGMENTS_MAX; i++) {
		if (pread(fd, &segment, sizeof(segment),
			  (off_t)(head.e_phoff + i * sizeof(segment))) != sizeof(segment))
			return 0;
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X &&
		    vaddr >= segment.p_vaddr && vaddr - segment.p_vaddr < segment.p_filesz)
			return segment.p_offset + (vaddr - segment.p_vaddr);
	}
	return 0;
}

/*
 * Return the distance from a function's first byte to the best place for a probe. The kernel
 * emulates pushes and jumps for the probed thread. It executes every other instruction out of line,
 * with a second trap, which costs more than the first one. endbr64 and instructions that only
 * compare registers do not change the arguments or the caller's stack, so the probe may be behind
 * them.
 */
static uint64_t probe_at(int fd, uint64_t off)
{
	uint8_t code[16];
	size_t at = 0;

	if (pread(fd, code, sizeof(code), (off_t)off) != sizeof(code))
		return 0;
	/* endbr64; test %reg,%reg of 64 bits (Intel SDM volume 2: REX.W 85 /r, mod 3) */
	if (!memcmp(code, "\xf3\x0f\x1e\xfa", 4))
		at = 4;
	if (code[at] == 0x48 && code[at + 1] == 0x85 && code[at + 2] >= 0xc0)
		at += 3;
	if ((code[at] & 0xf8) == 0x50 || (code[at] == 0x41 && (code[at + 1] & 0xf8) == 0x50) ||
	    (code[at] & 0xf0) == 0x70 || code[at] == 0xe9 || code[at] == 0xeb ||
	    (code[at] == 0x0f && (code[at + 1] & 0xf0) == 0x80))
		return at;
	return 0;
}

/*
 * Find the functions by their names in the symbol table. A symbol outside the file's segments has
 * no offset (0) and is left out.
 */
void live_alloc_search(void *ctx)
{
	struct live_alloc_search *s = ctx;
	struct sym_table *table;
	struct sym_symbol symbol;

	if (sym_table_open(s->fd, 0, &table))
		return; /* not ELF, or damaged: no such file can run */
	for (size_t i = 0; s->n < LIVE_PLACES_MAX && !sym_table_at(table, i, &symbol); i++) {
		size_t f = function_of(symbol.name);
		uint64_t off = f < N_FUNCTIONS ? offset_of(s->fd, symbol.addr) : 0;

		if (!off)
			continue;
		s->mallocs |= functions[f].function == CAPTURE_ALLOC_MALLOC;
		s->frees |= functions[f].function == CAPTURE_ALLOC_FREE;
		off += probe_at(s->fd, off);
		s->places[s->n++] = (struct live_alloc_place){ functions[f].function, off };
	}
	sym_table_free(table);
}

void live_alloc_search_free(void *ctx)
{
	struct live_alloc_search *s = ctx;

	if (s->fd >= 0)
		(void)close(s->fd);
	free(s);
}

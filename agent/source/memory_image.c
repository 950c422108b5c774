/* agent/source/memory_image.c: reads build-ids, segments and whole ELF files from process memory. */
#include "agent/source/memory_image.h"

#include "base/elf_note.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGE_MAX   ((uint64_t)256 << 20)
#define PHDRS_MAX   128
#define NOTES_MAX   4096 /* the build-id's note comes first and has some tens of bytes */
#define DYNAMIC_MAX 1024
#define CHUNK	    65536

struct headers {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdrs[PHDRS_MAX];
	uint64_t bias;
	size_t n_loads;
};

/*
 * Read the ELF header at start and its program headers, and compute the bias. -ENOENT if memory
 * has no usable ELF header there.
 */
static int read_header(uw_read_fn read, void *ctx, uint64_t start, struct headers *m)
{
	bool has_first = false;

	if (read(ctx, start, &m->ehdr, sizeof(m->ehdr)))
		return -ENOENT;
	/* The fields are read in host byte order: all supported machines are little-endian. */
	if (memcmp(m->ehdr.e_ident, ELFMAG, SELFMAG) || m->ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    m->ehdr.e_ident[EI_DATA] != ELFDATA2LSB || m->ehdr.e_phnum > PHDRS_MAX ||
	    m->ehdr.e_phentsize != sizeof(Elf64_Phdr))
		return -ENOENT;
	if (read(ctx, start + m->ehdr.e_phoff, m->phdrs, m->ehdr.e_phnum * sizeof(Elf64_Phdr)))
		return -ENOENT;
	m->n_loads = 0;
	for (size_t i = 0; i < m->ehdr.e_phnum; i++) {
		const Elf64_Phdr *p = &m->phdrs[i];

		if (p->p_type != PT_LOAD)
			continue;
		m->n_loads++;
		if (!has_first && p->p_offset < 4096) { /* the segment that holds the ELF header */
			m->bias = start - (p->p_vaddr - p->p_offset);
			has_first = true;
		}
	}
	return has_first ? 0 : -ENOENT;
}

/* Extend segments to whole pages, as the kernel maps them. */
size_t image_loads(uw_read_fn read, void *ctx, uint64_t start, struct image_load *out, size_t max)
{
	const uint64_t page = 4096;
	struct headers m;
	size_t n = 0;

	if (read_header(read, ctx, start, &m))
		return 0;
	for (size_t i = 0; i < m.ehdr.e_phnum && n < max; i++) {
		const Elf64_Phdr *p = &m.phdrs[i];
		uint64_t addr = m.bias + p->p_vaddr, skip = addr % page;

		if (p->p_type != PT_LOAD || !p->p_filesz || p->p_offset < skip ||
		    addr > UINT64_MAX - page || p->p_filesz > UINT64_MAX - page - addr)
			continue;
		out[n++] =
			(struct image_load){ .start = addr - skip,
					     .end = (addr + p->p_filesz + page - 1) & ~(page - 1),
					     .off = p->p_offset - skip,
					     .flags = p->p_flags };
	}
	return n;
}

int image_build_id(uw_read_fn read, void *ctx, uint64_t start, struct uw_build_id *out)
{
	struct headers m;
	uint8_t note[NOTES_MAX];
	int err = read_header(read, ctx, start, &m);

	if (err)
		return err;
	for (size_t i = 0; i < m.ehdr.e_phnum; i++) {
		const Elf64_Phdr *p = &m.phdrs[i];
		uint64_t size = p->p_filesz < sizeof(note) ? p->p_filesz : sizeof(note);

		if (p->p_type == PT_NOTE && size && !read(ctx, m.bias + p->p_vaddr, note, size) &&
		    uw_note_build_id(note, size, p->p_align, out))
			return 0;
	}
	return -ENOENT;
}

/* Read what finding notes needs of program header i of a 64-bit (wide) or 32-bit file. */
static Elf64_Phdr header_at(const uint8_t *headers, size_t i, bool wide)
{
	Elf64_Phdr p64;
	Elf32_Phdr p32;

	if (wide) {
		memcpy(&p64, headers + i * sizeof(p64), sizeof(p64));
		return p64;
	}
	memcpy(&p32, headers + i * sizeof(p32), sizeof(p32));
	return (Elf64_Phdr){ .p_type = p32.p_type,
			     .p_offset = p32.p_offset,
			     .p_filesz = p32.p_filesz,
			     .p_align = p32.p_align };
}

int image_file_build_id(int fd, struct uw_build_id *out)
{
	_Alignas(8) uint8_t page[NOTES_MAX], note[NOTES_MAX];
	ssize_t n = pread(fd, page, sizeof(page), 0);
	bool wide = n > EI_CLASS && page[EI_CLASS] == ELFCLASS64;
	const Elf64_Ehdr *e64 = (const void *)page;
	const Elf32_Ehdr *e32 = (const void *)page;
	uint64_t at, one = wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	size_t n_headers;

	/* The fields are read in host byte order: all supported machines are little-endian. */
	if (n < (ssize_t)sizeof(*e64) || memcmp(page, ELFMAG, SELFMAG) != 0 ||
	    page[EI_DATA] != ELFDATA2LSB || (!wide && page[EI_CLASS] != ELFCLASS32))
		return -ENOENT;
	at = wide ? e64->e_phoff : e32->e_phoff;
	n_headers = wide ? e64->e_phnum : e32->e_phnum;
	/* The kernel also requires the program headers to be in the first page. */
	if (at > (uint64_t)n || n_headers > ((uint64_t)n - at) / one)
		return -ENOENT;
	for (size_t i = 0; i < n_headers; i++) {
		Elf64_Phdr p = header_at(page + at, i, wide);

		if (p.p_type != PT_NOTE || p.p_offset > INT64_MAX)
			continue;
		n = pread(fd, note, p.p_filesz < sizeof(note) ? p.p_filesz : sizeof(note),
			  (off_t)p.p_offset);
		if (n > 0 && uw_note_build_id(note, (uint64_t)n, p.p_align, out))
			return 0;
	}
	return -ENOENT;
}

/* It does not change while this process runs, and a worker in the sandbox could not read it. */
void image_kernel_build_id(struct uw_build_id *out)
{
	static struct uw_build_id found;
	uint8_t notes[NOTES_MAX];
	FILE *file = found.size ? NULL : fopen("/sys/kernel/notes", "re");

	if (file) {
		(void)uw_note_build_id(notes, fread(notes, 1, sizeof(notes), file), 4, &found);
		(void)fclose(file);
	}
	*out = found;
}

/* Copy as much of [addr, addr + size) as is readable from addr on. Return the number of bytes. */
static uint64_t copy(uw_read_fn read, void *ctx, uint64_t addr, uint8_t *out, uint64_t size)
{
	uint64_t done = 0, chunk = CHUNK;

	while (done < size) {
		uint64_t n = size - done < chunk ? size - done : chunk;

		if (!read(ctx, addr + done, out + done, n)) {
			done += n;
			continue;
		}
		if (chunk == 64)
			break;
		/* Try smaller pieces, to reach the end of memory or the border of a region. */
		chunk = chunk == CHUNK ? 4096 : 64;
	}
	return done;
}

/*
 * Return whether the dynamic linker replaces this entry's value by a run-time address in the
 * process's copy.
 */
static bool is_address(int64_t tag)
{
	switch (tag) {
	case DT_HASH:
	case DT_GNU_HASH:
	case DT_STRTAB:
	case DT_SYMTAB:
	case DT_RELA:
	case DT_JMPREL:
	case DT_PLTGOT:
	case DT_VERSYM:
	case DT_VERNEED:
	case DT_VERDEF:
		return true;
	default:
		return false;
	}
}

/* Subtract the load bias from the addresses in the dynamic section of image. */
static void take_bias(const struct headers *m, uint8_t *image, uint64_t size)
{
	for (size_t i = 0; i < m->ehdr.e_phnum; i++) {
		const Elf64_Phdr *p = &m->phdrs[i];
		uint64_t n = p->p_filesz / sizeof(Elf64_Dyn);

		if (p->p_type != PT_DYNAMIC || p->p_offset > size ||
		    p->p_filesz > size - p->p_offset)
			continue;
		for (uint64_t k = 0; k < n && k < DYNAMIC_MAX; k++) {
			uint8_t *at = image + p->p_offset + k * sizeof(Elf64_Dyn);
			Elf64_Dyn dyn;

			memcpy(&dyn, at, sizeof(dyn));
			if (!is_address(dyn.d_tag) || m->bias == 0 || dyn.d_un.d_ptr < m->bias)
				continue;
			dyn.d_un.d_ptr -= m->bias;
			memcpy(at, &dyn, sizeof(dyn));
		}
	}
}

/* Return whether the end of a segment can be read, unless the image may do without it. */
static bool is_there(uw_read_fn read, void *ctx, const struct headers *m, const Elf64_Phdr *p)
{
	uint8_t last;

	return p->p_type != PT_LOAD || p->p_flags & PF_W || !p->p_filesz ||
	       !read(ctx, m->bias + p->p_vaddr + p->p_filesz - 1, &last, 1);
}

int image_read(uw_read_fn read, void *ctx, uint64_t start, uint8_t **out, size_t *out_size)
{
	struct headers m;
	uint64_t size = 0, table;
	uint8_t *image;
	int err = read_header(read, ctx, start, &m);

	if (err)
		return err;
	for (size_t i = 0; i < m.ehdr.e_phnum; i++) {
		const Elf64_Phdr *p = &m.phdrs[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (p->p_offset > IMAGE_MAX || p->p_filesz > IMAGE_MAX - p->p_offset)
			return -ENOTSUP;
		if (p->p_offset + p->p_filesz > size)
			size = p->p_offset + p->p_filesz;
	}
	/*
	 * The section headers of a file with one segment, such as a vDSO, may be mapped behind
	 * that segment.
	 */
	table = (uint64_t)m.ehdr.e_shnum * sizeof(Elf64_Shdr);
	if (m.n_loads == 1 && m.ehdr.e_shoff >= size && m.ehdr.e_shoff - size < CHUNK)
		size = m.ehdr.e_shoff + table;
	if (size < sizeof(m.ehdr))
		return -ENOENT;
	/* Headers that promise much cost no memory before this. */
	for (size_t i = 0; i < m.ehdr.e_phnum; i++)
		if (!is_there(read, ctx, &m, &m.phdrs[i]))
			return -ENOENT;
	image = calloc(1, size);
	if (!image)
		return -ENOMEM;
	for (size_t i = 0; i < m.ehdr.e_phnum; i++) {
		const Elf64_Phdr *p = &m.phdrs[i];
		uint64_t want = p->p_filesz, got;

		if (p->p_type != PT_LOAD)
			continue;
		if (m.n_loads == 1)
			want = size - p->p_offset;
		got = copy(read, ctx, m.bias + p->p_vaddr, image + p->p_offset, want);
		if (!(p->p_flags & PF_W) && got < p->p_filesz) {
			free(image);
			return -ENOENT;
		}
		if (m.n_loads == 1 && got < size - p->p_offset)
			size = p->p_offset + got;
	}
	/* The ELF header's page need not belong to a segment. */
	memcpy(image, &m.ehdr, sizeof(m.ehdr));
	if (m.ehdr.e_phoff <= size && m.ehdr.e_phnum * sizeof(Elf64_Phdr) <= size - m.ehdr.e_phoff)
		memcpy(image + m.ehdr.e_phoff, m.phdrs, m.ehdr.e_phnum * sizeof(Elf64_Phdr));
	if (m.ehdr.e_shoff > size || table > size - m.ehdr.e_shoff)
		((Elf64_Ehdr *)image)->e_shoff = 0;
	take_bias(&m, image, size);
	*out = image;
	*out_size = size;
	return 0;
}

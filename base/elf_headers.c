/* base/elf_headers.c: reads the headers of ELF files of both classes. */
#include "base/elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "headers are copied as they are: little-endian hosts only"
#endif

/* More than any linker writes: Chromium has 40 sections, a large kernel module 200. */
#define SECTIONS_MAX   ((uint64_t)1 << 16)
#define SEGMENTS_MAX   ((uint64_t)1 << 16)
#define NAMES_SIZE_MAX ((uint64_t)1 << 20)

/* Read n entries of want bytes each. -EBADMSG: the file has them with another size, entsize. */
static int load_entries(const struct uw_source *source, uint64_t off, uint64_t n, size_t want,
			size_t entsize, void **out)
{
	return entsize == want ? uw_source_load(source, off, n, want, out) : -EBADMSG;
}

static Elf64_Shdr widen_section(const Elf32_Shdr *s)
{
	return (Elf64_Shdr){ .sh_name = s->sh_name,
			     .sh_type = s->sh_type,
			     .sh_flags = s->sh_flags,
			     .sh_addr = s->sh_addr,
			     .sh_offset = s->sh_offset,
			     .sh_size = s->sh_size,
			     .sh_link = s->sh_link,
			     .sh_info = s->sh_info,
			     .sh_addralign = s->sh_addralign,
			     .sh_entsize = s->sh_entsize };
}

static Elf64_Phdr widen_segment(const Elf32_Phdr *p)
{
	return (Elf64_Phdr){ .p_type = p->p_type,
			     .p_flags = p->p_flags,
			     .p_offset = p->p_offset,
			     .p_vaddr = p->p_vaddr,
			     .p_paddr = p->p_paddr,
			     .p_filesz = p->p_filesz,
			     .p_memsz = p->p_memsz,
			     .p_align = p->p_align };
}

/* Read n section headers. */
static int load_sections(const struct uw_elf *elf, const Elf64_Ehdr *file, uint64_t n,
			 Elf64_Shdr **out)
{
	size_t want = elf->narrow ? sizeof(Elf32_Shdr) : sizeof(Elf64_Shdr);
	Elf64_Shdr *wide;
	void *raw;
	int err = load_entries(&elf->source, file->e_shoff, n, want, file->e_shentsize, &raw);

	if (err)
		return err;
	if (!elf->narrow) {
		*out = raw;
		return 0;
	}
	wide = calloc(n ? n : 1, sizeof(*wide));
	for (size_t i = 0; wide && i < n; i++)
		wide[i] = widen_section((const Elf32_Shdr *)raw + i);
	free(raw);
	*out = wide;
	return wide ? 0 : -ENOMEM;
}

/* Read the names of the sections, as far as they are needed and in the file. -ENOMEM. */
static int read_names(struct uw_elf *elf, uint64_t index)
{
	const struct uw_source *source = &elf->source;
	uint64_t size, off;

	if (index == SHN_UNDEF || index >= elf->n_sections)
		return 0;
	off = elf->sections[index].sh_offset;
	size = elf->sections[index].sh_size;
	size = size < NAMES_SIZE_MAX ? size : NAMES_SIZE_MAX;
	/* Sections without names are usable. */
	if (off > source->size || size > source->size - off)
		size = 0;
	elf->names = malloc(size + 1);
	if (!elf->names)
		return -ENOMEM;
	if (uw_source_read(source, off, elf->names, size))
		size = 0;
	elf->names[size] = '\0';
	elf->names_size = size;
	return 0;
}

/* Read the section headers and the sections' names. */
static int read_sections(struct uw_elf *elf, const Elf64_Ehdr *file)
{
	uint64_t n = file->e_shnum, names = file->e_shstrndx;
	int err;

	if (!file->e_shoff)
		return 0;
	if (!n || names == SHN_XINDEX) {
		/* Section 0 holds the real numbers (gABI, e_shnum and e_shstrndx). */
		Elf64_Shdr *first;

		err = load_sections(elf, file, 1, &first);
		if (err)
			return err;
		n = n ? n : first->sh_size;
		names = names == SHN_XINDEX ? first->sh_link : names;
		free(first);
	}
	if (n > SECTIONS_MAX)
		return -EBADMSG;
	err = n ? load_sections(elf, file, n, &elf->sections) : 0;
	if (err)
		return err;
	elf->n_sections = n;
	return read_names(elf, names);
}

/* Read the program headers. Their number may be stated in section 0. */
static int read_segments(struct uw_elf *elf, const Elf64_Ehdr *file)
{
	size_t want = elf->narrow ? sizeof(Elf32_Phdr) : sizeof(Elf64_Phdr);
	uint64_t n = file->e_phnum;
	void *raw;
	int err;

	if (n == PN_XNUM && elf->n_sections)
		n = elf->sections[0].sh_info;
	if (!file->e_phoff || !n)
		return 0;
	if (n > SEGMENTS_MAX)
		return -EBADMSG;
	err = load_entries(&elf->source, file->e_phoff, n, want, file->e_phentsize, &raw);
	if (err)
		return err;
	if (elf->narrow) {
		elf->segments = calloc(n, sizeof(*elf->segments));
		for (size_t i = 0; elf->segments && i < n; i++)
			elf->segments[i] = widen_segment((const Elf32_Phdr *)raw + i);
		free(raw);
		if (!elf->segments)
			return -ENOMEM;
	} else {
		elf->segments = raw;
	}
	elf->n_segments = n;
	return 0;
}

/* Read the file's own header, widened. On failure, only e_ident is valid, or 0. */
static int read_file_header(const struct uw_source *source, Elf64_Ehdr *out)
{
	uint64_t size = source->size < sizeof(*out) ? source->size : sizeof(*out);
	Elf64_Ehdr wide = { 0 };
	Elf32_Ehdr narrow;
	int err = uw_source_read(source, 0, &wide, size);

	*out = (Elf64_Ehdr){ 0 };
	if (err)
		return err;
	memcpy(out->e_ident, wide.e_ident, EI_NIDENT);
	if (size < EI_NIDENT || memcmp(wide.e_ident, ELFMAG, SELFMAG) != 0)
		return -EBADMSG;
	if (wide.e_ident[EI_DATA] != ELFDATA2LSB)
		return -ENOTSUP;
	if (wide.e_ident[EI_CLASS] == ELFCLASS64) {
		*out = wide;
		return size < sizeof(wide) ? -EBADMSG : 0;
	}
	if (wide.e_ident[EI_CLASS] != ELFCLASS32)
		return -ENOTSUP;
	if (size < sizeof(narrow))
		return -EBADMSG;
	memcpy(&narrow, &wide, sizeof(narrow));
	out->e_type = narrow.e_type;
	out->e_machine = narrow.e_machine;
	out->e_entry = narrow.e_entry;
	out->e_phoff = narrow.e_phoff;
	out->e_shoff = narrow.e_shoff;
	out->e_phentsize = narrow.e_phentsize;
	out->e_phnum = narrow.e_phnum;
	out->e_shentsize = narrow.e_shentsize;
	out->e_shnum = narrow.e_shnum;
	out->e_shstrndx = narrow.e_shstrndx;
	return 0;
}

/* Read the tables that the file header, which has been read, points to. */
static int read_tables(struct uw_elf *elf, const struct uw_source *source, const Elf64_Ehdr *file)
{
	int err;

	*elf = (struct uw_elf){ .source = *source,
				.narrow = file->e_ident[EI_CLASS] == ELFCLASS32,
				.type = file->e_type,
				.machine = file->e_machine,
				.entry = file->e_entry };
	elf->sections_err = read_sections(elf, file);
	err = elf->sections_err == -ENOMEM ? -ENOMEM : read_segments(elf, file);
	if (err)
		uw_elf_fini(elf);
	return err;
}

int uw_elf_init(struct uw_elf *elf, const struct uw_source *source)
{
	Elf64_Ehdr file;
	int err = read_file_header(source, &file);

	return err ? err : read_tables(elf, source, &file);
}

int uw_elf_init_64(struct uw_elf *elf, const struct uw_source *source)
{
	Elf64_Ehdr file;
	int err = read_file_header(source, &file);

	if (memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_ident[EI_CLASS] == ELFCLASS32)
		return -ENOTSUP;
	return err ? err : read_tables(elf, source, &file);
}

void uw_elf_fini(struct uw_elf *elf)
{
	free(elf->sections);
	free(elf->segments);
	free(elf->names);
	*elf = (struct uw_elf){ .source.fd = -1 };
}

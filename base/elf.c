/* base/elf.c: reads headers, sections and build-ids of ELF64 little-endian files (elf.h). */
#include "base/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/large.h"
#include "base/unpack.h"

/* More than any linker writes: Chromium has 40 sections, a large kernel module 200. */
#define SECTIONS_MAX   65536
#define NAMES_SIZE_MAX ((uint64_t)1 << 20)
#define NOTES_SIZE_MAX ((uint64_t)64 << 10)

/* Missing from older headers; defined by the gABI in 2022. */
#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/* Larger blocks are read from the file: into fresh memory, a read costs no more than a copy. */
#define VIEW_MOST ((uint64_t)64 << 10)

bool uw_view_copy(const struct uw_view *view, uint64_t off, void *out, uint64_t size)
{
	if (!view->bytes || size > VIEW_MOST || off > view->size || size > view->size - off)
		return false;
	memcpy(out, view->bytes + off, size);
	return !view->cut || !view->cut(view->ctx);
}

/* Read from the image, from the view if it has the bytes, otherwise from the file. */
int uw_source_read(const struct uw_source *source, uint64_t off, void *out, uint64_t size)
{
	uint8_t *to = out;

	if (off > source->size || size > source->size - off)
		return -EBADMSG;
	if (source->image) {
		if (size)
			memcpy(out, source->image + off, size);
		return 0;
	}
	if (uw_view_copy(&source->view, source->base + off, out, size))
		return 0;
	while (size) {
		ssize_t n = pread(source->fd, to, size, (off_t)(source->base + off));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* the file has become shorter */
		to += n;
		off += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

/*
 * Read n entries of size bytes at off into memory that the caller frees. The size of the file
 * limits the size of the allocation.
 */
static int read_array(const struct uw_source *source, uint64_t off, uint64_t n, uint64_t size,
		      uint8_t **out)
{
	uint8_t *data;
	int err;

	if (off > source->size || n > (source->size - off) / size)
		return -EBADMSG;
	data = uw_large_alloc(n * size);
	if (!data)
		return -ENOMEM;
	err = uw_source_read(source, off, data, n * size);
	if (err) {
		free(data);
		return err;
	}
	*out = data;
	return 0;
}

/* Read the program headers. */
static int read_phdrs(struct uw_elf *elf, uint64_t off, uint64_t n)
{
	uint8_t *raw;
	struct uw_bytes b;
	int err = read_array(&elf->source, off, n, sizeof(Elf64_Phdr), &raw);

	if (err)
		return err;
	elf->phdrs = calloc(n ? n : 1, sizeof(*elf->phdrs));
	if (!elf->phdrs) {
		free(raw);
		return -ENOMEM;
	}
	b = uw_bytes_of(raw, n * sizeof(Elf64_Phdr));
	for (uint64_t i = 0; i < n; i++) {
		struct uw_phdr *p = &elf->phdrs[i];

		p->type = uw_bytes_u32(&b);
		p->flags = uw_bytes_u32(&b);
		p->off = uw_bytes_u64(&b);
		p->vaddr = uw_bytes_u64(&b);
		uw_bytes_skip(&b, 8); /* p_paddr */
		p->file_size = uw_bytes_u64(&b);
		p->mem_size = uw_bytes_u64(&b);
		p->align = uw_bytes_u64(&b);
	}
	elf->n_phdrs = n;
	free(raw);
	return b.err;
}

/*
 * Decode a section header. Its name, an offset in the string table, and sh_link are returned
 * separately.
 */
static void read_section(struct uw_bytes *b, struct uw_section *s, uint64_t *name, uint32_t *link)
{
	*name = uw_bytes_u32(b);
	s->type = uw_bytes_u32(b);
	s->flags = uw_bytes_u64(b);
	s->vaddr = uw_bytes_u64(b);
	s->off = uw_bytes_u64(b);
	s->size = uw_bytes_u64(b);
	*link = uw_bytes_u32(b);
	uw_bytes_skip(b, 4 + 8 + 8); /* sh_info, sh_addralign, sh_entsize */
}

/*
 * Read the section headers and the names of the sections. A section whose name cannot be read
 * has the name "".
 */
static int read_sections(struct uw_elf *elf, uint64_t off, uint64_t n, uint32_t names_index)
{
	uint8_t *raw;
	uint64_t names_size = 0, *name = NULL;
	struct uw_bytes b;
	uint32_t link;
	int err;

	if (n == 0 || names_index == SHN_XINDEX) {
		/* The first entry holds the real numbers (gABI, e_shnum and e_shstrndx). */
		struct uw_section first;
		uint64_t ignored;

		err = read_array(&elf->source, off, 1, sizeof(Elf64_Shdr), &raw);
		if (err)
			return err;
		b = uw_bytes_of(raw, sizeof(Elf64_Shdr));
		read_section(&b, &first, &ignored, &link);
		free(raw);
		n = n ? n : first.size;
		names_index = names_index == SHN_XINDEX ? link : names_index;
	}
	if (n > SECTIONS_MAX)
		return -ENOTSUP;
	err = read_array(&elf->source, off, n, sizeof(Elf64_Shdr), &raw);
	if (err)
		return err;
	elf->sections = calloc(n ? n : 1, sizeof(*elf->sections));
	name = calloc(n ? n : 1, sizeof(*name));
	if (!elf->sections || !name) {
		err = -ENOMEM;
		goto out;
	}
	b = uw_bytes_of(raw, n * sizeof(Elf64_Shdr));
	for (uint64_t i = 0; i < n; i++)
		read_section(&b, &elf->sections[i], &name[i], &link);
	elf->n_sections = n;

	if (names_index < n) {
		const struct uw_section *s = &elf->sections[names_index];

		names_size = s->size < NAMES_SIZE_MAX ? s->size : NAMES_SIZE_MAX;
		elf->names = malloc(names_size + 1);
		if (!elf->names) {
			err = -ENOMEM;
			goto out;
		}
		if (uw_source_read(&elf->source, s->off, elf->names, names_size))
			names_size = 0;
		elf->names[names_size] = 0;
	}
	for (uint64_t i = 0; i < n; i++)
		elf->sections[i].name = name[i] < names_size ? elf->names + name[i] : "";
out:
	free(name);
	free(raw);
	return err;
}

int uw_elf_init(struct uw_elf *elf, const struct uw_source *source)
{
	uint8_t raw[sizeof(Elf64_Ehdr)] = { 0 };
	struct uw_bytes b = uw_bytes_of(raw, sizeof(raw));
	uint64_t phoff, shoff;
	uint16_t phentsize, phnum, shentsize, shnum, shstrndx;
	int err;

	*elf = (struct uw_elf){ .source = *source };
	if (source->size < sizeof(raw))
		return -ENOTSUP;
	err = uw_source_read(source, 0, raw, sizeof(raw));
	if (err)
		return err;
	if (memcmp(raw, ELFMAG, SELFMAG) || raw[EI_CLASS] != ELFCLASS64 ||
	    raw[EI_DATA] != ELFDATA2LSB)
		return -ENOTSUP;
	uw_bytes_skip(&b, EI_NIDENT);
	elf->type = uw_bytes_u16(&b);
	elf->machine = uw_bytes_u16(&b);
	uw_bytes_skip(&b, 4); /* e_version */
	elf->entry = uw_bytes_u64(&b);
	phoff = uw_bytes_u64(&b);
	shoff = uw_bytes_u64(&b);
	uw_bytes_skip(&b, 4 + 2); /* e_flags, e_ehsize */
	phentsize = uw_bytes_u16(&b);
	phnum = uw_bytes_u16(&b);
	shentsize = uw_bytes_u16(&b);
	shnum = uw_bytes_u16(&b);
	shstrndx = uw_bytes_u16(&b);

	if (phnum == PN_XNUM) /* 65,535 segments or more: no file that is mapped has so many */
		return -ENOTSUP;
	if (phnum) {
		err = phentsize == sizeof(Elf64_Phdr) ? read_phdrs(elf, phoff, phnum) : -EBADMSG;
		if (err)
			goto fail;
	}
	/*
	 * The kernel runs a file without sections, and its unwind information can be found
	 * without them: ignore a damaged table.
	 */
	if (shoff && shentsize == sizeof(Elf64_Shdr)) {
		err = read_sections(elf, shoff, shnum, shstrndx);
		if (err == -ENOMEM)
			goto fail;
		if (err)
			elf->n_sections = 0;
	}
	return 0;
fail:
	uw_elf_fini(elf);
	return err;
}

void uw_elf_fini(struct uw_elf *elf)
{
	free(elf->phdrs);
	free(elf->sections);
	free(elf->names);
	*elf = (struct uw_elf){ .source.fd = -1 };
}

const struct uw_section *uw_elf_section(const struct uw_elf *elf, const char *name)
{
	for (size_t i = 0; i < elf->n_sections; i++) {
		const struct uw_section *s = &elf->sections[i];

		if (s->type != SHT_NOBITS && s->type != SHT_NULL && !strcmp(s->name, name))
			return s;
	}
	return NULL;
}

/*
 * Decompress a section with SHF_COMPRESSED. It begins with Elf64_Chdr: ch_type, ch_reserved,
 * ch_size, ch_addralign (gABI, compressed sections).
 */
static int unpack_shf(const uint8_t *raw, uint64_t raw_size, uint64_t cap, uint8_t **out,
		      size_t *size)
{
	struct uw_bytes b = uw_bytes_of(raw, raw_size);
	uint32_t type = uw_bytes_u32(&b);
	uint64_t full;
	int err;

	uw_bytes_skip(&b, 4);
	full = uw_bytes_u64(&b);
	uw_bytes_skip(&b, 8);
	if (b.err)
		return b.err;
	if (type == ELFCOMPRESS_ZLIB)
		err = uw_unpack_zlib(b.pos, uw_bytes_left(&b), full, cap, out);
	else if (type == ELFCOMPRESS_ZSTD)
		err = uw_unpack_zstd(b.pos, uw_bytes_left(&b), full, cap, out);
	else
		err = -ENOTSUP;
	if (!err)
		*size = full;
	return err;
}

/* Decompress a section .zdebug_…, GNU's older form: "ZLIB", the size in big-endian, the stream. */
static int unpack_zdebug(const uint8_t *raw, uint64_t raw_size, uint64_t cap, uint8_t **out,
			 size_t *size)
{
	uint64_t full = 0;
	int err;

	if (raw_size < 12 || memcmp(raw, "ZLIB", 4))
		return -EBADMSG;
	for (int i = 4; i < 12; i++)
		full = full << 8 | raw[i];
	err = uw_unpack_zlib(raw + 12, raw_size - 12, full, cap, out);
	if (!err)
		*size = full;
	return err;
}

int uw_elf_section_read(const struct uw_elf *elf, const struct uw_section *section, uint64_t cap,
			uint8_t **out, size_t *size)
{
	bool shf = section->flags & SHF_COMPRESSED;
	bool zdebug = !strncmp(section->name, ".zdebug", 7);
	uint8_t *raw;
	int err;

	if (section->type == SHT_NOBITS || !section->size)
		return -ENOENT;
	if (section->size > cap)
		return -ENOTSUP;
	err = read_array(&elf->source, section->off, section->size, 1, &raw);
	if (err)
		return err;
	if (!shf && !zdebug) {
		*out = raw;
		*size = section->size;
		return 0;
	}
	err = shf ? unpack_shf(raw, section->size, cap, out, size)
		  : unpack_zdebug(raw, section->size, cap, out, size);
	free(raw);
	return err;
}

/*
 * Find the build-id in a range of notes. The name and the contents of a note are padded to 4
 * bytes, or to 8 bytes in segments with that alignment (gABI).
 */
static bool find_note(const struct uw_elf *elf, uint64_t off, uint64_t size, uint64_t align,
		      struct uw_build_id *out)
{
	uint8_t *raw;
	struct uw_bytes b;
	bool found = false;

	if (size > NOTES_SIZE_MAX)
		size = NOTES_SIZE_MAX;
	if (read_array(&elf->source, off, size, 1, &raw))
		return false;
	align = align == 8 ? 8 : 4;
	b = uw_bytes_of(raw, size);
	while (!uw_bytes_done(&b) && !found) {
		uint32_t name_size = uw_bytes_u32(&b), desc_size = uw_bytes_u32(&b);
		uint32_t type = uw_bytes_u32(&b);
		struct uw_bytes name = uw_bytes_take(&b, name_size), desc;

		uw_bytes_skip(&b, -(12 + (uint64_t)name_size) & (align - 1));
		desc = uw_bytes_take(&b, desc_size);
		found = !desc.err && type == NT_GNU_BUILD_ID && name_size == 4 &&
			!memcmp(name.pos, "GNU", 4) && desc_size && desc_size <= UW_BUILD_ID_MAX;
		if (found) {
			*out = (struct uw_build_id){ .size = (uint8_t)desc_size };
			memcpy(out->bytes, desc.pos, desc_size);
		}
		/* The last note may lack its padding. */
		if (b.err || uw_bytes_left(&b) < (-(uint64_t)desc_size & (align - 1)))
			break;
		uw_bytes_skip(&b, -(uint64_t)desc_size & (align - 1));
	}
	free(raw);
	return found;
}

void uw_elf_build_id(const struct uw_elf *elf, struct uw_build_id *out)
{
	*out = (struct uw_build_id){ .size = 0 };
	for (size_t i = 0; i < elf->n_phdrs; i++) {
		const struct uw_phdr *p = &elf->phdrs[i];

		if (p->type == PT_NOTE && find_note(elf, p->off, p->file_size, p->align, out))
			return;
	}
	for (size_t i = 0; i < elf->n_sections; i++) {
		const struct uw_section *s = &elf->sections[i];

		if (s->type == SHT_NOTE && find_note(elf, s->off, s->size, 4, out))
			return;
	}
}

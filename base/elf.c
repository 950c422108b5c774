/* base/elf.c: reads sections and build-ids of ELF files (elf.h). */
#include "base/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/elf_note.h"
#include "base/large.h"
#include "base/unpack.h"

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

int uw_read_at(int fd, uint64_t off, void *out, uint64_t size)
{
	uint8_t *to = out;

	while (size) {
		ssize_t n = pread(fd, to, size, (off_t)off);

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

int uw_source_read(const struct uw_source *source, uint64_t off, void *out, uint64_t size)
{
	if (off > source->size || size > source->size - off)
		return -EBADMSG;
	if (source->image) {
		if (size)
			memcpy(out, source->image + off, size);
		return 0;
	}
	off += source->base;
	return uw_view_copy(&source->view, off, out, size) ? 0
							   : uw_read_at(source->fd, off, out, size);
}

int uw_source_load(const struct uw_source *source, uint64_t off, uint64_t n, uint64_t size,
		   void **out)
{
	void *data;
	int err;

	if (off > source->size || n > (source->size - off) / size)
		return -EBADMSG;
	err = uw_unpack_reserve(n * size);
	if (err)
		return err;
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

const char *uw_elf_section_name(const struct uw_elf *elf, const Elf64_Shdr *section)
{
	return section->sh_name < elf->names_size ? elf->names + section->sh_name : "";
}

const Elf64_Shdr *uw_elf_section(const struct uw_elf *elf, const char *name)
{
	for (size_t i = 1; i < elf->n_sections; i++) {
		const Elf64_Shdr *s = &elf->sections[i];

		if (s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL &&
		    !strcmp(uw_elf_section_name(elf, s), name))
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
	if (full > cap)
		return -EFBIG;
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

int uw_elf_section_read(const struct uw_elf *elf, const Elf64_Shdr *section, uint64_t cap,
			uint8_t **out, size_t *size)
{
	bool shf = section->sh_flags & SHF_COMPRESSED;
	bool zdebug = !strncmp(uw_elf_section_name(elf, section), ".zdebug", 7);
	void *raw;
	int err;

	if (section->sh_type == SHT_NOBITS || !section->sh_size)
		return -ENOENT;
	if (section->sh_size > cap)
		return -EFBIG;
	err = uw_source_load(&elf->source, section->sh_offset, section->sh_size, 1, &raw);
	if (err)
		return err;
	if (!shf && !zdebug) {
		*out = raw;
		*size = section->sh_size;
		return 0;
	}
	err = shf ? unpack_shf(raw, section->sh_size, cap, out, size)
		  : unpack_zdebug(raw, section->sh_size, cap, out, size);
	free(raw);
	return err;
}

bool uw_source_build_id(const struct uw_source *source, uint64_t off, uint64_t size, uint64_t align,
			struct uw_build_id *out)
{
	void *notes;
	bool found;

	if (size > NOTES_SIZE_MAX)
		size = NOTES_SIZE_MAX;
	if (uw_source_load(source, off, size, 1, &notes))
		return false;
	found = uw_note_build_id(notes, size, align, out);
	free(notes);
	return found;
}

void uw_elf_build_id(const struct uw_elf *elf, struct uw_build_id *out)
{
	*out = (struct uw_build_id){ .size = 0 };
	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *p = &elf->segments[i];

		if (p->p_type == PT_NOTE &&
		    uw_source_build_id(&elf->source, p->p_offset, p->p_filesz, p->p_align, out))
			return;
	}
	for (size_t i = 0; i < elf->n_sections; i++) {
		const Elf64_Shdr *s = &elf->sections[i];

		if (s->sh_type == SHT_NOTE &&
		    uw_source_build_id(&elf->source, s->sh_offset, s->sh_size, 4, out))
			return;
	}
}

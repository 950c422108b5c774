/*
 * symbolizer/debug/links.c: tells which debug files belong to an ELF file: build-id, .gnu_debuglink
 * and .gnu_debugaltlink.
 */
#include "symbolizer/debug/debug.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#define PATH_ROOM 4096
#define CHUNK	  ((size_t)256 << 10)

int sym_elf_build_id(const struct uw_elf *image, struct uw_build_id *out)
{
	const struct uw_source *source = &image->source;

	/* Read sections first: the segments of a debug file have no contents in the file. */
	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];

		if (s->sh_type == SHT_NOTE &&
		    uw_source_build_id(source, s->sh_offset, s->sh_size, 4, out))
			return 0;
	}
	for (size_t i = 0; !image->n_sections && i < image->n_segments; i++) {
		const Elf64_Phdr *p = &image->segments[i];

		if (p->p_type == PT_NOTE &&
		    uw_source_build_id(source, p->p_offset, p->p_filesz, p->p_align, out))
			return 0;
	}
	return -ENOENT;
}

int sym_build_id(int fd, uint64_t elf_off, struct uw_build_id *out)
{
	struct uw_elf image;
	int err = sym_elf_open_fd(&image, fd, elf_off);

	if (err)
		return err;
	err = sym_elf_build_id(&image, out);
	uw_elf_fini(&image);
	return err;
}

/*
 * Load a section that has a name, a NUL and more data. *behind is the offset after the NUL; the
 * caller handles padding. The caller frees *bytes.
 */
static int load_link(const struct uw_elf *image, const char *section, void **bytes, uint64_t *size,
		     uint64_t *behind)
{
	const Elf64_Shdr *s = uw_elf_section(image, section);
	const uint8_t *nul;
	int err;

	if (!s)
		return -ENOENT;
	err = sym_elf_load(image, s->sh_offset, s->sh_size, PATH_ROOM, bytes);
	if (err)
		return err;
	nul = memchr(*bytes, 0, s->sh_size);
	if (!nul || nul == *bytes) {
		free(*bytes);
		return -EBADMSG;
	}
	*size = s->sh_size;
	*behind = (uint64_t)(nul - (const uint8_t *)*bytes) + 1;
	return 0;
}

/* Read .gnu_debuglink: the name of the debug file, padding, and the CRC. */
static int link_of(const struct uw_elf *image, char *name, size_t room, uint32_t *crc)
{
	uint64_t size, behind;
	void *bytes;
	int err = load_link(image, ".gnu_debuglink", &bytes, &size, &behind);

	if (err)
		return err;
	if (behind > room || size < 4 || ((behind + 3) & ~UINT64_C(3)) > size - 4) {
		err = -EBADMSG;
	} else {
		memcpy(name, bytes, behind);
		memcpy(crc, (const uint8_t *)bytes + ((behind + 3) & ~UINT64_C(3)), 4);
	}
	free(bytes);
	return err;
}

/* The section holds the path with its NUL and then the build-id, without a size (dwz(1)). */
int sym_elf_alt_link(const struct uw_elf *image, char **path, struct uw_build_id *build_id)
{
	uint64_t size, behind;
	void *bytes;
	int err = load_link(image, ".gnu_debugaltlink", &bytes, &size, &behind);

	if (err)
		return err;
	if (size == behind || size - behind > UW_BUILD_ID_MAX) {
		free(bytes);
		return -EBADMSG;
	}
	memset(build_id, 0, sizeof(*build_id));
	build_id->size = (uint8_t)(size - behind);
	memcpy(build_id->bytes, (const uint8_t *)bytes + behind, build_id->size);
	*path = bytes;
	return 0;
}

static bool has_debug(const struct uw_elf *image)
{
	return uw_elf_section(image, ".debug_info") || uw_elf_section(image, ".zdebug_info");
}

bool sym_has_debug(int fd, uint64_t elf_off)
{
	struct uw_elf image;
	bool has;

	if (sym_elf_open_fd(&image, fd, elf_off))
		return false;
	has = has_debug(&image);
	uw_elf_fini(&image);
	return has;
}

int sym_debug_where(int fd, uint64_t elf_off, struct sym_debug_where *out)
{
	struct uw_elf image;
	int err = sym_elf_open_fd(&image, fd, elf_off);

	if (err)
		return err;
	*out = (struct sym_debug_where){ .inside = has_debug(&image) };
	out->linked = !out->inside && !link_of(&image, out->link, sizeof(out->link), &out->crc);
	uw_elf_fini(&image);
	return 0;
}

int sym_crc32(int fd, uint32_t *out)
{
	uint8_t *chunk = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	off_t off = 0;
	ssize_t n;

	if (!chunk)
		return -ENOMEM;
	while ((n = pread(fd, chunk, CHUNK, off)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		crc = crc32(crc, chunk, (uInt)n);
		off += n;
	}
	free(chunk);
	if (n < 0)
		return -errno;
	*out = (uint32_t)crc;
	return 0;
}

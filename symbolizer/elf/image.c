/* symbolizer/elf/image.c: opens ELF files of both classes, and finds their sections. */
#include "symbolizer/elf/image.h"

#include "base/elf_headers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sym_image_load(const struct sym_image *image, uint64_t off, uint64_t size, uint64_t limit,
		   void **out)
{
	char *bytes;
	int err;

	if (size > limit || off > image->source.size || size > image->source.size - off)
		return -EBADMSG;
	bytes = malloc(size + 1);
	if (!bytes)
		return -ENOMEM;
	err = uw_source_read(&image->source, off, bytes, size);
	if (err) {
		free(bytes);
		return err;
	}
	bytes[size] = '\0';
	*out = bytes;
	return 0;
}

/* Read the headers of the image in source. */
static int init(struct sym_image *image, const struct uw_source *source)
{
	struct uw_elf_headers h;
	int err = uw_elf_headers_read(source, false, &h);

	if (err)
		return err;
	err = h.sections_err;
	if (err && (err != -EBADMSG || !h.n_segments)) {
		uw_elf_headers_fini(&h);
		return err;
	}
	*image = (struct sym_image){ .source = *source,
				     .narrow = h.file.e_ident[EI_CLASS] == ELFCLASS32,
				     .machine = h.file.e_machine,
				     .type = h.file.e_type,
				     .entry = h.file.e_entry,
				     .sections_lost = h.sections_err,
				     .sections = h.sections,
				     .n_sections = h.n_sections,
				     .segments = h.segments,
				     .n_segments = h.n_segments,
				     .names = h.names,
				     .names_size = h.names_size };
	return 0;
}

int sym_image_init_viewed(struct sym_image *image, int fd, uint64_t elf_off,
			  const struct uw_view *view)
{
	struct stat st;

	if (fd < 0)
		return -EINVAL;
	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) /* a pipe or device could block, or has no size */
		return -ENOTSUP;
	if (elf_off > (uint64_t)st.st_size)
		return -EBADMSG;
	return init(image, &(struct uw_source){ .fd = fd,
						.base = elf_off,
						.size = (uint64_t)st.st_size - elf_off,
						.view = *view });
}

int sym_image_init_fd(struct sym_image *image, int fd, uint64_t elf_off)
{
	return sym_image_init_viewed(image, fd, elf_off, &(struct uw_view){ .bytes = NULL });
}

int sym_image_init_bytes(struct sym_image *image, const void *bytes, size_t size)
{
	if (!bytes && size)
		return -EINVAL;
	return init(image, &(struct uw_source){ .fd = -1, .image = bytes, .size = size });
}

void sym_image_fini(struct sym_image *image)
{
	free(image->sections);
	free(image->segments);
	free(image->names);
	*image = (struct sym_image){ .source.fd = -1 };
}

const char *sym_image_section_name(const struct sym_image *image, const Elf64_Shdr *section)
{
	return section->sh_name < image->names_size ? image->names + section->sh_name : "";
}

const Elf64_Shdr *sym_image_section(const struct sym_image *image, const char *name)
{
	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *section = &image->sections[i];

		if (section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL &&
		    strcmp(sym_image_section_name(image, section), name) == 0)
			return section;
	}
	return NULL;
}

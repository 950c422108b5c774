/* symbolizer/elf/open.c: opens ELF files of both classes (open.h). */
#include "symbolizer/elf/open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sym_elf_load(const struct uw_elf *elf, uint64_t off, uint64_t size, uint64_t limit, void **out)
{
	char *bytes;
	int err;

	if (size > limit || off > elf->source.size || size > elf->source.size - off)
		return -EBADMSG;
	bytes = malloc(size + 1);
	if (!bytes)
		return -ENOMEM;
	err = uw_source_read(&elf->source, off, bytes, size);
	if (err) {
		free(bytes);
		return err;
	}
	bytes[size] = '\0';
	*out = bytes;
	return 0;
}

/* Read the headers of the ELF file in source. */
static int open_source(struct uw_elf *elf, const struct uw_source *source)
{
	int err = uw_elf_init(elf, source);

	if (err)
		return err;
	err = elf->sections_err;
	if (err && (err != -EBADMSG || !elf->n_segments)) {
		uw_elf_fini(elf);
		return err;
	}
	return 0;
}

int sym_elf_open_viewed(struct uw_elf *elf, int fd, uint64_t elf_off, const struct uw_view *view)
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
	return open_source(elf, &(struct uw_source){ .fd = fd,
						     .base = elf_off,
						     .size = (uint64_t)st.st_size - elf_off,
						     .view = *view });
}

int sym_elf_open_fd(struct uw_elf *elf, int fd, uint64_t elf_off)
{
	return sym_elf_open_viewed(elf, fd, elf_off, &(struct uw_view){ .bytes = NULL });
}

int sym_elf_open_bytes(struct uw_elf *elf, const void *bytes, size_t size)
{
	if (!bytes && size)
		return -EINVAL;
	return open_source(elf, &(struct uw_source){ .fd = -1, .image = bytes, .size = size });
}

/* symbolizer/elf/image.c: reads the headers of an ELF file, and spans of its bytes. */
#include "symbolizer/elf/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "headers are copied as they are: little-endian hosts only"
#endif

/*
 * Limits that linkers do not reach. From 65,280 sections on, their number is in section 0
 * (gABI, "Special Section Indexes").
 */
#define SECTIONS_MAX	  (1u << 20)
#define SEGMENTS_MAX	  (1u << 16)
#define SECTION_NAMES_MAX (64u << 20)

int sym_read_at(int fd, uint64_t off, void *out, uint64_t size)
{
	uint8_t *to = out;

	while (size) {
		ssize_t n = pread(fd, to, size < (1u << 30) ? size : 1u << 30, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0) /* the file became shorter */
			return -EBADMSG;
		to += n;
		off += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

int sym_read_viewed(int fd, const struct uw_view *view, uint64_t off, void *out, uint64_t size)
{
	return uw_view_copy(view, off, out, size) ? 0 : sym_read_at(fd, off, out, size);
}

int sym_image_read(const struct sym_image *image, uint64_t off, void *out, uint64_t size)
{
	if (off > image->size || size > image->size - off)
		return -EBADMSG;
	if (image->fd < 0) {
		if (size)
			memcpy(out, image->bytes + off, size);
		return 0;
	}
	return sym_read_viewed(image->fd, &image->view, image->off + off, out, size);
}

int sym_image_load(const struct sym_image *image, uint64_t off, uint64_t size, uint64_t limit,
		   void **out)
{
	char *bytes;
	int err;

	if (size > limit || off > image->size || size > image->size - off)
		return -EBADMSG;
	bytes = malloc(size + 1);
	if (!bytes)
		return -ENOMEM;
	err = sym_image_read(image, off, bytes, size);
	if (err) {
		free(bytes);
		return err;
	}
	bytes[size] = '\0';
	*out = bytes;
	return 0;
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

/* Read n entries of entsize bytes each, which must be want bytes. */
static int load_entries(const struct sym_image *image, uint64_t off, uint64_t n, size_t want,
			size_t entsize, void **out)
{
	if (entsize != want)
		return -EBADMSG;
	return sym_image_load(image, off, n * want, UINT64_MAX, out);
}

/* Read the section headers and the sections' names. Their number may be stated in section 0. */
static int load_sections(struct sym_image *image, const Elf64_Ehdr *head)
{
	size_t want = image->narrow ? sizeof(Elf32_Shdr) : sizeof(Elf64_Shdr);
	uint64_t n = head->e_shnum;
	uint64_t names = head->e_shstrndx;
	Elf64_Shdr first;
	void *raw;
	int err;

	if (!head->e_shoff)
		return 0;
	if (!n || names == SHN_XINDEX) {
		err = load_entries(image, head->e_shoff, 1, want, head->e_shentsize, &raw);
		if (err)
			return err;
		if (image->narrow)
			first = widen_section(raw);
		else
			memcpy(&first, raw, sizeof(first));
		free(raw);
		n = n ? n : first.sh_size;
		names = names == SHN_XINDEX ? first.sh_link : names;
	}
	if (!n)
		return 0;
	if (n > SECTIONS_MAX)
		return -EBADMSG;
	err = load_entries(image, head->e_shoff, n, want, head->e_shentsize, &raw);
	if (err)
		return err;
	if (image->narrow) {
		image->sections = calloc(n, sizeof(*image->sections));
		for (size_t i = 0; image->sections && i < n; i++)
			image->sections[i] = widen_section((const Elf32_Shdr *)raw + i);
		free(raw);
		if (!image->sections)
			return -ENOMEM;
	} else {
		image->sections = raw;
	}
	image->n_sections = n;
	if (names == SHN_UNDEF || names >= n)
		return 0;
	err = sym_image_load(image, image->sections[names].sh_offset,
			     image->sections[names].sh_size, SECTION_NAMES_MAX, &raw);
	if (err)
		return err == -EBADMSG ? 0 : err; /* sections without names are usable */
	image->names = raw;
	image->names_size = image->sections[names].sh_size;
	return 0;
}

/* Read the program headers. Their number may be stated in section 0. */
static int load_segments(struct sym_image *image, const Elf64_Ehdr *head)
{
	size_t want = image->narrow ? sizeof(Elf32_Phdr) : sizeof(Elf64_Phdr);
	uint64_t n = head->e_phnum;
	void *raw;
	int err;

	if (n == PN_XNUM && image->n_sections)
		n = image->sections[0].sh_info;
	if (!head->e_phoff || !n)
		return 0;
	if (n > SEGMENTS_MAX)
		return -EBADMSG;
	err = load_entries(image, head->e_phoff, n, want, head->e_phentsize, &raw);
	if (err)
		return err;
	if (image->narrow) {
		image->segments = calloc(n, sizeof(*image->segments));
		for (size_t i = 0; image->segments && i < n; i++)
			image->segments[i] = widen_segment((const Elf32_Phdr *)raw + i);
		free(raw);
		if (!image->segments)
			return -ENOMEM;
	} else {
		image->segments = raw;
	}
	image->n_segments = n;
	return 0;
}

/* Read the ELF header and both tables. */
static int load_head(struct sym_image *image)
{
	Elf64_Ehdr head = { 0 };
	int err = sym_image_read(image, 0, head.e_ident, EI_NIDENT);

	if (err)
		return err;
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
		return -EBADMSG;
	if (head.e_ident[EI_DATA] != ELFDATA2LSB ||
	    (head.e_ident[EI_CLASS] != ELFCLASS64 && head.e_ident[EI_CLASS] != ELFCLASS32))
		return -ENOTSUP;
	image->narrow = head.e_ident[EI_CLASS] == ELFCLASS32;
	if (image->narrow) {
		Elf32_Ehdr h;

		err = sym_image_read(image, 0, &h, sizeof(h));
		if (err)
			return err;
		head.e_type = h.e_type;
		head.e_machine = h.e_machine;
		head.e_phoff = h.e_phoff;
		head.e_shoff = h.e_shoff;
		head.e_phentsize = h.e_phentsize;
		head.e_phnum = h.e_phnum;
		head.e_shentsize = h.e_shentsize;
		head.e_shnum = h.e_shnum;
		head.e_shstrndx = h.e_shstrndx;
	} else {
		err = sym_image_read(image, 0, &head, sizeof(head));
		if (err)
			return err;
	}
	image->machine = head.e_machine;
	image->type = head.e_type;
	image->entry = head.e_entry;
	err = load_sections(image, &head);
	image->sections_lost = err == -EBADMSG;
	if (err && !image->sections_lost)
		return err;
	err = load_segments(image, &head);
	if (!err && image->sections_lost && !image->n_segments)
		err = -EBADMSG;
	return err;
}

static int init(struct sym_image *image, const struct sym_image *from)
{
	int err;

	*image = *from;
	err = load_head(image);
	if (err)
		sym_image_fini(image);
	return err;
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
	return init(image, &(struct sym_image){ .fd = fd,
						.off = elf_off,
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
	return init(image, &(struct sym_image){ .fd = -1, .bytes = bytes, .size = size });
}

void sym_image_fini(struct sym_image *image)
{
	free(image->sections);
	free(image->segments);
	free(image->names);
	*image = (struct sym_image){ .fd = -1 };
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

/* tests/peers/image.c: reads an ELF file into memory, for the other unwinders. */
#include "tests/peers/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/array.h"
#include "symbolizer/symbolizer.h"

const uint8_t *image_at(const struct image *image, uint64_t vaddr, size_t size)
{
	for (size_t i = 0; i < image->n_loads; i++) {
		uint64_t at = vaddr - image->loads[i].vaddr;

		if (vaddr >= image->loads[i].vaddr && at < image->loads[i].size &&
		    size <= image->loads[i].size - at)
			return image->bytes + image->loads[i].off + at;
	}
	return NULL;
}

/* DW_EH_PE_* of LSB 5.0 §10.5.1 and §10.6.2. */
#define PCREL_SDATA4   0x1b
#define UDATA4	       0x03
#define DATAREL_SDATA4 0x3b

/* The only form that linkers write. */
static void read_hdr(struct image *image, uint64_t vaddr)
{
	const uint8_t *hdr = image_at(image, vaddr, 12);
	uint32_t n;

	if (!hdr || hdr[0] != 1 || hdr[1] != PCREL_SDATA4 || hdr[2] != UDATA4 ||
	    hdr[3] != DATAREL_SDATA4)
		return;
	memcpy(&n, hdr + 8, 4);
	if (!image_at(image, vaddr + 12, (size_t)n * 8))
		return;
	image->hdr_vaddr = vaddr;
	image->table_vaddr = vaddr + 12;
	image->n_fdes = n;
}

static bool read_headers(struct image *image)
{
	const Elf64_Ehdr *ehdr = (const void *)image->bytes;
	const Elf64_Phdr *phdr;
	uint64_t hdr = 0;

	if (image->size < sizeof(*ehdr) || memcmp(ehdr->e_ident, ELFMAG, SELFMAG) != 0 ||
	    ehdr->e_ident[EI_CLASS] != ELFCLASS64 || ehdr->e_phoff % 8 ||
	    ehdr->e_phoff > image->size ||
	    ehdr->e_phnum > (image->size - ehdr->e_phoff) / sizeof(*phdr))
		return false;
	phdr = (const void *)(image->bytes + ehdr->e_phoff);
	image->entry = ehdr->e_entry;
	image->low = UINT64_MAX;
	for (unsigned int i = 0; i < ehdr->e_phnum; i++) {
		const Elf64_Phdr *p = &phdr[i];

		if (p->p_type == PT_GNU_EH_FRAME)
			hdr = p->p_vaddr;
		if (p->p_type != PT_LOAD || image->n_loads == IMAGE_LOADS ||
		    p->p_offset > image->size || p->p_filesz > image->size - p->p_offset ||
		    p->p_memsz > UINT64_MAX - p->p_vaddr)
			continue;
		image->loads[image->n_loads].off = p->p_offset;
		image->loads[image->n_loads].vaddr = p->p_vaddr;
		image->loads[image->n_loads++].size = p->p_filesz;
		image->low = p->p_vaddr < image->low ? p->p_vaddr : image->low;
		if (p->p_vaddr + p->p_memsz > image->high)
			image->high = p->p_vaddr + p->p_memsz;
	}
	if (hdr)
		read_hdr(image, hdr);
	return image->n_loads > 0;
}

static bool read_bytes(struct image *image)
{
	size_t size;
	const void *memory = module_image(image->module, &size);
	struct stat st;
	int fd = module_fd(image->module);

	if (memory) {
		image->bytes = memory;
		image->size = size;
		return true;
	}
	/* Recorded programs are not in archives. */
	if (fd < 0 || module_elf_off(image->module) || fstat(fd, &st) || st.st_size <= 0)
		return false;
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (memory == MAP_FAILED)
		return false;
	image->bytes = memory;
	image->size = (size_t)st.st_size;
	image->mapped = true;
	return true;
}

const struct image *image_of(struct images *images, const struct module *module)
{
	struct image *image;

	module = module_canonical(module);
	for (size_t i = 0; i < images->n; i++)
		if (images->all[i]->module == module)
			return images->all[i]->n_loads ? images->all[i] : NULL;
	image = calloc(1, sizeof(*image));
	if (!image)
		return NULL;
	if (array_grow(images->all, images->n, images->room)) {
		free(image);
		return NULL;
	}
	images->all[images->n++] = image;
	image->module = module;
	if (!read_bytes(image) || !read_headers(image))
		image->n_loads = 0;
	return image->n_loads ? image : NULL;
}

void images_free(struct images *images)
{
	for (size_t i = 0; i < images->n; i++) {
		struct image *image = images->all[i];

		sym_table_free(image->symbols);
		if (image->mapped)
			(void)munmap((void *)(uintptr_t)image->bytes, image->size);
		free(image);
	}
	free(images->all);
	*images = (struct images){ 0 };
}

const char *image_symbol(const struct image *image, uint64_t vaddr)
{
	struct image *kept = (struct image *)(uintptr_t)image;
	struct sym_symbol symbol;
	int err = 0;

	if (!image->symbols && image->mapped)
		err = sym_table_open(module_fd(image->module), 0, &kept->symbols);
	else if (!image->symbols)
		err = sym_table_open_image(image->bytes, image->size, &kept->symbols);
	if (err || sym_table_find(image->symbols, vaddr, &symbol))
		return NULL;
	return symbol.name;
}

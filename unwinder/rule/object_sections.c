/*
 * unwinder/rule/object_sections.c: reads an object's sections of unwind information when they are
 * needed.
 */
#include "unwinder/rule/object.h"

#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/elf.h"
#include "base/limits.h"
#include "base/unpack.h"
#include "unwinder/rule/go_rules.h"
#include "unwinder/rule/object_internal.h"

#define MINI_SIZE_MAX ((uint64_t)64 << 20)

void uw_object_bases(const struct uw_elf *elf, struct uw_cfi *cfi)
{
	const Elf64_Shdr *text = uw_elf_section(elf, ".text");
	const Elf64_Shdr *got = uw_elf_section(elf, ".got");

	cfi->has_text = text != NULL;
	cfi->text = text ? text->sh_addr : 0;
	cfi->has_got = got != NULL;
	cfi->got = got ? got->sh_addr : 0;
}

/*
 * Read a section of unwind information, as uw_elf_section_read, within the limit of its size. The
 * largest .eh_frame on a Debian disk has 60 MB; Chromium's .debug_frame is smaller.
 */
static int read_frames(const struct uw_elf *elf, const Elf64_Shdr *section, uint8_t **out,
		       size_t *size)
{
	int err = uw_elf_section_read(elf, section, uw_limit(section_bytes), out, size);

	if (err == -EFBIG)
		uw_limit_reach(section_bytes);
	return err;
}

/* ---- .eh_frame ------------------------------------------------------------------ */

/* Make a section without a name of a part of a segment. */
static Elf64_Shdr as_section(uint64_t off, uint64_t size)
{
	return (Elf64_Shdr){
		.sh_name = UINT32_MAX, .sh_type = SHT_PROGBITS, .sh_offset = off, .sh_size = size
	};
}

/*
 * Read the bytes from vaddr to the end of its segment, within the limit of a section. This is for the
 * .eh_frame that PT_GNU_EH_FRAME points to. The caller frees *out. -ENOENT: no segment has vaddr in
 * its file part.
 */
static int read_from(struct uw_object *o, uint64_t vaddr, uint8_t **out, size_t *size)
{
	for (size_t i = 0; i < o->n_segments; i++) {
		const struct uw_segment *s = &o->segments[i];
		Elf64_Shdr rest;

		if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_size)
			continue;
		rest = as_section(s->off + (vaddr - s->vaddr), s->file_size - (vaddr - s->vaddr));
		return read_frames(&o->elf, &rest, out, size);
	}
	return -ENOENT;
}

/*
 * Read .eh_frame and the search table of .eh_frame_hdr; the caller holds the lock. Without section
 * headers, .eh_frame is found through PT_GNU_EH_FRAME. Parts that are damaged or cannot be read
 * count as absent; only -ENOMEM is returned.
 */
static int load_eh(struct uw_object *o)
{
	const Elf64_Shdr *section = uw_elf_section(&o->elf, ".eh_frame");
	struct uw_frames *frames = &o->frames[UW_FRAMES_EH];
	uint8_t **data = &o->data[UW_FRAMES_EH];
	struct uw_cfi *cfi = &frames->cfi;
	struct uw_hdr table = { .n = 0 };
	size_t size = 0;
	int err = 0;

	for (size_t i = 0; i < o->elf.n_segments && !o->header_data; i++) {
		const Elf64_Phdr *p = &o->elf.segments[i];
		Elf64_Shdr header = as_section(p->p_offset, p->p_filesz);

		if (p->p_type != PT_GNU_EH_FRAME)
			continue;
		err = read_frames(&o->elf, &header, &o->header_data, &size);
		if (err == -ENOMEM)
			return err;
		if (!err && uw_hdr_init(&table, o->header_data, size, p->p_vaddr))
			table = (struct uw_hdr){ .n = 0 };
	}
	cfi->eh = true;
	uw_object_bases(&o->elf, cfi);
	err = -ENOENT;
	if (section) {
		err = read_frames(&o->elf, section, data, &size);
		cfi->vaddr = section->sh_addr;
	}
	if (err && err != -ENOMEM && table.has_frames) {
		err = read_from(o, table.frames_vaddr, data, &size);
		cfi->vaddr = table.frames_vaddr;
		cfi->to_terminator = true;
	}
	if (!err) {
		cfi->data = *data;
		cfi->size = size;
		frames->table = table;
		uw_frames_top(frames);
	}
	if (err == -ENOMEM) { /* the next call begins again */
		free(o->header_data);
		o->header_data = NULL;
		return err;
	}
	return 0;
}

/* ---- the other sections --------------------------------------------------------- */

/* Set a section other than .eh_frame to its bytes. Takes over data. */
static void set_frames(struct uw_object *o, enum uw_frames_kind kind, uint8_t *data, size_t size,
		       uint64_t vaddr)
{
	struct uw_cfi *cfi = &o->frames[kind].cfi;

	o->data[kind] = data;
	cfi->data = data;
	cfi->size = size;
	cfi->vaddr = vaddr;
}

/*
 * Load MiniDebugInfo (.gnu_debugdata): an ELF file compressed with xz, whose .debug_frame has the
 * addresses of the outer file. Damage counts as absence.
 */
static void load_mini(struct uw_object *o, const Elf64_Shdr *section)
{
	struct uw_source source = { .fd = -1 };
	struct uw_elf elf;
	const Elf64_Shdr *frames;
	uint8_t *packed, *image, *data;
	size_t packed_size, size;

	if (uw_elf_section_read(&o->elf, section, MINI_SIZE_MAX, &packed, &packed_size))
		return;
	if (!uw_unpack_xz(packed, packed_size, MINI_SIZE_MAX, &image, &size)) {
		source.image = image;
		source.size = size;
		if (!uw_elf_init_64(&elf, &source)) {
			frames = uw_elf_section(&elf, ".debug_frame");
			if (frames && !read_frames(&elf, frames, &data, &size))
				set_frames(o, UW_FRAMES_MINI, data, size, frames->sh_addr);
			uw_elf_fini(&elf);
		}
		free(image);
	}
	free(packed);
}

/*
 * Load Go's function table, .debug_frame and MiniDebugInfo; the caller holds the lock. What is
 * damaged or cannot be read counts as absent.
 */
static void load_debug(struct uw_object *o)
{
	const Elf64_Shdr *section = uw_elf_section(&o->elf, ".debug_frame");
	uint8_t *data;
	size_t size;

	if (!section)
		section = uw_elf_section(&o->elf, ".zdebug_frame");
	if (!uw_gopclntab_frames(o, &data, &size))
		set_frames(o, UW_FRAMES_GO, data, size, 0);
	uw_object_bases(&o->elf, &o->frames[UW_FRAMES_DEBUG].cfi);
	if (section && !read_frames(&o->elf, section, &data, &size))
		set_frames(o, UW_FRAMES_DEBUG, data, size, section->sh_addr);
	section = uw_elf_section(&o->elf, ".gnu_debugdata");
	if (section)
		load_mini(o, section);
}

/* ---- on demand ------------------------------------------------------------------ */

/*
 * Make sure that .eh_frame has been read. If memory is short, it counts as absent until the next
 * call.
 */
static void need_eh(struct uw_object *o)
{
	if (atomic_load_explicit(&o->eh_ready, memory_order_acquire))
		return;
	pthread_mutex_lock(&o->lock);
	if (!atomic_load_explicit(&o->eh_ready, memory_order_relaxed))
		atomic_store_explicit(&o->eh_ready, !load_eh(o), memory_order_release);
	pthread_mutex_unlock(&o->lock);
}

/* Make sure that load_debug has run. */
static void need_debug(struct uw_object *o)
{
	if (atomic_load_explicit(&o->debug_ready, memory_order_acquire))
		return;
	pthread_mutex_lock(&o->lock);
	if (!atomic_load_explicit(&o->debug_ready, memory_order_relaxed)) {
		load_debug(o);
		atomic_store_explicit(&o->debug_ready, true, memory_order_release);
	}
	pthread_mutex_unlock(&o->lock);
}

struct uw_frames *uw_object_frames(struct uw_object *object, unsigned int i)
{
	if (i == UW_FRAMES_EH)
		need_eh(object);
	else
		need_debug(object);
	return i < UW_FRAMES_N ? &object->frames[i] : NULL;
}

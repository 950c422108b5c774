/*
 * unwinder/rule/object.c: opens an ELF file for unwinding, keeps it while it is used, and converts
 * its addresses.
 */
#include "unwinder/rule/object.h"

#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/elf.h"
#include "base/unpack.h"
#include "unwinder/rule/go_rules.h"
#include "unwinder/rule/object_internal.h"

#define PAGE_MASK ((uint64_t)0xfff)

/*
 * The only state that all objects share. Caches outlive objects and have object numbers as keys:
 * the address of a freed object may be used again, a number is not.
 */
static atomic_uint_fast64_t last_id;

bool uw_build_id_equal(const struct uw_build_id *a, const struct uw_build_id *b)
{
	const struct uw_build_id *longer = a->size > b->size ? a : b;
	size_t size = longer == a ? b->size : a->size;

	if (longer->size > UW_BUILD_ID_MAX || memcmp(a->bytes, b->bytes, size) != 0)
		return false;
	for (size_t i = size; i < longer->size; i++)
		if (longer->bytes[i])
			return false;
	return size || !longer->size;
}

/* ---- opening -------------------------------------------------------------------- */

/* Copy the PT_LOAD entries to o->segments. -ENOMEM. */
static int take_segments(struct uw_object *o)
{
	o->segments = calloc(o->elf.n_segments ? o->elf.n_segments : 1, sizeof(*o->segments));
	if (!o->segments)
		return -ENOMEM;
	for (size_t i = 0; i < o->elf.n_segments; i++) {
		const Elf64_Phdr *p = &o->elf.segments[i];

		if (p->p_type == PT_LOAD)
			o->segments[o->n_segments++] =
				(struct uw_segment){ .off = p->p_offset,
						     .vaddr = p->p_vaddr,
						     .file_size = p->p_filesz,
						     .mem_size = p->p_memsz,
						     .flags = p->p_flags };
	}
	return 0;
}

/*
 * Return DT_FLAGS_1, or 0 if there is none among the first 64 entries. Linkers' .dynamic sections
 * are smaller than that.
 */
static uint64_t flags_1(const struct uw_elf *elf, const Elf64_Phdr *dynamic)
{
	Elf64_Dyn entries[64];
	uint64_t size = dynamic->p_filesz < sizeof(entries) ? dynamic->p_filesz : sizeof(entries);

	if (uw_source_read(&elf->source, dynamic->p_offset, entries, size))
		return 0;
	for (size_t i = 0; i < size / sizeof(entries[0]); i++)
		if (le64toh((uint64_t)entries[i].d_tag) == DT_FLAGS_1)
			return le64toh(entries[i].d_un.d_val);
	return 0;
}

/*
 * Return whether processes begin at e_entry. For libraries without an entry point, linkers write
 * the start of .text there, and the functions at that place do have callers.
 */
static bool is_begun_at(const struct uw_elf *elf)
{
	const Elf64_Shdr *text = uw_elf_section(elf, ".text");

	if (elf->type == ET_EXEC)
		return true;
	for (size_t i = 0; i < elf->n_segments; i++) {
		const Elf64_Phdr *p = &elf->segments[i];

		if (p->p_type == PT_INTERP ||
		    (p->p_type == PT_DYNAMIC && flags_1(elf, p) & DF_1_PIE))
			return true;
	}
	/* the dynamic linker, which has no PT_INTERP */
	return text && elf->entry != text->sh_addr;
}

/*
 * Read the ELF headers and what is needed at once. -ENOTSUP: another machine, or neither an
 * executable nor a shared object.
 */
static int set_up(struct uw_object *o)
{
	int err = uw_elf_init_64(&o->elf, &o->elf.source);

	if (err)
		return err;
	o->arch = uw_arch_of(o->elf.machine);
	if (!o->arch || (o->elf.type != ET_EXEC && o->elf.type != ET_DYN))
		return -ENOTSUP;
	uw_elf_build_id(&o->elf, &o->build_id);
	o->init = uw_elf_section(&o->elf, ".init");
	o->fini = uw_elf_section(&o->elf, ".fini");
	o->entry = is_begun_at(&o->elf) ? o->elf.entry : 0;
	o->is_go = uw_gopclntab_is_in(&o->elf);
	return take_segments(o);
}

void uw_object_init(struct uw_object *o)
{
	atomic_init(&o->refs, 1);
	o->id = atomic_fetch_add(&last_id, 1) + 1;
	pthread_mutex_init(&o->lock, NULL);
	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		uw_frames_init(&o->frames[i]);
	o->elf.source.fd = -1;
}

/* Finish opening o, whose source is set. Takes over o. fd is the caller's, or -1 for an image. */
static int open_source(struct uw_object *o, int fd, struct uw_object **out)
{
	struct uw_source source = o->elf.source;
	int err;

	uw_object_init(o);
	o->elf.source = source;
	err = set_up(o);
	o->elf.source = source; /* uw_elf_init clears the source on failure */
	if (!err && fd >= 0) {
		/*
		 * Duplicate the descriptor for what is read later. If there are no descriptors
		 * left, read everything now; then code cannot be looked at.
		 */
		o->elf.source.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (o->elf.source.fd < 0) {
			o->elf.source.fd = fd;
			for (unsigned int i = 0; i < UW_FRAMES_N; i++)
				(void)uw_object_frames(o, i);
			o->elf.source.fd = -1;
		}
	} else {
		o->elf.source.fd = -1;
	}
	if (err) {
		uw_object_put(o);
		return err;
	}
	*out = o;
	return 0;
}

static void release_view(const struct uw_view *view)
{
	if (view->bytes && view->release)
		view->release(view->ctx);
}

int uw_object_open_viewed(int fd, uint64_t elf_off, const struct uw_view *view,
			  struct uw_object **out)
{
	struct uw_object *o = NULL;
	struct stat st;
	int err = fstat(fd, &st) ? -errno : 0;

	/* Pipes and devices have no size to check offsets against. */
	if (!err && (!S_ISREG(st.st_mode) || elf_off > (uint64_t)st.st_size))
		err = -ENOTSUP;
	if (!err && !(o = calloc(1, sizeof(*o))))
		err = -ENOMEM;
	if (err) {
		release_view(view);
		return err;
	}
	o->elf.source = (struct uw_source){
		.fd = fd, .base = elf_off, .size = (uint64_t)st.st_size - elf_off, .view = *view
	};
	return open_source(o, fd, out);
}

int uw_object_open(int fd, uint64_t elf_off, struct uw_object **out)
{
	return uw_object_open_viewed(fd, elf_off, &(struct uw_view){ .bytes = NULL }, out);
}

int uw_object_open_copy(const struct uw_object *object, struct uw_object **out)
{
	const struct uw_source *source = &object->elf.source;

	return source->fd < 0 ? -ENOTSUP : uw_object_open(source->fd, source->base, out);
}

const struct uw_view *uw_object_view(const struct uw_object *object)
{
	return &object->elf.source.view;
}

int uw_object_open_image_at(const void *image, size_t size, uint64_t elf_off,
			    struct uw_object **out)
{
	struct uw_object *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->image = malloc(size ? size : 1);
	if (!o->image) {
		free(o);
		return -ENOMEM;
	}
	if (size)
		memcpy(o->image, image, size);
	o->elf.source =
		(struct uw_source){ .image = o->image, .fd = -1, .base = elf_off, .size = size };
	return open_source(o, -1, out);
}

int uw_object_open_image(const void *image, size_t size, struct uw_object **out)
{
	return uw_object_open_image_at(image, size, 0, out);
}

struct uw_object *uw_object_get(struct uw_object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}

void uw_object_put(struct uw_object *object)
{
	struct uw_source source;

	if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
		return;
	source = object->elf.source;
	uw_lazy_fde_fini(&object->lazy_fde);
	uw_elf_fini(&object->elf);
	if (source.fd >= 0)
		close(source.fd);
	release_view(&source.view);
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		uw_frames_fini(&object->frames[i]);
		free(object->data[i]);
	}
	pthread_mutex_destroy(&object->lock);
	free(object->image);
	free(object->segments);
	free(object->header_data);
	uw_object_free_tables(object);
	uw_unpack_release(object->reserved);
	free(object);
}

int uw_object_keep(struct uw_object *object)
{
	return uw_unpack_keep(&object->reserved);
}

/* ---- what it is ----------------------------------------------------------------- */

uint64_t uw_object_id(const struct uw_object *object)
{
	return object->id;
}

const struct uw_elf *uw_object_elf(const struct uw_object *o)
{
	return &o->elf;
}

bool uw_object_is_go(const struct uw_object *object)
{
	return object->is_go;
}

uint16_t uw_object_machine(const struct uw_object *object)
{
	return object->arch->machine;
}

const struct uw_build_id *uw_object_build_id(const struct uw_object *object)
{
	return &object->build_id;
}

const struct uw_segment *uw_object_segments(const struct uw_object *object, size_t *n)
{
	*n = object->n_segments;
	return object->segments;
}

uint64_t uw_object_parsed(const struct uw_object *object)
{
	return atomic_load_explicit(&object->n_parsed, memory_order_relaxed);
}

uint64_t uw_object_memory(struct uw_object *object)
{
	const struct uw_compiled *compiled =
		atomic_load_explicit(&object->compiled, memory_order_acquire);
	uint64_t bytes = compiled ? compiled->size : 0;

	pthread_mutex_lock(&object->lock);
	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		bytes += (object->data[i] ? object->frames[i].cfi.size : 0) +
			 uw_frames_memory(&object->frames[i]);
	pthread_mutex_unlock(&object->lock);
	return bytes;
}

/* ---- addresses ------------------------------------------------------------------ */

/*
 * Return whether a segment contains the byte at off: exactly, or in whole pages, as the loader maps
 * it. Neighbouring segments may share a page of the file (lld always does this), so exact matches
 * are tried first.
 */
static bool shows(const struct uw_segment *s, uint64_t off, bool pages)
{
	uint64_t start = pages ? s->off & ~PAGE_MASK : s->off;
	uint64_t size = s->file_size + (s->off - start);

	if (pages)
		size = (size + PAGE_MASK) & ~PAGE_MASK;
	return off >= start && off - start < size;
}

/* Convert an offset to a vaddr; off counts from the ELF image. -ENOENT: no segment has it. */
static int vaddr_of(const struct uw_object *object, uint64_t off, uint64_t *vaddr)
{
	for (int pass = 0; pass < 4; pass++) {
		for (size_t i = 0; i < object->n_segments; i++) {
			const struct uw_segment *s = &object->segments[i];

			/*
			 * Passes: code exactly, code by pages, any segment exactly, any by pages.
			 */
			if ((pass < 2 && !(s->flags & PF_X)) || !shows(s, off, pass & 1))
				continue;
			*vaddr = s->vaddr + (off - s->off);
			return 0;
		}
	}
	return -ENOENT;
}

int uw_object_vaddr(const struct uw_object *object, uint64_t off, uint64_t *vaddr)
{
	uint64_t base = object->elf.source.base;

	return off < base ? -ENOENT : vaddr_of(object, off - base, vaddr);
}

int uw_object_map(const struct uw_object *object, uint64_t off, uint64_t size, bool exec,
		  uint64_t *vaddr)
{
	uint64_t base = object->elf.source.base, most = 0;
	const struct uw_segment *best = NULL;

	if (off < base) {
		/* A mapping of an archive may begin before the ELF image in it. */
		if (size <= base - off)
			return -ENOENT;
		size -= base - off;
	}
	for (size_t i = 0; i < object->n_segments; i++) {
		const struct uw_segment *s = &object->segments[i];
		uint64_t from = off < base ? 0 : off - base, to, common;

		to = from + (size < UINT64_MAX - from ? size : UINT64_MAX - from);
		if (exec && !(s->flags & PF_X))
			continue;
		if (from < s->off)
			from = s->off;
		if (s->file_size > UINT64_MAX - s->off || s->off + s->file_size < to)
			to = s->off + s->file_size;
		common = to > from ? to - from : 0;
		if (common > most) {
			most = common;
			best = s;
		}
	}
	if (best) {
		*vaddr = best->vaddr + (off - base - best->off);
		return 0;
	}
	return off < base ? -ENOENT : vaddr_of(object, off - base, vaddr);
}

/*
 * Return the segment around vaddr if it is not writable, else NULL. With code, executable segments
 * count even if they are writable: programs hardly ever write to them.
 */
static const struct uw_segment *constant_at(const struct uw_object *object, uint64_t vaddr,
					    bool code)
{
	for (size_t i = 0; i < object->n_segments; i++) {
		const struct uw_segment *s = &object->segments[i];

		if ((!(s->flags & PF_W) || (code && s->flags & PF_X)) && vaddr >= s->vaddr &&
		    vaddr - s->vaddr < s->file_size)
			return s;
	}
	return NULL;
}

/* Read size bytes from skip bytes after the segment's start. -EFAULT on any error. */
static int read_segment(const struct uw_object *object, const struct uw_segment *s, uint64_t skip,
			void *out, uint64_t size)
{
	if (s->off > UINT64_MAX - skip)
		return -EFAULT;
	return uw_source_read(&object->elf.source, s->off + skip, out, size) ? -EFAULT : 0;
}

int uw_object_read(const struct uw_object *object, uint64_t vaddr, void *out, size_t size)
{
	const struct uw_segment *s = constant_at(object, vaddr, false);
	uint8_t small[64];
	int err;

	if (!s || size > s->file_size - (vaddr - s->vaddr))
		return -EFAULT;
	/* the caller's buffer may be half written if the file shrank */
	if (size > sizeof(small))
		return read_segment(object, s, vaddr - s->vaddr, out, size);
	err = read_segment(object, s, vaddr - s->vaddr, small, size);
	if (!err)
		memcpy(out, small, size);
	return err;
}

int uw_object_code(const struct uw_object *object, uint64_t vaddr,
		   uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER], struct uw_code *out)
{
	const struct uw_segment *s = constant_at(object, vaddr, true);
	uint64_t skip, before, after;
	int err;

	/* A return address may be just behind the segment's last byte. */
	if (!s && vaddr) {
		s = constant_at(object, vaddr - 1, true);
	}
	if (!s || !(s->flags & PF_X))
		return -EFAULT;
	skip = vaddr - s->vaddr;
	before = skip < UW_CODE_BEFORE ? skip : UW_CODE_BEFORE;
	after = s->file_size - skip < UW_CODE_AFTER ? s->file_size - skip : UW_CODE_AFTER;
	err = read_segment(object, s, skip - before, buffer, before + after);
	if (!err)
		*out = (struct uw_code){ .at = buffer + before, .before = before, .after = after };
	return err;
}

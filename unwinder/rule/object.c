/*
 * unwinder/rule/object.c: an ELF file's unwind information, opened, read when needed, compiled, and
 * looked up by vaddr.
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
#include "unwinder/rule/codes.h"
#include "unwinder/rule/gopclntab.h"
#include "unwinder/rule/memo.h"
#include "unwinder/rule/peek.h"
#include "unwinder/rule/syscalls.h"
#include "unwinder/table/procs.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table.h"
#include "unwinder/table/table_build.h"

/* The largest .eh_frame on a Debian disk has 60 MB; Chromium's .debug_frame is smaller. */
#define FRAMES_SIZE_MAX ((uint64_t)256 << 20)
#define MINI_SIZE_MAX	((uint64_t)64 << 20)

/*
 * How many bytes after the entry point its function may reach. The second limit is for a gap
 * without an end.
 */
#define ENTRY_MAX	  128
#define ENTRY_UNBOUND_MAX 48

/* Functions that follow the entry point's are aligned to this. */
#define ENTRY_ALIGN 16

#define PAGE_MASK ((uint64_t)0xfff)

struct uw_object {
	atomic_uint refs;
	uint64_t id;
	const struct uw_arch *arch;
	struct uw_elf elf; /* its source is owned: a descriptor or a copy of the image */
	uint8_t *image;
	struct uw_build_id build_id;
	struct uw_segment *segments; /* owned */
	size_t n_segments;
	const struct uw_section *init, *fini; /* of elf; NULL: the file has none */
	uint64_t entry;			      /* where a process begins; 0: not in this file */

	/*
	 * .eh_frame is read when rules are needed that no table has, and more of them than is worth
	 * a lookup in the file (lazy FDE lookup, peek). Go's table, .debug_frame and
	 * MiniDebugInfo's .debug_frame are read when .eh_frame has no answer.
	 */
	pthread_mutex_t lock;
	atomic_bool eh_ready, debug_ready, peek_ready, memo_ready;
	atomic_uint n_peeks;
	struct uw_peek peek;
	uint8_t *header_data, *eh_data; /* owned, as are those below */
	struct uw_frames eh;
	uint8_t *go_data, *debug_data, *mini_data;
	struct uw_frames go, debug, mini;

	/* NULL until the object is compiled, then unchanged. Owned, with its blob. */
	_Atomic(struct compiled *) compiled;
	_Atomic(struct uw_procs *) procs; /* owned, with its blob, stored or not */
	atomic_uint_fast64_t n_parsed;
	struct uw_memo memo;	/* rule cache, once many rules were looked up without a table */
	struct uw_codes *codes; /* owned */
};

struct compiled {
	struct uw_table table;
	uint8_t *blob;	      /* owned; NULL if kept is set */
	struct uw_blob *kept; /* owned: a blob that is read while it is needed */
	size_t size;
	struct uw_syscalls syscalls;
};

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
	o->segments = calloc(o->elf.n_phdrs ? o->elf.n_phdrs : 1, sizeof(*o->segments));
	if (!o->segments)
		return -ENOMEM;
	for (size_t i = 0; i < o->elf.n_phdrs; i++) {
		const struct uw_phdr *p = &o->elf.phdrs[i];

		if (p->type == PT_LOAD)
			o->segments[o->n_segments++] =
				(struct uw_segment){ .off = p->off,
						     .vaddr = p->vaddr,
						     .file_size = p->file_size,
						     .mem_size = p->mem_size,
						     .flags = p->flags };
	}
	return 0;
}

/*
 * Read the bytes from vaddr to the end of its segment, at most FRAMES_SIZE_MAX. This is for the
 * .eh_frame that PT_GNU_EH_FRAME points to. The caller frees *out. -ENOENT: no segment has vaddr in
 * its file part.
 */
static int read_from(struct uw_object *o, uint64_t vaddr, uint8_t **out, size_t *size)
{
	for (size_t i = 0; i < o->n_segments; i++) {
		const struct uw_segment *s = &o->segments[i];
		struct uw_section rest;

		if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_size)
			continue;
		rest = (struct uw_section){ .name = "",
					    .type = SHT_PROGBITS,
					    .off = s->off + (vaddr - s->vaddr),
					    .size = s->file_size - (vaddr - s->vaddr) };
		return uw_elf_section_read(&o->elf, &rest, FRAMES_SIZE_MAX, out, size);
	}
	return -ENOENT;
}

/* Set the bases that encoded pointers may count from. The sections may be absent. */
static void set_bases(const struct uw_elf *elf, struct uw_cfi *cfi)
{
	const struct uw_section *text = uw_elf_section(elf, ".text");
	const struct uw_section *got = uw_elf_section(elf, ".got");

	cfi->has_text = text != NULL;
	cfi->text = text ? text->vaddr : 0;
	cfi->has_got = got != NULL;
	cfi->got = got ? got->vaddr : 0;
}

/*
 * Set up the rule cache, sized for size bytes of call-frame information. The caller holds the lock.
 */
static void make_memo(struct uw_object *o, uint64_t size)
{
	if (atomic_load_explicit(&o->memo_ready, memory_order_relaxed))
		return;
	uw_memo_init(&o->memo, size);
	atomic_store_explicit(&o->memo_ready, true, memory_order_release);
}

/*
 * Read .eh_frame and the search table of .eh_frame_hdr; the caller holds the lock. Without section
 * headers, .eh_frame is found through PT_GNU_EH_FRAME. Parts that are damaged or cannot be read
 * count as absent; only -ENOMEM is returned.
 */
static int load_eh(struct uw_object *o)
{
	const struct uw_section *section = uw_elf_section(&o->elf, ".eh_frame");
	struct uw_cfi *cfi = &o->eh.cfi;
	struct uw_hdr table = { .n = 0 };
	size_t size = 0;
	int err = 0;

	for (size_t i = 0; i < o->elf.n_phdrs && !o->header_data; i++) {
		const struct uw_phdr *p = &o->elf.phdrs[i];
		struct uw_section header = {
			.name = "", .type = SHT_PROGBITS, .off = p->off, .size = p->file_size
		};

		if (p->type != PT_GNU_EH_FRAME)
			continue;
		err = uw_elf_section_read(&o->elf, &header, FRAMES_SIZE_MAX, &o->header_data,
					  &size);
		if (err == -ENOMEM)
			return err;
		if (!err && uw_hdr_init(&table, o->header_data, size, p->vaddr))
			table = (struct uw_hdr){ .n = 0 };
	}
	cfi->eh = true;
	set_bases(&o->elf, cfi);
	err = -ENOENT;
	if (section) {
		err = uw_elf_section_read(&o->elf, section, FRAMES_SIZE_MAX, &o->eh_data, &size);
		cfi->vaddr = section->vaddr;
	}
	if (err && err != -ENOMEM && table.has_frames) {
		err = read_from(o, table.frames_vaddr, &o->eh_data, &size);
		cfi->vaddr = table.frames_vaddr;
		cfi->to_terminator = true;
	}
	if (!err) {
		cfi->data = o->eh_data;
		cfi->size = size;
		o->eh.table = table;
		uw_frames_top(&o->eh);
	}
	if (err != -ENOMEM)
		make_memo(o, cfi->size);
	return err == -ENOMEM ? err : 0;
}

/*
 * Return DT_FLAGS_1, or 0 if there is none among the first 64 entries. Linkers' .dynamic sections
 * are smaller than that.
 */
static uint64_t flags_1(const struct uw_elf *elf, const struct uw_phdr *dynamic)
{
	Elf64_Dyn entries[64];
	uint64_t size = dynamic->file_size < sizeof(entries) ? dynamic->file_size : sizeof(entries);

	if (uw_source_read(&elf->source, dynamic->off, entries, size))
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
	const struct uw_section *text = uw_elf_section(elf, ".text");

	if (elf->type == ET_EXEC)
		return true;
	for (size_t i = 0; i < elf->n_phdrs; i++) {
		const struct uw_phdr *p = &elf->phdrs[i];

		if (p->type == PT_INTERP || (p->type == PT_DYNAMIC && flags_1(elf, p) & DF_1_PIE))
			return true;
	}
	/* the dynamic linker, which has no PT_INTERP */
	return text && elf->entry != text->vaddr;
}

/*
 * Read the ELF headers and what is needed at once. -ENOTSUP: another machine, or neither an
 * executable nor a shared object.
 */
static int set_up(struct uw_object *o)
{
	int err = uw_elf_init(&o->elf, &o->elf.source);

	if (err)
		return err;
	o->arch = uw_arch_of(o->elf.machine);
	if (!o->arch || (o->elf.type != ET_EXEC && o->elf.type != ET_DYN))
		return -ENOTSUP;
	uw_elf_build_id(&o->elf, &o->build_id);
	o->init = uw_elf_section(&o->elf, ".init");
	o->fini = uw_elf_section(&o->elf, ".fini");
	o->entry = is_begun_at(&o->elf) ? o->elf.entry : 0;
	return take_segments(o);
}

static void need_eh(struct uw_object *o);
static void need_debug(struct uw_object *o);

/* Initialize a zeroed object so that uw_object_put can free it. */
static void start(struct uw_object *o)
{
	atomic_init(&o->refs, 1);
	o->id = atomic_fetch_add(&last_id, 1) + 1;
	pthread_mutex_init(&o->lock, NULL);
	uw_frames_init(&o->eh);
	uw_frames_init(&o->go);
	uw_frames_init(&o->debug);
	uw_frames_init(&o->mini);
	o->elf.source.fd = -1;
}

/* Finish opening o, whose source is set. Takes over o. fd is the caller's, or -1 for an image. */
static int open_source(struct uw_object *o, int fd, struct uw_object **out)
{
	struct uw_source source = o->elf.source;
	int err;

	start(o);
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
			need_eh(o);
			need_debug(o);
			o->elf.source.fd = -1;
		}
	} else {
		o->elf.source.fd = -1;
	}
	o->codes = calloc(1, sizeof(*o->codes));
	if (!err && !o->codes)
		err = -ENOMEM;
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

/* Free a table with its blob; NULL is allowed. */
static void free_compiled(struct compiled *compiled)
{
	if (compiled) {
		uw_syscalls_fini(&compiled->syscalls);
		uw_table_fini(&compiled->table);
		uw_blob_free(compiled->kept);
		free(compiled->blob);
	}
	free(compiled);
}

/* Free the ranges and their blob: a stored blob, or bytes from malloc. */
static void free_procs(struct uw_procs *procs)
{
	if (procs && procs->kept)
		uw_blob_free(procs->kept);
	else if (procs)
		free((void *)(uintptr_t)procs->header);
	free(procs);
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
	uw_elf_fini(&object->elf);
	if (source.fd >= 0)
		close(source.fd);
	release_view(&source.view);
	uw_frames_fini(&object->eh);
	uw_frames_fini(&object->go);
	uw_frames_fini(&object->debug);
	uw_frames_fini(&object->mini);
	pthread_mutex_destroy(&object->lock);
	free(object->image);
	free(object->segments);
	free(object->header_data);
	free(object->eh_data);
	free(object->go_data);
	free(object->debug_data);
	free(object->mini_data);
	free_compiled(atomic_load_explicit(&object->compiled, memory_order_relaxed));
	uw_peek_fini(&object->peek);
	free_procs(atomic_load_explicit(&object->procs, memory_order_relaxed));
	uw_memo_fini(&object->memo);
	free(object->codes);
	free(object);
}

/* ---- what it is ------------------------------------------------------------------- */

uint64_t uw_object_id(const struct uw_object *object)
{
	return object->id;
}

const struct uw_elf *uw_object_elf(const struct uw_object *o)
{
	return &o->elf;
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

/* ---- addresses -------------------------------------------------------------------- */

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
	uint64_t skip, before, after, past;
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
	past = s->file_size < UINT64_MAX - s->off ? s->off + s->file_size : UINT64_MAX;
	if (s->off > UINT64_MAX - skip)
		return -EFAULT;
	err = uw_codes_read(object->codes, &object->elf.source, s->off, past,
			    s->off + skip - before, buffer, before + after)
		      ? -EFAULT
		      : 0;
	if (!err)
		*out = (struct uw_code){ .at = buffer + before, .before = before, .after = after };
	return err;
}

/* ---- rules ------------------------------------------------------------------------ */

/*
 * Load MiniDebugInfo (.gnu_debugdata): an ELF file compressed with xz, whose .debug_frame has the
 * addresses of the outer file. Damage counts as absence.
 */
static void load_mini(struct uw_object *o, const struct uw_section *section)
{
	struct uw_source source = { .fd = -1 };
	struct uw_elf elf;
	const struct uw_section *frames;
	uint8_t *packed, *image;
	size_t packed_size, size;

	if (uw_elf_section_read(&o->elf, section, MINI_SIZE_MAX, &packed, &packed_size))
		return;
	if (!uw_unpack_xz(packed, packed_size, MINI_SIZE_MAX, &image, &size)) {
		source.image = image;
		source.size = size;
		if (!uw_elf_init(&elf, &source)) {
			frames = uw_elf_section(&elf, ".debug_frame");
			if (frames && !uw_elf_section_read(&elf, frames, FRAMES_SIZE_MAX,
							   &o->mini_data, &size)) {
				o->mini.cfi.data = o->mini_data;
				o->mini.cfi.size = size;
				o->mini.cfi.vaddr = frames->vaddr;
			}
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
	const struct uw_section *section = uw_elf_section(&o->elf, ".debug_frame");
	size_t size;

	if (!section)
		section = uw_elf_section(&o->elf, ".zdebug_frame");
	if (!uw_gopclntab_frames(o, &o->go_data, &size)) {
		o->go.cfi.data = o->go_data;
		o->go.cfi.size = size;
	}
	set_bases(&o->elf, &o->debug.cfi);
	if (section &&
	    !uw_elf_section_read(&o->elf, section, FRAMES_SIZE_MAX, &o->debug_data, &size)) {
		o->debug.cfi.data = o->debug_data;
		o->debug.cfi.size = size;
		o->debug.cfi.vaddr = section->vaddr;
	}
	section = uw_elf_section(&o->elf, ".gnu_debugdata");
	if (section)
		load_mini(o, section);
}

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
	struct uw_frames *const frames[UW_FRAMES_N] = { [UW_FRAMES_EH] = &object->eh,
							[UW_FRAMES_GO] = &object->go,
							[UW_FRAMES_DEBUG] = &object->debug,
							[UW_FRAMES_MINI] = &object->mini };

	if (i == UW_FRAMES_EH)
		need_eh(object);
	else
		need_debug(object);
	return i < UW_FRAMES_N ? frames[i] : NULL;
}

static const struct uw_procs *procs_of(const struct uw_object *o)
{
	return atomic_load_explicit(&o->procs, memory_order_acquire);
}

/*
 * The cost of a lookup in the file, in bytes of section that could be read in the same time. A
 * lookup takes half a microsecond longer than in a section in memory. Reading takes 0.85 ns per
 * byte, most of it for pages that are written for the first time; when memory is scarce, those
 * pages take ten times as long. In a mapped file a lookup takes no longer than in a section in
 * memory, except for rules near those found before.
 */
#define PEEK_COST	 512
#define PEEK_COST_MAPPED 64
/* After this many lookups, rules are stored in the rule cache. */
#define PEEKS_FEW 256

/*
 * Return whether to look up a rule in the file without reading its section. If so, it is counted as
 * a reading of the call-frame information.
 */
static bool may_peek(struct uw_object *o)
{
	unsigned int n;

	if (atomic_load_explicit(&o->eh_ready, memory_order_acquire))
		return false;
	if (!atomic_load_explicit(&o->peek_ready, memory_order_acquire)) {
		pthread_mutex_lock(&o->lock);
		if (!atomic_load_explicit(&o->peek_ready, memory_order_relaxed)) {
			struct uw_cfi bases = { .size = 0 };

			set_bases(&o->elf, &bases);
			uw_peek_init(&o->peek, &o->elf, &bases);
			atomic_store_explicit(&o->peek_ready, true, memory_order_release);
		}
		pthread_mutex_unlock(&o->lock);
	}
	n = atomic_fetch_add_explicit(&o->n_peeks, 1, memory_order_relaxed);
	if (!o->peek.usable ||
	    n >= o->peek.frames_size / (o->peek.in_memory ? PEEK_COST_MAPPED : PEEK_COST))
		return false;
	if (n == PEEKS_FEW) {
		pthread_mutex_lock(&o->lock);
		make_memo(o, o->peek.frames_size);
		pthread_mutex_unlock(&o->lock);
	}
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	return true;
}

/*
 * Look up the FDE around lookup in all sections, and return its section in *cfi. -ENOENT: none has
 * it.
 */
static int find_fde(struct uw_object *o, uint64_t lookup, const struct uw_cfi **cfi,
		    struct uw_fde *fde)
{
	int err = -ENOENT;

	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	for (unsigned int i = 0; i < UW_FRAMES_N && err == -ENOENT; i++) {
		struct uw_frames *frames = uw_object_frames(o, i);

		err = uw_frames_find(frames, lookup, fde);
		*cfi = &frames->cfi;
	}
	return err;
}

/* Return whether the code at pc is a signal trampoline, and its rule in *rule. */
static bool signal_rule(const struct uw_object *o, uint64_t pc, bool exact, struct uw_rule *rule)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	return !uw_object_code(o, pc, buffer, &code) && o->arch->signal(&code, exact, rule);
}

/*
 * Return whether pc may be in a PLT entry. Compilers and assemblers write the same jumps through
 * the GOT into ordinary code, where rsp need not point to a return address.
 */
static bool may_hold_plt(const struct uw_object *o, uint64_t pc)
{
	bool any = false;

	if (!o->arch->plt_places)
		return true;
	for (size_t i = 0; i < o->elf.n_sections; i++) {
		const struct uw_section *s = &o->elf.sections[i];

		if (!(s->flags & SHF_EXECINSTR))
			continue;
		any = true;
		if (pc >= s->vaddr && pc - s->vaddr < s->size)
			return !strncmp(s->name, ".plt", 4) || !strcmp(s->name, ".iplt");
	}
	/* Without sections (an image in memory, for example), use the alignment of the entries. */
	return !any && o->arch->plt_places >> pc % 16 & 1;
}

bool uw_object_stub(const struct uw_object *o, uint64_t pc, struct uw_rule *rule)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	return !uw_object_code(o, pc, buffer, &code) && o->arch->stub(&code, rule) &&
	       may_hold_plt(o, pc);
}

/* Reduce the gap to its part that is also in *one, the gap of one more section. */
static void narrow_gap(struct uw_gap *gap, const struct uw_cfi **cfi, const struct uw_gap *one,
		       const struct uw_cfi *of)
{
	if (one->has_before && (!gap->has_before || one->start > gap->start)) {
		gap->start = one->start;
		gap->before = one->before;
		gap->has_before = true;
		*cfi = of;
	}
	if (one->end < gap->end)
		gap->end = one->end;
}

/*
 * Look up the FDE around lookup, or, if no section has one, the gap around lookup. This saves
 * looking at the same places again in find_gap. -EAGAIN: call find_fde and find_gap instead.
 */
static int find_fde_or_gap(struct uw_object *o, uint64_t lookup, const struct uw_cfi **cfi,
			   struct uw_fde *fde, struct uw_gap *gap)
{
	int err = -ENOENT;

	*gap = (struct uw_gap){ .end = UINT64_MAX };
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	for (unsigned int i = 0; i < UW_FRAMES_N && err == -ENOENT; i++) {
		struct uw_frames *frames = uw_object_frames(o, i);
		struct uw_gap one;

		err = uw_frames_look(frames, lookup, fde, &one);
		if (!err)
			*cfi = &frames->cfi;
		else if (err == -ENOENT)
			narrow_gap(gap, cfi, &one, &frames->cfi);
	}
	return err;
}

/* Return the range without FDEs around lookup, all sections taken together. */
static int find_gap(struct uw_object *o, uint64_t lookup, struct uw_gap *gap,
		    const struct uw_cfi **cfi)
{
	const struct uw_procs *procs = procs_of(o);

	*gap = (struct uw_gap){ .end = UINT64_MAX };
	if (procs && uw_procs_find(procs, lookup, &gap->start, &gap->end) == -ENOENT &&
	    (!gap->start || gap->end - gap->start >= UW_PADDING_MAX))
		return 0; /* what lies before the gap does not matter */
	*gap = (struct uw_gap){ .end = UINT64_MAX };
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		struct uw_frames *frames = uw_object_frames(o, i);
		struct uw_gap one;
		int err = uw_frames_gap(frames, lookup, &one);

		if (err)
			return err;
		narrow_gap(gap, cfi, &one, &frames->cfi);
	}
	return 0;
}

static bool is_in(const struct uw_section *section, uint64_t vaddr)
{
	return section && vaddr >= section->vaddr && vaddr - section->vaddr < section->size;
}

/*
 * Return the rule for code in .init or .fini. The linker joins these sections from pieces of many
 * files, so no FDE can cover them. They consist of crti's prologue, the pieces and crtn's epilogue.
 */
static bool init_rule(struct uw_object *o, uint64_t lookup, struct uw_rule *rule)
{
	const struct uw_section *init = is_in(o->init, lookup) ? o->init : o->fini;
	uint8_t first[UW_CODE_BEFORE + UW_CODE_AFTER], here[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code start, at;

	if (!is_in(init, lookup))
		return false;
	return !uw_object_code(o, init->vaddr, first, &start) &&
	       !uw_object_code(o, lookup, here, &at) &&
	       o->arch->init(&start, &at, lookup - init->vaddr, rule);
}

/*
 * Return whether lookup, which lies in a gap between FDEs, is in the function that begins at the
 * entry point.
 */
static bool in_entry(const struct uw_object *o, uint64_t lookup, const struct uw_gap *gap)
{
	uint64_t entry = o->entry, length = lookup - entry;
	uint8_t code[ENTRY_MAX + ENTRY_ALIGN];

	if (!entry || entry < gap->start || lookup < entry || length >= ENTRY_MAX)
		return false;
	if (!o->arch->begins_behind_entry)
		return gap->end < UINT64_MAX || length < ENTRY_UNBOUND_MAX;
	if (length && uw_object_read(o, entry, code, length))
		return false;
	/* The C library's other functions are close by, and they have callers. */
	for (uint64_t i = ENTRY_ALIGN - entry % ENTRY_ALIGN; i <= length; i += ENTRY_ALIGN)
		if (o->arch->begins_behind_entry(code, code + i))
			return false;
	return true;
}

/*
 * Return the rule for code that no FDE covers, from the code itself. gap is the range that is known
 * to have no FDE. -ENOENT: the code is not recognized.
 */
static int bare_rule(struct uw_object *o, uint64_t lookup, bool exact, const struct uw_gap *gap,
		     struct uw_rule *out)
{
	/* _start without CFI: nothing called it (psABI §3.4.1). */
	if (in_entry(o, lookup, gap)) {
		*out = (struct uw_rule){ .start = o->entry,
					 .end = lookup + 1,
					 .ra = o->arch->pc,
					 .stepper = UW_STEPPER_CFI,
					 .n_regs = 1,
					 .regs = { { .reg = o->arch->pc,
						     .kind = UW_RULE_UNDEFINED } } };
		return 0;
	}
	if (init_rule(o, lookup, out))
		return 0;
	/* No call returns into a PLT entry, so pc must be exact. */
	return exact && uw_object_stub(o, lookup, out) ? 0 : -ENOENT;
}

/*
 * Return the rule for lookup in a gap. cfi is the section of the FDE before the gap. A short gap is
 * padding, which belongs to the function before it.
 */
static int rule_in_gap(struct uw_object *o, uint64_t lookup, bool exact, const struct uw_gap *gap,
		       const struct uw_cfi *cfi, struct uw_rule *out)
{
	bool padding = gap->has_before && gap->end - gap->start < UW_PADDING_MAX;
	struct uw_fde fde;
	int err;

	/* If a pc is in a trampoline, the gap has room for all of the trampoline. */
	if (!(padding && exact && gap->end - gap->start < o->arch->trampoline_size) &&
	    signal_rule(o, exact ? lookup : lookup + 1, exact, out))
		return 0;
	if (padding) {
		err = uw_cfi_entry(cfi, gap->before, &fde, NULL);
		return err ? err : uw_cfi_rule(cfi, &fde, lookup, out);
	}
	return bare_rule(o, lookup, exact, gap, out);
}

/* Return the rule for code that no FDE covers. */
static int gap_rule(struct uw_object *o, uint64_t lookup, bool exact, struct uw_rule *out)
{
	const struct uw_cfi *cfi = NULL;
	struct uw_gap gap;
	int err = find_gap(o, lookup, &gap, &cfi);

	return err ? err : rule_in_gap(o, lookup, exact, &gap, cfi, out);
}

/*
 * Return whether the code has a better rule than the FDE that ends at end; then *out is that rule.
 */
static bool better_rule(const struct uw_object *o, uint64_t lookup, bool exact, uint64_t end,
			struct uw_rule *out)
{
	/* A handler "returns" to the start of its trampoline, and no call ends just before that. */
	return !exact && lookup + 1 == end && signal_rule(o, lookup + 1, false, out);
}

/*
 * For a signal frame, replace the rule by the one from the trampoline's code on architectures where
 * that is preferred (sigcontext_first).
 */
static void see_sigcontext(const struct uw_object *o, uint64_t lookup, bool exact,
			   struct uw_rule *out)
{
	if (out->signal && o->arch->sigcontext_first)
		(void)signal_rule(o, exact ? lookup : lookup + 1, exact, out);
}

/* Return whether another section may cover what .eh_frame does not. */
static bool has_other_frames(const struct uw_object *o)
{
	return uw_elf_section(&o->elf, ".debug_frame") ||
	       uw_elf_section(&o->elf, ".zdebug_frame") ||
	       uw_elf_section(&o->elf, ".gnu_debugdata") || uw_gopclntab_has(o);
}

/* Return the same rule as from the sections, but without reading them. -EAGAIN: read them. */
static int peeked_rule(struct uw_object *o, uint64_t lookup, bool exact, struct uw_rule *out)
{
	struct uw_gap gap = { .has_before = true };
	int err = uw_peek_rule(&o->peek, lookup, out, &gap.start, &gap.end);

	if (!err) {
		if (!better_rule(o, lookup, exact, gap.end, out))
			see_sigcontext(o, lookup, exact, out);
		return 0;
	}
	if (err != -ENOENT || gap.end - gap.start < UW_PADDING_MAX || has_other_frames(o))
		return -EAGAIN;
	if (signal_rule(o, exact ? lookup : lookup + 1, exact, out))
		return 0;
	return bare_rule(o, lookup, exact, &gap, out);
}

int uw_object_interpret(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out)
{
	const struct uw_procs *procs = procs_of(object);
	const struct uw_cfi *cfi = NULL;
	uint64_t start, end;
	struct uw_fde fde;
	struct uw_gap gap;
	int err;

	/*
	 * The ranges may already say that no FDE covers lookup, or a trampoline's code may be
	 * enough.
	 */
	if (procs) {
		err = uw_procs_find(procs, lookup, &start, &end);
		if (err == -ENOENT)
			return gap_rule(object, lookup, exact, out);
		if (!err && better_rule(object, lookup, exact, end, out))
			return 0;
	}
	if (may_peek(object)) {
		err = peeked_rule(object, lookup, exact, out);
		if (err != -EAGAIN)
			return err;
	}
	err = find_fde_or_gap(object, lookup, &cfi, &fde, &gap);
	if (err == -ENOENT)
		return rule_in_gap(object, lookup, exact, &gap, cfi, out);
	if (err == -EAGAIN) {
		err = find_fde(object, lookup, &cfi, &fde);
		if (err == -ENOENT)
			return gap_rule(object, lookup, exact, out);
	}
	if (err)
		return err;
	if (better_rule(object, lookup, exact, fde.end, out))
		return 0;
	err = uw_cfi_rule(cfi, &fde, lookup, out);
	if (!err)
		see_sigcontext(object, lookup, exact, out);
	return err;
}

/*
 * Return the range of the FDE around vaddr. The sections are read only if this cannot be avoided.
 */
static int find_function(struct uw_object *o, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	const struct uw_procs *procs = procs_of(o);
	const struct uw_cfi *cfi = NULL;
	struct uw_fde fde;
	int err;

	if (procs) {
		err = uw_procs_find(procs, vaddr, start, end);
		if (!err || err == -ENOENT)
			return err;
	}
	if (may_peek(o)) {
		err = uw_peek_range(&o->peek, vaddr, start, end);
		if (err != -EAGAIN && (err != -ENOENT || !has_other_frames(o)))
			return err;
	}
	err = find_fde(o, vaddr, &cfi, &fde);
	if (!err) {
		*start = fde.start;
		*end = fde.end;
	}
	return err;
}

bool uw_object_covers(struct uw_object *object, uint64_t vaddr)
{
	uint64_t start, end;

	return !find_function(object, vaddr, &start, &end);
}

bool uw_object_begins(struct uw_object *object, uint64_t vaddr)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_rule rule;
	struct uw_code code;
	uint64_t start, end;
	const struct uw_table *table = uw_object_table(object);

	/* Just before most return addresses, the calling function goes on: the table shows that. */
	if (vaddr % UW_ENTRY_ALIGN != 0 || (table && uw_table_inside(table, vaddr - 1, false)))
		return false;
	/* Check for a call before vaddr first: that is faster than looking up functions. */
	return !uw_object_code(object, vaddr, buffer, &code) &&
	       object->arch->after_call(&code).kind == UW_CALL_NONE &&
	       !find_function(object, vaddr, &start, &end) && start == vaddr &&
	       find_function(object, vaddr - 1, &start, &end) == -ENOENT &&
	       !object->arch->signal(&code, false, &rule);
}

/* ---- tables ------------------------------------------------------------------------ */

const struct uw_table *uw_object_table(const struct uw_object *object)
{
	const struct compiled *compiled =
		atomic_load_explicit(&object->compiled, memory_order_acquire);

	return compiled ? &compiled->table : NULL;
}

static struct uw_code_source code_of(const struct uw_object *o)
{
	return (struct uw_code_source){ .arch = o->arch,
					.source = &o->elf.source,
					.segments = o->segments,
					.n_segments = o->n_segments };
}

/*
 * Return whether lookup is in a signal trampoline that has no FDE of its own, in the padding
 * between two FDEs or where one ends. Tables are compiled without looking at the code, so they do
 * not have such trampolines. Call this where the table's rows do not rule out both cases. The
 * object must have a table.
 */
static bool at_trampoline(const struct uw_object *o, uint64_t lookup, bool exact)
{
	const struct compiled *compiled = atomic_load_explicit(&o->compiled, memory_order_acquire);
	struct uw_code_source code = code_of(o);
	struct uw_rule rule;

	return uw_syscalls_near(&compiled->syscalls, &code, exact ? lookup : lookup + 1) &&
	       signal_rule(o, exact ? lookup : lookup + 1, exact, &rule);
}

int uw_object_rule(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out)
{
	const struct uw_table *table = uw_object_table(object);
	bool compiled =
		table && !uw_table_rule(table, lookup, out) &&
		(uw_table_inside(table, lookup, exact) || !at_trampoline(object, lookup, exact));
	int err = compiled ? 0 : uw_object_interpret(object, lookup, exact, out);

	if (!err)
		out->compiled = compiled;
	return err;
}

int uw_object_word_made(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *word,
			uint8_t *stepper, struct uw_rule *rule, enum uw_word_from *from)
{
	const struct uw_table *table = uw_object_table(object);
	uint64_t key = lookup | (uint64_t)exact << 63;
	struct uw_row row;
	uint64_t found;
	bool has_memo, inside;
	int err;

	*from = UW_WORD_KEPT;
	if (table) {
		found = uw_table_look(table, lookup, exact, &inside);
		if (inside ||
		    (uw_word_kind(found) != TABLE_NONE && !at_trampoline(object, lookup, exact))) {
			*word = found;
			*stepper = UW_STEPPER_CFI;
			*from = inside ? UW_WORD_INSIDE : UW_WORD_KEPT;
			return 0;
		}
	}
	/*
	 * No file has code in the upper half; there, lookup could be mistaken for another lookup's
	 * key.
	 */
	has_memo =
		!(lookup >> 62) && atomic_load_explicit(&object->memo_ready, memory_order_acquire);
	if (has_memo && uw_memo_find(&object->memo, key, word, stepper))
		return 0;
	err = uw_object_interpret(object, lookup, exact, rule);
	*from = UW_WORD_MADE;
	if (err)
		return err;
	rule->compiled = false;
	*word = uw_row_of(object->arch, rule, &row) ? TABLE_SLOW : row.word;
	*stepper = rule->stepper;
	if (has_memo)
		uw_memo_keep(&object->memo, key, *word, *stepper);
	return 0;
}

int uw_object_word(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *word,
		   uint8_t *stepper)
{
	struct uw_rule rule;
	enum uw_word_from from;

	return uw_object_word_made(object, lookup, exact, word, stepper, &rule, &from);
}

/* Return what tables are compiled from. This reads all sections. */
static struct uw_table_source source_of(struct uw_object *o)
{
	struct uw_table_source source = { .arch = o->arch,
					  .build_id = &o->build_id,
					  .segments = o->segments,
					  .n_segments = o->n_segments };

	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		source.cfi[i] = &uw_object_frames(o, i)->cfi;
	return source;
}

/*
 * Publish a compiled table. Takes over the parts of made. If another thread was first, its table is
 * the same and made is freed. -ENOMEM, also with made freed.
 */
static int install(struct uw_object *o, const struct compiled *made)
{
	struct compiled *compiled = malloc(sizeof(*compiled)), *none = NULL;
	struct uw_code_source code = code_of(o);

	if (!compiled) {
		struct uw_table table = made->table;

		uw_table_fini(&table);
		uw_blob_free(made->kept);
		free(made->blob);
		return -ENOMEM;
	}
	*compiled = *made;
	uw_syscalls_init(&compiled->syscalls, &code);
	if (!atomic_compare_exchange_strong_explicit(&o->compiled, &none, compiled,
						     memory_order_acq_rel, memory_order_acquire))
		free_compiled(compiled);
	return 0;
}

/* Do the same with a blob that has been checked. */
static int install_blob(struct uw_object *o, uint8_t *blob, size_t size)
{
	struct compiled made = { .blob = blob, .size = size };

	uw_table_trust(&made.table, blob);
	return install(o, &made);
}

int uw_object_compile(struct uw_object *object)
{
	return uw_object_compile_unless(object, NULL, NULL);
}

int uw_object_compile_unless(struct uw_object *object, bool (*stop)(void *ctx), void *ctx)
{
	struct uw_table_source source;
	uint8_t *blob;
	size_t size;
	int err;

	if (uw_object_table(object))
		return 0;
	source = source_of(object);
	source.stop = stop;
	source.stop_ctx = ctx;
	atomic_fetch_add_explicit(&object->n_parsed, 1, memory_order_relaxed);
	err = uw_table_build(&source, &blob, &size);
	return err ? err : install_blob(object, blob, size);
}

int uw_object_identify(struct uw_object *object, struct uw_identity *out)
{
	struct uw_table_source source = source_of(object);
	__u64 size, hash;

	if (!atomic_load_explicit(&object->eh_ready, memory_order_acquire))
		return -ENOMEM;
	uw_table_identify(&source, &size, &hash);
	*out = (struct uw_identity){ .size = size, .hash = hash };
	return 0;
}

int uw_object_inputs(struct uw_object *object, uw_input_fn take, void *ctx)
{
	struct uw_table_source source = source_of(object);
	const uint64_t head[] = { TABLE_BUILDER, object->arch->machine, object->n_segments,
				  UW_FRAMES_N };

	if (!atomic_load_explicit(&object->eh_ready, memory_order_acquire))
		return -ENOMEM;
	take(ctx, head, sizeof(head));
	for (size_t i = 0; i < object->n_segments; i++) {
		const struct uw_segment *s = &object->segments[i];
		const uint64_t segment[] = { s->off, s->vaddr, s->file_size, s->mem_size,
					     s->flags };

		take(ctx, segment, sizeof(segment));
	}
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		const struct uw_cfi *cfi = source.cfi[i];
		const uint64_t section[] = { cfi->size, cfi->vaddr,	   cfi->text,
					     cfi->got,	cfi->has_text,	   cfi->has_got,
					     cfi->eh,	cfi->to_terminator };

		take(ctx, section, sizeof(section));
		if (cfi->size)
			take(ctx, cfi->data, cfi->size);
	}
	return 0;
}

static bool same_identity(const struct uw_identity *a, uint64_t size, uint64_t hash)
{
	return a->size == size && a->hash == hash;
}

/* Return whether the file's executable segments are those that the table was made for. */
static bool same_segments(const struct uw_object *o, const struct table_header *h)
{
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const uint8_t *)h + h->seg);
	uint32_t n = 0;

	for (size_t i = 0; i < o->n_segments; i++) {
		const struct uw_segment *s = &o->segments[i];

		if (!(s->flags & PF_X) || !s->mem_size)
			continue;
		if (n == h->n_segs || seg[n].file_off != s->off || seg[n].vaddr != s->vaddr ||
		    seg[n].size != s->mem_size)
			return false;
		n++;
	}
	return n == h->n_segs;
}

/* Check that a valid table belongs to this file. -ENOENT: it does not. */
static int check_own(struct uw_object *o, const struct uw_table *table,
		     const struct uw_identity *known)
{
	const struct table_header *h = table->header;
	struct uw_identity own;
	int err = 0;

	if (h->builder != TABLE_BUILDER || table->arch != o->arch ||
	    h->build_id_size != o->build_id.size ||
	    memcmp(h->build_id, o->build_id.bytes, h->build_id_size) != 0 || !same_segments(o, h))
		return -ENOENT;
	if (!known) {
		err = uw_object_identify(o, &own);
		known = &own;
	}
	return err ? err : same_identity(known, h->src_size, h->src_hash) ? 0 : -ENOENT;
}

int uw_object_take(struct uw_object *object, void *blob, size_t size,
		   const struct uw_identity *known)
{
	struct uw_table table;
	int err;

	if (uw_object_table(object)) {
		free(blob);
		return 0;
	}
	err = uw_table_open(&table, blob, size);
	if (!err)
		err = check_own(object, &table, known);
	if (!err)
		return install_blob(object, blob, size);
	free(blob);
	return err;
}

int uw_object_take_kept(struct uw_object *object, const struct uw_kept *kept,
			const struct uw_identity *known)
{
	struct compiled made = { .size = (size_t)kept->size };
	int err = uw_blob_open(kept, TABLE_MAGIC, &made.kept);

	if (!err)
		err = uw_table_open_kept(&made.table, made.kept);
	if (!err)
		err = check_own(object, &made.table, known);
	if (!err)
		return install(object, &made);
	uw_table_fini(&made.table);
	uw_blob_free(made.kept);
	return err;
}

/*
 * Set the object up from the table's description of the file: machine, build-id, where the code
 * lies.
 */
static int describe(struct uw_object *o, const struct uw_table *table)
{
	const struct table_header *h = table->header;
	const struct table_seg *seg =
		(const struct table_seg *)(const void *)((const uint8_t *)h + h->seg);

	o->arch = table->arch;
	o->build_id.size = h->build_id_size;
	memcpy(o->build_id.bytes, h->build_id, h->build_id_size);
	o->segments = calloc(h->n_segs ? h->n_segs : 1, sizeof(*o->segments));
	o->codes = calloc(1, sizeof(*o->codes));
	if (!o->segments || !o->codes)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->n_segs; i++)
		o->segments[o->n_segments++] = (struct uw_segment){ .off = seg[i].file_off,
								    .vaddr = seg[i].vaddr,
								    .file_size = seg[i].size,
								    .mem_size = seg[i].size,
								    .flags = PF_R | PF_X };
	/* There are no sections to read: mark them as read, and empty. */
	atomic_store_explicit(&o->eh_ready, true, memory_order_release);
	atomic_store_explicit(&o->debug_ready, true, memory_order_release);
	return 0;
}

int uw_object_open_kept(const struct uw_kept *kept, struct uw_object **out)
{
	struct compiled made = { .size = (size_t)kept->size };
	struct uw_object *o = calloc(1, sizeof(*o));
	int err = uw_blob_open(kept, TABLE_MAGIC, &made.kept);

	if (!err && !o)
		err = -ENOMEM;
	if (!err)
		err = uw_table_open_kept(&made.table, made.kept);
	if (!err) {
		start(o);
		err = describe(o, &made.table);
		if (!err) {
			err = install(o, &made);
			/* install takes over made on failure, too */
			made = (struct compiled){ .size = 0 };
		}
		if (err)
			uw_object_put(o);
		else
			*out = o;
		o = NULL;
	}
	uw_table_fini(&made.table);
	uw_blob_free(made.kept);
	free(o);
	return err;
}

int uw_object_adopt(struct uw_object *object, const void *blob, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, blob, size);
	return uw_object_take(object, copy, size, NULL);
}

int uw_object_procs(struct uw_object *object, void **blob, size_t *size)
{
	struct uw_frames *frames[UW_FRAMES_N];
	struct uw_identity identity;
	uint8_t *made;
	int err = 0;

	for (unsigned int i = 0; i < UW_FRAMES_N; i++)
		frames[i] = uw_object_frames(object, i);
	atomic_fetch_add_explicit(&object->n_parsed, 1, memory_order_relaxed);
	err = uw_object_identify(object, &identity);
	if (!err)
		err = uw_procs_build(frames, UW_FRAMES_N, object->arch->machine, identity.size,
				     identity.hash, &made, size);
	if (!err)
		*blob = made;
	return err;
}

/*
 * Publish ranges whose blob has been checked. Takes over made and its blob. -ENOENT: they belong to
 * another file.
 */
static int install_procs(struct uw_object *o, const struct uw_procs *made,
			 const struct uw_identity *known)
{
	struct uw_procs *procs = malloc(sizeof(*procs)), *none = NULL;
	int err = procs ? 0 : -ENOMEM;

	if (!err && (made->header->blob.machine != o->arch->machine ||
		     !same_identity(known, made->header->src_size, made->header->src_hash)))
		err = -ENOENT;
	if (!err) {
		*procs = *made;
		if (atomic_compare_exchange_strong_explicit(
			    &o->procs, &none, procs, memory_order_acq_rel, memory_order_acquire))
			return 0;
	}
	free(procs);
	if (made->kept)
		uw_blob_free(made->kept);
	else
		free((void *)(uintptr_t)made->header);
	return err;
}

int uw_object_take_procs(struct uw_object *object, void *blob, size_t size,
			 const struct uw_identity *known)
{
	struct uw_procs procs;
	int err = uw_procs_open(&procs, blob, size);

	if (!err)
		return install_procs(object, &procs, known);
	free(blob);
	return err;
}

int uw_object_take_kept_procs(struct uw_object *object, const struct uw_kept *kept,
			      const struct uw_identity *known)
{
	struct uw_blob *blob;
	struct uw_procs procs;
	int err = uw_blob_open(kept, PROCS_MAGIC, &blob);

	if (err)
		return err;
	err = uw_procs_open_kept(&procs, blob);
	if (!err)
		return install_procs(object, &procs, known);
	uw_blob_free(blob);
	return err;
}

uint64_t uw_object_parsed(const struct uw_object *object)
{
	return atomic_load_explicit(&object->n_parsed, memory_order_relaxed);
}

const void *uw_object_compiled(const struct uw_object *object, size_t *size)
{
	const struct compiled *compiled =
		atomic_load_explicit(&object->compiled, memory_order_acquire);

	*size = 0;
	if (!compiled || (compiled->kept && uw_blob_whole(compiled->kept)))
		return NULL;
	*size = compiled->size;
	return compiled->kept ? uw_blob_bytes(compiled->kept) : compiled->blob;
}

int uw_object_function(struct uw_object *object, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	uint64_t from, to;
	int err = find_function(object, vaddr, &from, &to);

	if (!err) {
		*start = from;
		*end = to;
	}
	return err;
}

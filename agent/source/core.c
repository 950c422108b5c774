/*
 * agent/source/core.c: reads ELF core files as a source, as Linux and gdb's gcore write them.
 *
 * The segments hold the memory, as far as it was written. The notes hold the threads and the list
 * of mapped files. The bytes of segments that were not written are taken from the mapped files,
 * which are identified by the build-ids found in memory.
 */
#include "agent/io.h"
#include "agent/source/frozen.h"
#include "agent/source/image.h"
#include "agent/source/linkmap.h"
#include "agent/source/machine.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENTS_MAX (1u << 20)
#define NT_FILE_MAX  (16u << 20) /* bytes; the kernel writes at most 4 MiB */
#define AUXV_MAX     4096

/*
 * Offsets and sizes in struct elf_prstatus and struct elf_prpsinfo of 64-bit machines
 * (include/linux/elfcore.h).
 */
#define PRSTATUS_PID  32
#define PRSTATUS_REGS 112
#define PRPSINFO_PID  24
#define PRPSINFO_COMM 40
#define PRPSINFO_SIZE 136
#define PRSTATUS_MAX  512

/*
 * Segments of one loaded file, at most. Real files have far fewer; a larger number could only
 * serve to make reading slow.
 */
#define FILE_SEGMENTS 64

#define CACHE_SLOTS 64
#define CACHE_CHUNK 16384

struct segment {
	uint64_t vaddr, mem_size;
	uint64_t off, size; /* the bytes that the core file holds */
	uint32_t flags;
};

struct chunk {
	uint64_t off; /* file offset; UINT64_MAX: the slot is empty */
	size_t size;
	uint8_t *bytes;
};

struct core {
	struct frozen frozen;
	int fd;
	uint64_t file_size;
	char *name; /* for messages; owned */
	const char *base;
	struct segment *segments; /* sorted by vaddr, without overlaps; owned */
	size_t n_segments;
	struct chunk cache[CACHE_SLOTS];
	uint8_t *files; /* contents of NT_FILE; owned */
	uint32_t files_size;
	uint64_t files_off;
	uint64_t phdr, n_phdrs, vdso, program; /* from the auxiliary vector; 0: unknown */
};

/* ---- the file ------------------------------------------------------------------ */

/* Read size bytes at off of the core file; -EBADMSG if the file does not have them. */
static int read_at(const struct core *c, uint64_t off, void *out, uint64_t size)
{
	if (off > c->file_size || size > c->file_size - off)
		return -EBADMSG;
	return io_read_at(c->fd, off, out, size);
}

/*
 * Like read_at(), but through a cache of chunks: stacks and headers are read in many small pieces
 * that lie close together.
 */
static int read_cached(struct core *c, uint64_t off, void *out, uint64_t size)
{
	uint8_t *to = out;

	while (size) {
		uint64_t start = off - off % CACHE_CHUNK, skip = off - start, n;
		struct chunk *chunk = &c->cache[start / CACHE_CHUNK % CACHE_SLOTS];

		if (chunk->off != start) {
			uint64_t want = c->file_size - start;
			int err;

			if (!chunk->bytes)
				chunk->bytes = malloc(CACHE_CHUNK);
			if (!chunk->bytes)
				return -ENOMEM;
			if (want > CACHE_CHUNK)
				want = CACHE_CHUNK;
			chunk->off = UINT64_MAX;
			err = read_at(c, start, chunk->bytes, want);
			if (err)
				return err;
			chunk->off = start;
			chunk->size = want;
		}
		n = chunk->size > skip ? chunk->size - skip : 0;
		if (!n)
			return -EBADMSG;
		if (n > size)
			n = size;
		memcpy(to, chunk->bytes + skip, n);
		to += n;
		off += n;
		size -= n;
	}
	return 0;
}

/* ---- memory -------------------------------------------------------------------- */

/* Return the segment that contains addr, or NULL. */
static const struct segment *segment_at(const struct core *c, uint64_t addr)
{
	size_t low = 0, high = c->n_segments;

	while (low < high) { /* find the first segment above addr */
		size_t middle = low + (high - low) / 2;

		if (c->segments[middle].vaddr <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || addr - c->segments[low - 1].vaddr >= c->segments[low - 1].mem_size)
		return NULL;
	return &c->segments[low - 1];
}

/* Read captured memory (a uw_read_fn). Return -EFAULT if any byte of it is not in the core file. */
static int read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct core *c = ctx;
	uint64_t done = 0;

	/* The first pass checks that all bytes are there, the second one copies them. */
	for (int pass = 0; pass < 2; pass++) {
		for (done = 0; done < size;) {
			const struct segment *s = segment_at(c, addr + done);
			uint64_t skip = s ? addr + done - s->vaddr : 0, n;

			if (!s || skip >= s->size || (done && addr + done < addr))
				return -EFAULT;
			n = s->size - skip < size - done ? s->size - skip : size - done;
			if (pass && read_cached(c, s->off + skip, (uint8_t *)out + done, n))
				return -EFAULT;
			done += n;
		}
	}
	return 0;
}

static int by_vaddr(const void *a, const void *b)
{
	const struct segment *l = a, *r = b;

	return l->vaddr < r->vaddr ? -1 : l->vaddr > r->vaddr;
}

/*
 * Add a PT_LOAD segment. If the file ends inside it, record the damage and use the bytes that are
 * there.
 */
static void add_segment(struct core *c, const Elf64_Phdr *p)
{
	struct segment s = { .vaddr = p->p_vaddr,
			     .mem_size = p->p_memsz > p->p_filesz ? p->p_memsz : p->p_filesz,
			     .off = p->p_offset,
			     .size = p->p_filesz,
			     .flags = p->p_flags };

	if (s.mem_size > UINT64_MAX - s.vaddr)
		s.mem_size = UINT64_MAX - s.vaddr;
	if (!s.mem_size)
		return;
	if (s.size > s.mem_size)
		s.size = s.mem_size;
	if (s.size && (s.off > c->file_size || s.size > c->file_size - s.off)) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64
			      ": torn: the file ends before the memory at %" PRIx64 " does",
			      c->name, c->file_size, s.vaddr);
		s.size = s.off > c->file_size ? 0 : c->file_size - s.off;
	}
	c->segments[c->n_segments++] = s;
}

/*
 * Sort the segments by address. Segments cannot overlap in a sound file; of those that do, only
 * the first one is used.
 */
static void sort_segments(struct core *c)
{
	size_t n = 0;

	if (c->n_segments)
		qsort(c->segments, c->n_segments, sizeof(*c->segments), by_vaddr);
	for (size_t i = 0; i < c->n_segments; i++) {
		const struct segment *last = n ? &c->segments[n - 1] : NULL;

		if (!last || c->segments[i].vaddr - last->vaddr >= last->mem_size)
			c->segments[n++] = c->segments[i];
	}
	c->n_segments = n;
}

/* ---- notes --------------------------------------------------------------------- */

static uint32_t u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64(const uint8_t *p)
{
	return u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* Add a thread from its NT_PRSTATUS note at file offset off. */
static int on_prstatus(struct core *c, uint64_t off, uint32_t size)
{
	const struct machine *machine = machine_of(c->frozen.source.info.machine);
	uint8_t bytes[PRSTATUS_MAX];
	struct frozen_thread thread = { 0 };
	int err;

	if (size > sizeof(bytes) || size < PRSTATUS_REGS + 8 * machine->n_words) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64 ": the registers of a thread take %" PRIu32
			      " bytes, which this machine's do not",
			      c->name, off, size);
		c->frozen.n_lost++;
		return 0;
	}
	err = read_at(c, off, bytes, size);
	if (err)
		return err;
	thread.tid = u32(bytes + PRSTATUS_PID);
	machine_read_regset(machine, bytes + PRSTATUS_REGS, &thread.regs);
	if (asprintf(&thread.name, "%s:%" PRIu32, c->base, thread.tid) < 0)
		return -ENOMEM;
	/* The first thread's id serves as process id until NT_PRPSINFO is read. */
	if (!c->frozen.n_threads && c->frozen.pid == 1)
		c->frozen.pid = thread.tid;
	return frozen_add_thread(&c->frozen, &thread);
}

/*
 * Read struct user_pac_mask (data mask, then code mask). It belongs to the thread of the
 * NT_PRSTATUS note before it.
 */
static int on_pac_mask(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[16];
	int err;

	if (size != sizeof(bytes) || !c->frozen.n_threads)
		return 0;
	err = read_at(c, off, bytes, size);
	if (!err)
		c->frozen.threads[c->frozen.n_threads - 1].code_mask = u64(bytes + 8);
	return err;
}

/* Read the process's id and name. */
static int on_prpsinfo(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[PRPSINFO_SIZE];
	int err;

	if (size != sizeof(bytes))
		return 0;
	err = read_at(c, off, bytes, size);
	if (err)
		return err;
	if (u32(bytes + PRPSINFO_PID))
		c->frozen.pid = u32(bytes + PRPSINFO_PID);
	memcpy(c->frozen.comm, bytes + PRPSINFO_COMM, 16);
	c->frozen.comm[16] = '\0';
	return 0;
}

/* Read the auxiliary vector, at most AUXV_MAX bytes of it. */
static int on_auxv(struct core *c, uint64_t off, uint32_t size)
{
	uint8_t bytes[AUXV_MAX];
	int err;

	if (size > sizeof(bytes))
		size = sizeof(bytes);
	err = read_at(c, off, bytes, size);
	if (err)
		return err;
	for (uint32_t i = 0; i + 16 <= size; i += 16) {
		if (u64(bytes + i) == AT_PHDR)
			c->phdr = u64(bytes + i + 8);
		else if (u64(bytes + i) == AT_PHNUM)
			c->n_phdrs = u64(bytes + i + 8);
		else if (u64(bytes + i) == AT_EXECFN)
			c->program = u64(bytes + i + 8);
		else if (u64(bytes + i) == AT_SYSINFO_EHDR)
			c->vdso = u64(bytes + i + 8);
	}
	return 0;
}

/* Store the list of mapped files for add_files(). Only the first such note is used. */
static int on_file(struct core *c, uint64_t off, uint32_t size)
{
	int err;

	if (c->files)
		return 0;
	if (size > NT_FILE_MAX) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64 ": a list of mapped files of %" PRIu32 " bytes",
			      c->name, off, size);
		return 0;
	}
	c->files = malloc(size ? size : 1);
	if (!c->files)
		return -ENOMEM;
	err = read_at(c, off, c->files, size);
	if (err)
		return err;
	c->files_size = size;
	c->files_off = off;
	return 0;
}

/*
 * Read all notes of a PT_NOTE segment. Damaged notes are recorded with frozen_damage() and end the
 * loop with 0. A negative code means that reading the file or allocating memory failed.
 */
static int read_notes(struct core *c, uint64_t off, uint64_t size)
{
	uint64_t end;

	if (off > c->file_size || size > c->file_size - off) {
		frozen_damage(&c->frozen, -EBADMSG,
			      "%s: offset %" PRIu64 ": torn: the file ends before its notes do",
			      c->name, c->file_size);
		size = off > c->file_size ? 0 : c->file_size - off;
	}
	end = off + size;
	while (end - off >= 12) {
		uint8_t head[12 + 8];
		uint32_t name_size, desc_size, type;
		uint64_t desc, have = end - off < sizeof(head) ? end - off : sizeof(head);
		int err = read_cached(c, off, head, have);

		if (err)
			return err;
		name_size = u32(head);
		desc_size = u32(head + 4);
		type = u32(head + 8);
		desc = off + 12 + (((uint64_t)name_size + 3) & ~(uint64_t)3);
		if (desc > end || desc_size > end - desc) {
			frozen_damage(&c->frozen, -EBADMSG,
				      "%s: offset %" PRIu64 ": a note reaches beyond the notes",
				      c->name, off);
			return 0;
		}
		if (name_size == 5 && have >= 17 && !memcmp(head + 12, "CORE", 5)) {
			if (type == NT_PRSTATUS)
				err = on_prstatus(c, desc, desc_size);
			else if (type == NT_PRPSINFO)
				err = on_prpsinfo(c, desc, desc_size);
			else if (type == NT_AUXV)
				err = on_auxv(c, desc, desc_size);
			else if (type == NT_FILE)
				err = on_file(c, desc, desc_size);
			if (err)
				return err;
		}
		if (name_size == 6 && have >= 18 && !memcmp(head + 12, "LINUX", 6) &&
		    type == NT_ARM_PAC_MASK &&
		    machine_of(c->frozen.source.info.machine)->signs_code) {
			err = on_pac_mask(c, desc, desc_size);
			if (err)
				return err;
		}
		desc += ((uint64_t)desc_size + 3) & ~(uint64_t)3;
		if (desc >= end)
			break;
		off = desc;
	}
	return 0;
}

/* ---- mappings ------------------------------------------------------------------- */

static uint32_t prot_of(uint32_t flags)
{
	return (flags & PF_R ? PROT_READ : 0u) | (flags & PF_W ? PROT_WRITE : 0u) |
	       (flags & PF_X ? PROT_EXEC : 0u);
}

/*
 * Add the mappings that NT_FILE lists.
 *
 * Its layout is: count, page size, then count times (start, end, offset in pages), then count
 * names, each ended by a NUL (fs/binfmt_elf.c, fill_files_note).
 */
static int add_files(struct core *c)
{
	const uint8_t *p = c->files, *end;
	const char *name;
	uint64_t count, page;
	int err;

	if (!p)
		return 0;
	end = p + c->files_size;
	count = c->files_size >= 16 ? u64(p) : 0;
	page = count ? u64(p + 8) : 0;
	if (c->files_size < 16 || count > (c->files_size - 16) / 24)
		goto damaged;
	name = (const char *)p + 16 + count * 24;
	for (uint64_t i = 0; i < count; i++) {
		static const char gone[] = " (deleted)";
		const uint8_t *entry = p + 16 + i * 24;
		size_t length = strnlen(name, (size_t)(end - (const uint8_t *)name));
		struct event_mapping m = { .start = u64(entry),
					   .end = u64(entry + 8),
					   .path = name,
					   .prot = PROT_READ | PROT_EXEC };
		const struct segment *s = segment_at(c, m.start);

		if ((const uint8_t *)name + length == end)
			goto damaged;
		name += length + 1;
		if (m.start >= m.end || __builtin_mul_overflow(u64(entry + 16), page, &m.off))
			continue;
		if (s)
			m.prot = prot_of(s->flags);
		/*
		 * Programs that make cores for processes of other machines may write names without
		 * a directory.
		 */
		m.file = *m.path && *m.path != '/' && !strpbrk(m.path, ":[");
		if (length >= sizeof(gone) && !strcmp(m.path + length - sizeof(gone) + 1, gone)) {
			/* Writing is allowed here: c->files is a private copy. */
			((char *)(uintptr_t)m.path)[length - sizeof(gone) + 1] = '\0';
			m.deleted = true;
		}
		err = frozen_add_mapping(&c->frozen, &m);
		if (err)
			return err;
	}
	return 0;
damaged:
	frozen_damage(&c->frozen, -EBADMSG,
		      "%s: offset %" PRIu64 ": the list of mapped files is damaged", c->name,
		      c->files_off);
	return 0;
}

/*
 * Add the mappings of the file whose first segment begins at base.
 *
 * If its ELF header is in memory, the segments are taken from there. Otherwise the adjacent
 * segments that follow, up to the first writable one, are assumed to lie in memory as in the file.
 */
static int add_file(struct core *c, uint64_t base, const char *path)
{
	struct image_load loads[FILE_SEGMENTS];
	size_t n = image_loads(read_memory, c, base, loads, sizeof(loads) / sizeof(loads[0]));
	const struct segment *s = segment_at(c, base);
	uint64_t end = base;
	int err = 0;

	for (size_t i = 0; !err && i < n; i++) {
		const struct event_mapping m = { .start = loads[i].start,
						 .end = loads[i].end,
						 .off = loads[i].off,
						 .prot = prot_of(loads[i].flags),
						 .path = path,
						 .file = true };

		err = frozen_add_mapping(&c->frozen, &m);
	}
	for (size_t i = 0; !n && !err && i < FILE_SEGMENTS && s && s->vaddr == end &&
			   !(s->flags & PF_W) && s->mem_size;
	     i++) {
		const struct event_mapping m = { .start = s->vaddr,
						 .end = s->vaddr + s->mem_size,
						 .off = s->vaddr - base,
						 .prot = prot_of(s->flags),
						 .path = path,
						 .file = true };

		if (m.end <= m.start)
			break;
		err = frozen_add_mapping(&c->frozen, &m);
		end = m.end;
		s = segment_at(c, end);
	}
	return err;
}

/*
 * Return the address where the file begins whose dynamic section is at addr. That is the nearest
 * segment before addr that begins with an ELF header. If there is none above bias, return bias.
 */
static uint64_t file_start(struct core *c, uint64_t addr, uint64_t bias)
{
	const struct segment *s = segment_at(c, addr);
	char magic[SELFMAG];

	for (size_t left = FILE_SEGMENTS; s && left > 0; left--) {
		if (!read_memory(c, s->vaddr, magic, sizeof(magic)) &&
		    !memcmp(magic, ELFMAG, sizeof(magic)))
			return s->vaddr;
		if (s->vaddr <= bias || s == c->segments)
			break;
		s--;
	}
	return bias;
}

/*
 * Add the mappings of loaded files if the core has no NT_FILE list, as with kernels before 3.7 and
 * some other programs that write cores (qemu). The auxiliary vector gives the address of the
 * program's headers. The list of the dynamic linker in memory gives the libraries.
 */
static int add_loaded(struct core *c)
{
	const struct segment *s = c->files || !c->phdr ? NULL : segment_at(c, c->phdr);
	struct linkmap_file file;
	struct linkmap map;
	int err;

	if (!s)
		return 0;
	if (!c->program || linkmap_string(read_memory, c, c->program, file.name) || !*file.name)
		(void)snprintf(file.name, sizeof(file.name), "%s",
			       *c->frozen.comm ? c->frozen.comm : "program");
	err = add_file(c, s->vaddr, file.name);
	if (err || linkmap_open(read_memory, c, c->phdr, c->n_phdrs, &map))
		return err;
	while (!err && linkmap_next(&map, &file)) {
		uint64_t start = file_start(c, file.dynamic, file.bias);

		if (*file.name && start != c->vdso && start != s->vaddr)
			err = add_file(c, start, file.name);
	}
	return err;
}

/* Add executable segments that belong to no file: the vDSO and code generated at run time. */
static int add_others(struct core *c)
{
	int err = 0;

	frozen_sort(&c->frozen);
	for (size_t i = 0, known = 0, n = c->frozen.n_mappings; !err && i < c->n_segments; i++) {
		const struct segment *s = &c->segments[i];
		struct event_mapping m = { .start = s->vaddr,
					   .end = s->vaddr + s->mem_size,
					   .prot = prot_of(s->flags),
					   .path = "" };

		while (known < n && c->frozen.mappings[known].end <= m.start)
			known++;
		if (!(s->flags & PF_X) || (known < n && c->frozen.mappings[known].start < m.end))
			continue;
		if (c->vdso && c->vdso - s->vaddr < s->mem_size)
			m.path = "[vdso]";
		err = frozen_add_mapping(&c->frozen, &m);
	}
	frozen_sort(&c->frozen);
	return err;
}

/*
 * Read the build-ids of mapped files from memory. Most cores hold the first page of a file, with
 * its ELF header, even if they do not hold its code.
 */
static void add_build_ids(struct core *c)
{
	const struct event_mapping *program, *first = NULL;
	struct uw_build_id id = { 0 };

	program = c->phdr ? frozen_mapping_at(&c->frozen, c->phdr) : NULL;
	for (size_t i = 0; i < c->frozen.n_mappings; i++) {
		struct event_mapping *m = &c->frozen.mappings[i];

		m->main_program = program && *m->path && !strcmp(program->path, m->path);
		if (!first || strcmp(first->path, m->path) != 0 || m->off == 0) {
			first = m;
			id.size = 0;
			if (m->off == 0 && *m->path)
				(void)image_build_id(read_memory, c, m->start, &id);
		}
		m->build_id = id;
	}
}

/* ---- the source ------------------------------------------------------------------ */

/* source_info.image: rebuild the ELF file that is mapped at start. */
static int get_image(void *ctx, uint32_t pid, uint64_t start, uint8_t **out, size_t *size)
{
	struct core *c = ctx;

	(void)pid;
	return image_read(read_memory, c, start, out, size);
}

static void core_close(struct source *source)
{
	struct core *c = (struct core *)source;

	for (size_t i = 0; i < CACHE_SLOTS; i++)
		free(c->cache[i].bytes);
	frozen_fini(&c->frozen);
	free(c->segments);
	free(c->files);
	free(c->name);
	if (c->fd >= 0)
		(void)close(c->fd);
	free(c);
}

static const struct source_ops ops = { .next = frozen_next, .close = core_close };

/*
 * Read the number of program headers. If it is too large for e_phnum, that field is PN_XNUM and
 * sh_info of section 0 holds the number (gABI).
 */
static int count_phdrs(const struct core *c, const Elf64_Ehdr *ehdr, uint64_t *n)
{
	Elf64_Shdr shdr;
	int err = 0;

	*n = ehdr->e_phnum;
	if (ehdr->e_phnum == PN_XNUM) {
		err = read_at(c, ehdr->e_shoff, &shdr, sizeof(shdr));
		*n = err ? 0 : shdr.sh_info;
	}
	return err;
}

/*
 * Read all segments, then all notes. error (512 bytes) says why this failed, if it is not a system
 * error.
 */
static int read_segments(struct core *c, const Elf64_Ehdr *ehdr, char *error)
{
	Elf64_Phdr phdr;
	uint64_t n, off = ehdr->e_phoff;
	int err = count_phdrs(c, ehdr, &n);

	if (err || ehdr->e_phentsize != sizeof(phdr) || off > c->file_size ||
	    n > (c->file_size - off) / sizeof(phdr)) {
		(void)snprintf(error, 512, "%s: offset %" PRIu64 ": torn: %s", c->name,
			       err ? ehdr->e_shoff : off,
			       "the file ends before its list of segments does");
		return err ? err : -EBADMSG;
	}
	if (n > SEGMENTS_MAX) {
		(void)snprintf(error, 512, "%s: offset %" PRIu64 ": %" PRIu64 " segments", c->name,
			       off, n);
		return -ENOTSUP;
	}
	c->segments = calloc(n ? n : 1, sizeof(*c->segments));
	if (!c->segments)
		return -ENOMEM;
	/* Segments come first, because addresses in the notes are looked up in them. */
	for (int pass = 0; pass < 2; pass++) {
		for (uint64_t i = 0; i < n; i++) {
			err = read_cached(c, off + i * sizeof(phdr), &phdr, sizeof(phdr));
			if (!err && pass == 0 && phdr.p_type == PT_LOAD)
				add_segment(c, &phdr);
			if (!err && pass == 1 && phdr.p_type == PT_NOTE)
				err = read_notes(c, phdr.p_offset, phdr.p_filesz);
			if (err)
				return err;
		}
		if (pass == 0)
			sort_segments(c);
	}
	return 0;
}

/* Read everything but the memory: header, segments, threads and mappings. */
static int read_core(struct core *c, char *error)
{
	Elf64_Ehdr ehdr;
	struct stat st;
	int err;

	if (fstat(c->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		(void)snprintf(error, 512, "%s: a core file cannot be read from a pipe", c->name);
		return -ENOTSUP;
	}
	c->file_size = (uint64_t)st.st_size;
	err = read_at(c, 0, &ehdr, sizeof(ehdr));
	if (err) {
		(void)snprintf(error, 512,
			       "%s: offset %" PRIu64 ": torn: the file ends in its header", c->name,
			       c->file_size);
		return err;
	}
	if (ehdr.e_ident[EI_CLASS] != ELFCLASS64 || ehdr.e_ident[EI_DATA] != ELFDATA2LSB ||
	    !machine_of(ehdr.e_machine)) {
		(void)snprintf(error, 512,
			       "%s: offset 4: not a core of x86_64 or aarch64 (%s, machine %u)",
			       c->name, ehdr.e_ident[EI_CLASS] == ELFCLASS64 ? "64-bit" : "32-bit",
			       ehdr.e_machine);
		return -ENOTSUP;
	}
	frozen_init(&c->frozen, &ops, "core", ehdr.e_machine);
	c->frozen.read = read_memory;
	c->frozen.read_ctx = c;
	c->frozen.source.info.image = get_image;
	c->frozen.source.info.image_ctx = c;
	err = read_segments(c, &ehdr, error);
	if (!err)
		err = add_files(c);
	if (!err)
		err = add_loaded(c);
	if (!err)
		err = add_others(c);
	if (err)
		return err;
	add_build_ids(c);
	if (!c->frozen.n_threads)
		frozen_damage(&c->frozen, -EBADMSG, "%s: offset %" PRIu64 ": no threads", c->name,
			      ehdr.e_phoff);
	return 0;
}

int source_core_open(int fd, const char *name, struct source **out, char *error)
{
	struct core *c = calloc(1, sizeof(*c));
	int err = -ENOMEM;

	if (!c) {
		(void)close(fd);
		goto fail;
	}
	frozen_init(&c->frozen, &ops, "core", 0);
	c->fd = fd;
	for (size_t i = 0; i < CACHE_SLOTS; i++)
		c->cache[i].off = UINT64_MAX;
	c->name = strdup(name);
	if (!c->name)
		goto fail;
	c->base = strrchr(c->name, '/') ? strrchr(c->name, '/') + 1 : c->name;
	err = read_core(c, error);
	if (err)
		goto fail;
	*out = &c->frozen.source;
	return 0;
fail:
	if (!error[0])
		(void)snprintf(error, 512, "%s: cannot be read: %s", name, strerror(-err));
	if (c)
		core_close(&c->frozen.source);
	return err;
}

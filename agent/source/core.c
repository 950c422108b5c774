/*
 * agent/source/core.c: reads ELF core files as a source, as Linux and gdb's gcore write them.
 *
 * The segments hold the memory, as far as it was written. The notes hold the threads and the list
 * of mapped files. The bytes of segments that were not written are taken from the mapped files,
 * which are identified by the build-ids found in memory.
 */
#include "agent/source/core_file.h"

#include "agent/io.h"
#include "agent/source/machine.h"
#include "agent/source/memory_image.h"
#include "base/search.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENTS_MAX (1u << 20)
#define CACHE_CHUNK  16384

/* ---- the file ------------------------------------------------------------------ */

int core_read_at(const struct core *c, uint64_t off, void *out, uint64_t size)
{
	if (off > c->file_size || size > c->file_size - off)
		return -EBADMSG;
	return io_read_at(c->fd, off, out, size);
}

/* Mark a chunk as empty while it is read: after a failed read it must not be found. */
int core_read_cached(struct core *c, uint64_t off, void *out, uint64_t size)
{
	uint8_t *to = out;

	while (size) {
		uint64_t start = off - off % CACHE_CHUNK, skip = off - start, n;
		struct core_chunk *chunk = &c->cache[start / CACHE_CHUNK % CORE_CACHE_SLOTS];

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
			err = core_read_at(c, start, chunk->bytes, want);
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

const struct core_segment *core_segment_at(const struct core *c, uint64_t addr)
{
	size_t low = UW_COUNT_WHILE(i, c->n_segments, c->segments[i].vaddr <= addr);

	if (!low || addr - c->segments[low - 1].vaddr >= c->segments[low - 1].mem_size)
		return NULL;
	return &c->segments[low - 1];
}

int core_read_memory(void *ctx, uint64_t addr, void *out, size_t size)
{
	struct core *c = ctx;
	uint64_t done = 0;

	/* The first pass checks that all bytes are there, the second one copies them. */
	for (int pass = 0; pass < 2; pass++) {
		for (done = 0; done < size;) {
			const struct core_segment *s = core_segment_at(c, addr + done);
			uint64_t skip = s ? addr + done - s->vaddr : 0, n;

			if (!s || skip >= s->size || (done && addr + done < addr))
				return -EFAULT;
			n = s->size - skip < size - done ? s->size - skip : size - done;
			if (pass && core_read_cached(c, s->off + skip, (uint8_t *)out + done, n))
				return -EFAULT;
			done += n;
		}
	}
	return 0;
}

UW_ORDER(by_vaddr, struct core_segment, vaddr)

/*
 * Add a PT_LOAD segment. If the file ends inside it, record the damage and use the bytes that are
 * there.
 */
static void add_segment(struct core *c, const Elf64_Phdr *p)
{
	struct core_segment s = { .vaddr = p->p_vaddr,
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
		const struct core_segment *last = n ? &c->segments[n - 1] : NULL;

		if (!last || c->segments[i].vaddr - last->vaddr >= last->mem_size)
			c->segments[n++] = c->segments[i];
	}
	c->n_segments = n;
}

/* ---- the source ------------------------------------------------------------------ */

/* source_info.image: rebuild the ELF file that is mapped at start. */
static int get_image(void *ctx, uint32_t pid, uint64_t start, uint8_t **out, size_t *size)
{
	struct core *c = ctx;

	(void)pid;
	return image_read(core_read_memory, c, start, out, size);
}

static void core_close(struct source *source)
{
	struct core *c = (struct core *)source;

	for (size_t i = 0; i < CORE_CACHE_SLOTS; i++)
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
		err = core_read_at(c, ehdr->e_shoff, &shdr, sizeof(shdr));
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
			err = core_read_cached(c, off + i * sizeof(phdr), &phdr, sizeof(phdr));
			if (!err && pass == 0 && phdr.p_type == PT_LOAD)
				add_segment(c, &phdr);
			if (!err && pass == 1 && phdr.p_type == PT_NOTE)
				err = core_read_notes(c, phdr.p_offset, phdr.p_filesz);
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
	err = core_read_at(c, 0, &ehdr, sizeof(ehdr));
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
	c->frozen.read = core_read_memory;
	c->frozen.read_ctx = c;
	c->frozen.source.info.image = get_image;
	c->frozen.source.info.image_ctx = c;
	err = read_segments(c, &ehdr, error);
	if (!err)
		err = core_add_mappings(c);
	if (err)
		return err;
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
	for (size_t i = 0; i < CORE_CACHE_SLOTS; i++)
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

/*
 * agent/source/core_mappings.c: finds the mappings of a core file's process: in the list of mapped
 * files, else in the dynamic linker's memory, and what belongs to no file in the segments.
 */
#include "agent/source/core_file.h"

#include "agent/source/linkmap.h"
#include "agent/source/memory_image.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/*
 * Segments of one loaded file, at most. Real files have far fewer; a larger number could only
 * serve to make reading slow.
 */
#define FILE_SEGMENTS 64

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
	count = c->files_size >= 16 ? uw_bytes_little8(p) : 0;
	page = count ? uw_bytes_little8(p + 8) : 0;
	if (c->files_size < 16 || count > (c->files_size - 16) / 24)
		goto damaged;
	name = (const char *)p + 16 + count * 24;
	for (uint64_t i = 0; i < count; i++) {
		static const char gone[] = " (deleted)";
		const uint8_t *entry = p + 16 + i * 24;
		size_t length = strnlen(name, (size_t)(end - (const uint8_t *)name));
		struct event_mapping m = { .start = uw_bytes_little8(entry),
					   .end = uw_bytes_little8(entry + 8),
					   .path = name,
					   .prot = PROT_READ | PROT_EXEC };
		const struct core_segment *s = core_segment_at(c, m.start);

		if ((const uint8_t *)name + length == end)
			goto damaged;
		name += length + 1;
		if (m.start >= m.end ||
		    __builtin_mul_overflow(uw_bytes_little8(entry + 16), page, &m.off))
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
	size_t n = image_loads(core_read_memory, c, base, loads, sizeof(loads) / sizeof(loads[0]));
	const struct core_segment *s = core_segment_at(c, base);
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
		s = core_segment_at(c, end);
	}
	return err;
}

/*
 * Return the address where the file begins whose dynamic section is at addr. That is the nearest
 * segment before addr that begins with an ELF header. If there is none above bias, return bias.
 */
static uint64_t file_start(struct core *c, uint64_t addr, uint64_t bias)
{
	const struct core_segment *s = core_segment_at(c, addr);
	char magic[SELFMAG];

	for (size_t left = FILE_SEGMENTS; s && left > 0; left--) {
		if (!core_read_memory(c, s->vaddr, magic, sizeof(magic)) &&
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
	const struct core_segment *s = c->files || !c->phdr ? NULL : core_segment_at(c, c->phdr);
	struct linkmap_file file;
	struct linkmap map;
	int err;

	if (!s)
		return 0;
	if (!c->program || linkmap_string(core_read_memory, c, c->program, file.name) ||
	    !*file.name)
		(void)snprintf(file.name, sizeof(file.name), "%s",
			       *c->frozen.comm ? c->frozen.comm : "program");
	err = add_file(c, s->vaddr, file.name);
	if (err || linkmap_open(core_read_memory, c, c->phdr, c->n_phdrs, &map))
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
		const struct core_segment *s = &c->segments[i];
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
				(void)image_build_id(core_read_memory, c, m->start, &id);
		}
		m->build_id = id;
	}
}

int core_add_mappings(struct core *c)
{
	int err = add_files(c);

	if (!err)
		err = add_loaded(c);
	if (!err)
		err = add_others(c);
	if (!err)
		add_build_ids(c);
	return err;
}

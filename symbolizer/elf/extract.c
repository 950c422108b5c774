/*
 * symbolizer/elf/extract.c: selects the bytes of an ELF file that unwinding and symbolization need, for
 * storage.
 */
#include "base/elf_machine.h"
#include "base/search.h"
#include "symbolizer/elf/open.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 << 10 };
#define SECTIONS_MAX 4096		  /* a file with more is stored whole */
#define SMALL_FILE   ((uint64_t)1 << 20)  /* a smaller file is stored whole */
#define SMALL_PART   ((uint64_t)64 << 10) /* smaller data is stored */

struct hole {
	uint64_t start, end; /* relative to the ELF header */
};

static bool begins_with(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* Return whether source lines or inlined calls are read from a section: those that symbolizer/dwarf opens. */
static bool has_lines(const char *name)
{
	static const char *const read[] = {
		"info",	    "abbrev", "str",  "str_offsets", "line_str",
		"rnglists", "line",   "addr", "ranges",	     "aranges"
	};
	size_t skip = begins_with(name, ".debug_")    ? strlen(".debug_")
		      : begins_with(name, ".zdebug_") ? strlen(".zdebug_")
						      : 0;

	for (size_t i = 0; skip && i < sizeof(read) / sizeof(read[0]); i++)
		if (!strcmp(name + skip, read[i]))
			return true;
	return false;
}

/* Return whether all sections with lines and inlined calls are small enough to be stored. */
static bool has_small_debug(const struct uw_elf *image)
{
	uint64_t sum = 0;

	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];

		if (s->sh_type == SHT_NOBITS || !has_lines(uw_elf_section_name(image, s)))
			continue;
		if (s->sh_size > SYM_DEBUG_MAX)
			return false;
		sum += s->sh_size;
	}
	return sum <= SYM_DEBUG_MAX;
}

/*
 * Return whether unwinding or symbolization reads a section: unwind information, symbols, stubs,
 * Go's tables, notes; lines: source lines and inlined calls, too.
 */
static bool is_read(const struct uw_elf *image, const Elf64_Shdr *s, bool lines)
{
	static const char *const read[] = {
		".eh_frame",	 ".debug_frame", ".zdebug_frame", ".gnu_debug",
		".plt",		 ".got",	 ".gopclntab",	  ".data.rel.ro.gopclntab",
		".go.buildinfo", ".init",	 ".fini",
	};
	const char *name = uw_elf_section_name(image, s);
	/* Position-independent Go programs have their table among the relocated data. */
	bool go = uw_elf_section(image, ".go.buildinfo") != NULL;

	switch (s->sh_type) {
	case SHT_SYMTAB:
	case SHT_DYNSYM:
	case SHT_STRTAB:
	case SHT_SYMTAB_SHNDX:
	case SHT_DYNAMIC:
	case SHT_NOTE:
		return !begins_with(name, ".debug_");
	case SHT_RELA:
	case SHT_REL:
		return go || strstr(name, ".plt");
	default:
		break;
	}
	if (go && !strcmp(name, ".data.rel.ro"))
		return true;
	for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++)
		if (begins_with(name, read[i]))
			return true;
	if (lines && has_lines(name))
		return true;
	if (s->sh_flags & SHF_EXECINSTR)
		return s->sh_size <= SYM_CODE_MAX;
	return s->sh_flags & SHF_ALLOC && s->sh_size <= SMALL_PART;
}

UW_ORDER(by_start, struct hole, start)

/*
 * Return how many bytes at the start of a section are left out. Of the relocations that name the entries of .plt.got
 * (symbolizer/elf/plt.c), the relative ones are most, come first and are not needed: as zeros they are of the type NONE.
 */
static uint64_t left_out_bytes(const struct uw_elf *image, const Elf64_Shdr *s, bool lines)
{
	Elf64_Rela relas[128];
	uint64_t at = 0;

	if (is_read(image, s, lines))
		return 0;
	if (s->sh_type != SHT_RELA || !(s->sh_flags & SHF_ALLOC) ||
	    !uw_elf_section(image, ".plt.got"))
		return s->sh_size;
	while (at < s->sh_size) {
		uint64_t n = s->sh_size - at < sizeof(relas) ? s->sh_size - at : sizeof(relas);

		if (uw_source_read(&image->source, s->sh_offset + at, relas, n))
			break;
		for (size_t i = 0; i < n / sizeof(relas[0]); i++, at += sizeof(relas[0])) {
			if (!uw_machine_is_relative(image->machine, relas[i].r_info))
				return at;
		}
		if (n < sizeof(relas))
			break;
	}
	return at;
}

/*
 * List the sections that are left out, sorted. A section that shares bytes with one that is read is
 * not left out.
 */
static size_t find_holes(const struct uw_elf *image, bool *left_out, struct hole *holes)
{
	bool lines = has_small_debug(image);
	size_t n = 0;

	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];
		bool apart = true;
		uint64_t bytes;

		if (s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL || !s->sh_size ||
		    s->sh_offset > image->source.size ||
		    s->sh_size > image->source.size - s->sh_offset ||
		    s->sh_offset < sizeof(Elf64_Ehdr))
			continue;
		bytes = left_out_bytes(image, s, lines);
		if (!bytes)
			continue;
		for (size_t j = 1; apart && j < image->n_sections; j++) {
			const Elf64_Shdr *t = &image->sections[j];

			apart = j == i || t->sh_type == SHT_NOBITS || !t->sh_size ||
				t->sh_offset >= s->sh_offset + s->sh_size ||
				t->sh_offset + t->sh_size <= s->sh_offset ||
				!is_read(image, t, lines);
		}
		if (!apart)
			continue;
		left_out[i] = true;
		holes[n++] = (struct hole){ s->sh_offset, s->sh_offset + bytes };
	}
	qsort(holes, n, sizeof(*holes), by_start);
	return n;
}

/* Pass the bytes [start, end) to to->put. *left is what remains of the limit. */
static int put(const struct uw_elf *image, uint64_t start, uint64_t end,
	       const struct sym_extract *to, uint64_t *left, char *chunk)
{
	int err = 0;

	if (end - start > *left)
		return -EFBIG;
	*left -= end - start;
	while (!err && start < end) {
		uint64_t n = end - start < CHUNK ? end - start : CHUNK;

		err = uw_source_read(&image->source, start, chunk, n);
		if (!err)
			err = to->put(to->ctx, image->source.base + start, chunk, n);
		start += n;
	}
	return err;
}

/*
 * Pass changed headers for the left-out sections that are not loaded (debug information): now they
 * have no bytes in the file. Otherwise readers would take zeros for debug information.
 */
static int put_headers(const struct uw_elf *image, const bool *left_out,
		       const struct sym_extract *to)
{
	Elf64_Ehdr head;
	int err = uw_source_read(&image->source, 0, &head, sizeof(head));

	for (size_t i = 1; !err && i < image->n_sections; i++) {
		Elf64_Shdr s = image->sections[i];

		if (!left_out[i] || s.sh_flags & SHF_ALLOC)
			continue;
		s.sh_type = SHT_NOBITS;
		err = to->put(to->ctx, image->source.base + head.e_shoff + i * sizeof(s), &s,
			      sizeof(s));
	}
	return err;
}

/* Pass the parts that lie in the file. */
static int put_parts(const struct uw_elf *image, const struct sym_extract *to, uint64_t *left,
		     char *chunk)
{
	uint64_t base = image->source.base, size = image->source.size;
	int err = 0;

	for (size_t i = 0; !err && i < to->n_parts; i++) {
		uint64_t start = to->parts[i].start, end = to->parts[i].end;

		start = start > base ? start - base : 0;
		end = end > base ? end - base : 0;
		if (end > size)
			end = size;
		if (start < end)
			err = put(image, start, end, to, left, chunk);
	}
	return err;
}

/* The holes ascend by their starts and may overlap. Pass what lies between them. */
int sym_extract(int fd, uint64_t elf_off, const struct sym_extract *to)
{
	struct uw_elf image;
	struct hole *holes = NULL;
	bool *left_out = NULL;
	uint64_t at = 0, left = to->most;
	size_t n = 0;
	char *chunk;
	int err = sym_elf_open_fd(&image, fd, elf_off);

	if (err)
		return err;
	chunk = malloc(image.source.size < CHUNK ? image.source.size : CHUNK);
	holes = calloc(image.n_sections + 1, sizeof(*holes));
	left_out = calloc(image.n_sections + 1, sizeof(*left_out));
	if (!chunk || !holes || !left_out)
		err = -ENOMEM;
	else if (!to->whole && !image.narrow && image.source.size > SMALL_FILE &&
		 image.n_sections <= SECTIONS_MAX)
		n = find_holes(&image, left_out, holes);
	for (size_t i = 0; !err && i < n; i++) {
		if (holes[i].start > at)
			err = put(&image, at, holes[i].start, to, &left, chunk);
		if (holes[i].end > at)
			at = holes[i].end;
	}
	if (!err)
		err = put(&image, at, image.source.size, to, &left, chunk);
	if (!err && n)
		err = put_parts(&image, to, &left, chunk);
	if (!err && n)
		err = put_headers(&image, left_out, to);
	free(holes);
	free(left_out);
	free(chunk);
	uw_elf_fini(&image);
	return err;
}

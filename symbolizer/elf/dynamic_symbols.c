/*
 * symbolizer/elf/dynamic_symbols.c: finds .dynsym and .dynstr through PT_DYNAMIC, and counts symbols by hash
 * table.
 */
#include "symbolizer/elf/dynamic_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX ((uint64_t)1 << 16) /* bytes; real files have some 30 entries */
#define CHUNK_WORDS ((uint64_t)4096)

int sym_dynamic_locate(const struct uw_elf *image, uint64_t vaddr, uint64_t *off, uint64_t *room)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *p = &image->segments[i];
		uint64_t into = vaddr - p->p_vaddr;

		if (p->p_type != PT_LOAD || vaddr < p->p_vaddr || into >= p->p_filesz)
			continue;
		if (p->p_offset > image->source.size || into >= image->source.size - p->p_offset)
			return -EBADMSG;
		*off = p->p_offset + into;
		*room = image->source.size - *off;
		*room = *room < p->p_filesz - into ? *room : p->p_filesz - into;
		return 0;
	}
	return -EBADMSG;
}

/*
 * Count the symbols by DT_HASH (gABI "Hash Table": nbucket, nchain). There are as many symbols as
 * chain links.
 */
static int count_by_hash(const struct uw_elf *image, uint64_t vaddr, uint64_t *n)
{
	uint32_t head[2];
	uint64_t off, room;
	int err = sym_dynamic_locate(image, vaddr, &off, &room);

	if (!err)
		err = room < sizeof(head) ? -EBADMSG
					  : uw_source_read(&image->source, off, head, sizeof(head));
	if (!err)
		*n = head[1];
	return err;
}

/*
 * Count the symbols by DT_GNU_HASH. Its parts are: nbuckets, symoffset, bloom_size, bloom_shift;
 * the bloom words; the buckets (the first symbol of each); and one chain word for each symbol from
 * symoffset on, with bit 0 set at the end of each bucket. The last symbol ends the chain of the
 * bucket with the highest symbol.
 */
static int count_by_gnu_hash(const struct uw_elf *image, uint64_t vaddr, uint64_t *n)
{
	uint32_t head[4], words[CHUNK_WORDS];
	uint64_t off, room, skip, last = 0;
	int err = sym_dynamic_locate(image, vaddr, &off, &room);

	if (!err)
		err = room < sizeof(head) ? -EBADMSG
					  : uw_source_read(&image->source, off, head, sizeof(head));
	if (err)
		return err;
	skip = sizeof(head) + (uint64_t)head[2] * (image->narrow ? 4 : 8);
	if (skip > room || (uint64_t)head[0] * 4 > room - skip)
		return -EBADMSG;
	off += skip;
	room -= skip;
	for (uint64_t left = head[0]; left;) {
		uint64_t now = left < CHUNK_WORDS ? left : CHUNK_WORDS;

		err = uw_source_read(&image->source, off, words, now * 4);
		if (err)
			return err;
		for (uint64_t i = 0; i < now; i++)
			last = words[i] > last ? words[i] : last;
		off += now * 4;
		room -= now * 4;
		left -= now;
	}
	if (last < head[1]) { /* every bucket is empty */
		*n = head[1];
		return 0;
	}
	if ((last - head[1]) * 4 > room)
		return -EBADMSG;
	off += (last - head[1]) * 4;
	room -= (last - head[1]) * 4;
	while (room >= 4) {
		uint64_t now = room / 4 < CHUNK_WORDS ? room / 4 : CHUNK_WORDS;

		err = uw_source_read(&image->source, off, words, now * 4);
		if (err)
			return err;
		for (uint64_t i = 0; i < now; i++, last++) {
			if (words[i] & 1) {
				*n = last + 1;
				return 0;
			}
		}
		off += now * 4;
		room -= now * 4;
	}
	return -EBADMSG;
}

struct tags {
	uint64_t symbols, strings, strings_size, hash, gnu_hash; /* 0: absent */
};

static void take_tag(struct tags *tags, uint64_t tag, uint64_t value)
{
	switch (tag) {
	case DT_SYMTAB:
		tags->symbols = value;
		break;
	case DT_STRTAB:
		tags->strings = value;
		break;
	case DT_STRSZ:
		tags->strings_size = value;
		break;
	case DT_HASH:
		tags->hash = value;
		break;
	case DT_GNU_HASH:
		tags->gnu_hash = value;
		break;
	default:
		break;
	}
}

/* Read the tags that are needed here from the PT_DYNAMIC segment. */
static int read_tags(const struct uw_elf *image, struct tags *tags)
{
	size_t each = image->narrow ? sizeof(Elf32_Dyn) : sizeof(Elf64_Dyn);
	const Elf64_Phdr *dynamic = NULL;
	void *bytes;
	int err;

	for (size_t i = 0; i < image->n_segments && !dynamic; i++) {
		if (image->segments[i].p_type == PT_DYNAMIC)
			dynamic = &image->segments[i];
	}
	if (!dynamic)
		return -ENOENT;
	err = sym_elf_load(image, dynamic->p_offset, dynamic->p_filesz, ENTRIES_MAX, &bytes);
	if (err)
		return err;
	for (uint64_t i = 0; i < dynamic->p_filesz / each; i++) {
		if (image->narrow) {
			const Elf32_Dyn *d = (const Elf32_Dyn *)bytes + i;

			take_tag(tags, (uint64_t)d->d_tag, d->d_un.d_val);
		} else {
			const Elf64_Dyn *d = (const Elf64_Dyn *)bytes + i;

			take_tag(tags, (uint64_t)d->d_tag, d->d_un.d_val);
		}
	}
	free(bytes);
	return 0;
}

/*
 * Nothing states the number of dynamic symbols: DT_HASH has it as the number of chains, and with
 * DT_GNU_HASH the last chain must be followed to its end.
 */
int sym_dynamic_find(const struct uw_elf *image, Elf64_Shdr *symbols, Elf64_Shdr *strings)
{
	size_t each = image->narrow ? sizeof(Elf32_Sym) : sizeof(Elf64_Sym);
	struct tags tags = { 0 };
	uint64_t n, off, room, names_off, names_room;
	int err = read_tags(image, &tags);

	if (err)
		return err;
	if (!tags.symbols || !tags.strings || !(tags.hash || tags.gnu_hash))
		return -ENOENT;
	err = tags.hash ? count_by_hash(image, tags.hash, &n)
			: count_by_gnu_hash(image, tags.gnu_hash, &n);
	if (!err)
		err = sym_dynamic_locate(image, tags.symbols, &off, &room);
	if (!err)
		err = sym_dynamic_locate(image, tags.strings, &names_off, &names_room);
	if (err)
		return err;
	if (n > room / each || tags.strings_size > names_room)
		return -EBADMSG;
	*symbols = (Elf64_Shdr){ .sh_offset = off, .sh_size = n * each };
	*strings = (Elf64_Shdr){ .sh_offset = names_off, .sh_size = tags.strings_size };
	return 0;
}

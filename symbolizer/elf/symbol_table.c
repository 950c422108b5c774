/* symbolizer/elf/symbol_table.c: makes symbol tables of ELF files, and looks symbols up in them. */
#include "symbolizer/elf/symbol_table.h"

#include "base/search.h"
#include "schema/symbols_blob.h"
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Symbols inside each other. The limit is beyond practical need. */
#define ENCLOSING_MAX 64
/* Leave string tables of at least this size in the file if few names are needed. */
#define LAZY_NAMES_MIN ((uint64_t)256 << 10)
/* Pages in a set: 4 GiB of code. */
#define PAGES_MAX ((uint64_t)1 << 20)

/* ---- opening ------------------------------------------------------------------------------- */

/*
 * Make the set of the pages that contain n addresses of the image's code. out->n stays 0 if the
 * image has no code range of reasonable size.
 */
static int choose_pages(const struct uw_elf *image, const uint64_t *vaddrs, size_t n,
			struct sym_pages *out)
{
	uint64_t low = UINT64_MAX, high = 0;
	struct sym_pages pages;

	for (size_t i = 0; i < image->n_segments; i++) {
		const Elf64_Phdr *p = &image->segments[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) ||
		    p->p_memsz > UINT64_MAX - p->p_vaddr)
			continue;
		low = p->p_vaddr < low ? p->p_vaddr : low;
		high = p->p_vaddr + p->p_memsz > high ? p->p_vaddr + p->p_memsz : high;
	}
	if (high <= low || (high - low) >> SYM_PAGE_SHIFT >= PAGES_MAX)
		return 0;
	pages.low = low;
	pages.n = (size_t)((high - low) >> SYM_PAGE_SHIFT) + 1;
	pages.bits = calloc(pages.n / 64 + 1, sizeof(*pages.bits));
	if (!pages.bits)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		sym_pages_add(&pages, vaddrs[i]);
	*out = pages;
	return 0;
}

/*
 * Build a table. debug is the file's separate debug file; NULL: there is none. lazy_names: use lazy
 * names; on success lazy_names and pages belong to the table. -EAGAIN: lazy names are impossible
 * for this file. On any failure lazy_names and pages stay the caller's.
 */
static int open_image(const struct uw_elf *image, const struct uw_elf *debug,
		      struct sym_lazy_names *lazy_names, const struct sym_pages *pages,
		      struct sym_table **out)
{
	struct sym_table *table = calloc(1, sizeof(*table));
	struct sym_builder b = { .lazy_names = lazy_names,
				 .pages = pages ? *pages : (struct sym_pages){ 0 } };
	struct sym_entry *fitting;
	char *names;
	int err;

	if (!table)
		return -ENOMEM;
	err = sym_builder_collect(&b, image, debug);
	if (!err)
		err = sym_builder_choose(&b);
	if (err)
		goto out;
	fitting = b.n_entries ? realloc(b.entries, b.n_entries * sizeof(*fitting)) : NULL;
	table->entries = fitting ? fitting : b.entries;
	table->n_entries = b.n_entries;
	names = b.names_size ? realloc(b.names, b.names_size) : NULL;
	table->names = names ? names : b.names;
	table->names_size = b.names_size;
	table->damage = b.damage;
	table->aliases = b.aliases;
	table->n_aliases = b.n_aliases;
	table->lazy_names = lazy_names;
	table->pages = b.pages;
	b.entries = NULL;
	b.names = NULL;
	b.aliases = NULL;
	*out = table;
	table = NULL;
out:
	free(b.entries);
	free(b.names);
	free(b.dynsym_bytes);
	free(b.aliases);
	free(b.opens);
	free(table);
	return err;
}

int sym_table_open_with(int fd, uint64_t elf_off, int debug_fd, struct sym_table **out)
{
	struct uw_elf image, debug;
	int err = sym_elf_open_fd(&image, fd, elf_off);
	bool has_debug;

	if (err)
		return err;
	has_debug = debug_fd >= 0 && !sym_elf_open_fd(&debug, debug_fd, 0);
	err = open_image(&image, has_debug ? &debug : NULL, NULL, NULL, out);
	if (has_debug)
		uw_elf_fini(&debug);
	uw_elf_fini(&image);
	return err;
}

/* Return whether lazy names pay: the image has a large string table and no .gnu_debugdata. */
static bool has_many_names(const struct uw_elf *image)
{
	uint64_t size = 0;

	for (size_t i = 1; i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];

		if ((s->sh_type == SHT_SYMTAB || s->sh_type == SHT_DYNSYM) &&
		    s->sh_link < image->n_sections && image->sections[s->sh_link].sh_size > size)
			size = image->sections[s->sh_link].sh_size;
	}
	return size >= LAZY_NAMES_MIN && !uw_elf_section(image, ".gnu_debugdata");
}

int sym_table_open_partial(int fd, const struct uw_view *view, uint64_t elf_off, int debug_fd,
			   const uint64_t *vaddrs, size_t n, struct sym_table **out)
{
	static const struct uw_view none;
	struct sym_pages pages = { .n = 0 };
	struct sym_lazy_names *lazy_names = NULL;
	struct uw_elf image;
	int err;

	if (!view)
		view = &none;
	if (debug_fd >= 0)
		return sym_table_open_with(fd, elf_off, debug_fd, out);
	err = sym_elf_open_viewed(&image, fd, elf_off, view);
	if (err)
		return err;
	err = has_many_names(&image) ? sym_lazy_names_new(&image.source, &lazy_names) : -EAGAIN;
	if (!err && n)
		err = choose_pages(&image, vaddrs, n, &pages);
	if (!err)
		err = open_image(&image, NULL, lazy_names, &pages, out);
	/* Otherwise read the table like any other: the names cannot or need not be lazy. */
	if (err) {
		sym_lazy_names_free(lazy_names);
		free(pages.bits);
		err = open_image(&image, NULL, NULL, NULL, out);
	}
	uw_elf_fini(&image);
	return err;
}

int sym_table_open(int fd, uint64_t elf_off, struct sym_table **out)
{
	return sym_table_open_with(fd, elf_off, -1, out);
}

int sym_table_open_image(const void *bytes, size_t size, struct sym_table **out)
{
	struct uw_elf image;
	int err = sym_elf_open_bytes(&image, bytes, size);

	if (err)
		return err;
	err = open_image(&image, NULL, NULL, NULL, out);
	uw_elf_fini(&image);
	return err;
}

void sym_table_free(struct sym_table *table)
{
	if (!table)
		return;
	if (table->blob || table->stored) {
		uw_blob_free(table->stored);
		free(table->blob);
	} else {
		free(table->entries);
		free(table->names);
		free(table->aliases);
		free(table->pages.bits);
		sym_lazy_names_free(table->lazy_names);
	}
	free(table);
}

/* ---- lookup -------------------------------------------------------------------------------- */

size_t sym_table_size(const struct sym_table *table)
{
	return table->n_entries;
}

size_t sym_table_memory(const struct sym_table *table)
{
	if (table->stored)
		return (size_t)uw_blob_read(table->stored);
	return table->n_entries * sizeof(*table->entries) + table->names_size +
	       table->n_aliases * sizeof(*table->aliases) +
	       (table->lazy_names ? sym_lazy_names_memory(table->lazy_names) : 0);
}

int sym_table_damage(const struct sym_table *table)
{
	return table->damage;
}

int sym_table_at(const struct sym_table *table, size_t i, struct sym_symbol *out)
{
	const struct sym_entry *e;
	const char *name;
	int err = i < table->n_entries ? sym_keep_need(table, i) : -ENOENT;

	if (err)
		return err;
	e = &table->entries[i];
	if (table->lazy_names) {
		err = sym_lazy_names_get(table, i, &name);
	} else {
		name = table->names + (e->name & ~SYM_ENTRY_OPEN);
		err = sym_keep_need_name(table, e->name & ~SYM_ENTRY_OPEN);
	}
	if (err)
		return err;
	*out = (struct sym_symbol){ .addr = e->addr,
				    .size = e->name & SYM_ENTRY_OPEN ? 0 : e->end - e->addr,
				    .name = name };
	return 0;
}

/*
 * Find the range of entries in which the first entry after vaddr is. In a stored table, read these
 * entries.
 */
static int narrow(const struct sym_table *table, uint64_t vaddr, size_t *from, size_t *past)
{
	size_t groups = (table->n_entries + SYMBOLS_GROUP - 1) / SYMBOLS_GROUP, low;

	*from = 0;
	*past = table->n_entries;
	if (!table->stored)
		return 0;
	/* the first group that begins beyond vaddr */
	low = UW_COUNT_WHILE(i, groups, table->group[i] <= vaddr);
	*from = low ? (low - 1) * SYMBOLS_GROUP : 0;
	*past = low * SYMBOLS_GROUP < table->n_entries ? low * SYMBOLS_GROUP : table->n_entries;
	return sym_keep_have(table, *from, *past);
}

int sym_table_find(const struct sym_table *table, uint64_t vaddr, struct sym_symbol *out)
{
	size_t low, high;
	uint32_t at;
	int err = narrow(table, vaddr, &low, &high);

	if (!err && table->pages.n && !sym_pages_has(&table->pages, vaddr))
		err = -EAGAIN;
	if (err)
		return err;
	/* the first entry that starts beyond vaddr */
	low += UW_COUNT_WHILE(i, high - low, table->entries[low + i].addr <= vaddr);
	at = low ? (uint32_t)(low - 1) : SYMBOLS_NONE;
	for (int i = 0; i < ENCLOSING_MAX && at != SYMBOLS_NONE; i++) {
		const struct sym_entry *e;

		err = sym_keep_need(table, at);
		if (err)
			return err;
		e = &table->entries[at];
		/* The order of stored entries that are read when they are needed was not checked. */
		if (vaddr >= e->addr && vaddr < e->end)
			return sym_table_at(table, at, out);
		at = e->aux;
	}
	return -ENOENT;
}

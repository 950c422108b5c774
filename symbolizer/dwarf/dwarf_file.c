/* symbolizer/dwarf/dwarf_file.c: opens and closes the debug sections of a file. */
#include "symbolizer/dwarf/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open a section, with the suffix .dwo in a split file. A missing section is empty. */
static int open_section(const struct uw_elf *image, const char *name, bool split,
			struct sym_section *out)
{
	char dwo[64];
	int err;

	*out = (struct sym_section){ .source.fd = -1, .own_fd = -1 };
	if (split) {
		size_t n = strlen(name);

		memcpy(dwo, name, n);
		memcpy(dwo + n, ".dwo", 5);
		name = dwo;
	}
	err = sym_section_open(image, name, out);
	return err == -ENOENT ? 0 : err;
}

static bool is_split_info(const struct uw_elf *image, const Elf64_Shdr *s)
{
	return s->sh_type != SHT_NOBITS &&
	       !strcmp(uw_elf_section_name(image, s), ".debug_info.dwo");
}

/*
 * Open the section of the units. gcc puts each type unit of version 5 into a section of its own, of the same name,
 * before that of the compile unit (-fdebug-types-section).
 */
static int open_info(const struct uw_elf *image, struct dw_file *f)
{
	size_t n = 0;

	for (size_t i = 0; f->split && i < image->n_sections; i++)
		n += is_split_info(image, &image->sections[i]);
	for (size_t i = 0; n > 1 && i < image->n_sections; i++) {
		struct dw_unit unit;

		if (!is_split_info(image, &image->sections[i]) ||
		    sym_section_open_header(image, &image->sections[i], &f->info))
			continue;
		if (!dw_unit_header(f, 0, &unit) && unit.type != DW_UT_split_type &&
		    unit.type != DW_UT_type)
			return 0;
		sym_section_close(&f->info);
	}
	return open_section(image, ".debug_info", f->split, &f->info);
}

/* Cache pages of the sections that are read in small pieces. */
static void keep_pages(struct dw_file *f)
{
	sym_section_keep_pages(&f->str);
	sym_section_keep_pages(&f->line_str);
	sym_section_keep_pages(&f->str_offsets);
	sym_section_keep_pages(&f->addr);
	sym_section_keep_pages(&f->ranges);
	sym_section_keep_pages(&f->rnglists);
	sym_section_keep_pages(&f->cu_index);
}

int dw_file_open(const struct uw_elf *image, bool split, struct dw_budget *budget,
		 struct dw_file *out)
{
	struct dw_file f = { .fd = -1, .split = split, .budget = budget };
	int err = open_info(image, &f);

	if (!err && !f.info.source.size)
		err = -ENOENT;
	if (!err)
		err = open_section(image, ".debug_abbrev", split, &f.abbrev);
	if (!err)
		err = open_section(image, ".debug_str", split, &f.str);
	if (!err)
		err = open_section(image, ".debug_str_offsets", split, &f.str_offsets);
	if (!err)
		err = open_section(image, ".debug_rnglists", split, &f.rnglists);
	if (!err && split)
		err = open_section(image, ".debug_cu_index", false, &f.cu_index);
	/* The line table of a split file is only for its type units. */
	if (!err && !split)
		err = open_section(image, ".debug_line", split, &f.line);
	if (!err && !split)
		err = open_section(image, ".debug_line_str", split, &f.line_str);
	if (!err && !split)
		err = open_section(image, ".debug_addr", split, &f.addr);
	if (!err && !split)
		err = open_section(image, ".debug_ranges", split, &f.ranges);
	if (err) {
		dw_file_close(&f);
		return err;
	}
	keep_pages(&f);
	*out = f;
	return 0;
}

/* Return a section that uses the same descriptor or memory; of remains the owner. */
static struct sym_section borrowed(const struct sym_section *s)
{
	return (struct sym_section){ .source = s->source, .own_fd = -1 };
}

/* Return a copy of a unit as it is before it is loaded. */
static struct dw_unit unloaded(const struct dw_unit *u, struct dw_file *file)
{
	return (struct dw_unit){ .file = file,
				 .off = u->off,
				 .size = u->size,
				 .abbrev_off = u->abbrev_off,
				 .id = u->id,
				 .version = u->version,
				 .type = u->type,
				 .addr_size = u->addr_size,
				 .off_size = u->off_size,
				 .header = u->header,
				 .at = u->at,
				 .root = u->root };
}

int dw_file_new_reader(const struct dw_file *of, struct dw_budget *budget, struct dw_file *out)
{
	struct dw_file f = { .fd = -1,
			     .split = of->split,
			     .budget = budget,
			     .unit_spare = { .most = of->unit_spare.most },
			     .info = borrowed(&of->info),
			     .abbrev = borrowed(&of->abbrev),
			     .line = borrowed(&of->line),
			     .str = borrowed(&of->str),
			     .line_str = borrowed(&of->line_str),
			     .str_offsets = borrowed(&of->str_offsets),
			     .addr = borrowed(&of->addr),
			     .ranges = borrowed(&of->ranges),
			     .rnglists = borrowed(&of->rnglists),
			     .cu_index = borrowed(&of->cu_index) };

	if (of->n_units) {
		f.units = calloc(of->n_units, sizeof(*f.units));
		if (!f.units)
			return -ENOMEM;
		f.n_units = of->n_units;
	}
	keep_pages(&f);
	*out = f;
	for (size_t i = 0; i < f.n_units; i++)
		out->units[i] = unloaded(&of->units[i], out);
	return 0;
}

enum { SECTIONS = 10 };

static void sections_of(struct dw_file *f, struct sym_section *out[SECTIONS])
{
	struct sym_section *const all[SECTIONS] = { &f->info,	 &f->abbrev,   &f->line,
						    &f->str,	 &f->line_str, &f->str_offsets,
						    &f->addr,	 &f->ranges,   &f->rnglists,
						    &f->cu_index };

	memcpy(out, all, sizeof(all));
}

uint64_t dw_file_memory(struct dw_file *f)
{
	struct sym_section *all[SECTIONS];
	uint64_t bytes = 0;

	sections_of(f, all);
	for (size_t i = 0; i < SECTIONS; i++)
		bytes += all[i]->owned ? all[i]->source.size : 0;
	return bytes;
}

void dw_file_close(struct dw_file *f)
{
	struct sym_section *all[SECTIONS];

	for (size_t i = 0; i < f->n_units; i++)
		dw_unit_unload(&f->units[i]);
	free(f->units);
	free(f->unit_spare.bytes);
	free(f->line_spare.bytes);
	for (size_t i = 0; i < DW_ABBREVS_CACHED; i++)
		dw_abbrevs_put(f->cached[i]);
	sections_of(f, all);
	for (size_t i = 0; i < SECTIONS; i++)
		sym_section_close(all[i]);
	if (f->fd >= 0)
		(void)close(f->fd);
	*f = (struct dw_file){ .fd = -1 };
}

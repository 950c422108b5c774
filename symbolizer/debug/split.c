/* symbolizer/debug/split.c: finds entries in .dwo files and in packages of them (DWARF 5 §7.3). */
#include "symbolizer/debug/debug.h"

#include "base/growth.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS_MAX   (1u << 24)
#define COLUMNS_MAX 16
#define TEXT_MAX    4096

/* Beyond this, split units do not add to the work that is done for a program. */
#define WORK_MOST ((uint64_t)16 << 30)

/* Open the debug sections of a .dwo or .dwp file. Takes ownership of fd. */
static int open_file(struct sym_debug *d, int fd, struct dw_file *out)
{
	struct uw_elf image;
	int err = sym_elf_open_fd(&image, fd, 0);

	if (!err) {
		err = dw_file_open(&image, true, &d->budget, out);
		uw_elf_fini(&image);
	}
	if (err) {
		(void)close(fd);
		return err;
	}
	out->fd = fd;
	return 0;
}

/*
 * Return 0 if the unit has the skeleton's id. Units of version 5 state it in their headers, older ones in their root
 * entries.
 */
static int is_it(struct dw_unit *u, const struct dw_unit *skeleton)
{
	int err;

	if (!u->type || u->type == DW_UT_split_type || u->type == DW_UT_type)
		return -ENOENT;
	if (u->version >= 5 && u->id != skeleton->root.dwo_id)
		return -ENOENT;
	u->skeleton = skeleton;
	err = dw_unit_root(u);
	if (!err && u->root.tag == DW_TAG_compile_unit && u->root.dwo_id == skeleton->root.dwo_id)
		return 0;
	u->skeleton = NULL;
	u->root.read = false;
	return err ? err : -ENOENT;
}

/* ---- packages ------------------------------------------------------------------------------ */

/* Columns of the index (DWARF 5 §7.3.5.3). GNU's version 2 uses other numbers for some columns. */
enum { INFO = 1, ABBREV = 3, STR_OFFSETS = 6, RNGLISTS_5 = 8 };

static int read_u32(const struct sym_section *s, uint64_t off, uint32_t *out)
{
	return sym_section_read(s, off, out, sizeof(*out));
}

/* Look up a unit id in the index's hash table. *row counts from 1. */
static int find_row(const struct sym_section *s, uint64_t id, uint32_t n_slots, uint32_t *row)
{
	uint64_t mask = n_slots - 1, at = id & mask, step = (id >> 32 & mask) | 1, found;

	for (uint32_t i = 0; i < n_slots && i < 1024; i++, at = (at + step) & mask) {
		int err = sym_section_read(s, 16 + at * 8, &found, sizeof(found));

		if (!err)
			err = read_u32(s, 16 + (uint64_t)n_slots * 8 + at * 4, row);
		if (err)
			return err;
		if (!*row)
			return -ENOENT;
		if (found == id)
			return 0;
	}
	return -ENOENT;
}

/* Look up a unit in the package's index, and return where its parts of the sections begin. */
static int find_slices(const struct dw_file *f, uint64_t id, uint64_t *info, struct dw_slices *out)
{
	const struct sym_section *s = &f->cu_index;
	uint32_t head[4], row;
	uint64_t table;
	int err = sym_section_read(s, 0, head, sizeof(head));

	if (err)
		return err;
	/* Version 5 is two bytes, followed by two bytes of padding; version 2 is four bytes. */
	if (head[0] != 2 && (head[0] & 0xffff) != 5)
		return -ENOTSUP;
	if (!head[1] || head[1] > COLUMNS_MAX || !head[3] || head[3] > SLOTS_MAX ||
	    (head[3] & (head[3] - 1)))
		return -EBADMSG;
	err = find_row(s, id, head[3], &row);
	if (err)
		return err;
	if (row > head[2])
		return -EBADMSG;
	table = 16 + (uint64_t)head[3] * 12;
	*out = (struct dw_slices){ 0 };
	*info = UINT64_MAX;
	for (uint32_t i = 0; i < head[1]; i++) {
		uint32_t column, off;

		err = read_u32(s, table + i * (uint64_t)4, &column);
		if (!err)
			err = read_u32(s, table + ((uint64_t)row * head[1] + i) * 4, &off);
		if (err)
			return err;
		switch (column) {
		case INFO:
			*info = off;
			break;
		case ABBREV:
			out->abbrev = off;
			break;
		case STR_OFFSETS:
			out->str_offsets = off;
			break;
		case RNGLISTS_5:
			out->rnglists = head[0] == 2 ? 0 : off;
			break;
		}
	}
	return *info == UINT64_MAX ? -EBADMSG : 0;
}

/* Find the skeleton's unit in the package, which is opened once. */
static int from_package(struct sym_debug *d, struct dw_unit *skeleton, struct dw_unit **out)
{
	struct dw_slices slices;
	struct dw_unit *u;
	uint64_t info;
	int fd, err;

	if (!d->package_tried) {
		d->package_tried = true;
		if (d->files.package && !d->files.package(d->files.ctx, &fd))
			d->has_package = !open_file(d, fd, &d->package);
	}
	if (!d->has_package)
		return -ENOENT;
	err = find_slices(&d->package, skeleton->root.dwo_id, &info, &slices);
	if (err)
		return err;
	err = UW_ARRAY_GROW(d->packaged, d->n_packaged, d->room_packaged, SIZE_MAX);
	if (err)
		return err;
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->file = &d->package;
	err = dw_unit_header(&d->package, info, u);
	u->at = slices;
	if (!err)
		err = is_it(u, skeleton);
	if (err) {
		dw_unit_unload(u);
		free(u);
		return err;
	}
	d->packaged[d->n_packaged++] = u;
	*out = u;
	return 0;
}

/* ---- single files ------------------------------------------------------------------------ */

/* Find the skeleton's unit in its own .dwo file. */
static int from_file(struct sym_debug *d, struct dw_unit *skeleton, struct dw_unit **out)
{
	char directory[TEXT_MAX], name[TEXT_MAX];
	struct sym_split *split;
	int fd, err;

	if (!d->files.split)
		return -ENOENT;
	err = sym_unit_text(skeleton, DW_AT_comp_dir, directory, sizeof(directory));
	if (!err)
		err = sym_unit_text(skeleton,
				    skeleton->version >= 5 ? DW_AT_dwo_name : DW_AT_GNU_dwo_name,
				    name, sizeof(name));
	if (!err && !*name)
		err = -ENOENT;
	if (!err)
		err = d->files.split(d->files.ctx, directory, name, &fd);
	if (err)
		return err;
	split = calloc(1, sizeof(*split));
	if (!split) {
		(void)close(fd);
		return -ENOMEM;
	}
	err = open_file(d, fd, &split->file);
	if (err) {
		free(split);
		return err;
	}
	split->file.alt = d->has_alt ? &d->alt : NULL;
	d->budget.held += dw_file_memory(&split->file);
	split->next = d->splits;
	d->splits = split;
	d->n_splits++;
	err = dw_file_units(&split->file);
	for (size_t i = 0; !err && i < split->file.n_units; i++) {
		if (is_it(&split->file.units[i], skeleton))
			continue;
		*out = &split->file.units[i];
		return 0;
	}
	return err ? err : -ENOENT;
}

/* Units in other files are debug information of the program, too. Skeletons of a hostile program may share one. */
static void allow(struct sym_debug *d, const struct dw_unit *split)
{
	if (d->budget.limit < WORK_MOST)
		d->budget.limit += SYM_WORK_TIMES * split->size;
}

int sym_split_unit(struct sym_debug *d, struct dw_unit *skeleton, struct dw_unit **out)
{
	int err = 0;

	if (!skeleton->split_searched) {
		skeleton->split_searched = true;
		err = from_package(d, skeleton, &skeleton->split);
		if (err && err != -ENOMEM)
			err = from_file(d, skeleton, &skeleton->split);
		skeleton->split_missing = !skeleton->split;
	}
	*out = skeleton->split;
	if (!err && *out && !skeleton->split_counted) {
		skeleton->split_counted = true;
		allow(d, *out);
	}
	return err ? err : *out ? 0 : -ENOENT;
}

void sym_split_close(struct sym_debug *d)
{
	for (size_t i = 0; i < d->main.n_units; i++) {
		struct dw_unit *u = &d->main.units[i];

		u->split = NULL;
		u->split_searched = u->split_missing; /* do not look again for a missing unit */
	}
	for (size_t i = 0; i < d->n_packaged; i++) {
		dw_unit_unload(d->packaged[i]);
		free(d->packaged[i]);
	}
	d->n_packaged = 0;
	/*
	 * Origins are identified by the address of their file, which the next file may reuse:
	 * forget them.
	 */
	if (d->splits)
		sym_origins_forget(d);
	while (d->splits) {
		struct sym_split *next = d->splits->next;

		d->budget.held -= dw_file_memory(&d->splits->file);
		dw_file_close(&d->splits->file);
		free(d->splits);
		d->splits = next;
	}
	d->n_splits = 0;
}

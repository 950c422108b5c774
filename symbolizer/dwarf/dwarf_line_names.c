/*
 * symbolizer/dwarf/dwarf_line_names.c: reads the lists of directories and files in the header of a
 * line program, and makes paths from them.
 */
#include "symbolizer/dwarf/dwarf_line.h"

#include "base/growth.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>

#define FORMATS_MAX 16
/* Files, and directories, of one table; compilers make thousands at most. A name may take no byte in the file. */
#define NAMES_MAX ((size_t)1 << 20)

static int push_name(struct dw_name **list, size_t *n, size_t *room, struct dw_name name)
{
	int err = UW_ARRAY_GROW(*list, *n, *room, NAMES_MAX);

	if (err)
		return err;
	(*list)[(*n)++] = name;
	return 0;
}

static int push_file(struct dw_line_lists *l, struct dw_name name)
{
	return push_name(&l->table->files, &l->table->n_files, &l->room_files, name);
}

static int push_directory(struct dw_line_lists *l, struct dw_name name)
{
	return push_name(&l->table->directories, &l->table->n_directories, &l->room_directories,
			 name);
}

/* Return the offset in .debug_line of a position in the line program. */
static uint64_t off_of(const struct dw_line_lists *l, const void *at)
{
	return l->off + (uint64_t)((const uint8_t *)at - l->bytes);
}

int dw_line_older_file(struct dw_line_lists *l, struct uw_bytes *c, const char *text)
{
	uint64_t directory = uw_bytes_uleb(c);

	(void)uw_bytes_uleb(c); /* time */
	(void)uw_bytes_uleb(c); /* size */
	if (c->err)
		return -EBADMSG;
	return push_file(l, (struct dw_name){ .off = off_of(l, text),
					      .directory = directory > UINT32_MAX
								   ? UINT32_MAX
								   : (uint32_t)directory,
					      .where = DW_IN_LINE });
}

/* Read the directory and file lists of versions 2 to 4. */
static int older_names(struct dw_line_lists *l, struct uw_bytes *c)
{
	/* Directory 0 is the unit's own. There is no file 0. */
	int err = push_directory(l, (struct dw_name){ .where = DW_NOWHERE });

	if (!err)
		err = push_file(l, (struct dw_name){ .where = DW_NOWHERE });
	while (!err) {
		const char *text = uw_bytes_string(c);

		if (c->err)
			return -EBADMSG;
		if (!*text)
			break;
		err = push_directory(
			l, (struct dw_name){ .off = off_of(l, text), .where = DW_IN_LINE });
	}
	while (!err) {
		const char *text = uw_bytes_string(c);

		if (c->err)
			return -EBADMSG;
		if (!*text)
			break;
		err = dw_line_older_file(l, c, text);
	}
	return err;
}

/* Return where the name in a value is stored. */
static struct dw_name name_of(const struct dw_line_lists *l, const struct dw_value *v)
{
	switch (v->form) {
	case DW_FORM_string:
		return (struct dw_name){ .off = off_of(l, v->data), .where = DW_IN_LINE };
	case DW_FORM_line_strp:
		return (struct dw_name){ .off = v->u, .where = DW_IN_LINE_STR };
	case DW_FORM_strp:
		return (struct dw_name){ .off = v->u, .where = DW_IN_STR };
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		return (struct dw_name){ .off = v->u, .where = DW_IN_ALT };
	default:
		return (struct dw_name){ .where = DW_NOWHERE };
	}
}

/* Read one of the two lists of version 5: a description of the entries, and the entries. */
static int newer_names(struct dw_line_lists *l, struct uw_bytes *c, bool files)
{
	struct dw_spec formats[FORMATS_MAX];
	uint8_t n_formats = uw_bytes_u8(c);
	uint64_t n;
	int err = 0;

	if (n_formats > FORMATS_MAX)
		return -E2BIG;
	for (uint8_t i = 0; i < n_formats; i++) {
		uint64_t type = uw_bytes_uleb(c), form = uw_bytes_uleb(c);

		if (form > UINT16_MAX || form == DW_FORM_implicit_const)
			return -EBADMSG;
		formats[i] = (struct dw_spec){ .name = type > UINT16_MAX ? 0 : (uint16_t)type,
					       .form = (uint16_t)form };
	}
	n = uw_bytes_uleb(c);
	if (c->err || (n && !n_formats) || n > uw_bytes_left(c))
		return -EBADMSG;
	while (!err && n--) {
		struct dw_name name = { .where = DW_NOWHERE };
		uint32_t directory = 0;

		for (uint8_t i = 0; i < n_formats; i++) {
			struct dw_value v;

			err = dw_value_read(&l->unit, c, &formats[i], &v);
			if (err)
				return err;
			if (formats[i].name == DW_LNCT_path)
				name = name_of(l, &v);
			else if (formats[i].name == DW_LNCT_directory_index)
				directory = v.u > UINT32_MAX ? UINT32_MAX : (uint32_t)v.u;
		}
		name.directory = directory;
		err = files ? push_file(l, name) : push_directory(l, name);
	}
	return err;
}

int dw_line_lists_read(struct dw_line_lists *l, struct uw_bytes *c)
{
	int err;

	if (l->unit.version < 5)
		return older_names(l, c);
	err = newer_names(l, c, false);
	return err ? err : newer_names(l, c, true);
}

/* ---- paths --------------------------------------------------------------------------------- */

/* Copy the text of a name. */
static int text_of(const struct dw_file *file, const struct dw_name *name, char *out, size_t room)
{
	switch (name->where) {
	case DW_IN_LINE:
		return sym_section_text(&file->line, name->off, out, room);
	case DW_IN_LINE_STR:
		return sym_section_text(&file->line_str, name->off, out, room);
	case DW_IN_STR:
		return sym_section_text(&file->str, name->off, out, room);
	case DW_IN_ALT:
		return file->alt ? sym_section_text(&file->alt->str, name->off, out, room)
				 : -ENOENT;
	default:
		return -ENOENT;
	}
}

/* Put "directory/" before the text in out, if there is room. Return the length of the text. */
static int prepend(const char *directory, char *out, size_t room)
{
	size_t n = strlen(directory), m = strlen(out);
	bool slash = n && directory[n - 1] != '/';

	if (!n || n + slash + m >= room)
		return (int)m;
	memmove(out + n + slash, out, m + 1);
	memcpy(out, directory, n);
	if (slash)
		out[n] = '/';
	return (int)(n + slash + m);
}

/* Put the file's directory and then the unit's directory in front, until the path is absolute. */
int dw_table_path(const struct dw_file *file, const struct dw_table *t, uint32_t index,
		  const char *dir, char *out, size_t room)
{
	char directory[4096];
	const struct dw_name *name;
	int n;

	if (index >= t->n_files)
		return -ENOENT;
	name = &t->files[index];
	n = text_of(file, name, out, room);
	if (n <= 0)
		return n ? n : -ENOENT;
	if (*out == '/')
		return n;
	if (name->directory < t->n_directories &&
	    text_of(file, &t->directories[name->directory], directory, sizeof(directory)) > 0) {
		n = prepend(directory, out, room);
		if (*out == '/')
			return n;
		/*
		 * In version 5, directory 0 is the unit's own directory and is not relative to dir.
		 */
		if (t->version >= 5 && !name->directory && *dir != '/')
			return n;
	}
	return prepend(dir, out, room);
}

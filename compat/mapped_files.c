/* compat/mapped_files.c: the mapped files of a process, opened when they are needed. */
#include "compat/mapped_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbolizer/symbolizer.h"

#define FILES_MAX 65536 /* mappings; the default limit of Linux (vm.max_map_count) */

struct file { /* one mapping; mappings of one file share its object */
	char *path;
	void *image;
	size_t image_size;
	struct uw_object *object;
	struct sym_table *symbols;
	bool no_symbols;
};

struct compat_files {
	struct uw_space *space;
	compat_open_fn open;
	void *ctx;
	struct file **files;
	size_t n;
};

/* Open the file of a mapping. -ENOENT for mappings without a path. */
static int open_file(const struct compat_files *f, const struct uw_mapping *m)
{
	const struct file *file = m->user;

	return file->path[0] == '/' ? f->open(f->ctx, file->path, m) : -ENOENT;
}

/*
 * Open the object of a mapping that contains code. The space calls this once for each mapping and
 * stores the result. Return NULL if there is no object.
 */
static struct uw_object *resolve(void *ctx, const struct uw_mapping *m)
{
	struct compat_files *f = ctx;
	struct file *file = m->user;
	int fd;

	for (size_t i = 0; i < f->n && !file->object && !file->image; i++)
		if (f->files[i]->object && !f->files[i]->image &&
		    strcmp(f->files[i]->path, file->path) == 0)
			file->object = uw_object_get(f->files[i]->object);
	if (file->image && !file->object)
		(void)uw_object_open_image(file->image, file->image_size, &file->object);
	if (!file->object && !file->image) {
		fd = open_file(f, m);
		if (fd >= 0) {
			(void)uw_object_open(fd, 0, &file->object);
			(void)close(fd);
		}
	}
	return file->object ? uw_object_get(file->object) : NULL;
}

int compat_files_new(uint16_t machine, compat_open_fn open, void *ctx, struct compat_files **out)
{
	struct compat_files *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->open = open;
	f->ctx = ctx;
	err = uw_space_new(machine, resolve, f, &f->space);
	if (err) {
		free(f);
		return err;
	}
	*out = f;
	return 0;
}

void compat_files_clear(struct compat_files *f)
{
	uw_space_clear(f->space);
	for (size_t i = 0; i < f->n; i++) {
		free(f->files[i]->path);
		free(f->files[i]->image);
		uw_object_put(f->files[i]->object);
		sym_table_free(f->files[i]->symbols);
		free(f->files[i]);
	}
	free(f->files);
	f->files = NULL;
	f->n = 0;
}

void compat_files_free(struct compat_files *f)
{
	if (!f)
		return;
	compat_files_clear(f);
	uw_space_free(f->space);
	free(f);
}

int compat_files_map(struct compat_files *f, const struct uw_mapping *mapping, const char *path,
		     const void *image, size_t size)
{
	struct file *file, **all;
	struct uw_mapping m = *mapping;

	if (f->n == FILES_MAX)
		return -E2BIG;
	all = realloc(f->files, (f->n + 1) * sizeof(struct file *));
	if (!all)
		return -ENOMEM;
	f->files = all;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	f->files[f->n++] = file;
	file->path = strdup(path);
	if (image && size) {
		file->image = malloc(size);
		if (file->image)
			memcpy(file->image, image, size);
		file->image_size = size;
	}
	if (!file->path || (image && size && !file->image))
		return -ENOMEM; /* compat_files_clear() frees what was allocated */
	m.user = file;
	m.kind = image ? UW_MAPPING_VDSO : path[0] == '/' ? UW_MAPPING_FILE : UW_MAPPING_ANON;
	m.resolved = false;
	m.object = NULL;
	return uw_space_map(f->space, &m);
}

bool compat_files_has(const struct compat_files *f, uint64_t addr)
{
	return uw_space_find(f->space, addr) != NULL;
}

/* Return the mapping that contains addr, with its object opened; NULL if there is none. */
static const struct uw_mapping *opened(struct compat_files *f, uint64_t addr)
{
	const struct uw_mapping *m = uw_space_find(f->space, addr);
	struct uw_mapping known;

	if (!m || m->object)
		return m;
	if (m->resolved)
		return NULL;
	known = *m;
	known.object = resolve(f, &known);
	known.resolved = true;
	if (uw_space_map(f->space, &known)) /* this computes the bias */
		known.resolved = false;
	uw_object_put(known.object);
	m = uw_space_find(f->space, addr);
	return m && m->object ? m : NULL;
}

int compat_files_read(struct compat_files *f, uint64_t addr, void *out, size_t size)
{
	const struct uw_mapping *m = opened(f, addr);

	if (!m || m->prot & PROT_WRITE || size > m->end - addr)
		return -EFAULT;
	return uw_object_read(m->object, addr - m->bias, out, size);
}

int compat_files_proc_info(struct compat_files *f, const struct uw_proc_query *query,
			   struct unw_proc_info *info)
{
	const struct uw_mapping *m = opened(f, query->pc);
	struct uw_proc_info found;
	int err = m ? uw_proc_info_object(m->object, m->bias, query, &found) : -ENOENT;

	if (!err)
		compat_to_theirs(&found, info);
	return compat_error(err);
}

/*
 * Read the file's symbols at the first call. no_symbols is set before, so that a failure is not
 * repeated. As in libunwind, a name that is too long is cut, and the result is -UNW_ENOMEM.
 */
int compat_files_proc_name(struct compat_files *f, uint64_t addr, char *name, size_t size,
			   unw_word *off)
{
	const struct uw_mapping *m = opened(f, addr);
	struct file *file = m ? m->user : NULL;
	struct sym_symbol symbol;
	size_t length;
	int fd;

	if (!file || !size)
		return -UNW_ENOINFO;
	if (!file->symbols && !file->no_symbols) {
		file->no_symbols = true;
		fd = file->image ? -1 : open_file(f, m);
		if (file->image)
			file->no_symbols = sym_table_open_image(file->image, file->image_size,
								&file->symbols) != 0;
		else if (fd >= 0)
			file->no_symbols = sym_table_open(fd, 0, &file->symbols) != 0;
		if (fd >= 0)
			(void)close(fd);
	}
	if (!file->symbols || sym_table_find(file->symbols, addr - m->bias, &symbol))
		return -UNW_ENOINFO;
	length = strlen(symbol.name);
	*off = addr - m->bias - symbol.addr;
	if (length >= size) {
		memcpy(name, symbol.name, size - 1);
		name[size - 1] = '\0';
		return -UNW_ENOMEM;
	}
	memcpy(name, symbol.name, length + 1);
	return 0;
}

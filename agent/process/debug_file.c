/* agent/process/debug_file.c: finds debug files, and checks that they are the module's. */
#include "agent/process/debug_file.h"

#include "agent/process/modules.h"
#include "agent/role/reading.h"
#include "agent/source/source.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* Return whether the file has the CRC, unless it is too large to be read for that. */
static bool has_crc(const struct debug_search *search, int fd, uint32_t crc)
{
	struct stat st;
	uint32_t is;

	if (search->crc_max && (fstat(fd, &st) || (uint64_t)st.st_size > search->crc_max))
		return false;
	return !sym_crc32(fd, &is) && is == crc;
}

/*
 * Return whether fd is the debug file of the module. Its build-id must match. A file found by its
 * name alone must also have the CRC that .gnu_debuglink states. link NULL: it was found by build-id.
 */
static bool is_debug_file(const struct debug_search *search, const struct module *module, int fd,
			  const struct sym_debug_where *link)
{
	struct uw_build_id id;
	bool has_id, is_its;
	int number;

	if (store_refuses(search->store, fd, 0, module->path))
		return false;
	number = reading_note(fd, 0, module->path);
	has_id = !sym_build_id(fd, 0, &id);
	if (module->build_id.size && has_id && !uw_build_id_equal(&id, &module->build_id))
		is_its = false;
	else if (!link)
		is_its = has_id && module->build_id.size;
	else
		is_its = link->linked && has_crc(search, fd, link->crc);
	reading_noted(number);
	return is_its;
}

int debug_file_find(const struct debug_search *search, const struct module *module, bool *inside,
		    int *fd)
{
	struct sym_debug_where where;
	struct opener_file file;
	unsigned int next = 0;
	bool linked;
	int found, number = reading_note(module_fd(module), module_elf_off(module), module->path);

	if (sym_debug_where(module_fd(module), module_elf_off(module), &where))
		where = (struct sym_debug_where){ .inside = false };
	reading_noted(number);
	*inside = where.inside;
	if (where.inside || module->kind != MODULE_FILE || !search->opener)
		return -ENOENT;
	module_file(module, &file);
	while (!opener_open_debug(search->opener, &file, where.linked ? where.link : NULL, &next,
				  &linked, &found)) {
		if (is_debug_file(search, module, found, linked ? &where : NULL)) {
			*fd = found;
			return 0;
		}
		(void)close(found);
	}
	return -ENOENT;
}

/* Take a file that was found by build-id, if it is the module's debug file; else close it. */
static int take_by_id(const struct debug_search *search, const struct module *module, int found,
		      int *fd)
{
	if (!is_debug_file(search, module, found, NULL)) {
		(void)close(found);
		return -ENOENT;
	}
	*fd = found;
	return 0;
}

int debug_file_fetched(const struct debug_search *search, const struct module *module, int *fd)
{
	int found, err = -ENOENT;

	if (module->kind == MODULE_FILE && search->opener)
		err = opener_fetched_debug(search->opener, &module->build_id, &found);
	return err ? err : take_by_id(search, module, found, fd);
}

int debug_file_embedded(const struct debug_search *search, const struct source_info *info,
			const struct module *module, int *fd)
{
	struct uw_build_id none = { .size = 0 };
	char path[PATH_MAX];
	int found, err = -ENOENT;

	if (module->kind == MODULE_FILE && info && info->embedded_file)
		err = opener_debug_path(&module->build_id, path, sizeof(path));
	if (!err)
		err = info->embedded_file(info->embedded_file_ctx, 0, 0, 0, path, &none, &found);
	return err ? err : take_by_id(search, module, found, fd);
}

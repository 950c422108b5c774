/*
 * agent/process/debug_file.h: finds the separate debug file of a module, for names and for capture files.
 *
 * A capture stores debug files among its embedded files: at the path that the debug file would have by its
 * build-id (opener_debug_path), without device, inode or build-id. So no look-up of a mapped file finds one.
 */
#ifndef AGENT_PROCESS_DEBUG_FILE_H
#define AGENT_PROCESS_DEBUG_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct module;
struct opener;
struct source_info;
struct store;

struct debug_search { /* how to find debug files; all borrowed */
	struct opener *opener;
	struct store *store; /* NULL: none */
	/* Do not read a larger file for the CRC that a debug link states; bytes, 0: no limit. */
	uint64_t crc_max;
};

/*
 * Open the debug file of a module whose file is open and has no DWARF. *inside is set if it has. Return -ENOENT
 * if it has, or if this machine has no such debug file. The caller closes *fd.
 */
int debug_file_find(const struct debug_search *search, const struct module *module, bool *inside,
		    int *fd);
/* Do the same on debuginfod servers. This may wait for the servers. */
int debug_file_fetched(const struct debug_search *search, const struct module *module, int *fd);
/* Do the same in the capture file that info describes. */
int debug_file_embedded(const struct debug_search *search, const struct source_info *info,
			const struct module *module, int *fd);

#endif

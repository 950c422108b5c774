/* agent/process/debug_file.h: finds the separate debug file of a module. */
#ifndef AGENT_PROCESS_DEBUG_FILE_H
#define AGENT_PROCESS_DEBUG_FILE_H

#include <stdbool.h>

struct module;
struct opener;
struct store;

struct debug_search { /* how to find debug files; all borrowed */
	struct opener *opener;
	struct store *store; /* NULL: none */
};

/*
 * Open the debug file of a module whose file is open and has no DWARF. *inside is set if it has. Return -ENOENT
 * if it has, or if this machine has no such debug file. The caller closes *fd.
 */
int debug_file_find(const struct debug_search *search, const struct module *module, bool *inside,
		    int *fd);
/* Do the same on debuginfod servers. This may wait for the servers. */
int debug_file_fetched(const struct debug_search *search, const struct module *module, int *fd);

#endif

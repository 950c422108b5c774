/*
 * agent/process/hotspot_methods.h: the names and line numbers of a Java virtual machine's methods, as
 * read from its memory and cached.
 */
#ifndef AGENT_PROCESS_HOTSPOT_METHODS_H
#define AGENT_PROCESS_HOTSPOT_METHODS_H

#include "agent/hash.h"
#include "agent/process/hotspot_layout.h"

#include <stddef.h>

#define HOTSPOT_SYMBOL_MAX 200 /* bytes of a name that are read; longer ones are cut */
#define HOTSPOT_NAME_MAX   (2 * HOTSPOT_SYMBOL_MAX + 2)

struct hotspot_line { /* from this index in the bytecode on */
	uint16_t bci, line;
};

struct hotspot_method {
	uint64_t at;		     /* address of the Method */
	uint64_t code;		     /* address of its bytecode */
	uint32_t size;		     /* bytes of it */
	uint32_t name, file;	     /* offsets in the texts; file 0: not known */
	uint32_t lines, n_lines;     /* index in the lines */
	uint32_t serial;	     /* another one when this address has another method */
	uint64_t check_ns, pause_ns; /* when it is looked at again, and how long it was not */
};

struct hotspot_methods { /* all zero: empty */
	struct hotspot_method *all;
	size_t n, room;
	struct uw_hash_index by_address;
	char *texts; /* offset 0 is not used */
	size_t n_texts, room_texts;
	struct hotspot_line *lines;
	size_t n_lines, room_lines;
	uint32_t serial;
};

void hotspot_methods_fini(struct hotspot_methods *methods);
size_t hotspot_methods_memory(const struct hotspot_methods *methods); /* bytes */

/* Read the name of the method at this address, "package.Class.method". */
bool hotspot_method_name(struct hotspot_memory *m, const struct hotspot_layout *l, uint64_t method,
			 char out[HOTSPOT_NAME_MAX]);

/*
 * Return the method at this address, read from memory or cached; borrowed until the next call. A class
 * can be unloaded and its memory become another's, so what is cached is looked at again after a second,
 * two and so on up to a minute. NULL: it cannot be read, or is none.
 */
const struct hotspot_method *hotspot_methods_get(struct hotspot_methods *methods,
						 struct hotspot_memory *m,
						 const struct hotspot_layout *l, uint64_t method,
						 uint64_t now);

/* Return the line of an index in the bytecode; 0: not known. */
uint32_t hotspot_methods_line(const struct hotspot_methods *methods,
			      const struct hotspot_method *method, uint32_t bci);

#endif

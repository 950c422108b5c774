/*
 * agent/pipeline/names.h: turns a location into function name, source line and inlined calls, using
 * the symbols of its module. Symbol tables are opened on first use. Use from one thread at a time.
 */
#ifndef AGENT_PIPELINE_NAMES_H
#define AGENT_PIPELINE_NAMES_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

struct names;
struct opener;
struct store;

struct name_place {		 /* what debug information says about an address */
	const char *function;	 /* as in struct name; never NULL */
	const char *system_name; /* as in struct name */
	const char *file;	 /* sanitised; NULL: unknown */
	uint32_t line;		 /* 0: unknown */
	uint32_t start_line;	 /* of the function; 0: unknown */
};

struct name {
	const char *function;	 /* demangled, sanitised; NULL: unknown */
	const char *system_name; /* as linked, sanitised; NULL: unknown */
	const char *module;	 /* base name, or "[kernel]", a kernel module as "[ext4]" */
	uint64_t start;		 /* the symbol's vaddr */
	/*
	 * The address has no symbol, but the start of its function is known from unwind
	 * information. For generated code without unwind information, start is the start of the 1
	 * KiB block around the address.
	 */
	bool bounded;
	uint64_t offset; /* location.vaddr + ra_bytes - start: the pc's offset */
	/*
	 * The calls that were inlined here, innermost first, then the function itself with the line
	 * of the call. n_places 0: there are no lines.
	 */
	const struct name_place *places;
	size_t n_places;
};

/*
 * Create names for one recording. Both are borrowed; info is read again when the source has filled
 * in more of it.
 */
int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out);
/*
 * From now on, take symbols and lines from the store if it has them, and add new ones to it.
 * Borrowed.
 */
void names_store(struct names *names, struct store *store);
/* From now on, find source lines and, if inlined is set, the calls that were inlined. */
void names_lines(struct names *names, bool inlined);
/*
 * From now on, limit the time for reading each file, and stop reading files when the time for the
 * recording's end is used up (agent/ending.h). A thread that is still reading a file holds parts of
 * names and of its modules. Do not free either while such threads exist (errands_left in
 * agent/errand.h).
 */
void names_bounded(struct names *names);
/* Return for how many files names or lines are missing because reading them took too long. */
uint64_t names_left_out(const struct names *names);
void names_free(struct names *names); /* NULL is fine */

/*
 * All results are cached. If these are many, or some are a quarter of an hour old, free them and begin again with the
 * same settings: while recording, the names of programs that ended would stay. Call this while no look-up is going on and
 * the last profile still exists. Does nothing without memory, or while threads that were left behind
 * hold parts of the names (agent/errand.h). now_ns: CLOCK_MONOTONIC.
 */
void names_bound(struct names **names, uint64_t now_ns);
/*
 * Announce the locations that will be looked up. Lines are read much faster in the order of their
 * files than one by one.
 */
void names_prepare(struct names *names, const struct profile *profile);

/*
 * Look up a location and fill in all of *out; function is NULL if nothing names the location. The
 * strings are borrowed and live as long as names.
 */
void names_find(struct names *names, const struct location *location, struct name *out);

#endif

/*
 * agent/pipeline/names.h: location → function name, through whatever holds
 * symbols for its module.  Opens tables on first use; one thread at a time.
 */
#ifndef AGENT_PIPELINE_NAMES_H
#define AGENT_PIPELINE_NAMES_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

struct names;
struct opener;
struct store;

struct name {
	const char *function;	 /* demangled, sanitised; NULL: unknown */
	const char *system_name; /* as linked, sanitised; NULL: unknown */
	const char *module;	 /* base name, or "[kernel]", a kernel module as "[ext4]" */
	uint64_t start;		 /* the symbol's vaddr */
	bool bounded;	 /* no symbol, but unwind information says a function begins at start */
	uint64_t offset; /* location.vaddr + ra_bytes - start: where the pc stands */
};

/* Both are borrowed; info is read again as it becomes fuller. */
int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out);
/* From now on symbols come out of store where it has them, and go there; borrowed. */
void names_store(struct names *names, struct store *store);
void names_free(struct names *names); /* NULL is fine */

/* How many addresses have been sought, all of which are remembered. */
size_t names_count(const struct names *names);

/* Fills all of *out; function NULL where nothing names it.  Borrowed for the life of names. */
void names_find(struct names *names, const struct location *location, struct name *out);

#endif

/*
 * agent/pipeline/names.h: location → function name, source line and inlined calls,
 * through whatever holds symbols for its module.  Opens tables on first use; one thread at a time.
 */
#ifndef AGENT_PIPELINE_NAMES_H
#define AGENT_PIPELINE_NAMES_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

struct names;
struct opener;
struct store;

struct name_place {		 /* what debug information says of an address */
	const char *function;	 /* as below; never NULL */
	const char *system_name; /* as below */
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
	 * There is no symbol, but unwind information says that a function begins at start; of
	 * generated code without any, start is the 1 KiB that the address lies in.
	 */
	bool bounded;
	uint64_t offset; /* location.vaddr + ra_bytes - start: where the pc stands */
	/*
	 * The calls that were inlined here, innermost first, and then the function itself, whose
	 * line is of what it calls.  0: there are no lines.
	 */
	const struct name_place *places;
	size_t n_places;
};

/* Both are borrowed; info is read again as it becomes fuller. */
int names_new(struct opener *opener, const struct source_info *info, bool demangle,
	      struct names **out);
/* From now on symbols come out of store where it has them, and go there; borrowed. */
void names_store(struct names *names, struct store *store);
/* Lines are wanted, and with them, unless inlined is false, the calls that were inlined. */
void names_lines(struct names *names, bool inlined);
/*
 * From now on no single file is read for long, and none once the time of the recording's end is
 * used up (agent/ending.h).  Threads that still read one have parts of names and of its modules: as
 * long as there are such (agent/errand.h), neither is freed.
 */
void names_bounded(struct names *names);
/* How many files' names or lines were left out because reading them took too long. */
uint64_t names_left_out(const struct names *names);
void names_free(struct names *names); /* NULL is fine */

/* How many addresses have been sought, all of which are remembered. */
size_t names_count(const struct names *names);
/*
 * Says which locations will be asked for: lines are read much faster in their files' order.
 */
void names_prepare(struct names *names, const struct profile *profile);

/* Fills all of *out; function NULL where nothing names it.  Borrowed for the life of names. */
void names_find(struct names *names, const struct location *location, struct name *out);

#endif

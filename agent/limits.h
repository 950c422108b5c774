/*
 * agent/limits.h: one table of all limits that users can set: those of the agent, and those of the
 * library (unwinder/limits.h).
 *
 * A limit either refuses what is beyond it, or says how much of what is not in use stays in memory;
 * beyond that, the longest unused goes. Both are counted. The values are set from the command line
 * before the first fork and the first thread, so they are the same in all processes of a command.
 */
#ifndef AGENT_LIMITS_H
#define AGENT_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The agent's own limits; limits.c says what each bounds. */
struct limits {
	uint64_t frames, mappings, all_mappings, processes;
	uint64_t open_files, deleted_files, modules, thread_names, addresses, symbol_tables;
	uint64_t symbol_bytes, table_bytes, generated_bytes;
	uint64_t cgroups, cgroup_path_bytes, context_bytes;
	uint64_t interpreted_frames, runtime_bytes, slice_bytes;
	uint64_t thread_labels, thread_label_bytes;
	uint64_t name_bytes, history_bytes, profile_bytes, memory_bytes;
};

extern struct limits limits;	    /* in force; read only after the command line was read */
extern struct limits limits_counts; /* how often each was reached; use limits_reach */

/* Count that n things were beyond a limit: limits_reach(mappings, 1). Thread-safe. */
#define limits_reach(name, n) ((void)__atomic_fetch_add(&limits_counts.name, (n), __ATOMIC_RELAXED))

struct limits_row {
	const char *name;   /* "open-files" */
	const char *beyond; /* what happens beyond it, as the end of a sentence */
	size_t at;	    /* offset in struct limits or, if of_library, in struct uw_limits */
	bool of_library;
	bool is_cache;	      /* what is unused goes: nothing is refused, and nobody need be told */
	uint64_t least, most; /* most 0: as the library says */
};

/* The rows, in the order of the help. Static. */
const struct limits_row *limits_rows(size_t *n);
/* Return the row with this name of n characters; NULL: there is none. */
const struct limits_row *limits_find(const char *name, size_t n);
/* Return whether the limit is a size in bytes, not a number of things. */
bool limits_are_bytes(const struct limits_row *row);
uint64_t limits_value(const struct limits_row *row);
uint64_t limits_most(const struct limits_row *row);
/* How often the limit was reached so far, in this process. Thread-safe. */
uint64_t limits_count(const struct limits_row *row);
/* Set a limit, before the first fork and the first thread. -EINVAL: not between least and most. */
int limits_set(const struct limits_row *row, uint64_t value);

/* Report which limits refused something, how often, and what helps. For the end of the program. */
void limits_say(void);

#endif

/*
 * agent/export/stacks.h: a profile in memory, for whatever shows, converts or compares profiles.
 *
 * It is read from pprof files, anybody's, gzipped or plain, or filled with walked samples.
 * Several files become one profile: equal functions, locations and samples are one.  All texts
 * are clean: UTF-8 without control characters (see clean_text); escaping what a format itself
 * gives a meaning, "<" or ";", is left to its writer.
 *
 *   sample ──► locations, innermost first ──► lines, the inlined call first ──► function
 *      └─► labels, values                └──► module
 *
 * Every index in here is valid, every location has a module and at least one line, and no
 * profile has more than STACKS_FRAMES frames, inlined ones counted, over all its samples, no
 * sample more than STACKS_DEPTH.
 */
#ifndef AGENT_EXPORT_STACKS_H
#define AGENT_EXPORT_STACKS_H

#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STACKS_FRAMES ((uint64_t)1 << 28)
#define STACKS_DEPTH  ((uint64_t)1 << 21)

struct stacks_type { /* of the values */
	const char *type, *unit;
};

struct stacks_module { /* a mapping; modules[0] stands for none and has only "" */
	const char *path;
	const char *name; /* base name */
	const char *build_id;
	uint64_t start, limit, off;
	bool nameless; /* nobody looked for its symbols */
	bool kernel;
};

struct stacks_function {
	const char *name, *system_name; /* never "" */
	const char *file;		/* "": not known */
	int64_t start_line;
	bool placed; /* no symbol: the name says only where, "[libfoo.so]" */
};

struct stacks_line {
	uint32_t function;
	int64_t line; /* 0: not known */
};

struct stacks_location {
	uint32_t module;
	uint64_t address;
	size_t first_line; /* in lines: the innermost inlined call first, the function itself last */
	uint32_t n_lines;  /* ≥ 1 */
	bool folded;	   /* other functions have the very same code */
};

struct stacks_label {
	const char *key;
	const char *text; /* NULL: it is a number */
	const char *unit; /* of the number; "": none */
	int64_t number;
};

struct stacks_sample {
	size_t first_location; /* in location_ids; innermost first */
	uint32_t n_locations;
	uint32_t n_labels;
	size_t first_label; /* in label_ids */
	bool base;	    /* of a file to compare with */
	uint64_t time_ns;   /* when, on the source's clock; only if stacks.timed */
};

struct stacks {
	struct stacks_type *types;
	size_t n_types;
	size_t default_type; /* the one to show unless another is asked for */
	struct stacks_module *modules;
	size_t n_modules;
	struct stacks_function *functions;
	size_t n_functions;
	struct stacks_line *lines;
	size_t n_lines;
	struct stacks_location *locations;
	size_t n_locations;
	struct stacks_label *labels;
	size_t n_labels;
	struct stacks_sample *samples;
	size_t n_samples;
	uint32_t *location_ids;
	size_t n_location_ids;
	uint32_t *label_ids;
	size_t n_label_ids;
	int64_t *values; /* n_types of each sample, in the order of samples */
	const char **comments;
	size_t n_comments;
	struct stacks_type period_type; /* "" where not told */
	int64_t period;
	int64_t time_ns, duration_ns; /* since 1970; 0: not told */
	bool timed;		      /* samples stand one by one, as they were taken */
	uint64_t n_frames;	      /* of all samples, inlined ones too */

	struct strings texts; /* owns all texts */
	const char *empty;    /* "" of them */
	size_t room_modules, room_functions, room_lines, room_locations, room_labels, room_samples;
	size_t room_location_ids, room_label_ids, room_values, room_comments;
	struct hash_index by_module, by_function, by_location, by_label, by_sample;
};

int stacks_new(struct stacks **out);
void stacks_free(struct stacks *stacks); /* NULL is fine */

/*
 * Adds what a pprof file holds, - for standard input; base: as what to compare with.  The sample
 * types must be those of the files before it, in any order.  Reports its own errors: -EBADMSG
 * damaged, -EFBIG beyond our caps, -EINVAL other sample types, or none; after one only stacks_free
 * may follow.
 */
int stacks_load(struct stacks *stacks, const char *path, bool base);
/* The same from a descriptor, which stays open; name is for messages. */
int stacks_load_fd(struct stacks *stacks, int fd, const char *name, bool base);

/* ---- looking at it -------------------------------------------------------------- */

struct stacks_frame {
	uint32_t function, module, location;
	int64_t line;	  /* 0: not known */
	uint64_t address; /* in terms of the module, as the profile has it */
	bool inlined;	  /* into the frame that follows */
};

struct stacks_frames { /* all zero: empty; free(frames) */
	struct stacks_frame *frames;
	size_t n, room;
};

/* All frames of a sample, innermost first, inlined calls on their own; what *out held is replaced. */
int stacks_unfold(const struct stacks *stacks, const struct stacks_sample *sample,
		  struct stacks_frames *out); /* -ENOMEM */

int64_t stacks_value(const struct stacks *stacks, size_t sample, size_t type);
/* The index of a type's name; SIZE_MAX: there is none. */
size_t stacks_find_type(const struct stacks *stacks, const char *type);
/* The sample's label of that key; NULL: it has none. */
const struct stacks_label *stacks_label(const struct stacks *stacks,
					const struct stacks_sample *sample, const char *key);
/* A label as text, "" for NULL; out is used for numbers. */
enum { STACKS_NUMBER = 32 };
const char *stacks_label_text(const struct stacks_label *label, char out[STACKS_NUMBER]);

/* Sums that end at the largest and smallest number, as a stranger's values may be any. */
int64_t stacks_sum(int64_t a, int64_t b);

/* Takes away all samples that keep says no to. */
void stacks_filter(struct stacks *stacks, bool (*keep)(void *ctx, size_t sample), void *ctx);

/* ---- filling it ------------------------------------------------------------------- */

/* text (NULL: "") as a clean one of the profile's own, equal ones once; NULL: out of memory. */
const char *stacks_text(struct stacks *stacks, const char *text);

/* Ids, or HASH_NONE when out of memory.  All texts are from stacks_text, or NULL. */
uint32_t stacks_module(struct stacks *stacks, const struct stacks_module *module);
uint32_t stacks_function(struct stacks *stacks, const struct stacks_function *function);
/* location->first_line does not matter: the lines are those that are given. */
uint32_t stacks_location(struct stacks *stacks, const struct stacks_location *location,
			 const struct stacks_line *lines);
uint32_t stacks_keep_label(struct stacks *stacks, const struct stacks_label *label);
int stacks_add_type(struct stacks *stacks, const char *type, const char *unit);
int stacks_add_comment(struct stacks *stacks, const char *text); /* unless it is there */

/* sample's counts say how many ids there are; a sample that is there already takes the values. */
int stacks_add(struct stacks *stacks, const struct stacks_sample *sample,
	       const uint32_t *location_ids, const uint32_t *label_ids, const int64_t *values);

#endif

/*
 * agent/export/profile/stacks.h: a profile in memory, to be shown, converted or compared.
 *
 * It is read from pprof files, compressed or not, that anybody may have written, or it is filled
 * with walked samples. Several files become one profile: equal functions, locations and samples are
 * merged. All texts are sanitized: UTF-8 without control characters (see sanitize_text). A writer
 * must still escape what has a meaning in its format, such as "<" or ";".
 *
 *   sample ──► locations, innermost first ──► lines, the inlined call first ──► function
 *      └─► labels, values                └──► module
 *
 * Every index is valid, and every location has a module and at least one line. A profile has at
 * most STACKS_FRAMES frames in all its samples, and a sample at most STACKS_DEPTH; both count
 * inlined calls.
 */
#ifndef AGENT_EXPORT_PROFILE_STACKS_H
#define AGENT_EXPORT_PROFILE_STACKS_H

#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STACKS_FRAMES ((uint64_t)1 << 28)
#define STACKS_DEPTH  ((uint64_t)1 << 21)

struct runtime_ops;

struct stacks_type { /* a sample type */
	const char *type, *unit;
};

struct stacks_module { /* a mapping; modules[0] stands for no mapping and has empty texts */
	const char *path;
	const char *name; /* base name */
	const char *build_id;
	uint64_t start, limit, off;
	bool nameless; /* its symbols were not looked up */
	bool kernel;
	/* Its frames are of interpreted code (agent/runtime); NULL: they are not. Static. */
	const struct runtime_ops *runtime;
};

struct stacks_function {
	const char *name, *system_name; /* never "" */
	const char *file;		/* "": not known */
	int64_t start_line;
	bool placed; /* no symbol: the name is only a place, "[libfoo.so]" */
};

struct stacks_line {
	uint32_t function;
	int64_t line; /* 0: not known */
};

struct stacks_location {
	uint32_t module;
	uint64_t address;
	size_t first_line; /* in lines: innermost inlined call first, the function itself last */
	uint32_t n_lines;  /* ≥ 1 */
	bool folded;	   /* several functions have this very code (identical code folding) */
};

struct stacks_label {
	const char *key;
	const char *text; /* NULL: the label is a number */
	const char *unit; /* unit of the number; "": none */
	int64_t number;
};

/* What the caller of stacks_add knows of a sample, so that an equal one need not be looked for. */
enum stacks_equal {
	STACKS_EQUAL_ANY,  /* nothing */
	STACKS_EQUAL_SOME, /* none is equal of those that were added with STACKS_EQUAL_NONE */
	STACKS_EQUAL_NONE  /* none is equal of all that there are */
};

struct stacks_sample {
	size_t first_location; /* index in location_ids; innermost first */
	uint32_t n_locations;
	uint32_t n_labels;
	size_t first_label; /* index in label_ids */
	bool base;	    /* a sample of the base to compare with */
	uint8_t equal;	    /* enum stacks_equal; then NONE: it is not in by_sample yet */
	uint32_t n_frames;  /* with inlined calls; stacks_add counts them if it is 0 */
	uint64_t time_ns;   /* on the source's clock; only if stacks.timed */
};

struct stacks {
	struct stacks_type *types;
	size_t n_types;
	size_t default_type; /* the type to show by default */
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
	int64_t *values; /* n_types for each sample, in the order of samples */
	const char **comments;
	size_t n_comments;
	struct stacks_type period_type; /* "": not known */
	int64_t period;
	int64_t time_ns, duration_ns; /* time_ns since 1970; 0: not known */
	bool timed;		      /* samples have times and are not merged */
	bool compared;	   /* a base was loaded, which may have no samples (stacks_sample.base) */
	uint64_t n_frames; /* of all samples, with inlined calls */
	size_t n_apart;	   /* samples that are not in by_sample yet */

	struct strings texts; /* owns all texts */
	const char *empty;    /* the empty text in texts */
	size_t room_modules, room_functions, room_lines, room_locations, room_labels, room_samples;
	size_t room_location_ids, room_label_ids, room_values, room_comments;
	struct uw_hash_index by_module, by_function, by_location, by_label, by_sample;
};

int stacks_new(struct stacks **out);
void stacks_free(struct stacks *stacks); /* NULL is fine */

/*
 * Add a pprof file; path "-" is standard input. base: as the base to compare with. The sample types
 * must be those of the files before it, in any order. Errors are reported: -EBADMSG damaged, -EFBIG
 * more than our limits, -EINVAL other sample types or none. After an error, only stacks_free() may
 * be called.
 */
int stacks_load(struct stacks *stacks, const char *path, bool base);
/* Do the same with an open descriptor, which stays open. name is for messages. */
int stacks_load_fd(struct stacks *stacks, int fd, const char *name, bool base);

/* ---- reading it ----------------------------------------------------------------- */

struct stacks_frame {
	uint32_t function, module, location;
	int64_t line;	  /* 0: not known */
	uint64_t address; /* the location's, as in the profile */
	bool inlined;	  /* inlined into the frame that follows */
};

struct stacks_frames { /* all zero: empty; the caller frees frames */
	struct stacks_frame *frames;
	size_t n, room;
};

/*
 * Give all frames of a sample, innermost first, with a frame for each inlined call. The old
 * contents of *out are replaced. -ENOMEM.
 */
int stacks_unfold(const struct stacks *stacks, const struct stacks_sample *sample,
		  struct stacks_frames *out);

/* Return the value of a sample; both indices must be valid. */
int64_t stacks_value(const struct stacks *stacks, size_t sample, size_t type);
/* Return the index of the sample type of that name; SIZE_MAX: there is none. */
size_t stacks_find_type(const struct stacks *stacks, const char *type);
/* Return whether a type counts the samples of an event: "samples", or "X_samples" beside a type X. */
bool stacks_is_counter(const struct stacks *stacks, size_t type);
/*
 * Return the type that counts the samples of the event that a type is of: the last one up to it, for an event's types
 * follow its counter, or the only one there is. SIZE_MAX: there is none, or the type is of several events.
 */
size_t stacks_counter_of(const struct stacks *stacks, size_t type);
/* Return the sum of a type without the samples of the base; 0 for SIZE_MAX. */
int64_t stacks_total(const struct stacks *stacks, size_t type);
/* Return the sample's label with that key; NULL: it has none. */
const struct stacks_label *stacks_label(const struct stacks *stacks,
					const struct stacks_sample *sample, const char *key);
/* Return a label as text; "" if label is NULL. out is used for numbers. */
enum { STACKS_NUMBER = 32 };
const char *stacks_label_text(const struct stacks_label *label, char out[STACKS_NUMBER]);

/* Return a + b, limited to the range of int64_t: values of foreign files may be any numbers. */
static inline int64_t stacks_sum(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return a < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

/* Return -value, limited likewise: the value of a base's sample as it stands in files. */
static inline int64_t stacks_negated(int64_t value)
{
	return value == INT64_MIN ? INT64_MAX : -value;
}

/*
 * Leave out the frames of interpreters themselves, that is, of their files, from the samples that have frames of
 * what these interpret. -ENOMEM.
 */
int stacks_hide_interpreters(struct stacks *stacks);

/* Remove all samples for which keep returns false. */
void stacks_filter(struct stacks *stacks, bool (*keep)(void *ctx, size_t sample), void *ctx);

/* ---- filling it ------------------------------------------------------------------- */

/*
 * Return the profile's own sanitized copy of text (NULL: ""); equal texts are one pointer. NULL:
 * out of memory.
 */
const char *stacks_text(struct stacks *stacks, const char *text);
/* Do the same with a text that another call sanitized, or sanitize_text with these arguments. */
const char *stacks_sanitized_text(struct stacks *stacks, const char *text);

/*
 * Return the index of a module, function, location or label, which is added if it is new.
 * UW_HASH_NONE: out of memory. All texts must come from stacks_text() or be NULL.
 */
uint32_t stacks_module(struct stacks *stacks, const struct stacks_module *module);
uint32_t stacks_function(struct stacks *stacks, const struct stacks_function *function);
/* The function that stands for a location of this module without one: the module, as in other readers. */
uint32_t stacks_placed_function(struct stacks *stacks, uint32_t module);
/* location->first_line is ignored; its n_lines lines are given. */
uint32_t stacks_location(struct stacks *stacks, const struct stacks_location *location,
			 const struct stacks_line *lines);
uint32_t stacks_keep_label(struct stacks *stacks, const struct stacks_label *label);
int stacks_add_type(struct stacks *stacks, const char *type, const char *unit);
/*
 * Set index[i] to the index in the profile of types[i], for n sample types. A profile without types
 * takes them; otherwise they must be the profile's, in any order. -EINVAL: they are not. -ENOMEM.
 */
int stacks_take_types(struct stacks *stacks, const struct stacks_type *types, size_t n,
		      size_t *index);
/* Add a recording's time: the profile has the earliest start, the longest period and all the time. */
void stacks_add_time(struct stacks *stacks, int64_t time_ns, int64_t duration_ns, int64_t period);
/* Add a comment, unless the profile has it already. -ENOMEM. */
int stacks_add_comment(struct stacks *stacks, const char *text);

/*
 * Add a sample; its n_locations and n_labels give the number of ids. If an equal sample exists and
 * the profile is not timed, the values are added to that one; sample->equal may save the search. -EFBIG, -ENOMEM.
 */
int stacks_add(struct stacks *stacks, const struct stacks_sample *sample,
	       const uint32_t *location_ids, const uint32_t *label_ids, const int64_t *values);

/* Give a sample's innermost locations, a few at most; 0: there is no such sample, or it has none. */
static inline uint32_t stacks_innermost(const struct stacks *s, size_t sample, const uint32_t **ids)
{
	enum { FRAMES = 8 };
	uint32_t n = sample < s->n_samples ? s->samples[sample].n_locations : 0;

	if (n)
		*ids = s->location_ids + s->samples[sample].first_location;
	return n < FRAMES ? n : (uint32_t)FRAMES;
}

/*
 * Let the CPU fetch what the samples after this one need, one thing for each of them: what an array by location has, then,
 * if that is UINT32_MAX, the location, its first line, and the line's function. This is done for the innermost frames: the
 * others are mostly those of the sample before, when samples are in the order of their stacks.
 */
static inline void stacks_fetch(const struct stacks *s, size_t sample, const uint32_t *by_location)
{
	const uint32_t *ids = NULL;
	uint32_t n = stacks_innermost(s, sample + 4, &ids);

	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(&by_location[ids[i]]);
	n = stacks_innermost(s, sample + 3, &ids);
	for (uint32_t i = 0; i < n; i++)
		if (by_location[ids[i]] == UINT32_MAX)
			__builtin_prefetch(&s->locations[ids[i]]);
	n = stacks_innermost(s, sample + 2, &ids);
	for (uint32_t i = 0; i < n; i++)
		if (by_location[ids[i]] == UINT32_MAX)
			__builtin_prefetch(&s->lines[s->locations[ids[i]].first_line]);
	n = stacks_innermost(s, sample + 1, &ids);
	for (uint32_t i = 0; i < n; i++)
		if (by_location[ids[i]] == UINT32_MAX)
			__builtin_prefetch(
				&s->functions[s->lines[s->locations[ids[i]].first_line].function]);
}

#endif

/* agent/history/samples.h: packs, reads and merges the samples of windows (schema/window_blob.h). */
#ifndef AGENT_HISTORY_SAMPLES_H
#define AGENT_HISTORY_SAMPLES_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HISTORY_VALUES = 8 }; /* types that one sample can have values of */

enum history_level {
	HISTORY_TIMES,	  /* samples have times and threads */
	HISTORY_THREADS,  /* only threads */
	HISTORY_TOGETHER, /* neither */
	HISTORY_LEVELS
};

struct history_value {
	uint32_t type; /* id of a row in types */
	int64_t value;
};

struct history_sample {
	uint64_t labels, node; /* ids of rows; node 0: no frames */
	uint32_t pid, tid;
	uint64_t time_ns; /* since the window's start; for HISTORY_TIMES */
	uint32_t n_values;
	struct history_value values[HISTORY_VALUES];
};

struct history_bytes { /* all zero: empty; the caller frees bytes */
	uint8_t *bytes;
	size_t size, room;
};

void history_put_uleb(struct history_bytes *b, uint64_t value,
		      int *err); /* *err: -ENOMEM, else as it was */
void history_put_sleb(struct history_bytes *b, int64_t value, int *err);

/*
 * Pack samples, which are sorted and changed by this: equal ones are counted together. -ENOMEM.
 * Free out->bytes in each case.
 */
int samples_pack(struct history_sample *samples, size_t n, enum history_level level,
		 struct history_bytes *out);

struct history_group {
	const struct history_sample *sample; /* with the sum of the values; until the next group */
	struct uw_bytes times;		     /* for samples_time */
	uint64_t n_times, time;
};

/* What a group is packed after, and read after. */
struct samples_last {
	struct history_sample sample;
	/* Of each value, how many times the first one it is (schema/window_blob.h). */
	int64_t units[HISTORY_VALUES];
};

struct samples_reader {
	struct uw_bytes bytes;
	uint64_t version, level;
	struct samples_last last;
};

/* Begin to read a blob, which is borrowed. -EBADMSG, -ENOTSUP: another version. */
int samples_open(const void *blob, size_t size, struct samples_reader *out);
/* Read the next group. Return 1, 0 at the end, or -EBADMSG. */
int samples_next(struct samples_reader *r, struct history_group *out);
/* Give the next time of a group, in ns since the window's start. False: there are no more. */
bool samples_time(struct history_group *group, uint64_t *out);

struct samples_merging;

/*
 * Begin to do what samples_merge does, in pieces. The blobs are borrowed until samples_merging_free.
 * samples_merging_go returns 1 if there is more to do after that time of now_ns(), 0 or a negative code. The
 * result is borrowed from m.
 */
int samples_merging_new(const struct uw_bytes *blobs, size_t n, enum history_level level,
			struct samples_merging **out);
int samples_merging_go(struct samples_merging *m, uint64_t until_ns);
const struct history_bytes *samples_merged(const struct samples_merging *m);
void samples_merging_free(struct samples_merging *m); /* NULL is fine */

/*
 * Merge n blobs into one of a level that is THREADS or TOGETHER and not below theirs: samples with one
 * identity are counted together. -EBADMSG, -ENOTSUP, -ENOMEM. Free out->bytes in each case.
 */
int samples_merge(const struct uw_bytes *blobs, size_t n, enum history_level level,
		  struct history_bytes *out);

#endif

/*
 * agent/send/series.h: samples of a window as pprof files, one for each series: Pyroscope and Parca know a
 * profile by labels beside it.
 */
#ifndef AGENT_SEND_SERIES_H
#define AGENT_SEND_SERIES_H

#include "agent/hash.h"
#include "agent/send/target.h"

#include <stddef.h>
#include <stdint.h>

enum { SERIES_LABELS = 24, SERIES_NAME = 128 };

struct series_label {
	char name[SERIES_NAME];
	const char *value; /* of stacks, or of the series */
};

struct series {
	struct series_label labels[SERIES_LABELS]; /* sorted by name */
	size_t n_labels;
	char service[256];
	size_t *samples; /* numbers in stacks; owned */
	size_t n, room;
	uint32_t *key; /* of the labels that make it; owned */
	size_t n_key;
};

struct series_set {
	struct series *all;
	size_t n, room;
	struct uw_hash_index by_key;
};

/*
 * Divide the samples [from, to) of a window into series: by service, program, container, pod and unit, host,
 * and what the program says of itself. -ENOMEM. Call series_fini in each case.
 */
int series_make(const struct send_window *window, size_t from, size_t to, struct series_set *out);
void series_fini(struct series_set *set);
/* Return whether a label is among those that make a series of a window. */
bool series_is_made_by(const struct send_window *window, const char *label);

struct series_form {
	/* Which labels samples have; ctx is the window. */
	bool (*has_label)(const void *ctx, const char *key);
	uint32_t depth;	  /* frames of a stack, the outermost; 0: all */
	size_t bytes_max; /* before it is compressed */
};

/*
 * Write a series as a pprof file, compressed. Return 0 and its bytes, which the caller frees; -EFBIG: it is
 * larger than it may be.
 */
int series_pprof(const struct send_window *window, const struct series *series,
		 const struct series_form *form, uint8_t **bytes, size_t *size);

#endif

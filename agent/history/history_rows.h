/*
 * agent/history/history_rows.h: a cache of the rows of nodes, frames and functions.
 *
 * A node and a function never change, and the id of a deleted row is not used again: what was read once
 * stays true. Frames get better names; then all of them are read again. What a transaction wrote is no
 * longer true after it was rolled back, so a writer does not look up rows here while it adds some.
 */
#ifndef AGENT_HISTORY_HISTORY_ROWS_H
#define AGENT_HISTORY_HISTORY_ROWS_H

#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history;

/* The first member of each is 0 if there was no such row when it was looked for. */
struct history_node {
	int64_t frame;
	int64_t parent; /* 0: the frame is outermost; else below this node's id */
};

struct history_frame {
	const uint8_t *lines; /* as in the table */
	size_t n_lines;	      /* bytes */
	int64_t module;
	uint64_t address;
};

struct history_function {
	const char *name, *system_name, *file; /* in history.texts */
	int64_t start_line;
	bool placed;
};

/*
 * Rows that are read together. Those of one stack are often neighbours; with larger chunks, more is read
 * that nobody needs when an hour is read of a history of months.
 */
enum { ROWS_IN_CHUNK = 16 };

struct history_rows {	  /* all zero: empty */
	void *rows;	  /* chunk by chunk */
	int64_t *numbers; /* of each chunk: the id of its first row / ROWS_IN_CHUNK */
	size_t n_chunks, room_rows, room_numbers;
	struct uw_hash_index by_number;
	size_t last; /* chunk that was asked for last */
};

/*
 * Find a row, and read it if necessary together with those beside it. *index is where it is in the array
 * that history_nodes and so on return, until the cache is cleared. -EBADMSG: there is no such row, or a
 * node that leads nowhere.
 */
int history_node(struct history *h, int64_t id, size_t *index);
int history_frame(struct history *h, int64_t id, size_t *index);
int history_function(struct history *h, int64_t id, size_t *index);

/* Find a node as history_node, if its neighbours are cached; whether it is there itself is not known. */
bool history_node_place(struct history *h, int64_t id, size_t *index);

/* Borrowed until a row is looked up. */
const struct history_node *history_nodes(const struct history *h);
const struct history_frame *history_frames(const struct history *h);
const struct history_function *history_functions(const struct history *h);

/* Clear cached names if frames have other ones now. To be called in the transaction that looks them up. */
int history_check_names(struct history *h);
void history_clear_nodes(struct history *h);
void history_clear_names(struct history *h); /* frames and functions */

#endif

/*
 * agent/history/history_rows.h: a cache of nodes, frames and functions.
 *
 * A node and a function never change, and the id of a deleted row is not used again: what was read once
 * stays true. Frames get better names; then all of them are read again. What a transaction wrote is no
 * longer true after it was rolled back, so a writer does not look up rows here while it adds some.
 */
#ifndef AGENT_HISTORY_HISTORY_ROWS_H
#define AGENT_HISTORY_HISTORY_ROWS_H

#include "agent/hash.h"
#include "agent/history/history_nodes.h"
#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history;

struct history_frame {
	uint32_t past; /* size of lines + 1; 0: there was no such row when it was looked for */
	union {	       /* as in the table: few bytes are here, others in history.names */
		const uint8_t *lines;
		uint8_t few[sizeof(const uint8_t *)];
	};
	int64_t module;
	uint64_t address;
};

static inline struct uw_bytes history_frame_lines(const struct history_frame *f)
{
	return uw_bytes_of(f->past <= sizeof(f->few) + 1 ? f->few : f->lines, f->past - 1);
}

struct history_function {
	const char *name, *system_name, *file; /* in history.names; name is NULL: as above */
	int64_t start_line;
	bool placed;
};

/*
 * Functions that are read together. Those of one stack are often neighbours; with larger chunks,
 * more is read that nobody needs when an hour is read of a history of months. Of frames and nodes a page is read.
 */
enum { ROWS_IN_CHUNK = 64 };

struct history_rows {	  /* all zero: empty */
	void *rows;	  /* chunk by chunk */
	int64_t *numbers; /* of each chunk: (the id of its first row - 1) / how many it has */
	size_t n_chunks, room_rows, room_numbers;
	uint32_t *chunk_of; /* by number, up to a limit: the chunk + 1; 0: it is not cached */
	size_t n_chunk_of;
	struct uw_hash_index by_number; /* of those beyond */
	size_t last;			/* chunk that was asked for last */
};

/*
 * Find a row, and read it if necessary together with those beside it. *index is where it is in the array
 * that history_nodes and so on return, until the cache is cleared. -EBADMSG: there is no such row, or a
 * node that leads nowhere.
 */
int history_node(struct history *h, int64_t id, size_t *index);
int history_frame(struct history *h, int64_t id, size_t *index);
int history_function(struct history *h, int64_t id, size_t *index);

/* How many nodes before its look-up to fetch a node: each lies somewhere else in memory. */
enum { HISTORY_NODES_AHEAD = 16 };
/* Let the CPU fetch a node that is looked up soon; its page may not be cached. Return whether it is, and its index. */
bool history_node_fetch(struct history *h, int64_t id, size_t *index);

/* Find a row as these do, if its neighbours are cached; whether it is there itself is not known. */
bool history_node_place(struct history *h, int64_t id, size_t *index);
bool history_frame_place(struct history *h, int64_t id, size_t *index);
bool history_function_place(struct history *h, int64_t id, size_t *index);
/* Give the index of the first node of each cached page, in the order of their ids. The caller frees *out. -ENOMEM. */
int history_nodes_in_order(const struct history *h, size_t **out, size_t *n);
/* Return the id of a cached node. */
int64_t history_node_id(const struct history *h, size_t index);

/* Borrowed until a row is looked up. */
const struct history_node *history_nodes(const struct history *h);
const struct history_frame *history_frames(const struct history *h);
const struct history_function *history_functions(const struct history *h);

/* Clear cached names if frames have other ones now. To be called in the transaction that looks them up. */
int history_check_names(struct history *h);
/* Clear what is too large to be cached from one call to the next. */
void history_limit_rows(struct history *h);
void history_clear_nodes(struct history *h);
void history_clear_names(struct history *h); /* frames and functions */

#endif

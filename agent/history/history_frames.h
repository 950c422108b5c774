/*
 * agent/history/history_frames.h: packs frames (schema/frame_blob.h), finds them by their addresses, adds and renames them.
 */
#ifndef AGENT_HISTORY_HISTORY_FRAMES_H
#define AGENT_HISTORY_HISTORY_FRAMES_H

#include "base/bytes.h"
#include "proto/arena.h"
#include "schema/frame_blob.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history;
struct history_bytes;

/* What a frame is told by. variant: 0, or what tells frames at the same address apart (schema/history_1.sql). */
struct history_frame_key {
	int64_t module, variant;
	uint64_t address;
};

struct history_page_frame {
	bool there; /* false: there is no such frame */
	struct history_frame_key key;
	struct uw_bytes lines; /* borrowed */
};

/* Return the page of a frame. */
static inline int64_t history_frame_page(int64_t id)
{
	return (id - 1) / FRAMES_IN_PAGE;
}

/*
 * Unpack the frames of a page, and give how many there are, with deleted ones. Their lines are borrowed from the blob.
 * -EBADMSG: then *n is what is there before the damage. All others are not there.
 */
int history_unpack_frames(const void *blob, size_t size,
			  struct history_page_frame frames[FRAMES_IN_PAGE], size_t *n);
/* Pack the n frames of a page behind what *out has. -ENOMEM. */
int history_pack_frames(const struct history_page_frame *frames, size_t n,
			struct history_bytes *out);
/* Return the hash that a frame has in frame_index: 23 bits. */
int64_t history_frame_hash(const struct history_frame_key *key);

/* Frames that are found, added and renamed in one transaction. */
struct history_new_frames { /* all zero: empty */
	int64_t last;	    /* id of the last frame that there is */
	/* The page of the last frame, which is written at the end, or once it is full. */
	struct history_page_frame frames[FRAMES_IN_PAGE];
	size_t n;
	bool changed;
	struct arena lines; /* of these */
	/* Another page, which was read last; -1: none. */
	int64_t page;
	struct history_page_frame others[FRAMES_IN_PAGE];
	size_t n_others;
	struct history_bytes *blob; /* of it */
};

/* Begin, in a transaction. -EBADMSG: the database is damaged. Call history_frames_fini. */
int history_frames_begin(struct history *h, struct history_new_frames *n);
/* Find a frame. Return 1, 0 if there is none, or a negative code. *lines is borrowed until the next call. */
int history_frames_find(struct history *h, struct history_new_frames *n,
			const struct history_frame_key *key, int64_t *id, struct uw_bytes *lines);
/* Add a frame that is not there. Its lines are copied, as those of history_frames_rename are. */
int history_frames_add(struct history *h, struct history_new_frames *n,
		       const struct history_frame_key *key, struct uw_bytes lines, int64_t *id);
/* Give a frame that was found other lines. */
int history_frames_rename(struct history *h, struct history_new_frames *n, int64_t id,
			  struct uw_bytes lines);
/* Write what was added. */
int history_frames_end(struct history *h, struct history_new_frames *n);
void history_frames_fini(struct history_new_frames *n);

/* Write what a page has now: it is deleted if no frame is there. */
int history_write_frames(struct history *h, int64_t page, const struct history_page_frame *frames,
			 size_t n);
/* Delete what a frame is found by. */
int history_frames_unindex(struct history *h, int64_t id, const struct history_frame_key *key);

#endif

/*
 * unwinder/ehframe.h: which FDE covers an address.
 *
 * Through the binary search table of .eh_frame_hdr, in place, where there is
 * one; else, and where that is not complete or not true, through an index of our
 * own, made once from the section itself.  An FDE's own range has the last word,
 * so a table that lies costs time and not truth.
 */
#ifndef UNWINDER_EHFRAME_H
#define UNWINDER_EHFRAME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "unwinder/cfi.h"
#include "unwinder/pointer.h"

/* .eh_frame_hdr (LSB 5.0 §10.6.2). */
struct uw_hdr {
	struct uw_bytes entries; /* of the sorted table; empty: there is none */
	struct uw_bases bases;
	uint64_t n;
	uint8_t encoding;
	uint8_t width;	       /* of one number; an entry has two */
	bool common;	       /* signed 32-bit distances from the header, as linkers write them */
	uint64_t frames_vaddr; /* of .eh_frame, as the header says */
	bool has_frames;
};

/* Decodes the header; -ENOTSUP or -EBADMSG where it is of no use at all. */
int uw_hdr_init(struct uw_hdr *table, const uint8_t *data, size_t size, uint64_t vaddr);

struct uw_fde_key {
	uint64_t start;
	uint32_t size; /* longer ranges are clipped: no function has 4 GiB */
	uint32_t off;  /* of the FDE in its section */
};

struct uw_frames {
	struct uw_cfi cfi;
	struct uw_hdr table;
	/* The index, made under the lock when first needed; immutable once ready. */
	pthread_mutex_t lock;
	atomic_int ready;	 /* 0 not yet, 1 made, negative: the error */
	atomic_int whole;	 /* does the table name every FDE? 0 not asked yet, 1 yes, -1 no */
	struct uw_fde_key *keys; /* sorted by start, none empty; owned */
	size_t n_keys;
	int32_t *top; /* see uw_frames_top; owned */
	size_t n_top;
};

void uw_frames_init(struct uw_frames *frames); /* with no section: covers nothing */
void uw_frames_fini(struct uw_frames *frames); /* cfi's bytes stay their owner's */

/*
 * Of a large table every 64th start, side by side: in a process that nobody has walked before each
 * page that a look-up is the first to touch costs more than all it does there, and halving
 * a table of 600 KB touches eight.  To be made where the table was just read, before
 * anybody asks; without memory there is none.
 */
void uw_frames_top(struct uw_frames *frames);

/* 0 the FDE that covers lookup; -ENOENT none does; or how the one that should is damaged. */
int uw_frames_find(struct uw_frames *frames, uint64_t lookup, struct uw_fde *out);

/* All FDEs of the section by start, the damaged and empty ones left out; borrowed. */
int uw_frames_keys(struct uw_frames *frames, const struct uw_fde_key **keys, size_t *n);

/* The range around lookup without FDEs, and the FDE before it. */
struct uw_gap {
	uint64_t start, end; /* 0 and UINT64_MAX at the ends */
	bool has_before;
	uint32_t before; /* off of the FDE before */
};

/* -ENOENT where an FDE covers lookup; errors of making the index. */
int uw_frames_gap(struct uw_frames *frames, uint64_t lookup, struct uw_gap *out);

/*
 * Both at once: 0 and *fde, or -ENOENT and *gap; -EAGAIN where they are to be asked one after the
 * other.
 */
int uw_frames_look(struct uw_frames *frames, uint64_t lookup, struct uw_fde *fde,
		   struct uw_gap *gap);

#endif

/*
 * unwinder/cfi/ehframe.h: finds the FDE that covers an address.
 *
 * If the file has the binary search table of .eh_frame_hdr, it is searched in place. If it has
 * none, or if the table is incomplete or wrong, an index is used that is built once from the
 * section itself. The range in the FDE is decisive, so a wrong table costs time but does not
 * change the result.
 */
#ifndef UNWINDER_CFI_EHFRAME_H
#define UNWINDER_CFI_EHFRAME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "unwinder/cfi/cfi.h"
#include "unwinder/cfi/pointer.h"

/* A decoded .eh_frame_hdr (LSB 5.0 §10.6.2). */
struct uw_hdr {
	struct uw_bytes entries; /* the sorted table; empty: there is none */
	struct uw_bases bases;
	uint64_t n;
	uint8_t encoding;
	uint8_t width;	       /* bytes of one number; an entry has two numbers */
	bool common;	       /* signed 32-bit offsets from the header, as linkers write them */
	uint64_t frames_vaddr; /* address of .eh_frame according to the header */
	bool has_frames;
};

/*
 * Decode the header. -ENOTSUP or -EBADMSG if it cannot be used at all; a damaged table alone is
 * no error.
 */
int uw_hdr_init(struct uw_hdr *table, const uint8_t *data, size_t size, uint64_t vaddr);

/* An entry of the index. */
struct uw_fde_key {
	uint64_t start;
	uint32_t size; /* longer ranges are clipped: no function has 4 GiB */
	uint32_t off;  /* offset of the FDE in its section */
};

struct uw_frames {
	struct uw_cfi cfi;
	struct uw_hdr table;
	/* The index is built on first use, under the lock, and does not change afterwards. */
	pthread_mutex_t lock;
	atomic_int ready;	 /* 0: not built yet, 1: built, negative: the error */
	atomic_int whole;	 /* is every FDE in the table? 0: not checked yet, 1: yes, -1: no */
	struct uw_fde_key *keys; /* sorted by start, no range is empty; owned */
	size_t n_keys;
	int32_t *top; /* see uw_frames_top; owned */
	size_t n_top;
};

void uw_frames_init(struct uw_frames *frames); /* Without a section, no address is covered. */
void uw_frames_fini(struct uw_frames *frames); /* The section's bytes are not freed. */

/* Return how many bytes the index has now. Thread-safe. */
size_t uw_frames_memory(const struct uw_frames *frames);

/*
 * Copy every 64th start of a large table into an array. In a process that has not been walked
 * before, a page fault costs more than the rest of the lookup, and a binary search of a table
 * of 600 KB touches eight pages. Call this before any lookup, where the table has just been
 * read. If there is no memory, there is no array.
 */
void uw_frames_top(struct uw_frames *frames);

/*
 * Find the FDE that covers lookup. -ENOENT no FDE covers it; -EBADMSG, -ENOTSUP the FDE that
 * should cover it is damaged or not supported.
 */
int uw_frames_find(struct uw_frames *frames, uint64_t lookup, struct uw_fde *out);

/*
 * Return all FDEs of the section, sorted by start, without damaged and empty ones. The array is
 * borrowed.
 */
int uw_frames_keys(struct uw_frames *frames, const struct uw_fde_key **keys, size_t *n);

/* The range around an address that no FDE covers, and the FDE before it. */
struct uw_gap {
	uint64_t start, end; /* 0 and UINT64_MAX if there is no FDE before or behind */
	bool has_before;
	uint32_t before; /* offset of the FDE before the range */
};

/*
 * Find the gap around lookup. -ENOENT if an FDE covers lookup, -ENOMEM if the index cannot be
 * built.
 */
int uw_frames_gap(struct uw_frames *frames, uint64_t lookup, struct uw_gap *out);

/*
 * Look up FDE and gap in one search: return 0 and *fde, or -ENOENT and *gap. -EAGAIN: call
 * uw_frames_find and uw_frames_gap instead.
 */
int uw_frames_look(struct uw_frames *frames, uint64_t lookup, struct uw_fde *fde,
		   struct uw_gap *gap);

#endif

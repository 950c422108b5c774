/*
 * tests/peers/peer.h: is the interface of the walkers, which all get the same recording: the
 * library under test, libunwind, libdwfl of elfutils, and a minimal walk.
 */
#ifndef TESTS_PEERS_PEER_H
#define TESTS_PEERS_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "tests/peers/recording.h"

#define PEER_FRAMES 1024
#define PEER_MANY   16 /* most samples at once */

struct peer {
	const char *name;
	/* Open files and make what is made once. Only one life, unless it is SIZE_MAX. */
	int (*new)(struct recording *recording, size_t life, void **self);
	void (*free)(void *self);    /* NULL is fine */
	void (*prepare)(void *self); /* called before each sample, not timed; or NULL */
	void (*clear)(void *self);   /* empty the caches, but keep their memory; or NULL */
	/* Fill pcs (NULL: not wanted), at most PEER_FRAMES, innermost first. Return how many. */
	size_t (*walk)(void *self, const struct sample *sample, uint64_t *pcs);
	/* Walk several at once, at most PEER_MANY; fill n_pcs, too. NULL: only one by one. */
	void (*many)(void *self, const struct sample *samples, size_t n, uint64_t *pcs[],
		     size_t n_pcs[]);
};

extern const struct peer peer_table;  /* ours, tables ready */
extern const struct peer peer_file;   /* ours, rules from files that were read: no tables yet */
extern const struct peer peer_opened; /* ours, files opened: the walk reads what it needs */
extern const struct peer peer_many;   /* ours, tables ready, several samples at once */
extern const struct peer
	peer_again; /* ours, tables ready, callers taken over from the thread's last sample */
extern const struct peer peer_bare;	 /* ours, tables ready, nothing cached before each sample */
extern const struct peer peer_floor;	 /* a loop over a direct index */
extern const struct peer peer_libunwind; /* remote accessors, global cache */
extern const struct peer peer_libdwfl;	 /* dwfl_attach_state */

#endif

/* agent/live/alloc/alloc_search.h: finds the functions of an allocator in a file. */
#ifndef AGENT_LIVE_ALLOC_ALLOC_SEARCH_H
#define AGENT_LIVE_ALLOC_ALLOC_SEARCH_H

#include "agent/live/bpf/bpf.h"

#include <stdbool.h>
#include <stddef.h>

struct live_alloc_search { /* the search of one file; from malloc */
	int fd;		   /* owned; -1: nothing is found */
	struct live_alloc_place places[LIVE_PLACES_MAX];
	size_t n;
	bool mallocs, frees;
};

/*
 * Find the allocation functions of a file and the places for their probes. ctx is a struct
 * live_alloc_search. May run in a thread of its own (agent/errand.h): it changes nothing else.
 */
void live_alloc_search(void *ctx);
void live_alloc_search_free(void *ctx); /* ctx is a struct live_alloc_search */

#endif

/*
 * agent/fleet/addresses.h: takes addresses without names from the servers of a fleet, batch by batch, and gives them
 * names (docs/fleet.md, "Names").
 *
 * Names are found by a process that reads files of others and has no network. What the two say to each other is in
 * two files in memory:
 *
 *   asked    rows of RowBinary, by build-id and address: build_id, module (texts), frame, vaddr (64 bits)
 *   found    rows of: the number of an asked row, how many functions (LEB128), and of each, the innermost inlined call
 *            first: function, file (texts), line (32 bits)
 */
#ifndef AGENT_FLEET_ADDRESSES_H
#define AGENT_FLEET_ADDRESSES_H

#include "agent/fleet/block.h"
#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ADDRESSES_BATCH = 65536, ADDRESSES_INLINED = 1024, ADDRESSES_TEXT = 65536 };

struct address { /* an asked row; the texts have no NUL behind */
	struct uw_bytes build_id, module;
	uint64_t frame, vaddr;
};

/* Read an asked row. -EBADMSG. */
int address_take(struct uw_bytes *b, struct address *out);

struct addresses_choice {
	const char *build_id; /* all of this one, also with names; NULL: of any */
	bool all;	      /* also with names */
	uint64_t time_s;      /* since 1970, for the version of new names */
};

/* What the process with the network has: a batch of one server. All zero: before the first. */
struct addresses {
	char *asked; /* the rows; owned */
	size_t size;
	uint64_t n;		   /* of them */
	char *build_id;		   /* of the last row; owned */
	uint64_t vaddr;		   /* of the last row */
	bool there;		   /* the batch was not answered yet */
	uint64_t n_asked, n_named; /* of this server */
};

/* Write the query for the next batch, as a text that the caller frees. NULL: there is no memory. */
char *addresses_query(const struct addresses *a, const struct addresses_choice *choice);
/* Take the server's reply, which becomes a's. -EBADMSG: it is damaged. */
int addresses_take(struct addresses *a, char *reply, size_t size);
/*
 * Make rows of the table names of what was found. The block is empty before, and the caller's in each case. -EBADMSG:
 * found is damaged. Whatever it says, only rows that were asked get names.
 */
int addresses_name(struct addresses *a, const struct addresses_choice *choice, const void *found,
		   size_t size, struct block *out);
void addresses_fini(struct addresses *a);

#endif

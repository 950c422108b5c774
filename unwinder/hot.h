/*
 * unwinder/hot.h: the hot part of a walk, over frames that a rule word describes
 * (schema/table.h) and whose return address is on the stack.
 *
 * In front is a cache of words by (space, lookup).  Saved registers other than
 * the frame pointer are not read as frames go by: a log says where they are, and
 * they are read when another part of the walk, which may need them, takes over.
 */
#ifndef UNWINDER_HOT_H
#define UNWINDER_HOT_H

#include <stdint.h>

#include "unwinder/row.h"
#include "unwinder/unwinder.h"

#define UW_WORD_SLOTS 4096
#define UW_SPACE_TAGS 64
#define UW_LOG_MAX    128

struct uw_word_slot {
	uint64_t key; /* lookup; above its 48 bits the space's tag and whether it is exact */
	uint64_t word;
	const int16_t *ext;	    /* in the object's table, or in rows */
	struct uw_mapping *mapping; /* valid while the space has its id, as is ext */
};

/* A frame whose saved registers have not been read yet. */
struct uw_hot_frame {
	const int16_t *ext;
	uint64_t cfa, sp;
};

struct uw_hot {
	struct uw_word_slot slots[UW_WORD_SLOTS];
	struct uw_row rows[UW_WORD_SLOTS]; /* of objects without a table */
	struct {
		uint64_t space; /* its id; 0: empty */
		uint16_t tag;
	} tags[UW_SPACE_TAGS];
	uint16_t last_tag; /* all tags up to here have been given */
	struct uw_hot_frame log[UW_LOG_MAX];
};

struct uw_walking;
struct uw_found;

/*
 * Walks on while frames are of the common kind: machine->regs, w->exact and
 * *found say where from and then how far it came.  UW_GO_ON: the frame there,
 * not yet in out, is for somebody else; or why the walk ends.  Of machine->regs
 * then only pc, sp and fp are right until uw_hot_settle.
 */
int uw_hot_run(struct uw_walking *w, struct uw_stack *out, struct uw_found *found);

/* Reads the saved registers that are due. */
void uw_hot_settle(struct uw_walking *w);

#endif

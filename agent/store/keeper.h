/*
 * agent/store/keeper.h: gives objects their tables on a thread of its own, out
 * of the store or by compiling them, which the store then keeps.  Whoever walks
 * never waits for it.
 */
#ifndef AGENT_STORE_KEEPER_H
#define AGENT_STORE_KEEPER_H

#include "agent/store/store.h"

struct keeper;

int keeper_new(struct store *store, struct keeper **out); /* store: borrowed, or NULL */
/* From now on nothing is compiled: what is being compiled is dropped, at once.  Never waits. */
void keeper_stop(struct keeper *keeper);
/*
 * Does the same; NULL is fine.  False: the thread does not end, because a file does not answer;
 * then nothing is freed, and the store stays open.
 */
bool keeper_free(struct keeper *keeper);
/* Takes a reference of its own while it needs one, and never waits.  -ENOMEM. */
int keeper_add(struct keeper *keeper, struct uw_object *object, const struct store_file *file);
void keeper_wait(struct keeper *keeper); /* until nothing is left to do */

#endif

/*
 * agent/store/tables/keeper.h: a thread that gives objects their tables: from the store, or compiled and
 * then inserted into the store. Threads that walk never wait for it.
 */
#ifndef AGENT_STORE_TABLES_KEEPER_H
#define AGENT_STORE_TABLES_KEEPER_H

#include "agent/store/store.h"

struct keeper;

/* Start the thread. store is borrowed and may be NULL. */
int keeper_new(struct store *store, struct keeper **out);
/*
 * Stop compiling: a compilation that is running is given up soon, and waiting objects are dropped.
 * This call never waits.
 */
void keeper_stop(struct keeper *keeper);
/*
 * Stop compiling, end the thread and free everything; NULL is fine. Return false if the thread does
 * not end within 2 seconds, because a file does not answer. Then nothing is freed, and the store
 * must stay open.
 */
bool keeper_free(struct keeper *keeper);
/*
 * Queue an object. The thread holds a reference of its own while it needs one. Never waits.
 * -ENOMEM.
 */
int keeper_add(struct keeper *keeper, struct uw_object *object, const struct store_file *file);

#endif

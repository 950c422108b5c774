/*
 * agent/fleet/batch.h: windows of one host that go into the fleet's tables together (schema/fleet_1.sql).
 *
 * The windows of one slot of time are a batch: samples of one stack with the same labels become one row.
 * A row names stacks, labels and types by hashes, which are the same on every host, so that what a server has
 * already is not sent again: the ids of what was sent are remembered, as far as a limit allows, and those of stacks
 * until the next day. Which stacks a server has of other hosts, it can be asked (batch_leave_out).
 *
 * The same windows give the same rows in the same order. All rows of the table samples are one block, which the
 * server inserts as a whole or not at all.
 */
#ifndef AGENT_FLEET_BATCH_H
#define AGENT_FLEET_BATCH_H

#include "agent/fleet/block.h"
#include "agent/history/history.h"

#include <stdbool.h>
#include <stdint.h>

enum batch_table {
	/* In the order in which they are to be sent: what rows refer to first, the samples last. */
	BATCH_TYPES,
	BATCH_NAMES,
	BATCH_STACKS,
	BATCH_LABEL_SETS,
	BATCH_COUNTERS,
	BATCH_SAMPLES,
	BATCH_TABLES
};

struct batch;

struct batch_window {
	uint64_t id;		   /* of the row in the host's history */
	uint64_t start_ns, end_ns; /* since 1970 */
	const char *host;
	const struct stacks *stacks;
	const struct history_counter *counters;
	size_t n_counters;
};

/* Return the names and types of a table's columns, as block_init takes them. */
const char *const *batch_columns(enum batch_table table);

/* How good names are. Better ones, and newer ones that are as good, replace others. */
enum batch_quality { BATCH_UNNAMED, BATCH_SYMBOL, BATCH_LINES };
/* Return the version of a row of names that were found then. */
uint64_t batch_version(enum batch_quality quality, uint32_t time_s);

/*
 * Make an empty batch. slot_s: how long a slot is. no_names: frames whose build-id says where their names are found have
 * none. -ENOMEM.
 */
int batch_new(uint32_t slot_s, bool no_names, struct batch **out);
void batch_free(struct batch *batch); /* NULL is fine */

/* Return whether a window can be added: the batch is empty, or has the same slot and is not too large. */
bool batch_takes(const struct batch *batch, const struct batch_window *window);
/* Add a window. -ENOMEM; then only batch_drop and batch_free may be called. */
int batch_add(struct batch *batch, const struct batch_window *window);
/* When the last window that was added ended; 0: the batch is empty. */
uint64_t batch_until(const struct batch *batch);
/* The id of the last window, and when the slot begins, in seconds since 1970. */
uint64_t batch_last(const struct batch *batch);
uint32_t batch_time(const struct batch *batch);

/*
 * Give the rows for a table. They are borrowed until the next call for this batch; n_rows is 0 if there is nothing
 * to send. -ENOMEM.
 */
int batch_block(struct batch *batch, enum batch_table table, const struct block **out);
/* Return the ids of the stacks whose rows are to be sent, which are borrowed until the next call for this batch. */
const uint64_t *batch_stacks(const struct batch *batch, size_t *n);
/*
 * The server has stacks with these ids, each 8 bytes, the lowest first: leave their rows out. -ENOMEM: then they are still
 * there.
 */
int batch_leave_out(struct batch *batch, const void *ids, size_t size);
/*
 * The server has a batch of the slot that begins then. Only a batch of an older slot, or of the same one, needs a number
 * of its own: the clock was set back, or the slot had too much for one batch.
 */
void batch_server_has(struct batch *batch, uint32_t time_s);
/* The server has all rows: remember what was sent, and empty the batch. */
void batch_sent(struct batch *batch);
/* Empty the batch; it is not known what the server has of it. */
void batch_drop(struct batch *batch);
/* Forget what was sent: the server may be another, or have lost its tables. */
void batch_forget(struct batch *batch);

/* Return the id of a sample type: both hosts and questions derive it. */
uint32_t batch_type_id(const char *type, const char *unit);

#endif

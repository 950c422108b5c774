/*
 * agent/runtime/memory.h: the memory of a process as runtimes see it.
 *
 * runtime_read reads what was captured with the sample. runtime_piece gives memory that leads to names: it
 * changes seldom and is the same for many samples, so it is read once, soon after the first sample that needs
 * it, and stored. Each piece is stored by its first address. What was read while recording goes into the
 * capture file (EVENT_MEMORY), before the sample, and is stored again when the file is read: so a decoder that
 * asks for the same pieces gets the same bytes there.
 */
#ifndef AGENT_RUNTIME_MEMORY_H
#define AGENT_RUNTIME_MEMORY_H

#include "agent/event.h"
#include "agent/opener/opener.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct runtime_memory;

#define RUNTIME_PIECE_MAX OPENER_PART_MAX /* bytes of a piece */

/*
 * Reads pieces of the process's memory as they are now: 0, and each has its own err; or -EFAULT, or -ETIME: not now.
 * NULL: there is no process.
 */
typedef int (*runtime_live_fn)(void *ctx, struct opener_part *parts, size_t n);
/* Read one piece: 0, -EFAULT or -ETIME. */
int runtime_read_live(runtime_live_fn live, void *ctx, uint64_t addr, void *out, size_t size);

int runtime_memory_new(struct runtime_memory **out); /* -ENOMEM */
void runtime_memory_free(struct runtime_memory *m);  /* NULL is fine */

/* Set the sample whose bytes runtime_read gives; borrowed until the next call. */
void runtime_memory_begin(struct runtime_memory *m, const struct event_sample *sample,
			  runtime_live_fn live, void *ctx);

/* Read captured bytes: all of [addr, addr + size) or nothing. */
bool runtime_read(struct runtime_memory *m, uint64_t addr, void *out, size_t size);
bool runtime_read_u64(struct runtime_memory *m, uint64_t addr, uint64_t *out);

/*
 * Return size bytes from addr on, valid until the next call of runtime_piece, runtime_forget or
 * runtime_memory_store. NULL: they cannot be read, or not now; runtime_is_late says which.
 */
const uint8_t *runtime_piece(struct runtime_memory *m, uint64_t addr, size_t size);
/*
 * Read pieces from the living process again, all at once, which takes about as long as one: what runtime_piece gives for
 * them then is not older than this call. A piece that cannot be read is forgotten, and failed. Without a process nothing
 * happens.
 */
struct runtime_want {
	uint64_t addr;
	size_t size;
	bool failed;
};
#define RUNTIME_WANTS_MAX 256
void runtime_renew(struct runtime_memory *m, struct runtime_want *wants, size_t n);
/* Return whether a piece was not read because there is no time for it now: a later sample may get it. */
bool runtime_is_late(const struct runtime_memory *m);
/*
 * Store a piece that was not read from memory, but which a capture file is to have: a fact about the process, under
 * an address below RUNTIME_NOTES_END, where no process has memory; or what its file has at this address.
 */
#define RUNTIME_NOTES_END 4096
void runtime_note(struct runtime_memory *m, uint64_t addr, const void *bytes, size_t size);
/* Return the size of a note, 0: there is none. */
size_t runtime_noted(const struct runtime_memory *m, uint64_t addr);
/* Forget a piece: its bytes are out of date, and it is to be read again. */
void runtime_forget(struct runtime_memory *m, uint64_t addr);

/* Store the pieces of an EVENT_MEMORY. Damage ends it. -ENOMEM. */
int runtime_memory_store(struct runtime_memory *m, const struct event_memory *event);
/* Return what was read since the last call, for EVENT_MEMORY; borrowed until the next piece. 0: nothing. */
size_t runtime_memory_news(struct runtime_memory *m, const void **bytes);

#endif

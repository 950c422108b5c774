/*
 * agent/process/calls.h: what frames of a runtime's code execute (schema/calls_blob.h): writing it down, and
 * a process's table of all that was written down.
 */
#ifndef AGENT_PROCESS_CALLS_H
#define AGENT_PROCESS_CALLS_H

#include "agent/hash.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call {
	const char *function;	   /* any bytes, as in the process */
	const char *file;	   /* NULL: not known */
	uint32_t line, start_line; /* 0: not known */
};

/* ---- writing ---- */

struct calls_writer { /* all zero: empty */
	struct calls_frame *frames;
	struct calls_call *calls;
	char *texts;
	size_t n_frames, room_frames, n_calls, room_calls, n_texts, room_texts;
	uint8_t *bytes; /* of the last calls_finish */
	size_t room_bytes;
};

/* How the interpreter's frames are known; see struct calls_header. */
struct calls_interpreter {
	uint16_t runtime;
	int16_t slots[2], reg;
	uint64_t start, end;
};

void calls_writer_fini(struct calls_writer *writer);
size_t calls_writer_memory(const struct calls_writer *writer); /* bytes */
void calls_begin(struct calls_writer *writer);
/*
 * Begin a frame; calls_add then adds its calls, the innermost first. -ENOMEM; -E2BIG: there are too many.
 * calls_add drops the frame then.
 */
int calls_frame(struct calls_writer *writer, uint64_t key0, uint64_t key1);
int calls_add(struct calls_writer *writer, const struct call *call);
/* Drop the frame that was begun last. */
void calls_drop(struct calls_writer *writer);
/* Add a frame whose return address was replaced by pc, and is saved this many bytes above the stack pointer. Likewise. */
int calls_saved(struct calls_writer *writer, uint64_t pc, uint32_t saved);
/* Return the bytes, borrowed until the next call; NULL: no memory, or no frame was written and forget not set. */
const void *calls_finish(struct calls_writer *writer, const struct calls_interpreter *interpreter,
			 bool forget, size_t *size);

/* ---- reading ---- */

/* What is known of a sample: its thread's registers and a part of its stack, from low addresses on. */
struct calls_sample {
	const struct uw_regs *regs;
	uint64_t addr;
	const uint8_t *stack;
	size_t size;
	uint64_t now;		/* CLOCK_MONOTONIC */
	struct uw_space *space; /* of its process; NULL: not known */
};

/* A frame that a reader has looked at. */
struct calls_seen_frame {
	uint64_t key[2];   /* as in schema/calls_blob.h */
	uint64_t again_ns; /* it is not looked at again before this time */
	uint64_t pause_ns; /* for the reader */
	uint32_t serial;   /* likewise */
	uint32_t saved;	   /* likewise */
	bool known;	   /* likewise */
};

struct calls_seen { /* all zero: none */
	struct calls_seen_frame *all;
	size_t n, room;
	struct uw_hash_index by_key;
	bool forgot; /* what was written down before is void; for calls_finish */
};

void calls_seen_fini(struct calls_seen *seen);
size_t calls_seen_memory(const struct calls_seen *seen); /* bytes */
/* If there are more than max frames, forget all. */
void calls_seen_bound(struct calls_seen *seen, size_t max);
/* Return what is remembered of a frame; NULL: nothing. Borrowed until the next calls_seen_of. */
struct calls_seen_frame *calls_seen_find(struct calls_seen *seen, const uint64_t key[2]);
/* Likewise, or a new entry; NULL: no memory. */
struct calls_seen_frame *calls_seen_of(struct calls_seen *seen, const uint64_t key[2]);

/* ---- a process's table ---- */

struct calls;

/* Return whether these bytes begin as a blob of calls, not as one of schema/dynamic_blob.h. */
bool calls_are(const void *bytes, size_t size);
/*
 * Add what the bytes say to the table; *calls is made if it is NULL. What they say of a frame replaces what is
 * known of it. Anything may be in the bytes: -EBADMSG, -ENOTSUP (of another version); -ENOMEM.
 */
int calls_take(struct calls **calls, const void *bytes, size_t size);
size_t calls_memory(const struct calls *calls); /* about what it takes, in bytes; NULL: 0 */
void calls_free(struct calls *calls);		/* NULL is fine */

const struct calls_interpreter *calls_interpreter_of(const struct calls *calls);

/*
 * Return how many calls a frame of this key has, 0: it is not known. The first max of them, the innermost
 * first, are put into out; the texts are borrowed until calls_take.
 */
size_t calls_find(const struct calls *calls, uint64_t key0, uint64_t key1, struct call *out,
		  size_t max);

/*
 * The same for a frame of a walk of this thread, whose registers are those of the innermost frame
 * and whose memory is read.
 */
size_t calls_of_frame(const struct calls *calls, const struct uw_frame *frame,
		      const struct uw_thread *thread, bool innermost, struct call *out, size_t max);

#endif

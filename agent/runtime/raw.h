/*
 * agent/runtime/raw.h: what the readers of PHP's, Ruby's and Perl's stacks share.
 *
 * Such a reader finds raw frames in the captured bytes of a sample: numbers that only this reader
 * understands. Later it finds the name of a frame in memory that leads to names (runtime_piece). Everything
 * it reads is controlled by the process: links may be cycles, addresses and counts may be anything.
 */
#ifndef AGENT_RUNTIME_RAW_H
#define AGENT_RUNTIME_RAW_H

#include "agent/runtime/memory.h"
#include "schema/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A frame before it has a name. Two frames of a process with the same three numbers have the same name, as
 * long as the process keeps the code.
 */
struct raw_frame {
	uint64_t code;	/* the description of the function that it runs */
	uint64_t at;	/* where in it */
	uint64_t owner; /* what else names it; 0: nothing */
	/*
	 * An address on the native stack, between what runs this frame and what runs its caller. 0: there may
	 * be none. It says the same as entry where only the native stack shows it.
	 */
	uint64_t within;
	bool entry;	  /* the runtime's native evaluation loop was entered for this frame */
	bool nameless;	  /* there is nothing to show: the frame only marks an entry */
	bool short_lived; /* other code may soon have the same numbers: the name is not stored */
};

/* The frames of a thread, the innermost first. */
struct raw_stack {
	struct raw_frame *frames; /* max of them, lent by the caller */
	size_t n, max;
};

/* Add a frame. False if there is no room. */
bool raw_add(struct raw_stack *stack, const struct raw_frame *frame);

/* Finds a cycle in a chain of addresses (Brent's algorithm). All zero at first. */
struct raw_chain {
	uint64_t mark;
	size_t steps, next;
};

/* Return false if the chain comes to an address for the second time. */
bool raw_chain_goes_on(struct raw_chain *chain, uint64_t addr);

/* Set a plan to these operations, PLAN_OPS_MAX at most. */
void raw_plan(struct plan *plan, const struct plan_op *ops, size_t n);

/*
 * Reads memory that leads to the names of one sample. What is read is new, not what was stored for the sample
 * before: other code, or another text, may be there now. It is read in blocks, because another process does it:
 * what belongs together mostly lies together.
 */
#define RAW_BLOCK      512u
#define RAW_BLOCKS_MAX 256u /* of a sample; beyond them every read fails */

struct raw_reader {
	struct runtime_memory *memory;
	uint64_t blocks[RAW_BLOCKS_MAX]; /* addresses of those that were read */
	size_t n;
	bool is_full; /* a read failed because there were RAW_BLOCKS_MAX */
};

void raw_reader_begin(struct raw_reader *reader, struct runtime_memory *memory);

/* Read size bytes, or a little-endian number of size bytes, at most 8. *out is untouched on failure. */
bool raw_get(struct raw_reader *reader, uint64_t addr, void *out, size_t size);
bool raw_get_number(struct raw_reader *reader, uint64_t addr, unsigned int size, uint64_t *out);

/* The most bytes of a part of a text. A longer part is cut. */
#define RAW_PART_MAX 1024

/* A text that is put together of parts. It is cut where there is no room. */
struct raw_text {
	char bytes[4 * RAW_PART_MAX];
	size_t n; /* without the terminating NUL, which is always there */
};

void raw_text_clear(struct raw_text *text);
void raw_text_add(struct raw_text *text, const void *bytes, size_t size);
void raw_text_word(struct raw_text *text, const char *word);
/* Add size bytes of memory. False: they cannot be read. */
bool raw_text_get(struct raw_text *text, struct raw_reader *reader, uint64_t addr, uint64_t size);
/* Add a text that ends with NUL. What can be read of it is enough. False: nothing can. */
bool raw_text_string(struct raw_text *text, struct raw_reader *reader, uint64_t addr);

/* What names a frame. */
struct raw_name {
	struct raw_text function, file; /* file: empty if it is not known */
	uint32_t line, start_line;	/* 0: not known; start_line is the function's */
};

#endif

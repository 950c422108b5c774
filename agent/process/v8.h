/*
 * agent/process/v8.h: reads which JavaScript functions V8's frames run, from the memory of a process, while it
 * exists. Only for x86_64, and without pointer compression, as node is.
 *
 * V8 exports its layout for debuggers: numbers whose names begin with v8dbg_ (tools/gen-postmortem-metadata.py).
 */
#ifndef AGENT_PROCESS_V8_H
#define AGENT_PROCESS_V8_H

#include "agent/process/calls.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct v8;

enum v8_value {
	V8_TAGGED_SIZE,
	V8_FP_CONTEXT, /* offsets from a frame's rbp */
	V8_FP_FUNCTION,
	V8_FP_BYTECODE,
	V8_FUNCTION_CONTEXT, /* offsets in objects */
	V8_FUNCTION_SHARED,
	V8_SHARED_NAME,
	V8_SHARED_DATA,
	V8_SHARED_SCRIPT,
	V8_SCRIPT_NAME,
	V8_SCRIPT_SOURCE,
	V8_MAP_TYPE,
	V8_STRING_LENGTH,
	V8_STRING_CHARS,
	V8_CONS_FIRST,
	V8_CONS_SECOND,
	V8_THIN_ACTUAL,
	V8_SLICED_PARENT,
	V8_SLICED_OFFSET,
	V8_EXTERNAL_RESOURCE,
	V8_TYPE_SHARED, /* types of objects */
	V8_TYPE_SCOPE,
	V8_TYPE_SCRIPT,
	V8_TYPE_BYTECODE,
	V8_TYPE_NO_STRING, /* the first one */
	V8_SCOPE_LOCALS,   /* indexes in a ScopeInfo */
	V8_SCOPE_FIRST,
	V8_CONTEXT_PREVIOUS, /* an index in a Context */
	V8_NEEDED,
	/* From V8 11 on (node 20): what leads from code to its function. */
	V8_TYPE_STREAM = V8_NEEDED,
	V8_TYPE_CODE,
	V8_CODE_DEOPT,
	V8_ARRAY_DATA,
	V8_DEOPT_SHARED,  /* an index */
	V8_CODE_BYTECODE, /* of the baseline compiler's code */
	V8_STREAMS,
	/* Which version it is, and where code and bytecode begin in their objects. */
	V8_MAJOR = V8_STREAMS,
	V8_MINOR,
	V8_STREAM_START,
	V8_CODE_START, /* before V8 11 */
	V8_BYTECODE_DATA,
	V8_TYPE_BYTES,
	V8_VALUES
};

/* The names to look up with uw_object_exports. */
extern const char *const v8_exports[V8_VALUES];

/*
 * Create a reader. exports: run-time addresses of the numbers; 0: not exported. -ENOTSUP: one that is needed is
 * not exported. -ENOMEM.
 */
int v8_new(const uint64_t exports[V8_VALUES], struct v8 **out);
void v8_free(struct v8 *v8);		  /* NULL is fine */
size_t v8_memory_of(const struct v8 *v8); /* what it takes, in bytes */
bool v8_is_of(const struct v8 *v8, const uint64_t exports[V8_VALUES]);

/*
 * Find the frames of JavaScript functions on a sample's stack, and read the names of those that were not seen
 * before. Objects can move between the sample and the reading, so what is read is checked: types by the word
 * at the object's beginning, and that the function has the bytecode which the frame has. Optimized code leads to
 * its function, and does not move. Where versions before 11 do not tell so much, the frame's function must have the
 * frame's context, or one around it.
 *
 * A frame of interpreted code, or of the baseline compiler's, has the key { its bytecode, V8_KEY_BYTECODE }; one
 * of optimized code { its pc, V8_KEY_PC }, or V8_KEY_INTERRUPTED if the pc is no return address, and all calls that were inlined there. Where V8 has a function's positions in its
 * source, a frame of interpreted code has the key { its bytecode, v8_key_at(word) }, too, with its line; word is in the slot
 * below that of the bytecode. There, a frame of the baseline compiler's code has the key { its pc, V8_KEY_BASELINE }.
 * A frame of interpreted code that called no other function of JavaScript has the key { its bytecode, v8_key_here(word, pc) }, if the
 * pc is in V8's code for the operation at that place: the frame's, or that of the frame which it called. Word is v8_place_now if the
 * thread was interrupted there, because the slot has an older place. Results as of hotspot_calls (agent/process/hotspot.h).
 */
enum {
	V8_KEY_BYTECODE = 1,
	V8_KEY_PC = 2,
	V8_KEY_BASELINE = 3,
	V8_KEY_HERE = 4,
	V8_KEY_INTERRUPTED = 5,
	V8_KEY_KIND = 0xff,
	V8_KEY_PLACE = 8 /* from this bit on */
};

/* Return the second word of the key for a place in bytecode, a small integer; 0: the word is none. */
static inline uint64_t v8_key_at(uint64_t word)
{
	return !word || word & UINT32_MAX || word >> 63
		       ? 0
		       : V8_KEY_BYTECODE | word >> 32 << V8_KEY_PLACE;
}

/*
 * Return the second word of the key for a place at which interpreted code is itself, at a pc in V8's code for an operation
 * of bytecode; 0: the word is no place.
 */
static inline uint64_t v8_key_here(uint64_t word, uint64_t pc)
{
	uint64_t key = v8_key_at(word);

	return key ? (key ^ V8_KEY_BYTECODE ^ V8_KEY_HERE) + (pc << 40) : 0;
}

/*
 * Return the place of the innermost frame as a word, if the registers have it: the code for an operation has the bytecode and
 * the place in them, until it needs the registers for something else. 0: they have another bytecode.
 */
static inline uint64_t v8_place_now(const struct uw_regs *regs, uint64_t bytecode)
{
	uint64_t place = regs->value[UW_X86_64_R9];

	return regs->value[UW_X86_64_R12] == bytecode && place <= INT32_MAX ? place << 32 : 0;
}

int v8_calls(struct v8 *v8, uw_read_fn read, void *ctx, const struct calls_sample *sample,
	     const void **bytes, size_t *size);

#endif

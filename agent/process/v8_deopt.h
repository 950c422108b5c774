/*
 * agent/process/v8_deopt.h: reads which functions V8's compiled code runs at an address, and where in a source a
 * function is: from the data that V8 has for leaving optimized code, and from its tables of places and positions.
 *
 * Each call in optimized code, and each check that can fail, has a translation: a list of the frames that interpreted
 * code would have there, the outermost first, with the place of each in its bytecode (src/deoptimizer/). V8 makes
 * its own stack traces of it. The layouts differ between versions and are not exported, so they are known for those
 * in v8_deopt_versions only.
 */
#ifndef AGENT_PROCESS_V8_DEOPT_H
#define AGENT_PROCESS_V8_DEOPT_H

#include "agent/process/hotspot_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tagged word is the address of an object plus 1, or a small integer in its high half. */
static inline bool v8_is_object(uint64_t word)
{
	return (word & 3) == 1 && word > 0x10000 && word >> 47 == 0;
}

#define V8_INLINED_MAX 64 /* calls of one frame of optimized code */

struct v8_deopt_version {
	int32_t major, minor;
	/* Operations of a translation, by their numbers: how many operands each has, as a digit. */
	const char *operands;
	int8_t begin[2];   /* those that begin a translation */
	int8_t frame[2];   /* those that begin a frame of interpreted code */
	int8_t builtin[2]; /* a frame of one of V8's own functions, such as map */
	int8_t other[4];   /* a frame of another kind */
	int8_t again; /* the same as before so many times, or -1: operations are signed numbers */
	/*
	 * What follows the byte of each operation of bytecode. '0' and more: so many operands, which take two or four
	 * bytes behind a prefix; 'a' and more: likewise, and one byte more; 'i' and more: two bytes more.
	 */
	const char *bytecodes;
	/* Offsets in Code: DeoptimizationData, bytes of instructions, the places of baseline code or positions of optimized code. */
	int32_t code_deopt, code_size, code_places;
	int32_t bytecode_positions; /* offset in BytecodeArray */
	int32_t array_data;	    /* offset of the elements */
	int32_t deopt_shared;	    /* index in DeoptimizationData */
};

/* Return what is known of a version of V8; NULL: nothing. */
const struct v8_deopt_version *v8_deopt_version_of(int32_t major, int32_t minor);

/* A function that optimized code runs. */
struct v8_inlined {
	uint64_t shared; /* its SharedFunctionInfo: a tagged word that was not looked at */
	int32_t offset;	 /* in its bytecode; -1: it is being entered */
	bool is_builtin; /* one of V8's own, without bytecode */
	/* By its positions instead of its bytecode: where in its script, plus 1; 0: not known. */
	bool has_position;
	uint32_t position;
};

/*
 * Find the functions that optimized code runs at an offset from its first instruction: a return address. data: the
 * tagged DeoptimizationData of the code. Return how many there are, the outermost first; 0: it is not known.
 */
size_t v8_deopt_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
		     uint64_t data, uint64_t off, struct v8_inlined out[V8_INLINED_MAX]);

/*
 * Find the functions that optimized code runs at any offset from its first instruction. positions: the code's tagged ByteArray
 * of positions. V8 has those of all instructions if something may profile the program, and node always says so; positions of calls
 * alone would be of no use here. Return what v8_deopt_find does.
 */
size_t v8_positions_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
			 uint64_t data, uint64_t positions, uint64_t off,
			 struct v8_inlined out[V8_INLINED_MAX]);

/*
 * Find the place in bytecode of an offset in the baseline compiler's code. table: the code's tagged ByteArray of places;
 * first: where in a BytecodeArray the bytecode begins. False: it is not known.
 */
bool v8_baseline_find(struct hotspot_memory *m, const struct v8_deopt_version *version,
		      uint64_t table, uint64_t bytecode, int32_t first, uint64_t off, int32_t *out);

/* An operation of bytecode. */
struct v8_operation {
	int32_t place;
	int32_t number; /* its byte; 256 more with a prefix for operands of two bytes, 512 for those of four. -1: none */
};

/*
 * Find the operation that begins at a place in bytecode, and the one that is before it there. The place may be that of a prefix
 * or of the operation behind it. False: none begins there.
 */
bool v8_operations_at(struct hotspot_memory *m, const struct v8_deopt_version *version,
		      uint64_t bytecode, int32_t first, int32_t place, struct v8_operation *at,
		      struct v8_operation *before);

/*
 * Look up where in its script's source a place in bytecode comes from. table: a tagged ByteArray with positions. False:
 * it is not known.
 */
bool v8_position_find(struct hotspot_memory *m, uint64_t table, int32_t offset, uint32_t *out);

#endif

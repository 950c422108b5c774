/*
 * schema/calls_blob.h: what frames of a runtime's code execute: the methods and lines, as they were read
 * from the process's memory when the frames were first sampled. The bytes are the same in memory and in a
 * capture.
 *
 * All numbers are little-endian, and the bytes are read in place: a header, n_frames frames, n_calls calls,
 * then texts. The last byte is 0, so every text ends.
 */
#ifndef SCHEMA_CALLS_BLOB_H
#define SCHEMA_CALLS_BLOB_H

#include <linux/types.h>

#define CALLS_MAGIC    0x4c43574fu /* "OWCL"; dynamic_blob.h has another one in its place */
#define CALLS_VERSION  1
#define CALLS_SIZE_MAX (1u << 20)

enum {
	CALLS_FORGET = 1, /* what was known of the process's frames before is void */
};

enum { CALLS_JVM = 1, CALLS_V8 = 2 };

/* A register number or a slot that there is not. */
#define CALLS_NO_REG (-1)

struct calls_header {
	__u32 magic;
	__u16 version;
	__u16 runtime; /* CALLS_JVM, … */
	__u64 size;    /* of the whole */
	__u32 n_frames, n_calls;
	__u32 flags;
	/*
	 * Of the Java virtual machine, interpreted code: a frame whose pc is in [start, end) is known by two words of its memory, which are
	 * slots[0] and slots[1] words from the address in the frame pointer (that is, two words below the CFA).
	 * In the innermost frame, the register with this DWARF number may have the second word instead. Of V8: the
	 * slots of a frame with its function and its bytecode.
	 */
	__s16 slots[2];
	__s16 reg;
	__s16 zero;
	__u64 start, end;
	__u64 spare;
};

/*
 * A frame of Java's interpreted code has its two words as key. One of compiled code has its pc, and 1 if it was
 * interrupted there, 0 if the pc is a return address. A frame of V8's has { bytecode, 1 }, or { pc, 2 } in optimized
 * code, { pc, 5 } if it was interrupted there; where the line in its bytecode is known, there is { bytecode, 1 | place << 8 }, too: place is the high half of the word
 * below that of the bytecode; of the baseline compiler's code there is { pc, 3 }, too. Where interpreted code called no other function of
 * JavaScript, there is { bytecode, 4 | place << 8 | pc << 40 }: the pc is in V8's code for the operation at that place.
 *
 * If n is 0, the pc has taken the place of a return address, which the runtime keeps `first` bytes above the frame's
 * stack pointer: Java's compiled code is left by this way when it is no longer valid (deoptimization).
 */
struct calls_frame {
	__u64 key[2];
	__u32 first, n; /* of its calls, the innermost first */
};

/* Limit of where a return address is saved, in bytes above the stack pointer. */
#define CALLS_SAVED_MAX (1u << 19)

struct calls_call {
	__u32 function, file;	/* offsets in the whole; file 0: not known */
	__u32 line, start_line; /* 0: not known */
};

_Static_assert(sizeof(struct calls_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct calls_header, slots) == 28, "slots");
_Static_assert(__builtin_offsetof(struct calls_header, start) == 40, "start");
_Static_assert(sizeof(struct calls_frame) == 24, "frame");
_Static_assert(sizeof(struct calls_call) == 16, "call");

#endif

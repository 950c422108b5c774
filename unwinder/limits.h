/*
 * unwinder/limits.h: bounds on the work and the memory that one input can cost.
 *
 * Files, stacks and recordings can be made so that reading them takes for ever. What is beyond a
 * limit is refused and counted. The defaults are above what real files need.
 */
#ifndef UNWINDER_LIMITS_H
#define UNWINDER_LIMITS_H

#include <stdint.h>

/* The limits in force, or how often each was reached. The comments say the default. */
struct uw_limits {
	uint64_t operations;	/* of one DWARF expression: 256; more is UW_STOP_LIMIT */
	uint64_t instructions;	/* of call frame information for one look-up: 65,536; likewise */
	uint64_t functions;	/* of one compiled table or index: 4 Mi; more: the file gets none */
	uint64_t rows;		/* of one compiled table: 32 Mi; likewise */
	uint64_t rules;		/* different rules of one compiled table: 1 Mi; likewise */
	uint64_t section_bytes; /* of one section of unwind information: 256 MiB */
	/* Sections in memory that threads with a stop function hold (uw_unpack_unless): 384 MiB. */
	uint64_t held_bytes;
	uint64_t debug_bytes; /* unpacked, of one section of debug information: 8 GiB */
	uint64_t symbols;     /* of one file: 16 Mi; more: none is used */
	uint64_t lines;	      /* of the line tables read for one file: 16 Mi */
};

/* Fill in the limits in force. Thread-safe if uw_limits_set is called as it says. */
void uw_limits_get(struct uw_limits *out);

/*
 * Set all limits. Call this before the first other function of the library, and before there are
 * threads. Return 0, or -EINVAL if a limit is 0 or larger than uw_limits_most says.
 */
int uw_limits_set(const struct uw_limits *limits);

/* Fill in the largest values that can be set: formats and fields end there. Thread-safe. */
void uw_limits_most(struct uw_limits *out);

/* Fill in how often each limit was reached since the program began. Thread-safe. */
void uw_limits_reached(struct uw_limits *out);

#endif

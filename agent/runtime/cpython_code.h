/* agent/runtime/cpython_code.h: CPython's code objects: names, files, line tables. */
#ifndef AGENT_RUNTIME_CPYTHON_CODE_H
#define AGENT_RUNTIME_CPYTHON_CODE_H

#include "agent/runtime/cpython_layout.h"
#include "agent/runtime/memory.h"

/* A code object, read once and checked. */
struct cpython_code {
	uint64_t addr;
	uint8_t check[CPYTHON_CHECK_MAX]; /* the words that tell whether it is the same */
	const char *why;		  /* it could not be read; NULL: it was */
	bool gone;			  /* because it was freed */
	char *function, *file;		  /* UTF-8; owned */
	uint32_t first_line;
	uint8_t *lines; /* owned */
	size_t n_lines;
};

#define CPYTHON_TEXT_MAX  1024		     /* characters of a name */
#define CPYTHON_LINES_MAX ((size_t)20 << 10) /* bytes of a line table */

/*
 * Read code objects, at most CPYTHON_CODES_MAX, whose addr and check are known from the sample; all else is zero.
 * The caller releases those without a why by cpython_code_fini.
 */
#define CPYTHON_CODES_MAX 64
void cpython_codes_read(const struct cpython_layout *layout, struct runtime_memory *memory,
			struct cpython_code *codes, size_t n);
void cpython_code_fini(struct cpython_code *code);

/* Return the line of the instruction at an offset in bytes; 0: it has none. */
uint32_t cpython_line(const struct cpython_layout *layout, const struct cpython_code *code,
		      int64_t off);

#endif

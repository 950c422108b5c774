/*
 * base/pclntab.h: reads the table of all functions that Go's linker writes for Go's own
 * tracebacks, also into stripped binaries. Its section is .gopclntab, or .data.rel.ro.gopclntab in
 * position-independent executables. Its layout is that of runtime/symtab.go in Go 1.2, 1.16, 1.18
 * and 1.20; the first word of the header tells these apart.
 *
 *   header   magic, two zeros, the size of an instruction, the size of a pointer; then words
 *            as long as a pointer, among them the number of functions and the offsets of the parts
 *   search   pairs of a function's entry and the offset of its record, by entry; at the end the
 *            last function's end.  Since 1.18 entries are 32-bit and relative to the text's start
 *   records  of a function: entry, name, and the offsets of its tables of values by pc
 *   values   pairs of LEB128: how much the value changes (zigzag), and for how long it then holds
 *
 * Only tables that are little-endian with 8-byte pointers are supported. The bytes are not trusted:
 * nothing outside of them is read.
 */
#ifndef BASE_PCLNTAB_H
#define BASE_PCLNTAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/leb128.h"

enum uw_pclntab_flag {				     /* since Go 1.17 */
		       UW_PCLNTAB_TOP = 1 << 0,	     /* outermost: it has no caller */
		       UW_PCLNTAB_SP_WRITE = 1 << 1, /* it continues on another stack */
};

struct uw_pclntab {
	const uint8_t *data; /* borrowed */
	uint64_t size;
	uint64_t n; /* functions */
	/* The base of the entries; 0 if entries are addresses, or the base is not known. */
	uint64_t text;
	uint64_t text_off;		 /* offset of the word with the base; 0: there is none */
	uint64_t names, values, records; /* offsets, as is search, where the search table begins */
	uint64_t search;
	uint64_t texts;	    /* offset behind the last zero byte: every name ends before */
	uint8_t entry_size; /* bytes of an entry: 4 or 8 */
	uint8_t code_align; /* size of an instruction */
	uint8_t flags_off;  /* offset in a record; 0: records have no flags */
};

struct uw_pclntab_function {
	uint64_t start, end;
	const char *name; /* in data, NUL-terminated; "" if it is damaged */
	/* Offset of the values that say how far sp has moved down since entry; 0: none. */
	uint64_t frame;
	uint8_t flags; /* enum uw_pclntab_flag */
};

/*
 * Open a table; return false if this is no table, or an unknown version. If text_off is set and
 * text is 0, the base of the entries is not in the file. In executables that may be loaded
 * anywhere, a relocation of the word at text_off has the base. Go 1.26 leaves the base out; then it
 * is the start of .text, if that fits the entry point (uw_pclntab_guess_text).
 */
bool uw_pclntab_open(struct uw_pclntab *t, const void *data, uint64_t size);

/*
 * Find the table in the bytes of a section; return its offset, or size if there is none. part: it
 * may be anywhere in the section, not only at its beginning. code_align: the expected size of an
 * instruction; 0: any.
 */
uint64_t uw_pclntab_find(struct uw_pclntab *t, const void *data, uint64_t size, bool part,
			 unsigned int code_align);

/*
 * Try text as the base of the entries, when no relocation says what it is. Return whether a
 * function then begins at the program's entry point. t->text is text in any case.
 */
bool uw_pclntab_guess_text(struct uw_pclntab *t, uint64_t text, uint64_t entry);

/* Read the i-th function in the order of entries; i < t->n. Return false if its data is damaged. */
bool uw_pclntab_at(const struct uw_pclntab *t, uint64_t i, struct uw_pclntab_function *out);

/* A run of values: value holds in [start, end). */
struct uw_pclntab_run {
	uint64_t off, start, end;
	int64_t value;
};

/*
 * Return the state before the first run of the table at off, for a function that begins at start.
 */
static inline struct uw_pclntab_run uw_pclntab_runs(uint64_t off, uint64_t start)
{
	return (struct uw_pclntab_run){ .off = off, .start = start, .end = start, .value = -1 };
}

/* Read an unsigned number of 32 bits. If it is larger or damaged, return 0 and set *ok to false. */
static inline uint32_t uw_pclntab_leb(const struct uw_pclntab *t, uint64_t *off, bool *ok)
{
	const uint8_t *p = t->data + (*off < t->size ? *off : t->size);
	uint64_t value = 0;

	if (!uw_uleb(&p, t->data + t->size, &value) || value > UINT32_MAX) {
		*ok = false;
		return 0;
	}
	*off = (uint64_t)(p - t->data);
	return (uint32_t)value;
}

/* Read the next run. Return false at the end of the table, or if it is damaged. */
static inline bool uw_pclntab_next(const struct uw_pclntab *t, struct uw_pclntab_run *run)
{
	const bool first = run->end == run->start;
	bool ok = true;
	uint32_t change = uw_pclntab_leb(t, &run->off, &ok);
	uint64_t units;

	if (!ok || (!change && !first))
		return false;
	run->value += (int64_t)(change >> 1) * (change & 1 ? -1 : 1) - (change & 1);
	units = uw_pclntab_leb(t, &run->off, &ok);
	run->start = run->end;
	run->end += units * t->code_align;
	return ok && units;
}

#endif

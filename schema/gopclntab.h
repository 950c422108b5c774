/*
 * schema/gopclntab.h: reads the table of all functions that Go's linker writes for Go's own
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
#ifndef SCHEMA_GOPCLNTAB_H
#define SCHEMA_GOPCLNTAB_H

#include <linux/types.h>

enum gopclntab_flag {				   /* since Go 1.17 */
		      GOPCLNTAB_TOP = 1 << 0,	   /* outermost: it has no caller */
		      GOPCLNTAB_SP_WRITE = 1 << 1, /* it continues on another stack */
};

struct gopclntab {
	const __u8 *data; /* borrowed */
	__u64 size;
	__u64 n; /* functions */
	/* The base of the entries; 0 if entries are addresses, or the base is not known. */
	__u64 text;
	__u64 text_off;		      /* offset of the word with the base; 0: there is none */
	__u64 names, values, records; /* offsets, as is search, where the search table begins */
	__u64 search;
	__u64 texts;	 /* offset behind the last zero byte: every name ends before */
	__u8 entry_size; /* bytes of an entry: 4 or 8 */
	__u8 code_align; /* size of an instruction */
	__u8 flags_off;	 /* offset in a record; 0: records have no flags */
};

struct gopclntab_function {
	__u64 start, end;
	const char *name; /* in data, NUL-terminated; "" if it is damaged */
	/* Offset of the values that say how far sp has moved down since entry; 0: none. */
	__u64 frame;
	__u8 flags; /* enum gopclntab_flag */
};

/*
 * Read a number of size bytes, at most 8, at offset off. If these bytes do not exist, return 0 and
 * set *ok to 0.
 */
static inline __u64 gopclntab_read(const struct gopclntab *t, __u64 off, unsigned int size,
				   _Bool *ok)
{
	__u64 value = 0;

	if (off > t->size || size > t->size - off) {
		*ok = 0;
		return 0;
	}
	for (unsigned int i = 0; i < size; i++)
		value |= (__u64)t->data[off + i] << 8 * i;
	return value;
}

/*
 * If the table is part of another section (C's linker does that), it begins at a multiple of this.
 */
#define GOPCLNTAB_ALIGN 32

/*
 * Open a table; return false if this is no table, or an unknown version. If text_off is set and
 * text is 0, the base of the entries is not in the file. In executables that may be loaded
 * anywhere, a relocation of the word at text_off has the base. Go 1.26 leaves the base out; then it
 * is the start of .text, if that fits the entry point (gopclntab_guess_text).
 */
static inline _Bool gopclntab_open(struct gopclntab *t, const void *data, __u64 size)
{
	struct header {
		__u32 magic;
		/* Numbers of words in the header; 0: the part begins with the table. */
		__u8 text, names, values, records;
		__u8 flags_off;
	};
	static const struct header headers[] = {
		{ .magic = 0xfffffffb },
		{ .magic = 0xfffffffa, .names = 2, .values = 5, .records = 6, .flags_off = 41 },
		{ .magic = 0xfffffff0,
		  .text = 2,
		  .names = 3,
		  .values = 6,
		  .records = 7,
		  .flags_off = 37 },
		{ .magic = 0xfffffff1,
		  .text = 2,
		  .names = 3,
		  .values = 6,
		  .records = 7,
		  .flags_off = 41 },
	};
	const struct header *h = headers, *end = h + sizeof(headers) / sizeof(headers[0]);
	_Bool ok = 1;
	__u64 magic;

	*t = (struct gopclntab){ .data = data, .size = size };
	magic = gopclntab_read(t, 0, 4, &ok);
	while (h < end && h->magic != magic)
		h++;
	if (h == end || !ok || gopclntab_read(t, 4, 2, &ok) || gopclntab_read(t, 7, 1, &ok) != 8)
		return 0;
	t->code_align = (__u8)gopclntab_read(t, 6, 1, &ok);
	t->n = gopclntab_read(t, 8, 8, &ok);
	if (h->names)
		t->names = gopclntab_read(t, 8 + 8u * h->names, 8, &ok);
	if (h->values)
		t->values = gopclntab_read(t, 8 + 8u * h->values, 8, &ok);
	if (h->records)
		t->records = gopclntab_read(t, 8 + 8u * h->records, 8, &ok);
	t->search = h->records ? t->records : 16;
	t->text_off = h->text ? 8 + 8u * h->text : 0;
	t->text = h->text ? gopclntab_read(t, t->text_off, 8, &ok) : 0;
	t->flags_off = h->flags_off;
	t->entry_size = h->text ? 4 : 8;
	for (t->texts = size; t->texts && t->data[t->texts - 1]; t->texts--)
		;
	return ok && t->code_align && t->names <= size && t->values <= size && t->records <= size &&
	       t->search <= size && t->n < (size - t->search) / (2u * t->entry_size);
}

/* Read the i-th function in the order of entries; i < t->n. Return false if its data is damaged. */
static inline _Bool gopclntab_at(const struct gopclntab *t, __u64 i, struct gopclntab_function *out)
{
	const unsigned int width = t->entry_size;
	const __u64 at = t->search + i * 2 * width;
	_Bool ok = 1;
	__u64 record, name;

	out->start = t->text + gopclntab_read(t, at, width, &ok);
	record = t->records + gopclntab_read(t, at + width, width, &ok);
	out->end = t->text + gopclntab_read(t, at + 2 * width, width, &ok);
	/*
	 * After the entry, a record has the name, the arguments, deferreturn, then the table for
	 * sp.
	 */
	if (!ok || record < t->records || record > t->size || out->end <= out->start)
		return 0;
	name = t->names + gopclntab_read(t, record + width, 4, &ok);
	out->frame = gopclntab_read(t, record + width + 12, 4, &ok);
	out->frame += out->frame ? t->values : 0;
	out->flags = t->flags_off ? (__u8)gopclntab_read(t, record + t->flags_off, 1, &ok) : 0;
	out->name = name < t->texts ? (const char *)t->data + name : "";
	return ok;
}

/*
 * Return whether a function begins at this address. Programs that Go's own linker made begin in a
 * Go function.
 */
static inline _Bool gopclntab_begins(const struct gopclntab *t, __u64 entry)
{
	struct gopclntab_function function;
	__u64 low = 0, high = t->n;

	while (low < high) {
		__u64 middle = low + (high - low) / 2;

		if (!gopclntab_at(t, middle, &function))
			return 0;
		if (function.start == entry)
			return 1;
		if (function.start < entry)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

/*
 * Find the table in the bytes of a section; return its offset, or size if there is none. part: it
 * may be anywhere in the section, not only at its beginning. code_align: the expected size of an
 * instruction; 0: any.
 */
static inline __u64 gopclntab_find(struct gopclntab *t, const void *data, __u64 size, _Bool part,
				   unsigned int code_align)
{
	for (__u64 off = 0; off < size; off += GOPCLNTAB_ALIGN) {
		if (gopclntab_open(t, (const __u8 *)data + off, size - off) &&
		    (!code_align || t->code_align == code_align))
			return off;
		if (!part)
			break;
	}
	return size;
}

/*
 * Try text as the base of the entries, when no relocation says what it is. Return whether a
 * function then begins at the program's entry point. t->text is text in any case.
 */
static inline _Bool gopclntab_guess_text(struct gopclntab *t, __u64 text, __u64 entry)
{
	t->text = text;
	return gopclntab_begins(t, entry);
}

/* A run of values: value holds in [start, end). */
struct gopclntab_run {
	__u64 off, start, end;
	__s64 value;
};

/*
 * Return the state before the first run of the table at off, for a function that begins at start.
 */
static inline struct gopclntab_run gopclntab_runs(__u64 off, __u64 start)
{
	return (struct gopclntab_run){ .off = off, .start = start, .end = start, .value = -1 };
}

/* Read an unsigned LEB128 number (DWARF 5 §7.6), of which the low 32 bits count. */
static inline __u32 gopclntab_leb(const struct gopclntab *t, __u64 *off, _Bool *ok)
{
	__u32 value = 0;

	for (unsigned int shift = 0; shift < 35; shift += 7) {
		__u64 byte = gopclntab_read(t, (*off)++, 1, ok);

		value |= (__u32)(byte & 0x7f) << (shift < 32 ? shift : 31);
		if (!(byte & 0x80))
			return value;
	}
	*ok = 0;
	return 0;
}

/* Read the next run. Return false at the end of the table, or if it is damaged. */
static inline _Bool gopclntab_next(const struct gopclntab *t, struct gopclntab_run *run)
{
	const _Bool first = run->end == run->start;
	_Bool ok = 1;
	__u32 change = gopclntab_leb(t, &run->off, &ok);
	__u64 units;

	if (!ok || (!change && !first))
		return 0;
	run->value += (__s64)(change >> 1) * (change & 1 ? -1 : 1) - (change & 1);
	units = gopclntab_leb(t, &run->off, &ok);
	run->start = run->end;
	run->end += units * t->code_align;
	return ok && units;
}

#endif

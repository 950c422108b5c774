/*
 * schema/gopclntab.h: the table that Go's linker leaves of every function for Go's own
 * tracebacks, stripped binaries included: section .gopclntab, in position-independent
 * executables .data.rel.ro.gopclntab.  Its layout is runtime/symtab.go's in Go 1.2, 1.16,
 * 1.18 and 1.20; the header's first word tells them apart.
 *
 *   header   magic, two zeros, the size of an instruction, the size of a pointer; then words
 *            as long as a pointer, among them the number of functions and where the parts lie
 *   search   pairs of a function's entry and where its record is, by entry; at the end the
 *            last function's end.  Since 1.18 entries are 32-bit and count from the text's start
 *   records  of a function: entry, name, and where its tables of values by pc are
 *   values   pairs of LEB128: how much the value changes (zigzag), how far it then holds
 *
 * Everything is little-endian here, pointers have 8 bytes.  Nothing is trusted: what lies
 * outside the bytes is not there.
 */
#ifndef SCHEMA_GOPCLNTAB_H
#define SCHEMA_GOPCLNTAB_H

#include <linux/types.h>

enum gopclntab_flag {				   /* since Go 1.17 */
		      GOPCLNTAB_TOP = 1 << 0,	   /* nobody called it */
		      GOPCLNTAB_SP_WRITE = 1 << 1, /* it goes on on another stack */
};

struct gopclntab {
	const __u8 *data; /* borrowed */
	__u64 size;
	__u64 n;    /* functions */
	__u64 text; /* what entries count from; 0 where they are addresses, or it is not known */
	__u64 text_off;		      /* of the word that says so; 0: there is none */
	__u64 names, values, records; /* offsets; the search table begins at search */
	__u64 search;
	__u64 texts;	 /* behind the last zero: names end before */
	__u8 entry_size; /* of an entry: 4 or 8 */
	__u8 code_align; /* of instructions */
	__u8 flags_off;	 /* in a record; 0: it has none */
};

struct gopclntab_function {
	__u64 start, end;
	const char *name; /* in data, with a zero behind it; "" where it is damaged */
	__u64 frame;	  /* offset of the values that say how far sp has come down; 0: none */
	__u8 flags;	  /* enum gopclntab_flag */
};

/* size bytes at off, at most 8, as a number; *ok stays true where they are there. */
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

/* Where C's linker made it a part of another section it is at a multiple of this. */
#define GOPCLNTAB_ALIGN 32

/*
 * False: it is no such table, or of a kind that is not known.  Where text_off is set and text
 * is not, a relocation of that word says where the text starts, in executables that may lie
 * anywhere; or, as Go 1.26 leaves it out, it starts with .text if that makes sense of the entry
 * point (gopclntab_guess_text).
 */
static inline _Bool gopclntab_open(struct gopclntab *t, const void *data, __u64 size)
{
	struct header {
		__u32 magic;
		__u8 text, names, values,
			records; /* number of the word; 0: where the table begins */
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

/* The i-th function, i < t->n, by entry.  False: what is said of it is damaged. */
static inline _Bool gopclntab_at(const struct gopclntab *t, __u64 i, struct gopclntab_function *out)
{
	const unsigned int width = t->entry_size;
	const __u64 at = t->search + i * 2 * width;
	_Bool ok = 1;
	__u64 record, name;

	out->start = t->text + gopclntab_read(t, at, width, &ok);
	record = t->records + gopclntab_read(t, at + width, width, &ok);
	out->end = t->text + gopclntab_read(t, at + 2 * width, width, &ok);
	/* Behind its entry: name, arguments, deferreturn, then the table for sp. */
	if (!ok || record < t->records || record > t->size || out->end <= out->start)
		return 0;
	name = t->names + gopclntab_read(t, record + width, 4, &ok);
	out->frame = gopclntab_read(t, record + width + 12, 4, &ok);
	out->frame += out->frame ? t->values : 0;
	out->flags = t->flags_off ? (__u8)gopclntab_read(t, record + t->flags_off, 1, &ok) : 0;
	out->name = name < t->texts ? (const char *)t->data + name : "";
	return ok;
}

/* Does one begin at entry?  Go's own linker lets programs begin in a function of Go's. */
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
 * Where in a section's bytes the table begins; size: nowhere.  part: it need not be at the section's
 * beginning.  code_align: its instructions' size; 0: any.
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

/* Whether the text may start there, for want of anybody who says so: then that is what entries count from. */
static inline _Bool gopclntab_guess_text(struct gopclntab *t, __u64 text, __u64 entry)
{
	t->text = text;
	return gopclntab_begins(t, entry);
}

/* A run of values: all of [start, end) has value. */
struct gopclntab_run {
	__u64 off, start, end;
	__s64 value;
};

/* Of the table at off in the function that begins at start; before the first run. */
static inline struct gopclntab_run gopclntab_runs(__u64 off, __u64 start)
{
	return (struct gopclntab_run){ .off = off, .start = start, .end = start, .value = -1 };
}

/* DWARF 5 §7.6, 32 bits of it. */
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

/* The next run; false at the end, or where it is damaged. */
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

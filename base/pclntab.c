/* base/pclntab.c: finds and opens the function table of a Go program (pclntab.h). */
#include "base/pclntab.h"

/*
 * If the table is part of another section (C's linker does that), it begins at a multiple of this.
 */
#define TABLE_ALIGN 32

/*
 * Read a number of size bytes, at most 8, at offset off. If these bytes do not exist, return 0 and
 * set *ok to false.
 */
static uint64_t read_number(const struct uw_pclntab *t, uint64_t off, unsigned int size, bool *ok)
{
	uint64_t value = 0;

	if (off > t->size || size > t->size - off) {
		*ok = false;
		return 0;
	}
	for (unsigned int i = 0; i < size; i++)
		value |= (uint64_t)t->data[off + i] << 8 * i;
	return value;
}

/*
 * The magic numbers are those of Go 1.2, 1.16, 1.18 and 1.20, in this order; the headers are struct
 * pcHeader in Go's runtime/symtab.go.
 */
bool uw_pclntab_open(struct uw_pclntab *t, const void *data, uint64_t size)
{
	struct header {
		uint32_t magic;
		/* Numbers of words in the header; 0: the part begins with the table. */
		uint8_t text, names, values, records;
		uint8_t flags_off;
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
	bool ok = true;
	uint64_t magic;

	*t = (struct uw_pclntab){ .data = data, .size = size };
	magic = read_number(t, 0, 4, &ok);
	while (h < end && h->magic != magic)
		h++;
	if (h == end || !ok || read_number(t, 4, 2, &ok) || read_number(t, 7, 1, &ok) != 8)
		return false;
	t->code_align = (uint8_t)read_number(t, 6, 1, &ok);
	t->n = read_number(t, 8, 8, &ok);
	if (h->names)
		t->names = read_number(t, 8 + 8u * h->names, 8, &ok);
	if (h->values)
		t->values = read_number(t, 8 + 8u * h->values, 8, &ok);
	if (h->records)
		t->records = read_number(t, 8 + 8u * h->records, 8, &ok);
	t->search = h->records ? t->records : 16;
	t->text_off = h->text ? 8 + 8u * h->text : 0;
	t->text = h->text ? read_number(t, t->text_off, 8, &ok) : 0;
	t->flags_off = h->flags_off;
	t->entry_size = h->text ? 4 : 8;
	for (t->texts = size; t->texts && t->data[t->texts - 1]; t->texts--)
		;
	return ok && t->code_align && t->names <= size && t->values <= size && t->records <= size &&
	       t->search <= size && t->n < (size - t->search) / (2u * t->entry_size);
}

/* The record is Go's struct _func (runtime/runtime2.go). */
bool uw_pclntab_at(const struct uw_pclntab *t, uint64_t i, struct uw_pclntab_function *out)
{
	const unsigned int width = t->entry_size;
	const uint64_t at = t->search + i * 2 * width;
	bool ok = true;
	uint64_t record, name;

	out->start = t->text + read_number(t, at, width, &ok);
	record = t->records + read_number(t, at + width, width, &ok);
	out->end = t->text + read_number(t, at + 2 * width, width, &ok);
	/*
	 * After the entry, a record has the name, the arguments, deferreturn, then the table for
	 * sp.
	 */
	if (!ok || record < t->records || record > t->size || out->end <= out->start)
		return false;
	name = t->names + read_number(t, record + width, 4, &ok);
	out->frame = read_number(t, record + width + 12, 4, &ok);
	out->frame += out->frame ? t->values : 0;
	out->flags = t->flags_off ? (uint8_t)read_number(t, record + t->flags_off, 1, &ok) : 0;
	out->name = name < t->texts ? (const char *)t->data + name : "";
	return ok;
}

/*
 * Return whether a function begins at this address. Programs that Go's own linker made begin in a
 * Go function.
 */
static bool begins(const struct uw_pclntab *t, uint64_t entry)
{
	struct uw_pclntab_function function;
	uint64_t low = 0, high = t->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (!uw_pclntab_at(t, middle, &function))
			return false;
		if (function.start == entry)
			return true;
		if (function.start < entry)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

uint64_t uw_pclntab_find(struct uw_pclntab *t, const void *data, uint64_t size, bool part,
			 unsigned int code_align)
{
	for (uint64_t off = 0; off < size; off += TABLE_ALIGN) {
		if (uw_pclntab_open(t, (const uint8_t *)data + off, size - off) &&
		    (!code_align || t->code_align == code_align))
			return off;
		if (!part)
			break;
	}
	return size;
}

bool uw_pclntab_guess_text(struct uw_pclntab *t, uint64_t text, uint64_t entry)
{
	t->text = text;
	return begins(t, entry);
}

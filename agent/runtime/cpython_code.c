/* agent/runtime/cpython_code.c: reads code objects, and finds lines in their line tables. */
#include "agent/runtime/cpython_code.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------- */

/* Append a code point as UTF-8; what is none becomes U+FFFD. Return how many bytes it has. */
static size_t put_char(uint32_t c, char *out)
{
	size_t n = 0;

	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || !c)
		c = 0xfffd;
	if (c < 0x80) {
		out[n++] = (char)c;
	} else if (c < 0x800) {
		out[n++] = (char)(0xc0 | c >> 6);
		out[n++] = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		out[n++] = (char)(0xe0 | c >> 12);
		out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
		out[n++] = (char)(0x80 | (c & 0x3f));
	} else {
		out[n++] = (char)(0xf0 | c >> 18);
		out[n++] = (char)(0x80 | (c >> 12 & 0x3f));
		out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
		out[n++] = (char)(0x80 | (c & 0x3f));
	}
	return n;
}

/*
 * Read the beginning of an object, which tells how large the object is: as much as most have, up to the end
 * of the page. For a larger one the piece is read again.
 */
#define MOST	   256
#define PAGE	   4096
#define BYTES_HEAD 32 /* of a bytes object, before its bytes */

static size_t head_size(uint64_t addr, size_t least)
{
	size_t left = PAGE - addr % PAGE;

	return left < least ? least : left < MOST ? left : MOST;
}

static const uint8_t *read_head(struct runtime_memory *m, uint64_t addr, size_t least)
{
	return runtime_piece(m, addr, head_size(addr, least));
}

/* A str's head: how many bytes it has in all, and where its text is. False: it is none. */
struct text {
	size_t begin, length;
	unsigned int kind; /* bytes of a character */
};

static bool look_at_text(const struct cpython_layout *l, const uint8_t *p, struct text *out)
{
	uint64_t state = uw_bytes_little_n(p + 32, 4) >> l->str_kind_bit,
		 length = uw_bytes_little_n(p + 16, 8);

	out->kind = state & 7;
	if ((out->kind != 1 && out->kind != 2 && out->kind != 4) || !(state >> 3 & 1))
		return false; /* no str, or one that is not compact: names always are */
	out->begin = state >> 4 & 1 ? l->str_ascii : l->str_compact;
	out->length = length < CPYTHON_TEXT_MAX ? length : CPYTHON_TEXT_MAX;
	return true;
}

/* Read a str. Return NULL if it is none, or no memory. */
static char *read_text(const struct cpython_layout *l, struct runtime_memory *m, uint64_t addr)
{
	const uint8_t *p = read_head(m, addr, l->str_compact);
	size_t at = 0;
	struct text t;
	char *text;

	if (!p || !look_at_text(l, p, &t))
		return NULL;
	p = runtime_piece(m, addr, t.begin + t.length * t.kind);
	text = p ? malloc(t.length * 4 + 1) : NULL;
	for (size_t i = 0; text && i < t.length; i++)
		at += put_char((uint32_t)uw_bytes_little_n(p + t.begin + i * t.kind, t.kind),
			       text + at);
	if (text)
		text[at] = '\0';
	return text;
}

/* Read a bytes object. Return how many bytes there are, or 0. The caller frees *out. */
static size_t read_bytes(struct runtime_memory *m, uint64_t addr, uint8_t **out)
{
	const uint8_t *p = read_head(m, addr, BYTES_HEAD);
	uint64_t size = p ? uw_bytes_little_n(p + 16, 8) : 0;

	if (!size || size > CPYTHON_LINES_MAX)
		return 0;
	p = runtime_piece(m, addr, BYTES_HEAD + size);
	*out = p ? malloc(size) : NULL;
	if (!*out)
		return 0;
	memcpy(*out, p + BYTES_HEAD, size);
	return size;
}

/* ---- code objects ------------------------------------------------------------------------ */

void cpython_code_fini(struct cpython_code *code)
{
	free(code->function);
	free(code->file);
	free(code->lines);
}

/* Return the size of the beginning of a code object that has all wanted fields; a process may say where they are. */
static size_t code_size(const struct cpython_layout *l)
{
	const uint16_t words[] = { l->c_file, l->c_name, l->c_lines, l->c_first_line };
	size_t size = (size_t)l->c_check + l->c_check_size;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (size < (size_t)words[i] + 8)
			size = (size_t)words[i] + 8;
	return size;
}

/* Where the three objects are that a code object leads to. */
struct leads {
	uint64_t function, file, lines;
};

static const char *why_not(const struct runtime_memory *m)
{
	return runtime_is_late(m) ? "their names were not read in time"
				  : "their names cannot be read";
}

/*
 * Return whether a code object has references. Freed memory keeps most of what was in it: the count is 0 then, or the
 * allocator has put an address there. Above the count's 32 bits are flags from 3.14 on, in the highest 16. A heap below
 * 4 GiB, which programs at fixed addresses have, has addresses that look like counts; but malloc writes into the next word,
 * too, which was the type.
 */
static bool is_alive(const struct cpython_layout *l, const uint8_t *code)
{
	return uw_bytes_little_n(code, 4) && !uw_bytes_little_n(code + 4, 2) &&
	       (!l->code_type || uw_bytes_little_n(code + 8, 8) == l->code_type);
}

/* Look at the head of a code object, unless it failed before; code->why says so. */
static void look_at_code(const struct cpython_layout *l, struct runtime_memory *m,
			 struct cpython_code *code, struct leads *out)
{
	const uint8_t *p = code->why ? NULL : runtime_piece(m, code->addr, code_size(l));

	if (code->why)
		return;
	if (!p) {
		code->why = why_not(m);
		return;
	}
	if (!is_alive(l, p) || memcmp(p + l->c_check, code->check, l->c_check_size) != 0) {
		code->why = "their code has changed";
		code->gone = true;
		return;
	}
	code->first_line = (uint32_t)uw_bytes_little_n(p + l->c_first_line, 4);
	if (code->first_line > INT32_MAX)
		code->first_line = 0;
	*out = (struct leads){ .function = uw_bytes_little_n(p + l->c_name, 8),
			       .file = uw_bytes_little_n(p + l->c_file, 8),
			       .lines = uw_bytes_little_n(p + l->c_lines, 8) };
}

static void want(struct runtime_want *wants, size_t *n, uint64_t addr, size_t size)
{
	wants[(*n)++] = (struct runtime_want){ .addr = addr, .size = size };
}

/* Want all of a str, or of a bytes object, of which there is more than was read. */
static void want_text(const struct cpython_layout *l, struct runtime_memory *m, uint64_t addr,
		      struct runtime_want *wants, size_t *n)
{
	const uint8_t *p = read_head(m, addr, l->str_compact);
	struct text t;

	if (p && look_at_text(l, p, &t) &&
	    t.begin + t.length * t.kind > head_size(addr, l->str_compact))
		want(wants, n, addr, t.begin + t.length * t.kind);
}

static void want_bytes(struct runtime_memory *m, uint64_t addr, struct runtime_want *wants,
		       size_t *n)
{
	const uint8_t *p = read_head(m, addr, BYTES_HEAD);
	uint64_t size = p ? uw_bytes_little_n(p + 16, 8) : 0;

	if (size <= CPYTHON_LINES_MAX && BYTES_HEAD + size > head_size(addr, BYTES_HEAD))
		want(wants, n, addr, BYTES_HEAD + size);
}

/* Read the heads of the code objects again that have not failed. */
static void renew_heads(const struct cpython_layout *l, struct runtime_memory *m,
			struct cpython_code *codes, size_t n)
{
	struct runtime_want wants[CPYTHON_CODES_MAX];
	size_t n_wants = 0, k = 0;

	for (size_t i = 0; i < n; i++)
		if (!codes[i].why)
			want(wants, &n_wants, codes[i].addr, code_size(l));
	runtime_renew(m, wants, n_wants);
	for (size_t i = 0; i < n; i++)
		if (!codes[i].why && wants[k++].failed)
			codes[i].why = why_not(m);
}

/*
 * Read what the code objects lead to, if there is a process: what it has freed may be something else now. Each step
 * reads for all of them at once.
 */
static void renew(const struct cpython_layout *l, struct runtime_memory *m,
		  struct cpython_code *codes, size_t n)
{
	struct runtime_want wants[3 * CPYTHON_CODES_MAX];
	struct leads leads[CPYTHON_CODES_MAX];
	size_t n_wants = 0;

	renew_heads(l, m, codes, n);
	for (size_t i = 0; i < n; i++) {
		look_at_code(l, m, &codes[i], &leads[i]);
		if (codes[i].why)
			continue;
		want(wants, &n_wants, leads[i].function,
		     head_size(leads[i].function, l->str_compact));
		want(wants, &n_wants, leads[i].file, head_size(leads[i].file, l->str_compact));
		want(wants, &n_wants, leads[i].lines, head_size(leads[i].lines, BYTES_HEAD));
	}
	runtime_renew(m, wants, n_wants);
	/* Without its function's name, the rest of a code object is not wanted. */
	for (size_t i = 0, k = 0; i < n; i++)
		if (!codes[i].why && wants[k++ * 3].failed)
			codes[i].why = why_not(m);
	n_wants = 0;
	for (size_t i = 0; i < n; i++) {
		if (codes[i].why)
			continue;
		want_text(l, m, leads[i].function, wants, &n_wants);
		want_text(l, m, leads[i].file, wants, &n_wants);
		want_bytes(m, leads[i].lines, wants, &n_wants);
	}
	runtime_renew(m, wants, n_wants);
	/* If a code object was freed while this was read, the texts may be others' now: then its head has changed. */
	renew_heads(l, m, codes, n);
}

void cpython_codes_read(const struct cpython_layout *l, struct runtime_memory *m,
			struct cpython_code *codes, size_t n)
{
	struct leads leads;

	renew(l, m, codes, n);
	for (size_t i = 0; i < n; i++) {
		struct cpython_code *code = &codes[i];

		look_at_code(l, m, code, &leads);
		if (code->why)
			continue;
		code->function = read_text(l, m, leads.function);
		code->file = read_text(l, m, leads.file);
		code->n_lines = read_bytes(m, leads.lines, &code->lines);
		if (code->function)
			continue;
		cpython_code_fini(code);
		code->why = why_not(m);
	}
}

/* ---- lines ------------------------------------------------------------------------------- */

/* To 3.9: pairs of a distance in bytes and one in lines, which is signed. */
static uint32_t line_of_pairs(const struct cpython_code *code, int64_t off)
{
	int64_t line = code->first_line, at = 0;

	for (size_t i = 0; i + 1 < code->n_lines; i += 2) {
		at += code->lines[i];
		if (at > off)
			break;
		line += (int8_t)code->lines[i + 1];
	}
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* 3.10 (PEP 626): pairs of a length in bytes and a distance in lines from the last line; -128: no line. */
static uint32_t line_of_ranges(const struct cpython_code *code, int64_t off)
{
	int64_t line = code->first_line, end = 0;

	for (size_t i = 0; i + 1 < code->n_lines; i += 2) {
		int8_t step = (int8_t)code->lines[i + 1];

		if (step != -128)
			line += step;
		end += code->lines[i];
		if (off < end)
			return step == -128 || line <= 0 || line > INT32_MAX ? 0 : (uint32_t)line;
	}
	return 0;
}

/* A number of the location table: six bits a byte, the lowest first; bit 6: another byte follows. */
static uint64_t take_number(struct uw_bytes *b)
{
	uint64_t value = 0;
	uint8_t byte;
	unsigned int shift = 0;

	do {
		byte = uw_bytes_u8(b);
		if (shift < 60)
			value |= (uint64_t)(byte & 63) << shift;
		shift += 6;
	} while (byte & 64 && !b->err);
	return value;
}

static int64_t take_signed(struct uw_bytes *b)
{
	uint64_t value = take_number(b);

	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* From 3.11 (Objects/locations.md of CPython): entries of a length in code units and a kind. */
static uint32_t line_of_locations(const struct cpython_code *code, int64_t off)
{
	struct uw_bytes b = uw_bytes_of(code->lines, code->n_lines);
	int64_t line = code->first_line, end = 0;

	while (!uw_bytes_done(&b)) {
		uint8_t head = uw_bytes_u8(&b);
		unsigned int kind = head >> 3 & 15;
		bool has_line = true;

		if (!(head & 0x80))
			return 0; /* no beginning of an entry */
		if (kind == 15) {
			has_line = false;
		} else if (kind == 14) {
			line += take_signed(&b);
			(void)take_number(&b); /* distance to the last line */
			(void)take_number(&b); /* columns */
			(void)take_number(&b);
		} else if (kind == 13) {
			line += take_signed(&b);
		} else if (kind >= 10) {
			line += kind - 10;
			(void)uw_bytes_advance(&b, 2);
		} else {
			(void)uw_bytes_advance(&b, 1);
		}
		if (b.err)
			return 0;
		end += ((head & 7) + 1) * 2;
		if (off < end)
			return has_line && line > 0 && line <= INT32_MAX ? (uint32_t)line : 0;
		if (line > INT32_MAX || line < INT32_MIN)
			return 0;
	}
	return 0;
}

uint32_t cpython_line(const struct cpython_layout *l, const struct cpython_code *code, int64_t off)
{
	if (off < 0)
		return code->first_line; /* it has not begun */
	if (l->entry != CPYTHON_EACH)
		return line_of_locations(code, off);
	return l->lasti_unit == 2 ? line_of_ranges(code, off) : line_of_pairs(code, off);
}

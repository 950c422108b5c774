/*
 * agent/store/query/sql_csv.c: rows as CSV (RFC 4180), which must be fast for millions of rows.
 */
#include "agent/store/query/sql_printer.h"

#include <errno.h>
#include <string.h>

/* Write a CSV field, quoted if it has to be (RFC 4180). */
static void put_csv(FILE *out, const char *text, size_t size)
{
	bool quoted = false;

	for (size_t i = 0; i < size && !quoted; i++)
		quoted = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
	if (!quoted)
		return sql_put(out, text, size);
	(void)putc_unlocked('"', out);
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '"')
			(void)putc_unlocked('"', out);
		(void)putc_unlocked(text[i], out);
	}
	(void)putc_unlocked('"', out);
}

void sql_csv_head(struct printer *p)
{
	for (int i = 0; i < p->n; i++) {
		const char *name = p->names[i];

		if (i)
			(void)putc_unlocked(',', p->out);
		put_csv(p->out, name, strlen(name));
	}
	(void)putc_unlocked('\n', p->out);
}

/*
 * Write the buffer to out and return its beginning. Between cells, the position in the buffer (to)
 * is passed from function to function; between rows it is p->used.
 */
static char *csv_flush(struct printer *p, const char *to)
{
	sql_put(p->out, p->buffer, (size_t)(to - p->buffer));
	return p->buffer;
}

/*
 * Make sure that size bytes fit behind to; size must be less than the buffer. Return where to
 * write.
 */
static inline char *csv_room(struct printer *p, char *to, size_t size)
{
	return (size_t)(p->buffer + CSV_BUFFER - to) < size ? csv_flush(p, to) : to;
}

/* Vectors of 16 bytes, which the compiler maps to whatever the machine has. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint64_t words2 __attribute__((vector_size(16)));

/* Return 0xff for each byte that may need quotes (RFC 4180) or sanitizing. */
static inline bytes16 odd_ones(bytes16 v)
{
	return (bytes16)(v == ',') | (bytes16)(v == '"') | (bytes16)(v < 0x20) |
	       (bytes16)(v >= 0x7f);
}

/*
 * Copy text and return whether any byte of it is odd. The last bytes are copied as one vector or
 * word that overlaps the one before, so there is no loop over single bytes for sizes of 4 and more.
 */
static inline bool copy_text(char *to, const char *text, size_t size)
{
	const uint64_t blanks = UINT64_C(0x2020202020202020);
	bytes16 v = (bytes16)(words2){ blanks, blanks }, found = { 0 };
	words2 both;

	if (size >= sizeof(v)) {
		for (size_t i = 0; i < size - sizeof(v); i += sizeof(v)) {
			memcpy(&v, text + i, sizeof(v));
			memcpy(to + i, &v, sizeof(v));
			found |= odd_ones(v);
		}
		memcpy(&v, text + size - sizeof(v), sizeof(v));
		memcpy(to + size - sizeof(v), &v, sizeof(v));
	} else if (size >= 8) {
		uint64_t first, last;

		memcpy(&first, text, 8);
		memcpy(&last, text + size - 8, 8);
		memcpy(to, &first, 8);
		memcpy(to + size - 8, &last, 8);
		v = (bytes16)(words2){ first, last };
	} else if (size >= 4) {
		uint32_t first, last;

		memcpy(&first, text, 4);
		memcpy(&last, text + size - 4, 4);
		memcpy(to, &first, 4);
		memcpy(to + size - 4, &last, 4);
		v = (bytes16)(words2){ blanks << 32 | first, blanks << 32 | last };
	} else {
		for (size_t i = 0; i < size; i++)
			v[i] = (uint8_t)(to[i] = text[i]);
	}
	both = (words2)(found | odd_ones(v));
	return both[0] | both[1];
}

/* Write text in quotes, with quotes in it doubled. */
static char *csv_quoted(char *to, const char *text, size_t size)
{
	*to++ = '"';
	if (!memchr(text, '"', size)) {
		memcpy(to, text, size);
		to += size;
	} else {
		for (size_t i = 0; i < size; i++) {
			if (text[i] == '"')
				*to++ = '"';
			*to++ = text[i];
		}
	}
	*to++ = '"';
	return to;
}

/*
 * Write a field that has to be sanitized or quoted, or is too large for the buffer. NULL: out of
 * memory.
 */
static char *csv_odd(struct printer *p, char *to, const char *text, size_t size)
{
	text = sql_sanitize(text, &size, &p->room);
	if (!text)
		return NULL;
	if (size > CSV_BUFFER / 4) {
		to = csv_flush(p, to);
		put_csv(p->out, text, size);
		return to;
	}
	to = csv_room(p, to, 2 * size + 2);
	if (memchr(text, ',', size) || memchr(text, '"', size))
		return csv_quoted(to, text, size);
	memcpy(to, text, size);
	return to + size;
}

/* Write a text field. NULL: out of memory. */
static inline char *csv_text(struct printer *p, char *to, const char *text, size_t size)
{
	if (size > CSV_BUFFER / 4)
		return csv_odd(p, to, text, size);
	to = csv_room(p, to, 2 * size + 2);
	return copy_text(to, text, size) ? csv_odd(p, to, text, size) : to + size;
}

/* Return the number of decimal digits, 1 for 0. */
static inline unsigned int n_digits(uint64_t value)
{
	static const uint64_t powers[] = { 0,
					   10,
					   100,
					   1000,
					   10000,
					   100000,
					   1000000,
					   10000000,
					   100000000,
					   1000000000,
					   10000000000,
					   100000000000,
					   1000000000000,
					   10000000000000,
					   100000000000000,
					   1000000000000000,
					   10000000000000000,
					   100000000000000000,
					   1000000000000000000,
					   10000000000000000000u };
	/*
	 * The number of binary digits times log 2 / log 10 (1233 / 4096) is that of decimal digits,
	 * or one less.
	 */
	unsigned int n = (64 - (unsigned int)__builtin_clzll(value | 1)) * 1233 >> 12;

	return n + (value >= powers[n]);
}

/* Write an integer, two digits at a time. */
static inline char *csv_number(struct printer *p, char *to, int64_t value)
{
	static const char pairs[] = "0001020304050607080910111213141516171819"
				    "2021222324252627282930313233343536373839"
				    "4041424344454647484950515253545556575859"
				    "6061626364656667686970717273747576777879"
				    "8081828384858687888990919293949596979899";
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	char *end;

	to = csv_room(p, to, CELL_MAX);
	if (value < 0)
		*to++ = '-';
	end = to + n_digits(rest);
	for (to = end; rest >= 100; rest /= 100) {
		to -= 2;
		memcpy(to, pairs + rest % 100 * 2, 2);
	}
	if (rest >= 10)
		memcpy(to - 2, pairs + rest * 2, 2);
	else
		to[-1] = (char)('0' + rest);
	return end;
}

/*
 * Write one field. The value is fetched once and used without SQLite's locking, because no other
 * thread uses the connection. NULL: out of memory.
 */
static inline char *csv_cell(struct printer *p, char *to, int column)
{
	sqlite3_value *value = sqlite3_column_value(p->stmt, column);
	struct cell cell;
	const char *text;

	switch (sqlite3_value_type(value)) {
	case SQLITE_NULL:
		return to;
	case SQLITE_INTEGER:
		return csv_number(p, to, sqlite3_value_int64(value));
	case SQLITE_TEXT:
		text = (const char *)sqlite3_value_text(value);
		return text ? csv_text(p, to, text, (size_t)sqlite3_value_bytes(value)) : NULL;
	default:
		return sql_read_cell(p->stmt, column, &cell, &p->hex[column])
			       ? csv_text(p, to, cell.text, cell.size)
			       : NULL;
	}
}

int sql_csv_row(struct printer *p)
{
	char *to = p->buffer + p->used;

	for (int i = 0; i < p->n; i++) {
		if (i) {
			to = csv_room(p, to, 1);
			*to++ = ',';
		}
		to = csv_cell(p, to, i);
		if (!to)
			return -ENOMEM;
	}
	to = csv_room(p, to, 1);
	*to++ = '\n';
	p->used = (size_t)(to - p->buffer);
	return 0;
}

void sql_csv_finish(struct printer *p)
{
	(void)csv_flush(p, p->buffer + p->used);
}

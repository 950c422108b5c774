/* agent/store/sql.c: prints rows of SQL as an aligned table, as CSV and as JSON. */
#include "agent/store/sql.h"

#include "agent/clean.h"
#include "agent/store/extension.h"
#include "proto/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A column of a table is as wide as its widest cell in the first rows, this many. */
#define MEASURED   1000
#define WIDTH_MAX  72
#define CELL_MAX   24 /* characters of a number */
#define CSV_BUFFER ((size_t)64 << 10)

/* Upgrade an older store, if this user can write it. The caller reports other errors. */
static int upgrade(const char *path)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *db;
	int err = db_open(path, DB_WRITE, &db, error);

	if (!err)
		(void)sqlite3_close(db);
	return err;
}

int sql_open(const char *path, sqlite3 **out, char error[DB_ERROR_SIZE])
{
	int (*init)(struct sqlite3 *, char **, const struct sqlite3_api_routines *) =
		sqlite3_offwindsqlite_init;
	int err;

	/* SQLite takes an untyped function pointer, but calls it with the type of init. */
	if (sqlite3_auto_extension((void (*)(void))init) != SQLITE_OK)
		return -ENOMEM;
	err = db_open(path, DB_READ, out, error);
	if (err == -ENOTSUP && !upgrade(path))
		err = db_open(path, DB_READ, out, error);
	(void)sqlite3_cancel_auto_extension((void (*)(void))init);
	return err;
}

/* ---- cells ------------------------------------------------------------------------ */

/* One value of a row, as text. */
struct cell {
	const char *text;
	size_t size;
	int type; /* SQLITE_… */
	char number[CELL_MAX];
};

/* Write an integer into the cell's own buffer. */
static void write_number(struct cell *cell, int64_t value)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	char *p = cell->number + sizeof(cell->number);

	do
		*--p = (char)('0' + rest % 10);
	while (rest /= 10);
	if (value < 0)
		*--p = '-';
	cell->text = p;
	cell->size = (size_t)(cell->number + sizeof(cell->number) - p);
}

/*
 * Write a blob as hexadecimal digits. *hex is the buffer, which grows as needed. False: out of
 * memory.
 */
static bool write_blob(struct cell *cell, sqlite3_stmt *stmt, int column, char **hex)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = sqlite3_column_blob(stmt, column);
	size_t n = (size_t)sqlite3_column_bytes(stmt, column);
	char *out = realloc(*hex, 2 * n + 1);

	if (!out)
		return false;
	*hex = out;
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	cell->text = out;
	cell->size = 2 * n;
	return true;
}

/* Vectors of 16 bytes, which the compiler maps to whatever the machine has. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint64_t words2 __attribute__((vector_size(16)));

/* Return 0xff for each byte that is not printable ASCII. */
static inline bytes16 not_plain(bytes16 v)
{
	return (bytes16)(v < 0x20) | (bytes16)(v >= 0x7f);
}

/* Return whether all bytes are printable ASCII, 16 bytes at a time. */
static bool is_plain(const char *text, size_t size)
{
	bool plain = true;

	for (; size >= 16; text += 16, size -= 16) {
		bytes16 v;
		words2 both;

		memcpy(&v, text, 16);
		both = (words2)not_plain(v);
		if (both[0] | both[1])
			return false;
	}
	for (size_t i = 0; i < size; i++)
		plain &= (unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x7f;
	return plain;
}

/*
 * Return text without control characters and with valid UTF-8: text itself if it is plain, else a
 * copy in *room, which grows as needed. NULL: out of memory.
 */
static const char *clean(const char *text, size_t *size, char **room)
{
	char *copy;

	if (is_plain(text, *size))
		return text;
	copy = realloc(*room, 4 * *size + 2);
	if (!copy)
		return NULL;
	*room = copy;
	memcpy(copy, text, *size);
	copy[*size] = '\0';
	for (size_t i = 0; i < *size; i++)
		copy[i] = copy[i] ? copy[i] : '?';
	text = copy + *size + 1;
	*size = clean_text(copy, "", '?', copy + *size + 1, 3 * *size + 1);
	return text;
}

/* Read a column into a cell; texts stay as they are. False: out of memory. */
static bool read_raw(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex)
{
	cell->type = sqlite3_column_type(stmt, column);
	cell->text = "";
	cell->size = 0;
	switch (cell->type) {
	case SQLITE_NULL:
		return true;
	case SQLITE_INTEGER:
		write_number(cell, sqlite3_column_int64(stmt, column));
		return true;
	case SQLITE_BLOB:
		return write_blob(cell, stmt, column, hex);
	default:
		cell->text = (const char *)sqlite3_column_text(stmt, column);
		cell->size = (size_t)sqlite3_column_bytes(stmt, column);
		return cell->text != NULL;
	}
}

/* Read a column into a cell, with texts made safe for a terminal. False: out of memory. */
static bool read_cell(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex)
{
	if (!read_raw(stmt, column, cell, hex))
		return false;
	if (cell->type == SQLITE_TEXT)
		cell->text = clean(cell->text, &cell->size, hex);
	return cell->text != NULL;
}

/* ---- formats ---------------------------------------------------------------------- */

/* The state while one statement's rows are printed. */
struct printer {
	sqlite3_stmt *stmt;
	FILE *out;
	int n;
	char **names; /* of the columns */
	char **hex;   /* one buffer for each column */
	char *room;   /* buffer for a cell that had to be sanitized */
	size_t *width;
	char ***lines; /* rows of a table that wait until the column widths are known */
	size_t n_lines;
	/* the column widths are known: rows are printed at once */
	bool flowing;
	uint64_t n_rows;
	char *buffer; /* CSV: CSV_BUFFER bytes, of which the first `used` are not yet in out */
	size_t used;
};

static void put(FILE *out, const char *text, size_t size)
{
	(void)fwrite_unlocked(text, 1, size, out);
}

/* Write a CSV field, quoted if it has to be (RFC 4180). */
static void put_csv(FILE *out, const char *text, size_t size)
{
	bool quoted = false;

	for (size_t i = 0; i < size && !quoted; i++)
		quoted = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
	if (!quoted)
		return put(out, text, size);
	(void)putc_unlocked('"', out);
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '"')
			(void)putc_unlocked('"', out);
		(void)putc_unlocked(text[i], out);
	}
	(void)putc_unlocked('"', out);
}

/*
 * Write a JSON string. Control characters (C0, DEL, C1) and the block U+2000 to U+207F, which
 * contains characters that break lines or reorder text, are escaped, so that nothing is lost and a
 * terminal shows all of it.
 */
static void put_json(FILE *out, const char *text, size_t size)
{
	(void)putc_unlocked('"', out);
	for (size_t i = 0, n; i < size; i += n ? n : 1) {
		const unsigned char *c = (const unsigned char *)text + i;

		n = utf8_length(text + i, size - i);
		if (!n)
			(void)fputs("\\ufffd", out);
		else if (*c == '"' || *c == '\\')
			(void)fprintf(out, "\\%c", *c);
		else if (n == 1 && (*c < 0x20 || *c == 0x7f))
			(void)fprintf(out, "\\u%04x", *c);
		else if (n == 2 && *c == 0xc2 && c[1] < 0xa0)
			(void)fprintf(out, "\\u%04x", c[1]);
		else if (n == 3 && *c == 0xe2 && (c[1] == 0x80 || c[1] == 0x81))
			(void)fprintf(out, "\\u%04x", 0x2000u | (c[1] & 1u) << 6 | (c[2] & 0x3fu));
		else
			put(out, text + i, n);
	}
	(void)putc_unlocked('"', out);
}

/* Return the number of characters: a UTF-8 character begins with a byte that is not 10xxxxxx. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Write a row of a table, with each column but the last padded to its width. */
static void put_line(struct printer *p, char *const *cells)
{
	for (int i = 0; i < p->n; i++) {
		size_t width = width_of(cells[i]);

		(void)fputs(cells[i], p->out);
		if (i + 1 == p->n)
			break;
		do
			(void)putc_unlocked(' ', p->out);
		while (++width < p->width[i] + 2);
	}
	(void)putc_unlocked('\n', p->out);
}

static void free_line(struct printer *p, char **line)
{
	for (int i = 0; line && i < p->n; i++)
		free(line[i]);
	free(line);
}

/* Write the head and the waiting rows: the column widths are known now. */
static void flow(struct printer *p)
{
	char **head = calloc((size_t)p->n + 1, sizeof(*head));

	for (int i = 0; head && i < p->n; i++) {
		head[i] = p->names[i];
		if (width_of(head[i]) > p->width[i])
			p->width[i] = width_of(head[i]);
		if (p->width[i] > WIDTH_MAX)
			p->width[i] = WIDTH_MAX;
	}
	if (head && p->n)
		put_line(p, head);
	free(head);
	for (size_t i = 0; i < p->n_lines; i++) {
		put_line(p, p->lines[i]);
		free_line(p, p->lines[i]);
	}
	p->n_lines = 0;
	p->flowing = true;
}

/* Read a row of a table; write it, or let it wait until MEASURED rows are read. */
static int table_row(struct printer *p)
{
	char **line = calloc((size_t)p->n + 1, sizeof(*line));

	for (int i = 0; line && i < p->n; i++) {
		struct cell cell;

		if (!read_cell(p->stmt, i, &cell, &p->hex[i]) ||
		    !(line[i] = strndup(cell.text, cell.size))) {
			free_line(p, line);
			return -ENOMEM;
		}
		if (!p->flowing && width_of(line[i]) > p->width[i])
			p->width[i] = width_of(line[i]);
	}
	if (!line)
		return -ENOMEM;
	if (p->flowing) {
		put_line(p, line);
		free_line(p, line);
		return 0;
	}
	p->lines[p->n_lines++] = line;
	if (p->n_lines == MEASURED)
		flow(p);
	return 0;
}

/* ---- CSV, which must be fast for millions of rows ----------------------------------------- */

/*
 * Write the buffer to out and return its beginning. Between cells, the position in the buffer (to)
 * is passed from function to function; between rows it is p->used.
 */
static char *csv_flush(struct printer *p, const char *to)
{
	put(p->out, p->buffer, (size_t)(to - p->buffer));
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

/* Return 0xff for each byte that may need quotes (RFC 4180) or sanitizing. */
static inline bytes16 odd_ones(bytes16 v)
{
	return (bytes16)(v == ',') | (bytes16)(v == '"') | not_plain(v);
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
	text = clean(text, &size, &p->room);
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
		return read_cell(p->stmt, column, &cell, &p->hex[column])
			       ? csv_text(p, to, cell.text, cell.size)
			       : NULL;
	}
}

static int csv_row(struct printer *p)
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

static int json_row(struct printer *p)
{
	(void)fputs(p->n_rows ? ",\n{" : "[\n{", p->out);
	for (int i = 0; i < p->n; i++) {
		const char *name = p->names[i];
		struct cell cell;

		if (!read_raw(p->stmt, i, &cell, &p->hex[i]))
			return -ENOMEM;
		if (i)
			(void)putc_unlocked(',', p->out);
		put_json(p->out, name, strlen(name));
		(void)putc_unlocked(':', p->out);
		if (cell.type == SQLITE_NULL)
			(void)fputs("null", p->out);
		else if (cell.type == SQLITE_INTEGER || cell.type == SQLITE_FLOAT)
			put(p->out, cell.text, cell.size);
		else
			put_json(p->out, cell.text, cell.size);
	}
	(void)putc_unlocked('}', p->out);
	return 0;
}

/* Write what comes before the first row: the names of CSV's columns. */
static void head(struct printer *p, enum sql_format format)
{
	if (format != SQL_CSV)
		return;
	for (int i = 0; i < p->n; i++) {
		const char *name = p->names[i];

		if (i)
			(void)putc_unlocked(',', p->out);
		put_csv(p->out, name, strlen(name));
	}
	(void)putc_unlocked('\n', p->out);
}

/* Write what comes after the last row. */
static void finish(struct printer *p, enum sql_format format)
{
	if (format == SQL_TABLE && !p->flowing)
		flow(p);
	if (format == SQL_JSON)
		(void)fputs(p->n_rows ? "\n]\n" : "[]\n", p->out);
}

/* ---- statements ------------------------------------------------------------------- */

/* Step through the statement's rows and print them. *rc is SQLite's last result code. */
static int print_rows(struct printer *p, enum sql_format format, int *rc)
{
	int err = 0;

	head(p, format);
	while (!err && (*rc = sqlite3_step(p->stmt)) == SQLITE_ROW) {
		err = format == SQL_CSV	   ? csv_row(p)
		      : format == SQL_JSON ? json_row(p)
					   : table_row(p);
		p->n_rows++;
		if (ferror(p->out))
			err = -EIO;
	}
	if (p->used)
		(void)csv_flush(p, p->buffer + p->used);
	if (!err && *rc == SQLITE_DONE)
		finish(p, format);
	return err;
}

/* Return a copy of a column's name, sanitized; the caller frees it. NULL: out of memory. */
static char *column_name(sqlite3_stmt *stmt, int column)
{
	const char *name = sqlite3_column_name(stmt, column);
	size_t size = name ? strlen(name) : 0;
	char *room = NULL, *copy = NULL;

	if (name)
		name = clean(name, &size, &room);
	if (name)
		copy = strndup(name, size);
	free(room);
	return copy;
}

/* Return whether memory sufficed for all column names. */
static bool has_names(const struct printer *p)
{
	for (int i = 0; p->names && i < p->n; i++)
		if (!p->names[i])
			return false;
	return p->names != NULL;
}

/* Print the rows of one statement. *rc is SQLite's result code. */
static int print_statement(sqlite3_stmt *stmt, enum sql_format format, FILE *out, int *rc)
{
	struct printer p = { .stmt = stmt, .out = out, .n = sqlite3_column_count(stmt) };
	size_t n = (size_t)p.n + 1;
	int err = -ENOMEM;

	p.names = calloc(n, sizeof(*p.names));
	for (int i = 0; p.names && i < p.n; i++)
		p.names[i] = column_name(stmt, i);
	p.hex = calloc(n, sizeof(*p.hex));
	p.width = calloc(n, sizeof(*p.width));
	p.lines = calloc(MEASURED, sizeof(*p.lines));
	p.buffer = format == SQL_CSV ? malloc(CSV_BUFFER) : NULL;
	if (has_names(&p) && p.hex && p.width && p.lines && (p.buffer || format != SQL_CSV))
		err = print_rows(&p, format, rc);
	for (size_t i = 0; i < p.n_lines; i++)
		free_line(&p, p.lines[i]);
	for (int i = 0; p.hex && i < p.n; i++)
		free(p.hex[i]);
	for (int i = 0; p.names && i < p.n; i++)
		free(p.names[i]);
	free((void *)p.names);
	free(p.room);
	free((void *)p.hex);
	free(p.width);
	free(p.buffer);
	free((void *)p.lines);
	return err;
}

int sql_print(sqlite3 *db, const char *sql, enum sql_format format, FILE *out,
	      char error[DB_ERROR_SIZE])
{
	int err = 0, rc = SQLITE_OK;

	error[0] = '\0';
	while (!err && *sql) {
		sqlite3_stmt *stmt = NULL;
		const char *rest = sql;

		rc = sqlite3_prepare_v2(db, sql, -1, &stmt, &rest);
		if (rc != SQLITE_OK)
			break;
		sql = rest;
		if (!stmt) /* only a comment or white space */
			continue;
		err = print_statement(stmt, format, out, &rc);
		if (!err && rc != SQLITE_DONE) {
			(void)sqlite3_finalize(stmt); /* the message stays on the connection */
			break;
		}
		rc = SQLITE_OK;
		(void)sqlite3_finalize(stmt);
	}
	if (!err && rc != SQLITE_OK) {
		(void)snprintf(error, DB_ERROR_SIZE, "%s", sqlite3_errmsg(db));
		err = db_errno(rc) ? db_errno(rc) : -EIO;
	}
	return err;
}

/* agent/store/query/sql_cell.c: the values of a row as text that is safe for a terminal. */
#include "agent/store/query/sql_printer.h"

#include "agent/sanitize.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

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

/*
 * *room receives a copy without NUL bytes and behind it the cleaned text, which can be three times
 * as long (U+FFFD has three bytes).
 */
const char *sql_sanitize(const char *text, size_t *size, char **room)
{
	char *copy;

	if (uw_text_is_plain(text, *size))
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
	*size = sanitize_text(copy, "", '?', copy + *size + 1, 3 * *size + 1);
	return text;
}

bool sql_read_raw(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex)
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

bool sql_read_cell(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex)
{
	if (!sql_read_raw(stmt, column, cell, hex))
		return false;
	if (cell->type == SQLITE_TEXT)
		cell->text = sql_sanitize(cell->text, &cell->size, hex);
	return cell->text != NULL;
}

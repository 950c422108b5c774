/*
 * tests/fuzz/memory_database.h: a database in memory that is written again for each input, so that its connections
 * keep their schema and their statements from input to input.
 */
#ifndef TESTS_FUZZ_MEMORY_DATABASE_H
#define TESTS_FUZZ_MEMORY_DATABASE_H

#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>

struct memory_database {
	sqlite3 *db; /* a connection to it; all of them are in this process */
	uint8_t *bytes;
	sqlite3_int64 size;
	uint32_t counter;
};

/* Remember what the database is now. */
static inline void memory_database_take(struct memory_database *m, sqlite3 *db)
{
	*m = (struct memory_database){ .db = db, .counter = 1000 };
	m->bytes = sqlite3_serialize(db, "main", &m->size, 0);
	if (!m->bytes)
		abort();
}

/*
 * Write the database as it was. By another change counter, connections see that it changed
 * (https://sqlite.org/fileformat.html, "File change counter").
 */
static inline void memory_database_restore(struct memory_database *m)
{
	sqlite3_file *f;

	m->counter += 1000;
	for (size_t i = 0; i < 4; i++)
		m->bytes[24 + i] = m->bytes[92 + i] = (uint8_t)(m->counter >> (24 - 8 * i));
	if (sqlite3_file_control(m->db, "main", SQLITE_FCNTL_FILE_POINTER, &f) ||
	    f->pMethods->xWrite(f, m->bytes, (int)m->size, 0) || f->pMethods->xTruncate(f, m->size))
		abort();
}

#endif

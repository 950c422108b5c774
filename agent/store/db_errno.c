/*
 * agent/store/db_errno.c: errno codes for SQLite's result codes. The extension has this file, too,
 * but not db.c.
 */
#include "agent/store/db.h"

#include <errno.h>

int db_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_FULL:
	case SQLITE_TOOBIG:
		return -ENOSPC;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
	case SQLITE_AUTH:
	case SQLITE_CANTOPEN:
		return -EACCES;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_MISMATCH:
	case SQLITE_CONSTRAINT:
		return -EBADMSG;
	case SQLITE_INTERRUPT:
		return -EINTR;
	case SQLITE_ERROR: /* a table or a column of the schema is missing */
		return -EBADMSG;
	default:
		return -EIO;
	}
}

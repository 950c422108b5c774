-- schema/store_5.sql: what is being compiled, and by whom.  A row goes when its table is
-- there or could not be made; one whose process has ended tells that it ended over that
-- file.  "begun" is when the process began, in the kernel's ticks since the machine did:
-- pids come again.
CREATE TABLE building (
	id       INTEGER PRIMARY KEY,
	build_id BLOB    NOT NULL, -- this and the next three as in quarantine
	path     TEXT    NOT NULL,
	builder  INTEGER NOT NULL,
	file     INTEGER NOT NULL,
	pid      INTEGER NOT NULL,
	begun    INTEGER NOT NULL,
	since    INTEGER NOT NULL
) STRICT;

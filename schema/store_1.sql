-- schema/store_1.sql: the store, first version.  Run by whoever finds PRAGMA
-- user_version below 1, in one transaction that sets it.  Times are seconds
-- since 1970; hashes are unsigned 64-bit numbers, stored as signed ones.

-- One row for each file contents that unwinding knows: a build-id is a claim, so
-- that the unwind sections' size and hash are part of the key (schema/table_blob.h).
CREATE TABLE objects (
	id         INTEGER PRIMARY KEY,
	build_id   BLOB    NOT NULL, -- empty: the file has none
	src_size   INTEGER NOT NULL, -- of the unwind sections
	src_hash   INTEGER NOT NULL,
	machine    INTEGER NOT NULL, -- ELF e_machine: 62 x86_64, 183 aarch64
	path       TEXT    NOT NULL, -- where it was last seen
	file_size  INTEGER NOT NULL,
	first_used INTEGER NOT NULL,
	last_used  INTEGER NOT NULL,
	uses       INTEGER NOT NULL, -- runs that asked for it, one an hour at most
	UNIQUE (build_id, src_size, src_hash, machine)
) STRICT;
CREATE INDEX objects_by_use ON objects (last_used);

-- Which contents a file has, for as long as nobody has written to it; "check"
-- covers the row, so that a damaged one is no answer.
CREATE TABLE files (
	dev      INTEGER NOT NULL,
	ino      INTEGER NOT NULL,
	elf_off  INTEGER NOT NULL, -- where the ELF image begins in the file
	size     INTEGER NOT NULL,
	mtime_ns INTEGER NOT NULL,
	ctime_ns INTEGER NOT NULL,
	object   INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
	"check"  INTEGER NOT NULL,
	PRIMARY KEY (dev, ino, elf_off)
) STRICT, WITHOUT ROWID;
CREATE INDEX files_by_object ON files (object);

-- Compiled tables, one a builder: two versions of offwind share a store.  The
-- blobs carry checksums of their own and come last, so that a query for the
-- other columns does not read them.
CREATE TABLE tables (
	id      INTEGER PRIMARY KEY,
	object  INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
	version INTEGER NOT NULL, -- of the layout
	builder INTEGER NOT NULL,
	built   INTEGER NOT NULL,
	n_rows  INTEGER NOT NULL,
	n_rules INTEGER NOT NULL,
	n_procs INTEGER, -- NULL: their ranges are not kept
	size    INTEGER NOT NULL, -- of both blobs
	procs   BLOB,             -- schema/procs_blob.h
	rules   BLOB,             -- schema/table_blob.h; NULL: there is nothing to compile
	UNIQUE (object, version, builder)
) STRICT;

-- Objects that ended the worker which read them: not to be read again.
CREATE TABLE quarantine (
	build_id BLOB    NOT NULL,
	path     TEXT    NOT NULL,
	reason   TEXT    NOT NULL,
	since    INTEGER NOT NULL,
	crashes  INTEGER NOT NULL,
	PRIMARY KEY (build_id, path)
) STRICT, WITHOUT ROWID;

-- The service's profiles by time: pprof, as it would be written to a file.
CREATE TABLE windows (
	id       INTEGER PRIMARY KEY,
	start_ns INTEGER NOT NULL,
	end_ns   INTEGER NOT NULL,
	samples  INTEGER NOT NULL,
	profile  BLOB    NOT NULL
) STRICT;
CREATE INDEX windows_by_time ON windows (start_ns);

-- What the store is told to do: "budget", the bytes it may grow to.
CREATE TABLE settings (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

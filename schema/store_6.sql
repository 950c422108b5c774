-- schema/store_6.sql: objects are known by a cryptographic hash.  What was kept before was known by
-- hashes that anybody can forge, so it goes.
DROP TABLE files;
DROP TABLE tables;
DROP TABLE symbols;
DROP TABLE objects;

-- As before.  "identity" is the SHA-256 of everything that the table was made from; src_size and
-- src_hash (XXH64) are what the table's header repeats, against accidents.  "owner" is the user who
-- alone could write a file with these contents, on a file system that is to be believed; -1: nobody.
CREATE TABLE objects (
	id         INTEGER PRIMARY KEY,
	build_id   BLOB    NOT NULL,
	src_size   INTEGER NOT NULL,
	src_hash   INTEGER NOT NULL,
	machine    INTEGER NOT NULL,
	path       TEXT    NOT NULL,
	file_size  INTEGER NOT NULL,
	first_used INTEGER NOT NULL,
	last_used  INTEGER NOT NULL,
	uses       INTEGER NOT NULL,
	owner      INTEGER NOT NULL,
	identity   BLOB    NOT NULL,
	UNIQUE (build_id, identity, machine)
) STRICT;
CREATE INDEX objects_by_use ON objects (last_used);

CREATE TABLE files (
	dev      INTEGER NOT NULL,
	ino      INTEGER NOT NULL,
	elf_off  INTEGER NOT NULL,
	size     INTEGER NOT NULL,
	uid      INTEGER NOT NULL, -- whose file it is
	mtime_ns INTEGER NOT NULL,
	ctime_ns INTEGER NOT NULL,
	object   INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
	"check"  INTEGER NOT NULL,
	PRIMARY KEY (dev, ino, elf_off)
) STRICT, WITHOUT ROWID;
CREATE INDEX files_by_object ON files (object);

CREATE TABLE tables (
	id      INTEGER PRIMARY KEY,
	object  INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
	version INTEGER NOT NULL,
	builder INTEGER NOT NULL,
	built   INTEGER NOT NULL,
	n_rows  INTEGER NOT NULL,
	n_rules INTEGER NOT NULL,
	n_procs INTEGER,
	size    INTEGER NOT NULL,
	procs   BLOB,
	rules   BLOB,
	UNIQUE (object, version, builder)
) STRICT;

-- One file's symbols or lines.  "beside" is the SHA-256 of what the system says of the debug file
-- that has a part in them; empty: none.  "owner" is as above, of both files.  A row stays when its
-- inode becomes another file's: it is found by its build-id then.
CREATE TABLE symbols (
	id        INTEGER PRIMARY KEY,
	dev       INTEGER NOT NULL,
	ino       INTEGER NOT NULL,
	elf_off   INTEGER NOT NULL,
	reader    INTEGER NOT NULL,
	file_size INTEGER NOT NULL,
	uid       INTEGER NOT NULL,
	mtime_ns  INTEGER NOT NULL,
	ctime_ns  INTEGER NOT NULL,
	beside    BLOB    NOT NULL,
	owner     INTEGER NOT NULL,
	build_id  BLOB    NOT NULL,
	path      TEXT    NOT NULL,
	last_used INTEGER NOT NULL,
	n         INTEGER NOT NULL,
	size      INTEGER NOT NULL,
	symbols   BLOB    NOT NULL,
	UNIQUE (dev, ino, elf_off, reader, build_id)
) STRICT;
CREATE INDEX symbols_by_build_id ON symbols (build_id);
CREATE INDEX symbols_by_use ON symbols (last_used);

-- It has to do with the same files, whose hash is another one now.
DELETE FROM quarantine;
DELETE FROM building;

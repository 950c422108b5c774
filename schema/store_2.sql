-- schema/store_2.sql: symbol tables.  They belong to a file and not to unwind
-- sections: a file and its stripped twin have the same build-id and other
-- symbols.  The blob carries a hash of what is in the row, and a checksum.
CREATE TABLE symbols (
	id        INTEGER PRIMARY KEY,
	dev       INTEGER NOT NULL,
	ino       INTEGER NOT NULL,
	elf_off   INTEGER NOT NULL,
	file_size INTEGER NOT NULL,
	mtime_ns  INTEGER NOT NULL,
	ctime_ns  INTEGER NOT NULL,
	build_id  BLOB    NOT NULL,
	path      TEXT    NOT NULL, -- where it was last seen
	reader    INTEGER NOT NULL, -- of symbols; see schema/symbols_blob.h; above 256: of lines, schema/lines_blob.h
	last_used INTEGER NOT NULL,
	n         INTEGER NOT NULL,
	size      INTEGER NOT NULL, -- of the blob
	symbols   BLOB    NOT NULL,
	UNIQUE (dev, ino, elf_off, reader)
) STRICT;
CREATE INDEX symbols_by_build_id ON symbols (build_id);
CREATE INDEX symbols_by_use ON symbols (last_used);

-- The history: where time went on this machine, window by window (docs/history.md).
-- Rows that nothing refers to any more are deleted. AUTOINCREMENT: their ids are not used again.

-- A file with code, or a segment of it; the kernel; generated code. start and limit bound its addresses.
CREATE TABLE modules (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	path TEXT NOT NULL,
	build_id TEXT NOT NULL, -- hexadecimal; '': not known
	off INTEGER NOT NULL, -- in the file, of start
	start INTEGER NOT NULL,
	"limit" INTEGER NOT NULL,
	UNIQUE (path, build_id, off)
) STRICT;

CREATE TABLE functions (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,
	system_name TEXT NOT NULL, -- as linked; '': like name
	file TEXT NOT NULL, -- '': not known
	start_line INTEGER NOT NULL,
	placed INTEGER NOT NULL, -- 1: no symbol; the name is only a place
	hash INTEGER NOT NULL -- of the other columns: to find a function
) STRICT;
CREATE INDEX functions_hash ON functions (hash);

-- An address of code, and its names: pairs of LEB128 numbers, function and line, the innermost inlined
-- call first. The same address of generated code, or of another start of the kernel, has other names: variant.
CREATE TABLE frames (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	module INTEGER NOT NULL,
	address INTEGER NOT NULL, -- as the ELF file has it
	variant INTEGER NOT NULL, -- 0: names follow from build-id and address; else the function's id
	lines BLOB NOT NULL,
	UNIQUE (module, address, variant)
) STRICT;

-- Stacks share their callers: a stack is the node of its innermost frame. 256 nodes are one row: that with
-- id n has the nodes n * 256 + 1 to n * 256 + 256. A parent's id is below its children's.
CREATE TABLE node_pages (
	id INTEGER PRIMARY KEY,
	nodes BLOB NOT NULL -- schema/node_blob.h; or stack(node) and function(node)
) STRICT;

-- All labels of samples but pid and tid, as a JSON object with sorted keys.
CREATE TABLE labels (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	labels TEXT NOT NULL UNIQUE
) STRICT;

-- What is counted: samples/count, cpu/nanoseconds.
CREATE TABLE types (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	type TEXT NOT NULL,
	unit TEXT NOT NULL,
	UNIQUE (type, unit)
) STRICT;

-- Times are nanoseconds since 1970. level 0: samples have times and threads; 1: threads; 2: neither.
CREATE TABLE windows (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	start_ns INTEGER NOT NULL CHECK (start_ns > 0),
	end_ns INTEGER NOT NULL CHECK (end_ns >= start_ns),
	level INTEGER NOT NULL,
	n_samples INTEGER NOT NULL,
	samples BLOB NOT NULL -- schema/window_blob.h; or the virtual table samples
) STRICT;
CREATE INDEX windows_time ON windows (end_ns, start_ns, level);

-- What became of all that fired in a window: fired = unwound + waiting + sum of filtered + sum of lost.
-- unwound = sum of stop. waiting: fired here, but not settled in this window; below 0: the reverse.
CREATE TABLE counters (
	window INTEGER NOT NULL REFERENCES windows ON DELETE CASCADE,
	what TEXT NOT NULL, -- fired, unwound, waiting, filtered, lost, stop, cut
	reason TEXT NOT NULL, -- of filtered, lost and stop; else ''
	n INTEGER NOT NULL,
	PRIMARY KEY (window, what, reason)
) STRICT, WITHOUT ROWID;

-- Sums of the counters of all windows that there ever were, and how many windows; they only grow.
CREATE TABLE totals (
	what TEXT NOT NULL,
	reason TEXT NOT NULL,
	n INTEGER NOT NULL,
	PRIMARY KEY (what, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
	name TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The fleet's tables in ClickHouse 18.16 and newer (docs/fleet.md). Newer servers have fleet_2.sql, with the same
-- columns. A row may come twice, when a batch was sent twice; merges keep one of them.

-- What is counted. id is the beginning of a hash over type and unit, so that all hosts agree on it.
CREATE TABLE IF NOT EXISTS types (
	id UInt32,
	type String, -- cpu, alloc_space
	unit String, -- nanoseconds, bytes
	counts String -- the type whose values are in samples.n: samples, alloc_objects; '': none
) ENGINE = ReplacingMergeTree ORDER BY id;

-- Sums of the samples of a slot of time with one stack and the same labels. Rows of type 0 are the batches
-- themselves: n is the slot's length in seconds, labels the host's last window in it, value when that ended (ns).
CREATE TABLE IF NOT EXISTS samples (
	type UInt32, -- types.id
	time DateTime, -- when the slot begins
	host String,
	window UInt64, -- 0; of a second batch of the slot, the id of its first window in the host's history
	stack UInt64, -- stacks.stack
	labels UInt64, -- label_sets.labels
	n UInt64,
	value Int64
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), stack, time, host, window, labels);

-- The same for all hosts and labels together, which has far fewer rows. rows is how many batches there were: if they are
-- those that samples has, with the same sum of value, no batch came twice or is missing here, and questions that ask for
-- neither hosts nor labels are answered from this table.
CREATE MATERIALIZED VIEW IF NOT EXISTS sums ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), stack, time)
AS SELECT type, time, stack, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows FROM samples GROUP BY type, time, stack;

-- The same by hour: a day has a twelfth of the rows. It answers for the hours that lie in a range as a whole; the rest of the
-- range comes from sums.
CREATE MATERIALIZED VIEW IF NOT EXISTS hour_sums ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(hour)
ORDER BY (type, hour, stack)
AS SELECT type, toStartOfHour(time) AS hour, stack, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows
FROM samples GROUP BY type, hour, stack;

-- The same by host alone: how much each host does, and when.
CREATE MATERIALIZED VIEW IF NOT EXISTS host_totals ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), time, host)
AS SELECT type, time, host, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows FROM samples GROUP BY type, time, host;

-- The same by hour, stack and host: which hosts run a function, what a host does. The rest of a range comes from samples.
CREATE MATERIALIZED VIEW IF NOT EXISTS host_sums ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(hour)
ORDER BY (type, hour, stack, host)
AS SELECT type, toStartOfHour(time) AS hour, stack, host, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows
FROM samples GROUP BY type, hour, stack, host;

-- Stacks, the innermost frame first. stack is seven bytes of a hash over the frames, and above them the first byte of a hash
-- over the four outermost ones: so the rows of a program lie together. A stack is sent again on each day that a host has
-- samples of it, so those of an old day can be deleted with its samples.
CREATE TABLE IF NOT EXISTS stacks (
	stack UInt64,
	frames Array(UInt64), -- names.frame
	day Date DEFAULT today() -- when it was sent last
) ENGINE = ReplacingMergeTree(day) ORDER BY stack;

CREATE MATERIALIZED VIEW IF NOT EXISTS stacks_by_frame ENGINE = ReplacingMergeTree(day) ORDER BY (frame, stack)
AS SELECT frame, stack, day FROM stacks ARRAY JOIN frames AS frame;

-- What is at an address, the innermost inlined call first. frame is a hash over build-id and address; of code
-- whose addresses differ from start to start (the kernel, generated code) over file and functions. A row with a
-- higher version replaces another.
CREATE TABLE IF NOT EXISTS names (
	frame UInt64,
	build_id String, -- hexadecimal; '': not known
	vaddr UInt64, -- as the ELF file has it
	module String, -- path
	functions Array(String), -- none: there is no symbol
	files Array(String),
	lines Array(UInt32),
	version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY frame;

CREATE MATERIALIZED VIEW IF NOT EXISTS frames_by_function ENGINE = ReplacingMergeTree ORDER BY (function, frame)
AS SELECT function, frame FROM names ARRAY JOIN functions AS function;

CREATE TABLE IF NOT EXISTS label_sets (
	labels UInt64, -- a hash over keys and values
	keys Array(String), -- sorted
	vals Array(String)
) ENGINE = ReplacingMergeTree ORDER BY labels;

-- What became of all that fired in a slot: fired = unwound + waiting + sum of filtered + sum of lost.
CREATE TABLE IF NOT EXISTS counters (
	time DateTime,
	host String,
	window UInt64,
	what String, -- fired, unwound, waiting, filtered, lost, stop, cut
	reason String,
	n Int64
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMMDD(time) ORDER BY (time, host, window, what, reason);

-- The fleet's tables in ClickHouse 22.3 and newer (docs/fleet.md): as fleet_1.sql, with codecs, a time to live of
-- 30 days, labels as a map, and servers that know a block that comes twice at once. Values are mostly multiples of one
-- number, the period of a sample: T64 would hide that from ZSTD.

CREATE TABLE IF NOT EXISTS types (
	id UInt32,
	type String,
	unit String,
	counts String
) ENGINE = ReplacingMergeTree ORDER BY id;

CREATE TABLE IF NOT EXISTS samples (
	type UInt32 CODEC(ZSTD(1)),
	time DateTime CODEC(Delta, ZSTD(1)),
	host LowCardinality(String) CODEC(ZSTD(1)),
	window UInt64 CODEC(ZSTD(1)),
	stack UInt64 CODEC(ZSTD(1)),
	labels UInt64 CODEC(ZSTD(1)),
	n UInt64 CODEC(T64, ZSTD(1)),
	value Int64 CODEC(ZSTD(1))
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), stack, time, host, window, labels)
TTL time + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS sums ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), stack, time) TTL time + INTERVAL 30 DAY SETTINGS ttl_only_drop_parts = 1
AS SELECT type, time, stack, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows FROM samples GROUP BY type, time, stack;

CREATE MATERIALIZED VIEW IF NOT EXISTS hour_sums ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(hour)
ORDER BY (type, hour, stack) TTL hour + INTERVAL 30 DAY SETTINGS ttl_only_drop_parts = 1
AS SELECT type, toStartOfHour(time) AS hour, stack, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows
FROM samples GROUP BY type, hour, stack;

CREATE MATERIALIZED VIEW IF NOT EXISTS host_totals ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(time)
ORDER BY (type, toStartOfHour(time), time, host) TTL time + INTERVAL 30 DAY SETTINGS ttl_only_drop_parts = 1
AS SELECT type, time, host, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows FROM samples GROUP BY type, time, host;

CREATE TABLE IF NOT EXISTS host_sums (
	type UInt32 CODEC(ZSTD(1)),
	hour DateTime CODEC(Delta, ZSTD(1)),
	stack UInt64 CODEC(ZSTD(1)),
	host LowCardinality(String) CODEC(ZSTD(1)),
	n UInt64 CODEC(T64, ZSTD(1)),
	value Int64 CODEC(ZSTD(1)),
	rows UInt64 CODEC(T64, ZSTD(1))
) ENGINE = SummingMergeTree PARTITION BY toYYYYMMDD(hour) ORDER BY (type, hour, stack, host)
TTL hour + INTERVAL 30 DAY SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS host_sums_view TO host_sums
AS SELECT type, toStartOfHour(time) AS hour, stack, host, sum(n) AS n, sum(value) AS value, countIf(type = 0) AS rows
FROM samples GROUP BY type, hour, stack, host;

CREATE TABLE IF NOT EXISTS stacks (
	stack UInt64 CODEC(ZSTD(1)),
	frames Array(UInt64) CODEC(ZSTD(1)),
	day Date DEFAULT today() CODEC(ZSTD(1))
) ENGINE = ReplacingMergeTree(day) ORDER BY stack TTL day + INTERVAL 32 DAY;

CREATE MATERIALIZED VIEW IF NOT EXISTS stacks_by_frame ENGINE = ReplacingMergeTree(day) ORDER BY (frame, stack)
TTL day + INTERVAL 32 DAY
AS SELECT frame, stack, day FROM stacks ARRAY JOIN frames AS frame;

CREATE TABLE IF NOT EXISTS names (
	frame UInt64 CODEC(ZSTD(1)),
	build_id String CODEC(ZSTD(1)),
	vaddr UInt64 CODEC(ZSTD(1)),
	module String CODEC(ZSTD(1)),
	functions Array(String) CODEC(ZSTD(1)),
	files Array(String) CODEC(ZSTD(1)),
	lines Array(UInt32) CODEC(ZSTD(1)),
	version UInt64 CODEC(ZSTD(1))
) ENGINE = ReplacingMergeTree(version) ORDER BY frame;

CREATE MATERIALIZED VIEW IF NOT EXISTS frames_by_function ENGINE = ReplacingMergeTree ORDER BY (function, frame)
AS SELECT function, frame FROM names ARRAY JOIN functions AS function;

CREATE TABLE IF NOT EXISTS label_sets (
	labels UInt64,
	keys Array(String) CODEC(ZSTD(1)),
	vals Array(String) CODEC(ZSTD(1)),
	map Map(String, String) ALIAS CAST((keys, vals), 'Map(String, String)')
) ENGINE = ReplacingMergeTree ORDER BY labels;

CREATE TABLE IF NOT EXISTS counters (
	time DateTime CODEC(Delta, ZSTD(1)),
	host String CODEC(ZSTD(1)),
	window UInt64 CODEC(ZSTD(1)),
	what String CODEC(ZSTD(1)),
	reason String CODEC(ZSTD(1)),
	n Int64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMMDD(time) ORDER BY (time, host, window, what, reason)
TTL time + INTERVAL 30 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1;

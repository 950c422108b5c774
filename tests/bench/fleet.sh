#!/usr/bin/env bash
# Measures the fleet's store (docs/fleet.md) with two ClickHouse servers on this machine: how fast windows go in, how large they are, and
# how long questions take.  A recording stands for one host of 64 CPUs: it is taken at 608 Hz here, which on two CPUs gives as many samples
# as 64 CPUs at 19 Hz.  More hosts have other names.  In each slot, each of them has another part of all the stacks that were recorded, as
# many as one slot has, with other counts.  So stacks that are new in each slot, as a real host has them, are those of the first host only;
# how many these are is printed.
#   usage: tests/bench/fleet.sh [HISTORY]      HISTORY: of offwind record -F 608 --rotate 10 --history, for 15 minutes or more
#   HOURS_OF=40: hosts with one hour; DAYS_OF=8: hosts with one day.  1000 and 16, the figures of docs/fleet.md, take 1 GB and 10 minutes of an idle machine
#   SUMS_OF=1000: hosts that have a day before that, of which only the batches, the sums of all hosts and the totals of each are made: what a question without hosts and labels reads
set -u
. tests/recorder.sh
. tests/wait.sh
. tests/clickhouse.sh
ch_seconds=600
command -v clickhouse-server >/dev/null || { echo "clickhouse-server is not installed"; exit 77; }
trap 'for p in ${ch_pid[*]} ${senders:-}; do kill -KILL $p 2>/dev/null; done; wait 2>/dev/null; rm -rf "$dir"' EXIT
recorded=${1:-} hours_of=${HOURS_OF:-40} days_of=${DAYS_OF:-8} sums_of=${SUMS_OF:-1000} hosts=2
if [ -z "$recorded" ]; then
	recorded=$dir/recorded.db
	(while :; do sqlite3 :memory: "CREATE TABLE t(a, b); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 300000) INSERT INTO t SELECT random(), hex(randomblob(8)) FROM c; CREATE INDEX i ON t(b); SELECT count(*) FROM t WHERE b LIKE 'A%';" >/dev/null; done) & load=$!
	(while :; do python3 -c 'import json, random; [json.loads(json.dumps([{"a": random.random()} for i in range(500)])) for j in range(100)]'; done) & more=$!
	"$offwind" record -q --comm sqlite3,python3 -F 608 --rotate 10 -d 900 --history "$recorded" || exit 1
	kill $load $more
fi
clickhouse_prepare 2
clickhouse_start 1 && clickhouse_start 2 || exit 1
one=http://127.0.0.1:${ch_http[1]} two=http://127.0.0.1:${ch_http[2]}
"$offwind" fleet init -q --cluster fleet $one $two || exit 1
ask() { clickhouse_ask 1 offwind_all "$1"; }
both() { clickhouse_ask 1 offwind "$1"; clickhouse_ask 2 offwind "$1"; }
cpu="type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1)"

# A window is one second for the senders, and a slot is 30 windows: five minutes of windows of 10 s.
mkdir "$dir/hosts"
coproc "$BUILD/tests/live/senders" "$dir/hosts" "$recorded" $hosts 30 "$one,$two" 2>"$dir/senders.log"
senders=$COPROC_PID
tell() { local answer; echo "$1" >&"${COPROC[1]}"; read -r -t 600 answer <&"${COPROC[0]}"; [ "$answer" = done ] || { echo "$1: $answer"; exit 1; }; }
tell "add 31"
tell "wait 300"
first=$(ask "SELECT count() FROM samples WHERE type != 0")
began=$(date +%s.%N) pids=$(pgrep -P $senders | paste -sd,)
ticks() { awk '{ n += $14 + $15 } END { print n }' $(pgrep -P $senders | sed 's,.*,/proc/&/stat,'); }
before=$(ticks)
tell "add 120"
tell "wait 300"
ended=$(date +%s.%N) after=$(ticks)
echo accounts >&"${COPROC[1]}"
while read -r -t 60 line <&"${COPROC[0]}" && [ "$line" != end ]; do echo "$line"; done >"$dir/accounts"
rows=$(ask "SELECT count() FROM samples WHERE type != 0")
samples=$(awk '{ n += $3 } END { print n }' "$dir/accounts") bytes=$(awk '{ n += $5 } END { print n }' "$dir/accounts")
echo "in: $((rows - first)) rows of 4 slots of $hosts hosts; with making the histories $(echo "($rows - $first) / ($ended - $began)" | bc) rows/s"
echo "the senders' CPU time: $(echo "scale=1; ($after - $before) * 10 / 4 / $hosts" | bc) ms a slot of five minutes"
per_slot=$(echo "$rows / 5 / $hosts" | bc)
echo "a slot of a host: $(echo "$samples / 5 / $hosts" | bc) samples in $per_slot rows, $(echo "$bytes / 5 / $hosts" | bc) bytes on the way (gzip)"
both "OPTIMIZE TABLE samples FINAL" >/dev/null
echo "stacks of a slot that no slot before it has, of those that it has:" $(ask "SELECT concat(toString(sum(time = first)), '/', toString(count())) FROM (SELECT DISTINCT stack, time FROM samples WHERE host = (SELECT any(host) FROM samples WHERE type != 0) AND type != 0) ANY LEFT JOIN (SELECT stack, min(time) AS first FROM samples WHERE host = (SELECT any(host) FROM samples WHERE type != 0) AND type != 0 GROUP BY stack) USING stack GROUP BY time ORDER BY time LIMIT 3")
echo "stacks: $(ask 'SELECT uniqExact(stack) FROM stacks'), frames: $(ask 'SELECT uniqExact(frame) FROM names')"
size() { both "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'offwind' AND table IN ($1)" | awk '{ n += $1 } END { print n }'; }
others="'stacks', '.inner.stacks_by_frame', 'names', '.inner.frames_by_function', 'label_sets', 'counters', 'types'"
echo "bytes of the other tables: $(size "$others")"

# Rows of more hosts: each has a part of the first host's rows of all slots.  An insert has an hour of some hosts, whose rows come by stack, so
# that the sums of an hour are nearly what merges make of them.
start=$(( $(date +%s) / 86400 * 86400 - 86400 ))
source=$(ask "SELECT any(host) FROM samples WHERE type != 0")
for server in 1 2; do
	clickhouse_ask $server offwind "CREATE TABLE pool (type UInt32, stack UInt64, labels UInt64, n UInt64, value Int64) ENGINE = MergeTree ORDER BY (type, stack) SETTINGS index_granularity = 512"
	clickhouse_ask $server offwind "INSERT INTO pool SELECT type, stack, labels, max(n) AS n, max(value) AS value FROM remote('127.0.0.1:${ch_tcp[1]}', offwind_all, samples) WHERE host = '$source' AND type != 0 GROUP BY type, stack, labels"
done
share=$(echo "$per_slot * 1000 / $(clickhouse_ask 1 offwind "SELECT count() FROM pool")" | bc)
echo "a host has $share of 1000 rows of $(clickhouse_ask 1 offwind "SELECT count() FROM pool") in a slot"
fill() { # SERVER NAME HOSTS HOURS-FROM HOURS-TO
	local hour first last slots more
	for ((hour = $4; hour < $5; hour++)); do
		for ((first = 0; first < $3; first += 20)); do
			last=$((first + 20 < $3 ? first + 20 : $3))
			slots="(SELECT toUInt32($start + $hour * 3600 + number % 12 * 300) AS slot, $first + intDiv(number, 12) AS i, concat('$2-', toString(i), '.example.com') AS host FROM system.numbers LIMIT $(((last - first) * 12)))"
			more="intHash64(stack + i * 31 + slot) % 2"
			clickhouse_ask $1 offwind "INSERT INTO samples SELECT type, toDateTime(slot), host, toUInt64(0), stack, labels, n + $more, value + $more * intDiv(value, toInt64(greatest(n, 1))) FROM pool CROSS JOIN $slots WHERE intHash64(stack + i * 1000003 + slot * 7777777) % 1000 < $share SETTINGS max_block_size = 2048, max_threads = 1"
			# The batches themselves: without them, no question would use the sums.
			clickhouse_ask $1 offwind "INSERT INTO samples SELECT toUInt32(0), toDateTime(slot), host, toUInt64(0), toUInt64(0), i, toUInt64(300), toInt64(slot + 300) * 1000000000 FROM $slots"
		done
	done
}
filled=$(date +%s)
for server in 1 2; do fill $server hour$server $((hours_of / 2)) 0 1 & fills="${fills:-} $!"; done
wait $fills
for server in 1 2; do fill $server day$server $((days_of / 2)) 1 24 & fills="$fills $!"; done
wait $fills
echo "filled in $(($(date +%s) - filled)) s"
both "OPTIMIZE TABLE samples" >/dev/null
clickhouse_ask 1 offwind "INSERT INTO stacks SELECT * FROM remote('127.0.0.1:${ch_tcp[2]}', offwind, stacks)"
clickhouse_ask 2 offwind "INSERT INTO stacks SELECT * FROM remote('127.0.0.1:${ch_tcp[1]}', offwind, stacks)"
clickhouse_ask 1 offwind "INSERT INTO names SELECT * FROM remote('127.0.0.1:${ch_tcp[2]}', offwind, names)"
clickhouse_ask 2 offwind "INSERT INTO names SELECT * FROM remote('127.0.0.1:${ch_tcp[1]}', offwind, names)"
all=$(ask "SELECT count() FROM samples") bytes=$(size "'samples'")
sums=$(size "'.inner.sums'") of_hosts=$(size "'.inner.host_sums'")
echo "sums: $sums bytes, by hour $(size "'.inner.hour_sums'"); totals of hosts: $(size "'.inner.host_totals'") bytes; sums of hosts: $of_hosts bytes, $(echo "scale=1; $of_hosts * 100 / $bytes" | bc) of 100 of the samples'"
echo "$all rows, $(echo "scale=2; $bytes / $all" | bc) bytes a row: $(echo "scale=1; $per_slot * 288 * $bytes / $all / 1000000" | bc) MB a host-day"
hour="--from $(date -u -d @$start +%FT%TZ) --to $(date -u -d @$((start + 3600)) +%FT%TZ)"
day="--from $(date -u -d @$start +%FT%TZ) --to $(date -u -d @$((start + 86400)) +%FT%TZ)"
cpu_ms() { awk '{ n += $14 + $15 } END { print n * 10 }' $(printf '/proc/%s/stat ' ${ch_pid[*]}); }
timed() { # NAME COMMAND…
	local name=$1 best= i took before=$(cpu_ms)
	shift
	for i in 1 2 3; do
		took=$( { /usr/bin/env time -f %e "$@" >/dev/null 2>"$dir/err"; } 2>&1; tail -1 "$dir/err")
		best=$(printf '%s\n' $best $took | sort -n | head -1)
	done
	echo "$name: $best s; $((($(cpu_ms) - before) / 3)) ms of the servers' CPU time"
}
rows_of() { ask "SELECT count() FROM samples WHERE $cpu AND time >= toDateTime($start) AND time < toDateTime($((start + $1)))"; }
# A function that takes most of the time, and one that most stacks have.
named() { "$offwind" query top --sort $1 --fleet $one $hour -n 20 --json | python3 -c 'import json, re, sys; print(next(r["function"] for r in json.load(sys.stdin)["rows"] if re.fullmatch(r"\w+", r["function"])))'; }
function=$(named self) wide=$(named total)
echo "an hour: $(rows_of 3600) rows of $hours_of hosts; a day: $(rows_of 86400) rows"
# What else runs on the machine makes all times longer, this one, too.
timed "a column of the sums of hosts, to compare with" curl -s "127.0.0.1:${ch_http[1]}/?database=offwind_all" --data-binary "SELECT sum(n) FROM host_sums"
timed "top of an hour" "$offwind" query top --fleet $one $hour
timed "top of an hour by host" "$offwind" query top --by host --fleet $one $hour
timed "flame graph of an hour" "$offwind" query flamegraph --fleet $one $hour -o "$dir/out.html"
timed "timeline of an hour by host" "$offwind" query timeline --by host --fleet $one $hour
for name in $function $wide; do
	timed "which hosts run $name in an hour" "$offwind" query labels host --focus "^$name\$" --fleet $one $hour
	timed "which hosts run $name in a day" "$offwind" query labels host --focus "^$name\$" --fleet $one $day
	timed "top of $name in a day" "$offwind" query top --focus "^$name\$" --fleet $one $day
	timed "timeline of $name in a day" "$offwind" query timeline --focus "^$name\$" --fleet $one $day
done

# A day of many hosts, without their samples.
day_before=$((start - 86400))
for server in 1 2; do
	each=$((sums_of / 2)) with=$((sums_of / 2 * share / 1000 + 1))
	clickhouse_ask $server offwind "INSERT INTO samples SELECT toUInt32(0), toDateTime($day_before + intDiv(number, $each) * 300), concat('sums$server-', toString(number % $each), '.example.com'), toUInt64(0), toUInt64(0), number % $each, toUInt64(300), toInt64($day_before + intDiv(number, $each) * 300 + 300) * 1000000000 FROM (SELECT number FROM system.numbers LIMIT $((each * 288)))"
	clickhouse_ask $server offwind "INSERT INTO \`.inner.sums\` SELECT type, toDateTime(slot) AS time, stack, n * $with + intHash64(stack + slot) % 64 AS n, value * $with AS value, toUInt64(0) AS rows FROM pool CROSS JOIN (SELECT $day_before + number * 300 AS slot FROM system.numbers LIMIT 288) SETTINGS max_block_size = 2048, max_threads = 1"
	clickhouse_ask $server offwind "INSERT INTO \`.inner.hour_sums\` SELECT type, toStartOfHour(time) AS hour, stack, sum(n) AS n, sum(value) AS value, toUInt64(0) AS rows FROM sums WHERE type != 0 AND time >= toDateTime($day_before) AND time < toDateTime($start) GROUP BY type, hour, stack"
	clickhouse_ask $server offwind "INSERT INTO \`.inner.host_totals\` SELECT type, toDateTime($day_before + i % 288 * 300) AS time, concat('sums$server-', toString(intDiv(i, 288)), '.example.com') AS host, n, value, toUInt64(0) AS rows FROM (SELECT type, intDiv(sum(n), 2) AS n, intDiv(sum(value), 2) AS value FROM pool GROUP BY type) CROSS JOIN (SELECT number AS i FROM system.numbers LIMIT $((each * 288)))"
done
both "DROP TABLE pool"
day="--from $(date -u -d @$day_before +%FT%TZ) --to $(date -u -d @$start +%FT%TZ)"
echo "a day of $sums_of hosts: $(ask "SELECT count() FROM samples WHERE type = 0 AND time >= toDateTime($day_before) AND time < toDateTime($start)") batches, $(ask "SELECT count() FROM sums WHERE $cpu AND time >= toDateTime($day_before) AND time < toDateTime($start)") rows of sums"
for name in $function $wide; do
	timed "top of $name in that day" "$offwind" query top --focus "^$name\$" --fleet $one $day
	timed "timeline of $name in that day" "$offwind" query timeline --focus "^$name\$" --fleet $one $day
done
timed "top of that day by host" "$offwind" query top --by host --fleet $one $day
timed "flame graph of that day" "$offwind" query flamegraph --fleet $one $day -o "$dir/out.html"

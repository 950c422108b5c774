#!/usr/bin/env bash
# Tests the fleet's store with two real ClickHouse servers: many senders replay a real recording; every sample arrives exactly
# once through a server's restart, a lost server, batches that come twice, lost replies, senders that are killed, and a history that
# deletes what could not be sent.
#   FLEET_HOSTS=50 FLEET_WINDOWS=600 tests/live/fleet.sh: as many hosts as the issue asks for
set -u
. tests/recorder.sh
. tests/wait.sh
. tests/clickhouse.sh
command -v clickhouse-server >/dev/null || { echo "skipped: clickhouse-server is not installed"; exit 77; }
hosts=${FLEET_HOSTS:-6} windows=${FLEET_WINDOWS:-36}
trap 'for p in ${ch_pid[*]} ${proxy:-} ${senders:-} ${page:-}; do kill -KILL $p 2>/dev/null; done; wait 2>/dev/null; rm -rf "$dir"' EXIT

echo "== two servers"
clickhouse_prepare 2
clickhouse_start 1 && clickhouse_start 2 || exit 1
one=http://127.0.0.1:${ch_http[1]} two=http://127.0.0.1:${ch_http[2]}
"$offwind" fleet init -q --cluster fleet $one $two || fail "the tables"
"$offwind" fleet init -q --cluster fleet $one $two || fail "tables that are there"
"$offwind" query top --fleet $one 2>"$dir/err" && fail "an empty fleet has functions"
grep -q "the fleet is empty" "$dir/err" || fail "an empty fleet: $(cat "$dir/err")"

# Between the senders and the first server: each fourth block comes twice, each fifth reply is lost, some are a page to log in, and one comes
# too late.
# A host chooses its server by a hash of its address (agent/send/clickhouse.c): some are to choose the proxy, some not.
divided() { # URL: not all hosts choose the same of it and the second server
	python3 - "$1" "$two" $hosts <<'PY'
import sys
def weight(host, url):
    h = 0xCBF29CE484222325
    for byte in (host + url).encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    h *= 0x9E3779B97F4A7C15
    return (h ^ h >> 64) % 2**64
one, two, hosts = sys.argv[1], sys.argv[2], int(sys.argv[3])
n = sum(weight(f'host-{i}', one) > weight(f'host-{i}', two) for i in range(hosts))
sys.exit(not 0 < n < hosts)
PY
}
proxy_port=$(free_port)
until divided "http://127.0.0.1:$proxy_port"; do proxy_port=$(free_port); done
python3 tests/live/fleet_proxy.py $proxy_port ${ch_http[1]} "$dir/proxied" & proxy=$!

echo "== a recording"
sqlite3 :memory: "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 100000000) SELECT sum(x % 7) FROM c;" >/dev/null & load=$!
for seconds in 3 6 12; do # on a busy machine the program may get little of the CPU
	rm -f "$dir"/recorded.db*
	"$offwind" record -q -a -F 199 --rotate 1 -d $seconds --history "$dir/recorded.db" >/dev/null 2>"$dir/log" || fail "recording: $(cat "$dir/log")"
	"$offwind" report -n 0 "$dir/recorded.db" 2>>"$dir/log" | grep -w sqlite3VdbeExec >/dev/null && break
done
kill $load; wait $load 2>/dev/null

echo "== $hosts hosts"
mkdir "$dir/hosts"
coproc "$BUILD/tests/live/senders" "$dir/hosts" "$dir/recorded.db" $hosts 5 "http://127.0.0.1:$proxy_port,$two" 2>"$dir/senders.log"
senders=$COPROC_PID
tell() { # COMMAND: print the answer
	local answer
	echo "$1" >&"${COPROC[1]}" && read -r -t 240 answer <&"${COPROC[0]}" && echo "$answer"
}
must() { local answer=$(tell "$1"); [ "$answer" = done ] || { fail "$1: $answer $(tail -3 "$dir/senders.log")"; exit 1; }; }
must "add $((windows / 6))"
must "wait 200"

echo "== a server that is killed and comes back"
clickhouse_kill 1
must "add $((windows / 6))"
clickhouse_start 1
must "add $((windows / 6))"

echo "== senders that are killed"
must restart
must "add $((windows / 6))"
must restart
must "wait 200"

echo "== a lost server: the windows wait in the history, which deletes those of one host"
clickhouse_kill 1
clickhouse_kill 2
must "add $((windows / 6))"
must "delete 0"
must "add $((windows / 6 + 1))"
clickhouse_start 1
clickhouse_start 2
must "wait 200"

echo "== the accounts"
echo accounts >&"${COPROC[1]}"
while read -r -t 200 line <&"${COPROC[0]}" && [ "$line" != end ]; do echo "$line"; done >"$dir/unsorted"
sort "$dir/unsorted" >"$dir/accounts"
[ "$(wc -l <"$dir/accounts")" = $hosts ] || fail "accounts: $(cat "$dir/accounts")"
deleted=$(awk '$1 == "host-0" { print $4 }' "$dir/accounts")
[ "$deleted" -gt 0 ] || fail "the history deleted nothing that was not sent"
awk '$2 != $3 + $4 || ($1 != "host-0" && $4) { print "sent and deleted are not all:", $0; bad = 1 } END { exit bad }' "$dir/accounts" || fail "accounts of the senders"
clickhouse_ask 1 offwind_all "SELECT host, toInt64(sum(n)) FROM samples FINAL WHERE type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1) GROUP BY host ORDER BY host" | sort | tr '\t' ' ' >"$dir/stored"
diff <(cut -d' ' -f1,3 "$dir/accounts") "$dir/stored" || fail "what the servers have is not what the senders say"
all=$(awk '{ n += $3 } END { print n }' "$dir/accounts")
asked() { "$offwind" query "$@" --fleet $one; }
asked top --json --from -2h | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])' >"$dir/top"
[ "$(cat "$dir/top")" = "$all" ] || fail "top has $(cat "$dir/top") samples, not $all"
clickhouse_ask 1 offwind_all "SELECT toInt64(sum(n)) FROM counters FINAL WHERE what = 'unwound'" >"$dir/unwound"
[ "$(cat "$dir/unwound")" = "$all" ] || fail "the counters say $(cat "$dir/unwound") samples, not $all"
for fault in twice lost page hangs; do grep -q $fault "$dir/proxied" || fail "the proxy has not done '$fault': $(sort "$dir/proxied" | uniq -c)"; done
[ -s "$dir/senders.log" ] || fail "the senders said nothing of servers that are away"
# Rows that servers have of stacks are those of stacks that they did not have: each host sends a stack once, even after outages.
for n in 1 2; do
	clickhouse_ask $n offwind "SELECT max(times) FROM (SELECT stack, count() AS times FROM stacks GROUP BY stack)" >"$dir/times"
	[ "$(cat "$dir/times")" -le $((hosts * 4)) ] || fail "server $n got a stack $(cat "$dir/times") times"
done

echo "== questions"
asked labels host --from -2h --json | grep -c '"value":"host-' >"$dir/n"
[ "$(cat "$dir/n")" = $hosts ] || fail "$(cat "$dir/n") hosts have samples"
asked top --by host --from -2h | grep -q host-1 || fail "top by host"
asked profile --from -2h -o "$dir/fleet.pb.gz" && "$offwind" report --check "$dir/fleet.pb.gz" >"$dir/out" || fail "the profile: $(cat "$dir/out")"
asked profile --from -2h --format parquet -o "$dir/fleet.parquet" && [ "$(head -c 4 "$dir/fleet.parquet")$(tail -c 4 "$dir/fleet.parquet")" = PAR1PAR1 ] || fail "the profile as a table"
asked flamegraph --from -2h -o "$dir/fleet.html" && grep -q sqlite3VdbeExec "$dir/fleet.html" || fail "the flame graph"
# The fleet's stacks are those that one host recorded: the shares of functions are the same, as each window came as often.
asked labels host --focus '^sqlite3VdbeExec$' --from -2h | grep -q 'host-1$' || fail "which hosts run a function"
asked labels host --focus '^no_such_function$' --from -2h | grep -q host- && fail "hosts run what nobody does"
asked top --from -2h --label host=host-1 --base-label host=host-2 | grep -q '^# compared with' || fail "a difference of hosts"
asked timeline --by host --from -2h | grep -q host-2 || fail "the timeline"
asked heatmap --from -2h | grep -q '[█▓▒░·]' || fail "the heat map"
asked completeness --from -2h | grep -q '(whole)' || fail "completeness"
asked sql 'SELECT count() AS hosts FROM (SELECT DISTINCT host FROM samples)' | grep -qw $hosts || fail "SQL"
asked top --sql --from -2h --focus malloc | grep -q 'FROM samples' || fail "the queries"
# The SQL behind each question, as the server takes it from anybody.
for question in "top --by comm" flamegraph profile "labels host --focus ^malloc$" timeline heatmap completeness "flamegraph --label host=host-1 --base-label host=host-2"; do
	asked $question --sql --from -2h >"$dir/sql" || fail "$question --sql"
	[ "$(grep -c '^SELECT ' "$dir/sql")" -ge 3 ] || fail "the queries of $question: $(cat "$dir/sql")"
	while read -r sql; do
		[[ $sql == --* || $sql == *" IN ids"* ]] && continue
		clickhouse_ask 1 offwind_all "${sql%;}" | grep -a 'DB::Exception' && fail "$question: $sql"
	done <"$dir/sql"
done
# Servers since 19.14 take a join of nameless queries for an error.
asked labels comm --sql --from -2h | grep -q ') AS parts ANY LEFT JOIN (.*) AS sets USING' || fail "a join without names"
asked labels comm --from -2h | grep -q 'sqlite3$' || fail "the values of a label"
# Without the hours, 18.16 reads whole days: they are in the tables' keys.
asked timeline --focus malloc --sql --from -2h | grep 'FROM sums\|FROM samples' | grep -qv 'toStartOfHour(time) >= .* AND toStartOfHour(time) <= ' && fail "a question reads whole days"
asked top --by pid 2>/dev/null && fail "processes of a fleet"

echo "== the page over all hosts"
"$offwind" fleet serve --listen 0.0.0.0:0 $one 2>"$dir/err" && fail "a page for everybody, without a token"
grep -q "takes a token and a certificate" "$dir/err" || fail "a page for everybody: $(cat "$dir/err")"
serving=127.0.0.1:$(free_port)
"$offwind" fleet serve --listen $serving $one 2>"$dir/page.log" & page=$!
serves() { curl -sf -o /dev/null "$serving/readyz"; }
until_or_dead $page serves || fail "it is not served: $(cat "$dir/page.log")"
[ "$(ps -o user= --ppid $page | tr -d ' ')" != root ] || fail "what answers has root's rights"
curl -s "$serving/api/v1/top?from=-2h" | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])' >"$dir/top"
[ "$(cat "$dir/top")" = "$all" ] || fail "the page's top has $(cat "$dir/top") samples, not $all"
curl -s "$serving/api/v1/counters?from=-2h" | python3 -c 'import json, sys; print(json.load(sys.stdin)["unwound"]["all"])' >"$dir/unwound"
[ "$(cat "$dir/unwound")" = "$all" ] || fail "the page's counters say $(cat "$dir/unwound") samples, not $all"
for refused in "-X POST -d SELECT+1 $serving/api/v1/query" "$serving/debug/pprof/profile?seconds=1" "$serving/api/v1/samples"; do
	[ "$(curl -s -o /dev/null -w '%{http_code}' $refused)" = 404 ] || fail "served: $refused"
done
if command -v chromium >/dev/null; then
	timeout 200 python3 tests/live/fleet_page.py http://$serving "$dir" $(cut -d' ' -f1 "$dir/accounts") || fail "the page: $(cat "$dir/page.log")"
fi
kill $page; wait $page || fail "the server did not end well"

echo "== names that are replaced"
for n in 1 2; do
	said=$(clickhouse_ask $n offwind "INSERT INTO names SELECT frame, build_id, vaddr, module, ['renamed_function'], ['a.c'], [toUInt32(1)], version + 1000000000000 FROM names WHERE has(functions, 'sqlite3VdbeExec')")
	[ -z "$said" ] || fail "names of server $n: $said"
done
asked top --from -2h -n 0 >"$dir/top"
grep -q renamed_function "$dir/top" && ! grep -qw sqlite3VdbeExec "$dir/top" || fail "old samples keep old names: $(grep -E 'sqlite3VdbeExec|renamed_function' "$dir/top") $(head -n 8 "$dir/top")"

echo "== sums of all hosts"
# A database of its own, without blocks that came twice.
quiet=$one/quiet
"$offwind" fleet init -q $quiet || fail "another database"
for table in types stacks names label_sets samples; do clickhouse_ask 1 quiet "INSERT INTO $table SELECT * FROM offwind_all.$table FINAL"; done
# The same on two servers: each has the hosts that send to it.
"$offwind" fleet init -q --cluster fleet $one/pair $two/pair || fail "another database of two servers"
for n in 1 2; do
	for table in types stacks names label_sets samples; do clickhouse_ask $n pair "INSERT INTO $table SELECT * FROM offwind.$table FINAL"; done
done
uses() { local table=$1; shift; "$offwind" query "$@" --sql --fleet $quiet | grep -q "FROM $table WHERE type = [1-9]"; } # TABLE QUESTION…
uses_sums() { uses sums "$@" --from -2h; }
sums_of() { "$offwind" query top --json --from -2h --fleet $quiet "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])'; }
rows=$(clickhouse_ask 1 quiet "SELECT toInt64(sum(n)) FROM samples WHERE type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1)")
[ "$rows" -gt 0 ] && [ "$(sums_of)" = "$rows" ] || fail "top has $(sums_of) samples, not $rows"
uses_sums top && uses_sums timeline --focus '^malloc$' && uses_sums top --focus '^malloc$' || fail "sums of all hosts are not used"
uses_sums top --label host=host-1 && fail "sums of all hosts are used for one"
uses_sums top --by comm && fail "sums of all hosts are used for labels"
one_host=$(clickhouse_ask 1 quiet "SELECT any(host) FROM samples WHERE type = 0")
of_host=$(clickhouse_ask 1 quiet "SELECT toInt64(sum(n)) FROM samples WHERE host = '$one_host' AND type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1)")
[ "$(sums_of --label "host=$one_host")" = "$of_host" ] || fail "a host has $(sums_of --label "host=$one_host") samples, not $of_host"
# The function that took the most time with those that it called.
wide=$("$offwind" query top --sort total --fleet $quiet --from -2h -n 20 --json | python3 -c 'import json, re, sys; print(next(r["function"] for r in json.load(sys.stdin)["rows"] if re.fullmatch(r"\w+", r["function"])))')
[ -n "$wide" ] || fail "no function takes the most time"
# Sums of a host and hour, and the rest of a range from the samples: the same as of samples alone, wherever the range begins and ends.
now=$(date +%s) middle=$(clickhouse_ask 1 quiet "SELECT toUInt32(toDateTime(avg(toUInt32(time)))) FROM samples WHERE type = 0")
hour=$((now / 3600 * 3600))
for range in "$((hour - 3600)) $((hour + 3600))" "$((hour - 7200)) $middle" "$middle $((middle + 9000))" "$((middle - 3500)) $((middle + 100))"; do
	read -r from to <<<"$range"
	when="--from $(date -u -d @$from +%FT%TZ) --to $(date -u -d @$to +%FT%TZ)"
	within="--fleet $quiet $when"
	clickhouse_ask 1 quiet "SELECT host, toInt64(sum(n)) AS all FROM samples WHERE type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1) AND time >= toDateTime($from) AND time < toDateTime($to) GROUP BY host ORDER BY host" | tr '\t' ' ' >"$dir/expected"
	"$offwind" query labels host --type samples --json $within | python3 -c 'import json, sys; [print(r["value"], r["samples"]) for r in sorted(json.load(sys.stdin)["values"], key=lambda r: r["value"])]' >"$dir/of_hosts"
	diff "$dir/expected" "$dir/of_hosts" || fail "the hosts of $range"
	uses host_totals labels host $within || fail "sums of hosts are not used for $range"
	# The same of one function.
	of_function="stack IN (SELECT stack FROM stacks_by_frame WHERE frame IN (SELECT frame FROM names WHERE has(functions, 'renamed_function')))"
	in_range="type = (SELECT id FROM types WHERE type = 'cpu' LIMIT 1) AND time >= toDateTime($from) AND time < toDateTime($to)"
	for name in '^renamed_function$' "^$wide\$" .; do
		# ".": stacks that have a function at all, which are at least half; those of the others are subtracted from all.
		[ "$name" = . ] && named="notEmpty(functions)" || named="has(functions, '${name:1:-1}')"
		clickhouse_ask 1 quiet "SELECT host, toInt64(sum(n)) AS all FROM samples WHERE $in_range AND stack IN (SELECT stack FROM stacks_by_frame WHERE frame IN (SELECT frame FROM names WHERE $named)) GROUP BY host ORDER BY host" | tr '\t' ' ' >"$dir/expected"
		for fleet in "$quiet" "$one/pair"; do
			"$offwind" query labels host --focus "$name" --type samples --json --fleet $fleet $when | python3 -c 'import json, sys; [print(r["value"], r["samples"]) for r in sorted(json.load(sys.stdin)["values"], key=lambda r: r["value"])]' >"$dir/of_hosts"
			diff "$dir/expected" "$dir/of_hosts" || fail "the hosts that run $name in $range, $fleet"
			"$offwind" query labels host --focus "$name" --sql --fleet $fleet $when | grep -q "FROM host_totals WHERE .* UNION ALL SELECT host, -toInt64(sum(n)) " || [ "$name" != . ] || fail "nothing is subtracted in $range, $fleet"
		done
	done
	"$offwind" query labels host --focus '^renamed_function$' --sql $within | grep -q "FROM host_sums WHERE type = [1-9].* FROM samples WHERE" || fail "sums by hour are not used for a function of hosts in $range"
	uses host_sums top --label "host=$one_host" $within || fail "sums by hour are not used for one host in $range"
	for function in "" '^renamed_function$'; do
		clickhouse_ask 1 quiet "SELECT toInt64(sum(n)) FROM samples WHERE $in_range${function:+ AND $of_function}" >"$dir/expected"
		"$offwind" query top --json ${function:+--focus "$function"} $within | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])' >"$dir/top"
		diff "$dir/expected" "$dir/top" || fail "top of ${function:-all} in $range"
	done
	[ $((to - from)) -lt 7200 ] || "$offwind" query top --sql $within | grep -q "FROM hour_sums WHERE type = [1-9].* FROM sums WHERE" || fail "sums by hour are not used for all hosts in $range"
done
[ "$(sums_of --focus '^renamed_function$')" -gt 0 ] || fail "the function has no samples"
# Tables that an older offwind made do not have those by hour.
clickhouse_ask 1 quiet "DROP TABLE hour_sums"
uses_sums top && [ "$(sums_of)" = "$rows" ] || fail "without sums by hour: $(sums_of) samples, not $rows"
uses host_totals labels host --label comm=sqlite3 $within && fail "sums of hosts are used for a label"
# A batch that comes twice is twice in the sums, also when a merge has removed it from the samples.
clickhouse_ask 1 quiet "INSERT INTO samples SELECT * FROM samples WHERE host = '$one_host'"
[ "$(sums_of)" = "$rows" ] || fail "batches that came twice: $(sums_of) samples, not $rows"
uses_sums top && fail "the sums have batches twice, and are used"
uses host_totals labels host $within && fail "the sums of hosts have batches twice, and are used"
uses host_sums top --label "host=$one_host" $within && fail "the sums by hour have batches twice, and are used"
clickhouse_ask 1 quiet "OPTIMIZE TABLE samples FINAL"
[ "$(sums_of)" = "$rows" ] || fail "batches that came twice and were merged: $(sums_of) samples, not $rows"
uses_sums top && fail "the sums still have batches twice, and are used"
# Stacks that no host has sent for long are deleted, and no others.
n_stacks() { clickhouse_ask 1 quiet "SELECT count(DISTINCT stack) FROM $1 WHERE today() - day < 2"; }
n_old() { clickhouse_ask 1 quiet "SELECT count() FROM $1 WHERE today() - day >= 2"; }
n_before=("$(n_stacks stacks)" "$(n_stacks stacks_by_frame)")
[ "${n_before[0]}" -gt 0 ] && [ "${n_before[0]}" = "${n_before[1]}" ] || fail "stacks of today: ${n_before[*]}"
clickhouse_ask 1 quiet "INSERT INTO stacks SELECT stack + 1 AS stack, frames, today() - 40 AS day FROM stacks"
[ "$(n_old stacks)" -gt 0 ] && [ "$(n_old stacks_by_frame)" -gt 0 ] || fail "no stacks are old"
clickhouse_ask 1 quiet "ALTER TABLE stacks DELETE WHERE day < today() - 32"
clickhouse_ask 1 quiet "ALTER TABLE \`.inner.stacks_by_frame\` DELETE WHERE day < today() - 32"
none_old() { [ "$(n_old stacks)" = 0 ] && [ "$(n_old stacks_by_frame)" = 0 ]; }
until_or_dead ${ch_pid[1]} none_old || fail "old stacks stay"
[ "$(n_stacks stacks) $(n_stacks stacks_by_frame)" = "${n_before[*]}" ] || fail "stacks of today are deleted, too"
# Nor do still older ones have the others.
for table in host_totals sums host_sums; do
	clickhouse_ask 1 quiet "DROP TABLE $table"
	[ "$(sums_of)" = "$rows" ] || fail "without $table: $(sums_of) samples, not $rows"
done
"$offwind" fleet init -q $quiet || fail "tables that are added"
[ "$(sums_of)" = "$rows" ] || fail "with new sums that have no batch: $(sums_of) samples, not $rows"

echo "== a server that loses its tables gets all stacks and names again"
clickhouse_kill 1
rm -rf "$dir/clickhouse-1/data"
mkdir "$dir/clickhouse-1/data"
clickhouse_start 1 && "$offwind" fleet init -q --cluster fleet $one || fail "the tables of a new server"
must "add $((windows / 6 + 5))"
must "wait 200"
without() { clickhouse_ask 1 offwind "$1"; }
[ "$(without "SELECT count() FROM samples WHERE type != 0")" -gt 0 ] || fail "nothing comes to the new server"
[ "$(without "SELECT count() FROM samples WHERE type != 0 AND stack NOT IN (SELECT stack FROM stacks)")" = 0 ] || fail "a new server does not get stacks that the old one had"
[ "$(without "SELECT count() FROM (SELECT DISTINCT arrayJoin(frames) AS frame FROM stacks) WHERE frame NOT IN (SELECT frame FROM names)")" = 0 ] || fail "a new server does not get names that the old one had"
[ "$(without "SELECT count() FROM samples WHERE type NOT IN (SELECT id FROM types) AND type != 0 OR type != 0 AND labels NOT IN (SELECT labels FROM label_sets)")" = 0 ] || fail "a new server does not get types or labels that the old one had"

echo "== senders that begin anew do not send stacks that the server has"
today=$(date -u +%F) stacks=$(grep -c stacks "$dir/proxied")
[ "$stacks" -gt 0 ] || fail "no stacks were sent"
before=$(without "SELECT count() FROM samples")
must restart
must "add $((windows / 6 + 5))"
must "wait 200"
[ "$(without "SELECT count() FROM samples")" -gt "$before" ] || fail "nothing comes any more"
[ "$(date -u +%F)" != $today ] || [ "$(grep -c stacks "$dir/proxied")" = $stacks ] || fail "stacks are sent again that the server has"

# A server of a newer version, with schema/fleet_2.sql, where npm's chdb is: 150 MB, which the tests do not fetch by themselves.
#   npm install chdb && NODE_PATH=$PWD/node_modules tests/live/fleet.sh
if node -e 'require("chdb")' 2>/dev/null; then
	echo "== a newer server"
	mkdir "$dir/chdb" "$dir/newer"
	newer_port=$(free_port) && newer=http://127.0.0.1:$newer_port
	node tests/live/fleet_chdb.mjs "$dir/chdb" $newer_port >"$dir/chdb/log" 2>&1 & proxy="$proxy $!"
	newer_answers() { curl -sf "$newer/ping" >/dev/null; }
	until_or_dead $! newer_answers || fail "chDB does not answer: $(cat "$dir/chdb/log")"
	"$offwind" fleet init -q $newer && "$offwind" fleet init -q $newer || fail "the tables of a newer server"
	eval "exec ${COPROC[1]}>&-"
	wait $senders
	coproc "$BUILD/tests/live/senders" "$dir/newer" "$dir/recorded.db" 2 5 $newer 2>>"$dir/senders.log"
	senders=$COPROC_PID
	must "add 21"
	must "wait 200"
	echo accounts >&"${COPROC[1]}"
	while read -r -t 200 line <&"${COPROC[0]}" && [ "$line" != end ]; do echo "$line"; done >"$dir/accounts"
	all=$(awk '{ n += $3 } END { print n }' "$dir/accounts")
	ask_newer() { curl -s "$newer/?database=offwind" --data-binary "$1"; }
	[ "$all" -gt 0 ] && [ "$(ask_newer "SELECT toInt64(sum(n)) FROM samples WHERE type != 0")" = "$all" ] || fail "the newer server does not have the $all samples"
	newer_has() { "$offwind" query "$@" --fleet $newer --from -2h >"$dir/out" 2>&1 || fail "a newer server, $1: $(cat "$dir/out")"; }
	newer_has top -n 0 && grep -q sqlite3VdbeExec "$dir/out" && grep -q "^# $all samples" "$dir/out" || fail "top of a newer server"
	newer_has labels host --focus '^sqlite3VdbeExec$' && grep -q 'host-1$' "$dir/out" || fail "the hosts of a function on a newer server"
	newer_has labels comm && newer_has top --by comm && newer_has timeline --by host && newer_has heatmap && newer_has completeness
	newer_has top --label host=host-1 --base-label host=host-0
	newer_has labels host --sql && grep -q "FROM host_totals WHERE type = [1-9]" "$dir/out" || fail "sums of hosts of a newer server are not used"
	newer_has labels host --focus '^sqlite3VdbeExec$' --sql && grep -q "FROM host_sums WHERE type = [1-9]" "$dir/out" || fail "sums by hour and host of a newer server are not used"
	newer_has top --sql --from -3h && grep -q "FROM hour_sums WHERE type = [1-9]" "$dir/out" || fail "sums by hour of a newer server are not used"
	for table in stacks stacks_by_frame; do
		[ "$(ask_newer "SELECT count() > 0 AND min(day) > today() - 2 FROM $table")" = 1 ] || fail "the days of $table of a newer server"
	done
	[ "$(ask_newer "SELECT map['comm'] FROM label_sets WHERE has(vals, 'sqlite3') LIMIT 1")" = sqlite3 ] || fail "labels as a map"
fi
[ $failures = 0 ]

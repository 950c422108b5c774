#!/usr/bin/env bash
# Tests offwind daemon: what it records, serves and survives.
set -u
. tests/recorder.sh
. tests/wait.sh
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
db=$dir/o.db history=$dir/o-history.db socket=$dir/socket port=$(free_port)
# The test itself gets the CPUs first.
nice -n 5 "$dir/prog" & prog=$!
nice -n 5 "$BUILD/tests/live/context" 'shop, north' 'shop, south' & context=$!
printf '[server]\nrecord = any\n[record]\nrotate = 2\nevent = cpu-clock\nfreq = 99\n' >"$dir/short"

# Begin a daemon; $url is where it serves.
begin() { # option…
	"$offwind" daemon --config "$dir/short" --db "$db" --listen "unix:$socket" --listen "127.0.0.1:$port" "$@" 2>"$dir/log" & daemon=$!
}
# Print what a request gives, after its status.
get() { # path, or "POST path body" [header…]
	local path=$1 body header options=() got=$dir/got.$BASHPID
	shift
	if [[ $path == 'POST '* ]]; then
		read -r _ path body <<<"$path"
		options=(-H 'Content-Type:' --data-raw "$body")
	fi
	for header; do options+=(-H "$header"); done
	: >"$got"
	curl -gsS --max-time 100 --unix-socket "$socket" "${options[@]}" -o "$got" -w '%{http_code}\n' "http://localhost$path" 2>&1
	cat "$got"
	rm -f "$got"
}
status() { get "$@" >"$dir/status"; head -n 1 "$dir/status"; }
is_ready() { [ "$(status /readyz)" = 200 ]; }
newest() { sqlite3 -cmd ".timeout 10000" "$history" "SELECT max(id) FROM windows"; }
# The sums of each window are right.
sums() {
	sqlite3 -cmd ".timeout 10000" "$history" "SELECT window, sum(n * (what = 'fired')) AS fired, sum(n * (what IN ('unwound', 'waiting', 'filtered', 'lost'))) AS settled,
		sum(n * (what = 'unwound')) AS unwound, sum(n * (what = 'stop')) AS stops, n_samples FROM counters JOIN windows ON windows.id = window GROUP BY window
		HAVING fired <> settled OR unwound <> stops OR unwound <> n_samples"
}

echo "== what is recorded and served"
begin
until_or_dead $daemon is_ready || fail "not ready: $(cat "$dir/log")"
[ "$(stat -c %a "$history")" = 600 ] || fail "others can read the history"
[ "$(stat -c %a "$socket")" = 660 ] || fail "mode of the socket"
for _ in 1 2 3 4 5; do # on a busy machine the program may get no CPU for seconds
	get "/debug/pprof/profile?seconds=2" >"$dir/reply"
	tail -c +5 "$dir/reply" >"$dir/p.pb.gz"
	"$offwind" report -n 0 "$dir/p.pb.gz" 2>"$dir/out" | grep -q ' prog .*hot' && break
done
[ "$(status "/debug/pprof/profile?seconds=30&to=now")" = 200 ] || fail "a profile of a range that has only an end: $(head -c 300 "$dir/status")"
[ "$(head -1 "$dir/reply")" = 200 ] || fail "profile: $(head -c 300 "$dir/reply")"
"$offwind" report --check "$dir/p.pb.gz" >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$offwind" report -n 0 "$dir/p.pb.gz" | grep -q ' prog .*hot' || fail "the profile has not what runs"
python3 - "$dir/p.pb.gz" <<-'PY' || fail "the time of the profile"
	import gzip, subprocess, sys
	text = subprocess.run(['go', 'tool', 'pprof', '-raw', sys.argv[1]], capture_output=True, text=True).stdout
	duration = [l for l in text.splitlines() if l.startswith('Duration:')]
	assert duration and 1.5 < float(duration[0].split()[1].rstrip('s')) < 2.1, text[:500]
PY
for request in "/api/v1/top?n=5" "/api/v1/labels?key=comm" "/api/v1/timeline?by=comm&step=1000" "/api/v1/heatmap?from=-20s" "/api/v1/samples?n=3&comm=prog" "/api/v1/counters" "/api/v1/profile?format=speedscope"; do
	get "$request" >"$dir/reply"
	[ "$(head -n 1 "$dir/reply")" = 200 ] && tail -n +2 "$dir/reply" | python3 -m json.tool >"$dir/out" 2>&1 || fail "$request: $(head -c 300 "$dir/reply" "$dir/out")"
done
has() { get "$1" >"$dir/reply"; grep -q "$2" "$dir/reply"; } # path, text
has "/api/v1/top?comm=prog" '"function":"hot"' || fail "top"
has "/api/v1/top?comm=nobody" '"samples":0' || fail "samples of nobody are counted"
has "/api/v1/top?comm=nobody" '"function"' && fail "a condition does nothing"
has "/api/v1/flamegraph?from=-1m&by=comm" '</html>' || fail "flame graph"
has "/api/v1/profile?format=folded" 'prog.*main.*hot' || fail "folded"
time_ns=$(get "/api/v1/samples?n=1&comm=prog" | grep -o '"time_ns":[0-9]*' | cut -d: -f2)
# Tables of other programs may be made first.
until_or_dead $daemon has "/api/v1/explain?time_ns=$time_ns&comm=prog" '"rule":"CFA = ' || fail "explain: $(head -c 1000 "$dir/reply")"
id=$(readelf -n /lib/x86_64-linux-gnu/libc.so.6 | sed -n 's/.*Build ID: //p')
until_or_dead $daemon has "/api/v1/unwind/$id?n=3" '"words": *"CFA = ' || fail "unwind: $(head -c 1000 "$dir/reply")"
until_or_dead $daemon has "/api/v1/unwind/$id/26010" '"words": *"CFA = ' || fail "unwind at an address: $(head -c 1000 "$dir/reply")"
has "/metrics" '^offwind_samples_unwound_total [1-9]' || fail "metrics: $(head -c 1000 "$dir/reply")"
has "POST /api/v1/query SELECT count(*) AS n FROM history.windows" '"n": *[1-9]' || fail "SQL: $(head -c 1000 "$dir/reply")"
has "POST /api/v1/query SELECT instr('abc', 'c') AS a, instr(NULL, 'x') AS b, replace('a|b', '|', 'ü') AS c, ltrim('xxax', 'x') || trim('xxbx', 'x') || rtrim('xxcx', 'x') AS d, trim(' e ') AS e" '"a":3,"b":null,"c":"aüb","d":"axbxxc","e":"e"' || fail "functions of SQL: $(head -c 1000 "$dir/reply")"
# What a program says of itself is a label of its samples, also when it says something else.
has_service() { has "/api/v1/labels?key=service.name" "$1"; }
until_or_dead $daemon has_service '"value":"shop, north"' || fail "service.name: $(head -c 1000 "$dir/reply")"
kill -USR1 $context
until_or_dead $daemon has_service '"value":"shop, south"' || fail "another service.name: $(head -c 1000 "$dir/reply")"
has '/api/v1/top?by=comm&service.name=shop%5C,%20north&service.name=none' '"comm":"context"' || fail "a value with a comma: $(head -c 1000 "$dir/reply")"
has '/api/v1/top?by=service' '"service":"shop, north"' || fail "services: $(head -c 1000 "$dir/reply")"
has "POST /api/v1/query SELECT count(*) AS n FROM history.labels WHERE json_extract(labels, '$.\"service.name\"') LIKE 'shop, %' AND json_extract(labels, '$.exe') LIKE '%/context'" '"n": *[1-9]' || fail "SQL: $(head -c 1000 "$dir/reply")"
# The sums of a profile, of a timeline and of a heat map over the same time are equal. A sample that came late is in a
# window after its time: the range ends before the last two.
has_windows() { [ "$(newest)" -ge 5 ]; }
until_or_dead $daemon has_windows || fail "no windows"
now=$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT end_ns FROM windows ORDER BY id DESC LIMIT 1 OFFSET 2")
python3 - <(get "/api/v1/top?from=$((now - 60000000000))ns&to=${now}ns") <(get "/api/v1/timeline?by=comm&n=3&step=1000&from=$((now - 60000000000))ns&to=${now}ns") <(get "/api/v1/heatmap?from=$((now - 60000000000))ns&to=${now}ns") <<-'PY' || fail "sums differ"
	import json, sys
	top, timeline, heatmap = (json.loads(open(p).read().split('\n', 1)[1]) for p in sys.argv[1:])
	a, b, c = top['value'], sum(sum(s['values']) for s in timeline['series']), sum(map(sum, heatmap['columns']))
	print(a, b, c)
	assert a > 0 and a == b == c
PY

echo "== everything is as docs/openapi.yaml says"
node tests/live/daemon_api.mjs "$BUILD/npm/tests/node_modules" "$socket" "build_id=$id" "time_ns=$time_ns" "uprobe=$dir/prog:hot" || fail "the description"

echo "== offwind query"
ask() { "$offwind" query --url "unix:$socket" "$@" >"$dir/out" 2>"$dir/err"; } # WHAT [OPTION]…
ask top --from -1m --label comm=prog && grep -q ' prog .*hot' "$dir/out" || fail "query top: $(head -n 20 "$dir/out" "$dir/err")"
grep -q 'chromium\|\[k\].* prog$' "$dir/out" && fail "query top: a condition does nothing"
# The table is the reply: the same sums as in JSON.
range="--from $((now - 60000000000))ns --to ${now}ns"
ask top $range -n 1 --label comm=prog --sort self && cp "$dir/out" "$dir/table" && ask top $range -n 1 --label comm=prog --json &&
	python3 - "$dir/out" "$dir/table" <<-'PY' || fail "query top: $(cat "$dir/table" "$dir/err")"
	import json, re, sys
	top, table = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
	row = top['rows'][0]
	assert '# %d samples, ' % top['samples'] in table, table
	# JSON has six digits: of 98.85496, it has 98.855, which is not to be rounded once more.
	assert abs(float(re.search(r'([\d.]+)%', table)[1]) - row['self_percent']) < 0.0051, (row, table)
	assert row['function'] in table and '%d more' % top['rows_left_out'] in table, table
PY
ask top --from -1m --by pid --label "pid=$prog" && grep -q "^100.00%.* $prog  *prog$" "$dir/out" || fail "query --by pid: $(cat "$dir/out" "$dir/err")"
ask top --from -30s --base-from -1m --base-to -30s && grep -q 'CHANGE' "$dir/out" || fail "query with a base: $(head "$dir/out" "$dir/err")"
ask labels comm --from -1m && grep -q ' [1-9][0-9]*  prog$' "$dir/out" || fail "query labels: $(cat "$dir/out" "$dir/err")"
# A reader that goes away, as head does, is no failure to report, and the exit code is that of SIGPIPE.
python3 - "$offwind" query --url "unix:$socket" profile --from -1m --format tsv -o - <<-'PY' || fail "query without a reader"
	import os, subprocess, sys
	reader, writer = os.pipe()
	os.close(reader)
	done = subprocess.run(sys.argv[1:], stdout=writer, stderr=subprocess.PIPE)
	assert done.returncode == 141 and not done.stderr, done
PY
# Commands call the label container_id as report --by does.
for words in "labels container" "timeline --by container --json"; do
	ask $words --from -1m && grep -q 'container_id' "$dir/out" || fail "query $words: $(head -n 3 "$dir/out" "$dir/err")"
done
ask timeline --by comm --from -1m && grep -q ' prog .*[▁▂▃▄▅▆▇█]' "$dir/out" || fail "query timeline: $(cat "$dir/out" "$dir/err")"
ask heatmap --rows 5 --from -20s && [ "$(wc -l <"$dir/out")" = 6 ] && grep -q '█' "$dir/out" || fail "query heatmap: $(cat "$dir/out" "$dir/err")"
ask sql "SELECT 7 AS n, 'a' AS t" && [ "$(cat "$dir/out")" = "n  t
7  a" ] || fail "query sql: $(cat "$dir/out" "$dir/err")"
ask profile --from -1m -o "$dir/q.pb.gz" && "$offwind" report --check "$dir/q.pb.gz" >/dev/null || fail "query profile: $(cat "$dir/err")"
ask profile --from -1m --format folded && grep -q 'prog.*main.*hot' "$dir/out" || fail "query profile --format: $(cat "$dir/err")"
ask flamegraph --from -1m -o "$dir/q.html" && grep -q '</html>' "$dir/q.html" || fail "query flamegraph: $(cat "$dir/err")"
"$offwind" query top --url "http://127.0.0.1:$port" -n 1 >"$dir/out" 2>&1 || fail "query by TCP: $(cat "$dir/out")"
for what in top timeline "labels comm"; do ask $what --from +1h --to +2h && grep -q '^# no samples$' "$dir/out" || fail "query $what without samples: $(cat "$dir/out" "$dir/err")"; done
ask timeline --from +1h --to +2h && grep -q '(3600.00 s), cpu$' "$dir/out" || fail "the range of an empty timeline: $(cat "$dir/out")"
ask top --rows 5; [ $? = 1 ] && grep -q "takes no argument 'rows' (status 400)" "$dir/err" || fail "a refused argument: $(cat "$dir/err")"
ask sql "DELETE FROM history.windows"; [ $? = 1 ] && grep -q 'status 400' "$dir/err" || fail "SQL that writes: $(cat "$dir/err")"
"$offwind" query top --url "unix:$dir/nothing" 2>"$dir/err"; [ $? = 1 ] && grep -q 'does offwind daemon run there' "$dir/err" || fail "no daemon: $(cat "$dir/err")"
for words in "" nothing "top x" labels "sql a b" "top --label x"; do
	ask $words
	[ $? = 2 ] || fail "query $words: $(cat "$dir/err")"
done

echo "== Prometheus reads the metrics"
get /metrics | tail -n +2 | promtool check metrics >"$dir/out" 2>&1 && [ ! -s "$dir/out" ] || fail "promtool: $(cat "$dir/out")"
asked=$(free_port)
cat >"$dir/prometheus.yml" <<YML
scrape_configs:
  - job_name: offwind
    scrape_interval: 1s
    static_configs: [{targets: ["127.0.0.1:$port"]}]
YML
prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/prometheus" --web.listen-address="127.0.0.1:$asked" >"$dir/out" 2>&1 & prometheus=$!
scraped() { curl -s -G "127.0.0.1:$asked/api/v1/query" --data-urlencode "query=$1" | grep -o '"[0-9.]*"\]' | tr -d '"]'; } # PromQL
total() { sqlite3 -cmd ".timeout 10000" "$history" "SELECT sum(n) FROM totals WHERE what = '$1'"; }
is_scraped() { [ "$(scraped 'up{job="offwind"}')" = 1 ] && [ "$(scraped offwind_events_fired_total)" = "$(total fired)" ]; }
until_or_dead $prometheus is_scraped || fail "Prometheus has $(scraped offwind_events_fired_total) events, not $(total fired): $(tail -n 20 "$dir/out")"
[ "$(scraped 'sum(offwind_stacks_total) == bool sum(offwind_samples_unwound_total)')" = 1 ] || fail "Prometheus: the sum of the stacks"
kill $prometheus
wait $prometheus

echo "== clients that misuse it"
server=$(pgrep -P $daemon offwind-server)
timeout 300 python3 tests/live/daemon_clients.py "$socket" "$port" "$server" || fail "hostile clients"
[ "$(pgrep -P $daemon offwind-server)" = "$server" ] || fail "the server ended: $(cat "$dir/log")"

echo "== what is recorded changes while it records"
group=$(awk '{ for (i = 1; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
cp "$dir/prog" "$dir/other"
nice -n 5 "$dir/other" & other=$!
roles() { pgrep -P $daemon | sort | xargs; }
settings() { printf '%s\n' '[server]' 'record = any' '[record]' 'rotate = 2' 'event = cpu-clock' "$@" >"$dir/short"; kill -HUP $daemon; }
changed() { [ "$(grep -c 'the settings have changed:' "$dir/log")" = "$1" ]; }
# Print the sum of CPU time, and the number of samples.
values() { curl -s --unix-socket "$socket" "http://localhost/api/v1/top?n=1&type=cpu&$1" | python3 -c 'import json, sys; top = json.load(sys.stdin); print(top["value"], top["samples"])'; }
# Print each window, with the period of its samples (0: they differ), and how much is of another program. A
# sample that came late may have an earlier time than its window.
kinds() { # CONDITION comm: of those windows
	local id start end n all mine
	sqlite3 -cmd ".timeout 10000" -separator ' ' "$history" "SELECT id, start_ns, end_ns FROM windows WHERE $1 ORDER BY id" |
		while read -r id start end; do
			read -r all n < <(values "from=${start}ns&to=${end}ns")
			read -r mine _ < <(values "from=${start}ns&to=${end}ns&comm=$2")
			[ "$n" = 0 ] || echo "$id $((all % n ? 0 : all / n)) $((all - mine))"
		done
}
before=$(roles) first=$(newest)
settings "freq = 49" "comm = prog"
until_or_dead $daemon changed 1 || fail "the rate: $(cat "$dir/log")"
grep -q 'have changed: --freq=49 --comm=prog' "$dir/log" || fail "$(cat "$dir/log")"
# The two windows that the change may have come into, and two of the new kind.
last=$(newest)
grew() { [ "$(newest)" -ge $((last + $1)) ]; }
until_or_dead $daemon grew 4 || fail "nothing is recorded at another rate"
kinds "id >= $first" prog >"$dir/kinds"
awk '$2 == 20408163 && $3 == 0 { new++ } $2 == 10101010 && !new { old++ } $2 != 20408163 && ($2 != 10101010 || new) { wrong++ } END { exit !(old && new >= 2 && !wrong) }' "$dir/kinds" ||
	fail "windows before and after, with their periods: $(cat "$dir/kinds")"
# What is not there yet may be named; here a unit, of which nothing is recorded before it begins.
if [ -n "$group" ] && mkdir "$group/offwind-$$.slice" 2>/dev/null; then
	settings "freq = 49" "unit = offwind-$$-later"
	until_or_dead $daemon changed 2 || fail "a unit: $(cat "$dir/log")"
	changed_ns=$(date +%s%N) # windows that began before have samples of before, and are written when the machine comes to it
	last=$(newest)
	mkdir "$group/offwind-$$.slice/offwind-$$-later.service" && echo $other >"$group/offwind-$$.slice/offwind-$$-later.service/cgroup.procs"
	is_recorded() { [ "$(values "comm=other&from=$1ns" | cut -d' ' -f1)" -gt 0 ]; }
	began=$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT end_ns FROM windows WHERE id = $last")
	until_or_dead $daemon is_recorded $began || fail "a unit that began later is not recorded"
	kinds "start_ns >= $changed_ns" other >"$dir/kinds"
	awk '$2 != 20408163 || $3' "$dir/kinds" | grep . && fail "others than the unit: $(cat "$dir/kinds")"
	echo $other >"$group/cgroup.procs"
	rmdir "$group/offwind-$$.slice/offwind-$$-later.service" "$group/offwind-$$.slice"
fi
# A process; then everything again, at the rate from before.
settings "freq = 49" "pid = $other"
until_or_dead $daemon grep -q "have changed: --freq=49 --pid=$other" "$dir/log" || fail "a process: $(cat "$dir/log")"
changed_ns=$(date +%s%N)
last=$(newest)
until_or_dead $daemon grew 3
kinds "start_ns >= $changed_ns" other | awk '$2 != 20408163 || $3' | grep . && fail "others than the process"
# A budget of 6 ms a minute is used up at once: the rate falls.
metric() { curl -s --unix-socket "$socket" http://localhost/metrics | sed -nE "s/^$1 //p"; }
above() { awk -v n="$(metric "$1")" -v least="$2" 'BEGIN { exit !(n > least) }'; }
settings "freq = 99" "cpu-budget = 0.01"
until_or_dead $daemon above offwind_rate_lowered_total 0 || fail "a budget lowers nothing: $(cat "$dir/log")"
until_or_dead $daemon grep -qE 'takes more than 0.01 % of a CPU: 49 samples a second instead of 99' "$dir/log" || fail "$(cat "$dir/log")"
[ "$(metric offwind_rate_configured_hertz)" = 99 ] && above offwind_rate_hertz 0 && ! above offwind_rate_hertz 49 || fail "rates: $(metric 'offwind_rate.*')"
for role in supervisor capture worker opener store history server bpf; do
	above "offwind_cpu_seconds_total\\{role=\"$role\"\\}" 0 || fail "CPU time of $role: $(metric "offwind_cpu_seconds_total.*")"
	[ $role = bpf ] || above "offwind_resident_bytes\\{role=\"$role\"\\}" 100000 || fail "memory of $role"
done
# What is shown is what the kernel says, of some moment between two looks.
used() { awk '{ printf "%.2f", ($14 + $15) / 100 - 0.02 }' "/proc/$(pgrep -P $daemon offwind-worker)/stat"; }
least=$(used)
until_or_dead $daemon above 'offwind_cpu_seconds_total\{role="worker"\}' "$least"
shown=$(metric 'offwind_cpu_seconds_total\{role="worker"\}')
awk -v shown="$shown" -v used="$(used)" 'BEGIN { exit !(shown <= used + 0.04) }' || fail "the worker used $(used) s, but $shown s are shown"
n=$(grep -c 'the settings have changed:' "$dir/log")
settings "freq = 99"
until_or_dead $daemon changed $((n + 1)) || fail "everything again: $(cat "$dir/log")"
last=$(newest)
until_or_dead $daemon grew 2
[ "$(metric offwind_rate_hertz)" = 99 ] || fail "the rate without a budget: $(metric 'offwind_rate.*')"
everything() { kinds "id > $((last + 1))" prog | awk '$2 == 10101010 && $3 { all++ } END { exit !all }'; }
until_or_dead $daemon everything || fail "not everything is recorded again: $(kinds "id > $((last + 1))" prog)"
[ "$(roles)" = "$before" ] || fail "the daemon began again: $(cat "$dir/log")"
[ -z "$(sums)" ] || fail "sums of windows after changes: $(sums)"
kill $other

echo "== requests that wait for their samples"
# They end within the shortest time that a window has: each has its samples all the same.
for _ in 1 2 3; do # a busy machine may not write them in time
	for i in 1 2 3 4; do get "/debug/pprof/profile?seconds=1" >"$dir/waited$i" & waits[i]=$!; sleep 0.04; done
	wait ${waits[*]}
	head -qn 1 "$dir"/waited? | grep -q '^503' || break
done
[ "$(head -qn 1 "$dir"/waited? | paste -sd' ')" = "200 200 200 200" ] || fail "requests together: $(head -qc 100 "$dir"/waited?)"
# The history does not get what is recorded: the reply is no empty profile.
pkill -STOP -P $daemon offwind-history
get "/debug/pprof/profile?seconds=1" >"$dir/waited" & waits=$!

echo "== what is wrong has a status and a reason"
for request in "400 /api/v1/top?from=x" "400 /api/v1/top?by=x" "400 /api/v1/top?n=-1" "400 /api/v1/top?focus=(" "400 /api/v1/profile?format=x" "400 /api/v1/heatmap?rows=0" "404 /nothing" "405 POST /api/v1/top" "400 /api/v1/timeline?step=1&from=-7d" "400 /api/v1/labels?key=" "400 /api/v1/top?from=-1m&to=-2m" "400 /api/v1/top?type=x" "400 /api/v1/explain" "400 /api/v1/unwind/x" "400 POST /api/v1/query" "400 POST /api/v1/query SELECT 1 FROM nothing" "400 POST /api/v1/query ATTACH '/etc/passwd' AS x" "400 POST /api/v1/query DELETE FROM history.windows" "400 POST /api/v1/query PRAGMA journal_mode" "400 POST /api/v1/query SELECT instr(zeroblob(16000000), CAST(zeroblob(8000000) || 'x' AS BLOB))" "400 POST /api/v1/query SELECT rtrim(hex(zeroblob(4000000)), hex(zeroblob(4000000)))" "400 POST /api/v1/query SELECT json_patch('{}', '{}')" "400 POST /api/v1/query SELECT 'a' LIKE hex(zeroblob(200))"; do
	get "${request#* }" >"$dir/reply"
	[ "$(head -1 "$dir/reply")" = "${request%% *}" ] && [ "$(wc -l <"$dir/reply")" = 2 ] || fail "$request: $(head -c 300 "$dir/reply")"
done
curl -sI --max-time 30 --unix-socket "$socket" http://localhost/healthz | tr -d '\r' | grep -q '^HTTP/1.1 200' || fail "HEAD /healthz"
[ "$(status /healthz 'Origin: http://elsewhere.example')" = 403 ] || fail "another site may ask"
wait $waits
pkill -CONT -P $daemon offwind-history
[ "$(head -n 1 "$dir/waited")" = 503 ] || fail "no samples in time: $(head -c 300 "$dir/waited")"

echo "== the history is read by commands, too"
"$offwind" report --from -5m -n 0 "$history" | grep -q ' prog .*hot' || fail "report --from"
OFFWIND_DB=$db "$offwind" flamegraph --from -5m -o "$dir/f.html" && grep -q hot "$dir/f.html" || fail "flamegraph --from"
"$offwind" report --from -5m "$dir/p.pb.gz" 2>"$dir/out" && fail "--from of a profile"
grep -q 'for a history' "$dir/out" || fail "$(cat "$dir/out")"

echo "== processes that die are begun again"
before=$(newest)
pkill -KILL -P $daemon offwind-server
pkill -SEGV -P $daemon offwind-worker
has_more() { [ "$(newest)" -gt $((before + 1)) ] && is_ready; }
until_or_dead $daemon has_more || fail "nothing is recorded after a crash: $(cat "$dir/log")"
grep -q 'was ended by SIGSEGV' "$dir/log" || fail "$(cat "$dir/log")"

echo "== SIGTERM ends it, with the window in flight"
before=$(newest)
kill -TERM $daemon
wait $daemon || fail "exit $?: $(cat "$dir/log")"
[ "$(newest)" -gt "$before" ] || fail "the last window is lost"
[ -e "$socket" ] && fail "the socket stays"
[ -z "$(sums)" ] || fail "sums of windows: $(sums)"
waiting=$(sqlite3 "$history" "SELECT sum(n) FROM counters WHERE what = 'waiting'")
echo "waiting at the end: $waiting"
# The samples that went into windows before a worker died are not lost.
said=$(sed -n 's/.*captured [0-9]* = unwound .* + lost \([0-9]*\).*/\1/p' "$dir/log" | tail -n 1)
[ "${said:-999999}" -le "$(sqlite3 "$history" "SELECT sum(n) FROM counters WHERE what = 'lost'")" ] || fail "says that $said are lost: $(tail -n 5 "$dir/log")"
[ "$waiting" = 0 ] || fail "$waiting that fired are not settled at the end: $(sqlite3 "$history" "SELECT window, what, reason, n FROM counters WHERE what <> 'stop'")"

echo "== 10,000 containers, and killed"
# A process in each calls a function that is probed, once, and ends. Its sample has the labels of its own container.
[ -n "$group" ] && mkdir "$group/offwind-$$.slice" || group=
containers=$BUILD/tests/live/containers N=10000
[ -z "$group" ] || printf 'uprobe = %s:mark\n' "$containers" >>"$dir/short"
begin
before=$(newest)
has_more() { [ "$(newest)" -gt "$before" ] && is_ready; }
until_or_dead $daemon has_more || fail "nothing is recorded: $(cat "$dir/log")"
if [ -n "$group" ]; then
	mkfifo "$dir/end"
	resident() { metric 'offwind_resident_bytes\{role="worker"\}'; }
	least=$(resident)
	"$containers" "$group/offwind-$$.slice" $N <"$dir/end" >"$dir/truth" & containers=$!
	exec 9>"$dir/end"
	all_ran() { [ "$(wc -l <"$dir/truth")" = $N ]; }
	until_or_dead $containers all_ran || fail "the containers: $(tail -n 1 "$dir/truth")"
	ends_window() { [ "$(status "/debug/pprof/profile?seconds=1")" = 200 ]; }
	until_or_dead $daemon ends_window || fail "no profile"
	python3 - "$socket" "$dir/truth" $N <<-'PY' || fail "labels of containers: $(cat "$dir/log")"
		import http.client, json, socket, sys, time
		class Local(http.client.HTTPConnection):
		    def connect(self):
		        self.sock = socket.socket(socket.AF_UNIX)
		        self.sock.connect(sys.argv[1])
		c = Local('localhost')
		def ask(path):
		    began = time.monotonic()
		    c.request('GET', path)
		    reply = json.loads(c.getresponse().read())
		    print('%s: %.0f ms' % (path, 1000 * (time.monotonic() - began)))
		    return reply
		truth, n = dict(line.split() for line in open(sys.argv[2])), int(sys.argv[3])
		mine = [s['labels'] for s in ask('/api/v1/samples?n=10000&type=mark&from=-10m')['samples']]
		got = {str(l['pid']): l.get('container_id') for l in mine}
		wrong = [(pid, id, truth.get(pid)) for pid, id in got.items() if truth.get(pid) != id]
		# What was lost is counted; what is there has the right labels.
		counters = ask('/api/v1/counters?from=-10m')
		lost = sum(counters.get('lost', {}).values())
		print(len(got), 'containers', lost, 'lost')
		assert not wrong, wrong[:3]
		assert len(got) == len(mine) and len(got) + lost >= n and len(got) > 0.99 * n, (len(got), len(mine), lost)
		assert all(l['container_runtime'] == 'docker' for l in mine)
		values = ask('/api/v1/labels?key=container_id&type=mark&n=20000&from=-10m')
		# Others on this machine may have containers, too, whose samples are of other types.
		assert len([v for v in values['values'] if v['value'] and v['sum']]) == len(got), len(values['values'])
		one = next(iter(got.values()))
		assert ask('/api/v1/top?type=mark&from=-10m&container_id=' + one)['value'] == 1
		series = ask('/api/v1/timeline?by=container_id&type=mark&from=-10m&step=1000')['series']
		assert sum(sum(s['values']) for s in series) == len(got), len(series)
	PY
	one=$(awk '{ print $2; exit }' "$dir/truth")
	for answer in "query top --url unix:$socket" "report $history"; do
		"$offwind" $answer --from -10m --type mark --label "container=$one" >"$dir/out" 2>&1 && grep -q '100.00%.* mark$' "$dir/out" || fail "$answer --label container=: $(head -n 5 "$dir/out")"
	done
	used=$(resident)
	echo "the worker: $least bytes, then $used"
	[ $((${used%.*} - ${least%.*})) -lt $((256 << 20)) ] || fail "the worker took $least bytes, and $used with $N containers"
	exec 9>&-
	wait $containers || fail "the cgroups"
	rmdir "$group/offwind-$$.slice"
fi
kill -KILL $daemon
wait $daemon 2>/dev/null

echo "== begun again, while the clock is set forward and back"
# Not this machine's: the clock that all of the daemon's processes read. Nothing is lost, and each range has what was recorded while the clock was in it.
gcc -O1 -Wall -Werror -D_GNU_SOURCE -shared -fPIC -o "$dir/clock.so" tests/faults/preload/clock_steps.c || exit 1
set_clock() { python3 -c 'import struct, sys; open(sys.argv[1], "r+b").write(struct.pack("q", int(sys.argv[2])))' "$dir/ahead" "$1"; } # seconds
truncate -s 8 "$dir/ahead"
printf '[server]\nrecord = any\n[record]\nrotate = 1\nevent = cpu-clock\nfreq = 99\n' >"$dir/short"
before=$(newest) n_before=$(sqlite3 "$history" "SELECT count(*) FROM windows") real=$(date +%s)
CLOCK_AHEAD=$dir/ahead LD_PRELOAD=$dir/clock.so begin
first=$before
until_or_dead $daemon has_more || fail "nothing is recorded after kill -9: $(cat "$dir/log")"
for ahead in 7200 -3600 0; do
	set_clock $ahead
	# One window has the step in it.
	before=$(($(newest) + 1))
	until_or_dead $daemon has_more || fail "nothing is recorded with a clock that is $ahead s ahead: $(cat "$dir/log")"
	until_or_dead $daemon has "/api/v1/top?comm=prog&from=$((real + ahead - 1))&to=$((real + ahead + 300))" '"function":"hot"' || fail "the program with a clock that is $ahead s ahead"
	# A request waits for its own samples, not for a window that ends later by the clock of before.
	[ "$(status "/debug/pprof/profile?seconds=1&comm=prog")" = 200 ] || fail "a second with a clock that is $ahead s ahead: $(head -c 300 "$dir/status")"
done
kill -INT $daemon
wait $daemon || fail "exit $?: $(cat "$dir/log")"
[ "$(sqlite3 "$history" "PRAGMA integrity_check")" = ok ] || fail "the database is damaged"
[ -z "$(sums)" ] || fail "sums of windows: $(sums)"
sqlite3 "$history" "SELECT group_concat(id || ':' || (start_ns / 1000000000 - $real) || '-' || (end_ns / 1000000000 - $real) || ':' || n_samples, ' ') FROM windows WHERE id > $first" >"$dir/windows"
[ "$(sqlite3 "$history" "SELECT count(*) = $n_before + max(id) - $first AND max(level) = 0 FROM windows")" = 1 ] || fail "windows were merged or deleted: $(cat "$dir/windows")"
[ "$(sqlite3 "$history" "SELECT sum(n * (what = 'waiting')), sum(n * (what = 'lost')) FROM counters WHERE window > $first")" = "0|0" ] || fail "samples are lost: $(sqlite3 "$history" "SELECT * FROM counters WHERE window > $first AND what IN ('waiting', 'lost')")"
for ahead in 7200 -3600 0; do
	"$offwind" report --from $((real + ahead - 1)) --to $((real + ahead + 300)) -n 0 "$history" >"$dir/rows" 2>&1 && grep -q ' prog .*hot' "$dir/rows" || fail "what ran with a clock that was $ahead s ahead: $(cat "$dir/windows" "$dir/rows")"
done

echo "== settings"
config() { # exit code, text of the error, settings
	printf "$3" >"$dir/conf"
	"$offwind" daemon --check-config --config "$dir/conf" --db "$db" 2>"$dir/out"
	[ $? = "$1" ] && { [ -z "$2" ] || grep -q "$2" "$dir/out"; } || fail "settings $(cat "$dir/conf"): $(cat "$dir/out")"
}
config 0 '' '[server]\nlisten = 127.0.0.1:1\n[record]\nfreq = 7\noff-cpu = 1ms\n'
config 2 "no setting 'lisen'" '[server]\nlisen = x\n'
config 2 "no setting 'output'" '[record]\noutput = x\n'
config 2 'freq' '[record]\nfreq = x\n'
config 2 'record takes time, any or no' '[server]\nrecord = yes\n'
config 0 '' '[server]\nrecord = no\n'
"$offwind" daemon --listen 0.0.0.0:0 --db "$db" 2>"$dir/out" && fail "an open address without a token"
grep -q 'takes a token and a certificate' "$dir/out" || fail "$(cat "$dir/out")"
OFFWIND_SANDBOX=off "$offwind" daemon --config "$dir/short" --db "$db" --listen "unix:$socket" 2>"$dir/out"
[ $? = 1 ] && grep -q 'only one with OFFWIND_SANDBOX=off' "$dir/out" && [ ! -e "$socket" ] || fail "a daemon of one process: $(cat "$dir/out")"
OFFWIND_SANDBOX=off "$offwind" daemon --check-config --config "$dir/short" --db "$db" || fail "settings are not checked"
kill $prog $context
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }

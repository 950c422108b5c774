#!/usr/bin/env bash
# Tests recordings on demand: POST /api/v1/record and offwind query record, beside what the daemon records.
set -u
. tests/recorder.sh
. tests/wait.sh
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
db=$dir/o.db history=$dir/o-history.db socket=$dir/socket
printf '[server]\nrecord = any\n[record]\nrotate = 2\nevent = cpu-clock\nfreq = 99\n' >"$dir/conf"
"$dir/prog" & prog=$!
"$offwind" daemon --config "$dir/conf" --db "$db" --listen "unix:$socket" 2>"$dir/log" & daemon=$!
status() { curl -s --unix-socket "$socket" -o /dev/null -w '%{http_code}' "http://localhost$1"; }
is_ready() { [ "$(status /readyz)" = 200 ]; }
newest() { sqlite3 -cmd ".timeout 10000" "$history" "SELECT max(id) FROM windows"; }
ask() { "$offwind" query --url "unix:$socket" "$@" >"$dir/out" 2>"$dir/err"; } # WHAT [OPTION]…
until_or_dead $daemon is_ready || fail "not ready: $(cat "$dir/log")"

echo "== rate, processes and time are those that were asked for, and the daemon goes on"
record() { curl -s -X POST --unix-socket "$socket" -o "$dir/reply" -w '%{http_code}' "http://localhost/api/v1/record?$1"; } # arguments
metric() { curl -s --unix-socket "$socket" http://localhost/metrics | sed -nE "s/^$1 //p"; }
recorded() { [ "$(metric "offwind_recordings_total\\{result=\"$1\"\\}")" -ge "$2" ]; }
cp "$dir/prog" "$dir/beside"
"$dir/beside" & beside=$!
began=$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT max(end_ns) FROM windows")
# It has the rate and the processes that were asked for, and how the sum of its samples comes about.
has_all() { python3 - "$dir/reply" <<-'PY'
	import re, subprocess, sys
	text = subprocess.run(['go', 'tool', 'pprof', '-raw', sys.argv[1]], capture_output=True, text=True).stdout
	samples = re.findall(r'^ +(\d+) +(\d+): ', text, re.M)
	n, ns = sum(int(a) for a, b in samples), sum(int(b) for a, b in samples)
	duration = float(re.search(r'^Duration: ([\d.]+)', text, re.M)[1])
	comms = set(re.findall(r'comm:\[(.*?)\]', text))
	print(n, ns, duration, comms)
	assert comms <= {'prog'} and (not n or abs(ns / n - 1e9 / 499) < 1e5), text[:500]
	assert re.search(r'captured (\d+) = unwound', text), text[:800]
	sys.exit(0 if n > 20 and 1.9 < duration < 3 else 3)
PY
}
# On a busy machine the program may get no CPU at the beginning, or at the end, or none at all: record again then.
is_profile() { "$offwind" report --check "$1" >/dev/null; } # FILE
is_empty() { grep -q 'no samples were recorded: ' "$1"; } # FILE
for _ in 1 2 3 4 5; do
	has=3
	[ "$(record "seconds=2&freq=499&pid=$prog")" = 200 ] && "$offwind" report --check "$dir/reply" >/dev/null || { is_empty "$dir/reply" && continue; } || fail "a recording: $(head -c 300 "$dir/reply")"
	has_all
	has=$?
	[ $has = 3 ] || break
done
[ $has = 0 ] || fail "what a recording has"
# The history goes on as before meanwhile: at the daemon's rate, with other programs.
last=$(newest)
went_on() { [ "$(newest)" -ge $((last + 2)) ]; }
until_or_dead $daemon went_on
has_others() {
	curl -s --unix-socket "$socket" "http://localhost/api/v1/top?by=comm&n=0&type=cpu&from=${began}ns" >"$dir/reply"
	python3 - "$dir/reply" <<-'PY'
		import json, sys
		top = json.load(open(sys.argv[1]))
		sys.exit(not ({'prog', 'beside'} <= {r['comm'] for r in top['rows']} and abs(top['value'] / top['samples'] - 1e9 / 99) < 1e4))
	PY
}
until_or_dead $daemon has_others || fail "the history during a recording: $(head -c 500 "$dir/reply")"
echo "== offwind query record, waiting threads, and what fails"
asks() { # OPTION…: record, longer if there are no samples
	local seconds
	for seconds in 1 4 16; do
		ask record --seconds $seconds "$@" && return
		is_empty "$dir/err" || break
	done
	false
}
asks --label "pid=$prog" --format folded && grep -q '^prog;.*hot' "$dir/out" || fail "query record: $(cat "$dir/err")"
asks --label comm=beside -F 199 -o "$dir/q2.pb.gz" && "$offwind" report "$dir/q2.pb.gz" | grep -q '199 samples a second' || fail "query record -F: $(cat "$dir/err")"
sleep 1000 & sleeper=$!
[ "$(record "seconds=2&format=folded&type=off_cpu&off-cpu&pid=$$")" = 200 ] || fail "off-CPU: $(head -c 300 "$dir/reply")"
[ "$(record "seconds=1&pid=$sleeper")" = 422 ] && grep -q 'no samples were recorded: ' "$dir/reply" || fail "nothing to record: $(head -c 300 "$dir/reply")"
[ "$(record "seconds=1&unit=nosuch-$$")" = 422 ] && grep -q "unit nosuch-$$" "$dir/reply" || fail "no such unit: $(head -c 300 "$dir/reply")"
for refused in "pid=x 400" "thread=prog 400" "seconds=601 400" "freq=1000 400" "from=-1m 400" "pid= 400" "event=no-such-event 422"; do
	[ "$(record "${refused% *}")" = "${refused#* }" ] && [ "$(wc -l <"$dir/reply")" = 1 ] || fail "recording ${refused% *}: $(head -c 300 "$dir/reply")"
done
[ "$(curl -s -d seconds=1 --unix-socket "$socket" -o "$dir/reply" -w '%{http_code}' http://localhost/api/v1/record)" = 400 ] || fail "arguments in the body: $(cat "$dir/reply")"

echo "== a recording ends with its client, with the server and with the daemon"
# Two at a time; who goes away ends one; the server's death ends all.
[ "$(metric offwind_recordings_running)" = 0 ] || fail "recordings run on"
pids=
for i in 1 2; do curl -s -X POST --unix-socket "$socket" "http://localhost/api/v1/record?seconds=600&comm=prog" -o "$dir/long$i" & pids="$pids $!"; done
run_two() { [ "$(metric offwind_recordings_running)" = 2 ]; }
until_or_dead $daemon run_two || fail "two recordings"
[ "$(record seconds=1)" = 429 ] || fail "a third recording: $(head -c 300 "$dir/reply")"
kill ${pids##* }
until_or_dead $daemon recorded left 1 || fail "a recording goes on without its client"
server=$(pgrep -P $daemon offwind-server)
kill -KILL "$server"
is_another() { [ -n "$(pgrep -P $daemon offwind-server)" ] && [ "$(pgrep -P $daemon offwind-server)" != "$server" ] && is_ready; }
until_or_dead $daemon is_another || fail "no other server: $(cat "$dir/log")"
until_or_dead $daemon recorded left 2 || fail "a recording goes on without the server"
[ "$(metric offwind_recordings_running)" = 0 ] && ! pgrep -P $daemon -f 'offwind record' || fail "recordings run on: $(pgrep -P $daemon -a)"
wait $pids 2>/dev/null
records() { [ "$(record "seconds=1&comm=prog")" = 200 ] || ! is_empty "$dir/reply"; }
until_or_dead $daemon records && is_profile "$dir/reply" || fail "a recording for another server: $(head -c 300 "$dir/reply")"
awk -v used="$(metric 'offwind_cpu_seconds_total\{role="recordings"\}')" 'BEGIN { exit !(used > 0.1) }' || fail "CPU time of recordings"
kill $beside $sleeper
curl -s -X POST --unix-socket "$socket" "http://localhost/api/v1/record?seconds=600&comm=prog" -o "$dir/long1" & pids=$!
runs_one() { [ "$(metric offwind_recordings_running)" = 1 ]; }
until_or_dead $daemon runs_one || fail "another recording"
has_begun() { recording=$(pgrep -P $daemon -f 'offwind record'); }
until_or_dead $daemon has_begun || fail "no process records"
kill -TERM $daemon
wait $daemon || fail "exit $?: $(cat "$dir/log")"
runs "$recording" && fail "a recording goes on without the daemon"
wait $pids

echo "== the settings decide"
printf '[server]\nrecord = no\n[record]\nfreq = 19\n' >"$dir/conf"
"$offwind" daemon --config "$dir/conf" --db "$db" --listen "unix:$socket" 2>"$dir/log" & daemon=$!
serves() { [ "$(status /healthz)" = 200 ]; }
until_or_dead $daemon serves || fail "does not serve: $(cat "$dir/log")"
[ "$(record seconds=1)" = 403 ] && grep -q 'the settings allow no recordings' "$dir/reply" || fail "record = no: $(head -c 300 "$dir/reply")"
# The settings are read again; the daemon begins again, on the same socket. What they choose holds for requests, too.
# What belongs to waits does not, if none are asked for.
printf '[record]\nfreq = 19\ncomm = prog\noff-cpu = 1ms\nwait-rate = 100\n' >"$dir/conf"
kill -HUP $daemon
allows() { [ "$(record "seconds=1&format=folded")" = 200 ]; }
until_or_dead $daemon allows || fail "record = time: $(head -c 300 "$dir/reply")"
grep -qv '^prog;' "$dir/reply" && fail "others than the settings choose: $(head -c 300 "$dir/reply")"
case $(record "seconds=1&off-cpu") in 200 | 422) ;; *) fail "waits: $(head -c 300 "$dir/reply")" ;; esac
[ "$(record "seconds=1&comm=sh")" = 403 ] && grep -q 'by --comm=prog' "$dir/reply" || fail "another choice: $(head -c 300 "$dir/reply")"
[ "$(record "seconds=1&event=page-faults")" = 403 ] || fail "an event: $(head -c 300 "$dir/reply")"
kill -TERM $daemon
wait $daemon || fail "exit $?: $(cat "$dir/log")"
kill $prog
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }

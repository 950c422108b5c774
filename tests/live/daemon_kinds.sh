#!/usr/bin/env bash
# Tests that a daemon records all kinds of events that offwind record does, several at once: software events, tracepoints,
# probes, allocations, and threads that wait; that its API, its command and its flame graph know their sample types; and that its
# page shows when a thread was ready to run and when it waited.
set -u
source "$(dirname "$0")/../recorder.sh"
. tests/wait.sh
${CC:-gcc} -O1 -fno-builtin -pthread -o "$dir/k_one" tests/live/alloc.c && cp "$dir/k_one" "$dir/k_two" || exit 1
cp "$BUILD/tests/live/waits" "$dir/k_waits"
mkfifo "$dir/go" "$dir/begin"
# The daemon ends with the shell, which waits for that.
bash -c 'read -r _ <"$1/go"; "$1/k_one" 5000 wait <>"$1/begin" && "$1/k_two" && "$1/k_waits" late >"$1/truth"; echo $? >"$1/done"; read -r _ <"$1/go"' bash "$dir" &
programs=$!
address=127.0.0.1:$(free_port)
cat >"$dir/offwind.conf" <<CONF
[store]
db = $dir/offwind.db
[server]
listen = $address
[record]
# Each list has more than one.
comm = k_one,k_two,w_late
# Allocators are watched in these processes only.
pid = $programs
event = page-faults,sched:sched_process_exec
event = cpu-clock
uprobe = $dir/k_one:churn
uprobe = $dir/k_two:leak
off-cpu = 0
wait-rate = 5000
wakers = yes
alloc = 1
freq = 999
CONF
get() { curl -sS --max-time 60 "http://$address$1"; }
"$offwind" daemon --config "$dir/offwind.conf" 2>"$dir/log" &
daemon=$!
is_ready() { get /readyz 2>/dev/null | grep -q '^ready'; }
until_or_dead $daemon is_ready || { cat "$dir/log"; fail "the daemon is not ready"; exit 1; }
# The first program waits until its allocator is watched: its C library's functions then have breakpoints.
cat >"$dir/watched.py" <<'PY'
import subprocess, sys
pid = sys.argv[1]
libc = next(line.split() for line in open(f'/proc/{pid}/maps') if '/libc.so.6' in line)
symbols = subprocess.run(['nm', '-D', '--defined-only', libc[5]], capture_output=True, text=True).stdout
at = {words[2].split('@')[0]: int(words[0], 16) for words in map(str.split, symbols.splitlines())}
memory, file = open(f'/proc/{pid}/mem', 'rb'), open(libc[5], 'rb')
for name in 'malloc', 'calloc', 'realloc', 'aligned_alloc', 'posix_memalign', 'free':
    memory.seek(int(libc[0].split('-')[0], 16) + at[name])
    file.seek(at[name])
    if memory.read(16) == file.read(16):
        sys.exit(1)
PY
is_watched() { python3 "$dir/watched.py" "$(pgrep -P $programs -x k_one)" 2>"$dir/watched"; }
echo >"$dir/go"
until_or_dead $daemon is_watched || fail "allocators are not watched: $(cat "$dir/watched")"
echo >"$dir/begin"
until_or_dead $programs test -s "$dir/done"
# The daemon answers when the window with the last of these has ended.
has_last() { get "/debug/pprof/profile?seconds=1" >"$dir/profile"; get "/api/v1/top?from=-10m&type=off_cpu&thread=w_late" | grep -q '"value":[1-9]'; }
until_or_dead $daemon has_last || fail "the last program is not there: $(tail -n 5 "$dir/log")"

sum() { # type, more arguments: the sum of a type
	get "/api/v1/top?from=-10m&n=1000&by=comm&type=$1${2:-}" | tee "$dir/reply" | python3 -c 'import json, sys; print(json.load(sys.stdin)["value"])' || head -c 300 "$dir/reply"
}
equal() { # what, got, wanted
	[ "$2" = "$3" ] || fail "$1: $2, not $3"
}
equal "executed programs" "$(sum sched:sched_process_exec)" 2
equal "of the second in the list" "$(sum sched:sched_process_exec '&comm=k_two')" 1
equal "calls of churn" "$(sum churn)" 1
equal "calls of leak" "$(sum leak '&comm=k_two')" 1
equal "the waits have two parts" "$(sum off_cpu)" $(($(sum blocked) + $(sum runnable)))
python3 - "$(sum page-faults '&comm=k_one')" "$(sum alloc_space '&comm=k_one')" "$(sum alloc_objects '&comm=k_one')" "$(sum cpu)" "$(sum runnable '&thread=w_late')" "$(cut -d' ' -f2 "$dir/truth")" <<'PY' || fail "sums"
import sys
faults, space, objects, cpu, runnable, delayed = map(int, sys.argv[1:])
print(faults, space, objects, cpu, runnable, delayed)
# tests/live/alloc.c says what it allocates; of the memory that it uses, most is fresh.
assert faults > 100 and space > 8000000 and objects > 6000 and cpu > 0
assert abs(runnable - delayed) < 0.06 * delayed + 5e6, 'not as long as the scheduler says'
PY
for type in page-faults sched:sched_process_exec churn alloc_space blocked; do
	get "/api/v1/labels?from=-10m&key=comm&type=$type" | grep -q "\"type\":\"$type\"" || fail "labels: $type"
	get "/api/v1/flamegraph?from=-10m&type=$type" >"$dir/graph"
	grep -q "\"$type\"" "$dir/graph" || fail "the flame graph does not have $type"
	"$offwind" query top --url "http://$address" --from -10m --type "$type" >"$dir/out" 2>&1 || fail "query: $type: $(cat "$dir/out")"
	grep -q "^# .* of $type$" "$dir/out" || fail "query: $type: $(head -n 12 "$dir/out")"
done
get "/api/v1/top?from=-10m&type=churn" | grep -q '"function":"churn"' || fail "the function of a probe"
get "/api/v1/top?from=-10m&type=blocked&by=waker&thread=w_late" | grep -q '"waker":"\[interrupt\]"' || fail "who woke it"
get "/api/v1/profile?from=-10m&type=blocked&thread=w_late&format=folded" | grep -q '^w_late;\[woken by\] \[interrupt\];.*;late_napper[^;]*;' || fail "who woke it, in the stack: $(get "/api/v1/profile?from=-10m&type=blocked&thread=w_late&format=folded" | head -n 2)"
get "/api/v1/samples?from=-10m&type=runnable&thread=w_late&n=1" >"$dir/reply"
grep -q '"values":{.*"off_cpu_samples":1[,}]' "$dir/reply" && grep -q '"values":{.*"runnable":[1-9]' "$dir/reply" || fail "the values of one wait: $(head -c 1000 "$dir/reply")"
get "/api/v1/samples?from=-10m&type=off_cpu&thread=w_late&n=1000" >"$dir/waits"
python3 - "$dir/waits" <<'PY' || fail "the length of each wait"
import json, sys
waits = [(wait["time_ns"] / 1e6, wait["values"]["off_cpu"] / 1e6) for wait in json.load(open(sys.argv[1]))["samples"]]
print(len(waits), "waits of", min(waits, key=lambda wait: wait[1])[1], "to", max(waits, key=lambda wait: wait[1])[1], "ms")
# A thread's wait begins after the one before has ended; times are rounded to milliseconds.
assert len(waits) > 10 and all(b - length > a - 2 for (a, _), (b, length) in zip(waits, waits[1:])), waits
PY
if command -v chromium >/dev/null; then
	timeout 250 python3 tests/live/daemon_lane.py "http://$address" "$dir" "$dir/waits" || fail "the lane of a thread"
fi
kill $daemon
wait $daemon || fail "the daemon: $(cat "$dir/log")"
cat "$dir/log"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }

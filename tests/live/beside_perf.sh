#!/usr/bin/env bash
# Tests that perf record works while offwind record -a runs and while it starts: perf's files are
# sound, and their mapping records are not marked as having build-ids that perf did not ask for.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/perf.sh
perf --version >/dev/null 2>&1 || { echo "needs perf"; exit 77; }
recorder=
trap 'kill $recorder $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT

# sound WHAT FILE PROGRAM: perf can read its file, which has plain mappings, also of the program.
sound() {
	perf script -i "$2" --show-mmap-events >"$dir/script" 2>"$dir/err" || fail "$1: perf script: $? $(cat "$dir/err")"
	grep -q "PERF_RECORD_MMAP2 .* [0-9a-f]*:[0-9a-f]* [0-9]* [0-9]*\]: .*/$3\$" "$dir/script" || fail "$1: no mapping of $3"
	# perf shows a build-id in place of device and inode: <0123…>.
	grep 'PERF_RECORD_MMAP2 .*<[0-9a-f]*>' "$dir/script" >"$dir/marked" && fail "$1: marked: $(head -n 1 "$dir/marked")"
}

start() { # offwind record -a, until it records
	rm -f "$dir/o.owc"
	"$offwind" record -a --raw="$dir/o.owc" -o "$dir/o.pb.gz" 2>"$dir/log" &
	recorder=$!
	until [ -s "$dir/o.owc" ]; do
		kill -0 $recorder 2>/dev/null || { fail "offwind record: $(cat "$dir/log")"; exit 1; }
		sleep 0.05
	done
}

stop() {
	kill -INT $recorder
	wait $recorder || fail "offwind record: $? $(cat "$dir/log")"
	recorder=
	"$offwind" report --check "$dir/o.pb.gz" >/dev/null || fail "offwind's profile is not sound"
}

echo "== perf record while offwind records"
start
for i in 1 2 3 4 5; do
	perf_record -o "$dir/p.data" -- sh -c '/bin/true; /bin/ls >/dev/null' >"$dir/out" 2>&1 || fail "run $i: perf record: $? $(cat "$dir/out")"
	sound "run $i" "$dir/p.data" ls
done
kill -0 $recorder 2>/dev/null || fail "offwind ended: $(cat "$dir/log")"
stop

echo "== perf record that runs while offwind begins"
# The command runs programs until it is told to end.
perf record -q -o "$dir/q.data" -- sh -c "until [ -e '$dir/end' ]; do /bin/ls >'$dir/runs'; done" >"$dir/out" 2>&1 &
perf=$!
until [ -e "$dir/runs" ]; do
	kill -0 $perf 2>/dev/null || { fail "perf record: $(cat "$dir/out")"; exit 1; }
	sleep 0.05
done
start
touch "$dir/end"
wait $perf || fail "perf record: $? $(cat "$dir/out")"
stop
sound "the one before" "$dir/q.data" ls

echo "== perf record of offwind itself"
perf_record -e cpu-clock -o "$dir/r.data" -- "$offwind" record -q -a -d 1 -F 997 -o "$dir/o.pb.gz" >"$dir/out" 2>&1 || fail "perf record of offwind: $? $(cat "$dir/out")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }

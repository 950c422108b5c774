#!/usr/bin/env bash
# Compares the CPU time of `offwind unwind` and `offwind record` in several processes (docs/security.md,
# "Roles") with the same in one process (OFFWIND_SANDBOX=off): on recordings of real programs, and beside a
# compiler on every CPU, or of one program that goes on. Each runs ROUNDS times, recordings a third of that, the two
# in turn; the table has the medians of user + sys of all processes together, and of the time that passes.
#
# Processes cost something once, to begin and to end, and something for the work. So each is done for a short and for a
# long recording: one run of the program or five, 5 seconds or 25. What the long one takes more than the short one is the
# work alone, and the last columns compare it. Where offwind works so little that the difference is a few ms, look at
# several runs of this.
#
# The last row is a recording of true(1): how long it takes to begin and to end. It never fails because something is slow. On a busy
# machine, PRIORITY="chrt -f 10" lets offwind run first.
set -eu
export LC_ALL=C
ROUNDS=${ROUNDS:-15}
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
loads=()
trap 'kill "${loads[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
offwind=$(realpath "$BUILD/offwind")
cat >"$work/pairs.py" <<'PY'
import os
import resource
import statistics
import subprocess
import sys
import time

rounds, name, lengths = int(sys.argv[1]), sys.argv[2], sys.argv[3]
command = os.environ.get("PRIORITY", "").split() + sys.argv[4:]


def used():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (r.ru_utime + r.ru_stime) * 1e3


def once(sandbox, length):
    words = [word.replace("LENGTH", length) for word in command]
    before, began = used(), time.monotonic()
    subprocess.run(words, env=dict(os.environ, OFFWIND_SANDBOX=sandbox), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return used() - before, (time.monotonic() - began) * 1e3


lengths = lengths.split(",")
for length in lengths:
    once("", length)
runs = [[(once("", length), once("off", length)) for length in lengths] for _ in range(rounds)]


def median(at, side, i):
    return statistics.median(run[at][side][i] for run in runs)


cpu, off_cpu, wall, off_wall = (median(0, side, i) for i in (0, 1) for side in (0, 1))
row = f"{name:10} {cpu:7.1f} {off_cpu:7.1f} ms {cpu / off_cpu:6.3f} {cpu - off_cpu:+6.1f} {wall:9.1f} {off_wall:7.1f} ms {wall - off_wall:+6.1f}"
if len(lengths) > 1:
    work, off_work = (median(1, side, 0) - median(0, side, 0) for side in (0, 1))
    row += f" {work:9.1f} {off_work:7.1f} ms {work / off_work:6.3f}"
print(row, flush=True)
PY
export OFFWIND_DB=$work/store
echo "                CPU time of all processes          time that passes            the work: long less short"
echo "program     worker     one     ratio   more    worker     one     more       worker     one     ratio"
for program in ${*:-clang python3 node sqlite3 git openssl}; do
	workload "$program"
	for runs in 1 5; do
		# git exits with 1 for differences.
		perf record -q -F 999 -e cpu-clock:u --call-graph dwarf,16384 -o "$work/$runs.data" -- \
			sh -c 'for i in $(seq "$1"); do (shift; "$@"); done' sh $runs "${argv[@]}" >"$work/out" 2>&1 || true
		"$offwind" unwind -q -o "$work/p.pb.gz" "$work/$runs.data"
	done
	python3 "$work/pairs.py" "$ROUNDS" "$program" 1,5 "$offwind" unwind -q -o "$work/p.pb.gz" "$work/LENGTH.data"
done
workload clang
for _ in $(seq "$(nproc)"); do
	(trap 'kill $! 2>/dev/null; exit' TERM; while :; do "${argv[@]}" >/dev/null 2>&1 & wait $!; done) &
	loads+=($!)
done
for hz in 99 997; do
	python3 "$work/pairs.py" $((ROUNDS / 3)) "all $hz Hz" 5,25 "$offwind" record -q -a -F $hz -d LENGTH -o "$work/p.pb.gz"
done
kill "${loads[@]}"
python3 -c 'while True: pass' &
loads=($!)
for hz in 99 997; do
	python3 "$work/pairs.py" $((ROUNDS / 3)) "one $hz Hz" 5,25 "$offwind" record -q -p "${loads[0]}" -F $hz -d LENGTH -o "$work/p.pb.gz"
done
kill "${loads[@]}"
loads=()
python3 "$work/pairs.py" "$ROUNDS" "true" once "$offwind" record -q -o "$work/p.pb.gz" -- true

#!/usr/bin/env bash
# Compares the CPU time of `offwind unwind` and `offwind record` in several processes (docs/security.md,
# "Roles") with the same in one process (OFFWIND_SANDBOX=off): on recordings of real programs, and beside a
# compiler on every CPU, or of one program that goes on. Each runs ROUNDS times, recordings a third of that, the two
# in turn; the table has the medians of user + sys of all processes together, and of the time that passes. The last row
# is a recording of true(1): how long it takes to begin and to end. It never fails because something is slow. On a busy
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

rounds, name, command = int(sys.argv[1]), sys.argv[2], os.environ.get("PRIORITY", "").split() + sys.argv[3:]


def used():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (r.ru_utime + r.ru_stime) * 1e3


def once(sandbox):
    before, began = used(), time.monotonic()
    subprocess.run(command, env=dict(os.environ, OFFWIND_SANDBOX=sandbox), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return used() - before, (time.monotonic() - began) * 1e3


once("")
runs = [(once(""), once("off")) for _ in range(rounds)]
(cpu, off_cpu), (wall, off_wall) = ([statistics.median(run[side][i] for run in runs) for side in (0, 1)] for i in (0, 1))
print(f"{name:10} {cpu:7.1f} {off_cpu:7.1f} ms {cpu / off_cpu:6.3f} {cpu - off_cpu:+6.1f} {wall:9.1f} {off_wall:7.1f} ms {wall - off_wall:+6.1f}")
PY
export OFFWIND_DB=$work/store
echo "                CPU time of all processes          time that passes"
echo "program     worker     one     ratio   more    worker     one     more"
for program in ${*:-clang python3 node sqlite3 git openssl long}; do
	hz=999
	if [ "$program" = long ]; then # four runs, at a higher rate: what processes cost once is a small part
		workload clang
		argv=(sh -c 'for i in 1 2 3 4; do "$@"; done' sh "${argv[@]}")
		hz=1999
	else
		workload "$program"
	fi
	# git exits with 1 for differences.
	perf record -q -F $hz -e cpu-clock:u --call-graph dwarf,16384 -o "$work/perf.data" -- "${argv[@]}" >"$work/out" 2>&1 || true
	"$offwind" unwind -q -o "$work/p.pb.gz" "$work/perf.data"
	python3 "$work/pairs.py" "$ROUNDS" "$program" "$offwind" unwind -q -o "$work/p.pb.gz" "$work/perf.data"
done
workload clang
for _ in $(seq "$(nproc)"); do
	(trap 'kill $! 2>/dev/null; exit' TERM; while :; do "${argv[@]}" >/dev/null 2>&1 & wait $!; done) &
	loads+=($!)
done
for hz in 99 997; do
	python3 "$work/pairs.py" $((ROUNDS / 3)) "all $hz Hz" "$offwind" record -q -a -F $hz -d 5 -o "$work/p.pb.gz"
done
kill "${loads[@]}"
python3 -c 'while True: pass' &
loads=($!)
for hz in 99 997; do
	python3 "$work/pairs.py" $((ROUNDS / 3)) "one $hz Hz" "$offwind" record -q -p "${loads[0]}" -F $hz -d 5 -o "$work/p.pb.gz"
done
kill "${loads[@]}"
loads=()
python3 "$work/pairs.py" "$ROUNDS" "true" "$offwind" record -q -o "$work/p.pb.gz" -- true

#!/usr/bin/env bash
# Measures the cost of source lines and inlined calls in `offwind unwind`: CPU time, wall-clock time
# and peak memory of whole commands, without a cache and with the cache of an earlier run. For
# comparison it measures reading and unwinding alone, and `perf script` with inlined calls, on the
# same recording: of COMMAND, whose program has debug information, or of a small program in C++. The
# figures are medians of three runs, in turns.
#   usage: lines.sh [COMMAND…]
#   HZ, STACK                 how to record
#   PERF_SECONDS, PERF_RUNS   how long perf script may take, and how often it runs
set -eu
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/bench-lines
rm -rf "$work"
mkdir -p "$work"
export OFFWIND_DB=
unset DEBUGINFOD_URLS
if [ $# = 0 ]; then
cat > "$work/a.cc" <<'CC'
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <regex>
#include <string>
#include <vector>
static inline int mix(int a) { return a * 2654435761u ^ (a >> 3); }
static double sort(int n)
{
	std::vector<int> v(n);
	std::iota(v.begin(), v.end(), n);
	for (auto &x : v) x = mix(x);
	std::sort(v.begin(), v.end(), [](int a, int b) { return mix(a) < mix(b); });
	return v[n / 2];
}
static int words(int n)
{
	std::map<std::string, int> m;
	std::regex r("(a|b)+c*[0-9]+");
	for (int i = 0; i < n; i++) m["ab" + std::to_string(mix(i) % 997)]++;
	int found = 0;
	for (auto &p : m) found += std::regex_match(p.first, r) * p.second;
	return found;
}
int main(int argc, char **argv)
{
	double t = argc;
	for (int i = 0; i < atoi(argv[1]); i++) t += sort(20000 + i) + words(4000);
	std::printf("%f\n", t);
}
CC
g++ -O2 -g -o "$work/a" "$work/a.cc"
set -- "$work/a" 300
fi
perf record -q --buildid-mmap -e cpu-clock -F "${HZ:-997}" --call-graph "dwarf,${STACK:-8192}" -o "$work/perf.data" "$@" > "$work/out" 2>&1 ||
	[ -s "$work/perf.data" ]

cat > "$work/cost.py" <<'PY'
"""Medians of CPU ms, wall ms and MiB of each command (NAME COMMAND), with its children's, in turns."""
import ctypes, os, resource, statistics, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: perf leaves its addr2line running


def run(command):
    """In a process of its own, because the peak is of all children so far."""
    pid = os.fork()
    if not pid:
        start = time.monotonic()
        code = subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        wall = time.monotonic() - start
        try:
            while True: os.wait()
        except ChildProcessError:
            pass
        u = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(1, b"%d %.3f %.3f %d\n" % (code, 1000 * (u.ru_utime + u.ru_stime), 1000 * wall, u.ru_maxrss // 1024))
        os._exit(0)
    os.waitpid(pid, 0)


for name, command in zip(sys.argv[2::2], sys.argv[3::2]):
    for _ in range(int(sys.argv[1])):
        os.write(1, name.encode() + b" ")
        run(command)
PY
data=$work/perf.data
unwind="$offwind unwind -q -o $work/p.pb.gz"
$unwind --db "$work/db" "$data" 2> "$work/err"
for _ in 1 2 3; do
	python3 "$work/cost.py" 1 bare "$unwind --db $work/db --no-lines $data" kept "$unwind --db $work/db $data" \
		bare_cold "$unwind --no-cache --no-lines $data" cold "$unwind --no-cache $data" \
		plain "perf script --no-inline -i $data" >> "$work/costs"
done
# It may take an hour; after some minutes, that it takes long is known.
python3 "$work/cost.py" "${PERF_RUNS:-1}" perf "exec timeout ${PERF_SECONDS:-300} perf script --inline -i $data" >> "$work/costs"
"$offwind" unwind -q --no-cache --format tsv "$data" 2> "$work/err" > "$work/tsv"
python3 - "$work/costs" "$work/tsv" "$(stat -c %s "$data")" <<'PY'
import collections, statistics, sys
costs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    name, *rest = line.split()
    costs[name].append([float(x) for x in rest])
cost = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in costs.items()}
samples, places, frames = set(), set(), 0
for line in list(open(sys.argv[2], errors="replace"))[1:]:
    p = line.split("\t")
    samples.add(p[0])
    frames += 1
    if p[9] != "-":
        places.add((p[2], p[3]))
print("%d samples, %d MB, %d frames; %d addresses with lines" % (len(samples), int(sys.argv[3]) // 1000000, frames, len(places)))
print("%-40s %9s %9s %6s" % ("", "CPU ms", "wall ms", "MiB"))
for name, text in (("bare", "offwind --no-lines, tables kept"), ("kept", "offwind, lines kept"),
                   ("bare_cold", "offwind --no-lines, nothing kept"), ("cold", "offwind, nothing kept"),
                   ("plain", "perf script --no-inline"), ("perf", "perf script --inline")):
    print("%-40s %9.1f %9.1f %6d" % (text, *cost[name][1:4]))
least = "at least " if cost["perf"][0] == 124 else ""
for name, bare, text in ("cold", "bare_cold", "nothing kept"), ("kept", "bare", "kept"):
    print("lines %s: %.2f of the CPU time and %.2f of the wall-clock time of reading and unwinding; perf script --inline takes %s%.0f and %.0f times as long"
          % (text, cost[name][1] / cost[bare][1] - 1, cost[name][2] / cost[bare][2] - 1, least, cost["perf"][1] / cost[name][1], cost["perf"][2] / cost[name][2]))
PY

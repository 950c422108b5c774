#!/usr/bin/env bash
# Source lines and inlined calls: CPU time of `offwind unwind` with and without them, with nothing
# kept and with what an earlier run keeps, and of `perf script` with inlined calls, on the same
# recording of a C++ program with debug information; peak memory.
set -eu
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/bench-lines
rm -rf "$work"
mkdir -p "$work"
export OFFWIND_DB=
unset DEBUGINFOD_URLS
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
perf record -q --buildid-mmap -e cpu-clock -F 997 --call-graph dwarf -o "$work/perf.data" "$work/a" 300 > "$work/out" 2>&1

cpu() { # COMMAND…: ms of CPU and MiB at most, of it and its children
	python3 - "$@" <<'PY'
import ctypes, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: perf leaves its addr2line behind
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
try:
    while True: os.wait()
except ChildProcessError:
    pass
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(round(1000 * (u.ru_utime + u.ru_stime), 1), u.ru_maxrss // 1024)
sys.exit(code)
PY
}
"$offwind" unwind -q --db "$work/db" -o "$work/p.pb.gz" "$work/perf.data" 2> "$work/err"
read -r without mib_without < <(cpu "$offwind" unwind -q --db "$work/db" --no-lines -o "$work/p.pb.gz" "$work/perf.data")
read -r cold mib < <(cpu "$offwind" unwind -q --no-cache -o "$work/p.pb.gz" "$work/perf.data")
read -r cold_without _ < <(cpu "$offwind" unwind -q --no-cache --no-lines -o "$work/p.pb.gz" "$work/perf.data")
read -r warm mib_warm < <(cpu "$offwind" unwind -q --db "$work/db" -o "$work/p.pb.gz" "$work/perf.data")
read -r plain _ < <(cpu perf script --no-inline -i "$work/perf.data")
# It may take an hour: so much is known after some minutes.
read -r perf mib_perf < <(cpu timeout "${PERF_SECONDS:-300}" perf script --inline -i "$work/perf.data") || limited='at least '
samples=$("$offwind" unwind -q --no-cache --no-lines --format tsv "$work/perf.data" 2> "$work/err" | cut -f1 | sort -u | wc -l)
awk -v s="$samples" -v w="$without" -v c="$cold" -v cw="$cold_without" -v k="$warm" -v p="$perf" -v pp="$plain" -v l="${limited:-}" \
	-v m="$mib" -v mw="$mib_warm" -v m0="$mib_without" -v mp="$mib_perf" 'BEGIN {
	printf "%d samples\n%-44s %9s %8s\n", s, "", "CPU ms", "MiB"
	printf "%-44s %9.1f %8d\n", "offwind, without lines", w, m0
	printf "%-44s %9.1f %8d\n", "offwind, lines, nothing kept", c, m
	printf "%-44s %9.1f %8d\n", "offwind, lines kept", k, mw
	printf "%-44s %9.1f\n", "perf script --no-inline", pp
	printf "%-44s %9.1f %8d\n", "perf script --inline", p, mp
	printf "lines cost %.2f (nothing kept) and %.2f (kept) of reading and unwinding\n", (c - cw) / cw, (k - w) / w
	printf "perf script --inline takes %s%.0f and %.0f times as long\n", l, p / c, p / k }'

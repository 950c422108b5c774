#!/usr/bin/env bash
# Records real programs with perf and compares offwind's frames with perf script's. README.md in
# this directory explains the classes of differences.
#   usage: tests/diff/perf_script.sh [-v] [PROGRAM…]     HZ (199)
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
. tests/workload.sh
. tests/perf.sh
command -v perf >/dev/null || { echo "perf is not installed"; exit 77; }
verbose=()
[ "${1:-}" != -v ] || { verbose=(-v); shift; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

for program in "${@:-clang python3 node jit sqlite3 git openssl}"; do
	set -- $program
	for name; do
		workload "$name"
		files=() samples=0
		# A few percent of few samples are one or two of them: it runs again until there are enough.
		for run in 1 2 3 4 5 6 7 8; do
			[ $samples -lt 300 ] || break
			# Build-ids with the mappings: see the last paragraph of README.md.
			perf_record --buildid-mmap -F "${HZ:-199}" --call-graph dwarf,65528 \
				-o "$dir/perf.data" -- "${argv[@]}" >/dev/null 2>"$dir/log"
			rc=$?
			# git diff exits with 1 if files differ; a signal comes from perf itself.
			if [ $rc -gt 1 ]; then
				cat "$dir/log"
				exit 1
			fi
			perf script --no-inline -i "$dir/perf.data" -F comm,pid,tid,time,event,ip,sym,dso \
				>"$dir/$run.perf" 2>/dev/null
			"$BUILD/offwind" unwind -q --format text --no-inline -o "$dir/$run.text" "$dir/perf.data" &&
				"$BUILD/offwind" unwind -q --format tsv --no-inline -o "$dir/$run.tsv" "$dir/perf.data" || failures=1
			rm -f "$dir/perf.data" "$dir/perf.data.old"
			files+=("$dir/$run.perf" "$dir/$run.text" "$dir/$run.tsv")
			samples=$((samples + $(grep -c '^[^[:space:]#]' "$dir/$run.text")))
		done
		# perf cannot walk generated code; there offwind may only walk further.
		least=80
		[ "$name" != jit ] || least=0
		echo "== $name"
		tests/diff/perf_script.py "${verbose[@]}" --least $least "${files[@]}" || failures=1
	done
done
exit $failures

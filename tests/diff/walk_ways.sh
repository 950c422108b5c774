#!/usr/bin/env bash
# Frames are the same whichever way rules came: files or compiled tables, caches
# warm or cold.  Fresh recordings of a few programs; one under the sanitizers.
set -u
work=$BUILD/walk-ways
mkdir -p "$work"
. tests/workload.sh
done=0
for name in git sqlite3 python3 jit clang; do
	workload "$name"
	for try in 1 2 3; do # perf dies at times, of processes that end while it starts
		timeout 60 perf record -q -F 997 -e cpu-clock:u --call-graph dwarf,16384 -o "$work/$name.data" \
			-- "${argv[@]}" > "$work/$name.out" 2>&1 && break
	done || { echo "$name: perf record died $try times"; continue; }
	printf '%s: ' "$name"
	"$BUILD/tests/diff/walk_ways" "$work/$name.data" || exit 1
	if [ $done = 0 ]; then
		"$BUILD/asan/tests/diff/walk_ways" "$work/$name.data" || exit 1
	fi
	done=$((done + 1))
	rm -f "$work/$name.data"
done
[ $done -ge 2 ]

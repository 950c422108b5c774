#!/usr/bin/env bash
# Frames are the same whichever way rules came: files or compiled tables, caches
# warm or cold.  Fresh recordings of a few programs; one under the sanitizers.
set -u
work=$BUILD/walk-ways
mkdir -p "$work"
. tests/workload.sh
for name in git sqlite3 python3 jit clang openssl; do
	workload "$name"
	timeout 60 perf record -q -F 997 -e cpu-clock:u --call-graph dwarf,16384 -o "$work/$name.data" \
		-- "${argv[@]}" > "$work/$name.out" 2>&1
	[ -s "$work/$name.data" ] || { cat "$work/$name.out"; exit 1; }
	printf '%s: ' "$name"
	"$BUILD/tests/diff/walk_ways" "$work/$name.data" || exit 1
done
"$BUILD/asan/tests/diff/walk_ways" "$work/git.data" || exit 1
rm -f "$work"/*.data

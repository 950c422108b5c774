#!/usr/bin/env bash
# Tests that a walk allocates nothing: calls of the allocator are counted while the samples of fresh
# recordings are walked, by rules from files, by tables, and many at once.
set -u
work=$BUILD/walk-allocations
mkdir -p "$work"
. tests/workload.sh

done=0
for name in git sqlite3 jit; do
	workload "$name"
	perf_workload 1 "$work/$name.data" -F 499 --call-graph dwarf,16384 || continue
	printf '%s: ' "$name"
	"$BUILD/tests/diff/walk_allocations" "$work/$name.data" || exit 1
	rm -f "$work/$name.data"
	done=$((done + 1))
done
[ $done -ge 2 ]

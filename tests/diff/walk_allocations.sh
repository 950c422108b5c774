#!/usr/bin/env bash
# A walk allocates nothing: calls of the allocator are counted while the samples of fresh
# recordings are walked, by rules in files, by tables, and many at once.
set -u
work=$BUILD/walk-allocations
mkdir -p "$work"
. tests/workload.sh

done=0
for name in git sqlite3 jit; do
	workload "$name"
	for try in 1 2 3; do # perf dies at times, of processes that end while it starts
		timeout -s INT 1 perf record -q --buildid-mmap -F 499 -e cpu-clock:u --call-graph dwarf,16384 \
			-o "$work/$name.data" -- "${argv[@]}" > "$work/$name.out" 2>&1
		rc=$? # 124: the time was over, the recording is whole
		[ $rc = 0 ] || [ $rc = 124 ] && break
	done || { echo "$name: perf record died $try times"; continue; }
	printf '%s: ' "$name"
	"$BUILD/tests/diff/walk_allocations" "$work/$name.data" || exit 1
	rm -f "$work/$name.data"
	done=$((done + 1))
done
[ $done -ge 2 ]

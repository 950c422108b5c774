#!/usr/bin/env bash
# Tests that frames are the same however they are found: from files or compiled tables, with warm or
# cold caches, one sample or many at once, with one thread or eight. Uses fresh recordings, and
# parts of them under ASan with UBSan and under TSan.
set -u
work=$BUILD/walk-ways
mkdir -p "$work"
. tests/workload.sh

ways() { # FOLDER NAME [MAX]
	printf '%s: ' "$2"
	# TSan of gcc 12 needs addresses that randomisation seldom leaves free.
	setarch -R "$1/tests/diff/walk_ways" "$work/$2.data" ${3:+"$3"} || exit 1
}

done=0
for name in git sqlite3 python3 node jit clang; do
	workload "$name"
	perf_workload 1 "$work/$name.data" -F 499 --call-graph dwarf,16384 || continue
	ways "$BUILD" "$name"
	case $name in
	git | jit) ways "$BUILD/asan" "$name" 100 ;;
	python3 | node) ways "$BUILD/tsan" "$name" 200 ;;
	esac
	done=$((done + 1))
	rm -f "$work/$name.data"
done
[ $done -ge 4 ]

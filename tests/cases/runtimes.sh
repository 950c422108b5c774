#!/usr/bin/env bash
# Tests captures of interpreters that this machine need not have: all samples have the stacks that their program knew of
# itself, and the same native frames between as when they were recorded (runtimes/make.sh).
set -u
dir=$BUILD/cases/runtimes
rm -rf "$dir"; mkdir -p "$dir"
export HOME=$dir OFFWIND_DB=
failures=0 n=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
for capture in tests/cases/runtimes/*.owc; do
	name=$(basename "$capture" .owc) n=$((n + 1))
	"$BUILD/offwind" unwind -q -f jsonl "$capture" >"$dir/$name.jsonl" || fail "$name: unwind"
	said=$(python3 tests/live/cpython/compare.py "$dir/$name.jsonl" "${capture%.owc}.stacks" 1 '[cpython]' 25) || fail "$name: other stacks"
	echo "$name: $said"
	"$BUILD/offwind" unwind -q -f folded "$capture" | LC_ALL=C sort >"$dir/$name.folded"
	diff "${capture%.owc}.folded" "$dir/$name.folded" >"$dir/diff" || fail "$name: as recorded, and as found: $(head -n 5 "$dir/diff" | cut -c1-500)"
done
[ $n -gt 0 ] && [ $failures = 0 ]

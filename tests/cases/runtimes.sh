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

# What each format marks frames of interpreted code with; folded stacks are compared above.
capture=tests/cases/runtimes/cpython-3.13.owc
converted() { "$BUILD/offwind" unwind -q -f "$1" "$capture"; } # FORMAT
for format in speedscope text; do
	converted $format >"$dir/$format" || fail "$format"
done
grep -qF '"name":"spin [cpython]"' "$dir/speedscope" || fail "speedscope"
! grep -F 'PyEval_EvalCode [' "$dir/speedscope" || fail "speedscope marks what is native"
grep -qE '^\s+[0-9a-f]+ spin \(\[cpython\]\)$' "$dir/text" || fail "text"
converted firefox | python3 -c '
import json, sys
p = json.load(sys.stdin)
number = [c["name"] for c in p["meta"]["categories"]].index("[cpython]")
got = {t["stringArray"][t["funcTable"]["name"][f]]: c for t in p["threads"] for f, c in zip(t["frameTable"]["func"], t["frameTable"]["category"])}
sys.exit(got["spin"] != number or got["PyEval_EvalCode"] == number)' || fail "firefox"
[ $n -gt 0 ] && [ $failures = 0 ]

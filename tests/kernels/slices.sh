#!/usr/bin/env bash
# Runs on another kernel, by tests/kernels.sh: samples of Python have their frames there, with the full and the fallback
# programs, and a capture gives the same stacks as the recording.
set -u
offwind=$PWD/$BUILD/offwind
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
cat >"$dir/deep.py" <<'PY'
import sys, time
def work(end):
    x = 0
    while time.time() < end:
        for i in range(1000):
            x += i
for i in range(30):
    exec(f'def f{i}(end):\n    return f{i + 1}(end)\n')
def f30(end):
    return work(end)
f0(time.time() + float(sys.argv[1]))
PY
wanted=$(printf 'f%d_.cpython.;.*' {0..30})work
for without in "" find_vma,task_storage,uprobe_multi; do
	OFFWIND_WITHOUT=$without "$offwind" record -F 49 --raw="$dir/a.owc" -f folded -o "$dir/live" -- python3 "$dir/deep.py" 30 2>"$dir/log" || fail "record: $(cat "$dir/log")"
	"$offwind" unwind -q -f folded -o "$dir/later" "$dir/a.owc" || fail unwind
	diff <(sort "$dir/live") <(sort "$dir/later") >"$dir/log" || fail "live and later differ: $(head -n 4 "$dir/log")"
	all=$(awk '/^python3/ { n += $NF } END { print n + 0 }' "$dir/live")
	whole=$(awk -v wanted="$wanted" '$0 ~ wanted { n += $NF } END { print n + 0 }' "$dir/live")
	echo "${without:+without $without: }$whole of $all samples have all 31 functions"
	# The others are of the program's start.
	if [ "$whole" = 0 ] || [ $((whole * 10)) -lt $((all * 8)) ]; then fail "frames of Python"; fi
done
[ $failures = 0 ]

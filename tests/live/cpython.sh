#!/usr/bin/env bash
# Tests frames of Python code: a program computes in places that it knows; at least 95 of 100 samples must have its
# own stack, function by function and line by line. Debian's Python, and those of pyenv if there are any.
# PYTHON: another one instead, from 3.11 on (/usr/bin/python3.14). TEST_ROOT: tests/root.sh.
set -u
. tests/wait.sh
dir=$BUILD/live/cpython offwind=$PWD/$BUILD/offwind source=$PWD/tests/live/cpython
rm -rf "$dir"; mkdir -p "$dir"
dir=$(realpath "$dir")
export HOME=$dir
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
. tests/root.sh
[ -z "$root" ] || trap 'rm -rf "${root:?}$dir"' EXIT
file=$root${PYTHON:-/usr/bin/python3}
[ -x "$file" ] || { echo "no $file"; exit 77; }
debian="${inside[*]} ${PYTHON:-/usr/bin/python3}"
cp "$source/stacks.py" "$source/hostile.py" "$root$dir"
python3() { /usr/bin/python3 "$@"; }

# $1 what, $2 the least part, rest: recording's options, --, the command that writes its stacks
compare() {
	local what=$1 least=$2 options=()
	shift 2
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	rm -f "$dir"/a.*
	"$offwind" record -F 499 "${options[@]}" --raw="$dir/a.owc" -o "$dir/a.pb.gz" -- "$@" >"$dir/a.stacks" 2>"$dir/a.log" ||
		{ fail "$what: record: $(cat "$dir/a.log")"; return; }
	"$offwind" unwind -f jsonl "$dir/a.owc" >"$dir/a.jsonl" 2>>"$dir/a.log" || fail "$what: unwind: $(cat "$dir/a.log")"
	python3 "$source/compare.py" "$dir/a.jsonl" "$dir/a.stacks" "$least" >"$dir/a.said" || fail "$what: $(cat "$dir/a.said")"
	echo "$what: $(tail -n 1 "$dir/a.said")"
}

echo "== the stacks that a program knows"
compare "$($debian -VV)" 0.95 -- $debian "$dir/stacks.py" 3
cp "$dir/a.owc" "$dir/kept.owc"
"$offwind" report -f folded "$dir/a.pb.gz" 2>/dev/null | sort >"$dir/live"
"$offwind" unwind -f folded "$dir/a.owc" 2>/dev/null | sort >"$dir/later"
[ "$(grep -c ';spin' "$dir/live")" -ge 10 ] || fail "a profile without frames: $(head -5 "$dir/live")"
cmp -s "$dir/live" "$dir/later" || fail "live and later differ: $(diff "$dir/live" "$dir/later" | head -5)"
# Another machine: without the interpreter's file, and without the store.
unshare -m sh -c 'mount --bind /dev/null "$(realpath "$2")" && exec "$0" unwind --no-cache -f folded "$1"' \
	"$offwind" "$dir/a.owc" "$file" 2>"$dir/log" | sort >"$dir/away"
cmp -s "$dir/live" "$dir/away" || fail "another machine differs: $(diff "$dir/live" "$dir/away" | head -5)"
compare "threads" 0.95 -- $debian "$dir/stacks.py" 2 threads
OFFWIND_WITHOUT=find_vma,task_storage,mmap_build_id,procmap_query,uprobe_multi,snprintf,reduced_btf \
	compare "the programs for older kernels" 0.95 -- $debian "$dir/stacks.py" 2
[ "${PYTHON:-}" ] || for python in "${PYENV_ROOT:-$(getent passwd "$(id -u)" | cut -d: -f6)/.pyenv}"/versions/3.*/bin/python3.*[0-9]; do
	case $python in
	*/python3.[89] | */python3.1[0-5]) compare "${python##*/}" 0.95 -- "$python" "$dir/stacks.py" 2 ;;
	esac
done

echo "== frames that have not changed are sent once"
cat >"$root$dir/deep.py" <<'PY'
import sys, time
for i in range(50):
    exec(f'def f{i}(end):\n    return f{i + 1}(end)\n')
def f50(end):
    while time.process_time() < end:
        sum(range(1000))
f0(time.process_time() + float(sys.argv[1]))
PY
"$offwind" record -F 499 --stats "$dir/stats" -f folded -o "$dir/folded" -- $debian "$dir/deep.py" 3 2>"$dir/log" || fail "record: $(cat "$dir/log")"
python3 - "$dir/stats" "$dir/folded" <<'PY' || fail "slices: $(cat "$dir/log")"
import json, re, sys
captured = json.load(open(sys.argv[1]))["total"]["captured"]
beside = (captured["bytes"] - captured["stack_bytes"]) / captured["samples"]
lines = [line.rsplit(" ", 1) for line in open(sys.argv[2])]
deep = sum(int(n) for stack, n in lines if re.search(";f0_.*;f25_.*;f50_", stack))
print(f"{beside:.0f} bytes a sample beside the stack; {deep} of {captured['samples']} samples have all functions")
# The slices have 4.5 KB, the head 224 bytes.
sys.exit(deep < 0.8 * captured["samples"] or beside > 1500)
PY

echo "== a whole system"
"$offwind" record -a -F 499 --raw="$dir/b.owc" -o "$dir/b.pb.gz" >"$dir/log" 2>&1 & recorder=$!
until [ -s "$dir/b.owc" ] || ! kill -0 $recorder 2>/dev/null; do sleep 0.05; done
$debian "$dir/stacks.py" 2 >"$dir/b.stacks"
kill -INT $recorder
wait $recorder || fail "record -a: $(cat "$dir/log")"
"$offwind" unwind -f jsonl "$dir/b.owc" >"$dir/b.jsonl" 2>/dev/null
python3 "$source/compare.py" "$dir/b.jsonl" "$dir/b.stacks" 0.95 || fail "record -a"

echo "== the daemon, and a program that ran before it"
printf '[server]\nrecord = any\n[record]\nrotate = 1\nevent = cpu-clock\nfreq = 199\n' >"$dir/conf"
$debian "$dir/stacks.py" 200 >/dev/null & program=$!
"$offwind" daemon --config "$dir/conf" --db "$dir/o.db" --listen "unix:$dir/socket" >"$dir/log" 2>&1 & daemon=$!
windows() { sqlite3 -cmd ".timeout 10000" "$dir/o-history.db" 'SELECT count(*) FROM windows' 2>/dev/null || echo 0; }
# Until the program has samples in four windows, and enough of them, however busy the machine is.
has_windows() { [ "$(windows)" -ge 4 ] && [ "$(sampled)" -ge 150 ]; }
sampled() { "$offwind" query top --url "unix:$dir/socket" --label "pid=$program" --json 2>>"$dir/log" | python3 -c 'import json, sys; print(json.load(sys.stdin)["samples"])' 2>>"$dir/log" || echo 0; }
until_or_dead $daemon has_windows || fail "the daemon: $(tail -n 5 "$dir/log")"
"$offwind" query profile --url "unix:$dir/socket" --label "pid=$program" --format folded -o "$dir/shown" 2>>"$dir/log" &&
	"$offwind" query profile --url "unix:$dir/socket" --label "pid=$program" --hide-interpreters --format folded -o "$dir/hidden" 2>>"$dir/log" || fail "query"
grep -q 'PyEval_Eval.*;main_\[cpython\];all_places' "$dir/shown" && grep -q ';main_\[cpython\];all_places' "$dir/hidden" &&
	! grep ';main_\[cpython\];all_places' "$dir/hidden" | grep -q PyEval_Eval || fail "query --hide-interpreters: $(head -3 "$dir/hidden")"
kill $daemon $program
wait $daemon 2>/dev/null
# In the first window the daemon meets the program, whose plan is made then.
met=$(sqlite3 "$dir/o-history.db" 'SELECT end_ns / 1000000000.0 FROM windows ORDER BY id LIMIT 1')
"$offwind" report --from "@$met" --label "pid=$program" -f folded "$dir/o-history.db" 2>>"$dir/log" >"$dir/folded"
awk '{ n += $NF } /<module>_\[cpython\];main_\[cpython\];all_places_\[cpython\]/ { good += $NF } END { print n + 0, "samples in the history,", good + 0, "of them with all frames"; exit !(n >= 50 && good >= 0.95 * n) }' "$dir/folded" ||
	fail "the daemon: $(grep -v '<module>_\[cpython\];main_\[cpython\];all_places' "$dir/folded" | head -5; tail -5 "$dir/log")"

echo "== code that is gone when it is looked at has no wrong names"
compare "freed" 0 -- $debian "$dir/stacks.py" 2 freed
python3 - "$dir/a.jsonl" "$dir/a.stacks" <<'PY' || fail "wrong names"
import json, sys
known = {frame[0] for line in open(sys.argv[2]) for frame in json.loads(line)} | {"[unknown]"}
for line in open(sys.argv[1], encoding="utf-8"):
    names = [f.get("function") for f in json.loads(line)["frames"] if f.get("module") == "[cpython]"]
    if names and names[0] == "spin":
        wrong = [n for n in names if n not in known]
        if wrong:
            sys.exit(f"{wrong} in {names}")
PY

echo "== chains that lead nowhere"
for what in $($debian -c 'import sys; print("cycle wild kernel code" if sys.version_info[:2] == (3, 11) else "")'); do
	"$offwind" record -q -F 499 --raw="$dir/h.owc" -o "$dir/h.pb.gz" -- $debian "$dir/hostile.py" "$what" 1 >"$dir/log" 2>&1 ||
		fail "$what: $(cat "$dir/log")"
	"$offwind" unwind -f jsonl "$dir/h.owc" 2>/dev/null >"$dir/h.jsonl"
	n=$(python3 - "$dir/h.jsonl" <<-'PY'
		import json, sys
		lines = [json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
		named = [d for d in lines if any(f.get("module") == "[cpython]" and f.get("function") in ("main", "spin_elsewhere") for f in d["frames"])]
		print(named[len(named) // 2]["sample"] if len(named) >= 20 else 0)
	PY
	)
	"$offwind" explain --sample "$n" "$dir/h.owc" >"$dir/explained" 2>/dev/null
	grep -q '^interpreted frames are missing: ' "$dir/explained" || fail "$what: no reason: $(grep -E '^#|missing' "$dir/explained" | head -20)"
	echo "$what: $(sed -n 's/^interpreted frames are missing: //p' "$dir/explained")"
done

echo "== a core"
cat >"$root$dir/waits.py" <<'PY'
# Says which functions run on which lines, and waits there; a second thread does, too.
import signal, sys, threading
def stack(frame):
    return [] if frame is None else [f"{frame.f_code.co_qualname}:{frame.f_lineno}"] + stack(frame.f_back)
def waits(n):
    if n:
        return waits(n - 1)
    print(*stack(sys._getframe()), flush=True) or signal.pause()
class Shop:
    def __lt__(self, other):
        return waits(3)
def second(ready=threading.Event()):
    ready.set() or threading.Event().wait()
threading.Thread(target=second, daemon=True).start()
min([Shop(), Shop()])
PY
$debian "$dir/waits.py" >"$dir/waits.said" & program=$!
until_or_dead $program test -s "$dir/waits.said" && until_or_dead $program in_pause $program || fail "the program that waits"
gcore -o "$dir/core" $program >"$dir/log" 2>&1 || fail "gcore: $(tail -3 "$dir/log")"
kill $program
"$offwind" unwind -q -f jsonl "$dir/core.$program" 2>"$dir/log" >"$dir/core.jsonl" || fail "a core: $(cat "$dir/log")"
python3 - "$dir/core.jsonl" "$dir/waits.said" <<'PY' || fail "frames of a core"
import json, sys
stacks = [[f"{f['function']}:{f.get('line')}" for f in json.loads(line)["frames"] if f["module"] == "[cpython]"] for line in open(sys.argv[1], encoding="utf-8")]
want = open(sys.argv[2]).read().split()
print(len(stacks), "threads,", len(want), "frames of the one that said so")
sys.exit(0 if want in stacks and any("second:13" in s for s in stacks) else f"{want} is not in {stacks}")
PY

echo "== how it looks"
n=$(python3 - "$dir/kept.owc" <<PY
import json, subprocess
lines = subprocess.run(["$offwind", "unwind", "-f", "jsonl", "$dir/kept.owc"], capture_output=True, text=True).stdout.splitlines()
print(next(json.loads(l)["sample"] for l in lines if '"function":"deep"' in l))
PY
)
"$offwind" explain --sample "$n" "$dir/kept.owc" >"$dir/explained" 2>/dev/null
grep -qE '^#[0-9]+ +0x[0-9a-f]{16} deep /.*stacks.py:[0-9]+ \(\[cpython\]\)$' "$dir/explained" || fail "explain: $(head -30 "$dir/explained")"
"$offwind" report -n 0 --module '\[cpython\]' "$dir/a.pb.gz" | grep -q spin || fail "--module"
"$offwind" report -f folded "$dir/a.pb.gz" | grep -q 'PyEval_Eval' || fail "the interpreter's own functions"
"$offwind" report --hide-interpreters -f folded "$dir/a.pb.gz" >"$dir/hidden"
grep -q ';main_\[cpython\];all_places_\[cpython\];.*spin' "$dir/hidden" || fail "--hide-interpreters: $(head -3 "$dir/hidden")"
! grep ';spin.*PyEval_Eval\|PyEval_Eval.*;spin' "$dir/hidden" || fail "--hide-interpreters leaves some"

[ $failures = 0 ]

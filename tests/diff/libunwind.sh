#!/usr/bin/env bash
# Tests libunwind-offwind.so in place of libunwind: a small client, compiled against Debian's
# libunwind, runs with libunwind and with ours preloaded, on a process, its core and recorded
# threads. Debian's perf script does the same on a recording.
set -u
. tests/wait.sh
. tests/corpus.sh
dir=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill $pid 2>/dev/null; rm -rf "$dir"' EXIT
ours=$(realpath "$BUILD")/libunwind-offwind.so
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

echo "== what it shows"
nm -D --defined-only "$ours" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort >"$dir/shown"
sed -n 's/^\t\t\(_U[A-Za-z0-9_]*\);$/\1/p' compat/libunwind.map | LC_ALL=C sort >"$dir/listed"
cmp "$dir/shown" "$dir/listed" || fail "not what compat/libunwind.map lists: $(diff "$dir/shown" "$dir/listed")"

gcc -std=gnu17 -O1 -Wall -Wextra -Werror tests/diff/libunwind/client.c -D_GNU_SOURCE -o "$dir/client" -lunwind-ptrace -lunwind-coredump -lunwind-x86_64 -lunwind || fail client
gcc -std=gnu17 -O2 tests/diff/libunwind/target.c -o "$dir/target" || fail target

diff <("$dir/client" names) <(LD_PRELOAD=$ours "$dir/client" names) >"$dir/log" || fail "names: $(cat "$dir/log")"

echo "== .debug_frame"
echo 'int f(int n) { return n > 1 ? f(n - 1) * n : 1; } int g(int n) { return f(n) + 1; }' |
	gcc -x c -g -O1 -fno-asynchronous-unwind-tables -fno-unwind-tables -shared -nostdlib -o "$dir/debug.so" - || fail "gcc -g"
read -r start size < <(nm -S "$dir/debug.so" | awk '$4 == "g" { print $1, $2 }')
[ "$(LD_PRELOAD=$ours "$dir/client" debug "$dir/debug.so" "$start")" = "$(printf '%x %x 32' "0x$start" "0x$size")" ] ||
	fail "g at $start, size $size: $(LD_PRELOAD=$ours "$dir/client" debug "$dir/debug.so" "$start")"

# All names but those of the target's own functions are left out: libunwind's nearest dynamic symbol often belongs to
# another function.
lines() { sed -E 's/ (main|deep|compare|handler)\+/ =\1+/; s/ [A-Za-z_][A-Za-z0-9_.@]*\+[0-9a-f]+//; s/ =/ /' "$1"; }

echo "== a process"
"$dir/target" &
pid=$!
handles() { grep -q '^State:.S' /proc/$pid/status && grep -qx 'SigCgt:.*2..' /proc/$pid/status; }
until_or_dead $pid handles || exit 1 # it sleeps in its handler
sleep 0.2
"$dir/client" pid $pid >"$dir/theirs" || fail "libunwind's client"
LD_PRELOAD=$ours "$dir/client" pid $pid >"$dir/ours" || fail "our client"
grep -q 'deep+' "$dir/ours" && grep -q ' signal ' "$dir/ours" && [ "$(wc -l <"$dir/ours")" -gt 15 ] || fail "the process is not where it should be: $(cat "$dir/ours")"
diff <(lines "$dir/theirs") <(lines "$dir/ours") >"$dir/log" || fail "frames differ: $(cat "$dir/log")"
echo "$(wc -l <"$dir/ours") frames the same: pc, sp, procedure, six registers and where they are kept"

echo "== its core"
if gcore -o "$dir/core" $pid >"$dir/log" 2>&1; then
	LD_PRELOAD=$ours "$dir/client" core "$dir/core.$pid" >"$dir/cored" || fail "our client of a core"
	[ "$(sed -n 1p "$dir/cored")" = "pid $pid signal 0 threads 1" ] || fail "core: $(head -1 "$dir/cored")"
	diff <(lines "$dir/theirs") <(tail -n +3 "$dir/cored" | lines /dev/stdin) >"$dir/log" ||
		fail "the core's frames are not those libunwind found in the process: $(cat "$dir/log")"
else
	fail "gcore: $(cat "$dir/log")"
fi
kill $pid 2>/dev/null
pid=

echo "== recorded threads"
for case in libunwindstack/eh_frame_hdr_begin_x86_64 libunwindstack/load_bias_ro_rx_x86_64 libbacktrace/cases/eh_frame_x86_64; do
	"$dir/client" folder "$corpus/$case" >"$dir/theirs" || fail "$case, libunwind"
	LD_PRELOAD=$ours "$dir/client" folder "$corpus/$case" >"$dir/ours" || fail "$case"
	python3 - "$case" "$dir/theirs" "$dir/ours" <<'P' || fail "$case"
import sys
# If libunwind's frame is the expected one, ours is the same in every word; if it is not (libunwind loses two of the
# three), ours is the expected one.
case, theirs, ours = sys.argv[1].split('/')[-1], *([line.split() for line in open(p)] for p in sys.argv[2:])
want, same, better = [], 0, 0
for table in ('libunwindstack', 'libbacktrace'):
    for line in open('../shared/corpus/expected/%s.tsv' % table):
        f = line.rstrip('\n').split('\t')
        if f[0] == case and len(f) > 7:
            want.append({int(f[7], 16) + d for d in (0, 1)})
for i, pcs in enumerate(want):
    t = theirs[i] if i < len(theirs) else ['', '0']
    o = ours[i] if i < len(ours) else ['', '0']
    if t == o:
        same += 1
    elif int(t[1], 16) not in pcs and int(o[1], 16) in pcs:
        better += 1
    elif i < len(ours):
        print('frame', i, 'theirs', t, 'ours', o)
        sys.exit(1)
print(case, same, 'frames the same', better, 'right that libunwind does not find')
sys.exit(not same)
P
done

echo "== recorded threads of aarch64, unwound here, and by Debian's libunwind for arm64 under qemu"
if tests/arm64.sh libunwind8 libunwind-dev libc6 liblzma5 zlib1g; then
	root=$(realpath "$BUILD/arm64/root")
	flags=(-std=gnu17 -D_GNU_SOURCE -O1 "-DFOLDER_ONLY=<libunwind-aarch64.h>" -idirafter "$root/usr/include/aarch64-linux-gnu" tests/diff/libunwind/client.c)
	aarch64-linux-gnu-gcc "${flags[@]}" -o "$dir/arm" "$root/usr/lib/aarch64-linux-gnu/libunwind-aarch64.so" \
		"$root/usr/lib/aarch64-linux-gnu/libunwind.so.8" -Wl,--allow-shlib-undefined || fail "client for arm64"
	gcc "${flags[@]}" -o "$dir/cross" "$ours" -Wl,-rpath,"$(dirname "$ours")" || fail "client across machines"
	qemu-aarch64-static -L "$root" "$dir/arm" names >"$dir/theirs" && "$dir/cross" names >"$dir/ours"
	cmp "$dir/theirs" "$dir/ours" || fail "names of aarch64"
	for case in bluetooth_arm64-pc_1 bluetooth_arm64-pc_2 straddle_arm64 load_bias_different_section_bias_arm64 empty_arm64; do
		[ -d "$corpus/libunwindstack/$case" ] || continue
		qemu-aarch64-static -L "$root" "$dir/arm" folder "$corpus/libunwindstack/$case" >"$dir/theirs" || fail "$case, libunwind"
		"$dir/cross" folder "$corpus/libunwindstack/$case" >"$dir/ours" || fail "$case"
		[ -s "$dir/ours" ] && diff "$dir/theirs" "$dir/ours" >"$dir/log" || fail "$case: $(cat "$dir/log")"
		echo "$case $(wc -l <"$dir/ours") frames the same: eleven registers and their places"
	done
else
	echo "left out"
fi

echo "== Debian's perf"
ldd "$(command -v perf)" | grep -q libunwind-x86_64 || fail "perf is not linked with libunwind"
for try in 1 2 3; do # perf 6.1 crashes at times while other programs record
	timeout -s INT 200 perf record -q --buildid-mmap -F 997 -e cpu-clock:u --call-graph dwarf,8192 -o "$dir/data" -- \
		python3 -c 'import json; [json.loads(json.dumps(list(range(500)))) for i in range(1500)]' >"$dir/log" 2>&1 && break
done
cpu() { # OUT COMMAND…: its CPU time in ms
	local out=$1
	shift
	TIMEFORMAT='%3U %3S'
	{ time "$@" >"$out" 2>/dev/null; } 2>&1 | awk '{ printf "%d", ($1 + $2) * 1000 }'
}
for try in 1 2 3; do
	a=$(cpu "$dir/theirs" perf script --no-inline -F comm,tid,ip,sym,dso -i "$dir/data")
	b=$(cpu "$dir/ours" env LD_PRELOAD="$ours" perf script --no-inline -F comm,tid,ip,sym,dso -i "$dir/data")
	echo "perf script: $a ms with libunwind, $b ms with ours"
done
LD_PRELOAD=$ours LD_DEBUG=bindings perf script --no-inline -F ip -i "$dir/data" 2>&1 >/dev/null | grep -q "libunwind-offwind.so.*_Ux86_64_step" || fail "perf does not step with ours"
python3 - "$dir/theirs" "$dir/ours" <<'P' || fail "perf's frames"
import os, struct, sys
def stacks(path):
    return [[l.split()[0] + (' nowhere' if l.endswith('([unknown])') else '') for l in s.split('\n')[1:] if l.strip()] for s in open(path, errors='replace').read().split('\n\n') if s.strip()]
# The file of each frame, by its address as perf prints it: the offset in the file.
files = {}
for line in open(sys.argv[2], errors='replace'):
    if line.startswith((' ', '\t')) and line.rstrip().endswith(')') and len(line.split()) > 1:
        files.setdefault(line.split()[0], line[line.rindex('(') + 1:].rstrip(')\n'))
def calls(caller, callee):
    """Return whether the instruction that caller lies in is a direct call of the 16 bytes (a PLT entry) around callee."""
    path = files.get(caller)
    if not path or path != files.get(callee) or not os.path.isfile(path):
        return False
    with open(path, 'rb') as f:
        f.seek(int(caller, 16) + 1 - 5)
        code = f.read(5)
    return code[:1] == b'\xe8' and int(caller, 16) + 1 + struct.unpack('<i', code[1:])[0] == int(callee, 16) & ~15
def lost(t, o):
    """Return whether their frames are ours but for one, which a call proves: libunwind loses the caller of a PLT entry."""
    return any(o[:k] + o[k + 1:] == t and calls(o[k], o[k - 1]) for k in range(1, len(o)))
theirs, ours = map(stacks, sys.argv[1:])
same = longer = guessed = losing = others = 0
for t, o in zip(theirs, ours):
    # perf's last frame is often wrong: pc 0, which perf moves back into a call; or, if perf has no unwind information
    # for the frame, the word after a register that is not a frame pointer. No frame follows it.
    if t and t[-1] == 'f' * 16 + ' nowhere':
        t = t[:-1]
    if t == o:
        same += 1
    elif o[:len(t)] == t:
        longer += 1
    elif t[:-1] == o:
        guessed += 1
    elif lost(t, o):
        losing += 1
    else:
        others += 1
        print('theirs', t[-6:], 'ours', o[-6:])
print(len(theirs), 'samples:', same, 'with the same frames,', longer, 'with more,', guessed, 'without a last one that was guessed,',
      losing, 'with one that libunwind loses;', sum(map(len, theirs)), 'and', sum(map(len, ours)), 'frames')
sys.exit(len(theirs) != len(ours) or others or same < 0.8 * len(theirs))
P
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }

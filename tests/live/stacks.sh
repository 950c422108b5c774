#!/usr/bin/env bash
# Records stacks of every kind at once, each of known depth: main, thread, clone and fibre stacks,
# 10 to 5,000 frames in 1 KiB to 1 MiB, signal handlers on both kinds of stack, pages in the middle
# that were never touched, fork, vfork and exec, static programs, a library that is loaded and
# unloaded. All of the stacks are whole.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/wait.sh
BUILD=${BUILD:-build}
offwind=$PWD/$BUILD/offwind
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ -n "${BUILD_ONLY:-}" ] || "$offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" ${recorder:-} $(cat "$dir"/children 2>/dev/null) 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
build() { # DIRECTORY: build the programs in it
	local sources=(tests/live/stacks.c -std=c17 -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls)
	gcc "${sources[@]}" -o "$1/dynamic" -ldl -lpthread &&
		gcc "${sources[@]}" -static -o "$1/static" 2>"$dir/log" &&
		gcc "${sources[@]}" -static-pie -o "$1/static_pie" 2>>"$dir/log" || { cat "$dir/log"; exit 1; }
	cat >"$dir/library.c" <<-'C'
	__attribute__((noinline)) static int library_inner(int n) { volatile int sum = 0; for (int i = 0; i < n; i++) sum += i; return sum; }
	int library_work(int n) { return library_inner(n) + 1; }
	C
	gcc -O1 -shared -fPIC -o "$1/library.so" "$dir/library.c" || exit 1
}
# A machine without a compiler gets them from another machine.
if [ -n "${BUILD_ONLY:-}" ]; then
	build "$BUILD_ONLY"
	exit
elif [ -n "${PREBUILT:-}" ]; then
	cp "$PREBUILT"/stacks/* "$dir" || exit 1
else
	build "$dir"
fi

run() { # PROGRAM mode depth frame name [library]: print its pid when it is ready
	local program=$1
	shift
	mkfifo "$dir/pipe"
	setsid "$dir/$program" "$@" >"$dir/pipe" 2>/dev/null &
	pids+=($!)
	timeout 200 head -n 1 "$dir/pipe" | grep -q ready || { echo "$program $* does not start"; exit 1; }
	rm "$dir/pipe"
	pgrep -P $! >>"$dir/children"
	# One at a time: if so many spin together, they starve each other.
	kill -STOP -- -$!
}
: >"$dir/children"
run dynamic depth 10 16 d10
run dynamic depth 100 992 d100
run dynamic depth 1000 480 d1000
run dynamic depth 5000 160 d5000
run dynamic depth 250 4000 wide
run dynamic thread 300 992 thread
run dynamic clone 40 992 clone
run dynamic fibre 40 992 fibre
run dynamic signal 30 992 signal
run dynamic altstack 30 992 altstack
run dynamic hole 20 992 hole
run dynamic fork 20 992 fork
run dynamic vfork 12 64 vfork
run static depth 50 992 static
run static_pie depth 50 992 static_pie
run static thread 50 992 static_thread
run dynamic churn 0 0 churn "$dir/library.so"

record() { # TICKS: that each program works for, in hundredths of a second of CPU time, however busy the machine is
	local pid before
	"$offwind" record -F 997 -m 64M --stack-max 1M -o "$dir/a.owc" --raw -p "$(IFS=,; echo "${pids[*]}")" --stats "$dir/stats" 2>"$dir/log" &
	recorder=$!
	until_or_dead $recorder test -s "$dir/a.owc" || { cat "$dir/log"; exit 1; }
	for pid in "${pids[@]}"; do
		kill -CONT -- -$pid
		all() { cat /proc/$pid/task/*/stat $(for c in $(pgrep -P $pid); do echo /proc/$c/stat; done) 2>/dev/null | sed 's/.*) //' | awk '{ n += $12 } END { print n + 0 }'; }
		before=$(all)
		worked() { [ $(($(all) - before)) -ge $1 ]; }
		until_or_dead $pid worked "$1" || exit 1
		kill -STOP -- -$pid
	done
	kill -INT $recorder
	wait $recorder || { cat "$dir/log"; exit 1; }
	recorder=
	"$offwind" unwind -q --format text --no-inline --max-frames 8192 -o "$dir/text" "$dir/a.owc" || exit 1
}

judge() {
	python3 - "$dir/text" <<'PY'
import re, sys, collections
# thread's name: function, number of its frames, caller of the first one; stop
want = {
    'd10': ('deeper', 10, 'go_down', 'main'), 'd100': ('deeper', 100, 'go_down', 'main'),
    'd1000': ('deeper', 1000, 'go_down', 'main'), 'd5000': ('deeper', 5000, 'go_down', 'main'),
    'wide': ('deeper', 250, 'go_down', 'main'), 'thread': ('deeper', 300, 'go_down', 'on_thread'),
    'clone': ('deeper', 40, 'go_down', 'on_clone'), 'fibre': ('deeper', 40, 'go_down', 'on_fibre'),
    'signal': ('interrupted', 30, 'run_signal', 'main'),
    'altstack': ('interrupted', 30, 'run_signal', 'main'),
    'hole': ('deeper', 20, 'go_down', 'over_a_hole'), 'fork': ('deeper', 20, 'go_down', 'main'),
    'vforked': ('deeper', 12, 'go_down', 'main'), 'static': ('deeper', 50, 'go_down', 'main'),
    'static_pie': ('deeper', 50, 'go_down', 'main'),
    'static_thread': ('deeper', 50, 'go_down', 'on_thread'),
}
n, good, whole, why = (collections.Counter() for _ in range(4))
def take(name, frames, stop):
    if name == 'churn':
        n[name] += 1
        whole[name] += stop == 'root'
        # In the library, or on the way into it and back.
        good[name] += 'churn' in frames and 'main' in frames
        return
    if name not in want or 'spin_here' not in frames:
        return
    function, depth, caller, first = want[name]
    n[name] += 1
    # The unwind information of glibc is wrong about the frames above a fibre's first function.
    whole[name] += stop == 'root' or name == 'fibre'
    at = [i for i, f in enumerate(frames) if f == function]
    ok = (len(at) == depth and at[-1] - at[0] == depth - 1 and
          frames[at[-1] + 1:at[-1] + 3] == [caller, first])
    good[name] += ok
    if not ok:
        why[name, len(at), stop, tuple(frames[-3:])] += 1
name, frames, stop = None, [], 'root'
for line in open(sys.argv[1], errors='replace'):
    if line.startswith('\t'):
        m = re.match(r'\t *[0-9a-f]+ (\S+?)(?:\+0x[0-9a-f]+)? \(', line)
        frames.append(m[1] if m else line.strip())
    elif line.startswith('# stop: '):
        stop = line.split()[2]
    elif re.match(r'\S.* \d+/\d+ ', line):
        if name is not None:
            take(name, frames, stop)
        name, frames, stop = re.match(r'(.*?) +\d+/\d+ ', line)[1], [], 'root'
take(name, frames, stop)
failed = False
for name in [*want, 'churn']:
    print(f'{name}: {n[name]} samples, {good[name]} as deep as it was, {whole[name]} to the root')
    # The first samples may come from the way there.
    if n[name] < 20 or good[name] < 0.99 * n[name] or whole[name] < 0.99 * n[name]:
        print(f'FAIL: {name}', [w for w in why.items() if w[0][0] == name][:3])
        failed = True
sys.exit(failed)
PY
}
# One wrong sample of few is more than one in a hundred; a second recording has five times as many.
for ticks in 6 30; do
	rm -f "$dir/a.owc"
	record $ticks
	judge >"$dir/judged" && break
done
rc=$?
cat "$dir/judged"
exit $rc

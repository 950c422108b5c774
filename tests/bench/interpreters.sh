#!/usr/bin/env bash
# What frames of Python code cost: a program 50 calls deep computes on two CPUs; recordings with and without slices
# take turns. The calls are of one function, or of as many functions: of each function a sample has words once.
# It never fails because something is slow: figures from a busy machine are poor, but for the ratio.
#
#   DEPTH      calls (default 50)
#   TURNS      of both (default 4)
#   FREQUENCY  997 for the handler; the agent's CPU time is measured at 99
#
#   handler  us in the kernel for each captured sample, with kernel.bpf_stats_enabled; what runs that are filtered
#            cost, about 0.2 us each, is taken off
#   bytes    in the ring for each sample, without the stack
#   agent    CPU time of record from its start on, in parts of one CPU
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
offwind=$(realpath "$BUILD/offwind")
cat >"$work/deep.py" <<'PY'
import os, sys, time
def deep(n, end):
    if n:
        return deep(n - 1, end)
    return work(end)
def work(end):
    x = 0
    while time.perf_counter() < end:
        for i in range(1000):
            x += i
    return x
n = int(sys.argv[1]) - 3
if sys.argv[3] == 'many':
    for i in range(n):
        exec(f'def f{i}(n, end):\n    return f{i + 1}(n - 1, end)\n')
    exec(f'def f{n}(n, end):\n    return work(end)\n')
    deep = f0
os.fork()
deep(n, time.perf_counter() + float(sys.argv[2]))
PY
# $1: slice-bytes, $2: frequency, $3: seconds, $4: one function or many
run() {
	/usr/bin/time -f '%U %S' -o "$work/time" "$offwind" record -q -F "$2" --limit slice-bytes="$1" --stats "$work/stats" \
		-o "$work/a.pb.gz" -- /usr/bin/python3 "$work/deep.py" "${DEPTH:-50}" "$3" "$4"
}
echo 1 >/proc/sys/kernel/bpf_stats_enabled
for turn in $(seq "${TURNS:-4}"); do
	for how in "64 one without slices" "32768 one one function" "32768 many many functions"; do
		read -r slices which name <<<"$how"
		run "$slices" "${FREQUENCY:-997}" 3 "$which"
		/usr/bin/python3 - "$work/stats" "$name" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
total, program = d['total'], d['program']
n, filtered = total['captured']['samples'], sum(total['filtered'].values())
print('%-16s handler %6.2f us, %5d bytes, %d samples' % (sys.argv[2],
      (program['ns'] - filtered * 200) / n / 1000, (total['captured']['bytes'] - total['captured']['stack_bytes']) / n, n))
PY
	done
done
echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
# The program is not record's own, whose CPU time would be counted with that of record.
/usr/bin/python3 "$work/deep.py" "${DEPTH:-50}" 60 many &
program=$!
sleep 1
for slices in 64 32768; do
	/usr/bin/time -f '%U %S' -o "$work/time" "$offwind" record -q -F 99 --limit slice-bytes=$slices --stats "$work/stats" \
		-o "$work/a.pb.gz" -p $program -d 20
	/usr/bin/python3 - "$work" "$slices" <<'PY'
import json, sys
n = json.load(open(sys.argv[1] + '/stats'))['total']['captured']['samples']
used = sum(float(word) for word in open(sys.argv[1] + '/time').read().split())
print('%-16s agent %5.2f %% of a CPU, %d samples in 20 s' % ('without slices' if sys.argv[2] == '64' else 'many functions', used / 20 * 100, n))
PY
done

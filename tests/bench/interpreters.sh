#!/usr/bin/env bash
# What frames of Python code cost: a program 50 functions deep computes on two CPUs; recordings with and without slices
# take turns. It never fails because something is slow: figures from a busy machine are poor, but for the ratio.
#
#   DEPTH      functions (default 50)
#   TURNS      of both (default 4)
#   FREQUENCY  997 for the handler; the agent's CPU time is measured at 99
#
#   handler  us in the kernel for each captured sample, with kernel.bpf_stats_enabled; what runs that are filtered
#            cost, about 0.2 us each, is taken off
#   bytes    in the ring for each sample, without the stack
#   agent    CPU time of record, in parts of one CPU
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$work"' EXIT
offwind=$(realpath "$BUILD/offwind")
cat >"$work/deep.py" <<'PY'
import os, sys, time
def deep(n, end):
    if n:
        return deep(n - 1, end)
    x = 0
    while time.perf_counter() < end:
        for i in range(1000):
            x += i
    return x
os.fork()
deep(int(sys.argv[1]) - 2, time.perf_counter() + float(sys.argv[2]))
PY
# $1: slice-bytes, $2: frequency, $3: seconds
run() {
	/usr/bin/time -f '%U %S' -o "$work/time" "$offwind" record -q -F "$2" --limit slice-bytes="$1" --stats "$work/stats" \
		-o "$work/a.pb.gz" -- /usr/bin/python3 "$work/deep.py" "${DEPTH:-50}" "$3"
}
echo 1 >/proc/sys/kernel/bpf_stats_enabled
for turn in $(seq "${TURNS:-4}"); do
	for slices in 64 32768; do
		run $slices "${FREQUENCY:-997}" 3
		/usr/bin/python3 - "$work/stats" $slices <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
total, program = d['total'], d['program']
n, filtered = total['captured']['samples'], sum(total['filtered'].values())
print('%-16s handler %6.2f us, %5d bytes, %d samples' % ('with slices' if sys.argv[2] != '64' else 'without slices',
      (program['ns'] - filtered * 200) / n / 1000, (total['captured']['bytes'] - total['captured']['stack_bytes']) / n, n))
PY
	done
done
echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
for slices in 64 32768; do
	run $slices 99 20
	awk -v what=$slices '{ printf "%-16s agent %5.2f %% of a CPU\n", what == 64 ? "without slices" : "with slices", ($1 + $2) / 20 * 100 }' "$work/time"
done

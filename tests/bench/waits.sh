#!/usr/bin/env bash
# Measures what --off-cpu costs a machine that switches threads as often as it can: two processes
# that wake each other through pipes on one CPU (perf bench sched pipe), alone, beside a recording at
# 99 Hz, and beside one with --off-cpu, in turns. Prints the median time of a switch, what the
# recordings added, how many waits began and were captured in a second of the
# recording, 2 s of which are before the load, and the recorder's CPU time.
#
#   ROUNDS  of the three (default: 9)
#   LOOPS   of the two processes each time (default: 300000)
#   OPTIONS of the third (default: --off-cpu)
set -eu
export LC_ALL=C
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
perf bench sched pipe -l 10 >/dev/null 2>&1 || { echo "perf bench does not work here"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 - "$work" "$(realpath "$BUILD/offwind")" "${ROUNDS:-9}" "${LOOPS:-300000}" ${OPTIONS:---off-cpu} <<'PY'
import json, os, re, signal, statistics, subprocess, sys, time

work, offwind, rounds, loops, *options = sys.argv[1:]
cpu = str(os.cpu_count() - 1)


def switch_us():
    done = subprocess.run(['taskset', '-c', cpu, 'perf', 'bench', 'sched', 'pipe', '-l', loops], check=True, capture_output=True, text=True)
    return float(re.search(r'([\d.]+) usecs/op', done.stdout)[1]) / 2


def beside(*more):
    stats = os.path.join(work, 'stats')
    recorder = subprocess.Popen([offwind, 'record', '--no-cache', '--no-lines', '-a', '-F', '99', '-q', '--stats', stats, '-o', os.path.join(work, 'p.pb.gz'), *more],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    time.sleep(2)  # it learns how often threads wait
    us = switch_us()
    recorder.send_signal(signal.SIGINT)
    took = time.monotonic() - began
    _, _, used = os.wait4(recorder.pid, 0)
    waits = json.load(open(stats))['total']['waits']
    return us, waits['begun'] / took, (waits['ended'] + waits['too_short']) / took, (used.ru_utime + used.ru_stime) / took


alone, sampled, waited = [], [], []
for _ in range(int(rounds)):
    alone.append(switch_us())
    sampled.append(beside())
    waited.append(beside(*options))
median = statistics.median
base = median(alone)
print(f"{'':12} us a switch    added  waits/s  captured/s  recorder's CPU")
print(f"{'alone':12} {base:11.3f}")
for name, runs in (('99 Hz', sampled), (' '.join(options), waited)):
    us, begun, captured, used = (median(run[i] for run in runs) for i in range(4))
    added = median(run[0] - one for run, one in zip(runs, alone))
    print(f'{name:12} {us:11.3f} {added:+8.3f} {begun:8.0f} {captured:11.0f} {used:14.1%}')
PY

#!/usr/bin/env bash
# Measures the cost of profiling the whole system: offwind record -a at 99 Hz with capture, walks,
# names and profile, beside perf record with two dump sizes, while every CPU compiles.
#
#   % CPU    of one CPU, from the third second to the end: user + sys of the recorder
#   start    CPU seconds up to then (for offwind: loading the program, opening tables)
#   all      CPU seconds of the whole command
#   MiB      peak memory, including the ring, of which each page is mapped and counted twice
#   taken    part of the user frames that were taken over from the thread's last walk
#
# It never fails because something is slow: figures from a busy machine are poor.
set -eu
export LC_ALL=C
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
. tests/workload.sh
export WORKLOAD_DIR=$work
unset XDG_CACHE_HOME
workload "${LOAD:-clang}"
loads=()
trap 'kill "${loads[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq "$(nproc)"); do
	(trap 'kill $! 2>/dev/null; exit' TERM; while :; do "${argv[@]}" >/dev/null 2>&1 & wait $!; done) &
	loads+=($!)
done
python3 - "$work" "$(realpath "$BUILD/offwind")" "${SECONDS_EACH:-20}" "${FREQUENCIES:-19 99 997}" <<'PY'
import json, os, re, signal, subprocess, sys, time
work, offwind, seconds, frequencies = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split()
tick = os.sysconf('SC_CLK_TCK')

def processes(pid):
    """Those of one recorder: ours is several."""
    return [str(pid), *open(f'/proc/{pid}/task/{pid}/children').read().split()]

def cpu(pid):
    total = 0
    for p in processes(pid):
        fields = open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / tick
    return total

def memory(pid):
    """MiB in all processes, what they share counted once; and of these the kernel's rings."""
    sizes, rings = 0, 0
    for p in processes(pid):
        text = open(f'/proc/{p}/smaps').read()
        sizes += sum(int(n) for n in re.findall(r'^Pss:\s+(\d+)', text, re.M))
        rings += sum(int(n) for n in re.findall(r'anon_inode:(?:bpf-map|\[perf_event\]).*\n(?:.*\n)*?Pss:\s+(\d+)', text))
    return sizes / 1024, rings / 1024

def run(argv):
    """CPU seconds after three, of the rest, of all; MiB at the end, and those of its rings."""
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=open(f'{work}/err', 'w'))
    time.sleep(3)
    first, began = cpu(p.pid), time.monotonic()
    time.sleep(seconds)
    later, ended = cpu(p.pid), time.monotonic()
    size, ring = memory(p.pid)
    p.send_signal(signal.SIGINT)
    _, _, use = os.wait4(p.pid, 0)
    p.returncode = 0
    return first, 100 * (later - first) / (ended - began), use.ru_utime + use.ru_stime, size, ring

print(f'{"Hz":>5} {"recorder":14} {"samples":>8} {"% CPU":>7} {"start":>6} {"all":>6} {"MiB":>6} {"ring":>6} {"taken":>7}')
for hz in frequencies:
    got = run([offwind, 'record', '-q', '-a', '-F', hz, '-o', f'{work}/a.pb.gz', '--stats', f'{work}/stats'])
    stats = json.load(open(f'{work}/stats'))
    reuse = stats['reuse']
    frames = max(1, reuse['frames_walked'] + reuse['frames_taken'])
    row = '{:>5} {:14} {:>8} {:>7.2f} {:>6.2f} {:>6.2f} {:>6.0f} {:>6.0f} {:>7}'
    ours = got
    print(row.format(hz, 'offwind', stats['total']['captured']['samples'], got[1], got[0], got[2], got[3], got[4],
                     f'{100 * reuse["frames_taken"] / frames:.0f} %'), flush=True)
    for size in ('8192', '65528'):
        got = run(['perf', 'record', '-q', '-a', '--buildid-mmap', '-e', 'cpu-clock', '-F', hz, '--call-graph', f'dwarf,{size}',
                   '-o', f'{work}/perf.data'])
        text = subprocess.run([offwind, 'unwind', '--no-cache', '-o', f'{work}/b.pb.gz', f'{work}/perf.data'],
                              capture_output=True, text=True).stderr
        n = re.search(r'captured (\d+)', text)
        print(row.format(hz, 'perf ' + size, n[1] if n else '-', got[1], got[0], got[2], got[3], got[4], ''), flush=True)
        os.unlink(f'{work}/perf.data')
PY

#!/usr/bin/env bash
# Compares offwind record with perf record --call-graph dwarf with two dump sizes, on the same load
# at four frequencies: the cost and size of a sample, and whether its stack is whole. It never fails
# because something is slow: figures from a busy machine are poor.
#
#   LOAD         of tests/workload.sh, on two CPUs at once, repeatedly (default: clang)
#   FREQUENCIES  "19 99 997 4999"
#   SAMPLES      at least this many each (default: 4000), so that the cost of starting does not
#                dominate; at 19 Hz and with two idle CPUs that takes two minutes for each recorder
#   PARTS        "recorders roles handler"
#   ROUNDS       of the table of roles (default: 5)
#   ONE          the program that is the one process there, for instance a version before there were roles
#
#   samples  samples that arrived, and how many were lost of how many
#   bytes    per sample, in the file or in the ring; and the part of them that is not user
#            stack (for perf: the rest of its file)
#   us       user + sys CPU of the reader for each sample: offwind record with unwinding, symbols
#            and profile; perf record alone, and with perf script
#   whole    part of the samples with a user stack that were walked to their root (perf's samples
#            by offwind unwind, which walks what perf recorded; perf script walks no further)
#   handler  us in the kernel for each time the event fired (ours only: kernel.bpf_stats_enabled;
#            the table at the end has both by one measure)
#   MiB      peak memory of the recorder
#
# Then the same recordings in several processes (docs/security.md, "Roles") and in one (OFFWIND_SANDBOX=off), by turns:
#
#   start    ms of CPU until the load begins, a second after the rings are mapped
#   us       for each sample, from then to the end of all processes
#
# Neither reads source lines or inlined calls (--no-lines, perf script --no-inline), and neither
# finds anything that an earlier run cached (--no-cache; perf takes only file names from ~/.debug).
# The ratios are to the smaller dump size if it leaves 95 % of the stacks whole, else to the larger.
set -eu
export LC_ALL=C
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
parts=${PARTS:-recorders roles handler}
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
unset XDG_CACHE_HOME
if [[ $parts == *recorders* || $parts == *roles* ]]; then
	echo 1 >/proc/sys/kernel/bpf_stats_enabled
	workload "${LOAD:-clang}"
	python3 - "$work" "$(realpath "$BUILD/offwind")" "${FREQUENCIES:-19 99 997 4999}" "${LOAD:-clang}" "${SAMPLES:-4000}" "$parts" "${ROUNDS:-5}" "${argv[@]}" <<'PY'
import json, math, os, re, statistics, subprocess, sys, threading, time
work, offwind, frequencies, name, samples, parts, rounds, load = (
    sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4], int(sys.argv[5]), sys.argv[6], int(sys.argv[7]), sys.argv[8:])

def twice(n):
    """Both CPUs, by a shell that waits for them; each does it n times."""
    return ['sh', '-c', 'n=$1; shift; for cpu in 1 2; do (i=0; while [ $i -lt $n ]; do "$@"; i=$((i + 1)); done) & done; wait',
            'sh', str(n), *load]

def run(argv, begun=lambda pid: None):
    """Status, resources and what it said, of the process itself; its children's do not count."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(w, 2)
        os.dup2(os.open('/dev/null', os.O_WRONLY), 1)
        os.execvp(argv[0], argv)
    os.close(w)
    begun(pid)
    text = b''
    while chunk := os.read(r, 65536):
        text += chunk
    os.close(r)
    _, status, use = os.wait4(pid, 0)
    return status, use, text.decode(errors='replace')

def has_rings(pid):
    """Whether it or a child of it has mapped a ring of perf events; the capture process is a child."""
    try:
        children = open(f'/proc/{pid}/task/{pid}/children').read().split()
        return '[perf_event]' in open(f'/proc/{pid}/maps').read() or any(map(has_rings, children))
    except OSError:
        return False

def cpu_until_now(pid):
    """Seconds of CPU of a process and its children, of their threads that live."""
    try:
        children = open(f'/proc/{pid}/task/{pid}/children').read().split()
        threads = os.listdir(f'/proc/{pid}/task')
        return (sum(int(open(f'/proc/{pid}/task/{t}/schedstat').read().split()[0]) for t in threads) / 1e9
                + sum(map(cpu_until_now, children)))
    except OSError:
        return 0

def cpu_of(argv, command):
    # The command is a child of the recorder, and wait4 would add its CPU time, so it is started separately.
    child = subprocess.Popen(['sh', '-c', 'kill -STOP $$; exec "$@"', 'sh', *command], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    os.waitpid(child.pid, os.WUNTRACED)
    result = {}
    recorder = threading.Thread(target=lambda: result.update(zip(('status', 'use', 'text'), run(argv(child.pid), started.append))))
    started = []
    recorder.start()
    # Both begin a moment after they have mapped their rings, and end with their target.
    until = time.monotonic() + 60
    while time.monotonic() < until and not (started and has_rings(started[0])):
        time.sleep(0.1)
    time.sleep(1.0)
    start = cpu_until_now(started[0])
    os.kill(child.pid, 18)
    child.wait()
    recorder.join()
    return result['status'], result['use'].ru_utime + result['use'].ru_stime, result['use'].ru_maxrss, result['text'], start

def share(counts):
    walked = sum(counts.values()) - counts.get('no_user_state', 0)
    return counts.get('root', 0) / walked if walked else 0

# The number of samples depends on the load's CPU time only, however busy the machine is.
subprocess.run(twice(1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
once = os.times().children_user + os.times().children_system

def load_at(hz):
    """The command that gives so many samples at that frequency."""
    return twice(math.ceil(max(10, samples / int(hz)) / once))

def ours(hz, program=offwind):
    """What a recording by offwind takes: seconds of CPU time, those until the load begins, peak memory, and its statistics."""
    status, cpu, peak, text, start = cpu_of(lambda pid: [program, 'record', '-F', hz, '-o', f'{work}/a.pb.gz', '--stats', f'{work}/stats',
                                                         '--no-cache', '--no-lines', '-p', str(pid)], load_at(hz))
    if status:
        sys.exit(text)
    return cpu, start, peak, json.load(open(f'{work}/stats'))

def roles():
    print('CPU in several processes and in one, by turns')
    print(f'{"Hz":>5} {"start, ms":>13} {"us a sample":>15}  ratio')
    for hz in frequencies:
        starts, us = [[], []], [[], []]
        for turn in range(rounds):
            for one in (False, True) if turn % 2 == 0 else (True, False):
                os.environ['OFFWIND_SANDBOX'] = 'off' if one else ''
                cpu, start, _, stats = ours(hz, os.environ.get('ONE', offwind) if one else offwind)
                starts[one].append(start * 1e3)
                us[one].append((cpu - start) / stats['total']['captured']['samples'] * 1e6)
        pairs = sorted(a / b for a, b in zip(*us))
        begin, each = (list(map(statistics.median, of)) for of in (starts, us))
        print(f'{hz:>5} {begin[0]:>6.1f} {begin[1]:>6.1f} {each[0]:>8.1f} {each[1]:>6.1f}  {statistics.median(pairs):.3f}'
              f'  ({", ".join(f"{pair:.3f}" for pair in pairs)})', flush=True)
    os.environ['OFFWIND_SANDBOX'] = ''

if 'recorders' not in parts:
    roles()
    sys.exit()
print(f'{name}, on two CPUs')
print(f'{"Hz":>5} {"recorder":12} {"samples":>8} {"lost":>7} {"bytes":>7} {"beside":>7} {"us":>7} {"+script":>8} {"whole":>8} {"handler":>8} {"MiB":>5}')
row = '{:>5} {:12} {:>8} {:>7} {:>7.0f} {:>7} {:>7.1f} {:>8} {:>8} {:>8} {:>5.0f}'
holds = []
for hz in frequencies:
    cpu, _, peak, stats = ours(hz)
    t, program = stats['total'], stats['program']
    captured, lost = t['captured'], t['lost']['ring_full']
    n = captured['samples']
    us = cpu / n * 1e6
    beside = (captured['bytes'] - captured['stack_bytes']) / n
    mine = dict(us=us, lost=lost, n=n, beside=beside)
    print(row.format(hz, 'offwind', n, lost, captured['bytes'] / n, f'{beside:.0f}', us, '', f'{100 * share(t["unwound"]):.1f} %',
                     f'{program["ns"] / max(1, program["runs"]) / 1000:.1f}', peak / 1024), flush=True)
    theirs = []
    for size in ('8192', '65528'):
        data = f'{work}/perf.data'
        for attempt in range(3):
            status, cpu, peak, text, _ = cpu_of(lambda pid: ['perf', 'record', '-q', '--buildid-mmap', '-e', 'cpu-clock', '-F', hz, '--call-graph',
                                                          f'dwarf,{size}', '-o', data, '-p', str(pid)], load_at(hz))
            if not status:
                break
        else:
            print(f'{hz:>5} perf record {size}: {text[-200:]!r}')
            continue
        status, _, text = run([offwind, 'unwind', '--no-cache', '--no-lines', '-o', f'{work}/b.pb.gz', data])
        m = re.search(r'captured (\d+) = unwound (\d+) \((.*?)\)', text)
        if not m:
            print(f'{hz:>5} perf {size}: {text[-300:]!r}')
            continue
        counts = {k: int(v) for k, v in re.findall(r'(\w+) (\d+)', m[3])}
        ring = re.search(r'ring_full (\d+)', text)
        n, lost = int(m[2]), int(ring[1]) if ring else 0
        status, use, text = run(['perf', 'script', '--no-inline', '-i', data])
        if status:
            print(f'perf script: status {status}: {text[-200:]!r}')
        script = use.ru_utime + use.ru_stime
        theirs.append(dict(us=(cpu + script) / n * 1e6, lost=lost, n=n, whole=share(counts), size=size))
        print(row.format(hz, 'perf ' + size, n, lost, os.path.getsize(data) / n, f'{os.path.getsize(data) / n - int(size):.0f}', cpu / n * 1e6,
                         f'{(cpu + script) / n * 1e6:.1f}', f'{100 * share(counts):.1f} %', '', peak / 1024), flush=True)
        os.unlink(data)
    if theirs:
        fitting = next((p for p in theirs if p['whole'] >= .95), theirs[-1])
        holds.append((hz, mine, fitting))
    # The size of a sample in a capture file, uncompressed, apart from its stack.
    if hz == '997':
        status, _, _, text, _ = cpu_of(lambda pid: [offwind, 'record', '-F', hz, f'--raw={work}/a.owc', '-o', f'{work}/a.pb.gz', '--stats', f'{work}/stats',
                                                 '--no-cache', '--no-lines', '-p', str(pid)], twice(1))
        c = json.load(open(f'{work}/stats'))['total']['captured']
        raw = int(subprocess.run(f'tail -c +33 {work}/a.owc | zstd -dcq | wc -c', shell=True, capture_output=True, text=True).stdout)
        packed = os.path.getsize(f'{work}/a.owc')
        print(f'{hz:>5} {"offwind .owc":12} {c["samples"]:>8} {"":>7} {packed / c["samples"]:>7.0f} {(raw - c["stack_bytes"]) / c["samples"]:>7.0f}'
              f'   (compressed; beside the stack: decompressed, with mappings and all else)', flush=True)

def say(what, holds):
    print(f'{what:86} {"holds" if holds else "DOES NOT HOLD"}')
print()
for hz, mine, perf in holds:
    say(f'{hz:>5} Hz: bytes beside the stack {mine["beside"]:.0f}, wanted <= 256', mine['beside'] <= 256)
for hz, mine, perf in holds:
    say(f'{hz:>5} Hz: us a sample {mine["us"]:.1f} : {perf["us"]:.1f} (perf, {perf["size"]}) = {mine["us"] / perf["us"]:.3f}, wanted <= 0.2',
        mine['us'] <= perf['us'] / 5)
for hz, mine, perf in holds:
    lost, other = (100 * r['lost'] / (r['n'] + r['lost']) for r in (mine, perf))
    if int(hz) <= 997:
        say(f'{hz:>5} Hz: lost {mine["lost"]}, wanted 0 (perf, {perf["size"]}: {perf["lost"]})', not mine['lost'])
    else:
        say(f'{hz:>5} Hz: lost {lost:.2f} %, wanted <= 0.2, and less than perf, {perf["size"]}: {other:.2f}', lost <= .2 and (lost < other or not lost))
if 'roles' in parts:
    print()
    roles()
PY
fi
[[ $parts == *handler* ]] || exit 0

# What a sample costs the sampled thread, ours and perf's by one measure. A clock interrupt costs more than either (50
# us in this virtual machine), so the event is a page fault, each of which is sampled: with the same BPF programs and
# the same code of perf, and without other costs. The thread touches 150 pages at a time, with pauses in which readers
# empty their rings. The result is the CPU time with a recorder, minus the median of those without, in turns. perf uses
# the smallest dump size that holds the stack, then its largest.
cat >"$work/faults.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#define PAGES  150
#define BURSTS 40
/* A stack of that many KiB, every byte of it used, then the faults; us a page of each burst. */
static char *pages;
static double us[BURSTS];
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
__attribute__((noinline)) static int touch(void)
{
	const struct timespec rest = { .tv_nsec = 40000000 };
	for (int b = 0; b < BURSTS; b++) {
		double begin = now();
		for (int i = 0; i < PAGES; i++)
			pages[i * 4096] = 1;
		us[b] = (now() - begin) / PAGES;
		madvise(pages, PAGES * 4096, MADV_DONTNEED);
		nanosleep(&rest, NULL);
	}
	return 0;
}
__attribute__((noinline)) static int deeper(int kib)
{
	volatile char frame[960];
	memset((char *)frame, kib, sizeof(frame));
	return (kib > 1 ? deeper(kib - 1) : touch()) + frame[kib & 511] * 0;
}
static int by_size(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : 1;
}
int main(int argc, char **argv)
{
	pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(pages, PAGES * 4096, MADV_NOHUGEPAGE);
	deeper(atoi(argv[1]));
	qsort(us, BURSTS, sizeof(us[0]), by_size);
	FILE *out = fopen(argv[2], "w");
	fprintf(out, "%.3f\n", us[BURSTS / 2]);
	return fclose(out) || argc != 3;
}
C
gcc -O1 -o "$work/faults" "$work/faults.c"
echo 0 >/proc/sys/kernel/bpf_stats_enabled
python3 - "$work" "$(realpath "$BUILD/offwind")" "${ROUNDS:-7}" <<'PY'
import re, statistics, subprocess, sys
work, offwind, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
def once(recorder, kib):
    argv = [*recorder, *(['--'] if recorder else []), f'{work}/faults', str(kib), f'{work}/time']
    for attempt in range(3):
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not done.returncode:
            # Samples without room in the ring were not copied and cost less.
            if re.search(r'ring_full|LOST', done.stderr):
                print('samples were lost:', done.stderr[-200:])
            return float(open(f'{work}/time').read())
    return None
print(f'\nus of CPU that one sample costs the sampled thread (page faults; medians of {rounds} rounds of 40)')
print(f'{"KiB of stack":>12} {"offwind":>8} {"perf, fitting":>14} {"perf, 64 KiB":>13} {"of fitting":>11}')
for kib in (3, 15, 60):
    perf = lambda size: ['perf', 'record', '-q', '--buildid-mmap', '-m', '8192', '-e', 'page-faults:u', '-c', '1', '--call-graph',
                         f'dwarf,{size}', '-o', f'{work}/perf.data']
    ways = [[offwind, 'record', '--no-cache', '-e', 'page-faults:u', '-c', '1', '-o', f'{work}/a.pb.gz'],
            perf({3: 4096, 15: 16384, 60: 65528}[kib]), perf(65528)]
    costs = [[] for _ in ways]
    for _ in range(rounds):
        base = once([], kib)
        for cost, recorder in zip(costs, ways):
            us = once(recorder, kib)
            if us:
                cost.append(us - base)
    line = [statistics.median(c) if c else float('nan') for c in costs]
    ratio = statistics.median(a / b for a, b in zip(costs[0], costs[1]))
    print(f'{kib:>12} {line[0]:>8.1f} {line[1]:>14.1f} {line[2]:>13.1f} {ratio:>11.2f}   wanted <= 1: '
          f'{"holds" if ratio <= 1 else "DOES NOT HOLD"}', flush=True)
PY

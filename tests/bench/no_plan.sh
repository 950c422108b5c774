#!/usr/bin/env bash
# What the code for plans (docs/runtimes.md) costs a sample of a process that has none: four recorders sample the same busy
# programs at the same time, each with BPF programs of its own. For two of them OFFWIND_WITHOUT=plans says that no sample has
# slices, so that the verifier removes that code; the ratio of these two shows what the figures are good for. For the third,
# no process has a plan. The fourth has one for another process, a Python that is stopped then. The time is the kernel's
# (kernel.bpf_stats_enabled: run_time_ns / run_cnt), read every second; a ratio is of the same seconds, and each round starts
# the recorders again in another order, because where their memory lies makes some percent. It never fails because something
# is slow.
#
#   ROUNDS        (default 12)
#   SECONDS_EACH  of a round (default 4)
#   FREQUENCY     of the first recorder of a round (default 997)
#   KIB           of stack of the busy programs (default 1: the shorter the handler, the more a plan's code is of it)
set -eu
export LC_ALL=C
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$work"' EXIT
cat >"$work/busy.c" <<'C'
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
__attribute__((noinline)) static int busy(void)
{
	for (volatile unsigned int i = 0;; i++)
		;
}
__attribute__((noinline)) static int deeper(int kib)
{
	volatile char frame[960];
	memset((char *)frame, kib, sizeof(frame));
	return (kib > 1 ? deeper(kib - 1) : busy()) + frame[kib & 511];
}
int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return argc == 2 ? deeper(atoi(argv[1])) : 1;
}
C
gcc -O1 -o "$work/busy" "$work/busy.c"
echo 1 >/proc/sys/kernel/bpf_stats_enabled
PATH=$PATH:/usr/sbin /usr/bin/python3 - "$work" "$(realpath "$BUILD/offwind")" "${ROUNDS:-12}" "${SECONDS_EACH:-4}" "${FREQUENCY:-997}" "${KIB:-1}" <<'PY'
import itertools, json, os, signal, statistics, subprocess, sys, time
work, offwind, rounds, seconds, hz, kib = *sys.argv[1:3], *map(int, sys.argv[3:6]), sys.argv[6]
KINDS = {'without': 'without plans', 'again': 'the same once more', 'nobody': 'nobody has a plan', 'other': 'another process has one'}
started, recorders = [], []


def start(to, argv, **how):
    to.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, **how))
    return to[-1]


def shown(what):
    return json.loads(subprocess.run(['bpftool', '-j', *what], check=True, capture_output=True).stdout)


def programs():
    return {p['id']: p for p in shown(['prog', 'show']) if p.get('name') == 'capture_sample'}


def until(condition):
    end = time.monotonic() + 60
    while not (result := condition()):
        if time.monotonic() > end or any(p.poll() is not None for p in started + recorders):
            sys.exit('nothing to measure: ' + ''.join(open(f'{work}/log').readlines()[-5:]))
        time.sleep(0.05)
    return result


def n_plans(program):
    """How many processes have a plan in the maps of a program."""
    maps = [m for m in programs()[program]['map_ids'] if shown(['map', 'show', 'id', str(m)])['name'] == 'plan_tasks']
    return len(shown(['map', 'dump', 'id', str(maps[0])])) if maps else 0


def program_of(parent):
    """The id of the program that a child of a process has open; None: there is none yet."""
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            if int(open(f'/proc/{entry}/stat').read().rsplit(')', 1)[1].split()[1]) == parent:
                for fd in os.listdir(f'/proc/{entry}/fdinfo'):
                    said = dict(line.split(':', 1) for line in open(f'/proc/{entry}/fdinfo/{fd}') if ':' in line)
                    if int(said.get('prog_id', 0)) in programs():
                        return int(said['prog_id'])
        except OSError:
            pass
    return None


def recorder(kind, busy, idle, python):
    """Start one; return the id of its BPF program. No two have the same frequency: else one would always run just behind another."""
    pids = busy + [python.pid if kind == 'other' else idle.pid]
    parent = start(recorders, [offwind, 'record', '-q', '-F', str(hz - 7 * len(recorders)), '-o', f'{work}/{len(recorders)}.pb.gz', '-p', ','.join(map(str, pids))],
          stderr=open(f'{work}/log', 'a'), env=dict(os.environ, OFFWIND_WITHOUT='plans' if kind in ('without', 'again') else '', OFFWIND_DB='')).pid
    program = until(lambda: program_of(parent))
    if kind == 'other':
        python.send_signal(signal.SIGCONT)
        until(lambda: n_plans(program))
        python.send_signal(signal.SIGSTOP)
    return program


def measure(order, busy, idle, python):
    """The ns of a sample of each kind, second by second; the recorders begin in this order."""
    try:
        ids = {kind: recorder(kind, busy, idle, python) for kind in order}
        if n_plans(ids['nobody']):
            sys.exit('there is a plan')
        seen, rows = programs(), []
        for _ in range(seconds):
            time.sleep(1)
            now = programs()
            n = {kind: now[i]['run_cnt'] - seen[i]['run_cnt'] for kind, i in ids.items()}
            if min(n.values()) >= 50:
                rows.append({kind: (now[i]['run_time_ns'] - seen[i]['run_time_ns']) / n[kind] for kind, i in ids.items()})
            seen = now
        return rows
    finally:
        for p in recorders:
            p.send_signal(signal.SIGINT)
        for p in recorders:
            p.wait()
        recorders.clear()


try:
    busy = [start(started, [f'{work}/busy', kib]).pid for _ in range(os.cpu_count())]
    idle = start(started, ['sleep', 'infinity'])
    python = start(started, ['/usr/bin/python3', '-c', 'while True: pass'])
    orders = itertools.islice(itertools.cycle(itertools.permutations(KINDS)), 0, 7 * rounds, 7)  # each is everywhere
    found = [rows for order in orders if (rows := measure(order, busy, idle, python))]
finally:
    for p in started:
        p.kill()
if len(found) < 2:
    sys.exit('the machine is too busy: no seconds with samples')
ns = {kind: [statistics.median(row[kind] for row in rows) for rows in found] for kind in KINDS}
ratios = {kind: [statistics.median(row[kind] / row['without'] for row in rows) for rows in found] for kind in KINDS}
print(f'{"ns of the handler a sample":27} {"median":>6} {"ratio":>6}  half of {len(found)} rounds')
for kind, name in KINDS.items():
    low, middle, high = statistics.quantiles(ratios[kind], n=4)
    holds = '' if kind in ('without', 'again') else f'wanted <= 1.01: {"holds" if middle <= 1.01 else "DOES NOT HOLD"}'
    print(f'{name:27} {statistics.median(ns[kind]):6.0f} {middle:6.3f}  {low:.3f} to {high:.3f}   {holds}'.rstrip())
PY

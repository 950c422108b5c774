#!/usr/bin/env python3
"""Runs the daemon for a long time beside processes that come and go, and looks whether it grows.

usage: soak.py OFFWIND [MINUTES [HZ]]      (make check-soak)

Every 5 s the memory (PSS, which counts a shared page once), descriptors and CPU time of all its processes are read. It
fails if memory of their own or descriptors grew, by a fitted line and beyond what scatter explains, if the sums of a window
are wrong, or if samples were lost beside programs that behave.
"""
import os, shutil, signal, sqlite3, subprocess, sys, tempfile, time

offwind = os.path.abspath(sys.argv[1])
minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 30
hz = int(sys.argv[3]) if len(sys.argv) > 3 else 999
STEP = 5         # seconds
WARM = 0.25      # of the time: caches fill
LOST = 0.001     # of the samples, at most
STEP_MB = 0.1    # what is no growth: the stack of one more thread, or a heap's end, once
# Each makes a program that nobody saw before, runs it and removes it; and there are short shells and a script.
CHURN = '''
cd "$1"
for ((i = 0;; i++)); do
	echo "int f$i(int n) { int s = 0; for (int k = 0; k < n; k++) s += k % 7; return s; } int main(void) { return f$i(3000000) == 1; }" >p$i.c
	gcc -g -O1 -o p$i p$i.c && ./p$i
	rm -f p$i p$i.c
	for ((k = 0; k < 20; k++)); do sh -c 'ls / >/dev/null'; done
	python3 -c 'import json; json.loads(json.dumps(list(range(1000))))'
done
'''
ticks = os.sysconf('SC_CLK_TCK')


def read(pid, name):
    with open('/proc/%d/%s' % (pid, name)) as f:
        return f.read()


def processes(daemon):
    """Return {process: its name} of the daemon's processes."""
    pids = [daemon] + [int(p) for p in read(daemon, 'task/%d/children' % daemon).split()]
    names = {}
    for pid in pids:
        try:
            names[pid] = read(pid, 'comm').strip()
        except OSError:
            pass
    return names


def look(daemon):
    """Return {role: (MB, MB of its own, descriptors, seconds of CPU time)}. PSS changes when another process unmaps a library."""
    found = {}
    for pid, name in processes(daemon).items():
        try:
            sizes = {key: int(value.split()[0]) / 1024 for key, _, value in (line.partition(':') for line in read(pid, 'smaps_rollup').splitlines()[1:])}
            fields = read(pid, 'stat').rsplit(')', 1)[1].split()
            role = 'supervisor' if pid == daemon else name.replace('offwind-', '')
            found[role] = (sizes['Pss'], sizes['Private_Clean'] + sizes['Private_Dirty'], len(os.listdir('/proc/%d/fd' % pid)),
                           (int(fields[11]) + int(fields[12])) / ticks)
        except (OSError, LookupError):
            pass
    return found


def slope(points):
    """Fit a line. Return its slope for an hour, and how far it may be off (two standard errors)."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    sxx = sum((x - mx) ** 2 for x, _ in points)
    a = sum((x - mx) * (y - my) for x, y in points) / sxx
    rest = [y - my - a * (x - mx) for x, y in points]
    # Neighbours are alike: count the points that are independent of each other.
    var = sum(r * r for r in rest) / max(1, n - 2)
    alike = sum(p * q for p, q in zip(rest, rest[1:])) / max(1e-9, sum(r * r for r in rest))
    alike = min(0.99, max(0, alike))
    return a * 3600, 2 * (var / sxx * (1 + alike) / (1 - alike)) ** 0.5 * 3600


def main():
    work = tempfile.mkdtemp(prefix='offwind-soak.', dir='/var/tmp')
    db = os.path.join(work, 'o.db')
    log = open(os.path.join(work, 'log'), 'wb')
    others = []
    failed = []
    daemon = subprocess.Popen([offwind, 'daemon', '--db', db, '--listen', 'unix:' + os.path.join(work, 'socket'), '-F', str(hz)],
                              stderr=log, stdin=subprocess.DEVNULL)
    try:
        for i in range(2):
            os.mkdir(os.path.join(work, str(i)))
            others.append(subprocess.Popen(['nice', 'bash', '-c', CHURN, 'churn', os.path.join(work, str(i))], start_new_session=True,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL))
        for _ in range(os.cpu_count()):
            others.append(subprocess.Popen(['chrt', '-i', '0', 'sh', '-c', 'while :; do :; done'], start_new_session=True))
        begun, seen = time.monotonic(), []
        while time.monotonic() - begun < minutes * 60 and daemon.poll() is None:
            time.sleep(STEP)
            seen.append((time.monotonic() - begun, look(daemon.pid)))
        if daemon.poll() is not None:
            failed.append('the daemon ended: %d' % daemon.returncode)
    finally:
        for o in others:
            os.killpg(o.pid, signal.SIGKILL)
            o.wait()
        daemon.terminate()
        daemon.wait()
    report(seen, failed)
    account(db.replace('.db', '-history.db'), failed)
    sys.stdout.write(open(os.path.join(work, 'log')).read())
    shutil.rmtree(work)
    for f in failed:
        print('FAIL: ' + f)
    return bool(failed)


def report(seen, failed):
    warm = [(t, roles) for t, roles in seen if t > WARM * seen[-1][0]]
    roles = sorted(set().union(*(r for _, r in warm)))
    first, last = warm[0], warm[-1]
    print('%-11s %8s %8s %18s %6s %18s %8s' % ('process', 'MB', 'most', 'MB an hour', 'files', 'files an hour', 'CPU %'))
    for role in roles + ['all']:
        mine = [(t, [sum(x) for x in zip(*r.values())] if role == 'all' else r.get(role)) for t, r in warm]
        mine = [(t, v) for t, v in mine if v]
        if len(mine) < 10:
            continue
        memory, files = [(t, v[0]) for t, v in mine], [(t, v[2]) for t, v in mine]
        (m, m_off), (f, f_off) = slope([(t, v[1]) for t, v in mine]), slope(files)
        mean, mean_files = sum(y for _, y in memory) / len(memory), sum(y for _, y in files) / len(files)
        cpu = 100 * (mine[-1][1][3] - mine[0][1][3]) / (mine[-1][0] - mine[0][0])
        print('%-11s %8.1f %8.1f %+9.1f ± %6.1f %6.0f %+9.1f ± %6.1f %8.2f' % (role, mean, max(y for _, y in memory), m, m_off, mean_files, f, f_off, cpu))
        hours = (last[0] - first[0]) / 3600
        if (m - m_off) * hours > max(STEP_MB, 0.02 * mean):
            failed.append('%s grows by %.1f MB an hour' % (role, m))
        if (f - f_off) * hours > max(2, 0.02 * mean_files):
            failed.append('%s opens %.1f files more an hour' % (role, f))


def account(history, failed):
    db = sqlite3.connect(history)
    wrong = db.execute('''SELECT window, sum(n * (what = 'fired')) AS fired, sum(n * (what IN ('unwound', 'waiting', 'filtered', 'lost'))) AS settled,
        sum(n * (what = 'unwound')) AS unwound, sum(n * (what = 'stop')) AS stops, n_samples FROM counters JOIN windows ON windows.id = window
        GROUP BY window HAVING fired <> settled OR unwound <> stops OR unwound <> n_samples''').fetchall()
    sums = dict(db.execute('SELECT what, sum(n) FROM counters GROUP BY what'))
    windows, = db.execute('SELECT count(*) FROM windows').fetchone()
    lost, unwound = sums.get('lost', 0), sums.get('unwound', 0)
    print('%d windows, fired %d = filtered %d + unwound %d + lost %d + waiting %d; %.1f MB of history' % (
        windows, sums.get('fired', 0), sums.get('filtered', 0), unwound, lost, sums.get('waiting', 0), os.path.getsize(history) / 1e6))
    if wrong:
        failed.append('the sums of %d windows are wrong: %s' % (len(wrong), wrong[0]))
    if sums.get('waiting', 0):
        failed.append('%d samples wait for ever' % sums['waiting'])
    if lost > LOST * (lost + unwound):
        failed.append('lost %d of %d samples: %s' % (lost, lost + unwound, dict(db.execute("SELECT reason, sum(n) FROM counters WHERE what = 'lost' GROUP BY reason"))))


sys.exit(main())

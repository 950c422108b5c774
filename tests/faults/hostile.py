"""Records an honest program beside hostile ones, and checks that nothing of the honest one is lost or wrong.

usage: hostile.py [--full] [--peers] OFFWIND PROGRAMS DIRECTORY [CASE…]

The cases are in hostile/cases.py; PROGRAMS is where hostile/*.c are compiled.  The reduced run puts the cases of a group
into one recording.  --full gives each case its own, and also fails for stalls, CPU time and memory beyond the limits, so
it wants a machine of its own.  --peers shows instead what perf, gdb and eu-stack do with the same programs.
"""
import json, os, re, resource, shutil, signal, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'hostile'))
from cases import CASES, CPU, CPU_ENDS, Place, share
from recording import capture_of, is_recording, peak

args = [a for a in sys.argv[1:] if not a.startswith('--')]
FULL, PEERS = '--full' in sys.argv, '--peers' in sys.argv
offwind, programs, work = (os.path.abspath(a) for a in args[:3])
FREQUENCY = 199
SECONDS = 3
# Seconds that a recording may take to end: undisturbed it takes less than one, and on a busy machine many.
ENDS = 60 if FULL else 150
SAMPLES = 100    # of the honest program, at least
LOST = 1         # percent, at most
RING_MS = 1000   # that a sample may be in the kernel's ring; only twice as much fails, because the machine may be busy
CHAIN = ['main', 'known_a', 'known_b', 'bsearch', 'known_compare', 'known_leaf']
UID = 200000 + os.getpid()  # nobody's
honest = os.path.join(programs, 'honest')


def stacks(profile, *options):
    """Return how often each stack is in the profile."""
    text = subprocess.run([offwind, 'report', '-f', 'folded', '--sample-type', 'samples', *options, profile], capture_output=True,
                          text=True, errors='replace').stdout
    return [(line.rsplit(' ', 1)[0].split(';'), int(line.rsplit(' ', 1)[1])) for line in text.splitlines()]


def computes(pid):
    """Return whether the honest program has come to its own code."""
    name, rest = open('/proc/%d/stat' % pid).read().rsplit(')', 1)
    return name.endswith('(honest') and int(rest.split()[11]) > 5


def judge_honest(found):
    """Return how many samples are right, how many of these are whole, and the wrong stacks."""
    right, whole, wrong = 0, 0, []
    for frames, n in found:
        user = [f for f in frames if not f.endswith('_[k]')]
        below = user[user.index('main'):] if 'main' in user else None
        if below and below == CHAIN[:len(below)]:
            right += n
            whole += n if below == CHAIN else 0
        else:
            wrong.append((n, ';'.join(frames)))
    return right, whole, wrong


class Result:
    def __init__(self, name):
        self.is_full = False  # its only fault is that the ring was full
        self.is_few = False  # its only fault is a share of the honest program's samples, of which there are few
        self.name, self.faults, self.honest, self.lost, self.ring, self.cpu, self.memory, self.after, self.code = name, [], 0, 0.0, 0, 0.0, 0, 0.0, None

    def fault(self, what):
        self.faults.append(what)

    def outcome(self):
        return 'ok' if not self.faults else self.faults[0][:100]


def record(name, cases, seconds, *more):
    """Make one recording beside these cases, with more options. Return the Result."""
    result, directory = Result(name), os.path.join(work, name.replace(' ', '-'))
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    os.chmod(directory, 0o755)
    profile, stats, log = (os.path.join(directory, f) for f in ('p.pb.gz', 'stats.json', 'log'))
    place = Place(os.path.join(directory, 'place'), programs, UID, honest)
    one = cases[0]
    beside = child = None
    try:
        for case in cases:
            case.start(place)
        place.run_all()
        # Only now: what is started needs the CPUs, too. It comes before the hostile programs, within its session and as one.
        beside = subprocess.Popen(['nice', '-n', '-5', honest], start_new_session=True)
        share(beside, -5)
        while beside.poll() is None and not computes(beside.pid):
            time.sleep(0.01)
        command = [offwind, 'record', '-a', '-F', str(FREQUENCY), '-d', str(seconds), '-o', profile, '--stats', stats, *one.options, *more]
        with open(log, 'wb') as errors:
            begun = time.monotonic()
            child = subprocess.Popen(['nice', '-n', '10', *one.before, *command], stderr=errors, stdin=subprocess.DEVNULL, 
                                     env={**os.environ, **{k: v.format(programs=programs) for k, v in one.env.items()}})
        while one.during and child.poll() is None:
            if is_recording(child):
                one.during(place, child, capture_of(child))
                break
            time.sleep(0.01)
        until = begun + seconds + ENDS
        while time.monotonic() < until:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                child.returncode = result.code = os.waitstatus_to_exitcode(status)
                break
            result.memory = max(result.memory, peak(child) >> 10)
            time.sleep(0.05)
        else:
            result.fault('goes on %d s after its time' % ENDS)
            return result
        result.after = time.monotonic() - begun - seconds
        result.cpu = usage.ru_utime + usage.ru_stime
    finally:
        if child and child.returncode is None:
            for pid in subprocess.run(['pgrep', '-P', str(child.pid)], capture_output=True, text=True).stdout.split():
                os.kill(int(pid), 9)
            child.kill()
            child.wait()
        if beside:
            beside.kill()
            beside.wait()
        place.stop()
    judge(result, cases, seconds, beside.pid, profile, stats, open(log, errors='replace').read())
    return result


def judge(result, cases, seconds, pid, profile, stats, said):
    one = cases[0]
    if result.cpu > CPU * seconds + CPU_ENDS and FULL:
        result.fault('%.1f s of CPU' % result.cpu)
    limit = max(c.memory for c in cases)
    if result.memory > limit:
        result.fault('%d MB of memory, limit %d' % (result.memory, limit))
    if result.after > max(c.late for c in cases) and FULL:
        result.fault('ended %.1f s late' % result.after)
    if result.code != one.code:
        result.fault('exit code %s: %s' % (result.code, said[-300:]))
    if one.says and not re.search(one.says, said):
        result.fault('does not say %r: %s' % (one.says, said[-300:]))
    m = re.search(r'worker .*(was ended by|has not gone on).*', said)
    if m:
        result.fault(m[0])
    if 'SECRET' in said or not os.path.exists(stats):
        result.fault('says: ' + said[-300:])
        return
    told = json.load(open(stats))
    total, result.ring = told['total'], told['in_ring_ns'] / 1e6
    if one.during:
        result.fault('the ring was read all the time') if result.ring < 1000 else None
    unwound, lost = sum(total['unwound'].values()), sum(total['lost'].values())
    if total['fired'] != sum(total['filtered'].values()) + lost + unwound + total['waiting'] + total.get('written', 0):
        result.fault('the sum of all events is wrong: %s' % total)
    result.lost = 100 * lost / max(1, unwound + lost)
    loses = any(c.loses for c in cases)
    if result.lost > LOST and not loses:
        result.fault('lost %d of %d samples: %s' % (lost, unwound + lost, {k: n for k, n in total['lost'].items() if n}))
    others = lost - total['lost'].get('ring_full', 0)
    result.is_full = len(result.faults) == 1 and result.lost > LOST and not loses and 100 * others <= LOST * (unwound + lost)
    if result.ring > 2 * RING_MS and FULL and not loses:
        result.fault('a sample was in the ring for %d ms' % result.ring)
    everything = stacks(profile)
    if sum(n for _, n in everything) != unwound:
        result.fault('the profile has %d of %d samples' % (sum(n for _, n in everything), unwound))
    if any('SECRET' in f for frames, _ in everything for f in frames):
        result.fault('a secret is in the profile')
    right, whole, wrong = judge_honest(stacks(profile, '--pid', str(pid)))
    result.honest = right
    if 'because reading them takes too long' in said and not FULL:
        # On a busy machine the time for names may be over before it is the honest program's turn; its frames are right.
        wrong = [(n, stack) for n, stack in wrong if not re.search(r';honest\+0x\w+(;|$)', stack)]
    if wrong:
        result.fault('%d wrong stacks of the honest program, as %s' % (sum(n for n, _ in wrong), wrong[0][1]))
    if whole < 0.95 * right:
        result.is_few = not result.faults and right < SAMPLES
        result.fault('%d of %d stacks of the honest program are whole' % (whole, right))


def attempt(name, cases):
    """Record; for longer if a busy machine did not run the honest program, or had no time for its names."""
    more = ()
    for seconds in (SECONDS, SECONDS, 4 * SECONDS, 16 * SECONDS):
        try:
            result = record(name, cases, seconds, *more)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as e:
            result = Result(name)
            result.fault('not tried: %s' % e)
        # Each session has the same share of a busy machine, the recorder's as each hostile program's: once more, with a
        # ring in which there is room until the recorder gets a CPU.
        if result.is_full and not more and not FULL:
            more = ('--ring', '64M')
            continue
        if result.is_few:
            continue
        if result.faults or result.honest >= SAMPLES:
            return result
    result.fault('%d samples of the honest program' % result.honest)
    return result


# ---- other tools --------------------------------------------------------------------------------------
PEER_SECONDS, PEER_MEMORY = 15, 8 << 30


def peer(*command):
    """Run a tool. Return its time and its peak memory, or how it ended."""
    begun = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (PEER_MEMORY, PEER_MEMORY)))
    late = False
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - begun > PEER_SECONDS and not late:
            late = True
            os.killpg(child.pid, signal.SIGKILL)
        if time.monotonic() - begun > PEER_SECONDS + 30:
            return 'cannot be ended'
        time.sleep(0.02)
    child.returncode = code = os.waitstatus_to_exitcode(status)
    if late:
        return 'no end, %d MB' % (usage.ru_maxrss >> 10)
    how = signal.Signals(-code).name if code < 0 else 'exit %d' % code if code else ''
    return ' '.join(filter(None, ['%.1f s, %d MB' % (time.monotonic() - begun, usage.ru_maxrss >> 10), how]))


def peers(cases):
    """Show what perf, gdb and eu-stack do with the program of each case."""
    for version in (['perf', '--version'], ['gdb', '--version'], ['eu-stack', '--version']):
        print(subprocess.run(version, capture_output=True, text=True).stdout.splitlines()[0])
    print('%-22s %-24s %-24s %-24s %-24s' % ('case', 'perf record, 1 s', 'perf script', 'gdb -p', 'eu-stack -p'))
    for case in cases:
        place = Place(os.path.join(work, 'place'), programs, UID, honest)
        data = os.path.join(work, 'perf.data')
        try:
            case.start(place)
            place.run_all()
            pid = str(place.started[0].pid if place.started else place.servers[0].pid)
            print('%-22s %-24s %-24s %-24s %-24s' % (
                case.name, peer('perf', 'record', '-q', '-a', '-F', str(FREQUENCY), '-e', 'cpu-clock', '--call-graph', 'dwarf', '-o', data, '--', 'sleep', '1'),
                peer('perf', 'script', '-i', data), peer('gdb', '-nx', '-batch', '-p', pid, '-ex', 'bt 64'), peer('eu-stack', '-n', '64', '-p', pid)),
                flush=True)
        finally:
            place.stop()
    return 0


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what runs is ended
    os.nice(-10)  # what this does, comes before what the hostile programs do; they and the recording are put back
    chosen = [c for c in CASES if not args[3:] or c.name in args[3:]]
    if PEERS:
        return peers([c for c in chosen if not c.alone])
    groups = {}
    for case in chosen:
        if FULL or args[3:]:
            groups[case.name] = [case]
        elif case.group:
            groups.setdefault(case.group, []).append(case)
    print('%-22s %7s %6s %8s %6s %5s %6s  %s' % ('case', 'honest', 'lost %', 'ring ms', 'CPU s', 'MB', 'end s', 'outcome'))
    failed = 0
    for name, cases in groups.items():
        result = attempt(name, cases)
        failed += bool(result.faults)
        print('%-22s %7d %6.2f %8d %6.1f %5d %6.1f  %s' % (name, result.honest, result.lost, result.ring, result.cpu, result.memory, result.after,
                                                        result.outcome()), flush=True)
        for fault in result.faults:
            print('FAIL: %s: %s' % (name, fault), flush=True)
    print('%d cases in %d recordings, %d failed' % (sum(len(c) for c in groups.values()), len(groups), failed))
    return failed != 0


sys.exit(main())

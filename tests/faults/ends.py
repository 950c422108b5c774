"""Tests that a recording ends when it should, with its profile, whatever runs on the machine.

usage: ends.py OFFWIND PROGRAMS DIRECTORY

There are files that take hours to read, that block whoever opens them, or in whose call frame information one
look-up takes seconds.  PROGRAMS is where those of tests/faults/hostile/ are.  Each end may take LIMIT seconds, and as
long as it waited for a CPU: on an idle machine it takes less than one; before there were limits, it took from 30 seconds to hours.
"""
import os, signal, struct, subprocess, sys, time

offwind, programs_dir, work = sys.argv[1:4]
LIMIT = 20
# KiB. Unpacking one bomb takes half of it; before there were limits, all of them took twice as much.
MEMORY = 600 << 10
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what)


# ---- programs that spin ------------------------------------------------------------------------
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'hostile'))
import elf, objects
from recording import is_recording, peak, roles


def build(name, *sections):
    elf.build(os.path.join(work, name), sections)


EH = objects.EH
# A CIE that takes milliseconds to execute, with 20,000 FDEs.
build('cie', elf.section('.eh_frame', elf.fdes(elf.cie(elf.FRAME + elf.REGISTERS + objects.PAIRS * 499000), 20000, lambda i: elf.CODE + 64 * i), EH))
# A debug file of 8 TB, whose checksum would have to be computed.
build('link', elf.section('.gnu_debuglink', b'big.debug\0\0\0' + struct.pack('<I', 1)))
with open(work + '/big.debug', 'wb') as f:
    f.truncate(8 << 40)
# Half a gigabyte without contents.
build('hollow', elf.section('.eh_frame', elf.Hole(255 << 20), EH), elf.section('.debug_frame', elf.Hole(255 << 20)))
# A quarter of a megabyte that unpacks to a quarter of a gigabyte, twelve times.
BOMBS = ['bomb%d' % i for i in range(12)]
bomb = elf.chdr(elf.ZLIB, 255 << 20) + objects.zeros(255 << 20)
for name in BOMBS:
    build(name, elf.section('.eh_frame', bomb, EH, flags=elf.COMPRESSED), elf.section('.debug_frame', bomb, flags=elf.COMPRESSED))
build('honest', elf.section('.eh_frame', elf.cie() + bytes(4), EH))
with open(work + '/leased', 'wb') as f:
    f.write(bytes.fromhex('48ffc0ebfb').ljust(8192, b'\0'))
for name in ('cie', 'link', 'big.debug', 'hollow', 'leased', *BOMBS):
    os.chown(os.path.join(work, name), 4242, 4242)
dumps = os.path.join(work, 'dumps')
os.mkdir(dumps)
os.chown(dumps, 4242, 4242)


# ---- recordings beside them -------------------------------------------------------------------
def run(*command, wait=False):
    child = subprocess.Popen(['setpriv', '--reuid', '4242', '--regid', '4242', '--clear-groups', *command],
                             stdout=subprocess.PIPE if wait else None)
    if wait and child.stdout.readline() != b'ready\n':
        check(False, '%s: did not begin' % (command,))
    return child


def record(name, *options, signals=(), at_end=None, code=(0,), profile=True):
    """Record; if a busy machine did not run the honest program in the meantime, record for longer. Return the messages."""
    for seconds in (1, 4, 16):
        said, found = attempt(name, seconds, options, signals, at_end, code)
        if found or not profile or failures:
            break
    check(found or not profile, '%s: no profile with the honest program' % name)
    return said


def waited(child):
    """Return for how many seconds the threads of the recording waited for a CPU."""
    total = 0
    for pid in roles(child):
        try:
            for tid in os.listdir('/proc/%d/task' % pid):
                total += int(open('/proc/%d/task/%s/schedstat' % (pid, tid)).read().split()[1])
        except (OSError, IndexError):  # it has ended
            pass
    return total / 1e9


def attempt(name, seconds, options, signals, at_end, code):
    path = os.path.join(work, name + '.pb.gz')
    errors = open(os.path.join(work, name + '.log'), 'w+')
    until = [] if signals else ['-d', str(seconds)]
    child = subprocess.Popen([offwind, 'record', '-q', '-a', '-F', '199', '-o', path, *until, *options], stderr=errors)
    while (signals or at_end) and child.poll() is None and not is_recording(child):
        time.sleep(0.02)
    if signals:
        time.sleep(seconds)  # something is to be there to be read
    for number in signals:
        child.send_signal(number)
        time.sleep(0.5 if len(signals) > 1 else 0)
    end, memory, delay = time.monotonic() + LIMIT + (0 if signals else seconds), 0, 0
    while child.poll() is None and time.monotonic() < end + delay:
        delay = max(delay, waited(child))
        memory = max(memory, peak(child))
        if at_end and not is_recording(child) and memory > 0:
            child.send_signal(at_end)  # while it makes its profile; it may have ended by now
            at_end = None
        time.sleep(0.01)
    check(child.poll() is not None, '%s: goes on after %d s' % (name, LIMIT))
    child.kill()
    check(child.wait() in code, '%s: exit code %d' % (name, child.wait()))
    check(memory < MEMORY, '%s: took %d MiB of memory' % (name, memory >> 10))
    if os.environ.get('SHOW'):
        print(name, '%d MiB' % (memory >> 10), '%.2f s' % (time.monotonic() - end + LIMIT))
    report = subprocess.run([offwind, 'report', '-f', 'folded', '--sample-type', 'samples', path], capture_output=True, text=True)
    errors.seek(0)
    return errors.read(), report.returncode == 0 and 'honest' in report.stdout


def serve(name, flags=(), uid=()):
    """Mount a file system by silent_mount.py, in a mount namespace of its own; None: there is no FUSE here."""
    if not os.path.exists('/dev/fuse'):
        print('no /dev/fuse: a file system that does not answer is not tried')
        return None
    place = os.path.join(work, name)
    os.mkdir(place)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'silent_mount.py')
    server = subprocess.Popen(['unshare', '-m', '--propagation', 'private', sys.executable, script, *flags, place, *uid],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    check(server.stdout.readline() == b'ready\n', 'the file system was not mounted')
    return server


def check_who_asks():
    """The capture process asks no file system that a program serves, not even root's: nobody replaces it if that hangs."""
    for again in range(4):  # on a busy machine its program may have had no sample
        served = serve('served%d' % again, ['--answer'], ['0'])
        if not served:
            return
        record('served%d' % again)
        served.stdin.close()
        lines = (line.rsplit(None, 1) for line in served.stdout.read().decode().splitlines())
        askers = {name for program, name in lines if program == os.path.realpath(offwind)}
        served.wait()
        if askers or failures:
            break
    check('offwind-capture' not in askers and 'offwind-opener' in askers, 'who asked a file system of root: %s' % askers)


programs = [run(os.path.join(work, name)) for name in ('cie', 'link', 'hollow', 'honest', *BOMBS)]
programs.append(run(programs_dir + '/files', 'lease', os.path.join(work, 'leased'), wait=True))
programs.append(run(programs_dir + '/generated', 'moves', dumps, wait=True))
programs.append(run(programs_dir + '/mappings', 'many', os.path.join(work, 'honest'), '30', wait=True))
server = serve('silent')
try:
    check_who_asks()
    log = record('duration')
    check(not server or '(another user\'s program serves it (FUSE) and may never answer)' in log or 'silent' not in log,
          'the silent file system: ' + log)
    check('/leased: cannot be read (a program has a lease on it)' in log or 'leased' not in log, 'lease: ' + log)
    check('/hollow: cannot be read (nearly all of it is a hole)' in log or 'hollow' not in log, 'the hollow file is not told: ' + log)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        record(number.name, signals=[number])
    record('late', at_end=signal.SIGTERM)
    # As with timeout(1): two signals at once count as one; a second one later ends any work at once.
    record('twice', signals=[signal.SIGTERM, signal.SIGTERM], code=(0, 1), profile=False)
    check(all(p.poll() is None for p in programs), 'a program has ended: %s' % [p.poll() for p in programs])
finally:
    if server:
        server.stdin.close()
        server.wait()
    for p in programs:
        p.kill()
        p.wait()
sys.exit(failures != 0)

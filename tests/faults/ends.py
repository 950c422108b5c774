"""Tests that a recording ends when it should, with its profile, whatever runs on the machine.

usage: ends.py OFFWIND PROGRAM DIRECTORY

There are files that take hours to read, that block whoever opens them, or in whose call frame information one
look-up takes seconds.  PROGRAM is ends.c.  Each end may take LIMIT seconds: on an idle machine it takes less than
one; before there were limits, it took from 30 seconds to hours.
"""
import os, signal, struct, subprocess, sys, time, zlib

offwind, program, work = sys.argv[1:4]
LIMIT = 20
# KiB. Unpacking one bomb takes half of it; before there were limits, all of them took twice as much.
MEMORY = 600 << 10
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what)


# ---- programs that spin, written byte by byte ------------------------------------------------
BASE, CODE = 0x400000, 0x401000
# xor ebp,ebp; call f; f: inc rax; jmp f
SPIN = bytes.fromhex('31ed' 'e800000000' '48ffc0' 'ebfb').ljust(4096, b'\x90')


def uleb(n):
    out = b''
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def build(path, sections):
    """sections: (name, type, address, bytes or a hole's size[, flags])"""
    names, off, heads, blobs = b'\0', 0x2000, [bytes(64)], []
    for name, kind, addr, data, *flags in [('.text', 1, CODE, None)] + sections + [('.shstrtab', 3, 0, b'')]:
        at, size = off, 4096 if data is None else data if isinstance(data, int) else len(data)
        names += name.encode() + b'\0'
        if data is None:
            at = 0x1000
        elif name == '.shstrtab':
            data, size = names, len(names)
        heads.append(struct.pack('<IIQQQQIIQQ', names.index(name.encode()), kind, (2 if addr else 0) + sum(flags), addr, at, size, 0, 0, 8, 0))
        if isinstance(data, bytes):
            blobs.append((at, data))
        if data is not None:
            off = (at + size + 15) & ~15
    with open(path, 'wb') as f:
        f.write(struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\2\1\1', 2, 62, 1, CODE, 64, off, 0, 64, 56, 1, 64, len(heads), len(heads) - 1))
        f.write(struct.pack('<IIQQQQQQ', 1, 5, 0, BASE, BASE, 0x2000, 0x2000, 0x1000))
        for at, data in [(0x1000, SPIN)] + blobs:
            f.seek(at)
            f.write(data)
        f.seek(off)
        f.write(b''.join(heads))
    os.chmod(path, 0o755)


def cie(program):
    body = struct.pack('<IB', 0, 1) + b'zR\0' + uleb(1) + b'\x78\x10' + uleb(1) + b'\0' + program
    return struct.pack('<I', len(body)) + body


# A CIE that takes milliseconds to execute, with 20,000 FDEs.
registers = b''.join(b'\x05' + uleb(r) + b'\1' for r in range(33) if r != 16)
frames = bytearray(cie(b'\x0c\7\x08\x90\1' + registers + b'\x0a\x0b' * 499000))
for i in range(20000):
    frames += struct.pack('<IIQQB3x', 24, len(frames) + 4, CODE + 64 * i, 64, 0)
build(work + '/cie', [('.eh_frame', 1, 0x500000, bytes(frames) + bytes(4))])
# A debug file of 8 TB, whose checksum would have to be computed.
build(work + '/link', [('.gnu_debuglink', 1, 0, b'big.debug\0\0\0' + struct.pack('<I', 1))])
with open(work + '/big.debug', 'wb') as f:
    f.truncate(8 << 40)
# Half a gigabyte without contents.
build(work + '/hollow', [('.eh_frame', 1, 0x500000, 255 << 20), ('.debug_frame', 1, 0, 255 << 20)])
# A quarter of a megabyte that unpacks to a quarter of a gigabyte (Elf64_Chdr, ELFCOMPRESS_ZLIB), twelve times.
BOMBS = ['bomb%d' % i for i in range(12)]
bomb = struct.pack('<IIQQ', 1, 0, 255 << 20, 1) + zlib.compress(bytes(255 << 20), 9)
for name in BOMBS:
    build(os.path.join(work, name), [('.eh_frame', 1, 0x500000, bomb, 0x800), ('.debug_frame', 1, 0, bomb, 0x800)])
build(work + '/honest', [('.eh_frame', 1, 0x500000, cie(b'\x0c\7\x08\x90\1').ljust(32, b'\0') + bytes(4))])
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


def roles(child):
    """Return the processes of a recording."""
    try:
        return [child.pid] + [int(p) for p in open('/proc/%d/task/%d/children' % (child.pid, child.pid)).read().split()]
    except OSError:
        return []


def is_recording(child):
    """Return whether its events are open."""
    for pid in roles(child):
        try:
            if any('perf_event' in os.readlink('/proc/%d/fd/%s' % (pid, fd)) for fd in os.listdir('/proc/%d/fd' % pid)):
                return True
        except OSError:
            pass
    return False


def peak(child):
    """Return the peak memory so far of its processes together, in KiB; 0 after they have ended."""
    total = 0
    for pid in roles(child):
        try:
            total += next(int(line.split()[1]) for line in open('/proc/%d/status' % pid) if line.startswith('VmHWM'))
        except (OSError, StopIteration):
            pass
    return total


def record(name, *options, signals=(), at_end=None, code=(0,), profile=True):
    """Record; if a busy machine did not run the honest program in the meantime, record for longer. Return the messages."""
    for seconds in (1, 4, 16):
        said, found = attempt(name, seconds, options, signals, at_end, code)
        if found or not profile or failures:
            break
    check(found or not profile, '%s: no profile with the honest program' % name)
    return said


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
    end, memory = time.monotonic() + LIMIT + (0 if signals else seconds), 0
    while child.poll() is None and time.monotonic() < end:
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


def serve():
    """Mount a file system that does not answer, in a mount namespace of its own; None: there is no FUSE here."""
    if not os.path.exists('/dev/fuse'):
        print('no /dev/fuse: a file system that does not answer is not tried')
        return None
    os.mkdir(work + '/silent')
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'silent_mount.py')
    server = subprocess.Popen(['unshare', '-m', '--propagation', 'private', sys.executable, script, work + '/silent'],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    check(server.stdout.readline() == b'ready\n', 'the file system was not mounted')
    return server


programs = [run(os.path.join(work, name)) for name in ('cie', 'link', 'hollow', 'honest', *BOMBS)]
programs.append(run(program, 'lease', os.path.join(work, 'leased'), wait=True))
programs.append(run(program, 'moves', dumps, wait=True))
programs.append(run(program, 'maps', os.path.join(work, 'honest'), wait=True))
server = serve()
try:
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

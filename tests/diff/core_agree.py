"""Compares threads of a stopped process and its core, pc by pc, with eu-stack and gdb.

usage: core_agree.py NAME PID DIRECTORY

DIRECTORY has eu.live, gdb.live, ours.live, eu.core, gdb.core, ours.core.  The process must still exist,
because its code is read.  A difference counts as a fault of the other program only where that can be seen
(tests/diff/README.md).
"""
import collections
import os
import re
import sys

import core_go

name, pid, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
RESTORE_RT = bytes.fromhex('48c7c00f0000000f05')  # mov $15, %rax; syscall
FUNCTION_MAX = 65536


class Code:
    def __init__(self, pid):
        self.mem = os.open('/proc/%d/mem' % pid, os.O_RDONLY)
        self.maps = []
        for line in open('/proc/%d/maps' % pid):
            fields = line.split(None, 5)
            if 'x' in fields[1]:
                start, end = (int(x, 16) for x in fields[0].split('-'))
                self.maps.append((start, end, fields[5].strip() if len(fields) > 5 else '//anon'))

    def where(self, addr):
        return next((path for start, end, path in self.maps if start <= addr < end), None)

    def read(self, addr, size):
        try:
            return os.pread(self.mem, size, addr)
        except OSError:
            return b''

    def returned_to(self, addr):
        """Return whether a call ends at addr."""
        if not self.where(addr - 1):
            return False
        b = self.read(addr - 8, 8)
        if len(b) < 8:
            return False
        if b[3] == 0xe8:
            return True
        for length in range(2, 8):
            if b[8 - length] != 0xff:
                continue
            modrm = b[9 - length]
            mod, op, rm = modrm >> 6, modrm >> 3 & 7, modrm & 7
            if op != 2:
                continue
            want = 2 + (mod != 3 and rm == 4) + {0: 0, 1: 1, 2: 4, 3: 0}[mod]
            if mod == 0 and (rm == 5 or rm == 4 and b[10 - length] & 7 == 5):
                want += 4
            if want == length:
                return True
        return False

    def is_goexit(self, addr):
        """Go lets a goroutine's first function return to the second byte of runtime.goexit."""
        return self.where(addr) and self.read(addr - 1, 2) == b'\x90\xe8'

    def is_trampoline(self, addr):
        return self.read(addr, len(RESTORE_RT)) == RESTORE_RT


def read_peer(path):
    threads, tid = {}, None
    for line in open(path, errors='replace'):
        m = re.match(r'TID (\d+):', line)
        if m:
            tid = int(m.group(1))
            threads[tid] = []
        m = re.match(r'#\d+ +0x([0-9a-f]+)', line)
        if m:
            threads[tid].append(int(m.group(1), 16))
    for frames in threads.values():  # address 0 behind the last frame is nobody's
        while frames and frames[-1] == 0:
            frames.pop()
    return threads


def read_ours(path):
    threads, stop, tid = {}, {}, None
    for line in open(path, errors='replace'):
        m = re.match(r'.* +\d+/(\d+) +\[\d+\]', line)
        if m and not line.startswith('\t'):
            tid = int(m.group(1))
            threads[tid], stop[tid] = [], 'root'
        m = re.match(r'\t *([0-9a-f]+) (.*)', line)
        if m:
            threads[tid].append(None if m.group(2).endswith('])') else int(m.group(1), 16))
        m = re.match(r'# stop: (\S+)', line)
        if m:
            stop[tid] = m.group(1)
    return threads, stop


def only_native(mine, known):
    """Return the native frames. Interpreted ones (None) stand between them, or each in the place of one that known has."""
    out, run = [], 0
    for pc in mine:
        if pc is None:
            run += 1
            continue
        places = known[len(out):len(out) + run + 1]
        if run and pc in places:
            out += places[:places.index(pc)]
        run = 0
        out.append(pc)
    rest = known[len(out):]
    return out + rest if run and len(rest) <= run else out


def sound(code, frames, start):
    """Return whether all frames from start on are return addresses of calls, or were interrupted by a signal."""
    for i in range(max(start, 1), len(frames)):
        if not (code.returned_to(frames[i]) or code.is_trampoline(frames[i]) or
                code.is_trampoline(frames[i - 1]) or
                i == len(frames) - 1 and code.is_goexit(frames[i])):
            return False
    return True


def calls(code, ra, pc):
    """Return whether ra is the return address of a call to the function around pc."""
    b = code.read(ra - 5, 5)
    if len(b) < 5 or b[0] != 0xe8:
        return False
    target = ra + int.from_bytes(b[1:], 'little', signed=True)
    return target <= pc < target + FUNCTION_MAX


def in_code(code, frames):
    """Return the frames without those at the end that are not in code."""
    n = len(frames)
    while n and not code.where(frames[n - 1] - 1):
        n -= 1
    return frames[:n]


def leads_to(frames, ours):
    """Return whether frames end like ours or one frame earlier: a peer may not know where a thread began."""
    return any(n and frames[-n:] == ours[:n] for n in (len(ours), len(ours) - 1))


def go_frames(pid, code):
    """Return the frames of each thread by Go's own table, and whether they are complete."""
    table = core_go.Table('/proc/%d/exe' % pid)
    threads = {}
    for tid in os.listdir('/proc/%d/task' % pid) if table.functions else ():
        sp, pc = (int(x, 16) for x in open('/proc/%d/task/%s/syscall' % (pid, tid)).read().split()[-2:])
        threads[int(tid)] = core_go.walk(table, code.read, code.is_trampoline, pc, sp)
    return threads


def explain(code, ours, stop, theirs, other):
    """Return the class of a difference and where it begins; no class if it may be our fault."""
    at = next((i for i in range(min(len(ours), len(theirs))) if ours[i] != theirs[i]),
              min(len(ours), len(theirs)))
    if at == 0:
        return None, at
    if in_code(code, theirs) == ours:
        return 'goes on where no code is', at
    if not sound(code, ours, at):
        return None, at
    # After they have skipped a caller, they may end early: ours is sound up to the root, or to one frame more.
    skipped, known = ours[:at] + ours[at + 1:], in_code(code, theirs)
    if at < len(known) and known == skipped[:len(known)] and calls(code, ours[at], ours[at - 1]) and (
            stop == 'root' or len(skipped) - len(known) <= 1):
        return 'skips a caller', at
    # The rest of our frames ends where a thread begins, or like the other peer's.
    if stop != 'root' and not leads_to(in_code(code, other), ours[at:]):
        return None, at
    if at == len(theirs):
        return 'ends early', at
    if code.returned_to(theirs[at]):
        return None, at
    return 'goes on behind the root' if at == len(ours) else 'goes astray', at


code = Code(pid)
go = go_frames(pid, code)
bad = frames = 0
classes = collections.Counter()
read = {way: read_ours('%s/ours.%s' % (folder, way)) for way in ('live', 'core')}
peers_of = {way: {peer: read_peer('%s/%s.%s' % (folder, peer, way)) for peer in ('eu', 'gdb')} for way in ('live', 'core')}
# JavaScript of a process, and interpreted code of a core, stands in the place of native frames.
for tid, mine in read['live'][0].items():
    if None in mine:
        ways = [only_native(mine, peers_of['live'][peer].get(tid, [])) for peer in ('gdb', 'eu')]
        mine[:] = max(ways, key=len)
for tid, mine in read['core'][0].items():
    mine[:] = only_native(mine, read['live'][0].get(tid, []))
ours = {}
for way in ('live', 'core'):
    ours[way], stop = read[way]
    peers = peers_of[way]
    for peer, theirs in peers.items():
        other = peers['gdb' if peer == 'eu' else 'eu']
        if not theirs or set(theirs) != set(ours[way]):
            print('%s: %s.%s: threads %s, ours %s' % (name, peer, way, sorted(theirs), sorted(ours[way])))
            bad += 1
        for tid in sorted(set(theirs) & set(ours[way])):
            a, b = ours[way][tid], theirs[tid]
            frames += len(a)
            if a == b:
                classes['equal'] += 1
                continue
            why, at = explain(code, a, stop[tid], b, other.get(tid, []))
            if not why and go.get(tid) == (a, True):
                why = 'is not as Go has it'
            if why:
                classes['%s %s' % (peer, why)] += 1
            else:
                bad += 1
            if not why or '-v' in sys.argv:
                show = lambda f: '%x in %s' % (f[at], code.where(f[at] - 1)) if at < len(f) else 'nothing'
                print('%s.%s, thread %d: frame %d of %d: offwind %s (%s), %s %s%s' % (
                    name, way, tid, at, len(a), show(a), stop[tid], peer, show(b), ' (%s)' % why if why else ''))
for tid, (known, whole) in go.items():
    a = ours['live'].get(tid, [])
    classes['as Go has it'] += whole and a == known
    if a != known if whole else a[:len(known) - 1] != known[:-1]:
        print('%s, thread %d: Go has' % (name, tid), ['%x' % x for x in known], 'offwind', ['%x' % x for x in a])
        bad += 1
if ours['live'] != ours['core']:
    for tid in ours['live']:
        if ours['live'][tid] != ours['core'].get(tid):
            print('%s, thread %d: process and core differ' % (name, tid),
                  ['%x' % x for x in ours['live'][tid]], ['%x' % x for x in ours['core'].get(tid, [])])
            bad += 1
print('%s: %d threads, %d frames compared, %s%s' % (
    name, len(ours['core']), frames, ', '.join('%s %d' % c for c in classes.most_common()),
    ', %d unexplained' % bad if bad else ''))
print(len(ours['core']), frames, file=open(folder + '/frames', 'w'))
sys.exit(bad != 0)

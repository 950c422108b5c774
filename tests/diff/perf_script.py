#!/usr/bin/env python3
"""Compares offwind's frames with perf script's, sample by sample and pc by pc.

  perf_script.py [-v] PERF.TXT OFFWIND.TXT OFFWIND.TSV
      PERF.TXT     perf script --no-inline -F comm,pid,tid,time,event,ip,sym,dso
      OFFWIND.TXT  offwind unwind --format text   (who and when)
      OFFWIND.TSV  offwind unwind --format tsv    (the frames)

perf prints offsets in the file where offwind prints the ELF file's addresses,
and a caller's return address or the one before it; a frame agrees when, both
taken as ELF addresses, they differ by at most one.  Prints the figures: samples that
agree, and the others by the class of their first difference (README.md beside
this file explains each class).  Exit 0 only if at least 97 % agree.
"""
import collections
import re
import struct
import sys

HEAD = re.compile(r'^\s*(?P<comm>.*?)\s+(?P<pid>\d+)/(?P<tid>\d+)\s+(?:\[\d+\]\s+)?(?P<time>\d+\.\d+):')
FRAME = re.compile(r'^\s+(?P<ip>[0-9a-f]+)\s+(?P<sym>.*?)(?:\s+\((?P<dso>.*)\))?$')


def segments(path, cache={}):
    """PT_LOAD entries of an ELF file: (offset, vaddr, size, executable)."""
    if path not in cache:
        cache[path] = found = []
        try:
            data = open(path, 'rb').read(65536)
            phoff, = struct.unpack_from('<Q', data, 32)
            size, n = struct.unpack_from('<HH', data, 54)
            for i in range(n):
                kind, flags, off, vaddr, _, filesz = struct.unpack_from('<IIQQQQ', data, phoff + i * size)
                if kind == 1:
                    found.append((off, vaddr, filesz, flags & 1))
        except (OSError, struct.error):
            pass
    return cache[path]


def address(off, dso):
    """What perf prints, as an address of the ELF file."""
    for seg_off, vaddr, size, executable in segments(dso):
        if executable and seg_off <= off < seg_off + size:
            return off - seg_off + vaddr
    return off


def perf_samples(path):
    samples = {}
    now = None
    for line in open(path, encoding='utf8', errors='replace'):
        line = line.rstrip('\n')
        head = HEAD.match(line)
        if head:
            now = add(samples, head)
            continue
        frame = FRAME.match(line)
        if frame and now is not None:
            dso = frame['dso'] or ''
            now.append((address(int(frame['ip'], 16), dso), frame['sym'], dso))
    return samples


def add(samples, head):
    """The list of frames of one more sample; two of one thread may bear the same time."""
    n = 0
    while (int(head['tid']), head['time'], n) in samples:
        n += 1
    return samples.setdefault((int(head['tid']), head['time'], n), [])


def our_samples(text, tsv):
    samples = {}
    by_number = [None]
    for line in open(text, encoding='utf8', errors='replace'):
        head = HEAD.match(line)
        if head:
            by_number.append(add(samples, head))
    for line in open(tsv, encoding='utf8', errors='replace'):
        row = line.rstrip('\n').split('\t')
        if row[0].isdigit() and row[3] != '-':
            by_number[int(row[0])].append((int(row[3], 16), row[4], row[2]))
    return samples


def same(a, b):
    return abs(a[0] - b[0]) <= 1


def classify(theirs, ours):
    """Names the first difference."""
    n = 0
    while n < len(theirs) and n < len(ours) and same(theirs[n], ours[n]):
        n += 1
    if n == len(theirs) == len(ours):
        return None
    if n == len(theirs):
        where = ours[n - 1] if n else ours[0]
        if not n:
            return 'perf has no frames'
        if '[kernel' in where[2]:
            return 'perf stops after the kernel part'
        if n == 1 or '[kernel' in theirs[n - 2][2]:
            return 'perf stops at the first user frame'
        return 'perf stops earlier'
    if n == len(ours):
        rest = theirs[n:]
        if all(not f[0] >> 12 or f[2] in ('', '[unknown]') for f in rest):
            return 'perf goes on into no mapping'
        return 'offwind stops earlier'
    return 'frames differ'


def main():
    verbose = '-v' in sys.argv
    paths = [a for a in sys.argv[1:] if a != '-v']
    theirs, ours = perf_samples(paths[0]), our_samples(paths[1], paths[2])
    classes = collections.Counter()
    agree = 0
    shown = collections.Counter()
    for key, frames in theirs.items():
        if key not in ours:
            classes['offwind lacks the sample'] += 1
            continue
        kind = classify(frames, ours[key])
        if kind is None:
            agree += 1
            continue
        classes[kind] += 1
        shown[kind] += 1
        if verbose and shown[kind] <= 3:
            print(f'--- {kind}: tid {key[0]} time {key[1]}')
            for i in range(max(len(frames), len(ours[key]))):
                a = '%x %s %s' % frames[i] if i < len(frames) else '-'
                b = '%x %s %s' % ours[key][i] if i < len(ours[key]) else '-'
                print(f'{"  " if "-" not in (a, b) and same(frames[i], ours[key][i]) else "! "}{a:70.70} | {b:70.70}')
    extra = sum(1 for key in ours if key not in theirs)
    if extra:
        classes['perf lacks the sample'] += extra
    total = len(theirs) + extra
    share = 100.0 * agree / total if total else 0
    rest = ', '.join(f'{kind} {n}' for kind, n in classes.most_common())
    print(f'{total} samples, {agree} agree ({share:.2f} %){"; " + rest if rest else ""}')
    better = sum(n for kind, n in classes.items() if kind.startswith('perf stops') or kind == 'perf has no frames')
    worse = total - agree - better
    print(f'{"" : <2}offwind goes further in {better}, other differences {worse}')
    return 0 if share >= 97 else 1


if __name__ == '__main__':
    sys.exit(main())

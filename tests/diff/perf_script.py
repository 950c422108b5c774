#!/usr/bin/env python3
"""Compares offwind's frames with perf script's, sample by sample and pc by pc.

usage: perf_script.py [-v] [--least PERCENT] PERF.TXT OFFWIND.TXT OFFWIND.TSV [PERF.TXT …]
      PERF.TXT     perf script --no-inline -F comm,pid,tid,time,event,ip,sym,dso
      OFFWIND.TXT  offwind unwind --format text --no-inline   (thread and time)
      OFFWIND.TSV  offwind unwind --format tsv --no-inline    (the frames)
      More than one recording of a program may be given, each with its three files.

perf prints offsets in the file where offwind prints addresses of the ELF file, and for a caller the return
address or the address before it.  Frames agree if both, converted to ELF addresses, differ by at most one.
Prints how many samples agree, and how many others are in each class by their first difference (README.md in
this directory explains the classes).  Exit code 0 only if at least PERCENT (80) agree, so that there is something
to compare with, and if those in which offwind ends earlier than perf, finds other frames, or goes on where perf
ends and stops at neither the root nor the end of the copy, are below 3 %.  How often perf ends too early is perf's affair.
"""
import argparse
import collections
import re
import struct
import sys

HEAD = re.compile(r'^\s*(?P<comm>.*?)\s+(?P<pid>\d+)/(?P<tid>\d+)\s+(?:\[\d+\]\s+)?(?P<time>\d+\.\d+):')
FRAME = re.compile(r'^\s+(?P<ip>[0-9a-f]+)\s+(?P<sym>.*?)(?:\s+\((?P<dso>[^()]*(?: \(deleted\))?)\))?$')


def segments(path, cache={}):
    """Return the PT_LOAD entries of an ELF file: (offset, vaddr, size, executable)."""
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
    """Convert an address that perf prints to an address of the ELF file."""
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
        # Where the copy of the stack ends, perf adds -1, which is no address.
        if frame and now is not None and frame['ip'] != 'f' * 16:
            dso = frame['dso'] or ''
            now.append((address(int(frame['ip'], 16), dso), frame['sym'], dso))
    return samples


def add(samples, head):
    """Add a list for the frames of one more sample; two samples of a thread may have the same time."""
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
            by_number[int(row[0])].append((int(row[3], 16), row[4], row[2], row[6], row[7]))
    return samples


def same(a, b):
    return abs(a[0] - b[0]) <= 1


# Differences in which perf ends too early or continues too long.  Those of the second kind count as perf's only if
# offwind comes to the root, or to the end of the copy.
FURTHER = {'perf has no frames', 'perf stops after the kernel part', 'perf goes on into no mapping'}
FURTHER_TO_ROOT = {'perf stops at the first user frame', 'perf stops earlier', 'perf loses a frame without a rule'}


def loses_a_frame(theirs, ours, equal):
    """Return whether perf's frames are ours but for one that was found without unwind information.

    There perf uses the frame pointer at once and so loses the caller of a leaf that has no frame of its own.  In a
    recursion the frames go on being equal behind the lost one, so it is any of ours up to the first difference.
    """
    for lost in range(1, equal + 1):
        rest = theirs[lost:]
        if ours[lost][3] in ('prologue', 'leaf') and len(rest) < len(ours) - lost:
            if all(same(a, b) for a, b in zip(rest, ours[lost + 1:])):
                return True
    return False


def classify(theirs, ours):
    """Names the first difference."""
    n = 0
    while n < len(theirs) and n < len(ours) and same(theirs[n], ours[n]):
        n += 1
    if n == len(theirs) == len(ours):
        return None
    user = [f for f in ours if '[kernel' not in f[2]]
    if n == len(theirs):
        if not n:
            return 'perf has no frames'
        if '[kernel' in ours[n - 1][2]:
            return 'perf stops after the kernel part'
        if ours[n - 1] is user[0]:
            return 'perf stops at the first user frame'
        return 'perf stops earlier'
    if n == len(ours):
        if all(f[2] in ('', '[unknown]') for f in theirs[n:]):
            return 'perf goes on into no mapping'
        return 'offwind stops earlier'
    if loses_a_frame(theirs, ours, n):
        return 'perf loses a frame without a rule'
    return 'frames differ'


def judge(theirs, ours):
    """Names the first difference, and says so if it is perf's but offwind's frames do not come to the root either."""
    kind = classify(theirs, ours)
    if kind in FURTHER_TO_ROOT and ours[-1][4] not in ('root', 'truncated'):
        return f'{kind}, and offwind in the middle'
    return kind


def show(kind, key, theirs, ours):
    print(f'--- {kind}: tid {key[0]} time {key[1]}')
    for i in range(max(len(theirs), len(ours))):
        a = '%x %s %s' % theirs[i] if i < len(theirs) else '-'
        b = '%x %s %s' % ours[i][:3] if i < len(ours) else '-'
        mark = ' ' if i < len(theirs) and i < len(ours) and same(theirs[i], ours[i]) else '!'
        print(f'{mark} {a:70.70} | {b:70.70}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('-v', action='store_true', dest='verbose')
    parser.add_argument('--least', type=float, default=80)
    parser.add_argument('paths', nargs='+')
    options = parser.parse_args()
    theirs, ours = {}, {}
    for i in range(0, len(options.paths), 3):
        perf, text, tsv = options.paths[i:i + 3]
        theirs.update(perf_samples(perf))
        ours.update(our_samples(text, tsv))
    classes = collections.Counter()
    agree = 0
    for key, frames in theirs.items():
        kind = judge(frames, ours[key]) if key in ours else 'offwind lacks the sample'
        if kind is None:
            agree += 1
            continue
        classes[kind] += 1
        if options.verbose and classes[kind] <= 3:
            show(kind, key, frames, ours.get(key, []))
    extra = sum(1 for key in ours if key not in theirs)
    if extra:
        classes['perf lacks the sample'] += extra
    total = len(theirs) + extra
    if not total:
        print('no samples')
        return 1
    share = 100.0 * agree / total
    worse = sum(n for kind, n in classes.items() if kind not in FURTHER | FURTHER_TO_ROOT)
    print(', '.join([f'{total} samples, {agree} agree ({share:.2f} %)'] +
                    [f'{kind} {n}' for kind, n in classes.most_common()]))
    return 0 if share >= options.least and 100.0 * worse / total < 3 else 1


if __name__ == '__main__':
    sys.exit(main())

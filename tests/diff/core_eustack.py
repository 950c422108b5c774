"""Compares threads in eu-stack's output with those in offwind's text, pc by pc.

usage: core_eustack.py NAME EU_STACK OFFWIND [MOVING-TID…]

If eu-stack gave up, its frames must be the first ones of ours.  Threads that run in the meantime
(MOVING, only in their innermost function) are compared from frame 1 on.
"""
import re
import sys

name, eu, ours = sys.argv[1:4]
moving = set(sys.argv[4:])
want, broken, tid = {}, set(), None
for line in open(eu, errors='replace'):
    m = re.match(r'TID (\d+):', line)
    if m:
        tid = m.group(1)
        want[tid] = []
    m = re.match(r'#\d+ +0x([0-9a-f]+)', line)
    if m:
        want[tid].append(int(m.group(1), 16))
    # Messages of threads appear where stderr was flushed; then only whole dumps are trusted.
    if 'dwfl_thread_getframes' in line or 'eu-stack:' in line:
        broken |= set(re.findall(r'tid (\d+)', line)) or {tid}
got, stop, tid = {}, {}, None
for line in open(ours, errors='replace'):
    m = re.match(r'.* +\d+/(\d+) +\[\d+\]', line)
    if m and not line.startswith('\t'):
        tid = m.group(1)
        got[tid] = []
    m = re.match(r'\t +([0-9a-f]+) ', line)
    if m:
        got[tid].append(int(m.group(1), 16))
    m = re.match(r'# stop: (\S+)', line)
    if m:
        stop[tid] = m.group(1)
bad = frames = 0
if set(want) != set(got) or not want:
    print(name, 'threads differ:', sorted(want), sorted(got))
    bad += 1
for t in sorted(set(want) & set(got), key=int):
    skip = 1 if t in moving else 0
    w, g = want[t][skip:], got[t][skip:]
    if t in broken:
        g = g[:len(w)]
    frames += len(w)
    if w != g:
        bad += 1
        print('%s thread %s (%s):' % (name, t, stop.get(t, 'root')))
        for i in range(max(len(w), len(g))):
            a = '%x' % w[i] if i < len(w) else '-'
            b = '%x' % g[i] if i < len(g) else '-'
            if a != b:
                print('  frame %d: eu-stack %s, offwind %s' % (i + skip, a, b))
                break
print('%s: %d threads, %d frames, %d differ%s' % (
    name, len(want), frames, bad, ', eu-stack gave up on %d' % len(broken) if broken else ''))
sys.exit(bad != 0)

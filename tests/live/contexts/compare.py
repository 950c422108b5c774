#!/usr/bin/env python3
"""Compare the labels of a profile's samples with what a program knows of itself.
usage: compare.py TRUTH RAW       exit code 2: nothing is wrong, but there are too few samples
TRUTH   what the program wrote: a function, a thread's name or *, then KEY=VALUE each, separated by tabs
RAW     the profile, as go tool pprof -raw prints it
What is before the first sample with such labels is not compared: the program was not known yet."""
import re, sys

OFFWIND = {'pid', 'tid', 'comm', 'thread', 'exe', 'host', 'user', 'cgroup', 'unit', 'user_unit', 'slice', 'container_id',
           'container_runtime', 'pod', 'qos', 'stop', 'confidence', 'guessed', 'service.name'}
truth = {}
for line in open(sys.argv[1]):
    function, *rest = line.rstrip('\n').split('\t')
    if rest:
        truth[function, rest[0]] = dict(label.split('=', 1) for label in rest[1:])
functions = {function for function, _ in truth}

samples, names, part = [], {}, ''
for line in open(sys.argv[2]):
    if m := re.match(r'(\w+):?$', line):
        part = m[1]
    elif part == 'Samples' and (m := re.match(r'\s*(\d+)\s+\d+: ([\d ]+)$', line)):
        samples.append((int(m[1]), m[2].split(), {}))
    elif part == 'Samples' and samples:
        samples[-1][2].update(re.findall(r'([\w.-]+):\[?(.*?)\]?(?= [\w.-]+:\[|\s*$)', line))
    elif part == 'Locations' and (m := re.match(r'\s*(\d+): 0x\w+(?: M=\d+)? (\S+)', line)):
        names[m[1]] = m[2]
    elif part == 'Locations' and (m := re.match(r'\s+(\d+): ', line)):
        names[m[1]] = ''

seen, known, wrong = dict.fromkeys(truth, 0), False, 0
for count, ids, labels in samples:
    own = {key: value for key, value in labels.items() if key not in OFFWIND}
    known |= bool(own)
    here = [names.get(i, '').removeprefix('main.') for i in ids]
    found = next((f for f in here if f in functions), None)
    if not known or not found:
        continue
    key = (found, labels.get('thread')) if (found, labels.get('thread')) in truth else (found, '*')
    seen[key] += count
    if own != truth[key]:
        wrong += count
        if wrong < 10:
            print(f'{key} has {own}, not {truth[key]}')
few = [key for key, n in seen.items() if not n]
print(f'{sum(seen.values())} samples compared, {wrong} wrong:', ', '.join(f'{f} {t} {n}' for (f, t), n in seen.items()))
if few:
    print('no samples of', few)
sys.exit(1 if wrong else 2 if few else 0)

#!/usr/bin/env python3
"""Compares rows of unwind tables and jitdump files with the recorded cases.

usage: rows.py PARCA-DIRECTORY BUILD-DIRECTORY

tables/ARCH/default/ours_NAME.txt has the FDEs of NAME with a line for each row: the CFA, the
frame pointer's slot and, on arm64, the return address's slot, with register numbers one too low; c0 means
"not saved".  In tables/ARCH/final, rbp_type is 4 if the return address is undefined.  jitdump/NAME.json
has the records of NAME.dump.
"""
import glob, json, os, re, subprocess, sys

parca, build = sys.argv[1:]
faults = []
CFA = {'amd64': {'rbp': 6, 'rsp': 7}, 'arm64': {'x28': 29, 'x30': 31}}
FP = {'amd64': '6', 'arm64': '29'}


def run(program, path):
    done = subprocess.run([os.path.join(build, program), path], capture_output=True, text=True)
    if done.returncode:
        faults.append('%s: %s: exit %d %s' % (program, path, done.returncode, done.stderr.strip()))
    return done.stdout.split('\n')


def ours(path):
    """{(start, end): {loc: (cfa, {reg: rule})}}, the addresses in hex."""
    fdes, rows = {}, None
    for line in run('tests/diff/cfi_dump', path):
        f = line.split()
        if line.startswith('FDE '):
            rows = fdes.setdefault((f[2], f[3]), {})
        elif f and rows is not None and re.fullmatch('[0-9a-f]+', f[0]):
            rows[f[0]] = (f[1], dict(r.split('=', 1) for r in f[2:]))
    return fdes


def slot(rules, reg):
    rule = rules.get(reg, 's')
    return int(rule[1:]) if rule.startswith('c') else None


def theirs(arch, text):
    """The same of (cfa, fp's slot, ra's slot or 'any')."""
    fdes, rows = {}, None
    for line in text.split('\n'):
        f = re.match(r'=> Function start: (\w+), Function end: (\w+)', line)
        if f:
            rows = fdes.setdefault(f.groups(), {})
        f = re.match(r'\tLoc: (\w+) CFA: (?:\$(\w+)=(-?\d+)|(exp).*?)\s+RBP: (?:u|c(-?\d+))(?:\s+RA(?:\(.*\))?: (?:u|c(-?\d+)))?\s*$', line)
        if f:
            loc, reg, off, exp, fp, ra = f.groups()
            cfa = exp or '%d%+d' % (CFA[arch][reg], int(off))
            saved = lambda x: int(x) if x and int(x) else None
            rows[loc] = (cfa, saved(fp), saved(ra) if arch == 'arm64' else 'any')
        elif line.startswith('\t'):
            faults.append('not understood: ' + line)
    return fdes


n_rows = n_undefined = n_codes = 0
for path in sorted(glob.glob(parca + '/tables/*/default/ours_*.txt')):
    arch, name = path.split('/')[-3], os.path.basename(path)[5:-4]
    file = next(p for p in (f'{parca}/out/{arch}/{name}', f'{parca}/vendored/{arch}/{name}') if os.path.exists(p))
    got, want = ours(file), theirs(arch, open(path).read())
    if set(got) != set(want):
        faults.append('%s: FDEs differ: %s' % (path, sorted(set(got) ^ set(want))[:5]))
    for fde, rows in want.items():
        mine = {loc: (cfa, slot(r, FP[arch]), slot(r, '30') if arch == 'arm64' else 'any') for loc, (cfa, r) in got.get(fde, {}).items()}
        # A row that equals the row before is not a row of ours.
        last = None
        for loc, row in rows.items():
            if mine.get(loc, last) != row:
                faults.append('%s: %s: %s, not %s' % (path, loc, mine.get(loc), row))
            last = row
            n_rows += 1
        if set(mine) - set(rows):
            faults.append('%s: rows of ours alone: %s' % (path, sorted(set(mine) - set(rows))))
    undefined = {loc for rows in got.values() for loc, (_, r) in rows.items() if r.get('16') == 'u'}
    said = set(re.findall(r'^pc: (\w+) cfa_type: \d+ +rbp_type: 4', open(path.replace('/default/', '/final/')).read(), re.M))
    if arch == 'amd64' and undefined != said:
        faults.append('%s: undefined return addresses: %s' % (path, undefined ^ said))
    n_undefined += len(said)

for path in sorted(glob.glob(parca + '/jitdump/*.json')):
    dump = path[:-4] + 'dump'
    want = sorted((c['CodeAddr'], c['CodeSize'], c['Name']) for c in json.load(open(path))['CodeLoads'])
    got = []
    for line in run('tests/cases/jit_dump', dump):
        f = re.match(r'(\w+) (\w+) (.*)\t\w+ \w+$', line)
        if f:
            got.append((int(f[1], 16), int(f[2], 16), f[3]))
    if got != want:
        faults.append('%s: %s' % (path, sorted(set(got) ^ set(want))[:5]))
    n_codes += len(want)

print(n_rows, 'rows,', n_undefined, 'outermost,', n_codes, 'pieces of code')
for fault in faults[:20]:
    print('FAIL:', fault)
sys.exit(1 if faults or n_rows < 2000 or not n_undefined or n_codes < 60 else 0)

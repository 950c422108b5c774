"""Checks the inlined calls in a recording and its profile.

usage: inlines.py OFFWIND DIRECTORY     DIRECTORY has the recording and the profile
"""
import json, os, re, subprocess, sys

offwind, work = sys.argv[1:3]
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what[:500])


def run(*args):
    return subprocess.run([offwind, *args], check=True, capture_output=True).stdout.decode()


def chain(address):
    """Return addr2line's answer: (function, file, line), the innermost first."""
    out = subprocess.run(['addr2line', '-e', work + '/calls', '-i', '-f', address], capture_output=True, check=True).stdout.decode().split('\n')
    lines = [l.split(' (discriminator')[0] for l in out[1::2]]
    return [(f, os.path.basename(l.rsplit(':', 1)[0]), int(l.rsplit(':', 1)[1])) for f, l in zip(out[::2], lines)]


# ---- JSON lines, of the recording and of the profile, by addr2line -------------------------------
n = 0
for what in ['unwind', '-q', work + '/p.owc'], ['report', work + '/p.pb.gz']:
    known = {}
    for line in run(*what, '-f', 'jsonl').splitlines():
        group = []
        for f in json.loads(line)['frames']:
            group.append((f['function'], os.path.basename(f.get('file', '')), f.get('line', 0)))
            if f.get('inlined'):
                continue
            if f['module'].endswith('/calls') and f.get('file', '').endswith('/calls.c'):
                want = known.setdefault(f['address'], None) or chain(f['address'])
                known[f['address']] = want
                check(group == want, '%s: %s: %r, not %r' % (what[0], f['address'], group, want))
                n += len(group) > 2
            group = []
    check(n > 20, '%s: only %d chains' % (what[0], n))

# ---- the others show the same --------------------------------------------------------------------
for what in ['unwind', '-q', work + '/p.owc'], ['report', work + '/p.pb.gz']:
    check(re.search(r'^calls;.*main;outer;middle_\[i\];innermost_\[i\] \d+$', run(*what, '-f', 'folded'), re.M), what[0] + ': folded')
    rows = [l.split('\t') for l in run(*what, '-f', 'tsv').splitlines()]
    at = {name: i for i, name in enumerate(rows[0])}
    some = [[r[at[c]] for c in ('function', 'inlined', 'file', 'line')] for r in rows if r[at['function']] in ('innermost', 'middle', 'outer')]
    check(['middle', '1'] == [r[:2] for r in some if r[0] == 'middle'][0] and any(r[2].endswith('calls.c') and r[3] == '2' and r[1] == '1' for r in some) and
          any(r[0] == 'outer' and r[1] == '0' and r[3] == '8' for r in some), what[0] + ': tsv: %r' % some[:3])
    check(re.search(r'^\t +[0-9a-f]+ innermost \(inlined\)(\n  .*calls.c:2)?\n\t +[0-9a-f]+ middle \(inlined\)(\n  .*calls.c:4)?\n\t +[0-9a-f]+ outer', run(*what, '-f', 'text'), re.M), what[0] + ': text')
    frames = {f['name']: f for f in json.loads(run(*what, '-f', 'speedscope'))['shared']['frames']}
    check([frames[f].get('line') for f in ('innermost', 'middle', 'outer')] == [2, 3, 7] and frames['middle']['file'].endswith('calls.c'), what[0] + ': speedscope')
    t = [t for t in json.loads(run(*what, '-f', 'firefox'))['threads'] if t['name'] == 'calls'][0]
    frames = t['frameTable']
    got = {(t['stringArray'][t['funcTable']['name'][f]], depth) for f, depth in zip(frames['func'], frames['inlineDepth'])}
    check({('outer', 0), ('middle', 1), ('innermost', 2)} <= got, what[0] + ': firefox: %r' % got)
raw = subprocess.run(['go', 'tool', 'pprof', '-raw', work + '/p.pb.gz'], capture_output=True, env={**os.environ, 'PPROF_TMPDIR': work}).stdout.decode()
check(re.search(r'innermost \S*calls.c:2 s=2\n\s+middle \S*calls.c:4 s=3\n\s+outer \S*calls.c:8 s=7', raw), 'pprof: ' + raw[:300])
check(re.search(r'middle +\n|middle$', run('report', '--callees', '^outer$', work + '/p.pb.gz').replace('  (calls)', ''), re.M), 'report --callees')
check('calls.c' in run('report', '--by', 'source', work + '/p.pb.gz'), 'report --by source')
sys.exit(failures != 0)

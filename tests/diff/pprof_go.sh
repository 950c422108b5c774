#!/usr/bin/env bash
# Compares our pprof files with go tool pprof: the shares of every function, which are counted from
# the folded stacks, labels, mappings and times. go tool pprof must not look for our symbols on this
# disk.
set -u
work=$BUILD/diff/pprof
rm -rf "$work"; mkdir -p "$work"
export PPROF_TMPDIR=$work HOME=$work

# The stacks depend on the seed; frames recur within a stack, and some have no symbol.
python3 - > "$work/folded" <<'PY'
import random
random.seed(7)
seen = set()
while len(seen) < 400:
    n = random.randint(1, 40)
    user = [random.choice(['ls', 'python3', 'libfoo.so']) + '/' + random.choice(['?'] + ['f%d' % i for i in range(60)])
            for _ in range(n)]
    kernel = ['kernel:k%d' % random.randint(0, 20) for _ in range(random.choice([0, 0, 3]))]
    seen.add(';'.join(['comm%d' % random.randint(0, 5)] + user + kernel))
for s in sorted(seen):
    print(s, random.randint(1, 1000))
PY
"$BUILD/tests/diff/pprof_make" < "$work/folded" > "$work/p.pb.gz" || { echo "pprof_make failed"; exit 1; }

pprof() { go tool pprof -symbolize=local -nodecount=1000000 -nodefraction=0 -edgefraction=0 "$@" "$work/p.pb.gz" 2>> "$work/stderr"; }
pprof -sample_index=samples -top > "$work/top" || { cat "$work/stderr"; exit 1; }
pprof -sample_index=cpu -unit=ns -top > "$work/top_cpu" || { cat "$work/stderr"; exit 1; }
pprof -raw > "$work/raw" || exit 1
pprof -sample_index=samples -traces > "$work/traces" || exit 1
"$BUILD/offwind" report --check "$work/p.pb.gz" > "$work/check" 2>&1 || { cat "$work/check"; exit 1; }
"$BUILD/offwind" report --top 0 --type samples "$work/p.pb.gz" > "$work/report" || exit 1

# Profiles of Go's own encoder are read as well, and have the same meaning.
pprof -proto -output="$work/go.pb.gz" > /dev/null || { cat "$work/stderr"; exit 1; }
"$BUILD/offwind" report --top 0 --type samples "$work/go.pb.gz" > "$work/report_go" || exit 1
diff <(grep -v '^#' "$work/report") <(grep -v '^#' "$work/report_go") > "$work/diff" || { echo "through Go:"; head "$work/diff"; exit 1; }

python3 - "$work" <<'PY'
import collections, re, sys
work = sys.argv[1]
bad = []
flat, cum, total, stacks = collections.Counter(), collections.Counter(), 0, collections.Counter()
cum_by_module = collections.Counter()
for line in open(work + '/folded'):
    stack, n = line.rsplit(' ', 1)
    n = int(n)
    frames, modules = [], set()
    for f in stack.split(';')[1:]:
        module, name = ('kernel', f[7:]) if f.startswith('kernel:') else f.split('/')
        frames.append('[%s]' % module if name == '?' else name)
        modules.add(('[kernel]' if module == 'kernel' else module, frames[-1]))
    total += n
    flat[frames[-1]] += n
    for f in set(frames):
        cum[f] += n
    for f in modules:
        cum_by_module[f] += n
    stacks[tuple(reversed(frames))] += n

def top(name, strip):
    out = {}
    for line in open(work + '/' + name):
        m = re.match(r'\s*(\d+)(\w*)\s+[\d.]+%?\s+[\d.]+%\s+(\d+)(\w*)\s+[\d.]+%\s+(\S+)$', line)
        if m:
            out[m[5]] = (int(m[1]), int(m[3]))
    return out

for name, scale in ('top', 1), ('top_cpu', 10101010):
    got = top(name, scale)
    want = {f: (flat[f] * scale, cum[f] * scale) for f in cum}
    if got != want:
        bad += ['%s: %s want %s got %s' % (name, f, want.get(f), got.get(f))
                for f in sorted(set(got) | set(want)) if got.get(f) != want.get(f)][:5]
# The report distinguishes functions of one name by module; added up they are the same.
got = collections.Counter(), collections.Counter()
for line in open(work + '/report'):
    m = re.match(r'\s*[\d.]+%\s+(\d+)\s+[\d.]+%\s+(\d+)\s+(\S+)\s+(\S+)$', line)
    if m:
        got[0][m[4]] += int(m[1])
        got[1][m[3], m[4]] += int(m[2])
if +got[0] != +flat or dict(got[1]) != dict(cum_by_module):
    bad.append('offwind report differs')
header = open(work + '/top_cpu').read()
if 'Duration: 3s' not in header or 'Type: cpu' not in header:
    bad.append('header: ' + header[:200])

# -traces: each sample's labels, then "   N   innermost", further frames indented.
got, cur, n, labels = collections.Counter(), None, 0, collections.Counter()
for line in open(work + '/traces'):
    if line.startswith('-----------+'):
        if cur:
            got[tuple(cur)] += n
        cur = None
        continue
    m = re.match(r'\s*(\w+):\s+(.*)$', line)
    if m and cur is None and not re.match(r'\s*\d+ ', line):
        labels[m[1]] += 1
        continue
    m = re.match(r'\s+(\d+)?\s+(\S+)\s*$', line)
    if m and m[1]:
        n, cur = int(m[1]), [m[2]]
    elif m and cur is not None:
        cur.append(m[2])
if got != stacks:
    d = [s for s in set(got) | set(stacks) if got[s] != stacks[s]]
    bad.append('traces: %d of %d stacks differ, such as %s: want %d got %d' %
               (len(d), len(stacks), d[0], stacks[d[0]], got[d[0]]))
n_entries = sum(1 for _ in open(work + '/folded'))
for key, want in ('pid', n_entries), ('tid', n_entries), ('comm', n_entries), ('thread', n_entries), ('stop', n_entries // 3):
    if labels[key] != want:
        bad.append('label %s on %d samples, not %d' % (key, labels[key], want))

raw = open(work + '/raw').read()
for text in ('PeriodType: cpu nanoseconds', 'Period: 10101010', 'samples/count cpu/nanoseconds', 'Duration: 3'):
    if text not in raw:
        bad.append('raw lacks ' + text)
maps = re.findall(r'^\d+: (0x\w+)/(0x\w+)/(0x\w+) (\S+) .*\[FN\].*$', raw, re.M)
if sorted(m[3] for m in maps) != ['/usr/bin/libfoo.so', '/usr/bin/ls', '/usr/bin/python3', '[kernel]']:
    bad.append('mappings: %s' % maps)
print('\n'.join(bad) or '%d functions, %d stacks, %d samples: the same in go tool pprof' % (len(cum), len(stacks), total))
sys.exit(bool(bad))
PY

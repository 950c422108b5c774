"""Tests how other programs read the pprof profiles in a directory.

usage: pprof_readers.py OFFWIND DIRECTORY NODE_MODULES

go tool pprof opens every profile, in each of its views and as pages, without any complaint.  npm's
pprof-format and speedscope find in it what offwind report -f jsonl, which shares no code with them, prints.
"""
import base64, collections, glob, json, os, re, signal, socket, subprocess, sys, tempfile, time
import urllib.error, urllib.request

offwind, work, modules = sys.argv[1:4]
sys.path.insert(0, 'tests/cases')
from browser import Browser, Profile

failures = 0
environment = {**os.environ, 'PPROF_TMPDIR': work, 'HOME': work}


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what[:600])


def report(*args):
    return subprocess.run([offwind, 'report', *args], check=True, capture_output=True).stdout.decode()


# With inlined calls, source files and lines, and names that are markup unless a reader escapes them.
made = Profile('cpu', 'nanoseconds', comments=['host: somewhere'])
made.sample(['main', ['outer', 'middle', '<b>inner</b>']], 7000000, comm='app', thread='app', pid=10, tid=10)
made.sample(['main', ['outer', 'middle', 'other & "more"']], 2000000, comm='app', thread='worker', pid=10, tid=11)
made.sample([('syscall', '[kernel]')], 1000000, comm='app', thread='worker', pid=10, tid=11)
made.write(work + '/made.pb')
subprocess.run([offwind, 'report', '--merge', '-o', work + '/inlines.pb.gz', work + '/made.pb'], check=True)
profiles = sorted(glob.glob(work + '/*.pb.gz'))
check(len(profiles) == 6, 'profiles: %s' % profiles)

# ---- go tool pprof ---------------------------------------------------------------------------


def go(*args):
    # -symbolize=local is its default for files that are not symbolised.
    got = subprocess.run(['go', 'tool', 'pprof', *args], capture_output=True, env=environment)
    check(got.returncode == 0 and not got.stderr and got.stdout, 'go tool pprof %s: %d %r' % (' '.join(args), got.returncode, got.stderr))
    return got.stdout.decode()


def pages(path):
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    server = subprocess.Popen(['go', 'tool', 'pprof', '-no_browser', '-http=127.0.0.1:%d' % port, path],
                              stderr=subprocess.PIPE, env=environment, start_new_session=True)
    url = 'http://127.0.0.1:%d/ui/' % port
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(url + 'top')
                break
            except OSError:
                time.sleep(0.1)
        for page in '', 'top', 'flamegraph', 'peek?f=.':
            try:
                text = urllib.request.urlopen(url + page).read().decode()
            except urllib.error.HTTPError as e:
                check(False, '%s: page %r: %s %s' % (path, page, e, e.read()[:200]))
                continue
            check('id="errors"></div>' in text, '%s: page %r complains: %r' % (path, page, text[text.index('id="errors"'):][:300]))
            # pprof's graph leaves out small shares, and functions whose shares cancel out.
            if 'diff' not in path:
                name = '<b>inner</b>' if 'inlines' in path else 'leaf' if 'events' not in path else ''
                check(name not in ('<b>inner</b>',) or name not in text, '%s: page %r: unescaped' % (path, page))
                check(name.strip('<>b/') in text, '%s: page %r lacks %r' % (path, page, name))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        said = server.communicate()[1].decode()
    check(re.fullmatch(r'Serving web UI on \S+\s*', said), '%s: pages: %r' % (path, said))


for path in profiles:
    for view in '-top', '-raw':
        go(view, path)
    got = go('-traces', path)
    check(got.count('-----------+') >= 2, 'traces: ' + got[:300])
    go('-top', '-diff_base=' + profiles[0] if 'events' not in path and 'inlines' not in path else '-diff_base=' + path, path)
for path in 'events', 'inlines', 'diff':
    pages('%s/%s.pb.gz' % (work, path))

# Our difference is the same as theirs: the same numbers as of the two files.
top = ['-top', '-unit=ns', '-nodecount=100000', '-nodefraction=0', '-edgefraction=0']
strip = lambda text: sorted(re.sub(r'[\d.]+%', '', l) for l in text.splitlines() if re.match(r'\s*-?[\d.]+(ns)?\s', l))
theirs = strip(go(*top, '-diff_base', work + '/one.pb.gz', work + '/two.pb.gz'))
check(theirs and strip(go(*top, work + '/diff.pb.gz')) == theirs, 'diff: %r' % theirs[:5])
# So is the merge.
check(strip(go(*top, work + '/merged.pb.gz')) == strip(go(*top, work + '/one.pb.gz', work + '/two.pb.gz')), 'merge')
# So are inlined calls, innermost first; pprof takes text in <> as a template's arguments and leaves it out.
raw = go('-raw', work + '/inlines.pb.gz')
check(re.search(r'inner src/a.c:0 s=7\(<b>inner</b>\)\n\s+middle src/a.c:0 s=7\n\s+outer src/a.c:0 s=7', raw), 'inlines: ' + raw)

# ---- npm's pprof-format -------------------------------------------------------------------------
got = subprocess.run(['node', 'tests/diff/pprof_readers.mjs', modules, *profiles], capture_output=True)
check(got.returncode == 0 and not got.stderr, 'pprof-format: %r' % got.stderr)
for path, p in json.loads(got.stdout or '{}').items():
    types = [t for t, _ in p['types']]
    mine, other = collections.Counter(), collections.Counter()
    for t in types:
        for line in report('-f', 'jsonl', '--type', t, path).splitlines() if 'diff' not in path else []:
            s = json.loads(line)
            mine[t, tuple(sorted(s['labels'].items())),
                 tuple((f['function'], f.get('file', ''), f.get('line', 0), f.get('module', '')) for f in s['frames'])] += s['values'][t]
        for s in p['samples'] if 'diff' not in path else []:
            if s['values'][types.index(t)]:
                other[t, tuple(sorted((k, v) for k, v in s['labels'])), tuple(tuple(f) for f in s['frames'])] += s['values'][types.index(t)]
    check(mine == other and ('diff' in path or mine), 'pprof-format reads of %s other samples: %r' % (path, list((mine - other).items())[:2] + list((other - mine).items())[:2]))
    check(p['default'] in types, 'pprof-format: default type %r' % p['default'])
    again = path.replace('.pb.gz', '.again.pb')
    report('--check', again)
    if 'diff' not in path:
        check(report('-f', 'jsonl', again) == report('-f', 'jsonl', path), 'what pprof-format writes again is something else')

# ---- speedscope -------------------------------------------------------------------------------------


def speedscope(b, path, name):
    """Return what speedscope understood: make it save the profile in its own format."""
    with open(work + '/load.js', 'w') as f:
        data = base64.b64encode(open(path, 'rb').read()).decode()
        f.write('URL.createObjectURL = b => { b.text().then(t => window.saved = t); return "data:,"; };'
                'speedscope.loadFileFromBase64(%s, %s)' % (json.dumps(name), json.dumps(data)))
    b.events.clear()
    b('Page.navigate', url='about:blank')
    b('Page.navigate', url='file://%s/speedscope/dist/release/index.html#localProfilePath=%s' %
      (os.path.abspath(modules), os.path.abspath(work + '/load.js')))
    for _ in range(300):
        if b.eval('document.title').endswith(' - speedscope'):
            break
        time.sleep(0.1)
    b.eval("window.dispatchEvent(new KeyboardEvent('keydown', { key: 's', ctrlKey: true })), 0")
    for _ in range(300):
        if b.eval('!!window.saved'):
            return json.loads(b.eval('window.saved'))
        time.sleep(0.1)
    check(False, 'speedscope does not read ' + path)
    return {'profiles': [], 'shared': {'frames': []}}


def stacks_of(file, profile):
    """Return the weights by stack, outermost first, of sampled and of evented profiles; events are closed in order."""
    frames, out = [f['name'] for f in file['shared']['frames']], collections.Counter()
    if profile['type'] == 'sampled':
        for stack, weight in zip(profile['samples'], profile['weights']):
            out[tuple(frames[i] for i in stack)] += weight
        return out
    stack, at = [], 0
    for e in profile['events']:
        if e['at'] > at and stack:
            out[tuple(stack)] += e['at'] - at
        at = e['at']
        if e['type'] == 'O':
            stack.append(frames[e['frame']])
        else:
            stack.pop()
    return out



# ---- the Firefox Profiler's processed format ------------------------------------------------------------
# Each column of a table has as many entries as the table's length, and an index refers to its own table. Put together
# again, the stacks are those of jsonl.
INDICES = {'stackTable': {'frame': 'frameTable', 'prefix': 'stackTable'}, 'frameTable': {'func': 'funcTable'},
           'funcTable': {'name': None, 'fileName': None, 'resource': 'resourceTable'}, 'samples': {'stack': 'stackTable'},
           'resourceTable': {'name': None, 'lib': 'libs'}, 'markers': {}, 'nativeSymbols': {}}


# The requirements of version 48 (src/types/profile.js and docs-developer/CHANGELOG-formats.md of the Firefox Profiler):
# columns and fields that must exist, with the types of their values.
NULL, NUMBER = type(None), (int, float)
META = {'interval': NUMBER, 'startTime': NUMBER, 'processType': (int,), 'stackwalk': (int,), 'version': (int,),
        'preprocessedProfileVersion': (int,), 'product': (str,), 'categories': (list,), 'markerSchema': (list,)}
LIB = {k: (str,) for k in ('arch', 'name', 'path', 'debugName', 'debugPath', 'breakpadId')}
LIB['codeId'] = (str, NULL)
THREAD = {'processType': (str,), 'processStartupTime': NUMBER, 'processShutdownTime': (*NUMBER, NULL), 'registerTime': NUMBER,
          'unregisterTime': (*NUMBER, NULL), 'pausedRanges': (list,), 'name': (str,), 'isMainThread': (bool,), 'pid': (str,),
          'tid': (int, str), 'stringArray': (list,)}
TABLES = {'samples': {'stack': (int, NULL), 'time': NUMBER, 'weight': NUMBER},
          'markers': {'data': (dict, NULL), 'name': (int,), 'startTime': (*NUMBER, NULL), 'endTime': (*NUMBER, NULL), 'phase': (int,), 'category': (int,)},
          'stackTable': {'frame': (int,), 'category': (int,), 'subcategory': (int,), 'prefix': (int, NULL)},
          'frameTable': {'address': (int,), 'inlineDepth': (int,), 'category': (int, NULL), 'subcategory': (int, NULL), 'func': (int,),
                         'nativeSymbol': (int, NULL), 'innerWindowID': (int, NULL), 'implementation': (int, NULL), 'line': (int, NULL), 'column': (int, NULL)},
          'funcTable': {'name': (int,), 'isJS': (bool,), 'relevantForJS': (bool,), 'resource': (int,), 'fileName': (int, NULL),
                        'lineNumber': (int, NULL), 'columnNumber': (int, NULL)},
          'resourceTable': {'lib': (int, NULL), 'name': (int,), 'host': (int, NULL), 'type': (int,)},
          'nativeSymbols': {'libIndex': (int,), 'address': (int,), 'name': (int,), 'functionSize': (int, NULL)}}


def typed(value, fields, what):
    for name, kinds in fields.items():
        check(name in value and type(value[name]) in kinds, 'firefox: %s: %s' % (what, name))


def firefox(path, type_name):
    p = json.loads(report('-f', 'firefox', '--type', type_name, path))
    meta = p['meta']
    check(meta['preprocessedProfileVersion'] == 48 and meta['interval'] > 0 and any(c['color'] == 'grey' for c in meta['categories']), 'firefox: meta')
    got = collections.Counter()
    typed(meta, META, 'meta')
    for lib in p['libs']:
        typed(lib, LIB, 'a library')
    for t in p['threads']:
        typed(t, THREAD, 'a thread')
        for name, columns in TABLES.items():
            check(set(columns) <= set(t[name]), 'firefox: %s lacks %s' % (name, set(columns) - set(t[name])))
            for column, kinds in columns.items():
                check(all(type(v) in kinds for v in t[name].get(column, [])), 'firefox: %s.%s holds another type' % (name, column))
        check(all(isinstance(v, str) for v in t['stringArray']), 'firefox: stringArray')
        check(isinstance(t['pid'], str) and isinstance(t['isMainThread'], bool) and t['name'], 'firefox: a thread: %r' % t['name'])
        size = {name: t[name]['length'] for name in INDICES}
        size.update({None: len(t['stringArray']), 'libs': len(p['libs'])})
        for name, indices in INDICES.items():
            for column, values in t[name].items():
                if isinstance(values, list):
                    check(len(values) == size[name], 'firefox: %s.%s: %d of %d' % (name, column, len(values), size[name]))
            for column, table in indices.items():
                check(all(i is None or i == -1 or 0 <= i < size[table] for i in t[name][column]), 'firefox: %s.%s leads nowhere' % (name, column))
        check(all(i is None or i < at for at, i in enumerate(t['stackTable']['prefix'])), 'firefox: a stack before its prefix')
        check(t['samples']['time'] == sorted(t['samples']['time']), 'firefox: times go back')
        scale = 1e6 if t['samples']['weightType'] == 'tracing-ms' else 1
        for node, weight in zip(t['samples']['stack'], t['samples']['weight']):
            stack = []
            while node is not None:
                frame = t['stackTable']['frame'][node]
                func = t['frameTable']['func'][frame]
                stack.append((t['stringArray'][t['funcTable']['name'][func]], t['frameTable']['inlineDepth'][frame],
                              t['frameTable']['line'][frame] or 0))
                node = t['stackTable']['prefix'][node]
            got[t['pid'], t['tid'], tuple(stack)] += round(weight * scale)
    want = collections.Counter()
    for line in report('-f', 'jsonl', '--type', type_name, path).splitlines():
        s, stack, depth = json.loads(line), [], 0
        for f in reversed(s['frames']):
            depth = depth + 1 if f.get('inlined') else 0
            stack.append((f['function'], depth, f.get('line', 0)))
        want[str(s['labels']['pid']), str(s['labels']['tid']), tuple(reversed(stack))] += s['values'][type_name]
    check(got == want and want, 'firefox of %s: %r not %r' % (path, list((got - want).items())[:2], list((want - got).items())[:2]))


for path in profiles:
    if 'diff' not in path:
        for type_name in json.loads(report('-f', 'jsonl', path).splitlines()[0])['values']:
            if report('-f', 'jsonl', '--type', type_name, path):
                firefox(path, type_name)

# The Firefox Profiler's own loader, as its authors ship it for terminals: each thread's functions with their self and
# total weights. (Its `load` gives its daemon half a second to start, so it is started here. A request before the daemon
# has reported its address deletes its files for good; the file that is waited for is the last one that it writes.)


def profiler(path, type_name):
    program = modules + '/@firefox-devtools/profiler-cli/dist/profiler-cli.js'
    with tempfile.TemporaryDirectory() as folder:
        file = folder + '/profile.json'
        with open(file, 'w') as f:
            f.write(report('-f', 'firefox', '--type', type_name, path))
        env = {**environment, 'PROFILER_CLI_SESSION_DIR': folder, 'PROFILER_CLI_NO_SYMBOLICATE': '1'}

        def ask(*args):
            return subprocess.run(['node', program, *args, '--json', '--session', 's'], capture_output=True, env=env)

        daemon = subprocess.Popen(['node', program, '--daemon', file, '--session', 's'], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, env=env)
        try:
            for _ in range(1200):
                if os.path.exists(folder + '/current.txt') or daemon.poll() is not None:
                    break
                time.sleep(0.1)
            for _ in range(60):
                got = ask('thread', 'list', '--limit', '0')
                if not got.returncode or daemon.poll() is not None:
                    break
                time.sleep(0.5)
            if got.returncode:
                check(False, 'the Firefox Profiler does not load %s: %r, %s' % (path, got.stderr, open(folder + '/s.log').read() if os.path.exists(folder + '/s.log') else os.listdir(folder)))
                return
            scale = 1e6 if 'tracing-ms' in open(file).read() else 1
            mine, other = collections.Counter(), collections.Counter()
            for t in json.loads(got.stdout)['threads']:
                functions = json.loads(ask('thread', 'functions', '--include-idle', '--limit', '0', '--thread', t['threadHandle']).stdout)
                for f in functions['functions']:
                    who = t['pid'], str(t['tid']), f['name'], f.get('library')
                    other[who + ('self',)] += round(f['selfSamples'] * scale)
                    other[who + ('total',)] += round(f['totalSamples'] * scale)
        finally:
            daemon.kill()
            said = daemon.communicate()[1].decode()
    for line in report('-f', 'jsonl', '--type', type_name, path).splitlines():
        s, seen = json.loads(line), set()
        for i, f in enumerate(s['frames']):
            whole = f['function'], f.get('system_name'), f.get('file'), f.get('start_line'), f.get('module')
            # It gives no library to a function whose name equals its library's: a kernel without symbols.
            library = os.path.basename(f.get('module') or '')
            who = str(s['labels']['pid']), str(s['labels']['tid']), f['function'], library if library not in ('', f['function']) else None
            mine[who + ('self',)] += s['values'][type_name] if not i else 0
            mine[who + ('total',)] += s['values'][type_name] if whole not in seen else 0
            seen.add(whole)
    check(+mine == +other and +mine, 'the Firefox Profiler reads of %s: %r not %r; %s' %
          (path, list((other - mine).items())[:2], list((mine - other).items())[:2], said[:200]))


for name, type_name in ('one', 'cpu'), ('events', 'samples'), ('inlines', 'cpu'):
    profiler('%s/%s.pb.gz' % (work, name), type_name)
check('main;outer_[i];' not in report('-f', 'folded', work + '/inlines.pb.gz') and
      'app;main;outer;middle_[i];<b>inner</b>_[i] 7000000' in report('-f', 'folded', work + '/inlines.pb.gz'), 'folded: inlined calls')

browser = Browser(work)
try:
    for path in profiles:
        if 'diff' in path:
            continue
        ours = path.replace('.pb.gz', '.json')
        subprocess.run([offwind, 'report', '-f', 'speedscope', '-o', ours, path], check=True)
        mine, file = json.load(open(ours)), speedscope(browser, ours, 'ours.json')
        check([p['name'] for p in mine['profiles']] == [p['name'] for p in file['profiles']] and file['profiles'], 'speedscope: %s: other profiles' % path)
        for a, b in zip(mine['profiles'], file['profiles']):
            check(a['unit'] == b['unit'] and stacks_of(mine, a) == stacks_of(file, b) and stacks_of(mine, a), 'speedscope reads of %s %s: %r not %r' % (ours, a['name'], list(stacks_of(file, b).items())[:2], list(stacks_of(mine, a).items())[:2]))
        want = {(f['name'], f.get('file')) for f in mine['shared']['frames']}
        check({(f['name'], f.get('file')) for f in file['shared']['frames']} == want, 'speedscope: %s: frames' % ours)
        if 'inlines' in path:
            check(('main', 'outer', 'middle', '<b>inner</b>') in stacks_of(file, file['profiles'][0]), 'speedscope: inlined calls')
            # It also reads the pprof file itself; of inlined calls it takes only the outermost one.
        if 'one' in path:
            direct = speedscope(browser, path, 'one.pb.gz')
            check(direct['profiles'] and stacks_of(direct, direct['profiles'][0]) == stacks_of(mine, mine['profiles'][0]), 'speedscope reads of the pprof file something else')
finally:
    browser.close()
sys.exit(failures != 0)

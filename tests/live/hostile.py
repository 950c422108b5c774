"""Records a program with hostile names and checks every output byte by byte.

usage: hostile.py OFFWIND DIRECTORY

Its symbols, path and thread names have markup, control characters, terminal sequences, bytes that are not
UTF-8 and characters that change the reading direction.
"""
import gzip, json, os, re, sqlite3, subprocess, sys, unicodedata

offwind, work = sys.argv[1:3]
failures = 0
EVIL = b'<img src=x onerror=alert(1)>"\'&;\n\r\t\x1b[31m\x1b]0;title\x07\x00\x7f\xc2\x9b\xff\xc3(\xed\xa0\x80\xe2\x80\xae\xe2\x80\xa8\\'
NAME = EVIL.replace(b'\0', b'')
COMM = b'<b>\x1b[2J\xff;\n"\xe2'  # at most 15 bytes; cut within a character
FOLDER = NAME.replace(b'/', b'') + b'</script>'.replace(b'/', b'\\')


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what)


def clean(what, data, lines=True):
    """Check any output: UTF-8, and no control characters but line ends (and a table's tabs)."""
    try:
        text = data.decode('utf-8')
    except UnicodeDecodeError as e:
        check(False, '%s: %s: %r' % (what, e, data[max(0, e.start - 60):e.start + 20]))
        return ''
    bad = [c for c in text if unicodedata.category(c) in ('Cc', 'Cs', 'Zl', 'Zp') and c not in '\n\t'
           or c in '\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069']
    check(not bad, '%s: holds %r' % (what, sorted(set(bad))))
    return text


def run(*args, code=0, **more):
    got = subprocess.run([offwind, *args], capture_output=True, stdin=subprocess.DEVNULL, **more)
    name = ' '.join(a if isinstance(a, str) else repr(a) for a in args)
    check(got.returncode in (code, 3 if code == 0 else code), '%s: exit code %d: %r' % (name, got.returncode, got.stderr[-300:]))
    if b'-o' not in args and '-o' not in args:
        clean(name, got.stdout)
    clean(name + ': errors', got.stderr)
    return got.stdout


def record(milliseconds, least, *args):
    """Record, for longer if a busy machine gave the program little of the time, until there are so many samples."""
    for longer in 1, 4, 16:
        got = subprocess.run([offwind, 'record', '-d', '%dms' % (milliseconds * longer), *args], capture_output=True, stdin=subprocess.DEVNULL)
        clean('record: errors', got.stderr)
        n = re.search(rb'captured (\d+) = ', got.stderr)
        if got.returncode == 0 and n and int(n[1]) >= least:
            return
    check(False, 'record %r: exit code %d: %r' % (args, got.returncode, got.stderr[-300:]))


# ---- the program --------------------------------------------------------------------------
source = os.path.join(work, 'a.c')
with open(source, 'w') as f:
    f.write('''#include <sys/prctl.h>
volatile long n;
__attribute__((noinline)) void evil_leaf(void) { for (long i = 0; i < 100000; i++) n += i; }
__attribute__((noinline)) void evil_caller(void) { evil_leaf(); n++; }
int main(int argc, char **argv) { (void)argc; prctl(PR_SET_NAME, argv[1]); for (;;) evil_caller(); }
''')
folder = os.path.join(os.fsencode(work), FOLDER)
os.mkdir(folder)
plain, program = os.path.join(work, 'plain'), os.path.join(folder, b'prog' + NAME)
subprocess.run(['gcc', '-O1', '-o', plain, source], check=True)
subprocess.run([b'objcopy', b'--redefine-sym', b'evil_leaf=' + NAME, b'--redefine-sym', b'evil_caller=_Z' + NAME,
                os.fsencode(plain), program], check=True)
check(NAME in open(program, 'rb').read(), 'the symbol is as it was made')

profile, raw = os.path.join(work, 'p.pb.gz'), os.path.join(work, 'p.owc')
record(2000, 50, '-F', '499', '-o', profile, '--raw=' + raw, '--stats', os.path.join(work, 'stats'), '--', program, COMM)
clean('stats', open(os.path.join(work, 'stats'), 'rb').read())
check(b'alert' in gzip.decompress(open(profile, 'rb').read()), 'the program is in the profile')

# ---- pprof: each text ---------------------------------------------------------------------


def fields(data):
    at = 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size


def texts_of(path):
    data = open(path, 'rb').read()
    return [v for k, v in fields(gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data) if k == 6]


def check_pprof(what, path):
    texts = texts_of(path)
    for text in texts:
        clean(what, text)
        check(b'\n' not in text and b'\t' not in text, '%s: %r' % (what, text))
    check(any(b'<img src=x' in t for t in texts), what + ': the name is there')
    run('report', '--check', path)


check_pprof('record', profile)
run('unwind', '-q', '-o', os.path.join(work, 'u.pb.gz'), raw)
check_pprof('unwind', os.path.join(work, 'u.pb.gz'))
run('report', '--merge', '-o', os.path.join(work, 'm.pb.gz'), profile, os.path.join(work, 'u.pb.gz'))
check_pprof('merge', os.path.join(work, 'm.pb.gz'))

# go tool pprof accepts them, and also one with more sample types.
waits = os.path.join(work, 'waits.pb.gz')
record(500, 20, '--off-cpu', '-o', waits, '--', program, COMM)
run('report', '--check', waits)
for path in profile, os.path.join(work, 'm.pb.gz'), waits:
    for view in '-top', '-traces', '-raw':
        got = subprocess.run(['go', 'tool', 'pprof', view, path], capture_output=True, env={**os.environ, 'PPROF_TMPDIR': work})
        check(got.returncode == 0 and not got.stderr and got.stdout, 'go tool pprof %s: %d %r' % (view, got.returncode, got.stderr[:300]))

# A profile that another program made of such names.
sys.path.insert(0, 'tests/cases')
from browser import Profile
theirs = Profile(NAME, NAME, comments=[NAME])
theirs.sample([(NAME, NAME), [(b'a' + NAME, FOLDER), (b'b' + NAME, FOLDER)]], 7, comm=NAME, thread=NAME, pid=3, stop=NAME,
              container_id=NAME)
foreign = os.path.join(work, 'foreign.pb')
theirs.write(foreign)
run('report', '--check', foreign, code=1)

# ---- formats ---------------------------------------------------------------------------------
COLUMNS = 13


def check_format(what, name, data):
    text = clean(what, data)
    if name == 'tsv':
        for line in text.split('\n')[:-1]:
            check(line.count('\t') == COLUMNS - 1, '%s: columns: %r' % (what, line))
    elif name != 'text':
        check('\t' not in text, what + ': a tab')
    if name in ('speedscope', 'firefox', 'jsonl'):
        check('<' not in text and '>' not in text and '&' not in text, what + ': markup')
        for part in text.splitlines() if name == 'jsonl' else [text]:
            json.loads(part)
    if name == 'folded':
        for line in text.splitlines():
            check(re.fullmatch(r'.+ \d+', line), '%s: %r' % (what, line))
    check('src=x' in text, what + ': the name is there')


FORMATS = 'folded', 'text', 'tsv', 'jsonl', 'speedscope', 'firefox'
for name in FORMATS:
    for what, args in (('record', None), ('unwind', ['unwind', '-q', raw]), ('report', ['report', profile]),
                       ('report foreign', ['report', foreign])):
        if args:
            check_format('%s -f %s' % (what, name), name, run(*args, '-f', name))
path = os.path.join(work, 'live.folded')
record(500, 20, '-F', '499', '-f', 'folded', '-o', path, '--', program, COMM)
check_format('record -f folded', 'folded', open(path, 'rb').read())

# ---- tables, trees, what is told of single samples, pages -------------------------------------
for what in profile, foreign:
    for by in 'symbol', 'module', 'source', 'pid', 'comm', 'thread', 'container', 'stop':
        run('report', '--by', by, '--bars', 'always', what)
    check(b'onerror' in run('report', '--callers', 'onerror', what), 'callers')
    run('report', '--callees', 'onerror', what)
    run('report', '--diff', what, what)
    run('report', '-f', 'folded', '--diff', what, what)
    run('report', '--type', 'none such', what, code=1)
    page = run('flamegraph', '-o', '-', what)
    check(b'<img src=x' not in page and b'onerror=alert(1)>' not in page, 'flamegraph: markup in the page')
    check(b'onerror' in page, 'flamegraph: the name is there')
run('explain', raw, '--sample', '20')
clean('explain --json', run('explain', '--json', raw, '--sample', '20'))
top = run('top', '-b', '-n', '1', '--delay', '300ms')
db = os.path.join(work, 'store.db')
run('unwind', '-q', '--db', db, '-o', os.path.join(work, 'u.pb.gz'), raw)
for name in 'table', 'csv', 'json':
    listing = run('cache', '--db', db, '--format', name, 'ls')
    check(name != 'table' or b'prog' in listing, 'the store knows the program')
run('cache', '--db', db, 'show', 'prog', code=1) if b'prog' not in run('cache', '--db', db, 'ls') else None

for name in 'table', 'csv', 'json':
    for args in (['show', b'prog'], ['show', NAME[:20]], ['rows', b'prog'], ['lookup', b'prog', '0x1140'],
                 ['query', 'SELECT * FROM file'], ['query', b"SELECT '" + NAME.replace(b"'", b"''") + b"' AS \"" + NAME.replace(b'"', b'') + b'"'],
                 ['query', NAME], ['verify'], [NAME], ['diff', program, plain], ['prefetch', program]):
        got = subprocess.run([offwind, 'cache', '--db', db, '--format', name, *args], capture_output=True, stdin=subprocess.DEVNULL)
        clean('cache %r, %s' % (args, name), got.stdout + got.stderr)
    check(b'prog' in run('cache', '--db', db, '--format', name, 'ls'), 'the store knows the program')
# A store into which another user wrote.
foreign_db = os.path.join(work, 'foreign.db')
subprocess.run(['cp', db, foreign_db], check=True)
with sqlite3.connect(foreign_db) as connection:
    connection.execute('UPDATE objects SET path = CAST(? AS TEXT) || id', (b'/x/' + NAME,))
    ids = [row[0] for row in connection.execute('SELECT lower(hex(build_id)) FROM objects')]
connection.close()
for args in ['ls'], ['show', ids[0]], ['lookup', ids[0], '0x1140'], ['verify'], ['diff', ids[0], ids[1]], ['query', 'SELECT path FROM objects'], ['gc']:
    for name in 'table', 'csv', 'json':
        clean('cache of others: %r' % args, run('cache', '--db', foreign_db, '--format', name, *args, code=int(args[0] == 'diff')))
evil_db = os.path.join(folder, b'db')
for args in ['ls'], ['verify'], ['show', 'prog'], ['gc'], ['export', os.path.join(folder, b'x')], ['import', program]:
    got = subprocess.run([offwind, 'cache', '--db', evil_db, *args], capture_output=True, stdin=subprocess.DEVNULL)
    clean('cache of another: %r' % args, got.stdout + got.stderr)

# ---- source files, folders and inlined functions that are called so in DWARF -------------------
TEXT = ''.join('\\%03o' % c for c in NAME.replace(b'\n', b''))
with open(source, 'w') as f:
    f.write('''volatile long n;
static inline __attribute__((always_inline)) void zz_inner(long i) { n += i; }
__attribute__((noinline)) void zz_outer(void) { for (long i = 0; i < 100000; i++) zz_inner(i); }
int main(void) { for (;;) zz_outer(); }
''')
subprocess.run(['gcc', '-O1', '-g', '-gno-as-locview-support', '-S', '-o', source + '.s', source], check=True)
assembly = open(source + '.s').read()
for name in 'zz_inner', 'zz_outer', source, os.path.basename(source), os.path.dirname(source):
    assembly = assembly.replace('string\t"%s"' % name, 'string\t"/%s%s"' % (TEXT, os.path.basename(name)))
    assembly = re.sub(r'(\.file \d*.*)"%s"' % re.escape(name), lambda m: '%s"/%s%s"' % (m[1], TEXT, os.path.basename(name)), assembly)
with open(source + '.s', 'w') as f:
    f.write(assembly)
dwarf = os.path.join(work, 'dwarf')
subprocess.run(['gcc', '-o', dwarf, source + '.s'], check=True)
check(open(dwarf, 'rb').read().count(NAME.replace(b'\n', b'')) >= 3, 'DWARF has the names')
recorded = os.path.join(work, 'd.owc')
record(500, 20, '-F', '499', '-o', os.path.join(work, 'd.pb.gz'), '--raw=' + recorded, '--', dwarf)
check_pprof('lines', os.path.join(work, 'd.pb.gz'))
for name in FORMATS:
    for args in ['unwind', '-q', '--no-cache', recorded], ['report', os.path.join(work, 'd.pb.gz')]:
        check_format('lines: %s -f %s' % (args[0], name), name, run(*args, '-f', name))
lined = run('unwind', '-q', '--no-cache', '-f', 'text', '--lines', recorded)
check(len(re.findall(rb'(?m)^  /.*src=x.*:\d+$', lined)) > 3, 'text has lines')
run('report', '--by', 'source', os.path.join(work, 'd.pb.gz'))
page = run('flamegraph', '-o', '-', os.path.join(work, 'd.pb.gz'))
check(b'<img src=x' not in page and b'onerror=alert(1)>' not in page and b'onerror' in page, 'flamegraph: lines')
run('explain', '--no-cache', recorded, '--sample', '2')
clean('explain --json', run('explain', '--no-cache', '--json', recorded, '--sample', '2'))

# ---- files that are called so --------------------------------------------------------------------
named = os.path.join(folder, b'profile' + NAME)
os.link(profile, named)
run('report', named)
run('report', '--check', named)
run('report', '--diff', named, named)
run('report', '-f', 'folded', '--diff', named, named)
page = run('flamegraph', '-o', '-', named, '--diff', named)
check(b'<img src=x' not in page and b'onerror=alert(1)>' not in page, 'flamegraph: a file name')
run('unwind', '-o', named + b'2', raw)

# ---- and what messages make of a path --------------------------------------------------------
for args in (['report', program], ['unwind', '-o', '/dev/null', program], ['report', folder],
             ['report', os.path.join(folder, b'absent')], ['unwind', '-o', os.path.join(folder, b'no', b'x'), raw],
             ['flamegraph', '-o', '/dev/null', program], ['unwind', '-f', NAME, raw], ['report', '--by', NAME, profile],
             [NAME], ['report', '--callers', b'(' + NAME, profile]):
    got = subprocess.run([offwind, *args], capture_output=True, stdin=subprocess.DEVNULL)
    clean('%r: message' % args, got.stderr)
    check(got.returncode in (1, 2) and got.stderr.count(b'\n') >= 1, '%r: %d %r' % (args, got.returncode, got.stderr))
sys.exit(failures != 0)

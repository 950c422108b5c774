#!/usr/bin/env bash
# Checks that what docs/reference-systems.md says exists: each of our names is declared and, if it
# is a function, exported; each test exists; and if the reference documents are beside the checkout,
# none of their names is missing.
set -u
BUILD=$BUILD python3 - <<'P'
import glob, os, re, subprocess, sys
faults = []
page = open('docs/reference-systems.md', encoding='utf8').read()
rows = [[c.strip() for c in line.strip('|').split('|')] for line in page.split('\n') if line.startswith('|') and not re.match(r'\|(-|\s*concept)', line)]

headers = ''.join(open(p, encoding='utf8').read() for p in glob.glob('unwinder/*.h') + ['generator/dynamic.h'])
exported = set()
for lib in ('lib/liboffwind.so', 'libunwind-offwind.so', 'lib/liboffwind-dynamic.so'):
    out = subprocess.run(['nm', '-D', '--defined-only', os.path.join(os.environ['BUILD'], lib)], capture_output=True, text=True).stdout
    exported |= {line.split()[-1].split('@')[0] for line in out.splitlines()}
functions = set(re.findall(r'\b(uw_\w+)\(', headers))
n = 0
for row in rows:
    if len(row) != 3 or not row[2]:
        faults.append('a row of %d columns: %s' % (len(row), row[0]))
        continue
    for name in re.findall(r'`([^`]+)`', row[1]):
        n += 1
        if re.fullmatch(r'schema/\w+\.h', name):
            if not os.path.exists(name):
                faults.append('no file %s' % name)
        elif re.fullmatch(r'_U\w+', name):
            if name not in exported and not re.search(r'#define %s\b' % name, headers):
                faults.append('%s is not exported' % name)
            other = name.replace('_Ux86_64_', '_Uaarch64_')
            if name.startswith('_Ux86_64_') and other not in exported:
                faults.append('%s is not exported' % other)
        elif re.fullmatch(r'uw_\w+|UW_\w+', name):
            if not re.search(r'\b%s\b' % name, headers):
                faults.append('%s is not declared' % name)
            if name in functions and name not in exported:
                faults.append('%s is not exported' % name)
        elif re.fullmatch(r'lib[\w-]+(\.so)?', name):
            if not glob.glob(os.path.join(os.environ['BUILD'], '**', name.removesuffix('.so') + '.so'), recursive=True):
                faults.append('no library %s' % name)
    tests = re.findall(r'`([^`]+)`', row[2])
    for test in tests:
        if not (re.fullmatch(r'tests/unit/test_\w+\.c', test) and os.path.exists(test) or re.fullmatch(r'tests/(cases|diff|live)/\w+\.sh', test) and os.access(test, os.X_OK)):
            faults.append('%s is no test' % test)
    if not tests:
        faults.append('no test: %s' % row[0])

said = set(re.findall(r'\w+', page.replace('\\_', '_')))
folder = '../shared/reference'
if os.path.isdir(folder):
    wanted = set()
    for path in glob.glob(folder + '/*.txt'):
        text = open(path, encoding='utf8', errors='replace').read().replace('\\_', '_')
        if 'dynstackwalker' in path:
            # Methods and types as declarations name them, and the classes that headings do.
            wanted |= set(re.findall(r'\b((?:get|set|walk|new|add|remove|find|lookup|register|read)[A-Z]\w+)\(', text))
            wanted |= set(re.findall(r'\b(gcf_[a-z_]+|loc_(?:address|register|unknown))\b', text))
            wanted |= set(re.findall(r'Class `?(\w+)`?\s', text)) | set(re.findall(r'typedef .*?(\w+)\n', text)) - {'Address'}
        else:
            wanted |= set(re.findall(r'\b(unw_[a-z_]+|_U_[A-Za-z_]+|UNW_[A-Z_]+)\b', text))
            if 'create' in path:
                wanted |= set(re.findall(r'^(?:int|void) ([a-z_]+)\(unw_addr_space_t', text, re.M))
    missing = sorted(wanted - said)
    print(len(wanted), 'names of the reference documents,', len(rows), 'rows,', n, 'names of ours')
    if missing or len(wanted) < 100:
        faults.append('not in the page: ' + ' '.join(missing))
else:
    print(len(rows), 'rows,', n, 'names; the reference documents are absent:', folder)
for fault in faults:
    print('FAIL:', fault)
sys.exit(1 if faults or not rows else 0)
P

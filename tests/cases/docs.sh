#!/usr/bin/env bash
# Checks that everything that the pages of the repository mention exists: each relative link and its
# heading, each file, each page in the index docs/README.md, each FILE:FUNCTION in HACKING.md, each
# directory of the include check and below agent/ and unwinder/ in docs/architecture.md. Then the
# check itself is checked: pages that are wrong in each of these ways must fail.
set -u
python3 - <<'P'
import glob, os, re, sys

TOP = ('.ci', 'agent', 'base', 'bpf', 'compat', 'debian', 'deploy', 'docs', 'examples', 'generator', 'proto', 'schema', 'symbolizer', 'tests', 'unwinder')
# Matches tests/cases/docs.sh and docs/*.md, but not build/tests/… or a name with a placeholder like
# agent/source/NAME.c.
FILE = re.compile(r'(?<![\w/.*…-])((?:%s)/[\w./*-]*)' % '|'.join(map(re.escape, TOP)))
FUNCTION = re.compile(r'`([\w./-]+\.[ch]):(\w+)`')


def slug(heading):
    text = re.sub(r'[`*]|\[([^]]*)\]\([^)]*\)', lambda m: m.group(1) or '', heading.strip().lower())
    return re.sub(r'[^\w\- ]', '', text).replace(' ', '-')


def prose(text):
    """The page without its blocks of code, in which # begins no heading and [x](y) is no link."""
    return re.sub(r'^ *```.*?^ *```', '', text, flags=re.S | re.M)


def defines(path, name):
    """Whether the file has a function of that name, not only a declaration or a call of it."""
    text = open(path, encoding='utf8').read()
    for m in re.finditer(r'^[A-Za-z_][^\n;=#]*\b%s\(|^int BPF_PROG\(%s\b' % (name, name), text, re.M):
        rest = text[m.end():]
        if '{' in rest and (';' not in rest or rest.index('{') < rest.index(';')):
            return True
    return False


def check(pages):
    faults = []
    for page, text in pages.items():
        folder = os.path.dirname(page)
        for link in re.findall(r'\]\(([^)\s]+)\)', prose(text)):
            path, _, anchor = link.partition('#')
            if re.match(r'[a-z]+:', path):
                continue
            target = os.path.normpath(os.path.join(folder, path)) if path else page
            if target not in pages and not os.path.exists(target):
                faults.append('%s: no file %s' % (page, target))
            elif anchor and target.endswith('.md'):
                there = pages.get(target) or open(target, encoding='utf8').read()
                if anchor not in {slug(h) for h in re.findall(r'^#+ (.*)', prose(there), re.M)}:
                    faults.append('%s: %s has no heading #%s' % (page, target, anchor))
        for name in FILE.findall(text):
            name = name.rstrip('.')
            last = name.rsplit('/', 1)[1]
            if re.search(r'[A-Z]{2}', last) and last != 'README.md':
                continue
            if name not in pages and not glob.glob(name.rstrip('/')):
                faults.append('%s: no file %s' % (page, name))
        for path, name in FUNCTION.findall(text):
            if os.path.exists(path) and not defines(path, name):
                faults.append('%s: %s has no function %s' % (page, path, name))
    listed = {os.path.normpath(os.path.join('docs', l.partition('#')[0])) for l in re.findall(r'\]\(([^)\s]+)\)', pages.get('docs/README.md', ''))}
    for page in pages:
        if page.startswith('docs/') and page != 'docs/README.md' and page not in listed:
            faults.append('docs/README.md does not list %s' % page)
    described = set(re.findall(r'^\| `(\w+)/` \|', pages['docs/architecture.md'], re.M))
    for folder in re.findall(r'^check (\w+) ', open('tests/check_includes.sh', encoding='utf8').read(), re.M):
        if folder not in described:
            faults.append('docs/architecture.md: the table of directories lacks %s/' % folder)
    for folder in glob.glob('agent/*/') + glob.glob('unwinder/*/'):
        if '| `%s` |' % folder.rstrip('/') not in pages['docs/architecture.md']:
            faults.append('docs/architecture.md: the tables of directories lack %s' % folder)
    if not any(FUNCTION.findall(line) for line in pages['HACKING.md'].split('\n') if line.startswith('|')):
        faults.append('HACKING.md: no table of functions')
    return faults


names = ['README.md', 'HACKING.md'] + sorted(glob.glob('docs/**/*.md', recursive=True))
pages = {n: open(n, encoding='utf8').read() for n in names}
faults = check(pages)

# Each of these changes is a new fault.
before = set(faults)
wrong = [('README.md', '[x](docs/absent.md)'), ('docs/store.md', '[x](decisions/absent.md)'), ('docs/store.md', '[x](security.md#absent)'),
         ('HACKING.md', '`unwinder/absent.c`'), ('docs/store.md', 'see tests/cases/absent.sh.'),
         ('HACKING.md', '| x | `unwinder/walk/walk.c:absent` |'), ('HACKING.md', '| x | `unwinder/walk/walk.h:uw_walk_rule` |'),
         ('docs/decisions/absent.md', 'A page that nobody lists.')]
for page, changed in [('docs/architecture.md', pages['docs/architecture.md'].replace('| `compat/` |', '| compat |')),
                      ('docs/README.md', pages['docs/README.md'].replace('(security.md)', '(store.md)'))]:
    if not set(check({**pages, page: changed})) - before:
        faults.append('the check does not see what is missing in %s' % page)
for page, text in wrong:
    if not set(check({**pages, page: pages.get(page, '') + '\n' + text + '\n'})) - before:
        faults.append('the check does not see %s in %s' % (text, page))

links = sum(len(re.findall(r'\]\(', t)) for t in pages.values())
print('\n'.join(faults) if faults else '%d pages, %d links, %d functions' % (len(pages), links, len(FUNCTION.findall(pages['HACKING.md']))))
sys.exit(bool(faults))
P

#!/usr/bin/env bash
# Checks that words which the glossary has retired (docs/style.md, "House words and the field's") do not come back, in
# texts for users and in identifiers.  The list below has those that are still there, as numbers by directory and word.
# A number may only become smaller: the test fails when there are more, and also when there are fewer, so that
# the list stays true.  Then the check itself is checked: a tree that is wrong in each of these ways must fail.
#   usage: words.sh [--list | --lower]     --list: print the list as it is now; --lower: lower the numbers below
set -u
python3 - "$@" <<'P'
import os, re, sys

# What is left.  Lower a number when you have renamed something; never raise one.
LIST = '''

'''

# Retired words as parts of identifiers; where they count (beginnings of paths; '': everywhere); identifiers that use
# them in another sense: names from DWARF and from the kernel, and words of the stack.
IDENTIFIERS = [
    ('kept memo pasts worth blk blks rid unread brief twin twins leap glance waits told clean folder folders', '', ''),
    ('sought lately anew elder', '', ''),
    ('peek peeked again', 'unwinder/', ''),
    ('codes', 'unwinder/rule/', ''),
    ('past note notes noting join joins', 'unwinder/walk/', ''),
    ('word words', 'schema/ unwinder/rule/ unwinder/table/ unwinder/walk/', 'SCAN_WORDS CAPTURE_HOLE_WORDS UW_VERDICT_NO_WORD'),
    ('sup sups', '', 'DW_FORM_strp_sup DW_FORM_ref_sup4 DW_FORM_ref_sup8'),
    ('plain', 'bpf/ agent/live/', ''),
    ('made', 'agent/export/', ''),
    ('area areas', 'bpf/ agent/live/', 'vm_area_struct'),
]
UNCHECKED = {'key'}  # has an ordinary sense nearly everywhere
# Retired words in texts, where the others of the glossary are ordinary English.
TEXT = re.compile(r'\b(kept|peek|memos?|unread|twins?|glances?|plain programs?|told|folders?|memory areas?|'
                  r'sought|lately|anew|elder|be had)\b', re.I)

# An identifier belongs to the first of these that has a header with it; without a header, to each directory that has it.
LAYERS = ('schema', 'base', 'proto', 'generator', 'unwinder', 'symbolizer', 'compat', 'bpf', 'agent')
TOKENS = {
    '.c': re.compile(r'/\*.*?\*/|//[^\n]*|#include[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*', re.S),
    '.js': re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|[A-Za-z_]\w*', re.S),
    '.html': re.compile(r'"[^"]*"|(?<=>)[^<>]+', re.S),
}
TOKENS.update({'.h': TOKENS['.c'], '.mjs': TOKENS['.js']})
RULES = {w: (tuple(where.split()) or ('',), but.split()) for words, where, but in IDENTIFIERS for w in words.split()}
RETIRED = re.compile('|'.join(RULES), re.I)


def tree():
    paths = ['README.md']
    for top in LAYERS + ('docs', 'deploy'):
        for d, _, names in os.walk(top):
            paths += [os.path.join(d, n) for n in names]
    return {p: open(p, encoding='utf8').read() for p in paths if is_page(p) or os.path.splitext(p)[1] in TOKENS}


def is_page(path):
    return path.endswith('.md') or path.startswith('deploy/')


def directory(path):
    return path.split('/')[0] if '/' in path else '.'


def parts(name):
    """The words of a name: uw_rows_open_stored, lookAgain."""
    return {p.lower() for p in re.findall(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])', name)}


def prose(path, text):
    """A page without code, without names in `…`, and without the glossary's table of retired words."""
    blank = lambda m: re.sub(r'[^\n]', ' ', m[0])
    if path == 'docs/style.md':
        text = re.sub(r'^### House words.*?(?=^#|\Z)', blank, text, flags=re.S | re.M)
    return re.sub(r'^ *```.*?^ *```|`[^`\n]*`', blank, text, flags=re.S | re.M)


def find(files):
    """Return {(kind, directory, word): places or names}."""
    found, names = {}, {}

    def add_text(path, text, token, at):
        for m in TEXT.finditer(token):
            place = '%s:%d' % (path, text.count('\n', 0, at + m.start()) + 1)
            found.setdefault(('text', directory(path), m[0].lower()), []).append(place)

    def add_name(path, name):
        if RETIRED.search(name):
            for w in parts(name) & RULES.keys():
                where, but = RULES[w]
                if path.startswith(where) and name not in but:
                    names.setdefault((name, w), set()).add(path)

    for path, text in files.items():
        if is_page(path):
            add_text(path, text, prose(path, text), 0)
            continue
        add_name(path, os.path.basename(path))
        for m in TOKENS[os.path.splitext(path)[1]].finditer(text):
            if path.endswith('.html') or m[0][0] in '"`':
                add_text(path, text, re.sub(r'\$\{[^{}]*\}', lambda v: ' ' * len(v[0]), m[0]), m.start())
            elif m[0][0].isalpha() or m[0][0] == '_':
                add_name(path, m[0])
    for (name, w), paths in names.items():
        headers = [p for p in paths if p.endswith('.h') and not name.endswith('.h')]
        if headers:
            paths = [min(headers, key=lambda p: (LAYERS.index(p.split('/')[0]), p))]
        for d in {directory(p) for p in paths}:
            found.setdefault(('identifiers', d, w), []).append(name)
    return found


def listed(text):
    numbers = {}
    for line in text.split('\n'):
        kind, _, rest = line.partition(' ')
        d, _, words = rest.partition(': ')
        for word in filter(None, words.split(', ')):
            w, n = word.rsplit(' ', 1)
            numbers[kind, d, w] = int(n)
    return numbers


def printed(numbers):
    lines = {}
    for (kind, d, w), n in sorted(numbers.items()):
        if n:
            lines.setdefault('%s %s' % (kind, d), []).append('%s %d' % (w, n))
    return '\n'.join('%s: %s' % (where, ', '.join(words)) for where, words in lines.items())


def compare(found, numbers):
    faults = []
    for key in sorted(found.keys() | numbers.keys()):
        there, most = found.get(key, []), numbers.get(key, 0)
        what = '%s in %s: "%s"' % key
        if len(there) > most:
            faults.append('%s: %d, the list allows %d: use the glossary\'s word (docs/style.md) in the new one of: %s' % (what, len(there), most, ', '.join(sorted(there))))
        elif len(there) < most:
            faults.append('%s: %d, the list says %d: lower the number (tests/cases/words.sh --lower)' % (what, len(there), most))
    return faults


def unknown(style):
    """House words of the glossary that this test does not know."""
    table = re.search(r'^### House words.*?(?=^#|\Z)', style, re.S | re.M)
    words = [w.strip() for row in re.findall(r'^\| ([^|]+) \|', table[0] if table else '', re.M) for w in re.split('[,;]', row)]
    words = [w for w in words if w not in ('house word', '---')]
    return [w for w in words if not set(re.findall(r'\w+', w)) & (RULES.keys() | UNCHECKED)] if words else ['no table of retired words']


files = tree()
found = find(files)
if sys.argv[1:] == ['--list']:
    print(printed({key: len(there) for key, there in found.items()}))
    sys.exit(0)
if sys.argv[1:] == ['--lower']:
    numbers = {key: min(most, len(found.get(key, []))) for key, most in listed(LIST).items()}
    script = open('tests/cases/words.sh', encoding='utf8').read()
    open('tests/cases/words.sh', 'w', encoding='utf8').write(script.replace(LIST, '\n' + printed(numbers) + '\n', 1))
    sys.exit(0)
faults = compare(found, listed(LIST))
faults += ['the glossary has retired "%s", which this test does not know' % w for w in unknown(files['docs/style.md'])]

# Each of these trees must be found wrong, and the last ones must not.
for name, text, wrong in [
    ('agent/cmd/x.c', 'log_warning("the folder " "is gone");', True), ('agent/cmd/x.c', 'static int is_kept(void)', True),
    ('agent/cmd/folder.c', '', True), ('agent/cmd/x.h', '#define FOLDER_MAX 1', True), ('unwinder/walk/x.c', 'struct uw_note n;', True),
    ('docs/x.md', 'Files are\nkept.', True), ('README.md', 'drawn anew', True), ('deploy/offwind.1', '.It the plain programs', True),
    ('agent/export/page/page.js', 'function lookAnew() {', True), ('agent/export/page/page.html', '<p>A folder</p>', True),
    ('agent/cmd/x.c', '/* The folder is kept. */ #include "agent/folder.h"', False), ('docs/x.md', '`kept`, keeps', False),
    ('base/x.c', 'struct note *join; int key;', False), ('bpf/x.c', 'struct vm_area_struct *vma;', False),
]:
    if bool(compare(find({name: text}), {})) != wrong:
        faults.append('the check is wrong about %s: %s' % (name, text))
if not compare({}, {('text', 'docs', 'kept'): 1}) or compare({('text', 'docs', 'kept'): ['x']}, listed('text docs: kept 1')):
    faults.append('the check does not compare with the list')
if unknown('### House words\n| house word | x |\n|---|---|\n| told, wizard | x |\n') != ['wizard']:
    faults.append('the check does not read the glossary')

print('\n'.join(faults) if faults else '%d files, %d uses of retired words are left' % (len(files), sum(map(len, found.values()))))
sys.exit(bool(faults))
P

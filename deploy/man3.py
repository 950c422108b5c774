#!/usr/bin/env python3
"""Writes a manual page for each function of liboffwind, from the public headers.

  man3.py VERSION DIRECTORY HEADER... [--example FILE]   write DIRECTORY/NAME.3 and DIRECTORY/liboffwind.3
  man3.py --names HEADER...                              print the functions' names, one per line

A header stands for itself and for the headers that it includes, unless they are named, too.

A page's text is the comment above the function's declaration and the comment after it.  The comment above
also serves for the declarations that follow without a blank line.  The page shows the types in the
function's prototype as the header declares them.
"""
import os, re, sys

COMMENT = re.compile(r'/\*(.*?)\*/', re.S)


def words(comment):
    """Returns the paragraphs of a comment; lines keep their indentation."""
    lines = [re.sub(r'^\s*\*? ?', '', line).rstrip() for line in comment.strip().split('\n')]
    return [p for p in '\n'.join(lines).strip().split('\n\n') if p.strip()]


def plain(text):
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return re.sub(r"^([.'])", r'\\&\1', text, flags=re.M)


def paragraphs(paras):
    out = []
    for p in paras:
        lines = p.split('\n')
        if any(line.startswith('  ') for line in lines[1:]) or lines[0].startswith(' '):
            out.append('.PP\n.nf\n' + plain(p) + '\n.fi')
        else:
            out.append('.PP\n' + plain(p))
    return '\n'.join(out)


def whole(path, seen):
    """Returns the text of a header, with the headers that it includes and that were not seen yet in their places."""
    seen.add(path)
    with open(path, encoding='utf8') as f:
        return re.sub(r'^#include "([^"]+)"$', lambda m: '' if m.group(1) in seen else whole(m.group(1), seen), f.read(), flags=re.M)


class Header:
    def __init__(self, path, named):
        self.path, self.text = path, whole(path, set(named))
        self.top = words(COMMENT.search(self.text).group(1))
        self.types, self.functions = {}, []
        self.read()

    def items(self):
        """Yields top-level comments, declarations, preprocessor lines and the blank lines between them."""
        body, i, n = self.text, 0, len(self.text)
        while i < n:
            if body.startswith('/*', i):
                end = body.index('*/', i) + 2
                yield 'comment', body[i:end]
            elif body[i] == '#':
                end = body.index('\n', i)
                while body[end - 1] == '\\':
                    end = body.index('\n', end + 1)
                yield 'line', body[i:end]
            elif body[i] == '\n':
                end = i + 1
                if body.startswith('\n', end):
                    yield 'blank', ''
            elif body[i] in ' \t;}':
                end = i + 1
            elif body.startswith('extern "C" {', i):
                end = i + 12
            else:
                end, depth = i, 0
                while depth or body[end] != ';':
                    if body.startswith('/*', end):
                        end = body.index('*/', end) + 1
                    depth += (body[end] == '{') - (body[end] == '}')
                    end += 1
                end += 1
                behind = re.compile(r'[ \t]*/\*.*?\*/', re.S).match(body, end)
                yield 'code', (body[i:end], behind.group(0).strip() if behind else '')
                end = behind.end() if behind else end
            i = end

    def read(self):
        above, section = None, []
        for kind, value in self.items():
            if kind == 'comment' and value.startswith('/* ----'):
                section, above = [value.strip('/*- \n')], None
            elif kind == 'comment':
                above = words(value[2:-2])
            elif kind == 'blank':
                above = None
            elif kind == 'code':
                code, behind = value
                bare = COMMENT.sub('', code)
                named = re.match(r'(struct|enum) (uw_\w+) \{', code)
                typedef = re.search(r'^typedef .*?\(\*(uw_\w+)\)', bare, re.S)
                function = re.match(r'[\w\s]+?\**(uw_\w+)\(', bare)
                note = words(behind[2:-2]) if behind else []
                if named:
                    self.types[named.group(1) + ' ' + named.group(2)] = (above or [], code + (' ' + behind if behind else ''))
                    above = None
                elif typedef:
                    self.types[typedef.group(1)] = (above or [], code)
                    above = None
                elif function:
                    self.functions.append((function.group(1), re.sub(r'\s+', ' ', bare), above or [], note, section))


def page(out, name, version, sections):
    with open(os.path.join(out, name + '.3'), 'w', encoding='utf8') as f:
        f.write('.\\" Made from the comments of the public headers.\n')
        f.write('.TH %s 3 "" "offwind %s" "liboffwind"\n' % (plain(name.upper()), version))
        for title, text in sections:
            if text:
                f.write('.SH %s\n%s\n' % (title, text))


def first_sentence(paras):
    text = re.sub(r'\s+', ' ', paras[0])
    text = re.split(r'(?<=[a-z0-9)])[.:;] ', text)[0].rstrip('.:;')
    return text if len(text) < 100 else text[:96].rsplit(' ', 1)[0] + ' …'


def code(text):
    return '.nf\n' + plain(text.replace('\t', '    ')) + '\n.fi'


def prototype(text):
    """Returns a prototype with line breaks after commas, so that it fits a page."""
    text, out = text.strip(), ''
    while len(text) > 76 and ', ' in text[:76]:
        cut = text[:76].rindex(', ') + 1
        out += text[:cut] + '\n'
        text = '        ' + text[cut:].strip()
    return out + text


def main():
    args = sys.argv[1:]
    if args[0] == '--names':
        print('\n'.join(sorted({f[0] for h in args[1:] for f in Header(h, args[1:]).functions})))
        return 0
    example = None
    if '--example' in args:
        at = args.index('--example')
        example = args[at + 1]
        del args[at:at + 2]
    version, out, headers = args[0], args[1], [Header(h, args[2:]) for h in args[2:]]
    os.makedirs(out, exist_ok=True)
    types = {k: v for h in headers for k, v in h.types.items()}
    general = headers[0].top
    errors = [p for p in general if p.startswith('Errors:')]
    missing, names = [], [f[0] for h in headers for f in h.functions]
    for h in headers:
        for name, proto, above, behind, section in h.functions:
            text = above + behind
            if not text:
                missing.append('%s: %s has no comment' % (h.path, name))
            used = [t for t in types if re.search(r'\b%s\b' % t, proto) and name != t.split()[-1]]
            shown = '\n'.join('.PP\n' + code('\n'.join(['/* ' + ' '.join(' '.join(types[t][0]).split()) + ' */'] if types[t][0] else []) + ('\n' if types[t][0] else '') + types[t][1]) for t in used)
            threads = [p for p in h.top if p.startswith('Threads:')] or [p for p in general if p.startswith('Threads:')]
            near = [f[0] for f in h.functions if f[4] == section and f[0] != name][:12]
            page(out, name, version, [
                ('NAME', '%s \\- %s' % (plain(name), plain(first_sentence(behind or above or [name])))),
                ('SYNOPSIS', '.nf\n.B #include <offwind/unwinder.h>\n.PP\n%s\n.fi' % plain(prototype(proto))),
                ('DESCRIPTION', paragraphs(text)),
                ('TYPES', shown),
                ('ERRORS', paragraphs(errors) if re.match(r'(int|size_t) ', proto) else ''),
                ('THREADS', paragraphs(threads)),
                ('SEE ALSO', ',\n'.join('.BR %s (3)' % plain(n) for n in ['liboffwind'] + near).replace(',\n', ' ,\n')),
            ])
    page(out, 'liboffwind', version, [
        ('NAME', 'liboffwind \\- unwinds captured stacks'),
        ('SYNOPSIS', '.nf\n.B #include <offwind/unwinder.h>\n.PP\ncc \\&... $(pkg\\-config \\-\\-cflags \\-\\-libs liboffwind)\n.fi'),
        ('DESCRIPTION', paragraphs(general[1:]) + '\n' + '\n'.join('.SS %s\n%s' % (plain(os.path.basename(h.path)), paragraphs(h.top)) for h in headers[1:])),
        ('EXAMPLE', code(open(example, encoding='utf8').read().rstrip()) if example else ''),
        ('FUNCTIONS', '\n'.join('.BR %s (3)' % plain(n) for n in sorted(names))),
    ])
    print('\n'.join(missing), end='\n' if missing else '', file=sys.stderr)
    return 0 # tests/cases/library.sh fails for pages without a text


sys.exit(main())

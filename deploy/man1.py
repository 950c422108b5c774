#!/usr/bin/env python3
"""Writes the options of each command into the manual pages, from the command's --help.

  man1.py PROGRAM PAGE…          write the options of PROGRAM into the pages
  man1.py --check PROGRAM PAGE…  change nothing; print the differences, and fail if there are any

The pages have one list for each command, between the lines ".\\" options of COMMAND" and ".\\" end of options".  This script
writes the items of the list: what --help says, in the same order.  An item may go on behind a line ".\\" more" with text
that is written by hand; the script moves this text with its option and does not change it.
"""
import difflib, re, subprocess, sys

LIST = re.compile(r'^\.\\" options of (\w+)\n(.*?)^\.\\" end of options\n', re.M | re.S)
MORE = '.\\" more\n'
NAME = r'--[\w-]+(?:\[=\w+\]| [A-Z]\S*?| \S+\|\S+?)?(?=, | |$)'
OPTION = re.compile(r'(?:  (-\w, )|      )(NAME(?:, NAME)*) *(.*)'.replace('NAME', NAME))


def help_of(program, *command):
    return subprocess.run([program, *command, '--help'], check=True, stdout=subprocess.PIPE, encoding='utf8').stdout


def options(text):
    """Return the options in the help of a command: [names with their arguments, sentence]."""
    found = []
    for line in text.split('\n'):
        m = OPTION.fullmatch(line)
        if m:
            found.append([(m[1] or '') + m[2], m[3]])
        elif found and re.match(r' {20,}\S', line):
            found[-1][1] = (found[-1][1] + ' ' + line.strip()).strip()
    return found


def argument(text):
    """Return an argument as macros: FILE, PID[,PID…], FILE:FUNCTION, [=MIN], self|total."""
    if text.startswith('[='):
        return 'Ns Oo = Ns ' + argument(text[2:-1]) + ' Oc'
    if '|' in text:
        return 'Cm ' + text.replace('|', ' | ')
    one = 'Ar ' + re.sub(r'\[.*', '', text).lower()
    one = re.sub(r'([,:])', r' \1 Ns Ar ', one).replace('=', ' Ns = Ns Ar ')
    return one + (' Ns Oo , Ns Ar ' + one.split()[-1] + ' ... Oc' if '[' in text else '')


def head(names):
    """Return the line of an item: the names of an option, with their arguments."""
    out = []
    for name in names.split(', '):
        option, given = re.match(r'(--?[\w-]+) ?(.*)', name).groups()
        out.append(('Fl ' + option[1:] + ' ' + (argument(given) if given else '')).strip())
    return '.It ' + ' , '.join(out)


def sentence(text, names):
    """Return the lines of a sentence; options, and arguments that the names have, become macros."""
    known = re.findall(r'[A-Z]+', names) + ['COMMAND', 'INPUT']
    lines = ['']
    for word in (text[:1].upper() + text[1:] + ('' if text.endswith('…') else '.')).split():
        m = re.fullmatch(r'(\(?)(?:-(-?[a-zA-Z][\w-]*)|([A-Z]+))([.,;:)]*)', word)
        if m and (m[2] or m[3] in known):
            macro = ['.Fl', m[1], m[2]] if m[2] else ['.Ar', m[1], m[3].lower()]
            lines += [' '.join(filter(None, macro + list(m[4]))), '']
        else:
            lines[-1] += (' ' if lines[-1] else '') + re.sub(r"^([.'])", r'\\&\1', word.replace('\\', '\\e'))
            if len(lines[-1]) > 70 or word.endswith('.'):
                lines.append('')
    return ''.join(line + '\n' for line in lines if line)


def names_of(item):
    """Return the long names in an item's line; they tell which option it is."""
    return re.findall(r'Fl -([\w-]+)', item.split('\n')[0])


def written(program, command, old):
    by_hand = {}
    for item in re.split(r'^(?=\.It )', re.sub(r'^\.El\n\Z', '', old, flags=re.M), flags=re.M)[1:]:
        by_hand[', '.join(names_of(item))] = ''.join(item.partition(MORE)[1:])
    out = ''
    for names, text in options(help_of(program, command)):
        item = head(names)
        out += item + '\n' + sentence(text, names) + by_hand.pop(', '.join(names_of(item)), '')
    gone = [names for names, text in by_hand.items() if text]
    if gone:
        sys.exit('offwind %s has no option --%s, which the page explains' % (command, ' and no --'.join(gone)))
    return '.\\" options of %s\n.Bl -tag -width Ds\n%s.El\n.\\" end of options\n' % (command, out)


def main():
    check = sys.argv[1] == '--check'
    program, *paths = sys.argv[1 + check:]
    pages = {}
    for path in paths:
        with open(path, encoding='utf8') as f:
            pages[path] = f.read()
    listed = sorted(m[1] for page in pages.values() for m in LIST.finditer(page))
    commands = sorted(re.findall(r'^  (\w+) +\S', help_of(program), re.M))
    if listed != commands:
        sys.exit('%s: have lists of options of %s; the commands are %s' % (', '.join(paths), ', '.join(listed), ', '.join(commands)))
    differ = 0
    for path, page in pages.items():
        new = LIST.sub(lambda m: written(program, m[1], m[2]), page)
        if check:
            sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), new.splitlines(True), path, 'make man'))
            differ |= new != page
        else:
            with open(path, 'w', encoding='utf8') as f:
                f.write(new)
    return differ


sys.exit(main())

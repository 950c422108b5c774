#!/usr/bin/env python3
"""Compares the rows of cfi_dump with those of readelf --debug-dump=frames-interp.

usage: cfi_readelf.py CFI_DUMP FILE...

readelf prints "u" also for a register that was never mentioned, so "u" is compared only for x86_64's
return address, which every CIE mentions.  readelf prints a row at each instruction that advances the location;
rows at one location are one row, and the last of them counts.
"""
import re, subprocess, sys

X86 = 'rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip'.split()
NUMBERS = {'x86_64': {n: i for i, n in enumerate(X86)},
           'aarch64': {**{f'x{i}': i for i in range(31)}, 'sp': 31}}
HEAD = re.compile(r'([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+) (CIE|FDE)(.*)')
SECOND_NAME = re.compile(r' \(r\w+\)')  # of a register, after the first
RANGE = re.compile(r'pc=([0-9a-f]+)\.\.([0-9a-f]+)')


def readelf(path):
    """Yields the canonical lines of one file."""
    machine = subprocess.run(['readelf', '-h', path], capture_output=True, text=True).stdout
    numbers = NUMBERS['aarch64' if 'AArch64' in machine else 'x86_64']
    proc = subprocess.Popen(['readelf', '-W', '--debug-dump=frames-interp', path], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, bufsize=1 << 20)
    columns, entry, cies = [], None, {}  # entry: (its CIE's offset, is it an FDE, start, end), row: the last
    row = rows = None
    ra = 16

    def finish():
        if entry and not entry[1] and row:
            cies[entry[0]] = row.split(' ', 1)[1]
        elif entry and entry[1] and rows == 0:
            # An FDE of nops has no rows of its own in readelf: the CIE's row holds throughout.
            yield f'{entry[2]:x} {row.split(" ", 1)[1] if row else cies[entry[0]]}'
        elif entry and entry[1] and row:
            yield row

    for line in proc.stdout:
        line = line.rstrip()
        if not line:
            continue
        if line.startswith('Contents of the '):
            yield from finish()
            entry = row = None
            yield 'section ' + line.split()[3].replace('.zdebug', '.debug')
            continue
        m = HEAD.match(line)
        if m:
            yield from finish()
            row, rows = None, 0
            if m[3] == 'CIE':
                r = re.search(r'ra=(\d+)', m[4])
                ra = int(r[1]) if r else ra
                entry = int(m[1], 16), False, 0, 1 << 64
            else:
                start, end = (int(x, 16) for x in RANGE.search(line).groups())
                entry = int(re.search(r'cie=([0-9a-f]+)', line)[1], 16), True, start, end
                yield f'FDE {int(m[1], 16):x} {start:x} {end:x}'
                if start == end:
                    entry = None  # covers nothing, whatever its rows say
            continue
        fields = SECOND_NAME.sub('', line).split()
        if fields[0] == 'LOC':
            columns = [ra if n == 'ra' else numbers.get(n) for n in fields[2:]]
            continue
        if not entry or len(fields) < 2 or len(fields[0]) != 16:
            continue
        loc = int(fields[0], 16)
        cfa = fields[1]
        m = re.match(r'(\w+?)([+-]\d+)$', cfa)
        if m:
            cfa = f'{numbers.get(m[1], m[1])}{m[2]}'
        rules = []
        for reg, text in zip(columns, fields[2:]):
            if reg is None or (text == 'u' and (reg != ra or ra != 16)):
                continue
            text = numbers.get(text, text[1:] if re.fullmatch(r'r\d', text) else text)
            rules.append((reg, f' {reg}={text}'))
        new = f'{loc:x} {cfa}' + ''.join(t for _, t in sorted(rules))
        if loc >= entry[3]:
            continue
        if row and row.split()[0] != f'{loc:x}' and entry[1]:
            yield row
        row = new
        rows += 1
    yield from finish()
    proc.wait()


def main():
    dump, failed, total = sys.argv[1], 0, 0
    for path in sys.argv[2:]:
        ours = subprocess.Popen([dump, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                bufsize=1 << 20)
        rows, shown, fde = 0, 0, ''
        for want in readelf(path):
            got = ours.stdout.readline().rstrip('\n')
            rows += 1
            if want.startswith('FDE'):
                fde = want
            if got != want:
                shown += 1
                if shown <= 5:
                    print(f'{path}: {fde}\n  readelf  {want}\n  ours     {got}')
                break
        rest = ours.stdout.read()
        err = ours.stderr.read().strip().splitlines()
        ours.wait()
        if shown == 0 and rest:
            print(f'{path}: more rows than readelf: {rest[:200]}')
        if ours.returncode:
            print(f'{path}: ' + '\n'.join(err[:5]))
        failed += bool(shown or rest or ours.returncode)
        total += rows
        print(f'{path}: {rows} lines; {err[-1] if err else ""}')
    print(f'{total} lines of {len(sys.argv) - 2} files compared, {failed} files differ')
    return failed != 0 or total == 0


sys.exit(main())

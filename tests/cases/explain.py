"""Compares offwind explain's JSON and text with the walk's own frames, or with readelf."""
import json
import os
import re
import subprocess
import sys


def fail(*what):
    print(*what)
    sys.exit(1)


def against_walk(name, steps, text, tsv):
    s = json.load(open(steps))
    rows = [r for r in (l.rstrip('\n').split('\t') for l in open(tsv)) if r[0] == name]
    if len(rows) != len(s['frames']):
        fail(name, 'frames', len(s['frames']), 'of', len(rows))
    for i, (row, f) in enumerate(zip(rows, s['frames'])):
        if f['module'] != row[2] or f.get('function', '-') != row[4] or f['stepper'] != row[6]:
            fail(name, i, f, row)
        if f.get('differs'):
            fail(name, i, 'differs')
        if f['stepper'] == 'kernel':
            continue
        if i + 1 < len(s['frames']):
            ra, after = f['ra'], s['frames'][i + 1]
            # aarch64 return addresses may carry an authentication code above the address.
            if not f['found'] or (int(ra['value'], 16) ^ int(after['pc'], 16)) & (1 << 39) - 1:
                fail(name, i, 'return address', ra, after['pc'])
            if f['next_stepper'] != after['stepper']:
                fail(name, i, f['next_stepper'], after['stepper'])
            if f['confidence'] != rows[i + 1][8]:
                fail(name, i, 'confidence', f['confidence'], rows[i + 1])
            if f['confidence'] != 'rule' and after['stepper'] not in ('fp', 'leaf', 'prologue', 'scan'):
                fail(name, i, f['confidence'])
        if 'row' in f:
            v = int(f['object']['vaddr'], 16)
            for part in 'fde', 'row':
                if not int(f[part]['start'], 16) <= v < int(f[part]['end'], 16):
                    fail(name, i, part, f)
    if s['stop'] != rows[-1][7] or (s['stop'] == 'truncated') != ('missing' in s):
        fail(name, 'stop', s['stop'], rows[-1][7])
    last = s['frames'][-1]
    if s['stop'] in ('no_unwind_info', 'no_object') and [t['stepper'] for t in last['tried'] if t['stepper'] != 'prologue'] != ['leaf', 'fp', 'scan']:
        fail(name, 'nothing tried', last)
    if any('tried' in f for f in s['frames'][:-1]):
        fail(name, 'tried, and led on')
    if not os.path.exists(text):
        return
    t = open(text).read()
    if len(re.findall(r'^#\d+ ', t, re.M)) != len(rows) or 'stop: ' + s['stop'] not in t:
        fail(name, t)


def against_readelf(steps, elf):
    """Return the row's CFA and the slot of the return address."""
    s = json.load(open(steps))
    out = subprocess.run(['readelf', '-wF', elf], capture_output=True, text=True, check=True).stdout
    fdes = re.findall(r'FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)\n((?:.+\n)*)', out)
    n = 0
    for f in s['frames']:
        if 'row' not in f or f['module'] != elf.split('/')[-1]:
            continue
        start, end = int(f['fde']['start'], 16), int(f['fde']['end'], 16)
        mine = [x for x in fdes if (int(x[0], 16), int(x[1], 16)) == (start, end)]
        if not mine:
            fail('readelf has no FDE', f['fde'])
        rows = [r.split() for r in mine[0][2].splitlines()]
        head = rows[0]
        row = [r for r in rows[1:] if int(r[0], 16) == int(f['row']['start'], 16)]
        if not row:
            fail('readelf has no row', f['row'])
        cells = dict(zip(head, row[0]))
        if cells['CFA'] != '%s%+d' % (f['cfa']['register'], f['cfa']['offset']):
            fail('cfa', cells, f['cfa'])
        if int(cells['ra'][1:]) != int(f['ra']['address'], 16) - int(f['cfa']['value'], 16):
            fail('ra', cells, f['ra'])
        for r in f['registers']:
            want = cells.get(r['register'])
            if r['place'] == 'memory' and want != 'c%+d' % (int(r['address'], 16) - int(f['cfa']['value'], 16)):
                fail('register', cells, r)
        n += 1
    if n < 3:
        fail('only', n, 'frames to compare')
    print(n, 'rows as readelf has them')


if sys.argv[1] == '--readelf':
    against_readelf(*sys.argv[2:])
else:
    against_walk(*sys.argv[1:])

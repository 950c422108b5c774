#!/usr/bin/env bash
# Fuzzes whole walks: hostile unwind information, code, registers and stack (tests/fuzz/fuzz_uw_walk.c).
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/walk.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_uw_walk"
python3 tests/fuzz/gopclntab.py "$work/gopclntab" 0x10000
python3 - "$work/gopclntab" "$work/fuzz_uw_walk" <<'PY'
import struct
import sys

CODE, INFO, STACK = 0x10000, 0x20000, 0x70000
AARCH64, DEBUG, GO, HEADER, SCAN, STRIPPED, CHANGED, GENERATED = 1, 2, 4, 8, 16, 32, 64, 128
DEREF = bytes([22, 16, 4, 0x77, 0, 6, 0x23])  # DW_CFA_val_expression: rip = *(rsp + 0) + the next byte


def entry(ident, body):
    body += bytes(-(len(body) + 4) % 8)
    return struct.pack('<Ii', len(body) + 4, ident) + body


def frames(column, initial, rows, augmentation=b'zR\0', more=b'\x1b'):
    cie = entry(0, b'\1' + augmentation + bytes([1, 0x78, column, len(more)]) + more + initial)
    out = cie
    for start, size, program in rows:
        at = len(out)
        fde = entry(at + 4, struct.pack('<iI', start - (INFO + at + 8), size) + b'\0' + program)
        out += fde
    return out + bytes(4)


def debug(column, initial, rows):
    out = entry(-1, b'\1\0' + bytes([1, 0x78, column]) + initial)
    for start, size, program in rows:
        out += entry(0, struct.pack('<QQ', start, size) + program)
    return out


def header(info, n_cie):
    start = len(info)
    table = struct.pack('<BBBBiI', 1, 0x1b, 3, 0x3b, -(start + 4), 1)
    table += struct.pack('<ii', CODE - INFO - start, n_cie - start)
    return info + table.ljust(64, b'\0')


def seed(name, flags, info, code, words, sp=0, pc=0x48, fp=5):
    regs = bytearray([0xc0] * 33)
    a, b, c = (31, 32, 29) if flags & AARCH64 else (7, 16, 6)
    regs[a], regs[b], regs[c] = sp, pc, fp
    stack = struct.pack(f'<{len(words)}Q', *words)
    open(f'{sys.argv[2]}/{name}', 'wb').write(
        bytes([flags]) + regs + struct.pack('<HH', len(info), len(code)) + info + code + stack)


call = bytes([0x55, 0x48, 0x89, 0xe5] + [0x90] * 12 + [0xe8, 0, 0, 0, 0]) + b'\x90' * 43
x86, initial = call * 4, bytes([12, 7, 8, 0x90, 1])
rows = [(CODE, 64, b'\x44\x0e\x18'), (CODE + 64, 64, b'\x0c\6\x10\x86\2'), (CODE + 128, 64, DEREF + b'\0'),
        (CODE + 192, 60, b'\7\x10')]
third = [CODE + 21 if i % 3 == 2 else STACK + 8 * i + 16 for i in range(40)]
chain = [CODE + 85 if i % 2 else STACK + 8 * i + 16 for i in range(40)]
info = frames(16, initial, rows)
seed('eh', 0, info, x86, third)
seed('eh_header', HEADER | CHANGED, header(info, 24), x86, third)
seed('eh_stripped', HEADER | STRIPPED, header(info, 24), x86, third)
seed('debug', DEBUG | CHANGED, debug(16, initial, rows), x86, third)
seed('frame_pointer', 0, info, x86, chain, pc=0x7f, fp=2)
seed('expression', 0, frames(16, initial, [(CODE, 64, DEREF + b'\0')]), x86, third)
seed('signal', 0, frames(16, initial, rows, b'zRS\0'), x86, third)
seed('no_rules', 0, b'', x86, chain, fp=0)
seed('scan', SCAN, b'', x86, third, fp=0x7f)
seed('generated', GENERATED | STRIPPED, info, x86, [0x40015 if w == CODE + 21 else w for w in third], pc=0xc8)
seed('go', GO, open(sys.argv[1], 'rb').read(), x86, [CODE + 21 if i % 6 == 5 else 0 for i in range(40)])
arm = (struct.pack('<4I', 0xa9be7bfd, 0x910003fd, 0x94000004, 0xd503201f) + b'\x1f\x20\x03\xd5' * 12) * 4
arm_rows = [(CODE, 64, b'\x44\x0e\x20\x9d\4\x9e\3'), (CODE + 64, 64, b'\x2d\x44\x0e\x20\x9d\4\x9e\3')]
fourth = [CODE + 12 if i % 4 == 1 else STACK + 8 * i + 32 for i in range(40)]
seed('aarch64', AARCH64, frames(30, b'\x0c\x1f\0', arm_rows), arm, fourth)
seed('aarch64_debug', AARCH64 | DEBUG, debug(30, b'\x0c\x1f\0', arm_rows), arm, fourth)
seed('aarch64_none', AARCH64, b'', arm, chain, fp=0)
PY
FUZZ_RSS_MB=1024 tests/fuzz/run uw_walk 8000 8192 "$work/fuzz_uw_walk"

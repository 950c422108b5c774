#!/usr/bin/env bash
# Fuzzes what a recording reads of other processes: their memory, and the records of the kernel.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/memory.seeds
rm -rf "$work"
mkdir -p "$work"/{hotspot,record}
python3 - "$work" <<'PY'
import struct, sys
work = sys.argv[1]
# Changes of a sound machine: a place, a length, bytes.
for how in range(8):
    for name, changes in {
        'none': b'',
        'first': struct.pack('<HB8s', 64 + how * 8, 8, b'\xff' * 8) + b'\0\0\0',
        'later': b'\0\0\0' + struct.pack('<HB8s', 0x1800 + how * 128, 8, bytes(8)) + b'\0\0\0',
    }.items():
        open(f'{work}/hotspot/{name}{how}', 'wb').write(bytes([how]) + changes)
# No heap of this machine has a whole segment.
open(f'{work}/hotspot/segments', 'wb').write(bytes.fromhex('20a0002180feffffffff5dffffff'))
# schema/capture.h: a sample, with a second stack, holes, an allocation, and with a kernel stack.
for name, flags, interrupted, kernel, more in (('plain', 1, 0, 0, 0), ('second', 1, 40, 0, 8 + 40), ('kernel', 1, 0, 16, 16),
                                               ('holes', 0x11, 0, 0, 40), ('alloc', 0x2001, 0, 0, 24)):
    head = struct.pack('<IIHHHHIIIIQQQQ', 0, 0, flags, kernel // 8, 0, 1, 7, 8, 7, interrupted, 1, 2, 3, 4)
    head += struct.pack('<17Q', *(0x7000 + 8 * i for i in range(17))) + b'name'.ljust(16, b'\0')
    open(f'{work}/record/{name}', 'wb').write(b'\2' + head + bytes(600 + more))
# perf_event_open(2): fork, exit, two names, a mapping by inode and one by build-id, lost records.
ident = struct.pack('<IIQQII', 7, 8, 99, 1, 0, 0)
task = struct.pack('<IIIIQ', 7, 1, 8, 1, 9)
mapping = struct.pack('<IIQQQ', 7, 8, 0x1000, 0x2000, 0)
for name, kind, misc, body in (('fork', 7, 0, task), ('exit', 4, 0, task), ('comm', 3, 0, struct.pack('<II8s', 7, 8, b'name')),
                               ('exec', 3, 1 << 13, struct.pack('<II8s', 7, 8, b'name')),
                               ('inode', 10, 0, mapping + struct.pack('<IIQQII24s', 8, 1, 5, 6, 5, 2, b'/bin/x (deleted)')),
                               ('build_id', 10, 1 << 14, mapping + struct.pack('<B3x20sII8s', 20, bytes(range(20)), 5, 2, b'/bin/x')),
                               ('lost', 2, 0, struct.pack('<QQ', 1, 5))):
    record = struct.pack('<IHH', kind, misc, 8 + len(body) + len(ident)) + body + ident
    for mode in 1, 3:
        open(f'{work}/record/{name}{mode}', 'wb').write(bytes([mode]) + record)
PY
tests/fuzz/run hotspot 2000 1000 "$work/hotspot"
tests/fuzz/run live_record 100000 2000 "$work/record"

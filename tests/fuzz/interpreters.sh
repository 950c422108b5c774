#!/usr/bin/env bash
# Fuzzes the readers of the stacks of interpreters: PHP, Ruby, Perl.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/interpreters.seeds
rm -rf "$work"
mkdir -p "$work"
python3 - "$work" <<'PY'
import struct, sys
work = sys.argv[1]
# Changes of sound memory: which interpreter, then a place, a length, bytes.
for kind in range(4):
    for i, place in enumerate(range(0x1000, 0x2800, 0x80)):
        for name, value in ('all', b'\xff' * 8), ('none', bytes(8)), ('there', struct.pack('<Q', 0x7f0000000000 + place)):
            open(f'{work}/{kind}-{i}-{name}', 'wb').write(bytes([kind]) + struct.pack('<HB8s', place, 8, value) + b'\0\0\0')
    open(f'{work}/{kind}', 'wb').write(bytes([kind]) + b'\0\0\0' * 3)
PY
tests/fuzz/run interpreters 20000 1000 "$work"

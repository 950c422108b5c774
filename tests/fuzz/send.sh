#!/usr/bin/env bash
# Fuzzes what receivers of windows reply (tests/fuzz/fuzz_send.c), from replies of each kind.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/send.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_send"
python3 - "$work/fuzz_send" <<'PY'
import sys

rejected = b'\x0a\x09\x08\x05\x12\x05a \x07 b'
bodies = [b'', rejected, b'\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01', b'\x08\x03\x12\x04why?', b'<html>\x1b[31m', b'a%20b%zz%c3%bc larger than max', b'too large']
frames = [bytes([flag]) + len(b).to_bytes(4, 'big') + b for b in bodies for flag in (0, 1)] + [b'\0\0', b'\0\xff\xff\xff\xff']
seeds = [bytes([status, kind, 0]) + b for status in range(10) for kind in range(4) for b in bodies]
seeds += [bytes([0, 0x81, code]) + b for code in range(20) for b in (bodies if code != 1 else frames)]
for i, seed in enumerate(seeds):
    open(f'{sys.argv[1]}/{i}', 'wb').write(seed)
PY
tests/fuzz/run send 20000 512 "$work/fuzz_send"

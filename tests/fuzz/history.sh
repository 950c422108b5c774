#!/usr/bin/env bash
# Fuzzes the history with rows that somebody else wrote (tests/fuzz/fuzz_history.c).
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/history.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_history"
python3 - "$work/fuzz_history" <<'PY'
import struct
import sys

NOW = 1700000000000000000
WINDOW, NODE, FAR_NODE, FRAME, FRAMES, FUNCTION, MODULE, LABELS, TYPE, BYTES, COUNTER = range(11)


def row(kind, a, b, blob=b''):
    return struct.pack('<BqqH', kind, a, b, len(blob)) + blob


names = b''.join([
    row(MODULE, 1, 0, b'/bin/a'), row(FUNCTION, 1, 7, b'main'), row(FUNCTION, 2, 9, b'work<b>'),
    row(FRAME, 1, 1, b'\1\5'), row(FRAME, 2, 1, b'\2\7\1\5'), row(TYPE, 1, 0, b'samples'), row(TYPE, 2, 0, b'cpu'),
    row(LABELS, 1, 0, b'{"comm":"a"}'), row(LABELS, 2, 0, b'{"comm":"b","n":5}'),
    row(NODE, 1, 1 << 8), row(NODE, 2, 1 | 2 << 8), row(NODE, 3, 2 | 2 << 8), row(NODE, 40, 2 | 1 << 8),
])
# Two groups: labels 1, threads 5/6, node 2; labels 2, node 40. Values of both types; two times.
groups = b'\1\5\6\2\3\1\2\2\x0a', b'\1\x7f\x7f\x26\0\1\x7f'
times = b'\2\5\1', b'\1\7'
blobs = [b'\1\0' + groups[0] + times[0] + groups[1] + times[1], b'\1\1' + groups[0] + groups[1],
         b'\1\2\1\0\0\3\2\1\5', b'\1\0']
# The first group, and one of its thread at node 40 whose values are a multiple of the first's: as packed today.
heads = b'\3', b'\x98\1\3'
blobs += [b'\2\0' + heads[0] + groups[0] + times[0] + heads[1] + times[1], b'\2\1' + heads[0] + groups[0] + heads[1]]
day = 86400 * 10**9
windows = b''.join(row(WINDOW, NOW - at, 10**10 // 4 * 4 | level, blob) + row(COUNTER, i, 3)
                   for i, (at, level, blob) in enumerate(
    [(day // 100, 0, blobs[0]), (day, 0, blobs[0]), (day - 10**9, 0, blobs[4]), (3 * day, 1, blobs[1]),
     (3 * day + 10**9, 1, blobs[5]), (3 * day, 0, blobs[0]), (9 * day, 2, blobs[2]), (50 * day, 0, blobs[3])]))
for mode in (*range(128), *range(128, 256, 8)):
    open(f'{sys.argv[1]}/{mode}', 'wb').write(bytes([mode]) + names + windows)
open(f'{sys.argv[1]}/small', 'wb').write(b'\x4f' + names + windows + row(BYTES, 4096, 0))
# Equal samples that have no value.
open(f'{sys.argv[1]}/untyped', 'wb').write(bytes.fromhex('63060100000000000000000000000000000000000009000000000000000700776f726b3c623e030100000080000000000100000000000000020001050302000000000000000100000400000006000002070105080100000000000003000000000000000000'))
# Parents that loop, ids of all bits, labels that are no JSON, frames without lines.
open(f'{sys.argv[1]}/far', 'wb').write(
    b'\x4f' + names + row(FAR_NODE, 1, 2) + row(FAR_NODE, 2, 1) + row(FAR_NODE, 2**63 - 1, 2**63 - 2) +
    row(FAR_NODE, 3, -1) + row(FRAMES, 1, 0, b'\5\2\4\1\5\0\2\6\0\7\x09\2\5\xff') + row(LABELS, 1, 0, b'{') + row(TYPE, 2**62, 0, b'x') + windows)
PY
FUZZ_RSS_MB=1024 tests/fuzz/run history 2000 4096 "$work/fuzz_history"

#!/usr/bin/env bash
# Tests that DuckDB reads from a Parquet file what offwind report -f jsonl, which shares no code with its writer, prints.
set -u
command -v node >/dev/null || { echo "needs node"; exit 77; }
work=$BUILD/diff/parquet
rm -rf "$work"; mkdir -p "$work"
samples=tests/cases/perfdata
offwind=$BUILD/offwind
failed() { echo "$1"; exit 1; }

"$offwind" unwind -q -o "$work/one.pb.gz" $samples/file.data 2>/dev/null || exit 1
"$offwind" unwind -q -o "$work/events.pb.gz" $samples/events.data 2>/dev/null || exit 1
# More rows than a group has; stacks without frames, samples without labels; lines, runs, numbers of all sizes.
python3 - "$work" <<'PY' || exit 1
import sys

def varint(n):
    out = b""
    while n > 0x7f:
        out, n = out + bytes([n & 0x7f | 0x80]), n >> 7
    return out + bytes([n])
def number(field, n): return varint(field << 3) + varint(n & (1 << 64) - 1)
def part(field, b): return varint(field << 3 | 2) + varint(len(b)) + b
def profile(n_samples, n_functions, depth, label, last=12):
    texts = ["", "samples", "count", "cpu", "nanoseconds", "time", "x", "/usr/bin/prog", "0123456789abcdef0123456789abcdef01234567", "n", "comm", "end_timestamp_ns", "wall"]
    first = len(texts)
    texts += [f"function<{i}>é" for i in range(n_functions)] + [f"file{i}.c" for i in range(n_functions)]
    out = part(1, number(1, 1) + number(2, 2)) + part(1, number(1, 3) + number(2, 4)) + part(1, number(1, 5) + number(2, 6)) + part(1, number(1, last) + number(2, 6))
    out += part(3, number(1, 1) + number(2, 0x1000) + number(3, 0xffffffffffff0000) + number(5, 7) + number(6, 8))
    for i in range(n_functions):
        out += part(5, number(1, i + 1) + number(2, first + i) + number(3, first + i) + (number(4, first + n_functions + i) if i % 3 else b""))
        lines = [number(1, i + 1) + (number(2, i) if i % 4 else b"")] + ([number(1, i // 2 + 1) + number(2, 7)] if i % 5 == 0 else [])
        out += part(4, number(1, i + 1) + (number(2, 1) if i % 7 else b"") + number(3, 0x2000 + i * 0x1000001) + b"".join(part(4, l) for l in lines))
    chunks = [out]
    for s in range(n_samples):
        stack = [(s * 31 + k * 17) % n_functions + 1 for k in range(s % (depth + 1))]
        body = b"".join(number(1, l) for l in stack) + b"".join(number(2, v) for v in (1 + s % 3, s * 1000003, -s, 1 << 62))
        if label:
            body += part(3, number(1, 9) + number(3, s)) + (part(3, number(1, 10) + number(2, first + s % n_functions)) if s % 2 else b"")
        if label and s % 3 == 0:
            body += part(3, number(1, 11) + number(3, 1700000000000000000 + s))
        chunks.append(part(2, body))
    return b"".join(chunks) + b"".join(part(6, t.encode()) for t in texts) + number(9, 1600000000123456789) + number(10, 10**10)
for name, args in (("rows", (140000, 10, 1, True)), ("frames", (400, 5000, 900, True)), ("few", (9, 1, 3, False)), ("seven", (7, 7, 7, True)), ("bare", (1, 1, 0, False)), ("twice", (1, 1, 1, False, 3))):
    open(f"{sys.argv[1]}/{name}.pb", "wb").write(profile(*args))
# A sample type whose name is cut for a column, where a character of two bytes would be.
open(f"{sys.argv[1]}/long.pb", "wb").write(profile(3, 2, 2, False).replace(part(6, b"wall"), part(6, ("a" + "é" * 20).encode())))
PY
for p in one.pb.gz events.pb.gz rows.pb frames.pb few.pb seven.pb bare.pb long.pb; do
	"$offwind" report -f jsonl -o "$work/$p.jsonl" "$work/$p" && "$offwind" report -o "$work/$p.parquet" "$work/$p" || failed "$p is not written"
	"$offwind" report -f parquet "$work/$p" | cmp - "$work/$p.parquet" || failed "$p: other bytes"
done
# Two types of one name are two columns.
"$offwind" report -o "$work/twice" -f parquet "$work/twice.pb" || failed "two types of one name"
exec timeout 300 node tests/diff/parquet.mjs "$BUILD/npm/tests/node_modules" "$work"/*.parquet

#!/usr/bin/env bash
# Fuzzes what a fleet's server replies (tests/fuzz/fuzz_fleet.c), from sound replies to each question.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/fleet.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_fleet"
python3 - "$work/fuzz_fleet" <<'PY'
import struct
import sys

NOW = 1700000000
def u32(n): return struct.pack("<I", n)
def u64(n): return struct.pack("<Q", n)
def leb(n):
    out = b""
    while n > 0x7f:
        out, n = out + bytes([n & 0x7f | 0x80]), n >> 7
    return out + bytes([n])
def text(t): return leb(len(t.encode())) + t.encode()
def array(values): return leb(len(values)) + b"".join(values)

types = b"".join(u32(i) + text(t) + text(u) + text(c) for i, t, u, c in
                 [(1, "alloc_space", "bytes", "alloc_objects"), (2, "cpu", "nanoseconds", "samples"), (3, "wall", "nanoseconds", "")])
def batches(twice=1): return u64(3) + u64(300) + u64(NOW - 1200) + u64(NOW - 600) + u64(twice) + u64(77)
there, agree, differ = u64(1), u64(3) + u64(77), u64(4) + u64(77)
def sums(value="", labels=0): return b"".join(u64(s) + u64(labels and s) + text(value) + u64(s) + u64(s * 1000) for s in (5, 6, 7))
stacks = u64(5) + array([u64(11), u64(12)]) + u64(6) + array([u64(12)]) + u64(5) + array([u64(11), u64(12)])
def name(frame, functions, version=1):
    return (u64(frame) + text("abcd") + u64(0x1000 + frame) + text("/usr/bin/prog") + array([text(f) for f in functions]) +
            array([text("a.c") for f in functions]) + array([u32(7) for f in functions]) + u64(version))
names = name(11, ["inner", "outer"]) + name(12, []) + name(11, ["newer"], 2)
sets = b"".join(u64(s) + array([text("comm"), text("stop")]) + array([text("prog"), text("truncated")]) for s in (5, 6, 7))
points = b"".join(u64(NOW - t) + text(v) + u64(3) + u64(3000) for t in (900, 600, 300) for v in ("prog", ""))
large = b"".join(u64(NOW - 300) + text("prog") + u64(3) + u64(2**63 - 1) for _ in range(2))
def seed(line, *replies): return line.encode() + b"\n" + b"".join(struct.pack("<H", len(r)) + r for r in replies)

whole = [types, batches(), there, agree, sums(), stacks, names]
labelled = [types, batches(), sums(), stacks, names]
seeds = [seed(f"/api/v1/{path}?from=-1h{more}", *whole) for path in ("top", "flamegraph") for more in
         ("", "&focus=^main$&ignore=x&module=lib", "&type=samples", "&type=wall", "&comm=a,b\\,c&stop=root&host=h'1\\", "&container_id=abc,d", "&focus=^mai" + 60 * "+", "&pid=4", "&focus=(")]
seeds += [seed(f"/api/v1/top?from=-1h{more}", *labelled) for more in ("&comm=a,b\\,c&stop=root&host=h'1\\", "&container_id=abc,d")]
seeds += [seed("/api/v1/top?from=-1h", types, batches(), *rest, sums(), stacks, names) for rest in ((u64(0),), (there, differ), (there, b"x"))]
seeds += [seed("/api/v1/top?from=-1h&base_from=-2h&base_to=-1h&base.host=b", *whole, *labelled),
          seed("/api/v1/flamegraph?from=-1h&by=comm", types, batches(), sums("prog"), stacks, names),
          seed("/api/v1/top?from=-1h&by=host", types, batches(2), sums("host-1")),
          seed("/api/v1/completeness?from=-1h", types, batches(), sums("truncated"), stacks, names),
          seed("/api/v1/labels?from=-1h&key=comm", types, batches(), points),
          seed("/api/v1/labels?from=-1h&key=host&n=1", types, batches(), points),
          seed("/api/v1/timeline?from=-1h&by=comm", types, batches(), points),
          seed("/api/v1/heatmap?from=-1h", batches(), types, batches(), there, agree, points),
          seed("/api/v1/heatmap?from=-1h&rows=7&step=60000", batches(), types, batches(), there, agree, points),
          seed("/api/v1/heatmap?from=-1h", batches(), types, batches(), large),
          seed("/api/v1/timeline?from=-1h&step=3600000", types, batches(), large),
          seed("/api/v1/labels", text("comm") + text("host") + text("stop"), types),
          seed("/api/v1/counters?from=-1h", text("fired") + text("") + u64(9) + text("lost") + text("ring_full") + u64(1) + text("lost") + text("self") + u64(2)),
          seed("/readyz", batches()), seed("/")]
seeds += [seed(f"/api/v1/profile?from=-1h&format={f}", types, batches(), sums("host-1", 1), stacks, names, sets) for f in ("pprof", "folded", "jsonl", "firefox")]
seeds += [seed("/api/v1/top?from=-1h", types, batches(), there, agree, b"".join(u64(s) + u64(0) + text("") + u64(1) + u64(9) for s in range(1, 51)), u64(90) + u64(900), stacks, names)]
def asked(build_id, frame, vaddr): return text(build_id) + text("/usr/bin/prog") + u64(frame) + u64(vaddr)
def found(row, *functions): return leb(row) + leb(len(functions)) + b"".join(text(f) + text("a.c") + u32(7) for f in functions)
rows = asked("ab'\\", 11, 0x10) + asked("ab'\\", 12, 0x20) + asked("cd", 13, 0x10)
seeds += [seed("names", rows, found(0, "inner", "outer") + found(2, "main")), seed("names", rows, found(1, "f") + found(1, "g")),
          seed("names", rows, found(3, "f")), seed("names", rows, b""), seed("names", b"", found(0, "f"))]
for i, one in enumerate(seeds):
    open(f"{sys.argv[1]}/{i}", "wb").write(one)
PY
FUZZ_RSS_MB=1024 tests/fuzz/run fleet 4000 4096 "$work/fuzz_fleet"

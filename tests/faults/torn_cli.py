#!/usr/bin/env python3
"""Damages recordings in many ways and unwinds each with the sanitizer build.

usage: torn_cli.py PROGRAM DIRECTORY SECONDS RECORDING…

Whatever the damage is, offwind unwind ends within its time, prints at most one error, which gives the file and
an offset, and returns 0 (nothing is missing), 3 (incomplete, with a result) or 1 (nothing could be read).
"""
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import time

program, folder, seconds, recordings = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]
choose = random.Random(1)
environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:exitcode=99",
                   UBSAN_OPTIONS="print_stacktrace=1", HOME=folder)
MAGICS = [b"PERFILE2" + (104).to_bytes(8, "little") + (144).to_bytes(8, "little"), b"PERFILE2" + (16).to_bytes(8, "little"),
          b"2ELIFREP", b"PERFFILE"]


def damaged(data, magic):
    """Yield (what was done, the bytes) without end."""
    n = len(data)
    edges = [0, 1, 7, 8, 15, 16, 17, 103, 104, 105, n - 1, n - 8, n - 9]
    for at in edges:
        if 0 <= at < n:
            yield f"cut at {at}", data[:at]
    while True:
        yield "cut", data[: choose.randrange(n)]
        at, bad = choose.randrange(n), bytearray(data)
        bad[at] ^= 1 << choose.randrange(8)
        yield f"bit of {at}", bytes(bad)
        at = choose.randrange(min(n, 400))
        bad = bytearray(data)
        bad[at] = choose.choice((0, 0x7F, 0x80, 0xFF))
        yield f"byte {at} of the head", bytes(bad)
        bad = bytearray(data)
        for _ in range(20):
            bad[choose.randrange(n)] = choose.randrange(256)
        yield "twenty bytes", bytes(bad)
        at, size = choose.randrange(n), choose.randrange(1, 4096)
        yield f"{size} bytes missing at {at}", data[:at] + data[at + size:]
        yield f"{size} random bytes put in at {at}", data[:at] + choose.randbytes(size) + data[at:]
        at = choose.randrange(n & ~7) & ~7
        yield f"a huge word at {at}", data[:at] + choose.choice((b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 8)) + data[at + 8:]
        yield "random bytes behind the magic", magic + choose.randbytes(choose.randrange(1, 8192))


def inputs():
    sources = []
    for path in recordings:
        data = open(path, "rb").read()
        magic = data[:16] if path.endswith(".owc") else choose.choice(MAGICS)
        sources.append((os.path.basename(path), damaged(data, magic)))
    while True:
        for name, source in sources:
            yield name, *next(source)


def check(number, name, what, data):
    path = f"{folder}/{number}-{name}"
    out = f"{folder}/{number}.out"
    with open(path, "wb") as f:
        f.write(data)
    form = ("pprof", "tsv", "folded", "text")[number % 4]
    pipe = number % 5 == 0 and len(data) < 60000
    command = [program, "unwind", "-q", "--format", form, "-o", out, "-" if pipe else path]
    try:
        done = subprocess.run(command, input=data if pipe else None, stderr=subprocess.PIPE, env=environment, timeout=60,
                              stdin=None if pipe else subprocess.DEVNULL)
        code, said = done.returncode, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired:
        code, said = "no end", ""
    errors = [l for l in said.splitlines() if not l.startswith("offwind: warning: ")]
    named = r"offwind: (standard input|%s): offset (0x[0-9a-f]+|\d+): \S" % re.escape(path)
    # A pipe may end after any record; all other inputs show that their end is missing.
    lacks = what.startswith("cut") and "pipe" not in name
    good = (
        code == 0 and not errors and os.path.exists(out) and not lacks
        or code == 3 and len(errors) == 1 and re.match(named, errors[0]) and os.path.exists(out)
        or code == 1 and len(errors) == 1 and re.match(named, errors[0]) and not os.path.exists(out)
    )
    if good:
        os.unlink(path)
    else:
        print(f"{name}, {what}: {' '.join(command)}\n  exit {code}, wrote {'a' if os.path.exists(out) else 'no'} result\n  {said[:3000]}")
    if os.path.exists(out):
        os.unlink(out)
    return good, code


def main():
    ends, codes, bad, end = 0, {}, 0, time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        todo = ((i, *x) for i, x in enumerate(inputs()))
        # On a slow machine the time may be over before there was a partial result.
        while bad < 5 and (time.monotonic() < end or (ends < 2000 and not (codes.get(1) and codes.get(3)))):
            for good, code in pool.map(lambda job: check(*job), [next(todo) for _ in range(16)]):
                codes[code] = codes.get(code, 0) + 1
                bad += not good
                ends += 1
    print(f"{ends} damaged files, exit codes {codes}")
    # Most cuts leave a partial result; if none did, this would test nothing.
    sys.exit(bool(bad) or not codes.get(3) or not codes.get(1))


main()

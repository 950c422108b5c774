#!/usr/bin/env bash
# Fuzzes the processes that a worker in the sandbox talks to.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/roles.seeds
rm -rf "$work"
mkdir -p "$work"/{opener,supervisor,capture}
python3 - "$work" <<'PY'
import struct
import sys

# agent/opener/request.c: put_request
def number(n):
    return struct.pack("<Q", n & (1 << 64) - 1)

def text(t):
    return number(-1) if t is None else number(len(t) + 1) + t.encode() + b"\0"

USER = bytes(4 * 8 + 32 * 4)
ID = bytes(33)

def request(what, opener=1, path="", link=None, name=None, directory=None, live=0, flag=0):
    options = number(live) + number(0) + number(0) + 4 * text(None)
    file = b"".join(map(number, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0])) + ID + USER + text(path)
    whole = b"".join(map(number, [what, opener, 0, 1, 1, flag])) + options + file + ID + USER
    whole += text(link) + text(name) + text(directory)
    if what == 18:  # parts of a memory
        whole += b"".join(map(number, [2, 4096, 8, 0, 0]))
    return struct.pack("<H", len(whole)) + whole

secret = "/tmp/fuzz_opener.secret"
for what in range(21):
    for live in 0, 1:
        seed = request(0, live=live)
        for path in "/bin/true", secret, "":
            seed += request(what, path=path, link="fuzz_opener.secret", name=secret, flag=1)
        open(f"{sys.argv[1]}/opener/{what}-{live}", "wb").write(seed)

# agent/role/files.c: a kind, a number, a text; FILES_OPEN and those that follow it
def send(*requests):
    out = b""
    for what, value, path, directory in requests:
        body = number(what) + number(value) + text(path)
        out += struct.pack("<H", len(body) | directory << 15) + body
    return out

paths = ["input", "folder", "folder/file", "folder/../secret", "secret", "output", "statistics",
         "windows/offwind-20260131T235959Z.pb.gz",
         "windows/offwind-0-notes.txt", "/tmp/perf-1.map", "file", "..", None]
for what in range(12):
    seed = send(*[(what, i % 2, path, what == 1) for i, path in enumerate(paths[:6])])
    open(f"{sys.argv[1]}/supervisor/{what}", "wb").write(seed)
    seed = send(*[(what, i % 2, path, what == 1) for i, path in enumerate(paths[6:12])])
    open(f"{sys.argv[1]}/supervisor/{what}-others", "wb").write(seed)
open(f"{sys.argv[1]}/supervisor/result", "wb").write(send((4, 0, "output", 0), (4, 1, "statistics", 0), (5, 0, "", 0), (6, 1, "", 0)))
window = "windows/offwind-20260131T235959Z.pb.gz"
open(f"{sys.argv[1]}/supervisor/keep", "wb").write(send((4, 0, window, 0), (5, 0, "", 0), (9, 0, "", 0)))

# agent/live/capture_internal.h: a kind, two numbers, and of CAPTURE_FILE, CAPTURE_SYMBOLS and CAPTURE_PLAN more
steps = b""
for what in [0, *range(9)]:
    more = {6: number(7) + text("/bin/true"), 7: number(1) + number(2) + number(6), 8: bytes(24)}.get(what, b"")
    body = number(what) + number(3) + number(0) + more
    steps += bytes([0, len(body)]) + body
plan = number(8) + number(3) + number(1) + bytes(24) + number(1) + bytes(32 * 24)  # schema/plan.h
steps += bytes([4, len(plan) // 8]) + plan
open(f"{sys.argv[1]}/capture/requests", "wb").write(steps)
events = b"".join(bytes([1, kind + 16 * (kind % 3), 40 * kind % 256]) for kind in range(12))
open(f"{sys.argv[1]}/capture/events", "wb").write(events * 20)
words = b"".join(bytes([6, place]) + number(2 ** (8 * place) - 1) + bytes([1, 8, 9]) for place in range(8))
open(f"{sys.argv[1]}/capture/words", "wb").write(events + words + bytes([2, 9]) + number(-1) + events)
PY
tests/fuzz/run opener 20000 4000 "$work/opener"
tests/fuzz/run supervisor 8000 2000 "$work/supervisor"
tests/fuzz/run capture 10000 2000 "$work/capture"

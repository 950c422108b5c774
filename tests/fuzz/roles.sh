#!/usr/bin/env bash
# Fuzzes the processes that a worker in the sandbox talks to.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/roles.seeds
rm -rf "$work"
mkdir -p "$work"
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
    return struct.pack("<H", len(whole)) + whole

secret = "/tmp/fuzz_opener.secret"
for what in range(18):
    for live in 0, 1:
        seed = request(0, live=live)
        for path in "/bin/true", secret, "":
            seed += request(what, path=path, link="fuzz_opener.secret", name=secret, flag=1)
        open(f"{sys.argv[1]}/{what}-{live}", "wb").write(seed)
PY
tests/fuzz/run opener 20000 8000 "$work"

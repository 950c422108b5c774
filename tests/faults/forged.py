#!/usr/bin/env python3
"""Makes a copy of an ELF library with wrong rules, but with the same build-id, size and XXH64 of .eh_frame.

usage: forged.py hash|address|names FROM TO

XXH64 with a known seed is invertible: after any change, one word of 8 bytes decides the hash.
"""
import struct
import sys

P1, P2, P3, P4, P5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = (1 << 64) - 1


def left(x, n):
    return ((x << n) | (x >> (64 - n))) & MASK


def right(x, n):
    return left(x, 64 - n)


def inverse(x):
    return pow(x, -1, 1 << 64)


def lane(value, word):
    return left((value + word * P2) & MASK, 31) * P1 & MASK


def step(h, word):
    return (left(h ^ lane(0, word), 27) * P1 + P4) & MASK


def state(data, upto):
    """Return the hash's state after all whole words below upto; len(data) is at least 32."""
    v = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
    at = 0
    while at + 32 <= len(data):
        v = [lane(x, k) for x, k in zip(v, struct.unpack_from('<4Q', data, at))]
        at += 32
    h = (left(v[0], 1) + left(v[1], 7) + left(v[2], 12) + left(v[3], 18)) & MASK
    for x in v:
        h = ((h ^ lane(0, x)) * P1 + P4) & MASK
    h = (h + len(data)) & MASK
    assert at <= upto, 'the last whole word lies in a stripe'
    while at < upto:
        h = step(h, struct.unpack_from('<Q', data, at)[0])
        at += 8
    return h


def second_preimage(old, new):
    last = len(old) // 8 * 8 - 8
    wanted = state(old, last + 8)
    h = state(new, last)
    k = h ^ right((wanted - P4) * inverse(P1) & MASK, 27)
    struct.pack_into('<Q', new, last, right(k * inverse(P1) & MASK, 31) * inverse(P2) & MASK)
    assert state(new, last + 8) == wanted


def uleb(data, at):
    while data[at] & 0x80:
        at += 1
    return at + 1


def wrong_rules(frames):
    """Make each function's largest frame 8 bytes larger; return how many were changed."""
    at = changed = 0
    while at + 8 <= len(frames):
        length, cie = struct.unpack_from('<II', frames, at)
        end = at + 4 + length
        if not length:
            break
        p = at + 17 if cie else end  # pc, size, no augmentation data
        while p < end:
            op = frames[p]
            p += 1
            if op >> 6 == 2:
                p = uleb(frames, p)
            elif op == 0x0e:
                if frames[p] >= 32 and frames[p] < 0x78:
                    frames[p] += 8
                    changed += 1
                p = uleb(frames, p)
            elif op >> 6 not in (1, 3) and op not in (0, 0x0a, 0x0b):
                break  # nothing that is needed here
        at = end
    return changed


kind, source, target = sys.argv[1:]
data = bytearray(open(source, 'rb').read())
headers, = struct.unpack_from('<Q', data, 40)
n, names = struct.unpack_from('<HH', data, 60)
strings, = struct.unpack_from('<Q', data, headers + 64 * names + 24)
for i in range(n):
    at = headers + 64 * i
    name, = struct.unpack_from('<I', data, at)
    name = bytes(data[strings + name:data.index(0, strings + name)])
    off, size = struct.unpack_from('<QQ', data, at + 24)
    if name == b'.eh_frame' and kind == 'hash':
        old = bytes(data[off:off + size])
        new = bytearray(old)
        assert wrong_rules(new) >= 2
        second_preimage(old, new)
        data[off:off + size] = new
    elif name == b'.eh_frame' and kind == 'address':
        # The same bytes, but everything that counts from their place refers to the function before.
        addr, = struct.unpack_from('<Q', data, at + 16)
        struct.pack_into('<Q', data, at + 16, addr + 64)
    elif name == b'.strtab' and kind == 'names':
        data[off:off + size] = data[off:off + size].replace(b'honest_', b'forged_')
open(target, 'wb').write(data)

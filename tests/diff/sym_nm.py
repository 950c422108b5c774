#!/usr/bin/env python3
"""Compares the symbolizer's answers with other tools' at many addresses of one ELF file.

usage: sym_nm.py SYM_DUMP FILE ADDRESSES

1. readelf's symbols with the rule of symbolizer.h, applied here by trying every
   symbol: each answer must be the same.
2. eu-addr2line -S: differences are sorted into the classes of sym_nm.md; a difference
   in none of them is a failure.
"""
import bisect
import random
import re
import subprocess
import sys

dump, path, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])


def output(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, errors="replace").stdout


# ---- what readelf says ----------------------------------------------------

sections = {}
for line in output("readelf", "-SW", path).splitlines():
    m = re.match(r"\s*\[\s*(\d+)\] (\S*)\s+(\S+)\s+([0-9a-f]{16}) [0-9a-f]+ ([0-9a-f]+) [0-9a-f]+\s+([A-Za-z]*)\s", line)
    if m:
        sections[m[1]] = (m[2], int(m[4], 16), int(m[5], 16), m[6])

KINDS = {("FUNC", True): 0, ("FUNC", False): 1, ("NOTYPE", True): 2, ("NOTYPE", False): 3}
BINDS = {"GLOBAL": 0, "UNIQUE": 0, "WEAK": 1, "LOCAL": 2}
symbols = set()  # (addr, rank, end, name)
known = {}  # name → (addr, end, rank); the rank of what is no function is None
for line in output("readelf", "-W", "--syms", "--dyn-syms", path).splitlines():
    f = line.split(None, 7)
    if len(f) < 8 or not f[0].rstrip(":").isdigit() or f[6] not in sections:
        continue
    name = re.sub(r"(?<=.)@{1,2}[\w.+-]+( \(\d+\))?$", "", f[7])
    kind = {"FUNC": "FUNC", "IFUNC": "FUNC", "NOTYPE": "NOTYPE"}.get(f[3])
    addr, size = int(f[1], 16), int(f[2], 0)
    _, start, length, flags = sections[f[6]]
    if f[3] == "OBJECT":
        known.setdefault(name, []).append((addr, addr + size, None))
    if not kind or "A" not in flags or not start <= addr < start + length:
        continue
    if kind == "NOTYPE" and ("X" not in flags or f[4] == "LOCAL" and re.match(r"\$|\.L|\.annobin", name)):
        continue
    end = min(addr + size, start + length) if size else start + length
    rank = (KINDS[kind, size > 0], BINDS[f[4]])
    symbols.add((addr, rank, end, name))
    known.setdefault(name, []).append((addr, end, rank))


def order(s):
    return (s[1], len(s[3]) - len(s[3].lstrip("_")), len(s[3].encode()), s[3].encode(), -s[2])


by_addr = {}
for s in symbols:
    by_addr.setdefault(s[0], []).append(s)
chosen = []  # (addr, end, name, open), the widest first at an address
func_end = any_end = 0
for addr in sorted(by_addr):
    group = sorted(by_addr[addr], key=order)
    kind = group[0][1][0]
    if kind and addr < func_end or kind == 3 and addr < any_end:
        continue
    if chosen and chosen[-1][3] and chosen[-1][1] > addr:
        chosen[-1] = (chosen[-1][0], addr, chosen[-1][2], True)
    if kind:
        kept = group[:1]
    else:
        kept = []
        for s in group:
            if s[1][0] == 0 and (not kept or s[2] > kept[-1][2]) and len(kept) < 4:
                kept.append(s)
    if kind in (0, 2):
        any_end = max(any_end, kept[-1][2])
        if kind == 0:
            func_end = max(func_end, kept[-1][2])
    chosen += [(s[0], s[2], s[3], kind in (1, 3)) for s in reversed(kept)]
starts = [c[0] for c in chosen]


def expected(vaddr):
    for c in reversed(chosen[max(0, bisect.bisect_right(starts, vaddr) - 200):bisect.bisect_right(starts, vaddr)]):
        if vaddr < c[1]:
            return c[2]
    return "?"


# ---- where to look ----------------------------------------------------------

random.seed(path)
code = [(a, n) for _, a, n, flags in sections.values() if "X" in flags and n]
places = set()
for start, length in code:
    places |= {start, start + length - 1, start + length, start - 1}
    places |= {start + random.randrange(length) for _ in range(wanted * length // sum(n for _, n in code) // 2)}
for c in random.sample(chosen, min(len(chosen), wanted // 8)):
    places |= {c[0], c[0] + (c[1] - c[0]) // 2, c[1] - 1, c[1]}
places = sorted(places)
text = "".join("%x\n" % p for p in places)
ours = output(dump, "find", path, text=text).splitlines()
if len(ours) != len(places):
    sys.exit("%s: %d answers to %d questions" % (path, len(ours), len(places)))

wrong = []
for place, name in zip(places, ours):
    want = expected(place)
    if name != want and not (want == "?" and name.endswith("@plt")):
        wrong.append("%x: ours %s, readelf's symbols say %s" % (place, name, want))

# ---- elfutils -----------------------------------------------------------------

theirs = output("eu-addr2line", "-S", "--debuginfo-path=", "-e", path, *["0x%x" % p for p in places]).splitlines()[::2]
counts = dict.fromkeys(("same", "nobody", "plt", "data", "alias", "open", "nested", "end"), 0)
for place, name, other in zip(places, ours, theirs):
    other = re.sub(r"(@{1,2}[\w.+-]+)?(\+0x[0-9a-f]+)?$", "", other)
    if other in ("()", "??", ""):
        other = "?"
    at = [k for k in known.get(other, ()) if k[0] <= place]
    mine = [k[0] for k in known.get(name, ())]
    if name == other:
        counts["nobody" if name == "?" else "same"] += 1
    elif name.endswith("@plt"):
        counts["plt"] += 1
    elif any(k[2] is None for k in at):
        counts["data"] += 1
    elif name != "?" and any(k[0] in mine for k in at):
        counts["alias"] += 1
    elif name != "?" and any(k[2][0] % 2 for k in at):
        counts["open"] += 1
    elif name != "?" and any(place < k[1] for k in at):
        counts["nested"] += 1
    elif name == "?" and not any(a <= place < a + n for a, n in code):
        counts["end"] += 1
    else:
        wrong.append("%x: ours %s, eu-addr2line %s" % (place, name, other))
print("%s: %d symbols, %d addresses: %s" % (path, len(chosen), len(places),
                                            ", ".join("%s %d" % c for c in counts.items() if c[1])))
for line in wrong[:10]:
    print("  " + line)
sys.exit(bool(wrong))

"""Compares tests/diff/sym_lines with eu-addr2line and llvm-symbolizer at sampled addresses.

usage: sym_lines.py PROGRAM N [-t] FILE [LIKE]

LIKE: the file that has the symbols to sample from and that the other tools read, if this is not FILE.
Prints "FILE addresses N same N class N …".  Exit code 1 if a difference is in no known class.
"""
import collections
import os
import random
import re
import subprocess
import sys

program, limit, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
like = sys.argv[4] if len(sys.argv) > 4 else file


def run(command, text):
    return subprocess.run(command, input=text, text=True, errors="surrogateescape",
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def sample():
    addresses = set()
    rng = random.Random(1)
    for line in run(["readelf", "-sW", like], "").splitlines():
        p = line.split()
        if len(p) >= 8 and p[3] == "FUNC" and p[6] not in ("UND", "ABS"):
            size = int(p[2], 0)
            start = int(p[1], 16)
            for _ in range(1 + min(size // 64, 6)):
                addresses.add(start + (rng.randrange(size) if size else 0))
    return sorted(addresses)


def choose(addresses, chains):
    """Choose some addresses of each kind: nearly all code of a static program has no debug information."""
    rng = random.Random(2)
    known = [a for a in addresses if chains.get(a)]
    rest = [a for a in addresses if not chains.get(a)]
    known = rng.sample(known, min(len(known), limit * 9 // 10))
    return sorted(known + rng.sample(rest, min(len(rest), limit // 10)))


def path(text):
    return "?" if text in ("?", "??", "") else os.path.normpath(text)


def blocks(out):
    for block in out.split("\n\n"):
        lines = block.strip("\n").split("\n")
        if lines[0]:
            yield int(lines[0], 16), lines[1:]


def ours(addresses):
    text = "".join("%x\n" % a for a in addresses)
    chains = {}
    for a, lines in blocks(run([program, "-t", file], text)):
        chains[a] = []
        for line in lines:
            name, place = line.split("\t")
            where, number = place.rsplit(":", 1)
            chains[a].append((name, path(where), int(number)))
    return chains


def elfutils(addresses):
    chains, chain = {}, None
    lines = run(["eu-addr2line", "-a", "-i", "-f", "-e", like], "".join("0x%x\n" % a for a in addresses)).split("\n")
    while lines:
        line = lines.pop(0)
        if re.fullmatch("0x[0-9a-f]{8,16}", line):
            chain = chains.setdefault(int(line, 16), [])
        elif line and lines:
            where = re.match(r"(.*?)(?::(\d+))?(?::\d+)?(?: \(.*\))?$", lines.pop(0))
            name = line.split(" inlined at ")[0]
            chain.append(("?" if name == "??" else name, path(where[1]), int(where[2] or 0)))
    return chains


def llvm(addresses):
    command = ["llvm-symbolizer", "--obj=" + like, "--inlines", "--functions=linkage", "--no-demangle", "-a"]
    chains = {}
    for a, lines in blocks(run(command, "".join("0x%x\n" % a for a in addresses))):
        chains[a] = []
        for name, place in zip(lines[::2], lines[1::2]):
            where = place.rsplit(":", 2)
            chains[a].append(("?" if name == "??" else name, path(where[0]), int(where[1])))
    return chains


def doubled(own, theirs):
    """Return whether one path is place/place/a.c and the other place/a.c."""
    folder = theirs[:-len(own) - 1]
    return theirs == folder + "/" + own and own.startswith(folder + "/") and folder != ""


def kind(own, theirs):
    if not own and all(p[2] == 0 for p in theirs):
        return "none"
    if own and theirs and own[:-1] == theirs[:-1] and own[-1][1:] == theirs[-1][1:]:
        return "symbol"
    if len(own) == len(theirs) and all(o[0] == t[0] and o[2] == t[2] and (o[1] == t[1] or doubled(o[1], t[1])) for o, t in zip(own, theirs)):
        return "folder"
    return None


addresses = sample()
mine = ours(addresses)
addresses = choose(addresses, mine)
first = elfutils(addresses)
rest = [a for a in addresses if mine.get(a) is None or mine[a] != first.get(a)]
second = llvm(rest) if rest else {}
classes = collections.Counter()
deepest = max((len(mine[a]) for a in addresses), default=0)
failures = 0
for a in rest:
    own = mine.get(a)
    if own is not None and own == second.get(a):
        continue
    name = own is not None and (kind(own, second.get(a, [])) or kind(own, first.get(a, [])))
    if name:
        classes[name] += 1
        continue
    failures += 1
    if failures <= 5:
        print("%s %x\n  ours         %s\n  eu-addr2line %s\n  llvm         %s" % (file, a, own, first.get(a), second.get(a)))
same = len(addresses) - failures - sum(classes.values())
print("%s addresses %d same %d deepest %d %s" % (file, len(addresses), same, deepest,
                                                 " ".join("%s %d" % c for c in sorted(classes.items()))))
sys.exit(1 if failures or not same + classes["folder"] else 0)
